// The programs of clients/python/README.md, as they are printed there, against the real server.
import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before } from "node:test";
import { fileURLToPath } from "node:url";
import { test } from "../../lib/cases.mjs";
import { folder } from "../../lib/khala.mjs";
import { operate } from "../../lib/operator.mjs";
import { range } from "../../lib/samples.mjs";
import { once, Received, until } from "../../lib/wait.mjs";
import { PYTHON } from "./client.mjs";

const page = readFileSync(new URL("../../../clients/python/README.md", import.meta.url), "utf8");
const programs = Object.fromEntries([...page.matchAll(/^## (.*?)\n(?:(?!^## )[^])*?^```python\n([^]*?)^```/gm)].map(([, title, text]) => [title, text]));
const sources = fileURLToPath(new URL("../../../clients/python/src", import.meta.url));
const PORT = 4100;
const ASK_AGAIN_MS = 50; // each answer takes a process

/** Starts the program under that title in a folder. Its lines are in all. */
function start(t, title, { url, token, path }, change = (text) => text) {
  const output = new Received();
  writeFileSync(join(path, "program.py"), `def get_token() -> str: return ${JSON.stringify(token)}\n${change(programs[title].replaceAll(`http://127.0.0.1:${PORT}`, url))}`);
  const child = spawn(PYTHON, ["-u", "-W", "default", "program.py"], { cwd: path, env: { ...process.env, PYTHONPATH: sources }, stdio: ["ignore", "pipe", "pipe"] });
  output.errors = "";
  child.stderr.on("data", (data) => { output.errors += data; });
  let text = "";
  child.stdout.on("data", (data) => {
    const lines = (text += data).split("\n");
    text = lines.pop();
    for (const line of lines) output.add(line);
  });
  const closed = once(child, "close");
  closed.catch(() => {});
  output.kill = async () => {
    child.kill("SIGKILL");
    await closed;
  };
  output.closed = closed;
  t.after(output.kill);
  return output;
}

const log = (from, to) => range(from, to).map((n) => ({ run_id: "abc", event_type: "run.log", payload: { line: `line ${n}` } }));
const ends = [];
let operator;
before(async () => {
  operator = await operate({ after: (act) => ends.unshift(act) });
  await operator.did("runs", { run_id: "abc" }, 201);
  await operator.batch(log(2, 10));
});
after(async () => {
  for (const act of ends) await act();
});
const options = (t) => ({ url: operator.server.url, token: operator.reader, path: folder(t) });

test("Topics: every frame once, and a second run goes on behind the first", async (t) => {
  const given = options(t);
  const first = start(t, "Topics", given);
  await first.until(() => first.all.length >= 11, "ten frames");
  assert.equal(first.all[0], "starts at 1 because of start");
  assert.equal(first.all[10], "10 {'line': 'line 10'}");
  const position = join(given.path, "positions/khala%3Arun%3Aabc%3Aevents");
  await until(() => existsSync(position) && readFileSync(position, "utf8").includes("\"seq\":10"), "the position");
  await first.kill();
  const second = start(t, "Topics", given);
  await operator.batch(log(11, 11));
  await second.until(() => second.all.length >= 1, "the next frame");
  assert.match(second.all[0], /^11 /);
});

test("Collections: the snapshot, then each change", async (t) => {
  await operator.did("runs", { run_id: "other" }, 201);
  const seen = start(t, "Collections", options(t));
  await seen.until(() => seen.all.length >= 1, "the snapshot");
  assert.match(seen.all[0], /^reset \{.*'runtime\/run_summary:other': 'running'/);
  await operator.did("runs/other/events", { event_type: "run.finished", payload: { status: "succeeded" } });
  await seen.until(() => /'runtime\/run_summary:other': 'succeeded'/.test(seen.all.at(-1)), "the change");
});

test("The whole log: every event once, and a second run goes on behind the first", async (t) => {
  const given = { ...options(t) };
  const first = start(t, "The whole log", given);
  await first.until(() => first.all.length >= 10, "ten events");
  assert.equal(first.all[9], "run abc 10 run.log");
  const cursor = join(given.path, "positions/khala-log");
  await until(() => existsSync(cursor), "the cursor");
  await first.kill();
  const { cursor: stored } = JSON.parse(readFileSync(cursor, "utf8"));
  const rest = (await operator.log()).slice(1 + (await operator.log()).findIndex((event) => event.cursor === stored));
  const second = start(t, "The whole log", given);
  await operator.batch([{ topic: "room:9", event_type: "said", payload: {} }]);
  await second.until(() => second.all.length > rest.length, "the next events");
  assert.deepEqual(second.all.slice(0, rest.length), rest.map(({ entity, entity_id, seq, event_type }) => `${entity} ${entity_id} ${seq} ${event_type}`));
});

test("Exactly once: rows and position survive kill -9 of the program and of the server", async (t) => {
  const data = folder(t);
  let own = await operate(t, { data });
  await own.did("runs", { run_id: "abc" }, 201);
  const path = folder(t);
  const rows = async () => {
    await new Promise((resolve) => setTimeout(resolve, ASK_AGAIN_MS));
    try {
      return execFileSync("sqlite3", [join(path, "worker.db"), "SELECT group_concat(seq) FROM (SELECT seq FROM lines ORDER BY seq)"], { encoding: "utf8", stdio: "pipe" }).trim();
    } catch {
      return ""; // not created yet, or locked
    }
  };
  const { port } = own.server;
  const given = { url: own.server.url, path };
  let program = start(t, "Exactly once", { ...given, token: own.reader });
  for (let round = 1; round <= 3; round++) {
    await own.batch(log(1, 40));
    await until(async () => (await rows()).split(",").length > (round - 1) * 40 + 10, "some rows");
    if (round === 2) {
      await own.server.crash();
      own = await operate(t, { data, bind: `127.0.0.1:${port}` });
    } else await program.kill();
    if (round !== 2) program = start(t, "Exactly once", { ...given, token: own.reader });
  }
  await until(async () => await rows() === range(1, 121).join(), "all rows");
});

test("Producer: every event is stored in order, and the outbox is empty in the end", async (t) => {
  await operator.did("runs", { run_id: "written", owner_user_id: "u" }, 201);
  const given = { ...options(t), token: operator.sign({ oa_user_id: "u", oa_sync_scopes: ["runtime.append"] }) };
  const seen = start(t, "Producer", given, (text) => text.replaceAll("\"abc\"", "\"written\""));
  assert.equal(await seen.closed, 0, seen.errors);
  assert.deepEqual(seen.all, ["2 False"]);
  const lines = (await operator.events("written")).map(({ payload }) => payload.line);
  assert.deepEqual(lines.slice(1), ["hello", ...range(0, 99).map(String)]);
  assert.equal(execFileSync("sqlite3", [join(given.path, "outbox.db"), "SELECT count(*) FROM outbox"], { encoding: "utf8" }).trim(), "0");
});
