// Retention on a timer and on demand, with a moved clock, and the messages that readers get.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { statSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { EventSource } from "eventsource";
import { alone, test } from "../../lib/cases.mjs";
import { assertError, binary, connect, environment, folder, run, startVerb } from "../../lib/khala.mjs";
import { limitFileSize } from "../../lib/machine.mjs";
import { operate } from "../../lib/operator.mjs";
import { pollPath, snapshotPath, socketPath, streamPath } from "../../lib/paths.mjs";
import { Client } from "../../lib/phoenix.mjs";
import { onPostgres, sqliteOnly, storeSettings } from "../../lib/database.mjs";
import { scrape } from "../../lib/prometheus.mjs";
import { events, range, TOPIC } from "../../lib/samples.mjs";
import { Socket } from "../../lib/socket.mjs";
import { Stream } from "../../lib/sse.mjs";
import { sql } from "../../lib/store.mjs";
import { Received, until } from "../../lib/wait.mjs";

const execute = promisify(execFile);
const DAY_MS = 86_400_000;
const PATIENT = { RUNTIME_KHALA_POLL_MIN_INTERVAL_MS: "0" };
const NEVER = { ...PATIENT, RUNTIME_KHALA_RETENTION_INTERVAL_MS: "86400000" };

/** The rows of the contract: a topic of each, its retention time, class and compaction. A bootstrap of the last ones begins with
 * the first event of the log, whatever was pruned. */
const ROWS = [
  ["runtime.run_summaries", 604800, "durable_summary", "tail_prune_with_snapshot_rehydrate"],
  ["runtime.codex_worker_summaries", 259200, "durable_summary", "tail_prune_with_snapshot_rehydrate"],
  ["runtime.codex_worker_events", 86400, "high_churn_events", "tail_prune_without_snapshot"],
  ["runtime.notifications", 43200, "ephemeral_notifications", "tail_prune_without_snapshot"],
  ["run:r:events", 86400, "run_events", "tail_prune_without_snapshot"],
  ["worker:w:lifecycle", 86400, "worker_lifecycle", "tail_prune_without_snapshot"],
  ["fleet:user:u:workers", 86400, "worker_lifecycle", "tail_prune_without_snapshot"],
  ["chat", 86400, "fallback", "tail_prune_without_snapshot"],
];

async function appendEverywhere(operator) {
  await operator.did("runs", { run_id: "r", owner_user_id: "u" }, 201);
  await operator.did("workers", { worker_id: "w", owner_user_id: "u" }, 201);
  for (let i = 0; i < 3; i++) {
    await operator.did("runs/r/events", { event_type: "x" });
    await operator.did("workers/w/events", { event_type: "worker.log" });
    await operator.did("notifications", { event_type: "n" });
    await operator.did("topics/chat/events", { event_type: "said" });
  }
}

const BEGIN_IN_LOG = ["run:r:events", "worker:w:lifecycle", "chat"];

const OTHERS = "WHERE entity_ref IN (SELECT ref FROM entities WHERE kind <> 3)";

/** The tables that pruning must not change, without the record of each pass in the audit log. */
const truth = (data) => sql(data, `SELECT count(*), sum(length(payload)) FROM events ${OTHERS}; ` +
  "SELECT * FROM sync_run_summaries; SELECT * FROM sync_codex_worker_summaries" +
  (onPostgres ? "" : `; SELECT * FROM event_positions ${OTHERS} UNION SELECT * FROM event_positions_recent ${OTHERS}`));

test("every row of the retention table is pruned at its time, and its readers receive stale_cursor", async (t) => {
  const data = folder(t);
  const first = await operate(t, { data, settings: NEVER });
  await appendEverywhere(first);
  const before = truth(data);
  const early = await first.did("retention/run", {});
  assert.equal(early.deleted, 0);
  assert.ok(early.topics >= ROWS.length);
  await first.server.stop();
  const pruned = new Set();
  for (const seconds of [43200, 86400, 259200, 604800]) {
    const settings = { ...NEVER, KHALA_CLOCK_OFFSET_MS: String((seconds + 60) * 1000) };
    const operator = await operate(t, { data, settings });
    const { topic_stats: stats, deleted, topics_pruned } = await operator.did("retention/run", "");
    const expected = ROWS.filter(([topic, kept]) => kept <= seconds && !pruned.has(topic));
    const audit = stats.find(({ topic }) => topic === "runtime.audit"); // each pass is recorded
    assert.equal(topics_pruned, expected.length + (audit.deleted > 0 ? 1 : 0));
    assert.equal(deleted, stats.reduce((sum, one) => sum + one.deleted, 0));
    for (const [topic, kept, name, mode] of ROWS) {
      const one = stats.find((given) => given.topic === topic);
      assert.deepEqual(Object.keys(one), ["topic", "deleted", "class", "compaction_mode", "retention_seconds", "oldest",
        "head", "stale_risk"]);
      assert.equal(one.class, name);
      assert.equal(one.compaction_mode, mode);
      assert.equal(one.retention_seconds, kept);
      assert.ok(one.head > 0);
      const isGone = kept <= seconds;
      assert.equal(one.deleted, isGone && !pruned.has(topic) ? one.head : 0, topic);
      assert.equal(one.oldest, isGone ? one.head + 1 : 1);
      assert.equal(one.stale_risk, isGone ? 0 : one.head - 1);
      const answer = await operator.poll(topic, "after_seq=0");
      if (isGone) pruned.add(topic);
      if (isGone && !BEGIN_IN_LOG.includes(topic)) {
        const { from_seq, truncated } = JSON.parse(answer.body).bootstrap;
        assert.deepEqual([from_seq, truncated], [one.head + 1, true]);
        if (one.head > 1) {
          const body = assertError(await operator.poll(topic, "after_seq=1"), 410, "stale_cursor");
          assert.match(JSON.stringify(body), /retention_floor_breach/);
        }
      } else {
        assert.equal(JSON.parse(answer.body).messages[0].sequence, 1);
      }
      assert.equal((await operator.poll(topic, `after_seq=${one.head}`)).status, 200);
    }
    assert.equal((await operator.did("retention/run", {})).deleted, 0);
    await operator.server.stop();
  }
  assert.equal(truth(data), before);
  assert.equal(sql(data, "SELECT count(*) FROM journal"), "0");
  assert.equal(run(["verify", "--data-dir", data]).code, 0);
  assert.equal(run(["reproject", "--all", "--verify", "--data-dir", data]).code, 0);
});

const NOTICES = "runtime.notifications";

/** Three notifications, all pruned because the server's clock is ahead. */
async function prunedNotices(t) {
  const data = folder(t);
  const first = await operate(t, { data, settings: NEVER });
  for (let i = 0; i < 3; i++) await first.did("notifications", { event_type: "n" });
  await first.server.stop();
  const settings = { ...NEVER, KHALA_CLOCK_OFFSET_MS: String(2 * DAY_MS) };
  const operator = await operate(t, { data, settings });
  operator.offsetMs = 2 * DAY_MS;
  assert.ok((await operator.did("retention/run", "")).deleted > 0);
  return { operator, data, settings };
}

test("a stream with a stale cursor on a pruned topic resumes from the announced position", async (t) => {
  const { operator } = await prunedNotices(t);
  const path = streamPath(NOTICES, `token=${operator.reader}&after_seq=1`);
  const first = await Stream.open(operator, path);
  await first.until((one) => one.events.length === 2, "the bootstrap");
  assert.deepEqual(first.events.map((one) => one.type), ["stale_cursor", "bootstrap"]);
  assert.equal(first.events[0].id, "", "not the stale event, which stands for no position");
  assert.equal(first.lastId, `3@${first.events[1].data.epoch}`);
  first.close();
  await operator.did("notifications", { event_type: "n" });
  const second = await Stream.open(operator, path, { "last-event-id": first.lastId });
  await second.until((one) => one.events.length === 1, "the next event");
  assert.deepEqual(second.events.map((one) => [one.type, one.data.sequence]), [["message", 4]]);
});

test("the npm EventSource receives stale_cursor once on a pruned topic", async (t) => {
  const { operator, data, settings } = await prunedNotices(t);
  const seen = new Received();
  const source = new EventSource(operator.server.url + streamPath(NOTICES, `token=${operator.reader}&after_seq=1`));
  t.after(() => source.close());
  for (const type of ["stale_cursor", "bootstrap", "message"]) {
    source.addEventListener(type, () => seen.add(type));
  }
  await seen.until(() => seen.all.length >= 2, "the bootstrap");
  const { port } = operator.server;
  await operator.server.crash();
  const again = await operate(t, { data, settings, args: ["--bind", `127.0.0.1:${port}`] });
  await again.did("notifications", { event_type: "n" });
  await seen.until(() => seen.all.length >= 3, "the next event");
  assert.deepEqual(seen.all, ["stale_cursor", "bootstrap", "message"]);
});

/** A store with a run, a worker and an application topic, all pruned: `early` events each, and `late` ones after the floor. The
 * server's clock is two days ahead of the early ones. */
async function oldTopics(t, { early, late = 0, settings = {} }) {
  const data = folder(t);
  const first = await operate(t, { data, settings: NEVER });
  await first.did("runs", { run_id: "a", owner_user_id: "u" }, 201);
  await first.did("workers", { worker_id: "w", owner_user_id: "u" }, 201);
  const append = (operator, count) => operator.batch([...events(count), ...Array.from({ length: count }, (_, i) => [
    { worker_id: "w", event_type: "worker.log", payload: { i } }, { topic: "room", event_type: "said", payload: { i } }]).flat()]);
  await append(first, early - 1);
  await first.did("topics/room/events", { event_type: "said" });
  await first.server.stop();
  const operator = await operate(t, { data, settings: { ...NEVER, ...settings, KHALA_CLOCK_OFFSET_MS: String(2 * DAY_MS) } });
  await operator.did("retention/run", "");
  if (late > 0) await append(operator, late);
  assert.equal(Number(sql(data, `SELECT oldest_seq FROM topics WHERE topic = '${TOPIC}'`)), early + 1, "everything was pruned");
  return operator;
}

const OLD = [TOPIC, "worker:w:lifecycle", "room"];
const reading = (operator) => ({ authorization: `Bearer ${operator.token_of_u}` });

/** Polls page after page from a bootstrap on; answers the pages. */
async function pagesOf(operator, topic) {
  const pages = [];
  for (let query = "limit=100"; ; query = `limit=100&after_seq=${pages.at(-1).next_cursor}`) {
    const { status, body } = await operator.ask("GET", pollPath(topic, query), undefined, reading(operator));
    assert.equal(status, 200, body);
    pages.push(JSON.parse(body));
    if (pages.at(-1).replay_complete) return pages;
  }
}

const sequences = (pages) => pages.flatMap(({ messages }) => messages.map((one) => one.sequence));

/** Reads a topic in three connections, each after the position of the last. */
const readers = {
  async sse(operator, topic, count, step) {
    const seen = [];
    for (let lastId; seen.length < count;) {
      const stream = await Stream.open(operator, streamPath(topic), { ...reading(operator), ...(lastId && { "last-event-id": lastId }) });
      await stream.until(() => stream.messages.length >= Math.min(step, count - seen.length), "some events");
      stream.close();
      const taken = stream.events.slice(0, stream.events.indexOf(stream.messages[Math.min(step, count - seen.length) - 1]) + 1);
      if (lastId) assert.ok(taken.every((one) => one.type === "message"), "a position inside the bootstrap resumes");
      else assert.deepEqual([taken[0].type, taken[0].data.truncated], ["bootstrap", false]);
      seen.push(...taken.filter((one) => one.type === "message").map((one) => one.data.sequence));
      lastId = taken.at(-1).id;
    }
    return seen;
  },
  async topic_ws(operator, topic, count, step) {
    const seen = [];
    while (seen.length < count) {
      const query = seen.length > 0 ? `after_seq=${seen.at(-1)}` : "";
      const socket = await Socket.open(operator, socketPath(topic, `token=${operator.token_of_u}&${query}`));
      await socket.until(() => socket.of("message").length >= Math.min(step, count - seen.length), "some messages");
      socket.close();
      assert.equal(socket.messages[0].type, "hello");
      if (seen.length > 0) assert.deepEqual([socket.messages[0].bootstrap, socket.of("stale_cursor")], [undefined, []]);
      else assert.deepEqual(socket.messages[0].bootstrap, { from_seq: 1, truncated: false });
      seen.push(...socket.of("message").slice(0, step).map((one) => one.seq));
    }
    return seen;
  },
  async phoenix(operator, topic, count, step) {
    const seen = [];
    while (seen.length < count) {
      const client = await Client.join(operator, { params: { token: operator.token_of_u } });
      const resume = seen.length > 0 ? { resume_after: { [topic]: seen.at(-1) } } : {};
      const { windows: [window] } = await client.subscribe({ topics: [topic], replay_batch_size: step, ...resume });
      assert.equal(window.oldest_seq, 1);
      if (seen.length === 0) assert.deepEqual(window.bootstrap, { from_seq: 1, truncated: false });
      await client.until(() => client.run(topic).sequences.length >= Math.min(step, count - seen.length), "a batch");
      client.close();
      seen.push(...client.run(topic).sequences.slice(0, step));
    }
    return seen;
  },
};

test("what was appended days ago opens whole on every transport, over pages and reconnects", async (t) => {
  const operator = await oldTopics(t, { early: 350 });
  operator.token_of_u = operator.sign({ oa_user_id: "u", oa_sync_scopes: ["runtime.run_events", "runtime.worker_lifecycle_events"],
    oa_sync_topics: ["run:*:events", "worker:*:lifecycle", "room"] });
  const whole = range(1, 350);
  for (const topic of OLD) {
    const pages = await pagesOf(operator, topic);
    assert.deepEqual(sequences(pages), whole, topic);
    assert.deepEqual(pages[0].bootstrap, { from_seq: 1, truncated: false });
    assert.ok(pages.length > 3 && pages.slice(1).every((page) => !page.bootstrap), "the other pages resume");
    assert.ok(pages.every((page) => page.oldest_available_cursor === 0 && page.dropped_messages === 0));
    for (const [name, read] of Object.entries(readers)) assert.deepEqual(await read(operator, topic, 350, 130), whole, `${topic}, ${name}`);
    assert.equal((await operator.read(`/v1/topics/${encodeURIComponent(topic)}`)).window.oldest_seq, 1);
  }
  const { topic_windows: windows } = await operator.read("khala/fanout/metrics?topic_limit=200");
  for (const topic of OLD) {
    const { oldest_sequence, queue_depth, dropped_messages } = windows.find((one) => one.topic === topic);
    assert.deepEqual([oldest_sequence, queue_depth, dropped_messages], [1, 350, 0], topic);
  }
  const { plans } = await operator.did("/v1/cursors/plan", OLD.flatMap((topic) => [0, 1, 349].map((after_seq) => ({ topic, after_seq }))));
  assert.deepEqual(plans.map(({ decision, replay_events }) => [decision, replay_events]), Array(3).fill([["resume", 350], ["resume", 349], ["resume", 1]]).flat());
  const tail = startVerb(t, ["tail", TOPIC, "--after", "0", "--json", "--url", operator.server.url, "--key", operator.key]);
  await tail.until((one) => one.lines.length === 350, "every line");
  assert.deepEqual(tail.lines.map((line) => JSON.parse(line).sequence), whole);
});

test("a bootstrap below the floor is truncated by the budget alone", async (t) => {
  for (const [budget, oldest, from] of [[300, 101, 151], [400, 51, 51], [500, 1, 1]]) {
    const settings = Object.fromEntries(["RUN_EVENTS", "WORKER_LIFECYCLE", "FALLBACK"]
      .map((name) => [`RUNTIME_KHALA_${name}_REPLAY_BUDGET_EVENTS`, String(budget)]));
    const operator = await oldTopics(t, { early: 100, late: 350, settings });
    operator.token_of_u = operator.reader;
    for (const topic of OLD) {
      const pages = await pagesOf(operator, topic);
      assert.deepEqual(sequences(pages), range(from, 450), `${topic}, a budget of ${budget}`);
      assert.deepEqual(pages[0].bootstrap, { from_seq: from, truncated: from > 1 });
      assert.equal(pages[0].oldest_available_cursor, oldest - 1);
      assert.equal((await operator.poll(topic, `after_seq=${from - 1}`)).status, 200, "the start of the bootstrap resumes");
      if (from > 1) {
        const { details } = assertError(await operator.poll(topic, `after_seq=${Math.max(from - 2, 1)}`), 410, "stale_cursor");
        assert.deepEqual(details.reason_codes, [...(oldest === from ? ["retention_floor_breach"] : []), "replay_budget_exceeded"]);
        assert.equal(details.stale_topics[0].retention_floor, oldest);
      }
    }
    await operator.server.stop();
  }
});

test("khala retention prunes through a running server, or directly", async (t) => {
  const operator = await operate(t, { settings: { ...NEVER, RUNTIME_KHALA_RUN_EVENTS_RETENTION_SECONDS: "86400" } });
  const { data } = operator;
  await appendEverywhere(operator);
  const through = await execute(binary, ["retention", "run-once", "--json", "--data-dir", data],
    { env: environment(storeSettings(["retention", "--data-dir", data], { KHALA_URL: operator.server.url })) });
  assert.equal(JSON.parse(through.stdout).deleted, 0);
  const plain = await execute(binary, ["retention", "run-once", "--data-dir", data],
    { env: environment(storeSettings(["retention", "--data-dir", data], { KHALA_URL: operator.server.url })) });
  assert.match(plain.stdout, /^0 frames of 0 topics pruned; \d+ topics looked at\n$/);
  await operator.server.stop();
  const settings = { KHALA_CLOCK_OFFSET_MS: String(DAY_MS + 60_000) };
  const named = run(["retention", "run-once", "--url", "http://127.0.0.1:1", "--data-dir", data], { settings });
  assert.deepEqual([named.code, named.out], [3, ""], "reproject with --url asks that server and no local store");
  assert.match(named.problem, /^khala: cannot connect to 127\.0\.0\.1 port 1: .*\n$/);
  const alone = run(["retention", "run-once", "--data-dir", data], { settings });
  assert.equal(alone.code, 0, alone.problem);
  assert.match(alone.out, /^run:r:events: 4 pruned, 0 kept$/m);
  assert.match(alone.out, /^\d+ frames of 7 topics pruned; \d+ topics looked at$/m);
  assert.equal(JSON.parse(run(["retention", "run-once", "--json", "--data-dir", data], { settings }).out).deleted, 0);
  assert.equal(run(["retention", "--data-dir", data]).code, 2);
  assert.equal(run(["retention", "run-twice"]).code, 2);
  assert.equal(run(["retention", "run-once", "--data-dir", join(data, "absent")]).code, 3);
});

test("a retention request takes no time and needs the operator key", async (t) => {
  const operator = await operate(t, { settings: NEVER });
  for (const body of ['{"now_ms":9999999999999}', "[]", "1", "{", '"now"', '{"topics":[]}']) {
    assertError(await operator.post("retention/run", body), 400, "invalid_request");
  }
  const peer = await connect(operator.server);
  await peer.send("POST /internal/v1/retention/run HTTP/1.1\r\nHost: k\r\nContent-Length: 0\r\n\r\n");
  assertError(await peer.response(), 401, "missing_authorization");
  assertError(await operator.get("retention/run"), 405, "method_not_allowed");
});

test("concurrent retention requests are all answered", async (t) => {
  const data = folder(t);
  const first = await operate(t, { data, settings: NEVER });
  await appendEverywhere(first);
  await first.server.stop();
  const operator = await operate(t, { data, settings: { ...NEVER, KHALA_CLOCK_OFFSET_MS: String(8 * DAY_MS) } });
  const answers = await Promise.all(Array.from({ length: 20 }, () => operator.did("retention/run", {})));
  const distinct = new Set(answers.map((one) => JSON.stringify(one)));
  assert.ok(distinct.size < 20, "some were shared");
  const all = [...distinct].reduce((sum, one) => sum + JSON.parse(one).deleted, 0);
  assert.ok(all > 0);
  assert.equal(sql(data, "SELECT count(*) FROM journal"), "0");
});

test("a stream overtaken by retention receives stale_cursor and continues without a gap", async (t) => {
  const operator = await operate(t, { settings: { ...PATIENT, RUNTIME_KHALA_RUN_EVENTS_REPLAY_BUDGET_EVENTS: "150",
    RUNTIME_KHALA_RETENTION_INTERVAL_MS: "10", RUNTIME_KHALA_RUN_EVENTS_RETENTION_SECONDS: "1" } });
  await operator.did("runs", { run_id: "a" }, 201);
  const path = streamPath(TOPIC, "after_seq=0");
  const headers = { authorization: `Bearer ${operator.reader}` };
  const live = await Stream.open(operator, path, headers);
  let head = 1;
  // Appends until the timer of retention has pruned some of the events.
  await until(async () => {
    await operator.batch(events(200));
    head += 200;
    return JSON.parse((await operator.poll(TOPIC, `after_seq=${head}`)).body).oldest_available_cursor >= 400;
  }, "the first pruned events");
  const late = await Stream.open(operator, path, headers);
  await operator.did("runs/a/events", { event_type: "last" });
  head++;
  for (const stream of [live, late]) {
    await stream.until(() => stream.messages.at(-1)?.data.sequence === head, `sequence ${head}`);
    let next = 1;
    let told = false;
    for (const event of stream.events) {
      if (event.type === "stale_cursor" || event.data.truncated) {
        told = true;
      } else if (event.type === "message") {
        const { sequence } = event.data;
        assert.ok(sequence === next || told, `sequence ${sequence} after ${next - 1}, and nobody said why`);
        assert.ok(sequence >= next);
        told = false;
        next = sequence + 1;
      }
    }
    assert.equal(next, head + 1);
  }
  assert.ok(late.events.some((event) => event.type === "bootstrap" && event.data.truncated), "the late one was told");
});

test("retention reports a full disk and recovers from it", sqliteOnly, async (t) => {
  const data = folder(t);
  const first = await operate(t, { data, settings: NEVER });
  for (let i = 0; i < 300; i++) await first.did("runs", { run_id: `r${i}` }, 201);
  await first.server.stop();
  const operator = await operate(t, { data, settings: { ...NEVER, KHALA_CLOCK_OFFSET_MS: String(8 * DAY_MS) } });
  await operator.did("runs/r0/events", { event_type: "x" });
  limitFileSize(operator.server, statSync(join(data, "khala.db-wal")).size);
  assertError(await operator.post("retention/run", {}), 503, "store_unavailable");
  assertError(await operator.post("retention/run", {}), 503, "store_unavailable");
  await operator.server.saw("log", /retention\.failed .*store_unavailable/);
  assert.equal(operator.server.log.match(/retention\.failed/g).length, 1);
  limitFileSize(operator.server, "unlimited");
  assert.ok((await operator.did("retention/run", {})).deleted >= 600);
  await operator.server.saw("log", /retention\.recovered/);
});

test("retention keeps the tail of a snapshot in use", async (t) => {
  const SUMMARIES = "runtime.run_summaries";
  const data = folder(t);
  const settings = { ...PATIENT, RUNTIME_KHALA_RETENTION_INTERVAL_MS: "20",
    RUNTIME_KHALA_RUN_SUMMARIES_RETENTION_SECONDS: "1", RUNTIME_KHALA_RUN_EVENTS_RETENTION_SECONDS: "1" };
  const floor = (topic) => Number(sql(data, `SELECT oldest_seq FROM topics WHERE topic = '${topic}'`));
  const appendSome = async (operator) => { for (let i = 0; i < 5; i++) await operator.did("runs/r/events", { event_type: "x" }); };
  const first = await operate(t, { data, settings });
  await first.did("runs", { run_id: "r" }, 201);
  await appendSome(first);
  const { watermark } = await first.read(snapshotPath(SUMMARIES));
  assert.equal(watermark, 6);
  await appendSome(first);
  // Run events of the same age are pruned; each pass handles them after the summaries.
  await until(() => floor("run:r:events") >= 12, "the pruning of the run's events");
  assert.equal(floor(SUMMARIES), watermark + 1);
  const tail = JSON.parse((await first.poll(SUMMARIES, `after_seq=${watermark}`)).body);
  assert.deepEqual(tail.messages.map((message) => message.sequence), [7, 8, 9, 10, 11]);
  assertError(await first.poll(SUMMARIES, `after_seq=${watermark - 1}`), 410, "stale_cursor");
  await first.server.stop();

  const next = await operate(t, { data, settings: { ...settings, RUNTIME_KHALA_RUN_SUMMARIES_SNAPSHOT_CADENCE_SECONDS: "1" } });
  assert.equal((await next.read(snapshotPath(SUMMARIES))).watermark, 11);
  await appendSome(next);
  await until(() => floor(SUMMARIES) >= 17, "the pruning of the summaries");
  assertError(await next.poll(SUMMARIES, "after_seq=11"), 410, "stale_cursor");
});

const CROWD = 5000;
const EVENTS = 4; // of each run
const BATCH_TOPICS_MAX = 256;
const LISTED_MAX = 1000;
// A noisy machine delays the longest of a few hundred appends far less.
const STALL_RATIO_MAX = 20;

async function appendCrowd(operator) {
  const runs = Array.from({ length: CROWD }, (_, i) => `r${i}`);
  for (let at = 0; at < CROWD; at += 500) {
    const some = runs.slice(at, at + 500);
    await Promise.all(some.map((id) => operator.did("runs", { run_id: id }, 201)));
    await operator.batch(some.flatMap((id) => Array.from({ length: EVENTS - 1 }, () => ({ run_id: id, event_type: "x" }))));
  }
}

/** Appends without a pause until the promise settles; answers how long each append took. */
async function appendWhile(operator, busy) {
  const times = [];
  let isOver = false;
  const over = busy.finally(() => { isOver = true; });
  await Promise.all(Array.from({ length: 4 }, async () => {
    while (!isOver) {
      const begun = performance.now();
      await operator.did("runs/live/events", { event_type: "x" });
      times.push(performance.now() - begun);
    }
  }));
  await over;
  return times;
}

const follow = (operator, run, after) => Stream.open(operator, streamPath(`run:${run}:events`, `after_seq=${after}`),
  { authorization: `Bearer ${operator.reader}` });
const batches = async (operator) => (await scrape(operator)).get("openagents_runtime_sync_retention_cycle_batches_total");

alone("the expiry of thousands of topics delays an append by at most one batch", async (t) => {
  const data = folder(t);
  const first = await operate(t, { data, settings: NEVER });
  await appendCrowd(first);
  await first.server.stop();
  const operator = await operate(t, { data, settings: { ...NEVER, KHALA_CLOCK_OFFSET_MS: String(DAY_MS + 60_000) } });
  await operator.did("runs", { run_id: "live" }, 201);
  // Some topics are followed, and have young frames in memory above the expired ones.
  const watched = Array.from({ length: 20 }, (_, i) => `r${i * 211}`);
  const live = await Promise.all(watched.map((id) => follow(operator, id, 0)));
  await operator.batch(watched.flatMap((id) => [1, 2].map(() => ({ run_id: id, event_type: "young" }))));
  await Promise.all(live.map((stream) => stream.until(() => stream.lastSeq === EVENTS + 2, "the young ones")));

  const quiet = (async () => {
    for (let i = 0; i < 200; i++) await operator.get("/healthz/live");
  })();
  const alone = await appendWhile(operator, quiet);
  let report;
  const beside = await appendWhile(operator, operator.did("retention/run", {}).then((done) => { report = done; }));
  const longest = (times) => Math.max(...times);
  assert.ok(longest(beside) < STALL_RATIO_MAX * longest(alone), `${longest(beside)} ms, alone ${longest(alone)} ms`);
  assert.ok(await batches(operator) >= CROWD / BATCH_TOPICS_MAX);
  assert.ok(beside.length > await batches(operator), "appends went between the batches");

  // The report is correct and within its size limit.
  assert.equal(report.topics_pruned, CROWD);
  assert.equal(report.deleted, CROWD * EVENTS);
  assert.equal(report.topic_stats.length, LISTED_MAX);
  assert.equal(report.topic_stats_omitted, report.topics - LISTED_MAX);
  for (const one of report.topic_stats) {
    const isWatched = watched.some((id) => one.topic === `run:${id}:events`);
    assert.equal(one.deleted, EVENTS);
    assert.deepEqual([one.oldest, one.head, one.stale_risk],
      isWatched ? [EVENTS + 1, EVENTS + 2, 1] : [EVENTS + 1, EVENTS, 0]);
  }
  assert.equal(sql(data, `SELECT count(*) FROM topics WHERE topic LIKE 'run:r%' AND oldest_seq = ${EVENTS + 1}`),
    String(CROWD));

  // A live stream continues. A cursor below the floor resumes: the log still has the events.
  for (const id of watched) await operator.did(`runs/${id}/events`, { event_type: "after" });
  for (const stream of live) {
    await stream.until(() => stream.lastSeq === EVENTS + 3, "the event of after");
    assert.deepEqual(stream.messages.map((message) => message.data.sequence), [1, 2, 3, 4, 5, 6, 7]);
  }
  for (const id of [...watched, "r1", "r4999"]) {
    const last = watched.includes(id) ? EVENTS + 3 : EVENTS;
    const late = await follow(operator, id, 1);
    await late.until(() => late.lastSeq === last, "the last event");
    assert.deepEqual(late.events.map((event) => event.data.sequence), range(2, last));
  }
});
