// The WebSocket and EventSource of a real browser: replay and live events, resuming, stale cursors
// and closes.
import assert from "node:assert/strict";
import { test } from "node:test";
import { openPage, untilInPage } from "../lib/browser.mjs";
import { folder } from "../lib/khala.mjs";
import { operate } from "../lib/operator.mjs";
import { events, range, TOPIC } from "../lib/samples.mjs";

// The origin of a page contains the server's port, which is unknown before the start.
const operateFor = (t, { settings, ...rest } = {}) =>
  operate(t, { settings: { RUNTIME_KHALA_ALLOWED_ORIGINS: "*", ...settings }, ...rest });


/** Opens a WebSocket in the page; its messages go to window.seen. */
function openSocket(page, path, first) {
  return page.evaluate(([address, message]) => {
    window.seen = [];
    window.wasClosed = null;
    const socket = new WebSocket(address);
    window.socket = socket;
    if (message) socket.onopen = () => socket.send(JSON.stringify(message));
    socket.onmessage = ({ data }) => window.seen.push(JSON.parse(data));
    socket.onclose = ({ code, reason, wasClean }) => { window.wasClosed = { code, reason, wasClean }; };
  }, [path, first]);
}

const of = (page, type) => page.evaluate((wanted) => window.seen.filter((one) => one.type === wanted), type);
const count = (page, type, number) => untilInPage(page, ([wanted, goal]) =>
  window.seen.filter((one) => one.type === wanted).length >= goal, [type, number], `${number} of ${type}`);

const address = (operator, query) =>
  `${operator.server.url.replace("http", "ws")}/internal/v1/khala/topics/${TOPIC}/ws?token=${operator.reader}&${query}`;

test("a browser's WebSocket follows a topic with compression, and resumes", async (t) => {
  const operator = await operateFor(t);
  await operator.did("runs", { run_id: "a" }, 201);
  await operator.batch(events(500));
  const page = await openPage(t, operator);
  await openSocket(page, address(operator, "after_seq=0"));
  await count(page, "message", 501);
  await operator.batch(events(20));
  await count(page, "message", 521);
  assert.match(await page.evaluate(() => window.socket.extensions), /^permessage-deflate/);
  const log = await operator.events("a");
  const seen = await of(page, "message");
  assert.deepEqual(seen.map((one) => one.event_id), log.map((one) => one.event_id));
  assert.deepEqual(seen.map((one) => one.after), range(0, 520));
  await page.evaluate(() => window.socket.close(1000));
  await untilInPage(page, () => window.wasClosed, null, "the close");
  assert.deepEqual(await page.evaluate(() => window.wasClosed), { code: 1000, reason: "", wasClean: true });
  await openSocket(page, address(operator, "after_seq=515"));
  await count(page, "message", 6);
  assert.deepEqual((await of(page, "message")).map((one) => one.sequence), range(516, 521));
});

test("a browser that returns beyond the replay budget recovers on the same socket", async (t) => {
  const operator = await operateFor(t, { settings: { RUNTIME_KHALA_RUN_EVENTS_REPLAY_BUDGET_EVENTS: "30" } });
  await operator.did("runs", { run_id: "a" }, 201);
  await operator.batch(events(99));
  const page = await openPage(t, operator);
  await openSocket(page, address(operator, "after_seq=1"));
  await count(page, "message", 30);
  await operator.batch(events(1));
  await count(page, "message", 31);
  const types = await page.evaluate(() => window.seen.map((one) => one.type));
  assert.deepEqual(types, ["stale_cursor", "hello", ...Array(31).fill("message")]);
  assert.deepEqual((await of(page, "message")).map((one) => one.sequence), range(71, 101));
  assert.equal(await page.evaluate(() => window.wasClosed), null);
});

test("a browser receives the close code and its position when the server ends", async (t) => {
  const operator = await operateFor(t);
  await operator.did("runs", { run_id: "a" }, 201);
  const page = await openPage(t, operator);
  await openSocket(page, address(operator, "after_seq=0"));
  await count(page, "message", 1);
  await operator.server.stop();
  await untilInPage(page, () => window.wasClosed, null, "the close");
  assert.deepEqual(await page.evaluate(() => window.wasClosed),
    { code: 1012, reason: `resume_after ${TOPIC}=1`, wasClean: true });
});

test("a browser's audit socket authenticates and receives the log", async (t) => {
  const operator = await operateFor(t);
  await operator.did("runs", { run_id: "a" }, 201);
  await operator.batch(events(50));
  const page = await openPage(t, operator);
  const stream = `${operator.server.url.replace("http", "ws")}/api/events/stream`;
  const init = { type: "init", version: 1, capability: operator.reader, nonce: "browser", ts: Date.now() };
  await openSocket(page, stream, init);
  await count(page, "replay_complete", 1);
  const { items } = await operator.read("/api/events?limit=200");
  assert.deepEqual((await of(page, "event")).map((one) => one.event), items);
  await openSocket(page, stream, init);
  await untilInPage(page, () => window.wasClosed, null, "the close");
  assert.equal((await page.evaluate(() => window.wasClosed)).code, 4001);
  assert.equal((await of(page, "error"))[0].code, "AUTH_FAILED");
});

test("a browser's EventSource follows a topic and the log over a crash without loss or repetition", async (t) => {
  const data = folder(t);
  const first = await operateFor(t, { data });
  await first.did("runs", { run_id: "a" }, 201);
  await first.batch(events(100));
  const page = await openPage(t, first);
  await page.evaluate(([topic, key]) => {
    window.streams = { topic: [], log: [] };
    for (const [name, path] of [["topic", `/v1/topics/${topic}/sse?after_seq=0`], ["log", "/events?"]]) {
      const source = new EventSource(`${path}&token=${key}`);
      source.onmessage = ({ data: text, lastEventId }) => window.streams[name].push({ lastEventId, ...JSON.parse(text) });
    }
  }, [TOPIC, first.reader]);
  const both = (goal) => untilInPage(page, (number) =>
    window.streams.topic.length >= number && window.streams.log.length >= number, goal, `${goal} of each`);
  await both(101);
  const { port } = first.server;
  await first.server.crash();
  const second = await operateFor(t, { data, args: ["--bind", `127.0.0.1:${port}`] });
  await second.batch(events(60));
  await both(161);
  const log = await second.events("a");
  const seen = await page.evaluate(() => window.streams);
  assert.deepEqual(seen.topic.map((one) => one.event_id), log.map((one) => one.event_id));
  assert.deepEqual(seen.log.map((one) => one.event_id), log.map((one) => one.event_id));
  assert.equal(seen.log.at(-1).lastEventId, log.at(-1).cursor);
});

test("a browser's EventSource beyond the replay budget receives a stale_cursor event and the newest events", async (t) => {
  const operator = await operateFor(t, { settings: { RUNTIME_KHALA_RUN_EVENTS_REPLAY_BUDGET_EVENTS: "30" } });
  await operator.did("runs", { run_id: "a" }, 201);
  await operator.batch(events(99));
  const page = await openPage(t, operator);
  await page.evaluate(([topic, key]) => {
    window.seen = [];
    const source = new EventSource(`/v1/topics/${topic}/sse?after_seq=1&token=${key}`);
    for (const type of ["message", "stale_cursor", "bootstrap"]) {
      source.addEventListener(type, ({ data: text }) => window.seen.push({ type, ...JSON.parse(text) }));
    }
  }, [TOPIC, operator.reader]);
  await count(page, "message", 30);
  const types = await page.evaluate(() => window.seen.map((one) => one.type));
  assert.deepEqual(types, ["stale_cursor", "bootstrap", ...Array(30).fill("message")]);
  assert.deepEqual((await of(page, "message")).map((one) => one.sequence), range(71, 100));
});

test("a page whose origin is not allowed gets neither a socket nor a stream", async (t) => {
  const operator = await operateFor(t, { settings: { RUNTIME_KHALA_ALLOWED_ORIGINS: "https://app.example" } });
  await operator.did("runs", { run_id: "a" }, 201);
  const page = await openPage(t, operator);
  await openSocket(page, address(operator, "after_seq=0"));
  await untilInPage(page, () => window.wasClosed, null, "the close");
  assert.deepEqual(await page.evaluate(() => [window.wasClosed.code, window.seen.length]), [1006, 0]);
  await operator.server.saw("log", /client\.denied code=origin_not_allowed .*topic=run:a:events/);
});
