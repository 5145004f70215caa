// Python clients of every transport, a collection and a producer behind a proxy that damages
// connections at random by seed. In the end each has the state of the authority: no frame twice, none missing.
import assert from "node:assert/strict";
import { test } from "node:test";
import { until } from "../../lib/wait.mjs";
import { FaultWorld, NAME, PENDING_MAX, SUMMARIES, TOPICS, WAIT_MS } from "../fault_world.mjs";
import { Python } from "./client.mjs";

const HASTE = [0.001, 0.01];

test(NAME, async (t) => {
  const world = await FaultWorld.start(t);
  const python = await Python.start(t);
  const connect = async (...transports) => python.open(t, { url: await world.proxied(), token: world.reader, back_off: HASTE, prefer_again: HASTE, transports });
  const clients = [];
  for (const transport of ["websocket", "sse", "poll", "websocket"]) {
    const khala = await connect(transport);
    for (const topic of TOPICS) clients.push({ transport, topic, seen: await python.follow(khala, topic) });
  }
  // This one moves between transports.
  const restless = await connect("websocket", "sse", "poll");
  for (const topic of TOPICS) clients.push({ transport: "any", topic, seen: await python.follow(restless, topic) });
  const board = await python.collect(await connect("websocket"), SUMMARIES);
  const producer = await python.produce(t, { url: await world.proxied({ bytesMax: 2000 }), back_off: HASTE, request_timeout: 10, token: world.writer });

  const appends = [];
  let pending = 0;
  await world.disturb(() => {
    if (pending >= PENDING_MAX) return;
    pending += TOPICS.length;
    appends.push(producer.append(...TOPICS.map((topic) => world.next(topic))));
    appends.at(-1).then(() => { pending -= TOPICS.length; }, () => {});
  });
  const answers = (await Promise.all(appends)).flat();
  assert.deepEqual(answers.filter(({ error }) => error), []);
  await world.settle(answers.map(({ event }) => event));
  for (const { transport, topic, seen } of clients) await world.check(seen, topic, transport);
  const { summary } = world;
  await until(async () => (await board.get("a"))?.latest_seq === summary.latest_seq, "the summary", WAIT_MS);
  assert.deepEqual(await board.get("a"), summary);
  assert.equal(python.stderr, "");
});
