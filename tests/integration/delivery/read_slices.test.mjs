// A long read of the store runs in slices of bounded work. Between two slices the reads of other principals
// have their turn, so that no read holds a thread of the store pool for long.
import assert from "node:assert/strict";
import { test } from "node:test";
import { operate } from "../../lib/operator.mjs";
import { pollPath } from "../../lib/paths.mjs";
import { Client } from "../../lib/phoenix.mjs";
import { scrape } from "../../lib/prometheus.mjs";
import { events, range } from "../../lib/samples.mjs";

const SHARED = "runtime.codex_worker_events";
const RUN = "run:r:events";
const FRAMES = 3500;
const HEAD = FRAMES + 2; // of the shared topic: each worker has a first event
const SLICES = Math.floor(FRAMES / 1024); // at least, to look at all frames
const TOPICS = 500;
const TOPIC_SLICES = Math.floor(TOPICS / 64);

/** A shared topic with many frames of one user and one frame of another, and a run with many events. */
async function filled(t) {
  const operator = await operate(t, { settings: { RUNTIME_KHALA_POLL_MIN_INTERVAL_MS: "0", RUNTIME_KHALA_CODEX_WORKER_EVENTS_REPLAY_BUDGET_EVENTS: "10" } });
  await operator.did("workers", { worker_id: "few", owner_user_id: "few" }, 201);
  await operator.did("workers", { worker_id: "w", owner_user_id: "owner" }, 201);
  await operator.batch(events(FRAMES, { event_type: "worker.log" }).map(({ run_id: _, ...item }) => ({ worker_id: "w", ...item })));
  await operator.did("runs", { run_id: "r", owner_user_id: "owner" }, 201);
  await operator.batch(events(FRAMES, { run_id: "r" }));
  return operator;
}

const userOf = (operator, oa_user_id, scopes = ["runtime.run_events", "runtime.codex_worker_events"]) => operator.sign({ oa_user_id, oa_sync_scopes: scopes });

/** Sends a request and answers its body, which must be 200. */
async function read(operator, token, method, path, body) {
  const response = await operator.ask(method, path, body && JSON.stringify(body), { authorization: `Bearer ${token}` });
  assert.equal(response.status, 200, response.body);
  return response.body;
}

async function planOf(operator, user, cursor) {
  return JSON.parse(await read(operator, userOf(operator, user), "POST", "/v1/cursors/plan", [cursor])).plans[0];
}

async function planCountsAndMeasures(operator) {
  const plan = await planOf(operator, "few", { topic: SHARED, after_seq: 1 });
  assert.deepEqual([plan.decision, plan.replay_events], ["resume", 0]);
}

async function planMeasuresAll(operator) {
  const plan = await planOf(operator, "owner", { topic: RUN, after_seq: 1 });
  assert.deepEqual([plan.decision, plan.replay_events], ["resume", FRAMES]);
}

/** The only frame of the user is far before the last ones of the topic. */
async function pollBootstraps(operator) {
  const page = JSON.parse(await read(operator, userOf(operator, "few"), "GET", pollPath(SHARED, "limit=1")));
  assert.deepEqual(page.messages.map(({ seq }) => seq), [1]);
}

/** Most frames of the owner are not among the last ones that its budget allows. */
async function pollSkipsFrames(operator) {
  const page = JSON.parse(await read(operator, userOf(operator, "owner"), "GET", pollPath(SHARED, "limit=1")));
  assert.deepEqual(page.messages.map(({ seq }) => seq), [HEAD - 9]);
}

async function subscribes(operator) {
  const client = await Client.join(operator);
  await client.subscribe({ streams: range(1, TOPICS).map((i) => `runtime.run.x${i}.events`) });
  client.close();
}

async function listsTheLog(operator) {
  const page = JSON.parse(await read(operator, userOf(operator, "few", ["runtime.audit"]), "GET", "/api/events?limit=200"));
  assert.deepEqual([page.items.length, page.has_more], [1, false]);
}

async function exportsTheLog(operator) {
  const lines = (await read(operator, userOf(operator, "few", ["runtime.audit"]), "GET", "/api/events/export")).trim().split("\n");
  assert.equal(JSON.parse(lines.at(-1)).manifest.count, 1);
}

const CASES = [
  ["a plan that counts and measures the frames of its reader", 2 * SLICES, planCountsAndMeasures],
  ["a plan that measures all frames", SLICES, planMeasuresAll],
  ["a bootstrap that looks for the first frame of its reader", SLICES, pollBootstraps],
  ["a bootstrap that skips frames of its reader", 2 * SLICES, pollSkipsFrames],
  ["a subscription to many topics", 3 * TOPIC_SLICES, subscribes], // resolved, entitled and compared
  ["a page of the log", 2 * SLICES, listsTheLog],
  ["an export of the log", 2 * SLICES, exportsTheLog],
];

test("long reads of the store run in slices", async (t) => {
  const operator = await filled(t);
  const slices = async () => (await scrape(operator)).get("khala_store_reads_total");
  for (const [name, count, act] of CASES) {
    await t.test(name, async () => {
      const before = await slices();
      await act(operator);
      const taken = await slices() - before;
      assert.ok(taken >= count, `${taken} slices of at least ${count}`);
    });
  }
});
