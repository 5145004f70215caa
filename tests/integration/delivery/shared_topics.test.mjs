// Topics that tenants share: other tenants' frames cost a client no message. The next frame that it
// may see covers their range, or the heartbeat does.
import assert from "node:assert/strict";
import { test } from "node:test";
import { operate } from "../../lib/operator.mjs";
import { pollPath, socketPath, streamPath } from "../../lib/paths.mjs";
import { Client } from "../../lib/phoenix.mjs";
import { range } from "../../lib/samples.mjs";
import { Socket } from "../../lib/socket.mjs";
import { Stream } from "../../lib/sse.mjs";

const SUMMARIES = "runtime.run_summaries";
const SCOPES = ["runtime.run_events"];

/** A token of that user. */
const reader = (operator, user_id) => operator.sign({ oa_user_id: user_id, oa_sync_scopes: SCOPES });

/** Creates so many runs of that user; each is one frame. */
const create = (operator, owner_user_id, count) =>
  Promise.all(range(1, count).map(() => operator.did("runs", { owner_user_id }, 201)));

/** A Phoenix client of that user that has replayed the shared topic. */
async function phoenix(operator, user_id) {
  const client = await Client.join(operator, { params: { token: reader(operator, user_id) } });
  await client.subscribe({ topics: [SUMMARIES], resume_after: { [SUMMARIES]: 0 } });
  await client.until(() => client.run(SUMMARIES).completes > 0, "the end of the replay");
  return client;
}

const ranges = (client) => client.of("sync:update_batch").map(({ after, through, updates, replay_complete }) =>
  [after, through, updates.length, replay_complete]);

test("a hundred frames of other tenants are no message, and the next own frame covers them", async (t) => {
  const operator = await operate(t, { settings: { KHALA_HEARTBEAT_MS: "3600000", KHALA_IO_LOOPS: "1" } });
  const client = await phoenix(operator, "ada");
  const all = await Client.join(operator);
  await all.subscribe({ topics: [SUMMARIES], resume_after: { [SUMMARIES]: 0 } });
  const socket = await Socket.open(operator, socketPath(SUMMARIES, `after_seq=0&token=${reader(operator, "ada")}`));
  const stream = await Stream.open(operator, streamPath(SUMMARIES, `after_seq=0&token=${reader(operator, "ada")}`));
  await socket.until((one) => one.of("hello").length > 0, "the hello");
  await create(operator, "bob", 100);
  await all.reached(SUMMARIES, 100);
  assert.deepEqual((await client.ask("sync:heartbeat", {})).response.watermarks, [{ topic: SUMMARIES, watermark: 100 }]);
  await create(operator, "ada", 1);
  await client.reached(SUMMARIES, 101);
  assert.deepEqual(ranges(client), [[0, 0, 0, true], [0, 101, 1, true]]);
  await socket.until((one) => one.of("message").length > 0, "the message");
  assert.deepEqual(socket.messages.map(({ type, after, sequence }) => [type, after ?? null, sequence ?? null]).slice(1), [["message", 0, 101]]);
  await stream.until((one) => one.events.length > 0, "the event");
  assert.deepEqual(stream.events.map(({ type, id, data }) => [type, id.split("@")[0], data.after, data.sequence]), [["message", "101", 0, 101]]);
  // The positions continue there, and a replay that ends with hidden frames ends all the same.
  await create(operator, "bob", 3);
  const late = await phoenix(operator, "ada");
  assert.deepEqual(ranges(late), [[0, 104, 1, true]]);
  const none = await phoenix(operator, "eve");
  assert.deepEqual(ranges(none), [[0, 104, 0, true]], "an empty replay is complete once");
  await create(operator, "ada", 1);
  await client.reached(SUMMARIES, 105);
  await socket.until((one) => one.of("message").length === 2, "the message");
  assert.deepEqual([ranges(client).at(-1), socket.of("message").at(-1).after], [[101, 105, 1, true], 101]);
  await stream.until((one) => one.events.length === 2, "the event");
  assert.equal(stream.events.at(-1).data.after, 101);
});

test("each batch has the epoch of its topic, also of a topic that appears late", async (t) => {
  const operator = await operate(t);
  const fleet = "fleet:user:ada:workers";
  const client = await Client.join(operator);
  const { epoch: log } = await client.subscribe({ topics: [fleet, SUMMARIES] });
  await client.until((one) => one.of("sync:update_batch").length === 2, "the empty batches");
  await operator.did("workers", { owner_user_id: "ada" }, 201);
  await create(operator, "ada", 1);
  await client.reached(fleet, 1);
  await client.reached(SUMMARIES, 1);
  const epochs = (topic) => client.of("sync:update_batch").filter((one) => one.topic === topic).map(({ epoch }) => epoch);
  assert.deepEqual([epochs(SUMMARIES), epochs(fleet)], [[`${log}.0`, `${log}.0`], [log, `${log}.0`]]);
});

test("the heartbeat covers the frames of other tenants", async (t) => {
  const operator = await operate(t, { settings: { KHALA_HEARTBEAT_MS: "30" } });
  const client = await phoenix(operator, "ada");
  const socket = await Socket.open(operator, socketPath(SUMMARIES, `after_seq=0&token=${reader(operator, "ada")}`));
  const stream = await Stream.open(operator, streamPath(SUMMARIES, `after_seq=0&token=${reader(operator, "ada")}`));
  await create(operator, "bob", 20);
  await client.reached(SUMMARIES, 20);
  const { covered, watermarks } = client.of("sync:heartbeat").at(-1);
  assert.deepEqual([covered[0].through, watermarks], [20, [{ topic: SUMMARIES, watermark: 20 }]]);
  // The entries of all heartbeats join without a gap.
  const entries = client.of("sync:heartbeat").flatMap((body) => body.covered);
  assert.ok(entries.every(({ topic, epoch }) => topic === SUMMARIES && epoch === `${client.welcome.epoch}.0`));
  assert.deepEqual(entries.map(({ after }) => after), [0, ...entries.slice(0, -1).map(({ through }) => through)]);
  assert.deepEqual(ranges(client), [[0, 0, 0, true]]);
  await stream.until((one) => one.lastSeq === 20, "the whole range");
  assert.deepEqual([...new Set(stream.events.map((one) => one.type))], ["progress"]);
  await socket.until((one) => one.of("progress").at(-1)?.through === 20, "the whole range");
  // A position moves once, and later heartbeats of event streams and topic sockets have no range.
  const [events, progress, { comments }, { pings }] = [stream.events.length, socket.of("progress").length, stream, socket];
  await stream.until((one) => one.comments > comments + 1, "heartbeats");
  await socket.until((one) => one.pings > pings + 1, "heartbeats");
  assert.deepEqual([stream.events.length, socket.of("progress").length], [events, progress]);
  // What a heartbeat covered is a position to resume from, and the next range begins there.
  await create(operator, "ada", 1);
  await client.reached(SUMMARIES, 21);
  await socket.until((one) => one.of("message").length > 0, "the message");
  assert.deepEqual([ranges(client).at(-1), socket.of("message")[0].after], [[20, 21, 1, true], 20]);
  let at = 0;
  for (const one of socket.messages.slice(1)) {
    assert.equal(one.after, at);
    at = one.sequence ?? one.through;
  }
});

/** A client of one user that records frames and covered positions in the order of their arrival. */
async function recording(operator, user_id, after = 0) {
  const token = reader(operator, user_id);
  const socket = await Socket.open(operator, `/socket/websocket?vsn=2.0.0&token=${token}`);
  const client = { socket, arrived: [], get seqs() { return this.arrived.filter((one) => one.seq).map((one) => one.seq); } };
  let taken = 0;
  client.drain = () => {
    for (; taken < socket.messages.length; taken++) {
      const [, , , event, payload] = socket.messages[taken];
      if (event === "sync:update_batch") client.arrived.push(...payload.updates.map((one) => ({ seq: one.watermark })), { through: payload.through });
      if (event === "sync:heartbeat") client.arrived.push(...payload.covered.map(({ through }) => ({ through })));
    }
    return client.arrived.findLast((one) => one.through !== undefined)?.through ?? after;
  };
  socket.say(["1", "1", "sync:v1", "phx_join", {}]);
  socket.say(["1", "2", "sync:v1", "sync:subscribe", { topics: [SUMMARIES], resume_after: { [SUMMARIES]: after } }]);
  return client;
}

/** Every frame of its own up to a position arrived before that position. */
function assertCovered(client, own, after) {
  let next = own.findIndex((seq) => seq > after);
  if (next < 0) next = own.length;
  for (const { seq, through } of client.arrived) {
    if (seq) assert.equal(seq, own[next++], "own frames arrive in order, without a gap");
    else assert.ok(next === own.length || own[next] > through, `${through} passes the frame ${own[next]}`);
  }
  assert.equal(next, own.length);
}

test("the heartbeat of the log's event stream moves the position over hidden events", async (t) => {
  const operator = await operate(t, { settings: { KHALA_HEARTBEAT_MS: "30" } });
  const headers = { authorization: `Bearer ${operator.sign({ oa_user_id: "ada", oa_sync_scopes: ["runtime.audit"] })}` };
  const stream = await Stream.open(operator, "/events", headers);
  const position = (id) => Number(Buffer.from(id, "base64url").toString().split(":")[0]);
  await create(operator, "bob", 5);
  const { recorded_at } = (await operator.log()).at(-1);
  const lastMs = typeof recorded_at === "number" ? recorded_at : Date.parse(recorded_at);
  await stream.until((one) => one.lastId && position(one.lastId) >= lastMs, "a position behind the hidden events");
  assert.deepEqual([...new Set(stream.events.map((one) => one.type))], ["progress"]);
  const { id, data } = stream.events.at(-1);
  assert.equal(data.after_cursor, id);
  const again = await Stream.open(operator, "/events", { ...headers, "last-event-id": id });
  const [{ event }] = await create(operator, "ada", 1);
  await again.until((one) => one.messages.length > 0, "the own event");
  assert.deepEqual(again.messages.map((one) => one.data.event_id), [event.event_id]);
});

test("no heartbeat covers a frame that was not sent, while many owners append", async (t) => {
  const operator = await operate(t, { settings: { KHALA_HEARTBEAT_MS: "10", KHALA_WINDOW_FRAMES_MAX: "16" } });
  const users = range(1, 12).map((i) => `u${i}`);
  const runs = users.flatMap((owner_user_id) => [1, 2].map((i) => ({ owner_user_id, run_id: `${owner_user_id}-${i}` })));
  await Promise.all(runs.map((run) => operator.did("runs", run, 201)));
  const all = await Client.join(operator);
  await all.subscribe({ topics: [SUMMARIES], resume_after: { [SUMMARIES]: 0 } });
  const clients = await Promise.all(users.slice(0, 8).map((user) => recording(operator, user)));
  const resumed = [];
  // Few owners are busy, so that the others have long ranges without a frame.
  const write = async () => {
    for (let i = 0; i < 100; i++) {
      const skewed = Math.floor(Math.random() ** 3 * runs.length);
      await operator.did(`runs/${runs[skewed].run_id}/events`, { event_type: "run.log", payload: { i } });
    }
  };
  const resume = async () => {
    for (let i = 0; i < 8; i++) {
      const after = clients[i].drain();
      resumed.push({ user: users[i], after, client: await recording(operator, users[i], after) });
      await operator.did(`runs/${runs[2 * i].run_id}/events`, { event_type: "run.log", payload: {} });
    }
  };
  await Promise.all([write(), write(), write(), resume()]);
  const head = (await operator.read(pollPath(SUMMARIES, "after_seq=0&limit=1"))).head_cursor;
  await all.reached(SUMMARIES, head);
  const own = (user) => all.run(SUMMARIES).updates.filter((one) => one.payload.owner_user_id === user).map((one) => one.watermark);
  for (const [i, client] of clients.entries()) {
    await client.socket.until(() => client.drain() === head, `${users[i]} at the head`);
    assertCovered(client, own(users[i]), 0);
  }
  for (const { user, after, client } of resumed) {
    await client.socket.until(() => client.drain() === head, `${user} at the head, from ${after}`);
    assertCovered(client, own(user), after);
  }
});

test("only own frames count for the replay budget of a shared topic", async (t) => {
  const operator = await operate(t, { settings: {
    RUNTIME_KHALA_CODEX_WORKER_EVENTS_REPLAY_BUDGET_EVENTS: "10", RUNTIME_KHALA_NOTIFICATIONS_REPLAY_BUDGET_EVENTS: "10",
    RUNTIME_KHALA_RUN_SUMMARIES_REPLAY_BUDGET_EVENTS: "10", RUNTIME_KHALA_POLL_MIN_INTERVAL_MS: "0" } });
  const scopes = ["runtime.run_events", "runtime.codex_worker_events", "runtime.notifications"];
  const tokens = { ada: operator.sign({ oa_user_id: "ada", oa_sync_scopes: scopes }), bob: operator.sign({ oa_user_id: "bob", oa_sync_scopes: scopes }) };
  for (const owner_user_id of ["ada", "bob"]) await operator.did("workers", { worker_id: owner_user_id, owner_user_id }, 201);
  const said = (owner_user_id) => operator.did("notifications", { event_type: "said", payload: {}, owner_user_id });
  for (let i = 0; i < 30; i++) {
    await operator.did("workers/bob/events", { event_type: "worker.log", payload: { i } });
    await said("bob");
  }
  await operator.did("workers/ada/events", { event_type: "worker.log", payload: {} });
  await said("ada");
  const poll = async (user, topic) => {
    const response = await operator.ask("GET", pollPath(topic, "after_seq=2&limit=200"), undefined, { authorization: `Bearer ${tokens[user]}` });
    return response.status === 200 ? JSON.parse(response.body).messages.length : JSON.parse(response.body).details.reason_codes[0];
  };
  for (const topic of ["runtime.codex_worker_events", "runtime.notifications"]) {
    assert.equal(await poll("ada", topic), 1, topic);
    assert.equal(await poll("bob", topic), "replay_budget_exceeded", topic);
  }
  const plan = async (user) => {
    const response = await operator.ask("POST", "/v1/cursors/plan", JSON.stringify([{ topic: "runtime.notifications", after_seq: 2 }]),
      { authorization: `Bearer ${tokens[user]}` });
    return JSON.parse(response.body).plans[0].decision;
  };
  assert.deepEqual([await plan("ada"), await plan("bob")], ["resume", "rebootstrap"]);
  // A client that fetched a snapshot can follow it, however many frames came since.
  await create(operator, "bob", 30);
  assert.equal(await poll("bob", SUMMARIES), 28);
});

test("polls count the frames that the client may see", async (t) => {
  const operator = await operate(t, { settings: { RUNTIME_KHALA_SLOW_CONSUMER_LAG_THRESHOLD: "5", RUNTIME_KHALA_SLOW_CONSUMER_MAX_STRIKES: "2" } });
  const headers = { authorization: `Bearer ${reader(operator, "ada")}` };
  const poll = async (query) => {
    const { status, body } = await operator.ask("GET", pollPath(SUMMARIES, query), undefined, headers);
    return { status, ...JSON.parse(body) };
  };
  await create(operator, "ada", 3);
  // The frames of others grow from poll to poll, and are no lag of this client.
  for (let i = 0; i < 4; i++) {
    await create(operator, "bob", 20);
    const { status, consumer_lag, slow_consumer_strikes } = await poll("after_seq=0&limit=1");
    assert.deepEqual([status, consumer_lag, slow_consumer_strikes], [200, 2, 0]);
  }
  await create(operator, "ada", 10);
  const { consumer_lag, slow_consumer_strikes } = await poll("after_seq=0&limit=1");
  assert.deepEqual([consumer_lag, slow_consumer_strikes], [12, 1]);
  await create(operator, "bob", 1);
  const { status, error, details } = await poll("after_seq=0&limit=1");
  assert.deepEqual([status, error, details.lag, details.resume_after], [409, "slow_consumer_evicted", 13, 0]);
  const page = await poll(`after_seq=${details.resume_after}&limit=10`);
  assert.deepEqual([page.messages.length, page.consumer_lag], [10, 3]);
});

test("frames of other tenants do not use up the budget of a bootstrap", async (t) => {
  const topic = "runtime.codex_worker_events";
  const operator = await operate(t, { settings: { RUNTIME_KHALA_CODEX_WORKER_EVENTS_REPLAY_BUDGET_EVENTS: "10" } });
  const append = (worker, n) => operator.did(`workers/${worker}/events`, { event_type: "worker.said", payload: { n } });
  const read = async (user) => {
    const token = operator.sign({ oa_user_id: user, oa_sync_scopes: ["runtime.codex_worker_events"] });
    const stream = await Stream.open(operator, streamPath(topic, `token=${token}`));
    const { status, body } = await operator.ask("GET", pollPath(topic), undefined, { authorization: `Bearer ${token}` });
    const { messages, bootstrap } = JSON.parse(body);
    assert.equal(status, 200, body);
    await stream.until((one) => one.messages.length === messages.length, "the same messages");
    stream.close();
    return { numbers: messages.map(({ payload }) => payload.n), bootstrap };
  };
  for (const user of ["ada", "bob", "eve"]) await operator.did("workers", { worker_id: user, owner_user_id: user }, 201);
  for (const n of range(1, 3)) await append("ada", n);
  for (const n of range(1, 30)) await append("bob", n);
  const ada = await read("ada");
  assert.deepEqual(ada.numbers.slice(-3), [1, 2, 3]);
  assert.deepEqual((await read("bob")).numbers, range(21, 30), "the budget holds for the own frames");
  assert.deepEqual((await read("eve")).bootstrap.truncated, true);
  // The own frames count, also between those of others.
  for (const n of range(4, 14)) {
    await append("ada", n);
    await append("bob", n);
  }
  assert.deepEqual((await read("ada")).numbers, range(5, 14));
});
