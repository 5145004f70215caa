// Greedy clients of events:batch, as tests/lib/attackers.mjs runs them. Data: {host, port, tokens, connections, mode,
// bytesPerSecond, lineBytes}. Connection i has the token tokens[i % tokens.length] and appends to the run of that number,
// "greedy-N". Modes:
//   "slow"     sends without end, and all connections together read that many bytes a second
//   "deaf"     sends without end, and reads nothing
//   "trickle"  sends most of one large item, and then a few bytes now and then
//   "busy"     sends without end, and asks for the answers of refused items only, which it reads
// A connection that the server closes is opened again, until the message "close". The message "full" comes when the
// server takes nothing more of any connection; with "busy", when it has taken something of each.
import net from "node:net";
import { order, report } from "./attackers.mjs";

const { host, port, tokens, connections, mode, bytesPerSecond = 0, lineBytes = 50_000 } = await order();
const TICK_MS = 100;
const QUIET_MS = 700; // a server that takes nothing for so long is full
const AGAIN_MS = 200;
const FULL_MS_MAX = 5000; // slow readers and connections that open again go on for ever
const TRICKLE_BYTES = 20; // each tick
const LINES_PER_CHUNK = Math.max(1, Math.floor((mode === "busy" ? 100_000 : 1_000_000) / lineBytes));
const REFUSED = /^HTTP\/1\.1 (429|503)/;

const peers = [];
let isOver = false;
let lastTaken = performance.now();
const counts = { opened: 0, closed: 0, refused: 0, read: 0 };

function chunkOf(text) {
  return Buffer.from(`${text.length.toString(16)}\r\n${text}\r\n`);
}

function bodyOf(number) {
  const line = `${JSON.stringify({ run_id: `greedy-${number}`, event_type: "run.log", payload: { text: "x".repeat(lineBytes) } })}\n`;
  return mode === "trickle" ? chunkOf(line.slice(0, line.length * 0.8)) : chunkOf(line.repeat(LINES_PER_CHUNK));
}

/** A busy client whose batch is refused as a whole comes again later. */
function leave(socket, piece) {
  if (!REFUSED.test(piece.subarray(0, 12).toString("latin1"))) return;
  counts.refused++;
  socket.destroy();
}

const bodies = tokens.map((_, number) => bodyOf(number));

function open(peer) {
  if (isOver) return;
  const number = peer.index % tokens.length;
  const socket = net.connect({ host, port, noDelay: true, highWaterMark: 16_384 });
  peer.socket = socket;
  peer.debt = 0;
  counts.opened++;
  socket.on("error", () => {});
  if (mode === "busy") socket.on("data", (piece) => leave(socket, piece));
  else socket.pause();
  const head = [`POST /v1/events:batch${mode === "busy" ? "?answers=errors" : ""} HTTP/1.1`, "Host: khala", `Authorization: Bearer ${tokens[number]}`,
    "Content-Type: application/x-ndjson", "Transfer-Encoding: chunked", "", ""].join("\r\n");
  const more = (error) => {
    if (error) return;
    lastTaken = performance.now();
    peer.isTaken = true;
    if (!isOver && !socket.destroyed && mode !== "trickle") socket.write(bodies[number], more);
  };
  socket.on("connect", () => socket.write(head, (error) => {
    if (error) return;
    lastTaken = performance.now();
    socket.write(bodies[number], more);
  }));
  socket.on("close", () => {
    counts.closed++;
    if (!isOver) setTimeout(() => open(peer), AGAIN_MS);
  });
}

const reads = setInterval(() => {
  for (const peer of peers) {
    if (mode === "trickle" && peer.socket.readyState === "open") peer.socket.write(chunkOf("x".repeat(TRICKLE_BYTES)));
    if (mode !== "slow") continue;
    peer.debt += (bytesPerSecond * TICK_MS) / 1000 / connections;
    const size = Math.min(Math.floor(peer.debt), peer.socket.readableLength);
    const piece = size > 0 ? peer.socket.read(size) : peer.socket.read(0);
    if (!piece) continue;
    peer.debt -= piece.length;
    counts.read += piece.length;
    if (REFUSED.test(piece.subarray(0, 12).toString("latin1"))) counts.refused++;
  }
}, TICK_MS);

for (let index = 0; index < connections; index++) {
  peers.push({ index });
  open(peers[index]);
}

const begun = performance.now();
const asking = setInterval(() => {
  const now = performance.now();
  const isFull = mode === "busy" ? peers.every((peer) => peer.isTaken) : now - lastTaken >= QUIET_MS;
  if (!isFull && now - begun < FULL_MS_MAX) return;
  clearInterval(asking);
  process.send("full");
}, TICK_MS);

process.on("message", () => {
  isOver = true;
  clearInterval(reads);
  clearInterval(asking);
  for (const { socket } of peers) socket.destroy();
  report(counts);
});
