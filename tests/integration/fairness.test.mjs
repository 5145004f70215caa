// One of a principal's topics floods; its others must not wait for it.
import assert from "node:assert/strict";
import { test } from "node:test";
import { operate } from "../lib/operator.mjs";
import { Client } from "../lib/phoenix.mjs";

const BACKLOG = 20_000;
// A topic of each tier, how one event is appended to it, and a batch's item.
const TIERS = {
  hot: { topic: "runtime.codex_worker_events", item: (payload) => ({ worker_id: "w", event_type: "worker.log", payload }) },
  warm: { topic: "run:a:events", item: (payload) => ({ run_id: "a", event_type: "run.log", payload }) },
  cold: { topic: "chat", item: (payload) => ({ topic: "chat", event_type: "said", payload }) },
};

const median = (times) => [...times].sort((a, b) => a - b)[Math.floor(times.length / 2)];

async function latency(operator, client, { topic, item }) {
  const begun = process.hrtime.bigint();
  const before = client.run(topic).at;
  await operator.batch([item({ quiet: true })]);
  await client.reached(topic, before + 1);
  return Number(process.hrtime.bigint() - begun) / 1e6;
}

const limited = async (operator) => (await operator.read("khala/fanout/metrics")).delivery_metrics.fairness_limited_polls;

async function flood(t, loud, quiet) {
  const operator = await operate(t, { settings: {
    RUNTIME_KHALA_RUN_EVENTS_REPLAY_BUDGET_EVENTS: "1000000",
    RUNTIME_KHALA_CODEX_WORKER_EVENTS_REPLAY_BUDGET_EVENTS: "1000000",
    RUNTIME_KHALA_FALLBACK_REPLAY_BUDGET_EVENTS: "1000000",
    RUNTIME_KHALA_WORKER_LIFECYCLE_REPLAY_BUDGET_EVENTS: "1000000",
    KHALA_IO_LOOPS: "1", // one line for all
    KHALA_SLOW_CONSUMER_CHECK_MS: "60000",
  } });
  for (const run_id of ["a", "b"]) await operator.did("runs", { run_id }, 201);
  await operator.did("workers", { worker_id: "w", owner_user_id: "u" }, 201);
  for (let i = 0; i < BACKLOG; i += 1000) {
    await operator.batch(Array.from({ length: 1000 }, () => loud.item({ text: "x".repeat(200) })));
  }
  await operator.batch([quiet.item({ first: true })]);
  const client = await Client.join(operator);
  await client.subscribe({ topics: [quiet.topic] });
  await client.until(() => client.run(quiet.topic).completes > 0, "the quiet topic");
  const alone = [];
  for (let i = 0; i < 30; i++) alone.push(await latency(operator, client, quiet));
  const before = await limited(operator);
  // The flood is replayed again and again, on the client's own connection and on two others.
  const beside = [];
  const floods = [client, await Client.join(operator), await Client.join(operator)];
  const again = (one) => {
    one.forget(loud.topic);
    one.pushes.length = 0;
    return one.subscribe({ topics: [loud.topic], resume_after: { [loud.topic]: 0 } });
  };
  while (beside.length < 30) {
    await Promise.all(floods.map(again));
    const busy = () => floods.every((one) => one.run(loud.topic).completes === 0);
    while (beside.length < 30 && busy()) {
      const took = await latency(operator, client, quiet);
      if (busy()) beside.push(took);
    }
    await Promise.all(floods.map((one) => one.until(() => one.run(loud.topic).completes > 0, "the end of a flood")));
  }
  const after = await limited(operator);
  assert.equal(client.run(quiet.topic).updates.length >= 60, true);
  return { alone_ms: median(alone), beside_ms: median(beside), limited: after - before };
}

for (const [loud, quiet] of [["hot", "warm"], ["hot", "cold"], ["warm", "warm"], ["warm", "cold"], ["cold", "hot"]]) {
  test(`a ${quiet} topic does not wait for a ${loud} one that floods, and the counter says who was cut short`, async (t) => {
    const other = loud === quiet ? { ...TIERS[quiet], topic: "run:b:events", item: (payload) => ({ run_id: "b", event_type: "run.log", payload }) }
      : TIERS[quiet];
    const seen = await flood(t, TIERS[loud], other);
    t.diagnostic(JSON.stringify(seen));
    assert.ok(seen.beside_ms < 20 * seen.alone_ms + 50, "it waits");
    assert.ok(seen.limited > 0, "nobody was cut short");
  });
}
