// Filtered collections of the JavaScript client: what matches, what stops matching and what begins to, on every transport.
import assert from "node:assert/strict";
import { test } from "node:test";
import { isDeepStrictEqual } from "node:util";
import { folder } from "../../lib/khala.mjs";
import { operate } from "../../lib/operator.mjs";
import { range } from "../../lib/samples.mjs";
import { until } from "../../lib/wait.mjs";
import { open, TRANSPORTS } from "./client.mjs";

const SUMMARIES = "runtime.run_summaries";
const COUNT = 30;

const finish = (operator, run, status) => operator.did(`runs/${run}/events`, { event_type: "run.finished", payload: { status } });

/** The summaries of the authority that a filter by status matches, by key. */
async function scan(operator, runs, statuses) {
  const all = await Promise.all(runs.map((run) => operator.read(`projectors/run-summary/${run}`)));
  return new Map(all.filter(({ status }) => statuses.includes(status)).map((one) => [`runtime/run_summary:${one.run_id}`, one]));
}

for (const transport of TRANSPORTS) {
  test(`a collection holds the runs that match, while they change and after a crash, over ${transport}`, async (t) => {
    const data = folder(t);
    const world = { operator: await operate(t, { data, settings: { RUNTIME_KHALA_POLL_MIN_INTERVAL_MS: "0" } }) };
    const { server } = world.operator;
    for (const n of range(1, COUNT)) await world.operator.did("runs", { run_id: `r${n}`, owner_user_id: "ada" }, 201);
    for (const n of range(1, 10)) await finish(world.operator, `r${n}`, n % 2 ? "succeeded" : "failed");
    const khala = open(t, { server, sign: (claims) => world.operator.sign(claims) }, { transports: [transport] });
    const open_ = khala.collection(SUMMARIES, { where: { status: "running" } });
    const ended = khala.collection(SUMMARIES, { where: { status: ["failed", "canceled"] } });
    const changes = [];
    t.after(open_.subscribe((change) => changes.push(change)));
    t.after(ended.open());
    await Promise.all([open_.ready, ended.ready]);
    assert.equal(open_.size, COUNT - 10);
    assert.equal(ended.size, 5);
    const runs = range(1, COUNT).map((n) => `r${n}`);
    const equal = (all, statuses) => until(async () => isDeepStrictEqual(all.snapshot(), await scan(world.operator, runs, statuses)), `what is ${statuses}`);
    changes.length = 0;
    await finish(world.operator, "r11", "failed");
    await until(() => changes.length > 0, "the end of a run");
    assert.deepEqual(changes.map(({ type, key }) => [type, key]), [["removed", "runtime/run_summary:r11"]]);
    assert.equal(open_.get("r11"), undefined);
    await until(() => ended.get("r11")?.status === "failed", "the run in the other collection");
    await world.operator.did("runs", { run_id: "new", owner_user_id: "ada" }, 201);
    runs.push("new");
    await until(() => open_.get("new")?.status === "running", "a new run");
    await equal(open_, ["running"]);
    await world.operator.server.crash();
    world.operator = await operate(t, { data, bind: `127.0.0.1:${server.port}` });
    for (const n of range(12, 20)) await finish(world.operator, `r${n}`, n % 2 ? "succeeded" : "canceled");
    await equal(open_, ["running"]);
    await equal(ended, ["failed", "canceled"]);
  });
}

test("a collection gets the newest of a document that changes often, a few times a second", async (t) => {
  const operator = await operate(t);
  await operator.did("runs", { run_id: "busy", owner_user_id: "ada" }, 201);
  const khala = open(t, { server: operator.server, sign: (claims) => operator.sign(claims) });
  const runs = khala.collection(SUMMARIES);
  let changes = 0;
  t.after(runs.subscribe(({ type }) => { changes += type === "set" ? 1 : 0; }));
  await runs.ready;
  const begun = performance.now();
  for (let i = 0; i < 300; i++) await operator.did("runs/busy/events", { event_type: "run.log", payload: { i } });
  await until(() => runs.get("busy").latest_seq === 301, "the last event");
  const windows = Math.ceil((performance.now() - begun) / 250) + 2;
  assert.ok(changes <= windows, `${changes} changes in ${windows} intervals`);
});
