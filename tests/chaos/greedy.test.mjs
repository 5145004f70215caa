// One principal is as greedy as it can be, beside a victim of another tenant that appends, polls, joins
// and streams. The victim's times are printed for each attack and may rise only within a wide bound. The
// memory of answers that are not read stays bounded, and after each attack the server is idle again.
// tests/lib/greedy.mjs explains the settings.
import assert from "node:assert/strict";
import { test } from "node:test";
import { setTimeout } from "node:timers/promises";
import { attackers } from "../lib/attackers.mjs";
import { idle, kernelBytes, users, Victim } from "../lib/greedy.mjs";
import { MEASURED, memoryBytes, SANITIZED } from "../lib/machine.mjs";
import { operate, UNHURRIED } from "../lib/operator.mjs";
import { pollPath } from "../lib/paths.mjs";
import { range } from "../lib/samples.mjs";
import { once } from "../lib/wait.mjs";

const CONNECTIONS = 200; // of the greedy principal
const GONE_MS = 300; // the length of the attack whose clients do not wait for their answers
const LOG_EVENTS = 10_000;
const PAGE_EVENTS = 200;
const SHARED = "runtime.codex_worker_events";
const KERNEL_BYTES_MAX = 128e6;
const MEMORY_BYTES_MAX = (SANITIZED ? 4 : 1) * 512e6;

/** A log of other tenants, and a run of the greedy principal with wide events. */
async function fill(operator) {
  await operator.did("workers", { worker_id: "w", owner_user_id: "other" }, 201);
  await operator.batch(range(1, LOG_EVENTS).map((i) => ({ worker_id: "w", event_type: "worker.log", payload: { i } })));
  await operator.did("runs", { run_id: "wide", owner_user_id: "greedy" }, 201);
  await operator.batch(range(1, PAGE_EVENTS).map((i) => ({ run_id: "wide", event_type: "run.log", payload: { i, text: "x".repeat(6000) } })));
}

function requestOf(method, path, token, body = "") {
  return [`${method} ${path} HTTP/1.1`, "Host: khala", `Authorization: Bearer ${token}`, `Content-Length: ${body.length}`, "", body].join("\r\n");
}

function attacks(operator) {
  const token = users(operator, "greedy");
  const auditor = users(operator, "greedy", ["runtime.audit"]);
  const plan = (seqs) => requestOf("POST", "/v1/cursors/plan", token, JSON.stringify(seqs.map((after_seq) => ({ topic: SHARED, after_seq }))));
  return {
    "plans of equal cursors": { request: plan(range(1, 1000).map(() => 0)), connections: 60, reads: true, isGone: true },
    "plans of different cursors": { request: plan(range(0, 999)), connections: 60, reads: true },
    "pages of the log": { request: requestOf("GET", "/api/events?limit=200", auditor), connections: CONNECTIONS, reads: true },
    "exports": { request: requestOf("GET", "/api/events/export", auditor), connections: CONNECTIONS, reads: true },
    "answers that are not read": { request: requestOf("GET", pollPath("run:wide:events", "after_seq=0&limit=200"), token), connections: CONNECTIONS, reads: false },
  };
}

async function attack(t, operator, victim, name, { isGone, ...clients }) {
  const { host, port } = operator.server;
  const before = kernelBytes();
  const greedy = attackers(t, "greedy_clients.mjs", { host, port, ...clients });
  await once(greedy, "message", `the requests of ${name}`);
  const end = () => { greedy.send("close"); return once(greedy, "message", "the end of the attack"); };
  // Some clients go soon: the victim must not pay for the work that they left behind.
  if (isGone) await setTimeout(GONE_MS);
  let counts = isGone ? await end() : null;
  let kernel = 0;
  await victim.rounds(() => { kernel = Math.max(kernel, kernelBytes() - before); });
  counts ??= await end();
  const idleMs = await idle(operator, name);
  victim.check(t, name, `; kernel ${(kernel / 1e6).toFixed(0)} MB; idle after ${idleMs.toFixed(0)} ms; ${JSON.stringify(counts)}`);
  assert.ok(kernel < KERNEL_BYTES_MAX, `${name}: ${kernel} bytes in the kernel`);
}

test("a greedy principal does not starve another, and leaves nothing behind", async (t) => {
  const operator = await operate(t, { settings: { ...UNHURRIED, ...MEASURED, RUNTIME_KHALA_POLL_MIN_INTERVAL_MS: "0",
    RUNTIME_KHALA_CODEX_WORKER_EVENTS_REPLAY_BUDGET_EVENTS: "100000", KHALA_LOG_LEVEL: "error" } });
  await fill(operator);
  const victim = await Victim.start(t, operator);
  await victim.measureQuiet(t);
  for (const [name, clients] of Object.entries(attacks(operator))) await attack(t, operator, victim, name, clients);
  assert.ok(memoryBytes(operator.server, "VmHWM") < MEMORY_BYTES_MAX, `${memoryBytes(operator.server, "VmHWM")} bytes of memory`);
});
