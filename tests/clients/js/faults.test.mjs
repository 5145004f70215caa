// Clients of every transport, a collection and a producer behind a proxy that damages connections at
// random by seed. In the end each has the state of the authority: no frame twice, none missing.
// KHALA_FAULTS sets the number of faults, KHALA_SEED the seed.
import assert from "node:assert/strict";
import { test } from "node:test";
import WebSocket from "ws";
import { Khala } from "../../../clients/js/src/khala.js";
import { Producer } from "../../../clients/js/src/producer.js";
import { operate } from "../../lib/operator.mjs";
import { range } from "../../lib/samples.mjs";
import { until } from "../../lib/wait.mjs";
import { FAULTS as KINDS, FaultProxy } from "../proxy.mjs";
import { follow, TRANSPORTS } from "./client.mjs";

const FAULTS = Number(process.env.KHALA_FAULTS ?? 1000);
const SEED = Number(process.env.KHALA_SEED ?? 1);
const WAIT_MS = 60_000 + 100 * FAULTS;
const HASTE = { baseMs: 1, maxMs: 10 };
const TOPICS = ["room:1", "room:2"];
const SUMMARIES = "runtime.run_summaries";
const BYTES_MAX = 3000;
const PENDING_MAX = 20;

/** The frames of a topic, as the server answers them without a proxy. */
async function authorityOf(operator, topic) {
  const all = [];
  for (let after = 0; ;) {
    const { messages, next_cursor, replay_complete } = JSON.parse((await operator.poll(topic, `after_seq=${after}&limit=200`)).body);
    all.push(...messages);
    after = next_cursor;
    if (replay_complete) return all;
  }
}

test(`${FAULTS} faults, seed ${SEED}: every client ends with the state of the authority`, async (t) => {
  const operator = await operate(t, { settings: {
    RUNTIME_KHALA_POLL_MIN_INTERVAL_MS: "0", KHALA_HEARTBEAT_MS: "50", RUNTIME_KHALA_FALLBACK_REPLAY_BUDGET_EVENTS: "1000000",
    RUNTIME_KHALA_RECONNECT_BASE_BACKOFF_MS: "1", RUNTIME_KHALA_RECONNECT_JITTER_MS: "0",
  } });
  const proxies = [];
  const proxied = async (options) => {
    proxies.push(await FaultProxy.start(t, () => operator.server.url, { seed: SEED * 100 + proxies.length, bytesMax: BYTES_MAX, ...options }));
    return proxies.at(-1).url;
  };
  const { reader } = operator;
  const connect = async (transport) => {
    const khala = new Khala({ url: await proxied(), token: async () => reader, WebSocket, transports: [transport], backOff: HASTE });
    t.after(() => khala.close());
    return khala;
  };
  const clients = [];
  for (const transport of [...TRANSPORTS, "websocket"]) {
    const khala = await connect(transport);
    for (const topic of TOPICS) clients.push({ transport, topic, seen: follow(khala, topic) });
  }
  const board = (await connect("websocket")).collection(SUMMARIES);
  board.open();
  await operator.did("runs", { run_id: "a" }, 201);
  const writer = operator.sign({ oa_sync_scopes: ["runtime.append"], oa_sync_topics: TOPICS });
  const sender = new Producer({ url: await proxied({ bytesMax: 2000 }), backOff: HASTE, requestTimeoutMs: 10_000, token: async () => writer });
  t.after(() => sender.close());

  const sent = { "room:1": 0, "room:2": 0 };
  const total = () => proxies.reduce((sum, proxy) => sum + proxy.total, 0);
  const appends = [];
  await until(async () => {
    // One event comes through the proxy of the producer, the other directly, so that bytes always flow.
    for (const topic of sender.length < PENDING_MAX ? TOPICS : []) {
      appends.push(sender.append({ topic, event_type: "said", payload: { topic, n: ++sent[topic], text: "x".repeat(sent[topic] % 300) } }));
      appends.at(-1).catch(() => {});
    }
    await operator.batch([...TOPICS.map((topic) => ({ topic, event_type: "heard", payload: { topic } })), { run_id: "a", event_type: "run.log", payload: {} }]);
    return total() >= FAULTS;
  }, `${FAULTS} faults`, WAIT_MS);
  for (const proxy of proxies) proxy.heal();
  const counts = Object.fromEntries(KINDS.map((kind) => [kind, proxies.reduce((sum, proxy) => sum + proxy.counts[kind], 0)]));
  for (const kind of KINDS) assert.ok(counts[kind] > 0, `no ${kind}`);
  const answers = await Promise.all(appends);
  assert.equal(new Set(answers.map(({ event }) => event.event_id)).size, appends.length);

  const truth = new Map();
  for (const topic of TOPICS) {
    const frames = await authorityOf(operator, topic);
    truth.set(topic, frames);
    assert.deepEqual(frames.map(({ seq }) => seq), range(1, frames.length));
    assert.deepEqual(frames.filter(({ kind }) => kind === "said").map(({ payload }) => payload.n), range(1, sent[topic]), "each event was stored once, in order");
  }
  for (const { transport, topic, seen } of clients) {
    const frames = truth.get(topic);
    await seen.until(() => seen.frames.length >= frames.length || seen.end, `${frames.length} frames of ${topic} over ${transport}`, WAIT_MS);
    assert.equal(seen.end, undefined, String(seen.end?.error?.stack));
    assert.deepEqual(seen.frames.map(({ seq, event_id }) => [seq, event_id]), frames.map(({ seq, event_id }) => [seq, event_id]), `${topic} over ${transport}`);
    assert.deepEqual(seen.frames.map(({ payload }) => payload), frames.map(({ payload }) => payload), `${topic} over ${transport}`);
    assert.deepEqual(seen.resets, [{ reason: "start", from_seq: 1, truncated: false }]);
  }
  const summary = await operator.read("projectors/run-summary/a");
  await until(() => board.get("a")?.latest_seq === summary.latest_seq, "the summary", WAIT_MS);
  assert.deepEqual(board.get("a"), summary);
  t.diagnostic(`${total()} faults ${JSON.stringify(counts)}, ${proxies.reduce((sum, { connections }) => sum + connections, 0)} connections, ${[...truth.values()].flat().length} events`);
});
