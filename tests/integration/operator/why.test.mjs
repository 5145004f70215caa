// khala why: every kind of denial and disconnect, by principal, topic and connection; decisions are
// not displaced by a flood; and the log beside them.
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { alone, test } from "../../lib/cases.mjs";
import { connect, run } from "../../lib/khala.mjs";
import { operate } from "../../lib/operator.mjs";
import { pollPath, socketPath } from "../../lib/paths.mjs";
import { events, TOPIC } from "../../lib/samples.mjs";
import { Socket } from "../../lib/socket.mjs";
import { alter } from "../../lib/store.mjs";
import { until } from "../../lib/wait.mjs";
import { BINARY, frame, message, RawSocket, TEXT } from "../../lib/websocket.mjs";

const POLL = pollPath(TOPIC);
const TOPIC_WS = socketPath(TOPIC);
const NOW = () => Math.floor(Date.now() / 1000);
const SCOPES = ["runtime.run_events"];

function why(operator, ...args) {
  return run(["why", "--url", operator.server.url, "--data-dir", operator.data, ...args]);
}

async function decisions(operator, filter = "") {
  return (await operator.read(`khala/why?limit=1000${filter}`)).decisions;
}

/** Creates the run a of the user u, and appends so many events. */
async function grow(operator, count) {
  await operator.did("runs", { run_id: "a", owner_user_id: "u" }, 201);
  await operator.batch(events(count));
}

// ---- every kind ----

/** A GET with a token of these claims, or with these headers. */
async function asked(operator, id, claims, { path = `${POLL}?after_seq=0`, headers = {} } = {}) {
  const authorization = claims ? `Bearer ${operator.sign(claims)}` : "";
  return operator.ask("GET", path, undefined, { authorization, "x-request-id": id, ...headers });
}

const mine = (claims = {}) => ({ oa_user_id: "u", oa_sync_scopes: SCOPES, ...claims });
const denied = (code, more = {}) => ({ decision: "denied", code, close_code: null, dialect: "http", ...more });
const ended = (code, close_code, more = {}) => ({ decision: "disconnected", code, close_code, principal: "service", ...more });
const OF_TOPIC = { topic: TOPIC, topic_class: "run_events" };
const BEARER = { principal: "user:u", ...OF_TOPIC };

async function raw(operator, id, options = {}) {
  return RawSocket.open(operator, { ...options, headers: { "X-Request-Id": id } });
}

async function says(operator, id, bytes, options) {
  const socket = await raw(operator, id, options);
  await socket.send(bytes);
  await socket.closed();
}

async function auditSays(operator, id, more) {
  const socket = await Socket.audit(operator, more.capability, {}, { headers: { "x-request-id": id } });
  await socket.until((one) => one.closed, "the close");
}

const PLAIN = {};
const QUICK = { KHALA_SLOW_CONSUMER_CHECK_MS: "50" };
const ONCE = { RUNTIME_SYNC_TOKEN_SINGLE_USE: "true", OA_COMPAT_KHALA_ENFORCED: "true",
  OA_COMPAT_KHALA_MIN_CLIENT_BUILD_ID: "20260101T000000Z" };
const TIGHT = { RUNTIME_KHALA_RUN_EVENTS_REPLAY_BUDGET_EVENTS: "2", RUNTIME_KHALA_FALLBACK_MAX_PAYLOAD_BYTES: "1024",
  RUNTIME_KHALA_RUN_EVENTS_MAX_PAYLOAD_BYTES: "1024", RUNTIME_KHALA_FALLBACK_PUBLISH_RATE_PER_SECOND: "1",
  RUNTIME_KHALA_POLL_MIN_INTERVAL_MS: "60000" };
const BEHIND = { RUNTIME_KHALA_POLL_MIN_INTERVAL_MS: "0", RUNTIME_KHALA_SLOW_CONSUMER_LAG_THRESHOLD: "2",
  RUNTIME_KHALA_SLOW_CONSUMER_MAX_STRIKES: "1", KHALA_SILENCE_TIMEOUT_MS: "1000" };
const WELCOME = "client_build_id=20260201T000000Z&protocol_version=khala.ws.v1&schema_version=1";

// name | settings | the action | the expected decision
const KINDS = [
  ["401 without a token", PLAIN, (o, id) => asked(o, id, null), denied("missing_authorization", { principal: null, ...OF_TOPIC })],
  ["401 by another scheme", PLAIN, (o, id) => asked(o, id, null, { headers: { authorization: "Basic eDp5" } }),
    denied("invalid_authorization_scheme", OF_TOPIC)],
  ["401 for a token of somebody else's making", PLAIN, (o, id) => asked(o, id, null, { headers: { authorization: "Bearer x.y.z" } }),
    denied("invalid_token", { principal: null })],
  ["401 for what is not the operator key", PLAIN, (o, id) => asked(o, id, null, { path: "/metrics" }),
    denied("missing_authorization", { topic: null, topic_class: null })],
  ["401 after the end", PLAIN, (o, id) => asked(o, id, mine({ iat: NOW() - 500, exp: NOW() - 100 })), denied("token_expired", BEARER)],
  ["401 before the beginning", PLAIN, (o, id) => asked(o, id, mine({ nbf: NOW() + 500 })), denied("token_not_yet_valid", BEARER)],
  ["401 without an id", PLAIN, (o, id) => asked(o, id, mine({ jti: undefined })), denied("missing_jti", BEARER)],
  ["401 without a time", PLAIN, (o, id) => asked(o, id, mine({ iat: undefined })), denied("missing_iat", BEARER)],
  ["401 for age", PLAIN, (o, id) => asked(o, id, mine({ iat: NOW() - 5000 })), denied("token_too_old", BEARER)],
  ["401 after a revocation", PLAIN, async (o, id) => {
    await o.did("sync/sessions/revoke", { jtis: [id] });
    await asked(o, id, mine({ jti: id }));
  }, denied("token_revoked", BEARER)],
  ["401 for a second use", ONCE, async (o, id) => {
    const token = o.sign({ oa_sync_scopes: ["runtime.read_all"] });
    const path = `/v1/topics/${TOPIC}/sse?token=${token}&${WELCOME}`;
    const { request, answer } = o.begin("GET", path, { authorization: "" });
    request.end();
    (await answer).destroy();
    await o.ask("GET", path, undefined, { authorization: "", "x-request-id": id });
  }, denied("token_replayed", { principal: "service", ...OF_TOPIC })],
  ["403 for a topic that is not granted", PLAIN, (o, id) => asked(o, id, mine({ oa_sync_topics: ["run:b:events"] })),
    denied("forbidden_topic", BEARER)],
  ["403 for a scope", PLAIN, (o, id) => asked(o, id, mine({ oa_sync_scopes: [] })), denied("missing_scope", BEARER)],
  ["403 for an owner", PLAIN, (o, id) => asked(o, id, mine({ oa_user_id: "v" })), denied("owner_mismatch", { ...BEARER, principal: "user:v" })],
  ["403 for an origin", PLAIN, (o, id) => asked(o, id, mine(), { headers: { origin: "https://evil.example" } }),
    denied("origin_not_allowed", { principal: null, origin: "https://evil.example" })],
  ["403 for a preflight", PLAIN, (o, id) => o.ask("OPTIONS", "/v1/runs", undefined, { authorization: "", "x-request-id": id,
    origin: "https://evil.example", "access-control-request-method": "POST" }),
  denied("origin_not_allowed", { principal: null, origin: "https://evil.example" })],
  ["403 for a plan", PLAIN, (o, id) => o.ask("POST", "/v1/cursors/plan", JSON.stringify([{ topic: TOPIC, after_seq: 0 }]),
    { authorization: `Bearer ${o.sign(mine({ oa_user_id: "v" }))}`, "x-request-id": id }), denied("owner_mismatch", { ...BEARER, principal: "user:v" })],
  ["403 for a projected topic", PLAIN, (o, id) => o.ask("POST", `topics/${TOPIC}/events`, '{"event_type":"a"}', { "x-request-id": id }),
    denied("projection_owned_topic", { principal: "operator", ...OF_TOPIC })],
  ["403 for an item of a batch", PLAIN, (o, id) => o.ask("POST", "events:batch", `[{"topic":"${TOPIC}","event_type":"a"}]`, { "x-request-id": id, "content-type": "application/json" }),
    denied("projection_owned_topic", { principal: "operator", ...OF_TOPIC })],
  ["403 in a subscription", PLAIN, async (o, id) => {
    const socket = await raw({ ...o, server: o.server, reader: o.sign(mine({ oa_user_id: "v" })) }, id);
    await socket.send(message(["1", "2", "sync:v1", "sync:subscribe", { topics: [TOPIC] }]));
    await socket.reply("2");
  }, denied("owner_mismatch", { dialect: "phoenix", principal: "user:v", ...OF_TOPIC })],
  ["410", TIGHT, (o, id) => asked(o, id, mine(), { path: `${POLL}?after_seq=1` }),
    { decision: "disconnected", code: "stale_cursor", reason_code: "replay_budget_exceeded", dialect: "poll", ...BEARER }],
  ["409", BEHIND, async (o, id) => {
    await asked(o, "-", mine({ oa_session_id: "tab" }), { path: `${POLL}?after_seq=0&limit=1` });
    await asked(o, id, mine({ oa_session_id: "tab" }), { path: `${POLL}?after_seq=0&limit=1` });
  }, { decision: "disconnected", code: "slow_consumer_evicted", dialect: "poll", ...BEARER }],
  ["413 for a body", PLAIN, (o, id) => o.ask("POST", "/api/sync/token", "x".repeat(1 << 20), { "x-request-id": id }).catch(() => {}),
    denied("payload_too_large", { principal: "operator", topic: null })],
  ["413 for a payload", TIGHT, (o, id) => o.ask("POST", "runs/a/events",
    JSON.stringify({ event_type: "run.log", payload: { text: "x".repeat(2000) } }), { "x-request-id": id }),
  denied("khala_frame_payload_too_large", { principal: "operator", ...OF_TOPIC })],
  ["413 for an item of a batch", TIGHT, (o, id) => o.ask("POST", "events:batch",
    JSON.stringify([{ topic: "app", event_type: "a", payload: { text: "x".repeat(2000) } }]), { "x-request-id": id, "content-type": "application/json" }),
  denied("khala_frame_payload_too_large", { principal: "operator", topic: "app", topic_class: "fallback" })],
  ["426 for a client", ONCE, (o, id) => asked(o, id, mine(), { path: `${POLL}?client_build_id=20250101T000000Z&protocol_version=khala.ws.v1&schema_version=1` }),
    denied("upgrade_required", { ...BEARER, surface: "khala_websocket" })],
  ["426 for a join", ONCE, async (o, id) => {
    const socket = await raw(o, id, { join: false });
    await socket.send(message(["1", "1", "sync:v1", "phx_join", {}]));
    await socket.reply("1");
  }, denied("invalid_client_build", { dialect: "phoenix", principal: "service", topic: null, surface: "khala_websocket" })],
  ["426 for a handshake", PLAIN, (o, id) => asked(o, id, mine(), { path: "/socket/websocket", headers: {
    upgrade: "websocket", connection: "Upgrade", "sec-websocket-version": "12", "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==" } }),
  denied("ws_unsupported_version", { principal: "user:u" })],
  ["429 for polls", TIGHT, async (o, id) => {
    await asked(o, "-", mine({ oa_user_id: "u", oa_session_id: "tab" }), { path: POLL });
    await asked(o, id, mine({ oa_user_id: "u", oa_session_id: "tab" }), { path: POLL });
  }, denied("rate_limited", BEARER)],
  ["429 for publishing", TIGHT, async (o, id) => {
    for (let status = 0; status !== 429;) {
      ({ status } = await o.ask("POST", "topics/busy/events", '{"event_type":"a"}', { "x-request-id": id }));
    }
  }, denied("khala_publish_rate_limited", { principal: "operator", topic: "busy", topic_class: "fallback" })],
  ["4000", QUICK, async (o, id) => {
    const socket = await raw(o, id);
    await socket.subscribe(TOPIC);
    socket.peer.socket.pause();
    await until(async () => {
      await o.batch(events(100, { payload: () => ({ text: "x".repeat(4000) }) }));
      return (await decisions(o, `&connection=${id}`)).length > 0;
    }, "the eviction");
  }, ended("slow_consumer", 4000, { dialect: "phoenix", ...OF_TOPIC })],
  ["4001", PLAIN, (o, id) => auditSays(o, id, { capability: "x.y.z" }), ended("invalid_token", 4001, { dialect: "audit_ws", principal: null })],
  ["4001, and whose token it was", PLAIN, (o, id) => auditSays(o, id, { capability: o.sign(mine({ iat: NOW() - 5000 })) }),
    ended("token_too_old", 4001, { dialect: "audit_ws", principal: "user:u" })],
  ["4002", PLAIN, async (o, id) => {
    const socket = await raw({ server: o.server, reader: o.sign(mine({ exp: NOW() + 1 })) }, id);
    await socket.closed();
  }, ended("token_expired", 4002, { dialect: "phoenix", principal: "user:u" })],
  ["4003", PLAIN, (o, id) => says(o, id, frame(TEXT, "no JSON")), ended("invalid_message", 4003, { dialect: "phoenix" })],
  ["4003 on a topic's socket", PLAIN, (o, id) => says(o, id, frame(TEXT, "hello"), { path: `${TOPIC_WS}?token=${o.reader}`, join: false }),
    ended("invalid_message", 4003, { dialect: "topic_ws" })],
  ["4003 for bytes", PLAIN, (o, id) => says(o, id, frame(BINARY, "x")), ended("invalid_message", 4003, { dialect: "phoenix" })],
  ["4005", PLAIN, async (o, id) => {
    const socket = await raw({ server: o.server, reader: o.sign(mine({ jti: id })) }, id);
    await o.did("sync/sessions/revoke", { jtis: [id] });
    await socket.closed();
  }, ended("token_revoked", 4005, { dialect: "phoenix", principal: "user:u" })],
  ["1001", BEHIND, async (o, id) => { await (await raw(o, id)).closed(); }, ended("ws_silent", 1001, { dialect: "phoenix" })],
  ["1002", PLAIN, (o, id) => says(o, id, frame(TEXT, "x", { mask: false })), ended("ws_protocol_error", 1002, { dialect: "phoenix" })],
  ["1007", PLAIN, (o, id) => says(o, id, frame(TEXT, Buffer.from([0xff]))), ended("invalid_utf8", 1007, { dialect: "phoenix" })],
  ["1009", PLAIN, (o, id) => says(o, id, frame(TEXT, "x", { size: 1 << 24 })), ended("ws_message_too_big", 1009, { dialect: "phoenix" })],
  // This comes last, since the store cannot be read after it.
  ["4004", PLAIN, async (o, id) => {
    alter(o.data, "ALTER TABLE events RENAME TO gone");
    await (await raw(o, id, { path: `${TOPIC_WS}?token=${o.reader}&after_seq=0`, join: false })).closed();
  }, { decision: "disconnected", close_code: 4004, dialect: "topic_ws", principal: "service" }],
];

const groups = KINDS.reduce((all, kind) => all.set(kind[1], [...(all.get(kind[1]) ?? []), kind]), new Map());

for (const [settings, kinds] of groups) {
  // Short timeouts of the server, which cases beside it would use up.
  alone(`khala why lists every refusal and disconnect (${Object.keys(settings).join(", ") || "no setting"})`, async (t) => {
    const operator = await operate(t, { settings });
    await grow(operator, 9);
    for (const [what, , happens, expected] of kinds) {
      await t.test(what, async () => {
        const id = `k${randomUUID()}`;
        const begun = Date.now();
        await happens(operator, id);
        const fits = (one) => one.decision === expected.decision && (!expected.code || one.code === expected.code);
        const found = await until(async () => (await decisions(operator, `&connection=${id}`)).find(fits), "the decision");
        for (const [name, value] of Object.entries(expected)) assert.equal(found[name], value, `${name} of ${JSON.stringify(found)}`);
        assert.ok(found.at >= begun - 1000 && found.at <= Date.now() + 1000);
        assert.match(found.message, /^[A-Z].*\.$/);
        assert.match(found.advice, /^[A-Z].*\.$/, "what to do");
        if (what !== "403 for a plan") assert.equal(found.peer, "127.0.0.1");
        const shown = why(operator, "--connection", id);
        assert.equal(shown.code, 0, shown.problem);
        assert.ok(shown.out.split("\n").some((line) => line.includes(` ${found.decision} ${found.code}  `) && line.endsWith(`  ${found.message}  ${found.advice}`)), shown.out);
        if (found.principal) assert.equal(why(operator, "--principal", found.principal).code, 0);
        if (found.principal) assert.equal(why(operator, "--principal", found.principal.split(":").at(-1)).code, 0, "without its kind");
        if (found.topic) assert.equal(why(operator, "--topic", found.topic).code, 0);
      });
    }
  });
}

test("khala why lists a truncated answer with its principal", async (t) => {
  const operator = await operate(t, { settings: { KHALA_REQUEST_TIMEOUT_MS: "1000" } });
  const metadata = { text: "x".repeat(30_000) };
  for (let n = 0; n < 400; n++) await operator.did("workers", { worker_id: `w${n}`, owner_user_id: "u", metadata }, 201);
  const found = (id) => until(async () => (await decisions(operator, `&connection=${id}`))[0], id);
  const topic = "runtime.codex_worker_summaries";
  for (const id of ["slow", "revoked"]) {
    const peer = await connect(operator.server);
    await peer.send(`GET /v1/topics/${topic}/snapshot HTTP/1.1\r\nHost: x\r\nX-Request-Id: ${id}\r\nAuthorization: Bearer `
      + `${operator.sign({ oa_user_id: "u", oa_sync_scopes: ["runtime.codex_worker_events"], jti: id })}\r\n\r\n`);
    await peer.head();
    peer.socket.pause();
  }
  await operator.did("sync/sessions/revoke", { jtis: ["revoked"] });
  const about = ({ decision, code, principal, topic: of, dialect }) => [decision, code, principal, of, dialect];
  assert.deepEqual(about(await found("revoked")), ["disconnected", "token_revoked", "user:u", topic, "http"]);
  assert.deepEqual(about(await found("slow")), ["disconnected", "request_timeout", "user:u", topic, "http"]);
});

// ---- a flood ----

test("a flood of denials neither displaces other decisions nor fills the log", async (t) => {
  const operator = await operate(t, { settings: { KHALA_LOG: "json" } });
  await asked(operator, "early", mine({ oa_sync_scopes: [] }));
  const FLOOD = 3000;
  const peer = await connect(operator.server);
  const request = `GET ${POLL} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer x\r\n\r\n`;
  for (let i = 0; i < FLOOD; i += 100) {
    await peer.send(request.repeat(100));
    for (let k = 0; k < 100; k++) assert.equal((await peer.response()).status, 401);
  }
  await asked(operator, "late", mine({ oa_sync_scopes: [] }));
  for (const id of ["early", "late"]) {
    assert.deepEqual((await decisions(operator, `&connection=${id}`)).map((one) => one.code), ["missing_scope"]);
  }
  assert.equal((await decisions(operator)).filter((one) => one.code === "invalid_token").length, 64);
  const { body } = await operator.get("/metrics");
  assert.match(body, new RegExp(`auth_denials_total\\{reason="invalid_token",topic_class="run_events"\\} ${FLOOD}\\n`));
  await operator.server.stop();
  const lines = operator.server.log.trim().split("\n").map((line) => JSON.parse(line));
  const sum = (event) => lines.filter((line) => line.event === event).reduce((all, line) => all + line.count, 0);
  const logged = lines.filter((line) => line.event === "client.denied").map((line) => line.code);
  // Lines that this process did not read in time are lost and counted.
  assert.equal(logged.length + sum("log.lines_lost"), 64 + 2);
  assert.ok(logged.includes("missing_scope"));
  assert.equal(sum("client.decisions_unlogged"), FLOOD - 64);
});

// ---- asking ----

test("khala why filters by request, principal and topic", async (t) => {
  const operator = await operate(t, { settings: { RUNTIME_KHALA_RUN_EVENTS_REPLAY_BUDGET_EVENTS: "2" } });
  assert.equal(why(operator).code, 1, "nothing happened yet");
  await grow(operator, 9);
  const denied = await operator.ask("GET", "khala/topics/run:a:events/messages", undefined,
    { authorization: "Bearer nonsense", "x-request-id": "ask-1" });
  assert.equal(denied.status, 401);
  const stale = await operator.ask("GET", "khala/topics/run:a:events/messages?after_seq=1", undefined, { "x-request-id": "ask-2" });
  assert.equal(stale.status, 410);

  const { decisions } = await operator.read("khala/why?topic=run:a:events");
  assert.deepEqual(decisions.map(({ at, message, advice, ...rest }) => rest), [
    { decision: "disconnected", code: "stale_cursor", reason_code: "replay_budget_exceeded", rule: null, surface: null, origin: null, connection: "ask-2",
      principal: "operator", peer: "127.0.0.1", topic: TOPIC, topic_class: "run_events", dialect: "poll", close_code: null },
    { decision: "denied", code: "invalid_token", reason_code: null,
      rule: "token: must be three base64url parts of at most 8192 bytes in total", surface: null, origin: null, connection: "ask-1", principal: null,
      peer: "127.0.0.1", topic: TOPIC, topic_class: "run_events", dialect: "http", close_code: null },
  ]);
  assert.ok(Math.abs(decisions[0].at - Date.now()) < 3_600_000);
  const one = why(operator, "--connection", "ask-1", "--json");
  assert.equal(one.code, 0);
  assert.deepEqual(JSON.parse(one.out).decisions.map((decision) => decision.code), ["invalid_token"]);
  const people = why(operator, "--principal", "operator");
  assert.match(people.out, /^\d{4}-\S+Z {2}disconnected stale_cursor {2}reason=replay_budget_exceeded .*connection=ask-2 /);
  assert.equal(why(operator, "--topic", "other").code, 1);
  assert.equal(why(operator, "--topic", "run:a:events", "--connection", "ask-3").code, 1);
  assert.equal(why(operator, "surplus").code, 2);
  assert.equal((await operator.read("khala/why?limit=1")).decisions.length, 1);
  assert.equal((await operator.get("khala/why?limit=0")).status, 400);
});

test("the log names a refused origin, and the surface of a refused version", async (t) => {
  const operator = await operate(t, { settings: ONCE });
  await asked(operator, "page", mine(), { headers: { origin: "https://evil.example" } });
  await asked(operator, "old", mine(), { path: `${POLL}?client_build_id=20250101T000000Z&protocol_version=khala.ws.v1&schema_version=1` });
  const line = (id) => operator.server.log.split("\n").find((one) => one.includes("client.denied") && one.includes(`request_id=${id}`));
  assert.match(line("page"), / origin=https:\/\/evil\.example( |$)/);
  assert.match(line("old"), / surface=khala_websocket .*client_build_id=20250101T000000Z/);
  assert.match(why(operator, "--connection", "page").out, / origin=https:\/\/evil\.example /);
});

test("khala why escapes a hostile topic name", async (t) => {
  const operator = await operate(t);
  const topic = "a\n2026-01-01T00:00:00.000Z  denied x\x1b[2J\u202e principal=operator";
  const path = `/internal/v1/khala/topics/${encodeURIComponent(topic)}/messages`;
  assert.equal((await operator.ask("GET", path, undefined, { authorization: "", "x-request-id": "evil" })).status, 401);
  const shown = why(operator, "--connection", "evil");
  assert.equal(shown.code, 0);
  assert.match(shown.out, /^[^\n]*\n$/, "one line");
  assert.doesNotMatch(shown.out.slice(0, -1), /[\x00-\x1f\x7f-\x9f\u202e]/);
  assert.ok(shown.out.includes('  topic="a\\n2026-01-01T00:00:00.000Z  denied x\\x1b[2J\\u202e principal=operator"  connection=evil  peer=127.0.0.1  '), shown.out);
  assert.equal((await decisions(operator, `&topic=${encodeURIComponent(topic)}`)).length, 1);
});

test("khala why replaces invalid UTF-8 in a denied request", async (t) => {
  const operator = await operate(t);
  const denied = await operator.ask("GET", "khala/topics/a%ff%22/messages", undefined, { authorization: "Bearer nonsense" });
  assert.equal(denied.status, 401);
  const { decisions } = await operator.read("khala/why");
  assert.equal(decisions[0].topic, 'a?"');
});

test("the log names requests by their id and never shows a key, a token or a query", async (t) => {
  const operator = await operate(t, { settings: { KHALA_LOG: "json", KHALA_LOG_LEVEL: "debug" } });
  const secret = "s3cr3t-t0k3n";
  await operator.ask("GET", "runs/none", undefined, { "x-request-id": "mine" });
  await operator.ask("GET", "/metrics", undefined, { authorization: `Bearer ${secret}` });
  await operator.ask("GET", `/v1/topics/t/sse?token=${secret}`, undefined, { authorization: "" });
  await operator.ask("GET", `/nowhere?token=${secret}&key=${operator.key}`);
  await operator.server.saw("log", /"path":"\/nowhere"/);
  const lines = operator.server.log.trim().split("\n").map((line) => JSON.parse(line));
  const mine = lines.find((line) => line.request_id === "mine");
  assert.deepEqual([mine.level, mine.event, mine.method, mine.status, mine.path], ["debug", "http.request", "GET", 404, "/internal/v1/runs/none"]);
  const denials = lines.filter((line) => line.event === "client.denied");
  assert.deepEqual(denials.map((line) => [line.level, line.code, line.topic]), [["info", "invalid_token", undefined], ["info", "invalid_token", "t"]]);
  for (const line of denials) assert.match(line.request_id, /^[0-9a-f-]{36}$/);
  assert.ok(!operator.server.log.includes(secret));
  assert.ok(!operator.server.log.includes(operator.key));
  const { decisions } = await operator.read("khala/why");
  assert.ok(!JSON.stringify(decisions).includes(secret));
});

const HOSTILE = ["/%00%01%1b[2J%0a%0d%22%5c", "/\xff\xfe\x80", "/v1/topics/%ff%fe%0a%e2%80%a8/sse", "/v1/topics/a%22,%22level%22:%22error/sse",
  `/v1/topics/${"x".repeat(6000)}/sse`, "/v1/topics/%f0%9f%8e%89/sse?token=s3cr3t", "//\"quoted\"", "/a?b\u00e4"];

for (const format of ["json", "text"]) {
  test(`a log entry is one line, whatever a peer sends (${format})`, async (t) => {
    const operator = await operate(t, { settings: { KHALA_LOG: format, KHALA_LOG_LEVEL: "debug" } });
    const evil = "\xff\x9b31m\"\\ INFO  client.denied code=none";
    let denials = 0;
    for (const target of HOSTILE) {
      for (const authorization of [`Bearer ${evil}`, `${evil}\x1b[2J`]) {
        const peer = await connect(operator.server);
        await peer.send(Buffer.from(`GET ${target} HTTP/1.1\r\nHost: x\r\nAuthorization: ${authorization}\r\n`
          + `X-Request-Id: ${evil}\r\nConnection: close\r\n\r\n`, "latin1"));
        const { status } = await peer.response();
        assert.ok(status >= 400 && status < 500);
        denials += status === 401 || status === 413 ? 1 : 0;
      }
    }
    await operator.server.stop();
    const lines = operator.server.log.split("\n").slice(0, -1);
    assert.doesNotMatch(operator.server.log.replaceAll("\n", ""), /[\x00-\x1f\x7f-\x9f\u2028\u202e\ufffd]/);
    assert.ok(!operator.server.log.includes("s3cr3t"));
    const events = lines.map((line) => (format === "json" ? JSON.parse(line).event : line.match(/^\d{4}-\d\d-\d\dT[\d:.]+Z (?:DEBUG|INFO |WARN |ERROR) (\S+)( \w+=("(?:[^"\\]|\\.)*"|\S+))*$/)?.[1]));
    assert.ok(events.every((event) => /^[a-z_.]+$/.test(event)), lines[events.findIndex((event) => !/^[a-z_.]+$/.test(event))]);
    assert.equal(denials, 4);
    assert.equal(events.filter((event) => event === "client.denied").length, denials);
    assert.equal(events.filter((event) => event === "http.request").length, 2 * HOSTILE.length);
  });
}

test("a request has one id in the answer, the error and the log", async (t) => {
  const operator = await operate(t, { settings: { KHALA_LOG: "json", KHALA_LOG_LEVEL: "debug" } });
  for (const [given, kept] of [["abc-DEF_1.2", true], ["x".repeat(64), true], ["x".repeat(65), false], ["a b", false], ['a"b', false], ["", false]]) {
    const response = await operator.ask("GET", "/metrics", undefined, { authorization: "", "x-request-id": given });
    const { request_id: id } = JSON.parse(response.body);
    assert.equal(id === given, kept, given);
    assert.match(id, /^[\w.-]{1,64}$/);
    assert.equal(response.headers["x-request-id"], id);
    await operator.server.saw("log", new RegExp(`"http.request","request_id":"${id}".*\n`));
    const lines = operator.server.log.trim().split("\n").map((line) => JSON.parse(line)).filter((line) => line.request_id === id);
    assert.deepEqual(lines.map((line) => line.event).sort(), ["client.denied", "http.request"]);
  }
});

test("the log contains only lines of its level", async (t) => {
  for (const [level, expected] of [["debug", /http\.request[^]*client\.denied|client\.denied[^]*http\.request/], ["warn", /^(?![^]*(server\.ready|client\.denied))/],
    ["off", /^$/]]) {
    const operator = await operate(t, { settings: { KHALA_LOG_LEVEL: level } });
    await operator.ask("GET", "/metrics", undefined, { authorization: "" });
    await operator.server.stop();
    assert.match(operator.server.log, expected, level);
    assert.doesNotMatch(operator.server.log, level === "debug" ? /^$/ : / (DEBUG|INFO) /);
  }
});

test("requests are logged at debug level only, denials also above it", async (t) => {
  const operator = await operate(t);
  await operator.read("khala/fanout/metrics");
  await operator.ask("GET", "/metrics", undefined, { authorization: "" });
  await operator.server.saw("log", /client\.denied code=missing_authorization request_id=/);
  assert.doesNotMatch(operator.server.log, /http\.request/);
});

