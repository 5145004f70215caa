// Clients of every transport, a collection and a producer behind a proxy that damages connections at
// random by seed. In the end each has the state of the authority: no frame twice, none missing.
import assert from "node:assert/strict";
import { test } from "node:test";
import WebSocket from "ws";
import { Khala } from "../../../clients/js/src/khala.js";
import { Producer } from "../../../clients/js/src/producer.js";
import { until } from "../../lib/wait.mjs";
import { FaultWorld, NAME, PENDING_MAX, SUMMARIES, TOPICS, WAIT_MS } from "../fault_world.mjs";
import { follow, TRANSPORTS } from "./client.mjs";

const HASTE = { baseMs: 1, maxMs: 10 };

test(NAME, async (t) => {
  const world = await FaultWorld.start(t);
  const connect = async (transport) => {
    const khala = new Khala({ url: await world.proxied(), token: async () => world.reader, WebSocket, transports: [transport], backOff: HASTE });
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
  const sender = new Producer({ url: await world.proxied({ bytesMax: 2000 }), backOff: HASTE, requestTimeoutMs: 10_000, token: async () => world.writer });
  t.after(() => sender.close());

  const appends = [];
  await world.disturb(() => {
    for (const topic of sender.length < PENDING_MAX ? TOPICS : []) {
      appends.push(sender.append(world.next(topic)));
      appends.at(-1).catch(() => {});
    }
  });
  await world.settle((await Promise.all(appends)).map(({ event }) => event));
  for (const { transport, topic, seen } of clients) await world.check(seen, topic, transport);
  const { summary } = world;
  await until(() => board.get("a")?.latest_seq === summary.latest_seq, "the summary", WAIT_MS);
  assert.deepEqual(board.get("a"), summary);
});
