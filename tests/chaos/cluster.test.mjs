// Nodes over one PostgreSQL under random faults and load. Clients of every dialect move to another
// node when theirs fails; producers repeat each event by its id until it is acknowledged; one writes
// by SQL. In the end every acknowledged event is in the log once, chains hold, and each client received its
// part of the log without a gap. The run repeats with KHALA_CHAOS_SEED. KHALA_CHAOS_FAULTS,
// KHALA_CHAOS_CLIENTS, KHALA_CHAOS_NODES and KHALA_CHAOS_DRIVERS (a list) make it larger. The driver "memory"
// wakes no other node, so nodes find events by polling the log.
import assert from "node:assert/strict";
import { test } from "node:test";
import { DRIVERS } from "../lib/faulty_cluster.mjs";
import { ClusterWorld } from "../lib/cluster_world.mjs";
import { FAULTS } from "../lib/faults.mjs";
import { seeded } from "../lib/seeded.mjs";

const SEED = Number(process.env.KHALA_CHAOS_SEED ?? Date.now() % 1_000_000);
const FAULT_COUNT = Number(process.env.KHALA_CHAOS_FAULTS ?? 10);
const CLIENTS = Number(process.env.KHALA_CHAOS_CLIENTS ?? 30);
const NODES = Number(process.env.KHALA_CHAOS_NODES ?? 3);
const CHOSEN = process.env.KHALA_CHAOS_DRIVERS?.split(",") ?? [DRIVERS[SEED % DRIVERS.length]];
const FAULTS_EACH = Math.ceil(FAULT_COUNT / CHOSEN.length);

/** One random fault. Faults of several nodes overlap at times; one node is always without. */
async function strike(world, struck) {
  const { cluster, dice, faulted } = world;
  const name = dice.pick(Object.keys(FAULTS));
  if (await world.fault(name, FAULTS[name]) === null) return;
  struck.set(name, (struck.get(name) ?? 0) + 1);
  await world.progress(1 + dice.below(20));
  const isLast = () => cluster.nodes.filter((node) => world.isFree(node)).length <= 1;
  while (faulted.size > 0 && (isLast() || dice.random() < 0.7)) await world.heal([...faulted.keys()][0]);
}

for (const [index, driver] of CHOSEN.entries()) {
  const name = `${NODES} nodes with ${driver} keep every event over ${FAULTS_EACH} faults, seed ${SEED}`;
  test(name, { timeout: 120_000 + FAULTS_EACH * 30_000 }, async (t) => {
    const world = await ClusterWorld.open(t, { dice: seeded(SEED + index), count: NODES, driver, clients: CLIENTS });
    const struck = new Map();
    const total = () => [...struck.values()].reduce((all, one) => all + one, 0);
    const counts = await world.reported(async () => {
      while (total() < FAULTS_EACH) await strike(world, struck);
      await world.healAll();
      await world.progress(20);
      return world.judge();
    });
    t.diagnostic(`${driver}, ${NODES} nodes, ${total()} faults ${JSON.stringify(Object.fromEntries([...struck].sort()))}`);
    t.diagnostic(JSON.stringify(counts));
    world.printTakeovers();
    assert.equal(counts.missing, 0, "every event that was sent is in the log");
    assert.equal(counts.resets, 0, "no client had to start again");
  });
}
