// The WebSocket codec of the server behind tests/support/ws_echo.c, driven as a conformance suite does: by the npm client
// ws, and by raw frames. Cases follow the chapters of the Autobahn test suite.
import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { deflateRawSync, inflateRawSync, constants } from "node:zlib";
import WebSocket from "ws";
import { Peer, Process } from "../../lib/khala.mjs";
import { Watched, within } from "../../lib/wait.mjs";
import { BINARY, CLOSE, frame, handshake, PING, PONG, RawSocket, TEXT } from "../../lib/websocket.mjs";

const CONTINUATION = 0;
const DEFLATE = "permessage-deflate";
const target = { host: "127.0.0.1", peers: [] };

before(async () => {
  target.process = new Process([join(process.env.KHALA_BUILD, "ws_echo")], { input: "pipe" });
  target.port = Number((await target.process.saw("out", /listens on (\d+)\n/))[1]);
});

after(async () => {
  for (const peer of target.peers) peer.close();
  target.process.child.stdin.end();
  assert.deepEqual(await target.process.end(), { code: 0, signal: null }, target.process.log);
  assert.doesNotMatch(target.process.log, /Sanitizer|runtime error/);
});

const open = (headers) => RawSocket.open({ server: target }, { path: "/", headers, join: false });

/** Sends frames and answers the opcodes and texts of the frames that come back, and how the connection ended. */
async function talk(...frames) {
  const raw = await open();
  await raw.send(Buffer.concat(frames));
  const got = [];
  for (let one = await raw.frame(); one; one = await raw.frame()) {
    got.push(one.opcode === CLOSE ? [CLOSE, one.payload.length ? one.payload.readUInt16BE(0) : 1005] : [one.opcode, one.payload.toString("latin1")]);
    if (one.opcode === CLOSE) break;
  }
  // The server ends the connection at once: the peer's close, or the failure, is in.
  assert.equal(await raw.peer.rest(), "");
  raw.peer.close();
  return got;
}

const bye = frame(CLOSE, Buffer.from([0x03, 0xe8]));
const NORMAL = [CLOSE, 1000];
const PROTOCOL = [CLOSE, 1002];

test("messages of every size come back as they were", async () => {
  for (const size of [0, 1, 125, 126, 127, 128, 65535, 65536]) {
    const text = "*".repeat(size);
    assert.deepEqual(await talk(frame(TEXT, text), bye), [[TEXT, text], NORMAL], `${size} bytes of text`);
    assert.deepEqual(await talk(frame(BINARY, text), bye), [[BINARY, text], NORMAL], `${size} bytes`);
  }
});

test("pings are answered, pongs are not, and control frames stand between fragments", async () => {
  assert.deepEqual(await talk(frame(PING, "x".repeat(125)), frame(PONG, "y"), frame(PING), bye), [[PONG, "x".repeat(125)], [PONG, ""], NORMAL]);
  assert.deepEqual(await talk(frame(TEXT, "a", { fin: false }), frame(PING, "p"), frame(CONTINUATION, "b", { fin: false }), frame(PONG), frame(CONTINUATION, "c"), bye),
    [[PONG, "p"], [TEXT, "abc"], NORMAL]);
  assert.deepEqual(await talk(frame(TEXT, "", { fin: false }), frame(CONTINUATION, "", { fin: false }), frame(CONTINUATION), bye), [[TEXT, ""], NORMAL]);
});

test("frames that break the protocol close the connection with 1002", async () => {
  const cases = {
    "a long ping": [frame(PING, "x".repeat(126))],
    "a fragmented ping": [frame(PING, "x", { fin: false })],
    "reserved bit 1 without an extension": [frame(TEXT, "x", { rsv: 4 })],
    "reserved bit 2": [frame(TEXT, "x", { rsv: 2 })],
    "reserved bit 3 of a ping": [frame(PING, "x", { rsv: 1 })],
    "opcode 3": [frame(3, "x")],
    "opcode 11": [frame(11, "x")],
    "opcode 15": [frame(15)],
    "a continuation without a beginning": [frame(CONTINUATION, "x")],
    "a text inside a message": [frame(TEXT, "a", { fin: false }), frame(TEXT, "b")],
    "a frame without a mask": [frame(TEXT, "x", { mask: false })],
    "a close of one byte": [frame(CLOSE, "x")],
    "a close with 1005": [frame(CLOSE, Buffer.from([0x03, 0xed]))],
    "a close with 999": [frame(CLOSE, Buffer.from([0x03, 0xe7]))],
    "a close with 2999": [frame(CLOSE, Buffer.from([0x0b, 0xb7]))],
    "a length that is not minimal": [Buffer.from([0x81, 0xfe, 0, 5, 1, 2, 3, 4, 0, 0, 0, 0, 0])],
  };
  for (const [name, frames] of Object.entries(cases)) assert.deepEqual(await talk(...frames), [PROTOCOL], name);
  assert.deepEqual(await talk(frame(TEXT, "a"), frame(TEXT, "b", { rsv: 1 }), frame(PING)), [[TEXT, "a"], PROTOCOL]);
});

test("invalid UTF-8 closes the connection with 1007, as early as it shows", async () => {
  const bad = ["ff", "c0af", "eda080", "f4908080", "ce", "cebae1bdb9cf83cebcceb5eda080656469746564"];
  for (const hex of bad) assert.deepEqual(await talk(frame(TEXT, Buffer.from(hex, "hex"))), [[CLOSE, 1007]], hex);
  assert.deepEqual(await talk(frame(TEXT, Buffer.from("f490", "hex"), { fin: false })), [[CLOSE, 1007]], "inside a fragment");
  assert.deepEqual(await talk(frame(CLOSE, Buffer.from([0x03, 0xe8, 0xff]))), [[CLOSE, 1007]], "in a reason");
  const split = Buffer.from("κόσμε", "utf8");
  const pieces = [...split].map((byte, i) => frame(i === 0 ? TEXT : CONTINUATION, Buffer.from([byte]), { fin: i === split.length - 1 }));
  assert.deepEqual(await talk(...pieces, bye), [[TEXT, split.toString("latin1")], NORMAL]);
});

test("close codes on the wire are answered with themselves", async () => {
  for (const code of [1000, 1001, 1002, 1003, 1007, 1009, 1011, 3000, 3999, 4000, 4999]) {
    const payload = Buffer.alloc(2);
    payload.writeUInt16BE(code);
    assert.deepEqual(await talk(frame(CLOSE, payload)), [[CLOSE, code]]);
  }
  assert.deepEqual(await talk(frame(CLOSE)), [[CLOSE, 1005]]);
  assert.deepEqual(await talk(bye, frame(TEXT, "late"), frame(PING)), [NORMAL], "nothing after a close is answered");
});

test("a message may come in any number of fragments within its size", async () => {
  const whole = randomBytes(1 << 18);
  const pieces = [];
  for (let at = 0; at < whole.length; at += 16)
    pieces.push(frame(at === 0 ? BINARY : CONTINUATION, whole.subarray(at, at + 16), { fin: at + 16 >= whole.length }));
  assert.equal(pieces.length, 16384);
  assert.deepEqual(await talk(...pieces, bye), [[BINARY, whole.toString("latin1")], NORMAL]);
  const empty = Array.from({ length: 1026 }, (_, i) => frame(i === 0 ? TEXT : CONTINUATION, "", { fin: false }));
  assert.deepEqual(await talk(...empty), [[CLOSE, 1009]], "empty ones do not end a message");
});

test("a message may arrive byte by byte", async () => {
  const raw = await open();
  for (const byte of frame(TEXT, "slowly")) await raw.send(Buffer.from([byte]));
  assert.equal((await raw.frame()).payload.toString(), "slowly");
  raw.peer.close();
});

const extensionOf = (raw) => raw.head.match(/^sec-websocket-extensions: (.*)\r$/im)?.[1];
const pack = (text, windowBits = 15) => deflateRawSync(Buffer.from(text), { windowBits, finishFlush: constants.Z_SYNC_FLUSH }).subarray(0, -4);
const unpack = (payload, windowBits) => inflateRawSync(Buffer.concat([payload, Buffer.from([0, 0, 0xff, 0xff])]), { windowBits, finishFlush: constants.Z_SYNC_FLUSH });

test("compression is agreed on with every window that a client asks for", async () => {
  for (let bits = 8; bits <= 15; bits++) {
    const raw = await open({ "Sec-WebSocket-Extensions": `${DEFLATE}; server_max_window_bits=${bits}; client_max_window_bits` });
    assert.equal(extensionOf(raw), `${DEFLATE}; server_no_context_takeover; client_no_context_takeover; server_max_window_bits=${bits}`);
    let compressed = 0;
    for (const size of [0, 10, 256, 300, 5000, 40000]) {
      const text = randomBytes(64).toString("hex").repeat(Math.ceil(size / 128)).slice(0, size);
      await raw.send(frame(TEXT, pack(text, 15), { rsv: 4 }));
      const { rsv, payload } = await raw.frame();
      // A client with a small window inflates what it gets.
      assert.equal((rsv === 4 ? unpack(payload, Math.max(bits, 9)) : payload).toString(), text, `${bits} bits, ${size} bytes`);
      assert.ok(rsv === 4 || size > 1 << bits, `${size} bytes fit into ${bits} bits`);
      compressed += rsv === 4 ? 1 : 0;
    }
    assert.ok(compressed >= 3);
    raw.peer.close();
  }
  for (const offer of ["server_max_window_bits=7", "server_max_window_bits=16", "server_max_window_bits", "server_max_window_bits=09", "other"])
    assert.equal(extensionOf(await open({ "Sec-WebSocket-Extensions": `${DEFLATE}; ${offer}` })), undefined, offer);
});

test("compressed messages are checked like others", async () => {
  const raw = async (...frames) => {
    const socket = await open({ "Sec-WebSocket-Extensions": DEFLATE });
    await socket.send(Buffer.concat(frames));
    const first = await socket.frame();
    socket.peer.close();
    return first.opcode === CLOSE ? first.payload.readUInt16BE(0) : (first.rsv === 4 ? unpack(first.payload) : first.payload).toString();
  };
  const packed = pack("fragmented and compressed");
  assert.equal(await raw(frame(TEXT, packed.subarray(0, 5), { fin: false, rsv: 4 }), frame(CONTINUATION, packed.subarray(5))), "fragmented and compressed");
  assert.equal(await raw(frame(TEXT, "plain")), "plain");
  assert.equal(await raw(frame(TEXT, packed.subarray(0, 5), { fin: false, rsv: 4 }), frame(CONTINUATION, packed.subarray(5), { rsv: 4 })), 1002);
  assert.equal(await raw(frame(TEXT, pack(Buffer.from([0xff])), { rsv: 4 })), 1007);
  assert.equal(await raw(frame(TEXT, "no deflate stream", { rsv: 4 })), 1002);
  assert.equal(await raw(frame(PING, "", { rsv: 4 })), 1002);
});

test("repeated handshake fields are joined where RFC 6455 allows it", async () => {
  const head = async (...lines) => {
    const peer = await Peer.connect(target);
    target.peers.push(peer);
    const [first, ...rest] = handshake("/", { Connection: "keep-alive" }).split("\r\n").slice(0, -2);
    await peer.send([first, ...rest, "Connection: Upgrade", ...lines, "", ""].join("\r\n"));
    const answer = await peer.head();
    peer.close();
    return answer;
  };
  assert.match(await head("Sec-WebSocket-Extensions: x-unknown", `Sec-WebSocket-Extensions: ${DEFLATE}`), /^HTTP\/1\.1 101[\s\S]*permessage-deflate/);
  assert.match(await head("Sec-WebSocket-Protocol: a", "Sec-WebSocket-Protocol: b"), /^HTTP\/1\.1 101/);
  assert.match(await head("Sec-WebSocket-Version: 13"), /^HTTP\/1\.1 400/);
  assert.match(await head(`Sec-WebSocket-Key: ${randomBytes(16).toString("base64")}`), /^HTTP\/1\.1 400/);
});

class Echo extends Watched {
  messages = [];

  constructor(options) {
    super();
    this.ws = new WebSocket(`ws://127.0.0.1:${target.port}/`, options);
    this.ws.on("message", (data) => { this.messages.push(data.toString()); this.changed(); });
    this.closed = new Promise((resolve) => { this.ws.on("close", resolve); });
  }
}

test("the npm client ws exchanges messages with and without compression", async () => {
  for (const perMessageDeflate of [false, true, { serverMaxWindowBits: 10, threshold: 0 }, { clientMaxWindowBits: 9, threshold: 0 }]) {
    const echo = new Echo({ perMessageDeflate });
    await within(new Promise((resolve, reject) => { echo.ws.on("open", resolve); echo.ws.on("error", reject); }), "a WebSocket");
    const texts = ["a", "é".repeat(1000), "x".repeat(100_000), JSON.stringify(Array.from({ length: 2000 }, (_, i) => i))];
    for (const text of texts) echo.ws.send(text);
    await echo.until(() => echo.messages.length === texts.length, "the echoes");
    assert.deepEqual(echo.messages, texts);
    echo.ws.close(1000);
    assert.equal(await within(echo.closed, "the close"), 1000);
  }
});

