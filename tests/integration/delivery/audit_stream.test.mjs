// Followers of the whole log: the event stream and the audit socket.
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { EventSource } from "eventsource";
import { test } from "../../lib/cases.mjs";
import { folder, start } from "../../lib/khala.mjs";
import { operate, operateRun } from "../../lib/operator.mjs";
import { AUDIT_SOCKET } from "../../lib/paths.mjs";
import { events } from "../../lib/samples.mjs";
import { auditInit, Socket } from "../../lib/socket.mjs";
import { Stream } from "../../lib/sse.mjs";
import { Received, repeat } from "../../lib/wait.mjs";
import { frame, PING, RawSocket, TEXT } from "../../lib/websocket.mjs";

const audit = (operator, more, options) => Socket.audit(operator, operator.reader, more, options);

const sse = (operator, query = "", headers = {}) =>
  Stream.open(operator, `/events${query}`, { authorization: `Bearer ${operator.reader}`, ...headers });

async function fill(operator, count = 600) {
  await operator.did("runs", { run_id: "a", owner_user_id: "u" }, 201);
  await operator.did("workers", { worker_id: "w", owner_user_id: "u" }, 201);
  await operator.did("notifications", { event_type: "hello", payload: { text: "\u00e9" } });
  await operator.batch(events(count));
}

test("the audit socket acknowledges, replays, announces the end of the replay, and follows", async (t) => {
  const operator = await operate(t, { settings: { KHALA_HEARTBEAT_MS: "50" } });
  await fill(operator);
  const socket = await audit(operator);
  await socket.until((one) => one.of("replay_complete").length === 1, "the replay");
  const all = await operator.log();
  const [ack] = socket.messages;
  assert.equal(ack.type, "init_ack");
  assert.match(ack.session_id, /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
  assert.equal(ack.heartbeat_interval_ms, 50);
  assert.deepEqual(socket.of("event").map((one) => one.event), all);
  for (const one of socket.of("event")) {
    assert.deepEqual(Object.keys(one), ["type", "event", "cursor", "server_time"]);
    assert.equal(one.cursor, one.event.cursor);
    assert.ok(one.server_time >= one.event.recorded_at);
  }
  const complete = socket.messages.findIndex((one) => one.type === "replay_complete");
  assert.equal(socket.messages[complete].cursor, all.at(-1).cursor);
  await operator.batch(events(30));
  await socket.until((one) => one.of("event").length === all.length + 30, "what is live");
  const now = await operator.log();
  assert.deepEqual(socket.of("event").map((one) => one.event), now);
  const last = now.at(-1).cursor;
  await socket.until((one) => one.of("heartbeat").some((beat) => beat.last_cursor === last), "a heartbeat");
  assert.equal(socket.of("heartbeat")[0].interval_ms, 50);
  assert.equal(socket.of("replay_complete").length, 1);
  assert.ok(socket.pings > 0);
});

test("an audit socket resumes after its cursor, and the message's cursor wins over the query's", async (t) => {
  const operator = await operate(t);
  await fill(operator, 50);
  const all = await operator.log();
  const cursors = all.map((one) => one.cursor);
  const cases = [[{}, `${AUDIT_SOCKET}?after_cursor=${cursors[40]}`, 41], [{ after_cursor: cursors[45] }, AUDIT_SOCKET, 46],
    [{ start_cursor: cursors[45] }, AUDIT_SOCKET, 46], [{ start_cursor: cursors[45], after_cursor: cursors[45] }, AUDIT_SOCKET, 46],
    [{ after_cursor: cursors[45] }, `${AUDIT_SOCKET}?after_cursor=${cursors[3]}`, 46], [{ after_cursor: null }, AUDIT_SOCKET, 0],
    [{ after_cursor: cursors.at(-1) }, AUDIT_SOCKET, all.length]];
  for (const [more, path, from] of cases) {
    for (const perMessageDeflate of [false, true]) {
      const socket = await audit(operator, more, { path, perMessageDeflate });
      await socket.until((one) => one.of("replay_complete").length === 1, "the replay");
      assert.deepEqual(socket.of("event").map((one) => one.event), all.slice(from));
      assert.equal(socket.of("replay_complete")[0].cursor, cursors.at(-1));
    }
  }
  const error = await Socket.refused(operator, `${AUDIT_SOCKET}?after_cursor=nonsense`);
  assert.equal(error.status, 400);
  assert.equal(JSON.parse(error.body).error, "TALOS_INVALID_CURSOR");
});

test("an audit socket on an empty log completes its replay and receives the first event", async (t) => {
  const operator = await operate(t);
  const socket = await audit(operator);
  const stream = await sse(operator);
  await socket.until((one) => one.of("replay_complete").length === 1, "the replay");
  assert.equal(socket.of("replay_complete")[0].cursor, null);
  const { event } = await operator.did("runs", { run_id: "a" }, 201);
  await socket.until((one) => one.of("event").length === 1, "the first event");
  await stream.until((one) => one.messages.length === 1, "the first event");
  assert.deepEqual(socket.of("event")[0].event, event);
  assert.deepEqual(stream.messages[0].data, event);
});

test("filters pass the requested events, and heartbeats advance the cursor over the others", async (t) => {
  const operator = await operate(t, { settings: { KHALA_HEARTBEAT_MS: "50" } });
  await fill(operator, 300);
  await operator.did("runs", { run_id: "b" }, 201);
  await operator.batch([...events(5, { run_id: "b", event_type: "run.note" }), ...events(5, { event_type: "run.note" }), ...events(200)]);
  const all = await operator.log();
  const cases = [
    [{ event_types: ["run.note"] }, (one) => one.event_type === "run.note"],
    [{ entities: ["worker"] }, (one) => one.entity === "worker"],
    [{ entities: ["run:b"] }, (one) => one.entity === "run" && one.entity_id === "b"],
    [{ entities: ["run:b", "worker"], event_types: ["run.note", "worker.started"] },
      (one) => (one.entity_id === "b" || one.entity === "worker") && ["run.note", "worker.started"].includes(one.event_type)],
    [{ entities: [] }, () => false],
    [{}, () => true],
    [null, () => true],
  ];
  for (const [filters, keep] of cases) {
    const socket = await audit(operator, { filters });
    await socket.until((one) => one.of("replay_complete").length === 1, `the replay of ${JSON.stringify(filters)}`);
    assert.deepEqual(socket.of("event").map((one) => one.event), all.filter(keep));
    assert.equal(socket.of("replay_complete")[0].cursor, all.at(-1).cursor);
  }
  const quiet = await audit(operator, { filters: { event_types: ["nothing"] } });
  await operator.batch(events(20));
  const last = (await operator.log()).at(-1).cursor;
  await quiet.until((one) => one.of("heartbeat").some((beat) => beat.last_cursor === last), "the cover");
  assert.deepEqual(quiet.of("event"), []);
});

test("an invalid init message is answered with an error and a close code", async (t) => {
  const operator = await operate(t);
  const nonce = randomUUID();
  const first = await audit(operator, { nonce });
  await first.until((one) => one.of("init_ack").length === 1, "the first use");
  const good = auditInit(operator.reader);
  const cases = [
    ["hello", "INVALID_MESSAGE", 4003],
    ["[]", "INVALID_MESSAGE", 4003],
    ["{}", "INVALID_MESSAGE", 4003],
    [{ ...good, type: "hello" }, "INVALID_MESSAGE", 4003],
    [{ ...good, version: 2 }, "INVALID_MESSAGE", 4003],
    [{ ...good, capability: 7 }, "INVALID_MESSAGE", 4003],
    [{ ...good, nonce: "" }, "INVALID_MESSAGE", 4003],
    [{ ...good, nonce: "x".repeat(129) }, "INVALID_MESSAGE", 4003],
    [{ ...good, nonce: "a\u0000b" }, "INVALID_MESSAGE", 4003],
    [{ ...good, ts: "now" }, "INVALID_MESSAGE", 4003],
    [{ ...good, ts: -1 }, "INVALID_MESSAGE", 4003],
    [{ ...good, after_cursor: "nonsense" }, "INVALID_MESSAGE", 4003],
    [{ ...good, filters: [] }, "INVALID_MESSAGE", 4003],
    [{ ...good, filters: { topics: [] } }, "INVALID_MESSAGE", 4003],
    [{ ...good, filters: { event_types: [1] } }, "INVALID_MESSAGE", 4003],
    [{ ...good, filters: { event_types: Array(65).fill("x") } }, "INVALID_MESSAGE", 4003],
    [{ ...good, capability: "wrong" }, "AUTH_FAILED", 4001],
    [{ ...good, capability: "" }, "AUTH_FAILED", 4001],
    [{ ...good, ts: Date.now() - 310_000 }, "AUTH_FAILED", 4001],
    [{ ...good, ts: Date.now() + 310_000 }, "AUTH_FAILED", 4001],
    [{ ...good, nonce }, "AUTH_FAILED", 4001],
  ];
  for (const [message, code, close] of cases) {
    const socket = await Socket.open(operator, AUDIT_SOCKET);
    socket.say(message);
    await socket.until((one) => one.closed, "the close");
    assert.equal(socket.closed.code, close, JSON.stringify(message));
    assert.equal(socket.messages.length, 1);
    assert.equal(socket.messages[0].type, "error");
    assert.equal(socket.messages[0].code, code, JSON.stringify(message));
    assert.match(socket.messages[0].message, /^[A-Z].*\.$/);
    assert.ok(socket.messages[0].details.reason.length > 0);
  }
  // A refused capability does not use up the nonce, and a small clock skew is accepted.
  const late = await audit(operator, { nonce: good.nonce, ts: Date.now() - 290_000 });
  await late.until((one) => one.of("init_ack").length === 1, "the acknowledgement");
  late.say(auditInit(operator.reader));
  await late.until((one) => one.closed, "the close");
  assert.equal(late.closed.code, 4003);
});

test("an audit socket without an init message is closed in time, also if it sends pings", async (t) => {
  const operator = await operate(t, { settings: { KHALA_AUDIT_INIT_TIMEOUT_MS: "300", KHALA_HEARTBEAT_MS: "20" } });
  const silent = await Socket.open(operator, AUDIT_SOCKET);
  const babbling = await RawSocket.open(operator, { path: AUDIT_SOCKET, join: false });
  repeat(t, 20, () => babbling.peer.socket.write(frame(PING, "still here")));
  await silent.until((one) => one.closed, "the close");
  assert.equal(silent.closed.code, 4003);
  assert.deepEqual(silent.messages.map((one) => [one.type, one.code]), [["error", "INVALID_MESSAGE"]]);
  assert.equal((await babbling.closed()).code, 4003);
  const binary = await Socket.open(operator, AUDIT_SOCKET);
  binary.ws.send(Buffer.from([1, 2, 3]));
  await binary.until((one) => one.closed, "the close");
  assert.equal(binary.closed.code, 4003);
  assert.deepEqual(binary.messages.map((one) => [one.type, one.code]), [["error", "INVALID_MESSAGE"]]);
});

test("an unauthenticated audit socket may send at most one request head of bytes", async (t) => {
  const operator = await operate(t, { settings: { KHALA_AUDIT_INIT_TIMEOUT_MS: "600000" } });
  const raw = await RawSocket.open(operator, { path: AUDIT_SOCKET, join: false });
  await raw.send(frame(TEXT, "", { size: 16385 }));
  assert.equal((await raw.closed()).code, 1009);
  const filters = { event_types: Array.from({ length: 64 }, (_, i) => `${"t".repeat(60)}${i}`) };
  const socket = await audit(operator, { filters });
  await socket.until((one) => one.of("init_ack").length === 1, "the answer to a long init");
});

test("an audit socket that stops reading is closed with a position from which it resumes", async (t) => {
  const operator = await operateRun(t, { settings: { KHALA_SLOW_CONSUMER_CHECK_MS: "150" } });
  for (let i = 0; i < 4; i++) await operator.batch(events(500, { payload: () => ({ text: "x".repeat(10000) }) }));
  const stuck = await audit(operator);
  await stuck.until((one) => one.of("event").length > 0, "a beginning");
  stuck.pause();
  await operator.server.saw("log", /client\.disconnected code=slow_consumer /);
  stuck.resume();
  await stuck.until((one) => one.closed, "the close");
  const seen = stuck.of("event");
  const error = stuck.messages.at(-1);
  assert.equal(stuck.closed.code, 4000);
  assert.equal(error.code, "SLOW_CONSUMER");
  assert.equal(error.details.resume_after, seen.at(-1).cursor);
  assert.equal(stuck.closed.reason, `resume_after ${seen.at(-1).cursor}`);
  assert.ok(error.details.reconnect_after_ms >= 400);
  const resumed = await audit(operator, { after_cursor: error.details.resume_after });
  await resumed.until((one) => one.of("replay_complete").length === 1, "the rest");
  const all = await operator.log();
  assert.deepEqual([...seen, ...resumed.of("event")].map((one) => one.cursor), all.map((one) => one.cursor));
});

test("an audit socket learns from an ending server when to reconnect", async (t) => {
  const operator = await operate(t);
  const { event } = await operator.did("runs", { run_id: "a" }, 201);
  const socket = await audit(operator);
  await socket.until((one) => one.of("replay_complete").length === 1, "the replay");
  await operator.server.stop();
  await socket.until((one) => one.closed, "the close");
  assert.deepEqual(socket.closed, { code: 1012, reason: `resume_after ${event.cursor}` });
  const last = socket.messages.at(-1);
  assert.equal(last.type, "reconnect");
  assert.ok(last.retry_after_ms >= 400);
  assert.equal(last.resume_after, event.cursor);
});

test("an audit socket closed for silence or a wrong message receives its position", async (t) => {
  const operator = await operate(t, { settings: { KHALA_SILENCE_TIMEOUT_MS: "1500" } });
  const { event } = await operator.did("runs", { run_id: "a" }, 201);
  const silent = await audit(operator, {}, { autoPong: false });
  await silent.until((one) => one.closed, "the close");
  assert.deepEqual(silent.closed, { code: 1001, reason: `resume_after ${event.cursor}` });
  const last = silent.messages.at(-1);
  assert.deepEqual([last.type, last.resume_after], ["reconnect", event.cursor]);
  const loud = await audit(operator);
  await loud.until((one) => one.of("replay_complete").length === 1, "the replay");
  loud.say({});
  await loud.until((one) => one.closed, "the close");
  assert.deepEqual([loud.messages.at(-1).type, loud.messages.at(-1).details.resume_after], ["error", event.cursor]);
});

test("the event stream of the log replays, follows and resumes by id, and the header wins over the query", async (t) => {
  const operator = await operate(t, { settings: { KHALA_HEARTBEAT_MS: "50" } });
  await fill(operator);
  const stream = await sse(operator);
  const all = await operator.log();
  await stream.until((one) => one.messages.length === all.length, "the replay");
  assert.deepEqual(stream.messages.map((one) => one.data), all);
  for (const one of stream.messages) assert.equal(one.id, one.data.cursor);
  await operator.batch(events(20));
  await stream.until((one) => one.messages.length === all.length + 20, "what is live");
  await stream.until((one) => one.comments > 0, "a heartbeat");
  const now = await operator.log();
  const at = now[600].cursor;
  const resumed = await sse(operator, `?after_cursor=${now[3].cursor}`, { "last-event-id": at });
  await resumed.until((one) => one.messages.length === now.length - 601, "the rest");
  assert.deepEqual(resumed.messages.map((one) => one.data), now.slice(601));
  const asked = await sse(operator, `?after_cursor=${at}&token=${operator.reader}`, { authorization: "" });
  await asked.until((one) => one.messages.length === now.length - 601, "the rest");
  for (const [query, headers] of [["?after_cursor=x", {}], ["", { "last-event-id": "7" }], ["?after_cursor=", {}]]) {
    const response = await operator.ask("GET", `/events${query}`, undefined, headers);
    assert.equal(response.status, 400, query);
    assert.equal(JSON.parse(response.body).error, "TALOS_INVALID_CURSOR");
  }
  assert.equal((await operator.get("/events?from=tail")).status, 400);
  assert.equal((await operator.ask("GET", "/events", undefined, { authorization: "" })).status, 401);
});

test("cursors of protocol version 1 are taken with KHALA_LEGACY_CURSORS, on the event stream and the audit socket", async (t) => {
  const data = folder(t);
  let operator = await operate(t, { data });
  await fill(operator, 20);
  const all = await operator.log();
  const time = Number(Buffer.from(all[9].cursor, "base64url").toString().split(":")[0]);
  const again = all.filter(({ cursor }) => Number(Buffer.from(cursor, "base64url").toString().split(":")[0]) >= time);
  const cursor = Buffer.from(`${time}:evt-1`).toString("base64");
  const text = encodeURIComponent(cursor);
  const queries = [[`?after_cursor=${text}`, {}], [`?lastEventId=${text}`, {}], ["", { "last-event-id": cursor }]];
  for (const [query, headers] of queries) {
    const response = await operator.ask("GET", `/events${query}`, undefined, headers);
    assert.deepEqual([response.status, JSON.parse(response.body).error], [400, "TALOS_INVALID_CURSOR"], query);
  }
  assert.equal((await Socket.refused(operator, `${AUDIT_SOCKET}?after_cursor=${text}`)).status, 400);
  const closed = await audit(operator, { after_cursor: cursor });
  await closed.until((one) => one.of("error").length === 1, "the refusal");
  assert.equal(closed.of("error")[0].code, "INVALID_MESSAGE");
  await operator.server.stop();
  operator = await operate(t, { data, settings: { KHALA_LEGACY_CURSORS: "true" } });
  for (const [query, headers] of queries) {
    const stream = await sse(operator, query, headers);
    await stream.until((one) => one.messages.length === again.length, "all from that millisecond on");
    assert.deepEqual(stream.messages.map((one) => one.data), again);
  }
  for (const [more, path] of [[{ after_cursor: cursor }], [{ start_cursor: cursor }], [{}, `${AUDIT_SOCKET}?after_cursor=${text}`]]) {
    const socket = await audit(operator, more, { path: path ?? AUDIT_SOCKET });
    await socket.until((one) => one.of("replay_complete").length === 1, "the replay");
    assert.deepEqual(socket.of("event").map((one) => one.event), again);
  }
});

test("the event stream from the head of the log names its position and sends only new events", async (t) => {
  const operator = await operate(t);
  await fill(operator, 20);
  const stream = await sse(operator, "?from=head");
  await stream.until((one) => one.events.length === 1, "the bootstrap");
  assert.equal(stream.events[0].type, "bootstrap");
  const { after_cursor } = stream.events[0].data;
  assert.equal(after_cursor, (await operator.log()).at(-1).cursor);
  assert.equal(stream.events[0].id, after_cursor, "an EventSource that comes back misses nothing");
  const before = (await operator.log()).length;
  await operator.batch(events(5));
  const all = await operator.log();
  await stream.until((one) => one.messages.length === 5, "what comes");
  assert.deepEqual(stream.messages.map((one) => one.data), all.slice(before));
  // A stream that resumes from the named position receives the same events.
  const again = await sse(operator, `?after_cursor=${after_cursor}`);
  await again.until((one) => one.messages.length === 5, "the same");
  assert.deepEqual(again.messages.map((one) => one.data), all.slice(before));
});

test("a cursor later than the last event is stale, and the log starts again", async (t) => {
  const operator = await operate(t);
  const future = Buffer.from("9007199254740991:ffffffff-ffff-7fff-bfff-ffffffffffff").toString("base64url");
  // Also of an empty log, whose head is a position that the client may come back with.
  const empty = await sse(operator, "?from=head");
  await empty.until((one) => one.events.length === 1, "the bootstrap");
  const begin = empty.events[0].data.after_cursor;
  const early = await sse(operator, `?after_cursor=${future}`);
  await early.until((one) => one.events.length === 2, "the bootstrap");
  await fill(operator, 5);
  const all = await operator.log();
  for (const stream of [early, await sse(operator, `?after_cursor=${future}`), await sse(operator, "", { "last-event-id": future })]) {
    await stream.until((one) => one.messages.length === all.length, "all events");
    const [stale, bootstrap] = stream.events;
    assert.deepEqual([stale.type, stale.data.code, stale.data.reason_codes], ["stale_cursor", "stale_cursor", ["cursor_ahead_of_head"]]);
    assert.deepEqual([bootstrap.type, bootstrap.id, bootstrap.data], ["bootstrap", begin, { after_cursor: begin }]);
    assert.deepEqual(stream.messages.map((one) => one.data), all);
  }
  await empty.until((one) => one.messages.length === all.length, "the events since");
  const again = await sse(operator, `?after_cursor=${begin}`);
  await again.until((one) => one.messages.length === all.length, "all events");
  assert.deepEqual(again.events.map(({ type }) => type), all.map(() => "message"));
  for (const [more, path] of [[{ after_cursor: future }, AUDIT_SOCKET], [{}, `${AUDIT_SOCKET}?start_cursor=${future}`], [{ start_cursor: future }, AUDIT_SOCKET]]) {
    const socket = await audit(operator, more, { path });
    await socket.until((one) => one.closed, "the close");
    assert.deepEqual(socket.messages.map(({ type, code, details }) => ({ type, code, details })),
      [{ type: "error", code: "INVALID_MESSAGE", details: { reason: "cursor_ahead_of_head", resume_after: null } }]);
    assert.equal(socket.closed.code, 4003);
  }
});

test("the npm EventSource follows the log over a crash of the server", async (t) => {
  const data = folder(t);
  const first = await operate(t, { data });
  await fill(first, 100);
  const seen = new Received();
  const source = new EventSource(`${first.server.url}/events?token=${first.reader}`);
  t.after(() => source.close());
  source.onmessage = (message) => {
    seen.add({ id: message.lastEventId, ...JSON.parse(message.data) });
  };
  await seen.until(() => seen.all.length === 103, "the replay");
  const { port } = first.server;
  await first.server.crash();
  const second = await operate(t, { data, args: ["--bind", `127.0.0.1:${port}`] });
  await second.batch(events(50));
  await seen.until(() => seen.all.length >= 153, "the rest");
  const all = await second.log();
  assert.deepEqual(seen.all.map((one) => one.cursor), all.map((one) => one.cursor));
  assert.deepEqual(seen.all.map((one) => one.id), all.map((one) => one.cursor));
});

test("followers of the log that start at any cursor during appends see no gap", async (t) => {
  const operator = await operate(t, { settings: { KHALA_WINDOW_FRAMES_MAX: "128" } });
  await operator.did("runs", { run_id: "a" }, 201);
  const followers = [];
  for (let i = 0; i < 20; i++) {
    const written = operator.batch(events(100));
    const known = await operator.read("/api/events?limit=200");
    const after = known.items[Math.floor(Math.random() * known.items.length)].cursor;
    followers.push({ after, of: i % 2 ? await sse(operator, `?after_cursor=${after}`) : await audit(operator, { after_cursor: after }) });
    await written;
  }
  const all = (await operator.log()).map((one) => one.cursor);
  for (const { after, of } of followers) {
    const cursors = () => (of.messages.map((one) => (one.data ?? one)).filter((one) => one.cursor && one.type !== "replay_complete").map((one) => one.cursor));
    await of.until(() => cursors().at(-1) === all.at(-1), "the head");
    assert.deepEqual(cursors(), all.slice(all.indexOf(after) + 1));
  }
});

test("the audit socket refuses another origin before the token is sent", async (t) => {
  const operator = await operate(t, { settings: { RUNTIME_KHALA_ALLOWED_ORIGINS: "https://app.example" } });
  const refused = await Socket.refused(operator, AUDIT_SOCKET, { origin: "https://evil.example" });
  assert.equal(refused.status, 403);
  assert.equal(JSON.parse(refused.body).error, "origin_not_allowed");
  await Socket.open(operator, AUDIT_SOCKET, { origin: "https://app.example" });
  await Socket.open(operator, AUDIT_SOCKET);
});

test("curl reads the event stream of the log", async (t) => {
  const operator = await operate(t);
  await operator.did("runs", { run_id: "a" }, 201);
  const [event] = await operator.log();
  const curl = start(t, ["curl", "-sN", "-H", `Authorization: Bearer ${operator.reader}`, `${operator.server.url}/events`]);
  await curl.saw("out", /data: .*\n\n/);
  assert.match(curl.out, /^retry: \d+\n\n/);
  assert.equal(curl.out.split("\n\n")[1], `id: ${event.cursor}\ndata: ${JSON.stringify(event)}`);
});
