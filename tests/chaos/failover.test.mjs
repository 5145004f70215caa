// The loss of each part of a cluster, one after the other, under load. Acknowledged events survive,
// sequences and chains continue, clients resume by themselves, and a new writer appends; the time that took
// is printed. The epoch stays, also when a synchronous standby takes over. It ends when a node is missing, or when the
// database is restored to an earlier state. The cases that wait for a timeout run with KHALA_TEST_LONG=1, as 'make check'
// sets it.
import assert from "node:assert/strict";
import { chmodSync, mkdirSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { DATABASE_SETTINGS } from "../lib/faulty_cluster.mjs";
import { ClusterWorld } from "../lib/cluster_world.mjs";
import { FAULTS } from "../lib/faults.mjs";
import { folder } from "../lib/khala.mjs";
import { postgres } from "../lib/postgres_server.mjs";
import { seeded } from "../lib/seeded.mjs";
import { until } from "../lib/wait.mjs";

const SEED = Number(process.env.KHALA_CHAOS_SEED ?? Date.now() % 1_000_000);
const CLIENTS = 18;
const LONG = process.env.KHALA_TEST_LONG ? {} : { skip: "needs KHALA_TEST_LONG=1" };
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

test(`the epoch ends with a failover that not every node saw, seed ${SEED}`, LONG, async (t) => {
  const { world, ...servers } = await replicated(t);
  const epoch = await epochOf(world);
  await world.fault("follower_killed", FAULTS.follower_killed);
  await failOver({ world, ...servers });
  assert.notEqual(await epochOf(world), epoch, "the node that is missing may have delivered more");
  await world.healAll();
  print(t, await world.judge());
});

/** Waits until each node has started again. */
const allReady = (world) => Promise.all(world.cluster.nodes.map(({ operator }) => until(
  () => operator.get("/healthz/ready").then(({ status }) => status === 200, () => false), "a node that is ready")));

/** Waits until each client of a topic has learned that its position belongs to another history. */
const allToldAgain = (world) => Promise.all(world.followers.map((one) => one.until(
  () => [...one.tracks.values()].every((track) => track.resets > 0 && track.at !== null), "starts again")));

test(`a database restored to an earlier state has a new epoch, and every client starts again, seed ${SEED}`, LONG, async (t) => {
  const archive = join(folder(t), "archive");
  mkdirSync(archive);
  chmodSync(archive, 0o777); // PostgreSQL runs as another user
  chmodSync(join(archive, ".."), 0o755);
  const primary = await postgres(t, { ...DATABASE_SETTINGS, archive_mode: "on", archive_command: `cp %p ${archive}/%f` });
  const world = await ClusterWorld.open(t, { dice: seeded(SEED), clients: CLIENTS, servers: [primary] });
  const epoch = await epochOf(world);
  const copy = primary.copy("restored", {});
  await world.progress(30);
  primary.psql("SELECT pg_create_restore_point('earlier')");
  await world.progress(30);
  await world.quiet();
  await world.followed(await world.expected()); // every client is past the restore point
  primary.psql("SELECT pg_switch_wal()");
  await primary.stop();
  await primary.restore(copy, archive, "earlier");
  world.cluster.replace(primary, copy);
  await until(async () => await epochOf(world).catch(() => epoch) !== epoch, "a new epoch");
  await allToldAgain(world);
  await allReady(world);
  await world.forgetLost();
  world.produce();
  await world.progress(20);
  const counts = await world.judge();
  t.diagnostic(JSON.stringify(counts));
});
