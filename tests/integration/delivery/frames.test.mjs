// One frame on every transport: the same members with the same bytes on the Phoenix socket, the topic
// WebSocket, polls and event streams, live and replayed after a restart.
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { test } from "node:test";
import { operate } from "../../lib/operator.mjs";
import { pollPath, snapshotPath, socketPath, streamPath } from "../../lib/paths.mjs";
import { Client } from "../../lib/phoenix.mjs";
import { Socket } from "../../lib/socket.mjs";
import { Stream } from "../../lib/sse.mjs";

// ---- the table ----

const OWNER = { owner_user_id: "ada" };
const RUN = "r \"1\""; // a name that JSON escapes
const RUN_KINDS = ["run.started", "run.log", "run.log", "run.cancel_requested", "run.finished"];
const WORKER_KINDS = ["worker.registered", "worker.response", "worker.error", "worker.heartbeat"];

/** Each topic, the kind and the entity seq of each of its frames, and what its frames have in common. */
const TOPICS = [
  { topic: `run:${RUN}:events`, kinds: RUN_KINDS, entity: "run", id: RUN, key: (seq) => `runtime/run_event:${RUN}:${seq}` },
  { topic: "worker:w:lifecycle", kinds: WORKER_KINDS, entity: "worker", id: "w", key: (seq) => `runtime/codex_worker_event:w:${seq}` },
  { topic: "runtime.codex_worker_events", kinds: WORKER_KINDS, entity: "worker", id: "w", key: (seq) => `runtime/codex_worker_event:w:${seq}` },
  { topic: "runtime.notifications", kinds: ["notification"], entity: "topic", id: "runtime.notifications", key: () => null },
  { topic: "chat:lobby", kinds: ["said", "said"], entity: "topic", id: "chat:lobby", key: () => null },
  { topic: "runtime.run_summaries", summaryOf: RUN_KINDS, entity: "run", id: RUN, kind: "run_summary", key: () => `runtime/run_summary:${RUN}` },
  { topic: "runtime.codex_worker_summaries", summaryOf: WORKER_KINDS, entity: "worker", id: "w", kind: "codex_worker_summary", key: () => "runtime/codex_worker_summary:w" },
  { topic: "fleet:user:ada:workers", summaryOf: WORKER_KINDS, entity: "worker", id: "w", kind: "codex_worker_summary", key: () => "runtime/codex_worker_summary:w" },
];
const MEMBER = { run: "run_id", worker: "worker_id", topic: "topic" };

/** The events of the log by entity and seq, in the form of the list. */
async function append(operator) {
  await operator.did("runs", { run_id: RUN, ...OWNER }, 201);
  await operator.did("workers", { worker_id: "w", ...OWNER }, 201);
  await operator.batch([
    { run_id: RUN, event_type: "run.log", payload: { line: 1, "é": "ü\u0001" } },
    { run_id: RUN, event_type: "run.log", payload: { line: 2 } },
    { run_id: RUN, event_type: "run.cancel_requested" },
    { worker_id: "w", event_type: "worker.response", payload: { ok: true } },
    { worker_id: "w", event_type: "worker.error", payload: { ok: true } },
    { topic: "chat:lobby", event_type: "said", payload: { text: "hi" } },
  ]);
  await operator.did(`runs/${encodeURIComponent(RUN)}/events`, { event_type: "run.finished", payload: { status: "canceled" } });
  await operator.did("workers/w/heartbeat", { metadata_patch: { host: "a" } });
  await operator.did("notifications", { payload: { text: "note" }, ...OWNER });
  await operator.did("topics/chat:lobby/events", { event_type: "said", payload: { text: "bye" } });
}

const byCodePoint = (a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b));

function canonical(value) {
  if (Array.isArray(value)) return `[${value.map(canonical).join(",")}]`;
  if (value === null || typeof value !== "object") return JSON.stringify(value);
  return `{${Object.keys(value).sort(byCodePoint).map((key) => `${JSON.stringify(key)}:${canonical(value[key])}`).join(",")}}`;
}

const hashOf = (payload) => `sha256:${createHash("sha256").update(canonical(payload)).digest("hex")}`;

// ---- the transports ----

/** The members that each dialect adds to a frame, and the seq that they repeat. */
const OWN = {
  phoenix: { watermark: (frame) => frame.seq, hydration_required: () => false },
  topic_ws: { type: () => "message", after: (frame) => frame.seq - 1, sequence: (frame) => frame.seq, published_at: (frame) => frame.projected_at },
  poll: { sequence: (frame) => frame.seq, published_at: (frame) => frame.projected_at },
  sse: { after: (frame) => frame.seq - 1, sequence: (frame) => frame.seq, published_at: (frame) => frame.projected_at },
};

/** The frame without the members of its dialect, which are checked; members keep their order. */
function common(dialect, message, without = []) {
  const frame = { ...message };
  for (const [name, value] of Object.entries(OWN[dialect]).filter(([name]) => !without.includes(name))) {
    assert.deepEqual(frame[name], value(message), `${dialect} ${name}`);
    delete frame[name];
  }
  return frame;
}

/** Clients of every topic over every transport. frames() answers what each has received. */
async function connect(operator, extra = "") {
  const clients = { sockets: new Map(), streams: new Map() };
  const token = operator.reader;
  clients.phoenix = await Client.join(operator);
  const names = TOPICS.map(({ topic }) => topic);
  const form = extra ? { form: extra.split("=")[1] } : {};
  await clients.phoenix.subscribe({ topics: names, resume_after: Object.fromEntries(names.map((name) => [name, 0])), ...form });
  for (const name of names) {
    const query = `after_seq=0&token=${token}${extra && `&${extra}`}`;
    clients.sockets.set(name, await Socket.open(operator, socketPath(name, query)));
    clients.streams.set(name, await Stream.open(operator, streamPath(name, query)));
  }
  return clients;
}

/** The frames of each topic on each transport, once all have arrived. */
async function gather(operator, clients, heads, extra = "") {
  const frames = new Map();
  for (const { topic } of TOPICS) {
    const head = heads.get(topic);
    const socket = clients.sockets.get(topic);
    const stream = clients.streams.get(topic);
    await clients.phoenix.until(() => clients.phoenix.run(topic).updates.length === head, `${topic} on phoenix`);
    await socket.until(() => socket.of("message").length === head, `${topic} on its socket`);
    await stream.until(() => stream.messages.length === head, `${topic} on its stream`);
    const poll = await operator.read(pollPath(topic, `after_seq=0&limit=200${extra && `&${extra}`}`));
    frames.set(topic, {
      phoenix: clients.phoenix.run(topic).updates,
      topic_ws: socket.of("message"),
      poll: poll.messages,
      sse: stream.messages.map((event) => event.data),
    });
  }
  return frames;
}

/** The head of each topic. A summary may cover several events, so only the server knows it. */
async function headsOf(operator) {
  const heads = new Map();
  for (const { topic } of TOPICS) heads.set(topic, (await operator.read(pollPath(topic, "after_seq=0&limit=1"))).head_cursor);
  return heads;
}

// ---- what a frame must be ----

const NAMES = ["topic", "seq", "kind", "doc_key", "payload", "payload_hash", "doc_version", "entity", "entity_id", "entity_seq",
  "event_id", "cursor", "recorded_at", "runtime_source", "projected_at", "projection_version"];

function checkFrame(row, frame, seq, log) {
  const event = log.get(`${row.entity}:${row.id}:${frame.entity_seq}`);
  const { seq_range: range, ...rest } = frame;
  assert.deepEqual(Object.keys(rest).sort(), [...NAMES].sort(), `${row.topic} ${seq}`);
  assert.equal(frame.topic, row.topic);
  assert.equal(frame.seq, seq);
  assert.equal(frame.kind, row.kind ?? row.kinds[seq - 1]);
  assert.deepEqual([frame.entity, frame.entity_id, frame.doc_key], [row.entity, row.id, row.key(frame.entity_seq)]);
  assert.deepEqual(frame.runtime_source, { entity: row.entity, [MEMBER[row.entity]]: row.id, seq: frame.entity_seq });
  assert.equal(frame.projection_version, "khala_summary_v2");
  assert.equal(frame.payload_hash, hashOf(frame.payload), `the hash of ${row.topic} ${seq}`);
  for (const name of ["event_id", "cursor", "recorded_at"]) assert.equal(frame[name], event[name], name);
  assert.ok(Number.isSafeInteger(frame.projected_at) && frame.projected_at >= frame.recorded_at);
  if (row.summaryOf) {
    assert.deepEqual(frame.payload.runtime_source, frame.runtime_source);
    assert.equal(frame.payload.projected_at, frame.projected_at);
    assert.equal(frame.payload.latest_event_type, row.summaryOf[frame.entity_seq - 1]);
  } else {
    assert.deepEqual([frame.entity_seq, frame.doc_version, range], [seq, seq, undefined]);
    assert.equal(frame.kind, event.event_type);
    assert.deepEqual(frame.payload, event.payload);
  }
}

/** The ranges of a document's frames follow each other from its first event to its last. */
function checkRanges(row, frames) {
  let through = 0;
  for (const [index, frame] of frames.entries()) {
    const [first, last] = frame.seq_range ?? [frame.entity_seq, frame.entity_seq];
    assert.deepEqual([first, last], [through + 1, frame.entity_seq], `${row.topic} ${frame.seq}`);
    assert.equal(frame.doc_version, index + 1);
    through = last;
  }
  assert.equal(through, row.summaryOf.length);
  assert.ok(frames.some((frame) => frame.seq_range), `${row.topic} has a frame of several events`);
}

function checkTopics(frames, log, heads) {
  for (const row of TOPICS) {
    const all = Object.entries(frames.get(row.topic)).map(([dialect, messages]) => [dialect, messages.map((one) => common(dialect, one))]);
    const [, [, first]] = [null, all[0]];
    assert.equal(first.length, heads.get(row.topic));
    first.forEach((frame, i) => checkFrame(row, frame, i + 1, log));
    if (row.summaryOf) checkRanges(row, first);
    else assert.equal(first.length, row.kinds.length);
    for (const [dialect, messages] of all) {
      assert.deepEqual(messages.map((one) => JSON.stringify(one)), first.map((one) => JSON.stringify(one)), `${row.topic} on ${dialect}`);
    }
  }
}

const bytesOf = (frames) => JSON.stringify([...frames.entries()]);

test("a frame is the same on every transport, live and after a restart", async (t) => {
  const settings = { RUNTIME_KHALA_POLL_MIN_INTERVAL_MS: "0" };
  let operator = await operate(t, { settings });
  let clients = await connect(operator);
  await append(operator);
  const heads = await headsOf(operator);
  const live = await gather(operator, clients, heads);
  const log = new Map((await operator.log()).map((event) => [`${event.entity}:${event.entity_id}:${event.seq}`, event]));
  checkTopics(live, log, heads);
  await operator.server.stop();
  operator = await operate(t, { data: operator.data, settings });
  clients = await connect(operator);
  const replayed = await gather(operator, clients, heads);
  assert.equal(bytesOf(replayed), bytesOf(live));

  await t.test("a document at one version has one payload and hash everywhere", async () => {
    for (const row of TOPICS.filter(({ summaryOf }) => summaryOf)) {
      const last = replayed.get(row.topic).phoenix.at(-1);
      const route = row.entity === "run" ? "run-summary" : "worker-summary";
      assert.deepEqual(await operator.read(`projectors/${route}/${encodeURIComponent(row.id)}`), last.payload);
      if (row.topic.startsWith("fleet:")) continue;
      const { documents } = await operator.read(snapshotPath(row.topic));
      assert.deepEqual(documents.map((one) => [one.doc_key, one.doc_version, one.payload_hash, one.payload]),
        [[last.doc_key, last.doc_version, last.payload_hash, last.payload]]);
    }
  });

  await t.test("a lean frame has what applications need of an event, or of a document", async () => {
    const lean = await gather(operator, await connect(operator, "form=lean"), heads, "form=lean");
    for (const { topic, summaryOf } of TOPICS) {
      const expected = replayed.get(topic).poll.map(({ seq, kind, event_id, recorded_at, doc_key, doc_version, seq_range, payload }) =>
        JSON.stringify({ seq, kind, event_id, recorded_at, ...(summaryOf ? { doc_key, doc_version, ...(seq_range && { seq_range }) } : {}), payload }));
      for (const [dialect, messages] of Object.entries(lean.get(topic))) {
        const frames = messages.map((one) => (dialect === "topic_ws" ? common(dialect, one, ["after", "sequence", "published_at"]) : one));
        assert.deepEqual(frames.map((one) => JSON.stringify(one)), expected, `${topic} on ${dialect}`);
      }
    }
  });

  await t.test("an unknown form is refused, and full is the default", async () => {
    const [{ topic }] = TOPICS;
    for (const form of ["slim", "", "lean".repeat(9)]) {
      assert.equal((await operator.poll(topic, `form=${form}`)).status, 400);
      assert.equal((await Socket.refused(operator, socketPath(topic, `form=${form}&token=${operator.reader}`))).status, 400);
      assert.equal((await operator.get(streamPath(topic, `form=${form}`))).status, 400);
    }
    for (const form of ["slim", 1, ["lean"]]) {
      assert.equal((await clients.phoenix.refused("sync:subscribe", { topics: [topic], form })).code, "bad_subscription");
    }
    const { messages } = await operator.read(pollPath(topic, "after_seq=0&form=full"));
    assert.deepEqual(messages, replayed.get(topic).poll);
  });
});
