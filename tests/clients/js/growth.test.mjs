// Reconnects lose nothing and leave neither sockets, objects nor memory behind. A poll has no
// connection of its own, so the transports with one are tested.
import assert from "node:assert/strict";
import { after, before as first, test } from "node:test";
import { queryObjects, setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import WebSocket from "ws";
import { transports } from "../../../clients/js/src/http.js";
import { Khala } from "../../../clients/js/src/khala.js";
import { PhoenixTransport } from "../../../clients/js/src/phoenix.js";
import { events, TOPIC } from "../../lib/samples.mjs";
import { until } from "../../lib/wait.mjs";
import { operateForReconnects, RECONNECTS, Relay, WARM_UP } from "../relay.mjs";

const GROWTH_BYTES_MAX = 1_500_000; // more than the caches of the platform
// What each reconnect makes. Some of the last ones may not be released yet.
const KINDS = { websocket: [PhoenixTransport, WebSocket], sse: [transports.sse, Response, AbortController] };
const OBJECTS_MAX = 20;

setFlagsFromString("--expose-gc");
const collectGarbage = runInNewContext("gc");
const heapBytes = () => {
  collectGarbage();
  return process.memoryUsage().heapUsed;
};
const objectsOf = (transport) => Object.fromEntries(KINDS[transport].map((kind) => [kind.name, queryObjects(kind, { format: "count" })]));

const ends = [];
let operator;
first(async () => {
  operator = await operateForReconnects({ after: (act) => ends.unshift(act) });
});
after(async () => {
  for (const act of ends) await act();
});

for (const transport of ["websocket", "sse"]) {
  test(`${RECONNECTS} reconnects over ${transport} leave nothing behind`, async (t) => {
    const relay = await Relay.start(t, operator.server.port);
    const { reader } = operator;
    const khala = new Khala({ url: relay.url, token: async () => reader, WebSocket, transports: [transport], backOff: { baseMs: 0, maxMs: 0 } });
    t.after(() => khala.close());
    const topic = khala.topic(TOPIC);
    let last = 0;
    const problems = [];
    const done = topic.each(({ seq }) => {
      if (seq !== last + 1) problems.push(`${seq} after ${last}`);
      last = seq;
    });
    const { head_cursor } = JSON.parse((await operator.poll(TOPIC, "after_seq=0")).body);
    const isFollowing = () => topic.state === "live" || topic.state === "replaying";
    await until(() => last === head_cursor && isFollowing(), "the first frames");
    await relay.reconnect(WARM_UP, isFollowing);
    const before = heapBytes();
    await relay.reconnect(RECONNECTS, isFollowing);
    let growth;
    await until(() => (growth = heapBytes() - before) < GROWTH_BYTES_MAX, "memory that is released").catch(() => {});
    assert.ok(growth < GROWTH_BYTES_MAX, `${growth} bytes more`);
    const isReleased = (objects) => Object.values(objects).every((count) => count <= OBJECTS_MAX);
    await until(() => isReleased(objectsOf(transport)), "objects that are released").catch(() => {});
    const objects = objectsOf(transport);
    assert.ok(isReleased(objects), JSON.stringify(objects));
    const { length } = await operator.batch(events(3));
    await until(() => last === head_cursor + length, "the last frames");
    assert.deepEqual(problems, []);
    assert.ok(relay.sockets.size <= 6, `${relay.sockets.size} sockets`);
    t.diagnostic(`${transport}: ${growth} bytes more after ${RECONNECTS} reconnects, ${JSON.stringify(objects)}`);
    await khala.close();
    await done;
  });
}
