// Attacks that cost the client little: each runs beside a victim of another tenant, whose times are
// printed and may rise only within a wide bound. tests/lib/greedy.mjs explains the settings.
import assert from "node:assert/strict";
import { join } from "node:path";
import { test } from "node:test";
import { attackers, BEHIND_OTHERS } from "../lib/attackers.mjs";
import { users, Victim } from "../lib/greedy.mjs";
import { folder, start } from "../lib/khala.mjs";
import { MEASURED, memoryBytes, SANITIZED } from "../lib/machine.mjs";
import { operate, UNHURRIED } from "../lib/operator.mjs";
import { scrape } from "../lib/prometheus.mjs";
import { sql } from "../lib/store.mjs";
import { Authority } from "../lib/tls.mjs";
import { once } from "../lib/wait.mjs";

const SETTINGS = { ...UNHURRIED, ...MEASURED, RUNTIME_KHALA_POLL_MIN_INTERVAL_MS: "0", KHALA_LOG_LEVEL: "error" };
const FLOODERS = 300;
const UPDATES = 4000; // of each flooder: 108 kB, more than a server reads in one turn
const SINGLE_BYTES = 20_000;

for (const [kind, records] of [["updates", UPDATES], ["requests", UPDATES], ["bytes", SINGLE_BYTES]]) {
  test(`a flood of TLS ${kind} on ${FLOODERS} connections does not delay others`, async (t) => {
    const authority = new Authority(folder(t));
    const operator = await operate(t, { authority, settings: { ...SETTINGS, ...Authority.settings(authority.issue("khala")) } });
    const victim = await Victim.start(t, operator);
    await victim.measureQuiet(t);
    const { host, port } = operator.server;
    const flood = start(t, [...BEHIND_OTHERS, join(process.env.KHALA_BUILD, "tls_flood"), host, String(port), String(FLOODERS), kind, String(records)],
      { input: "pipe" });
    await flood.saw("out", /ready\n/);
    flood.child.stdin.write("go\n");
    await victim.rounds();
    const [, sent, ended] = await flood.saw("out", /sent (\d+) ended (\d+)\n/);
    victim.check(t, `a flood of TLS ${kind}`, `; ${sent} sent all, ${ended} ended`);
    if (kind !== "bytes") assert.equal(Number(ended), FLOODERS, "every flooding connection was closed");
  });
}

/** Clients of tests/lib/annoying_clients.mjs beside the victim. Answers how many answers a second they got. */
async function annoy(t, operator, victim, name, clients) {
  const { host, port } = operator.server;
  const greedy = attackers(t, "annoying_clients.mjs", { host, port, ...clients });
  await once(greedy, "message", `the requests of ${name}`);
  const begun = performance.now();
  await victim.rounds();
  const seconds = (performance.now() - begun) / 1000;
  greedy.send("close");
  const { answers } = await once(greedy, "message", "the end of the attack");
  victim.check(t, name, `; ${(answers / seconds).toFixed(0)} answers a second`);
  return answers / seconds;
}

// Of one principal, as docs/protocol.md says.
const NONCES_PER_SECOND = 20;
const NONCES_BURST = 256;
const OPENERS = 100;

test("audit sockets opened without end do not delay others", async (t) => {
  const operator = await operate(t, { settings: SETTINGS });
  const victim = await Victim.start(t, operator);
  await victim.measureQuiet(t);
  const begun = performance.now();
  const rate = await annoy(t, operator, victim, "nonces", { kind: "audit", connections: OPENERS, token: users(operator, "greedy", ["runtime.audit"]) });
  const seconds = (performance.now() - begun) / 1000;
  const metrics = await scrape(operator);
  const commits = metrics.get("khala_single_use_commits_total");
  const refused = metrics.get("khala_single_uses_refused_total", { kind: "nonce" });
  const stored = Number(sql(operator.data, "SELECT count(*) FROM sync_single_uses"));
  t.diagnostic(`${stored} nonces in ${commits} transactions, ${refused} refused`);
  assert.ok(stored <= NONCES_BURST + NONCES_PER_SECOND * (seconds + 1), `${stored} nonces in ${seconds} s`);
  assert.ok(commits <= stored && refused > 0, `${commits} transactions, ${refused} refused`);
  // A refusal waits for a second.
  assert.ok(rate * seconds <= stored + OPENERS * (seconds + 1), `${rate} answers a second`);
});

const GUESSERS = 50;

test("wrong keys and tokens do not delay others, and few a second are answered", async (t) => {
  const operator = await operate(t, { settings: { ...SETTINGS, KHALA_AUTH_FAILURES_PER_MINUTE: "60" } });
  const victim = await Victim.start(t, operator);
  await victim.measureQuiet(t);
  for (const kind of ["keys", "tokens"]) {
    const rate = await annoy(t, operator, victim, `wrong ${kind} on one connection`, { kind, connections: 1, token: victim.token });
    assert.ok(rate < 50, `${rate} answers a second`);
    const rates = await annoy(t, operator, victim, `wrong ${kind} on ${GUESSERS}`, { kind, connections: GUESSERS, token: victim.token });
    assert.ok(rates < 2 * GUESSERS, `${rates} answers a second`);
  }
});

const NAMES = 1000;
const CROWD = 250;
const CROWD_BYTES_MAX = (SANITIZED ? 4 : 1) * 160e6; // the promised 64 MB, and what the requests leave behind

test(`${CROWD} connections with ${NAMES} names each take bounded memory, and do not delay others`, async (t) => {
  const operator = await operate(t, { settings: SETTINGS });
  const victim = await Victim.start(t, operator);
  await victim.measureQuiet(t);
  const before = memoryBytes(operator.server);
  const { host, port } = operator.server;
  const crowd = attackers(t, "crowd.mjs", { host, port, token: users(operator, "greedy"), connections: CROWD, names: NAMES });
  let isWhole = false;
  const whole = once(crowd, "message", "the subscriptions of all connections").finally(() => { isWhole = true; });
  while (!isWhole) await victim.rounds();
  const counts = await whole;
  const bytes = memoryBytes(operator.server) - before;
  victim.check(t, "names", `; ${JSON.stringify(counts)}, ${(bytes / 1e6).toFixed(0)} MB`);
  assert.ok(bytes < CROWD_BYTES_MAX, `${bytes} bytes`);
  crowd.send("close");
  await once(crowd, "message", "the end of the attack");
});
