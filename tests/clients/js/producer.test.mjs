// The producer of the JavaScript client: ids, batches, retries and refusals against the real server.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { eventId, Producer } from "../../../clients/js/src/producer.js";
import { operate } from "../../lib/operator.mjs";
import { range } from "../../lib/samples.mjs";
import { Received, until, within } from "../../lib/wait.mjs";
import { QUICK } from "./client.mjs";

const ends = [];
let operator;
let token;
before(async () => {
  operator = await operate({ after: (act) => ends.unshift(act) }, { settings: { RUNTIME_KHALA_FALLBACK_PUBLISH_RATE_PER_SECOND: "200" } });
  token = operator.sign({ oa_sync_scopes: ["runtime.append"], oa_sync_topics: ["room:*"] });
});
after(async () => {
  for (const act of ends) await act();
});

/** A producer. Before each request act may answer in place of the server, or change the request. */
function open(t, options = {}, act = null) {
  const requests = [];
  const counted = async (url, init) => {
    requests.push(init.body.trim().split("\n"));
    return (await act?.(requests.length, init, () => fetch(url, init))) ?? fetch(url, init);
  };
  const producer = new Producer({ url: operator.server.url, token: () => token, fetch: counted, backOff: QUICK, ...options });
  const warnings = new Received();
  producer.onWarning((warning) => warnings.add(warning));
  t.after(() => producer.close());
  return { producer, requests, warnings };
}

const said = (topic, n, more = {}) => ({ topic, event_type: "said", payload: { n, ...more } });
const stored = async (topic) => (await operator.read(`topics/${topic}/events?limit=1000`)).events;

test("events get ids, go in batches and keep their order", async (t) => {
  const { producer, requests } = open(t);
  const answers = await Promise.all(range(1, 150).map((n) => producer.append(said("room:order", n))));
  assert.deepEqual(answers.map(({ event }) => event.seq), range(1, 150));
  assert.ok(requests.length <= 3, `${requests.length} requests`);
  const ids = requests.flat().map((line) => JSON.parse(line).event_id);
  assert.deepEqual((await stored("room:order")).map(({ event_id }) => event_id), ids);
});

test("an event that is appended some microtasks after an answer is sent", async (t) => {
  const { producer } = open(t);
  for (let microtasks = 0; microtasks <= 10; microtasks++) {
    const topic = `room:later-${microtasks}`;
    await producer.append(said(topic, 1));
    for (let i = 0; i < microtasks; i++) await null;
    const { event } = await within(producer.append(said(topic, 2)), `the answer to an event ${microtasks} microtasks later`, 10_000);
    assert.equal(event.seq, 2);
    for (let i = 0; i < microtasks; i++) await null;
    await within(producer.flush(), "the end of the flush", 10_000);
  }
});

test("an entity above its rate waits alone, and its neighbours go on", async (t) => {
  const { producer, warnings } = open(t, { queueItemsMax: 2000, batchItemsMax: 50 });
  let left = 1200; // six seconds at the rate of this server
  const hot = range(1, 1200).map((n) => producer.append(said("room:hot", n)).then(({ event }) => { left--; return event.seq; }));
  await warnings.until(() => warnings.all.length > 0, "a refusal of the hot topic");
  const before = left;
  for (const n of range(1, 10)) await producer.append(said("room:cold", n));
  assert.ok(left > 0 && before > 0, "the cold topic had its answers before the hot one");
  assert.deepEqual(await Promise.all(hot), range(1, 1200));
  assert.deepEqual((await stored("room:cold")).map(({ payload }) => payload.n), range(1, 10));
  const [{ code, status, entity, retryAfterMs, request_id, message }] = warnings.all;
  assert.deepEqual([code, status, entity], ["khala_publish_rate_limited", 429, "topic room:hot"]);
  assert.ok(retryAfterMs > 0 && request_id, message);
  assert.match(message, /^429 khala_publish_rate_limited: \S.*\d+ events of topic room:hot wait, and are sent again in \d+ ms\.$/);
  assert.ok(warnings.all.every((one) => one.entity === "topic room:hot"));
});

test("one batch of an entity is in flight, and other entities do not wait for it", async (t) => {
  let release;
  const held = new Promise((resolve) => { release = resolve; });
  let inFlight = 0;
  const { producer, requests } = open(t, { batchMs: 0 }, async (count, init, send) => {
    if (!init.body.includes("room:held")) return null;
    assert.equal(++inFlight, 1, "one batch of the entity");
    const answer = await send();
    await held;
    inFlight--;
    return answer;
  });
  const first = producer.append(said("room:held", 1));
  await until(() => requests.length === 1, "the first request");
  const second = producer.append(said("room:held", 2));
  for (const n of range(1, 3)) await producer.append(said("room:free", n));
  release();
  assert.deepEqual([(await first).event.seq, (await second).event.seq], [1, 2]);
});

test("a server that cannot be reached is a warning with a reason, and the events are sent later", async (t) => {
  let isDown = true;
  const { producer, warnings } = open(t, {}, (count, init) => {
    if (isDown) init.body = undefined;
    return isDown ? fetch("http://127.0.0.1:9/", init) : null;
  });
  const answer = producer.append(said("room:down", 1));
  await warnings.until(() => warnings.all.length >= 2, "two warnings");
  const [{ code, message, request_id, retryAfterMs }] = warnings.all;
  assert.equal(code, "connection_lost");
  assert.match(message, /^connection_lost: The server cannot be reached \(.+\)\. 1 events wait, and are sent again in \d+ ms\.$/);
  assert.ok(request_id.length === 32 && retryAfterMs > 0);
  isDown = false;
  assert.equal((await answer).event.seq, 1);
});

test("a listener that throws stops no event", async (t) => {
  const problems = [];
  const keep = (error) => problems.push(error.message);
  const others = process.listeners("uncaughtException");
  process.removeAllListeners("uncaughtException");
  process.on("uncaughtException", keep);
  t.after(() => {
    process.removeAllListeners("uncaughtException");
    for (const one of others) process.on("uncaughtException", one);
  });
  const { producer } = open(t, {}, (count) => (count === 1 ? new Response("", { status: 502 }) : null));
  producer.onWarning(() => { throw new Error("of the listener"); });
  await producer.append(said("room:throws", 1));
  assert.deepEqual(problems, ["of the listener"]);
});

test("close sends what is left, and rejects at its deadline what has no answer", async (t) => {
  const { producer } = open(t, { batchMs: 60_000 });
  const answers = range(1, 5).map((n) => producer.append(said("room:close", n)));
  const closing = producer.close();
  await assert.rejects(producer.append(said("room:close", 6)), { code: "closed", message: "The producer is closed." });
  await closing;
  assert.deepEqual((await Promise.all(answers)).map(({ event }) => event.seq), range(1, 5));
  const stuck = open(t, {}, () => new Response("", { status: 503 })).producer;
  const lost = stuck.append(said("room:close", 7)).catch((error) => error);
  await stuck.close({ timeoutMs: 20 });
  const { code, message, event_id } = await lost;
  assert.equal(code, "closed");
  assert.match(message, /had no answer within 20 ms/);
  assert.match(event_id, /^[0-9a-f]{8}-/);
  await assert.rejects(stuck.append(said("room:close", 8)), { code: "closed" });
});

test("an answer that is lost or breaks off is asked for again, and no event is stored twice", async (t) => {
  const { producer } = open(t, { requestTimeoutMs: 1000 }, async (count, init, send) => {
    if (count === 1) {
      await (await send()).text();
      throw new TypeError("the connection broke");
    }
    if (count !== 2) return null;
    const text = await (await send()).text();
    return new Response(text.slice(0, text.length / 2), { headers: { "content-type": "application/x-ndjson" } });
  });
  const answers = await Promise.all(range(1, 20).map((n) => producer.append(said("room:lost", n))));
  assert.deepEqual(answers.map(({ event }) => event.payload.n), range(1, 20));
  assert.ok(answers.every(({ deduplicated }) => deduplicated));
  assert.equal((await stored("room:lost")).length, 20);
});

test("an old answer that comes again acknowledges nothing", async (t) => {
  let old = null;
  const { producer } = open(t, {}, async (count, init, send) => {
    if (count === 1) {
      const response = await send();
      old = await response.text();
      return new Response(old, { headers: { "content-type": "application/x-ndjson" } });
    }
    return count === 2 ? new Response(old, { headers: { "content-type": "application/x-ndjson" } }) : null;
  });
  await producer.append(said("room:old", 1));
  const second = await producer.append(said("room:old", 2));
  assert.deepEqual([second.event.payload.n, second.event.seq], [2, 2]);
});

test("502, HTML, 503 and 429 are tried again", async (t) => {
  const answers = [
    new Response("<html>Bad Gateway</html>", { status: 502 }), new Response("<html>Log in</html>", { status: 200, headers: { "content-type": "text/html" } }),
    new Response("{\"error\":\"store_unavailable\",\"message\":\"later\",\"request_id\":\"x\"}", { status: 503, headers: { "retry-after": "0" } }),
  ];
  const { producer, requests } = open(t, {}, (count) => answers[count - 1]);
  assert.equal((await producer.append(said("room:busy", 1))).event.seq, 1);
  assert.equal(requests.length, 4);
  // 300 events at 200 a second: some get 429 and later ones 424.
  const all = await Promise.all(range(1, 300).map((n) => producer.append(said("room:rate", n))));
  assert.deepEqual(all.map(({ event }) => event.seq), range(1, 300));
  assert.deepEqual((await stored("room:rate")).map(({ payload }) => payload.n), range(1, 300));
});

test("413 rejects its own event, and a batch that is too large is halved", async (t) => {
  const { producer, requests } = open(t, {}, (count, init) => (init.body.split("\n").length > 4
    ? new Response("{\"error\":\"payload_too_large\",\"message\":\"large\",\"request_id\":\"x\"}", { status: 413 }) : null));
  const results = await Promise.allSettled([said("room:large", 1), said("room:large", 2, { text: "x".repeat(70_000) }), said("room:large", 3), said("hall:1", 4), { topic: "room:large" }]
    .map((event) => producer.append(event)));
  assert.deepEqual(results.map(({ status, reason }) => (status === "fulfilled" ? 200 : `${reason.status} ${reason.code}`)),
    [200, "413 khala_frame_payload_too_large", 200, "403 forbidden_topic", "400 invalid_request"]);
  for (const { reason } of results) assert.ok(!reason || (reason.request_id && reason.event_id), reason?.message);
  assert.ok(requests.length >= 2);
});

test("a full queue says so at once, and has room later", async (t) => {
  const { producer } = open(t, { queueItemsMax: 3 });
  const first = range(1, 3).map((n) => producer.append(said("room:full", n)));
  assert.equal(producer.isFull, true);
  await assert.rejects(producer.append(said("room:full", 4)), { code: "queue_full" });
  await producer.room();
  first.push(producer.append(said("room:full", 4)));
  await Promise.all(first);
  await producer.flush();
  assert.deepEqual((await stored("room:full")).map(({ payload }) => payload.n), range(1, 4));
  const bytes = open(t, { queueBytesMax: 100 }).producer;
  const one = bytes.append(said("room:full", 5, { text: "x".repeat(200) }));
  assert.equal(bytes.isFull, true);
  await one;
});

test("an entity that waits leaves room in the queue for others", async (t) => {
  const { producer, warnings } = open(t, { queueItemsMax: 800 });
  const codes = [];
  const greedy = (from, to) => range(from, to).map((n) => producer.append(said("room:greedy", n)).catch(({ code, entity, message }) => codes.push([code, entity, message])));
  greedy(1, 790);
  await warnings.until(() => warnings.all.length > 0, "the refusal");
  greedy(791, 1500);
  const answers = await Promise.all(range(1, 50).map((n) => producer.append(said("room:modest", n))));
  assert.deepEqual(answers.map(({ event }) => event.seq), range(1, 50));
  assert.ok(codes.length > 0, "the greedy entity was refused");
  assert.deepEqual(codes[0], ["queue_full", "topic room:greedy", "Too many events wait for topic room:greedy, which the server refuses for now."]);
});

test("room waits for an entity, or for all", async (t) => {
  let isRefused = true;
  const { producer, warnings } = open(t, { queueItemsMax: 4 }, (count, init) => {
    if (!isRefused) return null;
    const answers = init.body.trim().split("\n").map((line, index) => {
      const event = JSON.parse(line);
      const error = { error: "khala_publish_rate_limited", message: "later", request_id: "x" };
      return JSON.stringify(event.topic === "room:stuck" ? { index, status: 429, error } : { index, status: 200, event });
    });
    return new Response(answers.join("\n"), { headers: { "content-type": "application/x-ndjson" } });
  });
  const stuck = range(1, 3).map((n) => producer.append(said("room:stuck", n)));
  await producer.room({ topic: "room:stuck" }); // nothing is refused yet
  await warnings.until(() => warnings.all.length > 0, "the refusal");
  await assert.rejects(producer.append(said("room:stuck", 4)), { code: "queue_full" });
  const roomy = new Received();
  for (const target of [undefined, { topic: "room:stuck" }]) producer.room(target).then(() => roomy.add(target));
  for (const n of range(1, 3)) {
    await within(producer.room({ topic: "room:other" }), "room for the other entity", 10_000);
    await within(producer.append(said("room:other", n)), "the answer of the other entity", 10_000);
  }
  assert.deepEqual(roomy.all, []);
  isRefused = false;
  await Promise.all(stuck);
  await roomy.until(() => roomy.all.length === 2, "room for all");
});

test("a 413 of a proxy is final for an event alone, and others go on", async (t) => {
  const { producer } = open(t, {}, (count, init) => (init.body.includes("room:huge")
    ? new Response("<html>Too Large</html>", { status: 413, headers: { "content-type": "text/html" } }) : null));
  const huge = producer.append(said("room:huge", 1)).catch((error) => error);
  const others = range(1, 3).map((n) => producer.append(said("room:beside-huge", n)));
  const { code, status, event_id, request_id } = await within(huge, "the refusal", 10_000);
  assert.deepEqual([code, status], ["bad_gateway", 413]);
  assert.ok(event_id && request_id);
  assert.deepEqual((await Promise.all(others)).map(({ event }) => event.seq), range(1, 3));
});

test("close keeps its deadline while the token callback hangs", async (t) => {
  let release;
  const { producer } = open(t, { tokenTimeoutMs: 60_000, token: () => new Promise((resolve) => { release = resolve; }) });
  const lost = producer.append(said("room:hangs", 1)).catch((error) => error);
  const flushed = producer.flush();
  t.after(() => release(token));
  await within(producer.close({ timeoutMs: 20 }), "the end of the producer", 10_000);
  assert.equal((await lost).code, "closed");
  await flushed;
});

test("flush waits for the events before it alone", async (t) => {
  let n = 1;
  let isOver = false;
  const { producer } = open(t, {}, (count) => {
    if (!isOver && count < 5000) void producer.append(said("room:flush", ++n));
  });
  const first = producer.append(said("room:flush", 1));
  await producer.flush();
  isOver = true;
  assert.equal((await first).event.seq, 1);
  assert.ok(n < 50, `${n} events`);
});

test("a refused token is replaced, and tokens that are always refused end the producer", async (t) => {
  let calls = 0;
  const { producer } = open(t, { token: () => (++calls === 1 ? "rubbish" : token) });
  assert.equal((await producer.append(said("room:token", 1))).event.seq, 1);
  assert.equal(calls, 2);
  const wrong = open(t, { token: () => "rubbish" }).producer;
  await assert.rejects(wrong.append(said("room:token", 2)), { code: "invalid_token" });
  await assert.rejects(wrong.append(said("room:token", 3)), { code: "invalid_token" });
});

test("event ids are UUIDv7, and their time never goes back", () => {
  const ids = [eventId(5000), eventId(4000), eventId(Date.now())];
  for (const id of ids) assert.match(id, /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
  assert.equal(ids[1].slice(0, 13), ids[0].slice(0, 13));
});
