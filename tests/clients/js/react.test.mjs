// The hooks in a real browser with the real react: shared topics, changes, unmounting, StrictMode.
import assert from "node:assert/strict";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";
import { untilInPage } from "../../lib/browser.mjs";
import { operateRun } from "../../lib/operator.mjs";
import { events, TOPIC } from "../../lib/samples.mjs";
import { openClientPage } from "./page.mjs";

const PROGRAM = `
import { createElement as h, StrictMode, useState } from "react";
import { createRoot } from "react-dom/client";
import { Khala } from "./src/khala.js";
import { useCollection, useConnection, useRun, useRuns, useTopic } from "./src/react.js";

const khala = new Khala({ url: window.server, token: async () => window.token });
window.khala = khala;

function Status() {
  return h("i", { id: "status" }, useConnection(khala).status);
}
function Log({ id }) {
  const { frames, reset, error } = useTopic(khala, window.topic, { limit: 5 });
  return h("b", { id }, JSON.stringify({ seqs: frames.map((frame) => frame.seq), reason: reset?.reason ?? null, error: error?.code ?? null }));
}
function Board() {
  const { documents, isReady } = useCollection(khala, "runtime.run_summaries");
  return h("p", { id: "board" }, isReady ? [...documents.values()].map((run) => run.run_id + "=" + run.latest_seq).join() : "…");
}
function Runs() {
  const { runs, isReady } = useRuns(khala);
  return h("p", { id: "runs" }, isReady ? runs.map((run) => run.run_id + "=" + run.latest_seq).join() : "…");
}
function Run({ id }) {
  const { run, isReady } = useRun(khala, id);
  window.renders[id] = (window.renders[id] ?? 0) + 1;
  return h("p", { id: "run-" + id }, isReady ? (run ? run.status + " " + run.latest_seq : "none") : "…");
}
window.renders = {};
function App() {
  const [isOpen, setOpen] = useState(true);
  window.setOpen = setOpen;
  return h("div", null, h(Status), isOpen && h(Log, { id: "one" }), isOpen && h(Log, { id: "two" }), isOpen && h(Board),
    isOpen && h(Runs), isOpen && h(Run, { id: "a" }), isOpen && h(Run, { id: "b" }));
}
window.render = () => createRoot(document.getElementById("root")).render(h(StrictMode, null, h(App)));
`;

test("hooks share a topic, render each change, and end with their components", async (t) => {
  const operator = await operateRun(t, { count: 8, settings: { RUNTIME_KHALA_ALLOWED_ORIGINS: "*" } });
  const { outputFiles: [{ text }] } = await build({
    stdin: { contents: PROGRAM, resolveDir: fileURLToPath(new URL("../../../clients/js", import.meta.url)) },
    bundle: true, format: "iife", write: false, define: { "process.env.NODE_ENV": "\"development\"" },
    nodePaths: [fileURLToPath(new URL("../../node_modules", import.meta.url))],
  });
  const page = await openClientPage(t, text);
  const problems = [];
  page.on("pageerror", (error) => problems.push(String(error)));
  page.on("console", (message) => message.type() === "error" && problems.push(message.text()));
  await page.evaluate(([server, token, topic]) => Object.assign(window, { server, token, topic }), [operator.server.url, operator.reader, TOPIC]);
  await page.addScriptTag({ url: "/bundle.js" });
  await page.evaluate(() => window.render());
  const shows = (id, wanted) => untilInPage(page, ([one, expected]) => document.getElementById(one)?.textContent === expected, [id, wanted], `${wanted} in ${id}`);
  const log = (...seqs) => JSON.stringify({ seqs, reason: "start", error: null });
  for (const id of ["one", "two"]) await shows(id, log(4, 5, 6, 7, 8));
  await shows("board", "a=8");
  await shows("runs", "a=8");
  await shows("run-a", "running 8");
  await shows("run-b", "none");
  await shows("status", "live");
  const renders = await page.evaluate(() => window.renders.b);
  await operator.batch(events(2));
  for (const id of ["one", "two"]) await shows(id, log(6, 7, 8, 9, 10));
  await shows("board", "a=10");
  await shows("runs", "a=10");
  await shows("run-a", "running 10");
  assert.equal(await page.evaluate(() => window.renders.b), renders, "a component is not rendered for another run");
  await operator.did("runs", { run_id: "b" }, 201);
  await shows("run-b", "running 1");
  await page.evaluate(() => window.setOpen(false));
  await shows("status", "idle");
  await page.evaluate(() => window.setOpen(true));
  for (const id of ["one", "two"]) await shows(id, log(6, 7, 8, 9, 10));
  await shows("board", "a=10,b=1");
  await page.evaluate(() => window.setOpen(false));
  await shows("status", "idle");
  await operator.batch(events(60, { event_type: "a.delta", payload: () => ({ id: "m", delta: "x" }) }));
  await page.evaluate(() => window.setOpen(true));
  for (const id of ["one", "two"]) await shows(id, log(7, 8, 9, 10, 70)); // one frame for sixty deltas
  assert.deepEqual(problems, []);
});
