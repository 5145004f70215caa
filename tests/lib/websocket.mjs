// WebSocket frames byte by byte: a test may send any opcode, mask or length, also wrong ones, and
// reads the frames of the server.
import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { connect } from "./khala.mjs";

export const TEXT = 1;
export const BINARY = 2;
export const CLOSE = 8;
export const PING = 9;
export const PONG = 10;

/** The bytes of a client frame, which is masked by default. */
export function frame(opcode, payload = "", { fin = true, rsv = 0, mask = true, size } = {}) {
  const body = Buffer.from(payload);
  const length = size ?? body.length;
  const head = [(fin ? 0x80 : 0) | (rsv << 4) | opcode];
  const bit = mask ? 0x80 : 0;
  let rest = Buffer.alloc(0);
  if (length < 126) head.push(bit | length);
  else if (length < 65536) {
    head.push(bit | 126);
    rest = Buffer.alloc(2);
    rest.writeUInt16BE(length);
  } else {
    head.push(bit | 127);
    rest = Buffer.alloc(8);
    rest.writeBigUInt64BE(BigInt(length));
  }
  if (!mask) return Buffer.concat([Buffer.from(head), rest, body]);
  const key = Buffer.from([1, 2, 3, 4]);
  const masked = Buffer.from(body.map((byte, i) => byte ^ key[i % 4]));
  return Buffer.concat([Buffer.from(head), rest, key, masked]);
}

/** The bytes of a text message with a value as JSON. */
export function message(value) {
  return frame(TEXT, JSON.stringify(value));
}

/** The bytes of a handshake for that path. */
export function handshake(path, headers = {}) {
  const lines = Object.entries({ Host: "x", Upgrade: "websocket", Connection: "Upgrade",
    "Sec-WebSocket-Key": randomBytes(16).toString("base64"), "Sec-WebSocket-Version": "13", ...headers });
  return `GET ${path} HTTP/1.1\r\n${lines.map(([name, value]) => `${name}: ${value}\r\n`).join("")}\r\n`;
}

/** The path of the Phoenix socket with the operator's token. */
export const phoenixPath = (operator) => `/socket/websocket?vsn=2.0.0&token=${operator.reader}`;

/** Finds a frame of the server at the front; null means that more bytes are needed. */
export function cut(bytes) {
  if (bytes.length < 2) return null;
  assert.equal(bytes[1] & 0x80, 0, "a server does not mask");
  let at = 2;
  let length = bytes[1] & 0x7f;
  if (length === 126) {
    if (bytes.length < 4) return null;
    length = bytes.readUInt16BE(2);
    at = 4;
  } else if (length === 127) {
    if (bytes.length < 10) return null;
    length = Number(bytes.readBigUInt64BE(2));
    at = 10;
  }
  if (bytes.length < at + length) return null;
  const payload = bytes.subarray(at, at + length);
  return { size: at + length, frame: { opcode: bytes[0] & 0x0f, rsv: (bytes[0] >> 4) & 7, payload } };
}

/** The close code in the bytes of a connection, the answer to the handshake included; null if there is none. */
export function closeCode(text) {
  let bytes = Buffer.from(text, "latin1");
  if (bytes.subarray(0, 4).toString() === "HTTP") bytes = bytes.subarray(bytes.indexOf("\r\n\r\n") + 4);
  let code = null;
  for (let found = cut(bytes); found; found = cut(bytes)) {
    if (found.frame.opcode === CLOSE) code = found.frame.payload.length >= 2 ? found.frame.payload.readUInt16BE(0) : 1005;
    bytes = bytes.subarray(found.size);
  }
  return code;
}

/** A connection after the handshake; it has joined the Phoenix channel by default. */
export class RawSocket {
  static async open(operator, { path = phoenixPath(operator), headers, join = true } = {}) {
    const raw = new RawSocket();
    raw.peer = await connect(operator.server);
    await raw.peer.send(handshake(path, headers));
    raw.head = await raw.peer.head();
    assert.match(raw.head, /^HTTP\/1\.1 101 /);
    if (join) {
      await raw.send(message(["1", "1", "sync:v1", "phx_join", {}]));
      assert.equal((await raw.reply("1")).status, "ok");
    }
    return raw;
  }

  /** Opens a connection that has subscribed to the topic from its start and does not read. */
  static async stuck(operator, topic) {
    const raw = await RawSocket.open(operator);
    await raw.subscribe(topic);
    raw.peer.socket.pause();
    raw.peer.tcp.pause();
    return raw;
  }

  /** Subscribes to a topic from its start, and waits for the reply. */
  async subscribe(topic, ref = "2") {
    await this.send(message(["1", ref, "sync:v1", "sync:subscribe", { topics: [topic], resume_after: { [topic]: 0 } }]));
    assert.equal((await this.reply(ref)).status, "ok");
  }

  send(bytes) {
    return this.peer.send(bytes);
  }

  /** The next frame, or null when the server ends first. */
  async frame() {
    const found = await this.peer.part(cut);
    return found === null ? null : found.frame;
  }

  /** The next frame that satisfies the condition, or null when the server ends first. */
  async find(ready) {
    for (;;) {
      const next = await this.frame();
      if (next === null || ready(next)) return next;
    }
  }

  /** The reply to the message with that reference. */
  async reply(ref) {
    const found = await this.find((one) => one.opcode === TEXT && JSON.parse(one.payload)[1] === ref);
    assert.ok(found, "the connection ended before the reply");
    return JSON.parse(found.payload)[4];
  }

  /** The close code and reason, or null when the connection ends without a close frame. */
  async closed() {
    const found = await this.find((one) => one.opcode === CLOSE);
    if (!found) return null;
    return found.payload.length === 0 ? { code: 1005, reason: "" }
      : { code: found.payload.readUInt16BE(0), reason: found.payload.subarray(2).toString() };
  }
}
