// The transition from replay to live: clients of every dialect, half of which fold deltas, start at random cursors while events
// are appended at full speed, windows are tiny, and retention prunes one second after the head. Each
// client must receive events without a gap or a repetition, or a stale cursor and a bootstrap; the
// clients that stay must end equal to the log. The run repeats with KHALA_CHAOS_SEED;
// KHALA_CHAOS_SECONDS sets how long clients come and go.
import assert from "node:assert/strict";
import { test } from "node:test";
import WebSocket from "ws";
import { operate } from "../lib/operator.mjs";
import { AUDIT_SOCKET, pollPath, socketPath, streamPath } from "../lib/paths.mjs";
import { seeded } from "../lib/seeded.mjs";
import { auditInit } from "../lib/socket.mjs";
import { Stream } from "../lib/sse.mjs";
import { until, Watched, within } from "../lib/wait.mjs";

const SECONDS = Number(process.env.KHALA_CHAOS_SECONDS ?? 8);
const SEED = Number(process.env.KHALA_CHAOS_SEED ?? Date.now() % 1_000_000);
const CLIENTS = 32;
const WRITERS = 2;
const BUDGET = 4000;
const RUNS = ["a", "b", "c"];
const TOPICS = [...RUNS.map((run) => `run:${run}:events`), "chat:room", "runtime.run_summaries"];
const PRUNED = new Set(["runtime.run_summaries"]);
const LOG = "log";

const SETTINGS = {
  KHALA_WINDOW_FRAMES_MAX: "50",
  // Memory for all replayed frames, or for nearly none.
  KHALA_WINDOWS_BYTES_MAX: SEED % 2 === 0 ? "268435456" : "1048576",
  KHALA_WS_MESSAGES_PER_SECOND: "100000",
  RUNTIME_KHALA_POLL_MIN_INTERVAL_MS: "0",
  RUNTIME_KHALA_SLOW_CONSUMER_LAG_THRESHOLD: "1000000",
  RUNTIME_KHALA_RETENTION_INTERVAL_MS: "20",
  RUNTIME_KHALA_RUN_EVENTS_RETENTION_SECONDS: "1",
  RUNTIME_KHALA_FALLBACK_RETENTION_SECONDS: "1",
  RUNTIME_KHALA_RUN_SUMMARIES_RETENTION_SECONDS: "1",
  RUNTIME_KHALA_RUN_SUMMARIES_SNAPSHOT_CADENCE_SECONDS: "1",
  RUNTIME_KHALA_RUN_EVENTS_REPLAY_BUDGET_EVENTS: String(BUDGET),
  RUNTIME_KHALA_FALLBACK_REPLAY_BUDGET_EVENTS: String(BUDGET),
};

const { random, below, pick } = seeded(SEED);

/** The acknowledged events, with which the clients are compared. */
class Authority {
  ids = new Map(TOPICS.map((topic) => [topic, []])); // by seq - 1; of summaries what the first client saw
  heads = new Map(TOPICS.map((topic) => [topic, 0]));
  floors = new Map(TOPICS.map((topic) => [topic, 0])); // the oldest that a poll found
  texts = new Map(TOPICS.map((topic) => [topic, []])); // of deltas, by seq - 1
  unread = []; // folded frames whose events are not all acknowledged yet
  folded = 0;
  cursors = [];

  acknowledge(topic, event) {
    this.ids.get(topic)[event.seq - 1] = event.event_id;
    this.texts.get(topic)[event.seq - 1] = event.payload?.delta ?? null;
    this.heads.set(topic, Math.max(this.heads.get(topic), event.seq));
    this.cursors.push(event.cursor);
  }

  /** Asserts that every client receives the same event at a position. */
  agree(topic, seq, id) {
    const ids = this.ids.get(topic);
    this.heads.set(topic, Math.max(this.heads.get(topic), seq));
    ids[seq - 1] ??= id;
    assert.equal(id, ids[seq - 1], `${topic} at ${seq} is another event`);
  }

  /** Keeps a folded frame until its events are acknowledged: an answer may come later than the frames. */
  fold(topic, from, seq, payload) {
    this.folded++;
    this.unread.push({ topic, from, seq, payload });
  }

  /** Asserts that every folded frame has the text of its events. */
  checkTexts() {
    for (const { topic, from, seq, payload } of this.unread) {
      const texts = this.texts.get(topic).slice(from - 1, seq);
      assert.deepEqual([...texts.keys()].filter((at) => typeof texts[at] !== "string"), [], `${topic} ${from} to ${seq} has events that are no deltas`);
      assert.deepEqual(payload, { id: "a", delta: texts.join("") }, `${topic} ${from} to ${seq}`);
    }
  }
}

/** The events of one topic that one client receives. */
class Run extends Watched {
  count = 0;
  at = null;
  stale = 0;
  begun = 0;
  overtaken = 0; // stale answers after it had begun
  documents = new Map();

  constructor(authority, topic) {
    super();
    this.authority = authority;
    this.topic = topic;
  }

  /** Starts after that position, by a cursor or a bootstrap. */
  begin(after) {
    this.at = after;
    this.begun++;
    this.changed();
  }

  /** Takes a bootstrap, which names its first event unless a snapshot follows. */
  bootstrap({ from_seq }) {
    this.at = null;
    if (from_seq !== undefined) this.begin(from_seq - 1);
  }

  snapshot(part) {
    for (const one of part.documents) this.documents.set(one.payload.run_id, one.payload);
    if (part.last) this.begin(part.watermark);
  }

  /** Takes the range of a batch or message, which must continue the last one. */
  covers(after, through) {
    assert.equal(after, this.at, `${this.topic}: a range begins behind ${after}, the one before ended at ${this.at}`);
    this.covered = through;
  }

  take(seq, id, payload, folded) {
    const from = folded ? folded.from_seq : seq;
    assert.ok(this.at !== null, `${this.topic}: an event before the beginning`);
    assert.equal(from, this.at + 1, `${this.topic}: ${from} follows ${this.at}`);
    if (folded) {
      assert.ok(this.folds && folded.count > 1 && folded.count === seq - from + 1);
      this.authority.fold(this.topic, from, seq, payload);
    }
    this.at = seq;
    this.count++;
    this.authority.agree(this.topic, seq, id);
    if (this.topic === "runtime.run_summaries") this.documents.set(payload.run_id, payload);
    this.changed();
  }

  fail(error) {
    this.problem ??= error;
    this.changed();
  }

  until(ready, what) {
    const holds = () => {
      if (this.problem) throw this.problem;
      return ready();
    };
    return super.until(holds, `${this.topic} ${what()}`).catch((error) => {
      const { at, count, stale, begun } = this;
      throw Object.assign(error, { message: `${error.message}; ${JSON.stringify({ at, count, stale, begun })}` });
    });
  }
}

/** Wraps a message handler so that its errors fail the run. */
const guarded = (run, take) => (...given) => {
  try {
    take(...given);
  } catch (error) {
    run.fail(error);
  }
};

function socket(operator, path, options = {}) {
  const ws = new WebSocket(`ws://${operator.server.host}:${operator.server.port}${path}`,
    { perMessageDeflate: random() < 0.5, headers: { authorization: `Bearer ${operator.reader}` }, ...options });
  operator.server.peers.push({ close: () => ws.terminate() });
  ws.on("error", () => {});
  return ws;
}

/** Fails the run when its connection closes early. */
function watchEnd(ws, run) {
  ws.on("close", (code, reason) => { if (!run.over) run.fail(new Error(`${run.topic}: closed ${code} ${reason}`)); });
}

const dialects = {
  phoenix(operator, run, after) {
    const ws = socket(operator, `/socket/websocket?vsn=2.0.0`);
    const replies = new Map();
    let ref = 0;
    const ask = (event, payload) => new Promise((resolve) => {
      replies.set(String(++ref), resolve);
      ws.send(JSON.stringify(["1", String(ref), "sync:v1", event, payload]));
    });
    const frames = random() < 0.3;
    const subscribe = async (from) => {
      const cursor = from === null ? {} : { resume_after: { [run.topic]: from } };
      const { status, response } = await ask("sync:subscribe", { topics: [run.topic], frames, fold: run.folds, replay_batch_size: 1 + below(1000), ...cursor });
      if (run.over) return;
      if (status === "error") {
        assert.equal(response.code, "stale_cursor");
        assert.notEqual(from, null, "a bootstrap is never stale");
        run.stale++;
        await subscribe(null);
      }
    };
    const begin = ({ status, response }) => {
      if (status !== "ok" || !response.windows) return;
      const [window] = response.windows;
      if (window.bootstrap) run.bootstrap(window.bootstrap);
      else if (window.resume_after !== undefined) run.begin(window.resume_after);
    };
    const take = (event, payload) => {
      if (event === "sync:update_batch") {
        if (!frames) run.covers(payload.after, payload.through);
        for (const one of payload.updates) run.take(one.watermark, one.event_id, one.payload, one.folded);
        assert.equal(payload.through, run.at, "a batch covers what it brings");
      } else if (event === "sync:frame") {
        run.take(payload.seq, run.authority.ids.get(run.topic)[payload.seq - 1], JSON.parse(Buffer.from(payload.payload_bytes, "base64")), payload.folded);
      } else if (event === "sync:snapshot") {
        run.snapshot(payload);
      } else if (event === "sync:error") {
        assert.equal(payload.code, "stale_cursor", JSON.stringify(payload));
        run.overtaken++;
        run.stale++;
        subscribe(null).catch((error) => run.fail(error));
      }
    };
    ws.on("message", guarded(run, (data) => {
      if (run.over) return;
      const [, answered, , event, payload] = JSON.parse(data);
      // The reply must be handled before the messages after it.
      if (event === "phx_reply") {
        begin(payload);
        replies.get(answered)(payload);
      } else take(event, payload);
    }));
    ws.on("open", () => { ask("phx_join", {}).then(() => subscribe(after)).catch((error) => run.fail(error)); });
    watchEnd(ws, run);
    return () => ws.terminate();
  },

  topic_ws(operator, run, after) {
    const query = `fold=${run.folds}&limit=${1 + below(1000)}${after === null ? "" : `&after_seq=${after}`}`;
    const ws = socket(operator, socketPath(run.topic, query));
    ws.on("message", guarded(run, (data) => {
      const one = JSON.parse(data);
      if (one.type === "hello" && one.bootstrap) run.bootstrap(one.bootstrap);
      else if (one.type === "hello") run.begin(one.after_seq);
      else if (one.type === "stale_cursor") {
        run.overtaken += run.begun;
        run.stale++;
      } else if (one.type === "snapshot") run.snapshot(one);
      else if (one.type === "message") {
        run.covers(one.after, one.sequence);
        run.take(one.sequence, one.event_id, one.payload, one.folded);
      } else assert.fail(`${run.topic}: ${data}`);
    }));
    watchEnd(ws, run);
    return () => ws.terminate();
  },

  sse(operator, run, after) {
    let stream;
    let looked = 0;
    const take = (event) => {
      if (event.type === "stale_cursor") {
        run.overtaken += run.begun;
        run.stale++;
        run.at = null;
      } else if (event.type === "bootstrap") run.bootstrap(event.data);
      else if (event.type === "snapshot") run.snapshot(event.data);
      else if (event.type === "message") {
        if (run.begun === 0 && run.stale === 0) run.begin(after);
        run.take(event.data.sequence, event.data.event_id, event.data.payload, event.data.folded);
      } else assert.fail(`${run.topic}: ${JSON.stringify(event)}`);
    };
    const path = streamPath(run.topic, `fold=${run.folds}${after === null ? "" : `&after_seq=${after}`}`);
    Stream.open(operator, path, { authorization: `Bearer ${operator.reader}` }).then(async (opened) => {
      stream = opened;
      if (run.over) stream.close();
      while (!run.over) {
        await stream.until((one) => one.events.length > looked || run.over, "events");
        for (; looked < stream.events.length; looked++) take(stream.events[looked]);
        stream.events.splice(0, looked);
        looked = 0;
      }
    }).catch((error) => { if (!run.over) run.fail(error); });
    return () => stream?.close();
  },

  poll(operator, run, after) {
    const limit = 1 + below(200);
    run.dawdles = random() < (PRUNED.has(run.topic) ? 0.3 : 0);
    (async () => {
      for (let cursor = after; !run.over;) {
        const query = `fold=${run.folds}&limit=${limit}&wait_ms=${below(3) * 500}${cursor === null ? "" : `&after_seq=${cursor}`}`;
        const response = await operator.poll(run.topic, query);
        if (run.over) return;
        if (response.status === 410) {
          assert.notEqual(cursor, null, "a bootstrap is never stale");
          run.overtaken += run.begun;
          run.stale++;
          cursor = null;
          continue;
        }
        assert.equal(response.status, 200, response.body);
        const page = JSON.parse(response.body);
        run.authority.floors.set(run.topic, page.oldest_available_cursor);
        if (page.bootstrap) run.begin(page.bootstrap.from_seq - 1);
        else if (run.at === null) run.begin(cursor);
        for (const one of page.messages) run.take(one.sequence, one.event_id, one.payload, one.folded);
        assert.equal(page.next_cursor, run.at);
        cursor = page.next_cursor;
        // A client that stays away is overtaken by retention, if the log does not serve its topic.
        if (run.dawdles && run.begun === 1) await until(() => run.over || run.authority.floors.get(run.topic) > cursor, "retention");
      }
    })().catch((error) => run.fail(error));
    return () => {};
  },

  audit(operator, run, after) {
    const ws = socket(operator, AUDIT_SOCKET);
    ws.on("open", () => ws.send(JSON.stringify(auditInit(operator.reader, after === null ? {} : { after_cursor: after }))));
    ws.on("message", guarded(run, (data) => {
      const one = JSON.parse(data);
      if (one.type === "event") run.event(one.event);
      else assert.ok(["init_ack", "replay_complete", "heartbeat"].includes(one.type), data.toString());
    }));
    watchEnd(ws, run);
    return () => ws.terminate();
  },
};

/** The whole log that one client receives; the events of each entity must be consecutive. */
class LogRun extends Run {
  entities = new Map();
  cursor = null;

  event(event) {
    const key = `${event.entity}:${event.entity_id}`;
    const before = this.entities.get(key);
    if (before !== undefined) assert.equal(event.seq, before + 1, `the log: ${key}`);
    this.entities.set(key, event.seq);
    if (event.entity === "run") this.authority.agree(`run:${event.entity_id}:events`, event.seq, event.event_id);
    this.cursor = event.cursor;
    this.at = this.count++;
    this.changed();
  }
}

async function write(operator, authority, state) {
  while (!state.over) {
    const streams = random() < 0.7;
    const step = () => (streams || random() < 0.3 ? { event_type: "token.delta", payload: { id: "a", delta: pick(["x", "\u{1f469}", "\"", "\\", "\n"]).repeat(below(12)) } }
      : { event_type: "step", payload: { pad: "x".repeat(below(60)) } });
    const run_id = pick(RUNS);
    const items = Array.from({ length: 1 + below(80) }, () => (random() < 0.8
      ? { run_id: streams ? run_id : pick(RUNS), ...step() }
      : { topic: "chat:room", event_type: "said", payload: { n: below(1000) } }));
    const answers = await operator.batch(items);
    answers.forEach((answer, i) => {
      assert.equal(answer.status, 200, JSON.stringify(answer));
      authority.acknowledge(items[i].run_id ? `run:${items[i].run_id}:events` : "chat:room", answer.event);
    });
    state.appended += items.length;
  }
}

/** The start of a client: any cursor, one near the head, the head, or none. */
function place(head) {
  const chance = random();
  if (chance < 0.15) return null;
  if (chance < 0.3) return below(head + 1);
  if (chance < 0.5) return head;
  return Math.max(0, head - below(chance < 0.75 ? 200 : BUDGET + 500));
}

function follow(operator, authority, dialect, topic) {
  const run = dialect === "audit" ? new LogRun(authority, LOG) : new Run(authority, topic);
  run.folds = random() < 0.5;
  const after = dialect === "audit" ? (random() < 0.02 ? null : authority.cursors.at(-1 - below(Math.min(2000, authority.cursors.length))) ?? null)
    : place(authority.heads.get(topic));
  const close = dialects[dialect](operator, run, after);
  run.end = () => {
    run.over = true;
    close();
  };
  return run;
}

/** Opens subscriptions one after the other until the end, each for a random number of events. */
async function subscribe(operator, authority, state) {
  while (!state.over) {
    const dialect = pick(Object.keys(dialects));
    state.begun++;
    const run = follow(operator, authority, dialect, pick(TOPICS));
    state.active.add(run);
    const wanted = 1 + below(random() < 0.6 ? 10 : 150);
    try {
      await run.until(() => run.count >= wanted || state.over, () => `for ${wanted} events by ${dialect}`);
    } finally {
      state.active.delete(run);
      run.end();
    }
    const kept = state.by.get(dialect) ?? { runs: 0, events: 0, stale: 0, overtaken: 0 };
    state.by.set(dialect, { runs: kept.runs + 1, events: kept.events + run.count, stale: kept.stale + (run.stale > 0 ? 1 : 0),
      overtaken: kept.overtaken + (run.overtaken > 0 ? 1 : 0) });
  }
}

/** Appends single events at the end, which must reach each of the clients that stay. */
async function settle(operator, authority, runs) {
  for (let round = 0; round < 10; round++) {
    for (const run of RUNS) authority.acknowledge(`run:${run}:events`, (await operator.did(`runs/${run}/events`, { event_type: "last", payload: { round } })).event);
    authority.acknowledge("chat:room", (await operator.did("topics/chat:room/events", { event_type: "last", payload: { round } })).event);
    const { head_cursor } = await operator.read(pollPath("runtime.run_summaries", "limit=1"));
    authority.heads.set("runtime.run_summaries", head_cursor);
    const last = authority.cursors.at(-1);
    for (const { dialect, run } of runs) {
      await run.until(() => (run instanceof LogRun ? run.cursor === last : run.at === authority.heads.get(run.topic)),
        () => `${dialect} to the end, ${authority.heads.get(run.topic)}`);
    }
  }
}

test(`clients that come and go for ${SECONDS} s see no gap between replay and live events, seed ${SEED}`, { timeout: 230_000 + SECONDS * 1000 }, async (t) => {
  const operator = await operate(t, { settings: SETTINGS });
  const authority = new Authority();
  for (const run_id of RUNS) authority.acknowledge(`run:${run_id}:events`, (await operator.did("runs", { run_id, owner_user_id: "u" }, 201)).event);
  const state = { begun: 0, appended: 0, over: false, by: new Map(), active: new Set() };
  const staying = Object.keys(dialects).flatMap((dialect) =>
    (dialect === "audit" ? [LOG, LOG] : TOPICS).map((topic) => ({ dialect, run: follow(operator, authority, dialect, topic) })));
  const begun = Date.now();
  const writing = Array.from({ length: WRITERS }, () => write(operator, authority, state));
  const timer = setTimeout(() => {
    state.over = true;
    for (const run of state.active) run.changed();
  }, SECONDS * 1000);
  try {
    await Promise.race([Promise.all(Array.from({ length: CLIENTS }, () => subscribe(operator, authority, state))),
      Promise.all(writing).then(() => new Promise(() => {}))]);
  } finally {
    state.over = true;
    clearTimeout(timer);
  }
  await within(Promise.all(writing), "the writers' end");
  await settle(operator, authority, staying);
  for (const run of RUNS) {
    const document = await operator.read(`projectors/run-summary/${run}`);
    for (const one of staying.filter(({ run: { topic } }) => topic === "runtime.run_summaries")) {
      assert.deepEqual(one.run.documents.get(run), document, `${one.dialect} has another summary of ${run}`);
    }
  }
  for (const { run } of staying) run.end();
  authority.checkTexts();
  const all = [...state.by.values()];
  const stale = all.reduce((sum, one) => sum + one.stale, 0);
  const pruned = await operator.read(pollPath("runtime.run_summaries", "limit=1"));
  t.diagnostic(`seed ${SEED}: ${state.begun} subscriptions in ${Date.now() - begun} ms, ${state.appended} appended, floor ${pruned.oldest_available_cursor} `
    + `of ${pruned.head_cursor}, ${authority.folded} folded frames, ${JSON.stringify(Object.fromEntries(state.by))}`);
  assert.ok(state.begun >= 2 * CLIENTS, `only ${state.begun} subscriptions`);
  assert.ok(state.by.size === Object.keys(dialects).length && stale > 0, "every dialect, and some cursors were stale");
  assert.ok(pruned.oldest_available_cursor > 0, "retention pruned");
  assert.ok(authority.folded > 0, "frames were folded");
});
