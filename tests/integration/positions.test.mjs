// Positions and other parameters of a query: which names each route takes, and that a position of
// one transport is a position of all others.
import assert from "node:assert/strict";
import { test } from "node:test";
import { operate } from "../lib/operator.mjs";
import { pollPath, snapshotPath, socketPath, streamPath } from "../lib/paths.mjs";
import { events, TOPIC } from "../lib/samples.mjs";
import { Socket } from "../lib/socket.mjs";
import { Stream } from "../lib/sse.mjs";

const LAST = 12;

/** Opens an event stream with the operator key. */
const stream = (operator, path, headers = {}) => Stream.open(operator, path, { authorization: `Bearer ${operator.key}`, ...headers });

/** The sequence of the first message of an event stream. */
async function firstOf(opened) {
  await opened.until((one) => one.messages.length > 0, "a message");
  const [{ data }] = opened.messages;
  opened.close();
  return data.sequence ?? data.seq;
}

async function unknownNamesAreRefused(operator) {
  const reads = [pollPath(TOPIC), snapshotPath("runtime.run_summaries"), "/api/events", "/api/events/export",
    "/internal/v1/runs/a", "/internal/v1/runs/a/events", "/internal/v1/runs/a/replay", "/internal/v1/projectors/drift",
    "/internal/v1/khala/why", "/internal/v1/khala/fanout/metrics"];
  for (const path of reads) {
    const response = await operator.get(`${path}?_=1&after%5Fsequence=3`);
    assert.equal(response.status, 400, `${path} ${response.body}`);
    const body = JSON.parse(response.body);
    assert.equal(body.error, "unknown_parameter");
    assert.deepEqual(body.details, { parameter: "after_sequence" });
    const known = await operator.get(`${path}?_=1&client_build_id=b&protocol_version=p&schema_version=1`);
    assert.equal(known.status, 200, known.body);
  }
  const plan = await operator.post("/v1/cursors/plan?epoch=x", { [TOPIC]: 1 });
  assert.equal(JSON.parse(plan.body).error, "unknown_parameter");
  assert.equal((await operator.get(`${pollPath(TOPIC)}?${"n".repeat(200)}=1`)).status, 400);
  assert.equal((await operator.get("/healthz/live?probe=1")).status, 200);
}

async function streamsIgnoreUnknownNames(operator) {
  assert.equal(await firstOf(await stream(operator, streamPath(TOPIC, "after_seq=3&cache=1"))), 4);
  const log = await stream(operator, "/events?cache=1");
  assert.equal(await firstOf(log), 1);
  const socket = await Socket.open(operator, socketPath(TOPIC, `after_seq=3&cache=1&token=${operator.reader}`));
  await socket.until((one) => one.of("message").length > 0, "a message");
  assert.equal(socket.of("message")[0].sequence, 4);
  socket.close();
}

async function anIdInTheQueryIsALastEventId(operator) {
  assert.equal(await firstOf(await stream(operator, streamPath(TOPIC, "after_seq=3&lastEventId=7"))), 8);
  const header = { "last-event-id": "9" };
  assert.equal(await firstOf(await stream(operator, streamPath(TOPIC, "lastEventId=7"), header)), 10);
  const { items } = await operator.read("/api/events?limit=3");
  assert.equal(await firstOf(await stream(operator, `/events?lastEventId=${items[2].cursor}`)), 4);
  for (const path of [streamPath(TOPIC, "lastEventId=x"), streamPath(TOPIC, `lastEventId=${"1".repeat(300)}`), "/events?lastEventId=x"])
    assert.equal((await operator.get(path)).status, 400, path);
}

test("positions and parameters of a query", async (t) => {
  const operator = await operate(t);
  await operator.did("runs", { run_id: "a", owner_user_id: "ada" }, 201);
  await operator.batch(events(LAST - 1));
  const cases = {
    "routes that read refuse a parameter that they do not know": unknownNamesAreRefused,
    "streams ignore parameters that they do not know": streamsIgnoreUnknownNames,
    "lastEventId is a Last-Event-ID of clients that cannot set fields": anIdInTheQueryIsALastEventId,
  };
  for (const [name, check] of Object.entries(cases)) await t.test(name, () => check(operator));
});
