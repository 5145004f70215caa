// since: a time instead of a position, on every transport. The server's clock is stepped between the
// events, so that they lie an hour apart.
import assert from "node:assert/strict";
import { test } from "node:test";
import { SteppedClock } from "../../lib/clock.mjs";
import { run, startVerb } from "../../lib/khala.mjs";
import { operate } from "../../lib/operator.mjs";
import { AUDIT_SOCKET, pollPath, socketPath, streamPath } from "../../lib/paths.mjs";
import { Client } from "../../lib/phoenix.mjs";
import { TOPIC } from "../../lib/samples.mjs";
import { Socket } from "../../lib/socket.mjs";
import { Stream } from "../../lib/sse.mjs";

const HOUR_MS = 3_600_000;
const HOURS = 6; // one event each hour: seq n is n - 1 hours after the first
const SUMMARIES = "runtime.run_summaries";

const stream = (operator, path, headers = {}) => Stream.open(operator, path, { authorization: `Bearer ${operator.key}`, ...headers });

/** The sequence of the first message of an event stream. */
async function firstOf(opened) {
  await opened.until((one) => one.messages.length > 0, "a message");
  opened.close();
  return opened.messages[0].data.sequence ?? opened.messages[0].data.seq;
}

/** Asks each transport of a topic; answers the sequence of its first frame. */
const ofTopic = {
  poll: async (operator, topic, since) => (await operator.read(pollPath(topic, `since=${since}`))).messages[0]?.sequence,
  stream: async (operator, topic, since) => firstOf(await stream(operator, streamPath(topic, `since=${since}`))),
  async socket(operator, topic, since) {
    const socket = await Socket.open(operator, socketPath(topic, `since=${since}&token=${operator.reader}`));
    await socket.until((one) => one.of("message").length > 0, "a message");
    socket.close();
    return socket.of("message")[0].sequence;
  },
  async phoenix(operator, topic, since) {
    const client = await Client.join(operator);
    const { status, response } = await client.ask("sync:subscribe", { topics: [topic], since: decodeURIComponent(since) });
    assert.equal(status, "ok", JSON.stringify(response));
    await client.until((one) => one.run(topic).updates.length > 0, "an update");
    client.close();
    return client.run(topic).updates[0].watermark;
  },
};

/** Asks each route of the log; answers the sequence of its first event. */
const ofLog = {
  list: async (operator, since) => (await operator.read(`/api/events?since=${since}`)).items[0].seq,
  export: async (operator, since) => JSON.parse((await operator.get(`/api/events/export?since=${since}`)).body.split("\n")[0]).seq,
  stream: async (operator, since) => firstOf(await stream(operator, `/events?since=${since}`)),
  async socket(operator, since) {
    const socket = await Socket.audit(operator, operator.reader, { ts: operator.nowMs(), since: decodeURIComponent(since) });
    await socket.until((one) => one.of("event").length > 0, "an event");
    socket.close();
    return socket.of("event")[0].event.seq;
  },
  events: async (operator, since) => (await operator.read(`runs/a/events?since=${since}`)).events[0].seq,
};

/** The times that lead to a seq: a duration, and the time of its event in two forms. */
function timesOf(operator, seq) {
  const at = operator.times[seq - 1];
  const there = new Date(at + 2 * HOUR_MS).toISOString().replace("Z", "+02:00");
  return [`${(HOURS - seq) * 60 + 30}m`, new Date(at).toISOString(), encodeURIComponent(there)];
}

async function topicsTakeATime(operator) {
  for (const topic of [TOPIC, SUMMARIES])
    for (const seq of [1, 3, HOURS])
      for (const since of timesOf(operator, seq))
        for (const [name, ask] of Object.entries(ofTopic))
          assert.equal(await ask(operator, topic, since), seq, `${name} ${topic} ${since}`);
}

async function theLogTakesATime(operator) {
  for (const seq of [1, 3, HOURS])
    for (const since of timesOf(operator, seq))
      for (const [name, ask] of Object.entries(ofLog)) assert.equal(await ask(operator, since), seq, `${name} ${since}`);
  assert.equal((await operator.read("/api/events?since=1970-01-01T00:00:00Z")).items.length, HOURS);
}

async function theLogStreamNamesItsPosition(operator) {
  const opened = await stream(operator, "/events?since=90m");
  await opened.until((one) => one.messages.length > 0, "a message");
  opened.close();
  const [begin] = opened.events;
  assert.equal(begin.type, "bootstrap");
  assert.equal((await operator.read(`/api/events?after_cursor=${begin.data.after_cursor}`)).items[0].seq, HOURS - 1);
}

async function anIdWinsOverATime(operator) {
  assert.equal(await firstOf(await stream(operator, streamPath(TOPIC, "since=7d"), { "last-event-id": "4" })), 5);
  const { items } = await operator.read("/api/events");
  assert.equal(await firstOf(await stream(operator, "/events?since=7d", { "last-event-id": items[3].cursor })), 5);
}

async function aCursorOfATopicWinsOverATime(operator) {
  const client = await Client.join(operator);
  await client.ask("sync:subscribe", { topics: [TOPIC, SUMMARIES], resume_after: { [TOPIC]: 5 }, since: "150m" });
  await client.until((one) => [TOPIC, SUMMARIES].every((topic) => one.run(topic).updates.length > 0), "updates of both");
  client.close();
  assert.equal(client.run(TOPIC).updates[0].watermark, 6);
  assert.equal(client.run(SUMMARIES).updates[0].watermark, 4);
}

async function theFutureIsTheHead(operator) {
  for (const since of ["2999-01-01T00:00:00Z", "0s"]) {
    for (const topic of [TOPIC, SUMMARIES]) {
      const page = await operator.read(pollPath(topic, `since=${since}`));
      assert.deepEqual([page.messages, page.next_cursor, page.bootstrap], [[], HOURS, undefined], `${topic} ${since}`);
    }
    const log = await operator.read(`/api/events?since=${since}`);
    assert.deepEqual([log.items, log.has_more], [[], false]);
    const next = await operator.read(`/api/events?after_cursor=${log.next_cursor}`);
    assert.deepEqual(next.items, [], "the cursor is not ahead");
    const manifest = JSON.parse((await operator.get(`/api/events/export?since=${since}`)).body);
    assert.equal(manifest.manifest.count, 0);
    const page = await operator.read(`runs/a/events?since=${since}`);
    assert.deepEqual([page.events, page.next_after_seq], [[], HOURS]);
  }
  const absent = await operator.read(pollPath("nothing.yet", "since=2h"));
  assert.deepEqual([absent.messages, absent.next_cursor], [[], 0]);
}

/** The streams hand out the cursor of the last event, which the server takes back. */
async function aLateTimeBeginsAtTheHeadOfTheLog(operator) {
  const head = (await operator.read("/api/events")).items.at(-1).cursor;
  for (const since of ["2999-01-01T00:00:00Z", "0s"]) {
    const opened = await stream(operator, `/events?since=${since}`);
    await opened.until((one) => one.events.length > 0, "the bootstrap");
    opened.close();
    assert.deepEqual(opened.events.map(({ type, id }) => [type, id]), [["bootstrap", head]], since);
    const socket = await Socket.audit(operator, operator.reader, { ts: operator.nowMs() },
      { path: `${AUDIT_SOCKET}?since=${since}` });
    await socket.until((one) => one.of("replay_complete").length > 0, "the replay");
    socket.close();
    assert.deepEqual([socket.of("event"), socket.of("replay_complete")[0].cursor], [[], head], since);
    const asked = await Socket.audit(operator, operator.reader, { ts: operator.nowMs(), since });
    await asked.until((one) => one.of("replay_complete").length > 0, "the replay");
    asked.close();
    assert.deepEqual([asked.of("event"), asked.of("replay_complete")[0].cursor], [[], head], since);
  }
}

async function badTimesAreNamed(operator) {
  const paths = [pollPath(TOPIC), streamPath(TOPIC), socketPath(TOPIC), "/api/events", "/api/events/export", "/events",
    "/internal/v1/runs/a/events", AUDIT_SOCKET];
  const position = (path) => (path.includes(encodeURIComponent(TOPIC)) || path.includes("runs/a")
    ? "after_seq=1" : "after_cursor=x");
  for (const path of paths) {
    const token = path.startsWith("/internal/v1/khala") && path.endsWith("/ws") ? `&token=${operator.reader}` : "";
    for (const query of ["since=", "since=yesterday", "since=2", "since=2001-02-29T00:00:00Z", `since=${"1".repeat(300)}`,
      `since=2h&${position(path)}`]) {
      const answer = await operator.get(`${path}?${query}${token}`);
      assert.equal(answer.status, 400, `${path}?${query} ${answer.body}`);
      const { error, details } = JSON.parse(answer.body);
      assert.deepEqual([error, details.parameter], ["invalid_request", "since"], `${path}?${query}`);
    }
  }
  assert.equal((await operator.poll(TOPIC, "since=2h&from=head")).status, 400);
  const client = await Client.join(operator);
  for (const more of [{ since: "yesterday" }, { since: 7 }, { since: "2h", after_cursor: (await operator.read("/api/events")).next_cursor }]) {
    const socket = await Socket.audit(operator, operator.reader, { ts: operator.nowMs(), ...more });
    await socket.until((one) => one.closed, "the close");
    assert.match(socket.of("error")[0].details.reason, /^since /);
  }
  for (const since of ["yesterday", 7, ""]) {
    const { status, response } = await client.ask("sync:subscribe", { topics: [TOPIC], since });
    assert.deepEqual([status, response.code], ["error", "bad_subscription"]);
  }
  client.close();
}

async function verbsTakeATime(t, operator) {
  const where = ["--url", operator.server.url, "--key", operator.key];
  const exported = run(["export", "--since", "90m", ...where]);
  assert.deepEqual(exported.out.trim().split("\n").slice(0, -1).map((line) => JSON.parse(line).seq), [5, 6], exported.problem);
  const got = run(["get", "events", "--run", "a", "--since", "90m", "--json", ...where]);
  assert.deepEqual(JSON.parse(got.out).events.map(({ seq }) => seq), [5, 6], got.problem);
  for (const [args, name] of [[[TOPIC], "sequence"], [["--audit"], "seq"]]) {
    const tail = startVerb(t, ["tail", ...args, "--since", "90m", "--json", ...where]);
    // Without the record of the token that the verb mints for itself.
    const lines = () => tail.lines.filter((line) => !line.includes("operator.token_minted"));
    await tail.until(() => lines().length === 2, "two events");
    assert.deepEqual(lines().map((line) => JSON.parse(line)[name]), [5, 6]);
    await tail.end("SIGINT");
  }
  for (const args of [["tail", TOPIC, "--since", "1h", "--after", "1"], ["tail", TOPIC, "--since", "1h", "--from-start"],
    ["export", "--since", "1h", "--after", "x"], ["get", "events", "--run", "a", "--since", "1h", "--after", "1"],
    ["get", "runs", "--since", "1h"]])
    assert.equal(run([...args, ...where]).code, 2, args.join(" "));
  const refused = run(["export", "--since", "yesterday", ...where]);
  assert.match(refused.problem, /since is a time/);
}

/** Half of the summaries have expired, and all events of the run's topic. */
async function prunedFramesAreStale(t, before) {
  await before.server.stop();
  const settings = { RUNTIME_KHALA_POLL_MIN_INTERVAL_MS: "0", KHALA_CLOCK_OFFSET_MS: String((7 * 24 + 2.5) * HOUR_MS) };
  assert.equal(run(["retention", "run-once", "--data-dir", before.data], { settings }).code, 0);
  const operator = await operate(t, { data: before.data, settings });
  const at = (seq) => new Date(before.times[seq - 1]).toISOString();
  for (const [topic, since] of [[SUMMARIES, "30d"], [SUMMARIES, at(3)]]) {
    const { status, body } = await operator.poll(topic, `since=${since}`);
    assert.deepEqual([status, JSON.parse(body).reason_code], [410, "retention_floor_breach"], `${topic} ${since} ${body}`);
  }
  assert.equal((await operator.read(pollPath(SUMMARIES, `since=${at(5)}`))).messages[0].sequence, 5);
  for (const topic of [SUMMARIES, TOPIC]) {
    const page = await operator.read(pollPath(topic, "since=1h"));
    assert.deepEqual([page.messages, page.next_cursor], [[], HOURS], topic);
  }
  assert.equal((await operator.read("runs/a/events?since=30d")).events[0].seq, 1, "the log is not pruned");
  assert.equal((await operator.read(pollPath(TOPIC, "since=30d"))).messages[0].sequence, 1, "a run begins in the log");
  assert.equal((await operator.read(pollPath(TOPIC, `since=${at(2)}&replay=all`))).messages[0].sequence, 2);
  const opened = await stream(operator, streamPath(SUMMARIES, "since=30d"));
  await opened.until((one) => one.events.length > 0, "a notice");
  opened.close();
  assert.equal(opened.events[0].type, "stale_cursor");
  await operator.server.stop();
}

/** All summaries have expired: only the log can tell whether one of them was later than the time. */
async function anEmptyJournalHasAHead(t, before) {
  const settings = { RUNTIME_KHALA_POLL_MIN_INTERVAL_MS: "0", KHALA_CLOCK_OFFSET_MS: String((7 * 24 + 6) * HOUR_MS) };
  // A pass through the server would be recorded, later than the time.
  assert.equal(run(["retention", "run-once", "--data-dir", before.data], { settings }).code, 0);
  const operator = await operate(t, { data: before.data, settings });
  assert.equal((await operator.poll(SUMMARIES, "since=8d")).status, 410);
  const page = await operator.read(pollPath(SUMMARIES, "since=1h"));
  assert.deepEqual([page.messages, page.next_cursor, page.oldest_available_cursor], [[], HOURS, HOURS]);
}

test("since is a time instead of a position", async (t) => {
  const clock = new SteppedClock(t);
  const operator = await clock.operate(t, { settings: { RUNTIME_KHALA_POLL_MIN_INTERVAL_MS: "0" } });
  await operator.did("runs", { run_id: "a", owner_user_id: "ada" }, 201);
  for (let i = 1; i < HOURS; i++) {
    clock.set(i * HOUR_MS);
    await operator.did("runs/a/events", { event_type: "run.log", payload: { i } });
  }
  operator.times = (await operator.read("/api/events")).items.map(({ recorded_at }) => recorded_at);
  // A moment behind the last event, so that "0s" is later.
  clock.set(clock.offsetMs + 1000);
  operator.nowMs = () => Date.now() + clock.offsetMs;
  const cases = {
    "topics take a time": topicsTakeATime,
    "the log takes a time": theLogTakesATime,
    "the stream of the log names the position of the time": theLogStreamNamesItsPosition,
    "the id of a client that reconnects takes precedence": anIdWinsOverATime,
    "the cursor of a topic takes precedence": aCursorOfATopicWinsOverATime,
    "a time of the future is the head": theFutureIsTheHead,
    "a late time begins at the head of the log": aLateTimeBeginsAtTheHeadOfTheLog,
    "a bad time is refused by its name": badTimesAreNamed,
    "verbs take a time": (given) => verbsTakeATime(t, given),
    "a time before the floor is stale": (given) => prunedFramesAreStale(t, given),
    "a time in an empty journal is stale or the head": (given) => anEmptyJournalHasAHead(t, given),
  };
  for (const [name, check] of Object.entries(cases)) await t.test(name, () => check(operator));
});

test("no frame is missing after the clock stepped back", async (t) => {
  const clock = new SteppedClock(t);
  const operator = await clock.operate(t, { settings: { RUNTIME_KHALA_POLL_MIN_INTERVAL_MS: "0" } });
  await operator.did("runs", { run_id: "a", owner_user_id: "ada" }, 201);
  for (const hour of [1, 2, 0, 0, 0, 0]) {
    clock.set(hour * HOUR_MS);
    await operator.did("runs/a/events", { event_type: "run.log" });
  }
  const since = new Date((await operator.read("/api/events")).items[1].recorded_at).toISOString();
  clock.set(3 * HOUR_MS);
  for (const topic of [TOPIC, SUMMARIES]) assert.equal(await ofTopic.poll(operator, topic, since), 2, topic);
  assert.equal((await operator.read(`/api/events?since=${since}`)).items[0].seq, 2);
});
