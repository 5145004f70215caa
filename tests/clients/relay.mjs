// A relay in front of a server, whose connections a test resets, and the reconnects of a growth test.
// KHALA_RECONNECTS sets their number; 10000 takes some minutes.
import net from "node:net";
import { operateRun } from "../lib/operator.mjs";
import { resetSocket } from "../lib/tcp_proxy.mjs";
import { until } from "../lib/wait.mjs";

export const RECONNECTS = Number(process.env.KHALA_RECONNECTS ?? 60);
// The caches of the platform grow during the first reconnects.
export const WARM_UP = Math.max(10, RECONNECTS / 4);

/** Starts a server with a run of two events, whose clients may reconnect at once. The connection of the operator stays open. */
export function operateForReconnects(t) {
  return operateRun(t, { count: 2, settings: { KHALA_IDLE_TIMEOUT_MS: "3600000", RUNTIME_KHALA_RECONNECT_BASE_BACKOFF_MS: "1", RUNTIME_KHALA_RECONNECT_JITTER_MS: "0" } });
}

export class Relay {
  #server;
  sockets = new Set();
  accepted = 0;

  static async start(t, port) {
    const relay = new Relay();
    relay.#server = net.createServer((client) => relay.#accept(client, port));
    await new Promise((resolve) => relay.#server.listen(0, "127.0.0.1", resolve));
    relay.url = `http://127.0.0.1:${relay.#server.address().port}`;
    t.after(() => {
      relay.reset();
      relay.#server.close();
    });
    return relay;
  }

  #accept(client, port) {
    this.accepted++;
    const upstream = net.connect(port, "127.0.0.1");
    for (const [socket, other] of [[client, upstream], [upstream, client]]) {
      this.sockets.add(socket);
      socket.on("error", () => {});
      socket.on("close", () => {
        this.sockets.delete(socket);
        other.destroy();
      });
      socket.pipe(other);
    }
  }

  reset() {
    for (const socket of this.sockets) resetSocket(socket);
  }

  /** Resets all connections so many times, and waits after each until the client follows again. */
  async reconnect(times, isFollowing) {
    for (let i = 0; i < times; i++) {
      const { accepted } = this;
      this.reset();
      await until(() => this.accepted > accepted && isFollowing(), "the next connection");
    }
  }
}
