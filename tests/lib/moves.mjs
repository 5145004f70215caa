// A store with rows of every kind, for tests that move it, and the state that its clients see.
import assert from "node:assert/strict";
import { run } from "./khala.mjs";
import { operate, UNHURRIED } from "./operator.mjs";
import { pollPath, snapshotPath, streamPath } from "./paths.mjs";
import { reports } from "./samples.mjs";
import { Stream } from "./sse.mjs";

export const SETTINGS = { ...UNHURRIED, RUNTIME_KHALA_RETENTION_INTERVAL_MS: "86400000", RUNTIME_KHALA_POLL_MIN_INTERVAL_MS: "0" };
export const EVENT_ID = "018f3b7e-1000-7000-8000-00000000000a";
const DAY_MS = 86_400_000;

/** Runs a verb that must succeed, and answers its output. */
export function succeed(args, settings = {}) {
  const { code, out, problem } = run(args, { settings });
  assert.equal(code, 0, `${args.join(" ")}: ${problem}`);
  return out;
}

/** Opens a stream with a token that may be used once; answers 200 or the reason of the refusal. */
export async function openOnce(operator, token) {
  const stream = await Stream.open(operator, streamPath("app.t", `token=${token}`));
  if (stream.status !== 200) return (await stream.refused())[1];
  stream.close();
  return 200;
}

const ONCE = { ...SETTINGS, RUNTIME_SYNC_TOKEN_SINGLE_USE: "true" };

/** Fills an embedded store: pruned topics, a journal that was rebuilt, later events, revoked and used tokens. */
export async function fill(t, data) {
  const embedded = { DB_URL: "" };
  const first = await operate(t, { data, settings: { ...ONCE, ...embedded } });
  for (const [i, owner] of [{ owner_user_id: "ada", org_id: "o" }, { owner_guest_scope: "g\"1" }, {}].entries()) {
    await first.did("runs", { run_id: `r${i}`, thread_id: "t", metadata: { b: [1.5, "é"] }, idempotency_key: `new-${i}`, ...owner }, 201);
    await first.did(`runs/r${i}/events`, { event_type: "run.log", payload: { i, text: "a\nb" }, idempotency_key: "once" });
  }
  await first.did("workers", { worker_id: "w", owner_user_id: "ada", metadata: { a: 1 } }, 201);
  await first.did("workers/w/heartbeat", { metadata_patch: { a: null, b: 2 } });
  await first.did("topics/app.t/events", { event_type: "x", owner_guest_scope: "g" });
  await first.did("notifications", { org_id: "o1", payload: { n: 1 }, idempotency_key: "once" });
  await first.did("/api/events/ingest", { event_type: "login" });
  await first.server.stop();
  succeed(["retention", "run-once", "--data-dir", data], { ...embedded, KHALA_CLOCK_OFFSET_MS: String(40 * DAY_MS) });
  succeed(["reproject", "--all", "--journal", "--data-dir", data], embedded);
  const operator = await operate(t, { data, settings: { ...ONCE, ...embedded } });
  await operator.did("runs/r0/events", { event_type: "run.finished", payload: { status: "cancelled", reason: "x" } });
  await operator.did("runs", { run_id: "r3", parent_run_id: "r1", owner_guest_scope: "g\"1", title: "T", tags: ["c"] }, 201);
  await operator.batch(reports("r1"));
  await operator.did("runs/r1/events", { event_type: "run.cancel_requested", event_id: EVENT_ID });
  await operator.did("workers/w/events", { event_type: "worker.response", payload: { n: 1 } });
  await operator.did("workers/w/status", { status: "failed", reason: "why" });
  await operator.did("topics/app.t/events", { event_type: "x", payload: { text: "later" } });
  await operator.did("notifications", { org_id: "o1", payload: { n: 2 } });
  await operator.did("/api/events/ingest", { event_type: "logout" });
  await operator.batch(Array.from({ length: 2500 }, (_, i) => ({ run_id: "r2", event_type: "run.log", payload: { i, text: "y".repeat(i % 90) } })));
  const claims = { oa_sync_scopes: ["runtime.read_all"] };
  const tokens = { used: operator.sign(claims), revoked: operator.sign({ ...claims, oa_session_id: "lost" }) };
  assert.equal(await openOnce(operator, tokens.used), 200);
  await operator.did("sync/sessions/revoke", { session_ids: ["lost"], reason: "test" });
  return { operator, tokens };
}

const TOPICS = ["run:r0:events", "run:r1:events", "run:r2:events", "worker:w:lifecycle", "app.t", "runtime.notifications",
  "runtime.run_summaries", "runtime.codex_worker_summaries", "runtime.codex_worker_events", "fleet:user:ada:workers"];
const PATHS = ["runs?limit=100", "workers?limit=100", "topics?limit=100", "runs/r0", "runs/r1", "runs/r2/receipt", "runs/r2/replay",
  "projectors/run-summary/r0", "projectors/run-summary/r1", "projectors/run-summary/r2", "projectors/run-summary/r3", "projectors/worker-summary/w", "projectors/drift",
  "projectors/checkpoints/run_summary/r2", "/api/events/export", "/api/events?limit=200",
  snapshotPath("runtime.run_summaries")];

/** Checks that two states are equal, and names the first paths that differ. */
export function assertSame(found, wanted) {
  const different = Object.keys(wanted).filter((path) => found[path] !== wanted[path]);
  assert.deepEqual(different, [], different.slice(0, 2).map((path) => `${found[path]}\n${wanted[path]}`).join("\n").slice(0, 4000));
}

/** The answers that clients get, by path, byte by byte. */
export async function stateOf(operator) {
  const state = {};
  for (const path of [...PATHS, ...TOPICS.map((topic) => pollPath(topic, "after_seq=0&limit=1000"))]) {
    const { status, body } = await operator.get(path);
    // Advice to this client at this moment.
    state[path] = `${status} ${body.replace(/"(recommended_reconnect_backoff_ms|active_topic_count)":\d+/g, '"$1":0')}`;
  }
  return state;
}
