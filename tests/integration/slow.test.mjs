// Clients that are slow, stuck or hostile, and those beside them.
import assert from "node:assert/strict";
import { readFileSync, readdirSync } from "node:fs";
import net from "node:net";
import { test } from "node:test";
import { connect, within } from "../lib/khala.mjs";
import { operate } from "../lib/operator.mjs";
import { Client } from "../lib/phoenix.mjs";
import { Socket } from "../lib/socket.mjs";
import { Stream } from "../lib/sse.mjs";
import { CLOSE, PING, RawSocket, TEXT, frame, handshake, message } from "../lib/websocket.mjs";

const TOPIC = "run:a:events";
const PATH = encodeURIComponent(TOPIC);
// The address sanitizer keeps what was freed, up to a size that would hide what is measured.
const MEASURED = { ASAN_OPTIONS: "quarantine_size_mb=4:thread_local_quarantine_size_kb=64" };
const wide = (i) => ({ i, text: "x".repeat(2000) });
const range = (from, to) => Array.from({ length: to - from + 1 }, (_, i) => from + i);

function events(count, payload = (i) => ({ i }), run_id = "a") {
  return Array.from({ length: count }, (_, i) => ({ run_id, event_type: "run.log", payload: payload(i) }));
}

async function withRun(t, settings) {
  const operator = await operate(t, { settings });
  await operator.did("runs", { run_id: "a" }, 201);
  return operator;
}

const memoryKib = (operator) => Number(readFileSync(`/proc/${operator.server.child.pid}/status`, "utf8").match(/VmRSS:\s+(\d+)/)[1]);
const openFiles = (operator) => readdirSync(`/proc/${operator.server.child.pid}/fd`).length;

/** A phoenix client that has subscribed from its beginning and does not read. */
async function stuckClient(operator) {
  const raw = await RawSocket.open(operator);
  await raw.send(message(["1", "2", "sync:v1", "sync:subscribe", { topics: [TOPIC], resume_after: { [TOPIC]: 0 } }]));
  await raw.reply("2");
  raw.peer.socket.pause();
  return raw;
}

/** How long single events take to reach a client, in ms, sorted. */
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

const median = (times) => times[Math.floor(times.length / 2)];

test("who catches up from 20 000 behind at full speed is not evicted, in any dialect", async (t) => {
  const operator = await withRun(t, { KHALA_SLOW_CONSUMER_CHECK_MS: "2000", RUNTIME_KHALA_RUN_EVENTS_REPLAY_BUDGET_EVENTS: "40000" });
  for (let i = 0; i < 20; i++) await operator.batch(events(1000, (n) => ({ n, text: "x".repeat(300) })));
  const phoenix = await Client.join(operator);
  await phoenix.subscribe({ topics: [TOPIC], resume_after: { [TOPIC]: 0 } });
  const socket = await Socket.open(operator, `/internal/v1/khala/topics/${PATH}/ws?after_seq=0`, { headers: { authorization: `Bearer ${operator.reader}` } });
  const stream = await Stream.open(operator, `/v1/topics/${PATH}/sse?after_seq=0`, { authorization: `Bearer ${operator.reader}` });
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

test("who stops reading is evicted with 4000 and its cursors, and resumes without loss", async (t) => {
  const operator = await withRun(t, { KHALA_SLOW_CONSUMER_CHECK_MS: "50" });
  const raw = await stuckClient(operator);
  let head = 1;
  for (; !/client.disconnected code=slow_consumer /.test(operator.server.log); head += 200) {
    assert.ok(head < 20000, "it is never evicted");
    await operator.batch(events(200, wide));
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
  const again = await Client.join(operator);
  await again.subscribe({ topics: [TOPIC], resume_after: error.resume_after });
  await again.reached(TOPIC, head);
  assert.deepEqual([...seen, ...again.run(TOPIC).sequences], range(1, head));
});

/** A healthy client's latencies and the server's memory, beside so many that never read. */
async function beside(t, count) {
  const operator = await withRun(t, { ...MEASURED, KHALA_SLOW_CONSUMER_CHECK_MS: "1500" });
  await operator.batch(events(1000, wide));
  const healthy = await Client.join(operator);
  await healthy.subscribe({ topics: [TOPIC], resume_after: { [TOPIC]: 900 } });
  await healthy.reached(TOPIC, 1001);
  const few = openFiles(operator);
  for (let i = 0; i < count; i += 50) await Promise.all(range(1, Math.min(50, count)).map(() => stuckClient(operator)));
  const before = memoryKib(operator);
  let head = 1001;
  const times = await latencies(operator, healthy, TOPIC, async () => {
    await operator.batch(events(20, wide));
    return (head += 20);
  }, 100);
  const grown = memoryKib(operator) - before;
  for (let round = 0; openFiles(operator) > few; round++) {
    assert.ok(round < 20000, "the stuck ones are never closed");
    await operator.batch(events(20, wide));
    head += 20;
  }
  await healthy.reached(TOPIC, head);
  assert.deepEqual(healthy.run(TOPIC).sequences, range(901, head));
  return { grown_kib: grown, median_ms: median(times), p99_ms: times.at(-1) };
}

test("who reads nothing and follows nothing is evicted too, and the server goes on", async (t) => {
  const operator = await operate(t, { settings: { KHALA_SLOW_CONSUMER_CHECK_MS: "50" } });
  const raw = await RawSocket.open(operator);
  raw.peer.socket.pause();
  // Pongs are all there is to send it: they fill its socket, then the strikes begin.
  const pings = Buffer.concat(Array.from({ length: 2000 }, () => frame(PING, "x".repeat(125))));
  const flood = () => raw.peer.socket.write(pings, (error) => !error && setImmediate(flood));
  flood();
  await operator.server.saw("log", /client\.disconnected code=slow_consumer .*close_code=4000/);
  const { body } = await operator.get("/metrics");
  assert.match(body, /slow_consumer_evictions_total\{dialect="phoenix",topic_class="none"\} 1\n/);
});

test("a thousand stuck clients cost no memory that grows, delay nobody, and are closed", async (t) => {
  const alone = await beside(t, 0);
  const crowd = await beside(t, 1000);
  t.diagnostic(JSON.stringify({ alone, crowd, ratio_median: crowd.median_ms / alone.median_ms, ratio_p99: crowd.p99_ms / alone.p99_ms }));
  // Four megabytes went by for each of the thousand; each may hold one push of 64 KiB, mostly shared.
  assert.ok(crowd.grown_kib - alone.grown_kib < 100 * 1024, "memory grows with those who do not read");
  assert.ok(crowd.median_ms < 5 * alone.median_ms + 20, "others wait for those who do not read");
});

test("nothing more is read for who does not read, however many topics it follows", async (t) => {
  const operator = await operate(t, { settings: { KHALA_WINDOWS_BYTES_MAX: "1048576", KHALA_SLOW_CONSUMER_CHECK_MS: "1000" } });
  const runs = range(1, 400).map((i) => `many-${i}`);
  for (const run_id of runs) await operator.did("runs", { run_id }, 201);
  for (const run_id of runs) await operator.batch(events(1, () => ({ text: "x".repeat(200_000) }), run_id));
  const topics = runs.map((run) => `run:${run}:events`);
  const raw = await RawSocket.open(operator);
  raw.peer.socket.pause();
  await raw.send(message(["1", "2", "sync:v1", "sync:subscribe", { topics, resume_after: Object.fromEntries(topics.map((topic) => [topic, 0])) }]));
  await operator.server.saw("log", /client.disconnected code=slow_consumer /);
  const read = (await operator.get("/metrics")).body.match(/sync_replay_frames_total{topic_class="run_events"} (\d+)/);
  // What the kernel takes for it is some megabytes of eighty.
  assert.ok(Number(read[1]) < runs.length, `${read[1]} frames of ${2 * runs.length} were read`);
});

test("thousands of connects at full speed: those who are connected notice nothing", async (t) => {
  const operator = await withRun(t, { KHALA_CONNECTIONS_MAX: "3000" });
  const client = await Client.join(operator);
  await client.subscribe({ topics: [TOPIC], resume_after: { [TOPIC]: 0 } });
  const append = async () => (await operator.did("runs/a/events", { event_type: "x" })).event.seq;
  const quiet = await latencies(operator, client, TOPIC, append, 50);
  const few = openFiles(operator);
  const state = { made: 0, over: false };
  const hello = handshake(operator);
  const storm = async () => {
    for (; !state.over && state.made < 20_000; state.made++) {
      await new Promise((resolve) => {
        const socket = net.connect({ port: operator.server.port, host: operator.server.host });
        socket.on("error", resolve);
        socket.on("connect", () => {
          // Some say nothing, some half of a handshake, some all of it; none stays.
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
  // This process makes the storm too, on the same cores.
  assert.ok(median(busy) < 50 * median(quiet) + 200, "the connected wait for those who connect");
  assert.deepEqual(client.closes, []);
  for (let round = 0; openFiles(operator) > few + 5 && round < 10000; round++) await operator.read("runs/a");
  assert.ok(openFiles(operator) <= few + 5, "connections that went are still held");
});

test("headers and frames that drip hold nothing for long, and delay nobody", async (t) => {
  const operator = await withRun(t, { KHALA_REQUEST_TIMEOUT_MS: "700", KHALA_SILENCE_TIMEOUT_MS: "700" });
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
  const timer = setInterval(() => {
    for (const one of dripping) if (!one.peer.ended) one.peer.socket.write(one.bytes.subarray(one.at, ++one.at));
  }, 20);
  t.after(() => clearInterval(timer));
  const busy = await latencies(operator, client, TOPIC, append, 50);
  await Promise.all(dripping.map((one) => one.peer.rest()));
  for (const one of dripping) assert.ok(one.at < one.bytes.length, "it dripped to its end");
  t.diagnostic(`median ${median(quiet)} ms, beside them ${median(busy)} ms`);
  assert.ok(median(busy) < 10 * median(quiet) + 50);
  assert.deepEqual(client.closes, []);
});
