// One principal appends batches on many connections, as fast as the server takes them, beside a victim of another tenant.
// tests/lib/greedy.mjs explains the settings.
import assert from "node:assert/strict";
import { test } from "node:test";
import { attackers } from "../lib/attackers.mjs";
import { idle, users, Victim } from "../lib/greedy.mjs";
import { MEASURED } from "../lib/machine.mjs";
import { operate, UNHURRIED } from "../lib/operator.mjs";
import { once } from "../lib/wait.mjs";

const UNLIMITED = { KHALA_QUOTA_EVENTS_PER_SECOND: "100000000", KHALA_QUOTA_BYTES_PER_SECOND: "100000000000",
  KHALA_QUOTA_BYTES_STORED: "1000000000000" };
const CONNECTIONS = 250;
const LINE_BYTES = 100;

test(`${CONNECTIONS} connections with batches do not delay the appends of another principal`, async (t) => {
  const operator = await operate(t, { settings: { ...UNHURRIED, ...MEASURED, ...UNLIMITED, RUNTIME_KHALA_POLL_MIN_INTERVAL_MS: "0",
    KHALA_LOG_LEVEL: "error" } });
  await operator.did("runs", { run_id: "greedy-0", owner_user_id: "greedy-0" }, 201);
  const victim = await Victim.start(t, operator);
  await victim.measureQuiet(t);
  const { host, port } = operator.server;
  const greedy = attackers(t, "greedy_batches.mjs", { host, port, mode: "busy", tokens: [users(operator, "greedy-0", ["runtime.append"])],
    connections: CONNECTIONS, lineBytes: LINE_BYTES });
  await once(greedy, "message", "batches on all connections");
  const storedOf = async () => (await operator.read("runs/greedy-0")).run.latest_seq;
  const [begun, before] = [performance.now(), await storedOf()];
  await victim.rounds();
  const rate = ((await storedOf() - before) * 1000) / (performance.now() - begun);
  greedy.send("close");
  const counts = await once(greedy, "message", "the end of the attack");
  victim.check(t, `batches on ${CONNECTIONS} connections`, `; ${rate.toFixed(0)} greedy events a second; ${JSON.stringify(counts)}`);
  // What the clients left behind does not delay the victim either.
  await victim.rounds();
  victim.check(t, "after these batches", `; idle after ${(await idle(operator, "batches")).toFixed(0)} ms`);
  assert.ok(rate > 0, "batches of the greedy principal are stored");
});
