// The servers of the wake-up drivers, which a test starts, ends and makes hang.
import net from "node:net";
import { folder, start } from "./khala.mjs";
import { fixedPort } from "./ports.mjs";
import { postgres } from "./postgres_server.mjs";
import { once, until } from "./wait.mjs";

/** A server: its URL, start and crash, and a way to publish texts and to make it hang. */
async function serverOf(t, { scheme, port, command, log, publish }) {
  const server = {
    url: `${scheme}://127.0.0.1:${port}`,
    publish,
    async start() {
      server.process = start(t, command);
      await server.process.saw(log, /ready/i);
    },
    crash: () => server.process.end("SIGKILL"),
    hang: () => server.process.kill("SIGSTOP"),
  };
  await server.start();
  return server;
}

/** Sends bytes to a server and waits until its answers match. */
async function sendTo(port, text, pattern) {
  const socket = net.connect(port, "127.0.0.1");
  await once(socket, "connect");
  let answer = "";
  socket.on("data", (piece) => { answer += piece; });
  socket.write(text);
  await until(() => pattern.test(answer), `${pattern}`);
  socket.destroy();
}

export async function nats(t, args = []) {
  const port = await fixedPort();
  const command = ["nats-server", "-a", "127.0.0.1", "-p", String(port), ...args];
  const publish = (channel, texts) => sendTo(port, `CONNECT {"verbose":false}\r\n${
    texts.map((text) => `PUB ${channel} ${Buffer.byteLength(text)}\r\n${text}\r\n`).join("")}PING\r\n`, /PONG/);
  return serverOf(t, { scheme: "nats", port, command, log: "log", publish });
}

export async function redis(t, args = []) {
  const port = await fixedPort();
  const command = ["redis-server", "--bind", "127.0.0.1", "--port", String(port), "--save", "", "--dir", folder(t), ...args];
  const words = (...all) => `*${all.length}\r\n${all.map((word) => `$${Buffer.byteLength(word)}\r\n${word}\r\n`).join("")}`;
  const publish = (channel, texts) => sendTo(port, texts.map((text) => words("PUBLISH", channel, text)).join("") + words("PING"), /PONG/);
  return serverOf(t, { scheme: "redis", port, command, log: "out", publish });
}

export async function notify(t) {
  const server = await postgres(t);
  const quoted = (text) => `'${text.replaceAll("'", "''")}'`;
  return Object.assign(server, {
    publish: (channel, texts) => server.psql(texts.map((text) => `SELECT pg_notify('${channel}', ${quoted(text)});`).join("")),
    crash: () => server.stop("immediate"),
    hang() { // the process that serves the node
      const pid = Number(server.psql("SELECT pid FROM pg_stat_activity WHERE application_name = 'khala-fanout'"));
      process.kill(pid, "SIGSTOP");
      server.beforeStop = () => process.kill(pid, "SIGCONT");
    },
  });
}
