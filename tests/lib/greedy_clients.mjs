// The clients of one greedy principal, as tests/lib/attackers.mjs runs them. Data: {host, port, request, connections,
// reads}. Each connection sends the request; if the clients read, it sends the request again after each answer. The
// message "sent" comes when every connection has sent its request. All connections are closed at the message "close".
import net from "node:net";
import { order, report } from "./attackers.mjs";

const { host, port, request, connections, reads } = await order();
const sockets = [];

let sent = 0;
let answers = 0;
let refused = 0;

function again(socket) {
  if (!socket.destroyed) socket.write(request);
}

/** Sends the request again after the head of each answer: the server handles one request at a time. */
function read(socket, data) {
  const text = data.toString("latin1");
  const heads = text.match(/HTTP\/1\.1 \d+/g) ?? [];
  answers += heads.length;
  refused += heads.filter((head) => head.endsWith("429")).length;
  for (const head of heads) if (!head.endsWith("429")) again(socket);
}

for (let i = 0; i < connections; i++) {
  const socket = net.connect({ host, port, noDelay: true });
  sockets.push(socket);
  socket.on("error", () => {});
  if (reads) socket.on("data", (data) => read(socket, data));
  else socket.pause();
  socket.on("connect", () => socket.write(request, () => {
    sent++;
    if (sent === connections) process.send("sent");
  }));
}

process.on("message", () => {
  for (const socket of sockets) socket.destroy();
  report({ answers, refused });
});
