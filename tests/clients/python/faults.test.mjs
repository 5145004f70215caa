// Python clients, a collection and a producer behind a proxy that damages connections at random by
// seed. In the end each has the state of the authority: no frame twice, none missing.
// The faults end after KHALA_FAULTS of them or after KHALA_FAULT_SECONDS. KHALA_SEED sets the seed.
import assert from "node:assert/strict";
import { test } from "node:test";
import { operate } from "../../lib/operator.mjs";
import { range } from "../../lib/samples.mjs";
import { until } from "../../lib/wait.mjs";
import { FaultProxy } from "../proxy.mjs";
import { Python } from "./client.mjs";

const FAULTS = Number(process.env.KHALA_FAULTS ?? 300);
const SEED = Number(process.env.KHALA_SEED ?? Date.now() % 1_000_000);
const SECONDS = Number(process.env.KHALA_FAULT_SECONDS ?? 3);
const WAIT_MS = 60_000 + SECONDS * 1000;
const HASTE = [0.002, 0.02];
const TOPICS = ["room:1", "room:2"];
const SUMMARIES = "runtime.run_summaries";

test(`up to ${FAULTS} faults, seed ${SEED}: every client ends with the state of the authority`, async (t) => {
  const operator = await operate(t, { settings: { RUNTIME_KHALA_POLL_MIN_INTERVAL_MS: "0", KHALA_HEARTBEAT_MS: "50" } });
  const python = await Python.start(t);
  const proxies = [];
  const proxied = async (options) => {
    proxies.push(await FaultProxy.start(t, () => operator.server.url, { seed: SEED + proxies.length, ...options }));
    return proxies.at(-1).url;
  };
  const connect = async (transport) => python.open(t, { url: await proxied(), token: operator.reader, back_off: HASTE, transports: [transport] });
  const clients = [];
  for (const transport of ["websocket", "sse", "poll"]) {
    const khala = await connect(transport);
    for (const topic of TOPICS) clients.push({ transport, topic, seen: await python.follow(khala, topic) });
  }
  const board = await python.collect(await connect("websocket"), SUMMARIES);
  await operator.did("runs", { run_id: "a" }, 201);
  const producer = await python.produce(t, {
    url: await proxied({ bytesMax: 2000 }), back_off: HASTE, request_timeout: 10, token: operator.sign({ oa_sync_scopes: ["runtime.append"], oa_sync_topics: TOPICS }),
  });
  const total = () => proxies.reduce((sum, proxy) => sum + proxy.total, 0);
  const sent = Object.fromEntries(TOPICS.map((topic) => [topic, 0]));
  const begun = performance.now();
  const answers = [];
  // Two bursts are on their way at a time, so the queue never fills up.
  const burst = async () => {
    for (let round = 0; total() < FAULTS && performance.now() - begun < SECONDS * 1000; round++) {
      const events = TOPICS.map((topic) => ({ topic, event_type: "said", payload: { topic, n: ++sent[topic], text: "x".repeat(sent[topic] % 300) } }));
      answers.push(...await producer.append(...events));
      if (round % 20 === 0) await operator.did("runs/a/events", { event_type: "run.log", payload: {} });
    }
  };
  const bursts = Promise.all([burst(), burst()]);
  await until(() => total() >= FAULTS || performance.now() - begun > SECONDS * 1000, `${FAULTS} faults`, WAIT_MS);
  for (const proxy of proxies) proxy.heal();
  await bursts;
  assert.deepEqual(answers.filter(({ error }) => error), []);
  assert.equal(new Set(answers.map(({ event }) => event.event_id)).size, sent["room:1"] + sent["room:2"]);
  for (const { transport, topic, seen } of clients) {
    await seen.until(() => seen.frames.length >= sent[topic] || seen.end, `${sent[topic]} frames of ${topic} over ${transport}`, WAIT_MS);
    assert.equal(seen.end, undefined, JSON.stringify(seen.end));
    const { events } = await operator.read(`topics/${topic}/events?limit=1000`);
    if (sent[topic] <= events.length) assert.deepEqual(seen.frames.map(({ event_id }) => event_id), events.map(({ event_id }) => event_id), topic);
    assert.deepEqual(seen.frames.map(({ seq }) => seq), range(1, sent[topic]), topic);
    assert.deepEqual(seen.frames.map(({ payload }) => payload.n).sort((a, b) => a - b), range(1, sent[topic]), topic);
    assert.ok(seen.frames.every(({ payload }) => payload.topic === topic), topic);
    assert.deepEqual(seen.resets, [{ reason: "start", from_seq: 1, truncated: false }]);
    assert.equal(JSON.parse((await operator.poll(topic, "after_seq=0")).body).head_cursor, sent[topic], "each event was stored once");
  }
  const summary = await operator.read("projectors/run-summary/a");
  await until(async () => (await board.get("a"))?.latest_seq === summary.latest_seq, "the summary", WAIT_MS);
  assert.deepEqual(await board.get("a"), summary);
  assert.equal(python.stderr, "");
  const counts = proxies.reduce((sum, { counts: some }) => Object.fromEntries(Object.entries(some).map(([name, n]) => [name, n + (sum[name] ?? 0)])), {});
  t.diagnostic(`${total()} faults ${JSON.stringify(counts)}, ${answers.length} events`);
});
