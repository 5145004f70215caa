// The JavaScript client against the real server: every transport, resuming over a crash, stale
// positions, tokens, collections and exactly-once.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { memoryStorage } from "../../../clients/js/src/khala.js";
import { fileStorage } from "../../../clients/js/src/node.js";
import { test } from "../../lib/cases.mjs";
import { folder } from "../../lib/khala.mjs";
import { operate, operateRun, renewed } from "../../lib/operator.mjs";
import { events, range, TOPIC } from "../../lib/samples.mjs";
import { until } from "../../lib/wait.mjs";
import { follow, frames, open, TRANSPORTS } from "./client.mjs";

const SUMMARIES = "runtime.run_summaries";
const ids = (seen) => seen.frames.map((frame) => frame.event_id);

/** The operator, whose sign() is a method, as an object with what a client needs. */
const of = (operator) => ({ server: operator.server, sign: (claims) => operator.sign(claims) });

test("sse: a topic that resumed without a frame moves over the frames of other owners", async (t) => {
  const operator = await operate(t, { settings: { KHALA_HEARTBEAT_MS: "100" } });
  await operator.did("runs", { run_id: "b", owner_user_id: "bob" }, 201);
  const { epoch } = JSON.parse((await operator.poll(SUMMARIES, "after_seq=1")).body);
  const token = () => operator.token({ user_id: "bob", scopes: ["runtime.run_events"] });
  const seen = follow(open(t, of(operator), { transports: ["sse"], token }), SUMMARIES, { after: { epoch, seq: 1 } });
  await operator.did("runs", { run_id: "a", owner_user_id: "alice" }, 201);
  await until(() => seen.topic.position?.seq === 2, "the position");
  assert.deepEqual(seen.all, []);
});

for (const transport of TRANSPORTS) {
  test(`${transport}: a run that does not exist yet begins when it is created, also after a restart`, async (t) => {
    const data = folder(t);
    let operator = await operate(t, { data });
    const claims = { oa_user_id: "ada", oa_sync_scopes: ["runtime.run_events"] };
    const { port } = operator.server;
    const khala = open(t, { server: operator.server }, { transports: [transport], token: () => operator.sign(claims) });
    const seen = follow(khala, TOPIC);
    await khala.states.until(() => khala.state.status === "live", "the connection");
    await operator.server.stop();
    operator = await operate(t, { data, bind: `127.0.0.1:${port}` });
    await operator.did("runs", { run_id: "a", owner_user_id: "ada" }, 201);
    await operator.batch(events(3));
    await frames(seen, 4);
    assert.deepEqual([seen.frames.map((frame) => frame.seq), seen.end], [range(1, 4), undefined]);
  });

  test(`${transport}: replay, live frames, and a resume after kill -9 without loss or repetition`, async (t) => {
    const data = folder(t);
    const first = await operateRun(t, { count: 300, data });
    const storage = memoryStorage();
    let signer = first;
    const khala = open(t, { server: first.server, sign: (claims) => signer.sign(claims) }, { transports: [transport], storage });
    const seen = follow(khala, TOPIC);
    await frames(seen, 300);
    await first.batch(events(20));
    await frames(seen, 320);
    assert.equal(khala.state.transport, transport);
    const { port } = first.server;
    await first.server.crash();
    await khala.states.until(() => khala.state.status === "backing_off", "the loss");
    const second = await operate(t, { data, bind: `127.0.0.1:${port}` });
    signer = second;
    await second.batch(events(30));
    await frames(seen, 350);
    const log = await second.events("a");
    assert.deepEqual(ids(seen), log.map((event) => event.event_id));
    assert.deepEqual(seen.resets, [{ reason: "start", from_seq: 1, truncated: false }]);
    await until(() => seen.topic.position.seq === 350, "the position");
    await khala.close();
    assert.equal(JSON.parse(storage.load(`khala:${TOPIC}`)).seq, 350);
    await seen.until(() => seen.end, "the end of the loop");
    assert.equal(seen.end.error, null);
    // A second client goes on from the stored position.
    await second.batch(events(1));
    const next = follow(open(t, of(second), { transports: [transport], storage }), TOPIC);
    await frames(next, 1);
    assert.deepEqual([next.frames.map((frame) => frame.seq), next.resets], [[351], []]);
  });

  test(`${transport}: a stale position starts again, and the application learns it before the first frame`, async (t) => {
    const operator = await operateRun(t, { count: 100, settings: { RUNTIME_KHALA_RUN_EVENTS_REPLAY_BUDGET_EVENTS: "30" } });
    const storage = memoryStorage();
    const { epoch } = JSON.parse((await operator.poll(TOPIC, "after_seq=99")).body);
    storage.save(`khala:${TOPIC}`, JSON.stringify({ epoch, seq: 5 }));
    const seen = follow(open(t, of(operator), { transports: [transport], storage }), TOPIC);
    await frames(seen, 30);
    assert.deepEqual(seen.all[0], { reset: { reason: "replay_budget_exceeded", from_seq: 71, truncated: true } });
    assert.deepEqual(seen.frames.map((frame) => frame.seq), range(71, 100));
    storage.save(`khala:${TOPIC}`, JSON.stringify({ epoch: "01a1e1a3-0000-7000-8000-000000000000", seq: 99 }));
    const other = follow(open(t, of(operator), { transports: [transport], storage }), TOPIC);
    await frames(other, 30);
    assert.equal(other.resets[0].reason, "epoch_mismatch");
    // Without a reset function the loop ends with an error instead of going on with a hole.
    storage.save(`khala:${TOPIC}`, JSON.stringify({ epoch, seq: 5 }));
    const careless = follow(open(t, of(operator), { transports: [transport], storage }), TOPIC, { reset: undefined });
    await careless.until(() => careless.end, "the error");
    assert.equal(careless.end.error.code, "reset_unhandled");
    assert.deepEqual([careless.frames.length, JSON.parse(storage.load(`khala:${TOPIC}`)).seq], [0, 5]);
  });

  test(`${transport}: in a log that has had several epochs, a client without a position starts, and resumes`, async (t) => {
    const operator = await renewed(t, await operateRun(t, { count: 5 }));
    await operator.batch(events(5));
    const storage = memoryStorage();
    const first = open(t, of(operator), { transports: [transport], storage });
    const seen = follow(first, TOPIC);
    await frames(seen, 10);
    assert.deepEqual([seen.resets, seen.frames.map(({ seq }) => seq)], [[{ reason: "start", from_seq: 1, truncated: false }], range(1, 10)]);
    await until(() => JSON.parse(storage.load(`khala:${TOPIC}`) ?? "{}").seq === 10, "the stored position");
    await first.close(); // it would store the next positions too
    await operator.batch(events(2));
    const next = follow(open(t, of(operator), { transports: [transport], storage }), TOPIC);
    await frames(next, 2);
    assert.deepEqual([next.resets, next.frames.map(({ seq }) => seq)], [[], [11, 12]]);
    const summaries = follow(open(t, of(operator), { transports: [transport] }), SUMMARIES);
    await summaries.until(() => summaries.resets[0]?.documents.length === 1, "the snapshot");
    await operator.batch(events(1));
    await frames(summaries, 1);
  });

  test(`${transport}: tokens are renewed before they expire, and the topic goes on`, async (t) => {
    const operator = await operateRun(t, { count: 3 });
    const tokens = [];
    const token = async () => {
      const now = Math.floor(Date.now() / 1000);
      tokens.push(operator.sign({ oa_sync_scopes: ["runtime.read_all"], iat: now, exp: now + 3 }));
      return tokens.at(-1);
    };
    const khala = open(t, of(operator), { transports: [transport], token });
    const seen = follow(khala, TOPIC);
    await frames(seen, 3);
    await until(() => tokens.length >= 3, "two renewals");
    // On a busy machine a short token may end before it is renewed; a later one is renewed in time.
    await until(() => khala.states.all.some(({ status }) => status === "reauthenticating"), "a renewal in time");
    await operator.batch(events(3));
    await frames(seen, 6);
    assert.deepEqual(seen.frames.map((frame) => frame.seq), range(1, 6));
  });

  test(`${transport}: a collection has the snapshot, then every change`, async (t) => {
    const operator = await operateRun(t, { count: 4 });
    await operator.did("runs", { run_id: "b" }, 201);
    const khala = open(t, of(operator), { transports: [transport] });
    const collection = khala.collection(SUMMARIES);
    const changes = [];
    const stop = collection.subscribe((change) => changes.push(change));
    await collection.ready;
    assert.equal(khala.collection(SUMMARIES), collection);
    assert.deepEqual([collection.size, collection.get("a").latest_seq, collection.get("runtime/run_summary:b").latest_seq], [2, 4, 1]);
    const before = collection.snapshot();
    assert.equal(collection.snapshot(), before, "the same map until a change");
    await operator.did("runs/b/events", { event_type: "run.finished", payload: { status: "succeeded" } });
    await until(() => collection.get("b").status === "succeeded", "the change");
    assert.notEqual(collection.snapshot(), before);
    assert.equal(before.get("runtime/run_summary:b").status, "running");
    assert.deepEqual(changes.map(({ type }) => type)[0], "reset");
    stop();
    await khala.states.until(() => khala.state.status === "idle", "the end of the connection without a topic");
  });
}

test("many topics share one WebSocket; a forbidden or malformed one fails alone", async (t) => {
  const operator = await operate(t);
  const names = range(1, 150).map((i) => `room:${i}`);
  await operator.batch(names.map((topic) => ({ topic, event_type: "said", payload: { topic } })));
  const sign = () => operator.sign({ oa_sync_topics: ["room:*"] });
  const khala = open(t, { server: operator.server, sign });
  const all = names.map((name) => follow(khala, name));
  const forbidden = follow(khala, "hall:1");
  const bad = follow(khala, "x".repeat(2000));
  for (const seen of all) await frames(seen, 1);
  await forbidden.until(() => forbidden.end, "the refusal");
  await bad.until(() => bad.end, "the refusal");
  assert.deepEqual([forbidden.end.error.code, bad.end.error.code], ["forbidden_topic", "bad_topic"]);
  assert.deepEqual(all.map((seen) => seen.frames[0].payload.topic), names);
  const { items } = await operator.read("connections");
  assert.equal(items.filter(({ dialect }) => dialect === "phoenix").length, 1);
});

test("a stream id names a topic too, and a topic can be followed before it exists", async (t) => {
  const operator = await operate(t);
  const khala = open(t, of(operator));
  const early = follow(khala, "runtime.topic.room.9");
  await until(() => early.topic.state === "live", "the subscription");
  await operator.did("topics/room:9/events", { event_type: "said", payload: { n: 1 } });
  await frames(early, 1);
  assert.deepEqual(early.frames[0].payload, { n: 1 });
});

test("exactly-once keeps frame and position in one transaction, and survives a crash between any two", async (t) => {
  const operator = await operateRun(t, { count: 60 });
  const table = { rows: [], position: null };
  let failures = 0;
  const transaction = async (work) => {
    const draft = structuredClone(table);
    await work(draft);
    if (failures < 5 && draft.rows.length % 10 === 9) {
      failures++;
      throw new Error("the database failed");
    }
    Object.assign(table, draft);
  };
  const helper = { load: () => table.position, transaction, apply: (frame, tx) => tx.rows.push(frame.seq), save: (position, tx) => { tx.position = position; } };
  for (let attempt = 0; attempt < 20 && table.position?.seq !== 60; attempt++) {
    const topic = open(t, of(operator)).topic(TOPIC);
    const done = topic.exactlyOnce(helper).catch((error) => assert.equal(error.message, "the database failed"));
    await Promise.race([done, until(() => table.position?.seq === 60, "all rows").catch(() => {})]);
    await topic.close();
  }
  assert.deepEqual([table.rows, failures], [range(1, 60), 5]);
});

test("exactly-once stops at a truncated start unless the application handles it", async (t) => {
  const operator = await operateRun(t, { count: 100, settings: { RUNTIME_KHALA_RUN_EVENTS_REPLAY_BUDGET_EVENTS: "30" } });
  const rows = [];
  const helper = { load: () => null, transaction: (work) => work(rows), apply: (frame, tx) => tx.push(frame.seq), save: () => {} };
  await assert.rejects(open(t, of(operator)).topic(TOPIC).exactlyOnce(helper), { code: "reset_unhandled" });
  assert.deepEqual(rows, []);
  const resets = [];
  const topic = open(t, of(operator)).topic(TOPIC);
  const done = topic.exactlyOnce({ ...helper, reset: (reset, tx) => { resets.push(reset); tx.length = 0; } });
  await until(() => rows.length === 30, "the rest of the log");
  await topic.close();
  await done;
  assert.deepEqual(resets, [{ reason: "start", from_seq: 71, truncated: true }]);
  await assert.rejects(open(t, of(operator)).topic(TOPIC).exactlyOnce({ ...helper, load: () => ({ seq: "x" }) }), { code: "position_unreadable" });
});

test("a reader that is slow gets every frame, and only a bounded part of them waits in memory", async (t) => {
  const operator = await operateRun(t, { count: 5000 });
  const khala = open(t, of(operator));
  const topic = khala.topic(TOPIC);
  const seqs = [];
  for await (const frame of topic) {
    seqs.push(frame.seq);
    if (frame.seq % 2000 === 1) await until(() => topic.state === "paused" || frame.seq > 3000, "the pause of the subscription");
    if (frame.seq === 5000) break;
  }
  assert.deepEqual(seqs, range(1, 5000));
});

test("positions in files survive the process, and a damaged file starts again", async (t) => {
  const path = mkdtempSync(join(tmpdir(), "khala-js-"));
  t.after(() => rmSync(path, { recursive: true, force: true }));
  const storage = fileStorage(path);
  assert.equal(await storage.load("khala:a/b:*"), null);
  await storage.save("khala:a/b:*", "{}");
  assert.equal(await storage.load("khala:a/b:*"), "{}");
});
