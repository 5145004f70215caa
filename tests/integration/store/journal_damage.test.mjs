// Damage of the journal: it is found and named, readers begin again, and the journal can be made again.
import assert from "node:assert/strict";
import { test } from "node:test";
import { run } from "../../lib/khala.mjs";
import { operate } from "../../lib/operator.mjs";
import { streamPath } from "../../lib/paths.mjs";
import { Stream } from "../../lib/sse.mjs";
import { alter, sql, sqlRows } from "../../lib/store.mjs";
import { Client } from "../../lib/phoenix.mjs";

const SUMMARIES = "runtime.run_summaries";
const COLUMNS = "(topic_ref, seq, log_id, entity_ref, doc_version, published_at, payload_hash, payload)";

/** A stopped store with runs and workers. */
async function stored(t) {
  const operator = await operate(t);
  for (let i = 0; i < 6; i++) await operator.did("runs", { run_id: `r${i}`, owner_user_id: "u1" }, 201);
  for (const id of ["w1", "w2"]) {
    await operator.did("workers", { worker_id: id, owner_user_id: "u1" }, 201);
    await operator.did(`workers/${id}/heartbeat`, {});
  }
  await operator.server.stop();
  return operator.data;
}

test("verify, reproject --verify and the doctor name damaged rows", async (t) => {
  const data = await stored(t);
  const verbs = [["verify"], ["reproject", "--all", "--verify"], ["doctor"]];
  const look = (verb) => run([...verb, "--data-dir", data]);
  for (const verb of verbs) assert.equal(look(verb).code, 0, look(verb).out);
  const kept = sqlRows(data, "SELECT topic_ref, seq, log_id, entity_ref, doc_version, published_at, hex(payload_hash) AS hash, payload FROM journal WHERE topic_ref = 1");
  const restore = () => alter(data, `DELETE FROM journal WHERE topic_ref IN (1, 77); ${kept.map((row) =>
    `INSERT INTO journal ${COLUMNS} VALUES (1, ${row.seq}, ${row.log_id}, ${row.entity_ref}, ${row.doc_version}, ${row.published_at}, x'${row.hash}', '${row.payload}');`).join("")}`);
  for (const [damage, topic, watermark] of [
    ["DELETE FROM journal WHERE topic_ref = 1 AND seq = 3", SUMMARIES, 3],
    ["DELETE FROM journal WHERE topic_ref = 1 AND seq >= 5", SUMMARIES, 5],
    ["UPDATE journal SET payload = replace(payload, 'u1', 'u2') WHERE topic_ref = 1 AND seq = 2", SUMMARIES, 2],
    ["UPDATE journal SET payload_hash = x'00' WHERE topic_ref = 1 AND seq = 4", SUMMARIES, 4],
    [`INSERT INTO journal ${COLUMNS} SELECT 1, 9, log_id, entity_ref, 9, 1, payload_hash, payload FROM journal WHERE topic_ref = 1 AND seq = 1`, SUMMARIES, 9],
    [`INSERT INTO journal ${COLUMNS} SELECT 77, 5, log_id, entity_ref, 9, 1, payload_hash, payload FROM journal WHERE topic_ref = 1 AND seq = 1`, "topic_ref 77", 5],
    ["UPDATE journal SET entity_ref = 999, log_id = 999 WHERE topic_ref = 1 AND seq = 6", SUMMARIES, 6],
  ]) {
    alter(data, damage);
    for (const verb of verbs) {
      const { code, out } = look(verb);
      assert.equal(code, 1, `${verb}: ${damage}: ${out}`);
      assert.match(out, new RegExp(`${topic} watermark ${watermark}: `), `${verb}: ${damage}`);
    }
    const { ok, journal } = JSON.parse(look(["verify", "--json"]).out);
    assert.equal(ok, false);
    assert.ok(journal.some((named) => named.topic === topic && named.watermark === watermark), JSON.stringify(journal));
    restore();
    assert.equal(look(["verify"]).code, 0, damage);
  }
});

test("reproject --journal makes the journals again, with and without a server", async (t) => {
  const data = await stored(t);
  assert.equal(run(["reproject", "--journal", "--run", "r1", "--data-dir", data]).code, 2);
  const journal = () => sqlRows(data, "SELECT topic, journal_epoch AS epoch, oldest_seq AS oldest, head_seq AS head FROM topics WHERE entity_ref IS NULL ORDER BY topic");
  const before = journal();
  alter(data, "DELETE FROM journal WHERE seq = 2; UPDATE journal SET payload = '{}' WHERE topic_ref = 1 AND seq = 4");
  const local = run(["reproject", "--all", "--journal", "--data-dir", data]);
  assert.equal(local.code, 0, local.out + local.problem);
  assert.equal(run(["verify", "--data-dir", data]).code, 0);
  const rebuilt = journal();
  for (const [i, { topic, epoch, oldest, head }] of rebuilt.entries()) {
    assert.ok(epoch > before[i].epoch && oldest > before[i].head + 1, topic);
    assert.equal(head - oldest + 1, { [SUMMARIES]: 6, "runtime.codex_worker_events": 4 }[topic] ?? 2, topic);
  }
  const operator = await operate(t, { data });
  alter(data, "DELETE FROM journal WHERE topic_ref = 1");
  const { code, out, problem } = run(["reproject", "--all", "--journal", "--data-dir", data], { settings: { KHALA_URL: operator.server.url } });
  assert.equal(code, 0, out + problem);
  assert.match(out, /journals of all shared topics were made again/);
  assert.equal(run(["verify", "--data-dir", data]).code, 0);
  await operator.did("runs/r1/events", { event_type: "x" });
  const { messages } = JSON.parse((await operator.get(`khala/topics/${SUMMARIES}/messages`)).body);
  assert.equal(messages.length, 7);
  assert.equal(messages[6].payload.run_id, "r1");
  assert.equal(sql(data, "SELECT count(*) FROM topics WHERE entity_ref IS NOT NULL AND journal_epoch > 0"), "0");
});

test("readers behind damage are told journal_damaged, and readers of a journal made again epoch_mismatch", async (t) => {
  // No frame that was read fits in memory, so every reader reads the journal.
  const settings = { RUNTIME_KHALA_POLL_MIN_INTERVAL_MS: "0", KHALA_WINDOW_BYTES_MAX: "1024" };
  const operator = await operate(t, { data: await stored(t), settings });
  const { data } = operator;
  const poll = async (query) => {
    const { status, body } = await operator.get(`khala/topics/${SUMMARIES}/messages?${query}`);
    return { status, body, ...JSON.parse(body) };
  };
  const reasons = ({ status, body, stale_topics, details }) => [status, ...((stale_topics ?? details?.stale_topics)?.[0].reason_codes ?? [body])];
  const { epoch, next_cursor } = await poll("after_seq=0");
  assert.match(epoch, /^[0-9a-f-]{36}\.0$/);
  assert.equal(next_cursor, 6);
  // A position without the number was handed out before journals had one.
  assert.equal((await poll(`after_seq=2&epoch=${epoch.slice(0, -2)}`)).status, 200);
  for (const [damage, last] of [
    ["DELETE FROM journal WHERE topic_ref = 1 AND seq = 2", 2],
    ["UPDATE journal SET log_id = 999 WHERE topic_ref = 1 AND seq = 4", 4],
    ["DELETE FROM journal WHERE topic_ref = 1 AND seq >= 6", 6],
  ]) {
    alter(data, damage);
    assert.deepEqual(reasons(await poll(`after_seq=${last - 1}`)), [410, "journal_damaged"], damage);
    assert.equal(sql(data, "SELECT oldest_seq FROM topics WHERE ref = 1"), `${last + 1}`, "the floor is durable");
    assert.equal((await poll(`after_seq=${last}&epoch=${epoch}`)).status, 200, damage);
    assert.equal((await poll("")).status, 200, "a bootstrap is never stale");
  }
  alter(data, "DROP TABLE journal");
  await operator.did("runs/r1/events", { event_type: "x" });
  assert.equal((await poll("")).status, 200);
  const before = await poll("");
  const stream = await Stream.open(operator, streamPath(SUMMARIES, `after_seq=${before.head_cursor}`), { authorization: `Bearer ${operator.key}` });
  assert.equal((await operator.post("projectors/reproject", { all: true, journal: true })).status, 200);
  assert.deepEqual(reasons(await poll(`after_seq=${before.head_cursor}&epoch=${before.epoch}`)).slice(0, 2), [410, "epoch_mismatch"]);
  assert.equal((await poll(`after_seq=${before.head_cursor}`)).status, 410, "also without an epoch");
  const after = await poll("");
  assert.match(after.epoch, /\.1$/);
  // A reader that stays connected is sent a snapshot, and then positions of the new journal. An event before the snapshot
  // would be part of it.
  await stream.until((one) => one.lastId.endsWith(after.epoch), "the snapshot of the new journal");
  await operator.did("runs/r1/events", { event_type: "x" });
  await stream.until((one) => one.lastSeq > after.head_cursor, "a message of the new journal");
  assert.equal(stream.messages.at(-1).id, `${after.head_cursor + 1}@${after.epoch}`);
  stream.close();
  assert.equal(after.messages.length, 6);
  const log = JSON.parse((await operator.get("khala/topics/run:r1:events/messages")).body);
  assert.equal(log.epoch, epoch.slice(0, -2), "the log keeps its epoch");
});

const FLEET = "fleet:user:u1:workers";
const EVENTS = "runtime.codex_worker_events";

for (const isRunning of [true, false])
  test(`altered rows of a ${isRunning ? "running" : "stopped"} store are put right before a reader gets them`, async (t) => {
    // Every reader reads the journal.
    const settings = { RUNTIME_KHALA_POLL_MIN_INTERVAL_MS: "0", KHALA_WINDOW_BYTES_MAX: "1024" };
    let operator = await operate(t, { settings });
    const { data } = operator;
    for (let i = 0; i < 4; i++) await operator.did("runs", { run_id: `r${i}`, owner_user_id: "u1", title: "a" }, 201);
    for (const event_type of ["x", "y", "z"]) await operator.did("runs/r1/events", { event_type });
    await operator.did("workers", { worker_id: "w", owner_user_id: "u1" }, 201);
    for (let i = 0; i < 3; i++) await operator.did("workers/w/heartbeat", {});
    const topics = [SUMMARIES, FLEET, EVENTS];
    const poll = async (topic) => {
      const { status, body } = await operator.get(`khala/topics/${topic}/messages?after_seq=0`);
      assert.equal(status, 200, `${topic}: ${body}`);
      return JSON.parse(body).messages;
    };
    const right = new Map();
    for (const topic of topics) right.set(topic, await poll(topic));
    const of = (topic) => `topic_ref = (SELECT ref FROM topics WHERE topic = '${topic}')`;
    const stop = async () => isRunning || operator.server.stop();
    const start = async () => { if (!isRunning) operator = await operate(t, { data, settings }); };
    for (const [damage, topic, seqs] of [
      // A frame whose document is still of its version, frames that later ones replaced, and several at once.
      [`UPDATE journal SET payload = replace(payload, 'u1', 'u2') WHERE ${of(SUMMARIES)} AND seq = 4`, SUMMARIES, [4]],
      [`UPDATE journal SET payload = replace(payload, 'u1', 'u2') WHERE ${of(SUMMARIES)} AND seq = 5`, SUMMARIES, [5]],
      [`UPDATE journal SET payload_hash = zeroblob(32) WHERE ${of(SUMMARIES)} AND seq IN (2, 6)`, SUMMARIES, [2, 6]],
      [`UPDATE journal SET payload = '[]' WHERE ${of(SUMMARIES)}`, SUMMARIES, [1, 2, 3, 4, 5, 6, 7]],
      [`UPDATE journal SET payload = replace(payload, 'w', 'v') WHERE ${of(FLEET)} AND seq = 2`, FLEET, [2]],
      [`UPDATE journal SET payload_hash = zeroblob(32) WHERE ${of(EVENTS)} AND seq = 3`, EVENTS, [3]],
    ]) {
      await stop();
      alter(data, damage);
      await start();
      assert.deepEqual(await poll(topic), right.get(topic), damage);
      const { drift } = await operator.read("projectors/drift?limit=20");
      assert.deepEqual(drift.slice(0, seqs.length).reverse().map((one) => [one.subject, one.reason_code, one.expected_seq]),
        seqs.map((seq) => [topic, "journal_damaged", seq]), damage);
      assert.equal(run(["verify", "--data-dir", data]).code, 0, damage);
    }
    // On a socket and in a stream too.
    alter(data, `UPDATE journal SET payload = replace(payload, 'u1', 'u2') WHERE ${of(SUMMARIES)}`);
    const client = await Client.join(operator);
    await client.subscribe({ topics: [SUMMARIES], resume_after: { [SUMMARIES]: 1 } });
    await client.reached(SUMMARIES, 7);
    assert.deepEqual(client.run(SUMMARIES).updates.map(({ seq, payload, payload_hash }) => ({ seq, payload, payload_hash })),
      right.get(SUMMARIES).slice(1).map(({ seq, payload, payload_hash }) => ({ seq, payload, payload_hash })));
    alter(data, `UPDATE journal SET payload_hash = zeroblob(32) WHERE ${of(SUMMARIES)}`);
    const stream = await Stream.open(operator, streamPath(SUMMARIES, "after_seq=0"), { authorization: `Bearer ${operator.key}` });
    await stream.until(() => stream.lastSeq === 7, "all frames");
    assert.deepEqual(stream.messages.map(({ data: { payload_hash } }) => payload_hash), right.get(SUMMARIES).map(({ payload_hash }) => payload_hash));
    stream.close();
    // Nothing proves what such a frame held: its readers begin again.
    alter(data, `UPDATE journal SET payload = '{"a":1}', payload_hash = zeroblob(32) WHERE ${of(SUMMARIES)} AND seq = 5`);
    const lost = await operator.get(`khala/topics/${SUMMARIES}/messages?after_seq=4`);
    assert.deepEqual([lost.status, JSON.parse(lost.body).reason_code], [410, "journal_damaged"]);
    assert.deepEqual((await poll(SUMMARIES)).map(({ seq }) => seq), [6, 7]);
  });
