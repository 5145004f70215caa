// Tokens that end before their connection: revoked, expired, used twice, or with a replaced key.
import assert from "node:assert/strict";
import { readFileSync, renameSync, writeFileSync } from "node:fs";
import http from "node:http";
import { join } from "node:path";
import WebSocket from "ws";
import { alone, test } from "../../lib/cases.mjs";
import { assertError, folder, run } from "../../lib/khala.mjs";
import { operate, operateRun } from "../../lib/operator.mjs";
import { AUDIT_SOCKET, pollPath, snapshotPath, socketPath, streamPath } from "../../lib/paths.mjs";
import { auditInit, Socket } from "../../lib/socket.mjs";
import { Stream } from "../../lib/sse.mjs";
import { storeWithSummaries } from "../../lib/store.mjs";
import { until, Watched, within } from "../../lib/wait.mjs";

const TOPIC = "run:r:events";
const REVOKE = "sync/sessions/revoke";
const WS = socketPath(TOPIC);
const SSE = streamPath(TOPIC);
const POLL = pollPath(TOPIC);
const PHOENIX = "/socket/websocket";
const ALICE = { oa_user_id: "alice", oa_sync_scopes: ["runtime.run_events"] };

const claims = (token) => JSON.parse(Buffer.from(token.split(".")[1], "base64url"));
const seconds = () => Math.floor(Date.now() / 1000);

const begin = (t, options) => operateRun(t, { run_id: "r", owner_user_id: "alice", ...options });

/** Appends numbered events until end() is called. */
class Load {
  sent = 0;
  stored = 0; // of those, acknowledged: a cursor beyond it may be ahead of the log
  #ends = false;

  constructor(operator, size = 5) {
    this.operator = operator;
    this.size = size;
    this.done = this.#run();
    this.done.catch(() => {});
  }

  async #run() {
    while (!this.#ends) {
      const items = Array.from({ length: this.size }, () => ({ run_id: "r", event_type: "run.log", payload: { n: ++this.sent } }));
      for (const { status } of await this.operator.batch(items)) assert.equal(status, 200);
      this.stored = this.sent;
    }
    return this.sent;
  }

  end() {
    this.#ends = true;
    return this.done;
  }
}

/** A subscriber of any dialect: the sequences it received, its notices and its end. */
class Follower extends Watched {
  seen = [];
  numbers = [];
  times = [];
  notices = [];
  ended = null; // {code, last}
  late = 0; // messages after the one that announced the end

  static async open(operator, dialect, token, after = 0) {
    const follower = new Follower();
    await follower[`_${dialect}`](operator, token, after);
    operator.server.peers.push(follower);
    return follower;
  }

  #frame(seq, payload, at) {
    if (this.last) this.late++;
    this.seen.push(seq);
    this.times.push(at);
    if (payload?.n) this.numbers.push(payload.n);
    this.changed();
  }

  #notice(body) {
    if (this.last) this.late++;
    this.notices.push(body);
    if (["token_revoked", "token_expired", "CAPABILITY_EXPIRED", "AUTH_FAILED"].includes(body.code)) this.last = body;
    this.changed();
  }

  #over(code) {
    this.ended ??= { code, last: this.last ?? null };
    this.changed();
  }

  async #socket(operator, path, take) {
    this.ws = new WebSocket(`ws://${operator.server.host}:${operator.server.port}${path}`, { perMessageDeflate: false });
    this.ws.on("message", (data) => take(JSON.parse(data.toString())));
    this.ws.on("close", (code) => this.#over(code));
    this.ws.on("error", () => {});
    this.close = () => this.ws.terminate();
    await within(new Promise((resolve, reject) => {
      this.ws.once("open", resolve);
      this.ws.once("error", reject);
    }), "a WebSocket");
  }

  _topic_ws(operator, token, after) {
    return this.#socket(operator, `${WS}?after_seq=${after}&token=${token}`, (message) => {
      if (message.type === "message") this.#frame(message.sequence, message.payload.payload ?? message.payload, message.published_at);
      else if (message.type === "error") this.#notice(message);
    });
  }

  async _phoenix(operator, token, after) {
    const replies = new Map();
    await this.#socket(operator, `${PHOENIX}?vsn=2.0.0&token=${token}`, ([, ref, , event, body]) => {
      if (event === "phx_reply") replies.get(ref)?.(body);
      else if (event === "sync:update_batch") for (const one of body.updates) this.#frame(one.watermark, one.payload.payload ?? one.payload, Date.now());
      else if (event === "sync:error") this.#notice(body);
    });
    let ref = 0;
    this.ask = (event, body) => {
      const at = String(++ref);
      const reply = new Promise((resolve) => replies.set(at, resolve));
      this.ws.send(JSON.stringify(["1", at, "sync:v1", event, body]));
      return within(reply, `the reply to ${event}`);
    };
    assert.equal((await this.ask("phx_join", {})).status, "ok");
    const { status, response } = await this.ask("sync:subscribe", { topics: [TOPIC], resume_after: { [TOPIC]: after } });
    assert.equal(status, "ok", JSON.stringify(response));
  }

  async _audit(operator, token) {
    await this.#socket(operator, AUDIT_SOCKET, (message) => {
      if (message.type === "event") this.#frame(message.event.seq, message.event.payload, message.event.recorded_at);
      else if (message.type === "error") this.#notice({ ...message, code: message.code });
    });
    this.ws.send(JSON.stringify(auditInit(token)));
  }

  async #events(operator, path, take) {
    const stream = await Stream.open(operator, path);
    assert.equal(stream.status, 200);
    this.close = () => stream.close();
    let at = 0;
    stream.until(() => {
      for (; at < stream.events.length; at++) take(stream.events[at]);
      if (stream.ended) this.#over(this.last ? 0 : 1006);
      return stream.ended;
    }, "its end").catch(() => {});
  }

  _sse(operator, token, after) {
    return this.#events(operator, `${SSE}?after_seq=${after}&token=${token}`, ({ type, data }) => {
      if (type === "message") this.#frame(data.sequence, data.payload.payload ?? data.payload, data.published_at);
      else if (type === "error" || type === "reauth_required") this.#notice(data);
    });
  }

  _log_sse(operator, token) {
    return this.#events(operator, `/events?token=${token}`, ({ type, data }) => {
      if (type === "message") this.#frame(data.seq, data.payload, data.recorded_at);
      else if (type === "error" || type === "reauth_required") this.#notice(data);
    });
  }

  failure(what) {
    return this.ended && new Error(`ended ${JSON.stringify(this.ended)} before ${what}`);
  }

  over() {
    return this.until(() => this.ended, "its end");
  }

  assertGapless(from = 1) {
    this.seen.forEach((seq, i) => assert.equal(seq, from + i));
  }
}

async function many(count, make) {
  const made = [];
  for (let i = 0; i < count; i += 100) {
    made.push(...await Promise.all(Array.from({ length: Math.min(100, count - i) }, (_, k) => make(i + k))));
  }
  return made;
}

alone("a revocation ends a thousand connections under load without disturbing others", async (t) => {
  const operator = await begin(t, { settings: { KHALA_CONNECTIONS_PER_PRINCIPAL_MAX: "2000" } });
  const doomed = operator.sign({ ...ALICE, oa_session_id: "doomed" });
  const kept = operator.sign({ ...ALICE, oa_session_id: "kept" });
  const dialects = ["topic_ws", "phoenix", "sse", "topic_ws", "phoenix"];
  const load = new Load(operator);
  const others = await many(20, (i) => Follower.open(operator, dialects[i % 5], kept));
  const revoked = await many(1000, (i) => Follower.open(operator, dialects[i % 5], doomed, load.stored));
  for (const one of revoked) await one.until(() => one.numbers.length > 0, "an event");
  const answer = await operator.did(REVOKE, { session_ids: ["doomed"], reason: "stolen" });
  // Events after this number were appended after the answer.
  const bound = load.sent;
  assert.deepEqual([answer.sessions_revoked, answer.devices_revoked, answer.tokens_revoked], [1, 0, 0]);
  assert.equal(answer.connections_dropped, 1000);
  assert.ok(answer.remembered_until > Date.now() + 900_000);
  for (const one of revoked) await one.over();
  const target = load.sent + 50;
  for (const one of others) await one.until(() => one.numbers.at(-1) >= target, "events after the revocation");
  const last = await load.end();
  for (const one of others) {
    await one.until(() => one.numbers.at(-1) === last, "all events");
    one.assertGapless();
    assert.equal(one.ended, null);
  }
  let told = 0;
  for (const one of revoked) {
    assert.ok(one.numbers.at(-1) <= bound, `${one.numbers.at(-1)} came, appended after ${bound}`);
    assert.equal(one.late, 0);
    // A client that had read everything got the error; one with unsent bytes was reset.
    if (one.ended.last) {
      assert.equal(one.ended.last.code, "token_revoked");
      assert.ok([4005, 0].includes(one.ended.code), `${one.ended.code}`);
      told++;
    } else {
      assert.equal(one.ended.code, 1006);
    }
  }
  assert.ok(told > 0);
  const { body } = await operator.get("/metrics");
  assert.match(body, /khala_auth_revocations_total\{kind="session"\} 1\n/);
  assert.match(body, /khala_auth_revoked_connections_total 1000\n/);
  await operator.server.saw("log", /sessions\.revoked .*sessions=1 devices=0 tokens=0 reason=stolen/);
  const why = await operator.read("khala/why");
  assert.ok(JSON.stringify(why).includes("token_revoked"));
});

test("a revoked token is refused by every dialect, also after a restart", async (t) => {
  const data = folder(t);
  let operator = await begin(t, { data });
  const all = [...ALICE.oa_sync_scopes, "runtime.audit"];
  const session = operator.sign({ ...ALICE, oa_sync_scopes: all, oa_session_id: "s" });
  const device = operator.sign({ ...ALICE, oa_sync_scopes: all, oa_device_id: "d" });
  const single = operator.sign({ ...ALICE, oa_sync_scopes: all, jti: "one" });
  const free = operator.sign({ ...ALICE, oa_sync_scopes: all, oa_session_id: "d", oa_device_id: "s", jti: "other" });
  await operator.did(REVOKE, { session_ids: ["s"], device_ids: ["d"], jtis: ["one"] });
  const check = async () => {
    for (const token of [session, device, single]) {
      for (const path of [`${SSE}?token=${token}`, `${WS}?token=${token}`, `${PHOENIX}?token=${token}`, `/events?token=${token}`, `${POLL}?token=${token}`]) {
        const answer = await operator.ask("GET", path, undefined, { authorization: "" });
        assert.equal(JSON.parse(answer.body).reason_code, "token_revoked", path);
        assert.equal(answer.status, 401);
      }
      const socket = await Follower.open(operator, "audit", token);
      await socket.over();
      assert.equal(socket.ended.code, 4005);
      assert.equal(socket.ended.last.details.reason, "token_revoked");
    }
    const fresh = await Follower.open(operator, "phoenix", free);
    const refused = await fresh.ask("sync:refresh", { token: session });
    assert.deepEqual([refused.status, refused.response.code], ["error", "token_revoked"]);
    fresh.close();
  };
  await check();
  await operator.server.stop();
  operator = await operate(t, { data });
  await check();
});

test("a revocation ends a waiting poll and a half-sent answer", async (t) => {
  const operator = await begin(t, { data: storeWithSummaries(t, 60_000, "'alice'") });
  const token = operator.sign({ ...ALICE, oa_session_id: "s" });
  const authorization = { authorization: `Bearer ${token}` };
  const waiting = operator.ask("GET", `${POLL}?after_seq=1&wait_ms=60000`, undefined, authorization);
  const paused = await new Promise((resolve) => {
    http.get({ host: operator.server.host, port: operator.server.port, agent: false, headers: authorization,
      path: snapshotPath("runtime.run_summaries") }, (response) => resolve(response.pause()));
  });
  paused.on("error", () => {});
  const ended = new Promise((resolve) => paused.on("close", () => resolve(paused.complete)));
  // Both requests are under way: the head of the snapshot is here, and the poll was counted.
  await until(async () => /khala_fanout_polls_total\{dialect="poll"\} 1\n/.test((await operator.get("/metrics")).body), "the poll");
  const answer = await operator.did(REVOKE, { session_ids: ["s"] });
  assert.equal(answer.requests_dropped, 2);
  assertError(await waiting, 401, "token_revoked");
  paused.resume();
  assert.equal(await within(ended, "the end of the snapshot"), false, "the answer was not whole");
});

/** The bytes in the kernel's receive buffer of the connection between these ports. */
function unread(...ports) {
  const [here, there] = ports.map((port) => `:${port.toString(16).toUpperCase().padStart(4, "0")}`);
  // The kernel may skip a row while the list changes.
  for (let attempt = 0; attempt < 100; attempt++) {
    const rows = readFileSync("/proc/net/tcp", "utf8").split("\n").map((row) => row.trim().split(/\s+/));
    const row = rows.find((fields) => fields[1]?.endsWith(here) && fields[2].endsWith(there) && fields[3] === "01");
    if (row) return parseInt(row[4].split(":")[1], 16);
  }
  return assert.fail(`no socket has the ports ${ports}`);
}

test("a revocation discards unsent bytes for a client that does not read", async (t) => {
  const operator = await begin(t, { settings: { KHALA_SLOW_CONSUMER_CHECK_MS: "60000" } });
  const token = operator.sign({ ...ALICE, jti: "stuck" });
  const socket = await Socket.open(operator, `${WS}?after_seq=0&token=${token}`, { perMessageDeflate: false });
  await socket.until((one) => one.messages.length > 1, "the first message");
  const raw = socket.ws._socket;
  socket.pause();
  raw.pause();
  const text = "x".repeat(60_000);
  for (let i = 0; i < 20; i++) {
    await operator.batch(Array.from({ length: 20 }, () => ({ run_id: "r", event_type: "run.log", payload: { text } })));
  }
  const before = raw.bytesRead;
  const held = unread(raw.localPort, operator.server.port);
  const answer = await operator.did(REVOKE, { jtis: ["stuck"] });
  assert.equal(answer.connections_dropped, 1);
  assert.ok(held > 0);
  assert.ok(before + held < 20 * 20 * 60_000, "its socket was full");
  const ended = new Promise((resolve) => raw.on("close", resolve));
  raw.resume();
  socket.resume();
  await within(ended, "the end of the connection");
  assert.ok(raw.bytesRead - before <= held, `${raw.bytesRead - before} bytes came, ${held} were there`);
});

test("an invalid revocation is refused and revokes nothing", async (t) => {
  const operator = await begin(t);
  for (const body of [{}, { session_ids: [] }, { session_ids: "s" }, { session_ids: [""] }, { session_ids: [7] },
    { jtis: ["x".repeat(641)] }, { session_ids: ["s"], device_id: "d" }, { session_ids: ["s"], reason: 1 },
    { jtis: Array(1001).fill("x") }, { jtis: ["x"], reason: "x".repeat(513) }]) {
    assertError(await operator.post(REVOKE, body), 400, "invalid_request");
  }
  assert.equal((await operator.post(REVOKE, "{\"session_ids\":[\"s\"]")).status, 400);
  const token = operator.sign({ ...ALICE, oa_session_id: "s" });
  assert.equal((await operator.ask("POST", REVOKE, "{\"jtis\":[\"x\"]}", { authorization: `Bearer ${token}` })).status, 401);
  const still = await Follower.open(operator, "topic_ws", token);
  await still.until(() => still.seen.length > 0, "an event");
});

test("khala token revoke drops a session and prints its connection count", async (t) => {
  const operator = await begin(t);
  const token = operator.sign({ ...ALICE, oa_session_id: "s" });
  const follower = await Follower.open(operator, "topic_ws", token);
  await follower.until(() => follower.seen.length > 0, "an event");
  const where = ["--url", operator.server.url, "--data-dir", operator.data];
  const done = run(["token", "revoke", "--session", "s", "--reason", "signed out", ...where]);
  assert.equal(done.code, 0, done.problem);
  assert.equal(done.out, "revoked; 1 connections and 0 requests dropped\n");
  await follower.over();
  assert.deepEqual([follower.ended.code, follower.ended.last.code], [4005, "token_revoked"]);
  assert.equal(JSON.parse(run(["token", "revoke", "--jti", "x", "--device", "d", "--json", ...where]).out).devices_revoked, 1);
  assert.equal(run(["token", "revoke", ...where]).code, 2);
});

test("every dialect is warned before its token expires, and receives nothing after it", async (t) => {
  const operator = await begin(t);
  const exp = seconds() + 4;
  const token = operator.sign({ ...ALICE, oa_sync_scopes: ["runtime.read_all"], exp });
  const load = new Load(operator, 2);
  const followers = {};
  for (const dialect of ["topic_ws", "phoenix", "sse", "log_sse", "audit"]) {
    followers[dialect] = await Follower.open(operator, dialect, token);
  }
  const poll = operator.ask("GET", pollPath("idle", "wait_ms=60000"), undefined, { authorization: `Bearer ${token}` });
  for (const [dialect, one] of Object.entries(followers)) {
    await one.over();
    assert.ok(Date.now() >= exp * 1000, dialect);
    assert.ok(one.numbers.length > 0, dialect);
    assert.equal(one.late, 0, dialect);
    for (const at of dialect === "phoenix" ? [] : one.times) assert.ok(at < exp * 1000, `${dialect} got an event of ${at}`);
    const told = one.notices.map((notice) => notice.code);
    if (dialect === "audit") {
      assert.deepEqual(told, ["CAPABILITY_EXPIRED"]);
      assert.equal(one.ended.last.details.reason, "token_expired");
      assert.ok(one.ended.last.details.resume_after.length > 0);
    } else {
      assert.deepEqual(told, ["reauth_required", "token_expired"], dialect);
      assert.ok(one.notices[0].expires_in_ms > 0 && one.notices[0].expires_in_ms <= 30_000);
      if (!dialect.endsWith("sse")) assert.ok(one.notices[1].resume_after[0].watermark > 0, dialect);
    }
    assert.equal(one.ended.code, dialect.endsWith("sse") ? 0 : 4002, dialect);
  }
  // The poll ends with the token; its answer may come just before or after the expiry.
  const waited = await poll;
  if (waited.status !== 200) assert.deepEqual([waited.status, JSON.parse(waited.body).reason_code], [401, "token_expired"]);
  await load.end();
  for (const path of [`${SSE}?token=${token}`, `/events?token=${token}`, `${WS}?token=${token}`, `${PHOENIX}?token=${token}`]) {
    const again = await operator.ask("GET", path, undefined, { authorization: "" });
    assert.deepEqual([again.status, JSON.parse(again.body).reason_code], [401, "token_expired"], path);
  }
});

test("a refreshed connection outlives its first token, and another principal cannot refresh it", async (t) => {
  const operator = await begin(t);
  const exp = seconds() + 3;
  const token = operator.sign({ ...ALICE, exp });
  const left = await Follower.open(operator, "phoenix", token);
  const kept = await Follower.open(operator, "phoenix", token);
  for (const wrong of [operator.sign({ ...ALICE, oa_user_id: "bob" }), operator.sign({ ...ALICE, oa_org_id: "o" }), operator.reader]) {
    const { status, response } = await kept.ask("sync:refresh", { token: wrong });
    assert.deepEqual([status, response.code], ["error", "owner_mismatch"]);
  }
  const stale = await kept.ask("sync:refresh", { token: operator.sign({ ...ALICE, exp: seconds() - 5, iat: seconds() - 60 }) });
  assert.deepEqual([stale.status, stale.response.code], ["error", "token_expired"]);
  const fresh = operator.sign({ ...ALICE, oa_session_id: "fresh" });
  const { status, response } = await kept.ask("sync:refresh", { token: fresh });
  assert.equal(status, "ok", JSON.stringify(response));
  assert.equal(response.expires_at, claims(fresh).exp * 1000);
  await left.over();
  assert.equal(left.ended.code, 4002);
  await operator.batch([{ run_id: "r", event_type: "run.log", payload: { n: 1 } }]);
  await kept.until(() => kept.numbers.length === 1, "an event after the first token's end");
  // The connection belongs to the fresh token now.
  assert.equal((await operator.did(REVOKE, { session_ids: ["fresh"] })).connections_dropped, 1);
  await kept.over();
  assert.equal(kept.ended.code, 4005);
});

test("a single-use token opens one connection, also over a restart", async (t) => {
  const data = folder(t);
  const settings = { RUNTIME_SYNC_TOKEN_SINGLE_USE: "true", RUNTIME_KHALA_POLL_MIN_INTERVAL_MS: "0" };
  let operator = await begin(t, { data, settings });
  const doors = { topic_ws: `${WS}?token=`, phoenix: `${PHOENIX}?token=`, sse: `${SSE}?token=`, log_sse: "/events?token=" };
  const used = [];
  const refused = async (token) => {
    for (const path of Object.values(doors)) {
      const answer = await operator.ask("GET", path + token, undefined, { authorization: "" });
      assert.deepEqual([answer.status, JSON.parse(answer.body).reason_code], [401, "token_replayed"], path);
    }
    const audit = await Follower.open(operator, "audit", token);
    await audit.over();
    assert.deepEqual([audit.ended.code, audit.ended.last.details.reason], [4001, "token_replayed"]);
  };
  for (const dialect of [...Object.keys(doors), "audit"]) {
    const token = operator.reader;
    // Neither a HEAD request nor a poll uses up the token.
    assert.equal((await operator.ask("HEAD", doors.sse + token, undefined, { authorization: "" })).status, 200);
    assert.equal((await operator.ask("GET", `${POLL}?after_seq=0`, undefined, { authorization: `Bearer ${token}` })).status, 200);
    const follower = await Follower.open(operator, dialect, token);
    await follower.until(() => follower.seen.length > 0, `an event by ${dialect}`);
    used.push(token);
    await refused(token);
    assert.equal(follower.ended, null);
  }
  const both = operator.reader;
  const answers = await Promise.all(Array.from({ length: 8 }, () => Stream.open(operator, doors.sse + both)));
  assert.deepEqual(answers.map((one) => one.status).sort(), [200, ...Array(7).fill(401)]);
  await operator.server.stop();
  operator = await operate(t, { data, settings });
  for (const token of [...used, both]) await refused(token);
});

test("a nonce of the audit socket is accepted once, also over a restart", async (t) => {
  const data = folder(t);
  let operator = await begin(t, { data });
  const init = { nonce: "n-1", ts: Date.now() };
  const say = async () => {
    const socket = await Socket.audit(operator, operator.reader, init);
    await socket.until((one) => one.messages.length > 0, "an answer");
    return socket.messages[0];
  };
  assert.equal((await say()).type, "init_ack");
  assert.equal((await say()).details.reason, "nonce_used");
  await operator.server.stop();
  operator = await operate(t, { data });
  assert.equal((await say()).details.reason, "nonce_used");
});

test("signing keys are replaced under load without dropping a connection", async (t) => {
  const path = join(folder(t), "keys.json");
  const key = (kid) => ({ kty: "oct", kid, k: Buffer.from(`${kid} secret of thirty-two characters`).toString("base64url") });
  const write = (...keys) => {
    writeFileSync(`${path}.new`, JSON.stringify({ keys }));
    renameSync(`${path}.new`, path);
  };
  const [old, young] = [key("old"), key("young")];
  write(old);
  const operator = await begin(t, { settings: { RUNTIME_SYNC_JWKS_FILE: path, RUNTIME_SYNC_TOKEN_ISSUER: "khala" } });
  const loads = (count) => operator.server.saw("log", new RegExp(`(signing_keys\\.loaded[\\s\\S]*){${count}}`));
  const opens = async (token) => {
    const stream = await Stream.open(operator, `${SSE}?token=${token}`);
    stream.close();
    return stream.status;
  };
  const load = new Load(operator);
  const dialects = ["topic_ws", "phoenix", "sse"];
  const ancient = operator.sign(ALICE, old);
  const followers = await many(100, (i) => Follower.open(operator, dialects[i % 3], operator.sign(ALICE, old)));
  assert.equal(await opens(operator.sign(ALICE, young)), 401);
  write(young, old);
  operator.server.kill("SIGHUP");
  await loads(1);
  followers.push(await Follower.open(operator, "sse", ancient), await Follower.open(operator, "sse", operator.sign(ALICE, young)));
  assert.equal((await operator.did("/api/sync/token", {})).kid, "young");
  for (let i = 2; i < 7; i++) {
    operator.server.kill("SIGHUP");
    await loads(i);
  }
  // The server also watches the file without a signal.
  write(young);
  await until(async () => await opens(operator.sign(ALICE, old)) === 401, "the new keys");
  followers.push(await Follower.open(operator, "topic_ws", operator.sign(ALICE, young)));
  const last = await load.end();
  for (const one of followers) {
    await one.until(() => one.numbers.at(-1) === last, "the last event");
    one.assertGapless();
    assert.equal(one.ended, null);
  }
});
