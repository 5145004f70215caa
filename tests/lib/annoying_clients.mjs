// Clients that repeat a cheap request as fast as they can, as tests/lib/attackers.mjs runs them. Data: {host, port,
// connections, kind, token}. Each connection of the kind "audit" opens an audit socket with a fresh nonce, waits for
// the first message, closes and opens the next one; of the kind "keys" it sends requests with a wrong operator key, and
// of "tokens" with a token whose signature is wrong, and connects again if the server closed. The message
// "sent" comes when every connection has sent, and after the message "close" comes the number of answers.
import { randomUUID } from "node:crypto";
import net from "node:net";
import { order, report } from "./attackers.mjs";
import { frame, handshake, TEXT } from "./websocket.mjs";

const { host, port, connections, kind, token } = await order();

let answers = 0;
let sent = 0;
let isOver = false;
const sockets = new Set();

const requestWith = (path, credential) => `GET ${path} HTTP/1.1\r\nHost: khala\r\nAuthorization: Bearer ${credential}\r\n\r\n`;
const init = () => JSON.stringify({ type: "init", version: 1, capability: token, nonce: randomUUID(), ts: Date.now() });
const REQUESTS = {
  audit: () => Buffer.concat([Buffer.from(handshake("/api/events/stream")), frame(TEXT, init())]),
  keys: () => requestWith("/internal/v1/runs", randomUUID()),
  tokens: () => requestWith("/v1/topics/run:victim:events/messages?after_seq=0", `${token.slice(0, -8)}AAAAAAAA`),
};

function come() {
  if (isOver) return;
  const socket = net.connect({ host, port, noDelay: true });
  sockets.add(socket);
  const send = () => socket.write(REQUESTS[kind]());
  socket.on("error", () => {});
  socket.on("connect", () => {
    send();
    sent++;
    if (sent === connections) process.send("sent");
  });
  socket.on("close", () => { sockets.delete(socket); setImmediate(come); });
  let bytes = "";
  socket.on("data", (data) => {
    bytes += data.toString("latin1");
    if (kind === "audit") {
      if (!bytes.includes("init_ack") && !bytes.includes("error")) return;
      answers++;
      socket.destroy();
      return;
    }
    if (!bytes.includes("}\n")) return;
    answers++;
    const isClosed = /connection: close/i.test(bytes);
    bytes = "";
    if (isClosed) socket.destroy();
    else send();
  });
}

for (let i = 0; i < connections; i++) come();

process.on("message", () => {
  isOver = true;
  for (const socket of sockets) socket.destroy();
  report({ answers });
});
