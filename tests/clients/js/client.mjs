// A client of clients/js for tests: over the npm ws, with a token of the operator, closed with the test.
import WebSocket from "ws";
import { Khala } from "../../../clients/js/src/khala.js";
import { Received } from "../../lib/wait.mjs";

export const TRANSPORTS = ["websocket", "sse", "poll"];
export const QUICK = { baseMs: 20, maxMs: 200 };

/** Opens a client of that operator's server. Its changes of state are in states. */
export function open(t, { server, ...operator }, options = {}) {
  const khala = new Khala({ url: server.url, token: async () => operator.sign({ oa_sync_scopes: ["runtime.read_all"] }), WebSocket, backOff: QUICK, ...options });
  t.after(() => khala.close());
  khala.states = new Received();
  khala.warnings = new Received();
  khala.subscribe((state) => khala.states.add(state));
  khala.onWarning((error) => khala.warnings.add(error));
  return khala;
}

/** Follows a topic and gathers its frames, its resets and its end. */
export function follow(khala, name, options = {}) {
  const seen = new Received();
  seen.frames = [];
  seen.resets = [];
  seen.topic = khala.topic(name, { reset: (reset) => { seen.resets.push(reset); seen.add({ reset }); }, ...options });
  seen.done = seen.topic.each((frame) => { seen.frames.push(frame); seen.add({ frame }); })
    .then(() => { seen.end = { error: null }; }, (error) => { seen.end = { error }; })
    .then(() => seen.changed());
  return seen;
}

/** Waits until so many frames have come. */
export const frames = (seen, count) => seen.until(() => seen.frames.length >= count || seen.end, `${count} frames`);
