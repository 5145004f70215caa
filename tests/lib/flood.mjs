// A flood of connections that send nothing. Run as a program it opens that many, prints "open", and
// replaces those that the server closes until it is killed. All programs of a flood replace a thousand a second.
import net from "node:net";
import { pathToFileURL, fileURLToPath } from "node:url";
import { start } from "./khala.mjs";

const REPLACED_PER_SECOND = 1000;
const STEP_CONNECTIONS = 10;
const BURST = 100;
const OPEN_MS_MAX = 120_000;
const PROGRAM_CONNECTIONS_MAX = 15_000; // within the descriptors of one process

/** Opens one more; source addresses differ, because an address has too few ports for a large flood. */
function open(port, number, settled) {
  const socket = net.connect({ port, host: "127.0.0.1", localAddress: `127.0.0.${2 + (number % 64)}` });
  socket.once("connect", settled);
  socket.once("close", settled);
  socket.on("error", () => {});
  socket.resume();
  return socket;
}

function run(port, count, first, stepMs) {
  let opened = 0;
  let pending = 0;
  let closed = 0;
  const more = () => {
    for (; pending < BURST && opened < count; opened++, pending++) {
      let isPending = true;
      const socket = open(port, first + opened, () => {
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
    for (let i = 0; i < STEP_CONNECTIONS && closed > 0; i++, closed--) open(port, first + opened++, () => {}).once("close", () => closed++);
  }, stepMs);
}

/** Starts a flood of so many connections, and resolves when all were opened. The command executes its programs. */
export async function flood(t, server, count, command = []) {
  const programs = Math.ceil(count / PROGRAM_CONNECTIONS_MAX);
  const each = Math.ceil(count / programs);
  const stepMs = (1000 * STEP_CONNECTIONS * programs) / REPLACED_PER_SECOND;
  const started = Array.from({ length: programs }, (_, i) => start(t, [...command, process.execPath,
    fileURLToPath(import.meta.url), ...[server.port, each, i * each, stepMs].map(String)], { env: process.env }));
  await Promise.all(started.map((program) => program.until(() => /open/.test(program.out), "the connections of the flood", OPEN_MS_MAX)));
  return { end: (signal) => Promise.all(started.map((program) => program.end(signal))) };
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? "").href) run(...process.argv.slice(2).map(Number));
