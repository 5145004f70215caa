// The bytes that a lean frame takes around the payload of an event: counted on real sockets, with the header of a
// WebSocket message and the size line of an HTTP chunk.
import assert from "node:assert/strict";
import { test } from "node:test";
import { connect, getRequest } from "../../lib/khala.mjs";
import { operate, UNHURRIED } from "../../lib/operator.mjs";
import { pollPath, socketPath, streamPath } from "../../lib/paths.mjs";
import { frame, handshake, message, phoenixPath, cut, TEXT } from "../../lib/websocket.mjs";

const TOPIC = "chat:a-conversation-1";
const KIND = "message.delta";
const COUNT = 50;
const WEBSOCKET_BYTES_MAX = 150;
const EVENT_STREAM_BYTES_MAX = 200;

const payloadOf = (i) => ({ id: "m1", delta: `word ${i}` });
const payloadBytes = (seqs) => seqs.reduce((sum, seq) => sum + JSON.stringify(payloadOf(seq)).length, 0);

/** The messages of a WebSocket with their bytes, until there are as many frames. */
async function messagesOf(peer, framesIn, count) {
  const messages = [];
  for (let frames = 0; frames < count;) {
    const { size, frame: { opcode, payload } } = await peer.part(cut);
    if (opcode !== TEXT) continue;
    const value = JSON.parse(payload.toString());
    const found = framesIn(value);
    frames += found.length;
    if (found.length > 0) messages.push({ size, value, frames: found });
  }
  return messages;
}

async function webSocket(operator, path) {
  const peer = await connect(operator.server);
  await peer.send(handshake(path));
  assert.match(await peer.head(), /^HTTP\/1\.1 101 /);
  return peer;
}

const isBatch = ([, , , event]) => event === "sync:update_batch";

async function joined(operator, after) {
  const peer = await webSocket(operator, phoenixPath(operator));
  await peer.send(message(["1", "1", "sync:v1", "phx_join", {}]));
  await peer.send(message(["1", "2", "sync:v1", "sync:subscribe", { topics: [TOPIC], resume_after: { [TOPIC]: after }, form: "lean" }]));
  return peer;
}

const updatesOf = (value) => (isBatch(value) ? value[4].updates : []);
const ownOf = (value) => (value.type === "message" ? [value] : []);

function checkLean(frame, seq) {
  const { seq: given, kind, event_id, recorded_at, payload, type, ...others } = frame;
  assert.deepEqual([given, kind, payload], [seq, KIND, payloadOf(seq)]);
  assert.match(event_id, /^[0-9a-f-]{36}$/);
  assert.ok(Number.isSafeInteger(recorded_at));
  assert.ok(type === undefined || type === "message");
  assert.deepEqual(others, {});
}

test("a lean frame takes few bytes around the payload of its event", async (t) => {
  const operator = await operate(t, { settings: UNHURRIED });
  const events = (from, count) => Array.from({ length: count }, (_, i) => ({ topic: TOPIC, event_type: KIND, payload: payloadOf(from + i) }));
  await operator.batch(events(1, COUNT));

  /** The bytes of a frame beside its payload. A position of seven digits would be five bytes longer than these. */
  const around = (bytes, seqs) => (bytes - payloadBytes(seqs)) / seqs.length + 5;
  const report = (name, bytes) => t.diagnostic(`${name}: ${bytes.toFixed(1)} bytes around a payload`);

  await t.test("on a topic's own WebSocket, each message alone", async () => {
    const peer = await webSocket(operator, socketPath(TOPIC, `after_seq=0&form=lean&token=${operator.reader}`));
    const messages = await messagesOf(peer, ownOf, COUNT);
    messages.forEach(({ frames: [one] }, i) => checkLean(one, i + 1));
    const most = Math.max(...messages.map(({ size, frames: [{ seq }] }) => around(size, [seq])));
    report("topic_ws", most);
    assert.ok(most <= WEBSOCKET_BYTES_MAX, `${most}`);
  });

  await t.test("in a Phoenix batch, whose topic stands in it once", async () => {
    const peer = await joined(operator, 0);
    const messages = await messagesOf(peer, updatesOf, COUNT);
    const seqs = messages.flatMap(({ frames }) => frames.map(({ seq }) => seq));
    assert.deepEqual(seqs, Array.from({ length: COUNT }, (_, i) => i + 1));
    for (const { value, frames } of messages) {
      frames.forEach((one) => checkLean(one, one.seq));
      assert.equal(JSON.stringify(value).split(TOPIC).length, 2, "the topic stands in the batch once");
    }
    const average = around(messages.reduce((sum, { size }) => sum + size, 0), seqs);
    const most = Math.max(...messages.flatMap(({ frames }) => frames.map((one) => around(JSON.stringify(one).length + 1, [one.seq]))));
    report("phoenix, with its share of the batch", average);
    report("phoenix, a frame in a batch", most);
    assert.ok(average <= WEBSOCKET_BYTES_MAX && most <= WEBSOCKET_BYTES_MAX, `${average} ${most}`);
  });

  await t.test("on an event stream, each event alone", async () => {
    const peer = await connect(operator.server);
    await peer.send(getRequest(streamPath(TOPIC, "after_seq=0&form=lean"), `Authorization: Bearer ${operator.reader}`));
    assert.match(await peer.head(), /^HTTP\/1\.1 200 /);
    let text = "";
    const frames = () => [...text.matchAll(/id: (\d+)@\S+\ndata: (.*)\n\n/g)];
    while (frames().length < COUNT) text += (await peer.part((bytes) => (bytes.length > 0 ? { size: bytes.length, text: bytes.toString() } : null))).text;
    frames().forEach(([, id, data], i) => {
      assert.equal(Number(id), i + 1);
      checkLean(JSON.parse(data), i + 1);
    });
    // A live event is a chunk of its own, with a line of ten bytes and a line end.
    const most = Math.max(...frames().map(([whole, id]) => around(whole.length + 12, [Number(id)]) + 5));
    report("sse", most);
    assert.ok(most <= EVENT_STREAM_BYTES_MAX, `${most}`);
  });

  await t.test("in a page of a poll", async () => {
    const response = await operator.ask("GET", pollPath(TOPIC, `after_seq=0&limit=${COUNT}&form=lean`));
    const { messages, topic } = JSON.parse(response.body);
    assert.equal(topic, TOPIC);
    messages.forEach((one, i) => checkLean(one, i + 1));
    const most = Math.max(...messages.map((one) => around(JSON.stringify(one).length + 1, [one.seq])));
    report("poll", most);
    assert.ok(most <= WEBSOCKET_BYTES_MAX, `${most}`);
  });

  await t.test("live, with a frame at a time", async () => {
    const phoenix = await joined(operator, COUNT);
    const socket = await webSocket(operator, socketPath(TOPIC, `after_seq=${COUNT}&form=lean&token=${operator.reader}`));
    await phoenix.part((bytes) => { const found = cut(bytes); return found && { size: 0 }; });
    await operator.did(`topics/${encodeURIComponent(TOPIC)}/events`, { event_type: KIND, payload: payloadOf(COUNT + 1) });
    const [own] = await messagesOf(socket, ownOf, 1);
    checkLean(own.frames[0], COUNT + 1);
    assert.ok(around(own.size, [COUNT + 1]) <= WEBSOCKET_BYTES_MAX);
    const [batch] = await messagesOf(phoenix, updatesOf, 1);
    checkLean(batch.frames[0], COUNT + 1);
    report("phoenix, a live batch of one frame", around(batch.size, [COUNT + 1]));
    await socket.send(frame(8));
  });
});
