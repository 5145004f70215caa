// Producers that repeat every event until it is acknowledged, by HTTP at any node or by SQL in their own
// transactions. The world of a test has a ledger, a cluster and dice. isQuiet ends the producers when all
// events are acknowledged, over ends them at once.
import assert from "node:assert/strict";
import { textOf } from "./operator.mjs";
import { bodyOf, lineOf } from "./oracle.mjs";

const ANSWER_MS_MAX = 6_000; // a node that was stopped never answers
const RETRY_MS = 30;
const BATCH_MAX = 20;
// A node without a writer, a full queue, a store that is away. The event is sent again.
const RETRIED = [429, 424, 503];

const pause = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

/** Sends a request to an operator; rejects when no whole answer comes in time. */
async function ask(operator, path, text, headers = {}, answerMs = ANSWER_MS_MAX) {
  const { request, answer } = operator.begin("POST", path, headers);
  const timer = setTimeout(() => request.destroy(new Error("no answer in time")), answerMs);
  try {
    request.end(text);
    const response = await answer;
    return { status: response.statusCode, body: await textOf(response) };
  } finally {
    clearTimeout(timer);
  }
}

/** Counts an answer that makes a producer try again; any other refusal fails the test. */
function refused(world, status, error) {
  assert.ok(RETRIED.includes(status), `a producer got ${status}: ${JSON.stringify(error)}`);
  world.count(`${status} ${error?.error ?? error?.code}`);
}

/** Sends one event. Answers whether it was acknowledged. */
export async function appendOne(world, operator, event, answerMs) {
  const path = event.run_id ? `runs/${event.run_id}/events` : `topics/${event.topic}/events`;
  const { status, body } = await ask(operator, path, JSON.stringify(bodyOf(event)), {}, answerMs);
  if (status === 200) world.ledger.acknowledge(event, JSON.parse(body));
  else refused(world, status, JSON.parse(body));
  return status === 200;
}

async function appendBatch(world, operator, events) {
  const { status, body } = await ask(operator, "events:batch", events.map(lineOf).join(""), { "content-type": "application/x-ndjson" });
  if (status !== 200) return refused(world, status, JSON.parse(body));
  const items = body.trim().split("\n").map((line) => JSON.parse(line));
  for (const item of items) {
    if (item.status === 200) world.ledger.acknowledge(events[item.index], item);
    else refused(world, item.status, item.error ?? item);
  }
}

/** Appends to any node until the world is quiet, and repeats each event until it is acknowledged. */
export async function produceByHttp(world) {
  const { ledger, dice } = world;
  while (!world.over && (!world.isQuiet || ledger.unknown.length > 0)) {
    let events = ledger.unknown.splice(0, BATCH_MAX);
    if (events.length === 0) events = Array.from({ length: dice.random() < 0.2 ? 1 + dice.below(BATCH_MAX) : 1 }, () => ledger.make(world.target()));
    while (events.length > 0 && !world.over) {
      const { operator } = dice.pick(world.cluster.nodes);
      try {
        if (events.length === 1) await appendOne(world, operator, events[0]);
        else await appendBatch(world, operator, events);
      } catch (error) {
        if (error instanceof assert.AssertionError) throw error;
        world.count("no answer");
      }
      events = events.filter((event) => !ledger.acknowledged.has(event.id));
      world.changed();
      await pause(events.length > 0 ? RETRY_MS : world.paceMs);
    }
  }
}

const callOf = ({ id, n, run_id, topic }) => (run_id
  ? `SELECT runtime.append_run_event('${run_id}', 'step', '{"n":${n}}', '${id}')`
  : `SELECT runtime.append_event('${topic}', 'step', '{"n":${n}}', '${id}')`);

/** Appends by SQL in transactions, of which some are rolled back, until the world is quiet. */
export async function produceBySql(world) {
  const { ledger, dice } = world;
  let session = world.cluster.session();
  while (!world.isQuiet) {
    const events = Array.from({ length: 1 + dice.below(4) }, () => ledger.make(world.target()));
    const isKept = dice.random() < 0.85;
    for (let isDone = false; !isDone && !world.over;) {
      try {
        await session.run("BEGIN", ...events.map(callOf), isKept ? "COMMIT" : "ROLLBACK");
        isDone = true;
      } catch (error) {
        // Without an answer to COMMIT the transaction may have committed. The same ids make a repetition safe.
        assert.doesNotMatch(error.message, /: KH\d/, "the function refused an event");
        world.count("SQL session lost");
        session.close();
        await pause(RETRY_MS);
        session = world.cluster.session();
        isDone = !isKept;
      }
    }
    for (const { id } of events) {
      if (isKept) ledger.acknowledged.set(id, ledger.acknowledged.get(id) ?? null);
      else ledger.withdrawn.add(id);
    }
    world.changed();
    await pause(world.paceMs);
  }
  session.close();
}
