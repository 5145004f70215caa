// A store whose summaries are of version 1: the server rebuilds them while it runs, and its clients notice new members only.
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { test } from "../../lib/cases.mjs";
import { folder, run } from "../../lib/khala.mjs";
import { operate } from "../../lib/operator.mjs";
import { Client } from "../../lib/phoenix.mjs";
import { REPORTED, reports } from "../../lib/samples.mjs";
import { alter, sqlRows } from "../../lib/store.mjs";

const RUN_MEMBERS = ["document_id", "event_count", "kind", "latest_event_at", "latest_event_type", "latest_seq", "org_id", "owner_guest_scope",
  "owner_user_id", "projected_at", "projection_version", "run_id", "runtime_source", "status", "terminal_at", "terminal_reason",
  "terminal_reason_class", "thread_id", "updated_at"];

/** A document as version 1 had it. Its members are in canonical order already. */
const ofVersion1 = (document) => Object.fromEntries(Object.entries(document).filter(([name]) =>
  (document.run_id ? RUN_MEMBERS.includes(name) : name !== "created_at")));

const hashOf = (value) => `x'${createHash("sha256").update(JSON.stringify(value)).digest("hex")}'`;
const text = (value) => `'${JSON.stringify(value).replaceAll("'", "''")}'`;

/** Gives a closed store the documents, checkpoints and frames that a server of version 1 would have written. */
function makeVersion1(data) {
  const whole = "metadata_at = NULL, metadata_hash = NULL";
  const parsed = (row) => ofVersion1(typeof row.payload === "string" ? JSON.parse(row.payload) : row.payload);
  const statements = [];
  for (const [view, table] of [["sync_run_summaries", "run_documents"], ["sync_codex_worker_summaries", "worker_documents"]]) {
    for (const row of sqlRows(data, `SELECT doc_key, payload FROM ${view}`)) {
      const document = parsed(row);
      const { projected_at, ...hashed } = document;
      assert.equal(document.projection_version, "khala_summary_v1");
      statements.push(`UPDATE ${table} SET payload = ${text(document)}, payload_hash = ${hashOf(document)}, ${whole} WHERE doc_key = '${row.doc_key}';`,
        `UPDATE checkpoints SET summary_hash = ${hashOf(hashed)} WHERE document_id = '${row.doc_key}';`);
    }
  }
  const frames = sqlRows(data, "SELECT topic, watermark, payload FROM sync_stream_events WHERE doc_key LIKE '%_summary:%'");
  for (const row of frames) {
    const document = parsed(row);
    statements.push(`UPDATE journal SET payload = ${text(document)}, payload_hash = ${hashOf(document)}, ${whole}
      WHERE seq = ${row.watermark} AND topic_ref = (SELECT ref FROM topics WHERE topic = '${row.topic}');`);
  }
  assert.ok(frames.length > 0);
  alter(data, `BEGIN; ${statements.join("\n")} COMMIT;`);
}

/** A closed store of version 1. Its log has events that version 1 did not know. */
async function version1(t) {
  const data = folder(t);
  const operator = await operate(t, { data, settings: { RUNTIME_KHALA_PROJECTION_VERSION: "khala_summary_v1" } });
  for (const run_id of ["a", "b", "c"]) await operator.did("runs", { run_id, owner_user_id: "ada" }, 201);
  await operator.did("workers", { worker_id: "w", owner_user_id: "ada", metadata: { text: "y".repeat(300) } }, 201);
  await operator.batch([...reports("a"), { run_id: "b", event_type: "run.log" }]);
  await operator.server.saw("log", /projection\.rebuilt version=khala_summary_v1 status=ok/);
  await operator.server.stop();
  makeVersion1(data);
  return data;
}

const verified = (data) => {
  const { code, out, problem } = run(["verify", "--data-dir", data]);
  assert.equal(code, 0, out + problem);
};

test("a store of version 1 is rebuilt while clients read on", async (t) => {
  const data = await version1(t);
  verified(data);
  const old = await operate(t, { data, settings: { RUNTIME_KHALA_SINK: "noop" } });
  const before = JSON.parse((await old.poll("runtime.run_summaries", "after_seq=0&limit=100")).body);
  assert.deepEqual(before.messages.at(-1).payload, ofVersion1(before.messages.at(-1).payload));
  await old.server.stop();

  const operator = await operate(t, { data });
  const client = await Client.join(operator);
  const at = before.messages.at(-1).seq;
  await client.subscribe({ topics: ["runtime.run_summaries"], resume_after: { "runtime.run_summaries": at } });
  await operator.server.saw("log", /projection\.rebuilt version=khala_summary_v2 status=ok summaries=4 failed=0/);
  // Each run has one more frame, whose document is one version above the last.
  await client.reached("runtime.run_summaries", at + 3);
  const { messages } = JSON.parse((await operator.poll("runtime.run_summaries", `after_seq=${at}&limit=100`)).body);
  assert.deepEqual(messages.map(({ payload }) => [payload.run_id, payload.projection_version]),
    [["a", "khala_summary_v2"], ["b", "khala_summary_v2"], ["c", "khala_summary_v2"]]);
  const versions = new Map(before.messages.map(({ doc_key, doc_version }) => [doc_key, doc_version]));
  for (const { doc_key, doc_version } of messages) assert.equal(doc_version, versions.get(doc_key) + 1);
  const [a] = messages.map(({ payload }) => payload);
  assert.deepEqual([a.title, a.tags, a.metadata, a.usage, a.open_steps], [REPORTED.title, REPORTED.tags, REPORTED.metadata, REPORTED.usage, 2]);
  assert.ok((await operator.read("projectors/worker-summary/w")).created_at > 0);
  // Lists find what was rebuilt: its state is a part of their index.
  for (const [list, count] of [["runs", 3], ["workers", 1]])
    for (const query of ["", "&owner_user_id=ada"]) assert.equal((await operator.read(`${list}?sort=-updated_at${query}`)).items.length, count);
  const { drift } = await operator.read("projectors/drift");
  assert.deepEqual(drift.map(({ entity_id, reason_code }) => [entity_id, reason_code]).sort(),
    ["a", "b", "c", "w"].map((id) => [id, "projection_version_changed"]));
  await operator.did("runs/a/events", { event_type: "run.log" });
  assert.equal(run(["reproject", "--all", "--verify", "--data-dir", data]).code, 0);
  verified(data);
  await operator.server.stop();
  const next = await operate(t, { data });
  await next.did("runs/a/events", { event_type: "run.log" });
  assert.doesNotMatch(next.server.log, /projection\.rebuilt/);
});

test("an event of a run that is still of version 1 rebuilds its summary at once", async (t) => {
  const data = await version1(t);
  const operator = await operate(t, { data });
  const { status } = await operator.post("runs/a/events", { event_type: "run.usage", payload: { input_tokens: 1 } });
  assert.equal(status, 200);
  const { run: found } = await operator.read("runs/a");
  assert.deepEqual([found.title, found.usage.input_tokens, found.latest_seq], [REPORTED.title, 106, 11]);
  await operator.server.saw("log", /projection\.rebuilt version=khala_summary_v2 status=ok/);
  assert.equal(run(["reproject", "--all", "--verify", "--data-dir", data]).code, 0);
});
