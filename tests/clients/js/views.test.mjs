// How topics and collections are delivered: lean frames, collections with different filters, and servers that do not know
// the parameters for them.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import WebSocket from "ws";
import { operateRun } from "../../lib/operator.mjs";
import { TOPIC } from "../../lib/samples.mjs";
import { follow, frames, open, TRANSPORTS } from "./client.mjs";

const SUMMARIES = "runtime.run_summaries";
const LEAN = ["event_id", "kind", "payload", "recorded_at", "seq"];
const ends = [];
let operator;
before(async () => {
  operator = await operateRun({ after: (act) => ends.unshift(act) }, { count: 5 });
});
after(async () => {
  for (const act of ends) await act();
});
const of = (one = operator) => ({ server: one.server, sign: (claims) => one.sign(claims) });

for (const transport of TRANSPORTS) {
  test(`frames are lean unless the client, the topic or the collection asks for full ones, over ${transport}`, async (t) => {
    const lean = follow(open(t, of(), { transports: [transport] }), TOPIC);
    await frames(lean, 5);
    for (const frame of lean.frames) assert.deepEqual(Object.keys(frame).sort(), LEAN);
    const full = [follow(open(t, of(), { transports: [transport] }), TOPIC, { form: "full" }), follow(open(t, of(), { transports: [transport], form: "full" }), TOPIC)];
    for (const one of full) {
      await frames(one, 5);
      for (const { topic, payload_hash, entity_seq, seq } of one.frames) assert.deepEqual([topic, payload_hash.length, entity_seq], [TOPIC, 71, seq]);
    }
    assert.deepEqual(full[0].frames.map(({ event_id }) => event_id), lean.frames.map(({ event_id }) => event_id));
    const summaries = follow(open(t, of(), { transports: [transport] }), SUMMARIES, { from: { since: "1h" } });
    await frames(summaries, 1);
    assert.deepEqual(Object.keys(summaries.frames[0]).filter((name) => name !== "seq_range").sort(), ["doc_key", "doc_version", ...LEAN].sort());
  });
}

test("a poll is repeated without the parameters that an older server does not know", async (t) => {
  const unknown = ["form", "fold", "conflate_ms"];
  const refused = [];
  const old = async (address, init) => {
    const parameter = unknown.find((name) => new URL(address).searchParams.has(name));
    if (!parameter) return fetch(address, init);
    refused.push(parameter);
    const body = { error: "unknown_parameter", message: "x", request_id: "1", details: { parameter } };
    return new Response(JSON.stringify(body), { status: 400, headers: { "content-type": "application/json" } });
  };
  const khala = open(t, of(), { transports: ["poll"], fetch: old });
  const seen = follow(khala, TOPIC, { fold: true });
  await frames(seen, 5);
  const runs = khala.collection(SUMMARIES);
  t.after(runs.open());
  await runs.ready;
  assert.equal(runs.get("a").latest_seq, 5);
  assert.deepEqual([...new Set(refused)].sort(), [...unknown].sort());
  assert.deepEqual(seen.resets.map(({ reason }) => reason), ["start"]);
});

test("collections of one topic with different filters have connections of their own, and end with them", async (t) => {
  const sockets = new Set();
  class Counted extends WebSocket {
    constructor(...given) {
      super(...given);
      sockets.add(this);
      this.addEventListener("close", () => sockets.delete(this));
    }
  }
  const asked = [];
  const send = Counted.prototype.send;
  Counted.prototype.send = function sendCounted(text) {
    const [, , , event, body] = JSON.parse(text);
    if (event === "sync:subscribe") asked.push([body.topics, body.where, body.conflate_ms, body.form]);
    return send.call(this, text);
  };
  const khala = open(t, of(), { WebSocket: Counted });
  assert.equal(khala.collection(SUMMARIES, { where: {} }), khala.collection(SUMMARIES));
  const one = khala.collection(SUMMARIES, { where: { status: "running", worker_id: ["w"] } });
  assert.equal(one, khala.collection(SUMMARIES, { where: { worker_id: ["w"], status: "running" } }));
  const stops = [khala.collection(SUMMARIES), one, khala.collection(SUMMARIES, { where: { status: "failed" }, conflateMs: 100 })].map((all) => all.open());
  await khala.collection(SUMMARIES).ready;
  await one.ready;
  await khala.collection(SUMMARIES, { where: { status: "failed" }, conflateMs: 100 }).ready;
  assert.equal(sockets.size, 3);
  assert.deepEqual(asked, [
    [[SUMMARIES], undefined, 250, "lean"],
    [[SUMMARIES], { status: "running", worker_id: ["w"] }, 250, "lean"],
    [[SUMMARIES], { status: "failed" }, 100, "lean"],
  ]);
  for (const stop of stops) stop();
  await khala.close();
});
