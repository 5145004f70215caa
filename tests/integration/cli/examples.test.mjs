// Every example of the help, run in a shell.
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { databaseOf, onPostgres } from "../../lib/database.mjs";
import { binary, environment, folder, run, start } from "../../lib/khala.mjs";
import { operate } from "../../lib/operator.mjs";
import { until } from "../../lib/wait.mjs";

const VERBS = [...run(["help"]).out.matchAll(/^ {2}(\w+) +[A-Z]/gm)].map(([, verb]) => verb);
/** Verbs that need the folder without a server; they run before and after it. */
const BEFORE = ["serve", "migrate"];
const AFTER = ["restore"];
/** The output of verbs that run until a signal, once they work. */
const ENDLESS = { serve: /listens on/, tail: /\n/ };

/** Examples that move a store; integration/move runs these verbs against a database. */
const MOVES = /postgres:|--undo-move/;

/** Examples for the embedded store alone. */
const FILES = /^khala (backup|restore) /;
const isRun = (example) => !MOVES.test(example) && !(onPostgres && FILES.test(example));

const examples = (verb) => run(["help", verb]).out.split("examples:\n")[1].trim().split("\n").map((line) => line.trim());

/** Runs a line; with `enough` it repeats `happen` until the output matches, then ends the line. */
async function shell(t, line, { cwd, settings, enough, happen = async () => {} }) {
  const env = { ...environment(settings), PATH: `${dirname(binary)}:${process.env.PATH}` };
  const verb = start(t, ["bash", "-c", line], { cwd, env, detached: true });
  if (enough) {
    await until(async () => {
      await happen();
      return verb.over || enough.test(verb.out);
    }, line);
    if (!verb.over) process.kill(-verb.child.pid, "SIGTERM");
  }
  assert.deepEqual(await verb.end(), { code: 0, signal: null }, `${line}: ${verb.out}${verb.log}`);
  if (enough) assert.match(verb.out, enough, line);
}

async function tryAll(t, verbs, settings, cwd, happen) {
  for (const verb of verbs) {
    // The shell must be replaced by a verb that gets a signal.
    const prefix = ENDLESS[verb] ? "exec " : "";
    for (const line of examples(verb).filter(isRun)) {
      await shell(t, prefix + line, { cwd, settings, enough: ENDLESS[verb], happen: ENDLESS[verb] && happen });
    }
  }
}

test("every example of the help works", async (t) => {
  const cwd = folder(t);
  const data = join(cwd, "khala-data");
  // The file that the example of --config names.
  writeFileSync(join(cwd, "khala.conf"), "KHALA_LOG=json\n");
  assert.equal(binary.split("/").pop(), "khala");
  const store = onPostgres ? { DB_URL: databaseOf(data) } : {};
  await tryAll(t, BEFORE, { ...store, RUNTIME_BIND_ADDR: "127.0.0.1:0" }, cwd);

  const operator = await operate(t, { data });
  await operator.did("runs", { run_id: "abc" }, 201);
  // A run of another, so that khala why has a decision to list: the client is told that it waits.
  const stranger = operator.sign({ oa_user_id: "42", oa_sync_scopes: ["runtime.run_events"] });
  const denied = await operator.ask("GET", "/internal/v1/khala/topics/run:abc:events/messages", undefined,
    { authorization: `Bearer ${stranger}` });
  assert.equal(JSON.parse(denied.body).pending, true, denied.body);
  const between = VERBS.filter((verb) => ![...BEFORE, ...AFTER].includes(verb));
  await tryAll(t, between, { ...store, KHALA_URL: operator.server.url }, cwd,
    () => operator.did("runs/abc/events", { event_type: "run.log" }));

  await operator.server.stop();
  await tryAll(t, AFTER, store, cwd);
});
