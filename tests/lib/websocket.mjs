// WebSocket frames byte by byte, for peers without manners: any opcode, mask or length out; frames
// as they come in.
import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { connect } from "./khala.mjs";

export const TEXT = 1;
export const BINARY = 2;
export const CLOSE = 8;
export const PING = 9;
export const PONG = 10;

/** A frame of a client: masked unless told otherwise. */
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

export function message(value) {
  return frame(TEXT, JSON.stringify(value));
}

export function handshake(operator, { path = "/socket/websocket", query = "&vsn=2.0.0", extra = "" } = {}) {
  return `GET ${path}?token=${operator.key}${query} HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n`
    + `Sec-WebSocket-Key: ${randomBytes(16).toString("base64")}\r\nSec-WebSocket-Version: 13\r\n${extra}\r\n`;
}

/** Cuts a frame of the server from the front; null: more bytes are needed. */
function cut(bytes) {
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

/** A raw connection with the handshake done. */
export class RawSocket {
  static async open(operator, options = {}) {
    const raw = new RawSocket();
    raw.peer = await connect(operator.server);
    await raw.peer.send(handshake(operator, options));
    raw.head = await raw.peer.head();
    assert.match(raw.head, /^HTTP\/1\.1 101 /);
    if (options.join !== false) {
      await raw.send(message(["1", "1", "sync:v1", "phx_join", {}]));
      assert.equal((await raw.reply("1")).status, "ok");
    }
    return raw;
  }

  send(bytes) {
    return this.peer.send(bytes);
  }

  /** The next frame; null when the server ended first. */
  async frame() {
    const found = await this.peer.part(cut);
    return found === null ? null : found.frame;
  }

  /** Frames until one satisfies; null when the server ended first. */
  async find(ready) {
    for (;;) {
      const next = await this.frame();
      if (next === null || ready(next)) return next;
    }
  }

  /** The reply to that reference. */
  async reply(ref) {
    const found = await this.find((one) => one.opcode === TEXT && JSON.parse(one.payload)[1] === ref);
    assert.ok(found, "the connection ended before the reply");
    return JSON.parse(found.payload)[4];
  }

  /** The close code and reason it ends with; null when it ends without a word. */
  async closed() {
    const found = await this.find((one) => one.opcode === CLOSE);
    if (!found) return null;
    return found.payload.length === 0 ? { code: 1005, reason: "" }
      : { code: found.payload.readUInt16BE(0), reason: found.payload.subarray(2).toString() };
  }
}
