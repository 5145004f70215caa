// A network between a server and its database that a test cuts. While a direction is cut its bytes wait, as they do in
// the kernel's buffers: no side sees an error. New connections are accepted, and cut in the same way.
import net from "node:net";
import { Watched } from "./wait.mjs";

const opposite = { toServer: "toClient", toClient: "toServer" };

class Proxy extends Watched {
  #cut = { toServer: false, toClient: false };
  #pairs = new Set();
  #mark = null;
  #port = null;

  constructor(port) {
    super();
    this.behind = port; // the server's port; a test may change it for later connections
    this.listener = net.createServer((client) => this.#accept(client, net.connect(this.behind, "127.0.0.1")));
  }

  #accept(client, server) {
    const pair = { toServer: { from: client, to: server }, toClient: { from: server, to: client } };
    this.#pairs.add(pair);
    for (const direction of ["toServer", "toClient"]) this.#forward(pair, direction);
    this.#apply(pair);
  }

  #forward(pair, direction) {
    const { from, to } = pair[direction];
    from.setNoDelay();
    from.on("data", (bytes) => {
      if (direction === "toServer" && this.#passes(pair, bytes)) {
        const { directions } = this.#mark;
        this.#mark = null;
        this.cut(...directions);
        if (directions.includes("toServer")) return void from.unshift(bytes);
        this.changed();
      }
      to.write(bytes);
    });
    from.on("error", () => {});
    from.on("close", () => {
      pair[opposite[direction]].from.destroy();
      this.#pairs.delete(pair);
    });
  }

  /** Whether the last of the texts to cut at is in these bytes, and the others were sent before it on this connection. */
  #passes(pair, bytes) {
    while (this.#mark && bytes.includes(this.#mark.texts[pair.passed ?? 0])) {
      pair.passed = (pair.passed ?? 0) + 1;
      if (pair.passed === this.#mark.texts.length) return true;
    }
    return false;
  }

  #apply(pair) {
    for (const direction of ["toServer", "toClient"]) {
      if (this.#cut[direction]) pair[direction].from.pause();
      else pair[direction].from.resume();
    }
  }

  get isCut() {
    return this.#cut.toServer || this.#cut.toClient;
  }

  /** The port of the proxy itself, also after it was closed. */
  get port() {
    return (this.#port ??= this.listener.address().port);
  }

  /** Cuts directions: "toServer", "toClient". */
  cut(...directions) {
    for (const direction of directions) this.#cut[direction] = true;
    for (const pair of this.#pairs) this.#apply(pair);
    this.changed();
  }

  /** Cuts directions when one connection has sent these texts in order; the last is behind a cut of that direction. */
  cutAt(texts, ...directions) {
    this.#mark = { texts, directions };
  }

  repair() {
    this.#cut = { toServer: false, toClient: false };
    for (const pair of this.#pairs) this.#apply(pair);
  }

  /** Ends all connections with the bytes that wait in them. */
  drop() {
    for (const { toServer } of this.#pairs) toServer.from.destroy();
  }

  close() {
    this.listener.close();
    this.drop();
  }
}

/** Starts a proxy in front of the server of a URL, and answers it with its own URL. */
export async function tcpProxy(t, url) {
  const behind = new URL(url);
  const proxy = new Proxy(Number(behind.port));
  t.after(() => proxy.close());
  await new Promise((resolve) => proxy.listener.listen(0, "127.0.0.1", resolve));
  behind.port = proxy.port;
  proxy.url = behind.href;
  return proxy;
}

/**
 * Resets the connection. Node never closes a socket that is reset while it ends or connects, and then
 * does not exit, so such a socket is closed without a reset.
 */
export function resetSocket(socket) {
  if (socket.writableEnded || socket.connecting) socket.destroy();
  else socket.resetAndDestroy();
}
