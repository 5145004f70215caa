// The npm Phoenix client over the npm ws, both unmodified. A test can wait for pushes, and every
// batch is checked while it is read: batches of a topic continue each other.
import assert from "node:assert/strict";
import { Socket } from "phoenix";
import WebSocket from "ws";
import { Watched, within } from "./wait.mjs";

export const PUSHES = ["sync:update_batch", "sync:snapshot", "sync:frame", "sync:heartbeat", "sync:error"];

/** The batches that a client received of one topic. Each must begin where the last one ended. */
export class Run {
  updates = [];
  completes = 0;
  at = null;
  head = 0;

  take(batch) {
    if (this.at !== null) assert.equal(batch.after, this.at, `a batch of ${batch.topic} begins after ${batch.after}`);
    assert.ok(batch.through >= batch.after);
    this.at = batch.through;
    // A lean batch says where the head is only if it is not the end of the batch.
    this.head = batch.head_watermarks?.[0].watermark ?? batch.head_watermark ?? batch.through;
    this.completes += batch.replay_complete ? 1 : 0;
    this.updates.push(...batch.updates);
  }

  /** Takes the position that a heartbeat covers. */
  cover(through) {
    assert.ok(through >= this.at, `a heartbeat covers ${through} after ${this.at}`);
    if (this.at !== null) this.at = through;
  }

  get sequences() {
    return this.updates.map((one) => one.seq);
  }
}

/** A client of the channel sync:v1. */
export class Client extends Watched {
  pushes = [];
  runs = new Map();
  closes = [];
  opened = 0;
  #problem = null;

  /** Opens a socket and joins the channel. */
  static async join(operator, options = {}) {
    const client = new Client(operator, options);
    await client.joined(options.payload);
    return client;
  }

  constructor(operator, { transport = WebSocket, heartbeatIntervalMs = 30_000, params = {}, path = "/socket", channel = "sync:v1" } = {}) {
    super();
    const { host, port, ca, trust } = operator.server;
    const trusting = class extends transport {
      constructor(url, protocols) {
        super(url, protocols, trust);
      }
    };
    this.socket = new Socket(`${ca ? "wss" : "ws"}://${host}:${port}${path}`, {
      transport: ca ? trusting : transport, heartbeatIntervalMs, params: () => ({ token: operator.reader, ...params }),
      reconnectAfterMs: () => 10, rejoinAfterMs: () => 10,
    });
    this.socket.onOpen(() => this.#did(() => { this.opened++; }));
    this.socket.onClose((event) => this.#did(() => this.closes.push({ code: event.code, reason: String(event.reason) })));
    this.socket.onError(() => this.#did(() => {}));
    this.channel = this.socket.channel(channel, () => this.payload ?? {});
    for (const event of PUSHES) this.channel.on(event, (payload) => this.#did(() => this.#pushed(event, payload)));
    operator.server.peers.push(this);
    this.socket.connect();
  }

  #did(change) {
    try {
      change();
    } catch (error) {
      this.#problem ??= error;
    }
    this.changed();
  }

  #pushed(event, payload) {
    this.pushes.push({ event, payload });
    if (event === "sync:heartbeat") for (const { topic, through } of payload.covered) this.runs.get(topic)?.cover(through);
    if (event !== "sync:update_batch") return;
    if (!this.runs.has(payload.topic)) this.runs.set(payload.topic, new Run());
    this.runs.get(payload.topic).take(payload);
  }

  /** Joins the channel and answers the reply; rejects with its body when the server refuses. */
  async joined(payload) {
    this.payload = payload;
    const answer = new Promise((resolve, reject) => {
      const welcomed = (welcome) => this.#did(() => resolve(welcome));
      this.channel.join().receive("ok", welcomed).receive("error", (body) => reject(Object.assign(new Error("refused"), { body })));
    });
    this.welcome = await within(answer, "the reply to a join");
    return this.welcome;
  }

  /** Sends an event and answers the reply as {status, response}. */
  ask(event, payload) {
    const answer = new Promise((resolve) => {
      const push = this.channel.push(event, payload);
      for (const status of ["ok", "error"]) push.receive(status, (response) => resolve({ status, response }));
    });
    return within(answer, `the reply to ${event}`);
  }

  /** Subscribes, which must succeed. */
  async subscribe(payload) {
    const { status, response } = await this.ask("sync:subscribe", payload);
    assert.equal(status, "ok", JSON.stringify(response));
    return response;
  }

  /** Sends an event that must be refused, and answers the error. */
  async refused(event, payload) {
    const { status, response } = await this.ask(event, payload);
    assert.equal(status, "error", JSON.stringify(response));
    return response;
  }

  async leave() {
    await within(new Promise((resolve) => this.channel.leave().receive("ok", resolve)), "the reply to a leave");
  }

  /** The batches received of a topic. */
  run(topic) {
    return this.runs.get(topic) ?? new Run();
  }

  /** Forgets the batches of a topic, so that the next may begin anywhere. */
  forget(topic) {
    this.runs.delete(topic);
  }

  /** The payloads of the pushes of one event. */
  of(event) {
    return this.pushes.filter((one) => one.event === event).map((one) => one.payload);
  }

  until(ready, what) {
    return super.until(() => {
      if (this.#problem) throw this.#problem;
      return ready(this);
    }, what);
  }

  /** Waits until the batches of the topic end at that sequence. */
  reached(topic, seq) {
    return this.until(() => this.run(topic).at === seq, `${topic} at ${seq}`);
  }

  close() {
    this.socket.disconnect();
    this.socket.reconnectTimer?.reset();
  }
}
