// The JavaScript client among failing parts: blocked WebSockets, storages and token callbacks that
// fail, revoked sessions, sleep and clocks that jump.
import assert from "node:assert/strict";
import { createHmac } from "node:crypto";
import { after, before, test } from "node:test";
import { Connection } from "../../../clients/js/src/connection.js";
import { Recent } from "../../../clients/js/src/recent.js";
import { tokenLifeMs } from "../../../clients/js/src/token.js";
import { operateRun } from "../../lib/operator.mjs";
import { events, TOPIC } from "../../lib/samples.mjs";
import { until } from "../../lib/wait.mjs";
import { follow, frames, open } from "./client.mjs";

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

test("a client whose WebSockets are blocked uses event streams, and polls where those are blocked too", async (t) => {
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

test("a storage that fails or answers rubbish is reported, and the topic goes on", async (t) => {
  const failing = { load: () => { throw new Error("no disk"); }, save: async () => { throw new Error("no disk"); } };
  const khala = open(t, of(), { storage: failing });
  const seen = follow(khala, TOPIC);
  await frames(seen, 5);
  assert.deepEqual(seen.resets, [{ reason: "position_unreadable", from_seq: 1, truncated: false }]);
  await khala.warnings.until(() => khala.warnings.all.length >= 3, "warnings");
  for (const { code, cause, topic } of khala.warnings.all) assert.deepEqual([code, cause.message, topic], ["storage_failed", "no disk", TOPIC]);
  for (const rubbish of ["", "null", "[]", "{\"epoch\":\"e\",\"seq\":1.5}", 7, { epoch: "", seq: 1 }, "x".repeat(1000)]) {
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
  // No new event is taken for a known one, however many are known.
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
