// Plays a scenario of connections against libkhala.
import assert from "node:assert/strict";
import { ScriptedServer } from "../scripted.mjs";
import { Program } from "./program.mjs";

const keysOf = ({ documents, ...rest }) => ({ ...rest, ...(documents ? { documents: documents.map((one) => one.doc_key) } : {}) });
const eventOf = (line) => (line.frame ? { frame: line.frame.seq } : line.reset ? { reset: keysOf(line.reset) } : { end: line.end });

/** Plays the scenario, and checks what the application sees, what is stored and what is warned of. */
export async function play(t, scenario, topic, { loop, environment }) {
  const server = await ScriptedServer.start(t, scenario, topic);
  const { stored, position = null } = scenario;
  const text = stored === null || typeof stored === "string" ? stored : JSON.stringify(stored);
  const program = Program.start(t, server.url, { token: "token-", loop, topics: [topic], stored: text, environment });
  const { lines } = program;
  // The application's own end of the topic is no event of the scenario.
  const events = () => lines.all.filter((line) => line.frame || line.reset || line.end).map(eventOf);
  lines.failure = () => server.error;
  server.listener = () => lines.changed();
  const isPlayed = () => server.isOver || events().some((one) => "end" in one);
  await lines.until(() => events().length >= scenario.events.length && isPlayed(), JSON.stringify(scenario.events));
  const saved = () => program.all("saved").at(-1)?.saved ?? null;
  if (position) await lines.until(() => JSON.stringify(saved()) === JSON.stringify(position), `the position ${JSON.stringify(position)}`);
  assert.equal(await program.close(), 0);
  assert.equal(server.error, null);
  assert.deepEqual(events(), scenario.events);
  assert.deepEqual(program.all("warning").map(({ warning }) => warning), scenario.warnings ?? []);
  if (!position) assert.equal(saved(), null);
}
