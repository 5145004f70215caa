// The main dialect: the unmodified npm Phoenix client over ws, and raw connections that send bytes no
// client library would send.
import assert from "node:assert/strict";
import { test } from "node:test";
import WebSocket from "ws";
import { connect } from "../lib/khala.mjs";
import { operate, operateRun } from "../lib/operator.mjs";
import { Client } from "../lib/phoenix.mjs";
import { events, range, TOPIC } from "../lib/samples.mjs";
import { repeat, within } from "../lib/wait.mjs";
import { BINARY, CLOSE, frame, handshake, message, phoenixPath, PING, PONG, RawSocket, TEXT } from "../lib/websocket.mjs";

const STREAM = "runtime.run.a.events";

/** Starts a server with a run of so many events. */
const withRun = (t, count, settings = {}) => operateRun(t, { count, owner_user_id: "u", settings });

test("the Phoenix client joins, sends heartbeats, leaves and rejoins", async (t) => {
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
  assert.deepEqual(reply.windows, [{ topic: TOPIC, stream_id: STREAM, oldest_seq: 1, head_seq: 3, replay_budget_events: 20000,
    qos_tier: "warm", resume_after: 0 }]);
  await client.reached(TOPIC, 3);
  const [batch] = client.of("sync:update_batch");
  assert.deepEqual(Object.keys(batch), ["topic", "after", "through", "updates", "replay_complete", "head_watermarks"]);
  assert.deepEqual({ ...batch, updates: 0 }, { topic: TOPIC, after: 0, through: 3, updates: 0, replay_complete: true,
    head_watermarks: [{ topic: TOPIC, watermark: 3 }] });
  const log = await operator.events("a");
  for (const [i, update] of batch.updates.entries()) {
    assert.deepEqual(Object.keys(update), ["topic", "doc_key", "doc_version", "payload", "payload_hash", "watermark", "event_id",
      "cursor", "hydration_required"]);
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
  await client.subscribe({ topics: [TOPIC, "run:none:events"], resume_after: { [TOPIC]: 30, "run:none:events": 0 } });
  await client.until(() => client.of("sync:update_batch").length >= 2, "two empty batches");
  // The reply shows that no further batch was sent before it.
  await client.ask("sync:heartbeat", {});
  assert.deepEqual(client.of("sync:update_batch").map(({ topic, after, through, updates, replay_complete }) =>
    ({ topic, after, through, updates, replay_complete })).sort((a, b) => (a.topic < b.topic ? -1 : 1)), [
    { topic: TOPIC, after: 30, through: 30, updates: [], replay_complete: true },
    { topic: "run:none:events", after: 0, through: 0, updates: [], replay_complete: true },
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
  const stale = await client.refused("sync:subscribe", { topics: [TOPIC, "run:other:events"], resume_after: { [TOPIC]: 0, "run:other:events": 0 } });
  assert.equal(stale.code, "stale_cursor");
  assert.equal(stale.full_resync_required, true);
  assert.deepEqual(stale.reason_codes, ["replay_budget_exceeded"]);
  assert.equal(stale.stale_topics.length, 1);
  assert.equal(stale.stale_topics[0].resume_after, 0);
  const { response: { watermarks } } = await client.ask("sync:heartbeat", {});
  assert.deepEqual(watermarks, [{ topic: "run:none:events", watermark: 0 }], "all or nothing");
  // A cursor of 0 stays stale; a bootstrap is never stale.
  for (const way of [{}, { bootstrap: true, resume_after: { [TOPIC]: 0 } }]) {
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
    [{ topics: [TOPIC], resume_after: { [TOPIC]: "1" } }, "bad_subscription"],
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

test("the server sends heartbeats and closes a silent client", async (t) => {
  const operator = await withRun(t, 4, { KHALA_HEARTBEAT_MS: "20", KHALA_SILENCE_TIMEOUT_MS: "400" });
  const client = await Client.join(operator, { heartbeatIntervalMs: 50 });
  await client.subscribe({ topics: [TOPIC], resume_after: { [TOPIC]: 0 } });
  const silent = await RawSocket.open(operator);
  const beaten = async () => {
    const found = await silent.find((one) => one.opcode === TEXT && JSON.parse(one.payload)[3] === "sync:heartbeat");
    return JSON.parse(found.payload);
  };
  assert.deepEqual(await beaten(), [null, null, "sync:v1", "sync:heartbeat", { watermarks: [] }]);
  await beaten();
  assert.equal((await silent.closed()).code, 1001);
  await client.until(() => client.of("sync:heartbeat").length > 30, "heartbeats");
  assert.deepEqual(client.of("sync:heartbeat").at(-1), { watermarks: [{ topic: TOPIC, watermark: 4 }] });
  assert.deepEqual(client.closes, [], "one that speaks is not closed");
});

test("bytes of an incomplete message do not reset the silence timeout", async (t) => {
  const operator = await operate(t, { settings: { KHALA_SILENCE_TIMEOUT_MS: "300" } });
  const raw = await RawSocket.open(operator);
  const bytes = message(["1", "2", "sync:v1", "sync:heartbeat", { text: "x".repeat(5000) }]);
  let sent = 0;
  repeat(t, 5, () => {
    if (!raw.peer.ended) raw.peer.socket.write(bytes.subarray(sent, ++sent));
  });
  assert.equal((await raw.closed()).code, 1001);
  assert.ok(sent < bytes.length - 1, "the whole message was sent");
});

test("messages and frames that break the rules close with their code", async (t) => {
  const operator = await operate(t, { settings: { KHALA_WS_MESSAGE_BYTES_MAX: "4096" } });
  const cases = [
    ["no JSON", frame(TEXT, "hello"), 4003],
    ["another shape", frame(TEXT, "[1,2]"), 4003],
    ["binary", frame(BINARY, "[]"), 4003],
    ["unmasked", frame(TEXT, "[]", { mask: false }), 1002],
    ["a reserved bit", frame(TEXT, "[]", { rsv: 2 }), 1002],
    ["compressed without agreement", frame(TEXT, "[]", { rsv: 4 }), 1002],
    ["an unknown opcode", frame(5, "x"), 1002],
    ["a fragmented ping", frame(PING, "x", { fin: false }), 1002],
    ["a long ping", frame(PING, "x".repeat(126)), 1002],
    ["a continuation of nothing", frame(0, "x"), 1002],
    ["a text in a text", Buffer.concat([frame(TEXT, "[", { fin: false }), frame(TEXT, "]")]), 1002],
    ["broken UTF-8", frame(TEXT, Buffer.from([0x22, 0xff, 0x22])), 1007],
    ["a cut character", frame(TEXT, Buffer.from([0x22, 0xc3])), 1007],
    ["too big", frame(TEXT, "x".repeat(4097)), 1009],
    ["too big by its header", frame(TEXT, "x", { size: 2 ** 40 }), 1009],
    ["a header and nothing behind it", frame(TEXT, "", { size: 2 ** 62 }), 1009],
    ["a header with the top bit and nothing behind it", frame(TEXT, "", { size: 2 ** 63 }), 1002],
    ["a fragment's header that is too much with what came before",
      Buffer.concat([frame(TEXT, "x".repeat(2000), { fin: false }), frame(0, "", { size: 2097 })]), 1009],
    ["endless fragments", Buffer.concat([frame(TEXT, "x".repeat(1000), { fin: false }),
      ...Array.from({ length: 5 }, () => frame(0, "x".repeat(1000), { fin: false }))]), 1009],
    ["a close of one byte", frame(CLOSE, "x"), 1002],
    ["a close with a wrong code", frame(CLOSE, Buffer.from([0x03, 0xed])), 1002],
  ];
  const healthy = await Client.join(operator);
  for (const [what, bytes, code] of cases) {
    const raw = await RawSocket.open(operator);
    await raw.send(bytes);
    const closed = await raw.closed();
    assert.equal(closed?.code, code, what);
  }
  const empty = await RawSocket.open(operator);
  let count = 0;
  await empty.send(frame(TEXT, "", { fin: false }));
  const fragments = Buffer.concat(Array.from({ length: 1000 }, () => frame(0, "", { fin: false })));
  for (; count < 1000 && !empty.peer.ended; count++) await empty.send(fragments).catch(() => {});
  assert.equal((await empty.closed())?.code, 1009, "endless empty fragments");
  assert.equal((await healthy.ask("sync:heartbeat", {})).status, "ok");
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

test("a client closed for a wrong message receives its position", async (t) => {
  const operator = await withRun(t, 5, { KHALA_WS_MESSAGE_BYTES_MAX: "4096" });
  for (const [bytes, code, why] of [[frame(TEXT, "hello"), 4003, "invalid_message"],
    [frame(TEXT, "x".repeat(4097)), 1009, "payload_too_large"], [frame(5, "x"), 1002, "ws_protocol_error"]]) {
    const raw = await RawSocket.open(operator);
    await raw.send(message(["1", "2", "sync:v1", "sync:subscribe", { topics: [TOPIC], resume_after: { [TOPIC]: 0 } }]));
    await raw.find((one) => one.opcode === TEXT && JSON.parse(one.payload)[4].through === 5);
    await raw.send(bytes);
    const [, , channel, event, body] = JSON.parse((await raw.frame()).payload);
    assert.deepEqual([channel, event, body.code], ["sync:v1", "sync:error", why]);
    assert.deepEqual(body.resume_after, [{ topic: TOPIC, watermark: 5 }]);
    assert.deepEqual(await raw.closed(), { code, reason: `resume_after ${TOPIC}=5` });
  }
});

test("a closed socket of several topics receives the position of each topic", async (t) => {
  const operator = await withRun(t, 5, { KHALA_SILENCE_TIMEOUT_MS: "300", KHALA_SHUTDOWN_GRACE_MS: "0" });
  const long = `chat:${"x".repeat(200)}`;
  for (const [others, reason] of [[["runtime.notifications"], `resume_after runtime.notifications=0, ${TOPIC}=5`],
    [[long], ""]]) {
    const ends = { frame: (raw) => raw.send(frame(5, "x")), silence: () => {} };
    if (reason === "") ends.restart = () => operator.server.kill("SIGTERM");
    for (const [why, end] of Object.entries(ends)) {
      const raw = await RawSocket.open(operator);
      const resume_after = { [TOPIC]: 0, [others[0]]: 0 };
      await raw.send(message(["1", "2", "sync:v1", "sync:subscribe", { topics: [TOPIC, ...others], resume_after }]));
      await raw.find((one) => one.opcode === TEXT && JSON.parse(one.payload)[4].through === 5);
      end(raw);
      const last = await raw.find((one) => one.opcode === CLOSE || JSON.parse(one.payload)[3] === "sync:error");
      assert.equal(last.opcode, TEXT, `${why}: closed without an error`);
      const body = JSON.parse(last.payload)[4];
      assert.deepEqual(body.resume_after, [{ topic: others[0], watermark: 0 }, { topic: TOPIC, watermark: 5 }], why);
      const codes = { frame: [1002, "ws_protocol_error"], silence: [1001, "ws_silent"], restart: [1012, "shutting_down"] };
      const closed = await raw.closed();
      assert.deepEqual([closed.code, body.code], codes[why]);
      assert.equal(closed.reason, reason, why);
      await raw.send(frame(CLOSE, ""));
    }
  }
  await operator.server.stopped();
});

test("an invalid handshake is answered as HTTP", async (t) => {
  const operator = await operate(t);
  const good = handshake(phoenixPath(operator));
  const cases = [
    [good.replace("Upgrade: websocket\r\n", ""), 426], [good.replace(/Sec-WebSocket-Key: \S+/, "Sec-WebSocket-Key: x"), 400],
    [good.replace("Version: 13", "Version: 8"), 426], [good.replace("vsn=2.0.0", "vsn=1.0.0"), 400],
    [good.replace(/token=[^&\s]+/, "token=wrong"), 401], [good.replace("GET", "HEAD"), 400],
  ];
  for (const [text, status] of cases) {
    const peer = await connect(operator.server);
    await peer.send(text);
    const answer = await peer.response({ bodiless: text.startsWith("HEAD") });
    assert.ok(answer.status === status || (status === 426 && answer.status === 400), `${answer.status}: ${text}`);
  }
  const both = await RawSocket.open(operator, { path: `/sync${phoenixPath(operator)}` });
  await both.send(frame(PING, "are you there"));
  const pong = await both.find((one) => one.opcode === PONG);
  assert.equal(pong.payload.toString(), "are you there");
});

test("messages sent together with the handshake are answered in order", async (t) => {
  const operator = await withRun(t, 3);
  const peer = await connect(operator.server);
  await peer.send(Buffer.concat([Buffer.from(handshake(phoenixPath(operator))),
    message(["1", "1", "sync:v1", "phx_join", {}]),
    message(["1", "2", "sync:v1", "sync:subscribe", { topics: [TOPIC], resume_after: { [TOPIC]: 0 } }]),
    message(["1", "3", "sync:v1", "sync:heartbeat", {}]),
    message(["1", "4", "sync:v1", "sync:subscribe", { topics: ["run:b:events"] }]),
    message(["1", "5", "sync:v1", "sync:unsubscribe", { topics: [TOPIC] }])]));
  await peer.head();
  const raw = new RawSocket();
  raw.peer = peer;
  const refs = [];
  while (refs.at(-1) !== "5") {
    const { payload } = await raw.find((one) => one.opcode === TEXT);
    const [, ref, , event, body] = JSON.parse(payload);
    if (event === "phx_reply") refs.push(ref);
    if (ref === "3") assert.deepEqual(body.response.watermarks, [{ topic: TOPIC, watermark: 3 }]);
  }
  assert.deepEqual(refs, ["1", "2", "3", "4", "5"]);
});

test("messages after a large reply are all answered", async (t) => {
  const operator = await withRun(t, 1);
  const raw = await RawSocket.open(operator);
  const topics = range(1, 1000).map((i) => `room:${"x".repeat(100)}:${i}`);
  await raw.send(message(["1", "s", "sync:v1", "sync:subscribe", { topics }]));
  assert.equal((await raw.reply("s")).status, "ok");
  await raw.send(Buffer.concat(range(1, 20).map((i) => message(["1", `h${i}`, "sync:v1", "sync:heartbeat", {}]))));
  for (const i of range(1, 20)) assert.equal((await raw.reply(`h${i}`)).status, "ok");
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

test("a client above the message rate is told so, and closed if it continues", async (t) => {
  const operator = await operate(t, { settings: { KHALA_WS_MESSAGES_PER_SECOND: "50" } });
  const healthy = await Client.join(operator);
  const raw = await RawSocket.open(operator);
  const codes = new Map();
  let ref = 2;
  const closed = (async () => {
    for (;;) {
      const next = await raw.frame();
      if (next === null) return null;
      if (next.opcode === CLOSE) return next.payload.readUInt16BE(0);
      const [, , , event, body] = JSON.parse(next.payload);
      if (event === "sync:error") assert.equal(body.code, "rate_limited");
      if (event === "sync:error") continue;
      const code = body.status === "ok" ? "ok" : body.response.code;
      codes.set(code, (codes.get(code) ?? 0) + 1);
    }
  })();
  repeat(t, 5, () => {
    const some = Array.from({ length: 20 }, () => message(["1", String(ref++), "sync:v1", "sync:heartbeat", {}]));
    if (!raw.peer.ended) raw.peer.socket.write(Buffer.concat(some));
  });
  assert.equal(await within(closed, "the close"), 4005);
  assert.ok(codes.get("ok") >= 50, "a burst is allowed");
  assert.ok(codes.get("rate_limited") >= 100, "it was told");
  assert.equal((await healthy.ask("sync:heartbeat", {})).status, "ok");
});

test("a large message counts as several, also when it was compressed", async (t) => {
  const operator = await operate(t, { settings: { KHALA_WS_MESSAGES_PER_SECOND: "50" } });
  class Transport extends WebSocket {
    constructor(url, protocols, options) {
      super(url, { ...options, perMessageDeflate: { threshold: 0 } });
    }
  }
  const client = await Client.join(operator, { transport: Transport });
  const socket = client.socket.conn;
  const closed = new Promise((resolve) => socket.on("close", resolve));
  let replies = 0;
  socket.on("message", (data) => { if (JSON.parse(data)[3] === "phx_reply") replies++; });
  const padding = "x".repeat(200 * 1024);
  const large = JSON.stringify(["1", "7", "sync:v1", "sync:heartbeat", { padding }]);
  for (let i = 0; i < 200; i++) socket.send(large, () => {});
  assert.equal(await within(closed, "the end of the flood"), 4005);
  assert.ok(replies >= 2, "the first is answered, the next is told why it is not");
  assert.ok(replies < 50, `${replies} replies to large messages within moments`);
});

test("a client that closes is released at once, and one that never closes is cut off", async (t) => {
  const operator = await withRun(t, 2);
  const raw = await RawSocket.open(operator);
  await raw.send(frame(CLOSE, Buffer.from([0x03, 0xe8])));
  assert.equal((await raw.closed()).code, 1000);
  await raw.peer.rest();
  // A closed client that keeps sending is cut off.
  const rude = await RawSocket.open(operator);
  await rude.send(frame(TEXT, "nonsense"));
  assert.equal((await rude.closed()).code, 4003);
  repeat(t, 50, () => rude.peer.socket.write(frame(PING, "still here")));
  await within(rude.peer.rest(), "the end of one that goes on sending", 10_000);
});

test("a half-open connection is closed", async (t) => {
  const operator = await withRun(t, 2, { KHALA_SILENCE_TIMEOUT_MS: "200" });
  const raw = await RawSocket.open(operator);
  raw.peer.socket.pause();
  const half = await RawSocket.open(operator);
  half.peer.finish();
  assert.equal(await half.closed(), null);
  raw.peer.socket.resume();
  assert.equal((await raw.closed()).code, 1001);
});

test("a server that ends tells every client to reconnect at a different time", async (t) => {
  const operator = await withRun(t, 5, { RUNTIME_KHALA_RECONNECT_JITTER_MS: "100000" });
  const clients = [];
  for (let i = 0; i < 20; i++) {
    const raw = await RawSocket.open(operator);
    await raw.subscribe(TOPIC);
    await raw.find((one) => one.opcode === TEXT && JSON.parse(one.payload)[4].through === 5);
    clients.push(raw);
  }
  repeat(t, 20, () => {
    for (const raw of clients) if (!raw.peer.ended) raw.peer.socket.write(message(["1", "9", "sync:v1", "sync:heartbeat", {}]));
  });
  operator.server.kill("SIGTERM");
  const ends = await Promise.all(clients.map(async (raw) => {
    const errors = [];
    const last = await raw.find((one) => {
      if (one.opcode === TEXT && JSON.parse(one.payload)[3] === "sync:error") errors.push(JSON.parse(one.payload)[4]);
      return one.opcode === CLOSE;
    });
    if (!last) return { code: null };
    const reason = last.payload.subarray(2).toString();
    await raw.send(frame(CLOSE, last.payload.subarray(0, 2)));
    return { code: last.payload.readUInt16BE(0), reason, errors };
  }));
  for (const { code, reason, errors } of ends) {
    assert.equal(code, 1012);
    assert.equal(reason, `resume_after ${TOPIC}=5`);
    assert.equal(errors.length, 1);
    assert.equal(errors[0].code, "shutting_down");
    assert.ok(errors[0].reconnect_after_ms >= 400);
    assert.deepEqual(errors[0].resume_after, [{ topic: TOPIC, watermark: 5 }]);
  }
  const hints = ends.map(({ errors }) => errors[0].reconnect_after_ms);
  assert.ok(new Set(hints).size > ends.length / 2, `all at once: ${hints}`);
  await operator.server.stopped();
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
