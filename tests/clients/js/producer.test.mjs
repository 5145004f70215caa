// The producer of the JavaScript client: ids, batches, retries and refusals against the real server.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { eventId, Producer } from "../../../clients/js/src/producer.js";
import { operate } from "../../lib/operator.mjs";
import { range } from "../../lib/samples.mjs";
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
  t.after(() => producer.close());
  return { producer, requests };
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
