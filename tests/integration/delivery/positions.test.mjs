// Positions and other parameters of a query: which names each route takes, and that a position of
// one transport is a position of all others.
import assert from "node:assert/strict";
import { test } from "node:test";
import { run } from "../../lib/khala.mjs";
import { operate } from "../../lib/operator.mjs";
import { pollPath, snapshotPath, socketPath, streamPath } from "../../lib/paths.mjs";
import { Client } from "../../lib/phoenix.mjs";
import { events, TOPIC } from "../../lib/samples.mjs";
import { Socket } from "../../lib/socket.mjs";
import { Stream } from "../../lib/sse.mjs";

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

/** The position of each transport after seq 3 of the topic, as it is handed out. */
async function positionsAfter3(operator) {
  const opened = await stream(operator, streamPath(TOPIC, "after_seq=2"));
  await opened.until((one) => one.messages.length > 0, "a message");
  opened.close();
  const polled = JSON.parse((await operator.poll(TOPIC, "after_seq=0&limit=3")).body);
  return [opened.messages[0].id, `${polled.next_cursor}@${polled.epoch}`, String(polled.next_cursor)];
}

/** Asks each transport for what follows a position; each answers the sequence of the first frame, or its error. */
const transports = {
  async poll(operator, position) {
    const { status, body } = await operator.poll(TOPIC, `after_seq=${position}`);
    const { messages, error, reason_code } = JSON.parse(body);
    return status === 200 ? messages[0].sequence : [error, reason_code];
  },
  async "topic WebSocket"(operator, position) {
    const socket = await Socket.open(operator, socketPath(TOPIC, `after_seq=${position}&token=${operator.reader}`));
    await socket.until((one) => one.of("message").length > 0, "a message");
    const [stale] = socket.of("stale_cursor");
    socket.close();
    return stale ? [stale.code, stale.reason_codes[0]] : socket.of("message")[0].sequence;
  },
  async "event stream"(operator, position) {
    const opened = await stream(operator, streamPath(TOPIC), { "last-event-id": position });
    const first = await firstOf(opened);
    const stale = opened.events.find(({ type }) => type === "stale_cursor");
    return stale ? [stale.data.code, stale.data.reason_codes[0]] : first;
  },
  async phoenix(operator, position) {
    const answers = [];
    for (const resume_after of [{ [TOPIC]: position }, [{ topic: TOPIC, watermark: position }]]) {
      const client = await Client.join(operator);
      const { status, response } = await client.ask("sync:subscribe", { topics: [TOPIC], resume_after });
      if (status === "ok") await client.until((one) => one.run(TOPIC).updates.length > 0, "an update");
      answers.push(status === "ok" ? client.run(TOPIC).updates[0].watermark : [response.code, response.reason_codes[0]]);
      client.close();
    }
    assert.deepEqual(answers[0], answers[1]);
    return answers[0];
  },
  async plan(operator, position) {
    const { plans: [one] } = await operator.did("/v1/cursors/plan", [{ topic: TOPIC, after_seq: position }]);
    return one.decision === "resume" ? one.after_seq + 1 : ["stale_cursor", one.reason_codes[0]];
  },
};

async function positionsAreTakenByAllTransports(operator) {
  for (const position of await positionsAfter3(operator))
    for (const [name, ask] of Object.entries(transports))
      assert.equal(await ask(operator, position), 4, `${name} ${position}`);
  for (const [name, ask] of Object.entries(transports))
    assert.deepEqual(await ask(operator, "3@another"), ["stale_cursor", "epoch_mismatch"], name);
}

async function listsAndVerbsTakePositions(operator) {
  const [position] = await positionsAfter3(operator);
  const listed = await operator.read(`runs/a/events?after_seq=${position}`);
  assert.equal(listed.events[0].seq, 4);
  const verb = ["--url", operator.server.url, "--data-dir", operator.data];
  const got = run(["get", "events", "--run", "a", "--after", position, "--json", ...verb]);
  assert.match(got.out, /^\{[^\n]*"seq":4,/, got.problem);
  const [, epoch] = position.split("@");
  const window = ["--oldest", "1", "--head", "12", "--budget", "100"];
  assert.equal(run(["cursor", "plan", "--after", position, "--store-epoch", epoch, ...window]).out, "resume\n");
  assert.equal(run(["cursor", "plan", "--after", position, "--store-epoch", "another", ...window]).out, "rebootstrap epoch_mismatch\n");
  for (const bad of ["3@", "@e", "03", "3@a@b", "3%40a%20b", "9007199254740992"])
    for (const path of [pollPath(TOPIC, `after_seq=${bad}`), streamPath(TOPIC, `after_seq=${bad}`), `/internal/v1/runs/a/events?after_seq=${bad}`])
      assert.equal((await operator.get(path)).status, 400, path);
  assert.equal((await operator.poll(TOPIC, `after_seq=${position}&epoch=another`)).status, 400);
}

async function startCursorIsAnAlias(operator) {
  const { items } = await operator.read("/api/events?limit=3");
  const [first, , third] = items.map(({ cursor }) => cursor);
  assert.equal((await operator.read(`/api/events?start_cursor=${third}`)).items[0].seq, 4);
  assert.equal((await operator.read(`/api/events?start_cursor=${third}&after_cursor=${third}`)).items[0].seq, 4);
  const exported = await operator.get(`/api/events/export?start_cursor=${third}`);
  assert.equal(JSON.parse(exported.body.split("\n")[0]).seq, 4);
  assert.equal(await firstOf(await stream(operator, `/events?start_cursor=${third}`)), 4);
  for (const path of ["/api/events", "/api/events/export", "/events"]) {
    const { status, body } = await operator.get(`${path}?start_cursor=${third}&after_cursor=${first}`);
    assert.deepEqual([status, JSON.parse(body).error], [400, "TALOS_INVALID_CURSOR"], path);
  }
}

/** A client that gives two positions of one topic would miss frames at the higher one. */
async function twoCursorsOfATopicAreRefused(operator) {
  const STREAM = "runtime.run.a.events";
  const client = await Client.join(operator);
  await client.subscribe({ topics: ["room"] });
  const both = [[{ topic: TOPIC, watermark: 3 }, { stream_id: STREAM, after_seq: 8 }], [{ topic: TOPIC, after_seq: "3@x" }, { topic: TOPIC, after_seq: "3@y" }],
    [{ stream_id: STREAM, after_seq: 8 }, { stream_id: STREAM, after_seq: 3 }]];
  for (const topics of [[TOPIC], ["other", STREAM]])
    for (const resume_after of both) {
      const error = await client.refused("sync:subscribe", { topics, resume_after });
      assert.deepEqual([error.code, error.message], ["bad_subscription", "The request has two different cursors for one topic."]);
    }
  // Either name may be the topic of the stream.
  await operator.did("topics/d:o.t/events", { event_type: "said" });
  const dotted = { topics: ["d:o.t", "runtime.topic.d.o.t"], resume_after: { "d:o.t": 1, "d.o:t": 0 } };
  assert.equal((await client.refused("sync:subscribe", dotted)).code, "bad_subscription");
  assert.deepEqual((await client.ask("sync:heartbeat", {})).response.watermarks, [{ topic: "room", watermark: 0 }], "nothing began");
  await client.subscribe({ topics: [TOPIC], streams: [STREAM], resume_after: [{ topic: TOPIC, watermark: 3 }, { stream_id: STREAM, after_seq: 3 }] });
  await client.reached(TOPIC, LAST);
  assert.equal(client.run(TOPIC).updates[0].watermark, 4);
  client.close();
  const repeated = [pollPath(TOPIC, "after_seq=3&after_seq=8"), streamPath(TOPIC, "after_seq=3&after_seq=8"), streamPath(TOPIC, "lastEventId=3&lastEventId=8"),
    "/internal/v1/runs/a/events?after_seq=3&after_seq=8"];
  for (const path of repeated) {
    const { status, body } = await operator.get(path);
    assert.deepEqual([status, JSON.parse(body).error], [400, "bad_subscription"], path);
  }
  const refused = await Socket.refused(operator, socketPath(TOPIC, `after_seq=3&after_seq=8&token=${operator.reader}`));
  assert.equal(refused.status, 400);
  const lines = await Stream.open(operator, streamPath(TOPIC), { authorization: `Bearer ${operator.key}`, "last-event-id": ["3", "8"] });
  assert.equal(lines.status, 400);
  // A plan answers each cursor by itself: a file of many clients' cursors names a topic more than once.
  const { plans } = await operator.did("/v1/cursors/plan", [{ topic: TOPIC, after_seq: 3 }, { topic: TOPIC, after_seq: 8 }]);
  assert.deepEqual(plans.map(({ replay_events }) => replay_events), [LAST - 3, LAST - 8]);
}

test("positions and parameters of a query", async (t) => {
  const operator = await operate(t, { settings: { RUNTIME_KHALA_POLL_MIN_INTERVAL_MS: "0" } });
  await operator.did("runs", { run_id: "a", owner_user_id: "ada" }, 201);
  await operator.batch(events(LAST - 1));
  const cases = {
    "routes that read refuse a parameter that they do not know": unknownNamesAreRefused,
    "streams ignore parameters that they do not know": streamsIgnoreUnknownNames,
    "a position of one transport is taken by all others": positionsAreTakenByAllTransports,
    "lists and verbs take positions": listsAndVerbsTakePositions,
    "start_cursor is an alias of after_cursor": startCursorIsAnAlias,
    "two cursors of one topic are refused": twoCursorsOfATopicAreRefused,
    "lastEventId is a Last-Event-ID of clients that cannot set fields": anIdInTheQueryIsALastEventId,
  };
  for (const [name, check] of Object.entries(cases)) await t.test(name, () => check(operator));
});
