// Damaged derived tables: no append is refused, the damage is healed from the log, recorded and reported.
import assert from "node:assert/strict";
import { test } from "node:test";
import { onPostgres } from "../lib/database.mjs";
import { run } from "../lib/khala.mjs";
import { operate } from "../lib/operator.mjs";
import { alter, sql } from "../lib/store.mjs";
import { until } from "../lib/wait.mjs";

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
  ["lost summaries", "DROP TABLE sync_run_summaries", "sync_run_summaries"],
  ["summaries with another column", "ALTER TABLE sync_run_summaries RENAME COLUMN payload TO other", "sync_run_summaries"],
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
    UPDATE sync_run_summaries SET payload = replace(payload, 'u1', 'u2') WHERE ${of("altered")};
    UPDATE sync_run_summaries SET payload_hash = zeroblob(32) WHERE ${of("hash")}`);
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
