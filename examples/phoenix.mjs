// The unmodified phoenix client follows a run. Without the library, the program itself keeps the
// position, drops repeated frames, renews the token and starts again if its position is stale.
//   node phoenix.mjs RUN
import { Socket } from "phoenix";
import WebSocket from "ws"; // browsers, and Node from 22 on, have their own

const { BACKEND = "http://127.0.0.1:4200" } = process.env;
const [run = "demo"] = process.argv.slice(2);
const topic = `run:${run}:events`;
const ask = (path) => fetch(BACKEND + path).then((answer) => (answer.ok ? answer : Promise.reject(new Error(`backend ${answer.status}`))));
const { url } = await (await ask("/khala.json")).json();

let position = null; // {epoch, seq}; store it with the data you derive
let token;
let delay = 0;
const socket = new Socket(`${url.replace(/^http/, "ws")}/socket`, { transport: WebSocket, params: () => ({ token }) });
const connect = async () => {
  try {
    token = await (await ask("/token?role=reader")).text(); // each connection gets a new one
    socket.connect();
  } catch {
    again();
  }
};
const again = () => setTimeout(connect, (delay = Math.min(10_000, delay + 200)) * Math.random());
socket.onOpen(() => { delay = 0; });
socket.onClose(({ code }) => {
  socket.disconnect(); // its own reconnect would use the old token
  if (code !== 4005) again(); // 4005: access was revoked
});

const channel = socket.channel("sync:v1");
const subscribe = () => {
  const resume_after = position ? [{ topic, watermark: position.seq, epoch: position.epoch }] : [];
  channel.push("sync:subscribe", { topics: [topic], resume_after }).receive("error", failed);
};
const failed = async ({ code, reconnect_after_ms }) => {
  delay = reconnect_after_ms ?? delay;
  if (code === "reauth_required") channel.push("sync:refresh", { token: await (await ask("/token?role=reader")).text() });
  if (code !== "stale_cursor") return;
  console.log("the history starts again");
  position = null;
  subscribe();
};
channel.on("sync:error", failed);
channel.on("sync:update_batch", ({ after, through, updates, epoch }) => {
  if (position && after > position.seq) return subscribe(); // a gap: ask for the frames between
  for (const { seq, kind, payload } of updates) {
    if (seq > (position?.seq ?? 0)) console.log(seq, kind, JSON.stringify(payload));
  }
  if (through >= (position?.seq ?? 0)) position = { epoch, seq: through };
});
channel.on("sync:heartbeat", ({ covered }) => {
  for (const { after, through, topic: name } of covered) {
    if (name !== topic || !position) continue;
    if (after > position.seq) subscribe(); // a message is missing
    else position.seq = Math.max(position.seq, through);
  }
});
channel.join().receive("ok", subscribe);
connect();
