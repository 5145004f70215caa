// A TCP proxy that damages connections at random by seed: it drops, delays, truncates, half-closes,
// answers rubbish, sends messages twice or in the wrong order, and sends bytes of an earlier
// connection again on a new one. The seed and the number of a connection decide its fault.
import net from "node:net";
import { seeded } from "../lib/seeded.mjs";
import { resetSocket } from "../lib/tcp_proxy.mjs";
import { Units } from "./units.mjs";

const RUBBISH = [
  "HTTP/1.1 502 Bad Gateway\r\nContent-Type: text/html\r\nContent-Length: 20\r\nConnection: close\r\n\r\n<html>Bad</html>\n\n\n\n",
  "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 20\r\nConnection: close\r\n\r\n<html>Log in</html>\n",
  "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 0\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
  "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 9\r\nConnection: close\r\n\r\n{\"error\":",
  "HTTP/1.1 401 Unauthorized\r\nContent-Type: text/plain\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno",
  "\x00\x01\x02 rubbish \xff\r\n\r\n",
  "HTTP/1.1 302 Found\r\nLocation: /login\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
];
export const FAULTS = ["drop", "truncate", "half_close", "rubbish", "repeat", "delay", "duplicate", "reorder"];
const RECORD_BYTES_MAX = 65_536;
const RECORDS_MAX = 50;
const DELAY_MS_MAX = 20;
const SILENCE_MS_MAX = 60; // a connection without bytes of the server for so long gets its fault
const FIRST_BYTE_MS_MAX = 500;
const HIT_CHANCE = 0.5; // the chance of a message on a connection whose messages come twice or in the wrong order

export class FaultProxy {
  counts = Object.fromEntries(FAULTS.map((fault) => [fault, 0]));
  isFaulty = true;
  connections = 0;
  #sockets = new Set();
  #recorded = []; // bytes of the server on earlier connections

  /** chance: the part of connections with a fault. bytesMax: a fault comes before so many bytes of the server. */
  static async start(t, target, { seed, chance = 1, bytesMax = 8000, faults = FAULTS }) {
    const proxy = new FaultProxy();
    Object.assign(proxy, { target, seed, chance, bytesMax, faults });
    proxy.server = net.createServer({ allowHalfOpen: true }, (client) => proxy.#accept(client));
    await new Promise((resolve) => proxy.server.listen(0, "127.0.0.1", resolve));
    proxy.url = `http://127.0.0.1:${proxy.server.address().port}`;
    t.after(() => proxy.close());
    return proxy;
  }

  get total() {
    return Object.values(this.counts).reduce((sum, count) => sum + count, 0);
  }

  close() {
    this.server.close();
    for (const socket of this.#sockets) socket.destroy();
  }

  /** From now on every connection is sound. Those that have a fault end. */
  heal() {
    this.isFaulty = false;
    for (const socket of this.#sockets) socket.destroy();
  }

  #watch(socket) {
    this.#sockets.add(socket);
    socket.setNoDelay(true);
    socket.on("error", () => {});
    socket.on("close", () => this.#sockets.delete(socket));
  }

  #accept(client) {
    this.#watch(client);
    const random = seeded(this.seed * 1_000_003 + this.connections++);
    let fault = this.isFaulty && random.random() < this.chance ? random.pick(this.faults) : null;
    if (fault === "repeat" && this.#recorded.length === 0) fault = "drop";
    if (fault === "rubbish" || fault === "repeat") {
      this.counts[fault]++;
      const bytes = fault === "rubbish" ? Buffer.from(random.pick(RUBBISH), "latin1") : random.pick(this.#recorded);
      client.once("data", () => client.end(bytes));
      client.on("end", () => client.destroy());
      return;
    }
    const { port, hostname } = new URL(this.target());
    const upstream = net.connect({ port, host: hostname, allowHalfOpen: true });
    this.#watch(upstream);
    client.pipe(upstream);
    client.on("close", () => upstream.destroy());
    upstream.on("error", () => client.destroy());
    upstream.on("close", () => client.destroy());
    const relay = fault === "duplicate" || fault === "reorder" ? this.#relayUnits : this.#relay;
    relay.call(this, upstream, client, fault, random);
  }

  /** Calls act after so long a silence of the server. Call the returned function if bytes came, or if the connection is over. */
  #afterSilence(client, ms, act) {
    let timer = setTimeout(act, FIRST_BYTE_MS_MAX);
    client.on("close", () => clearTimeout(timer));
    return (isOver) => {
      clearTimeout(timer);
      if (!isOver) timer = setTimeout(act, ms());
    };
  }

  /** Passes the server's bytes until the fault, which comes after so many bytes or after a silence. */
  #relay(upstream, client, fault, random) {
    const limit = random.below(this.bytesMax);
    let passed = 0;
    let isHurt = false;
    const record = [];
    let chain = Promise.resolve();
    const hurt = (data, keep) => {
      if (isHurt) return;
      isHurt = true;
      heard(true);
      if (this.#recorded.length < RECORDS_MAX) this.#recorded.push(Buffer.concat(record));
      chain.then(() => this.#hurt(fault, upstream, client, data, keep));
    };
    const heard = fault ? this.#afterSilence(client, () => random.below(SILENCE_MS_MAX), () => hurt(Buffer.alloc(0), 0)) : () => {};
    upstream.on("end", () => chain.then(() => client.end()));
    upstream.on("data", (data) => {
      if (isHurt) return;
      heard(false);
      if (passed < RECORD_BYTES_MAX) record.push(data);
      const keep = limit - passed;
      passed += data.length;
      if (fault && passed > limit) hurt(data, keep);
      else if (fault === "delay") {
        const ms = random.below(DELAY_MS_MAX);
        chain = chain.then(() => new Promise((resolve) => setTimeout(resolve, ms))).then(() => void client.write(data));
      } else client.write(data);
    });
  }

  #hurt(fault, upstream, client, data, keep) {
    this.counts[fault]++;
    if (fault === "half_close") {
      client.write(data.subarray(0, keep));
      upstream.end(); // the server sees the end of the client, and ends too
      client.end();
      return;
    }
    client.write(data.subarray(0, keep), () => (fault === "truncate" ? client.end() : resetSocket(client)));
    upstream.destroy();
  }

  /**
   * Sends messages of a WebSocket or pieces of a stream twice or after their successors. Some bytes
   * later, or after a silence, the connection drops.
   */
  #relayUnits(upstream, client, fault, random) {
    const units = new Units();
    let left = 5 * this.bytesMax + random.below(this.bytesMax);
    let hits = 0;
    let held = null;
    const drop = () => {
      if (hits === 0) this.counts.drop++;
      hits++;
      upstream.destroy();
      resetSocket(client);
    };
    const heard = this.#afterSilence(client, () => 4 * SILENCE_MS_MAX, drop);
    upstream.on("end", () => client.end());
    upstream.on("data", (data) => {
      heard(false);
      for (const { bytes, isWhole } of units.split(data)) {
        const isHit = isWhole && held === null && random.random() < HIT_CHANCE;
        if (isHit) this.counts[fault]++;
        hits += isHit ? 1 : 0;
        if (isHit && fault === "reorder") {
          held = bytes;
          continue;
        }
        client.write(bytes);
        if (isHit) client.write(bytes);
        if (held) client.write(held);
        held = null;
      }
      left -= data.length;
      if (left < 0) drop();
    });
  }
}
