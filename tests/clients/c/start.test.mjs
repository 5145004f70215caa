// Where libkhala starts: at the head, at a time, after a cursor; and the whole log by event cursors.
import assert from "node:assert/strict";
import { test } from "node:test";
import { folder } from "../../lib/khala.mjs";
import { operate, renewed } from "../../lib/operator.mjs";
import { range } from "../../lib/samples.mjs";
import { Program } from "./program.mjs";

const ROOM = "room:1";
const say = (operator, ...numbers) => operator.batch(numbers.map((n) => ({ topic: ROOM, event_type: "said", payload: { n } })));
const follow = (t, operator, START, more = {}) => Program.start(t, operator.server.url, { token: operator.reader, topics: [ROOM], ...more, environment: { START, ...more.environment } });
const numbers = (program, member) => program.all(member).map((line) => line[member].payload.n);

test("a topic starts at its head or at a time, and the application learns when it has caught up", async (t) => {
  const operator = await operate(t);
  await say(operator, ...range(1, 5));
  const head = follow(t, operator, "head");
  const since = follow(t, operator, "1h");
  const future = follow(t, operator, "2999-01-01T00:00:00Z", { loop: "given" });
  for (const program of [head, since, future]) await program.lines.until(() => program.all("caught_up").length > 0, "the end of the replay");
  await say(operator, 6, 7);
  for (const program of [head, since, future]) await program.lines.until(() => numbers(program, "frame").at(-1) === 7, "the new frames");
  assert.deepEqual([head, since, future].map((program) => numbers(program, "frame")), [[6, 7], range(1, 7), [6, 7]]);
  assert.deepEqual([head, since, future].map((program) => program.all("reset").map(({ reset }) => [reset.reason, reset.from_seq, reset.truncated])),
    [[["start", 6, false]], [["start", 1, false]], [["start", 6, false]]]);
  assert.ok(since.lines.all.findIndex((line) => "caught_up" in line) > since.lines.all.findIndex((line) => line.frame?.payload.n === 5), "after the replay");
  const stored = follow(t, operator, "head", { stored: JSON.stringify({ epoch: head.all("saved")[0].saved.epoch, seq: 2 }) });
  await stored.lines.until(() => numbers(stored, "frame").length === 5, "frames after the stored position");
  assert.deepEqual(stored.all("reset"), [], "a stored position comes before the head");
  for (const program of [head, since, future, stored]) assert.equal(await program.close(), 0);
});

test("topics of a run and a worker that do not exist yet begin with their first event", async (t) => {
  const operator = await operate(t);
  const token = operator.sign({ oa_sync_scopes: ["runtime.run_events", "runtime.worker_lifecycle_events"], oa_user_id: "ada" });
  const topics = ["run:later:events", "worker:later:lifecycle"];
  const programs = [["", "own"], ["head", "given"]].map(([START, loop]) => follow(t, operator, START, { token, topics, loop, environment: START ? {} : { START: undefined } }));
  for (const program of programs) await program.lines.until(() => program.all("warning").length === 2, "two warnings");
  await operator.did("runs", { run_id: "later", owner_user_id: "ada" }, 201);
  await operator.did("workers", { worker_id: "later", owner_user_id: "ada" }, 201);
  await operator.did("runs/later/events", { event_type: "run.log", payload: { n: 1 } });
  for (const program of programs) {
    await program.lines.until(() => program.all("frame").length >= 3, "the frames");
    assert.deepEqual(program.all("warning").map(({ warning, topic }) => [warning, topic]).sort(), topics.map((topic) => ["topic_pending", topic]));
    assert.deepEqual(program.seen(topics[0]).frames.map(({ seq }) => seq), [1, 2]);
    assert.deepEqual(program.all("reset").map(({ reset }) => [reset.reason, reset.from_seq, reset.truncated]), [["start", 1, false], ["start", 1, false]]);
    assert.equal(await program.close(), 0);
  }
});

test("a topic starts at a time in a log that has had several epochs", async (t) => {
  const first = await operate(t);
  await say(first, ...range(1, 5));
  const operator = await renewed(t, first);
  await say(operator, 6, 7);
  const since = follow(t, operator, "1h");
  await since.lines.until(() => numbers(since, "frame").length === 7, "the frames");
  assert.deepEqual(since.all("reset").map(({ reset }) => [reset.reason, reset.from_seq, reset.truncated]), [["start", 1, false]]);
  assert.equal(await since.close(), 0);
});

test("a time that is no time ends the topic, and one before the floor resets it", async (t) => {
  const operator = await operate(t, { settings: { RUNTIME_KHALA_FALLBACK_REPLAY_BUDGET_EVENTS: "3" } });
  await say(operator, ...range(1, 9));
  const rubbish = follow(t, operator, "yesterday");
  await rubbish.lines.until(() => rubbish.all("end").length > 0, "the end");
  assert.equal(rubbish.all("end")[0].end, "bad_subscription");
  const early = follow(t, operator, "1h");
  await early.lines.until(() => early.all("caught_up").length > 0, "the end of the replay");
  assert.deepEqual(early.all("reset").map(({ reset }) => [reset.reason, reset.from_seq]), [["replay_budget_exceeded", 7]]);
  assert.deepEqual(numbers(early, "frame"), [7, 8, 9]);
  for (const program of [rubbish, early]) assert.equal(await program.close(), 0);
});

test("the log is followed over restarts, from its beginning, its head or a cursor", async (t) => {
  const data = folder(t);
  let operator = await operate(t, { data });
  const { port } = operator.server;
  await say(operator, ...range(1, 5));
  const log = (START, loop = "own") => follow(t, operator, START, { topics: [], loop, environment: { LOG: "1", ...(START ? {} : { START: undefined }) } });
  const whole = log("");
  await whole.lines.until(() => whole.all("event").length === 5, "the log");
  const [, second] = whole.all("event");
  const rest = log(`after ${second.cursor}`, "given");
  await rest.lines.until(() => rest.all("event").length === 3, "the rest");
  const refused = log("after rubbish");
  await refused.lines.until(() => refused.all("end").length > 0, "the end");
  assert.equal(refused.all("end")[0].end, "TALOS_INVALID_CURSOR");
  await operator.server.crash();
  operator = await operate(t, { data, args: ["--bind", `127.0.0.1:${port}`] });
  await say(operator, 6);
  for (const program of [whole, rest]) await program.lines.until(() => numbers(program, "event").at(-1) === 6, "the event after the restart");
  assert.deepEqual([whole, rest].map((program) => numbers(program, "event")), [range(1, 6), range(3, 6)]);
  assert.deepEqual(whole.all("event").map(({ cursor, event }) => cursor === event.cursor), Array(6).fill(true));
  for (const program of [whole, rest, refused]) assert.equal(await program.close(), 0);
});
