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
  assert.deepEqual(producer.rejected.all.map(({ code }) => code).sort(), ["forbidden_topic", "invalid_request", "khala_frame_payload_too_large"]);
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

test("flush waits for the events before it alone", async (t) => {
  let n = 1;
  let isOver = false;
  const { producer } = await open(t, {}, async () => {
    if (isOver || n >= 300) return;
    const seen = producer.lengths.all.length;
    void producer.append(said("room:flush", ++n));
    await producer.lengths.until(() => producer.lengths.all.length > seen, "the next event");
  });
  void producer.append(said("room:flush", 1));
  await producer.lengths.until(() => producer.lengths.all.length > 0, "the first event");
  await producer.flush();
  isOver = true;
  assert.ok(n < 50, `${n} events`);
  await producer.flush();
  assert.deepEqual(await numbers("room:flush"), range(1, n));
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

test("an event that is appended any number of turns after an answer is sent", async (t) => {
  const { producer } = await open(t);
  await producer.chain({ event: said("room:chain", 0), turns: range(0, 10) });
  assert.equal((await stored("room:chain")).length, 12);
});

/** The answer of a batch in which every item of the topic gets 429, and the others are stored. */
const refusing = (topic) => async (requests, count, pass, response) => {
  const wanted = requests.at(-1);
  if (!wanted.some((line) => JSON.parse(line).topic === topic)) return false;
  const busy = { error: "khala_publish_rate_limited", message: "Slow down.", request_id: "busy-1", details: { retry_after_ms: 10 } };
  const answers = [];
  for (const [index, line] of wanted.entries()) {
    const { topic: own } = JSON.parse(line);
    if (own === topic) answers.push({ index, status: 429, error: busy });
    else {
      const { body } = await operator.ask("POST", "events:batch", `${line}\n`, NDJSON);
      answers.push({ ...JSON.parse(body), index });
    }
  }
  response.writeHead(200, NDJSON).end(answers.map((answer) => `${JSON.stringify(answer)}\n`).join(""));
  return true;
};

test("an entity over its rate, or whose request hangs, does not block its neighbours", async (t) => {
  const seen = { isOver: true };
  const busy = await open(t, { limits: { queue_items: 20 }, back_off: [0.01, 0.05] }, (...call) => seen.isOver && refusing("room:over")(busy.requests, ...call));
  const over = busy.producer.append(...saids("room:over", 1, 11));
  await busy.producer.warnings.until(() => busy.producer.warnings.all.length > 0, "a warning");
  // The queue keeps room for others, and says so to the entity that is refused.
  const [{ error }] = await busy.producer.append(said("room:over", 12));
  assert.equal(error.code, "queue_full");
  for (let round = 0; round < 5; round++) {
    const answers = await busy.producer.append(said("room:near", round), said("room:beside", round));
    assert.ok(answers.every(({ seq }) => seq === round + 1));
  }
  await busy.producer.room({ topic: "room:near" });
  seen.isOver = false;
  await over;
  assert.deepEqual(await numbers("room:over"), range(1, 11));
  const [warning] = busy.producer.warnings.all;
  assert.deepEqual([warning.code, warning.status, warning.request_id], ["khala_publish_rate_limited", 429, "busy-1"]);
  assert.ok(warning.retry_after >= 0.01, JSON.stringify(warning));
  assert.match(warning.message, /^Retrying 11 events of topic room:over in \d+\.\d s after 429 khala_publish_rate_limited: Slow down\. \(request busy-1\)$/);

  let held = null;
  const hanging = await open(t, {}, (count, pass, response) => {
    if (held || !hanging.requests.at(-1)[0].includes("room:held")) return false;
    held = response;
    return true;
  });
  const first = hanging.producer.append(said("room:held", 1));
  await until(() => held, "the request that hangs");
  const late = hanging.producer.append(said("room:held", 2));
  await hanging.producer.append(said("room:near", 5));
  assert.equal(hanging.requests.filter(([line]) => line.includes("room:held")).length, 1, "one batch in flight for an entity");
  held.destroy();
  await Promise.all([first, late]);
  assert.deepEqual(await numbers("room:held"), [1, 2]);
});

test("each failed attempt is a warning in words, with code, request and delay", async (t) => {
  const json = { "content-type": "application/json" };
  const body = (error, message) => JSON.stringify({ error, message, request_id: "id-1" });
  const { producer } = await open(t, {}, (count, pass, response) => {
    if (count === 1) response.writeHead(503, { ...json, "retry-after": "0" }).end(body("store_unavailable", "The store is away."));
    else if (count === 2) response.writeHead(502).end("<html>");
    else if (count <= 4) setImmediate(() => response.destroy()); // an idle connection that is lost is replaced without a warning
    return count <= 4;
  });
  await producer.append(said("room:warn", 1));
  const [away, gateway, lost] = producer.warnings.all;
  assert.deepEqual([away.code, away.status, away.request_id], ["store_unavailable", 503, "id-1"]);
  assert.match(away.message, /^Retrying 1 event in 0\.\d s after 503 store_unavailable: The store is away\. \(request id-1\)$/);
  assert.deepEqual([gateway.code, gateway.status, lost.code, lost.status], ["bad_gateway", 502, "connection_lost", null]);
  for (const { request_id, retry_after } of [gateway, lost]) assert.ok(/^[0-9a-f]{32}$/.test(request_id) && retry_after > 0);
  assert.equal(producer.warnings.all.length, 3);

  const closed = http.createServer();
  await new Promise((resolve) => closed.listen(0, "127.0.0.1", resolve));
  const { port } = closed.address();
  await new Promise((resolve) => closed.close(resolve));
  const none = await python.produce(t, { url: `http://127.0.0.1:${port}`, token });
  const answers = none.append(said("room:warn", 2), said("room:other", 2));
  await none.warnings.until(() => none.warnings.all.length >= 2, "warnings");
  assert.equal(none.warnings.all[0].code, "connect_failed");
  assert.match(none.warnings.all[0].message, /Retrying 2 events in .*The server refused the connection; perhaps it is not running\./);
  await none.close({ timeout: 0.05 });
  for (const { error } of await answers) {
    assert.equal(error.code, "closed");
    assert.ok(error.event_id);
    assert.match(error.message, /^The producer was closed while 2 events had no answer\. Some may be stored: append them again with their event_id\. The last attempt failed: Retrying .*refused the connection/);
  }

  const failing = await python.produce(t, { url: operator.server.url, token: () => { throw new Error("offline"); } });
  failing.append(said("room:warn", 3)).catch(() => {});
  await failing.warnings.until(() => failing.warnings.all.length >= 1, "a warning");
  assert.equal(failing.warnings.all[0].code, "token_failed");
});

test("close sends what is queued, and what a deadline leaves stays in the outbox", async (t) => {
  const { producer } = await open(t, { limits: { batch_seconds: 60 } });
  const answers = producer.append(...saids("room:close", 1, 50));
  await producer.close();
  assert.deepEqual((await answers).map(({ seq }) => seq), range(1, 50));
  const outbox = join(folder(t), "outbox.db");
  const stuck = (await open(t, { outbox, close_timeout: 0.05 }, () => true)).producer;
  const left = stuck.append(...saids("room:close", 51, 52));
  await stuck.close();
  for (const { error } of await left) assert.match(error.message, /2 events had no answer\. The outbox keeps them\./);
  await assert.rejects(stuck.append(said("room:close", 0)));
});

test("a refusal names its request", async (t) => {
  const { producer } = await open(t);
  const [{ error }] = await producer.append(said("hall:1", 1));
  assert.deepEqual([error.code, error.status], ["forbidden_topic", 403]);
  assert.ok(error.event_id);
  assert.match(error.request_id, /^[0-9a-f]{32}$/);
});

test("event ids are UUIDv7, and their time never goes back", async () => {
  const ids = await python.call("event_ids", { walls: [5, 4, Date.now() / 1000, null] });
  for (const id of ids) assert.match(id, /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
  assert.equal(ids[1].slice(0, 13), ids[0].slice(0, 13));
});
