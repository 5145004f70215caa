// Appends of many principals: each waits for at most one turn of each other one, and batches keep their order across slices.
// A held writer makes the backlog, and the order of the log shows who waited for whom.
import assert from "node:assert/strict";
import { test } from "node:test";
import { backlog, BATCHES, groupsOf, hold, ITEMS, lineOf, producer, runs, single, TURN } from "../../lib/backlog.mjs";
import { operate } from "../../lib/operator.mjs";
import { scrape } from "../../lib/prometheus.mjs";
import { holdWriter } from "../../lib/store.mjs";
import { until } from "../../lib/wait.mjs";

const NDJSON = { "content-type": "application/x-ndjson" };

for (const [kind, path, headersOf] of [["token", "/v1", producer], ["operator", "/internal/v1", () => ({})]]) {
  test(`a single append by ${kind} waits for at most one turn of another owner`, async (t) => {
    const operator = await operate(t);
    await runs(operator, "a", "b");
    const release = await hold(operator, () => holdWriter(t, operator.data));
    const answered = await backlog(operator, operator, "a", producer(operator, "a"));
    const placed = await single(operator, operator, "b", path, headersOf(operator, "b"));
    await release();
    await answered();
    const place = await placed();
    // Behind two creations, the event that was held, and one turn.
    assert.ok(place > 3 && place <= 3 + TURN, `the append is event ${place} of ${BATCHES * ITEMS}`);
  });
}

test("an item that is refused is not overtaken by later slices of its batch, beside other batches", async (t) => {
  const rate = 300;
  const operator = await operate(t, { settings: { RUNTIME_KHALA_RUN_EVENTS_PUBLISH_RATE_PER_SECOND: String(rate) } });
  await runs(operator, "a", "b", "c");
  const release = await hold(operator, () => holdWriter(t, operator.data));
  const before = await groupsOf(operator);
  const lines = lineOf("a").repeat(ITEMS - 1) + lineOf("c");
  const answers = ["a", "b"].map((name) => operator.ask("POST", "events:batch", name === "a" ? lines : lineOf("b").repeat(ITEMS), NDJSON));
  await until(async () => await groupsOf(operator) >= before + 7, "the slices of both batches");
  await release();
  const results = (await answers[0]).body.trim().split("\n").map((line) => JSON.parse(line).status);
  const accepted = results.findIndex((status) => status !== 200);
  assert.ok(accepted >= rate - 1, `${accepted} accepted`);
  assert.deepEqual(results.slice(accepted), [429, ...Array(ITEMS - 2 - accepted).fill(424), 200]);
  assert.equal((await answers[1]).status, 200);
});

test("what waits of a batch whose client is gone is not appended", async (t) => {
  const operator = await operate(t);
  await runs(operator, "a", "b");
  const release = await hold(operator, () => holdWriter(t, operator.data));
  const before = await groupsOf(operator);
  const { request, answer } = operator.begin("POST", "events:batch", NDJSON);
  answer.catch(() => {});
  request.write(lineOf("a").repeat(ITEMS));
  await until(async () => await groupsOf(operator) >= before + 3, "the slices");
  const connections = async () => (await scrape(operator)).get("khala_http_connections");
  const open = await connections();
  request.destroy();
  await until(async () => await connections() < open, "the end of the connection");
  await release();
  await until(async () => await groupsOf(operator) === 0, "an empty queue");
  assert.equal((await operator.events("a")).length, 1);
  assert.equal((await operator.did("runs/b/events", { event_type: "x" })).event.seq, 2);
});
