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

test("in a browser, an event that is appended some microtasks after an answer is sent", async (t) => {
  const operator = await operate(t, { settings });
  const token = operator.sign({ oa_sync_scopes: ["runtime.append"], oa_sync_topics: ["room:*"] });
  const page = await openClientPage(t);
  await page.evaluate(async ([url, text]) => {
    const { Producer } = await import("/src/producer.js");
    const producer = new Producer({ url, token: () => text });
    window.stored = [];
    void (async () => {
      for (let microtasks = 0; microtasks <= 10; microtasks++) {
        const said = { topic: `room:${microtasks}`, event_type: "said" };
        await producer.append(said);
        for (let i = 0; i < microtasks; i++) await null;
        window.stored.push((await producer.append(said)).event.seq);
      }
    })();
  }, [operator.server.url, token]);
  await untilInPage(page, () => window.stored.length === 11, null, "every second event");
  assert.deepEqual(await page.evaluate(() => window.stored), Array(11).fill(2));
});

test("a page whose origin the server refuses gets a warning that says what to look for, as a guess", async (t) => {
  const operator = await operate(t, { settings: { RUNTIME_KHALA_ALLOWED_ORIGINS: "https://other.example" } });
  const page = await openClientPage(t);
  const token = operator.sign({ oa_sync_scopes: ["runtime.read_all", "runtime.append"], oa_sync_topics: ["room:*"] });
  await page.evaluate(async ([url, text]) => {
    const { Khala } = await import("/src/khala.js");
    const { Producer } = await import("/src/producer.js");
    window.warnings = { all: [], websocket: [], producer: [] };
    const keep = (list) => ({ code, isGuess, message }) => { if (isGuess) list.push({ code, message }); };
    for (const [name, transports] of [["all", undefined], ["websocket", ["websocket"]]]) {
      const khala = new Khala({ url, token: () => text, transports, backOff: { baseMs: 20, maxMs: 50 } });
      khala.onWarning(keep(window.warnings[name]));
      khala.topic("room:1").each(() => {}).catch(() => {});
    }
    const producer = new Producer({ url, token: () => text, backOff: { baseMs: 20, maxMs: 50 } });
    producer.onWarning(keep(window.warnings.producer));
    producer.append({ topic: "room:1", event_type: "said" }).catch(() => {});
  }, [operator.server.url, token]);
  await untilInPage(page, () => Object.values(window.warnings).every((list) => list.length > 0), null, "the warnings");
  const origin = await page.evaluate(() => location.origin);
  for (const [name, [{ code, message }]] of Object.entries(await page.evaluate(() => window.warnings))) {
    assert.equal(code, "origin_not_allowed", name);
    assert.match(message, /A guess, /);
    assert.ok(message.includes(`origin=${origin}`) && message.includes("RUNTIME_KHALA_ALLOWED_ORIGINS"), message);
  }
});

test("a page gets no warning of a refused origin while the server is away, or refuses the token", async (t) => {
  const operator = await operate(t, { settings });
  const page = await openClientPage(t);
  const { port } = operator.server;
  await operator.server.crash();
  await page.evaluate(async (url) => {
    const { Khala } = await import("/src/khala.js");
    window.seen = { guesses: 0, failures: 0, transport: null };
    const khala = new Khala({ url, token: () => window.token ?? "rubbish", backOff: { baseMs: 20, maxMs: 50 } });
    khala.onWarning(({ isGuess }) => { window.seen.guesses += isGuess ? 1 : 0; });
    khala.subscribe(({ status, transport }) => {
      window.seen.failures += status === "backing_off" ? 1 : 0;
      window.seen.transport = transport;
    });
    khala.topic("room:1").each(() => {}).catch(({ code }) => { window.seen.end = code; });
  }, operator.server.url);
  await untilInPage(page, () => window.seen.failures >= 8, null, "failed attempts");
  await operate(t, { settings, data: operator.data, bind: `127.0.0.1:${port}` });
  await untilInPage(page, () => window.seen.end === "invalid_token", null, "the refusal");
  assert.equal(await page.evaluate(() => window.seen.guesses), 0);
});
