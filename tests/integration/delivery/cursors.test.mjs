// POST /v1/cursors/plan: the decision and the cost of resuming from topic cursors.
import assert from "node:assert/strict";
import { test } from "node:test";
import { operate, refused } from "../../lib/operator.mjs";
import { onPostgres } from "../../lib/database.mjs";
import { sql } from "../../lib/store.mjs";

const PATH = "/v1/cursors/plan";
const SMALL = { RUNTIME_KHALA_RUN_EVENTS_REPLAY_BUDGET_EVENTS: "10", RUNTIME_KHALA_FALLBACK_REPLAY_BUDGET_EVENTS: "5" };

async function plan(operator, body) {
  return operator.did(PATH, body);
}

async function filled(operator, run_id, count) {
  await operator.did("runs", { run_id, owner_user_id: "u" }, 201);
  await operator.batch(Array.from({ length: count - 1 }, (_, i) => ({ run_id, event_type: "run.log", payload: { text: "é".repeat(i) } })));
}

/** The size of the payloads of these events. */
const bytes = (events) => events.reduce((sum, { payload }) => sum + Buffer.byteLength(JSON.stringify(payload)), 0);

test("each cursor is planned in order against its topic's window", async (t) => {
  const operator = await operate(t, { settings: SMALL });
  await filled(operator, "a", 12);
  const events = await operator.events("a");
  const { epoch, plans } = await plan(operator, [
    { topic: "run:a:events", after_seq: 7 },
    { stream_id: "runtime.run.a.events", after_seq: 12 },
    { topic: "run:a:events", watermark: 1 },
    { topic: "run:none:events", after_seq: 3 },
    { stream_id: "runtime.nothing", after_seq: 3 },
    { topic: "run:a:events", after_seq: 99 },
  ]);
  assert.match(epoch, /^[0-9a-f-]{36}$/);
  const window = { oldest_seq: 1, head_seq: 12, replay_budget_events: 10, qos_tier: "warm" };
  const run = { stream_id: "runtime.run.a.events", topic: "run:a:events" };
  assert.deepEqual(plans, [
    { ...run, after_seq: 7, decision: "resume", reason_codes: [], replay_events: 5, replay_bytes: bytes(events.slice(7)), window },
    { ...run, after_seq: 12, decision: "resume", reason_codes: [], replay_events: 0, replay_bytes: 0, window },
    { ...run, after_seq: 1, decision: "rebootstrap", reason_codes: ["replay_budget_exceeded"], replay_events: 10, replay_bytes: bytes(events.slice(2)), window },
    { stream_id: "runtime.run.none.events", topic: "run:none:events", after_seq: 3, decision: "resume", reason_codes: [], replay_events: 0, replay_bytes: 0, window: null },
    { stream_id: "runtime.nothing", topic: null, after_seq: 3, decision: "resume", reason_codes: [], replay_events: 0, replay_bytes: 0, window: null },
    { ...run, after_seq: 99, decision: "rebootstrap", reason_codes: ["cursor_ahead_of_head"], replay_events: 10, replay_bytes: bytes(events.slice(2)), window },
  ]);
});

test("a plan measures topics with journal rows by their frames", async (t) => {
  const operator = await operate(t);
  await operator.did("workers", { worker_id: "w", owner_user_id: "u" }, 201);
  for (let i = 0; i < 3; i++) await operator.did("workers/w/events", { event_type: "worker.note", payload: { i } });
  const { plans } = await plan(operator, { "runtime.codex_worker_summaries": 1, "runtime.codex_worker_events": 1, "fleet:user:u:workers": 0 });
  const bytes = (text) => (onPostgres ? `octet_length(${text})` : `length(CAST(${text} AS BLOB))`);
  const frames = (topic, after) => Number(sql(operator.data, `SELECT coalesce(sum(${bytes("coalesce(j.payload, e.payload)")}), 0) ` +
    `FROM journal j JOIN topics t ON t.ref = j.topic_ref JOIN events e ON e.log_id = j.log_id WHERE t.topic = '${topic}' AND j.seq > ${after}`));
  for (const one of plans) {
    assert.equal(one.replay_events, one.window.head_seq - one.after_seq);
    assert.ok(one.replay_events > 0);
    assert.equal(one.replay_bytes, frames(one.topic, one.after_seq));
    assert.ok(one.replay_bytes > 0);
  }
  assert.deepEqual(plans.map(({ window }) => window.qos_tier), ["warm", "hot", "warm"]);
  assert.equal(plans[1].stream_id, "runtime.codex.worker.events");
});

test("a stream id resolves to the stored topic before the naming rule applies", async (t) => {
  const operator = await operate(t);
  await operator.did("topics/a.b/events", { event_type: "x" });
  const { plans } = await plan(operator, [{ stream_id: "runtime.topic.a.b", after_seq: 0 }, { topic: "a:b", after_seq: 0 }, { stream_id: "runtime.topic.c.d", after_seq: 0 }]);
  assert.deepEqual(plans.map(({ topic, window }) => [topic, window?.head_seq ?? null]), [["a.b", 1], ["a:b", null], ["c:d", null]]);
});

test("a cursor of another epoch must start again", async (t) => {
  const operator = await operate(t, { settings: SMALL });
  await filled(operator, "a", 12);
  const cursors = { "run:a:events": 12, "run:none:events": 1, "runtime.run_summaries": 1 };
  const { epoch, plans } = await plan(operator, { cursors, epoch: "018f3b7e-0000-7000-8000-000000000000" });
  assert.deepEqual(plans.map(({ decision, reason_codes }) => [decision, reason_codes]), Array(3).fill(["rebootstrap", ["epoch_mismatch"]]));
  // The topic's newest events; a topic with a snapshot answers with the snapshot instead.
  assert.deepEqual(plans.map(({ replay_events }) => replay_events), [10, 0, 0]);
  const same = await plan(operator, { cursors, epoch });
  assert.deepEqual(same.plans.map(({ decision }) => decision), ["resume", "resume", "resume"]);
});

test("a plan takes one cursor, none, or a thousand", async (t) => {
  const operator = await operate(t);
  await filled(operator, "a", 50);
  assert.equal((await plan(operator, { topic: "run:a:events", after_seq: 0 })).plans.length, 1);
  assert.deepEqual((await plan(operator, [])).plans, []);
  // Far more frames than one task of a store reader measures.
  const { plans } = await plan(operator, Array.from({ length: 1000 }, (_, i) => ({ topic: "run:a:events", after_seq: i % 50 })));
  assert.deepEqual(plans.map(({ after_seq, replay_events }) => after_seq + replay_events), Array(1000).fill(50));
});

test("a plan refuses invalid cursors", async (t) => {
  const operator = await operate(t);
  const bad = [
    [[{ topic: "a", after_seq: 1 }, { topic: "a" }], "invalid_cursor", 1],
    [[{ topic: "a", after_seq: -1 }], "invalid_cursor", 0],
    [[{ topic: "a", stream_id: "b", after_seq: 1 }], "invalid_cursor", 0],
    [[{ topic: "", after_seq: 1 }], "invalid_topic", 0],
    [[{ topic: "n".repeat(513), after_seq: 1 }], "invalid_topic", 0],
    [[{ stream_id: "a\nb", after_seq: 1 }], "invalid_cursor", 0],
    [{ a: 1, b: "x" }, "invalid_cursor", 1],
    [[7], "invalid_request", 0],
    ["7", "invalid_request", 0],
    [Array.from({ length: 1001 }, () => ({ topic: "a", after_seq: 1 })), "invalid_request", 1000],
    [{ cursors: [], epoch: 7 }, "invalid_request", undefined],
    ["", "invalid_json", undefined],
    ['{"topic":"a","after_seq":1}\n{"topic":"a","after_seq":1}', "invalid_json", undefined],
  ];
  for (const [body, code, index] of bad) {
    const { body: answer } = await refused(operator, () => operator.post(PATH, body), 400, code);
    assert.equal(answer.details?.index, index);
  }
  await refused(operator, () => operator.post(PATH, `[${" ".repeat(1 << 20)}]`), 413, "payload_too_large");
  const stranger = await operator.ask("POST", PATH, "[]", { authorization: "Bearer wrong" });
  assert.equal(stranger.status, 401);
});
