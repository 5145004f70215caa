// Every example of every verb's help, as it stands there, in a shell.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { binary, environment, folder, run, within } from "../lib/khala.mjs";
import { operate } from "../lib/operator.mjs";

const VERBS = [...run(["help"]).out.matchAll(/^ {2}(\w+) +[A-Z]/gm)].map(([, verb]) => verb);
/** These want the folder to themselves; they come before and after a server has it. */
const BEFORE = ["serve", "migrate"];
const AFTER = ["restore"];
/** What shows that a verb which goes on until it is told otherwise is at work. */
const ENDLESS = { serve: /listens on/, tail: /\n/ };

const examples = (verb) => run(["help", verb]).out.split("examples:\n")[1].trim().split("\n").map((line) => line.trim());

/** Runs the line, and ends it kindly once it has said enough; until then something happens. */
async function shell(t, line, { cwd, settings, enough, happen }) {
  const child = spawn("bash", ["-c", line], {
    cwd, env: { ...environment(settings), PATH: `${dirname(binary)}:${process.env.PATH}` },
    stdio: ["ignore", "pipe", "pipe"], detached: true,
  });
  let out = "";
  let problem = "";
  let told = false;
  child.stderr.on("data", (data) => { problem += data; });
  child.stdout.on("data", (data) => {
    out += data;
    if (!enough?.test(out) || told) return;
    told = true;
    process.kill(-child.pid, "SIGTERM");
  });
  t.after(() => child.kill("SIGKILL"));
  const ended = within(new Promise((resolve) => child.on("close", (...end) => resolve(end))), line);
  while (happen && !told && child.exitCode === null) await happen();
  const [code, signal] = await ended;
  assert.deepEqual([code, signal], [0, null], `${line}: ${out}${problem}`);
  if (enough) assert.match(out, enough, line);
}

async function tryAll(t, verbs, settings, cwd, happen) {
  for (const verb of verbs) {
    // The shell gives way to a verb that is to be told something.
    const prefix = ENDLESS[verb] ? "exec " : "";
    for (const line of examples(verb)) {
      await shell(t, prefix + line, { cwd, settings, enough: ENDLESS[verb], happen: ENDLESS[verb] && happen });
    }
  }
}

test("the examples of the help work", async (t) => {
  const cwd = folder(t);
  const data = join(cwd, "khala-data");
  assert.equal(binary.split("/").pop(), "khala");
  await tryAll(t, BEFORE, { RUNTIME_BIND_ADDR: "127.0.0.1:0" }, cwd);

  const operator = await operate(t, { data });
  await operator.did("runs", { run_id: "abc" }, 201);
  // Somebody who is not let in, for khala why to tell of.
  const stranger = operator.sign({ oa_user_id: "42", oa_sync_scopes: ["runtime.run_events"] });
  const denied = await operator.ask("GET", "/internal/v1/khala/topics/run:abc:events/messages", undefined,
    { authorization: `Bearer ${stranger}` });
  assert.equal(denied.status, 403, denied.body);
  const between = VERBS.filter((verb) => ![...BEFORE, ...AFTER].includes(verb));
  await tryAll(t, between, { KHALA_URL: operator.server.url }, cwd,
    () => operator.did("runs/abc/events", { event_type: "run.log" }));

  await operator.server.stop();
  operator.server.crashed = true; // it has stopped; nothing is left to stop
  await tryAll(t, AFTER, {}, cwd);
});
