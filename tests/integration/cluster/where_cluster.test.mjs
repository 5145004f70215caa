// Filtered and conflated summaries on two nodes: a client that changes nodes in the middle keeps the right documents.
import assert from "node:assert/strict";
import { test } from "node:test";
import { pair } from "../../lib/cluster.mjs";
import { randomRun } from "../../lib/selected_run.mjs";

test("filtered collections equal a full scan at every position, whichever node serves", async (t) => {
  const { writer, follower } = await pair(t, { RUNTIME_KHALA_POLL_MIN_INTERVAL_MS: "0", KHALA_HEARTBEAT_MS: "50",
    RUNTIME_KHALA_CODEX_WORKER_SUMMARIES_SNAPSHOT_CADENCE_SECONDS: "1",
    RUNTIME_KHALA_CODEX_WORKER_SUMMARIES_REPLAY_BUDGET_EVENTS: "1000000" });
  const { wrong, checked } = await randomRun(t, [writer, follower], { changes: Number(process.env.KHALA_WHERE_CHANGES ?? 1000) });
  assert.deepEqual(wrong, []);
  t.diagnostic(`${checked} positions compared`);
});
