// Kills a move at random moments, into PostgreSQL and out of it, and repeats the command until it is
// complete. The store must then be the same, whatever the moments were. KHALA_CHAOS_SEED repeats the
// moments; KHALA_CHAOS_KILLS sets the number of kills in each direction.
import assert from "node:assert/strict";
import { cpSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { newDatabase } from "../lib/database.mjs";
import { folder, startVerb } from "../lib/khala.mjs";
import { assertSame, fill, SETTINGS, stateOf, succeed } from "../lib/moves.mjs";
import { operate } from "../lib/operator.mjs";
import { seeded } from "../lib/seeded.mjs";

const KILLS = Number(process.env.KHALA_CHAOS_KILLS ?? 10);
const SEED = Number(process.env.KHALA_CHAOS_SEED ?? Date.now() % 1_000_000);
const { random } = seeded(SEED);

/** Runs the verb and kills it after a time; answers whether it was killed. */
async function killed(t, args, settings, delayMs) {
  const verb = startVerb(t, args, { settings });
  const timer = setTimeout(() => verb.kill("SIGKILL"), delayMs);
  const { code, signal } = await verb.end();
  clearTimeout(timer);
  if (signal === "SIGKILL") return true;
  assert.equal(code, 0, verb.log);
  return false;
}

/** Repeats a move, of which begin makes another one, until so many were killed; answers the last one. */
async function moveWithKills(t, begin) {
  let last = begin();
  const started = performance.now();
  assert.equal(await killed(t, last.args, last.settings, 100_000), false);
  const wholeMs = performance.now() - started;
  last = begin();
  for (let kills = 0; kills < KILLS;) {
    if (await killed(t, last.args, last.settings, random() * wholeMs)) kills++;
    else last = begin();
  }
  assert.equal(await killed(t, last.args, last.settings, 100_000), false);
  return last;
}

test(`a move that is killed again and again is complete in the end (seed ${SEED})`, async (t) => {
  const data = folder(t);
  const { operator } = await fill(t, data);
  const state = await stateOf(operator);
  await operator.server.stop();
  const moved = await moveWithKills(t, () => {
    const source = join(folder(t), "copy");
    cpSync(data, source, { recursive: true });
    const url = newDatabase();
    return { args: ["import", "--from", source], settings: { DB_URL: url }, url };
  });
  assert.match(succeed(["verify"], { DB_URL: moved.url }), /every hash, link, sequence and cursor holds/);
  const there = await operate(t, { data: folder(t), settings: { ...SETTINGS, DB_URL: moved.url } });
  assertSame(await stateOf(there), state);
  await there.server.stop();
  const back = await moveWithKills(t, () => {
    const target = join(folder(t), "back");
    const url = newDatabase(moved.url.slice(moved.url.lastIndexOf("/") + 1));
    return { args: ["export", "--store", target], settings: { DB_URL: url }, target };
  });
  assert.match(succeed(["verify", "--data-dir", back.target], { DB_URL: "" }), /every hash, link, sequence and cursor holds/);
  const here = await operate(t, { data: back.target, settings: { ...SETTINGS, DB_URL: "" } });
  assertSame(await stateOf(here), state);
});
