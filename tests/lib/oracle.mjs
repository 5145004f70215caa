// The judge of tests that end servers: every acknowledged event is in the log, once, at its sequence,
// and each follower received its part of the log completely and in order.
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { LOG, SUMMARIES } from "./followers.mjs";
import { pollPath } from "./paths.mjs";

/** A new lower-case UUIDv7. */
export const uuid7 = () => randomUUID().replace(/^.{15}/, `${Date.now().toString(16).padStart(12, "0").replace(/^(.{8})/, "$1-")}-7`);

/** The events that were sent and acknowledged, and those whose fate is unknown. */
export class Ledger {
  made = 0;
  sent = new Map();
  acknowledged = new Map(); // sequences; of events appended by SQL null
  withdrawn = new Set(); // events of transactions that were rolled back
  unknown = []; // asked again, with the same id
  left = 0; // events that no later question will settle

  /** A new event for {run_id} or {topic}. */
  make(target) {
    const event = { id: uuid7(), n: this.made++, ...target };
    this.sent.set(event.id, event);
    return event;
  }

  acknowledge(event, answer) {
    assert.equal(answer.event.event_id, event.id);
    const before = this.acknowledged.get(event.id);
    assert.ok(before === undefined || before === answer.event.seq, `event ${event.id} was ${before}, now ${answer.event.seq}`);
    this.acknowledged.set(event.id, answer.event.seq);
  }
}

/** The members of an event that a producer sends, without its target. */
export const bodyOf = ({ id, n, pad }) => ({ event_type: "step", event_id: id, payload: { n, ...(pad ? { pad } : {}) } });

/** An event as a line of a batch. */
export const lineOf = ({ run_id, topic, ...event }) => `${JSON.stringify({ ...(run_id ? { run_id } : { topic }), ...bodyOf(event) })}\n`;

const topicOf = (event) => (event.entity === "run" ? `run:${event.entity_id}:events` : event.entity_id);

async function readSummaries(operator) {
  const all = [];
  for (let after = 0; ;) {
    const page = await operator.read(pollPath(SUMMARIES, `after_seq=${after}&limit=200`));
    assert.ok(!page.bootstrap, "the journal of summaries is complete");
    all.push(...page.messages);
    after = page.next_cursor;
    if (page.replay_complete) return all;
  }
}

/** Reads the log: its events, and what a tenant must have received of a topic after a position. */
export async function readAuthority(operator, ownerOf) {
  const response = await operator.get("/api/events/export");
  assert.equal(response.status, 200, response.body);
  const lines = response.body.trim().split("\n").map((one) => JSON.parse(one));
  assert.equal(lines.pop().manifest?.count, lines.length, "the export is complete");
  const topics = new Map();
  for (const event of lines) {
    const topic = topicOf(event);
    if (!topics.has(topic)) topics.set(topic, []);
    topics.get(topic).push(`${event.seq}:${event.event_id}`);
    assert.equal(event.seq, topics.get(topic).length, `${topic} has a gap in the log`);
  }
  const summaries = await readSummaries(operator);
  const isOf = (tenant, owner) => tenant === null || tenant === owner;
  const owner = (event) => (event.entity === "run" ? ownerOf(event.entity_id) : undefined);
  const expected = (tenant, topic, from = 0) => {
    if (topic === LOG) return lines.filter((event) => isOf(tenant, owner(event))).map((event) => event.event_id);
    if (topic !== SUMMARIES) return (topics.get(topic) ?? []).slice(from);
    return summaries.filter((one) => one.sequence > from && isOf(tenant, one.payload.owner_user_id)).map((one) => `${one.sequence}:${one.event_id}`);
  };
  return { lines, expected };
}

/** Asserts that each acknowledged event is in the log once, and that every event in the log was sent. */
export function assertLog(ledger, lines) {
  const found = new Map();
  for (const event of lines) {
    assert.ok(!found.has(event.event_id), `${event.event_id} is there twice`);
    found.set(event.event_id, event.seq);
    const sent = ledger.sent.get(event.event_id);
    assert.ok(sent || event.event_type === "run.started", `no producer sent ${event.event_id}`);
    assert.ok(!ledger.withdrawn.has(event.event_id), `${event.event_id} was rolled back`);
    if (sent) assert.deepEqual(event.payload, bodyOf(sent).payload);
    if (sent) assert.equal(event.entity_id, sent.run_id ?? sent.topic);
  }
  for (const [id, seq] of ledger.acknowledged) {
    assert.ok(found.has(id), `acknowledged event ${id} is gone`);
    if (seq !== null) assert.equal(found.get(id), seq, `acknowledged event ${id} has moved`);
  }
}

/** Waits until a follower has received its part of the log, and compares. Answers how many frames that were. */
export async function assertFollowed(follower, expected) {
  let frames = 0;
  for (const [topic, track] of follower.tracks) {
    const wanted = expected(follower.tenant, topic, track.from);
    await follower.until(() => track.seen.length >= wanted.length && track.at !== null, `receives all of ${topic}, ${wanted.length}`);
    assert.deepEqual(track.seen, wanted, follower.name);
    frames += wanted.length;
  }
  return frames;
}
