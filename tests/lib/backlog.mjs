// A backlog of appends behind a commit that is held, for tests of the order in which principals are served.
import assert from "node:assert/strict";
import { scrape } from "./prometheus.mjs";
import { range } from "./samples.mjs";
import { until } from "./wait.mjs";

export const TURN = 384; // events without payload
export const BATCHES = 8;
export const ITEMS = 1024; // items of each batch: four slices
const NDJSON = { "content-type": "application/x-ndjson" };

export const groupsOf = async (operator) => (await scrape(operator)).get("khala_store_queue_groups");

export const lineOf = (run_id) => `${JSON.stringify({ run_id, event_type: "run.log" })}\n`;

export const producer = (operator, oa_user_id) => ({ authorization: `Bearer ${operator.sign({ oa_user_id, oa_sync_scopes: ["runtime.append"] })}` });

/** Runs of users with the same names. */
export async function runs(operator, ...names) {
  for (const name of names) await operator.did("runs", { run_id: name, owner_user_id: name }, 201);
}

/**
 * Appends an event whose commit is kept waiting, so that all later groups wait behind it. holdWriter keeps the writer waiting
 * until its answer is called. Answers a function that lets the commit go on.
 */
export async function hold(operator, holdWriter) {
  const release = await holdWriter();
  const held = operator.did("topics/held/events", { event_type: "x" });
  await until(async () => await groupsOf(operator) > 0, "the commit that is held");
  return async () => { await release(); await held; };
}

/** Sends batches to the run of that name. When their groups wait at the writer, answers the check of their results. */
export async function backlog(node, writer, name, headers) {
  const before = await groupsOf(writer);
  const answers = range(1, BATCHES).map(() => node.ask("POST", "/v1/events:batch", lineOf(name).repeat(ITEMS), { ...headers, ...NDJSON }));
  await until(async () => await groupsOf(writer) >= before + 3 * BATCHES, `the batches of ${name}`);
  return async () => {
    for (const { status, body } of await Promise.all(answers)) {
      assert.equal(status, 200, body);
      const results = body.trim().split("\n").map((line) => JSON.parse(line));
      assert.deepEqual(results.map((one) => one.status), Array(ITEMS).fill(200));
      assert.ok(results.every((one, i) => i === 0 || one.event.seq > results[i - 1].event.seq), "the slices are in order");
    }
  };
}

/** Appends one event. When it waits at the writer, answers the promise of its place in the log. */
export async function single(node, writer, name, path, headers) {
  const before = await groupsOf(writer);
  const answer = node.ask("POST", `${path}/runs/${name}/events`, JSON.stringify({ event_type: "run.log" }), headers);
  await until(async () => await groupsOf(writer) > before, `the append of ${name}`);
  return async () => {
    const { status, body } = await answer;
    assert.equal(status, 200, body);
    const { event_id } = JSON.parse(body).event;
    return (await writer.log()).findIndex((event) => event.event_id === event_id);
  };
}
