// The Python client against the real server: resuming over a crash, stale positions, tokens,
// collections, storages, final errors and many topics.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { after, before } from "node:test";
import { test } from "../../lib/cases.mjs";
import { folder } from "../../lib/khala.mjs";
import { operate, operateRun } from "../../lib/operator.mjs";
import { events, range, TOPIC } from "../../lib/samples.mjs";
import { until } from "../../lib/wait.mjs";
import { frames, Python } from "./client.mjs";

const SUMMARIES = "runtime.run_summaries";
const START = { reason: "start", from_seq: 1, truncated: false };
const ends = [];
let python;
let operator; // shared by the cases that need nothing of their own
before(async () => {
  const t = { after: (act) => ends.unshift(act) };
  python = await Python.start(t);
  operator = await operateRun(t, { count: 5 });
});
after(async () => {
  for (const act of ends) await act();
  assert.equal(python.stderr, "");
});
const open = (t, { server, ...options } = {}) => python.open(t, { url: (server ?? operator.server).url, token: operator.reader, ...options });
const seqs = (seen) => seen.frames.map((frame) => frame.seq);

test("replay, live frames, and a resume after kill -9 without loss or repetition", async (t) => {
  const data = folder(t);
  const first = await operateRun(t, { count: 300, data });
  const storage = { kind: "file", name: "crash", folder: folder(t) };
  let signer = first;
  const khala = await open(t, { server: first.server, token: () => signer.reader, storage });
  const seen = await python.follow(khala, TOPIC);
  await frames(seen, 300);
  await first.batch(events(20));
  await frames(seen, 320);
  assert.deepEqual(khala.state, { status: "live", transport: "websocket", error: null });
  await first.server.crash();
  await khala.states.until(() => khala.state.status === "backing_off", "the loss");
  const second = await operate(t, { data, bind: `127.0.0.1:${first.server.port}` });
  signer = second;
  await second.batch(events(30));
  await frames(seen, 350);
  const log = await second.events("a");
  assert.deepEqual(seen.frames.map((frame) => frame.event_id), log.map((event) => event.event_id));
  assert.deepEqual(seen.resets, [START]);
  await until(async () => (await seen.look()).position.seq === 350, "the position");
  await khala.close();
  assert.equal(JSON.parse(readFileSync(join(storage.folder, "khala%3Arun%3Aa%3Aevents"), "utf8")).seq, 350);
  await second.batch(events(1));
  const next = await python.follow(await open(t, { server: second.server, token: second.reader, storage }), TOPIC);
  await frames(next, 1);
  assert.deepEqual([seqs(next), next.resets], [[351], []]);
});

test("a stale position starts again, and the application learns it before the first frame", async (t) => {
  const other = await operateRun(t, { count: 100, settings: { RUNTIME_KHALA_RUN_EVENTS_REPLAY_BUDGET_EVENTS: "30" } });
  const storage = { kind: "memory", name: "stale" };
  const { epoch } = JSON.parse((await other.poll(TOPIC, "after_seq=99")).body);
  const key = `khala:${TOPIC}`;
  const again = async (position, options) => {
    await python.call("save", { storage, key, text: JSON.stringify(position) });
    return python.follow(await open(t, { server: other.server, token: other.reader, storage }), TOPIC, options);
  };
  const seen = await again({ epoch, seq: 5 });
  await frames(seen, 30);
  assert.deepEqual(seen.all[0], { reset: { reason: "replay_budget_exceeded", from_seq: 71, truncated: true } });
  assert.deepEqual(seqs(seen), range(71, 100));
  const moved = await again({ epoch: "01a1e1a3-0000-7000-8000-000000000000", seq: 99 });
  await frames(moved, 30);
  assert.equal(moved.resets[0].reason, "epoch_mismatch");
  // Without a reset function the loop ends with an error instead of going on with a hole.
  const careless = await again({ epoch, seq: 5 }, { is_handled: false });
  await careless.until(() => careless.end, "the error");
  assert.deepEqual([careless.end.error.code, careless.frames.length], ["reset_unhandled", 0]);
  assert.equal((await python.call("load", { storage, key })).seq, 5);
});

test("tokens are renewed before they expire, and the topic goes on", async (t) => {
  let count = 0;
  const token = () => {
    count++;
    const now = Math.floor(Date.now() / 1000);
    return operator.sign({ oa_sync_scopes: ["runtime.read_all"], iat: now, exp: now + 3 });
  };
  const khala = await open(t, { token });
  const seen = await python.follow(khala, TOPIC);
  await frames(seen, 3);
  await until(() => count >= 2, "a renewal");
  await khala.states.until(() => khala.states.all.some(({ status }) => status === "reauthenticating") && khala.state.status === "live", "the renewal");
  assert.deepEqual(seen.resets, [START]);
});

test("a collection has the snapshot, then every change", async (t) => {
  const own = await operateRun(t, { count: 4 });
  await own.did("runs", { run_id: "b" }, 201);
  const khala = await open(t, { server: own.server, token: own.reader });
  const collection = await python.collect(khala, SUMMARIES);
  await collection.changes.until(() => collection.changes.all.length > 0, "the snapshot");
  assert.deepEqual(collection.changes.all[0], { type: "reset", key: null });
  const { documents, ...rest } = await collection.look();
  assert.deepEqual([Object.keys(documents).sort(), rest], [["runtime/run_summary:a", "runtime/run_summary:b"], { size: 2, is_ready: true, is_same: true }]);
  assert.equal((await collection.get("a")).latest_seq, 4);
  assert.equal(await collection.get("c"), null);
  await own.did("runs/b/events", { event_type: "run.finished", payload: { status: "succeeded" } });
  await until(async () => (await collection.get("b")).status === "succeeded", "the change");
  await collection.release();
  await khala.states.until(() => khala.state.status === "idle", "the end of the connection without a topic");
});

test("many topics share one WebSocket; a forbidden or malformed one fails alone", async (t) => {
  const own = await operate(t);
  const names = range(1, 150).map((i) => `room:${i}`);
  await own.batch(names.map((topic) => ({ topic, event_type: "said", payload: { topic } })));
  const khala = await open(t, { server: own.server, token: own.sign({ oa_sync_topics: ["room:*"] }) });
  const all = await Promise.all(names.map((name) => python.follow(khala, name)));
  const forbidden = await python.follow(khala, "hall:1");
  const bad = await python.follow(khala, "x".repeat(2000));
  for (const seen of all) await frames(seen, 1);
  for (const seen of [forbidden, bad]) await seen.until(() => seen.end, "the refusal");
  assert.deepEqual([forbidden.end.error.code, bad.end.error.code], ["forbidden_topic", "bad_topic"]);
  assert.deepEqual(all.map((seen) => seen.frames[0].payload.topic), names);
  const { items } = await own.read("connections");
  assert.equal(items.filter(({ dialect }) => dialect === "phoenix").length, 1);
  const early = await python.follow(khala, "runtime.topic.room.999");
  await until(async () => (await early.look()).state === "live", "the topic that does not exist yet");
  await own.did("topics/room:999/events", { event_type: "said", payload: { n: 1 } });
  await frames(early, 1);
  assert.deepEqual(early.frames[0].payload, { n: 1 });
});

test("a storage that fails or answers rubbish is reported, and the topic goes on", async (t) => {
  const khala = await open(t, { storage: { kind: "failing" } });
  const seen = await python.follow(khala, TOPIC);
  await frames(seen, 5);
  assert.deepEqual(seen.resets, [{ ...START, reason: "position_unreadable" }]);
  await khala.warnings.until(() => khala.warnings.all.length >= 3, "warnings");
  for (const { code, cause, topic } of khala.warnings.all) assert.deepEqual([code, cause, topic], ["storage_failed", "no disk", TOPIC]);
  for (const value of ["", "null", "[]", "{\"epoch\":\"e\",\"seq\":1.5}", 7, { epoch: "e", seq: 1 }, "x".repeat(1000)]) {
    const other = await python.follow(await open(t, { storage: { kind: "fixed", name: JSON.stringify(value), value } }), TOPIC);
    await frames(other, 5);
    assert.equal(other.resets[0].reason, "position_unreadable", JSON.stringify(value));
  }
});

test("a token callback that fails, hangs or answers nothing is called again", async (t) => {
  const answers = [() => { throw new Error("offline"); }, () => new Promise(() => {}), () => "", () => ({ token: "x" }), () => operator.reader];
  let calls = 0;
  const khala = await open(t, { token: () => answers[Math.min(calls++, 4)](), token_timeout: 0.2 });
  await frames(await python.follow(khala, TOPIC), 5);
  assert.deepEqual(khala.warnings.all.map(({ code }) => code), ["token_failed", "token_timeout", "token_missing", "token_missing"]);
  const last = await open(t, { token: () => { throw Object.assign(new Error("signed out"), { final: true }); } });
  const seen = await python.follow(last, TOPIC);
  await seen.until(() => seen.end, "the end");
  assert.deepEqual([seen.end.error.code, seen.end.error.cause, last.state.status], ["token_failed", "signed out", "closed"]);
});

test("a revoked session and tokens that are always refused end the client", async (t) => {
  const revoked = operator.sign({ oa_sync_scopes: ["runtime.read_all"], oa_session_id: "left" });
  await operator.did("sync/sessions/revoke", { session_ids: ["left"], reason: "left" });
  for (const [token, code] of [[revoked, "token_revoked"], ["rubbish", "invalid_token"]]) {
    const khala = await open(t, { token });
    const seen = await python.follow(khala, TOPIC);
    await seen.until(() => seen.end, "the end");
    assert.deepEqual([seen.end.error.code, khala.state.status, khala.state.error.status], [code, "closed", 401]);
    await assert.rejects(python.follow(khala, TOPIC).then((late) => late.until(() => late.end, "the end").then(() => { throw late.end.error; })), { code });
  }
});

test("a loop that breaks leaves its last frame unapplied, and the next loop begins with it", async (t) => {
  const khala = await open(t);
  const first = await python.follow(khala, TOPIC, { until: 3 });
  await first.until(() => first.end, "the end of the loop");
  assert.deepEqual((await first.look()).position.seq, 2);
  const second = await python.follow(khala, TOPIC, { until: 4 });
  await second.until(() => second.end, "the end of the loop");
  assert.deepEqual(seqs(second), [3, 4]);
  const third = await python.follow(khala, TOPIC);
  await frames(third, 2);
  const twice = await python.follow(khala, TOPIC);
  await twice.until(() => twice.end, "the refusal");
  assert.equal(twice.end.error.code, "already_followed");
  await third.close();
  await third.until(() => third.end, "the end");
  assert.equal(third.end.error, null);
});

/** The three transports, each with a client of its own. */
const TRANSPORTS = ["websocket", "sse", "poll"];

test("from_ starts a topic without a position at its head, at a time or at its beginning", async (t) => {
  const own = await operateRun(t, { count: 5 });
  let head = 5;
  for (const transport of TRANSPORTS) {
    const storage = { kind: "memory", name: `from ${transport}` };
    const follow = async (options, more = {}) => python.follow(await open(t, { server: own.server, token: own.reader, transports: [transport], ...more }), TOPIC, options);
    // Without a reset function: a start that the application chose loses nothing.
    const last = await follow({ from_: "head", is_handled: false }, { storage });
    await until(async () => (await last.look()).position?.seq === head, `${transport}: the head`);
    const late = await follow({ since: "0s" });
    await until(async () => (await late.look()).position, `${transport}: the position of a time`);
    const all = await follow({ since: "1h" });
    const start = await follow({ from_: "start" });
    await own.batch(events(1));
    for (const seen of [last, late]) {
      await frames(seen, 1);
      assert.deepEqual(seqs(seen), [head + 1], transport);
    }
    for (const seen of [all, start]) {
      await frames(seen, head + 1);
      assert.deepEqual(seqs(seen), range(1, head + 1), transport);
    }
    assert.deepEqual(late.resets, [{ ...START, from_seq: head + 1 }]);
    await until(async () => (await last.look()).position.seq === head + 1, "the position");
    await last.close();
    await own.batch(events(1));
    const again = await follow({ from_: "head" }, { storage });
    await frames(again, 1);
    assert.deepEqual(seqs(again), [head + 2], "a stored position comes first");
    head += 2;
  }
  const wrong = await python.follow(await open(t), TOPIC, { from_: "tail" }).catch((error) => error);
  assert.equal(wrong.code, "ValueError");
});

test("a run that does not exist yet is pending, and its frames come when it does", async (t) => {
  const own = await operate(t);
  const token = own.sign({ oa_user_id: "u", oa_sync_scopes: ["runtime.run_events"] });
  const all = [];
  for (const transport of TRANSPORTS) {
    const khala = await open(t, { server: own.server, token, transports: [transport] });
    const seen = await python.follow(khala, "run:later:events");
    await until(async () => (await seen.look()).is_pending, `${transport}: pending`);
    await khala.warnings.until(() => khala.warnings.all.some(({ code }) => code === "topic_pending"), "the warning");
    all.push({ transport, seen });
  }
  await own.did("runs", { run_id: "later", owner_user_id: "u" }, 201);
  for (const { transport, seen } of all) {
    await frames(seen, 1);
    assert.deepEqual([seqs(seen), seen.end], [[1], undefined], transport);
    assert.equal((await seen.look()).is_pending, false);
  }
});

test("code, message and request of a refusal belong together on every transport", async (t) => {
  const granted = operator.sign({ oa_sync_scopes: ["runtime.append"], oa_sync_topics: ["room:*"] });
  const bare = operator.sign({ oa_sync_scopes: ["runtime.append"] });
  for (const transport of TRANSPORTS) {
    for (const [token, topic, code, words] of [[granted, "hall:1", "forbidden_topic", /does not grant this topic/], [bare, SUMMARIES, "missing_scope", /missing_scope|needs the scope/]]) {
      const seen = await python.follow(await open(t, { token, transports: [transport] }), topic);
      await seen.until(() => seen.end, `${transport}: the refusal of ${code}`);
      const { error } = seen.end;
      assert.equal(error.code, code, transport);
      assert.match(error.message, words);
      assert.match(error.request_id, /^[0-9a-f-]{32,36}$/);
    }
  }
});

test("a loop that ends and begins again at once does not read a position that is still being stored", async (t) => {
  const khala = await open(t, { storage: { kind: "slow", name: "slow" } });
  const seen = await python.follow(khala, TOPIC, { until: [3, 4] });
  await seen.until(() => seen.end, "the end of the loops");
  assert.deepEqual([seqs(seen), seen.resets], [[1, 2, 3, 3, 4], [START]]);
});
