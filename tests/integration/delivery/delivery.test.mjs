// Delivery of topics by polls, waiting polls and event streams.
import assert from "node:assert/strict";
import { alone, test } from "../../lib/cases.mjs";
import { assertError, connect, folder, start } from "../../lib/khala.mjs";
import { MEASURED, memoryBytes, openFiles } from "../../lib/machine.mjs";
import { operate, operateRun } from "../../lib/operator.mjs";
import { streamPath } from "../../lib/paths.mjs";
import { events, median, range, TOPIC, wide } from "../../lib/samples.mjs";
import { Stream } from "../../lib/sse.mjs";
import { until, within } from "../../lib/wait.mjs";

const PATIENT = { RUNTIME_KHALA_POLL_MIN_INTERVAL_MS: "0" };

async function page(operator, topic, query) {
  const response = await operator.poll(topic, query);
  assert.equal(response.status, 200, response.body);
  return JSON.parse(response.body);
}

async function sse(operator, topic, query = "", headers = {}) {
  return Stream.open(operator, streamPath(topic, query),
    { authorization: `Bearer ${await operator.token()}`, ...headers });
}

const sequences = (messages) => messages.map((one) => (one.data ?? one).sequence);

test("a poll answers with every field, and the events of the log", async (t) => {
  const operator = await operate(t, { settings: PATIENT });
  const { event } = await operator.did("runs", { run_id: "a", owner_user_id: "u" }, 201);
  await operator.batch(events(4));
  const answer = await page(operator, TOPIC, "after_seq=0&limit=2");
  assert.deepEqual(Object.keys(answer), ["topic", "driver", "messages", "oldest_available_cursor", "head_cursor",
    "queue_depth", "dropped_messages", "next_cursor", "replay_complete", "limit_applied", "limit_capped",
    "fairness_applied", "active_topic_count", "outbound_queue_limit", "consumer_lag", "slow_consumer_strikes",
    "slow_consumer_max_strikes", "recommended_reconnect_backoff_ms", "epoch"]);
  assert.equal(answer.messages[0].event_id, event.event_id);
  assert.equal(answer.messages[0].cursor, event.cursor);
  assert.equal(answer.messages[0].published_at, event.recorded_at);
  assert.deepEqual(sequences(answer.messages), [1, 2]);
  assert.equal(answer.next_cursor, 2);
  assert.equal(answer.head_cursor, 5);
  assert.equal(answer.consumer_lag, 3);
  assert.equal(answer.replay_complete, false);
  assert.ok(answer.recommended_reconnect_backoff_ms >= 400 && answer.recommended_reconnect_backoff_ms <= 650);
  const rest = await page(operator, TOPIC, "after_seq=2");
  assert.deepEqual(sequences(rest.messages), [3, 4, 5]);
  assert.equal(rest.replay_complete, true);
  const summaries = await page(operator, "runtime.run_summaries", "after_seq=0");
  assert.equal(summaries.messages.at(-1).kind, "run_summary");
  assert.equal(summaries.messages.at(-1).payload.latest_seq, 5);
});

test("a poll with another epoch is stale, unless it has nothing yet", async (t) => {
  const operator = await operate(t, { settings: PATIENT });
  await operator.did("runs", { run_id: "a" }, 201);
  const { epoch } = await page(operator, TOPIC, "after_seq=0");
  assert.deepEqual(sequences((await page(operator, TOPIC, `after_seq=0&epoch=${epoch}`)).messages), [1]);
  assert.deepEqual(sequences((await page(operator, TOPIC, "after_seq=0&epoch=another")).messages), [1]);
  const other = await operator.poll(TOPIC, "after_seq=1&epoch=another");
  assert.equal(other.status, 410, other.body);
  const body = JSON.parse(other.body);
  assert.deepEqual([body.error, body.reason_code], ["stale_cursor", "epoch_mismatch"]);
  assert.deepEqual(body.details.reason_codes, ["epoch_mismatch"]);
});

test("a poll without a cursor is a bootstrap, and a poll of an unknown topic is empty", async (t) => {
  const operator = await operate(t, { settings: { ...PATIENT, RUNTIME_KHALA_RUN_EVENTS_REPLAY_BUDGET_EVENTS: "3" } });
  await operator.did("runs", { run_id: "a" }, 201);
  await operator.batch(events(9));
  const answer = await page(operator, TOPIC);
  assert.deepEqual(answer.bootstrap, { from_seq: 8, truncated: true });
  assert.deepEqual(sequences(answer.messages), [8, 9, 10]);
  const empty = await page(operator, "run:none:events", "after_seq=0");
  assert.deepEqual(empty.messages, []);
  assert.equal(empty.head_cursor, 0);
  assert.equal(empty.replay_complete, true);
});

test("a poll has a default limit, a maximum, and a smaller slice for a client of several topics", async (t) => {
  const operator = await operate(t, { settings: PATIENT });
  await operator.did("runs", { run_id: "a" }, 201);
  await operator.did("runs", { run_id: "b" }, 201);
  await operator.batch(events(299));
  assert.equal((await page(operator, TOPIC, "after_seq=0")).messages.length, 100);
  const capped = await page(operator, TOPIC, "after_seq=0&limit=900");
  assert.equal(capped.messages.length, 200);
  assert.equal(capped.limit_applied, 200);
  assert.equal(capped.limit_capped, true);
  await page(operator, "run:b:events", "after_seq=0");
  const shared = await page(operator, TOPIC, "after_seq=0&limit=100");
  assert.equal(shared.fairness_applied, true);
  assert.equal(shared.active_topic_count, 2);
  assert.equal(shared.messages.length, 50);
});

test("an invalid poll or stream request is refused", async (t) => {
  const operator = await operate(t, { settings: PATIENT });
  for (const query of ["after_seq=-1", "after_seq=x", "after_seq=", "after_seq=01", "limit=0", "limit=x", "wait_ms=60001",
    "after_seq=1&after_seq=2"]) {
    assert.equal((await operator.poll(TOPIC, query)).status, 400, query);
  }
  assert.equal((await operator.poll("a\nb")).status, 400);
  const path = `/internal/v1/khala/topics/${TOPIC}/messages`;
  assert.equal((await operator.ask("GET", path, undefined, { authorization: "Bearer wrong" })).status, 401);
  const streams = `/v1/topics/${TOPIC}/sse`;
  assert.equal((await operator.ask("GET", streams, undefined, { authorization: "Bearer wrong" })).status, 401);
  assert.equal((await operator.ask("GET", `${streams}?token=wrong`)).status, 401);
  assert.equal((await operator.ask("GET", `${streams}?token=${"x".repeat(300)}`)).status, 401);
  const token = await operator.token();
  assert.equal((await operator.ask("GET", `${streams}?token=${token}`, undefined, { "last-event-id": "seven" })).status, 400);
  assert.equal((await operator.ask("GET", `${streams}?after_seq=-1&token=${token}`)).status, 400);
});

test("a poll that is too early receives the time to retry, and does not extend it", async (t) => {
  const operator = await operate(t, { settings: { RUNTIME_KHALA_POLL_MIN_INTERVAL_MS: "60000" } });
  await page(operator, TOPIC, "after_seq=0");
  let before = 60001;
  for (let i = 0; i < 5; i++) {
    const response = await operator.poll(TOPIC, "after_seq=0");
    assert.equal(response.status, 429);
    const { error, details } = JSON.parse(response.body);
    assert.equal(error, "rate_limited");
    assert.ok(details.retry_after_ms <= before);
    before = details.retry_after_ms;
    assert.equal(response.headers["retry-after"], "60");
  }
  await page(operator, "run:other:events", "after_seq=0");
});

test("a client that is catching up polls at once, and a rejected poll delays none", async (t) => {
  const operator = await operate(t, { settings: { RUNTIME_KHALA_POLL_MIN_INTERVAL_MS: "60000", RUNTIME_KHALA_RUN_EVENTS_REPLAY_BUDGET_EVENTS: "12" } });
  await operator.did("runs", { run_id: "a" }, 201);
  await operator.batch(events(19));
  assert.equal((await operator.poll(TOPIC, "after_seq=1")).status, 410);
  let answer = await page(operator, TOPIC, "limit=5");
  for (const seqs of [range(14, 18), range(19, 20)]) {
    assert.equal(answer.replay_complete, false);
    answer = await page(operator, TOPIC, `after_seq=${answer.next_cursor}&limit=5`);
    assert.deepEqual(sequences(answer.messages), seqs);
  }
  assert.equal(answer.replay_complete, true);
  assert.equal((await operator.poll(TOPIC, `after_seq=${answer.next_cursor}`)).status, 429);
});

test("a bootstrap is no strike, and an eviction names a position and a lag that are true", async (t) => {
  const operator = await operate(t, { settings: { ...PATIENT, RUNTIME_KHALA_POLL_MIN_INTERVAL_MS: "60000",
    RUNTIME_KHALA_SLOW_CONSUMER_LAG_THRESHOLD: "2", RUNTIME_KHALA_SLOW_CONSUMER_MAX_STRIKES: "2" } });
  await operator.did("runs", { run_id: "a" }, 201);
  await operator.batch(events(19));
  for (let i = 0; i < 4; i++) assert.equal((await page(operator, TOPIC, "limit=1")).slow_consumer_strikes, 0);
  let response;
  do response = await operator.poll(TOPIC, "after_seq=3&limit=4"); while (response.status === 200);
  const { details } = assertError(response, 409, "slow_consumer_evicted");
  assert.deepEqual([details.topic, details.lag, details.strikes, details.resume_after], [TOPIC, 17, 2, 3]);
  assert.ok(details.reconnect_after_ms >= 400);
  const again = await page(operator, TOPIC, `after_seq=${details.resume_after}&limit=17`);
  assert.deepEqual(sequences(again.messages), range(4, 20));
});

test("the poll interval is counted for each session", async (t) => {
  const operator = await operate(t, { settings: { RUNTIME_KHALA_POLL_MIN_INTERVAL_MS: "60000" } });
  const as = async (user_id, session_id) => {
    const authorization = `Bearer ${await operator.token({ user_id, session_id, topics: ["room:1", "room:2"] })}`;
    return (topic) => operator.ask("GET", `khala/topics/${topic}/messages`, undefined, { authorization });
  };
  const [alice, bob] = [await as("alice"), await as("bob")];
  assert.equal((await alice("room:1")).status, 200);
  assert.equal((await alice("room:2")).status, 200);
  assert.equal((await alice("room:1")).status, 429);
  const answer = await bob("room:1");
  assert.equal(answer.status, 200, answer.body);
  assert.equal(JSON.parse(answer.body).active_topic_count, 1);
  assert.equal((await operator.poll("room:1")).status, 200);
  const [tab, sameTab] = [await as("alice", "tab-2"), await as("alice", "tab-2")];
  const second = await tab("room:1");
  assert.equal(second.status, 200, "another tab of the same user");
  assert.equal(JSON.parse(second.body).active_topic_count, 2, "the topics of the user, each once");
  assert.equal((await sameTab("room:1")).status, 429, "a fresh token of the same session");
  const counted = async (topic, sub) => {
    const token = operator.sign({ sub, oa_sync_scopes: ["runtime.read_all"] });
    const { body } = await operator.ask("GET", `khala/topics/${topic}/messages`, undefined, { authorization: `Bearer ${token}` });
    return JSON.parse(body).active_topic_count;
  };
  assert.deepEqual([await counted("room:1", "a"), await counted("room:2", "a"), await counted("room:2", "b")], [1, 2, 1], "tokens with a subject only");
});

test("a stale cursor is answered 410 with its window, and a bootstrap recovers in one step", async (t) => {
  const operator = await operate(t, { settings: { ...PATIENT, RUNTIME_KHALA_RUN_EVENTS_REPLAY_BUDGET_EVENTS: "3" } });
  await operator.did("runs", { run_id: "a" }, 201);
  await operator.batch(events(9));
  const response = await operator.poll(TOPIC, "after_seq=6");
  assert.equal(response.status, 410);
  const { error, reason_code, details } = JSON.parse(response.body);
  const { epoch } = await page(operator, TOPIC);
  assert.equal(error, "stale_cursor");
  assert.equal(reason_code, "replay_budget_exceeded");
  assert.equal(details.full_resync_required, true);
  assert.deepEqual(details.stale_topics, [{ topic: TOPIC, stream_id: "runtime.run.a.events",
    reason_codes: ["replay_budget_exceeded"], qos_tier: "warm", resume_after: 6, retention_floor: 1,
    oldest_available_cursor: 0, head_watermark: 10, replay_lag: 4, replay_budget_events: 3, epoch, replay: "all" }]);
  assert.deepEqual(sequences((await page(operator, TOPIC)).messages), [8, 9, 10]);
  assert.equal((await operator.poll(TOPIC, "after_seq=7")).status, 200);

  const stream = await sse(operator, TOPIC, "after_seq=1");
  await stream.until((one) => one.messages.length === 3, "the bootstrap");
  assert.deepEqual(stream.events.map((one) => one.type), ["stale_cursor", "bootstrap", "message", "message", "message"]);
  assert.equal(stream.events[0].data.code, "stale_cursor");
  assert.equal(stream.events[0].id, "", "only durable events have ids");
  assert.deepEqual(stream.events[1].data, { topic: TOPIC, epoch: stream.events[1].data.epoch, from_seq: 8, truncated: true });
});

test("a waiting poll is answered by the next event or at its timeout", async (t) => {
  const operator = await operate(t, { settings: PATIENT });
  await operator.did("runs", { run_id: "a" }, 201);
  const waiting = page(operator, TOPIC, "after_seq=1&wait_ms=30000");
  const early = page(operator, "run:later:events", "after_seq=0&wait_ms=30000");
  await operator.batch(events(1));
  assert.deepEqual(sequences((await waiting).messages), [2]);
  await operator.did("runs", { run_id: "later" }, 201);
  assert.deepEqual(sequences((await early).messages), [1]);
  const begun = Date.now();
  const none = await page(operator, TOPIC, "after_seq=2&wait_ms=100");
  assert.ok(Date.now() - begun >= 95);
  assert.deepEqual(none.messages, []);
  assert.equal(none.next_cursor, 2);
  // A waiting poll does not delay the end of the server.
  const last = page(operator, TOPIC, "after_seq=2&wait_ms=60000");
  await operator.read("runs/a");
  operator.server.kill("SIGTERM");
  assert.deepEqual((await within(last, "the answer of a server that ends", 5000)).messages, []);
});

test("an event stream replays, follows and resumes by id, and the header wins over the query", async (t) => {
  const operator = await operate(t);
  await operator.did("runs", { run_id: "a" }, 201);
  await operator.batch(events(999));
  const stream = await sse(operator, TOPIC);
  assert.equal(stream.status, 200);
  assert.equal(stream.headers["content-type"], "text/event-stream");
  assert.match(stream.headers["cache-control"], /no-cache/);
  await stream.until((one) => one.messages.length === 1000, "the replay");
  assert.ok(stream.retry >= 400);
  assert.equal(stream.lastSeq, 1000);
  await operator.batch(events(50));
  await stream.until((one) => one.messages.length === 1050, "what is live");
  assert.deepEqual(sequences(stream.messages), range(1, 1050));
  for (const one of stream.messages) assert.match(one.id, new RegExp(`^${one.data.sequence}@[0-9a-f-]{36}$`));
  const resumed = await sse(operator, TOPIC, "after_seq=3", { "last-event-id": "1040" });
  await resumed.until((one) => one.messages.length === 10, "the rest");
  assert.deepEqual(sequences(resumed.messages), range(1041, 1050));
  assert.deepEqual(resumed.events.map((one) => one.type), Array(10).fill("message"));
  const gate = await Stream.open(operator, `/v1/topics/${TOPIC}/sse?after_seq=1049&token=${await operator.token()}`);
  await gate.until((one) => one.messages.length === 1, "the last");
});

test("curl reads an event stream", async (t) => {
  const operator = await operate(t);
  await operator.did("runs", { run_id: "a" }, 201);
  const curl = start(t, ["curl", "-sN", "-H", `Authorization: Bearer ${await operator.token()}`,
    `${operator.server.url}/v1/topics/${TOPIC}/sse?after_seq=0`]);
  await curl.saw("out", /data: .*\n\n$/);
  assert.match(curl.out, /^retry: \d+\n\nid: 1@[0-9a-f-]{36}\ndata: \{"after":0,"topic":"run:a:events",[^\n]*"seq":1,[^\n]*\}\n\n$/);
});

test("a stream without events receives comments, and ends with the server", async (t) => {
  const operator = await operate(t, { settings: { KHALA_HEARTBEAT_MS: "20" } });
  const stream = await sse(operator, "runtime.notifications");
  await stream.until((one) => one.comments >= 3, "heartbeats");
  await operator.did("notifications", { event_type: "hello", payload: { n: 1 } });
  await stream.until((one) => one.messages.length === 1, "the notification");
  const { comments } = stream;
  await stream.until((one) => one.comments >= comments + 2, "heartbeats again");
  const begun = Date.now();
  await operator.server.stop();
  assert.ok(Date.now() - begun < 5000, "streams end at once");
  await stream.until((one) => one.ended, "the end");
});

test("streams that start at any cursor during appends see no gap", async (t) => {
  const operator = await operate(t, { settings: { KHALA_WINDOW_FRAMES_MAX: "256" } });
  await operator.did("runs", { run_id: "a" }, 201);
  const streams = [];
  const topics = [TOPIC, "runtime.run_summaries"];
  let head = 1;
  for (let i = 0; i < 30; i++) {
    const written = operator.batch(events(100));
    const topic = topics[i % 2];
    const after = i % 2 ? 0 : Math.floor(Math.random() * head);
    streams.push({ topic, after, stream: await sse(operator, topic, `after_seq=${after}`) });
    await written;
    head += 100;
  }
  const { head_cursor: summaries } = await page(operator, topics[1], "after_seq=0");
  for (const { topic, after, stream } of streams) {
    const goal = topic === TOPIC ? head : summaries;
    await stream.until((one) => one.lastSeq === goal, `${topic} from ${after} to ${goal}`);
    assert.deepEqual(sequences(stream.messages), range(after + 1, goal));
  }
});

test("a stream resumes by its cursor over a crash of the server", async (t) => {
  const data = folder(t);
  const first = await operate(t, { data });
  await first.did("runs", { run_id: "a" }, 201);
  const stream = await sse(first, TOPIC, "after_seq=0");
  const acknowledged = [];
  const writing = (async () => {
    for (;;) {
      for (const { event } of await first.batch(events(20))) acknowledged.push(event);
    }
  })().catch(() => {});
  await stream.until((one) => one.messages.length > 500, "a start");
  await first.server.crash();
  await writing;
  await stream.until((one) => one.ended, "the end");
  const second = await operate(t, { data });
  await second.batch(events(5));
  const log = await second.events("a");
  const resumed = await sse(second, TOPIC, "", { "last-event-id": stream.lastId });
  await resumed.until((one) => one.lastSeq === log.length, "the rest");
  const seen = [...stream.messages, ...resumed.messages].map((one) => one.data);
  assert.deepEqual(seen.map((one) => one.event_id), log.map((one) => one.event_id));
  assert.deepEqual(sequences(seen), range(1, log.length));
  const ids = new Set(seen.map((one) => one.event_id));
  for (const event of acknowledged) assert.ok(ids.has(event.event_id), "acknowledged, not delivered");
});

/** Publishes to one healthy stream beside so many that never read, and waits until the server has
 * closed those. Answers the growth of the server's memory and how long a round took. */
async function beside(t, count) {
  const operator = await operateRun(t, { settings: { ...MEASURED, KHALA_SLOW_CONSUMER_CHECK_MS: "800" } });
  const healthy = await sse(operator, TOPIC, "after_seq=0");
  await operator.batch(events(500, { payload: wide }));
  await healthy.until((one) => one.messages.length === 501, "the first events");
  const few = openFiles(operator.server);
  const stuck = [];
  const token = await operator.token();
  for (let i = 0; i < count; i++) {
    const peer = await connect(operator.server);
    peer.socket.pause();
    await peer.send(`GET /v1/topics/${TOPIC}/sse?after_seq=0&token=${token} HTTP/1.1\r\nHost: x\r\n\r\n`);
    stuck.push(peer);
  }
  const before = memoryBytes(operator.server);
  const rounds_ms = [];
  for (let round = 0; round < 40; round++) {
    const begun = process.hrtime.bigint();
    const goal = healthy.messages.length + 200;
    await operator.batch(events(200, { payload: wide }));
    await healthy.until((one) => one.messages.length === goal, "more events");
    rounds_ms.push(Number(process.hrtime.bigint() - begun) / 1e6);
  }
  const grown_bytes = memoryBytes(operator.server) - before;
  await until(() => openFiles(operator.server) <= few, "the close of the streams that do not read");
  for (const peer of stuck) peer.socket.resume();
  await Promise.all(stuck.map((peer) => peer.rest()));
  return { grown_bytes, median_ms: median(rounds_ms) };
}

alone("streams that stop reading cost no memory, delay no other stream, and are closed", async (t) => {
  const alone = await beside(t, 0);
  const crowd = await beside(t, 50);
  t.diagnostic(JSON.stringify({ alone, crowd }));
  // Each of the fifty missed 16 MB; the server keeps one slot for each.
  assert.ok(crowd.grown_bytes - alone.grown_bytes < 50 << 20, "memory grows with those who do not read");
  assert.ok(crowd.median_ms < 5 * alone.median_ms + 20, "others wait for those who do not read");
});

test("events committed while many streams are served reach every stream", async (t) => {
  const operator = await operate(t, { args: ["--loops", "1"], settings: { KHALA_CONNECTIONS_PER_PRINCIPAL_MAX: "1000" } });
  await operator.did("runs", { run_id: "a" }, 201);
  // More streams than one turn of the loop serves, and a batch that takes several commits.
  const crowd = await Promise.all(Array.from({ length: 700 }, () => sse(operator, TOPIC, "after_seq=1")));
  await operator.batch(events(200, { payload: () => ({ pad: "x".repeat(1000) }) }));
  for (const stream of crowd) {
    await stream.until(() => stream.events.length >= 200, "every event for everybody");
    assert.deepEqual(sequences(stream.events), range(2, 201));
  }
});
