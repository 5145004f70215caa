// Damaged derived tables: no append is refused, the damage is healed from the log, recorded and reported.
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { test } from "node:test";
import { onPostgres } from "../../lib/database.mjs";
import { assertError, run } from "../../lib/khala.mjs";
import { operate } from "../../lib/operator.mjs";
import { snapshotPath } from "../../lib/paths.mjs";
import { alter, sql, uuidLiteral } from "../../lib/store.mjs";
import { until } from "../../lib/wait.mjs";

const STRAY = `INSERT INTO journal (topic_ref, seq, log_id, entity_ref, doc_version, published_at, payload_hash, payload)
  SELECT 1, head_seq + 1, 1, 2, 1, 1, zeroblob(32), '{}' FROM topics WHERE ref = 1`;

const SCHEMA = onPostgres ? "runtime" : "main";

// The damage, the statement that causes it, and the subject of the drift.
const DAMAGES = [
  ["a stray journal row", STRAY, "runtime.run_summaries"],
  ["a journal row of no topic", "INSERT INTO journal (topic_ref, seq, log_id, entity_ref, doc_version, published_at, payload_hash, payload) " +
    `SELECT 99, 1, 1, 2, 1, 1, zeroblob(32), '{}'; ${STRAY}`, "topic_ref 99"],
  ["a lost journal", "DROP TABLE journal", "journal"],
  ...(onPostgres ? [] : [["a journal without its index", "DROP INDEX sync_stream_events_by_topic", "journal"]]),
  ["lost summaries", "DROP TABLE run_documents", "run_documents"],
  ["summaries with another column", "ALTER TABLE run_documents RENAME COLUMN payload TO other", "run_documents"],
  ["lost metadata", "DROP TABLE summary_metadata", "summary_metadata"],
  ["a lost view of documents", `DROP VIEW sync_run_summaries; ${STRAY}`, "sync_run_summaries"],
  ["lost checkpoints", "DROP TABLE checkpoints", "checkpoints"],
  ["lost topic counters", "DROP TABLE topics", "topics"],
  ["topics with another column", "ALTER TABLE topics RENAME COLUMN topic TO other", "topics"],
  ["a lost view", `DROP VIEW sync_stream_events; ${STRAY}`, "sync_stream_events"],
  ["a view of other columns", `DROP VIEW sync_topic_sequences; CREATE VIEW ${SCHEMA}.sync_topic_sequences AS SELECT topic FROM topics; ${STRAY}`, "sync_topic_sequences"],
  ["a table in place of a view", `DROP VIEW khala_projection_checkpoints; CREATE TABLE ${SCHEMA}.khala_projection_checkpoints (x int); ${STRAY}`,
    "khala_projection_checkpoints"],
  ["a lost table of drift", `DROP TABLE khala_projection_drifts; ${STRAY}`, "khala_projection_drifts"],
  ["a lost counter of one topic", `DELETE FROM topics WHERE topic = 'runtime.run_summaries'; ${STRAY.replace(/head_seq \+ 1/, "7").replace(/ref = 1$/, "ref = 2")}`,
    "runtime.run_summaries"],
];

const summary = async (operator, id) => operator.read(`projectors/run-summary/${id}`);
const subjects = async (operator) => (await operator.read("projectors/drift")).drift.map(({ subject }) => subject);
const isWhole = (data) => sql(data, "SELECT count(*) FROM meta WHERE name = 'unprojected_from'") === "0";

/** Every stored document, checkpoint and head agrees with the log. */
function verified(data) {
  const { code, out, problem } = run(["reproject", "--all", "--verify", "--data-dir", data]);
  assert.equal(code, 0, out + problem);
  assert.equal(run(["verify", "--data-dir", data]).code, 0);
}

for (const isRunning of [true, false]) {
  test(`appends are taken and healed after damage of a ${isRunning ? "running" : "stopped"} store`, async (t) => {
    let operator = await operate(t);
    const { data } = operator;
    for (const run_id of ["a", "b", "c"]) await operator.did("runs", { run_id, owner_user_id: run_id }, 201);
    await operator.did("workers", { worker_id: "w", owner_user_id: "a" }, 201);
    let seq = 1;
    for (const [name, damage, subject] of DAMAGES) {
      if (!isRunning) await operator.server.stop();
      alter(data, damage);
      if (!isRunning) {
        const { out } = run(["doctor", "--data-dir", data]);
        if (/^(DROP|ALTER)/.test(damage)) assert.match(out, new RegExp(`^wrong +projection +the derived table ${subject} `, "m"), name);
        operator = await operate(t, { data });
      }
      seq++;
      for (const id of ["a", "b"]) {
        const { event } = await operator.did(`runs/${id}/events`, { event_type: "x" });
        assert.equal(event.seq, seq, name);
      }
      await operator.did("runs", { run_id: `new${seq}` }, 201);
      await operator.did("workers/w/heartbeat", {});
      await until(() => isWhole(data), `the repair of ${name}`);
      // Runs without an event since the damage are healed too.
      assert.deepEqual(await Promise.all(["a", "b", "c", `new${seq}`].map(async (id) => (await summary(operator, id)).latest_seq)), [seq, seq, 1, 1], name);
      assert.ok((await subjects(operator)).includes(subject), `${name}: ${await subjects(operator)}`);
      assert.equal((await operator.read("runs/a")).run.status, "running");
      for (const view of ["sync_topic_sequences", "sync_stream_events", "khala_projection_checkpoints"])
        assert.ok(Number(sql(data, `SELECT count(*) FROM ${view}`)) > 0, `${view} after ${name}`);
    }
    verified(data);
    await operator.did("runs/a/events", { event_type: "y" });
    const page = await operator.get("khala/topics/runtime.run_summaries/messages");
    assert.equal(page.status, 200, page.body);
    const { messages } = JSON.parse(page.body);
    assert.deepEqual(messages.map(({ sequence }) => sequence), messages.map((_, i) => messages[0].sequence + i));
    assert.match(run(["doctor", "--data-dir", data, "--url", operator.server.url]).out, /^warning +projection +drift was found within the last day: /m);
  });
}

test("a summary never waits for a checkpoint that is ahead, and overwritten rows are recorded", async (t) => {
  const first = await operate(t);
  const { data } = first;
  for (const run_id of ["ahead", "altered", "hash"]) await first.did("runs", { run_id, owner_user_id: "u1" }, 201);
  await first.server.stop();
  const of = (id) => `entity_ref = (SELECT ref FROM entities WHERE id = '${id}')`;
  alter(data, `UPDATE checkpoints SET last_runtime_seq = 99 WHERE ${of("ahead")};
    UPDATE run_documents SET payload = replace(payload, 'u1', 'u2') WHERE ${of("altered")};
    UPDATE run_documents SET payload_hash = zeroblob(32) WHERE ${of("hash")}`);
  const operator = await operate(t, { data });
  for (const id of ["ahead", "altered", "hash"]) {
    await operator.did(`runs/${id}/events`, { event_type: "x" });
    const { latest_seq, owner_user_id } = await summary(operator, id);
    assert.deepEqual([latest_seq, owner_user_id], [2, "u1"], id);
  }
  const { drift } = await operator.read("projectors/drift");
  assert.deepEqual(drift.map(({ entity_id, reason_code }) => [entity_id, reason_code]).reverse(),
    [["ahead", "checkpoint_ahead"], ["altered", "summary_hash_mismatch"], ["hash", "summary_hash_mismatch"]]);
  verified(data);
});

/** The hash of a text in a statement. */
const hashOf = (text) => `x'${createHash("sha256").update(text).digest("hex")}'`;

// What is altered by hand, and whether a read sees it. Otherwise the next append does, and verify and the doctor.
const ALTERATIONS = {
  "the payload": [(run) => `UPDATE run_documents SET payload = replace(payload, 'u1', 'u2') WHERE ${run}`, true],
  "the hash": [(run) => `UPDATE run_documents SET payload_hash = ${hashOf("x")} WHERE ${run}`, true],
  "a hash that cannot be read": [(run) => `UPDATE run_documents SET payload_hash = x'00' WHERE ${run}`, true],
  "a version that cannot be": [(run) => `UPDATE run_documents SET doc_version = 9223372036854775807 WHERE ${run}`, true],
  "the whole row": [(run) => `DELETE FROM run_documents WHERE ${run}`, true],
  "payload and hash": [(run) => `UPDATE run_documents SET payload = '{}', payload_hash = ${hashOf("{}")} WHERE ${run}`, false],
  "the checkpoint's seq": [(run) => `UPDATE checkpoints SET last_runtime_seq = 99 WHERE ${run}`, false],
  "a seq that cannot be": [(run) => `UPDATE checkpoints SET last_runtime_seq = 9223372036854775807 WHERE ${run}`, false],
  "the checkpoint's hash": [(run) => `UPDATE checkpoints SET summary_hash = ${hashOf("x")} WHERE ${run}`, false],
  "the whole checkpoint": [(run) => `DELETE FROM checkpoints WHERE ${run}`, false],
};

const QUICK = { RUNTIME_KHALA_RUN_EVENTS_REPLAY_BUDGET_EVENTS: "2000", RUNTIME_KHALA_POLL_MIN_INTERVAL_MS: "0" };

/** The documents of a snapshot, by run. */
async function snapshotOf(operator) {
  const { status, body } = await operator.get(snapshotPath("runtime.run_summaries"));
  assert.equal(status, 200, body);
  return new Map(JSON.parse(body).documents.map((one) => [one.payload.run_id, one]));
}

/** What a summary says, without the time at which it was folded. */
const said = (summary) => ({ ...summary, projected_at: 0 });
const isHashed = ({ payload, payload_hash }) => payload_hash === `sha256:${createHash("sha256").update(canonical(payload)).digest("hex")}`;

/** Canonical JSON of a value without numbers that need care. */
const canonical = (value) => {
  if (value === null || typeof value !== "object") return JSON.stringify(value);
  if (Array.isArray(value)) return `[${value.map(canonical).join()}]`;
  return `{${Object.keys(value).sort().map((key) => `${JSON.stringify(key)}:${canonical(value[key])}`).join()}}`;
};

for (const isRunning of [true, false])
  test(`rows altered by hand in a ${isRunning ? "running" : "stopped"} store are recorded, and never sent`, async (t) => {
    const readers = {
      snapshot: async (operator, id) => (await snapshotOf(operator)).get(id),
      answer: async (operator, id) => ({ payload: await summary(operator, id) }),
      append: async (operator, id) => {
        await operator.did(`runs/${id}/events`, { event_type: "x" });
        const payload = await summary(operator, id);
        assert.equal(payload.latest_seq, 2, id);
        return { payload: { ...payload, event_count: 1, latest_seq: 1, runtime_source: { ...payload.runtime_source, seq: 1 } } };
      },
    };
    const cases = Object.entries(ALTERATIONS).flatMap(([name, [alteration, isSeen]], i) => Object.keys(readers)
      .filter((reader) => isSeen || reader === "append").map((reader) => ({ id: `${reader}${i}`, name, alteration, isSeen, reader })));
    let operator = await operate(t, { settings: QUICK });
    const { data } = operator;
    const right = new Map();
    for (const { id } of cases) await operator.did("runs", { run_id: id, owner_user_id: "u1" }, 201);
    for (const { id } of cases) right.set(id, said(await summary(operator, id)));
    if (!isRunning) await operator.server.stop();
    alter(data, cases.map(({ id, alteration }) => alteration(`entity_ref = (SELECT ref FROM entities WHERE id = '${id}')`)).join(";"));
    for (const verb of ["verify", "doctor"]) {
      const { code, out } = run([verb, "--data-dir", data]);
      assert.equal(code, 1, out);
      for (const { id } of cases.filter(({ id }) => /^append[0135]/.test(id))) assert.ok(out.includes(`runtime/run_summary:${id} `), `${verb}: ${id}: ${out}`);
    }
    if (!isRunning) operator = await operate(t, { data, settings: QUICK });
    for (const { id, reader, name } of cases) {
      const found = await readers[reader](operator, id);
      assert.deepEqual({ ...said(found.payload), latest_event_type: 0, latest_event_at: 0, updated_at: 0 },
        { ...right.get(id), latest_event_type: 0, latest_event_at: 0, updated_at: 0 }, `${id}: ${name}`);
    }
    for (const [id, one] of await snapshotOf(operator)) assert.ok(isHashed(one), id);
    const drift = (await operator.read("projectors/drift?limit=1000")).drift.map(({ entity_id }) => entity_id);
    // A payload alone is compared when it is read, and not when it is replaced.
    for (const { id, name, reader } of cases)
      if (!(isRunning && reader === "append" && name === "the payload")) assert.ok(drift.includes(id), `${id}: ${name}: ${drift}`);
    verified(data);
  });

const LAST = "9223372036854775807";

/** An event with that number, put there by hand. */
const eventAt = (logId) => `INSERT INTO events (log_id, entity_ref, seq, cursor, type, payload_hash, prev_chain_hash, chain_hash, payload, chain_version)
  SELECT ${logId}, 999999, 1, ${uuidLiteral("ffffffffffff7fff8fffffffffffffff")}, type, payload_hash, prev_chain_hash, chain_hash, payload, chain_version
  FROM events WHERE log_id = 1`;

for (const [what, damage, repair] of [
  ["the log", eventAt(LAST), `DELETE FROM events WHERE log_id = ${LAST}`],
  ["the entities", `INSERT INTO entities (ref, kind, id, status, created_at) VALUES (${LAST}, 0, 'far', 'running', 1)`, `DELETE FROM entities WHERE ref = ${LAST}`],
])
  test(`a row of ${what} at the largest number refuses appends and starts, and ends no server`, async (t) => {
    const operator = await operate(t);
    const { data } = operator;
    const append = () => operator.post("runs/a/events", { event_type: "x" });
    await operator.did("runs", { run_id: "a" }, 201);
    alter(data, damage);
    // The writer may go on, because it knows where its log ends until it has to read it again.
    for (let i = 0; i < 5; i++) {
      const answer = await append();
      if (answer.status !== 200) assertError(answer, 503, "store_unavailable");
      await operator.post("runs", { run_id: `new${i}` });
    }
    assert.equal((await operator.get("/healthz/live")).status, 200);
    assert.match(run(["doctor", "--data-dir", data]).out, new RegExp(`^wrong .*${LAST}`, "m"));
    alter(data, repair);
    await until(async () => (await append()).status === 200, "appends are accepted again");
    await operator.server.stop();
    alter(data, damage);
    const { code, problem } = run(["serve", "--data-dir", data], { settings: { RUNTIME_BIND_ADDR: "127.0.0.1:0" } });
    assert.equal(code, 3, problem);
    assert.match(problem, /is damaged: 'khala verify' names the place/);
    assert.match(run(["verify", "--data-dir", data]).problem, new RegExp(`the number of \\w+ ${LAST} is damaged`));
    alter(data, repair);
    const again = await operate(t, { data });
    assert.equal((await again.post("runs/a/events", { event_type: "x" })).status, 200);
  });
