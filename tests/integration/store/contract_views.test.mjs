// The names that people query by SQL: both stores have them with the columns of the projection contract, and their rows are
// those of the API.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { onPostgres, sqliteOnly } from "../../lib/database.mjs";
import { folder, run } from "../../lib/khala.mjs";
import { operate } from "../../lib/operator.mjs";
import { alter, sql, sqlRows } from "../../lib/store.mjs";
import { until } from "../../lib/wait.mjs";

const COLUMNS = {
  sync_topic_sequences: "topic,next_watermark",
  sync_stream_events: "topic,watermark,doc_key,doc_version,payload,payload_hash,inserted_at",
  khala_projection_checkpoints: "projection_name,entity_id,document_id,last_runtime_seq,projection_version,summary_hash,last_projected_at",
};
const TABLES = ["topics", "journal", "checkpoints", "run_documents", "worker_documents"];
const MIGRATIONS = new URL("../../../src/store/sqlite/migrations/", import.meta.url);
// Tables and columns that these versions do not have.
const NEWER = ["owner_usage", "owner_quotas", "operator_keys", "summary_metadata"];
const OLD_COLUMNS = "name NOT IN ('metadata_at', 'metadata_hash', 'owner', 'state', 'updated_at', 'parent_run_id', 'title', 'tags', 'fields_before')";
const DOCUMENTS = { run_documents: "sync_run_summaries", worker_documents: "sync_codex_worker_summaries" };
// The tables of older schema versions. Up to version 7 they had the names of the contract.
const OLD_NAMES = {
  7: { topics: "sync_topic_sequences", journal: "sync_stream_events", checkpoints: "khala_projection_checkpoints", ...DOCUMENTS },
  8: { topics: "topics", journal: "journal", checkpoints: "checkpoints", ...DOCUMENTS },
};

const columnsOf = (data, view) => (onPostgres
  ? sql(data, `SELECT string_agg(column_name, ',' ORDER BY ordinal_position) FROM information_schema.columns WHERE table_schema = 'runtime' AND table_name = '${view}'`)
  : sql(data, `SELECT group_concat(name) FROM (SELECT name FROM pragma_table_info('${view}') ORDER BY cid)`));

/** Milliseconds since 1970 of a time in a view; in the embedded store it is a text. */
function msOf(text) {
  if (!onPostgres) assert.match(text, /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/);
  return Date.parse(text);
}

const framesOf = (data, topic, range = "true") => sqlRows(data,
  `SELECT * FROM sync_stream_events WHERE topic = '${topic}' AND ${range} ORDER BY watermark`).map((row) => {
  assert.equal(row.payload_hash, `sha256:${createHash("sha256").update(row.payload).digest("hex")}`);
  return { ...row, payload: JSON.parse(row.payload), inserted_at: msOf(row.inserted_at) };
});

/** What the view should have for a message of the API. */
const frameOf = ({ topic, seq, doc_key, doc_version, payload, payload_hash, published_at }) => ({
  topic, watermark: seq, doc_key, doc_version, payload, payload_hash, inserted_at: published_at,
});

/** Compares each view with the API; answers the names of the topics. */
async function compare(operator) {
  const { data } = operator;
  const topics = sqlRows(data, "SELECT * FROM sync_topic_sequences ORDER BY topic");
  for (const { topic, next_watermark } of topics) {
    const { messages, head_cursor } = await operator.read(`khala/topics/${topic}/messages?after_seq=0`);
    assert.equal(next_watermark, head_cursor + 1, topic);
    assert.deepEqual(framesOf(data, topic), messages.map(frameOf), topic);
  }
  const checkpoints = sqlRows(data, "SELECT * FROM khala_projection_checkpoints ORDER BY entity_id");
  for (const { summary_hash, last_projected_at, ...row } of checkpoints)
    assert.deepEqual({ ...row, summary_hash: `sha256:${summary_hash}`, last_projected_at: msOf(last_projected_at) },
      await operator.read(`projectors/checkpoints/${row.projection_name}/${row.entity_id}`));
  assert.deepEqual(checkpoints.map(({ projection_name, entity_id }) => [projection_name, entity_id]), [["run_summary", "a"], ["codex_worker_summary", "w"]]);
  return topics.map(({ topic }) => topic);
}

const said = (count) => Array.from({ length: count }, (_, i) => ({ topic: "room", event_type: "said", payload: { i, text: "é" } }));

/** A server with a run of two events, a worker with an event, and a topic of 23. */
async function filled(t, settings = {}) {
  const operator = await operate(t, { settings });
  await operator.did("runs", { run_id: "a", owner_user_id: "u" }, 201);
  await operator.did("runs/a/events", { event_type: "run.log", payload: { z: 1, a: "x" } });
  await operator.did("workers", { worker_id: "w", owner_user_id: "u" }, 201);
  await operator.did("workers/w/events", { event_type: "worker.note" });
  await operator.batch(said(20));
  for (const item of said(3)) await operator.did("topics/room/events", item);
  return operator;
}

test("the views have the columns of the contract and the rows of the API", async (t) => {
  const first = await filled(t, { KHALA_CLOCK_OFFSET_MS: "60000" });
  const { data } = first;
  for (const [view, columns] of Object.entries(COLUMNS)) assert.equal(columnsOf(data, view), columns);
  assert.deepEqual((await compare(first)).sort(), ["fleet:user:u:workers", "room", "run:a:events", "runtime.codex_worker_events",
    "runtime.codex_worker_summaries", "runtime.notifications", "runtime.run_summaries", "worker:w:lifecycle"]);
  await first.server.stop();
  // Positions that have moved to the large table, as they do when they are many.
  if (!onPostgres) {
    assert.ok(Number(sql(data, "SELECT max(event_count) FROM event_positions_recent")) > 1);
    alter(data, "INSERT INTO event_positions SELECT * FROM event_positions_recent; DELETE FROM event_positions_recent");
  }
  // The clock was set back: the events are recorded before the times of their cursors.
  const second = await operate(t, { data });
  await second.batch(said(5));
  await second.did("topics/room/events", said(1)[0]);
  await second.did("runs/a/events", { event_type: "run.log" });
  await compare(second);
  const all = framesOf(data, "room");
  assert.ok(all[28].inserted_at < all[22].inserted_at);
  assert.deepEqual(framesOf(data, "room", "watermark BETWEEN 19 AND 25"), all.slice(18, 25));
  assert.deepEqual(framesOf(data, "room", "watermark = 22"), [all[21]]);
  await second.server.stop();
  // Events below the floor of their topic are no frames.
  for (const floor of [20, 22, 26]) {
    alter(data, `UPDATE topics SET oldest_seq = ${floor} WHERE topic = 'room'`);
    assert.deepEqual(framesOf(data, "room"), all.slice(floor - 1));
  }
});

test("a range of watermarks of one topic is read by indexes", sqliteOnly, async (t) => {
  const { data } = await filled(t);
  const plan = sql(data, "EXPLAIN QUERY PLAN SELECT * FROM sync_stream_events WHERE topic = 'room' AND watermark BETWEEN 5 AND 7")
    .split("\n").map((line) => line.replace(/^[ |`-]*/, ""));
  const tables = plan.filter((step) => /^(SCAN|SEARCH) [tjepn]\b/.test(step));
  assert.ok(tables.length >= 12, plan.join("\n"));
  assert.deepEqual(tables.filter((step) => step.startsWith("SCAN")), []);
  assert.ok(plan.includes("SEARCH j USING INDEX sync_stream_events_by_topic (topic_ref=? AND seq>? AND seq<?)"), plan.join("\n"));
  assert.ok(plan.includes("SEARCH p USING PRIMARY KEY (entity_ref=? AND seq>? AND seq<?)"), plan.join("\n"));
});

/** The rows of a table as SQL values. */
function rowsOf(data, table) {
  const columns = sql(data, `SELECT group_concat('quote("' || name || '")') FROM pragma_table_info('${table}') WHERE ${OLD_COLUMNS}`);
  return sql(data, `SELECT ${columns} FROM ${table} ORDER BY 1, 2`);
}

/** A store as an older schema had it, with the rows of this store. */
function older(t, data, version) {
  const old = folder(t);
  const names = OLD_NAMES[version];
  const steps = readdirSync(MIGRATIONS).sort().slice(0, version).map((name) => readFileSync(new URL(name, MIGRATIONS), "utf8"));
  const kept = sql(data, "SELECT name FROM sqlite_schema WHERE type = 'table'").split("\n").filter((name) => !NEWER.includes(name)).map((name) =>
    `DELETE FROM main.${names[name] ?? name}; INSERT INTO main.${names[name] ?? name}
     SELECT ${sql(data, `SELECT group_concat(name) FROM pragma_table_info('${name}') WHERE ${OLD_COLUMNS}`)} FROM now.${name};`);
  execFileSync("sqlite3", ["-bail", join(old, "khala.db"), `PRAGMA journal_mode = WAL; ${steps.join("\n")}; PRAGMA user_version = ${version};
    PRAGMA application_id = ${sql(data, "PRAGMA application_id")}; ATTACH '${join(data, "khala.db")}' AS now; ${kept.join("\n")}`]);
  return old;
}

/** By damage, the statements that do it to a store with such names. */
const DAMAGES = {
  "without its derived tables": (names) => Object.values(names).map((name) => `DROP TABLE ${name}`),
  "with other columns in its derived tables": (names) =>
    [["topics", "oldest_seq"], ["journal", "payload"], ["checkpoints", "summary_hash"]]
      .map(([table, column]) => `ALTER TABLE ${names[table]} RENAME COLUMN ${column} TO other`),
};

test("a store of schema 8 with views of people, a damaged checkpoint and an altered document is migrated", sqliteOnly, async (t) => {
  const first = await filled(t);
  await first.server.stop();
  const data = older(t, first.data, 8);
  alter(data, `CREATE TABLE kept AS SELECT * FROM checkpoints; DROP TABLE checkpoints; CREATE TABLE checkpoints AS SELECT * FROM kept;
    DROP TABLE kept; UPDATE checkpoints SET summary_hash = NULL WHERE rowid = 1;
    UPDATE sync_run_summaries SET payload = json_set(payload, '$.updated_at', 'soon') WHERE payload LIKE '%"run_id":"a"%';
    INSERT INTO checkpoints SELECT entity_ref, 'z', document_id, 0, 'z', x'00', 0 FROM checkpoints;
    CREATE VIEW of_view AS SELECT count(*) AS n FROM khala_projection_checkpoints;
    CREATE VIEW of_table AS SELECT count(*) AS n FROM checkpoints`);
  const migrated = run(["migrate", "--data-dir", data]);
  assert.equal(migrated.code, 0, migrated.problem);
  const count = Number(sql(first.data, "SELECT count(*) FROM checkpoints"));
  for (const view of ["of_view", "of_table"]) assert.equal(sql(data, `SELECT n FROM ${view}`), `${count - 1}`);
  const second = await operate(t, { data });
  await second.did("runs/a/events", { event_type: "run.log" });
  await compare(second);
});

for (const [version, names] of Object.entries(OLD_NAMES)) {
  test(`a store of schema ${version} keeps its rows`, sqliteOnly, async (t) => {
    const first = await filled(t);
    await first.server.stop();
    const data = older(t, first.data, version);
    assert.equal(run(["serve", "--bind", "127.0.0.1:0", "--data-dir", data]).code, 3);
    assert.equal(rowsOf(data, names.journal), rowsOf(first.data, "journal"));
    const migrated = run(["migrate", "--data-dir", data]);
    assert.equal(migrated.code, 0, migrated.problem);
    for (const table of TABLES) {
      assert.ok(rowsOf(data, table).length > 0);
      assert.equal(rowsOf(data, table), rowsOf(first.data, table), table);
    }
    // What lists are ordered by follows from the documents.
    for (const table of Object.keys(DOCUMENTS)) {
      const listed = `SELECT entity_ref, owner, state, updated_at FROM ${table} ORDER BY entity_ref`;
      assert.equal(sql(data, listed), sql(first.data, listed));
    }
    assert.doesNotMatch(run(["doctor", "--data-dir", data]).out, /^wrong/m);
    assert.equal(run(["verify", "--data-dir", data]).code, 0);
    const second = await operate(t, { data });
    await second.did("runs/a/events", { event_type: "run.log" });
    await compare(second);
    assert.deepEqual((await second.read("projectors/drift")).drift, []);
  });

  for (const [damage, statements] of Object.entries(DAMAGES)) {
    test(`a store of schema ${version} ${damage} is migrated and healed`, sqliteOnly, async (t) => {
      const first = await filled(t);
      await first.server.stop();
      const data = older(t, first.data, version);
      alter(data, statements(names).join("; "));
      const migrated = run(["migrate", "--data-dir", data]);
      assert.equal(migrated.code, 0, migrated.problem);
      const second = await operate(t, { data });
      await until(() => sql(data, "SELECT count(*) FROM meta WHERE name = 'unprojected_from'") === "0", "the repair");
      await second.did("runs/a/events", { event_type: "run.log" });
      await compare(second);
      const subjects = (await second.read("projectors/drift")).drift.map(({ subject }) => subject);
      for (const table of TABLES.slice(0, 3)) assert.ok(subjects.includes(table), `${subjects}`);
      assert.equal(run(["verify", "--data-dir", data]).code, 0);
    });
  }
}
