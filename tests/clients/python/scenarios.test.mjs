// Every scenario of spec/client_scenarios.json through the Python client.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { describe, test } from "node:test";
import { until } from "../../lib/wait.mjs";
import { ScriptedServer } from "../scripted.mjs";
import { Python } from "./client.mjs";

const { topic, scenarios } = JSON.parse(readFileSync(new URL("../../../spec/client_scenarios.json", import.meta.url), "utf8"));
const batch = (after, through, seqs) => ({ send: "sync:update_batch", payload: {
  topic, after, through, updates: seqs.map((seq) => ({ seq, kind: "said", event_id: `event-${seq}`, payload: {} })), epoch: "epoch-1", replay_complete: true, head_watermarks: [],
} });
const start = (window = {}) => ({ subscribe: null, window: { epoch: "epoch-1", bootstrap: { from_seq: 1, truncated: false }, ...window } });
const stale = (reason) => ({ code: "stale_cursor", message: "stale", full_resync_required: true, reason_codes: [reason], stale_topics: [{ topic, reason_codes: [reason], epoch: "epoch-1" }] });

/** Positions without an epoch, and topics that do not exist yet. */
const own = [
  ...["epoch_required", "a_reason_of_a_later_server"].map((reason) => ({
    name: `a stored position without an epoch is sent without one, and ${reason} starts again`, stored: { seq: 5 },
    connections: [[{ join: "ok" }, { subscribe: { seq: 5 }, error: stale(reason) }, start(), batch(0, 1, [1])]],
    events: [{ reset: { reason, from_seq: 1, truncated: false } }, { frame: 1 }], position: { epoch: "epoch-1", seq: 1 },
  })),
  { name: "a position without an epoch that the server accepts gets the epoch of its topic", stored: "5",
    connections: [[{ join: "ok" }, { subscribe: { seq: 5 }, window: { epoch: "epoch-1", resume_after: "5@epoch-1" } }, batch(5, 6, [6]), { drop: true }],
      [{ join: "ok" }, { subscribe: { epoch: "epoch-1", seq: 6 }, window: { epoch: "epoch-1" } }]],
    events: [{ frame: 6 }], position: { epoch: "epoch-1", seq: 6 } },
  ...[[start({ pending: true })], [{ subscribe: null, pending: true }, batch(0, 0, []), start()]].map((steps, index) => ({
    name: `a topic that does not exist yet is pending, and begins with its first frame ${index}`, stored: null,
    connections: [[{ join: "ok" }, ...steps, batch(0, 1, [1])]],
    events: [{ reset: { reason: "start", from_seq: 1, truncated: false } }, { frame: 1 }], position: { epoch: "epoch-1", seq: 1 }, warnings: ["topic_pending"],
  })),
];

const chosen = [...scenarios, ...own].filter(({ name }) => name.includes(process.env.SCENARIO ?? ""));
const key = `khala:${topic}`;
const python = await Python.ofFile();

async function play(t, scenario) {
  const server = await ScriptedServer.start(t, scenario, topic);
  const storage = { kind: "memory", name: scenario.name };
  const { stored, position = null } = scenario;
  if (stored !== null) await python.call("save", { storage, key, text: typeof stored === "string" ? stored : JSON.stringify(stored) });
  let tokens = 0;
  const khala = await python.open(t, { url: server.url, token: () => `token-${++tokens}`, storage, transports: ["websocket"] });
  const seen = await python.follow(khala, topic);
  seen.failure = () => server.error;
  server.listener = () => seen.changed();
  const isPlayed = () => server.isOver || seen.end;
  await seen.until(() => seen.all.length >= scenario.events.length && isPlayed(), JSON.stringify(scenario.events));
  const load = () => python.call("load", { storage, key });
  if (position) await until(async () => JSON.stringify(await load()) === JSON.stringify(position), `the position ${JSON.stringify(position)}`);
  await khala.close();
  await seen.until(() => seen.end, "the end of the loop");
  assert.equal(server.error, null);
  const events = seen.all.filter(({ end }) => end !== null).map(({ frame, reset, end }) => {
    if (frame) return { frame: frame.seq };
    if (end) return { end: end.code };
    return { reset: { ...reset, ...(reset.documents ? { documents: reset.documents.map((one) => one.doc_key) } : {}) } };
  });
  assert.deepEqual(events, scenario.events);
  assert.deepEqual(khala.warnings.all.map(({ code }) => code), scenario.warnings ?? []);
  if (!position) assert.equal(await load(), null);
}

describe("scenarios", { concurrency: 8 }, () => {
  for (const scenario of chosen) test(scenario.name, (t) => play(t, scenario));
});
