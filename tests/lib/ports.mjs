// Ports of the loopback address for servers that a test starts.
import net from "node:net";

const listens = (port) => new Promise((resolve) => {
  const probe = net.createServer();
  probe.once("error", () => resolve(null));
  probe.listen(port, "127.0.0.1", () => {
    const given = probe.address().port;
    probe.close(() => resolve(given));
  });
});

/** A port that was free a moment ago. */
export async function freePort() {
  return await listens(0);
}

/** The same outside the range of client ports, so that a client cannot connect to itself while the server is away. */
export async function fixedPort() {
  for (;;) {
    const port = await listens(10_000 + Math.floor(Math.random() * 20_000));
    if (port) return port;
  }
}
