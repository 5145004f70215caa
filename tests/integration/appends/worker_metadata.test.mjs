// Large metadata of workers: stored once for each version, and whole in every frame and document, wherever they come from.
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { test } from "node:test";
import { newDatabase, onPostgres } from "../../lib/database.mjs";
import { folder, run } from "../../lib/khala.mjs";
import { operate, UNHURRIED } from "../../lib/operator.mjs";
import { alter, sql, sqlRows } from "../../lib/store.mjs";
import { until } from "../../lib/wait.mjs";

const SETTINGS = { ...UNHURRIED, RUNTIME_KHALA_POLL_MIN_INTERVAL_MS: "0", RUNTIME_KHALA_RETENTION_INTERVAL_MS: "86400000" };
const TOPICS = ["runtime.codex_worker_summaries", "fleet:user:u:workers"];
const WIDE = 60_000;
const HEARTBEATS = 200;

const hashOf = (payload) => createHash("sha256").update(JSON.stringify(payload)).digest("hex");

/** Bytes of the worker's derived rows. */
const storedBytes = (data) => Number(sql(data, `SELECT (SELECT sum(length(payload)) FROM journal) +
  (SELECT sum(length(payload)) FROM worker_documents) + coalesce((SELECT sum(length(metadata)) FROM summary_metadata), 0)`));
const versionCount = (data) => Number(sql(data, "SELECT count(*) FROM summary_metadata"));

/** A worker and what its metadata is after each of its events. */
class Worker {
  constructor(id) {
    this.id = id;
    this.metadata = { é: "€", m: "x".repeat(WIDE) };
    this.history = [this.metadata];
  }

  register(operator) {
    return operator.did("workers", { worker_id: this.id, owner_user_id: "u", adapter: "hé€llo 😀", metadata: this.metadata }, 201);
  }

  async heartbeat(operator, patch) {
    await operator.did(`workers/${this.id}/heartbeat`, patch ? { metadata_patch: patch } : {});
    if (patch) this.metadata = Object.fromEntries(Object.entries({ ...this.metadata, ...patch }).filter(([, value]) => value !== null));
    this.history.push(this.metadata);
  }
}

/** Every frame of both topics from the first on, by the API and by SQL, and the document, are right. */
async function check(operator, worker, count = worker.history.length) {
  const { data } = operator;
  for (const topic of TOPICS) {
    const frames = [];
    for (let head = Infinity, after = worker.history.length - count; frames.length < head - (worker.history.length - count);) {
      const page = await operator.read(`khala/topics/${topic}/messages?after_seq=${after}&limit=1000`);
      head = page.head_cursor;
      assert.ok(page.messages.length > 0);
      frames.push(...page.messages);
      after = frames.at(-1).seq;
    }
    assert.equal(frames.length, count);
    for (const { seq, payload, payload_hash } of frames) {
      assert.equal(payload.latest_seq, seq);
      assert.equal(payload_hash, `sha256:${hashOf(payload)}`);
      assert.ok(hashOf(payload.metadata) === hashOf(sorted(worker.history[seq - 1])), `the metadata of frame ${seq}`);
    }
    const rows = sqlRows(data, `SELECT watermark, payload, payload_hash FROM sync_stream_events WHERE topic = '${topic}' ORDER BY watermark`);
    assert.deepEqual(rows.map(({ watermark, payload_hash }) => [watermark, payload_hash]), frames.map(({ seq, payload_hash }) => [seq, payload_hash]));
    for (const { payload, payload_hash } of rows) assert.equal(`sha256:${hashOf(JSON.parse(payload))}`, payload_hash);
  }
  const { projected_at, ...document } = await operator.read(`projectors/worker-summary/${worker.id}`);
  assert.equal(document.latest_seq, worker.history.length);
  const [{ payload }] = sqlRows(data, "SELECT payload FROM sync_codex_worker_summaries");
  assert.ok(hashOf(JSON.parse(payload).metadata) === hashOf(sorted(worker.metadata)), "the metadata of the document");
}

/** Members in the order of canonical JSON. */
const sorted = (object) => Object.fromEntries(Object.entries(object).sort(([a], [b]) => (a < b ? -1 : 1)));

function verified(data) {
  for (const args of [["verify"], ["reproject", "--all", "--verify"]]) {
    const { code, out, problem } = run([...args, "--data-dir", data]);
    assert.equal(code, 0, out + problem);
  }
  assert.doesNotMatch(run(["doctor", "--data-dir", data]).out, /^wrong/m);
}

test("heartbeats do not write their worker's metadata again, and every frame has its own", async (t) => {
  const data = folder(t);
  const worker = new Worker("w");
  let operator = await operate(t, { data, settings: SETTINGS });
  await worker.register(operator);
  await worker.heartbeat(operator);
  const before = storedBytes(data);
  for (let i = 0; i < HEARTBEATS; i++) await worker.heartbeat(operator);
  const grown = (storedBytes(data) - before) / HEARTBEATS;
  t.diagnostic(`a heartbeat adds ${grown} bytes to journal and documents`);
  assert.ok(grown > 0 && grown < 2048, `${grown} bytes`);
  assert.equal(versionCount(data), 1);
  await check(operator, worker);

  // Patches in between, also one that makes the metadata small, and back to a version that was there.
  for (const patch of [{ n: 1 }, { n: 2 }, { m: null }, { m: "y".repeat(WIDE) }, { m: "x".repeat(WIDE), n: null }]) {
    await worker.heartbeat(operator, patch);
    await worker.heartbeat(operator);
  }
  assert.equal(versionCount(data), 4);
  await check(operator, worker);

  // After a restart, with rows as releases before wrote them.
  await operator.server.stop();
  alter(data, `UPDATE journal SET payload = (SELECT v.payload FROM sync_stream_events v JOIN topics t ON t.topic = v.topic
    WHERE t.ref = journal.topic_ref AND v.watermark = journal.seq), metadata_at = NULL, metadata_hash = NULL WHERE seq < 50`);
  alter(data, "UPDATE worker_documents SET payload = (SELECT payload FROM sync_codex_worker_summaries), metadata_at = NULL, metadata_hash = NULL");
  operator = await operate(t, { data, settings: SETTINGS });
  await check(operator, worker);
  await worker.heartbeat(operator);
  await worker.heartbeat(operator, { n: 3 });
  await operator.server.crash();
  operator = await operate(t, { data, settings: SETTINGS });
  await worker.heartbeat(operator);
  await check(operator, worker);
  assert.equal(versionCount(data), 5);

  await operator.server.stop();
  assert.equal(run(["reproject", "--all", "--data-dir", data]).code, 0);
  verified(data);
  operator = await operate(t, { data, settings: SETTINGS });
  await check(operator, worker);
});

test("a version that is missing or altered is made again from the log", async (t) => {
  const data = folder(t);
  const worker = new Worker("w");
  const operator = await operate(t, { data, settings: { ...SETTINGS, KHALA_LOG_LEVEL: "error" } });
  await worker.register(operator);
  for (let i = 0; i < 100; i++) await worker.heartbeat(operator, i % 20 === 10 ? { n: i } : undefined);
  await operator.server.crash();
  alter(data, "DELETE FROM summary_metadata WHERE metadata_hash = (SELECT metadata_hash FROM journal WHERE seq = 1 AND topic_ref = 2)");
  alter(data, "UPDATE summary_metadata SET metadata = replace(metadata, 'x', 'z') WHERE metadata_hash = (SELECT metadata_hash FROM worker_documents)");
  assert.equal(run(["verify", "--data-dir", data]).code, 1);
  const again = await operate(t, { data, settings: { ...SETTINGS, KHALA_LOG_LEVEL: "error" } });
  // A reader of an altered frame asks again until it is repaired.
  for (const topic of TOPICS)
    await until(async () => (await again.get(`khala/topics/${topic}/messages?after_seq=0&limit=1000`)).status === 200, "the repair");
  await worker.heartbeat(again);
  await check(again, worker);
  await again.server.stop();
  verified(data);
});

test("retention removes versions that no frame and no document has", async (t) => {
  const data = folder(t);
  const worker = new Worker("w");
  const first = await operate(t, { data, settings: SETTINGS });
  await worker.register(first);
  for (let i = 0; i < 5; i++) await worker.heartbeat(first, { n: i });
  assert.equal(versionCount(data), 6);
  await first.server.stop();
  const pruned = run(["retention", "run-once", "--data-dir", data], { settings: { KHALA_CLOCK_OFFSET_MS: `${40 * 86_400_000}` } });
  assert.equal(pruned.code, 0, pruned.problem);
  assert.equal(sql(data, "SELECT count(*) FROM journal WHERE metadata_hash IS NOT NULL"), "0");
  assert.equal(versionCount(data), 1);
  const second = await operate(t, { data, settings: SETTINGS });
  await worker.heartbeat(second);
  await check(second, worker, 1);
  // A new journal from the documents.
  assert.equal(run(["reproject", "--all", "--journal", "--data-dir", data], { settings: { KHALA_URL: second.server.url } }).code, 0);
  assert.equal(versionCount(data), 1);
  assert.equal((await second.read(`khala/topics/${TOPICS[0]}/messages?after_seq=8`)).messages.length, 1);
});

test("versions move to PostgreSQL with their rows", { skip: !onPostgres && "needs a PostgreSQL server" }, async (t) => {
  const data = folder(t);
  const worker = new Worker("w");
  const first = await operate(t, { data, settings: { ...SETTINGS, DB_URL: "" } });
  await worker.register(first);
  for (let i = 0; i < 20; i++) await worker.heartbeat(first, i === 7 ? { n: i } : undefined);
  const polled = await Promise.all(TOPICS.map((topic) => first.read(`khala/topics/${topic}/messages?after_seq=0&limit=1000`)));
  await first.server.stop();
  const url = newDatabase();
  const moved = run(["import", "--from", data], { settings: { DB_URL: url } });
  assert.equal(moved.code, 0, moved.problem);
  const second = await operate(t, { data: folder(t), settings: { ...SETTINGS, DB_URL: url } });
  for (const [i, topic] of TOPICS.entries())
    assert.deepEqual((await second.read(`khala/topics/${topic}/messages?after_seq=0&limit=1000`)).messages, polled[i].messages);
  await second.server.stop();
  assert.equal(run(["verify", "--data-dir", data], { settings: { DB_URL: url } }).code, 0);
});
