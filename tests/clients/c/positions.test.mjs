// Positions of libkhala that a scenario of all libraries cannot give: without an epoch, as a text of the server, at a head or
// a time; topics that do not exist yet; and refusals of several topics at once.
import assert from "node:assert/strict";
import http from "node:http";
import { describe, test } from "node:test";
import { WebSocketServer } from "ws";
import { range } from "../../lib/samples.mjs";
import { ScriptedServer } from "../scripted.mjs";
import { Program } from "./program.mjs";
import { play } from "./scenario.mjs";

const TOPIC = "room:1";
const EPOCH = "epoch-1";
const join = { join: "ok" };
const frame = (seq) => ({ seq, kind: "said", event_id: `event-${seq}`, payload: { n: seq } });
const batch = (after, through, more = {}) => ({ send: "sync:update_batch", payload: {
  topic: TOPIC, after, through, updates: range(after + 1, through).map(frame), epoch: EPOCH, replay_complete: true, head_watermarks: [], ...more } });
const stale = (...reasons) => ({ code: "stale_cursor", message: "The cursor is stale.", reason_codes: reasons,
  stale_topics: [{ topic: TOPIC, stream_id: "runtime.topic.room.1", reason_codes: reasons, epoch: EPOCH }] });
const reset = (reason, from_seq, truncated = false) => ({ reset: { reason, from_seq, truncated } });
const bootstrap = { epoch: EPOCH, bootstrap: { from_seq: 1, truncated: false } };
const without = (seq) => ({ seq });
const at = (seq) => ({ epoch: EPOCH, seq });

const LATER_REASON = `a_reason_of_a_later_server_${"x".repeat(60)}`;

const scenarios = [
  { name: "a position without an epoch is sent without one, and takes the epoch of the server", START: "after 5",
    steps: [join, { subscribe: without(5), window: { epoch: EPOCH } }, batch(5, 6)], events: [{ frame: 6 }] },
  { name: "a server that names no epoch is believed in the first range", START: "after 5",
    steps: [join, { subscribe: without(5), window: {} }, batch(5, 6)], events: [{ frame: 6 }] },
  { name: "a position that needs an epoch is replaced by a bootstrap", START: "after 15",
    steps: [join, { subscribe: without(15), error: stale("epoch_required") }, { subscribe: null, window: bootstrap }, batch(0, 1)],
    events: [reset("epoch_required", 1), { frame: 1 }] },
  { name: "a stale position is replaced for a reason that the library does not know", stored: at(5), position: at(1),
    steps: [join, { subscribe: at(5), error: stale(LATER_REASON, "another") }, { subscribe: null, window: bootstrap }, batch(0, 1)],
    events: [reset(LATER_REASON.slice(0, 63), 1), { frame: 1 }] },
  { name: "a stored text of the server is a position", stored: `5@${EPOCH}`, position: at(6),
    steps: [join, { subscribe: at(5), window: { epoch: EPOCH } }, batch(5, 6)], events: [{ frame: 6 }] },
  { name: "a stored number is a position without an epoch", stored: "5", position: at(6),
    steps: [join, { subscribe: without(5), window: { epoch: EPOCH } }, batch(5, 6)], events: [{ frame: 6 }] },
  { name: "a stored object without an epoch is a position without one", stored: { seq: 5 }, position: at(6),
    steps: [join, { subscribe: without(5), window: { epoch: EPOCH } }, batch(5, 6)], events: [{ frame: 6 }] },
  { name: "positions of the server may be texts with their epoch", START: "1h", stored: null, position: at(8),
    steps: [join, { subscribe: null, window: { resume_after: `4@${EPOCH}` } },
      batch(4, 6, { epoch: undefined, after: `4@${EPOCH}`, through: `6@${EPOCH}` }),
      { send: "sync:heartbeat", payload: { covered: [{ topic: TOPIC, after: `6@${EPOCH}`, through: `8@${EPOCH}` }], watermarks: [] } }],
    events: [reset("start", 5), { frame: 5 }, { frame: 6 }] },
  { name: "a range whose two texts have different epochs is a gap", stored: at(5), position: at(6),
    steps: [join, { subscribe: at(5), window: { epoch: EPOCH } }, batch(5, 6, { epoch: undefined, after: "5@epoch-0", through: `6@${EPOCH}` }),
      { subscribe: at(5), window: { epoch: EPOCH } }, batch(5, 6)], events: [{ frame: 6 }] },
  ...["", "head", "1h", "start"].map((START) => ({
    name: `a topic that does not exist yet begins with its first frame, from ${START || "the beginning"}`, START, stored: null, position: at(3),
    steps: [join, { subscribe: null, window: { epoch: EPOCH, pending: true } }, batch(0, 2), batch(2, 3)],
    events: [reset("start", 1), { frame: 1 }, { frame: 2 }, { frame: 3 }], warnings: ["topic_pending"] })),
  { name: "a topic that does not exist after a reconnect either is warned of once", START: "head", stored: null, position: at(1),
    steps: [join, { subscribe: null, window: { epoch: EPOCH, pending: true } }, { drop: true }],
    more: [[join, { subscribe: null, window: { epoch: EPOCH, pending: true } }, batch(0, 1)]],
    events: [reset("start", 1), { frame: 1 }], warnings: ["topic_pending"] },
  { name: "a position in a topic that does not exist yet is kept, until the server knows better", stored: at(5), position: at(1),
    steps: [join, { subscribe: at(5), window: { epoch: EPOCH, pending: true } }, { send: "sync:error", payload: stale("cursor_ahead_of_head") },
      { subscribe: null, window: bootstrap }, batch(0, 1)],
    events: [reset("cursor_ahead_of_head", 1), { frame: 1 }], warnings: ["topic_pending"] },
];

describe("positions", { concurrency: 8 }, () => {
  for (const [index, { name, START, steps, more = [], stored = null, ...scenario }] of scenarios.entries()) {
    const environment = START ? { START } : {};
    test(name, (t) => play(t, { ...scenario, stored, connections: [steps, ...more] }, TOPIC, { loop: index % 2 ? "given" : "own", environment }));
  }
});


/** A server that answers each subscription of the channel with what the test says for its topics. */
async function subscribed(t, answer) {
  const server = http.createServer();
  const sockets = new WebSocketServer({ server });
  const asked = [];
  sockets.on("connection", (socket) => socket.on("message", (data) => {
    const [join_ref, ref, channel, event, { topics } = {}] = JSON.parse(data);
    if (event === "sync:subscribe") asked.push(topics);
    const [status, response] = event === "sync:subscribe" ? answer(topics) : ["ok", {}];
    socket.send(JSON.stringify([join_ref, ref, channel, "phx_reply", { status, response }]));
  }));
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => {
    for (const socket of sockets.clients) socket.terminate();
    server.close();
  });
  const send = (payload) => sockets.clients.forEach((socket) => socket.send(JSON.stringify([null, null, "sync:v1", "sync:update_batch", payload])));
  return { url: `http://127.0.0.1:${server.address().port}`, asked, send };
}

test("topics that are refused together get their own code and message each", async (t) => {
  const reasons = { "room:1": "missing_scope", "room:2": "forbidden_topic", "room:3": "owner_mismatch" };
  const server = await subscribed(t, (topics) => {
    const refused = topics.filter((topic) => reasons[topic]);
    const [first] = refused;
    if (!first) return ["ok", { windows: topics.map((topic) => ({ topic, ...bootstrap })) }];
    return ["error", { code: "forbidden_topic", reason_code: reasons[first], message: `The reason is ${reasons[first]}.`, forbidden_topics: refused }];
  });
  const program = Program.start(t, server.url, { token: "token", topics: [...Object.keys(reasons), "room:4"] });
  await program.lines.until(() => program.all("end").length === 3 && program.all("reset").length === 1, "three ends and a start");
  assert.deepEqual(program.all("end").map(({ of, end, message }) => [of, end, message]).sort(),
    Object.entries(reasons).map(([topic, code]) => [topic, code, `The reason is ${code}.`]));
  assert.equal(program.all("reset")[0].topic, "room:4");
  assert.equal(await program.close(), 0);
});

test("an error that no close followed is not the reason of a later close", async (t) => {
  const error = { send: "sync:error", payload: { code: "rate_limited", message: "Too many messages." } };
  const resumed = (seq) => [join, { subscribe: at(seq), window: { epoch: EPOCH } }];
  const connections = [[join, { subscribe: null, window: bootstrap }, error, { close: 1013 }], [...resumed(0), error, batch(0, 1), { close: 1012 }], resumed(1)];
  const server = await ScriptedServer.start(t, { connections }, TOPIC);
  const program = Program.start(t, server.url, { token: "token", topics: [TOPIC], environment: { START: "start" } });
  program.lines.failure = () => server.error;
  server.listener = () => program.lines.changed();
  const reasons = () => program.all("state").map((one) => one.error).filter((code, i, all) => code && code !== all[i - 1]);
  await program.lines.until(() => reasons().length >= 2, "two closes");
  assert.deepEqual(reasons(), ["rate_limited", "closed_1012"]);
  assert.equal(await program.close(), 0);
});

test("a reply without windows may say that its topics do not exist yet", async (t) => {
  const server = await subscribed(t, () => ["ok", { pending: true, windows: [] }]);
  const program = Program.start(t, server.url, { token: "token", topics: [TOPIC] });
  await program.lines.until(() => program.all("warning").length === 1, "the warning");
  assert.deepEqual(program.all("warning").map(({ warning, topic }) => [warning, topic]), [["topic_pending", TOPIC]]);
  server.send(batch(0, 2).payload);
  await program.lines.until(() => program.all("frame").length === 2, "the frames");
  assert.deepEqual([server.asked.length, program.all("reset").map(({ reset: { from_seq } }) => from_seq)], [1, [1]]);
  assert.equal(await program.close(), 0);
});
