// The programs of docs/agents.md, as they are printed there, against the real server.
import assert from "node:assert/strict";
import { mkdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { test } from "../../lib/cases.mjs";
import { folder } from "../../lib/khala.mjs";
import { operate } from "../../lib/operator.mjs";
import { range } from "../../lib/samples.mjs";
import { until } from "../../lib/wait.mjs";

const root = new URL("../../../", import.meta.url);
const LINES_MAX = 30;
const page = readFileSync(new URL("docs/agents.md", root), "utf8");
const [chat, approval] = [...page.matchAll(/```js\n([^]*?)```/g)].map(([, code]) => code);

/** A server, tokens for an agent and a reader of one user, and a program of the page with the server's address. */
async function world(t, code) {
  const place = folder(t);
  const operator = await operate(t, { data: folder(t) });
  mkdirSync(join(place, "node_modules"));
  symlinkSync(fileURLToPath(new URL("clients/js", root)), join(place, "node_modules/khala"));
  writeFileSync(join(place, "program.mjs"), code.replace("http://127.0.0.1:4100", operator.server.url));
  const here = { operator, ...(await import(pathToFileURL(join(place, "program.mjs")))) };
  const { Khala } = await import(new URL("clients/js/src/khala.js", root));
  const { Producer } = await import(new URL("clients/js/src/producer.js", root));
  here.agent = () => operator.token({ user_id: "ada", scopes: ["runtime.append", "runtime.run_events"] });
  here.reader = () => operator.token({ user_id: "ada", scopes: ["runtime.run_events"] });
  here.follow = (options) => new Khala({ url: operator.server.url, token: here.reader, ...options });
  here.produce = () => new Producer({ url: operator.server.url, token: here.agent });
  return here;
}

test("the programs have at most thirty lines", () => {
  for (const code of [chat, approval]) assert.ok(code.trim().split("\n").length <= LINES_MAX, `${code.trim().split("\n").length} lines`);
});

test("a chat is watched from before its beginning, from its middle and after its end", async (t) => {
  const here = await world(t, chat);
  const words = range(1, 300).map((n) => `${n} `);
  const whole = words.join("");
  let half;
  const isHalf = new Promise((resolve) => { half = resolve; });
  let goOn;
  const mayGoOn = new Promise((resolve) => { goOn = resolve; });
  async function* model(question) {
    assert.equal(question, "Count!");
    yield* words.slice(0, 150);
    half();
    await mayGoOn;
    yield* words.slice(150);
  }
  const shown = [];
  const watch = async () => {
    const one = { texts: [] };
    shown.push(one);
    await here.watch("talk", here.reader, (text) => one.texts.push(text));
  };
  const early = watch();
  const answered = here.answer("talk", "Count!", here.agent, model);
  await isHalf;
  await until(() => shown[0].texts.at(-1)?.split(" ").length > 150, "the first half");
  const middle = watch();
  await until(() => shown[1].texts.length > 0, "the text so far");
  goOn();
  await answered;
  await Promise.all([early, middle, watch()]);
  for (const { texts } of shown) assert.equal(texts.at(-1), whole);
  assert.ok(shown[2].texts.length <= words.length / 20, `${shown[2].texts.length} frames after the end`);
  const { title, tags, status } = await here.operator.read("projectors/run-summary/talk");
  assert.deepEqual([title, tags, status], ["Count!", ["chat"], "succeeded"]);
});

for (const approved of [true, false]) {
  test(`an agent asks, a person finds the question and ${approved ? "agrees" : "declines"}; the agent is started again`, async (t) => {
    const here = await world(t, approval);
    await here.operator.did("runs", { run_id: "deploy", owner_user_id: "ada" }, 201);
    await here.operator.did("runs", { run_id: "other", owner_user_id: "ada" }, 201);
    const khala = here.follow();
    const producer = here.produce();
    t.after(() => Promise.all([khala.close(), producer.close()]));
    let waiting = [];
    const stop = here.inbox(khala, (runs) => { waiting = runs.map((run) => [run.run_id, run.waiting.for, run.waiting.question]); });
    let acts = 0;
    const crash = here.askFirst("deploy", "Deploy to production?", here.agent, async () => { throw new Error("a crash"); });
    const isCrashed = crash.then(() => false, () => true);
    await until(() => waiting.length > 0, "the question");
    assert.deepEqual(waiting, [["deploy", "approval", "Deploy to production?"]]);
    assert.equal(acts, 0);
    await here.decide(producer, "deploy", approved);
    assert.equal(await isCrashed, approved);
    await here.askFirst("deploy", "Deploy to production?", here.agent, async () => { acts++; });
    assert.equal(acts, approved ? 1 : 0);
    await until(() => waiting.length === 0, "an empty inbox");
    stop();
    const types = (await here.operator.events("deploy")).map(({ event_type }) => event_type);
    assert.deepEqual(types, ["run.started", "run.waiting", "approval.decided", "run.resumed", "run.step_started", "run.step_finished"]);
    const { waiting: now, open_steps } = await here.operator.read("projectors/run-summary/deploy");
    assert.deepEqual([now, open_steps], [null, 0]);
  });
}
