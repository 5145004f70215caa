// Attacks that cost the client little: each runs beside a victim of another tenant, whose times are
// printed and may rise only within a wide bound. tests/lib/greedy.mjs explains the settings.
import assert from "node:assert/strict";
import { join } from "node:path";
import { test } from "node:test";
import { Victim } from "../lib/greedy.mjs";
import { folder, start } from "../lib/khala.mjs";
import { MEASURED } from "../lib/machine.mjs";
import { operate, UNHURRIED } from "../lib/operator.mjs";
import { Authority } from "../lib/tls.mjs";

const SETTINGS = { ...UNHURRIED, ...MEASURED, RUNTIME_KHALA_POLL_MIN_INTERVAL_MS: "0", KHALA_LOG_LEVEL: "error" };
const FLOODERS = 300;
const UPDATES = 4000; // of each flooder: 108 kB, more than a server reads in one turn
const SINGLE_BYTES = 20_000;

for (const [kind, records] of [["updates", UPDATES], ["requests", UPDATES], ["bytes", SINGLE_BYTES]]) {
  test(`a flood of TLS ${kind} on ${FLOODERS} connections does not delay others`, async (t) => {
    const authority = new Authority(folder(t));
    const operator = await operate(t, { authority, settings: { ...SETTINGS, ...Authority.settings(authority.issue("khala")) } });
    const victim = await Victim.start(operator);
    await victim.measureQuiet(t);
    const { host, port } = operator.server;
    const flood = start(t, [join(process.env.KHALA_BUILD, "tls_flood"), host, String(port), String(FLOODERS), kind, String(records)], { input: "pipe" });
    await flood.saw("out", /ready\n/);
    flood.child.stdin.write("go\n");
    await victim.rounds();
    const [, sent, ended] = await flood.saw("out", /sent (\d+) ended (\d+)\n/);
    victim.check(t, `a flood of TLS ${kind}`, `; ${sent} sent all, ${ended} ended`);
    if (kind !== "bytes") assert.equal(Number(ended), FLOODERS, "every flooding connection was closed");
  });
}
