// A producer creates runs with 16 KB of metadata, and sends heartbeats of wide workers, as fast as it can. Its quotas
// bound what is stored and written, and a victim of another tenant keeps its times. tests/lib/greedy.mjs explains the settings.
import assert from "node:assert/strict";
import { test } from "node:test";
import { attackers } from "../lib/attackers.mjs";
import { idle, users, Victim } from "../lib/greedy.mjs";
import { MEASURED } from "../lib/machine.mjs";
import { operate, UNHURRIED } from "../lib/operator.mjs";
import { sql } from "../lib/store.mjs";
import { once } from "../lib/wait.mjs";

const CONNECTIONS = 8;
const STORED_MAX = 20_000_000;
const RATE = 2_000_000; // bytes a second
const WIDE = 60_000;

function requestOf(path, token, body) {
  return [`POST ${path} HTTP/1.1`, "Host: khala", `Authorization: Bearer ${token}`, `Content-Length: ${body.length}`, "", body].join("\r\n");
}

/** One attack for some rounds of the victim. Answers how long it took, in seconds. */
async function attack(t, operator, victim, name, request) {
  const { host, port } = operator.server;
  const begun = performance.now();
  const greedy = attackers(t, "greedy_clients.mjs", { host, port, request, connections: CONNECTIONS, reads: true });
  await once(greedy, "message", `the requests of ${name}`);
  await victim.rounds();
  greedy.send("close");
  const counts = await once(greedy, "message", "the end of the attack");
  const seconds = (performance.now() - begun) / 1000;
  const idleMs = await idle(operator, name);
  victim.check(t, name, `; ${seconds.toFixed(1)} s; idle after ${idleMs.toFixed(0)} ms; ${JSON.stringify(counts)}`);
  return seconds;
}

test("a producer's wide metadata stays within its quotas, and a victim does not notice", async (t) => {
  const operator = await operate(t, { settings: { ...UNHURRIED, ...MEASURED, RUNTIME_KHALA_POLL_MIN_INTERVAL_MS: "0", KHALA_LOG_LEVEL: "error" } });
  await operator.did("workers", { worker_id: "wide", owner_user_id: "wide", metadata: { m: "x".repeat(WIDE) } }, 201);
  for (const [owner, quotas] of [["user:greedy", { bytes_stored: STORED_MAX }], ["user:wide", { bytes_per_second: RATE }]]) {
    const { status, body } = await operator.ask("PUT", `quotas/${owner}`, JSON.stringify(quotas));
    assert.equal(status, 200, body);
  }
  const victim = await Victim.start(t, operator);
  await victim.measureQuiet(t);

  const create = requestOf("/v1/runs", users(operator, "greedy", ["runtime.append"]), JSON.stringify({ metadata: { m: "x".repeat(16_000) } }));
  await attack(t, operator, victim, "creations with 16 KB of metadata", create);
  const { usage } = await operator.read("quotas/user:greedy");
  t.diagnostic(`creations stored ${usage.bytes_stored} bytes of ${STORED_MAX}`);
  assert.ok(usage.bytes_stored <= STORED_MAX && usage.bytes_stored > STORED_MAX - 600_000, `${usage.bytes_stored} bytes`);

  const frames = () => Number(sql(operator.data, "SELECT sum(length(payload)) FROM journal WHERE payload IS NOT NULL"));
  const before = frames();
  const seconds = await attack(t, operator, victim, "heartbeats of a wide worker", requestOf("/v1/workers/wide/heartbeat", users(operator, "wide", ["runtime.append"]), "{}"));
  const written = frames() - before;
  t.diagnostic(`heartbeats wrote ${written} bytes of frames in ${seconds.toFixed(1)} s`);
  assert.ok(written <= RATE * (seconds + 1) + 3 * WIDE, `${written} bytes in ${seconds} s`);
});
