// Greedy principals fill the memory of batches with answers that they hardly read and bodies that they hardly send, beside
// a victim of another tenant that appends, polls, joins, streams and sends a batch now and then. No batch of the victim or
// of the operator is refused, the victim's times may rise only within a bound, memory stays bounded, and all of it is
// returned after the attack. tests/lib/greedy.mjs explains the settings.
import assert from "node:assert/strict";
import { test } from "node:test";
import { attackers } from "../lib/attackers.mjs";
import { idle, users, Victim } from "../lib/greedy.mjs";
import { MEASURED, memoryBytes, SANITIZED } from "../lib/machine.mjs";
import { operate, UNHURRIED } from "../lib/operator.mjs";
import { scrape } from "../lib/prometheus.mjs";
import { range } from "../lib/samples.mjs";
import { once, until } from "../lib/wait.mjs";

const BATCHES_BYTES_MAX = 64 << 20;
const HELD_BYTES_MAX = 1.5 * BATCHES_BYTES_MAX; // batches under way may grow beyond their share by what they are sending
const SPOOL_BYTES_MAX = 16 << 20;
const ITEMS = 1000; // of the victim's batch
const PRINCIPALS = 20;
const MEMORY_BYTES_MAX = (SANITIZED ? 4 : 1) * 512e6;
const RETURNED_MS_MAX = 5000;

const ATTACKS = {
  "40 connections that read 164 KB/s in all": { mode: "slow", connections: 40, bytesPerSecond: 164_000 },
  "250 connections that do not read": { mode: "deaf", connections: 250 },
  "250 bodies that trickle": { mode: "trickle", connections: 250, lineBytes: 250_000 },
  "100 connections of 20 principals that read 164 KB/s in all": { mode: "slow", connections: 100, principals: PRINCIPALS, bytesPerSecond: 164_000 },
  "250 connections of 20 principals that do not read": { mode: "deaf", connections: 250, principals: PRINCIPALS },
};

async function batchesBytes(operator) {
  return (await scrape(operator)).get("khala_batches_bytes");
}

async function attack(t, operator, victim, name, { principals = 1, ...clients }) {
  const { host, port } = operator.server;
  const tokens = range(0, principals - 1).map((i) => users(operator, `greedy-${i}`, ["runtime.append"]));
  const greedy = attackers(t, "greedy_batches.mjs", { host, port, tokens, ...clients });
  await once(greedy, "message", `a server that takes nothing more of ${name}`);
  const held = await batchesBytes(operator);
  await victim.rounds(async () => {
    const answers = await operator.batch(range(1, 10).map((i) => ({ topic: "operators", event_type: "x", payload: { i } })));
    assert.deepEqual(answers.map(({ status }) => status), Array(10).fill(200), name);
  });
  greedy.send("close");
  const counts = await once(greedy, "message", "the end of the attack");
  const begun = performance.now();
  await until(async () => await batchesBytes(operator) === 0, `the memory of ${name} returns`, RETURNED_MS_MAX);
  const returnedMs = performance.now() - begun;
  const idleMs = await idle(operator, name);
  assert.ok(held <= HELD_BYTES_MAX, `${name}: ${held} bytes of batches`);
  victim.check(t, name, `; ${(held / 1e6).toFixed(0)} MB of batches, returned after ${returnedMs.toFixed(0)} ms; ` +
    `idle after ${idleMs.toFixed(0)} ms; ${JSON.stringify(counts)}`);
}

test("greedy batches refuse no batch of another principal, and leave nothing behind", async (t) => {
  const operator = await operate(t, { settings: { ...UNHURRIED, ...MEASURED, KHALA_BATCHES_BYTES_MAX: String(BATCHES_BYTES_MAX),
    KHALA_BATCH_SPOOL_BYTES_MAX: String(SPOOL_BYTES_MAX), RUNTIME_KHALA_POLL_MIN_INTERVAL_MS: "0", KHALA_LOG_LEVEL: "error" } });
  for (let i = 0; i < PRINCIPALS; i++) await operator.did("runs", { run_id: `greedy-${i}`, owner_user_id: `greedy-${i}` }, 201);
  const victim = await Victim.start(t, operator, { batchItems: ITEMS });
  await victim.measureQuiet(t);
  for (const [name, clients] of Object.entries(ATTACKS)) await attack(t, operator, victim, name, clients);
  assert.ok(memoryBytes(operator.server, "VmHWM") < MEMORY_BYTES_MAX, `${memoryBytes(operator.server, "VmHWM")} bytes of memory`);
});
