// Steps of the wall clock under a running server: hours forward, hours back, and across a restart.
import assert from "node:assert/strict";
import { test } from "node:test";
import { SteppedClock } from "../../lib/clock.mjs";
import { folder, run } from "../../lib/khala.mjs";
import { streamPath } from "../../lib/paths.mjs";
import { scrape } from "../../lib/prometheus.mjs";
import { Stream } from "../../lib/sse.mjs";
import { sql } from "../../lib/store.mjs";
import { until } from "../../lib/wait.mjs";

const HOUR_MS = 3_600_000;
const YEAR_MS = 365 * 24 * HOUR_MS;
const SETTINGS = { KHALA_HEARTBEAT_MS: "50", RUNTIME_KHALA_RETENTION_INTERVAL_MS: "50", RUNTIME_KHALA_POLL_MIN_INTERVAL_MS: "0" };
const STEPS_MS = [0, -6 * HOUR_MS, 13 * HOUR_MS, 0, -30 * HOUR_MS, -30 * HOUR_MS + 1, 40 * HOUR_MS, -1, 6 * HOUR_MS, 0];

const append = async (operator) => (await operator.did("runs/r/events", { event_type: "x" })).event;
const notify = (operator) => operator.did("notifications", { event_type: "n" });
const position = (cursor) => Buffer.from(cursor, "base64url").toString("latin1");
const follow = (operator, topic, token) => Stream.open(operator, streamPath(topic, "after_seq=0"),
  { authorization: `Bearer ${token ?? operator.reader}` });
const floors = (data) => sql(data, "SELECT topic, oldest_seq FROM topics WHERE topic <> 'runtime.audit'");

/** Waits for so many further passes of retention. */
async function passes(operator, count = 3) {
  const total = async () => (await scrape(operator)).get("openagents_runtime_sync_retention_cycle_total", { status: "ok" });
  const wanted = (await total()) + count;
  await until(async () => await total() >= wanted, `${count} passes of retention`);
}

/** Checks that each decoded cursor is above the one before. */
function assertRising(cursors) {
  for (let i = 1; i < cursors.length; i++) {
    const [before, after] = [cursors[i - 1], cursors[i]].map((cursor) => position(cursor).split(":"));
    assert.ok(Number(after[0]) > Number(before[0]) || (after[0] === before[0] && after[1] > before[1]),
      `${position(cursors[i])} after ${position(cursors[i - 1])}`);
  }
}

test("cursors rise and no reader skips an event over clock steps and restarts", async (t) => {
  const clock = new SteppedClock(t);
  const data = folder(t);
  let operator = await clock.operate(t, { data, settings: SETTINGS });
  await operator.did("runs", { run_id: "r" }, 201);
  const cursors = [];
  for (const [index, step] of STEPS_MS.entries()) {
    clock.set(step);
    if (index % 4 === 3) {
      await operator.server.stop();
      operator = await clock.operate(t, { data, settings: SETTINGS });
    }
    for (let i = 0; i < 3; i++) cursors.push((await append(operator)).cursor);
  }
  assertRising(cursors);
  // A reader that follows by cursor receives each event once, in this order.
  const listed = [];
  for (let after = cursors[0]; after;) {
    const page = JSON.parse((await operator.get(`/api/events?limit=7&after_cursor=${after}`)).body);
    listed.push(...page.items.map((item) => item.cursor));
    after = page.has_more ? page.next_cursor : null;
  }
  assert.deepEqual(listed, cursors.slice(1));
  await operator.server.stop();
  assert.equal(run(["verify", "--data-dir", data]).code, 0);
});

test("retention prunes nothing while the clock is ahead, and continues when it returns", async (t) => {
  const clock = new SteppedClock(t);
  const operator = await clock.operate(t, { settings: SETTINGS });
  const { data, server } = operator;
  await operator.did("runs", { run_id: "r" }, 201);
  for (let i = 0; i < 5; i++) await notify(operator);
  await passes(operator);
  const before = floors(data);
  clock.set(13 * HOUR_MS); // notifications are kept for 12 hours
  await passes(operator);
  await server.saw("log", /retention\.clock_stepped step=forward /);
  assert.equal((await operator.did("retention/run", {})).deleted, 0);
  assert.equal(floors(data), before);
  await append(operator);
  clock.set(0);
  await passes(operator);
  await server.saw("log", /retention\.clock_stepped step=returned /);
  assert.equal((await operator.did("retention/run", {})).deleted, 0);
  assert.equal(floors(data), before);
  await server.saw("log", /log\.cursor_clock_ahead /);
  const messages = JSON.parse((await operator.poll("runtime.notifications", "after_seq=0")).body);
  assert.equal(messages.messages.length, 5);
  assert.equal(server.log.match(/retention\.clock_stepped/g).length, 2);
});

test("retention prunes nothing when the clock goes back, and prunes by the new time later", async (t) => {
  const clock = new SteppedClock(t);
  const operator = await clock.operate(t, { settings: { ...SETTINGS, RUNTIME_KHALA_NOTIFICATIONS_RETENTION_SECONDS: "1" } });
  const { data, server } = operator;
  await operator.did("runs", { run_id: "r" }, 201);
  clock.set(-6 * HOUR_MS);
  await passes(operator);
  await server.saw("log", /retention\.clock_stepped step=back /);
  await notify(operator);
  const floor = () => Number(sql(data, "SELECT oldest_seq FROM topics WHERE topic = 'runtime.notifications'"));
  await passes(operator);
  assert.equal(floor(), 1);
  clock.set(2000);
  await server.stop();
  const next = await clock.operate(t, { data, settings: { ...SETTINGS, RUNTIME_KHALA_NOTIFICATIONS_RETENTION_SECONDS: "1" } });
  await until(() => floor() >= 2, "the expiry of the notification", 60_000);
  await passes(next, 1);
});

test("one event under a clock a year ahead stops neither recorded_at nor retention", async (t) => {
  const clock = new SteppedClock(t);
  const data = folder(t);
  const settings = { ...SETTINGS, RUNTIME_KHALA_NOTIFICATIONS_RETENTION_SECONDS: "1" };
  clock.set(YEAR_MS);
  let operator = await clock.operate(t, { data, settings });
  const { event: ahead } = await notify(operator);
  assert.ok(ahead.recorded_at > Date.now() + YEAR_MS - HOUR_MS);
  await operator.did("workers", { worker_id: "w", owner_user_id: "u" }, 201);
  await operator.server.stop();
  clock.set(0);
  operator = await clock.operate(t, { data, settings });
  const { event } = await notify(operator);
  assertRising([ahead.cursor, event.cursor]);
  assert.ok(Math.abs(event.recorded_at - Date.now()) < HOUR_MS, JSON.stringify(event));
  assert.equal((await operator.did("workers/w/heartbeat", {})).worker.liveness, "fresh");
  const { worker } = await operator.read("workers/w");
  assert.ok(Math.abs(worker.last_heartbeat_at - Date.now()) < HOUR_MS, JSON.stringify(worker));
  const aheadSeconds = (await scrape(operator)).get("khala_cursor_clock_ahead_seconds");
  assert.ok(Math.abs(aheadSeconds * 1000 - YEAR_MS) < HOUR_MS, `${aheadSeconds} s`);
  // The first notification is dated a year ahead. It goes with the second.
  await until(() => Number(sql(data, "SELECT oldest_seq FROM topics WHERE topic = 'runtime.notifications'")) === 3,
    "the expiry of both notifications");
  await operator.server.stop();
  const doctor = run(["doctor", "--data-dir", data]);
  assert.match(doctor.out, /the cursor clock runs 31\d{6} s ahead of this machine's clock/);
});

test("heartbeats, polls and timers use the monotonic clock and do not spin", async (t) => {
  const clock = new SteppedClock(t);
  const operator = await clock.operate(t, { settings: SETTINGS });
  await operator.did("runs", { run_id: "r" }, 201);
  await operator.did("workers", { worker_id: "w", owner_user_id: "u" }, 201);
  await operator.did("workers/w/heartbeat", { owner_user_id: "u" });
  for (const [step, liveness] of [[-6 * HOUR_MS, "fresh"], [6 * HOUR_MS, "stale"], [0, "fresh"]]) {
    clock.set(step);
    const stream = await follow(operator, "run:r:events");
    const { worker } = await operator.read("workers/w");
    assert.equal(worker.liveness, liveness, JSON.stringify(worker));
    const waited = operator.poll("run:r:events", `after_seq=${(await operator.events("r")).length}&wait_ms=300`);
    const cpuSeconds = async () => (await scrape(operator)).get("process_cpu_seconds_total");
    const begun = { cpu: await cpuSeconds(), at: performance.now(), beats: stream.comments };
    await stream.until(() => stream.comments >= begun.beats + 10, "ten heartbeats");
    const cpu = await cpuSeconds() - begun.cpu;
    const seconds = (performance.now() - begun.at) / 1000;
    assert.ok(cpu < seconds / 2, `${cpu} s of ${seconds} s`);
    assert.equal((await waited).status, 200);
    await append(operator);
    await stream.until(() => stream.messages.length > 0, "the event");
    stream.close();
  }
});

test("a token is valid by the wall clock only", async (t) => {
  const clock = new SteppedClock(t);
  const operator = await clock.operate(t, { settings: SETTINGS });
  await operator.did("runs", { run_id: "r" }, 201);
  const ask = async (token) => {
    const { status, body } = await operator.ask("GET", "/v1/topics/runtime.run_summaries/snapshot", undefined,
      { authorization: `Bearer ${token}` });
    return [status, status === 200 ? "" : JSON.parse(body).error];
  };
  const token = await operator.token();
  const open = await follow(operator, "run:r:events", token);
  assert.deepEqual(await ask(token), [200, ""]);
  clock.set(6 * HOUR_MS);
  assert.deepEqual(await ask(token), [401, "token_expired"]);
  await open.until(() => open.ended, "the end of the stream").catch(() => {});
  assert.ok(open.ended, "nothing is delivered after the end of the token");
  const ahead = await operator.token();
  assert.deepEqual(await ask(ahead), [200, ""]);
  clock.set(0);
  assert.deepEqual(await ask(ahead), [401, "token_not_yet_valid"]);
  assert.deepEqual(await ask(token), [200, ""]);
});

test("used and revoked tokens stay refused after the clock was ahead for a while", async (t) => {
  const clock = new SteppedClock(t);
  const data = folder(t);
  const settings = { ...SETTINGS, RUNTIME_SYNC_TOKEN_SINGLE_USE: "true" };
  let operator = await clock.operate(t, { data, settings });
  await operator.did("runs", { run_id: "r" }, 201);
  const open = async (token) => {
    const stream = await follow(operator, "run:r:events", token);
    stream.close();
    return stream.status;
  };
  const claims = { oa_sync_scopes: ["runtime.read_all"] };
  const used = operator.sign(claims);
  const revoked = operator.sign({ ...claims, oa_session_id: "s" });
  assert.equal(await open(used), 200);
  assert.equal(await open(used), 401);
  await operator.did("sync/sessions/revoke", { session_ids: ["s"] });
  clock.set(6 * HOUR_MS);
  // Each of these calls removes expired entries.
  for (let i = 0; i < 3; i++) assert.equal(await open(operator.sign(claims)), 200);
  // A start does not remove entries that look expired either.
  await operator.server.stop();
  operator = await clock.operate(t, { data, settings });
  assert.equal(await open(operator.sign(claims)), 200);
  // These calls remove expired entries too. Each is recorded, and a later start trusts the time of the last event, so there
  // is no start while the clock is ahead after this.
  for (let i = 0; i < 3; i++) await operator.did("sync/sessions/revoke", { session_ids: [`other${i}`] });
  clock.set(0);
  assert.equal(await open(revoked), 401);
  await operator.server.stop();
  operator = await clock.operate(t, { data, settings });
  assert.equal(await open(revoked), 401);
  assert.equal(await open(used), 401);
  assert.equal(await open(operator.sign(claims)), 200);
});
