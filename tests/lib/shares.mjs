// The order in which one socket is sent the frames of several topics, and the share of each topic in it. Order, not
// time: it is the same on a busy machine.
import assert from "node:assert/strict";
import net from "node:net";
import { constants, inflateRawSync } from "node:zlib";
import { once, within } from "./wait.mjs";
import { cut, handshake, message, phoenixPath, TEXT } from "./websocket.mjs";

const CHUNK_BYTES = 64 << 10; // bytes read between two steps

/** A Phoenix client that takes some bytes, lets a step run, and takes the next ones. */
export class Reader {
  batches = []; // {topic, count, left}: the frames of one push, and how many are left behind it
  begun = 0; // the batches before the last reply
  taken = 0; // frames
  #bytes = Buffer.alloc(0);
  #ref = 1;

  static async open(operator, { headers } = {}) {
    const reader = new Reader();
    reader.socket = net.connect({ port: operator.server.port, host: operator.server.host });
    reader.socket.on("error", () => {});
    operator.server.peers.push(reader);
    await once(reader.socket, "connect", "a connection");
    reader.socket.write(handshake(phoenixPath(operator), headers));
    reader.send("phx_join", {});
    return reader;
  }

  send(event, payload) {
    this.socket.write(message(["1", String(this.#ref++), "sync:v1", event, payload]));
  }

  /** Subscribes to the topics from their start. */
  subscribe(topics) {
    this.send("sync:subscribe", { topics, resume_after: Object.fromEntries(topics.map((topic) => [topic, 0])) });
  }

  #take(text) {
    const [, , , event, payload] = JSON.parse(text);
    if (event === "phx_reply") {
      assert.equal(payload.status, "ok", text);
      this.begun = this.batches.length;
    }
    if (event !== "sync:update_batch" || payload.updates.length === 0) return;
    const head = payload.head_watermarks[0].watermark;
    this.batches.push({ topic: payload.topic, count: payload.updates.length, left: head - payload.through });
    this.taken += payload.updates.length;
  }

  #parse(data) {
    this.#bytes = Buffer.concat([this.#bytes, data]);
    if (this.head === undefined) {
      const end = this.#bytes.indexOf("\r\n\r\n");
      if (end < 0) return;
      this.head = this.#bytes.subarray(0, end).toString();
      assert.match(this.head, /^HTTP\/1\.1 101 /);
      this.#bytes = this.#bytes.subarray(end + 4);
    }
    let at = 0;
    for (let found = cut(this.#bytes); found; found = cut(this.#bytes.subarray(at))) {
      const { opcode, rsv, payload } = found.frame;
      if (opcode === TEXT) this.#take(rsv === 0 ? payload : inflateRawSync(payload, { finishFlush: constants.Z_SYNC_FLUSH }));
      at += found.size;
    }
    this.#bytes = this.#bytes.subarray(at);
  }

  /** Reads until the condition holds, with a step after every CHUNK_BYTES. */
  async read(isOver, step = () => {}) {
    while (!isOver(this)) {
      let data = this.socket.read(CHUNK_BYTES) ?? this.socket.read();
      while (data === null) {
        assert.ok(!this.socket.destroyed && !this.socket.readableEnded, "the connection goes on");
        await within(new Promise((resolve) => this.socket.once("readable", resolve)), "more frames");
        data = this.socket.read(CHUNK_BYTES) ?? this.socket.read();
      }
      this.#parse(data);
      await step();
    }
  }

  close() {
    this.socket.destroy();
  }
}

/** The batches from the last reply until a topic has none left: all topics wait meanwhile. */
export function whileAllWait({ batches, begun }) {
  const all = batches.slice(begun);
  const end = all.findIndex((batch) => batch.left === 0);
  return end < 0 ? all : all.slice(0, end);
}

/**
 * Asserts that each topic has its share of every window of 20 rounds, within a quarter, and that no topic waits for two
 * whole rounds. A round holds weight times slice frames of each topic. Answers the worst deviation.
 */
export function assertShares(batches, weights, slice) {
  const topics = Object.keys(weights);
  const round = topics.reduce((sum, topic) => sum + weights[topic] * slice, 0);
  const none = () => Object.fromEntries(topics.map((topic) => [topic, 0]));
  const sent = none();
  const since = Object.fromEntries(topics.map((topic) => [topic, none()])); // frames of others since its last batch
  let worst = 0;
  let begin = 0;
  let total = 0;
  for (const { topic, count } of batches) {
    sent[topic] += count;
    total += count;
    since[topic] = none();
    for (const other of topics) {
      since[other][topic] += other === topic ? 0 : count;
      assert.ok(since[other][topic] < 3 * weights[topic] * slice, `${other} waits behind ${JSON.stringify(since[other])}`);
    }
    for (; total - batches[begin].count >= 20 * round; begin++) {
      sent[batches[begin].topic] -= batches[begin].count;
      total -= batches[begin].count;
    }
    if (total < 20 * round) continue;
    for (const one of topics) {
      const off = Math.abs(sent[one] / total / (weights[one] * slice / round) - 1);
      worst = Math.max(worst, off);
      assert.ok(off <= 0.25, `${one} has ${sent[one]} of ${JSON.stringify(sent)}`);
    }
  }
  assert.ok(total >= 20 * round, `a window has passed: ${total} frames`);
  return worst;
}
