// A flood on one topic must not delay the other topics.
import assert from "node:assert/strict";
import net from "node:net";
import { test } from "node:test";
import { operate } from "../../lib/operator.mjs";
import { Client } from "../../lib/phoenix.mjs";
import { events, median, range, wide } from "../../lib/samples.mjs";
import { assertShares, Reader, whileAllWait } from "../../lib/shares.mjs";
import { once, repeat } from "../../lib/wait.mjs";
import { handshake, message, phoenixPath } from "../../lib/websocket.mjs";

const BACKLOG = 10_000;
const FLOODS = 4;
const FLOOD_BYTES = 20e6;
// A topic of each tier, and the batch item that appends to it.
const TIERS = {
  hot: { topic: "runtime.codex_worker_events", item: (payload) => ({ worker_id: "w", event_type: "worker.log", payload }) },
  warm: { topic: "run:a:events", item: (payload) => ({ run_id: "a", event_type: "run.log", payload }) },
  cold: { topic: "chat", item: (payload) => ({ topic: "chat", event_type: "said", payload }) },
};

async function latency(operator, client, { topic, item }) {
  const begun = process.hrtime.bigint();
  const before = client.run(topic).at;
  await operator.batch([item({ quiet: true })]);
  await client.reached(topic, before + 1);
  return Number(process.hrtime.bigint() - begun) / 1e6;
}

/** A client that repeatedly subscribes to a whole topic and discards the updates. */
class Flood {
  bytes = 0;
  ref = 2;

  static async open(t, operator, topic) {
    const flood = new Flood();
    flood.socket = net.connect({ port: operator.server.port, host: operator.server.host });
    flood.socket.on("error", () => {});
    await once(flood.socket, "connect", "a connection");
    flood.socket.on("data", (data) => { flood.bytes += data.length; });
    flood.socket.write(handshake(phoenixPath(operator)));
    flood.socket.write(message(["1", "1", "sync:v1", "phx_join", {}]));
    const again = () => flood.socket.write(message(["1", String(flood.ref++), "sync:v1", "sync:subscribe",
      { topics: [topic], resume_after: { [topic]: 0 } }]));
    flood.stop = repeat(t, 50, again);
    again();
    operator.server.peers.push(flood);
    return flood;
  }

  close() {
    this.stop();
    this.socket.destroy();
  }
}

const limited = async (operator) => (await operator.read("khala/fanout/metrics")).delivery_metrics.fairness_limited_polls;

const SETTINGS = {
  RUNTIME_KHALA_RUN_EVENTS_REPLAY_BUDGET_EVENTS: "1000000",
  RUNTIME_KHALA_CODEX_WORKER_EVENTS_REPLAY_BUDGET_EVENTS: "1000000",
  RUNTIME_KHALA_FALLBACK_REPLAY_BUDGET_EVENTS: "1000000",
  RUNTIME_KHALA_WORKER_LIFECYCLE_REPLAY_BUDGET_EVENTS: "1000000",
  KHALA_IO_LOOPS: "1", // one line for all
  KHALA_SLOW_CONSUMER_CHECK_MS: "60000",
};

async function flood(t, loud, quiet, isCut) {
  const operator = await operate(t, { settings: SETTINGS });
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
  const floods = await Promise.all(Array.from({ length: FLOODS }, () => Flood.open(t, operator, loud.topic)));
  const beside = [];
  const goal = () => floods.every((one) => one.bytes > FLOOD_BYTES);
  while (beside.length < 60 || !goal() || (isCut && (await limited(operator)) === before)) {
    beside.push(await latency(operator, client, quiet));
    assert.ok(beside.length < 3000, `nobody was cut short while ${floods.map((one) => one.bytes)} bytes went by`);
  }
  for (const one of floods) one.close();
  return { alone_ms: median(alone), beside_ms: median(beside), samples: beside.length, limited: await limited(operator) - before,
    megabytes: floods.map((one) => Math.round(one.bytes / 1e6)) };
}

// A hot topic is served first, so it seldom waits while a turn of a cold topic is cut short.
for (const [loud, quiet, isCut] of [["hot", "warm", true], ["hot", "cold", true], ["warm", "warm", true], ["warm", "cold", true], ["cold", "hot", false]]) {
  test(`a ${quiet} topic is not delayed by a flood on a ${loud} topic${isCut ? ", and limited turns are counted" : ""}`, async (t) => {
    const other = loud === quiet ? { ...TIERS[quiet], topic: "run:b:events", item: (payload) => ({ run_id: "b", event_type: "run.log", payload }) }
      : TIERS[quiet];
    const seen = await flood(t, TIERS[loud], other, isCut);
    t.diagnostic(JSON.stringify(seen));
    assert.ok(seen.beside_ms < 12 * seen.alone_ms + 30, "it waits");
  });
}

const SLICE = 50; // frames of a cold topic in a round; a warm one has twice as many, a hot one four times
const RUNS = ["a", "b", "c", "d", "e", "f"].map((run) => `run:${run}:events`);
const WEIGHTS = { [TIERS.hot.topic]: 4, [TIERS.warm.topic]: 2, [TIERS.cold.topic]: 1 };
const DEFLATE = { "Sec-WebSocket-Extensions": "permessage-deflate; server_no_context_takeover; client_no_context_takeover" };
const equal = (topics) => Object.fromEntries(topics.map((topic) => [topic, 2]));

async function fill(operator, item, count, payload = (i) => ({ i })) {
  for (let done = 0; done < count; done += 1000) {
    await operator.batch(range(done, Math.min(done + 1000, count) - 1).map((i) => item(payload(i))));
  }
}

const appender = (operator, topic) => (count) => operator.batch(events(count, { run_id: topic.split(":")[1] }));

async function fillRuns(operator, topics) {
  for (const topic of topics) {
    await operator.did("runs", { run_id: topic.split(":")[1] }, 201);
    for (let done = 0; done < BACKLOG; done += 1000) await appender(operator, topic)(1000);
  }
}

/** A step of a slow client: meanwhile the server fills the socket. */
const pause = (operator) => () => operator.get("/healthz/live");

test("six topics on one socket have equal shares, in whatever order they were subscribed", async (t) => {
  const operator = await operate(t, { settings: SETTINGS });
  await fillRuns(operator, RUNS);
  const before = await limited(operator);
  const cases = {
    "in one message": [(reader) => reader.subscribe(RUNS), pause(operator)],
    "by a fast client": [(reader) => reader.subscribe(RUNS)],
    "one by one, the last first": [(reader) => [...RUNS].reverse().forEach((topic) => reader.subscribe([topic])), pause(operator)],
  };
  for (const [name, [subscribe, step]] of Object.entries(cases)) {
    await t.test(name, async (sub) => {
      const reader = await Reader.open(operator);
      subscribe(reader);
      await reader.read(() => reader.taken >= RUNS.length * BACKLOG, step);
      sub.diagnostic(`off by ${assertShares(whileAllWait(reader), equal(RUNS), SLICE)}`);
      reader.close();
    });
  }
  assert.ok(await limited(operator) > before, "turns that were cut short are counted");
});

for (const [size, payload, count] of [["small", (i) => ({ i }), BACKLOG], ["wide", wide, BACKLOG / 2]]) {
  test(`${size} frames of a hot, a warm and a cold topic share a socket 4:2:1`, async (t) => {
    const operator = await operate(t, { settings: SETTINGS });
    await operator.did("runs", { run_id: "a" }, 201);
    await operator.did("workers", { worker_id: "w", owner_user_id: "u" }, 201);
    const topics = Object.keys(WEIGHTS);
    for (const { item } of Object.values(TIERS)) await fill(operator, item, count, payload);
    const cases = {
      "the hot topic first": [topics],
      "the cold topic first, compressed": [[...topics].reverse(), DEFLATE],
      "the warm topic first": [[topics[1], topics[2], topics[0]]],
    };
    for (const [name, [order, headers]] of Object.entries(cases)) {
      await t.test(`${name}, and on a second socket that takes all it can`, async (sub) => {
        const reader = await Reader.open(operator, { headers });
        const second = await Reader.open(operator);
        for (const one of [reader, second]) one.subscribe(order);
        const isOver = (one) => one.batches.some(({ left }) => left === 0);
        await Promise.all([reader.read(isOver, pause(operator)), second.read(isOver)]);
        for (const one of [reader, second]) {
          sub.diagnostic(`off by ${assertShares(whileAllWait(one), WEIGHTS, SLICE)}`);
          one.close();
        }
      });
    }
  });
}

test("topics that are appended to all the time leave those that are replayed their share", async (t) => {
  const operator = await operate(t, { settings: SETTINGS });
  const live = RUNS.slice(0, 2);
  const replayed = RUNS.slice(2, 5);
  for (const topic of live) await operator.did("runs", { run_id: topic.split(":")[1] }, 201);
  await fillRuns(operator, replayed);
  const append = live.map((topic) => appender(operator, topic));
  const reader = await Reader.open(operator);
  reader.subscribe(live);
  await reader.read(() => live.every((topic) => reader.batches.some((batch) => batch.topic === topic)));
  // More than the sockets hold, so that all topics wait from here on.
  for (const one of append) for (let i = 0; i < 15; i++) await one(1000);
  reader.subscribe(replayed);
  const isOver = () => reader.batches.some(({ topic, left }) => replayed.includes(topic) && left === 0);
  await reader.read(isOver, () => Promise.all(append.map((one) => one(40))));
  t.diagnostic(`off by ${assertShares(whileAllWait(reader), equal([...live, ...replayed]), SLICE)}`);
});
