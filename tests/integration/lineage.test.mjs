// Lineage: a cursor of another history is stale on every transport, and a client that has nothing
// yet always gets a bootstrap.
import assert from "node:assert/strict";
import { join } from "node:path";
import { test } from "node:test";
import { folder, run } from "../lib/khala.mjs";
import { operate } from "../lib/operator.mjs";
import { pollPath, socketPath, streamPath } from "../lib/paths.mjs";
import { Client } from "../lib/phoenix.mjs";
import { sqliteOnly } from "../lib/database.mjs";
import { events, range, TOPIC } from "../lib/samples.mjs";
import { Socket } from "../lib/socket.mjs";
import { Stream } from "../lib/sse.mjs";
import { alter } from "../lib/store.mjs";
import { until } from "../lib/wait.mjs";

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
  await everywhere(operator, TOPIC, 12, { reasons: ["cursor_ahead_of_head"], bootstrap, from: 1, to: 6 });
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
