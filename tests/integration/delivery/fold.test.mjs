// Folded replay: a reader that asks for fold=true gets deltas joined, and the text of the log, from every position, on every
// transport, in both forms, from the store, from memory and across the seam to live frames.
import assert from "node:assert/strict";
import { test } from "node:test";
import { operate } from "../../lib/operator.mjs";
import { pollPath, socketPath, streamPath } from "../../lib/paths.mjs";
import { Client } from "../../lib/phoenix.mjs";
import { seeded } from "../../lib/seeded.mjs";
import { Socket } from "../../lib/socket.mjs";
import { Stream } from "../../lib/sse.mjs";
import { until } from "../../lib/wait.mjs";

const QUICK = { RUNTIME_KHALA_POLL_MIN_INTERVAL_MS: "0", RUNTIME_KHALA_SLOW_CONSUMER_LAG_THRESHOLD: "1000000" };
const RUN = "answer 1";
const RUN_TOPIC = `run:${RUN}:events`;
const ROOM = "chat:one";

// ---- the events ----

/** Pieces that end inside an emoji's sequence, look like JSON, or need escapes. */
const PIECES = ["Hello", " ", "wörld", "\n", "\"quoted\"", "\\", "\"}", "\",\"id\":\"b", "\u0001\u001f", "👩", "\u200d", "👩", "🏽", "e", "\u0301", "", "日本", "\\u00e9",
  "\u2028"];

const delta = (id, text, more = {}) => ({ event_type: "token.delta", payload: { id, delta: text, ...more } });

/** Every kind of neighbour: what folds, and what ends a run of deltas. */
const STORY = [
  { event_type: "said", payload: { text: "What?" } },
  ...PIECES.map((text) => delta("a", text)),
  delta("b", "one"),
  delta("b", "two"),
  delta("a", "again"),
  { event_type: "other.delta", payload: { id: "a", delta: "another type" } },
  { event_type: "other.delta", payload: { id: "a", delta: "of delta" } },
  delta("a", "x", { role: "tool" }),
  delta("a", "y", { role: "tool" }),
  delta("a", "z", { role: "model" }),
  { event_type: "token.delta", payload: { delta: "no id" } },
  { event_type: "token.delta", payload: { delta: "no id" } },
  { event_type: "token.delta", payload: { id: 7, delta: "no text" } },
  { event_type: "token.delta", payload: { id: 7, delta: "no text" } },
  { event_type: "token.delta", payload: { id: "a", delta: ["no text"] } },
  { event_type: "token.delta", payload: { id: "a", nested: { delta: "n" } } },
  delta("", "empty"),
  delta("", " id"),
  { event_type: "done", payload: { id: "a" } },
];
/** The frames of the story: how many events each stands for. */
const STORY_COUNTS = [1, PIECES.length, 2, 1, 2, 2, 1, 1, 1, 1, 1, 1, 1, 2, 1];

async function tell(operator, items) {
  const said = await operator.batch(items);
  for (const { status, error } of said) assert.equal(status, 200, JSON.stringify(error));
  return said.map(({ event }) => event);
}

/** Appends the story to a run and to a topic, and answers the events of both. */
async function tellBoth(operator) {
  const { event } = await operator.did("runs", { run_id: RUN, owner_user_id: "ada" }, 201);
  const said = await tell(operator, [...STORY.map((one) => ({ run_id: RUN, ...one })), ...STORY.map((one) => ({ topic: ROOM, ...one }))]);
  return new Map([[RUN_TOPIC, [event, ...said.slice(0, STORY.length)]], [ROOM, said.slice(STORY.length)]]);
}

// ---- the oracle ----

/** How many events a frame stands for. */
function countOf(frame) {
  if (!frame.folded) return 1;
  assert.equal(frame.folded.count, frame.seq - frame.folded.from_seq + 1);
  assert.ok(frame.folded.count > 1);
  return frame.folded.count;
}

/** The frames follow each other behind that position, and say what the events say. */
function agrees(frames, events, after, form = "full") {
  let at = after;
  for (const frame of frames) {
    const from = frame.folded?.from_seq ?? frame.seq;
    assert.equal(from, at + 1, `a frame begins at ${from} behind ${at}`);
    at += countOf(frame);
    const covered = events.slice(from - 1, at);
    const last = covered.at(-1);
    assert.equal(frame.kind, last.event_type);
    if (form !== "bytes") assert.deepEqual([frame.event_id, frame.recorded_at], [last.event_id, last.recorded_at]);
    if (form === "full") assert.equal(frame.cursor, last.cursor);
    if (!frame.folded) {
      assert.deepEqual(frame.payload, last.payload);
      if (form === "full") assert.equal(frame.payload_hash, last.payload_hash);
      continue;
    }
    for (const name of ["payload_hash", "doc_key", "doc_version"]) assert.equal(frame[name], undefined, `${name} of a folded frame`);
    for (const one of covered) assert.deepEqual({ ...one.payload, delta: "" }, { ...last.payload, delta: "" });
    for (const one of covered) assert.equal(one.event_type, last.event_type);
    assert.deepEqual(frame.payload, { ...last.payload, delta: covered.map((one) => one.payload.delta).join("") });
  }
  return at;
}

// ---- the transports ----

const formOf = (form) => (form === "lean" ? "&form=lean" : "");

/** The frames that each transport delivers behind a position up to the head, folded. */
const transports = {
  async poll(operator, topic, after, head, form, fold = "true") {
    const frames = [];
    for (let at = after; at < head;) {
      const page = await operator.read(pollPath(topic, `after_seq=${at}&fold=${fold}&limit=100${formOf(form)}`));
      frames.push(...page.messages);
      at = page.next_cursor;
    }
    return frames;
  },
  async topic_ws(operator, topic, after, head, form, fold = "true") {
    const socket = await Socket.open(operator, socketPath(topic, `after_seq=${after}&fold=${fold}&token=${operator.reader}${formOf(form)}`));
    await socket.until((one) => one.of("message").at(-1)?.seq === head, "the head on a socket");
    socket.close();
    return socket.of("message");
  },
  async sse(operator, topic, after, head, form, fold = "true") {
    const stream = await Stream.open(operator, streamPath(topic, `after_seq=${after}&fold=${fold}&token=${operator.reader}${formOf(form)}`));
    await stream.until((one) => one.messages.at(-1)?.data.seq === head, "the head on a stream");
    stream.close();
    assert.equal(stream.lastSeq, head);
    return stream.messages.map(({ data }) => data);
  },
  async phoenix(operator, topic, after, head, form, fold = "true") {
    const client = await Client.join(operator);
    await client.subscribe({ topics: [topic], resume_after: { [topic]: after }, fold: fold === "true", form });
    await client.until((one) => one.run(topic).updates.at(-1)?.seq === head, "the head on phoenix");
    client.close();
    return client.run(topic).updates;
  },
};

const each = Object.entries(transports);

async function everyTransportFolds(operator, all) {
  for (const [topic, events] of all)
    for (const form of ["full", "lean"])
      for (const [name, read] of each) {
        const head = events.length;
        const frames = await read(operator, topic, 0, head, form);
        assert.equal(agrees(frames, events, 0, form), head, name);
        assert.deepEqual(frames.map(countOf), [...(topic === ROOM ? [] : [1]), ...STORY_COUNTS], `${name} ${topic} ${form}`);
      }
}

test("every transport folds deltas, and the text is that of the log", async (t) => {
  const operator = await operate(t, { settings: QUICK });
  const all = await tellBoth(operator);
  await t.test("from the store", () => everyTransportFolds(operator, all));
  await t.test("while a client keeps the topics in memory", async () => {
    const client = await Client.join(operator);
    await client.subscribe({ topics: [RUN_TOPIC, ROOM], resume_after: { [RUN_TOPIC]: 0, [ROOM]: 0 } });
    await everyTransportFolds(operator, all);
    client.close();
  });
  await t.test("after a restart", async (later) => {
    await operator.server.stop();
    const again = await operate(t, { data: operator.data, settings: QUICK });
    await everyTransportFolds(again, all);
    await later.test("from every position", async () => {
      for (const [topic, events] of all)
        for (let after = 0; after < events.length; after++)
          for (const [name, read] of after % 7 === 0 ? each : each.slice(0, 1))
            assert.equal(agrees(await read(again, topic, after, events.length, "full"), events, after), events.length, `${name} ${after}`);
    });
    await later.test("without fold each event arrives as it is", async () => {
      for (const [topic, events] of all)
        for (const [name, read] of each) {
          const frames = await read(again, topic, 0, events.length, "full", "false");
          assert.deepEqual(frames.map(countOf), events.map(() => 1), name);
          agrees(frames, events, 0);
        }
    });
    await later.test("a Phoenix client with frames gets them folded too", async () => {
      const client = await Client.join(again);
      const events = all.get(ROOM);
      await client.subscribe({ topics: [ROOM], resume_after: { [ROOM]: 0 }, fold: true, frames: true });
      await client.until((one) => one.of("sync:frame").at(-1)?.seq === events.length, "the frames");
      client.close();
      const frames = client.of("sync:frame").map((one) => ({ ...one, payload: JSON.parse(Buffer.from(one.payload_bytes, "base64")) }));
      agrees(frames, events, 0, "bytes");
      assert.deepEqual(frames.map(countOf), STORY_COUNTS);
    });
  });
});

test("a finished answer of 3000 deltas is a few frames, also for those that begin in the middle", async (t) => {
  const operator = await operate(t, { settings: { ...QUICK, KHALA_WINDOW_FRAMES_MAX: "100" } });
  await operator.did("runs", { run_id: "long", owner_user_id: "ada" }, 201);
  const events = [(await operator.read("runs/long/events?limit=1")).events[0]];
  for (let i = 0; i < 3; i++)
    events.push(...await tell(operator, Array.from({ length: 1000 }, (_, n) => ({ run_id: "long", ...delta("m", `token${i}${n} `) }))));
  events.push(...await tell(operator, [{ run_id: "long", event_type: "run.finished", payload: { status: "succeeded" } }]));
  const head = events.length;
  const bytesOf = (frames) => JSON.stringify(frames).length;
  const topic = "run:long:events";
  for (let round = 0; round < 3; round++)
    for (const [name, read] of each) {
      const frames = await read(operator, topic, 0, head, "full");
      assert.equal(agrees(frames, events, 0), head);
      assert.ok(frames.length <= 10, `${name}: ${frames.length} frames in round ${round}`);
      assert.ok(bytesOf(frames) * 20 <= bytesOf(await read(operator, topic, 0, head, "full", "false")), `${name} takes a twentieth of the bytes`);
      for (const after of [1, 137, 1024, 1500, 2999, head - 1])
        assert.equal(agrees(await read(operator, topic, after, head, "full"), events, after), head, `${name} behind ${after}`);
    }
  // One frame of the list that readers share now; then the log goes on behind it.
  const [first, second] = await transports.poll(operator, topic, 1, head, "full");
  assert.deepEqual([first.folded, second.folded], [{ from_seq: 2, count: 1023 }, { from_seq: 1025, count: 1024 }]);
  events.push(...await tell(operator, [{ run_id: "long", event_type: "after" }]));
  assert.equal(agrees(await transports.sse(operator, topic, 0, head + 1, "full"), events, 0), head + 1);
});

test("a folded payload stays within the limit of its topic", async (t) => {
  const operator = await operate(t, { settings: { ...QUICK, RUNTIME_KHALA_FALLBACK_MAX_PAYLOAD_BYTES: "300" } });
  const events = await tell(operator, Array.from({ length: 400 }, (_, n) => ({ topic: ROOM, ...delta("m", `${n}é`.repeat(1 + n % 7)) })));
  for (const [name, read] of each) {
    const frames = await read(operator, ROOM, 0, events.length, "full");
    assert.equal(agrees(frames, events, 0), events.length, name);
    for (const { payload } of frames) assert.ok(Buffer.byteLength(JSON.stringify(payload)) <= 300);
    assert.ok(frames.length < events.length / 4);
  }
});

test("frames of other tenants end a run", async (t) => {
  const operator = await operate(t, { settings: QUICK });
  const note = (owner_user_id, text) => operator.did("notifications", { event_type: "note.delta", payload: { id: "n", delta: text }, owner_user_id });
  for (const [owner, text] of [["ada", "a"], ["ada", "b"], ["bob", "secret"], ["ada", "c"], ["ada", "d"], ["bob", "x"], ["bob", "y"]]) await note(owner, text);
  const token = operator.sign({ oa_user_id: "ada", oa_sync_scopes: ["runtime.notifications"] });
  const told = (frames) => frames.map(({ seq, folded, payload }) => [folded?.from_seq ?? seq, seq, payload.delta]);
  const topic = "runtime.notifications";
  const expected = [[1, 2, "ab"], [4, 5, "cd"]];
  for (let round = 0; round < 2; round++) {
    const { body } = await operator.ask("GET", pollPath(topic, "after_seq=0&fold=true"), undefined, { authorization: `Bearer ${token}` });
    assert.deepEqual(told(JSON.parse(body).messages), expected);
    const stream = await Stream.open(operator, streamPath(topic, `after_seq=0&fold=true&token=${token}`));
    await stream.until((one) => one.messages.length === 2, "the frames");
    stream.close();
    assert.deepEqual(told(stream.messages.map(({ data }) => data)), expected);
    const client = await Client.join(operator, { params: { token } });
    await client.subscribe({ topics: [topic], resume_after: { [topic]: 0 }, fold: true });
    await client.reached(topic, 7);
    client.close();
    assert.deepEqual(told(client.run(topic).updates), expected);
    // A reader of everything shares frames with the tenant, and tenants none with each other.
    const all = await transports.poll(operator, topic, 0, 7, "full");
    assert.deepEqual(told(all), [[1, 2, "ab"], [3, 3, "secret"], [4, 5, "cd"], [6, 7, "xy"]]);
  }
});

test("events of different workers are not one text", async (t) => {
  const operator = await operate(t, { settings: QUICK });
  for (const worker_id of ["v", "w"]) await operator.did("workers", { worker_id, owner_user_id: "ada" }, 201);
  const say = (worker_id, text) => ({ worker_id, event_type: "worker.delta", payload: { id: "1", delta: text } });
  await tell(operator, [say("v", "a"), say("v", "b"), say("w", "c"), say("w", "d"), say("v", "e")]);
  const frames = await transports.sse(operator, "runtime.codex_worker_events", 2, 7, "full");
  assert.deepEqual(frames.map(({ entity_id, payload }) => [entity_id, payload.delta]), [["v", "ab"], ["w", "cd"], ["v", "e"]]);
});

test("an event that is appended now arrives at once, as it is", async (t) => {
  const operator = await operate(t, { settings: QUICK });
  const events = await tell(operator, [{ topic: ROOM, ...delta("m", "0") }, { topic: ROOM, ...delta("m", "1") }]);
  const client = await Client.join(operator);
  const stream = await Stream.open(operator, streamPath(ROOM, `after_seq=0&fold=true&token=${operator.reader}`));
  await client.subscribe({ topics: [ROOM], resume_after: { [ROOM]: 0 }, fold: true });
  for (let n = 2; n < 20; n++) {
    await client.reached(ROOM, n);
    await stream.until((one) => one.messages.at(-1)?.data.seq === n, `event ${n}`);
    const { event } = await operator.did(`topics/${ROOM}/events`, delta("m", `${n}`));
    events.push(event);
  }
  await client.reached(ROOM, 20);
  await stream.until((one) => one.lastSeq === 20, "the last event");
  for (const frames of [client.run(ROOM).updates, stream.messages.map(({ data }) => data)]) {
    assert.equal(agrees(frames, events, 0), 20);
    assert.deepEqual(frames.map(countOf), [2, ...Array(18).fill(1)]);
  }
  client.close();
});

const READERS = 20; // at least, of those that come and go

test("readers that come and go while an answer streams all have its text", async (t) => {
  const { below, random } = seeded(28);
  const operator = await operate(t, { settings: { ...QUICK, KHALA_WINDOW_FRAMES_MAX: "40", RUNTIME_KHALA_FALLBACK_REPLAY_BUDGET_EVENTS: "100000" } });
  const events = [];
  const staying = await Client.join(operator);
  await tell(operator, [{ topic: ROOM, event_type: "said" }]).then((said) => events.push(...said));
  await staying.subscribe({ topics: [ROOM], resume_after: { [ROOM]: 0 }, fold: true, replay_batch_size: 7 });
  let isOver = false;
  const write = async () => {
    while (events.length < 1500 || (read <= READERS && events.length < 30_000)) {
      const items = Array.from({ length: 1 + below(12) }, () => (random() < 0.02
        ? { topic: ROOM, event_type: "said", payload: { text: "between" } }
        : { topic: ROOM, ...delta(`m${Math.floor(events.length / 300)}`, PIECES[below(PIECES.length)]) }));
      events.push(...await tell(operator, items));
    }
    isOver = true;
  };
  let read = 0;
  const comeAndGo = async (number) => {
    while (!isOver) {
      const head = events.length;
      const after = random() < 0.5 ? 0 : below(head);
      const [name, reader] = each[(number + read++) % each.length];
      const frames = [];
      // The head moves on while the client reads, so it stops at the first frame that is late enough.
      if (name === "poll") frames.push(...await reader(operator, ROOM, after, head, "full", random() < 0.8 ? "true" : "false"));
      else {
        const stream = await Stream.open(operator, streamPath(ROOM, `after_seq=${after}&fold=${random() < 0.8}&token=${operator.reader}`));
        await stream.until((one) => (one.messages.at(-1)?.data.seq ?? after) >= head, "what was the head");
        stream.close();
        frames.push(...stream.messages.map(({ data }) => data));
      }
      // The answer to the batch may come later than its frames.
      await staying.until(() => events.length >= (frames.at(-1)?.seq ?? 0), "the answers");
      assert.ok(agrees(frames, events, after) >= head);
    }
  };
  const answered = setInterval(() => staying.changed(), 5);
  await Promise.all([write(), ...Array.from({ length: 6 }, (_, number) => comeAndGo(number))]);
  clearInterval(answered);
  await staying.reached(ROOM, events.length);
  assert.equal(agrees(staying.run(ROOM).updates, events, 0), events.length);
  assert.ok(read > READERS, `${read} readers`);
});

test("what the retention removes from the journal is folded again from the log", async (t) => {
  const operator = await operate(t, { settings: { ...QUICK, RUNTIME_KHALA_FALLBACK_RETENTION_SECONDS: "1", RUNTIME_KHALA_RETENTION_INTERVAL_MS: "3600000" } });
  const events = await tell(operator, Array.from({ length: 300 }, (_, n) => ({ topic: ROOM, ...delta("m", `${n} `) })));
  for (let round = 0; round < 3; round++) {
    const frames = await transports.sse(operator, ROOM, 0, 300, "full");
    assert.equal(agrees(frames, events, 0), 300);
    assert.ok(frames.length <= 2);
    if (round === 0) await until(async () => (await operator.did("retention/run", "")).deleted > 0, "retention");
  }
});

test("fold is off for replay=all, for the log and for any other value", async (t) => {
  const operator = await operate(t, { settings: QUICK });
  const events = await tell(operator, Array.from({ length: 20 }, (_, n) => ({ topic: ROOM, ...delta("m", `${n}`) })));
  const page = await operator.read(pollPath(ROOM, "after_seq=0&fold=true&replay=all"));
  assert.deepEqual(page.messages.map(countOf), events.map(() => 1));
  const client = await Client.join(operator, { params: { token: operator.sign({ oa_sync_scopes: ["runtime.read_all", "runtime.replay_all"] }) } });
  await client.subscribe({ topics: [ROOM], resume_after: { [ROOM]: 0 }, fold: true, replay: "all" });
  await client.reached(ROOM, 20);
  assert.equal(client.run(ROOM).updates.length, 20);
  assert.equal((await client.refused("sync:subscribe", { topics: [ROOM], fold: "yes" })).code, "bad_subscription");
  client.close();
  const stream = await Stream.open(operator, `/events?fold=true&token=${operator.reader}`);
  await stream.until((one) => one.messages.length === 20, "the log");
  for (const value of ["", "1", "TRUE", "folded"]) {
    assert.equal((await operator.poll(ROOM, `fold=${value}`)).status, 400, value);
    assert.equal((await Stream.open(operator, streamPath(ROOM, `fold=${value}&token=${operator.reader}`))).status, 400);
    assert.equal((await Socket.refused(operator, socketPath(ROOM, `fold=${value}&token=${operator.reader}`))).status, 400);
  }
});
