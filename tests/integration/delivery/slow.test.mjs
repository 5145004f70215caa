// Clients that are slow, stuck or hostile, and the healthy clients beside them.
import assert from "node:assert/strict";
import net from "node:net";
import { alone, test } from "../../lib/cases.mjs";
import { connect } from "../../lib/khala.mjs";
import { MEASURED, memoryBytes, openFiles } from "../../lib/machine.mjs";
import { operate, operateRun } from "../../lib/operator.mjs";
import { socketPath, streamPath } from "../../lib/paths.mjs";
import { Client } from "../../lib/phoenix.mjs";
import { events, median, range, TOPIC, wide } from "../../lib/samples.mjs";
import { Socket } from "../../lib/socket.mjs";
import { Stream } from "../../lib/sse.mjs";
import { repeat, until, within } from "../../lib/wait.mjs";
import { CLOSE, handshake, message, phoenixPath, RawSocket, TEXT } from "../../lib/websocket.mjs";

const withRun = (t, settings) => operateRun(t, { settings });

/** The times that single events take to reach a client, in ms, sorted. */
async function latencies(operator, client, topic, append, count) {
  const times = [];
  for (let i = 0; i < count; i++) {
    const begun = process.hrtime.bigint();
    const seq = await append();
    await client.reached(topic, seq);
    times.push(Number(process.hrtime.bigint() - begun) / 1e6);
  }
  return times.sort((a, b) => a - b);
}

test("a client that catches up 20 000 events at full speed is not evicted in any dialect", async (t) => {
  const operator = await withRun(t, { KHALA_SLOW_CONSUMER_CHECK_MS: "2000", RUNTIME_KHALA_RUN_EVENTS_REPLAY_BUDGET_EVENTS: "40000" });
  for (let i = 0; i < 20; i++) await operator.batch(events(1000, { payload: (n) => ({ n, text: "x".repeat(300) }) }));
  const phoenix = await Client.join(operator);
  await phoenix.subscribe({ topics: [TOPIC], resume_after: { [TOPIC]: 0 } });
  const socket = await Socket.open(operator, socketPath(TOPIC, "after_seq=0"), { headers: { authorization: `Bearer ${operator.reader}` } });
  const stream = await Stream.open(operator, streamPath(TOPIC, "after_seq=0"), { authorization: `Bearer ${operator.reader}` });
  const head = 20001 + 500;
  for (let i = 0; i < 10; i++) await operator.batch(events(50));
  await phoenix.reached(TOPIC, head);
  await socket.until((one) => one.messages.at(-1)?.sequence === head, "the head");
  await stream.until((one) => one.lastSeq === head, "the head");
  assert.deepEqual(phoenix.run(TOPIC).sequences, range(1, head));
  assert.deepEqual(socket.of("message").map((one) => one.sequence), range(1, head));
  assert.deepEqual(stream.messages.map((one) => one.data.sequence), range(1, head));
  assert.deepEqual(phoenix.closes, []);
  assert.doesNotMatch(operator.server.log, /slow_consumer/);
});

test("a client that stops reading is evicted with 4000 and its cursors, and resumes without loss", async (t) => {
  const operator = await withRun(t, { KHALA_SLOW_CONSUMER_CHECK_MS: "50" });
  const raw = await RawSocket.stuck(operator, TOPIC);
  let head = 1;
  for (; !/client.disconnected code=slow_consumer /.test(operator.server.log); head += 200) {
    assert.ok(head < 20000, "it is never evicted");
    await operator.batch(events(200, { payload: wide }));
  }
  const seen = [];
  const errors = [];
  raw.peer.socket.resume();
  const last = await raw.find((one) => {
    if (one.opcode !== TEXT) return one.opcode === CLOSE;
    const [, , , event, payload] = JSON.parse(one.payload);
    if (event === "sync:update_batch") seen.push(...payload.updates.map((update) => update.watermark));
    if (event === "sync:error") errors.push(payload);
    return false;
  });
  assert.equal(last.payload.readUInt16BE(0), 4000);
  assert.equal(errors.length, 1);
  const [error] = errors;
  assert.deepEqual(Object.keys(error), ["code", "message", "topic", "lag", "strikes", "max_strikes", "resume_after", "reconnect_after_ms"]);
  assert.equal(error.code, "slow_consumer");
  assert.equal(error.topic, TOPIC);
  assert.equal(error.strikes, 3);
  assert.ok(error.reconnect_after_ms >= 400);
  assert.deepEqual(error.resume_after, [{ topic: TOPIC, watermark: seen.at(-1) }]);
  assert.equal(last.payload.subarray(2).toString(), `resume_after ${TOPIC}=${seen.at(-1)}`);
  for (let resume = error.resume_after; seen.at(-1) !== head; resume = [{ topic: TOPIC, watermark: seen.at(-1) }]) {
    const again = await Client.join(operator);
    await again.subscribe({ topics: [TOPIC], resume_after: resume });
    // With such short checks a busy machine may evict this client too.
    await until(() => again.closes.length > 0 || again.run(TOPIC)?.sequences.at(-1) === head, "the head, or an eviction");
    seen.push(...again.run(TOPIC).sequences);
  }
  assert.deepEqual(seen, range(1, head));
});

test("the lag of an eviction counts what was appended since the client stopped reading", async (t) => {
  const operator = await withRun(t, { KHALA_SLOW_CONSUMER_CHECK_MS: "300" });
  const raw = await RawSocket.stuck(operator, TOPIC);
  const struck = async () => /slow_consumer_strikes_total\{dialect="phoenix"\} [1-9]/.test((await operator.get("/metrics")).body);
  let head = 1;
  for (; !await struck(); head += 200) await operator.batch(events(200, { payload: wide }));
  await operator.batch(events(200, { payload: wide }));
  head += 200;
  const isEvicted = /client.disconnected code=slow_consumer /; // on a busy machine before or inside the last batches
  const isEarly = isEvicted.test(operator.server.log);
  await operator.server.saw("log", isEvicted);
  raw.peer.socket.resume();
  const { payload } = await raw.find((one) => one.opcode === TEXT && JSON.parse(one.payload)[3] === "sync:error");
  const [, , , , { lag, resume_after: [{ watermark }] }] = JSON.parse(payload);
  assert.ok(isEarly ? lag > 0 && lag + watermark <= head : lag + watermark === head, `${lag} behind ${watermark}, head ${head}`);
});

/** A healthy client's latencies and the server's memory growth beside so many clients that never read. */
async function beside(t, count) {
  const operator = await withRun(t, { ...MEASURED, KHALA_CONNECTIONS_PER_PRINCIPAL_MAX: "2000", KHALA_SLOW_CONSUMER_CHECK_MS: "1000" });
  await operator.batch(events(1000, { payload: wide }));
  const healthy = await Client.join(operator);
  await healthy.subscribe({ topics: [TOPIC], resume_after: { [TOPIC]: 900 } });
  await healthy.reached(TOPIC, 1001);
  const few = openFiles(operator.server);
  for (let i = 0; i < count; i += 50) await Promise.all(range(1, Math.min(50, count)).map(() => RawSocket.stuck(operator, TOPIC)));
  const before = memoryBytes(operator.server);
  let head = 1001;
  const times = await latencies(operator, healthy, TOPIC, async () => {
    await operator.batch(events(20, { payload: wide }));
    return (head += 20);
  }, 100);
  const grown = memoryBytes(operator.server) - before;
  await until(() => openFiles(operator.server) <= few, "the close of the clients that do not read");
  await healthy.reached(TOPIC, head);
  assert.deepEqual(healthy.run(TOPIC).sequences, range(901, head));
  return { grown_bytes: grown, median_ms: median(times), p99_ms: times.at(-1) };
}

test("a client that neither reads nor subscribes is evicted too", async (t) => {
  const operator = await operate(t, { settings: { KHALA_SLOW_CONSUMER_CHECK_MS: "50", KHALA_WS_MESSAGES_PER_SECOND: "1000000" } });
  const raw = await RawSocket.open(operator);
  raw.peer.socket.pause();
  // The server can only send replies: they fill the socket, then the strikes begin.
  const beats = Buffer.concat(Array.from({ length: 2000 }, () => message(["1", "x", "sync:v1", "sync:heartbeat", {}])));
  const flood = () => raw.peer.socket.write(beats, (error) => !error && setImmediate(flood));
  flood();
  await operator.server.saw("log", /client\.disconnected code=slow_consumer .*close_code=4000/);
  const { body } = await operator.get("/metrics");
  assert.match(body, /slow_consumer_evictions_total\{dialect="phoenix",topic_class="none"\} 1\n/);
});

alone("a thousand stuck clients cost no growing memory, delay no other client, and are evicted", async (t) => {
  const alone = await beside(t, 0);
  const crowd = await beside(t, 1000);
  t.diagnostic(JSON.stringify({ alone, crowd, ratio_median: crowd.median_ms / alone.median_ms, ratio_p99: crowd.p99_ms / alone.p99_ms }));
  // Each of the thousand missed four megabytes; each may hold one push of 64 KiB, mostly shared.
  assert.ok(crowd.grown_bytes - alone.grown_bytes < 100 << 20, "memory grows with those who do not read");
  assert.ok(crowd.median_ms < 5 * alone.median_ms + 20, "others wait for those who do not read");
});

test("the server stops reading the store for a client that does not read", async (t) => {
  const operator = await operate(t, { settings: { KHALA_WINDOWS_BYTES_MAX: "1048576", KHALA_SLOW_CONSUMER_CHECK_MS: "300" } });
  const runs = range(1, 250).map((i) => `many-${i}`);
  await Promise.all(runs.map(async (run_id) => {
    await operator.did("runs", { run_id }, 201);
    await operator.batch(events(1, { run_id, payload: () => ({ text: "x".repeat(200_000) }) }));
  }));
  const topics = runs.map((run) => `run:${run}:events`);
  const raw = await RawSocket.open(operator);
  raw.peer.socket.pause();
  await raw.send(message(["1", "2", "sync:v1", "sync:subscribe", { topics, resume_after: Object.fromEntries(topics.map((topic) => [topic, 0])) }]));
  await operator.server.saw("log", /client.disconnected code=slow_consumer /);
  const read = (await operator.get("/metrics")).body.match(/sync_replay_frames_total{topic_class="run_events"} (\d+)/);
  // The kernel buffers some megabytes of the fifty.
  assert.ok(Number(read[1]) < runs.length, `${read[1]} frames of ${2 * runs.length} were read`);
});

alone("thousands of connects at full speed do not delay connected clients", async (t) => {
  const operator = await withRun(t, { KHALA_CONNECTIONS_MAX: "3000" });
  const client = await Client.join(operator);
  await client.subscribe({ topics: [TOPIC], resume_after: { [TOPIC]: 0 } });
  const append = async () => (await operator.did("runs/a/events", { event_type: "x" })).event.seq;
  const quiet = await latencies(operator, client, TOPIC, append, 50);
  const few = openFiles(operator.server);
  const state = { made: 0, over: false };
  const hello = handshake(phoenixPath(operator));
  const storm = async () => {
    for (; !state.over && state.made < 20_000; state.made++) {
      await new Promise((resolve) => {
        const socket = net.connect({ port: operator.server.port, host: operator.server.host });
        socket.on("error", resolve);
        socket.on("connect", () => {
          // Some send nothing, some half of a handshake, some all of it; all disconnect.
          const words = state.made % 3 === 0 ? "" : hello.slice(0, state.made % 3 === 1 ? 40 : hello.length);
          socket.write(words, () => {
            socket.resetAndDestroy();
            resolve();
          });
        });
      });
    }
  };
  const storms = range(1, 64).map(storm);
  const begun = Date.now();
  const busy = await latencies(operator, client, TOPIC, append, 200);
  state.over = true;
  await within(Promise.all(storms), "the end of the storm");
  t.diagnostic(`${Math.round(state.made / (Date.now() - begun) * 1000)} connects a second, median ${median(quiet)} ms, then ${median(busy)} ms`);
  assert.ok(state.made > 1000);
  // This process connects on the same cores.
  assert.ok(median(busy) < 50 * median(quiet) + 200, "the connected wait for those who connect");
  assert.deepEqual(client.closes, []);
  await until(() => openFiles(operator.server) <= few + 5, "the close of the connections whose peers went");
});

alone("slowly sent headers and frames are cut off and delay no other client", async (t) => {
  const operator = await withRun(t, { KHALA_REQUEST_TIMEOUT_MS: "3000", KHALA_SILENCE_TIMEOUT_MS: "3000" });
  const client = await Client.join(operator, { heartbeatIntervalMs: 100 });
  await client.subscribe({ topics: [TOPIC], resume_after: { [TOPIC]: 0 } });
  const append = async () => (await operator.did("runs/a/events", { event_type: "x" })).event.seq;
  const quiet = await latencies(operator, client, TOPIC, append, 50);
  const dripping = [];
  const slow = message(["1", "2", "sync:v1", "sync:heartbeat", { text: "x".repeat(20_000) }]);
  for (let i = 0; i < 100; i++) {
    const peer = await connect(operator.server);
    dripping.push({ peer, bytes: Buffer.from(`GET /healthz/live HTTP/1.1\r\nHost: x\r\nX-Slow: ${"y".repeat(10_000)}`), at: 0 });
    const raw = await RawSocket.open(operator);
    dripping.push({ peer: raw.peer, bytes: slow, at: 0 });
  }
  repeat(t, 20, () => {
    for (const one of dripping) if (!one.peer.ended) one.peer.socket.write(one.bytes.subarray(one.at, ++one.at));
  });
  const busy = await latencies(operator, client, TOPIC, append, 50);
  await Promise.all(dripping.map((one) => one.peer.rest()));
  for (const one of dripping) assert.ok(one.at < one.bytes.length, "it dripped to its end");
  t.diagnostic(`median ${median(quiet)} ms, beside them ${median(busy)} ms`);
  assert.ok(median(busy) < 10 * median(quiet) + 50);
  assert.deepEqual(client.closes, []);
});
