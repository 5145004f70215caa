// The wire vectors, checked by readers that share no code with the server: JSON, zlib, SHA-1 and base64
// of Node, and a small WebSocket frame reader. A wrong row that only our own codecs accept would bind
// every client to a mistake.
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { constants, inflateRawSync } from "node:zlib";

const spec = new URL("../../spec/", import.meta.url);
const load = (path) => JSON.parse(readFileSync(new URL(path, spec), "utf8"));
const phoenix = load("vectors/phoenix.json");
const sse = load("vectors/sse.json");
const frames = load("vectors/ws_frames.json");
const refused = Object.values(load("vectors/http_refused.json").refused).flat();
const requests = load("vectors/http_requests.json").requests;

const bytesOf = (row) => (row.hex === undefined ? Buffer.from(row.text) : Buffer.from(row.hex, "hex"));

// The whole frames of one masked stream.
function* readFrames(bytes) {
  while (bytes.length >= 6) {
    let size = bytes[1] & 0x7f;
    let offset = 2;
    if (size === 126) [size, offset] = [bytes.readUInt16BE(2), 4];
    else if (size === 127) [size, offset] = [Number(bytes.readBigUInt64BE(2)), 10];
    if (bytes.length < offset + 4 + size) return;
    const mask = bytes.subarray(offset, offset + 4);
    const payload = bytes.subarray(offset + 4, offset + 4 + size).map((byte, i) => byte ^ mask[i % 4]);
    yield { final: bytes[0] >> 7 === 1, compressed: (bytes[0] & 0x40) !== 0, opcode: bytes[0] & 15, payload };
    bytes = bytes.subarray(offset + 4 + size);
  }
}

function inflate(payload) {
  const flush = Buffer.from([0, 0, 0xff, 0xff]);
  return inflateRawSync(Buffer.concat([payload, flush]), { finishFlush: constants.Z_SYNC_FLUSH });
}

function readEvents(bytes) {
  const events = [];
  let begun;
  for (const frame of readFrames(bytes)) {
    if (frame.opcode === 8) {
      const code = frame.payload.length > 0 ? frame.payload.readUInt16BE(0) : 1005;
      return [...events, { kind: "close", code, bytes: frame.payload.subarray(2) }];
    }
    if (frame.opcode > 8) {
      events.push({ kind: frame.opcode === 9 ? "ping" : "pong", bytes: frame.payload });
      continue;
    }
    begun ??= { ...frame, payload: Buffer.alloc(0) };
    begun.payload = Buffer.concat([begun.payload, frame.payload]);
    if (!frame.final) continue;
    const message = begun.compressed ? inflate(begun.payload) : begun.payload;
    events.push({ kind: "message", opcode: begun.opcode, bytes: message });
    begun = undefined;
  }
  return events;
}

test("Phoenix messages decode as JSON arrays of the listed parts", () => {
  for (const row of phoenix.decode)
    assert.deepEqual(JSON.parse(row.text), [row.join_ref, row.ref, row.topic, row.event, row.payload]);
});

test("Phoenix messages equal the output of JSON.stringify", () => {
  const parts = {
    reply: (row) => [row.join_ref, row.ref, row.topic, "phx_reply", { status: row.status, response: row.response }],
    push: (row) => [row.join_ref, null, row.topic, row.event, row.payload],
    message: (row) => [row.join_ref, row.ref, row.topic, row.event, row.payload],
    close: (row) => [row.join_ref, row.join_ref, row.topic, "phx_close", {}],
    error: (row) => [row.join_ref, row.join_ref, row.topic, "phx_error", {}],
  };
  for (const row of phoenix.encode) assert.equal(JSON.stringify(parts[row.kind](row)), row.text);
});

test("a server-sent event has one field a line and ends with a blank line", () => {
  for (const row of sse.events) {
    assert.ok(row.text.endsWith("\n\n"));
    const lines = row.text.slice(0, -2).split("\n").map((line) => /^(\w+): ([^]*)$/.exec(line).slice(1));
    const values = (name) => lines.filter(([field]) => field === name).map(([, value]) => value);
    assert.deepEqual(values("id"), row.id === null ? [] : [row.id]);
    assert.deepEqual(values("event"), row.event === "" ? [] : [row.event]);
    assert.equal(values("data").join("\n"), row.data.replace(/\r\n?/g, "\n"));
  }
});

test("client frames decode to the listed events", () => {
  for (const row of frames.client) {
    const expected = row.events.map(({ text, hex, ...event }) => ({ ...event, bytes: bytesOf({ text, hex }) }));
    assert.deepEqual(readEvents(Buffer.from(row.hex, "hex")), expected, row.why);
  }
});

test("compressed payloads inflate to the listed messages", () => {
  for (const row of frames.inflate)
    assert.equal(inflate(Buffer.from(row.hex, "hex")).toString(), row.message, row.why);
});

test("handshake keys hash to the listed accept values", () => {
  for (const { key, accept } of frames.handshake.keys) {
    const hash = createHash("sha1").update(`${key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`);
    assert.equal(hash.digest("base64"), accept);
  }
});

test("every HTTP text consists of bytes and occurs once", () => {
  const texts = [...refused, ...requests].map(({ request }) => request);
  for (const text of texts) assert.match(text, /^[\0-\xff]+$/);
  const twice = texts.filter((text, index) => texts.indexOf(text) !== index);
  assert.deepEqual(twice, []);
});

test("every status and close code is in its table", () => {
  const codes = new Set(load("status.json").status.map(({ code }) => code));
  const closes = new Set(load("close.json").close.map(({ code }) => code));
  const { requests: shakes, extensions, protocols } = frames.handshake;
  const rows = [...refused, ...phoenix.refused, ...sse.refused, ...frames.refused, ...shakes, ...extensions, ...protocols];
  for (const { status } of rows) assert.ok(status === undefined || codes.has(status), status);
  for (const row of frames.refused) assert.ok(closes.has(row.close_code), row.why);
});
