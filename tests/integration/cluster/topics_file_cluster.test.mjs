// The topics file on several nodes over one PostgreSQL, and for events that are appended by SQL.
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "../../lib/cases.mjs";
import { join as joinCluster } from "../../lib/cluster.mjs";
import { newDatabase, psql } from "../../lib/database.mjs";
import { folder, run } from "../../lib/khala.mjs";
import { until } from "../../lib/wait.mjs";

const said = (text = "hello") => ({ event_type: "said", payload: { text } });

/** Two nodes over a new database, each with a file of its own. */
async function pair(t, rules, settings = {}) {
  const url = newDatabase();
  const files = [1, 2].map(() => join(folder(t), "topics"));
  const nodes = [];
  for (const file of files) {
    writeFileSync(file, rules);
    nodes.push(await joinCluster(t, url, { KHALA_TOPICS_FILE: file, RUNTIME_KHALA_POLL_MIN_INTERVAL_MS: "0", ...settings }));
  }
  const [writer, follower] = nodes;
  await until(async () => (await writer.read("nodes")).nodes.length === 2, "both nodes");
  return { url, writer, follower, files };
}

async function reload(operator, file, rules) {
  writeFileSync(file, rules);
  const before = operator.server.log.length;
  operator.server.kill("SIGHUP");
  await operator.server.until(() => /topics\.reloaded/.test(operator.server.log.slice(before)), "the new rules");
}

const hashes = async (operator) => new Set((await operator.read("nodes")).nodes.map((node) => node.topics_hash));

test("nodes with different files are found by khala nodes and doctor, and each shows its own values", async (t) => {
  const { url, writer, follower, files } = await pair(t, "chat:* replay_budget_events=3\n");
  const settings = { DB_URL: url, KHALA_TOPICS_FILE: files[0] };
  const doctor = () => JSON.parse(run(["doctor", "--json", "--url", writer.server.url, "--data-dir", writer.data], { settings }).out)
    .checks.filter(({ check, finding }) => check === "nodes" && finding !== "ok").map(({ finding, message }) => `${finding} ${message}`);
  await until(async () => (await hashes(writer)).size === 1, "one hash");
  assert.deepEqual(doctor(), []);
  for (let i = 0; i < 6; i++) await follower.did("topics/chat:one/events", said());
  assert.equal((await follower.poll("chat:one", "after_seq=1")).status, 410);
  await reload(follower, files[1], "chat:* replay_budget_events=5 publish_rate_per_second=1\n");
  await until(async () => (await hashes(writer)).size === 2, "two hashes");
  const lines = run(["nodes", "--url", writer.server.url, "--data-dir", writer.data]).out.trim().split("\n");
  assert.equal(new Set(lines.map((line) => line.match(/ topics=([0-9a-f]{12})$/)[1])).size, 2);
  assert.deepEqual(doctor(), ["wrong the nodes have different topics files in force"]);
  assert.equal((await follower.poll("chat:one", "after_seq=1")).status, 200);
  assert.equal((await writer.poll("chat:one", "after_seq=1")).status, 410);
  // Rates are those of the writer, wherever an event comes in.
  assert.ok((await follower.batch(Array(5).fill({ topic: "chat:two", event_type: "said" }))).every(({ status }) => status === 200));
  await reload(writer, files[0], "chat:* replay_budget_events=5 publish_rate_per_second=1\n");
  await until(async () => (await hashes(writer)).size === 1, "one hash again");
  assert.deepEqual((await follower.batch(Array(2).fill({ topic: "chat:three", event_type: "said" }))).map(({ status }) => status), [200, 429]);
  assert.deepEqual(doctor(), []);
  settings.KHALA_TOPICS_FILE = "";
  assert.match(doctor().join(), /^warning the topics file here is not the one that the nodes have in force$/);
});

test("events appended by SQL may be as large as the rules allow, and the writer refuses those beyond their own rule", async (t) => {
  const { url, writer, files } = await pair(t, "", { KHALA_OUTBOX_POLL_MS: "5" });
  const append = (topic, bytes) => psql(url, `SELECT runtime.append_event('${topic}', 'said', jsonb_build_object('a', repeat('x', ${bytes})))`);
  assert.throws(() => append("big:a", 90_000), /khala_frame_payload_too_large/);
  await reload(writer, files[0], "big:* max_payload_bytes=100000\nsmall:* max_payload_bytes=100\n");
  await until(() => psql(url, "SELECT max_payload_bytes FROM runtime.outbox_limits WHERE kind = 'topic'") === "100000", "the limits of the functions");
  append("big:a", 90_000);
  append("small:a", 200);
  append("small:a", 20);
  await until(async () => (await writer.read("/v1/topics/small:a")).window?.head_seq === 1, "the last event");
  assert.equal((await writer.read("/v1/topics/big:a")).window.head_seq, 1);
  assert.equal(psql(url, "SELECT target, reason FROM runtime.outbox_rejected"), "small:a|khala_frame_payload_too_large");
});
