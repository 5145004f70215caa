// Filtered collections of the Python client: what matches, what stops matching and what begins to, on every transport.
import { test } from "node:test";
import { isDeepStrictEqual } from "node:util";
import { operate } from "../../lib/operator.mjs";
import { range } from "../../lib/samples.mjs";
import { until } from "../../lib/wait.mjs";
import { Python } from "./client.mjs";

const SUMMARIES = "runtime.run_summaries";
const COUNT = 12;
const python = await Python.ofFile();

for (const transport of ["websocket", "sse", "poll"]) {
  test(`two collections with different filters hold the runs that match, over ${transport}`, async (t) => {
    const operator = await operate(t, { settings: { RUNTIME_KHALA_POLL_MIN_INTERVAL_MS: "0" } });
    const runs = range(1, COUNT).map((n) => `r${n}`);
    const finish = (run, status) => operator.did(`runs/${run}/events`, { event_type: "run.finished", payload: { status } });
    const scan = async (statuses) => {
      const all = await Promise.all(runs.map((run) => operator.read(`projectors/run-summary/${run}`)));
      return Object.fromEntries(all.filter(({ status }) => statuses.includes(status)).map((one) => [`runtime/run_summary:${one.run_id}`, one]));
    };
    const equal = (one, statuses) => until(async () => isDeepStrictEqual((await one.look()).documents, await scan(statuses)), `what is ${statuses}`);
    for (const run_id of runs) await operator.did("runs", { run_id, owner_user_id: "ada" }, 201);
    await finish("r1", "failed");
    const client = await python.open(t, { url: operator.server.url, token: operator.reader, transports: [transport] });
    const open = await python.collect(client, SUMMARIES, { where: { status: "running" } });
    const ended = await python.collect(client, SUMMARIES, { where: { status: ["failed", "canceled"] } });
    await equal(open, ["running"]);
    await equal(ended, ["failed", "canceled"]);
    await finish("r2", "canceled");
    await finish("r3", "succeeded");
    await open.changes.until(() => open.changes.all.filter(({ type }) => type === "removed").length === 2, "two removed runs");
    runs.push("new");
    await operator.did("runs", { run_id: "new", owner_user_id: "ada" }, 201);
    await equal(open, ["running"]);
    await equal(ended, ["failed", "canceled"]);
  });
}
