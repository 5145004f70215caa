// Every family of /metrics: do the thing, and see that series move, by that much, and no other of
// its family. The last test knows them all from spec/metrics.json, so none can be forgotten.
import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { readFileSync, statSync } from "node:fs";
import net from "node:net";
import { join } from "node:path";
import { test } from "node:test";
import { connect, folder, until, within } from "../lib/khala.mjs";
import { operate } from "../lib/operator.mjs";
import { Client } from "../lib/phoenix.mjs";
import { parseMetrics } from "../lib/prometheus.mjs";
import { promtool } from "../lib/promtool.mjs";
import { RawSocket, TEXT, frame, message } from "../lib/websocket.mjs";
import { Stream } from "../lib/sse.mjs";
import { Authority } from "../lib/tls.mjs";

const P = "openagents_runtime_";
const SPEC = JSON.parse(readFileSync(new URL("../../spec/metrics.json", import.meta.url), "utf8")).metrics;
const KINDS = new Map(SPEC.map(({ name, kind }) => [name, kind]));
const NEVER = { RUNTIME_KHALA_RETENTION_INTERVAL_MS: "86400000", RUNTIME_KHALA_POLL_MIN_INTERVAL_MS: "0" };
const DAY_MS = 86_400_000;
const seen = new Set();

async function scrape(operator) {
  const { status, body } = await operator.get("/metrics");
  assert.equal(status, 200);
  return Object.assign(parseMetrics(body), { text: body });
}

/** The number of a series: of a histogram, its observations. */
function numberOf(metrics, name, labels) {
  return metrics.get(KINDS.get(name) === "histogram" ? `${name}_count` : name, labels);
}

/**
 * Does it, and sees that series rise by so much (by: a number, or "some"); undo, where there is one,
 * brings a gauge back. Nothing else of the family moves, unless it cannot be alone.
 */
async function moves(operator, name, labels, by, happens, { undo, alone = true } = {}) {
  const of = name.startsWith("process_") ? name : P + name;
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

const poll = (operator, topic, query) => operator.get(`khala/topics/${encodeURIComponent(topic)}/messages?${query}`);
const items = (count, item = { topic: "app", event_type: "a" }) => Array.from({ length: count }, () => item);

test("appends and commits", async (t) => {
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
  await moves(operator, "store_commits_total", { status: "ok" }, 1, append);
  await moves(operator, "store_commit_duration_seconds", {}, 1, append);
  await moves(operator, "store_commit_events", {}, 1, append);
  await moves(operator, "store_reads_total", {}, 1, () => operator.read("runs/a"));
  await moves(operator, "store_read_duration_seconds", {}, 1, () => operator.read("runs/a"));
  await moves(operator, "khala_projection_updates_total", {}, 1, () => operator.did("runs/a/events", { event_type: "run.log" }));
  await moves(operator, "khala_projection_cache_misses_total", {}, 1, () => operator.did("runs", { run_id: "b" }, 201));
  await moves(operator, "khala_projection_cache_bytes", {}, "some", () => operator.did("runs", { run_id: "c" }, 201));
});

test("a writer that has to wait", async (t) => {
  const operator = await operate(t, { settings: { ...NEVER, KHALA_WRITER_QUEUE_MAX: "1" } });
  /** Somebody else writes to the store for as long as it takes. */
  const holding = (during) => async () => {
    const holder = spawn("sqlite3", [join(operator.data, "khala.db")], { stdio: ["pipe", "pipe", "inherit"] });
    holder.stdin.write(".bail on\nPRAGMA busy_timeout=10000;\nBEGIN IMMEDIATE;\nSELECT 'held';\n");
    await within(new Promise((resolve) => { holder.stdout.on("data", (data) => String(data).includes("held") && resolve()); }), "the lock");
    await during(async () => {
      holder.stdin.end("ROLLBACK;\n");
      await within(new Promise((resolve) => { holder.on("close", resolve); }), "the end of the lock");
    });
  };
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
    // One is with the writer, at most one waits for it, and there is no place for the rest.
    const answers = Array.from({ length: 4 }, () => operator.post("topics/app/events", { event_type: "a" })
      .then(({ status }) => { if (status === 503) refused.push(status); }));
    await until(() => refused.length >= 2, "two refusals");
    await release();
    await Promise.all(answers);
  }));
});

test("a store that is full, damaged or contradicted", async (t) => {
  const data = folder(t);
  const first = await operate(t, { data, settings: NEVER });
  for (const run_id of ["ahead", "lost", "twice"]) await first.did("runs", { run_id }, 201);
  await first.server.stop();
  const write = (statement) => execFileSync("sqlite3", [join(data, "khala.db"), statement]);
  const ref = (id) => `(SELECT ref FROM entities WHERE id = '${id}')`;
  write(`UPDATE khala_projection_checkpoints SET last_runtime_seq = 99 WHERE entity_ref = ${ref("ahead")}`);
  const operator = await operate(t, { data, settings: NEVER });
  const log = (run_id) => operator.did(`runs/${run_id}/events`, { event_type: "run.log" });
  await moves(operator, "khala_projection_drift_total", { reason: "checkpoint_ahead" }, 1, () => log("ahead"));
  await moves(operator, "khala_projection_skipped_total", {}, 1, () => log("ahead"));
  await moves(operator, "khala_projection_failures_total", {}, "some", async () => {
    write("ALTER TABLE sync_run_summaries RENAME TO gone");
    await log("lost");
  });
  await moves(operator, "khala_projection_given_up_total", {}, "some", async () => {
    for (let i = 0; i < 20; i++) await log("lost");
  });
  write("ALTER TABLE gone RENAME TO sync_run_summaries");
  // The next row of the journal is there already.
  await log("twice");
  write(`INSERT INTO sync_stream_events (topic_ref, seq, log_id, entity_ref, doc_version, published_at, payload_hash, payload)
    SELECT 1, head_seq + 1, 1, ${ref("twice")}, 1, 1, zeroblob(32), '{}' FROM sync_topic_sequences WHERE ref = 1`);
  await moves(operator, "khala_projection_refused_total", {}, "some", () => log("twice"));
  write("DELETE FROM sync_stream_events WHERE id = (SELECT max(id) FROM sync_stream_events)");
  const limit = (bytes) => execFileSync("prlimit", [`--pid=${operator.server.child.pid}`, `--fsize=${bytes}:unlimited`]);
  const full = async () => {
    limit(Math.max(...["khala.db", "khala.db-wal"].map((name) => statSync(join(data, name)).size)));
    await until(async () => (await operator.post("topics/app/events", { event_type: "a", payload: { x: "y".repeat(50_000) } })).status === 503, "a full disk");
  };
  await moves(operator, "store_commits_total", { status: "failed" }, "some", full, { alone: false });
  assert.equal((await scrape(operator)).get(`${P}store_writable`), 0);
  limit("unlimited");
  await until(async () => (await operator.post("topics/app/events", { event_type: "a" })).status === 200, "the recovery");
  seen.add(`${P}store_writable`);
  assert.equal((await scrape(operator)).get(`${P}store_writable`), 1);
});

test("readers that have to wait", async (t) => {
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
    seen.add(`${P}sync_retention_${name}`);
    return after.get(`${P}sync_retention_${name}`, labels) - before.get(`${P}sync_retention_${name}`, labels);
  };
  assert.equal(rose("cycle_batches_total"), 1);
  assert.equal(rose("cycle_deleted_total"), 5);
  assert.equal(rose("topic_deleted_total", of("run_events", false)), 5);
  assert.equal(rose("topic_deleted_total"), 5);
  assert.equal(rose("topic_runs_total", of("run_events", false)), 1);
  assert.equal(rose("topic_runs_total", of("durable_summary", true)), 2);
  assert.ok(Math.abs(rose("cycle_last_success_timestamp_seconds") - (Date.now() + 2 * DAY_MS) / 1000) < 3600);
  // Nothing can be written, so nothing can be pruned.
  await operator.batch(Array.from({ length: 300 }, (_, n) => ({ topic: `t${n}`, event_type: "a" })));
  await operator.server.stop();
  const late = await operate(t, { data, settings: { ...NEVER, KHALA_CLOCK_OFFSET_MS: String(9 * DAY_MS) } });
  await late.did("topics/app/events", { event_type: "a" });
  execFileSync("prlimit", ["--pid", String(late.server.child.pid), `--fsize=${statSync(join(data, "khala.db-wal")).size}:unlimited`]);
  await moves(late, "sync_retention_cycle_total", { status: "failed" }, 1, () => late.post("retention/run", {}));
  execFileSync("prlimit", ["--pid", String(late.server.child.pid), "--fsize=unlimited:unlimited"]);
});

test("sockets, replays and fan-out", async (t) => {
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
  await moves(operator, "sync_replay_frames_total", { topic_class: "run_events" }, 3, () => poll(operator, topic, "after_seq=17"));
  await moves(operator, "sync_replay_read_duration_seconds", {}, "some", () => poll(operator, topic, "after_seq=17"));
  await moves(operator, "khala_fanout_frames_total", { dialect: "poll", topic_class: "run_events" }, 3, () => poll(operator, topic, "after_seq=17"));
  await moves(operator, "khala_fanout_polls_total", { dialect: "poll" }, 1, () => poll(operator, topic, "after_seq=17"));
  await moves(operator, "khala_fanout_limited_polls_total", { dialect: "poll" }, 1, () => poll(operator, topic, "after_seq=17&limit=9999"));
  await moves(operator, "khala_fanout_consumers", {}, 1, () => operator.ask("GET", `khala/topics/${topic}/messages?after_seq=17`, undefined,
    { authorization: `Bearer ${operator.sign({ oa_user_id: "u", oa_sync_scopes: ["runtime.run_events"] })}` }));
  await moves(operator, "khala_fanout_fairness_limited_polls_total", { dialect: "poll" }, 1, async () => {
    await poll(operator, "app", "after_seq=0&limit=1");
    await poll(operator, topic, "after_seq=17&limit=200");
  });
  let stream;
  const follow = async () => { stream = await Stream.open(operator, "/v1/topics/live/sse", { authorization: `Bearer ${operator.reader}` }); };
  await operator.did("topics/live/events", { event_type: "a" });
  await moves(operator, "khala_fanout_window_topics", {}, 1, follow);
  await moves(operator, "khala_fanout_window_bytes", {}, "some", () => operator.did("topics/live/events", { event_type: "b" }));
  await moves(operator, "khala_fanout_latency_seconds", { dialect: "sse" }, 1, () => operator.did("topics/live/events", { event_type: "c" }));
  await stream.until(() => stream.lastSeq === 3, "the third");
  const summaries = "runtime.run_summaries";
  await moves(operator, "sync_snapshot_builds_total", { status: "ok" }, 1, () => operator.read(`/v1/topics/${summaries}/snapshot`));
  await moves(operator, "sync_snapshot_served_total", {}, 1, () => operator.read(`/v1/topics/${summaries}/snapshot`));
  await operator.did("workers", { worker_id: "w", owner_user_id: "u" }, 201);
  await moves(operator, "sync_snapshot_build_duration_seconds", {}, 1, () => operator.read("/v1/topics/runtime.codex_worker_summaries/snapshot"));
  seen.add(`${P}sync_snapshot_bytes`);
  assert.ok((await scrape(operator)).get(`${P}sync_snapshot_bytes`) > 0);
  assert.equal(promtool((await scrape(operator)).text), "", "with all these series");
});

test("slow and hasty consumers", async (t) => {
  const operator = await operate(t, { settings: { ...NEVER, RUNTIME_KHALA_SLOW_CONSUMER_LAG_THRESHOLD: "2", RUNTIME_KHALA_SLOW_CONSUMER_MAX_STRIKES: "2" } });
  await operator.batch(items(20));
  const behind = () => poll(operator, "app", "after_seq=0&limit=1");
  await behind();
  await moves(operator, "sync_slow_consumer_strikes_total", { dialect: "poll" }, 1, behind);
  await moves(operator, "sync_slow_consumer_evictions_total", { dialect: "poll", topic_class: "fallback" }, 1, behind);
  const patient = await operate(t, { settings: { RUNTIME_KHALA_POLL_MIN_INTERVAL_MS: "60000" } });
  await patient.batch(items(1));
  await poll(patient, "app", "after_seq=0");
  await moves(patient, "khala_fanout_throttled_polls_total", { dialect: "poll" }, 1, () => poll(patient, "app", "after_seq=0"));
});

test("who is let in and who is not", async (t) => {
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

test("requests, connections and the process", async (t) => {
  const authority = new Authority(folder(t));
  const operator = await operate(t, { authority, settings: { ...NEVER, ...Authority.settings(authority.issue("khala")), KHALA_CONNECTIONS_MAX: "4" } });
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
    await within(new Promise((resolve) => { plain.on("close", resolve).on("error", () => {}); }), "the end of the handshake");
  });
  await come();
  await moves(operator, "http_connections_refused_total", {}, 1, async () => {
    const surplus = net.connect(operator.server.port, operator.server.host);
    await within(new Promise((resolve) => { surplus.on("close", resolve).on("error", () => {}); surplus.resume(); }), "the refusal");
  });
  for (const peer of peers) peer.close();
  await moves(operator, "uptime_seconds", {}, "some", () => {});
  await moves(operator, "process_cpu_seconds_total", {}, "some", () => {});
  await until(async () => (await scrape(operator)).get(`${P}http_connections`) === 1, "the others are gone");
  await moves(operator, "process_open_fds", {}, 1, come, { undo: () => peers.pop().close() });
  const metrics = await scrape(operator);
  for (const [name, least] of [["process_resident_memory_bytes", 1 << 20], ["process_max_fds", 64], ["process_threads", 3], [`${P}build_info`, 1]]) {
    seen.add(name);
    assert.ok(metrics.get(name) >= least, name);
  }
  seen.add("process_start_time_seconds");
  assert.ok(Math.abs(metrics.get("process_start_time_seconds") - Date.now() / 1000) < 3600);
});

test("no family is left out", () => {
  assert.deepEqual([...KINDS.keys()].filter((name) => !seen.has(name)), []);
});
