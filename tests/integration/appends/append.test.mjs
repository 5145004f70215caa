// The endpoints that append one event: their effects, their refusals, which store nothing, and
// their behaviour over restarts, crashes and full disks.
import assert from "node:assert/strict";
import { statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { folder, run, serve } from "../../lib/khala.mjs";
import { limitFileSize } from "../../lib/machine.mjs";
import { operate, refused } from "../../lib/operator.mjs";
import { sqliteOnly } from "../../lib/database.mjs";
import { alter } from "../../lib/store.mjs";
import { until } from "../../lib/wait.mjs";

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/;
const HASH = /^sha256:[0-9a-f]{64}$/;
const IDS = ["01890000-0000-7000-8000-000000000001", "01890000-0000-7000-8000-000000000002"];

/** Creates a run and answers the path of its events. */
async function started(operator, run_id) {
  await operator.did("runs", { run_id }, 201);
  return `runs/${run_id}/events`;
}

test("creating a run appends its first event and answers the documented fields", async (t) => {
  const operator = await operate(t);
  const { run, event, deduplicated } = await operator.did("runs", {
    run_id: "r 1/ä", worker_id: "w1", thread_id: "t1", owner_user_id: "u1", org_id: "o1", metadata: { b: 1, a: [2] },
  }, 201);
  assert.equal(deduplicated, false);
  assert.equal(run.run_id, "r 1/ä");
  assert.equal(run.status, "running");
  assert.equal(run.owner_user_id, "u1");
  assert.equal(run.owner_guest_scope, null);
  assert.deepEqual(run.metadata, { a: [2], b: 1 });
  assert.deepEqual(Object.keys(event),
    ["event_id", "cursor", "entity", "entity_id", "seq", "event_type", "payload", "payload_hash", "owner", "recorded_at",
      "prev_chain_hash", "chain_hash"]);
  assert.match(event.event_id, UUID);
  assert.equal(Buffer.from(event.cursor, "base64url").toString(), `${event.recorded_at}:${event.event_id}`);
  assert.equal(event.entity, "run");
  assert.equal(event.entity_id, "r 1/ä");
  assert.equal(event.seq, 1);
  assert.equal(event.event_type, "run.started");
  assert.equal(event.prev_chain_hash, `sha256:${"0".repeat(64)}`);
  assert.match(event.chain_hash, HASH);
  // Reading a run also answers what its summary says of it.
  const { run: read } = await operator.read(`runs/${encodeURIComponent("r 1/ä")}`);
  assert.deepEqual(Object.fromEntries(Object.keys(run).map((name) => [name, read[name]])), run);
  assert.equal(read.open_steps, 0);
});

test("a run gets an id when it names none", async (t) => {
  const operator = await operate(t);
  const { run } = await operator.did("runs", {}, 201);
  assert.ok(run.run_id.length > 0);
  const again = await operator.did("runs", "", 201);
  assert.notEqual(again.run.run_id, run.run_id);
});

test("creating a run again answers the same run, and another owner is refused", async (t) => {
  const operator = await operate(t);
  const first = await operator.did("runs", { run_id: "a", owner_user_id: "u" }, 201);
  const before = operator.stored();
  const second = await operator.did("runs", { run_id: "a", owner_user_id: "u" }, 200);
  assert.equal(second.deduplicated, true);
  assert.deepEqual(second.event, first.event);
  assert.equal(operator.stored(), before);
  await refused(operator, () => operator.post("runs", { run_id: "a", owner_user_id: "v" }), 409, "already_exists");
});

test("single appends form one hash chain", async (t) => {
  const operator = await operate(t);
  const events = await started(operator, "chain");
  let last = (await operator.events("chain"))[0];
  for (let i = 2; i <= 20; i++) {
    const { event, deduplicated } = await operator.did(events, { event_type: "run.log", payload: { i } });
    assert.equal(deduplicated, false);
    assert.equal(event.seq, i);
    assert.deepEqual(event.payload, { i });
    assert.equal(event.prev_chain_hash, last.chain_hash);
    assert.ok(event.recorded_at >= last.recorded_at);
    last = event;
  }
  assert.equal((await operator.events("chain")).length, 20);
});

test("a malformed request is refused and stores nothing", async (t) => {
  const operator = await operate(t);
  const events = await started(operator, "s");
  const deep = `${"[".repeat(200)}${"]".repeat(200)}`;
  const cases = [
    ["runs", "{", "invalid_json"],
    ["runs", "[]", "invalid_request"],
    ["runs", "\"run\"", "invalid_request"],
    ["runs", "{} {}", "invalid_json"],
    ["runs", "{\"run_id\":\"\xff\"}", null],
    ["runs", { run_id: 7 }, "invalid_request"],
    ["runs", { run_id: "" }, "invalid_request"],
    ["runs", { run_id: " a" }, "invalid_request"],
    ["runs", { run_id: "a\nb" }, "invalid_request"],
    ["runs", { run_id: "x".repeat(257) }, "invalid_request"],
    ["runs", { owner_user_id: "u", owner_guest_scope: "g" }, "invalid_request"],
    ["runs", { metadata: [] }, "invalid_request"],
    [events, {}, "invalid_request"],
    [events, { event_type: "" }, "invalid_request"],
    [events, { event_type: 1 }, "invalid_request"],
    [events, { event_type: "x".repeat(129) }, "invalid_request"],
    [events, { event_type: "run.log", event_id: "7" }, null],
    [events, { event_type: "run.log", event_id: "01890000-0000-4000-8000-000000000001" }, null],
    [events, { event_type: "run.log", idempotency_key: "" }, "invalid_request"],
    [events, { event_type: "run.log", idempotency_key: "k".repeat(257) }, "invalid_request"],
    [events, { event_type: "run.log", expected_previous_seq: -1 }, "invalid_request"],
    [events, { event_type: "run.log", expected_previous_seq: 1.5 }, "invalid_request"],
    [events, { event_type: "run.log", expected_previous_seq: "1" }, "invalid_request"],
    [events, `{"event_type":"run.log","payload":{"a":${deep}}}`, "json_too_deep"],
    [events, "{\"event_type\":\"run.log\",\"payload\":{\"a\":1,\"\\u0061\":2}}", "json_duplicate_key"],
    [events, "{\"event_type\":\"run.log\",\"payload\":{\"a\":1e999}}", "json_number_out_of_range"],
    [events, { event_type: "run.finished", payload: { status: "done" } }, "invalid_request"],
    [events, { event_type: "run.finished" }, "invalid_request"],
    ["runs/%20x/events", { event_type: "run.log" }, "invalid_request"],
    ["runs/x%0Ay/events", { event_type: "run.log" }, "invalid_request"],
    ["runs/%zz/events", { event_type: "run.log" }, "bad_request"],
  ];
  for (const [path, body, code] of cases) {
    const before = operator.stored();
    const text = typeof body === "string" ? Buffer.from(body, "latin1") : JSON.stringify(body);
    const response = await operator.ask("POST", path, text);
    assert.equal(response.status, 400, `${path} ${text}: ${response.body}`);
    if (code) assert.equal(JSON.parse(response.body).error, code, `${path} ${text}`);
    assert.equal(operator.stored(), before, `${path} ${text}`);
  }
});

test("an append to an unknown entity is answered 404", async (t) => {
  const operator = await operate(t);
  await refused(operator, () => operator.post("runs/none/events", { event_type: "run.log" }), 404, "run_not_found");
  for (const path of ["heartbeat", "status", "events"]) {
    await refused(operator, () => operator.post(`workers/none/${path}`, { status: "running", event_type: "worker.x" }),
      404, "worker_not_found");
  }
  await refused(operator, () => operator.post("nothing", {}), 404, "not_found");
  const { headers } = await refused(operator, () => operator.ask("DELETE", "runs/x"), 405, "method_not_allowed");
  assert.equal(headers.allow, "GET, HEAD");
});

test("an event id is unique over all entities, and a repeated append is deduplicated", async (t) => {
  const operator = await operate(t);
  const events = await started(operator, "a");
  const others = await started(operator, "b");
  const sent = { event_type: "run.log", payload: { x: 1, y: 2 }, event_id: IDS[0] };
  const first = await operator.did(events, sent);
  assert.equal(first.event.event_id, IDS[0]);
  assert.notEqual(Buffer.from(first.event.cursor, "base64url").toString().split(":")[1], IDS[0]);
  const before = operator.stored();
  const again = await operator.did(events, "{\"payload\":{\"y\":2,\"x\":1},\"event_type\":\"run.log\",\"event_id\":\"" + IDS[0] + "\"}");
  assert.deepEqual(again, { event: first.event, deduplicated: true });
  assert.equal(operator.stored(), before);
  await refused(operator, () => operator.post(events, { ...sent, payload: { x: 2 } }), 409, "event_id_conflict");
  await refused(operator, () => operator.post(events, { ...sent, event_type: "run.other" }), 409, "event_id_conflict");
  await refused(operator, () => operator.post(others, sent), 409, "event_id_conflict");
  // An id that the server made is taken too.
  const { event } = await operator.did(events, { event_type: "run.log" });
  await refused(operator, () => operator.post(others, { event_type: "run.log", event_id: event.event_id }), 409,
    "event_id_conflict");
});

test("an idempotency key answers with the original event of its entity", async (t) => {
  const operator = await operate(t);
  const events = await started(operator, "a");
  const others = await started(operator, "b");
  const sent = { event_type: "run.log", payload: { n: 1 }, idempotency_key: "once" };
  const first = await operator.did(events, sent);
  await operator.did(events, { event_type: "run.log" });
  assert.deepEqual(await operator.did(events, sent), { event: first.event, deduplicated: true });
  await refused(operator, () => operator.post(events, { ...sent, payload: { n: 2 } }), 409, "idempotency_key_conflict");
  assert.equal((await operator.did(others, sent)).deduplicated, false);
  // The key is checked before the expected sequence.
  assert.equal((await operator.did(events, { ...sent, expected_previous_seq: 99 })).deduplicated, true);
});

test("an append with another expected sequence is refused", async (t) => {
  const operator = await operate(t);
  const events = await started(operator, "a");
  const { body } = await refused(operator, () => operator.post(events, { event_type: "run.log", expected_previous_seq: 0 }),
    409, "sequence_conflict");
  assert.equal(body.details.actual_seq, 1);
  assert.equal(body.details.expected_previous_seq, 0);
  assert.equal((await operator.did(events, { event_type: "run.log", expected_previous_seq: 1 })).event.seq, 2);
});

test("events move a run through its states", async (t) => {
  const operator = await operate(t);
  const finished = (status) => ({ event_type: "run.finished", payload: { status } });
  const cancel = { event_type: "run.cancel_requested" };
  const begin = { event_type: "run.started" };
  // Each row lists events and the state after each; null means that the event is refused.
  const paths = [
    [[begin, "running"], [begin, "running"]],
    [[cancel, "canceling"], [cancel, "canceling"], [begin, null], [finished("succeeded"), null], [finished("canceled"), "canceled"]],
    [[cancel, "canceling"], [finished("failed"), "failed"], [begin, null], [cancel, null], [finished("failed"), null]],
    [[finished("succeeded"), "succeeded"], [finished("succeeded"), null], [cancel, null]],
    [[finished("failed"), "failed"]],
    [[finished("cancelled"), "canceled"], [{ event_type: "run.note" }, "canceled"]],
    [[finished("canceled"), "canceled"]],
  ];
  for (const [index, steps] of paths.entries()) {
    const events = await started(operator, `p${index}`);
    for (const [body, state] of steps) {
      if (state) await operator.did(events, body);
      else await refused(operator, () => operator.post(events, body), 409, "invalid_transition");
      const { run } = await operator.read(`runs/p${index}`);
      if (state) assert.equal(run.status, state, JSON.stringify([index, body]));
    }
  }
});

test("a publisher above the rate limit receives the time to retry", async (t) => {
  const operator = await operate(t, { settings: { RUNTIME_KHALA_RUN_EVENTS_PUBLISH_RATE_PER_SECOND: "5" } });
  const events = await started(operator, "fast");
  const other = await started(operator, "calm");
  const answers = await Promise.all(Array.from({ length: 20 }, () => operator.post(events, { event_type: "run.log" })));
  const limited = answers.find(({ status }) => status === 429);
  assert.ok(limited, "never limited");
  const taken = answers.filter(({ status }) => status === 200).length;
  assert.equal((await operator.events("fast")).length, taken + 1, "what was refused is not stored");
  const { error, details } = JSON.parse(limited.body);
  assert.equal(error, "khala_publish_rate_limited");
  assert.equal(details.topic, "run:fast:events");
  assert.deepEqual([details.topic_class, details.publish_class], ["run_events", "run_events"]);
  assert.equal(details.limit, 5);
  assert.ok(details.retry_after_ms >= 1 && details.retry_after_ms <= 1000);
  assert.equal(limited.headers["retry-after"], "1");
  await operator.did(other, { event_type: "run.log" });
});

test("a payload above the limit of its class is refused", async (t) => {
  const operator = await operate(t);
  const events = await started(operator, "large");
  const payload = (bytes) => ({ x: "y".repeat(bytes - '{"x":""}'.length) });
  await operator.did(events, { event_type: "run.log", payload: payload(262144) });
  const { body } = await refused(operator, () => operator.post(events, { event_type: "run.log", payload: payload(262145) }),
    413, "khala_frame_payload_too_large");
  assert.equal(body.details.payload_bytes, 262145);
  assert.equal(body.details.max_payload_bytes, 262144);
  assert.equal(body.details.topic, "run:large:events");
  await operator.did("topics/small/events", { event_type: "x", payload: payload(65536) });
  await refused(operator, () => operator.post("topics/small/events", { event_type: "x", payload: payload(65537) }),
    413, "khala_frame_payload_too_large");
  await refused(operator, () => operator.post(events, " ".repeat(1 << 20) + "{}"), 413, "payload_too_large");
});

test("a larger payload limit also admits larger request bodies", async (t) => {
  const operator = await operate(t, { settings: { RUNTIME_KHALA_RUN_EVENTS_MAX_PAYLOAD_BYTES: "3000000" } });
  const events = await started(operator, "huge");
  const payload = { x: "y".repeat(2_900_000) };
  const { event } = await operator.did(events, { event_type: "run.log", payload });
  assert.equal(event.payload.x.length, 2_900_000);
  const [answer] = await operator.batch([{ run_id: "huge", event_type: "run.log", payload }]);
  assert.equal(answer.status, 200);
  assert.equal((await operator.events("huge")).length, 3);
});

test("the worker endpoints register, update and stop a worker", async (t) => {
  const operator = await operate(t);
  const made = await operator.did("workers", { owner_user_id: "u" }, 201);
  assert.match(made.worker.worker_id, /^codexw_/);
  assert.match(made.worker.worker_id.slice("codexw_".length), UUID);
  assert.equal(made.worker.adapter, "in_memory");
  assert.equal(made.worker.status, "starting");
  assert.equal(made.event.event_type, "worker.registered");

  const { worker } = await operator.did("workers", {
    worker_id: "w", owner_guest_scope: "g", org_id: "o", workspace_ref: "ws", codex_home_ref: "ch", adapter: "codex",
    metadata: { a: 1, b: 2 },
  }, 201);
  assert.equal(worker.liveness, "missing");
  const beat = await operator.did("workers/w/heartbeat", { metadata_patch: { a: null, c: 3 } });
  assert.deepEqual(beat.worker.metadata, { b: 2, c: 3 });
  assert.equal(beat.worker.liveness, "fresh");
  assert.equal(beat.event.event_type, "worker.heartbeat");
  await operator.did("workers/w/heartbeat", "");
  const changed = await operator.did("workers/w/status", { status: "running", reason: "ready" });
  assert.equal(changed.worker.status, "running");
  assert.equal(changed.event.event_type, "worker.status_changed");
  const { event } = await operator.did("workers/w/events", { event_type: "worker.output", payload: { line: 1 } });
  assert.equal(event.entity, "worker");
  assert.equal(event.entity_id, "w");
  assert.deepEqual((await operator.read("workers/w")).worker.status, "running");
  await operator.did("workers/w/status", { status: "failed" });
  assert.equal((await operator.read("workers/w")).worker.liveness, "failed");
  const { events } = await operator.read("workers/w/events");
  assert.deepEqual(events.map((one) => one.event_type), ["worker.registered", "worker.heartbeat", "worker.heartbeat",
    "worker.status_changed", "worker.output", "worker.status_changed"]);
});

test("registering a worker again revives it, and another owner is refused", async (t) => {
  const operator = await operate(t);
  await operator.did("workers", { worker_id: "w", owner_user_id: "u" }, 201);
  const before = operator.stored();
  const live = await operator.did("workers", { worker_id: "w", owner_user_id: "u" }, 200);
  assert.equal(live.worker.status, "starting");
  assert.equal(operator.stored(), before);
  await refused(operator, () => operator.post("workers", { worker_id: "w", owner_user_id: "v" }), 403, "owner_mismatch");
  await refused(operator, () => operator.post("workers", { worker_id: "w", owner_guest_scope: "u" }), 403, "owner_mismatch");
  await operator.did("workers/w/status", { status: "stopping" });
  await operator.did("workers/w/status", { status: "stopped" });
  assert.equal((await operator.read("workers/w")).worker.liveness, "stopped");
  const revived = await operator.post("workers", { worker_id: "w", owner_user_id: "u" });
  assert.ok([200, 201].includes(revived.status), revived.body);
  const { worker, event } = JSON.parse(revived.body);
  assert.equal(worker.status, "starting");
  assert.equal(event.event_type, "worker.registered");
  assert.equal(event.seq, 4);
});

test("a refused transition names the present state", async (t) => {
  const operator = await operate(t);
  await operator.did("workers", { worker_id: "w", owner_user_id: "u" }, 201);
  const events = await started(operator, "r");
  await operator.did(events, { event_type: "run.finished", payload: { status: "succeeded" } });
  for (const [path, body, words, item] of [[events, { event_type: "run.cancel_requested" }, "The run is succeeded,", { run_id: "r" }],
    ["workers/w/status", { status: "stopped" }, "The worker is starting,", { worker_id: "w" }]]) {
    const state = words.split(" ")[3].slice(0, -1);
    const { body: refusal } = await refused(operator, () => operator.post(path, body), 409, "invalid_transition");
    assert.ok(refusal.message.startsWith(words), refusal.message);
    assert.deepEqual(refusal.details, { state });
    const [{ error }] = await operator.batch([{ ...item, ...body }]);
    assert.deepEqual([error.error, error.message, error.details], ["invalid_transition", refusal.message, { state }]);
  }
});

test("a refusal by size or rate names its topic, and the rate its setting", async (t) => {
  const operator = await operate(t, { settings: { RUNTIME_KHALA_RUN_EVENTS_PUBLISH_RATE_PER_SECOND: "1", RUNTIME_KHALA_FALLBACK_PUBLISH_RATE_PER_SECOND: "1",
    RUNTIME_KHALA_CODEX_WORKER_EVENTS_PUBLISH_RATE_PER_SECOND: "1" } });
  await operator.did("workers", { worker_id: "w", owner_user_id: "u" }, 201);
  const { body: large } = await refused(operator, () => operator.post("workers/w/heartbeat", { metadata_patch: { x: "y".repeat(70_000) } }),
    413, "khala_frame_payload_too_large");
  assert.equal(large.details.topic, "worker:w:lifecycle");
  const answers = await operator.batch([...Array(20).fill({ run_id: "r", event_type: "run.log" }), ...Array(20).fill({ topic: "t", event_type: "x" }),
    ...Array(20).fill({ worker_id: "w", event_type: "worker.x" })].concat([]));
  assert.equal(answers[0].error.error, "run_not_found");
  await operator.did("runs", { run_id: "r" }, 201);
  const wanted = { "run:r:events": "RUN_EVENTS", t: "FALLBACK", "runtime.codex_worker_events": "CODEX_WORKER_EVENTS" };
  const limited = [...answers, ...await operator.batch(Array(20).fill({ run_id: "r", event_type: "run.log" }))]
    .map(({ error }) => error).filter((error) => error?.error === "khala_publish_rate_limited");
  assert.deepEqual(new Set(limited.map(({ details }) => details.topic)), new Set(Object.keys(wanted)));
  for (const { message, details } of limited) {
    assert.ok(message.includes(`RUNTIME_KHALA_${wanted[details.topic]}_PUBLISH_RATE_PER_SECOND`), message);
    assert.match(message, /^The topic's publish rate of 1 events per second is exceeded\./);
  }
});

test("a type that looks like the end of a run is stored as it is, with a hint", async (t) => {
  const operator = await operate(t);
  const events = await started(operator, "r");
  const types = ["run.failed", "run.completed", "run.succeeded", "run.canceled"];
  for (const event_type of [...types, ...types]) {
    const { event, hint, deduplicated } = await operator.did(events, { event_type, payload: { n: 1 } });
    assert.deepEqual([event.event_type, event.payload, deduplicated], [event_type, { n: 1 }, false]);
    assert.match(hint, /run\.finished.*payload\.status/);
    const [item] = await operator.batch([{ run_id: "r", event_type }]);
    assert.deepEqual([item.status, item.hint], [200, hint]);
  }
  assert.equal((await operator.read("runs/r")).run.status, "running");
  for (const event_type of ["run.log", "run.failure_seen", "tool.failed"]) assert.equal("hint" in await operator.did(events, { event_type }), false);
  assert.equal("hint" in await operator.did("topics/t/events", { event_type: "run.failed" }), false);
  const lines = operator.server.log.split("\n").filter((line) => line.includes("append.no_state_change"));
  assert.deepEqual(lines.map((line) => /event_type=(\S+)/.exec(line)[1]), types, "one line for each type");
});

test("the worker endpoints refuse invalid requests", async (t) => {
  const operator = await operate(t);
  await operator.did("workers", { worker_id: "w", owner_user_id: "u" }, 201);
  const cases = [
    ["workers", {}, 400, "invalid_request"],
    ["workers", { owner_user_id: "u", owner_guest_scope: "g" }, 400, "invalid_request"],
    ["workers", { owner_user_id: "u", metadata: 1 }, 400, "invalid_request"],
    ["workers/w/heartbeat", { metadata_patch: [] }, 400, "invalid_request"],
    ["workers/w/status", {}, 400, "invalid_request"],
    ["workers/w/status", { status: "asleep" }, 400, "invalid_request"],
    ["workers/w/status", { status: "stopped" }, 409, "invalid_transition"],
    ["workers/w/events", { event_type: "run.log" }, 400, "invalid_request"],
    ["workers/w/events", { event_type: "worker.registered" }, 400, "invalid_request"],
    ["workers/w/events", { event_type: "worker.heartbeat" }, 400, "invalid_request"],
    ["workers/w/events", { event_type: "worker.status_changed" }, 400, "invalid_request"],
    ["workers/w/events", { event_type: "worker.x", payload: { x: "y".repeat(65536) } }, 413, "khala_frame_payload_too_large"],
  ];
  for (const [path, body, status, code] of cases) await refused(operator, () => operator.post(path, body), status, code);
});

test("notifications and application topics accept events, and projected topics do not", async (t) => {
  const operator = await operate(t);
  const { event } = await operator.did("notifications", { payload: { text: "hi" } });
  assert.equal(event.entity, "topic");
  assert.equal(event.entity_id, "runtime.notifications");
  const said = await operator.did(`topics/${encodeURIComponent("chat:room/1")}/events`, { event_type: "said", payload: { text: "hi" } });
  assert.equal(said.event.entity_id, "chat:room/1");
  assert.equal(said.event.seq, 1);
  for (const topic of ["run:x:events", "worker:x:lifecycle", "fleet:user:x:workers", "runtime.run_summaries", "runtime.notifications"]) {
    await refused(operator, () => operator.post(`topics/${topic}/events`, { event_type: "x" }), 403, "projection_owned_topic");
  }
  await refused(operator, () => operator.post(`topics/${encodeURIComponent("chat.room/1")}/events`, { event_type: "x" }), 409,
    "stream_id_conflict");
  await refused(operator, () => operator.post("topics/a%01b/events", { event_type: "x" }), 400, "invalid_topic");
  await refused(operator, () => operator.post(`topics/${"x".repeat(513)}/events`, { event_type: "x" }), 400, "invalid_topic");
});

test("operator routes refuse requests without the operator key", async (t) => {
  const operator = await operate(t);
  await started(operator, "a");
  const ask = (authorization, method = "POST", path = "runs/a/events") => operator.ask(method, path,
    method === "GET" ? undefined : "{\"event_type\":\"run.log\"}", authorization === null ? { authorization: "" } : { authorization });
  const cases = [
    [null, "missing_authorization"],
    ["Basic dTpw", "invalid_authorization_scheme"],
    ["Bearer", "invalid_token"],
    ["Bearer wrong", "invalid_token"],
    [`Bearer ${operator.key}x`, "invalid_token"],
    [`Bearer ${operator.key.slice(1)}`, "invalid_token"],
  ];
  const routes = [["POST", "runs/a/events"], ["GET", "runs/a"], ["GET", "runs/a/replay"], ["POST", "events:batch"],
    ["GET", "projectors/drift"], ["POST", "workers"]];
  for (const [authorization, code] of cases) {
    for (const [method, path] of routes) {
      const { headers, body } = await refused(operator, () => ask(authorization, method, path), 401, code);
      assert.match(headers["www-authenticate"], /^Bearer/);
      assert.equal(body.reason_code, code);
      assert.match(body.message, /operator key/);
    }
  }
  assert.equal((await operator.ask("GET", "/healthz/ready", undefined, { authorization: "" })).status, 200);
});

test("the operator key is given or generated, readable by its owner only, and never logged", async (t) => {
  const data = folder(t);
  const operator = await operate(t, { data });
  assert.equal(statSync(join(data, "operator.key")).mode & 0o777, 0o600);
  assert.ok(operator.key.length >= 32);
  assert.ok(!operator.server.out.includes(operator.key));
  await operator.server.stop();
  assert.ok(!operator.server.log.includes(operator.key));
  const given = await serve(t, { args: ["--data-dir", data], settings: { KHALA_OPERATOR_KEY: "given-by-the-test" } });
  const asked = await fetch(`${given.url}/internal/v1/projectors/drift`, { headers: { authorization: "Bearer given-by-the-test" } });
  assert.equal(asked.status, 200);
  const old = await fetch(`${given.url}/internal/v1/projectors/drift`, { headers: { authorization: `Bearer ${operator.key}` } });
  assert.equal(old.status, 401);
  await given.stop();
  assert.ok(!`${given.out}${given.log}`.includes("given-by-the-test"));
});

test("event ids and idempotency keys deduplicate across a restart", async (t) => {
  const data = folder(t);
  const settings = {};
  let operator = await operate(t, { data, settings });
  const events = await started(operator, "a");
  const byId = await operator.did(events, { event_type: "run.log", payload: { n: 1 }, event_id: IDS[0] });
  const byKey = await operator.did(events, { event_type: "run.log", payload: { n: 2 }, idempotency_key: "k" });
  const made = await operator.did(events, { event_type: "run.log", payload: { n: 3 } });
  await operator.server.stop();
  operator = await operate(t, { data, settings });
  assert.deepEqual(await operator.did(events, { event_type: "run.log", payload: { n: 1 }, event_id: IDS[0] }),
    { event: byId.event, deduplicated: true });
  assert.deepEqual(await operator.did(events, { event_type: "run.log", payload: { n: 2 }, idempotency_key: "k" }),
    { event: byKey.event, deduplicated: true });
  assert.deepEqual(await operator.did(events, { event_type: "run.log", payload: { n: 3 }, event_id: made.event.event_id }),
    { event: made.event, deduplicated: true });
  await refused(operator, () => operator.post(events, { event_type: "run.log", event_id: IDS[0] }), 409, "event_id_conflict");
  await refused(operator, () => operator.post(events, { event_type: "run.log", idempotency_key: "k" }), 409, "idempotency_key_conflict");
  const next = await operator.did(events, { event_type: "run.log" });
  assert.equal(next.event.seq, 5);
  assert.equal(next.event.prev_chain_hash, made.event.chain_hash);
});

test("acknowledged events survive kill -9", async (t) => {
  const data = folder(t);
  let operator = await operate(t, { data });
  const runs = ["k0", "k1", "k2", "k3"];
  for (const run of runs) await started(operator, run);
  const acknowledged = [];
  let crashed = false;
  const publish = async (run) => {
    for (let i = 0; !crashed; i++) {
      const answer = await operator.post(`runs/${run}/events`, { event_type: "run.log", payload: { i } }).catch(() => null);
      if (answer?.status === 200) acknowledged.push(JSON.parse(answer.body).event);
    }
  };
  const publishers = runs.map(publish);
  await until(() => acknowledged.length >= 400, "400 acknowledgements");
  await operator.server.crash();
  crashed = true;
  await Promise.all(publishers);
  operator.close();
  operator = await operate(t, { data });
  const stored = new Map();
  for (const run of runs) {
    const events = await operator.events(run);
    events.forEach((event, index) => {
      assert.equal(event.seq, index + 1);
      assert.equal(event.prev_chain_hash, index ? events[index - 1].chain_hash : `sha256:${"0".repeat(64)}`);
      stored.set(event.event_id, event);
    });
    assert.equal((await operator.read(`projectors/run-summary/${run}`)).latest_seq, events.length);
  }
  for (const event of acknowledged) assert.deepEqual(stored.get(event.event_id), event);
});

test("a full disk makes appends answer 503, and the server recovers when there is room", sqliteOnly, async (t) => {
  const data = folder(t);
  const operator = await operate(t, { data });
  const events = await started(operator, "disk");
  const payload = { x: "y".repeat(200_000) };
  await operator.did(events, { event_type: "run.log", payload });
  // No file may grow beyond its current size.
  limitFileSize(operator.server, Math.max(...["khala.db", "khala.db-wal"].map((name) => statSync(join(data, name)).size)));
  let full = null;
  let count = (await operator.read("runs/disk")).run.latest_seq;
  for (let i = 0; i < 200 && !full; i++) {
    const response = await operator.post(events, { event_type: "run.log", payload });
    if (response.status === 200) count++;
    else full = response;
  }
  assert.ok(full, "the limit was never met");
  assert.equal(full.status, 503, full.body);
  assert.equal(JSON.parse(full.body).error, "disk_reserve");
  assert.equal(full.headers["retry-after"], "1");
  assert.equal((await operator.get("/healthz/ready")).status, 503);
  assert.equal((await operator.read("runs/disk")).run.latest_seq, count);
  limitFileSize(operator.server, "unlimited");
  const recovered = await until(async () => {
    const response = await operator.post(events, { event_type: "run.log", payload });
    return response.status !== 503 && response;
  }, "the recovery");
  assert.equal(recovered.status, 200, recovered.body);
  assert.equal(JSON.parse(recovered.body).event.seq, count + 1);
  assert.equal((await operator.get("/healthz/ready")).status, 200);
  assert.equal((await operator.events("disk")).length, count + 1);
  await operator.server.stop();
  assert.equal(run(["verify", "--data-dir", data]).code, 0);
});

test("appends beyond the writer queue are answered 503", async (t) => {
  const operator = await operate(t, { settings: { KHALA_WRITER_QUEUE_MAX: "1" } });
  await started(operator, "q");
  const answers = await Promise.all(Array.from({ length: 300 }, (_, i) =>
    operator.post("runs/q/events", { event_type: "run.log", payload: { i } })));
  const done = answers.filter(({ status }) => status === 200);
  for (const { status, body, headers } of answers.filter((answer) => answer.status !== 200)) {
    assert.equal(status, 503, body);
    assert.equal(JSON.parse(body).error, "limit_reached");
    assert.equal(headers["retry-after"], "1");
  }
  assert.ok(done.length > 0);
  assert.equal((await operator.events("q")).length, 1 + done.length);
});

test("a second server on the same data folder is refused, and the first keeps serving", sqliteOnly, async (t) => {
  const data = folder(t);
  const operator = await operate(t, { data });
  const second = run(["serve", "--bind", "127.0.0.1:0", "--data-dir", data]);
  assert.equal(second.code, 3);
  assert.equal(second.out, "");
  assert.match(second.problem, /^khala: .*(another|lock|already)/im);
  await started(operator, "still");
});

test("the server refuses an unusable store and says why", sqliteOnly, (t) => {
  const damaged = folder(t);
  writeFileSync(join(damaged, "khala.db"), "this is not a database, and was never one".repeat(100));
  const done = run(["serve", "--bind", "127.0.0.1:0", "--data-dir", damaged]);
  assert.equal(done.code, 3);
  assert.match(done.problem, /^khala: \S/m);
  const blocked = join(folder(t), "file");
  writeFileSync(blocked, "");
  const inFile = run(["serve", "--bind", "127.0.0.1:0", "--data-dir", join(blocked, "data")]);
  assert.equal(inFile.code, 3);
  assert.match(inFile.problem, /^khala: \S/m);
});

test("the server refuses a store whose log is damaged", sqliteOnly, async (t) => {
  const data = folder(t);
  const operator = await operate(t, { data });
  await started(operator, "a");
  await operator.server.stop();
  alter(data, "UPDATE events SET cursor = x'00'");
  const done = run(["serve", "--bind", "127.0.0.1:0", "--data-dir", data]);
  assert.equal(done.code, 3);
  assert.match(done.problem, /^khala: the store in .* is damaged: 'khala verify' names the place; restore a backup$/m);
  const verified = run(["verify", "--data-dir", data]);
  assert.equal(verified.code, 1, verified.problem);
});

test("a request under way at SIGTERM is answered", async (t) => {
  const operator = await operate(t);
  const events = await started(operator, "a");
  const { request, answer } = operator.begin("POST", events, { "content-length": "60" });
  const body = JSON.stringify({ event_type: "run.log" }).padEnd(60);
  await new Promise((resolve) => request.write(body.slice(0, 20), resolve));
  await operator.get("runs/a");
  operator.server.kill("SIGTERM");
  await operator.server.saw("log", /server\.draining/);
  request.end(body.slice(20));
  const response = await answer;
  response.resume();
  assert.equal(response.statusCode, 200);
  await operator.server.stop();
});
