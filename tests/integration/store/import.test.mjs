// An export taken into another store: the same log, or nothing.
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { relinked, sealed } from "../../lib/chain.mjs";
import { folder, run } from "../../lib/khala.mjs";
import { operate, renewed, UNHURRIED } from "../../lib/operator.mjs";
import { sqliteOnly } from "../../lib/database.mjs";
import { reports } from "../../lib/samples.mjs";
import { scrape } from "../../lib/prometheus.mjs";
import { alter, holdWriter, sql } from "../../lib/store.mjs";
import { until } from "../../lib/wait.mjs";

const exported = async (operator) => (await operator.get("/api/events/export")).body;
const send = (operator, text) => operator.ask("POST", "/api/events/import", text, { "content-type": "application/x-ndjson" });
const resultOf = ({ status, body }) => [status, JSON.parse(body.trimEnd().split("\n").at(-1))];
const count = (operator) => Number(sql(operator.data, "SELECT count(*) FROM events"));

/** A server with events of every kind; the others import its export. */
let source;
async function sourceOf(t) {
  if (source) return source;
  const operator = await operate(t, { settings: UNHURRIED });
  const event_id = "018f3b7e-1000-7000-8000-00000000000a";
  for (const [i, owner] of [{ owner_user_id: "ada", org_id: "o" }, { owner_guest_scope: "g\"1" }, {}].entries()) {
    await operator.did("runs", { run_id: `r${i}`, thread_id: "t", metadata: { b: [1.5, "é"] }, ...owner }, 201);
    await operator.did(`runs/r${i}/events`, { event_type: "run.log", payload: { i, text: "a\nb" } });
  }
  await operator.did("runs/r0/events", { event_type: "run.finished", payload: { status: "cancelled", reason: "x" } });
  await operator.did("runs", { run_id: "r3", parent_run_id: "r1", owner_guest_scope: "g\"1", title: "T", tags: ["c"] }, 201);
  await operator.batch(reports("r1"));
  await operator.did("runs/r1/events", { event_type: "run.cancel_requested", event_id });
  await operator.did("workers", { worker_id: "w", owner_user_id: "ada", metadata: { a: 1 } }, 201);
  await operator.did("workers/w/heartbeat", { metadata_patch: { a: null, b: 2 } });
  await operator.did("workers/w/heartbeat", {});
  await operator.did("workers/w/events", { event_type: "worker.response", payload: { n: 1 } });
  await operator.did("workers/w/status", { status: "failed", reason: "why" });
  await operator.did("workers", { worker_id: "w", owner_user_id: "ada", adapter: "other" }, 200);
  await operator.did("topics/app.t/events", { event_type: "x", owner_guest_scope: "g" });
  await operator.did("notifications", { org_id: "o1", payload: { n: 1 } });
  await operator.did("/api/events/ingest", { event_type: "login" });
  await operator.batch(Array.from({ length: 3000 }, (_, i) => ({ run_id: "r2", event_type: "run.log", payload: { i } })));
  const text = await exported(operator);
  const state = await stateOf(operator);
  source = { text, lines: text.trimEnd().split("\n").slice(0, -1), state, event_id };
  assert.equal(source.lines.length, 3027);
  await operator.server.stop();
  return source;
}

/** What clients see of the log: entities, summaries and the frames of topics. */
async function stateOf(operator) {
  const state = {};
  for (const path of ["runs/r0", "runs/r1", "runs/r2", "workers/w", "projectors/run-summary/r0", "projectors/run-summary/r1",
    "projectors/run-summary/r3", "projectors/run-summary/r2", "projectors/worker-summary/w"]) {
    const { projected_at, ...body } = JSON.parse((await operator.get(path)).body);
    if (body.worker) delete body.worker.liveness;
    state[path] = body;
  }
  for (const topic of ["run:r0:events", "run:r1:events", "worker:w:lifecycle", "app.t", "runtime.notifications"]) {
    const { messages } = JSON.parse((await operator.poll(topic, "after_seq=0")).body);
    state[topic] = messages.map(({ projected_at, ...message }) => message);
    assert.ok(messages.length > 0, topic);
  }
  return state;
}

test("an import makes the same log, summaries and frames, and repeats change nothing", async (t) => {
  const { text, lines, state, event_id } = await sourceOf(t);
  const operator = await operate(t, { settings: UNHURRIED });
  const file = join(folder(t), "events.ndjson");
  writeFileSync(file, text);
  const options = ["--url", operator.server.url, "--data-dir", operator.data];
  const first = run(["import", file, ...options]);
  assert.deepEqual([first.code, first.out], [0, `${lines.length} events: ${lines.length} imported, 0 were there\n`], first.problem);
  assert.equal(await exported(operator), text);
  assert.deepEqual(await stateOf(operator), state);
  assert.deepEqual(JSON.parse(run(["import", file, "--json", ...options]).out),
    { events: lines.length, imported: 0, already_stored: lines.length });
  assert.equal(run(["export", ...options]).out, text);
  // Imported ids count as supplied ids, also those that the other store minted.
  const minted = JSON.parse(lines[1]);
  for (const id of [event_id, minted.event_id]) {
    const { status, body } = await operator.post("topics/app.t/events", { event_type: "other", event_id: id });
    assert.deepEqual([status, JSON.parse(body).error], [409, "event_id_conflict"]);
  }
  const again = await operator.did("runs/r0/events", { event_type: minted.event_type, payload: minted.payload, event_id: minted.event_id });
  assert.deepEqual(again, { event: minted, deduplicated: true });
  // The log continues after the import.
  const { event } = await operator.did("runs/r2/events", { event_type: "run.log" });
  assert.equal(event.prev_chain_hash, JSON.parse(lines.at(-1)).chain_hash);
  assert.deepEqual(resultOf(await send(operator, text)), [200, { events: lines.length, imported: 0, already_stored: lines.length }]);
  await operator.server.stop();
  assert.equal(run(["verify", "--data-dir", operator.data]).code, 0);
});

test("an import takes run events of other shapes, and their summaries ignore them", async (t) => {
  const { lines } = await sourceOf(t);
  const operator = await operate(t, { settings: UNHURRIED });
  const free = { "run.updated": { title: 7 }, "run.usage": { input_tokens: -1 }, "run.step_started": { step_id: "s" }, "run.waiting": {} };
  const head = lines.slice(0, 1);
  for (const [event_type, payload] of Object.entries(free)) {
    const before = JSON.parse(head.at(-1));
    const text = JSON.stringify(payload);
    head.push(relinked(lines[1], { ...JSON.parse(lines[1 + head.length]), entity_id: "r0", owner: before.owner, seq: head.length + 1,
      event_type, payload, payload_hash: `sha256:${createHash("sha256").update(text).digest("hex")}`, prev_chain_hash: before.chain_hash }));
  }
  assert.deepEqual(resultOf(await send(operator, sealed(head))), [200, { events: 5, imported: 5, already_stored: 0 }]);
  const { title, usage, open_steps, waiting, latest_event_type } = await operator.read("projectors/run-summary/r0");
  assert.deepEqual([title, usage, open_steps, waiting, latest_event_type], [null, null, 0, null, "run.waiting"]);
  assert.equal(run(["reproject", "--all", "--verify", "--data-dir", operator.data]).code, 0);
});

test("a parent that is missing or of another owner refuses an import before the first write", async (t) => {
  const { lines } = await sourceOf(t);
  const operator = await operate(t, { settings: UNHURRIED });
  const at = lines.findIndex((line) => JSON.parse(line).payload.parent_run_id);
  for (const [parent_run_id, owner_guest_scope] of [["none", "g\"1"], ["r0", "g\"1"], ["r3", "g\"1"], ["r1", "other"]]) {
    const { payload } = JSON.parse(lines[at]);
    const changed = { ...payload, owner_guest_scope, parent_run_id };
    const payload_hash = `sha256:${createHash("sha256").update(JSON.stringify(changed)).digest("hex")}`;
    const child = relinked(lines[at], { payload: changed, payload_hash, owner: { guest_scope: owner_guest_scope } });
    const [status, result] = resultOf(await send(operator, sealed([...lines.slice(0, at), child])));
    assert.deepEqual([status, result.error], [409, "import_refused"], JSON.stringify(result));
    assert.match(JSON.stringify(result), /parent_run_id names no earlier run of the owner/);
    assert.equal(count(operator), 0);
  }
  assert.equal(resultOf(await send(operator, sealed(lines.slice(0, at + 1))))[0], 200);
});

test("publish rates do not apply to an import", async (t) => {
  const { text, lines } = await sourceOf(t);
  const operator = await operate(t, { settings: { RUNTIME_KHALA_RUN_EVENTS_PUBLISH_RATE_PER_SECOND: "1" } });
  assert.deepEqual(resultOf(await send(operator, text)), [200, { events: lines.length, imported: lines.length, already_stored: 0 }]);
});

// ThreadSanitizer assumes one descriptor table, so its reports would be wrong.
test("an import works while loops have their own descriptor tables", async (t) => {
  const { text, lines } = await sourceOf(t);
  const operator = await operate(t, { settings: { ...UNHURRIED, KHALA_LOOPS_OWN_DESCRIPTORS: "true", TSAN_OPTIONS: "report_bugs=0" } });
  assert.deepEqual(resultOf(await send(operator, text)), [200, { events: lines.length, imported: lines.length, already_stored: 0 }]);
  assert.equal(await exported(operator), text);
});

test("an interrupted import continues where it stopped", async (t) => {
  const { text, lines } = await sourceOf(t);
  const operator = await operate(t, { settings: UNHURRIED });
  assert.deepEqual(resultOf(await send(operator, sealed(lines.slice(0, 1500)))), [200, { events: 1500, imported: 1500, already_stored: 0 }]);
  // The connection ends in the middle of the body: nothing more is written.
  const { request } = operator.begin("POST", "/api/events/import", { "content-type": "application/x-ndjson" });
  request.on("error", () => {});
  request.write(text.slice(0, text.length / 2));
  await operator.get("/healthz/live");
  request.destroy();
  assert.equal(count(operator), 1500);
  assert.deepEqual(resultOf(await send(operator, text)),
    [200, { events: lines.length, imported: lines.length - 1500, already_stored: 1500 }]);
  assert.equal(await exported(operator), text);
});

test("a file that is not an export of this log is refused before the first write", async (t) => {
  const { text, lines } = await sourceOf(t);
  const operator = await operate(t, { settings: UNHURRIED });
  const changed = (index, change) => lines.map((line, i) => (i === index ? change(line) : line));
  const dropped = (index) => lines.filter((_, i) => i !== index);
  const notice = lines.findIndex((line) => JSON.parse(line).entity_id === "runtime.notifications");
  assert.equal(relinked(lines[notice], {}), lines[notice], "the test hashes as the server does");
  const last = lines.length - 1;
  const swapped = [lines[1], lines[0], ...lines.slice(2)];
  const cases = [
    [text.replace('"i":7}', '"i":8}'), /payload does not hash/],
    [sealed(changed(1, (line) => line.replace('"user_id":"ada"', '"user_id":"eve"'))), /does not hash to its chain_hash/, 2],
    [sealed(changed(5, (line) => line.replace(/"recorded_at":1/, '"recorded_at":2'))), /not an event of an export/, 6],
    [sealed(changed(notice, (line) => relinked(line, { owner: { user_id: "ada", guest_scope: "g" } }))), /not an event of an export/, notice + 1],
    [sealed(changed(last, (line) => relinked(line, { event_id: JSON.parse(lines[2]).event_id }))), /earlier line has the same event_id/, last + 1],
    [sealed(changed(last, (line) => relinked(line, { owner: { user_id: "eve" } }))), /owner is not that of the entity/, last + 1],
    [sealed([relinked(lines[0], { owner: { user_id: "eve" } })]), /no request could have made this event/, 1],
    [sealed(swapped), /cursor is not above/, 2],
    [sealed(dropped(1)), /earlier events of the entity are missing/],
    [sealed(dropped(2990)), /earlier events of the entity are missing/],
    [lines.map((line) => `${line}\n`).join(""), /no manifest/],
    [text.slice(0, text.lastIndexOf("\n", text.length - 2) - 10), /not JSON|no manifest/],
    [text.replace(/"count":\d+/, '"count":1'), /not those that the manifest counts/],
    [`${text}${lines[0]}\n`, /follows the manifest/],
    [sealed([...lines.slice(0, 3), "{}"]), /not an event of an export/, 4],
    ["nonsense\n", /not JSON/, 1],
    ["", /no manifest/],
  ];
  for (const [body, reason, line] of cases) {
    const [status, error] = resultOf(await send(operator, body));
    assert.deepEqual([status, error.error], [409, "import_refused"], body.slice(0, 200));
    assert.match(error.message, reason);
    if (line) assert.equal(error.details.line, line, error.message);
    assert.equal(count(operator), 0, error.message);
  }
  assert.equal((await operator.ask("POST", "/api/events/import", text, { authorization: `Bearer ${operator.reader}` })).status, 401);
  // A store with another history.
  await operator.did("runs", { run_id: "r0", owner_user_id: "ada" }, 201);
  const [status, error] = resultOf(await send(operator, text));
  assert.deepEqual([status, error.error, error.details.line], [409, "import_refused", 1]);
  assert.match(error.message, /holds another event/);
  assert.equal(count(operator), 1);
});

test("links of version 1 are imported as they are", sqliteOnly, async (t) => {
  const operator = await operate(t);
  await operator.did("runs", { run_id: "r", owner_user_id: "ada" }, 201);
  const [event] = await operator.events("r");
  const link = { cursor: event.cursor, entity: "run:r", event_id: event.event_id, payload_hash: event.payload_hash, seq: 1, type: event.event_type };
  const hash = createHash("sha256").update(Buffer.alloc(32)).update(JSON.stringify(link)).digest("hex");
  await operator.server.stop();
  alter(operator.data, `UPDATE events SET chain_version = 1, chain_hash = x'${hash}'`);
  const old = await operate(t, { data: operator.data });
  await old.did("runs/r/events", { event_type: "run.log" });
  const text = await exported(old);
  assert.match(text, /"chain_version":1}\n/);
  const next = await operate(t);
  assert.deepEqual(resultOf(await send(next, text)), [200, { events: 2, imported: 2, already_stored: 0 }]);
  assert.equal(await exported(next), text);
});

test("appends are refused during an import, and work afterwards", async (t) => {
  const { text, lines } = await sourceOf(t);
  const operator = await operate(t, { settings: UNHURRIED });
  const queued = (groups) => until(async () => (await scrape(operator)).get("khala_store_queue_groups") >= groups, `${groups} groups in the queue`);
  const release = await holdWriter(t, operator.data);
  const importing = send(operator, text);
  await queued(1);
  const appending = operator.post("runs", { run_id: "mine" });
  await queued(2);
  await release();
  const { status, body } = await appending;
  assert.deepEqual([status, JSON.parse(body).error], [503, "import_in_progress"]);
  assert.deepEqual(resultOf(await importing), [200, { events: lines.length, imported: lines.length, already_stored: 0 }]);
  assert.equal(await exported(operator), text);
  await operator.did("runs", { run_id: "mine" }, 201);
});

/** The status of a poll at that position, and the reason of a refusal. */
async function at(operator, topic, position) {
  const { status, body } = await operator.poll(topic, `after_seq=${position}`);
  return status === 200 ? 200 : JSON.parse(body).reason_code;
}
const room = (from, to) => Array.from({ length: to - from + 1 }, (_, i) => ({ topic: "room", event_type: "said", payload: { i: from + i } }));

const POLLED = { ...UNHURRIED, RUNTIME_KHALA_POLL_MIN_INTERVAL_MS: "0" };

test("positions without an epoch are good as far as the log was imported, and stale above", async (t) => {
  const first = await operate(t, { settings: POLLED });
  await first.batch(room(1, 6));
  const lines = (await exported(first)).trimEnd().split("\n").slice(0, -1);
  const operator = await operate(t, { settings: POLLED });
  await send(operator, sealed(lines.slice(0, 4)));
  assert.deepEqual([await at(operator, "room", 4), await at(operator, "room", 5)], [200, "epoch_required"]);
  // The import continues: until the log goes on by itself, it is a part of the other log.
  await send(operator, await exported(first));
  assert.deepEqual([await at(operator, "room", 6), await at(operator, "room", 7)], [200, "epoch_required"]);
  await first.batch(room(7, 9));
  await operator.batch(room(107, 112));
  assert.deepEqual([await at(operator, "room", 6), await at(operator, "room", 7), await at(operator, "room", 12)], [200, "epoch_required", "epoch_required"]);
  assert.equal(await at(first, "room", 9), 200, "the log that was exported has one epoch");

  // An export names the place, and whoever takes it in keeps it.
  const text = await exported(operator);
  assert.equal(JSON.parse(text.trimEnd().split("\n").at(-1)).manifest.fork_log_id, 6);
  const third = await operate(t, { settings: POLLED });
  await send(third, text);
  assert.deepEqual([await at(third, "room", 6), await at(third, "room", 7), await at(third, "room", 12)], [200, "epoch_required", "epoch_required"]);
  assert.equal(await exported(third), text);
  // Journals are made here: their sequences are not those of the other log.
  await first.did("runs", { run_id: "r", owner_user_id: "ada" }, 201);
  await third.did("runs", { run_id: "r", owner_user_id: "ada" }, 201);
  assert.equal(await at(third, "runtime.run_summaries", 1), "epoch_required");
  await operator.server.stop();
  assert.equal(run(["verify", "--data-dir", operator.data]).code, 0);

  // A store that knows the heads of its journals from before gives them up.
  await first.server.stop();
  const copy = await renewed(t, first, { settings: POLLED });
  assert.equal(await at(copy, "runtime.run_summaries", 1), 200);
  const fourth = await operate(t, { settings: POLLED });
  await send(fourth, await exported(copy));
  await fourth.batch(room(10, 11));
  await send(copy, await exported(fourth));
  assert.equal(await at(copy, "runtime.run_summaries", 1), "epoch_required");
  assert.deepEqual([await at(copy, "room", 9), await at(copy, "room", 10)], [200, "epoch_required"]);
});
