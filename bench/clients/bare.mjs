// The bare socket: the npm ws and the few messages of a subscription. With the argument "parse" it also
// parses each message, which every client in JavaScript must.
import { WebSocket, measure } from "./measure.mjs";

const isParsing = process.argv[2] === "parse";
const COMPLETE = Buffer.from("\"replay_complete\":true");

await measure(({ url, token, topic, frames }) => new Promise((resolve, reject) => {
  const socket = new WebSocket(`${url.replace(/^http/, "ws")}/socket/websocket?vsn=2.0.0&token=${token}`);
  let parsed = 0;
  const heartbeat = setInterval(() => socket.send(JSON.stringify([null, "3", "phoenix", "heartbeat", {}])), 10_000);
  socket.on("error", reject);
  socket.on("close", (code) => {
    clearInterval(heartbeat);
    reject(new Error(`closed with ${code}`));
  });
  socket.on("open", () => {
    socket.send(JSON.stringify(["1", "1", "sync:v1", "phx_join", {}]));
    socket.send(JSON.stringify(["1", "2", "sync:v1", "sync:subscribe", { topics: [topic], resume_after: [{ topic, watermark: 0 }] }]));
  });
  socket.on("message", (data) => {
    if (isParsing) parsed += JSON.parse(data)[4].updates?.length ?? 0;
    if (!data.includes(COMPLETE)) return;
    resolve(isParsing ? parsed : frames);
    socket.close();
  });
}));
