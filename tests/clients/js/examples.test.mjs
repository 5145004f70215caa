// The programs and pages of examples/, against the real server, which is killed meanwhile.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { cpSync, mkdirSync, readFileSync, symlinkSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { openAddress, untilInPage } from "../../lib/browser.mjs";
import { test } from "../../lib/cases.mjs";
import { folder, start } from "../../lib/khala.mjs";
import { operate } from "../../lib/operator.mjs";
import { events, range } from "../../lib/samples.mjs";
import { until } from "../../lib/wait.mjs";

const root = fileURLToPath(new URL("../../../", import.meta.url));
// The publish rate is the server's own default, which the test's operator would lift.
const settings = { RUNTIME_KHALA_ALLOWED_ORIGINS: "*", RUNTIME_KHALA_RUN_EVENTS_PUBLISH_RATE_PER_SECOND: "2000" };
const CHAT_SECONDS = Number(process.env.KHALA_CHAT_SECONDS ?? 20);

/** A copy of the examples with their packages, a server, and the backend of the examples. */
async function world(t) {
  const cwd = join(folder(t), "examples");
  cpSync(join(root, "examples"), cwd, { recursive: true, filter: (path) => !path.includes("node_modules") });
  mkdirSync(join(cwd, "node_modules"));
  symlinkSync(join(root, "clients/js"), join(cwd, "node_modules/khala"));
  for (const name of ["phoenix", "ws"]) symlinkSync(join(root, "tests/node_modules", name), join(cwd, "node_modules", name));
  const data = folder(t);
  const here = { cwd, operator: await operate(t, { data, settings }) };
  here.run = (file, args = [], env = {}) => start(t, [process.execPath, file, ...args], { cwd, input: "pipe", env: { ...process.env, BACKEND: here.backend, ...env } });
  const backend = here.run("backend.mjs", [], { PORT: "0", KHALA_URL: here.operator.server.url, KHALA_OPERATOR_KEY: here.operator.key });
  [, here.backend] = await backend.saw("out", /listens on (\S+)\n/);
  /** Kills the server and starts it again at the same address. */
  here.crash = async () => {
    const { server } = here.operator;
    await server.crash();
    here.operator = await operate(t, { data, settings, bind: `127.0.0.1:${server.port}` });
  };
  return here;
}

test("an agent writes a run; a page and the phoenix client follow it through a crash of the server", async (t) => {
  const here = await world(t);
  const agent = here.run("agent.mjs", ["demo"]);
  agent.child.stdin.write("one\ntwo\n");
  await until(async () => (await here.operator.get("runs/demo")).status === 200, "the run");
  const phoenix = here.run("phoenix.mjs", ["demo"]);
  const page = await openAddress(t, `${here.backend}/run_log.html?run=demo`);
  const shows = (wanted) => untilInPage(page, (expected) => [...document.querySelectorAll("#log li")].map((item) => `${item.value} ${item.textContent}`).join() === expected, wanted, wanted);
  await shows("1 run.started,2 one,3 two");
  await phoenix.saw("out", /^3 .*\n/m);
  await here.crash();
  agent.child.stdin.end("three\n");
  await agent.saw("out", /run demo has 5 events\n/);
  assert.deepEqual(await agent.end(), { code: 0, signal: null }, agent.log);
  await shows("1 run.started,2 one,3 two,4 three,5 run.finished");
  assert.equal(await page.evaluate(() => document.getElementById("end").textContent), "finished: succeeded");
  await phoenix.saw("out", /^5 .*\n/m);
  assert.deepEqual(phoenix.lines.map((line) => Number.parseInt(line, 10)), range(1, 5));
  assert.equal(phoenix.lines[1], "2 run.log {\"line\":\"one\"}");
});

test("a board shows the workers of a user and their changes", async (t) => {
  const here = await world(t);
  for (const [worker_id, owner_user_id] of [["w1", "ada"], ["w2", "ada"], ["w3", "bob"]]) await here.operator.did("workers", { worker_id, owner_user_id }, 201);
  const page = await openAddress(t, `${here.backend}/fleet_board.html`);
  const shows = (wanted) => untilInPage(page, (expected) => [...document.querySelectorAll("#workers tr")].map(({ cells }) => `${cells[0].textContent} ${cells[1].textContent} ${cells[2].textContent}`).join() === expected, wanted, wanted);
  await shows("w1 starting 1,w2 starting 1");
  await here.operator.did("workers/w2/status", { status: "running" });
  await shows("w1 starting 1,w2 running 2");
  await here.crash();
  await here.operator.did("workers/w1/status", { status: "failed", reason: "x" });
  await shows("w1 failed 2,w2 running 2");
});

test("a worker registers itself, is shown on the board, and stops; the backend's first page leads to the others", async (t) => {
  const here = await world(t);
  const page = await openAddress(t, here.backend);
  await page.click("text=board of the workers");
  const worker = here.run("worker.mjs", ["w7"]);
  await worker.saw("out", /w7 runs/);
  const shows = (wanted) => untilInPage(page, (expected) => [...document.querySelectorAll("#workers tr")].map(({ cells }) => `${cells[0].textContent} ${cells[1].textContent}`).join() === expected, wanted, wanted);
  await shows("w7 running");
  assert.deepEqual(await worker.end("SIGTERM"), { code: 0, signal: null }, worker.log);
  await shows("w7 stopped");
  const again = here.run("worker.mjs", ["w7"]);
  await shows("w7 running");
  await again.end("SIGKILL");
  await here.run("worker.mjs", ["w7"]).saw("out", /w7 runs/);
  for (const name of ["run_log.html?run=count", "chat.html?run=chat"]) {
    await page.goto(here.backend);
    await page.click(`a[href="/${name}"]`);
    await page.waitForURL(`${here.backend}/${name}`);
  }
});

test(`a chat of twenty lines: 150 tokens a second for ${CHAT_SECONDS} s arrive once and in order, through reloads, kill -9 and a late join`, async (t) => {
  assert.ok(readFileSync(join(root, "examples/chat.mjs"), "utf8").trim().split("\n").length <= 20);
  const here = await world(t);
  const count = 150 * CHAT_SECONDS;
  const whole = `${range(1, count).join(" ")} `;
  const chat = (role) => here.run("chat.mjs", [role, "talk"], { SECONDS: String(CHAT_SECONDS) });
  const early = chat("reader"); // the run does not exist yet
  const problems = [];
  const open = async () => {
    const page = await openAddress(t, `${here.backend}/chat.html?run=talk`);
    page.on("pageerror", (error) => problems.push(String(error)));
    page.frames = []; // the frames that came since the page was loaded
    page.on("websocket", (socket) => socket.on("framereceived", ({ payload }) => {
      const [, , , event, body] = JSON.parse(payload);
      if (event === "sync:update_batch") page.frames.push(...body.updates);
    }));
    return page;
  };
  const page = await open();
  const shown = (part, on = page) => untilInPage(on, (tokens) => document.getElementById("answer").textContent.split(" ").length > tokens, Math.floor(part * count), `${part} of the answer`);
  const begun = performance.now();
  const writer = chat("writer");
  await shown(0.2);
  await page.reload();
  await shown(0.4);
  await here.crash();
  await page.reload();
  await shown(0.6);
  const late = chat("reader");
  await shown(0.8);
  await page.reload();
  assert.deepEqual(await writer.end(), { code: 0, signal: null }, writer.log);
  const seconds = (performance.now() - begun) / 1000;
  for (const reader of [early, late]) {
    await reader.until(() => reader.out.length >= whole.length, "the answer");
    assert.equal(reader.out, whole);
  }
  const second = await open();
  for (const one of [page, second]) {
    await shown(1 - 1 / count, one);
    assert.equal(await one.evaluate(() => document.getElementById("answer").textContent), whole);
  }
  assert.deepEqual(problems, []);
  assert.ok(second.frames.length <= count / 20, `${second.frames.length} frames show a whole answer`);
  const stored = (await here.operator.events("talk")).filter(({ event_type }) => event_type === "chat.delta");
  assert.equal(stored.map(({ payload }) => payload.delta).join(""), whole);
  t.diagnostic(`${count} tokens in ${seconds.toFixed(1)} s, with a crash of the server; ${second.frames.length} frames for a viewer after the end`);
});

test("a worker counts each event exactly once while it and the server are killed", async (t) => {
  const here = await world(t);
  const file = join(here.cwd, "totals.db");
  const ask = (sql) => spawnSync("sqlite3", ["-cmd", ".timeout 10000", file, sql], { encoding: "utf8" }).stdout.trim();
  const reached = (seq) => until(() => Number(ask("SELECT seq FROM position")) >= seq, `the position ${seq}`);
  await here.operator.did("runs", { run_id: "demo", owner_user_id: "ada" }, 201);
  let head = 1;
  const append = async (count) => {
    await here.operator.batch(events(count, { run_id: "demo" }));
    head += count;
  };
  await append(60);
  for (let round = 0; round < 2; round++) {
    const worker = here.run("exactly_once.mjs", ["demo", file]);
    await reached(head - 55); // it is in the middle of its events
    await worker.end("SIGKILL");
    const next = here.run("exactly_once.mjs", ["demo", file]);
    await next.saw("out", /live/);
    await here.crash();
    await append(20);
    await reached(head - 10);
    await next.end("SIGKILL");
  }
  const last = here.run("exactly_once.mjs", ["demo", file]);
  await append(5);
  await reached(head);
  await last.end("SIGKILL");
  assert.equal(ask("SELECT kind || ' ' || count FROM totals ORDER BY kind"), `run.log ${head - 1}\nrun.started 1`);
  assert.equal(ask("SELECT seq FROM position"), String(head));
});
