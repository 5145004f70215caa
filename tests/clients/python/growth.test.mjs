// Reconnects of the Python client lose nothing, and leave neither sockets, objects nor memory behind.
import assert from "node:assert/strict";
import { after, before as first, test } from "node:test";
import { events, TOPIC } from "../../lib/samples.mjs";
import { until } from "../../lib/wait.mjs";
import { operateForReconnects, RECONNECTS, Relay, WARM_UP } from "../relay.mjs";
import { frames, Python } from "./client.mjs";

// A kept connection has several objects. Those of the connection that is being made or closed are fewer.
const GROWTH_OBJECTS_MAX = 150;

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
    const python = await Python.start(t);
    const khala = await python.open(t, { url: relay.url, token: operator.reader, back_off: [0.001, 0.001], transports: [transport] });
    const seen = await python.follow(khala, TOPIC);
    const { head_cursor } = JSON.parse((await operator.poll(TOPIC, "after_seq=0")).body);
    await frames(seen, head_cursor);
    const follow = async () => {
      const { state } = await seen.look();
      return khala.state.status === "live" && (state === "live" || state === "replaying");
    };
    await relay.reconnect(WARM_UP, follow);
    const before = await python.call("memory");
    await relay.reconnect(RECONNECTS, follow);
    let now;
    const growth = () => now.objects - before.objects;
    await until(async () => {
      now = await python.call("memory");
      return growth() < GROWTH_OBJECTS_MAX;
    }, "objects that are released").catch(() => {});
    assert.ok(growth() < GROWTH_OBJECTS_MAX, `${growth()} objects more`);
    const { length } = await operator.batch(events(3));
    await frames(seen, head_cursor + length);
    assert.deepEqual(seen.frames.map(({ seq }) => seq), Array.from({ length: head_cursor + length }, (_, index) => index + 1));
    assert.ok(relay.sockets.size <= 6, `${relay.sockets.size} sockets`);
    t.diagnostic(`${transport}: ${growth()} objects and ${now.bytes - before.bytes} bytes more after ${RECONNECTS} reconnects`);
  });
}
