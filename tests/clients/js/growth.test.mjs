// Reconnects lose nothing and leave neither sockets nor memory behind. A poll has no connection of its
// own, so the transports with one are tested.
// KHALA_RECONNECTS sets their number for each transport; 10000 takes some minutes.
import assert from "node:assert/strict";
import net from "node:net";
import { after, before as first, test } from "node:test";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import WebSocket from "ws";
import { Khala } from "../../../clients/js/src/khala.js";
import { operateRun } from "../../lib/operator.mjs";
import { events, TOPIC } from "../../lib/samples.mjs";
import { until } from "../../lib/wait.mjs";

const RECONNECTS = Number(process.env.KHALA_RECONNECTS ?? 200);
const WARM_UP = 50;
// A kept WebSocket takes 8 kB and more, so 200 of them are above this. The caches of the platform are below it.
const GROWTH_BYTES_MAX = 1_500_000;

setFlagsFromString("--expose-gc");
const collectGarbage = runInNewContext("gc");
const heapBytes = () => {
  collectGarbage();
  return process.memoryUsage().heapUsed;
};

const ends = [];
let operator;
first(async () => {
  operator = await operateRun({ after: (act) => ends.unshift(act) }, { count: 2, settings: { RUNTIME_KHALA_RECONNECT_BASE_BACKOFF_MS: "1", RUNTIME_KHALA_RECONNECT_JITTER_MS: "0" } });
});
after(async () => {
  for (const act of ends) await act();
});

/** A relay whose connections a test resets. */
async function relay(t) {
  const sockets = new Set();
  const counts = { accepted: 0 };
  const server = net.createServer((client) => {
    counts.accepted++;
    const upstream = net.connect(operator.server.port, "127.0.0.1");
    for (const [socket, other] of [[client, upstream], [upstream, client]]) {
      sockets.add(socket);
      socket.on("error", () => {});
      socket.on("close", () => {
        sockets.delete(socket);
        other.destroy();
      });
      socket.pipe(other);
    }
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const reset = () => {
    for (const socket of sockets) socket.resetAndDestroy();
  };
  t.after(() => {
    reset();
    server.close();
  });
  return { url: `http://127.0.0.1:${server.address().port}`, reset, sockets, counts };
}

for (const transport of ["websocket", "sse"]) {
  test(`${RECONNECTS} reconnects over ${transport} leave nothing behind`, async (t) => {
    const { url, reset, sockets, counts } = await relay(t);
    const { reader } = operator;
    const khala = new Khala({ url, token: async () => reader, WebSocket, transports: [transport], backOff: { baseMs: 0, maxMs: 0 } });
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
    const reconnect = async (times) => {
      for (let i = 0; i < times; i++) {
        const { accepted } = counts;
        reset();
        await until(() => counts.accepted > accepted && isFollowing(), "the next connection");
      }
    };
    await reconnect(WARM_UP);
    const before = heapBytes();
    await reconnect(RECONNECTS);
    let growth;
    await until(() => (growth = heapBytes() - before) < GROWTH_BYTES_MAX, "memory that is released").catch(() => {});
    assert.ok(growth < GROWTH_BYTES_MAX, `${growth} bytes more`);
    const { length } = await operator.batch(events(3));
    await until(() => last === head_cursor + length, "the last frames");
    assert.deepEqual(problems, []);
    assert.ok(sockets.size <= 6, `${sockets.size} sockets`);
    t.diagnostic(`${transport}: ${growth} bytes more after ${RECONNECTS} reconnects`);
    await khala.close();
    await done;
  });
}
