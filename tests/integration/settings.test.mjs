// What every setting does: one test for each key that sees its effect, here or in a file that is
// named, and the values the contract gives it.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { readFileSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { assertError, connect, folder, run, serve, within } from "../lib/khala.mjs";
import { operate } from "../lib/operator.mjs";
import { parseMetrics } from "../lib/prometheus.mjs";
import { Stream } from "../lib/sse.mjs";
import { RawSocket, handshake, message } from "../lib/websocket.mjs";

/** Where else a key's effect is seen: the file, and the test in it that names the key. */
const ELSEWHERE = {
  RUNTIME_BIND_ADDR: ["append", "the command line finds the server by its own settings"],
  KHALA_OPERATOR_BIND_ADDR: ["operator_listener", "an address that is taken or wrong is refused by its name"],
  KHALA_DATA_DIR: ["append", "the command line appends and reads"],
  KHALA_LOG: ["http", "log lines are JSON when asked"],
  KHALA_LOG_LEVEL: ["why", "only what is of the level is logged"],
  KHALA_CONNECTIONS_MAX: ["operator_listener", "the operator gets in when clients have taken every place"],
  KHALA_REQUEST_HEAD_BYTES_MAX: ["http_refusals", "the head's limit is a setting"],
  KHALA_IDLE_TIMEOUT_MS: ["http_lifetime", "an idle connection is closed without a word"],
  KHALA_OPERATOR_KEY: ["append", "the operator key: given, or made for its owner only, and never in the log"],
  KHALA_SHUTDOWN_DELAY_MS: ["shutdown", "readiness goes first: for the delay all else is served, also who comes new"],
  KHALA_BATCHES_BYTES_MAX: ["batch", "batches whose answers nobody reads hold no more than a limit in all: then new ones are 503"],
  KHALA_TLS_CERT_FILE: ["tls", "settings that make no TLS are refused by name, by the check, the doctor and the server"],
  KHALA_TLS_KEY_FILE: ["tls", "settings that make no TLS are refused by name, by the check, the doctor and the server"],
  KHALA_TLS_MIN_VERSION: ["tls", "only TLS 1.2 and 1.3, forward secret and authenticated, http/1.1 inside"],
  RUNTIME_KHALA_FAIR_TOPIC_SLICE_LIMIT: ["metrics", "polls, throttling, capped and fair limits are counted"],
  RUNTIME_KHALA_POLL_MIN_INTERVAL_MS: ["delivery", "a poll too soon is told when, and does not push the clock"],
  RUNTIME_KHALA_SLOW_CONSUMER_LAG_THRESHOLD: ["metrics", "a consumer that falls behind is counted, and its eviction remembered"],
  RUNTIME_KHALA_SLOW_CONSUMER_MAX_STRIKES: ["metrics", "a consumer that falls behind is counted, and its eviction remembered"],
  KHALA_HEARTBEAT_MS: ["phoenix", "the server's heartbeat comes by itself, and a silent client is closed"],
  KHALA_SLOW_CONSUMER_CHECK_MS: ["slow", "who stops reading is evicted with 4000 and its cursors, and resumes without loss"],
  KHALA_WS_MESSAGE_BYTES_MAX: ["phoenix", "messages and frames that break the rules close with their code"],
  KHALA_SUBSCRIPTIONS_MAX: ["phoenix", "who subscribes again begins where it says now, and old subscriptions do not count"],
  KHALA_SNAPSHOTS_BYTES_MAX: ["snapshot", "no more disk than the setting allows"],
  KHALA_CLOCK_OFFSET_MS: ["retention", "every row of the table is pruned at its time and not before, and readers are told"],
  RUNTIME_SYNC_TOKEN_SIGNING_KEY: ["token", "a given secret signs as everybody knows it"],
  RUNTIME_SYNC_JWKS_FILE: ["token", "keys change under a running server: the new one signs, a bad file changes nothing"],
  RUNTIME_SYNC_TOKEN_ISSUER: ["token", "a given secret signs as everybody knows it"],
  RUNTIME_SYNC_TOKEN_SINGLE_USE: ["revocation", "a token for one connection opens one, also when the server restarts in between"],
  RUNTIME_KHALA_ALLOWED_ORIGINS: ["entitlement", "a page of another origin is refused"],
};

const HERE = new Set();

/** A test that sees what these keys do. */
function sees(keys, title, body) {
  for (const key of keys) {
    assert.ok(!HERE.has(key) && !ELSEWHERE[key], `${key} has its test already`);
    HERE.add(key);
  }
  test(title, body);
}

const effective = () => JSON.parse(run(["config", "--json"]).out);
const NOW = { RUNTIME_KHALA_POLL_MIN_INTERVAL_MS: "0" };
const NEVER = { ...NOW, RUNTIME_KHALA_RETENTION_INTERVAL_MS: "86400000" };

const messages = (topic, query = "") => `khala/topics/${encodeURIComponent(topic)}/messages?${query}`;

/** A run with so many events, its first included. */
async function filled(operator, size, run_id = "r") {
  await operator.did("runs", { run_id, owner_user_id: "u" }, 201);
  if (size > 1) await operator.batch(Array.from({ length: size - 1 }, (_, n) => ({ run_id, event_type: "x", payload: { n } })));
}

/** What is answered to somebody with this token. */
const asked = (operator, token, path, headers = {}) =>
  operator.ask("GET", path, undefined, { authorization: `Bearer ${token}`, ...headers });

// ---- threads ----

const threads = (server) => readdirSync(`/proc/${server.child.pid}/task`).length;

sees(["KHALA_IO_LOOPS", "KHALA_READERS"], "loops and readers are as many threads as was said", async (t) => {
  const count = async (KHALA_IO_LOOPS, KHALA_READERS) => {
    const server = await serve(t, { settings: { KHALA_IO_LOOPS, KHALA_READERS } });
    assert.match(server.log, new RegExp(`server\\.ready .*loops=${KHALA_IO_LOOPS}\\b`));
    return threads(server);
  };
  const least = await count("1", "1");
  assert.equal(await count("4", "1"), least + 3);
  assert.equal(await count("1", "6"), least + 5);
});

sees(["KHALA_LOOPS_OWN_DESCRIPTORS"], "a loop with descriptors of its own has them alone", async (t) => {
  const shared = async (KHALA_LOOPS_OWN_DESCRIPTORS) => {
    // ThreadSanitizer takes a number for the same descriptor in every table.
    const server = await serve(t, { settings: { KHALA_LOOPS_OWN_DESCRIPTORS, KHALA_IO_LOOPS: "1", TSAN_OPTIONS: "report_bugs=0" } });
    const sockets = () => readdirSync(`/proc/${server.child.pid}/fd`).length;
    const before = sockets();
    for (let i = 0; i < 5; i++) {
      const peer = await connect(server);
      await peer.send("GET /healthz/live HTTP/1.1\r\nHost: a\r\n\r\n");
      assert.equal((await peer.response()).status, 200);
    }
    return sockets() - before;
  };
  assert.equal(await shared("false"), 5);
  assert.equal(await shared("true"), 0, "the main thread knows nothing of them");
});

// ---- times ----

/** What ends by itself ends sooner with the setting than with its default. */
async function endsSooner(t, settings, begin) {
  const ends = [];
  for (const [who, given] of [["default", {}], ["set", settings]]) {
    const operator = await operate(t, { settings: { ...NOW, ...given } });
    const end = begin(operator, given);
    end.catch(() => {});
    ends.push(end.then(() => who));
  }
  assert.equal(await within(Promise.race(ends), "the end"), "set");
}

sees(["KHALA_REQUEST_TIMEOUT_MS"], "a request has as long to arrive as was said", (t) =>
  endsSooner(t, { KHALA_REQUEST_TIMEOUT_MS: "100" }, async (operator) => {
    const peer = await connect(operator.server);
    await peer.send("GET / HTTP/1.1\r\n");
    await peer.rest();
  }));

sees(["KHALA_SHUTDOWN_GRACE_MS"], "requests under way have as long to finish as was said", (t) =>
  endsSooner(t, { KHALA_SHUTDOWN_GRACE_MS: "100" }, async (operator) => {
    const { server } = operator;
    const peer = await connect(server);
    await peer.send(`POST /internal/v1/runs HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${operator.key}\r\nContent-Length: 9\r\n\r\n{`);
    await operator.read("khala/fanout/hooks");
    server.kill("SIGTERM");
    // The one that waits longer is not waited for.
    server.crashed = true;
    t.after(() => server.crash());
    assert.equal((await server.ended).code, 0);
  }));

sees(["KHALA_SILENCE_TIMEOUT_MS"], "a client may be silent as long as was said", (t) =>
  endsSooner(t, { KHALA_SILENCE_TIMEOUT_MS: "200" }, async (operator) => (await RawSocket.open(operator)).closed()));

sees(["KHALA_AUDIT_INIT_TIMEOUT_MS"], "an audit socket has as long to say who it is as was said", (t) =>
  endsSooner(t, { KHALA_AUDIT_INIT_TIMEOUT_MS: "100" }, async (operator) => {
    const peer = await connect(operator.server);
    await peer.send(handshake(operator, { path: "/api/events/stream", query: "" }));
    await peer.rest();
  }));

sees(["RUNTIME_KHALA_RETENTION_INTERVAL_MS"], "retention comes by itself as often as was said", (t) =>
  endsSooner(t, { RUNTIME_KHALA_RETENTION_INTERVAL_MS: "100" }, async (operator) => {
    const runs = "openagents_runtime_sync_retention_cycle_total";
    const count = async () => {
      const family = parseMetrics((await operator.get("/metrics")).body).families.get(runs);
      return family.samples.reduce((sum, { value }) => sum + value, 0);
    };
    while (!operator.server.over && (await count()) < 5);
  }));

sees(["KHALA_WS_MESSAGES_PER_SECOND"], "a client may send twice the messages of a second at once", async (t) => {
  const limited = async (settings) => {
    const raw = await RawSocket.open(await operate(t, { settings }));
    const sent = Array.from({ length: 60 }, (_, ref) => message(["1", String(ref + 100), "sync:v1", "sync:heartbeat", {}]));
    await raw.send(Buffer.concat(sent));
    let count = 0;
    for (let ref = 100; ref < 160; ref++) count += (await raw.reply(String(ref))).status === "error";
    return count;
  };
  assert.equal(await limited({}), 0);
  const refused = await limited({ KHALA_WS_MESSAGES_PER_SECOND: "20" });
  // 60, and the join before them.
  assert.ok(refused > 0 && refused <= 21, String(refused));
});

// ---- the writer's queue ----

/** Keeps the server's writer waiting until it is told to go on. */
async function heldWriter(t, operator) {
  const shell = spawn("sqlite3", [join(operator.data, "khala.db")], { stdio: ["pipe", "pipe", "inherit"] });
  t.after(() => shell.kill("SIGKILL"));
  const held = new Promise((resolve) => shell.stdout.once("data", resolve));
  shell.stdin.write("BEGIN IMMEDIATE; SELECT 'held';\n");
  await within(held, "the lock");
  return () => shell.stdin.end("ROLLBACK;\n");
}

sees(["KHALA_WRITER_QUEUE_MAX", "KHALA_WRITER_QUEUE_BYTES_MAX"],
  "what may wait for the writer is bounded, in number and in bytes; the rest is told to come again", async (t) => {
  for (const settings of [{ KHALA_WRITER_QUEUE_MAX: "2" }, { KHALA_WRITER_QUEUE_BYTES_MAX: "1" }]) {
    const operator = await operate(t, { settings });
    await filled(operator, 1);
    const go = await heldWriter(t, operator);
    const posts = [];
    let refused = 0;
    // The writer takes what waits when it begins, so the first ones may be more than the limit.
    while (refused === 0 && posts.length < 50) {
      const post = operator.post("runs/r/events", { event_type: "x" });
      posts.push(post);
      const answer = await Promise.race([post, operator.get("runs/r").then(() => null)]);
      if (!answer) continue;
      assertError({ ...answer, headers: answer.headers }, 503, "limit_reached");
      refused++;
    }
    assert.equal(refused, 1, JSON.stringify(settings));
    go();
    const done = await Promise.all(posts);
    const stored = done.filter(({ status }) => status === 200).length;
    // Whose refusal was slower than the question beside it was taken for one that waits.
    assert.ok(done.every(({ status }) => status === 200 || status === 503));
    assert.ok(stored < posts.length);
    assert.equal((await operator.events("r")).length, 1 + stored);
  }
});

// ---- polls ----

sees(["RUNTIME_KHALA_POLL_DEFAULT_LIMIT", "RUNTIME_KHALA_POLL_MAX_LIMIT", "RUNTIME_KHALA_OUTBOUND_QUEUE_LIMIT"],
  "a poll has the default limit, and no more than either of the other two", async (t) => {
  const poll = async (settings, query) => {
    const operator = await operate(t, { settings: { ...NOW, ...settings } });
    await filled(operator, 30);
    const { messages: got, limit_applied, limit_capped, outbound_queue_limit } =
      await operator.read(messages("run:r:events", `after_seq=0&${query}`));
    assert.equal(got.length, limit_applied);
    return { limit_applied, limit_capped, outbound_queue_limit };
  };
  assert.deepEqual(await poll({ RUNTIME_KHALA_POLL_DEFAULT_LIMIT: "3" }, ""),
    { limit_applied: 3, limit_capped: false, outbound_queue_limit: 200 });
  assert.deepEqual(await poll({ RUNTIME_KHALA_POLL_MAX_LIMIT: "5" }, "limit=20"),
    { limit_applied: 5, limit_capped: true, outbound_queue_limit: 200 });
  assert.deepEqual(await poll({ RUNTIME_KHALA_OUTBOUND_QUEUE_LIMIT: "7" }, "limit=20"),
    { limit_applied: 7, limit_capped: true, outbound_queue_limit: 7 });
});

sees(["RUNTIME_KHALA_CONSUMER_REGISTRY_CAPACITY"], "beyond the capacity the consumer that was silent longest is forgotten", async (t) => {
  const polls = async (capacity) => {
    const operator = await operate(t, { settings: {
      RUNTIME_KHALA_POLL_MIN_INTERVAL_MS: "60000", RUNTIME_KHALA_CONSUMER_REGISTRY_CAPACITY: capacity } });
    const tokens = ["a", "b", "c"].map((oa_user_id) => operator.sign({ oa_user_id, oa_sync_scopes: ["runtime.read_all"] }));
    const statuses = [];
    for (const who of [0, 1, 2, 2, 1, 0]) statuses.push((await asked(operator, tokens[who], `/internal/v1/${messages("chat")}`)).status);
    return statuses;
  };
  assert.deepEqual(await polls("3"), [200, 200, 200, 429, 429, 429]);
  assert.deepEqual(await polls("2"), [200, 200, 200, 429, 429, 200]);
});

sees(["RUNTIME_KHALA_RECONNECT_BASE_BACKOFF_MS", "RUNTIME_KHALA_RECONNECT_JITTER_MS"],
  "clients are asked to wait the base, and what chance adds up to the jitter", async (t) => {
  const delays = async (base, jitter) => {
    const operator = await operate(t, { settings: { ...NOW, RUNTIME_KHALA_RECONNECT_BASE_BACKOFF_MS: base, RUNTIME_KHALA_RECONNECT_JITTER_MS: jitter } });
    await filled(operator, 1);
    const found = [];
    for (let i = 0; i < 20; i++) found.push((await operator.read(messages("run:r:events"))).recommended_reconnect_backoff_ms);
    return found;
  };
  assert.deepEqual(new Set(await delays("1234", "0")), new Set([1234]));
  const spread = await delays("50000", "500000");
  assert.ok(spread.every((delay) => delay >= 50000 && delay <= 550000), spread.join());
  assert.ok(new Set(spread).size > 1 && Math.max(...spread) > 100000, spread.join());
});

// ---- memory ----

sees(["KHALA_WINDOW_FRAMES_MAX", "KHALA_WINDOW_BYTES_MAX", "KHALA_WINDOWS_BYTES_MAX"],
  "frames in memory are bounded by topic and in all, and what is not there is read from the store", async (t) => {
  const LARGE = "x".repeat(1000);
  const held = async (settings, runs) => {
    const operator = await operate(t, { settings: { ...NOW, ...settings } });
    for (const run_id of runs) await operator.did("runs", { run_id, owner_user_id: "u" }, 201);
    const follow = (run_id) => Stream.open(operator, `/v1/topics/run:${run_id}:events/sse?after_seq=0&token=${operator.reader}`);
    const whole = (stream) => stream.until(({ lastSeq }) => lastSeq === 401, "the last event");
    const streams = await Promise.all(runs.map(follow));
    for (const run_id of runs) {
      await operator.batch(Array.from({ length: 400 }, (_, n) => ({ run_id, event_type: "x", payload: { n, LARGE } })));
    }
    await Promise.all(streams.map(whole));
    const bytes = parseMetrics((await operator.get("/metrics")).body).get("openagents_runtime_khala_fanout_window_bytes");
    // All of it can still be had.
    await whole(await follow(runs[0]));
    return bytes;
  };
  const all = await held({}, ["a"]);
  assert.ok(all > 400_000, String(all));
  const few = await held({ KHALA_WINDOW_FRAMES_MAX: "10" }, ["a"]);
  assert.ok(few < all / 5, `${few} of ${all}`);
  const small = await held({ KHALA_WINDOW_BYTES_MAX: "20000" }, ["a"]);
  assert.ok(small < all / 5, `${small} of ${all}`);
  const many = ["a", "b", "c", "d", "e", "f"];
  const together = await held({ KHALA_WINDOWS_BYTES_MAX: "1048576" }, many);
  assert.ok(together <= 1048576 * 1.2 && together > 0, String(together));
  assert.ok(await held({}, many) > 1048576 * 2);
});

// ---- tokens ----

sees(["RUNTIME_SYNC_TOKEN_AUDIENCE", "RUNTIME_SYNC_TOKEN_MAX_AGE_SECONDS", "RUNTIME_SYNC_TOKEN_REQUIRE_JTI"],
  "a token is taken from its audience, for its age, and without an id only where that is allowed", async (t) => {
  const usual = await operate(t, { settings: NOW });
  const other = await operate(t, { data: folder(t), settings: { ...NOW, RUNTIME_SYNC_TOKEN_AUDIENCE: "elsewhere",
    RUNTIME_SYNC_TOKEN_MAX_AGE_SECONDS: "60", RUNTIME_SYNC_TOKEN_REQUIRE_JTI: "false" } });
  const now = Math.floor(Date.now() / 1000);
  const said = async (operator, claims) => {
    const token = operator.sign({ oa_sync_scopes: ["runtime.read_all"], ...claims });
    const { status, body } = await asked(operator, token, `/internal/v1/${messages("runtime.notifications")}`);
    return status === 200 ? 200 : JSON.parse(body).reason_code;
  };
  assert.equal(await said(usual, {}), 200);
  assert.equal(await said(usual, { aud: "elsewhere" }), "invalid_token");
  assert.equal(await said(other, { aud: "elsewhere" }), 200);
  assert.equal(await said(other, {}), "invalid_token");
  assert.equal((await other.did("/api/sync/token", { scopes: ["runtime.read_all"], ttl_seconds: 60 })).audience, "elsewhere");
  assert.equal(await said(usual, { iat: now - 120 }), 200);
  assert.equal(await said(usual, { iat: now - 1000 }), "token_too_old");
  assert.equal(await said(other, { aud: "elsewhere", iat: now - 120 }), "token_too_old");
  assert.equal(await said(usual, { jti: undefined }), "missing_jti");
  assert.equal(await said(other, { aud: "elsewhere", jti: undefined }), 200);
});

sees(["RUNTIME_KHALA_ENFORCE_ORIGIN"], "pages of any origin may connect where that is said", async (t) => {
  const from = async (settings) => {
    const operator = await operate(t, { settings: { ...NOW, ...settings } });
    return asked(operator, operator.reader, `/internal/v1/${messages("chat")}`, { origin: "https://any.example" });
  };
  assert.equal(JSON.parse((await from({})).body).reason_code, "origin_not_allowed");
  assert.equal((await from({ RUNTIME_KHALA_ENFORCE_ORIGIN: "off" })).status, 200);
});

// ---- the compatibility gate ----

sees(["OA_COMPAT_KHALA_ENFORCED", "OA_COMPAT_KHALA_PROTOCOL_VERSION", "OA_COMPAT_KHALA_MIN_CLIENT_BUILD_ID",
  "OA_COMPAT_KHALA_MAX_CLIENT_BUILD_ID", "OA_COMPAT_KHALA_MIN_SCHEMA_VERSION", "OA_COMPAT_KHALA_MAX_SCHEMA_VERSION"],
  "each side of the window turns away whom it says, once it is enforced", async (t) => {
  const settings = {
    OA_COMPAT_KHALA_PROTOCOL_VERSION: "other.v7", OA_COMPAT_KHALA_MIN_CLIENT_BUILD_ID: "20260201T000000Z",
    OA_COMPAT_KHALA_MAX_CLIENT_BUILD_ID: "20260228T000000Z", OA_COMPAT_KHALA_MIN_SCHEMA_VERSION: "3", OA_COMPAT_KHALA_MAX_SCHEMA_VERSION: "4",
  };
  const good = { protocol_version: "other.v7", client_build_id: "20260210T000000Z", schema_version: "3" };
  const rows = [
    [{}, 200], [{ schema_version: "4" }, 200],
    [{ protocol_version: "khala.ws.v1" }, "unsupported_protocol_version"],
    [{ schema_version: "2" }, "unsupported_schema_version"], [{ schema_version: "5" }, "unsupported_schema_version"],
    [{ client_build_id: "20260131T000000Z" }, "upgrade_required"], [{ client_build_id: "20260301T000000Z" }, "unsupported_client_build"],
  ];
  const ask = async (operator, claim) => {
    const { status, body } = await asked(operator, operator.reader, `/internal/v1/${messages("chat", new URLSearchParams({ ...good, ...claim }))}`);
    return status === 200 ? 200 : JSON.parse(body).error;
  };
  const open = await operate(t, { settings: { ...NOW, ...settings } });
  const strict = await operate(t, { settings: { ...NOW, ...settings, OA_COMPAT_KHALA_ENFORCED: "true" } });
  for (const [claim, expected] of rows) {
    assert.equal(await ask(open, claim), 200, JSON.stringify(claim));
    assert.equal(await ask(strict, claim), expected, JSON.stringify(claim));
  }
});

// ---- topic policies ----

/** Of each row: how to publish to it, and a topic of it. */
const ROWS = {
  RUN_EVENTS: { topic: "run:r:events", path: "runs/r/events", event_type: "x" },
  WORKER_LIFECYCLE: { topic: "worker:w:lifecycle", path: "workers/w/events", event_type: "worker.log" },
  CODEX_WORKER_EVENTS: { topic: "runtime.codex_worker_events", path: "workers/w/events", event_type: "worker.log" },
  FALLBACK: { topic: "chat", path: "topics/chat/events", event_type: "said" },
  NOTIFICATIONS: { topic: "runtime.notifications", path: "notifications", event_type: "n" },
  RUN_SUMMARIES: { topic: "runtime.run_summaries", path: "runs/r/events", event_type: "x" },
  CODEX_WORKER_SUMMARIES: { topic: "runtime.codex_worker_summaries", path: "workers/w/events", event_type: "worker.log" },
};
const PUBLISHED = ["RUN_EVENTS", "WORKER_LIFECYCLE", "CODEX_WORKER_EVENTS", "FALLBACK"];
const of = (rows, field) => rows.map((row) => `RUNTIME_KHALA_${row}_${field}`);

async function peopled(t, settings, data = folder(t)) {
  const operator = await operate(t, { data, settings: { ...NEVER, ...settings } });
  await operator.did("runs", { run_id: "r", owner_user_id: "u" }, 201);
  await operator.did("workers", { worker_id: "w", owner_user_id: "u" }, 201);
  return operator;
}

sees(of(PUBLISHED, "MAX_PAYLOAD_BYTES"), "each class has its largest payload", async (t) => {
  for (const row of PUBLISHED) {
    const operator = await peopled(t, { [`RUNTIME_KHALA_${row}_MAX_PAYLOAD_BYTES`]: "600" });
    const publish = (size) => operator.post(ROWS[row].path, { event_type: ROWS[row].event_type, payload: { s: "x".repeat(size - 8) } });
    assert.equal((await publish(600)).status, 200, row);
    const { details } = assertError(await publish(601), 413, "khala_frame_payload_too_large");
    assert.deepEqual([details.payload_bytes, details.max_payload_bytes], [601, 600], row);
    assert.equal((await operator.post("runs/r/events", { event_type: "x", payload: { s: "x".repeat(5000) } })).status,
      row === "RUN_EVENTS" ? 413 : 200, `${row} is its own`);
  }
});

sees(of(PUBLISHED, "PUBLISH_RATE_PER_SECOND"), "each class has its rate", async (t) => {
  for (const row of PUBLISHED) {
    const operator = await peopled(t, { [`RUNTIME_KHALA_${row}_PUBLISH_RATE_PER_SECOND`]: "2" });
    const { path, event_type } = ROWS[row];
    const answers = await Promise.all(Array.from({ length: 20 }, () => operator.post(path, { event_type })));
    const refused = answers.filter(({ status }) => status === 429);
    assert.ok(refused.length > 0 && refused.length < 20, `${row}: ${refused.length}`);
    assert.equal(assertError(refused[0], 429, "khala_publish_rate_limited").details.limit, 2, row);
    const free = row === "RUN_EVENTS" ? ROWS.FALLBACK : ROWS.RUN_EVENTS;
    for (let i = 0; i < 10; i++) await operator.did(free.path, { event_type: free.event_type });
  }
});

sees(of(Object.keys(ROWS), "REPLAY_BUDGET_EVENTS"), "each class has its replay budget", async (t) => {
  const budgets = Object.keys(ROWS).map((row, index) => [row, 3 + index]);
  const operator = await peopled(t, Object.fromEntries(budgets.map(([row, budget]) => [`RUNTIME_KHALA_${row}_REPLAY_BUDGET_EVENTS`, String(budget)])));
  for (const [row, budget] of budgets) {
    const { topic, path, event_type } = ROWS[row];
    for (let i = 0; i < 15; i++) await operator.did(path, { event_type });
    const { head_cursor: head } = await operator.read(messages(topic));
    const { details } = assertError(await operator.get(messages(topic, `after_seq=${head - budget - 1}`)), 410, "stale_cursor");
    assert.deepEqual([details.reason_codes, details.stale_topics[0].replay_budget_events], [["replay_budget_exceeded"], budget], row);
    assert.equal((await operator.get(messages(topic, `after_seq=${head - budget}`))).status, 200, row);
  }
});

sees(of(Object.keys(ROWS), "RETENTION_SECONDS"), "each class keeps its frames for its own time", async (t) => {
  const data = folder(t);
  const kept = Object.fromEntries(Object.keys(ROWS).map((row, index) => [row, (index + 1) * 100_000]));
  const settings = Object.fromEntries(Object.entries(kept).map(([row, seconds]) => [`RUNTIME_KHALA_${row}_RETENTION_SECONDS`, String(seconds)]));
  const first = await peopled(t, settings, data);
  for (const { path, event_type } of Object.values(ROWS)) await first.did(path, { event_type });
  await first.server.stop();
  for (const now of Object.values(kept)) {
    const operator = await operate(t, { data, settings: { ...NEVER, ...settings, KHALA_CLOCK_OFFSET_MS: String((now + 600) * 1000) } });
    const { topic_stats } = await operator.did("retention/run", {});
    for (const [row, seconds] of Object.entries(kept)) {
      const { oldest, head, retention_seconds } = topic_stats.find(({ topic }) => topic === ROWS[row].topic);
      assert.equal(retention_seconds, seconds, row);
      assert.equal(oldest > head, seconds <= now, `${row} after ${now} s`);
    }
    await operator.server.stop();
  }
});

sees(of(["RUN_SUMMARIES", "CODEX_WORKER_SUMMARIES"], "SNAPSHOT_CADENCE_SECONDS"),
  "each summary topic has its cadence, within which a snapshot serves everybody", async (t) => {
  for (const row of ["RUN_SUMMARIES", "CODEX_WORKER_SUMMARIES"]) {
    const { topic, path, event_type } = ROWS[row];
    const watermarks = async (cadence) => {
      const operator = await peopled(t, { [`RUNTIME_KHALA_${row}_SNAPSHOT_CADENCE_SECONDS`]: cadence });
      const take = () => operator.read(`/v1/topics/${topic}/snapshot`);
      const first = await take();
      assert.equal(first.cadence_seconds, Number(cadence));
      await operator.did(path, { event_type });
      let last = await take();
      // One that is too old is made anew; until then it is the same.
      while (cadence === "1" && last.watermark === first.watermark) last = await take();
      return last.watermark - first.watermark;
    };
    assert.equal(await watermarks("86400"), 0, row);
    assert.equal(await watermarks("1"), 1, row);
  }
});

// ---- all of them ----

test("every key has a test that sees what it does", () => {
  const keys = effective().map(({ name }) => name);
  assert.deepEqual([...HERE, ...Object.keys(ELSEWHERE)].sort(), [...keys].sort());
  for (const [key, [file, title]] of Object.entries(ELSEWHERE)) {
    const source = readFileSync(new URL(`${file}.test.mjs`, import.meta.url), "utf8");
    const [, body = ""] = source.split(`\ntest(${JSON.stringify(title)}, `);
    assert.ok(body.split("\ntest(")[0].includes(key), `${file}: "${title}" is of ${key}`);
  }
});

/** Sections 5, 7.2, 8, 9, 10 and 11 of the contract. */
const SPECIFIED = {
  RUNTIME_BIND_ADDR: "127.0.0.1:4100", KHALA_OPERATOR_BIND_ADDR: "", KHALA_DATA_DIR: "./khala-data", KHALA_OPERATOR_KEY: "",
  KHALA_LOG: "text", RUNTIME_SYNC_TOKEN_SIGNING_KEY: "", RUNTIME_SYNC_JWKS_FILE: "", RUNTIME_SYNC_TOKEN_AUDIENCE: "openagents-sync",
  RUNTIME_SYNC_TOKEN_MAX_AGE_SECONDS: 900, RUNTIME_SYNC_TOKEN_REQUIRE_JTI: true, RUNTIME_SYNC_TOKEN_SINGLE_USE: false,
  RUNTIME_KHALA_ENFORCE_ORIGIN: true, RUNTIME_KHALA_ALLOWED_ORIGINS: "", RUNTIME_KHALA_RETENTION_INTERVAL_MS: 60000,
  RUNTIME_KHALA_POLL_DEFAULT_LIMIT: 100, RUNTIME_KHALA_POLL_MAX_LIMIT: 200, RUNTIME_KHALA_OUTBOUND_QUEUE_LIMIT: 200,
  RUNTIME_KHALA_FAIR_TOPIC_SLICE_LIMIT: 50, RUNTIME_KHALA_POLL_MIN_INTERVAL_MS: 250, RUNTIME_KHALA_SLOW_CONSUMER_LAG_THRESHOLD: 300,
  RUNTIME_KHALA_SLOW_CONSUMER_MAX_STRIKES: 3, RUNTIME_KHALA_CONSUMER_REGISTRY_CAPACITY: 4096,
  RUNTIME_KHALA_RECONNECT_BASE_BACKOFF_MS: 400, RUNTIME_KHALA_RECONNECT_JITTER_MS: 250,
  KHALA_HEARTBEAT_MS: 15000, KHALA_SILENCE_TIMEOUT_MS: 60000, KHALA_AUDIT_INIT_TIMEOUT_MS: 10000,
  OA_COMPAT_KHALA_ENFORCED: false, OA_COMPAT_KHALA_PROTOCOL_VERSION: "khala.ws.v1", OA_COMPAT_KHALA_MIN_CLIENT_BUILD_ID: "00000000T000000Z",
  OA_COMPAT_KHALA_MAX_CLIENT_BUILD_ID: "", OA_COMPAT_KHALA_MIN_SCHEMA_VERSION: 1, OA_COMPAT_KHALA_MAX_SCHEMA_VERSION: 1,
  ...Object.fromEntries([
    ["RUN_EVENTS", 240, 262144, 20000, 86400], ["WORKER_LIFECYCLE", 180, 65536, 10000, 86400],
    ["CODEX_WORKER_EVENTS", 240, 131072, 3000, 86400], ["FALLBACK", 90, 65536, 500, 86400],
    ["RUN_SUMMARIES", null, null, 20000, 604800, 300], ["CODEX_WORKER_SUMMARIES", null, null, 10000, 259200, 120],
    ["NOTIFICATIONS", null, null, 500, 43200],
  ].flatMap(([row, ...values]) =>
    ["PUBLISH_RATE_PER_SECOND", "MAX_PAYLOAD_BYTES", "REPLAY_BUDGET_EVENTS", "RETENTION_SECONDS", "SNAPSHOT_CADENCE_SECONDS"]
      .map((field, index) => [`RUNTIME_KHALA_${row}_${field}`, values[index]]).filter(([, value]) => value != null))),
};

test("the defaults are those of the contract", () => {
  const defaults = Object.fromEntries(effective().map(({ name, value }) => [name, value]));
  for (const [key, value] of Object.entries(SPECIFIED)) assert.equal(defaults[key], String(value), key);
});

test("a database or a driver that this build has not is refused, and not left aside", () => {
  for (const [name, value] of [["DB_URL", "postgres://user:sesame@db/khala"], ["RUNTIME_FANOUT_DRIVER", "nats"]]) {
    const { code, problem } = run(["serve", "--bind", "127.0.0.1:0"], { settings: { [name]: value } });
    assert.equal(code, 2, problem);
    assert.match(problem, new RegExp(name));
    assert.doesNotMatch(problem, /sesame/);
  }
  for (const settings of [{ DB_URL: "" }, { RUNTIME_FANOUT_DRIVER: "memory" }]) assert.equal(run(["config", "--check"], { settings }).code, 0);
});

// ---- secrets ----

test("a secret is shown nowhere: not by config, in an error, a log or the doctor", async (t) => {
  const secrets = { KHALA_OPERATOR_KEY: "sesame-operator", RUNTIME_SYNC_TOKEN_SIGNING_KEY: "sesame-signing-0123456789-0123456789" };
  for (const args of [["config"], ["config", "--json"], ["config", "--check"], ["doctor", "--json", "--data-dir", folder(t)]]) {
    const { out, problem } = run(args, { settings: secrets });
    assert.doesNotMatch(out + problem, /sesame/, args.join(" "));
  }
  for (const name of Object.keys(secrets)) {
    for (const bad of ["sesame with spaces", `sesame${"x".repeat(300)}`, "sesame\u00e9"]) {
      const { code, problem } = run(["serve"], { settings: { [name]: bad } });
      assert.equal(code, 2);
      assert.match(problem, new RegExp(`^khala: ${name}\\b`));
      assert.doesNotMatch(problem, /sesame/);
    }
  }
  const server = await serve(t, { settings: { ...secrets, KHALA_LOG_LEVEL: "debug" } });
  for (const authorization of [`Bearer ${secrets.KHALA_OPERATOR_KEY}`, "Bearer sesame-wrong"]) {
    await fetch(`${server.url}/internal/v1/khala/fanout/hooks?key=sesame`, { headers: { authorization } });
  }
  await server.stop();
  server.crashed = true; // it has stopped; nothing is left to stop
  assert.match(server.log, /http\.request/);
  assert.doesNotMatch(server.out + server.log, /sesame/);
});

// ---- slips ----

test("a variable that is nearly a setting is told, by config, the doctor and the server's log", async (t) => {
  const data = folder(t);
  assert.equal(run(["migrate", "--data-dir", data]).code, 0);
  const slips = {
    KHALA_DATADIR: "KHALA_DATA_DIR", KHALA_MAX_CONNECTIONS: "KHALA_CONNECTIONS_MAX", KHALA_URI: "KHALA_URL",
    RUNTIME_BIND_ADDRESS: "RUNTIME_BIND_ADDR", RUNTIME_SYNC_TOKEN_ISUER: "RUNTIME_SYNC_TOKEN_ISSUER",
    RUNTIME_KHALA_FALLBACK_RETENTION_SECOND: "RUNTIME_KHALA_FALLBACK_RETENTION_SECONDS", OA_COMPAT_KHALA_ENFORCE: "OA_COMPAT_KHALA_ENFORCED",
    KHALA_SOMETHING: null,
  };
  // Kubernetes' for a Service named khala, systemd's, and ours.
  const others = ["KHALA_SERVICE_HOST", "KHALA_PORT", "KHALA_PORT_4100_TCP_ADDR", "RUNTIME_DIRECTORY", "OA_COMPAT_OTHER", "KHALA_URL", "KHALA_CA_FILE"];
  const settings = Object.fromEntries([...Object.keys(slips), ...others].map((name) => [name, "x"]));
  for (const args of [["config"], ["config", "--check"]]) {
    const { code, problem } = run(args, { settings });
    assert.equal(code, 0);
    const told = Object.fromEntries([...problem.matchAll(/^khala: (\S+) is no setting and has no effect(?:; did you mean (\S+)\?)?$/gm)]
      .map(([, name, nearest]) => [name, nearest ?? null]));
    assert.deepEqual(told, slips);
  }
  const { checks } = JSON.parse(run(["doctor", "--json", "--data-dir", data], { settings: { ...settings, KHALA_URL: "http://127.0.0.1:1" } }).out);
  const found = checks.filter(({ check }) => check === "settings");
  assert.equal(found.length, Object.keys(slips).length);
  for (const [name, nearest] of Object.entries(slips)) {
    const { finding, advice } = found.find(({ message }) => message.startsWith(`${name} is no setting`));
    assert.deepEqual([finding, advice], ["warning", nearest ? `set ${nearest} instead` : "remove it"], name);
  }
  const server = await serve(t, { settings });
  for (const [name, nearest] of Object.entries(slips)) {
    assert.match(server.log, new RegExp(`WARN +config\\.unknown_variable name=${name} nearest=${nearest ?? "-"} `));
  }
  assert.equal(server.log.match(/unknown_variable/g).length, Object.keys(slips).length);
});

test("a window that no client fits in is refused", () => {
  for (const settings of [
    { OA_COMPAT_KHALA_MIN_SCHEMA_VERSION: "2" },
    { OA_COMPAT_KHALA_MIN_CLIENT_BUILD_ID: "20260301T000000Z", OA_COMPAT_KHALA_MAX_CLIENT_BUILD_ID: "20260228T000000Z" },
  ]) {
    const { code, problem } = run(["config", "--check"], { settings });
    assert.equal(code, 2);
    assert.match(problem, new RegExp(`^khala: ${Object.keys(settings)[0]} is above OA_COMPAT_KHALA_MAX_`));
  }
});

test("the check finds a file of keys that cannot be used, as the server and the doctor do", (t) => {
  const place = folder(t);
  const junk = join(place, "junk.json");
  writeFileSync(junk, "{}");
  for (const [file, words] of [[join(place, "none.json"), /No such file/], [junk, /junk\.json: /]]) {
    const settings = { RUNTIME_SYNC_JWKS_FILE: file };
    const check = run(["config", "--check"], { settings });
    assert.equal(check.code, 2);
    assert.match(check.problem, /^khala: RUNTIME_SYNC_JWKS_FILE: /);
    assert.match(check.problem, words);
    const served = run(["serve", "--bind", "127.0.0.1:0", "--data-dir", join(place, "data")], { settings });
    assert.equal(served.code, 3);
    assert.match(served.problem, words);
    const doctor = JSON.parse(run(["doctor", "--json", "--data-dir", place], { settings }).out);
    const { finding, message } = doctor.checks.find(({ check: name }) => name === "keys");
    assert.equal(finding, "wrong");
    assert.match(message, words);
  }
});
