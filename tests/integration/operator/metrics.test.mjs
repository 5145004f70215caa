// The server's metrics: /metrics and the fan-out endpoints.
import assert from "node:assert/strict";
import { test } from "node:test";
import { onPostgres } from "../../lib/database.mjs";
import { folder, run } from "../../lib/khala.mjs";
import { operate } from "../../lib/operator.mjs";
import { Client } from "../../lib/phoenix.mjs";
import { familyOf, parseMetrics, scrape } from "../../lib/prometheus.mjs";
import { promtool } from "../../lib/promtool.mjs";
import { events } from "../../lib/samples.mjs";
import { Socket } from "../../lib/socket.mjs";
import { Stream } from "../../lib/sse.mjs";
import { until } from "../../lib/wait.mjs";


async function grow(operator, run, count) {
  await operator.did("runs", { run_id: run }, 201);
  await operator.batch(events(count, { run_id: run }));
}

const HEAD = "# HELP a_total A.\n# TYPE a_total counter\n";
const HISTOGRAM = "# HELP h H.\n# TYPE h histogram\n";
const REFUSED = {
  "a sample without its TYPE": "a_total 1\n",
  "a TYPE before its HELP": "# TYPE a_total counter\n# HELP a_total A.\na_total 1\n",
  "a counter without _total": "# HELP a A.\n# TYPE a counter\na 1\n",
  "a gauge with _total": "# HELP a_total A.\n# TYPE a_total gauge\na_total 1\n",
  "the same series twice": `${HEAD}a_total{b="1",c="2"} 1\na_total{c="2",b="1"} 1\n`,
  "a family in two pieces": `${HEAD}a_total 1\n# HELP b B.\n# TYPE b gauge\nb 1\n${HEAD}`,
  "a bad name": "# HELP a-b A.\n# TYPE a-b gauge\na-b 1\n",
  "a bad label": `${HEAD}a_total{b-c="1"} 1\n`,
  "a bare quote in a value": `${HEAD}a_total{b="""} 1\n`,
  "an unknown escape": `${HEAD}a_total{b="\\t"} 1\n`,
  "a value that is no number": `${HEAD}a_total 1x\n`,
  "a negative counter": `${HEAD}a_total -1\n`,
  "an empty line": `${HEAD}\na_total 1\n`,
  "a last line that does not end": `${HEAD}a_total 1`,
  "buckets that fall": `${HISTOGRAM}h_bucket{le="1"} 2\nh_bucket{le="+Inf"} 1\nh_sum 1\nh_count 1\n`,
  "a count that is not +Inf's": `${HISTOGRAM}h_bucket{le="1"} 1\nh_bucket{le="+Inf"} 1\nh_sum 1\nh_count 2\n`,
  "a histogram without +Inf": `${HISTOGRAM}h_bucket{le="1"} 1\nh_sum 1\nh_count 1\n`,
  "a histogram without its sum": `${HISTOGRAM}h_bucket{le="+Inf"} 1\nh_count 1\n`,
  "no HELP": "# TYPE a_total counter\na_total 1\n",
  "an empty HELP": "# HELP a_total \n# TYPE a_total counter\na_total 1\n",
  "a name that says its type": "# HELP a_gauge A.\n# TYPE a_gauge gauge\na_gauge 1\n",
  "another unit than the base": "# HELP a_milliseconds A.\n# TYPE a_milliseconds gauge\na_milliseconds 1\n",
  "a unit cut short": "# HELP a_ms A.\n# TYPE a_ms gauge\na_ms 1\n",
  "a name in camel case": "# HELP aName A.\n# TYPE aName gauge\naName 1\n",
  "a label in camel case": `${HEAD}a_total{bName="1"} 1\n`,
  "a colon": "# HELP a:b A.\n# TYPE a:b gauge\na:b 1\n",
  "a gauge with a histogram's suffix": "# HELP a_bucket A.\n# TYPE a_bucket gauge\na_bucket 1\n",
  "a counter with a histogram's label": `${HEAD}a_total{le="1"} 1\n`,
};

// Mistakes that promtool accepts and this parser refuses.
const TOLERATED = ["a TYPE before its HELP", "the same series twice", "a negative counter", "an empty line", "buckets that fall", "a count that is not +Inf's",
  "a histogram without +Inf", "a histogram without its sum"];

test("the tests' parser of metrics refuses everything that promtool refuses, and more", async (t) => {
  const sound = `${HEAD}a_total{b="x\\"y\\\\"} 1\n${HISTOGRAM}h_bucket{le="1"} 1\nh_bucket{le="+Inf"} 2\nh_sum 3.5\nh_count 2\n`;
  parseMetrics(sound);
  assert.equal(promtool(sound), "");
  for (const [what, text] of Object.entries(REFUSED)) {
    await t.test(what, () => {
      assert.throws(() => parseMetrics(text), assert.AssertionError);
      assert.equal(promtool(text) === "", TOLERATED.includes(what));
    });
  }
});

test("a fresh server exposes the documented metric families", async (t) => {
  const operator = await operate(t);
  const metrics = await scrape(operator);
  assert.equal(promtool(metrics.text), "");
  for (const part of ["sync_retention_cycle_", "sync_retention_topic_", "khala_projection_", "sync_socket_", "sync_replay_",
    "sync_slow_consumer_"]) {
    assert.ok([...metrics.families.keys()].some((name) => name.startsWith(`openagents_runtime_${part}`)), part);
  }
  // No document of the protocol names the other families. They have the server's own prefix.
  for (const name of metrics.families.keys()) {
    assert.match(name, /^(khala_|process_|openagents_runtime_(sync_(retention_(cycle|topic)|socket|replay|slow_consumer)|khala_projection)_)/);
  }
  for (const name of ["store_commit_duration_seconds", "khala_fanout_latency_seconds"]) {
    assert.equal(metrics.families.get(familyOf(name)).kind, "histogram");
  }
  assert.ok(metrics.get("process_resident_memory_bytes") > 1 << 20);
  assert.ok(metrics.get("process_open_fds") > 3);
  assert.ok(metrics.get("process_max_fds") >= metrics.get("process_open_fds"));
  assert.ok(metrics.get("process_threads") >= 3);
  assert.ok(metrics.get("process_cpu_seconds_total") > 0);
  assert.ok(Math.abs(metrics.get("process_start_time_seconds") - Date.now() / 1000) < 3600);
  const [{ labels, value }] = metrics.families.get("khala_build_info").samples;
  assert.equal(value, 1);
  assert.equal(labels.get("version"), JSON.parse(run(["version", "--json"]).out).version);
  // Every series shown at the start can move: sockets and polls are no HTTP requests, and streams receive nothing.
  const dialects = (name) => metrics.families.get(familyOf(name)).samples.map(({ labels: of }) => of.get("dialect"));
  assert.deepEqual(dialects("sync_socket_connections"), ["phoenix", "topic_ws", "audit_ws", "sse", "audit_sse"]);
  assert.deepEqual(dialects("sync_socket_messages_received_total"), ["phoenix", "topic_ws", "audit_ws"]);
  assert.deepEqual(dialects("fanout_polls_total"), ["phoenix", "topic_ws", "audit_ws", "sse", "audit_sse", "poll"]);
  for (const { labels: of } of metrics.families.get(familyOf("sync_retention_topic_stale_risk_events")).samples) {
    const snapshot = String(of.get("topic_class") === "durable_summary");
    assert.deepEqual(Object.fromEntries(of), { event_type: of.get("topic_class"), status: "ok", topic_class: of.get("topic_class"), snapshot });
  }
});

test("requests, appends and polls are counted", async (t) => {
  const operator = await operate(t, { settings: { RUNTIME_KHALA_POLL_MIN_INTERVAL_MS: "0" } });
  const before = await scrape(operator);
  const run = { entity: "run", status: "ok" };
  await grow(operator, "counted", 9);
  await operator.did("topics/app/events", { event_type: "a" });
  assert.equal((await operator.post("runs/none/events", { event_type: "a" })).status, 404);
  assert.equal((await operator.post("runs/counted/events", { event_type: "run.finished", payload: { status: "failed" } })).status, 200);
  assert.equal((await operator.post("runs/counted/events", { event_type: "run.finished", payload: { status: "failed" } })).status, 409);
  assert.equal((await operator.poll("run:counted:events", "after_seq=0")).status, 200);
  assert.equal((await operator.poll("run:counted:events", "")).status, 200);
  assert.equal((await operator.ask("GET", "runs/counted", undefined, { authorization: "Bearer wrong" })).status, 401);
  const after = await scrape(operator);
  const moved = (name, labels) => after.get(familyOf(name), labels) - before.get(familyOf(name), labels);
  assert.equal(moved("appends_total", run), 11);
  assert.equal(moved("appends_total", { entity: "topic", status: "ok" }), 1);
  assert.equal(moved("appends_total", { status: "run_not_found" }), 1);
  assert.equal(moved("appends_total", { status: "invalid_transition" }), 1);
  assert.equal(moved("append_events_total"), 12);
  assert.equal(moved("store_commit_events_sum"), 12);
  assert.ok(moved("store_commits_total", { status: "ok" }) >= 3);
  assert.equal(moved("store_commit_duration_seconds_count"), moved("store_commits_total"));
  assert.ok(moved("store_commit_duration_seconds_sum") > 0);
  assert.equal(after.get("khala_store_queue_groups"), 0);
  assert.equal(after.get("khala_store_queue_bytes"), 0);
  assert.ok(moved("khala_projection_updates_total") >= 3);
  assert.equal(moved("khala_fanout_polls_total", { dialect: "poll" }), 2);
  assert.equal(moved("khala_fanout_frames_total", { dialect: "poll", topic_class: "run_events" }), 22);
  assert.equal(moved("sync_replay_started_total"), 1);
  assert.equal(moved("sync_replay_bootstrap_total"), 1);
  assert.equal(moved("sync_replay_frames_total", { topic_class: "run_events" }), 22);
  assert.equal(moved("auth_denials_total", { reason: "invalid_token", topic_class: "none" }), 1);
  assert.equal(moved("http_requests_total", { route: "append", status: "409" }), 1);
  assert.equal(moved("http_requests_total", { route: "batch", status: "200" }), 1);
  assert.equal(moved("http_requests_total", { route: "poll", status: "200" }), 2);
  assert.equal(moved("http_requests_total", { status: "401" }), 1);
  assert.equal(moved("http_requests_total", { route: "metrics" }), 1);
  assert.equal(moved("http_request_duration_seconds_count", { route: "poll" }), 2);
  assert.ok(moved("store_reads_total") >= 2);
});

test("retention is counted by topic class", async (t) => {
  const data = folder(t);
  const never = { RUNTIME_KHALA_RETENTION_INTERVAL_MS: "86400000" };
  const first = await operate(t, { data, settings: never });
  await grow(first, "old", 4);
  const fresh = await scrape(first);
  assert.equal(fresh.get("openagents_runtime_sync_retention_cycle_total"), 0);
  assert.equal(fresh.get("openagents_runtime_sync_retention_cycle_last_success_timestamp_seconds"), 0);
  await first.did("retention/run", {});
  const early = await scrape(first);
  assert.equal(early.get("openagents_runtime_sync_retention_cycle_total", { status: "ok" }), 1);
  assert.equal(early.get("openagents_runtime_sync_retention_cycle_deleted_total"), 0);
  assert.equal(early.get("openagents_runtime_sync_retention_topic_stale_risk_events", { topic_class: "run_events" }), 4);
  await first.server.stop();
  const operator = await operate(t, { data, settings: { ...never, KHALA_CLOCK_OFFSET_MS: String(90_000_000) } });
  const { deleted, topic_stats: stats } = await operator.did("retention/run", {});
  assert.equal(deleted, 6, "with the record of the first pass");
  const metrics = await scrape(operator);
  const of = (name, labels) => metrics.get(`openagents_runtime_sync_retention_${name}`, labels);
  const ok = { status: "ok" };
  assert.equal(of("cycle_total", ok), 1);
  assert.equal(of("cycle_total", { status: "failed" }), 0);
  assert.equal(of("cycle_duration_seconds_count"), 1);
  assert.ok(of("cycle_duration_seconds_sum") > 0);
  assert.equal(of("cycle_batches_total"), 1);
  assert.equal(of("cycle_deleted_total"), deleted);
  assert.ok(Math.abs(of("cycle_last_success_timestamp_seconds") - (Date.now() / 1000 + 90_000)) < 3600);
  assert.equal(of("topic_runs_total", { ...ok, topic_class: "run_events", event_type: "run_events", snapshot: "false" }), 1);
  assert.equal(of("topic_runs_total", { ...ok, topic_class: "durable_summary", snapshot: "true" }),
    stats.filter((one) => one.class === "durable_summary").length);
  assert.equal(of("topic_deleted_total", { ...ok, topic_class: "run_events" }), deleted - 1);
  assert.equal(of("topic_deleted_total", { topic_class: "durable_summary" }), 0);
  assert.equal(of("topic_stale_risk_events", { topic_class: "run_events" }), 0);
});

/** Opens a socket, sends one message, and waits until the server closes it. */
async function sayOnce(operator, path, text) {
  const socket = await Socket.open(operator, path, { headers: { authorization: `Bearer ${operator.reader}` } });
  socket.say(text);
  await socket.until((one) => one.closed, "the close");
}

test("error messages are counted by dialect and code", async (t) => {
  const operator = await operate(t, { settings: { RUNTIME_KHALA_RUN_EVENTS_REPLAY_BUDGET_EVENTS: "2" } });
  await grow(operator, "a", 9);
  const client = await Client.join(operator);
  await client.refused("sync:subscribe", { topics: [] });
  await client.refused("sync:subscribe", { topics: ["run:a:events"], resume_after: { "run:a:events": 1 } });
  await client.refused("sync:none-such", {});
  const stream = await Stream.open(operator, "/v1/topics/run:a:events/sse?after_seq=1", { authorization: `Bearer ${operator.reader}` });
  await stream.until(() => stream.events.some((event) => event.type === "stale_cursor"), "the stale cursor");
  await sayOnce(operator, "/internal/v1/khala/topics/run:a:events/ws", "hello");
  await sayOnce(operator, "/api/events/stream", "{}");
  const metrics = await scrape(operator);
  const errors = metrics.families.get("openagents_runtime_sync_socket_errors_total").samples.filter((sample) => sample.value > 0);
  assert.deepEqual(errors.map(({ labels, value }) => [labels.get("dialect"), labels.get("status"), value]).sort(), [
    ["audit_ws", "invalid_message", 1], ["phoenix", "bad_subscription", 1], ["phoenix", "invalid_message", 1],
    ["phoenix", "stale_cursor", 1], ["sse", "stale_cursor", 1], ["topic_ws", "invalid_message", 1]]);
});

test("fan-out latency is measured for a poll that waited", async (t) => {
  const operator = await operate(t, { settings: { RUNTIME_KHALA_POLL_MIN_INTERVAL_MS: "0" } });
  let { event: { seq } } = await operator.did("topics/live/events", { event_type: "a" });
  let metrics;
  // The event may be there before the poll has read the store; such a poll did not wait, and the next one tries again.
  await until(async () => {
    const waiting = operator.poll("live", `after_seq=${seq}&wait_ms=30000`);
    await until(async () => (await scrape(operator)).get("khala_fanout_window_topics") > 0, "the poll waits");
    ({ event: { seq } } = await operator.did("topics/live/events", { event_type: "b" }));
    assert.equal((await waiting).status, 200);
    metrics = await scrape(operator);
    return metrics.get("khala_fanout_latency_seconds_count", { dialect: "poll" }) > 0;
  }, "the latency of a poll");
  assert.equal(metrics.get("khala_fanout_latency_seconds_count", { dialect: "poll" }), 1);
  assert.ok(metrics.get("khala_fanout_latency_seconds_sum", { dialect: "poll" }) > 0);
});

test("the number of series does not grow with topics, users or runs", async (t) => {
  const operator = await operate(t);
  const items = (word) => Array.from({ length: 300 }, (_, n) => ({ topic: `${word}:secretive-${n}`, event_type: "a", owner_user_id: `somebody-${n}` }));
  await operator.batch(items("first"));
  await scrape(operator); // which is itself counted in what the next one shows
  const first = await scrape(operator);
  await operator.batch(items("second"));
  const second = await scrape(operator);
  assert.deepEqual([...second.series].sort(), [...first.series].sort());
  assert.doesNotMatch(second.text, /secretive-|somebody-/);
});

test("counters never decrease between scrapes under load", async (t) => {
  const operator = await operate(t);
  await operator.did("runs", { run_id: "load" }, 201);
  let loading = true;
  const load = (async () => {
    while (loading) await operator.batch(Array.from({ length: 200 }, () => ({ run_id: "load", event_type: "run.log" })));
  })();
  let before = await scrape(operator);
  for (let i = 0; i < 40; i++) {
    const after = await scrape(operator);
    for (const { name, kind, samples } of before.families.values()) {
      if (kind === "gauge") continue;
      for (const { name: sample, labels, value } of samples) {
        assert.ok(after.get(sample, Object.fromEntries(labels)) >= value, `${name} ${[...labels]}`);
      }
    }
    before = after;
  }
  loading = false;
  await load;
});

test("/metrics needs the operator key", async (t) => {
  const operator = await operate(t);
  const response = await operator.ask("GET", "/metrics", undefined, { authorization: "" });
  assert.equal(response.status, 401);
  assert.doesNotMatch(response.body, /openagents/);
  const token = await operator.ask("GET", "/metrics", undefined, { authorization: `Bearer ${operator.reader}` });
  assert.equal(token.status, 401, "no token is the key, whatever it may read");
  const head = await operator.ask("HEAD", "/metrics");
  assert.equal(head.status, 200);
  assert.equal(head.body, "");
  assert.ok(Number(head.headers["content-length"]) > 10_000);
  assert.equal((await operator.post("/metrics", {})).status, 405);
});

const DELIVERY = ["active_consumers", "fairness_limited_polls", "limited_polls", "recent_disconnect_causes", "served_messages",
  "slow_consumer_evictions", "throttled_polls", "total_polls"];
const WINDOW = ["dropped_messages", "frame_size_rejected_count", "head_sequence", "last_violation_reason", "max_payload_bytes",
  "oldest_sequence", "publish_class", "publish_rate_limit_per_second", "publish_rate_limited_count", "qos_tier", "queue_depth",
  "replay_budget_events", "stale_cursor_budget_exceeded_count", "stale_cursor_retention_floor_count", "topic", "topic_class"];

function windowOf(fanout, topic) {
  const found = fanout.topic_windows.find((window) => window.topic === topic);
  assert.ok(found, `${topic} in ${JSON.stringify(fanout.topic_windows.map((window) => window.topic))}`);
  return found;
}

test("the fan-out endpoints have the documented fields", async (t) => {
  const operator = await operate(t);
  await grow(operator, "a", 3);
  const metrics = await operator.read("khala/fanout/metrics");
  assert.deepEqual(Object.keys(metrics).sort(), ["delivery_metrics", "driver", "topic_windows"]);
  assert.deepEqual(Object.keys(metrics.delivery_metrics).sort(), DELIVERY);
  assert.equal(metrics.driver, onPostgres ? "postgres_notify" : "memory");
  for (const window of metrics.topic_windows) assert.deepEqual(Object.keys(window).sort(), WINDOW);
  assert.deepEqual(windowOf(metrics, "run:a:events"), {
    topic: "run:a:events", topic_class: "run_events", qos_tier: "warm", replay_budget_events: 20000, oldest_sequence: 1,
    head_sequence: 4, queue_depth: 4, dropped_messages: 0, publish_class: "run_events", publish_rate_limit_per_second: 1000000, max_payload_bytes: 262144,
    publish_rate_limited_count: 0, frame_size_rejected_count: 0, stale_cursor_budget_exceeded_count: 0,
    stale_cursor_retention_floor_count: 0, last_violation_reason: null,
  });
  const summaries = windowOf(metrics, "runtime.run_summaries");
  assert.deepEqual([summaries.topic_class, summaries.publish_class, summaries.publish_rate_limit_per_second, summaries.max_payload_bytes],
    ["durable_summary", null, null, null]);
  const hooks = await until(async () => {
    const answered = await operator.read("khala/fanout/hooks");
    return answered.hooks.every((hook) => hook.status !== "connecting") && answered;
  }, "the driver");
  assert.deepEqual(Object.keys(hooks).sort(), ["delivery_metrics", "driver", "hooks", "topic_windows"]);
  for (const { backend, status, ...more } of hooks.hooks) {
    const isDriver = backend === hooks.driver;
    assert.equal(status === (backend === "memory" ? "active" : "connected"), isDriver || backend === "memory", `${backend} is ${status}`);
    if (!isDriver || backend === "memory") assert.deepEqual(Object.keys(more), ["note"]);
  }
  assert.deepEqual(hooks.hooks.map((hook) => hook.backend).sort(), ["memory", "nats", "postgres_notify", "redis"]);
  await operator.server.stop();
  const again = await operate(t, { data: operator.data });
  const windows = await again.read("khala/fanout/metrics");
  assert.deepEqual(windowOf(windows, "run:a:events"), windowOf(metrics, "run:a:events"), "after a restart");
});

test("the fan-out endpoint lists the busiest topics up to topic_limit", async (t) => {
  const operator = await operate(t);
  await operator.batch(Array.from({ length: 250 }, (_, n) => ({ topic: `t:${n % 50}`, event_type: "a" })));
  await operator.batch(Array.from({ length: 100 }, () => ({ topic: "busy", event_type: "a" })));
  const shown = async (query) => (await operator.read(`khala/fanout/metrics${query}`)).topic_windows;
  assert.equal((await shown("")).length, 20);
  assert.equal((await shown("?topic_limit=1"))[0].topic, "busy");
  assert.equal((await shown("?topic_limit=200")).length, 55, "with the built-in topics of the store");
  for (const limit of ["0", "201", "x", "-1"]) {
    const response = await operator.get(`khala/fanout/metrics?topic_limit=${limit}`);
    assert.equal(response.status, 400);
    assert.equal(JSON.parse(response.body).error, "invalid_request");
  }
});

test("polls, throttling, capped and fair limits are counted", async (t) => {
  const operator = await operate(t, { settings: { RUNTIME_KHALA_POLL_MIN_INTERVAL_MS: "60000", RUNTIME_KHALA_FAIR_TOPIC_SLICE_LIMIT: "2" } });
  await operator.batch(["one", "two"].flatMap((topic) => Array.from({ length: 5 }, () => ({ topic, event_type: "a" }))));
  assert.equal((await operator.poll("one", "after_seq=0&limit=5000")).status, 200);
  assert.equal((await operator.poll("one", "after_seq=0")).status, 429);
  assert.equal(JSON.parse((await operator.poll("two", "after_seq=0&limit=4")).body).fairness_applied, true);
  const { delivery_metrics: counted } = await operator.read("khala/fanout/metrics");
  assert.deepEqual(counted, {
    total_polls: 3, throttled_polls: 1, limited_polls: 1, fairness_limited_polls: 1, slow_consumer_evictions: 0,
    served_messages: 7, active_consumers: 2, recent_disconnect_causes: [],
  });
});

test("violations and stale cursors are counted by topic, with the last reason", async (t) => {
  const operator = await operate(t, { settings: {
    RUNTIME_KHALA_FALLBACK_PUBLISH_RATE_PER_SECOND: "3", RUNTIME_KHALA_FALLBACK_MAX_PAYLOAD_BYTES: "1024",
    RUNTIME_KHALA_RUN_EVENTS_REPLAY_BUDGET_EVENTS: "5" } });
  const answers = await operator.batch(Array.from({ length: 8 }, () => ({ topic: "quick", event_type: "a" })));
  // The items behind the refused one are not attempted.
  const accepted = answers.filter((answer) => answer.status === 200).length;
  assert.deepEqual(answers.slice(accepted).map(({ status }) => status), [429, ...Array(7 - accepted).fill(424)]);
  assert.equal((await operator.post("topics/never/events", { event_type: "a", payload: { text: "x".repeat(2000) } })).status, 413);
  await grow(operator, "old", 20);
  assert.equal((await operator.poll("run:old:events", "after_seq=1")).status, 410);
  const fanout = await operator.read("khala/fanout/metrics");
  const quick = windowOf(fanout, "quick");
  assert.equal(quick.publish_rate_limited_count, 1);
  assert.equal(quick.last_violation_reason, "khala_publish_rate_limited");
  assert.equal(quick.head_sequence, accepted);
  const never = windowOf(fanout, "never");
  assert.equal(never.frame_size_rejected_count, 1);
  assert.equal(never.last_violation_reason, "khala_frame_payload_too_large");
  assert.equal(never.head_sequence, 0);
  const old = windowOf(fanout, "run:old:events");
  assert.equal(old.stale_cursor_budget_exceeded_count, 1);
  assert.equal(old.stale_cursor_retention_floor_count, 0);
  assert.equal(old.last_violation_reason, "replay_budget_exceeded");
  assert.deepEqual(fanout.delivery_metrics.recent_disconnect_causes, ["stale_cursor"]);
  const metrics = await scrape(operator);
  assert.equal(metrics.get("openagents_runtime_sync_replay_stale_total", { topic_class: "run_events", reason: "replay_budget_exceeded" }), 1);
  assert.equal(metrics.get("khala_appends_total", { status: "khala_publish_rate_limited" }), 1);
  assert.equal(metrics.get("khala_appends_total", { status: "not_attempted" }), 7 - accepted);
});

test("a cursor below the retention floor is counted for its topic", async (t) => {
  const NOTICES = "runtime.notifications";
  const data = folder(t);
  const never = { RUNTIME_KHALA_RETENTION_INTERVAL_MS: "86400000", RUNTIME_KHALA_POLL_MIN_INTERVAL_MS: "0" };
  const first = await operate(t, { data, settings: never });
  for (let i = 0; i < 5; i++) await first.did("notifications", { event_type: "old" });
  await first.server.stop();
  const operator = await operate(t, { data, settings: { ...never, KHALA_CLOCK_OFFSET_MS: String(90_000_000) } });
  await operator.did("retention/run", {});
  await operator.did("notifications", { event_type: "new" });
  assert.equal((await operator.poll(NOTICES, "after_seq=1")).status, 410);
  const { delivery_metrics: delivery, topic_windows: windows } = await operator.read("khala/fanout/hooks?topic_limit=1");
  assert.equal(windows.length, 1);
  const { topic, oldest_sequence, head_sequence, queue_depth, dropped_messages, ...counts } = windows[0];
  assert.deepEqual([topic, oldest_sequence, head_sequence, queue_depth, dropped_messages], [NOTICES, 6, 6, 1, 5]);
  assert.equal(counts.stale_cursor_retention_floor_count, 1);
  assert.equal(counts.stale_cursor_budget_exceeded_count, 0);
  assert.equal(counts.last_violation_reason, "retention_floor_breach");
  assert.deepEqual(delivery.recent_disconnect_causes, ["stale_cursor"]);
  for (let i = 0; i < 40; i++) await operator.poll(NOTICES, "after_seq=1");
  const { delivery_metrics: later, topic_windows: [window] } = await operator.read("khala/fanout/metrics?topic_limit=1");
  assert.equal(later.recent_disconnect_causes.length, 32, "no more are shown");
  assert.equal(window.stale_cursor_retention_floor_count, 41);
});

test("a slow polling consumer is counted, and its eviction is listed", async (t) => {
  const operator = await operate(t, { settings: { RUNTIME_KHALA_POLL_MIN_INTERVAL_MS: "0",
    RUNTIME_KHALA_SLOW_CONSUMER_LAG_THRESHOLD: "2", RUNTIME_KHALA_SLOW_CONSUMER_MAX_STRIKES: "2" } });
  await grow(operator, "slow", 20);
  const statuses = [];
  for (let i = 0; i < 3; i++) statuses.push((await operator.poll("run:slow:events", "after_seq=0&limit=1")).status);
  assert.deepEqual(statuses, [200, 200, 409]);
  const { delivery_metrics: counted } = await operator.read("khala/fanout/metrics");
  assert.equal(counted.slow_consumer_evictions, 1);
  assert.deepEqual(counted.recent_disconnect_causes, ["slow_consumer_evicted"]);
  const metrics = await scrape(operator);
  assert.equal(metrics.get("openagents_runtime_sync_slow_consumer_strikes_total", { dialect: "poll" }), 2);
  assert.equal(metrics.get("openagents_runtime_sync_slow_consumer_evictions_total", { dialect: "poll", topic_class: "run_events" }), 1);
});

test("every answer has a Date header", async (t) => {
  const operator = await operate(t);
  const began = Math.floor(Date.now() / 1000) * 1000;
  for (const path of ["/healthz/live", "/nowhere", "/metrics", "/api/events/export"]) {
    const { date } = (await operator.get(path)).headers;
    assert.match(date, /^(Sun|Mon|Tue|Wed|Thu|Fri|Sat), \d\d [A-Z][a-z][a-z] \d{4} \d\d:\d\d:\d\d GMT$/, path);
    const at = Date.parse(date);
    assert.ok(at >= began && at <= Date.now(), `${date} is between the question and the answer`);
  }
});
