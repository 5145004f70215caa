// Each allocation of libkhala fails once, in a program of its own: it refuses to open or to follow, or
// it ends with every frame once, a whole snapshot, every accepted event stored once, and an answer to its mint.
import assert from "node:assert/strict";
import { join } from "node:path";
import { test } from "node:test";
import { folder } from "../../lib/khala.mjs";
import { operate } from "../../lib/operator.mjs";
import { range } from "../../lib/samples.mjs";
import { Program } from "./program.mjs";

const SUMMARIES = "runtime.run_summaries";
const FRAMES = 3;
const EVENTS = 1;
const NO_MEMORY = 5;
const AT_ONCE = 8;
const environment = { BACK_OFF_BASE_MS: "2", BACK_OFF_MAX_MS: "20", TOKEN_TIMEOUT_MS: "100", REQUEST_TIMEOUT_MS: "3000" };

async function run(t, { operator, token, place }, number) {
  const program = Program.start(t, operator.server.url, {
    name: "khala_client_failing", token, loop: number % 2 ? "own" : "given", topics: ["room:1", SUMMARIES],
    environment: { ...environment, FAIL_ALLOCATION: String(number), OUTBOX: join(place, `outbox-${number}`) },
  });
  const board = program.seen(SUMMARIES);
  const isMinted = () => program.all("minted").length + program.all("unminted").length === 1;
  const refusals = () => [...program.all("open"), ...program.all("follow"), ...program.all("end").filter(({ end }) => end)];
  const results = () => program.all("result").filter((line) => !("unminted" in line));
  const appended = () => program.all("appended").length + results().length;
  for (const n of range(1, EVENTS)) program.append({ topic: "room:2", event_type: "said", payload: { number, n } });
  program.command(`mint ${operator.key} {"scopes":["runtime.read_all"]}`);
  await program.lines.until(() => refusals().length > 0 || (program.all("frame").length >= FRAMES && board.resets.length > 0 && appended() >= EVENTS), `the end of run ${number}`);
  if (program.all("open").length === 0) await program.lines.until(() => appended() >= EVENTS && isMinted(), `the answers of run ${number}`);
  assert.equal(await program.close(), 0, `run ${number}`);
  for (const { open, follow, end } of refusals()) assert.ok(end === "out_of_memory" || (open ?? follow) === NO_MEMORY, `run ${number}`);
  if (refusals().length === 0) {
    assert.deepEqual(program.seen("room:1").frames.map(({ seq }) => seq), range(1, FRAMES), `run ${number}`);
    assert.deepEqual([...board.documents.keys()], ["a"], `run ${number}`);
  }
  assert.ok(results().every(({ result }) => result === NO_MEMORY), `run ${number}`);
  return { stored: program.all("appended").length, allocations: program.all("allocations")[0].allocations };
}

test("every allocation fails once", async (t) => {
  const operator = await operate(t);
  const token = operator.sign({ oa_sync_scopes: ["runtime.read_all", "runtime.append"], oa_sync_topics: ["room:1", "room:2", SUMMARIES] });
  const world = { operator, token, place: folder(t) };
  await operator.did("runs", { run_id: "a" }, 201);
  for (const n of range(1, FRAMES)) await operator.did("topics/room:1/events", { event_type: "said", payload: { n } });
  const { allocations, stored } = await run(t, world, 0);
  assert.ok(allocations > 30, `${allocations} allocations`);
  const numbers = range(1, allocations);
  let sum = stored;
  await Promise.all(range(1, AT_ONCE).map(async () => {
    for (let number; (number = numbers.shift());) {
      const { stored: more } = await run(t, world, number);
      sum += more;
    }
  }));
  const { head_cursor } = JSON.parse((await operator.poll("room:2", "after_seq=0")).body);
  assert.equal(head_cursor, sum, "each event was stored once");
  t.diagnostic(`${allocations} allocations`);
});
