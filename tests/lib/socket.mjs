// A WebSocket by the npm client nobody here wrote: its messages as JSON, its close, and what to
// wait for.
import WebSocket from "ws";
import { within } from "./khala.mjs";

export class Socket {
  messages = [];
  pings = 0;
  closed = null; // {code, reason}
  #watchers = new Set();

  static async open(operator, path, options = {}) {
    const socket = new Socket();
    const { host, port, ca } = operator.server;
    socket.ws = new WebSocket(`${ca ? "wss" : "ws"}://${host}:${port}${path}`, { ca, ...options });
    operator.server.peers.push(socket);
    socket.ws.on("message", (data, binary) => socket.#grew(() => {
      if (binary) throw new Error("a binary message");
      socket.messages.push(JSON.parse(data.toString()));
    }));
    socket.ws.on("ping", () => socket.#grew(() => { socket.pings++; }));
    socket.ws.on("close", (code, reason) => socket.#grew(() => { socket.closed = { code, reason: reason.toString() }; }));
    socket.ws.on("error", () => {});
    await within(new Promise((resolve, reject) => {
      socket.ws.once("open", resolve);
      socket.ws.once("error", reject);
      socket.ws.once("unexpected-response", (_, response) => {
        const pieces = [];
        response.on("data", (piece) => pieces.push(piece));
        response.on("end", () => reject(Object.assign(new Error(`refused: ${response.statusCode}`),
          { status: response.statusCode, headers: response.headers, body: Buffer.concat(pieces).toString() })));
      });
    }), "a WebSocket");
    return socket;
  }

  #grew(change) {
    change();
    for (const watcher of [...this.#watchers]) watcher();
  }

  until(ready, what) {
    let watcher;
    const done = new Promise((resolve, reject) => {
      watcher = () => {
        if (ready(this)) resolve();
        else if (this.closed) {
          reject(new Error(`closed ${JSON.stringify(this.closed)} before ${what}: ${JSON.stringify(this.messages.slice(-3)).slice(0, 400)}`));
        }
      };
      this.#watchers.add(watcher);
      watcher();
    });
    return within(done, what).finally(() => this.#watchers.delete(watcher));
  }

  of(type) {
    return this.messages.filter((one) => one.type === type);
  }

  say(message) {
    this.ws.send(typeof message === "string" ? message : JSON.stringify(message));
  }

  /** Stops reading, as a peer that hangs does. */
  pause() {
    this.ws.pause();
  }

  resume() {
    this.ws.resume();
  }

  close() {
    this.ws.terminate();
  }
}

/** The handshake as bytes, for peers without manners. */
export function handshake(path, headers = {}) {
  const lines = Object.entries({ Host: "x", Upgrade: "websocket", Connection: "Upgrade",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Version": "13", ...headers });
  return `GET ${path} HTTP/1.1\r\n${lines.map(([name, value]) => `${name}: ${value}\r\n`).join("")}\r\n`;
}

/** A client's frame; masked unless told otherwise. */
export function frame(opcode, payload, { fin = true, masked = true, size = null } = {}) {
  const data = Buffer.from(payload);
  const claimed = size ?? data.length;
  const head = claimed < 126 ? [claimed] : claimed < 65536 ? [126, claimed >> 8, claimed & 255]
    : [127, ...new Uint8Array(new BigUint64Array([BigInt(claimed)]).buffer).reverse()];
  head[0] |= masked ? 128 : 0;
  const mask = masked ? Buffer.from([1, 2, 3, 4]) : Buffer.alloc(0);
  if (masked) for (let i = 0; i < data.length; i++) data[i] ^= mask[i % 4];
  return Buffer.concat([Buffer.from([(fin ? 128 : 0) | opcode, ...head]), mask, data]);
}

/** The close code at the end of the server's bytes, which may hold other frames before. */
export function closeCode(bytes) {
  let data = Buffer.from(bytes, "latin1");
  const head = data.indexOf("\r\n\r\n");
  if (data.subarray(0, 4).toString() === "HTTP") data = data.subarray(head + 4);
  let code = null;
  for (let at = 0; at + 2 <= data.length;) {
    const opcode = data[at] & 15;
    let size = data[at + 1] & 127;
    let body = at + 2;
    if (size === 126) [size, body] = [data.readUInt16BE(at + 2), at + 4];
    else if (size === 127) [size, body] = [Number(data.readBigUInt64BE(at + 2)), at + 10];
    if (opcode === 8) code = size >= 2 ? data.readUInt16BE(body) : 1005;
    at = body + size;
  }
  return code;
}
