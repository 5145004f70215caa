// The JavaScript client: a loop over the frames of the topic that does nothing with them.
import { Khala } from "../../clients/js/src/khala.js";
import { WebSocket, measure } from "./measure.mjs";

await measure(async ({ url, token, topic, frames }) => {
  const khala = new Khala({ url, token: () => token, WebSocket, transports: ["websocket"] });
  let last = 0;
  for await (const { seq } of khala.topic(topic)) {
    if (seq !== last + 1) throw new Error(`${seq} after ${last}`);
    last = seq;
    if (last === frames) break;
  }
  await khala.close();
  return last;
});
