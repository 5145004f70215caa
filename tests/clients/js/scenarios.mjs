// Plays a scenario of spec/client_scenarios.json to a client of the library, in this process or in a browser.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { ScriptedServer } from "../scripted.mjs";
import { Received, until } from "../../lib/wait.mjs";

const { topic, scenarios } = JSON.parse(readFileSync(new URL("../../../spec/client_scenarios.json", import.meta.url), "utf8"));
const KEY = `khala:${topic}`;

/** The scenarios whose name has the words of SCENARIO; all without it. */
export const chosen = scenarios.filter(({ name }) => name.includes(process.env.SCENARIO ?? ""));

/**
 * Follows the topic as tests/clients/README.md says. It runs in a browser too, so it uses only its
 * arguments. Answers {load, close}: the stored text, and the end of the client.
 */
export function followScenario({ Khala, memoryStorage, WebSocket }, { url, stored, topic: name, key }, report) {
  const storage = memoryStorage();
  if (stored !== null) storage.save(key, typeof stored === "string" ? stored : JSON.stringify(stored));
  let tokens = 0;
  const backOff = { baseMs: 20, maxMs: 200 };
  const khala = new Khala({ url, token: () => `token-${++tokens}`, WebSocket, storage, backOff, transports: ["websocket"] });
  khala.onWarning(({ code }) => report({ warning: code }));
  const reset = ({ documents, ...rest }) => report({ reset: { ...rest, ...(documents ? { documents: documents.map((one) => one.doc_key) } : {}) } });
  const done = khala.topic(name, { reset }).each((frame) => report({ frame: frame.seq })).catch((error) => report({ end: error.code }));
  return {
    load: () => storage.load(key),
    close: async () => {
      await khala.close();
      await done;
    },
  };
}

/** Plays the scenario to the client that follow(options, report) starts, and checks what the application saw. */
export async function play(t, scenario, follow) {
  const { stored, position = null } = scenario;
  const server = await ScriptedServer.start(t, scenario, topic);
  const seen = new Received();
  const warnings = [];
  const client = await follow({ url: server.url, stored, topic, key: KEY }, (one) => {
    if (one.warning) warnings.push(one.warning);
    else seen.add(one);
  });
  t.after(() => client.close());
  seen.failure = () => server.error;
  server.listener = () => seen.changed();
  const isPlayed = () => server.isOver || seen.all.some((one) => "end" in one);
  await seen.until(() => seen.all.length >= scenario.events.length && isPlayed(), JSON.stringify(scenario.events));
  if (position) await until(async () => await client.load() === JSON.stringify(position), `the position ${JSON.stringify(position)}`);
  await client.close();
  assert.equal(server.error, null);
  assert.deepEqual(seen.all, scenario.events);
  assert.deepEqual(warnings, scenario.warnings ?? []);
  if (!position) assert.equal(await client.load(), null);
}
