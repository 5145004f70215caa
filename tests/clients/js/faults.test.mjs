// Clients of every transport, a collection and a producer behind a proxy that damages connections at
// random by seed. In the end each has the state of the authority: no frame twice, none missing.
// The faults end after KHALA_FAULTS of them or after KHALA_FAULT_SECONDS. KHALA_SEED sets the seed.
import assert from "node:assert/strict";
import { test } from "node:test";
import WebSocket from "ws";
import { Khala } from "../../../clients/js/src/khala.js";
import { Producer } from "../../../clients/js/src/producer.js";
import { operate } from "../../lib/operator.mjs";
import { range } from "../../lib/samples.mjs";
import { until } from "../../lib/wait.mjs";
import { FaultProxy } from "../proxy.mjs";
import { follow, TRANSPORTS } from "./client.mjs";

const FAULTS = Number(process.env.KHALA_FAULTS ?? 1000);
const SEED = Number(process.env.KHALA_SEED ?? Date.now() % 1_000_000);
const SECONDS = Number(process.env.KHALA_FAULT_SECONDS ?? 8);
const WAIT_MS = 60_000 + SECONDS * 1000;
const HASTE = { baseMs: 2, maxMs: 20 };
const TOPICS = ["room:1", "room:2"];
const SUMMARIES = "runtime.run_summaries";

test(`up to ${FAULTS} faults, seed ${SEED}: every client ends with the state of the authority`, async (t) => {
  const operator = await operate(t, { settings: { RUNTIME_KHALA_POLL_MIN_INTERVAL_MS: "0", KHALA_HEARTBEAT_MS: "1000" } });
  const target = () => operator.server.url;
  const proxies = [];
  const proxied = async (options) => {
    proxies.push(await FaultProxy.start(t, target, { seed: SEED + proxies.length, ...options }));
    return proxies.at(-1).url;
  };
  const { reader } = operator;
  const token = async () => reader;
  const clients = [];
  const connect = async (transport) => {
    const khala = new Khala({ url: await proxied(), token, WebSocket, transports: [transport], backOff: HASTE });
    t.after(() => khala.close());
    return khala;
  };
  for (const transport of TRANSPORTS) {
    const khala = await connect(transport);
    for (const topic of TOPICS) clients.push({ transport, topic, seen: follow(khala, topic) });
  }
  const board = (await connect("websocket")).collection(SUMMARIES);
  board.open();
  await operator.did("runs", { run_id: "a" }, 201);

  const writer = operator.sign({ oa_sync_scopes: ["runtime.append"], oa_sync_topics: TOPICS });
  const sender = new Producer({
    url: await proxied({ bytesMax: 2000 }), backOff: HASTE, requestTimeoutMs: 10_000,
    token: async () => writer,
  });
  t.after(() => sender.close());
  const sent = { "room:1": 0, "room:2": 0 };
  const total = () => proxies.reduce((sum, proxy) => sum + proxy.total, 0);
  const appends = [];
  const begun = performance.now();
  await until(async () => {
    for (const topic of sender.length < 100 ? TOPICS : []) {
      appends.push(sender.append({ topic, event_type: "said", payload: { topic, n: ++sent[topic], text: "x".repeat(sent[topic] % 300) } }));
      appends.at(-1).catch(() => {});
    }
    if (sent["room:1"] % 20 === 0) await operator.did("runs/a/events", { event_type: "run.log", payload: {} });
    return total() >= FAULTS || performance.now() - begun > SECONDS * 1000;
  }, `${FAULTS} faults`, WAIT_MS);
  for (const proxy of proxies) proxy.heal();
  const answers = await Promise.all(appends);
  assert.equal(new Set(answers.map(({ event }) => event.event_id)).size, appends.length);

  for (const topic of TOPICS) {
    const { head_cursor } = JSON.parse((await operator.poll(topic, "after_seq=0")).body);
    assert.equal(head_cursor, sent[topic], "each event was stored once");
  }
  for (const { transport, topic, seen } of clients) {
    await seen.until(() => seen.frames.length >= sent[topic] || seen.end, `${sent[topic]} frames of ${topic} over ${transport}`, WAIT_MS);
    assert.equal(seen.end, undefined, String(seen.end?.error?.stack));
    assert.deepEqual(seen.frames.map((frame) => frame.payload.n), range(1, sent[topic]), `${topic} over ${transport}`);
    assert.ok(seen.frames.every((frame) => frame.payload.topic === topic), `${topic} over ${transport}`);
    assert.deepEqual(seen.resets, [{ reason: "start", from_seq: 1, truncated: false }]);
  }
  const summary = await operator.read("projectors/run-summary/a");
  await until(() => board.get("a")?.latest_seq === summary.latest_seq, "the summary", WAIT_MS);
  assert.deepEqual(board.get("a"), summary);
  const counts = proxies.reduce((sum, { counts: some }) => Object.fromEntries(Object.entries(some).map(([name, n]) => [name, n + (sum[name] ?? 0)])), {});
  t.diagnostic(`${total()} faults ${JSON.stringify(counts)}, ${appends.length} events`);
});
