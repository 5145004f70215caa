// A flood of connections that send nothing. Run as a program it opens that many, prints "open", and
// replaces those that the server closes, a thousand a second, until it is killed.
import net from "node:net";
import { pathToFileURL, fileURLToPath } from "node:url";
import { start } from "./khala.mjs";

const STEP_MS = 10;
const STEP_CONNECTIONS = 10;
const BURST = 100;

/** Opens one more; source addresses differ, because an address has too few ports for a large flood. */
function open(port, number, settled) {
  const socket = net.connect({ port, host: "127.0.0.1", localAddress: `127.0.0.${2 + (number % 64)}` });
  socket.once("connect", settled);
  socket.once("close", settled);
  socket.on("error", () => {});
  socket.resume();
  return socket;
}

function run(port, count) {
  let opened = 0;
  let pending = 0;
  let closed = 0;
  const more = () => {
    for (; pending < BURST && opened < count; opened++, pending++) {
      let isPending = true;
      const socket = open(port, opened, () => {
        if (!isPending) return;
        isPending = false;
        pending--;
        if (opened < count) setImmediate(more);
        else if (pending === 0) process.stdout.write("open\n");
      });
      socket.once("close", () => closed++);
    }
  };
  more();
  setInterval(() => {
    for (let i = 0; i < STEP_CONNECTIONS && closed > 0; i++, closed--) open(port, opened++, () => {}).once("close", () => closed++);
  }, STEP_MS);
}

/** Starts a flood of so many connections, and resolves when all were opened. */
export async function flood(t, server, count) {
  const program = start(t, [process.execPath, fileURLToPath(import.meta.url), String(server.port), String(count)],
    { env: process.env });
  await program.saw("out", /open/);
  return program;
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? "").href) run(Number(process.argv[2]), Number(process.argv[3]));
