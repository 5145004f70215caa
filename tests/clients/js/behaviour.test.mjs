// The JavaScript client among failing parts: blocked WebSockets, storages and token callbacks that
// fail, revoked sessions, sleep and clocks that jump.
import assert from "node:assert/strict";
import { createHmac } from "node:crypto";
import { after, before, test } from "node:test";
import RealWebSocket from "ws";
import { Connection } from "../../../clients/js/src/connection.js";
import { policyOf, errorOf } from "../../../clients/js/src/errors.js";
import { Khala, memoryStorage } from "../../../clients/js/src/khala.js";
import { readPosition } from "../../../clients/js/src/position.js";
import { Recent } from "../../../clients/js/src/recent.js";
import { tokenLifeMs } from "../../../clients/js/src/token.js";
import { folder } from "../../lib/khala.mjs";
import { operate, operateRun } from "../../lib/operator.mjs";
import { events, range, TOPIC } from "../../lib/samples.mjs";
import { until } from "../../lib/wait.mjs";
import { follow, frames, open } from "./client.mjs";
import { followScenario, play } from "./scenarios.mjs";

const ends = [];
let operator;
before(async () => {
  operator = await operateRun({ after: (act) => ends.unshift(act) }, { count: 5 });
});
after(async () => {
  for (const act of ends) await act();
});
const of = () => ({ server: operator.server, sign: (claims) => operator.sign(claims) });

/** A WebSocket that something between client and server blocks. */
class Blocked {
  constructor() {
    setTimeout(() => this.onclose?.({ code: 1006 }), 1);
  }
  close() {}
}

test("a client whose WebSockets are blocked uses event streams, and polls if those are blocked too", async (t) => {
  const seen = follow(open(t, of(), { WebSocket: Blocked }), TOPIC);
  await frames(seen, 5);
  let khala = open(t, of(), { WebSocket: Blocked, fetch: (url, init) => (url.includes("/sse") ? Promise.reject(new Error("blocked")) : fetch(url, init)) });
  const polled = follow(khala, TOPIC);
  await frames(polled, 5);
  assert.equal(khala.state.transport, "poll");
  class Forbidden { constructor() { throw new Error("insecure"); } }
  await frames(follow(open(t, of(), { WebSocket: Forbidden }), TOPIC), 5);
  khala = open(t, of(), { WebSocket: undefined, transports: ["sse"] });
  await frames(follow(khala, TOPIC), 5);
  assert.equal(khala.state.transport, "sse");
});

test("clients keep their WebSockets through an outage of the server", async (t) => {
  const data = folder(t);
  const first = await operateRun(t, { count: 5, data });
  const clients = range(1, 10).map(() => {
    const khala = open(t, of(), { url: first.server.url, token: () => first.sign({ oa_sync_scopes: ["runtime.read_all"] }) });
    return { khala, seen: follow(khala, TOPIC) };
  });
  for (const { seen } of clients) await frames(seen, 5);
  await first.server.crash();
  const attempts = ({ states }) => states.all.filter(({ status }) => status === "connecting").length;
  for (const { khala } of clients) await khala.states.until(() => attempts(khala) >= 12, "many attempts");
  const second = await operate(t, { data, bind: `127.0.0.1:${first.server.port}` });
  await second.batch(events(5));
  for (const { khala, seen } of clients) {
    await frames(seen, 10);
    assert.deepEqual([khala.state.transport, seen.frames.map(({ seq }) => seq)], ["websocket", range(1, 10)]);
  }
});

test("a client on a fallback moves back to the WebSocket, without a gap and without a repeated frame", async (t) => {
  const own = await operateRun(t, { count: 20 });
  for (const transport of ["sse", "poll"]) {
    let isBlocked = true;
    let attempts = 0;
    const WebSocket = class {
      constructor(address) {
        attempts++;
        return isBlocked ? new Blocked() : new RealWebSocket(address);
      }
    };
    const fetchOf = (url, init) => (transport === "poll" && url.includes("/sse") ? Promise.reject(new Error("blocked")) : fetch(url, init));
    const khala = open(t, of(), { url: own.server.url, token: () => own.reader, WebSocket, fetch: fetchOf, preferAgain: { baseMs: 100, maxMs: 200 } });
    const head = (await own.events("a")).length;
    const seen = follow(khala, TOPIC);
    await frames(seen, head);
    assert.equal(khala.state.transport, transport);
    const before = attempts;
    await until(() => attempts >= before + 3, "attempts in the background");
    assert.equal(khala.state.transport, transport, "a failed attempt changes nothing");
    isBlocked = false;
    let appended = 0;
    await until(async () => {
      await own.batch(events(3));
      appended += 3;
      return khala.state.transport === "websocket";
    }, "the move");
    await own.batch(events(5));
    await frames(seen, head + appended + 5);
    assert.deepEqual(seen.frames.map(({ seq }) => seq), range(1, head + appended + 5));
    assert.deepEqual(seen.resets, [{ reason: "start", from_seq: 1, truncated: false }]);
    assert.ok(!khala.states.all.slice(khala.states.all.findIndex((state) => state.transport === transport)).some(({ status }) => status === "backing_off"), "the connection was live all the time");
    await khala.close();
  }
});

test("a storage that fails or answers rubbish is reported, and the topic goes on", async (t) => {
  const failing = { load: () => { throw new Error("no disk"); }, save: async () => { throw new Error("no disk"); } };
  const khala = open(t, of(), { storage: failing });
  const seen = follow(khala, TOPIC);
  await frames(seen, 5);
  assert.deepEqual(seen.resets, [{ reason: "position_unreadable", from_seq: 1, truncated: false }]);
  await khala.warnings.until(() => khala.warnings.all.length >= 3, "warnings");
  for (const { code, cause, topic } of khala.warnings.all) assert.deepEqual([code, cause.message, topic], ["storage_failed", "no disk", TOPIC]);
  for (const rubbish of ["", "null", "[]", "{\"epoch\":\"e\",\"seq\":1.5}", true, "-7", { epoch: "", seq: 1 }, "x".repeat(1000)]) {
    const other = follow(open(t, of(), { storage: { load: () => rubbish, save: () => {} } }), TOPIC);
    await frames(other, 5);
    assert.equal(other.resets[0].reason, "position_unreadable", JSON.stringify(rubbish));
  }
});

test("a token callback that fails, hangs or answers nothing is called again", async (t) => {
  const answers = [() => { throw new Error("offline"); }, () => new Promise(() => {}), () => "", () => ({ token: "x" }), () => operator.reader];
  let calls = 0;
  const khala = open(t, of(), { token: () => answers[Math.min(calls++, 4)](), tokenTimeoutMs: 30 });
  await frames(follow(khala, TOPIC), 5);
  assert.deepEqual(khala.warnings.all.map(({ code }) => code), ["token_failed", "token_timeout", "token_missing", "token_missing"]);
  const last = open(t, of(), { token: () => { throw Object.assign(new Error("signed out"), { final: true }); } });
  const seen = follow(last, TOPIC);
  await seen.until(() => seen.end, "the end");
  assert.deepEqual([seen.end.error.code, last.state.status], ["token_failed", "closed"]);
  assert.throws(() => { void open(t, of(), { token: "text" }); }, TypeError);
});

// ---- positions without an epoch ----

const stale = (reason_codes) => ({ code: "stale_cursor", message: "The cursor is stale.", reason_codes, stale_topics: [{ topic: "room:1", stream_id: "runtime.topic.room.1", reason_codes, epoch: "epoch-2" }] });
const batch = (after, through, epoch) => ({ send: "sync:update_batch", payload: { topic: "room:1", after, through, updates: range(after + 1, through).map((seq) => ({ seq, kind: "said", event_id: `event-${seq}`, payload: {} })), epoch, replay_complete: true, head_watermarks: [] } });
const playHere = (t, scenario) => play(t, scenario, async (options, report) => followScenario({ Khala, memoryStorage, WebSocket: RealWebSocket }, options, report));

test("a stored position without an epoch is sent without one, and gets the epoch of what follows", async (t) => {
  for (const stored of [{ seq: 5 }, { epoch: null, seq: 5 }, "5"]) {
    await playHere(t, {
      stored, connections: [[{ join: "ok" }, { subscribe: { seq: 5 }, window: { epoch: "epoch-1" } }, batch(5, 6, "epoch-1")]],
      events: [{ frame: 6 }], position: { epoch: "epoch-1", seq: 6 },
    });
  }
});

test("every stale reason starts the topic again and is reported, also epoch_required and one that is not known yet", async (t) => {
  for (const reason of ["epoch_required", "reason_of_tomorrow"]) {
    await playHere(t, {
      stored: { seq: 15 },
      connections: [[{ join: "ok" }, { subscribe: { seq: 15 }, error: stale([reason]) }, { subscribe: null, window: { epoch: "epoch-2", bootstrap: { from_seq: 1, truncated: false } } }, batch(0, 2, "epoch-2")]],
      events: [{ reset: { reason, from_seq: 1, truncated: false } }, { frame: 1 }, { frame: 2 }], position: { epoch: "epoch-2", seq: 2 },
    });
  }
});

test("positions are read in every form that a server or an older storage has", () => {
  assert.deepEqual(["5@e", "5", 5, "{\"seq\":5}", { epoch: "e", seq: 5 }, "0@e.1@x"].map(readPosition),
    [{ epoch: "e", seq: 5 }, { seq: 5 }, { seq: 5 }, { seq: 5 }, { epoch: "e", seq: 5 }, { epoch: "e.1@x", seq: 0 }]);
  for (const wrong of ["", "@e", "5@", "-1", "1.5", "x", "[]", null, undefined, {}, { seq: "5" }, { epoch: "", seq: 5 }, { epoch: 7, seq: 5 }, -1, NaN]) assert.equal(readPosition(wrong), null, String(wrong));
});

test("a position without an epoch resumes over every transport, and positions that are answered as N@EPOCH are accepted", async (t) => {
  const { epoch } = JSON.parse((await operator.poll(TOPIC, "after_seq=4")).body);
  // As a server answers whose log has had two epochs.
  const named = async (url, init) => {
    const response = await fetch(url, init);
    if (!url.includes("/messages") || url.includes("epoch=")) return response;
    const { next_cursor, epoch: own, ...page } = await response.json();
    return new Response(JSON.stringify({ ...page, next_cursor: `${next_cursor}@${own}` }), { headers: response.headers });
  };
  for (const transport of ["websocket", "sse", "poll"]) {
    for (const after of [3, "3", { seq: 3 }, `3@${epoch}`]) {
      const seen = follow(open(t, of(), { transports: [transport], fetch: named }), TOPIC, { after });
      await frames(seen, 2);
      await until(() => seen.topic.position.seq === 5, "the position");
      assert.deepEqual([seen.frames.map(({ seq }) => seq), seen.resets, seen.topic.position.epoch], [[4, 5], [], epoch], `${transport} ${JSON.stringify(after)}`);
    }
    const start = follow(open(t, of(), { transports: [transport], fetch: named }), TOPIC);
    await frames(start, 5);
    assert.deepEqual(start.topic.position.epoch, epoch);
  }
});

// ---- topics that do not exist yet ----

test("a run that does not exist yet is waited for, on every transport, by a server that refuses it and by one that says so", async (t) => {
  for (const transport of ["websocket", "sse", "poll"]) {
    const topic = `run:later-${transport}:events`;
    const token = () => operator.token({ user_id: "ada", scopes: ["runtime.run_events"] });
    const khala = open(t, of(), { transports: [transport], token });
    const seen = follow(khala, topic);
    await khala.warnings.until(() => khala.warnings.all.length > 0, "the warning");
    const [{ code, message, topic: name }] = khala.warnings.all;
    assert.deepEqual([code, name, seen.topic.isPending, seen.end], ["topic_pending", topic, true, undefined]);
    assert.match(message, /does not exist yet, or it belongs to another owner/);
    await operator.did("runs", { run_id: `later-${transport}`, owner_user_id: "ada" }, 201);
    await frames(seen, 1);
    assert.deepEqual([seen.frames[0].seq, seen.topic.isPending, khala.warnings.all.length], [1, false, 1]);
  }
});

test("a subscription that is accepted as pending begins with its first range", async (t) => {
  const begun = [{ subscribe: null, window: { epoch: "epoch-1", bootstrap: { from_seq: 1, truncated: false } } }, batch(0, 1, "epoch-1")];
  const answers = {
    "a window with a start": [{ subscribe: null, window: { epoch: "epoch-1", pending: true, bootstrap: { from_seq: 1, truncated: false } } }, batch(0, 0, "epoch-1"), batch(0, 1, "epoch-1")],
    "no window": [{ subscribe: null, pending: true }, batch(0, 1, "epoch-1"), ...begun],
  };
  for (const [name, steps] of Object.entries(answers)) {
    await t.test(name, (sub) => playHere(sub, {
      stored: null, connections: [[{ join: "ok" }, ...steps]], warnings: ["topic_pending"],
      events: [{ reset: { reason: "start", from_seq: 1, truncated: false } }, { frame: 1 }], position: { epoch: "epoch-1", seq: 1 },
    }));
  }
});

test("a poll that is answered as pending is asked again until the topic exists", async (t) => {
  let polls = 0;
  const pending = async (url, init) => {
    if (url.includes("/messages") && ++polls <= 2) return Response.json({ topic: TOPIC, messages: [], next_cursor: 0, replay_complete: true, pending: true });
    return fetch(url, init);
  };
  const khala = open(t, of(), { transports: ["poll"], fetch: pending });
  const seen = follow(khala, TOPIC);
  await frames(seen, 5);
  assert.deepEqual([seen.frames.map(({ seq }) => seq), khala.warnings.all.map(({ code }) => code)], [range(1, 5), ["topic_pending"]]);
});

test("of several refused topics each ends with its own reason", async (t) => {
  const token = () => operator.token({ user_id: "ada", scopes: ["runtime.run_events"], topics: ["run:*:events", "worker:*:lifecycle"] });
  const khala = open(t, of(), { token });
  const all = ["run:none:events", "worker:w:lifecycle", "hall:1"].map((topic) => follow(khala, topic));
  for (const seen of all.slice(1)) await seen.until(() => seen.end, "the refusal");
  assert.deepEqual(all.map(({ end, topic }) => end?.error.code ?? topic.isPending), [true, "missing_scope", "forbidden_topic"]);
});

test("a message that may be of another code names both", () => {
  const message = "The token does not grant this topic.";
  const { code, message: shown } = errorOf({ code: "forbidden_topic", reason_code: "missing_scope", message });
  assert.deepEqual([code, shown], ["missing_scope", `forbidden_topic (missing_scope): ${message}`]);
  for (const body of [{ code: "forbidden_topic", message }, { error: "forbidden_topic", reason_code: "forbidden_topic", message }, { reason_code: "forbidden_topic", message }]) {
    assert.deepEqual([errorOf(body).code, errorOf(body).message], ["forbidden_topic", message]);
  }
  assert.equal(policyOf({ code: "forbidden_topic", reason_code: "missing_scope" }), "topic_final");
});

test("a refusal over HTTP has the id of its request", async (t) => {
  const token = () => operator.sign({ oa_sync_topics: ["room:*"] });
  const seen = follow(open(t, of(), { transports: ["poll"], token }), "hall:1");
  await seen.until(() => seen.end, "the refusal");
  const { code, status, request_id } = seen.end.error;
  assert.deepEqual([code, status], ["forbidden_topic", 403]);
  assert.match(request_id, /^[0-9a-f]{32}$/);
});

// ---- where a topic starts ----

test("from names the start of a topic that has no position yet, on every transport", async (t) => {
  const own = await operateRun(t, { count: 5 });
  for (const transport of ["websocket", "sse", "poll"]) {
    const storage = memoryStorage();
    const start = (options) => {
      const khala = open(t, of(), { url: own.server.url, token: () => own.reader, transports: [transport] });
      return follow(khala, TOPIC, { reset: undefined, storage, ...options });
    };
    const head = (await own.events("a")).length;
    const [all, old] = [start({ from: "start", key: "1" }), start({ from: { since: "1h" }, key: "2" })];
    for (const seen of [all, old]) {
      await frames(seen, head);
      assert.deepEqual(seen.frames.map(({ seq }) => seq), range(1, head));
    }
    const tail = start({ from: "head", key: "3" });
    const next = start({ from: "head", after: null });
    const time = start({ from: { since: "9999-01-01T00:00:00Z" }, key: "4" });
    for (const seen of [tail, next, ...(transport === "sse" ? [] : [time])]) await until(() => ["live", "replaying"].includes(seen.topic.state), `the head over ${transport}`);
    if (transport === "sse") await until(() => time.topic.state === "joining", "the subscription"); // the first frame of the stream shows its start
    await own.batch(events(2));
    for (const seen of [tail, next]) {
      await frames(seen, 2);
      assert.deepEqual(seen.frames.map(({ seq }) => seq), [head + 1, head + 2], transport);
    }
    await until(() => JSON.parse(storage.load("3") ?? "{}").seq === head + 2, "the stored position");
    await tail.topic.close();
    await own.batch(events(1));
    const again = start({ from: "head", key: "3" });
    await frames(again, 1);
    assert.deepEqual(again.frames.map(({ seq }) => seq), [head + 3], "a stored position is older than the option");
  }
  const khala = open(t, of());
  for (const from of ["end", {}, { since: 5 }, 7]) await assert.rejects(khala.topic("room:1", { from }).each(() => {}), TypeError);
});

// ---- queues that learn of an end later ----

test("a collection that is opened again while it closes goes on", async (t) => {
  await operator.did("runs", { run_id: "board" }, 201);
  const khala = open(t, of());
  const collection = khala.collection("runtime.run_summaries");
  for (let microtasks = 0; microtasks <= 10; microtasks++) {
    const stop = collection.open();
    await collection.ready;
    const reopened = new Promise((resolve) => {
      const unlisten = khala.subscribe(async ({ status }) => {
        if (status !== "idle") return; // the topic has ended, and its loop has not
        unlisten();
        for (let i = 0; i < microtasks; i++) await null;
        resolve(collection.open());
      });
    });
    stop();
    const release = await reopened;
    const [{ event: { seq } }] = await operator.batch(events(1, { run_id: "board" }));
    await until(() => collection.get("board")?.latest_seq === seq, `the change, ${microtasks} microtasks later`, 10_000);
    release();
    await khala.states.until(() => khala.state.status === "idle", "the end");
  }
});

test("a revoked session and tokens that are always refused end the client", async (t) => {
  const revoked = operator.sign({ oa_sync_scopes: ["runtime.read_all"], oa_session_id: "left" });
  await operator.did("sync/sessions/revoke", { session_ids: ["left"], reason: "left" });
  const seen = follow(open(t, of(), { token: () => revoked }), TOPIC);
  await seen.until(() => seen.end, "the end");
  assert.equal(seen.end.error.code, "token_revoked");
  const wrong = follow(open(t, of(), { token: () => "rubbish", transports: ["poll"] }), TOPIC);
  await wrong.until(() => wrong.end, "the end");
  assert.equal(wrong.end.error.code, "invalid_token");
});

test("a loop that ends, and one that throws, leave the last frame unapplied", async (t) => {
  const khala = open(t, of());
  const topic = khala.topic(TOPIC);
  for await (const frame of topic) if (frame.seq === 3) break;
  assert.equal(topic.position.seq, 2);
  const seqs = [];
  await assert.rejects(topic.each((frame) => { seqs.push(frame.seq); if (frame.seq === 4) throw new Error("full"); }), /full/);
  assert.deepEqual([seqs, topic.position.seq], [[3, 4], 3]);
  const first = follow(khala, TOPIC);
  await frames(first, 2);
  await assert.rejects(khala.topic(TOPIC).each(() => {}), { code: "already_followed" });
  await khala.close();
  await assert.rejects(khala.topic(TOPIC).each(() => {}), { code: "closed" });
});

// ---- time, in a world of its own ----

/** Clocks and timers that move only when the test says so. */
function stillWorld() {
  const world = { mono: 1000, clock: 1_700_000_000_000, timers: new Map(), next: 1 };
  world.now = () => world.mono;
  world.wall = () => world.clock;
  world.random = () => 0.5;
  world.setTimeout = (act, ms) => {
    world.timers.set(world.next, { act, at: world.mono + ms });
    return world.next++;
  };
  world.clearTimeout = (id) => world.timers.delete(id);
  world.advance = async (ms, { wall = ms } = {}) => {
    const end = world.mono + ms;
    world.clock += wall;
    for (;;) {
      const due = [...world.timers].filter(([, { at }]) => at <= end).sort(([, a], [, b]) => a.at - b.at)[0];
      if (!due) break;
      world.timers.delete(due[0]);
      world.mono = Math.max(world.mono, due[1].at);
      due[1].act();
      await new Promise((resolve) => setImmediate(resolve));
    }
    world.mono = end;
  };
  return world;
}

const tokenOf = (world, seconds, skewMs = 0) => {
  const iat = Math.floor((world.clock + skewMs) / 1000);
  const text = `e30.${Buffer.from(JSON.stringify({ iat, exp: iat + seconds })).toString("base64url")}`;
  return `${text}.${createHmac("sha256", "k").update(text).digest("base64url")}`;
};

/** A connection over a transport that always succeeds. */
async function still(skewMs = 0) {
  const world = stillWorld();
  const counts = { tokens: 0, opens: 0, refreshes: 0, heartbeats: 0 };
  const transport = (events) => ({
    name: "still", open: () => { counts.opens++; events.opened(); }, join: () => events.joined({ heartbeatMs: 15_000 }),
    refresh: () => { counts.refreshes++; events.refreshed(); }, heartbeat: () => { counts.heartbeats++; world.answer?.(events); }, close() {}, subscribe() {}, unsubscribe() {},
  });
  const token = async () => {
    counts.tokens++;
    return tokenOf(world, 300, skewMs);
  };
  const connection = new Connection({ token, tokenTimeoutMs: 1000, connectTimeoutMs: 10_000, transports: [transport], changed() {}, warn() {} }, world);
  connection.give("start");
  await new Promise((resolve) => setImmediate(resolve));
  assert.equal(connection.state, "live");
  world.answer = (events) => events.heard(true);
  return { world, counts, connection };
}

test("a token is renewed after three quarters of its life, also with a clock that is hours off", async () => {
  for (const skewMs of [0, 7_200_000, -7_200_000]) {
    const { world, counts } = await still(skewMs);
    for (let i = 0; i < 220; i++) await world.advance(1000);
    assert.equal(counts.refreshes, 0, String(skewMs));
    for (let i = 0; i < 10; i++) await world.advance(1000);
    assert.deepEqual(counts, { tokens: 2, opens: 1, refreshes: 1, heartbeats: counts.heartbeats }, String(skewMs));
  }
});

test("after sleep the token is renewed at once, whichever clock went on", async () => {
  for (const [mono, wall] of [[1, 400_000], [400_000, 400_000]]) {
    const { world, counts, connection } = await still();
    world.clock += wall;
    world.mono += mono;
    await world.advance(1000);
    await world.advance(1000);
    assert.ok(counts.refreshes >= 1 || counts.opens >= 2, JSON.stringify(counts));
    assert.equal(connection.state === "live" || connection.state === "backing_off" || connection.state === "authenticating", true);
  }
});

test("a clock that is set back does not keep a token beyond its life, and one set forward only renews early", async () => {
  const { world, counts } = await still();
  world.clock -= 86_400_000;
  for (let i = 0; i < 226; i++) await world.advance(1000);
  assert.equal(counts.refreshes, 1);
  world.clock += 86_400_000 * 2;
  for (let i = 0; i < 5; i++) await world.advance(1000);
  assert.ok(counts.refreshes <= 3, JSON.stringify(counts));
});

test("a server that falls silent is left after two heartbeats and some seconds", async () => {
  const { world, counts } = await still();
  world.answer = undefined;
  for (let i = 0; i < 34; i++) await world.advance(1000);
  assert.equal(counts.opens, 1);
  for (let i = 0; i < 5; i++) await world.advance(1000);
  assert.equal(counts.opens, 2);
});

test("the life of a token comes from its claims, or is unknown", () => {
  const world = stillWorld();
  assert.equal(tokenLifeMs(tokenOf(world, 300), world.clock), 300_000);
  assert.equal(tokenLifeMs(tokenOf(world, 300, -100_000), world.clock), 200_000);
  for (const text of ["", "a.b.c", "opaque", `a.${btoa("{}")}.c`, `a.${btoa("{\"iat\":5,\"exp\":1}")}.c`]) assert.equal(tokenLifeMs(text, world.clock), undefined, text);
});

/** A UUIDv7 of that number. */
const uuidOf = (n) => `01a1efff-${(n >>> 16).toString(16).padStart(4, "0")}-7${(n & 0xfff).toString(16).padStart(3, "0")}-8000-${n.toString(16).padStart(12, "0")}`;

test("repeated events are recognised for five minutes at a thousand a second, in 8 MiB for a topic", () => {
  const recent = new Recent();
  const event = (i) => ({ kind: "said", event_id: uuidOf(i) });
  const count = 400_000;
  let bytes = 0;
  for (let i = 0; i < count; i++) {
    assert.equal(recent.repeats(event(i), i), false, `event ${i} is new`);
    if (i % 1000 === 0) bytes = Math.max(bytes, recent.bytes);
  }
  for (let i = count - 300_000; i < count; i++) assert.equal(recent.repeats(event(i), count), true, `event ${i} came within five minutes`);
  assert.ok(bytes <= 8 << 20, `${bytes} bytes`);
  // No new event is mistaken for a known one, however many are known.
  for (let i = 0; i < 100_000; i++) assert.equal(recent.repeats({ kind: "said", event_id: uuidOf(i).replace("-8000-", "-8001-") }, count), false);
  assert.ok(recent.bytes <= 8 << 20, `${recent.bytes} bytes`);
  recent.expire(count + 300_001);
  assert.deepEqual([recent.size, recent.bytes], [0, 0], "an idle topic keeps nothing");
});

test("a quiet topic keeps little, and other ids than UUIDs are recognised too", () => {
  const recent = new Recent();
  const event = (id) => ({ kind: "said", event_id: id });
  for (let i = 0; i < 40; i++) recent.repeats(event(uuidOf(i)), i);
  assert.equal(recent.bytes, 1024);
  const odd = ["00000000-0000-0000-0000-000000000000", "event-1", "", "01A1EFFF-0000-7000-8000-000000000000", "x".repeat(36)];
  for (const id of odd) assert.deepEqual([recent.repeats(event(id), 100), recent.repeats(event(id), 299_999)], [false, true], id);
  assert.equal(recent.repeats(event("event-1"), 600_001), false);
  for (let i = 0; i < 100_000; i++) recent.repeats(event(`e${i}`), 600_002);
  assert.ok(recent.size <= 8 * 4096, `${recent.size} texts`);
  assert.deepEqual([recent.repeats(event("e99999"), 600_003), recent.repeats(event("e50000"), 600_003)], [true, false]);
  recent.clear();
  assert.deepEqual([recent.size, recent.repeats({ kind: "x" }, 0)], [0, false]);
});

test("documents are recognised by their version, in bounded memory", () => {
  const recent = new Recent({ documentsMax: 100 });
  const document = (key, doc_version) => ({ kind: "run_summary", doc_key: key, doc_version });
  assert.equal(recent.repeats(document("old", 1), 0), false);
  for (let i = 1; i < 1000; i++) assert.equal(recent.repeats(document("k", i), i), false);
  assert.deepEqual([recent.size, recent.repeats(document("old", 1), 1000), recent.repeats(document("k", 998), 1000), recent.repeats(document("k", 1000), 1000)], [2, true, true, false]);
  assert.equal(recent.repeats(document("old", 1), 300_001), false);
  for (let i = 0; i < 1000; i++) recent.repeats(document(`many${i}`, 1), 300_002);
  assert.equal(recent.size, 100);
});
