// The producer of the Python client: ids, batches, retries, refusals and the outbox, against the real server.
import assert from "node:assert/strict";
import http from "node:http";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { folder } from "../../lib/khala.mjs";
import { operate, textOf } from "../../lib/operator.mjs";
import { range } from "../../lib/samples.mjs";
import { until } from "../../lib/wait.mjs";
import { Python } from "./client.mjs";

const NDJSON = { "content-type": "application/x-ndjson" };
const ends = [];
const all = { after: (act) => ends.unshift(act) };
let operator;
let python;
let token;
before(async () => {
  python = await Python.start(all);
  operator = await operate(all, { settings: { RUNTIME_KHALA_FALLBACK_PUBLISH_RATE_PER_SECOND: "200" } });
  token = operator.sign({ oa_sync_scopes: ["runtime.append"], oa_sync_topics: ["room:*"] });
});
after(async () => {
  for (const act of ends) await act();
  assert.equal(python.stderr, "");
});

/** A server between producer and server. act(count, pass, response) may answer in its place; pass() asks the server. */
async function middle(t, act) {
  const requests = [];
  const server = http.createServer(async (request, response) => {
    const body = await textOf(request);
    const { authorization, "x-request-id": id } = request.headers;
    requests.push(body.trim().split("\n"));
    const pass = () => operator.ask("POST", request.url, body, { ...NDJSON, authorization, "x-request-id": id });
    if (await act?.(requests.length, pass, response)) return;
    const { status, headers, body: text } = await pass();
    response.writeHead(status, { "content-type": headers["content-type"] }).end(text);
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  return { url: `http://127.0.0.1:${server.address().port}`, requests };
}

async function open(t, options = {}, act = null) {
  const { url, requests } = await middle(t, act);
  return { producer: await python.produce(t, { url, token, ...options }), requests };
}

const said = (topic, n, more = {}) => ({ topic, event_type: "said", payload: { n, ...more } });
const saids = (topic, from, to) => range(from, to).map((n) => said(topic, n));
const stored = async (topic) => (await operator.read(`topics/${topic}/events?limit=1000`)).events;
const numbers = async (topic) => (await stored(topic)).map(({ payload }) => payload.n);

test("events get ids, go in batches and keep their order", async (t) => {
  const { producer, requests } = await open(t);
  const answers = await producer.append(...saids("room:order", 1, 150));
  assert.deepEqual(answers.map(({ seq }) => seq), range(1, 150));
  assert.ok(requests.length <= 3, `${requests.length} requests`);
  const ids = requests.flat().map((line) => JSON.parse(line).event_id);
  assert.deepEqual((await stored("room:order")).map(({ event_id }) => event_id), ids);
  const limited = await open(t, { limits: { batch_items: 10 } });
  await limited.producer.append(...saids("room:limited", 1, 30));
  assert.deepEqual(limited.requests.map(({ length }) => length), [10, 10, 10]);
});

test("an answer that is lost or breaks off is asked for again, and no event is stored twice", async (t) => {
  const { producer } = await open(t, {}, async (count, pass, response) => {
    if (count > 2) return false;
    const { body } = await pass();
    if (count === 2) response.writeHead(200, { ...NDJSON, "content-length": body.length }).write(body.slice(0, body.length / 2));
    setImmediate(() => response.destroy());
    return true;
  });
  const answers = await producer.append(...saids("room:lost", 1, 20));
  assert.deepEqual(answers.map(({ event }) => event.payload.n), range(1, 20));
  assert.ok(answers.every(({ deduplicated }) => deduplicated));
  assert.equal((await stored("room:lost")).length, 20);
});

test("an old answer that comes again acknowledges nothing", async (t) => {
  let old = null;
  const { producer } = await open(t, {}, async (count, pass, response) => {
    if (count > 2) return false;
    old ??= (await pass()).body;
    response.writeHead(200, NDJSON).end(old);
    return true;
  });
  await producer.append(said("room:old", 1));
  const [second] = await producer.append(said("room:old", 2));
  assert.deepEqual([second.event.payload.n, second.seq], [2, 2]);
});

test("502, HTML, 503, 429 and answers of other requests are tried again", async (t) => {
  const busy = "{\"error\":\"rate_limited\",\"message\":\"later\",\"request_id\":\"x\",\"details\":{\"retry_after_ms\":10}}";
  const wrong = [
    [502, {}, "<html>Bad Gateway</html>"], [200, { "content-type": "text/html" }, "<html>Log in</html>"], [503, { "retry-after": "0" }, ""],
    [429, { "content-type": "application/json" }, busy], [302, { location: "/login" }, ""], [401, {}, "no"],
    [200, { ...NDJSON, "x-request-id": "other" }, ""], [200, NDJSON, "{\"index\":\n[]\n{\"index\":7,\"status\":200}\n{\"index\":0,\"status\":\"x\"}\n"],
  ];
  const { producer, requests } = await open(t, {}, (count, pass, response) => {
    const [status, headers, body] = wrong[count - 1] ?? [];
    if (status) response.writeHead(status, headers).end(body);
    return status !== undefined;
  });
  assert.equal((await producer.append(said("room:busy", 1)))[0].seq, 1);
  assert.equal(requests.length, wrong.length + 1);
  // 300 events at 200 a second: some get 429 and later ones 424.
  const answers = await producer.append(...saids("room:rate", 1, 300));
  assert.deepEqual(answers.map(({ seq }) => seq), range(1, 300));
  assert.deepEqual(await numbers("room:rate"), range(1, 300));
});

test("413 rejects its own event, and a batch that is too large is halved", async (t) => {
  const { producer, requests } = await open(t, {}, (count, pass, response) => {
    if (requests.at(-1).length <= 3) return false;
    response.writeHead(413, { "content-type": "application/json" }).end("{\"error\":\"payload_too_large\",\"message\":\"large\",\"request_id\":\"x\"}");
    return true;
  });
  const results = await producer.append(said("room:large", 1), said("room:large", 2, { text: "x".repeat(70_000) }), said("room:large", 3), said("hall:1", 4), { topic: "room:large" });
  assert.deepEqual(results.map(({ error }) => (error ? `${error.status} ${error.code}` : 200)), [200, "413 khala_frame_payload_too_large", 200, "403 forbidden_topic", "400 invalid_request"]);
  assert.ok(requests.length >= 2);
  assert.deepEqual(producer.rejected.all.map(({ code }) => code), ["khala_frame_payload_too_large", "forbidden_topic", "invalid_request"]);
});

test("a full queue says so at once, and has room later", async (t) => {
  const { producer } = await open(t, { limits: { queue_items: 3 } });
  const results = await producer.append(...saids("room:full", 1, 4));
  assert.deepEqual(producer.lengths.all[0], { length: 3, is_full: true });
  assert.deepEqual(results.map(({ error }) => error?.code), [undefined, undefined, undefined, "queue_full"]);
  await producer.room();
  await producer.append(said("room:full", 4));
  await producer.flush();
  assert.deepEqual(await numbers("room:full"), range(1, 4));
  const bytes = (await open(t, { limits: { queue_bytes: 100 } })).producer;
  await bytes.append(said("room:full", 5, { text: "x".repeat(200) }));
  assert.deepEqual(bytes.lengths.all[0], { length: 1, is_full: true });
});

test("a refused token is replaced, and tokens that are always refused end the producer", async (t) => {
  let calls = 0;
  const { producer } = await open(t, { token: () => (++calls === 1 ? "rubbish" : token) });
  assert.equal((await producer.append(said("room:token", 1)))[0].seq, 1);
  assert.equal(calls, 2);
  const wrong = (await open(t, { token: "rubbish" })).producer;
  for (let i = 0; i < 2; i++) assert.equal((await wrong.append(said("room:token", 2)))[0].error.code, "invalid_token");
});

test("events in an outbox survive kill -9, and each is stored once", async (t) => {
  const outbox = join(folder(t), "outbox.db");
  const first = await Python.start(t);
  let isStored = false;
  const { url } = await middle(t, async (count, pass) => {
    await pass(); // the events are stored, and the answer never comes
    isStored = true;
    return true;
  });
  const early = await first.produce(t, { url, token, outbox });
  early.append(...saids("room:outbox", 1, 10)).catch(() => {});
  await until(() => isStored, "the lost answer");
  early.append(...saids("room:outbox", 11, 20)).catch(() => {});
  await early.lengths.until(() => early.lengths.all.length === 2, "the second append");
  await first.kill();
  const second = (await open(t, { outbox })).producer;
  await second.append(said("room:outbox", 21));
  await second.flush();
  assert.deepEqual(await numbers("room:outbox"), range(1, 21));
  await second.close();
  const { producer: third, requests } = await open(t, { outbox: join(folder(t), "empty.db") });
  await third.flush();
  assert.equal(requests.length, 0);
});

test("event ids are UUIDv7, and their time never goes back", async () => {
  const ids = await python.call("event_ids", { walls: [5, 4, Date.now() / 1000, null] });
  for (const id of ids) assert.match(id, /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
  assert.equal(ids[1].slice(0, 13), ids[0].slice(0, 13));
});
