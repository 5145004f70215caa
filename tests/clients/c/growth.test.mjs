// Reconnects of libkhala lose nothing, and leave neither sockets nor memory behind.
import assert from "node:assert/strict";
import { after, before as first, test } from "node:test";
import { events, TOPIC } from "../../lib/samples.mjs";
import { until } from "../../lib/wait.mjs";
import { operateForReconnects, RECONNECTS, Relay, WARM_UP } from "../relay.mjs";
import { Program } from "./program.mjs";

const LIVE = 4; // KHALA_STATE_LIVE
// A kept connection takes several kB, and the buffers of one connection are below this.
const GROWTH_BYTES_MAX = 80_000;
const environment = { BACK_OFF_BASE_MS: "1", BACK_OFF_MAX_MS: "1", MALLOC_ARENA_MAX: "1" };

const ends = [];
let operator;
first(async () => {
  operator = await operateForReconnects({ after: (act) => ends.unshift(act) });
});
after(async () => {
  for (const act of ends) await act();
});

for (const loop of ["own", "given"]) {
  test(`${RECONNECTS} reconnects on ${loop} loop leave nothing behind`, async (t) => {
    const relay = await Relay.start(t, operator.server.port);
    const program = Program.start(t, relay.url, { token: operator.reader, loop, topics: [TOPIC], environment });
    const seen = program.seen(TOPIC);
    const { head_cursor } = JSON.parse((await operator.poll(TOPIC, "after_seq=0")).body);
    await seen.until(() => seen.frames.length === head_cursor, "the first frames");
    const memory = async () => {
      const count = program.all("allocated_bytes").length;
      program.command("memory");
      await program.lines.until(() => program.all("allocated_bytes").length > count, "the memory");
      return program.all("allocated_bytes").at(-1).allocated_bytes;
    };
    const reconnect = (times) => relay.reconnect(times, () => program.state === LIVE);
    await reconnect(WARM_UP);
    const before = await memory();
    await reconnect(RECONNECTS);
    let growth;
    await until(async () => (growth = await memory() - before) < GROWTH_BYTES_MAX, "memory that is released").catch(() => {});
    assert.ok(growth < GROWTH_BYTES_MAX, `${growth} bytes more`);
    const { length } = await operator.batch(events(3));
    await seen.until(() => seen.frames.length >= head_cursor + length, "the last frames");
    assert.deepEqual(seen.frames.map(({ seq }) => seq), Array.from({ length: head_cursor + length }, (_, index) => index + 1));
    assert.ok(relay.sockets.size <= 4, `${relay.sockets.size} sockets`);
    t.diagnostic(`${loop} loop: ${growth} bytes more after ${RECONNECTS} reconnects`);
    assert.equal(await program.close(), 0);
  });
}
