// A WebSocket of the npm client ws: its messages as JSON, its pings and its close.
import { randomUUID } from "node:crypto";
import WebSocket from "ws";
import { AUDIT_SOCKET } from "./paths.mjs";
import { Watched, within } from "./wait.mjs";

/** The first message of an audit socket, which brings its token as the capability. */
export function auditInit(capability, more = {}) {
  return { type: "init", version: 1, capability, nonce: randomUUID(), ts: Date.now(), ...more };
}

export class Socket extends Watched {
  messages = [];
  pings = 0;
  closed = null; // {code, reason}

  /**
   * Opens a socket, which is closed with the server; rejects with the answer of a refusal. It asks for no compression:
   * ws inflates each message in another thread, which takes most of the time of a test with many messages.
   */
  static async open(operator, path, options = {}) {
    const socket = new Socket();
    const { host, port, ca, trust } = operator.server;
    socket.ws = new WebSocket(`${ca ? "wss" : "ws"}://${host}:${port}${path}`, { ...trust, perMessageDeflate: false, ...options });
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

  /** Opens a socket that the server must refuse, and answers {status, headers, body}. */
  static async refused(operator, path, options) {
    let socket;
    try {
      socket = await Socket.open(operator, path, options);
    } catch (error) {
      if (error.status === undefined) throw error;
      return error;
    }
    socket.close();
    throw new Error(`${path} is open to a client that the server should refuse`);
  }

  /** Opens an audit socket and sends its first message. */
  static async audit(operator, capability = operator.reader, more = {}, { path = AUDIT_SOCKET, ...options } = {}) {
    const socket = await Socket.open(operator, path, options);
    socket.say(auditInit(capability, more));
    return socket;
  }

  #grew(change) {
    change();
    this.changed();
  }

  failure(what) {
    return this.closed && new Error(`closed ${JSON.stringify(this.closed)} before ${what}: ${JSON.stringify(this.messages.slice(-3)).slice(0, 400)}`);
  }

  /** The messages of one type. */
  of(type) {
    return this.messages.filter((one) => one.type === type);
  }

  /** Sends a value as JSON, or a text as it is. */
  say(message) {
    this.ws.send(typeof message === "string" ? message : JSON.stringify(message));
  }

  /** Stops reading, as a client that hangs does. */
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
