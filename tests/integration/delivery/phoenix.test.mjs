// The main dialect, with the unmodified npm Phoenix client over ws: joining, subscriptions, replay and snapshots.
import assert from "node:assert/strict";
import WebSocket from "ws";
import { alone, test } from "../../lib/cases.mjs";
import { operate, operateRun } from "../../lib/operator.mjs";
import { Client } from "../../lib/phoenix.mjs";
import { events, range, TOPIC } from "../../lib/samples.mjs";
import { within } from "../../lib/wait.mjs";
import { frame, message, RawSocket, TEXT } from "../../lib/websocket.mjs";

const STREAM = "runtime.run.a.events";

/** Starts a server with a run of so many events. */
const withRun = (t, count, settings = {}) => operateRun(t, { count, owner_user_id: "u", settings });

alone("the Phoenix client joins, sends heartbeats, leaves and rejoins", async (t) => {
  const operator = await withRun(t, 3);
  const client = await Client.join(operator, { heartbeatIntervalMs: 200 });
  assert.deepEqual(Object.keys(client.welcome), ["subscription_id", "epoch", "allowed_topics", "current_watermarks", "server"]);
  assert.equal(client.welcome.server.heartbeat_interval_ms, 15000);
  // The client reconnects when its own heartbeat is not answered.
  let pings = 0;
  for (; pings < 5; pings++) await within(new Promise((resolve) => client.socket.ping(resolve)), "a heartbeat");
  await client.subscribe({ topics: [TOPIC], resume_after: { [TOPIC]: 0 } });
  await client.reached(TOPIC, 3);
  await client.leave();
  await operator.batch(events(2));
  const again = client.socket.channel("sync:v1", {});
  const seen = [];
  again.on("sync:update_batch", (batch) => seen.push(batch));
  const welcome = await within(new Promise((resolve) => again.join().receive("ok", resolve)), "the second join");
  assert.notEqual(welcome.subscription_id, client.welcome.subscription_id);
  const watermarks = await within(new Promise((resolve) => again.push("sync:heartbeat", { any: 1 }).receive("ok", resolve)), "a heartbeat");
  assert.deepEqual(watermarks, { watermarks: [] }, "leaving ends subscriptions");
  assert.deepEqual(seen, []);
  assert.equal(client.opened, 1);
  assert.equal(client.run(TOPIC).at, 3);
});

test("a Phoenix client whose connection breaks reconnects and resumes", async (t) => {
  const operator = await withRun(t, 10);
  const client = await Client.join(operator);
  await client.subscribe({ topics: [TOPIC], resume_after: { [TOPIC]: 0 } });
  await client.reached(TOPIC, 10);
  const { conn } = client.socket;
  conn.terminate();
  await operator.batch(events(10));
  await client.until(() => client.opened === 2 && client.channel.state === "joined", "the reconnect");
  await client.subscribe({ topics: [TOPIC], resume_after: { [TOPIC]: client.run(TOPIC).at }, epoch: client.welcome.epoch });
  await client.reached(TOPIC, 20);
  assert.deepEqual(client.run(TOPIC).sequences, range(1, 20));
});

test("an update has every field, equal to the event in the log", async (t) => {
  const operator = await withRun(t, 3);
  const client = await Client.join(operator);
  const reply = await client.subscribe({ topics: [TOPIC], resume_after: { [TOPIC]: 0 } });
  assert.deepEqual(Object.keys(reply), ["subscription_id", "epoch", "topics", "current_watermarks", "windows"]);
  assert.equal(reply.subscription_id, client.welcome.subscription_id);
  assert.equal(reply.epoch, client.welcome.epoch);
  assert.deepEqual(reply.topics, [TOPIC]);
  assert.deepEqual(reply.current_watermarks, [{ topic: TOPIC, watermark: 3 }]);
  assert.deepEqual(reply.windows, [{ topic: TOPIC, stream_id: STREAM, epoch: reply.epoch, oldest_seq: 1, head_seq: 3, replay_budget_events: 20000,
    qos_tier: "warm", resume_after: 0 }]);
  await client.reached(TOPIC, 3);
  const [batch] = client.of("sync:update_batch");
  assert.deepEqual(Object.keys(batch), ["topic", "after", "through", "updates", "epoch", "replay_complete", "head_watermarks"]);
  assert.deepEqual({ ...batch, updates: 0 }, { topic: TOPIC, after: 0, through: 3, updates: 0, epoch: reply.epoch, replay_complete: true,
    head_watermarks: [{ topic: TOPIC, watermark: 3 }] });
  const log = await operator.events("a");
  for (const [i, update] of batch.updates.entries()) {
    assert.equal(update.topic, TOPIC);
    assert.equal(update.doc_key, `runtime/run_event:a:${i + 1}`);
    assert.match(update.payload_hash, /^sha256:[0-9a-f]{64}$/);
    assert.equal(update.watermark, i + 1);
    assert.equal(update.event_id, log[i].event_id);
    assert.equal(update.cursor, log[i].cursor);
    assert.equal(update.hydration_required, false);
  }
});

test("a subscription takes topics or streams, and every form of resume_after", async (t) => {
  const operator = await withRun(t, 20);
  const shapes = [
    [{ topics: [TOPIC] }, { [TOPIC]: 15 }],
    [{ topics: [TOPIC] }, [{ topic: TOPIC, watermark: 15 }]],
    [{ topics: [TOPIC] }, [{ stream_id: STREAM, after_seq: 15 }]],
    [{ streams: [STREAM] }, { [TOPIC]: 15 }],
    [{ streams: [STREAM] }, [{ topic: TOPIC, watermark: 15 }]],
    [{ streams: [STREAM] }, [{ stream_id: STREAM, after_seq: 15 }]],
  ];
  for (const [names, resume_after] of shapes) {
    const client = await Client.join(operator);
    const reply = await client.subscribe({ ...names, resume_after, epoch: client.welcome.epoch });
    assert.equal(reply.windows[0].resume_after, 15, JSON.stringify(resume_after));
    await client.reached(TOPIC, 20);
    assert.deepEqual(client.run(TOPIC).sequences, range(16, 20));
    client.close();
  }
});

test("a topic requested by topic and by stream is one subscription", async (t) => {
  const operator = await withRun(t, 5);
  const client = await Client.join(operator);
  const reply = await client.subscribe({ topics: [TOPIC, TOPIC], streams: [STREAM], resume_after: [{ stream_id: STREAM, after_seq: 2 }] });
  assert.deepEqual(reply.topics, [TOPIC]);
  assert.equal(reply.windows.length, 1);
  await client.reached(TOPIC, 5);
  await operator.batch(events(2));
  await client.reached(TOPIC, 7);
  assert.deepEqual(client.run(TOPIC).sequences, range(3, 7));
});

test("a cursor with an ambiguous stream id belongs to the subscribed topic", async (t) => {
  const operator = await operate(t);
  for (let i = 0; i < 5; i++) await operator.did("topics/a.b/events", { event_type: "said", payload: { i } });
  const client = await Client.join(operator);
  const reply = await client.subscribe({ topics: ["a.b"], resume_after: [{ stream_id: "runtime.topic.a.b", after_seq: 3 }] });
  assert.equal(reply.windows[0].resume_after, 3);
  await client.reached("a.b", 5);
  assert.deepEqual(client.run("a.b").sequences, [4, 5]);
  const other = await Client.join(operator);
  await other.subscribe({ streams: ["runtime.topic.a.b"], resume_after: { "a.b": 3 } });
  await other.reached("a.b", 5);
});

test("batches respect their size limit, and ranges continue from replay to live", async (t) => {
  const operator = await withRun(t, 1000, { KHALA_WINDOW_FRAMES_MAX: "64" });
  const client = await Client.join(operator);
  await client.subscribe({ topics: [TOPIC], resume_after: { [TOPIC]: 0 }, replay_batch_size: 7 });
  for (let i = 0; i < 10; i++) await operator.batch(events(50));
  await client.reached(TOPIC, 1500);
  for (const batch of client.of("sync:update_batch")) assert.ok(batch.updates.length <= 7);
  assert.deepEqual(client.run(TOPIC).sequences, range(1, 1500));
});

test("a replay announces its completion once, also if it is empty", async (t) => {
  const operator = await withRun(t, 30);
  const client = await Client.join(operator);
  const { epoch: log } = await client.subscribe({ topics: [TOPIC, "run:none:events"], resume_after: { [TOPIC]: 30, "run:none:events": 0 } });
  await client.until(() => client.of("sync:update_batch").length >= 2, "two empty batches");
  // The reply shows that no further batch was sent before it.
  await client.ask("sync:heartbeat", {});
  assert.deepEqual(client.of("sync:update_batch").map(({ topic, after, through, updates, epoch, replay_complete }) =>
    ({ topic, after, through, updates, epoch, replay_complete })).sort((a, b) => (a.topic < b.topic ? -1 : 1)), [
    { topic: TOPIC, after: 30, through: 30, updates: [], epoch: log, replay_complete: true },
    { topic: "run:none:events", after: 0, through: 0, updates: [], epoch: log, replay_complete: true },
  ]);
  const other = await Client.join(operator);
  await other.subscribe({ topics: [TOPIC], resume_after: { [TOPIC]: 0 }, replay_batch_size: 10 });
  await other.reached(TOPIC, 30);
  await other.ask("sync:heartbeat", {});
  assert.deepEqual(other.of("sync:update_batch").map((one) => one.replay_complete), [false, false, true]);
});

test("frames in place of updates contain the payload's bytes", async (t) => {
  const operator = await withRun(t, 5);
  const client = await Client.join(operator);
  await client.subscribe({ topics: [TOPIC], resume_after: { [TOPIC]: 2 }, frames: true });
  await client.reached(TOPIC, 5);
  const frames = client.of("sync:frame");
  assert.deepEqual(frames.map((one) => one.seq), [3, 4, 5]);
  const plain = await Client.join(operator);
  await plain.subscribe({ topics: [TOPIC], resume_after: { [TOPIC]: 2 } });
  await plain.reached(TOPIC, 5);
  for (const [i, one] of frames.entries()) {
    assert.deepEqual(Object.keys(one), ["topic", "seq", "kind", "payload_bytes", "schema_version"]);
    assert.equal(one.schema_version, 1);
    assert.deepEqual(JSON.parse(Buffer.from(one.payload_bytes, "base64")), plain.run(TOPIC).updates[i].payload);
  }
  assert.deepEqual(client.of("sync:update_batch").map((one) => one.updates), [[]]);
});

test("a stale cursor is refused with its window, and a bootstrap recovers in one round trip", async (t) => {
  const operator = await withRun(t, 10, { RUNTIME_KHALA_RUN_EVENTS_REPLAY_BUDGET_EVENTS: "3" });
  const client = await Client.join(operator);
  await client.subscribe({ topics: ["run:none:events"], resume_after: { "run:none:events": 0 } });
  const stale = await client.refused("sync:subscribe", { topics: [TOPIC, "run:other:events"], resume_after: { [TOPIC]: 1, "run:other:events": 0 } });
  assert.equal(stale.code, "stale_cursor");
  assert.equal(stale.full_resync_required, true);
  assert.deepEqual(stale.reason_codes, ["replay_budget_exceeded"]);
  assert.equal(stale.stale_topics.length, 1);
  assert.equal(stale.stale_topics[0].resume_after, 1);
  const { response: { watermarks } } = await client.ask("sync:heartbeat", {});
  assert.deepEqual(watermarks, [{ topic: "run:none:events", watermark: 0 }], "all or nothing");
  // A bootstrap is never stale, and a cursor of 0 asks for one.
  for (const way of [{}, { bootstrap: true, resume_after: { [TOPIC]: 1 } }, { resume_after: { [TOPIC]: 0 } }]) {
    client.forget(TOPIC);
    const reply = await client.subscribe({ topics: [TOPIC], ...way });
    assert.deepEqual(reply.windows[0].bootstrap, { from_seq: 8, truncated: true });
    await client.reached(TOPIC, 10);
    assert.deepEqual(client.run(TOPIC).sequences, [8, 9, 10]);
  }
  const other = await client.refused("sync:subscribe", { topics: [TOPIC], resume_after: { [TOPIC]: 9 },
    epoch: "00000000-0000-7000-8000-000000000000" });
  assert.deepEqual(other.reason_codes, ["epoch_mismatch"]);
  const fresh = await Client.join(operator);
  await fresh.subscribe({ topics: [TOPIC], epoch: "another", bootstrap: true });
  await fresh.reached(TOPIC, 10);
});

test("a repeated subscription starts at its new cursor and does not count twice", async (t) => {
  const operator = await withRun(t, 10, { KHALA_SUBSCRIPTIONS_MAX: "3" });
  const client = await Client.join(operator);
  const others = ["run:x:events", "run:y:events"];
  await client.subscribe({ topics: [TOPIC, ...others], resume_after: { [TOPIC]: 9 } });
  await client.reached(TOPIC, 10);
  for (let i = 0; i < 3; i++) {
    client.forget(TOPIC);
    const reply = await client.subscribe({ topics: [TOPIC, others[0]], resume_after: { [TOPIC]: 4 } });
    assert.deepEqual([...reply.topics].sort(), [TOPIC, ...others].sort());
    await client.reached(TOPIC, 10);
    assert.deepEqual(client.run(TOPIC).sequences, range(5, 10));
  }
  assert.equal((await client.refused("sync:subscribe", { topics: ["run:z:events"] })).code, "limit_reached");
  assert.equal((await client.refused("sync:subscribe", { topics: range(1, 4).map((i) => `t${i}`) })).code, "limit_reached");
  assert.deepEqual((await client.ask("sync:unsubscribe", { topics: [others[0]] })).response.topics.sort(), [TOPIC, others[1]].sort());
  await client.subscribe({ topics: ["run:z:events"] });
});

test("unsubscribing by topic or stream ends its updates", async (t) => {
  const operator = await withRun(t, 3);
  await operator.did("runs", { run_id: "b" }, 201);
  const client = await Client.join(operator);
  for (const names of [{ topics: [TOPIC] }, { streams: [STREAM] }]) {
    client.forget(TOPIC);
    await client.subscribe({ topics: [TOPIC, "run:b:events"], resume_after: { [TOPIC]: 0 } });
    await client.until(() => client.run(TOPIC).at > 0 && client.run("run:b:events").at > 0, "the replays");
    const { status, response } = await client.ask("sync:unsubscribe", names);
    assert.equal(status, "ok");
    assert.deepEqual(response, { topics: ["run:b:events"] });
    const { length } = client.of("sync:update_batch");
    await operator.batch(events(1));
    await operator.batch(events(1, { run_id: "b" }));
    await client.until(() => client.of("sync:update_batch").length > length, "what is still subscribed to");
    await client.ask("sync:heartbeat", {});
    for (const one of client.of("sync:update_batch").slice(length)) assert.equal(one.topic, "run:b:events");
    await client.ask("sync:unsubscribe", { topics: ["run:b:events", "run:never:events"] });
    client.forget("run:b:events");
  }
});

test("an invalid subscription is refused without any effect", async (t) => {
  const operator = await withRun(t, 3);
  const client = await Client.join(operator);
  const wrong = [
    [{}, "bad_subscription"], [{ topics: [] }, "bad_subscription"], [{ topics: "x" }, "bad_subscription"],
    [{ topics: [1] }, "bad_subscription"], [{ topics: [TOPIC, ""] }, "bad_topic"], [{ topics: [TOPIC, "a\u0000b"] }, "bad_topic"],
    [{ topics: ["x".repeat(2000)] }, "bad_topic"], [{ streams: ["no.such.kind"] }, "bad_topic"],
    [{ topics: [TOPIC], resume_after: 7 }, "bad_subscription"], [{ topics: [TOPIC], resume_after: { [TOPIC]: -1 } }, "bad_subscription"],
    [{ topics: [TOPIC], resume_after: { [TOPIC]: "one" } }, "bad_subscription"],
    [{ topics: [TOPIC], resume_after: [{ topic: TOPIC }] }, "bad_subscription"],
    [{ topics: [TOPIC], replay_batch_size: 0 }, "bad_subscription"], [{ topics: [TOPIC], replay_batch_size: 1001 }, "bad_subscription"],
    [{ topics: [TOPIC], epoch: 7 }, "bad_subscription"], [{ topics: [TOPIC], frames: "yes" }, "bad_subscription"],
    [{ topics: [TOPIC], bootstrap: 1 }, "bad_subscription"],
  ];
  for (const [payload, code] of wrong) {
    const body = await client.refused("sync:subscribe", payload);
    assert.equal(body.code, code, JSON.stringify(payload).slice(0, 80));
    assert.match(body.message, /^[A-Z].*\.$/);
  }
  assert.deepEqual((await client.ask("sync:heartbeat", {})).response, { watermarks: [] });
  assert.equal((await client.refused("sync:unknown", {})).code, "invalid_message");
  const other = new Client(operator, { channel: "room:lobby" });
  const error = await other.joined().catch((reason) => reason);
  assert.equal(error.body.code, "bad_topic");
  other.close();
});

test("a compressed socket receives the same content in fewer bytes", async (t) => {
  const operator = await withRun(t, 1);
  await operator.batch(events(99, { payload: (i) => ({ i, text: "the same words again ".repeat(20) }) }));
  const seen = [];
  for (const deflate of [true, false]) {
    let bytes = 0;
    class Transport extends WebSocket {
      constructor(url, protocols, options) {
        super(url, { ...options, perMessageDeflate: deflate });
        this.on("upgrade", (response) => response.socket.on("data", (data) => { bytes += data.length; }));
      }
    }
    const client = await Client.join(operator, { transport: Transport });
    assert.equal(client.socket.conn.extensions, deflate ? "permessage-deflate" : "");
    await client.subscribe({ topics: [TOPIC], resume_after: { [TOPIC]: 0 }, replay_batch_size: 50 });
    await client.reached(TOPIC, 100);
    seen.push({ updates: client.run(TOPIC).updates, bytes });
  }
  assert.deepEqual(seen[0].updates, seen[1].updates);
  assert.ok(seen[0].bytes * 3 < seen[1].bytes, `${seen[0].bytes} compressed, ${seen[1].bytes} plain`);
});

test("the reply to a bootstrap names its first event or its snapshot", async (t) => {
  const operator = await withRun(t, 3);
  const client = await Client.join(operator);
  const summaries = "runtime.run_summaries";
  const reply = await client.subscribe({ topics: [TOPIC, summaries] });
  const begins = Object.fromEntries(reply.windows.map((window) => [window.topic, window.bootstrap]));
  assert.deepEqual(begins, { [TOPIC]: { from_seq: 1, truncated: false }, [summaries]: { snapshot: true, truncated: false } });
  await client.until(() => client.of("sync:snapshot").some((part) => part.last), "the snapshot");
  await client.reached(TOPIC, 3);
});

test("a snapshot with one very large document arrives complete", async (t) => {
  const operator = await withRun(t, 1, { RUNTIME_KHALA_RUN_EVENTS_MAX_PAYLOAD_BYTES: "16777216" });
  const reason = "x".repeat(5 << 20);
  await operator.did("runs/a/events", { event_type: "run.finished", payload: { status: "failed", reason } });
  const client = await Client.join(operator);
  await client.subscribe({ topics: ["runtime.run_summaries"] });
  await client.until(() => client.of("sync:snapshot").length === 1, "the snapshot");
  const [{ documents, last }] = client.of("sync:snapshot");
  assert.equal(last, true);
  assert.equal(documents[0].payload.terminal_reason, reason);
  assert.deepEqual(client.closes, []);
});

test("clients that disconnect during a replay release their subscriptions", async (t) => {
  const operator = await operate(t, { settings: { KHALA_READERS: "1" } });
  const runs = range(1, 40).map((i) => `r${i}`);
  for (const run_id of runs) await operator.did("runs", { run_id }, 201);
  await operator.batch(runs.flatMap((run_id) => events(20, { run_id })));
  const topics = runs.map((run) => `run:${run}:events`);
  const resume_after = Object.fromEntries(topics.map((topic) => [topic, 0]));
  const summaries = ["runtime.run_summaries", "runtime.codex_worker_summaries"];
  const payload = { topics: [...topics, ...summaries], resume_after, replay_batch_size: 1 };
  for (let i = 0; i < 20; i++) {
    const raw = await RawSocket.open(operator);
    await raw.send(message(["1", "2", "sync:v1", "sync:subscribe", payload]));
    await raw.reply("2");
    if (i % 4 === 0) raw.peer.reset();
    else if (i % 4 === 1) await raw.send(frame(TEXT, "nonsense"));
    else if (i % 4 === 2) await raw.send(message(["1", "3", "sync:v1", "phx_leave", {}]));
    else {
      await raw.send(message(["1", "3", "sync:v1", "sync:unsubscribe", { topics: payload.topics }]));
      assert.deepEqual((await raw.reply("3")).response, { topics: [] });
      await raw.send(message(["1", "4", "sync:v1", "sync:subscribe", payload]));
      assert.equal((await raw.reply("4")).response.topics.length, 42);
    }
  }
  const client = await Client.join(operator);
  await client.subscribe(payload);
  for (const topic of topics) await client.reached(topic, 21);
});
