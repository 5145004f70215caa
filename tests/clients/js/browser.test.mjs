// The client's own modules in a real browser, without a build: each transport, both browser storages,
// and a crash of the server.
import assert from "node:assert/strict";
import { test } from "node:test";
import { untilInPage } from "../../lib/browser.mjs";
import { folder } from "../../lib/khala.mjs";
import { operate, operateRun } from "../../lib/operator.mjs";
import { events, range, TOPIC } from "../../lib/samples.mjs";
import { openClientPage } from "./page.mjs";

const settings = { RUNTIME_KHALA_ALLOWED_ORIGINS: "*" };

test("a browser follows a topic over every transport, keeps its positions, and resumes after a crash", async (t) => {
  const data = folder(t);
  const first = await operateRun(t, { count: 20, data, settings });
  const page = await openClientPage(t);
  const follow = (transports, storage) => page.evaluate(async ([url, token, topic, names, kind]) => {
    const { Khala, localStorageStorage, indexedDbStorage } = await import("/src/khala.js");
    window.clients ??= [];
    const one = { seqs: [], resets: [] };
    window.clients.push(one);
    one.khala = new Khala({ url, token: async () => token, transports: names, backOff: { baseMs: 50, maxMs: 500 },
      storage: kind === "local" ? localStorageStorage() : indexedDbStorage() });
    one.topic = one.khala.topic(topic, { key: `${kind} ${names}`, reset: (reset) => one.resets.push(reset.reason) });
    one.topic.each((frame) => one.seqs.push(frame.seq));
  }, [first.server.url, first.reader, TOPIC, transports, storage]);
  const all = [["websocket"], ["sse"], ["poll"]];
  for (const transports of all) await follow(transports, transports[0] === "sse" ? "local" : "indexed");
  const reached = (goal) => untilInPage(page, (n) => window.clients.every(({ topic }) => topic.position?.seq === n), goal, `position ${goal}`);
  await reached(20);
  assert.deepEqual(await page.evaluate(() => window.clients.map(({ khala }) => khala.state.transport)), ["websocket", "sse", "poll"]);
  const { port } = first.server;
  await first.server.crash();
  const second = await operate(t, { data, bind: `127.0.0.1:${port}`, settings });
  await second.batch(events(10));
  await reached(30);
  assert.deepEqual(await page.evaluate(() => window.clients.map(({ seqs, resets }) => [seqs, resets])), all.map(() => [range(1, 30), ["start"]]));
  await page.evaluate(() => Promise.all(window.clients.map(({ khala }) => khala.close())));
  await page.evaluate(() => { window.clients = []; });
  await second.batch(events(1));
  for (const transports of all) await follow(transports, transports[0] === "sse" ? "local" : "indexed");
  await reached(31);
  assert.deepEqual(await page.evaluate(() => window.clients.map(({ seqs, resets }) => [seqs, resets])), all.map(() => [[31], []]));
});
