// Lineage: a cursor of another history is stale on every transport, and a client that has nothing
// yet always gets a bootstrap.
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { assertError, folder, run } from "../../lib/khala.mjs";
import { operate } from "../../lib/operator.mjs";
import { pollPath, snapshotPath, socketPath, streamPath } from "../../lib/paths.mjs";
import { Client } from "../../lib/phoenix.mjs";
import { copyDatabase, databaseOf, onPostgres, sqliteOnly } from "../../lib/database.mjs";
import { events, range, TOPIC } from "../../lib/samples.mjs";
import { Socket } from "../../lib/socket.mjs";
import { Stream } from "../../lib/sse.mjs";
import { alter, sql } from "../../lib/store.mjs";
import { until } from "../../lib/wait.mjs";

const SETTINGS = { RUNTIME_KHALA_POLL_MIN_INTERVAL_MS: "0", RUNTIME_KHALA_FALLBACK_REPLAY_BUDGET_EVENTS: "5" };

/** How many polls the server has begun; null while a read of the store is left. */
async function pollsBegun(operator) {
  const { body } = await operator.get("/metrics");
  const value = (name) => Number(body.match(new RegExp(`^${name}(?:\\{dialect="poll"\\})? (\\d+)$`, "m"))?.[1] ?? 0);
  return value("khala_store_read_queue_depth") === 0 ? { count: value("khala_fanout_polls_total") } : null;
}

/**
 * Follows a topic from a position on each transport until it has the wanted frames. Each answers
 * the sequences that it saw, and before them the reasons of a stale cursor or the bootstrap.
 */
const transports = {
  async poll(operator, topic, position, count) {
    const first = await operator.poll(topic, `after_seq=${position}`);
    const body = JSON.parse(first.body);
    if (first.status === 410) assert.equal(body.reason_code, body.details.reason_codes[0]);
    const page = first.status === 410 ? JSON.parse((await operator.poll(topic, "")).body) : body;
    assert.ok(page.messages.length <= count);
    return { reasons: body.details?.reason_codes, bootstrap: page.bootstrap, seen: page.messages.map((one) => one.sequence) };
  },
  async "topic WebSocket"(operator, topic, position, count) {
    const socket = await Socket.open(operator, socketPath(topic, `after_seq=${position}&token=${operator.reader}`));
    await socket.until((one) => one.of("message").length >= count && one.of("hello").length > 0, `${count} messages`);
    socket.close();
    return { reasons: socket.of("stale_cursor")[0]?.reason_codes, bootstrap: socket.of("hello")[0].bootstrap,
      seen: socket.of("message").map((one) => one.sequence) };
  },
  async "event stream"(operator, topic, position, count) {
    const stream = await Stream.open(operator, streamPath(topic, `after_seq=${position}`), { authorization: `Bearer ${operator.key}` });
    const of = (type) => stream.events.filter((one) => one.type === type).map((one) => one.data);
    await stream.until(() => of("message").length >= count, `${count} messages`);
    stream.close();
    const [bootstrap] = of("bootstrap");
    return { reasons: of("stale_cursor")[0]?.reason_codes,
      bootstrap: bootstrap && { from_seq: bootstrap.from_seq, truncated: bootstrap.truncated }, seen: of("message").map((one) => one.sequence) };
  },
  async phoenix(operator, topic, position, count) {
    const client = await Client.join(operator);
    const asked = { topics: [topic], resume_after: { [topic]: position } };
    const first = await client.ask("sync:subscribe", asked);
    const reasons = first.status === "error" ? first.response.stale_topics[0].reason_codes : undefined;
    const reply = reasons ? await client.subscribe({ ...asked, bootstrap: true }) : first.response;
    await client.until((one) => one.run(topic).updates.length >= count, `${count} updates`);
    client.close();
    return { reasons, bootstrap: reply.windows[0].bootstrap, seen: client.run(topic).sequences };
  },
};

/** Asserts what every transport answers to a position. */
async function everywhere(operator, topic, position, { reasons, bootstrap, from, to }) {
  for (const [name, follow] of Object.entries(transports))
    assert.deepEqual(await follow(operator, topic, position, to - from + 1), { reasons, bootstrap, seen: range(from, to) },
      `${name} at ${position}`);
  const { plans: [plan] } = await operator.did("/v1/cursors/plan", { [topic]: position });
  assert.deepEqual([plan.decision, plan.reason_codes], reasons ? ["rebootstrap", reasons] : [plan.decision, plan.reason_codes]);
}

/** Asserts that list, export, event stream and audit socket of the whole log refuse a cursor of another history. */
async function logRefuses(operator, cursor, reason) {
  for (const path of [`/api/events?after_cursor=${cursor}`, `/api/events/export?after_cursor=${cursor}`]) {
    const { status, body } = await operator.get(path);
    assert.deepEqual([status, JSON.parse(body).reason_code], [410, reason], path);
  }
  const log = await operator.log();
  const stream = await Stream.open(operator, `/events?after_cursor=${cursor}`, { authorization: `Bearer ${operator.key}` });
  await stream.until((one) => one.messages.length === log.length, "the whole log");
  assert.deepEqual(stream.events.slice(0, 3).map(({ type }) => type), ["stale_cursor", "bootstrap", "message"]);
  assert.deepEqual(stream.events[0].data.reason_codes, [reason]);
  assert.deepEqual(stream.messages.map(({ data }) => data), log);
  const socket = await Socket.audit(operator, operator.reader, { after_cursor: cursor });
  await socket.until((one) => one.closed, "the close");
  assert.deepEqual([socket.closed.code, socket.messages.map(({ details }) => details.reason)], [4003, [reason]]);
  stream.close();
}

test("a client at the old head after a restore is stale and misses nothing", sqliteOnly, async (t) => {
  const file = join(folder(t), "backup.db");
  const first = await operate(t, { settings: SETTINGS });
  await first.did("runs", { run_id: "a", owner_user_id: "ada" }, 201);
  await first.batch(events(5));
  assert.equal(run(["backup", file, "--data-dir", first.data]).code, 0);
  await first.batch(events(6));
  const newest = (await first.log()).at(-1).cursor;
  const { head_cursor, epoch } = JSON.parse((await first.poll(TOPIC, "after_seq=12")).body);
  assert.equal(head_cursor, 12);
  const data = join(folder(t), "restored");
  const restored = run(["restore", file, "--data-dir", data]);
  assert.equal(restored.code, 0, restored.problem);

  const operator = await operate(t, { data, settings: SETTINGS });
  const bootstrap = { from_seq: 1, truncated: false };
  await everywhere(operator, TOPIC, 12, { reasons: ["epoch_required", "cursor_ahead_of_head"], bootstrap, from: 1, to: 6 });
  await everywhere(operator, TOPIC, `12@${epoch}`, { reasons: ["epoch_mismatch", "cursor_ahead_of_head"], bootstrap, from: 1, to: 6 });
  await everywhere(operator, TOPIC, `3@${epoch}`, { reasons: ["epoch_mismatch"], bootstrap, from: 1, to: 6 });
  await everywhere(operator, TOPIC, 6 - 1, { reasons: undefined, bootstrap: undefined, from: 6, to: 6 });
  // The epoch does not matter to a client that has nothing yet.
  await everywhere(operator, TOPIC, `0@${epoch}`, { reasons: undefined, bootstrap: undefined, from: 1, to: 6 });
  for (const path of [`runs/a/events?after_seq=12`, `runs/a/events?after_seq=3@${epoch}`]) {
    const { status, body } = await operator.get(path);
    assert.deepEqual([status, JSON.parse(body).error], [410, "stale_cursor"], path);
  }
  await logRefuses(operator, newest, "cursor_ahead_of_head");
  await operator.batch(events(7)); // the log is now past the lost event
  await logRefuses(operator, newest, "epoch_mismatch");
  const kept = (await operator.log())[2].cursor;
  assert.equal((await operator.get(`/api/events?after_cursor=${kept}`)).status, 200);
});

/** Keeps the store of a stopped server, and answers the copy: a file, or the folder of a database. */
function keep(t, data) {
  const copy = join(folder(t), "copy");
  if (onPostgres) copyDatabase(data, copy);
  else assert.equal(run(["backup", copy, "--data-dir", data]).code, 0);
  return copy;
}

/** Puts a copy in the place of a store, and answers the folder that has it then. */
function restore(t, copy, data) {
  const place = onPostgres ? join(folder(t), "restored") : data;
  if (onPostgres) copyDatabase(copy, place);
  const args = onPostgres ? ["migrate", "--new-epoch"] : ["restore", copy];
  const { code, problem } = run([...args, "--data-dir", place], onPostgres ? { settings: { DB_URL: databaseOf(place) } } : {});
  assert.equal(code, 0, problem);
  return place;
}

const BUDGET = { ...SETTINGS, RUNTIME_KHALA_FALLBACK_REPLAY_BUDGET_EVENTS: "500" };
const serveAt = (t, data) => operate(t, { data, settings: BUDGET });
const inRoom = (from, to) => range(from, to).map((i) => ({ topic: "room", event_type: "said", payload: { i } }));

/** A store on which so many events were appended to a topic; its server has stopped. */
async function grown(t, data, from, to) {
  const operator = await serveAt(t, data);
  for (const { status } of await operator.batch(inRoom(from, to))) assert.equal(status, 200);
  await operator.server.stop();
  return operator.data;
}

const all = { from_seq: 1, truncated: false };

test("a cursor without an epoch is stale above the place where the histories part, and good at or below it", async (t) => {
  const first = await operate(t, { settings: BUDGET });
  await first.batch(inRoom(1, 10));
  // Without a second epoch such cursors resume as ever, and positions are numbers.
  await everywhere(first, "room", 8, { from: 9, to: 10 });
  assert.equal(JSON.parse((await first.poll("room", "after_seq=8")).body).next_cursor, 10);
  const { epoch: before } = JSON.parse((await first.poll("room", "")).body);
  await first.server.stop();
  const copy = keep(t, first.data);
  await grown(t, first.data, 11, 15);
  const place = restore(t, copy, first.data);
  const operator = await serveAt(t, place);
  await operator.batch(inRoom(111, 120));

  for (const position of [11, 15, 20]) await everywhere(operator, "room", position, { reasons: ["epoch_required"], bootstrap: all, from: 1, to: 20 });
  await everywhere(operator, "room", 21, { reasons: ["epoch_required", "cursor_ahead_of_head"], bootstrap: all, from: 1, to: 20 });
  await everywhere(operator, "room", 10, { from: 11, to: 20 });
  await everywhere(operator, "room", 3, { from: 4, to: 20 });
  const { epoch } = JSON.parse((await operator.poll("room", "")).body);
  await everywhere(operator, "room", `15@${epoch}`, { from: 16, to: 20 });
  await everywhere(operator, "room", `15@${before}`, { reasons: ["epoch_mismatch"], bootstrap: all, from: 1, to: 20 });

  await t.test("the reader of everything is no exception, and the lists are none", async () => {
    assertError(await operator.poll("room", "after_seq=15&replay=all"), 410, "stale_cursor");
    const list = await operator.get("topics/room/events?after_seq=15");
    assertError(list, 410, "stale_cursor");
    assert.equal(JSON.parse(list.body).reason_code, "epoch_required");
    const page = await operator.read("topics/room/events?after_seq=10&limit=3");
    assert.equal(page.next_after_seq, `13@${epoch}`);
    assert.equal((await operator.read(`topics/room/events?after_seq=${page.next_after_seq}`)).next_after_seq, `20@${epoch}`);
    assert.equal((await operator.read(`topics/room/events?after_seq=13&epoch=${epoch}&limit=2`)).next_after_seq, 15);
    assert.equal((await operator.read("topics/room/events?since=1h&limit=2")).next_after_seq, `2@${epoch}`);
  });

  await t.test("the stale answer names the epoch of the positions that follow it", async () => {
    const { details } = JSON.parse((await operator.poll("room", "after_seq=15")).body);
    const [{ resume_after, epoch: named, reason_codes }] = details.stale_topics;
    assert.deepEqual([resume_after, named, reason_codes, details.reason_codes], [15, epoch, ["epoch_required"], ["epoch_required"]]);
  });

  await t.test("a topic that is younger than the first epoch has no position that needs no epoch", async () => {
    await operator.batch([{ topic: "young", event_type: "said", payload: {} }, { topic: "young", event_type: "said", payload: {} }]);
    await everywhere(operator, "young", 1, { reasons: ["epoch_required"], bootstrap: all, from: 1, to: 2 });
    // It does not wait for the topic, which would count another history than the cursor.
    const stale = await operator.poll("absent", "after_seq=1&wait_ms=30000");
    assert.deepEqual([stale.status, JSON.parse(stale.body).reason_code], [410, "epoch_required"]);
  });

  await t.test("khala cursor migrate asks the server", () => {
    const file = JSON.stringify([{ topic: "room", after_seq: 15 }, { topic: "room", after_seq: 10 }, { topic: "room", after_seq: 15, epoch }]);
    const { code, out } = run(["cursor", "migrate", "-", "--url", operator.server.url, "--data-dir", operator.data], { input: file });
    assert.deepEqual([code, out.trim().split("\n")], [1, ["runtime.topic.room 15 rebootstrap epoch_required",
      "runtime.topic.room 10 resume", "runtime.topic.room 15 resume"]]);
  });

  await t.test("a position that one transport gives out is taken by all others", async () => {
    const polled = JSON.parse((await operator.poll("room", "limit=4")).body).next_cursor;
    assert.equal(polled, `4@${epoch}`);
    // A client that takes them as they are stays in this epoch, and one that names it beside gets numbers.
    assert.equal(JSON.parse((await operator.poll("room", `after_seq=${polled}&limit=4`)).body).next_cursor, `8@${epoch}`);
    assert.equal(JSON.parse((await operator.poll("room", `after_seq=4&epoch=${epoch}&limit=4`)).body).next_cursor, 8);
    const stream = await Stream.open(operator, streamPath("room", ""), { authorization: `Bearer ${operator.key}` });
    await stream.until((one) => one.messages.length === 20, "the topic");
    const { id } = stream.messages[13];
    stream.close();
    const socket = await Socket.open(operator, socketPath("room", `after_seq=${polled}&token=${operator.reader}`));
    await socket.until((one) => one.of("hello").length > 0, "the hello");
    assert.equal(socket.of("hello")[0].after_seq, polled);
    const resumed = await Stream.open(operator, streamPath("room", "after_seq=1"), { authorization: `Bearer ${operator.key}`, "last-event-id": id });
    await resumed.until((one) => one.messages.length === 6, "the rest");
    const client = await Client.join(operator);
    const { windows: [window] } = await client.subscribe({ topics: ["room"], resume_after: { room: id } });
    assert.equal(window.resume_after, id);
    await operator.server.stop();
    await socket.until((one) => one.closed, "the close");
    const hint = socket.of("error")[0].resume_after;
    assert.deepEqual(hint, [{ topic: "room", watermark: `20@${epoch}` }]);
    assert.equal(socket.closed.reason, `resume_after room=20@${epoch}`);
    await client.until((one) => one.closes.length > 0, "the close");
    assert.deepEqual(client.of("sync:error").at(-1).resume_after, hint);
    const again = await serveAt(t, place);
    await everywhere(again, "room", hint[0].watermark, { from: 21, to: 20 });
    await everywhere(again, "room", id, { from: 15, to: 20 });
    const next = await Client.join(again);
    assert.equal((await next.ask("sync:subscribe", { topics: ["room"], resume_after: hint })).status, "ok");
    next.close();
  });
});

test("shared topics part at the heads of that moment, and a client that keeps no epoch is reset at each reconnect", async (t) => {
  const topic = "runtime.run_summaries";
  const first = await operate(t, { settings: BUDGET });
  await first.did("runs", { run_id: "a", owner_user_id: "ada" }, 201);
  for (const one of events(3)) await first.did("runs/a/events", one);
  const { head_cursor: head } = JSON.parse((await first.poll(topic, "")).body);
  await first.server.stop();
  const copy = keep(t, first.data);
  const second = await serveAt(t, first.data);
  for (const one of events(5)) await second.did("runs/a/events", one);
  await second.server.stop();
  const operator = await serveAt(t, restore(t, copy, first.data));
  for (const one of events(8)) await operator.did("runs/a/events", one);
  const stale = async (query) => JSON.parse((await operator.poll(topic, query)).body).reason_code;
  assert.equal(await stale(`after_seq=${head}`), undefined);
  assert.equal(await stale(`after_seq=${head + 1}`), "epoch_required");
  const { watermark, epoch } = JSON.parse((await operator.get(snapshotPath(topic))).body);
  assert.equal(watermark, `${head + 8}@${epoch}`);
  assert.equal(await stale(`after_seq=${watermark}`), undefined);
  for (let i = 0; i < 2; i++) {
    const client = await Client.join(operator);
    const { status, response } = await client.ask("sync:subscribe", { topics: [topic], resume_after: { [topic]: head + 8 } });
    assert.deepEqual([status, response.code, response.reason_codes], ["error", "stale_cursor", ["epoch_required"]]);
    const { windows: [window] } = await client.subscribe({ topics: [topic], bootstrap: true });
    assert.deepEqual(window.bootstrap, { snapshot: true, truncated: false });
    await client.until((one) => one.of("sync:snapshot").some(({ last }) => last), "the snapshot");
    client.close();
  }
  // A journal that is made again has a history of its own.
  await operator.did("projectors/reproject", { all: true, journal: true });
  assert.equal(await stale(`after_seq=${head}`), "epoch_required");
});

test("no restore of a chain lets a cursor of an earlier history pass", async (t) => {
  const a = await grown(t, undefined, 1, 10);
  const at10 = keep(t, a);
  await grown(t, a, 11, 15);
  const b = restore(t, at10, a);
  await grown(t, b, 211, 212);
  const at12 = keep(t, b);
  await grown(t, b, 213, 216);
  const c = restore(t, at12, b);
  const operator = await serveAt(t, c);
  await operator.batch(inRoom(313, 320));
  for (const position of [11, 12, 13, 16]) await everywhere(operator, "room", position, { reasons: ["epoch_required"], bootstrap: all, from: 1, to: 20 });
  await everywhere(operator, "room", 10, { from: 11, to: 20 });
});

test("a restore carries over what the replaced store knows", sqliteOnly, async (t) => {
  const fork = (data) => sql(data, "SELECT value FROM meta WHERE name = 'fork_log_id'");
  const forkOf = (copy, data) => {
    const { code, problem } = run(["restore", copy, "--data-dir", data]);
    assert.equal(code, 0, problem);
    return Number(fork(data));
  };
  const a = await grown(t, undefined, 1, 10);
  assert.equal(fork(a), "");
  const at10 = keep(t, a);
  await grown(t, a, 11, 14);
  const at14 = keep(t, a);
  await grown(t, a, 15, 15);
  assert.equal(forkOf(at10, a), 10); // a is the second history now
  await grown(t, a, 211, 218);
  // A copy of the first history: it has one epoch itself, and the histories part at 10.
  assert.equal(forkOf(at14, a), 10);
  const operator = await serveAt(t, a);
  await everywhere(operator, "room", 12, { reasons: ["epoch_required"], bootstrap: all, from: 1, to: 14 });
  await operator.server.stop();

  // Two copies of files whose histories parted without a new epoch.
  const [left, right] = [join(folder(t), "left"), join(folder(t), "right")];
  for (const data of [left, right]) assert.equal(run(["restore", at10, "--data-dir", data]).code, 0);
  for (const data of [left, right]) {
    alter(data, "DELETE FROM meta WHERE name LIKE 'fork%'");
    await grown(t, data, 11, 17);
  }
  assert.equal(forkOf(keep(t, left), right), 10);
  assert.equal(sql(right, "SELECT count(*) FROM meta WHERE name LIKE 'fork-%'"), "0");
  // Another log, an empty one, none, and one that cannot be read.
  assert.equal(forkOf(at14, await grown(t, undefined, 1, 20)), 0);
  const empty = await operate(t);
  await empty.server.stop();
  assert.equal(forkOf(at14, empty.data), 14);
  assert.equal(forkOf(at14, join(folder(t), "new")), 14);
  const damaged = await grown(t, undefined, 1, 3);
  writeFileSync(join(damaged, "khala.db"), "not a database at all");
  assert.equal(forkOf(at14, damaged), 0);
  // A newer copy over an older one of the same history: all that the older one gave out is in it.
  const older = join(folder(t), "older");
  assert.equal(run(["restore", at10, "--data-dir", older]).code, 0);
  alter(older, "DELETE FROM meta WHERE name = 'fork_log_id'");
  assert.equal(forkOf(at14, older), 14);
});

test("cursors of topics that appear late, and of clients that have nothing yet", async (t) => {
  const operator = await operate(t, { settings: SETTINGS });
  const room = (name, count) => operator.batch(Array.from({ length: count }, (_, i) => ({ topic: name, event_type: "said", payload: { i } })));

  await t.test("a position in a topic that appears later is stale on every transport", async () => {
    // Also where the first commit goes beyond the position.
    for (const [topic, position] of [["late:1", 50], ["late:2", 2]]) {
      const bootstrap = { from_seq: 1, truncated: false };
      const client = await Client.join(operator);
      await client.subscribe({ topics: [topic], resume_after: { [topic]: position } });
      const socket = await Socket.open(operator, socketPath(topic, `after_seq=${position}&token=${operator.reader}`));
      await socket.until((one) => one.of("hello").length > 0, "the hello");
      const stream = await Stream.open(operator, streamPath(topic, `after_seq=${position}`), { authorization: `Bearer ${operator.key}` });
      const { count: before } = await until(() => pollsBegun(operator), "idle readers");
      const waiting = operator.get(pollPath(topic, `after_seq=${position}&wait_ms=30000`));
      const other = operator.ask("GET", pollPath(topic, `after_seq=0&wait_ms=30000&token=${operator.reader}`), undefined, { authorization: "" });
      await stream.until((one) => one.retries > 0, "the stream");
      await until(async () => (await pollsBegun(operator))?.count === before + 2, "both polls");
      await room(topic, 4);
      const polled = await waiting;
      assert.equal(polled.status, 410, polled.body);
      assert.equal(JSON.parse(polled.body).reason_code, "cursor_ahead_of_head");
      assert.equal((await other).status, 200);
      await client.until((one) => one.of("sync:error").length > 0, "the error");
      assert.deepEqual(client.of("sync:error")[0].stale_topics[0].reason_codes, ["cursor_ahead_of_head"]);
      await socket.until((one) => one.of("message").length === 4, "the messages");
      assert.deepEqual(socket.of("stale_cursor")[0].reason_codes, ["cursor_ahead_of_head"]);
      assert.deepEqual(socket.of("hello").at(-1).bootstrap, bootstrap);
      await stream.until((one) => one.messages.length === 4, "the messages");
      assert.deepEqual(stream.events.map(({ type }) => type), ["stale_cursor", "bootstrap", "message", "message", "message", "message"]);
      for (const one of [client, socket, stream]) one.close();
    }
  });

  await t.test("after_seq 0 is a bootstrap where any other cursor would be stale", async () => {
    await room("long", 8); // the budget is 5
    const truncated = { from_seq: 4, truncated: true };
    await everywhere(operator, "long", 0, { reasons: undefined, bootstrap: truncated, from: 4, to: 8 });
    await everywhere(operator, "long", "0@another", { reasons: undefined, bootstrap: truncated, from: 4, to: 8 });
    await everywhere(operator, "long", 2, { reasons: ["replay_budget_exceeded"], bootstrap: truncated, from: 4, to: 8 });
    await everywhere(operator, "long", 9, { reasons: ["cursor_ahead_of_head"], bootstrap: truncated, from: 4, to: 8 });
    await everywhere(operator, "long", 3, { reasons: undefined, bootstrap: undefined, from: 4, to: 8 });
  });

  await t.test("after_seq 0 on a summary topic is a snapshot where it would be stale", async () => {
    const topic = "runtime.run_summaries";
    await operator.did("runs", { run_id: "s", owner_user_id: "ada" }, 201);
    await operator.batch(events(3, { run_id: "s" }));
    const fresh = await Client.join(operator);
    const reply = await fresh.subscribe({ topics: [topic], resume_after: { [topic]: "0@another" } });
    assert.equal(reply.windows[0].bootstrap, undefined);
    fresh.close();
    alter(operator.data, `UPDATE topics SET oldest_seq = 2 WHERE topic = '${topic}'`);
    const client = await Client.join(operator);
    const { windows: [window] } = await client.subscribe({ topics: [topic], resume_after: { [topic]: 0 } });
    assert.deepEqual(window.bootstrap, { snapshot: true, truncated: false });
    await client.until((one) => one.of("sync:snapshot").some(({ last }) => last), "the snapshot");
    assert.equal(client.of("sync:snapshot")[0].documents.length, 1);
  });
});
