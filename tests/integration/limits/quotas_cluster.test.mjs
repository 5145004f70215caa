// Quotas per owner on several nodes: any node takes a change, every node knows it, and the writer alone decides.
import assert from "node:assert/strict";
import { test } from "node:test";
import { join } from "../../lib/cluster.mjs";
import { newDatabase, psql } from "../../lib/database.mjs";
import { run } from "../../lib/khala.mjs";
import { UNHURRIED } from "../../lib/operator.mjs";
import { range } from "../../lib/samples.mjs";
import { until } from "../../lib/wait.mjs";

const EVENT = { event_type: "said", owner_user_id: "ada" };
const ROUNDS_MAX = 300; // of 41 events on each node; the quota is full after about 25
const EVENT_BYTES = 256 + "said".length + 2;

async function cluster(t) {
  const url = newDatabase();
  const nodes = [];
  for (let i = 0; i < 3; i++) nodes.push(await join(t, url, UNHURRIED));
  return { url, nodes };
}

const set = async (operator, owner, quotas) => {
  const { status, body } = await operator.ask("PUT", `quotas/${owner}`, JSON.stringify(quotas));
  assert.equal(status, 200, body);
};

const stored = (url) => Number(psql(url, "SELECT bytes FROM owner_usage WHERE owner = 'user:ada'"));

const differences = (url) => psql(url, "SELECT (SELECT array_agg(u ORDER BY u) FROM owner_usage u)::text IS DISTINCT FROM (SELECT array_agg(c ORDER BY c) FROM owner_usage_counted c)::text");

test("a quota that three nodes fill at once is never exceeded, also while the writer is killed", async (t) => {
  const { url, nodes } = await cluster(t);
  const [writer, ...followers] = nodes;
  const limit = 3000 * EVENT_BYTES + 100;
  await set(followers[0], "user:ada", { bytes_stored: limit, subscriptions: 7 });
  // No beat has passed since.
  for (const node of nodes) {
    assert.equal((await node.read("quotas/user:ada")).limits.subscriptions, 7);
    assert.equal((await node.read("quotas")).items[0].quotas.subscriptions, 7);
  }

  /** Batches and single appends through a node until the quota is full or the node is killed. Answers the refusal. */
  const fill = async (node, name) => {
    for (let round = 0; !node.server.crashed; round++) {
      assert.ok(round < ROUNDS_MAX, `${stored(url)} bytes are stored, and no quota was met`);
      const items = range(1, 40).map((i) => ({ ...EVENT, topic: `${name}:${i}` }));
      const answers = await node.batch(items).catch(() => []);
      const single = await node.post(`topics/${name}/events`, EVENT).catch(() => null);
      const full = answers.filter((item) => item.status === 429 && item.error.error === "quota_exceeded");
      if (full.length > 0 && single?.status === 429) return full[0].error.details;
      if (name === "n1" && round === 3) await writer.server.crash();
    }
  };
  const filled = await Promise.all(nodes.map((node, i) => fill(node, `n${i}`)));
  assert.equal(filled[0], undefined);
  for (const details of filled.slice(1)) {
    assert.equal(details.quota, "bytes_stored");
    assert.equal(details.limit, limit);
    assert.ok(details.used <= limit && details.used + EVENT_BYTES > limit, JSON.stringify(details));
  }
  assert.ok(stored(url) <= limit, `${stored(url)} of ${limit}`);
  assert.ok(stored(url) + EVENT_BYTES > limit);
  assert.equal(differences(url), "f");
  const { out } = run(["doctor", "--data-dir", followers[0].data], { settings: { DB_URL: url } });
  assert.match(out, /the stored usage of every owner is what is counted/);
});

test("events that SQL appends count and are never refused", async (t) => {
  const url = newDatabase();
  const operator = await join(t, url, { ...UNHURRIED, KHALA_QUOTA_BYTES_STORED: "1000", KHALA_QUOTA_EVENTS_PER_SECOND: "2" });
  psql(url, "SELECT append_event('room', 'said', '{}', owner_user_id => 'ada') FROM generate_series(1, 20)");
  await until(() => psql(url, "SELECT count(*) FROM events e JOIN entities n ON n.ref = e.entity_ref WHERE n.id = 'room'") === "20", "all events");
  assert.equal(psql(url, "SELECT count(*) FROM outbox_rejected"), "0");
  assert.equal(stored(url), 20 * EVENT_BYTES);
  assert.equal(differences(url), "f");
  const { status, body } = await operator.post("topics/room/events", EVENT);
  assert.equal(status, 429, body);
  assert.deepEqual(JSON.parse(body).details, { quota: "bytes_stored", used: 20 * EVENT_BYTES, limit: 1000 });
  // What SQL appended uses the rate up, and leaves no debt.
  await set(operator, "user:ada", { bytes_stored: 1_000_000 });
  await until(async () => (await operator.post("topics/room/events", EVENT)).status === 200, "the next second");
});
