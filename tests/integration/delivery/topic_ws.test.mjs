// The WebSocket of a topic, with the npm client ws.
import assert from "node:assert/strict";
import { alone, test } from "../../lib/cases.mjs";
import { onPostgres } from "../../lib/database.mjs";
import { connect } from "../../lib/khala.mjs";
import { operate } from "../../lib/operator.mjs";
import { socketPath } from "../../lib/paths.mjs";
import { events, range, TOPIC } from "../../lib/samples.mjs";
import { Socket } from "../../lib/socket.mjs";
import { closeCode, frame, handshake, RawSocket, TEXT } from "../../lib/websocket.mjs";

const BUDGET = { RUNTIME_KHALA_RUN_EVENTS_REPLAY_BUDGET_EVENTS: "30" };

const bearer = (operator) => ({ headers: { authorization: `Bearer ${operator.reader}` } });
const open = (operator, topic, query = "", options = {}) =>
  Socket.open(operator, socketPath(topic, query), { ...bearer(operator), ...options });

/** The position after the socket's last message. */
const reached = ({ messages }) => messages.at(-1)?.sequence ?? messages.at(-1)?.through;

/** Asserts that every message and progress continues the one before; answers the last position. */
function assertContiguous(socket) {
  let at = null;
  for (const one of socket.messages) {
    if (one.type === "hello") at = one.after_seq;
    if (one.type !== "message" && one.type !== "progress") continue;
    assert.equal(one.after, at);
    at = one.sequence ?? one.through;
  }
  return at;
}

test("a topic socket sends hello, replays, follows, and resumes after its cursor", async (t) => {
  const operator = await operate(t, { settings: { KHALA_HEARTBEAT_MS: "50" } });
  await operator.did("runs", { run_id: "a", owner_user_id: "u" }, 201);
  await operator.batch(events(999));
  const socket = await open(operator, TOPIC, "after_seq=0");
  await socket.until((one) => one.of("message").length === 1000, "the replay");
  const [hello] = socket.messages;
  assert.deepEqual(Object.keys(hello), ["type", "topic", "stream_id", "epoch", "after_seq", "oldest_available_cursor",
    "head_cursor", "replay_budget_events", "limit_applied", "heartbeat_interval_ms"]);
  assert.deepEqual({ ...hello, epoch: "" }, { type: "hello", topic: TOPIC, stream_id: "runtime.run.a.events", epoch: "",
    after_seq: 0, oldest_available_cursor: 0, head_cursor: 1000, replay_budget_events: 20000, limit_applied: 1000,
    heartbeat_interval_ms: 50 });
  await operator.batch(events(50));
  await socket.until((one) => one.of("message").length === 1050, "what is live");
  assert.equal(assertContiguous(socket), 1050);
  const messages = socket.of("message");
  const log = await operator.events("a");
  assert.deepEqual(messages.map((one) => one.event_id), log.map((one) => one.event_id));
  assert.deepEqual(messages.map((one) => one.payload), log.map((one) => one.payload));
  await socket.until((one) => one.pings >= 3, "pings");
  const resumed = await open(operator, TOPIC, `after_seq=1040&epoch=${hello.epoch}&limit=3`);
  await resumed.until((one) => one.of("message").length === 10, "the rest");
  assert.deepEqual(resumed.of("message").map((one) => one.sequence), range(1041, 1050));
  assert.equal(resumed.messages[0].limit_applied, 3);
});

test("a compressed topic socket receives the same messages, and accepts a token in the query", async (t) => {
  const operator = await operate(t);
  await operator.did("runs", { run_id: "a" }, 201);
  await operator.batch(events(299, { payload: (i) => ({ i, text: "x".repeat(500) }) }));
  const sockets = await Promise.all([false, true].map((perMessageDeflate) =>
    Socket.open(operator, socketPath(TOPIC, `after_seq=0&token=${operator.reader}`), { perMessageDeflate })));
  for (const socket of sockets) await socket.until((one) => one.of("message").length === 300, "the replay");
  assert.equal(sockets[0].ws.extensions, "");
  assert.equal(sockets[1].ws.extensions, "permessage-deflate");
  assert.deepEqual(sockets[0].messages, sockets[1].messages);
  const bytes = sockets.map((socket) => socket.ws._socket.bytesRead);
  assert.ok(bytes[1] < bytes[0] / 2, `${bytes}`);
});

test("a topic socket with a stale cursor recovers on the same connection", async (t) => {
  const operator = await operate(t, { settings: BUDGET });
  await operator.did("runs", { run_id: "a" }, 201);
  await operator.batch(events(99));
  const first = await open(operator, TOPIC);
  await first.until((one) => one.of("message").length === 30, "the bootstrap");
  assert.deepEqual(first.messages[0].bootstrap, { from_seq: 71, truncated: true });
  assert.equal(first.messages[0].after_seq, 70);
  for (const query of ["after_seq=1", "after_seq=5", "after_seq=69", "after_seq=101", `after_seq=100&epoch=${"0".repeat(36)}`]) {
    const socket = await open(operator, TOPIC, query);
    await socket.until((one) => one.of("message").length === 30, `the way back of ${query}`);
    assert.deepEqual(socket.messages.slice(0, 3).map((one) => one.type), ["stale_cursor", "hello", "message"]);
    const [stale, hello] = socket.messages;
    assert.equal(stale.code, "stale_cursor");
    assert.equal(stale.full_resync_required, true);
    assert.equal(stale.stale_topics[0].topic, TOPIC);
    assert.deepEqual(hello.bootstrap, { from_seq: 71, truncated: true });
    assert.equal(assertContiguous(socket), 100);
    // The announced cursor resumes without another stale_cursor.
    const again = await open(operator, TOPIC, `after_seq=${hello.after_seq}&epoch=${hello.epoch}`);
    await again.until((one) => one.of("message").length === 30, "the resume");
    assert.deepEqual(again.of("stale_cursor"), []);
  }
});

test("a topic socket may start at the head", async (t) => {
  const operator = await operate(t);
  await operator.did("runs", { run_id: "a" }, 201);
  await operator.batch(events(9));
  const socket = await open(operator, TOPIC, "from=head");
  const early = await open(operator, "run:later:events", "from=head");
  await socket.until((one) => one.of("hello").length === 1, "the hello");
  await early.until((one) => one.of("hello").length === 1, "the hello");
  assert.deepEqual(socket.messages[0].bootstrap, { from_seq: 11, truncated: true });
  assert.deepEqual(early.messages[0].bootstrap, { from_seq: 1, truncated: false });
  await operator.batch(events(2));
  await operator.did("runs", { run_id: "later" }, 201);
  await socket.until((one) => one.of("message").length === 2, "what is live");
  await early.until((one) => one.of("message").length === 1, "the first");
  assert.equal(assertContiguous(socket), 12);
});

test("an invalid topic socket is refused before the handshake", async (t) => {
  const operator = await operate(t);
  const refused = async (query, status, options = bearer(operator), topic = TOPIC) => {
    const refusal = await Socket.refused(operator, socketPath(topic, query), options);
    assert.equal(refusal.status, status, query);
    return JSON.parse(refusal.body).error;
  };
  for (const query of ["after_seq=-1", "after_seq=x", "after_seq=1e3", "after_seq=9007199254740992", "from=tail",
    "from=head&after_seq=1"]) {
    assert.equal(await refused(query, 400), "invalid_cursor");
  }
  assert.equal(await refused("limit=0", 400), "invalid_request");
  assert.equal(await refused("", 400, bearer(operator), "a\nb"), "invalid_topic");
  assert.equal(await refused("", 401, {}), "missing_authorization");
  assert.equal(await refused("token=wrong", 401, {}), "invalid_token");
  const plain = await operator.get(socketPath(TOPIC, `token=${operator.reader}`));
  assert.equal(plain.status, 400);
  assert.equal(JSON.parse(plain.body).error, "ws_bad_handshake");
});

test("a peer that breaks the protocol gets its close code, and others continue", async (t) => {
  const operator = await operate(t, { settings: { KHALA_WS_MESSAGE_BYTES_MAX: "4096" } });
  await operator.did("runs", { run_id: "a" }, 201);
  const healthy = await open(operator, TOPIC, "after_seq=0");
  const target = socketPath(TOPIC, `after_seq=0&token=${operator.reader}`);
  const endless = Buffer.concat([frame(1, "x".repeat(1000), { fin: false }),
    ...Array.from({ length: 5 }, () => frame(0, "x".repeat(1000), { fin: false }))]);
  const cases = [
    ["an unmasked frame", frame(1, "{}", { mask: false }), 1002],
    ["a reserved opcode", frame(3, ""), 1002],
    ["a reserved bit", Buffer.from([0xf1, 0x80, 0, 0, 0, 0]), 1002],
    ["a continuation of nothing", frame(0, "x"), 1002],
    ["a long ping", frame(9, "x".repeat(126)), 1002],
    ["a close of one byte", frame(8, "x"), 1002],
    ["a forbidden close code", frame(8, Buffer.from([3, 237])), 1002],
    ["wrong UTF-8", frame(1, Buffer.from([0xff, 0xfe])), 1007],
    ["half a character at the end", frame(1, Buffer.from([0xc3])), 1007],
    ["a giant message", frame(1, "x", { size: 2 ** 40 }), 1009],
    ["a message of ten thousand", frame(1, "x".repeat(10000)), 1009],
    ["endless fragments", endless, 1009],
    ["a binary message", frame(2, "x"), 4003],
    ["a message, where none is expected", frame(1, "{}"), 4003],
    ["a text that is no JSON", frame(1, "hello"), 4003],
    ["a close", frame(8, Buffer.from([3, 232])), 1000],
  ];
  for (const [what, bytes, code] of cases) {
    const peer = await connect(operator.server);
    await peer.send(handshake(target));
    await peer.send(bytes);
    peer.finish();
    assert.equal(closeCode(await peer.rest()), code, what);
  }
  await operator.batch(events(5));
  await healthy.until((one) => one.of("message").length === 6, "what is live");
});

test("a message from a client is answered with an error and its position", async (t) => {
  const operator = await operate(t);
  await operator.did("runs", { run_id: "a" }, 201);
  await operator.batch(events(4));
  const socket = await open(operator, TOPIC, "after_seq=0");
  await socket.until((one) => one.of("message").length === 5, "the replay");
  socket.say({ type: "subscribe" });
  await socket.until((one) => one.closed, "the close");
  assert.deepEqual(socket.closed, { code: 4003, reason: "resume_after run:a:events=5" });
  assert.deepEqual(socket.messages.at(-1), { type: "error", code: "invalid_message",
    message: "The message does not have the expected shape.", resume_after: [{ topic: TOPIC, watermark: 5 }] });
});

test("a socket that answers no pings is closed, and one that does is kept", async (t) => {
  const operator = await operate(t, { settings: { KHALA_HEARTBEAT_MS: "100", KHALA_SILENCE_TIMEOUT_MS: "1500" } });
  const silent = await RawSocket.open(operator, { path: socketPath(TOPIC, `token=${operator.reader}`), join: false });
  const alive = await open(operator, TOPIC, "after_seq=0");
  assert.equal((await silent.closed()).code, 1001);
  await alive.until((one) => one.pings >= 20, "more than that time");
  assert.equal(alive.closed, null);
});

test("an incomplete WebSocket handshake is answered 408", async (t) => {
  const operator = await operate(t, { settings: { KHALA_REQUEST_TIMEOUT_MS: "1000" } });
  const peer = await connect(operator.server);
  await peer.send(handshake(socketPath(TOPIC)).slice(0, -2));
  assert.match(await peer.rest(), /^HTTP\/1.1 408 /);
});

alone("a topic socket that stops reading is closed with 4000, and one that catches up is kept", async (t) => {
  const operator = await operate(t, { settings: { KHALA_SLOW_CONSUMER_CHECK_MS: "600" } });
  await operator.did("runs", { run_id: "a" }, 201);
  for (let i = 0; i < 4; i++) await operator.batch(events(500, { payload: (n) => ({ n, text: "x".repeat(10000) }) }));
  const stuck = await open(operator, TOPIC, "after_seq=0");
  stuck.pause();
  const quick = await open(operator, TOPIC, "after_seq=0");
  await quick.until((one) => reached(one) === 2001, "20 MB behind, at full speed");
  assert.equal(quick.closed, null);
  await operator.server.saw("log", /client\.disconnected code=slow_consumer /);
  stuck.resume();
  await stuck.until((one) => one.closed, "the close");
  assert.equal(stuck.closed.code, 4000);
  const error = stuck.messages.at(-1);
  const at = assertContiguous(stuck);
  assert.equal(error.type, "error");
  assert.equal(error.code, "slow_consumer");
  assert.equal(error.topic, TOPIC);
  assert.equal(error.strikes, 3);
  assert.ok(error.reconnect_after_ms >= 400);
  assert.deepEqual(error.resume_after, [{ topic: TOPIC, watermark: at }]);
  assert.equal(stuck.closed.reason, `resume_after ${TOPIC}=${at}`);
  const resumed = await open(operator, TOPIC, `after_seq=${at}`);
  await resumed.until((one) => reached(one) === 2001, "the rest");
  assertContiguous(resumed);
});

test("a topic socket learns from an ending server when to reconnect", async (t) => {
  const operator = await operate(t);
  await operator.did("runs", { run_id: "a" }, 201);
  const socket = await open(operator, TOPIC, "after_seq=0");
  await socket.until((one) => one.of("message").length === 1, "the replay");
  await operator.server.stop();
  await socket.until((one) => one.closed, "the close");
  assert.deepEqual(socket.closed, { code: 1012, reason: "resume_after run:a:events=1" });
  const error = socket.messages.at(-1);
  assert.equal(error.code, "shutting_down");
  assert.ok(error.reconnect_after_ms >= 400);
});

test("a summary topic starts with its snapshot and continues after its watermark", async (t) => {
  const operator = await operate(t);
  for (const run_id of ["a", "b", "c"]) await operator.did("runs", { run_id }, 201);
  const socket = await open(operator, "runtime.run_summaries");
  await socket.until((one) => one.of("snapshot").some((part) => part.last), "the snapshot");
  assert.deepEqual(socket.messages[0].bootstrap, { snapshot: true, truncated: false });
  assert.equal(socket.messages[0].after_seq, undefined);
  const parts = socket.of("snapshot");
  assert.deepEqual(parts.flatMap((part) => part.documents).map((one) => one.doc_key).sort(),
    ["a", "b", "c"].map((id) => `runtime/run_summary:${id}`));
  await operator.batch(events(1));
  await socket.until((one) => one.of("message").length === 1, "what is live");
  assert.equal(socket.of("message")[0].after, parts.at(-1).watermark);
  const late = await open(operator, "runtime.run_summaries", "from=head");
  await late.until((one) => one.of("hello").length === 1, "the hello");
  assert.deepEqual(late.messages[0].bootstrap, { from_seq: 5, truncated: true });
});

test("a topic socket hides other tenants' events and covers their range", async (t) => {
  const operator = await operate(t, { settings: { KHALA_HEARTBEAT_MS: "100" } });
  const owners = ["ada", "bob", "ada", "bob", "bob"];
  for (const [i, owner_user_id] of owners.entries()) await operator.did("runs", { run_id: `r${i}`, owner_user_id }, 201);
  const token = await operator.token({ user_id: "ada", scopes: ["runtime.run_events"] });
  const socket = await Socket.open(operator, socketPath("runtime.run_summaries", `after_seq=0&token=${token}`));
  await socket.until((one) => assertContiguous(one) === 5, "all of it");
  assert.deepEqual(socket.of("message").map((one) => [one.after, one.sequence]), [[0, 1], [1, 3]]);
  assert.deepEqual(socket.of("progress"), [{ type: "progress", after: 3, through: 5 }]);
  await operator.did("runs", { run_id: "more", owner_user_id: "bob" }, 201);
  await operator.did("runs", { run_id: "mine", owner_user_id: "ada" }, 201);
  await socket.until((one) => assertContiguous(one) === 7, "what is live");
  assert.equal(socket.of("message").at(-1).payload.run_id, "mine");
});

test("topic sockets that start at any cursor during appends see no gap", async (t) => {
  const operator = await operate(t, { settings: { KHALA_WINDOW_FRAMES_MAX: "256" } });
  await operator.did("runs", { run_id: "a" }, 201);
  const sockets = [];
  let head = 1;
  const rounds = onPostgres ? 10 : 30; // a page of one message is a query
  for (let i = 0; i < rounds; i++) {
    const written = operator.batch(events(100));
    const after = Math.floor(Math.random() * head);
    sockets.push({ after, socket: await open(operator, TOPIC, `after_seq=${after}&limit=${1 + (i % 7) * 50}`) });
    await written;
    head += 100;
  }
  for (const { after, socket } of sockets) {
    // The order is checked once, at the end: to check it at each message takes quadratic time.
    await socket.until((one) => reached(one) === head, `everything behind ${after}`);
    assert.equal(assertContiguous(socket), head);
    assert.deepEqual(socket.of("message").map((one) => one.sequence), range(after + 1, head));
  }
});

alone("a topic socket reads its peer's first bytes after an owner lookup", async (t) => {
  const operator = await operate(t);
  await operator.did("runs", { run_id: "own", owner_user_id: "u" }, 201);
  const token = operator.sign({ oa_user_id: "u", oa_sync_scopes: ["runtime.run_events"] });
  const path = socketPath("run:own:events", `after_seq=0&token=${token}`);
  const early = await connect(operator.server);
  await early.send(Buffer.concat([Buffer.from(handshake(path)), frame(TEXT, "words")]));
  early.finish();
  assert.equal(closeCode(await early.rest()), 4003);
  const late = await Socket.open(operator, path);
  await late.until((one) => one.of("hello").length === 1, "the hello");
  late.say("words");
  await late.until((one) => one.closed, "the close");
  assert.equal(late.closed.code, 4003);
});
