// The loss of each part of a cluster, one after the other, under load. Acknowledged events survive,
// sequences and chains continue, clients resume by themselves, and a new writer appends; the time that took
// is printed. The epoch stays, also when a synchronous standby takes over. The losses that a node notices only by a
// timeout run with KHALA_TEST_LONG=1, as 'make check' sets it.
import assert from "node:assert/strict";
import { test } from "node:test";
import { DATABASE_SETTINGS } from "../lib/faulty_cluster.mjs";
import { ClusterWorld } from "../lib/cluster_world.mjs";
import { FAULTS } from "../lib/faults.mjs";
import { postgres } from "../lib/postgres_server.mjs";
import { seeded } from "../lib/seeded.mjs";
import { until } from "../lib/wait.mjs";

const SEED = Number(process.env.KHALA_CHAOS_SEED ?? Date.now() % 1_000_000);
const CLIENTS = 18;
const APPEND_MS_MAX = 30_000; // 5 s are expected; the machine may be busy

/** Faults that take the writer away, in the order of this test. */
const LOSSES = {
  "the writer is killed": "writer_killed",
  "the writer's database session is killed": "writer_session_killed",
  "the database is restarted": "database_restarted",
  "the database crashes": "database_crashed",
};
const LONG_LOSSES = {
  "the writer is stopped, and continues after another took over": "writer_stopped",
  "nothing from the writer reaches the database": "writer_cut_up",
  "nothing from the database reaches the writer": "writer_cut_down",
  "the network between writer and database is cut": "writer_cut_both",
};

const epochOf = (world) => world.cluster.sql("SELECT value FROM runtime.meta WHERE name = 'epoch'");

/** The term of the writer role, which rises with each session that takes it. */
const termOf = (world) => world.cluster.sql("SELECT term FROM runtime.writer").then(Number);

async function lose(t, world, name) {
  const before = await world.cluster.knownWriter();
  const term = await termOf(world);
  const ms = await world.fault(name, FAULTS[name]);
  t.diagnostic(`${name}: the next append was acknowledged after ${Math.round(ms)} ms`);
  assert.ok(ms < APPEND_MS_MAX, `${ms} ms`);
  assert.ok(await termOf(world) > term, "the role was taken again");
  await world.progress(20);
  await world.healAll();
  // The node that was lost serves again, and its appends count.
  await until(async () => (await before.node.operator.get("/healthz/ready")).status === 200, "readiness of the node that was lost");
  await world.progress(5);
}

function print(t, counts) {
  t.diagnostic(JSON.stringify(counts));
  assert.equal(counts.missing, 0, "every event that was sent is in the log");
}

test(`appends go on after each loss, seed ${SEED}`, async (t) => {
  const world = await ClusterWorld.open(t, { dice: seeded(SEED), clients: CLIENTS });
  const epoch = await epochOf(world);
  const losses = { ...LOSSES, ...(process.env.KHALA_TEST_LONG ? LONG_LOSSES : {}) };
  for (const [what, name] of Object.entries(losses)) await t.test(what, (one) => lose(one, world, name));
  assert.equal(await epochOf(world), epoch);
  const counts = await world.judge();
  print(t, counts);
  assert.equal(counts.resets, 0, "every client resumed");
});

/** A cluster over a primary server and a synchronous standby. */
async function replicated(t) {
  const primary = await postgres(t, DATABASE_SETTINGS);
  const standby = await primary.standby();
  const world = await ClusterWorld.open(t, { dice: seeded(SEED), clients: CLIENTS, servers: [primary, standby] });
  return { primary, standby, world };
}

/** The primary server crashes, and the standby takes its part. */
async function failOver({ primary, standby, world }) {
  await world.fault("database_failed_over", async () => {
    await primary.stop("immediate");
    world.cluster.replace(primary, standby);
    standby.promote();
    return {};
  });
  await world.progress(20);
}

test(`a synchronous standby takes over, and clients resume in the same epoch, seed ${SEED}`, async (t) => {
  const { world, ...servers } = await replicated(t);
  const epoch = await epochOf(world);
  await failOver({ world, ...servers });
  assert.equal(await epochOf(world), epoch, "all nodes found the last event that they delivered");
  const counts = await world.judge();
  print(t, counts);
  world.printTakeovers();
  assert.equal(counts.resets, 0, "every client resumed");
});
