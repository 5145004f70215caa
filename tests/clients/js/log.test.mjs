// khala.log() against the real server: the whole log by event cursor, over crashes, faults, stale cursors and tokens.
import assert from "node:assert/strict";
import { memoryStorage } from "../../../clients/js/src/khala.js";
import { test } from "../../lib/cases.mjs";
import { folder } from "../../lib/khala.mjs";
import { operate, operateRun } from "../../lib/operator.mjs";
import { events } from "../../lib/samples.mjs";
import { Received, until } from "../../lib/wait.mjs";
import { FAULTS, FaultProxy } from "../proxy.mjs";
import { open } from "./client.mjs";

const FUTURE = Buffer.from("9000000000000:01a1efff-3ba4-73b1-942b-08a6f084850f").toString("base64url");
const of = (operator) => ({ server: operator.server, sign: (claims) => operator.sign(claims) });

/** Follows the log and gathers its events, its resets and its end. */
function follow(khala, options = {}) {
  const seen = new Received();
  seen.resets = [];
  seen.log = khala.log({ reset: ({ reason }) => { seen.resets.push([reason, seen.all.length]); }, ...options });
  seen.done = seen.log.each((event) => seen.add(event)).then(() => { seen.end = { error: null }; }, (error) => { seen.end = { error }; }).then(() => seen.changed());
  return seen;
}

const ids = (list) => list.map(({ event_id }) => event_id);
const reached = (seen, count) => seen.until(() => seen.all.length >= count || seen.end, `${count} events of the log`);

test("the log is followed over a crash of the server, and from the stored cursor by the next client", async (t) => {
  const data = folder(t);
  const first = await operateRun(t, { count: 250, data });
  const storage = memoryStorage();
  let signer = first;
  const khala = open(t, { server: first.server, sign: (claims) => signer.sign(claims) }, { storage });
  const seen = follow(khala);
  await reached(seen, 250);
  await first.batch([...events(3), { topic: "room:1", event_type: "said", payload: {} }]);
  await reached(seen, 254);
  await first.server.crash();
  await khala.warnings.until(() => khala.warnings.all.length > 0, "a warning");
  const [{ code, message, request_id, retryAfterMs }] = khala.warnings.all;
  assert.match(code, /^(connection_lost|stream_ended)$/, `${message} ${request_id}`);
  assert.ok(retryAfterMs > 0);
  assert.match(message, /^The log is followed again in \d+ ms: /);
  const second = await operate(t, { data, bind: `127.0.0.1:${first.server.port}` });
  signer = second;
  await second.batch(events(5));
  await reached(seen, 259);
  const log = await second.log();
  assert.deepEqual([ids(seen.all), seen.resets], [ids(log), []]);
  await until(() => seen.log.position === log.at(-1).cursor, "the position");
  await khala.close();
  await seen.until(() => seen.end, "the end of the loop");
  assert.equal(seen.end.error, null);
  assert.deepEqual(JSON.parse(storage.load("khala-log")), { cursor: log.at(-1).cursor });
  await second.batch(events(2));
  const next = follow(open(t, of(second), { storage }));
  await reached(next, 2);
  assert.deepEqual([ids(next.all), next.resets], [ids((await second.log()).slice(-2)), []]);
});

test("a cursor of another history starts again, and the application learns it before the first event", async (t) => {
  const operator = await operateRun(t, { count: 5 });
  const log = await operator.log();
  const stored = { load: () => JSON.stringify({ cursor: FUTURE }), save: () => {} };
  for (const options of [{ after: FUTURE }, { storage: stored }]) {
    const seen = follow(open(t, of(operator)), options);
    await reached(seen, 5);
    assert.deepEqual([ids(seen.all), seen.resets], [ids(log), [["cursor_ahead_of_head", 0]]]);
    const careless = follow(open(t, of(operator)), { ...options, reset: undefined });
    await careless.until(() => careless.end, "the error");
    assert.deepEqual([careless.end.error.code, careless.all.length], ["reset_unhandled", 0]);
  }
  for (const text of ["rubbish", "{\"cursor\":7}", "{\"cursor\":\"%\"}"]) {
    const seen = follow(open(t, of(operator), { storage: { load: () => text, save: () => {} } }));
    await reached(seen, 5);
    assert.deepEqual(seen.resets, [["position_unreadable", 0]], text);
  }
  const wrong = follow(open(t, of(operator)), { after: "rubbish" });
  await wrong.until(() => wrong.end, "the refusal");
  assert.deepEqual([wrong.end.error.code, wrong.end.error.status], ["TALOS_INVALID_CURSOR", 400]);
});

test("an HTTP refusal of a stale cursor starts the log again", async (t) => {
  const operator = await operateRun(t, { count: 5 });
  const log = await operator.log();
  const body = JSON.stringify({ error: "stale_cursor", message: "The cursor is too old.", request_id: "x", details: { reason_codes: ["cursor_expired"] } });
  const asked = [];
  const refuse = async (url, init) => {
    asked.push(new URL(url).searchParams.get("after_cursor"));
    if (asked.length > 20) throw new Error("asked too often");
    return asked.at(-1) === null ? fetch(url, init) : new Response(body, { status: 410, headers: { "content-type": "application/json" } });
  };
  const khala = open(t, of(operator), { fetch: refuse });
  const seen = follow(khala, { after: log[2].cursor });
  await reached(seen, 5);
  assert.deepEqual([ids(seen.all), seen.resets, asked], [ids(log), [["cursor_expired", 0]], [log[2].cursor, null]]);
  assert.deepEqual(khala.warnings.all.map(({ code, status }) => [code, status]), [["stale_cursor", 410]]);
});

test("from names where the log starts, and after a cursor", async (t) => {
  const operator = await operateRun(t, { count: 5 });
  const log = await operator.log();
  const [all, old, after] = [{ from: "start" }, { from: { since: "1h" } }, { after: log[2].cursor }].map((options) => follow(open(t, of(operator)), options));
  for (const [seen, wanted] of [[all, log], [old, log], [after, log.slice(3)]]) {
    await reached(seen, wanted.length);
    assert.deepEqual(ids(seen.all), ids(wanted));
  }
  const head = follow(open(t, of(operator)), { from: "head" });
  await until(() => head.log.position !== null, "the position of the head");
  const [{ event }] = await operator.batch(events(1));
  await reached(head, 1);
  assert.deepEqual(ids(head.all), [event.event_id]);
});

test("a loop that breaks leaves its last event unapplied, and a token that may not read the log ends it", async (t) => {
  const operator = await operateRun(t, { count: 5 });
  const log = await operator.log();
  const khala = open(t, of(operator));
  const own = khala.log();
  const seqs = [];
  for await (const event of own) {
    seqs.push(event.seq);
    if (event.seq === 3) break;
  }
  assert.equal(own.position, log[1].cursor);
  for await (const event of own) {
    seqs.push(event.seq);
    if (event.seq === 4) break;
  }
  assert.deepEqual(seqs, [1, 2, 3, 3, 4], "the client kept the cursor");
  const other = open(t, of(operator), { token: () => operator.sign({ oa_sync_scopes: ["runtime.run_events"] }) });
  const refused = follow(other);
  await refused.until(() => refused.end, "the refusal");
  const { code, status, request_id } = refused.end.error;
  assert.deepEqual([code, status], ["missing_scope", 403]);
  assert.ok(request_id);
});

test("tokens that end are replaced, and the log goes on", async (t) => {
  const operator = await operateRun(t, { count: 3 });
  let tokens = 0;
  const token = () => {
    tokens++;
    const now = Math.floor(Date.now() / 1000);
    return operator.sign({ oa_sync_scopes: ["runtime.read_all"], iat: now, exp: now + 3 });
  };
  const seen = follow(open(t, of(operator), { token }));
  await reached(seen, 3);
  await until(() => tokens >= 3, "two other tokens");
  await operator.batch(events(3));
  await reached(seen, 6);
  assert.deepEqual(ids(seen.all), ids(await operator.log()));
});

test("a log behind a damaging proxy arrives once and in order", async (t) => {
  const operator = await operateRun(t, { count: 20 });
  // A connection keeps the order of its bytes, and an event stream has nothing that would show another order.
  const faults = FAULTS.filter((fault) => fault !== "reorder");
  const proxy = await FaultProxy.start(t, () => operator.server.url, { seed: 7, bytesMax: 3000, faults });
  const seen = follow(open(t, of(operator), { url: proxy.url, backOff: { baseMs: 1, maxMs: 10 } }));
  await until(async () => {
    await operator.batch(events(5));
    return proxy.total >= 30;
  }, "thirty faults");
  proxy.heal();
  const log = await operator.log();
  await reached(seen, log.length);
  assert.deepEqual([ids(seen.all), seen.resets, seen.end], [ids(log), [], undefined]);
  t.diagnostic(`${JSON.stringify(proxy.counts)}, ${log.length} events`);
});
