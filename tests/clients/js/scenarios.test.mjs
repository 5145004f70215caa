// Every scenario of spec/client_scenarios.json through the JavaScript client.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { describe, test } from "node:test";
import WebSocket from "ws";
import { Khala, memoryStorage } from "../../../clients/js/src/khala.js";
import { ScriptedServer } from "../scripted.mjs";
import { Received, until } from "../../lib/wait.mjs";
import { QUICK } from "./client.mjs";

const { topic, scenarios } = JSON.parse(readFileSync(new URL("../../../spec/client_scenarios.json", import.meta.url), "utf8"));
const chosen = scenarios.filter(({ name }) => name.includes(process.env.SCENARIO ?? ""));
const KEY = `khala:${topic}`;

async function play(t, scenario) {
  const server = await ScriptedServer.start(t, scenario, topic);
  const storage = memoryStorage();
  const { stored, position = null } = scenario;
  if (stored !== null) storage.save(KEY, typeof stored === "string" ? stored : JSON.stringify(stored));
  let tokens = 0;
  const khala = new Khala({ url: server.url, token: () => `token-${++tokens}`, WebSocket, storage, backOff: QUICK, transports: ["websocket"] });
  t.after(() => khala.close());
  const seen = new Received();
  const warnings = [];
  khala.onWarning(({ code }) => warnings.push(code));
  const reset = ({ documents, ...rest }) => seen.add({ reset: { ...rest, ...(documents ? { documents: documents.map((one) => one.doc_key) } : {}) } });
  const following = khala.topic(topic, { reset });
  const done = following.each((frame) => seen.add({ frame: frame.seq })).catch((error) => seen.add({ end: error.code }));
  seen.failure = () => server.error;
  server.listener = () => seen.changed();
  const isPlayed = () => server.isOver || seen.all.some((one) => "end" in one);
  await seen.until(() => seen.all.length >= scenario.events.length && isPlayed(), JSON.stringify(scenario.events));
  if (position) await until(() => storage.load(KEY) === JSON.stringify(position), `the position ${JSON.stringify(position)} instead of ${storage.load(KEY)}`);
  await khala.close();
  await done;
  assert.equal(server.error, null);
  assert.deepEqual(seen.all, scenario.events);
  assert.deepEqual(warnings, scenario.warnings ?? []);
  if (!position) assert.equal(storage.load(KEY), null);
}

describe("scenarios", { concurrency: 8 }, () => {
  for (const scenario of chosen) test(scenario.name, (t) => play(t, scenario));
});
