// Every family of /metrics: an action must move one series by that amount, and no other series of the
// family. The last test compares the tested families with spec/metrics.json.
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { readFileSync, renameSync, statfsSync, statSync, writeFileSync } from "node:fs";
import http from "node:http";
import net from "node:net";
import { join } from "node:path";
import { alone, test } from "../../lib/cases.mjs";
import { onPostgres, sqliteOnly } from "../../lib/database.mjs";
import { connect, folder, start } from "../../lib/khala.mjs";
import { limitFileSize } from "../../lib/machine.mjs";
import { operate } from "../../lib/operator.mjs";
import { snapshotPath, streamPath } from "../../lib/paths.mjs";
import { Client } from "../../lib/phoenix.mjs";
import { freePort } from "../../lib/ports.mjs";
import { familyOf, scrape } from "../../lib/prometheus.mjs";
import { promtool } from "../../lib/promtool.mjs";
import { Socket } from "../../lib/socket.mjs";
import { Stream } from "../../lib/sse.mjs";
import { alter, holdWriter, sql } from "../../lib/store.mjs";
import { Authority } from "../../lib/tls.mjs";
import { once, until } from "../../lib/wait.mjs";
import { frame, message, RawSocket, TEXT } from "../../lib/websocket.mjs";

const SPEC = JSON.parse(readFileSync(new URL("../../../spec/metrics.json", import.meta.url), "utf8")).metrics;
const KINDS = new Map(SPEC.map(({ name, kind }) => [name, kind]));
const NEVER = { RUNTIME_KHALA_RETENTION_INTERVAL_MS: "86400000", RUNTIME_KHALA_POLL_MIN_INTERVAL_MS: "0" };
const DAY_MS = 86_400_000;
const seen = new Set();

/** The value of a series; for a histogram, its number of observations. */
function numberOf(metrics, name, labels) {
  return metrics.get(KINDS.get(name) === "histogram" ? `${name}_count` : name, labels);
}

/**
 * Asserts that an action raises the series by a number, or by "some". With undo, the gauge must come
 * back. No other series of the family may move, unless alone is false.
 */
async function moves(operator, name, labels, by, happens, { undo, alone = true } = {}) {
  const of = familyOf(name);
  assert.ok(KINDS.has(of), of);
  seen.add(of);
  const before = await scrape(operator);
  const was = numberOf(before, of, labels);
  await happens();
  const rose = (metrics) => numberOf(metrics, of, labels) - was;
  const after = await until(async () => {
    const now = await scrape(operator);
    return rose(now) >= (by === "some" ? Number.MIN_VALUE : by) ? now : null;
  }, `${of} ${JSON.stringify(labels)}`);
  if (by !== "some") assert.equal(rose(after), by, of);
  if (alone) assert.equal(numberOf(after, of, {}) - numberOf(before, of, {}), rose(after), `only that series of ${of}`);
  if (!undo) return;
  await undo();
  await until(async () => numberOf(await scrape(operator), of, labels) === was, `${of} comes down`);
}

const items = (count, item = { topic: "app", event_type: "a" }) => Array.from({ length: count }, () => item);

test("appends and commits move their metrics", async (t) => {
  const operator = await operate(t, { settings: NEVER });
  const event_id = "01890000-0000-7000-8000-000000000001";
  const append = (more = {}) => operator.did("topics/app/events", { event_type: "a", ...more });
  await append({ event_id });
  await moves(operator, "appends_total", { entity: "run", status: "ok" }, 1, () => operator.did("runs", { run_id: "a" }, 201));
  await moves(operator, "appends_total", { entity: "worker", status: "ok" }, 1, () => operator.did("workers", { worker_id: "w", owner_user_id: "u" }, 201));
  await moves(operator, "appends_total", { entity: "topic", status: "ok" }, 1, append);
  await moves(operator, "appends_total", { entity: "audit", status: "ok" }, 1, () => operator.did("/api/events/ingest", { event_type: "a" }));
  await moves(operator, "appends_total", { entity: "run", status: "run_not_found" }, 1, () => operator.post("runs/none/events", { event_type: "a" }));
  await moves(operator, "append_events_total", {}, 7, () => operator.batch(items(7)));
  await moves(operator, "append_deduplicated_total", {}, 1, () => append({ event_id }));
  await moves(operator, "quota_refusals_total", { quota: "open_runs" }, 1, async () => {
    await operator.ask("PUT", "quotas/user:q", JSON.stringify({ open_runs: 0 }));
    await operator.post("runs", { owner_user_id: "q" });
  });
  await moves(operator, "store_commits_total", { status: "ok" }, 1, append);
  await moves(operator, "store_commit_duration_seconds", {}, 1, append);
  await moves(operator, "store_commit_events", {}, 1, append);
  await moves(operator, "store_reads_total", {}, 1, () => operator.read("runs/a"));
  await moves(operator, "store_read_duration_seconds", {}, 1, () => operator.read("runs/a"));
  await moves(operator, "khala_projection_updates_total", {}, 1, () => operator.did("runs/a/events", { event_type: "run.log" }));
  await moves(operator, "khala_projection_cache_misses_total", {}, 1, () => operator.did("runs", { run_id: "b" }, 201));
  await moves(operator, "khala_projection_cache_bytes", {}, "some", () => operator.did("runs", { run_id: "c" }, 201));
});

test("an unsound key of the key file moves its metric", async (t) => {
  const operator = await operate(t, { settings: NEVER });
  const path = join(operator.data, "sync-signing.jwk");
  const good = JSON.parse(readFileSync(path, "utf8"));
  const write = (...keys) => () => {
    writeFileSync(`${path}.new`, JSON.stringify({ keys }));
    renameSync(`${path}.new`, path);
    operator.server.kill("SIGHUP");
  };
  await moves(operator, "signing_keys_refused", {}, 1, write(good, { kty: "oct", kid: "bad", k: "!" }), { undo: write(good) });
});

test("a waiting writer moves its metrics", async (t) => {
  const operator = await operate(t, { settings: { ...NEVER, KHALA_WRITER_QUEUE_MAX: "1" } });
  /** Another process writes to the store until it is released. */
  const holding = (during) => async () => during(await holdWriter(t, operator.data));
  let waiting;
  for (const [name, by] of [["store_queue_groups", 1], ["store_queue_bytes", "some"]]) {
    let letGo;
    await moves(operator, name, {}, by, holding(async (release) => {
      letGo = release;
      waiting = operator.post("topics/app/events", { event_type: "a" });
    }), { undo: async () => {
      await letGo();
      assert.equal((await waiting).status, 200);
    } });
  }
  await moves(operator, "append_overload_total", { status: "limit_reached" }, "some", holding(async (release) => {
    const refused = [];
    // The writer has one, at most one is queued, and the others are refused.
    const answers = Array.from({ length: 4 }, () => operator.post("topics/app/events", { event_type: "a" })
      .then(({ status }) => { if (status === 503) refused.push(status); }));
    await until(() => refused.length >= 2, "two refusals");
    await release();
    await Promise.all(answers);
  }));
});

test("a damaged store moves its metrics", async (t) => {
  const data = folder(t);
  const first = await operate(t, { data, settings: NEVER });
  for (const run_id of ["ahead", "lost", "twice", "broken"]) await first.did("runs", { run_id }, 201);
  for (const id of ["broken", "lost"]) await first.did(`runs/${id}/events`, { event_type: "run.log" });
  await first.server.stop();
  const write = (statement) => alter(data, statement);
  const ref = (id) => `(SELECT ref FROM entities WHERE id = '${id}')`;
  write(`UPDATE checkpoints SET last_runtime_seq = 99 WHERE entity_ref = ${ref("ahead")}`);
  const operator = await operate(t, { data, settings: NEVER });
  const log = (run_id) => operator.did(`runs/${run_id}/events`, { event_type: "run.log" });
  await moves(operator, "khala_projection_drift_total", { reason: "checkpoint_ahead" }, 1, () => log("ahead"));
  // The first event of this run is out of reach for a while, so that the run cannot be folded.
  write(onPostgres ? `UPDATE events SET entity_ref = 888888 WHERE seq = 1 AND entity_ref = ${ref("lost")}; DELETE FROM run_documents WHERE entity_ref = ${ref("lost")}`
    : `CREATE TABLE kept AS SELECT * FROM event_positions_recent WHERE seq = 1 AND entity_ref = ${ref("lost")};
       DELETE FROM event_positions_recent WHERE seq = 1 AND entity_ref = ${ref("lost")}; DELETE FROM run_documents WHERE entity_ref = ${ref("lost")}`);
  await moves(operator, "khala_projection_failures_total", {}, "some", () => log("lost"));
  write(onPostgres ? `UPDATE events SET entity_ref = ${ref("lost")} WHERE entity_ref = 888888` : "INSERT INTO event_positions_recent SELECT * FROM kept; DROP TABLE kept");
  // A read has the run folded, so the retry finds nothing to do.
  await until(async () => (await operator.get("projectors/run-summary/lost")).status === 200, "the repair");
  await moves(operator, "khala_projection_skipped_total", {}, 1, () => log("ahead"));
  // A repair that still runs would remove the stray row before the append meets it.
  await until(() => sql(data, "SELECT count(*) FROM meta WHERE name = 'unprojected_from'") === "0", "the end of all repairs");
  // The next row of the journal exists already.
  await log("twice");
  write(`INSERT INTO journal (topic_ref, seq, log_id, entity_ref, doc_version, published_at, payload_hash, payload)
    SELECT 1, head_seq + 1, 1, ${ref("twice")}, 1, 1, zeroblob(32), '{}' FROM topics WHERE ref = 1`);
  await moves(operator, "khala_projection_refused_total", {}, "some", () => log("twice"));
  // This run cannot be folded, because its first event is not found.
  write(`${onPostgres ? "UPDATE events SET seq = 1000000" : "DELETE FROM event_positions_recent"} WHERE seq = 1 AND entity_ref = ${ref("broken")};
    DELETE FROM run_documents WHERE entity_ref = ${ref("broken")}`);
  await moves(operator, "khala_projection_given_up_total", {}, "some", async () => {
    for (let i = 0; i < 20; i++) await log("broken");
  });
});

test("a full disk moves the metrics of the store", sqliteOnly, async (t) => {
  const operator = await operate(t, { settings: NEVER });
  const full = async () => {
    limitFileSize(operator.server, Math.max(...["khala.db", "khala.db-wal"].map((name) => statSync(join(operator.data, name)).size)));
    await until(async () => (await operator.post("topics/app/events", { event_type: "a", payload: { x: "y".repeat(50_000) } })).status === 503, "a full disk");
  };
  await moves(operator, "store_appends_stopped", {}, 1, full);
  assert.equal((await scrape(operator)).get("khala_store_writable"), 0);
  // Where no file may be large, the reserve is small.
  await moves(operator, "store_disk_reserve_bytes", {}, "some", () => limitFileSize(operator.server, "unlimited"));
  await until(async () => (await operator.post("topics/app/events", { event_type: "a" })).status === 200, "the recovery");
  seen.add("khala_store_writable");
  seen.add("khala_store_disk_free_bytes");
  const metrics = await scrape(operator);
  assert.equal(metrics.get("khala_store_appends_stopped"), 0);
  assert.equal(metrics.get("khala_store_writable"), 1);
  const { blocks, bsize } = statfsSync(operator.data);
  assert.ok(metrics.get("khala_store_disk_free_bytes") > 0 && metrics.get("khala_store_disk_free_bytes") <= blocks * bsize);
});

test("a full disk without a reserve moves the metrics of commits", sqliteOnly, async (t) => {
  const operator = await operate(t, { settings: { ...NEVER, KHALA_DISK_RESERVE_BYTES: "0" } });
  await moves(operator, "store_commits_total", { status: "failed" }, "some", async () => {
    limitFileSize(operator.server, Math.max(...["khala.db", "khala.db-wal"].map((name) => statSync(join(operator.data, name)).size)));
    await until(async () => (await operator.post("topics/app/events", { event_type: "a", payload: { x: "y".repeat(50_000) } })).status === 503, "a full disk");
  }, { alone: false });
  assert.equal((await scrape(operator)).get("khala_store_writable"), 0);
});

test("the size of the store and failed checkpoints move their metrics", async (t) => {
  const operator = await operate(t, { settings: { ...NEVER, RUNTIME_KHALA_RETENTION_INTERVAL_MS: "20", RUNTIME_KHALA_FALLBACK_PUBLISH_RATE_PER_SECOND: "100000", KHALA_DISK_RESERVE_BYTES: "0" } });
  const payload = { x: "y".repeat(60_000) };
  /** Appends so many megabytes, the writes of which move only those series that are asked about. */
  const fill = async (megabytes) => {
    for (let left = megabytes; left > 0; left -= 4) await operator.batch(items(Math.min(left, 4) * 16, { topic: "app", event_type: "a", payload }));
  };
  if (!onPostgres) await moves(operator, "store_wal_bytes", {}, "some", () => fill(4));
  await moves(operator, "store_bytes", {}, "some", () => fill(40));
  // The text of the payloads is compressed in PostgreSQL.
  if (!onPostgres) await until(async () => (await scrape(operator)).get("khala_store_bytes") > 30_000_000, "the store's size");
  if (onPostgres) return;
  // The database file cannot grow, and the write-ahead log, which is shorter, can.
  await fill(40);
  const limit = statSync(join(operator.data, "khala.db")).size + 65_536;
  assert.ok(limit > statSync(join(operator.data, "khala.db-wal")).size + (16 << 20), "the log has room");
  limitFileSize(operator.server, limit);
  await moves(operator, "store_checkpoint_failures_total", {}, "some", () => fill(40));
  assert.match(operator.server.log, /store\.checkpoint_failed .*effect=/);
  limitFileSize(operator.server, "unlimited");
  await fill(4);
  await operator.server.saw("log", /store\.checkpoint_recovered/);
});

test("waiting readers move their metrics", async (t) => {
  const operator = await operate(t, { settings: { ...NEVER, KHALA_READERS: "1" } });
  await operator.did("runs", { run_id: "a" }, 201);
  for (let i = 0; i < 5; i++) await operator.batch(items(1000, { run_id: "a", event_type: "run.log", payload: { x: "y".repeat(500) } }));
  let reading = true;
  let reads;
  const read = async () => {
    while (reading) await operator.get("runs/a/replay");
  };
  await moves(operator, "store_read_queue_depth", {}, "some", () => { reads = Promise.all(Array.from({ length: 8 }, read)); }, { undo: async () => {
    reading = false;
    await reads;
  } });
});

test("retention", async (t) => {
  const data = folder(t);
  const first = await operate(t, { data, settings: NEVER });
  await first.did("runs", { run_id: "old" }, 201);
  await first.batch(items(4, { run_id: "old", event_type: "run.log" }));
  const of = (topic_class, snapshot) => ({ event_type: topic_class, topic_class, snapshot: String(snapshot), status: "ok" });
  const pass = () => first.did("retention/run", {});
  await moves(first, "sync_retention_topic_stale_risk_events", { event_type: "run_events", topic_class: "run_events" }, 4, pass,
    { alone: false }); // summaries have a journal too
  await moves(first, "sync_retention_cycle_total", { status: "ok" }, 1, pass);
  await moves(first, "sync_retention_cycle_duration_seconds", {}, 1, pass);
  await first.server.stop();
  const operator = await operate(t, { data, settings: { ...NEVER, KHALA_CLOCK_OFFSET_MS: String(2 * DAY_MS) } });
  const again = () => operator.did("retention/run", {});
  const before = await scrape(operator);
  await again();
  const after = await scrape(operator);
  const rose = (name, labels) => {
    seen.add(`openagents_runtime_sync_retention_${name}`);
    return after.get(`openagents_runtime_sync_retention_${name}`, labels) - before.get(`openagents_runtime_sync_retention_${name}`, labels);
  };
  assert.equal(rose("cycle_batches_total"), 1);
  assert.equal(rose("cycle_deleted_total"), 8, "with the record of three passes");
  assert.equal(rose("topic_deleted_total", of("run_events", false)), 5);
  assert.equal(rose("topic_deleted_total"), 8);
  assert.equal(rose("topic_runs_total", of("run_events", false)), 1);
  assert.equal(rose("topic_runs_total", of("durable_summary", true)), 2);
  assert.ok(Math.abs(rose("cycle_last_success_timestamp_seconds") - (Date.now() + 2 * DAY_MS) / 1000) < 3600);
  if (onPostgres) return;
  // Without room for writes nothing can be pruned.
  await operator.batch(Array.from({ length: 300 }, (_, n) => ({ topic: `t${n}`, event_type: "a" })));
  await operator.server.stop();
  const late = await operate(t, { data, settings: { ...NEVER, KHALA_CLOCK_OFFSET_MS: String(9 * DAY_MS) } });
  await late.did("topics/app/events", { event_type: "a" });
  limitFileSize(late.server, statSync(join(data, "khala.db-wal")).size);
  await moves(late, "sync_retention_cycle_total", { status: "failed" }, 1, () => late.post("retention/run", {}));
  limitFileSize(late.server, "unlimited");
});

test("sockets, replays and fan-out move their metrics", async (t) => {
  const operator = await operate(t, { settings: { ...NEVER, RUNTIME_KHALA_RUN_EVENTS_REPLAY_BUDGET_EVENTS: "5" } });
  const topic = "run:a:events";
  await operator.did("runs", { run_id: "a", owner_user_id: "u" }, 201);
  await operator.batch(items(19, { run_id: "a", event_type: "run.log" }));
  const phoenix = { dialect: "phoenix" };
  let raw;
  const open = async () => { raw = await RawSocket.open(operator); };
  const bye = async () => {
    await raw.send(frame(8, Buffer.from([3, 232])));
    await raw.closed();
  };
  await moves(operator, "sync_socket_connections", phoenix, 1, open, { undo: bye });
  await moves(operator, "sync_socket_opened_total", phoenix, 1, open);
  await moves(operator, "sync_socket_messages_received_total", phoenix, 1, async () => {
    await raw.send(message([null, "9", "phoenix", "heartbeat", {}]));
    await raw.reply("9");
  });
  await moves(operator, "sync_socket_errors_total", { ...phoenix, status: "bad_topic" }, 1, async () => {
    await raw.send(message([null, "9", "none", "phx_join", {}]));
    await raw.reply("9");
  });
  await moves(operator, "sync_socket_closed_total", { ...phoenix, close_code: "4003" }, 1, async () => {
    await raw.send(frame(TEXT, "no JSON"));
    await raw.closed();
  });
  await moves(operator, "sync_socket_closed_total", { ...phoenix, close_code: "none" }, 1, async () => {
    await open();
    raw.peer.reset();
  });
  const client = await Client.join(operator);
  await moves(operator, "sync_socket_subscriptions", { topic_class: "run_events" }, 1,
    () => client.subscribe({ topics: [topic], resume_after: { [topic]: 20 } }), { undo: () => client.ask("sync:unsubscribe", { topics: [topic] }) });
  const subscribe = async (after) => {
    client.forget(topic);
    const { status } = await client.ask("sync:subscribe", after === null ? { topics: [topic], bootstrap: true } : { topics: [topic], resume_after: { [topic]: after } });
    if (status === "ok") await client.reached(topic, 20);
  };
  await moves(operator, "sync_replay_started_total", { ...phoenix, topic_class: "run_events" }, 1, () => subscribe(17));
  await moves(operator, "sync_replay_bootstrap_total", { ...phoenix, topic_class: "run_events" }, 1, () => subscribe(null));
  await moves(operator, "sync_replay_stale_total", { topic_class: "run_events", reason: "replay_budget_exceeded" }, 1, () => subscribe(2));
  await client.ask("sync:unsubscribe", { topics: [topic] });
  // Frames that a client has read stay in memory, so this takes topics that none has read.
  const pollUnread = async (run) => {
    await operator.did("runs", { run_id: run, owner_user_id: "u" }, 201);
    await operator.batch(items(19, { run_id: run, event_type: "run.log" }));
    await operator.poll(`run:${run}:events`, "after_seq=17");
  };
  await moves(operator, "sync_replay_frames_total", { topic_class: "run_events" }, 3, () => pollUnread("b"));
  await moves(operator, "sync_replay_read_duration_seconds", {}, "some", () => pollUnread("c"));
  await moves(operator, "khala_fanout_frames_total", { dialect: "poll", topic_class: "run_events" }, 3, () => operator.poll(topic, "after_seq=17"));
  await moves(operator, "khala_fanout_polls_total", { dialect: "poll" }, 1, () => operator.poll(topic, "after_seq=17"));
  await moves(operator, "khala_fanout_limited_polls_total", {}, 1, () => operator.poll(topic, "after_seq=17&limit=9999"));
  await moves(operator, "khala_fanout_consumers", {}, 1, () => operator.ask("GET", `khala/topics/${topic}/messages?after_seq=17`, undefined,
    { authorization: `Bearer ${operator.sign({ oa_user_id: "u", oa_sync_scopes: ["runtime.run_events"] })}` }));
  await moves(operator, "khala_fanout_fairness_limited_polls_total", { dialect: "poll" }, 1, async () => {
    await operator.poll("app", "after_seq=0&limit=1");
    await operator.poll(topic, "after_seq=17&limit=200");
  });
  let stream;
  const follow = async () => { stream = await Stream.open(operator, streamPath("live"), { authorization: `Bearer ${operator.reader}` }); };
  await operator.did("topics/live/events", { event_type: "a" });
  await moves(operator, "khala_fanout_window_topics", {}, 1, follow);
  await moves(operator, "khala_fanout_window_bytes", {}, "some", () => operator.did("topics/live/events", { event_type: "b" }));
  await moves(operator, "khala_fanout_latency_seconds", { dialect: "sse" }, 1, () => operator.did("topics/live/events", { event_type: "c" }));
  await stream.until(() => stream.lastSeq === 3, "the third");
  const summaries = "runtime.run_summaries";
  await moves(operator, "khala_snapshot_builds_total", { status: "ok" }, 1, () => operator.read(snapshotPath(summaries)));
  await moves(operator, "khala_snapshot_served_total", {}, 1, () => operator.read(snapshotPath(summaries)));
  await operator.did("workers", { worker_id: "w", owner_user_id: "u" }, 201);
  await moves(operator, "khala_snapshot_build_duration_seconds", {}, 1, () => operator.read(snapshotPath("runtime.codex_worker_summaries")));
  seen.add("khala_snapshot_bytes");
  assert.ok((await scrape(operator)).get("khala_snapshot_bytes") > 0);
  assert.equal(promtool((await scrape(operator)).text), "", "with all these series");
});

test("slow and impatient consumers move their metrics", async (t) => {
  const operator = await operate(t, { settings: { ...NEVER, RUNTIME_KHALA_SLOW_CONSUMER_LAG_THRESHOLD: "2", RUNTIME_KHALA_SLOW_CONSUMER_MAX_STRIKES: "2" } });
  await operator.batch(items(20));
  const behind = () => operator.poll("app", "after_seq=0&limit=1");
  await behind();
  await moves(operator, "sync_slow_consumer_strikes_total", { dialect: "poll" }, 1, behind);
  await moves(operator, "sync_slow_consumer_evictions_total", { dialect: "poll", topic_class: "fallback" }, 1, behind);
  const patient = await operate(t, { settings: { RUNTIME_KHALA_POLL_MIN_INTERVAL_MS: "60000" } });
  await patient.batch(items(1));
  await patient.poll("app", "after_seq=0");
  await moves(patient, "khala_fanout_throttled_polls_total", {}, 1, () => patient.poll("app", "after_seq=0"));
});

test("what annoys the server moves its metrics", async (t) => {
  const operator = await operate(t, { settings: { ...NEVER, KHALA_QUOTA_SUBSCRIPTIONS: "2", KHALA_AUTH_FAILURES_PER_MINUTE: "3" } });
  const topics = ["a", "b", "c"].map((run) => `run:${run}:events`);
  const client = await Client.join(operator);
  await moves(operator, "subscriptions_refused_total", {}, 1, () => client.refused("sync:subscribe", { topics }));
  const auditor = operator.sign({ oa_user_id: "auditor", oa_sync_scopes: ["runtime.audit"] });
  const init = async () => {
    const socket = await Socket.audit(operator, auditor);
    await socket.until((one) => one.messages.length > 0, "the first message");
    socket.close();
  };
  await moves(operator, "single_use_commits_total", {}, 1, init);
  const more_than_at_once = async () => { // a principal may use 256 nonces at once, and have 256 connections
    for (let round = 0; round < 4; round++) await Promise.all(Array.from({ length: 100 }, init));
  };
  await moves(operator, "single_uses_refused_total", { kind: "nonce" }, "some", more_than_at_once);
  const guess = (path, key) => () => operator.ask("GET", path, undefined, { authorization: `Bearer ${key}` });
  await guess("runs", "wrong")();
  await moves(operator, "auth_failures_delayed_total", { credential: "key" }, 1, guess("runs", "wrong"));
  await moves(operator, "auth_failures_delayed_total", { credential: "token" }, 1, guess("khala/topics/app/messages?after_seq=0", "a.b.c"));
});

test("admissions and denials move their metrics", async (t) => {
  const operator = await operate(t, { settings: { ...NEVER, OA_COMPAT_KHALA_ENFORCED: "true", OA_COMPAT_KHALA_MIN_CLIENT_BUILD_ID: "20260101T000000Z" } });
  const ask = (claims, query = "") => operator.ask("GET", `khala/topics/app/messages?after_seq=0${query}`, undefined,
    { authorization: claims ? `Bearer ${operator.sign(claims)}` : "" });
  await moves(operator, "auth_denials_total", { reason: "missing_authorization", topic_class: "fallback" }, 1, () => ask(null));
  await moves(operator, "auth_denials_total", { reason: "invalid_token", topic_class: "none" }, 1, () => operator.ask("GET", "/metrics", undefined, { authorization: "Bearer x" }));
  await moves(operator, "sync_socket_compatibility_rejected_total", { surface: "khala_websocket", code: "invalid_client_build" }, 1, () => ask({ oa_user_id: "u" }));
  await moves(operator, "auth_revocations_total", { kind: "session" }, 1, () => operator.did("sync/sessions/revoke", { session_ids: ["s"] }));
  await moves(operator, "auth_revocations_total", { kind: "device" }, 2, () => operator.did("sync/sessions/revoke", { device_ids: ["d", "e"] }));
  await moves(operator, "auth_revocations_total", { kind: "token" }, 1, () => operator.did("sync/sessions/revoke", { jtis: [randomUUID()] }));
  await RawSocket.open({ server: operator.server, reader: operator.sign({ jti: "mine", oa_sync_scopes: [] }) }, { join: false });
  await moves(operator, "auth_revoked_connections_total", {}, 1, () => operator.did("sync/sessions/revoke", { jtis: ["mine"] }));
});

test("requests, connections and the process move their metrics", async (t) => {
  const authority = new Authority(folder(t));
  const operator = await operate(t, { authority, settings: { ...NEVER, ...Authority.settings(authority.issue("khala")),
    KHALA_CONNECTIONS_MAX: "4", KHALA_IO_LOOPS: "1" } }); // a loop closes its own connections only
  operator.agent.maxSockets = 1;
  await operator.get("/healthz/live");
  await moves(operator, "http_requests_total", { route: "health", status: "200" }, 1, () => operator.get("/healthz/live"),
    { alone: false }); // a scrape is a request
  await moves(operator, "http_request_duration_seconds", { route: "unmatched" }, 1, () => operator.get("/nowhere"), { alone: false });
  const peers = [];
  const come = async () => { peers.push(await connect(operator.server)); };
  await moves(operator, "http_connections", {}, 1, come, { undo: () => peers.pop().close() });
  await moves(operator, "http_connections_accepted_total", {}, 1, come);
  await moves(operator, "tls_handshakes_total", { status: "ok" }, 1, come);
  await moves(operator, "tls_handshakes_total", { status: "failed" }, 1, async () => {
    const plain = net.connect(operator.server.port, operator.server.host);
    plain.write("GET / HTTP/1.1\r\n\r\n");
    await once(plain.on("error", () => {}), "close", "the end of the handshake");
  });
  await moves(operator, "tls_floods_total", {}, 1, async () => {
    const flood = start(t, [join(process.env.KHALA_BUILD, "tls_flood"), operator.server.host, String(operator.server.port), "1", "updates", "100"], { input: "pipe" });
    await flood.saw("out", /ready\n/);
    flood.child.stdin.write("go\n");
    await flood.saw("out", /sent \d+ ended 1\n/);
  });
  await come();
  await moves(operator, "http_connections_refused_total", { limit: "unauthenticated" }, 1, async () => {
    await come();
    await peers[0].rest();
  });
  for (const peer of peers) peer.close();
  await moves(operator, "uptime_seconds", {}, "some", () => {});
  await moves(operator, "process_cpu_seconds_total", {}, "some", () => {});
  await until(async () => (await scrape(operator)).get("khala_http_connections") === 1, "the others are gone");
  await moves(operator, "process_open_fds", {}, 1, come, { undo: () => peers.pop().close() });
  const metrics = await scrape(operator);
  for (const [name, least] of [["process_resident_memory_bytes", 1 << 20], ["process_max_fds", 64], ["process_threads", 3], ["khala_build_info", 1]]) {
    seen.add(name);
    assert.ok(metrics.get(name) >= least, name);
  }
  // postgres_outbox.test.mjs, forward.test.mjs and cluster.test.mjs move them.
  for (const name of KINDS.keys()) if (/^khala_(outbox|forward|cluster)_/.test(name)) seen.add(name);
  // clock.test.mjs moves it.
  seen.add("khala_cursor_clock_ahead_seconds");
  assert.equal(metrics.get("khala_cursor_clock_ahead_seconds"), 0);
  // fair_reads, unread_answers, peers and batch_shares move them.
  for (const name of ["khala_store_reads_refused_total", "khala_store_reads_cancelled_total", "khala_http_answers_refused_total",
    "khala_http_answers_unread_total", "khala_http_connections_vanished_total", "khala_batches_bytes", "khala_batches_refused_total"]) {
    seen.add(name);
    assert.equal(metrics.get(name), 0);
  }
  seen.add("process_start_time_seconds");
  assert.ok(Math.abs(metrics.get("process_start_time_seconds") - Date.now() / 1000) < 3600);
});

test("sinks move their metrics", async (t) => {
  let answer = 200;
  let refused = /none/;
  const receiver = http.createServer((request, response) => {
    let text = "";
    request.on("data", (piece) => { text += piece; });
    request.on("end", () => { response.statusCode = refused.test(text) ? 422 : answer; response.end(); });
  });
  await new Promise((resolve) => receiver.listen(0, "127.0.0.1", resolve));
  t.after(() => { receiver.closeAllConnections(); receiver.close(); });
  const operator = await operate(t, { settings: { ...NEVER, RUNTIME_KHALA_SINK: "fanout", RUNTIME_KHALA_FANOUT_SINKS: "tables,webhook",
    KHALA_SINK_WEBHOOK_URL: `http://127.0.0.1:${receiver.address().port}` } });
  const sink = { sink: "webhook" };
  const update = () => operator.did("runs", {}, 201);
  await moves(operator, "sink_sent_total", sink, 1, update);
  const refuse = async (run_id) => {
    refused = new RegExp(`run_summary:${run_id}`);
    await operator.did("runs", { run_id }, 201);
    await update();
  };
  await moves(operator, "sink_held", sink, 1, () => refuse("bad1"), { undo: () => { refused = /none/; } });
  await moves(operator, "sink_refused_total", sink, 1, () => refuse("bad2"));
  refused = /none/;
  answer = 503;
  await moves(operator, "sink_failures_total", sink, "some", update);
  answer = 200;
  await until(async () => (await scrape(operator)).get("khala_sink_failing", sink) === 0, "the sink works again");
  await moves(operator, "sink_failing", sink, 1, () => { answer = 503; return update(); }, { undo: () => { answer = 200; } });
});

test("the fan-out driver moves its metrics", sqliteOnly, async (t) => {
  const port = await freePort();
  const settings = { ...NEVER, RUNTIME_FANOUT_DRIVER: "nats", RUNTIME_FANOUT_URL: `nats://127.0.0.1:${port}` };
  const operator = await operate(t, { settings });
  await moves(operator, "fanout_driver_failures_total", {}, "some", () => {});
  let nats;
  await moves(operator, "fanout_driver_connected", {}, 1, () => { nats = start(t, ["nats-server", "-a", "127.0.0.1", "-p", String(port)]); },
    { undo: () => nats.end("SIGKILL") });
  nats = start(t, ["nats-server", "-a", "127.0.0.1", "-p", String(port)]);
  await until(async () => (await scrape(operator)).get("khala_fanout_driver_connected") === 1, "the connection");
  await moves(operator, "fanout_hints_sent_total", {}, 1, () => operator.did("topics/app/events", { event_type: "a" }));
  const [hook] = (await operator.read("khala/fanout/hooks")).hooks.filter(({ backend }) => backend === "nats");
  const publish = async (text) => {
    const socket = net.connect(port, "127.0.0.1");
    await once(socket, "connect");
    socket.end(`CONNECT {"verbose":false}\r\nPUB ${hook.channel} ${text.length}\r\n${text}\r\nPING\r\n`);
  };
  await moves(operator, "fanout_hints_received_total", {}, 1, () => publish("1 01890000-0000-7000-8000-000000000009 00000000000000000009"));
  await moves(operator, "fanout_hints_ignored_total", {}, 1, () => publish("hello"));
});

alone("every metric family has a test", sqliteOnly, () => {
  assert.deepEqual([...KINDS.keys()].filter((name) => !seen.has(name)), []);
});
