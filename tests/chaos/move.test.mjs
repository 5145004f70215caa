// Kills a move at random moments, into PostgreSQL and out of it, and repeats the command until it is
// complete. The store must then be the same, whatever the moments were. KHALA_CHAOS_SEED repeats the
// moments; KHALA_CHAOS_KILLS sets the number of kills.
import assert from "node:assert/strict";
import { cpSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { newDatabase, psql } from "../lib/database.mjs";
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
  // The database may not have noticed yet that the one before is dead.
  if (code === 3 && /another khala server uses this database/.test(verb.log)) return killed(t, args, settings, delayMs);
  assert.equal(code, 0, verb.log);
  return false;
}

/** Repeats a move until so many were killed; one that is complete before begins again, unless it can be made only once. */
async function moveWithKills(t, begin, wholeMs) {
  let last = begin();
  for (let kills = 0; kills < KILLS;) {
    if (await killed(t, last.args, last.settings, random() * wholeMs)) kills++;
    else if (last.isOnce) return last;
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
  const url = newDatabase();
  const begin = () => {
    const source = join(folder(t), "copy");
    cpSync(data, source, { recursive: true });
    psql(url, "DROP SCHEMA IF EXISTS runtime CASCADE");
    return { args: ["import", "--from", source], settings: { DB_URL: url }, url };
  };
  const whole = begin();
  const started = performance.now();
  assert.equal(await killed(t, whole.args, whole.settings, 100_000), false);
  const wholeMs = performance.now() - started;
  const moved = await moveWithKills(t, begin, wholeMs);
  assert.match(succeed(["verify"], { DB_URL: moved.url }), /every hash, link, sequence and cursor holds/);
  const there = await operate(t, { data: folder(t), settings: { ...SETTINGS, DB_URL: moved.url } });
  assertSame(await stateOf(there), state);
  await there.server.stop();
  // A database that was moved is not empty again, so the way back is made once, with as many kills as fit.
  const target = join(folder(t), "back");
  const back = await moveWithKills(t, () => ({ args: ["export", "--store", target], settings: { DB_URL: url }, target, isOnce: true }), wholeMs / 2);
  assert.match(succeed(["verify", "--data-dir", back.target], { DB_URL: "" }), /every hash, link, sequence and cursor holds/);
  const here = await operate(t, { data: back.target, settings: { ...SETTINGS, DB_URL: "" } });
  assertSame(await stateOf(here), state);
});
