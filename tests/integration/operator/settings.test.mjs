// The effect of every setting: each key has a test, here or in another file, and the defaults of the
// contract.
import assert from "node:assert/strict";
import { readFileSync, readdirSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import { fileURLToPath } from "node:url";
import { alone, test } from "../../lib/cases.mjs";
import { assertError, connect, folder, run, serve } from "../../lib/khala.mjs";
import { openSockets } from "../../lib/machine.mjs";
import { operate, operateRun } from "../../lib/operator.mjs";
import { AUDIT_SOCKET, pollPath, snapshotPath, streamPath } from "../../lib/paths.mjs";
import { scrape } from "../../lib/prometheus.mjs";
import { events } from "../../lib/samples.mjs";
import { Stream } from "../../lib/sse.mjs";
import { holdWriter } from "../../lib/store.mjs";
import { until, within } from "../../lib/wait.mjs";
import { message, RawSocket } from "../../lib/websocket.mjs";

const INTEGRATION = fileURLToPath(new URL("..", import.meta.url));

/** Keys that are tested elsewhere: the file, and the test that names the key. */
const ELSEWHERE = {
  DB_URL: ["postgres", "the verbs work on the database of DB_URL, and no output shows its password"],
  KHALA_OUTBOX_POLL_MS: ["postgres_outbox", "users append in their own transactions"], KHALA_FORWARD_TIMEOUT_MS: ["forward", "a stopped writer leaves an unknown outcome, and an event id makes the retry at the next writer safe"], KHALA_CLUSTER_CA_FILE: ["forward", "nodes reach one another by TLS, and refuse an authority that they do not trust"],
  ...Object.fromEntries(["KHALA_FOLLOW_POLL_MS", "KHALA_ADVERTISE_ADDR"].map((key) => [key, ["cluster", "a follower without hints reads the log at its interval, and each node has its address in the table"]])),
  RUNTIME_BIND_ADDR: ["append_cli", "the command line finds the server by the server's settings"],
  KHALA_OPERATOR_BIND_ADDR: ["operator_listener", "a taken or invalid operator address is refused by the setting's name"],
  ...Object.fromEntries(["BYTES_STORED", "METADATA_BYTES", "OPEN_RUNS", "OPEN_WORKERS", "BYTES_PER_SECOND", "EVENTS_PER_SECOND", "ENTITIES_PER_MINUTE", "SUBSCRIPTIONS", "BATCH_BYTES"]
    .map((name) => [`KHALA_QUOTA_${name}`, ["quotas", "each setting is the limit of owners without a quota of their own"]])),
  KHALA_DATA_DIR: ["append_cli", "the command line appends and reads"],
  KHALA_LOG: ["http", "log lines are JSON when the setting says so"],
  KHALA_LOG_LEVEL: ["why", "the log contains only lines of its level"],
  KHALA_CONNECTIONS_MAX: ["operator_listener", "the operator can connect when clients have taken every connection"],
  KHALA_CONNECTIONS_UNAUTHENTICATED_MAX: ["connection_limits", "beyond the unauthenticated limit the connection that was silent longest gives way"],
  KHALA_CONNECTIONS_PER_PRINCIPAL_MAX: ["connection_limits", "a principal at its limit is refused, and no other principal notices"],
  KHALA_CONNECTIONS_PER_ADDRESS_MAX: ["connection_limits", "an address at its limit is refused, but not the operator there"],
  KHALA_READS_PER_PRINCIPAL_MAX: ["fair_reads", "reads of the store are fair and bounded"],
  KHALA_UNREAD_BYTES_PER_PRINCIPAL_MAX: ["unread_answers", "answers that are not read are bounded for each principal, and end"],
  KHALA_REQUEST_HEAD_BYTES_MAX: ["http_refusals", "the limit of a request head is a setting"],
  KHALA_IDLE_TIMEOUT_MS: ["http_lifetime", "an idle connection is closed without an answer"],
  KHALA_OPERATOR_KEY: ["append", "the operator key is given or generated, readable by its owner only, and never logged"],
  KHALA_SHUTDOWN_DELAY_MS: ["shutdown", "during the shutdown delay only readiness fails, and new clients are served"],
  KHALA_DISK_RESERVE_BYTES: ["disk_reserve", "the setting says how much is reserved, and 0 gives the reserve back"],
  KHALA_BATCH_SPOOL_BYTES_MAX: ["batch", "a batch client that does not read its answers is closed, and others are served"],
  KHALA_PEER_TIMEOUT_MS: ["peers", "connections of a machine that vanishes are closed within seconds, and those of a stopped client are not"],
  KHALA_QUOTA_BATCH_BYTES: ["batch_shares", "a principal beyond its quota of batches gets 429 with the quota"],
  KHALA_BATCHES_BYTES_MAX: ["batch", "batches with unread answers share one memory limit, and further batches are answered 503"],
  KHALA_TLS_CERT_FILE: ["tls", "the check and the server refuse unusable TLS settings by name"],
  KHALA_TLS_KEY_FILE: ["tls", "the check and the server refuse unusable TLS settings by name"],
  KHALA_TLS_MIN_VERSION: ["tls", "the server accepts only TLS 1.2 and 1.3 with authenticated forward-secret ciphers, and http/1.1"],
  RUNTIME_KHALA_FAIR_TOPIC_SLICE_LIMIT: ["metrics", "polls, throttling, capped and fair limits are counted"],
  RUNTIME_KHALA_POLL_MIN_INTERVAL_MS: ["delivery", "a poll that is too early receives the time to retry, and does not extend it"],
  KHALA_TOPICS_FILE: ["topics_file", "a file that cannot be used is refused at the start, by check and by doctor, with line and reason"],
  RUNTIME_KHALA_SLOW_CONSUMER_LAG_THRESHOLD: ["metrics", "a slow polling consumer is counted, and its eviction is listed"],
  RUNTIME_KHALA_SLOW_CONSUMER_MAX_STRIKES: ["metrics", "a slow polling consumer is counted, and its eviction is listed"],
  KHALA_HEARTBEAT_MS: ["phoenix_connection", "the server sends heartbeats and closes a silent client"],
  KHALA_SLOW_CONSUMER_CHECK_MS: ["slow", "a client that stops reading is evicted with 4000 and its cursors, and resumes without loss"],
  KHALA_WS_MESSAGE_BYTES_MAX: ["phoenix_connection", "messages and frames that break the rules close with their code"],
  KHALA_LEGACY_CURSORS: ["audit", "cursors of protocol version 1 are taken with KHALA_LEGACY_CURSORS, in lists, exports and the command line"],
  KHALA_SUBSCRIPTIONS_MAX: ["phoenix", "a repeated subscription starts at its new cursor and does not count twice"],
  KHALA_AUTH_FAILURES_PER_MINUTE: ["attempts", "only guesses count: not expired tokens, not missing ones, and not those of another address"],
  KHALA_QUOTA_SUBSCRIPTIONS: ["subscription_quota", "subscriptions count over all connections of a principal, all or none of a subscribe"],
  KHALA_SNAPSHOTS_BYTES_MAX: ["snapshot", "snapshots use no more disk than the setting allows"],
  RUNTIME_KHALA_SINK: ["sinks", "noop keeps the log and writes no summary"],
  RUNTIME_KHALA_FANOUT_SINKS: ["sinks", "sinks that cannot work are refused at start with the name of the setting"],
  KHALA_SINK_NATS_URL: ["sinks", "a NATS server that starts after the events gets every document, once it is there"],
  KHALA_SINK_NATS_SUBJECT: ["sinks", "a NATS server that starts after the events gets every document, once it is there"],
  KHALA_SINK_WEBHOOK_URL: ["sinks", "a webhook gets every document, also those of the time when it failed or the server was down"],
  KHALA_SINK_WEBHOOK_KEY: ["sinks", "a webhook gets every document, also those of the time when it failed or the server was down"],
  RUNTIME_FANOUT_DRIVER: ["fanout", "the server is ready and takes appends while its driver is down, and shows its state"],
  RUNTIME_FANOUT_URL: ["fanout", "the server is ready and takes appends while its driver is down, and shows its state"],
  RUNTIME_KHALA_PROJECTION_VERSION: ["sinks", "a changed projection version rebuilds every summary while the server runs"],
  KHALA_CLOCK_OFFSET_MS: ["retention", "every row of the retention table is pruned at its time, and its readers receive stale_cursor"],
  RUNTIME_SYNC_TOKEN_FALLBACK_SIGNING_KEYS: ["token", "old secrets stay valid during a rotation, and a connected client resumes across it"],
  KHALA_OPERATOR_KEY_PREVIOUS: ["token", "old secrets stay valid during a rotation, and a connected client resumes across it"],
  KHALA_MINT_KEY: ["producers", "the mint key mints tokens, and nothing else"],
  RUNTIME_SYNC_TOKEN_SIGNING_KEY: ["token", "a given secret signs tokens with HS256"],
  RUNTIME_SYNC_JWKS_FILE: ["token", "a changed key file is loaded at run time, and a bad one is ignored"],
  RUNTIME_SYNC_TOKEN_ISSUER: ["token", "a given secret signs tokens with HS256"],
  RUNTIME_SYNC_TOKEN_SINGLE_USE: ["revocation", "a single-use token opens one connection, also over a restart"],
  RUNTIME_KHALA_ALLOWED_ORIGINS: ["entitlement", "a page of another origin is refused"],
};

const HERE = new Set();

/** Declares a test of these keys. */
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

/** Starts a server with a run of so many events. */
const withRun = (t, count, settings) => operateRun(t, { count, run_id: "r", owner_user_id: "u", settings });

/** The answer to a request with this token. */
const asked = (operator, token, path, headers = {}) =>
  operator.ask("GET", path, undefined, { authorization: `Bearer ${token}`, ...headers });

// ---- threads ----

const threads = (server) => readdirSync(`/proc/${server.child.pid}/task`).length;

sees(["KHALA_IO_LOOPS", "KHALA_READERS"], "KHALA_IO_LOOPS and KHALA_READERS set the number of threads", async (t) => {
  const start = (KHALA_IO_LOOPS, KHALA_READERS) => serve(t, { settings: { KHALA_IO_LOOPS, KHALA_READERS } });
  const [least, loops, readers] = await Promise.all([start("1", "1"), start("4", "1"), start("1", "6")]);
  // The threads of the start end by themselves.
  await until(() => threads(loops) === threads(least) + 3, "three loops more");
  await until(() => threads(readers) === threads(least) + 5, "five readers more");
});

sees(["KHALA_LOOPS_OWN_DESCRIPTORS"], "a loop with its own descriptor table does not share descriptors", async (t) => {
  const shared = async (KHALA_LOOPS_OWN_DESCRIPTORS) => {
    // ThreadSanitizer assumes one descriptor table, so its reports would be wrong.
    const server = await serve(t, { settings: { KHALA_LOOPS_OWN_DESCRIPTORS, KHALA_IO_LOOPS: "1", TSAN_OPTIONS: "report_bugs=0" } });
    const ask = async () => {
      const peer = await connect(server);
      await peer.send("GET /healthz/live HTTP/1.1\r\nHost: a\r\n\r\n");
      assert.equal((await peer.response()).status, 200);
    };
    const before = openSockets(server);
    for (let i = 0; i < 5; i++) await ask();
    return openSockets(server) - before;
  };
  assert.equal(await shared("false"), 5);
  assert.equal(await shared("true"), 0, "the main thread knows nothing of them");
});

// ---- times ----

/** Asserts that something ends earlier with the setting than with its default. */
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

sees(["KHALA_REQUEST_TIMEOUT_MS"], "KHALA_REQUEST_TIMEOUT_MS limits the arrival of a request", (t) =>
  endsSooner(t, { KHALA_REQUEST_TIMEOUT_MS: "100" }, async (operator) => {
    const peer = await connect(operator.server);
    await peer.send("GET / HTTP/1.1\r\n");
    await peer.rest();
  }));

sees(["KHALA_SHUTDOWN_GRACE_MS"], "KHALA_SHUTDOWN_GRACE_MS limits the requests under way", (t) =>
  endsSooner(t, { KHALA_SHUTDOWN_GRACE_MS: "100" }, async (operator) => {
    const { server } = operator;
    const peer = await connect(server);
    await peer.send(`POST /internal/v1/runs HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${operator.key}\r\nContent-Length: 9\r\n\r\n{`);
    await operator.read("khala/fanout/hooks");
    server.kill("SIGTERM");
    // The server with the default is killed at the end of the test.
    server.crashed = true;
    t.after(() => server.crash());
    assert.equal((await server.ended).code, 0);
  }));

sees(["KHALA_SILENCE_TIMEOUT_MS"], "KHALA_SILENCE_TIMEOUT_MS limits the silence of a client", (t) =>
  endsSooner(t, { KHALA_SILENCE_TIMEOUT_MS: "1000" }, async (operator) => (await RawSocket.open(operator)).closed()));

sees(["KHALA_AUDIT_INIT_TIMEOUT_MS"], "KHALA_AUDIT_INIT_TIMEOUT_MS limits the wait for the init message", (t) =>
  endsSooner(t, { KHALA_AUDIT_INIT_TIMEOUT_MS: "100" }, async (operator) => {
    await (await RawSocket.open(operator, { path: AUDIT_SOCKET, join: false })).closed();
  }));

sees(["RUNTIME_KHALA_RETENTION_INTERVAL_MS"], "RUNTIME_KHALA_RETENTION_INTERVAL_MS sets the interval of retention", (t) =>
  endsSooner(t, { RUNTIME_KHALA_RETENTION_INTERVAL_MS: "100" }, async (operator) => {
    const count = async () => (await scrape(operator)).get("openagents_runtime_sync_retention_cycle_total");
    await until(async () => operator.server.over || await count() >= 5, "five passes of retention", 600_000);
  }));

sees(["KHALA_WS_MESSAGES_PER_SECOND"], "a client may send twice the messages of one second in a burst", async (t) => {
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
  // 60 messages and the join before them.
  assert.ok(refused > 0 && refused <= 21, String(refused));
});

// ---- the writer's queue ----

sees(["KHALA_WRITER_QUEUE_MAX", "KHALA_WRITER_QUEUE_BYTES_MAX"],
  "the writer queue is bounded in number and bytes, and further appends are answered 503", async (t) => {
  for (const settings of [{ KHALA_WRITER_QUEUE_MAX: "2" }, { KHALA_WRITER_QUEUE_BYTES_MAX: "1" }]) {
    const operator = await withRun(t, 1, settings);
    const go = await holdWriter(t, operator.data);
    const posts = [];
    let refused = 0;
    // The writer takes the whole queue when it begins, so more than the limit may be accepted at first.
    while (refused === 0 && posts.length < 50) {
      const post = operator.post("runs/r/events", { event_type: "x" });
      posts.push(post);
      const answer = await Promise.race([post, operator.get("runs/r").then(() => null)]);
      if (!answer) continue;
      assertError({ ...answer, headers: answer.headers }, 503, "limit_reached");
      refused++;
    }
    assert.equal(refused, 1, JSON.stringify(settings));
    await go();
    const done = await Promise.all(posts);
    const stored = done.filter(({ status }) => status === 200).length;
    // A refusal that came later than the read beside it counted as waiting.
    assert.ok(done.every(({ status }) => status === 200 || status === 503));
    assert.ok(stored < posts.length);
    assert.equal((await operator.events("r")).length, 1 + stored);
  }
});

// ---- polls ----

sees(["RUNTIME_KHALA_POLL_DEFAULT_LIMIT", "RUNTIME_KHALA_POLL_MAX_LIMIT", "RUNTIME_KHALA_OUTBOUND_QUEUE_LIMIT"],
  "a poll has the default limit and is capped by the other two settings", async (t) => {
  const poll = async (settings, query) => {
    const operator = await withRun(t, 30, { ...NOW, ...settings });
    const { messages: got, limit_applied, limit_capped, outbound_queue_limit } =
      await operator.read(pollPath("run:r:events", `after_seq=0&${query}`));
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

sees(["RUNTIME_KHALA_CONSUMER_REGISTRY_CAPACITY"], "the consumer registry evicts the consumer that was silent longest", async (t) => {
  const polls = async (capacity) => {
    const operator = await operate(t, { settings: {
      RUNTIME_KHALA_POLL_MIN_INTERVAL_MS: "60000", RUNTIME_KHALA_CONSUMER_REGISTRY_CAPACITY: capacity } });
    const tokens = ["a", "b", "c"].map((oa_user_id) => operator.sign({ oa_user_id, oa_sync_scopes: ["runtime.read_all"] }));
    const statuses = [];
    for (const who of [0, 1, 2, 2, 1, 0]) statuses.push((await asked(operator, tokens[who], pollPath("chat"))).status);
    return statuses;
  };
  assert.deepEqual(await polls("3"), [200, 200, 200, 429, 429, 429]);
  assert.deepEqual(await polls("2"), [200, 200, 200, 429, 429, 200]);
});

sees(["RUNTIME_KHALA_RECONNECT_BASE_BACKOFF_MS", "RUNTIME_KHALA_RECONNECT_JITTER_MS"],
  "the reconnect delay is the base plus a random part up to the jitter", async (t) => {
  const delays = async (base, jitter) => {
    const operator = await withRun(t, 1, { ...NOW, RUNTIME_KHALA_RECONNECT_BASE_BACKOFF_MS: base, RUNTIME_KHALA_RECONNECT_JITTER_MS: jitter });
    const found = [];
    for (let i = 0; i < 20; i++) found.push((await operator.read(pollPath("run:r:events"))).recommended_reconnect_backoff_ms);
    return found;
  };
  assert.deepEqual(new Set(await delays("1234", "0")), new Set([1234]));
  const spread = await delays("50000", "500000");
  assert.ok(spread.every((delay) => delay >= 50000 && delay <= 550000), spread.join());
  assert.ok(new Set(spread).size > 1 && Math.max(...spread) > 100000, spread.join());
});

// ---- memory ----

sees(["KHALA_WINDOW_FRAMES_MAX", "KHALA_WINDOW_BYTES_MAX", "KHALA_WINDOWS_BYTES_MAX"],
  "frames in memory are bounded by topic and in total, and others are read from the store", async (t) => {
  const LARGE = "x".repeat(1000);
  const held = async (settings, runs) => {
    const operator = await operate(t, { settings: { ...NOW, ...settings } });
    for (const run_id of runs) await operator.did("runs", { run_id, owner_user_id: "u" }, 201);
    const follow = (run_id) => Stream.open(operator, streamPath(`run:${run_id}:events`, `after_seq=0&token=${operator.reader}`));
    const whole = (stream) => stream.until(({ lastSeq }) => lastSeq === 401, "the last event");
    const streams = await Promise.all(runs.map(follow));
    for (const run_id of runs) {
      await operator.batch(events(400, { run_id, payload: (n) => ({ n, LARGE }) }));
    }
    await Promise.all(streams.map(whole));
    const bytes = (await scrape(operator)).get("khala_fanout_window_bytes");
    // All events can still be read.
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
  "the audience, age and id of a token are checked as the settings say", async (t) => {
  const usual = await operate(t, { settings: NOW });
  const other = await operate(t, { data: folder(t), settings: { ...NOW, RUNTIME_SYNC_TOKEN_AUDIENCE: "elsewhere",
    RUNTIME_SYNC_TOKEN_MAX_AGE_SECONDS: "60", RUNTIME_SYNC_TOKEN_REQUIRE_JTI: "false" } });
  const now = Math.floor(Date.now() / 1000);
  const said = async (operator, claims) => {
    const token = operator.sign({ oa_sync_scopes: ["runtime.read_all"], ...claims });
    const { status, body } = await asked(operator, token, pollPath("runtime.notifications"));
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

sees(["RUNTIME_KHALA_ENFORCE_ORIGIN"], "pages of any origin may connect when the setting allows it", async (t) => {
  const from = async (settings) => {
    const operator = await operate(t, { settings: { ...NOW, ...settings } });
    return asked(operator, operator.reader, pollPath("chat"), { origin: "https://any.example" });
  };
  assert.equal(JSON.parse((await from({})).body).reason_code, "origin_not_allowed");
  assert.equal((await from({ RUNTIME_KHALA_ENFORCE_ORIGIN: "off" })).status, 200);
});

// ---- the compatibility gate ----

sees(["OA_COMPAT_KHALA_ENFORCED", "OA_COMPAT_KHALA_PROTOCOL_VERSION", "OA_COMPAT_KHALA_MIN_CLIENT_BUILD_ID",
  "OA_COMPAT_KHALA_MAX_CLIENT_BUILD_ID", "OA_COMPAT_KHALA_MIN_SCHEMA_VERSION", "OA_COMPAT_KHALA_MAX_SCHEMA_VERSION"],
  "each bound of the compatibility window refuses clients once the gate is enforced", async (t) => {
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
    const { status, body } = await asked(operator, operator.reader, pollPath("chat", new URLSearchParams({ ...good, ...claim })));
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

/** A topic of each row, and how to publish to it. */
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

sees(of(PUBLISHED, "MAX_PAYLOAD_BYTES"), "each topic class has its maximum payload", async (t) => {
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

sees(of(PUBLISHED, "PUBLISH_RATE_PER_SECOND"), "each topic class has its publish rate", async (t) => {
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

sees(of(Object.keys(ROWS), "REPLAY_BUDGET_EVENTS"), "each topic class has its replay budget", async (t) => {
  const budgets = Object.keys(ROWS).map((row, index) => [row, 3 + index]);
  const settings = Object.fromEntries(budgets.map(([row, budget]) => [`RUNTIME_KHALA_${row}_REPLAY_BUDGET_EVENTS`, String(budget)]));
  const data = folder(t);
  const first = await peopled(t, settings, data);
  for (const { path, event_type } of Object.values(ROWS)) {
    for (let i = 0; i < 15; i++) await first.did(path, { event_type });
  }
  await first.server.stop();
  // Frames younger than two snapshot cadences are never over the budget of a summary topic.
  const operator = await operate(t, { data, settings: { ...NEVER, ...settings, KHALA_CLOCK_OFFSET_MS: "3600000" } });
  for (const [row, budget] of budgets) {
    const { topic } = ROWS[row];
    const { head_cursor: head } = await operator.read(pollPath(topic));
    const { details } = assertError(await operator.poll(topic, `after_seq=${head - budget - 1}`), 410, "stale_cursor");
    assert.deepEqual([details.reason_codes, details.stale_topics[0].replay_budget_events], [["replay_budget_exceeded"], budget], row);
    assert.equal((await operator.poll(topic, `after_seq=${head - budget}`)).status, 200, row);
  }
});

sees(of(Object.keys(ROWS), "RETENTION_SECONDS"), "each topic class has its retention time", async (t) => {
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
  "each summary topic has its snapshot cadence", async (t) => {
  await Promise.all(["RUN_SUMMARIES", "CODEX_WORKER_SUMMARIES"].map(async (row) => {
    const { topic, path, event_type } = ROWS[row];
    const watermarks = async (cadence) => {
      const operator = await peopled(t, { [`RUNTIME_KHALA_${row}_SNAPSHOT_CADENCE_SECONDS`]: cadence });
      const take = () => operator.read(snapshotPath(topic));
      const first = await take();
      assert.equal(first.cadence_seconds, Number(cadence));
      await operator.did(path, { event_type });
      // A snapshot older than the cadence is made anew; until then it is the same.
      let last = await take();
      if (cadence === "1") await until(async () => (last = await take()).watermark !== first.watermark, "the next snapshot");
      return last.watermark - first.watermark;
    };
    assert.equal(await watermarks("86400"), 0, row);
    assert.equal(await watermarks("1"), 1, row);
  }));
});

// ---- all of them ----

alone("every setting has a test of its effect", () => {
  const keys = effective().map(({ name }) => name);
  assert.deepEqual([...HERE, ...Object.keys(ELSEWHERE)].sort(), [...keys].sort());
  const files = readdirSync(INTEGRATION, { recursive: true });
  for (const [key, [file, title]] of Object.entries(ELSEWHERE)) {
    const path = files.find((one) => basename(one) === `${file}.test.mjs`);
    const source = readFileSync(join(INTEGRATION, path), "utf8");
    const cases = source.split(/\n(?:test|alone)\(/);
    const body = cases.find((one) => one.startsWith(`${JSON.stringify(title)}, `));
    assert.ok(body?.includes(key), `${file}: "${title}" is of ${key}`);
  }
});

/** Sections 5, 7.2, 8, 9, 10 and 11 of the contract. */
const SPECIFIED = {
  RUNTIME_BIND_ADDR: "127.0.0.1:4100", KHALA_OPERATOR_BIND_ADDR: "", KHALA_DATA_DIR: "./khala-data", KHALA_OPERATOR_KEY: "",
  KHALA_LOG: "text", RUNTIME_SYNC_TOKEN_SIGNING_KEY: "", RUNTIME_SYNC_JWKS_FILE: "", RUNTIME_SYNC_TOKEN_AUDIENCE: "openagents-sync",
  RUNTIME_SYNC_TOKEN_ISSUER: "khala",
  RUNTIME_SYNC_TOKEN_MAX_AGE_SECONDS: 900, RUNTIME_SYNC_TOKEN_REQUIRE_JTI: true, RUNTIME_SYNC_TOKEN_SINGLE_USE: false,
  RUNTIME_KHALA_ENFORCE_ORIGIN: true, RUNTIME_KHALA_ALLOWED_ORIGINS: "", RUNTIME_KHALA_RETENTION_INTERVAL_MS: 60000,
  RUNTIME_KHALA_POLL_DEFAULT_LIMIT: 100, RUNTIME_KHALA_POLL_MAX_LIMIT: 200, RUNTIME_KHALA_OUTBOUND_QUEUE_LIMIT: 200,
  RUNTIME_KHALA_FAIR_TOPIC_SLICE_LIMIT: 50, RUNTIME_KHALA_POLL_MIN_INTERVAL_MS: 250, RUNTIME_KHALA_SLOW_CONSUMER_LAG_THRESHOLD: 300,
  RUNTIME_KHALA_SLOW_CONSUMER_MAX_STRIKES: 3, RUNTIME_KHALA_CONSUMER_REGISTRY_CAPACITY: 4096,
  RUNTIME_KHALA_RECONNECT_BASE_BACKOFF_MS: 400, RUNTIME_KHALA_RECONNECT_JITTER_MS: 250,
  KHALA_CONNECTIONS_PER_PRINCIPAL_MAX: 256, KHALA_CONNECTIONS_UNAUTHENTICATED_MAX: 1024, KHALA_CONNECTIONS_PER_ADDRESS_MAX: 0,
  KHALA_HEARTBEAT_MS: 15000, KHALA_SILENCE_TIMEOUT_MS: 60000, KHALA_AUDIT_INIT_TIMEOUT_MS: 10000,
  OA_COMPAT_KHALA_ENFORCED: false, OA_COMPAT_KHALA_PROTOCOL_VERSION: "khala.ws.v1", OA_COMPAT_KHALA_MIN_CLIENT_BUILD_ID: "00000000T000000Z",
  OA_COMPAT_KHALA_MAX_CLIENT_BUILD_ID: "", OA_COMPAT_KHALA_MIN_SCHEMA_VERSION: 1, OA_COMPAT_KHALA_MAX_SCHEMA_VERSION: 1,
  ...Object.fromEntries([
    ["RUN_EVENTS", 2000, 262144, 20000, 86400], ["WORKER_LIFECYCLE", 1000, 65536, 10000, 86400],
    ["CODEX_WORKER_EVENTS", 1000, 131072, 3000, 86400], ["FALLBACK", 1000, 65536, 20000, 86400],
    ["RUN_SUMMARIES", null, null, 20000, 604800, 300], ["CODEX_WORKER_SUMMARIES", null, null, 10000, 259200, 120],
    ["NOTIFICATIONS", null, null, 500, 43200],
  ].flatMap(([row, ...values]) =>
    ["PUBLISH_RATE_PER_SECOND", "MAX_PAYLOAD_BYTES", "REPLAY_BUDGET_EVENTS", "RETENTION_SECONDS", "SNAPSHOT_CADENCE_SECONDS"]
      .map((field, index) => [`RUNTIME_KHALA_${row}_${field}`, values[index]]).filter(([, value]) => value != null))),
};

test("the defaults equal those of the contract", () => {
  const defaults = Object.fromEntries(effective().map(({ name, value }) => [name, value]));
  for (const [key, value] of Object.entries(SPECIFIED)) assert.equal(defaults[key], String(value), key);
});

test("a database that this build lacks is refused", () => {
  const { code, problem } = run(["serve", "--bind", "127.0.0.1:0"], { settings: { DB_URL: "mysql://user:sesame@db/khala" } });
  assert.equal(code, 2, problem);
  assert.match(problem, /^(?!.*sesame).*DB_URL/s);
  assert.equal(run(["config", "--check"], { settings: { DB_URL: "" } }).code, 0);
});

// ---- secrets ----

test("a secret is shown neither by config, an error, a log nor the doctor", async (t) => {
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
  assert.match(server.log, /http\.request/);
  assert.doesNotMatch(server.out + server.log, /sesame/);
});

// ---- slips ----

test("config, the doctor and the log report a misspelled setting", async (t) => {
  const data = folder(t);
  assert.equal(run(["migrate", "--data-dir", data]).code, 0);
  const slips = {
    KHALA_DATADIR: "KHALA_DATA_DIR", KHALA_MAX_CONNECTIONS: "KHALA_CONNECTIONS_MAX", KHALA_URI: "KHALA_URL",
    RUNTIME_BIND_ADDRESS: "RUNTIME_BIND_ADDR", RUNTIME_SYNC_TOKEN_ISUER: "RUNTIME_SYNC_TOKEN_ISSUER",
    RUNTIME_KHALA_FALLBACK_RETENTION_SECOND: "RUNTIME_KHALA_FALLBACK_RETENTION_SECONDS", OA_COMPAT_KHALA_ENFORCE: "OA_COMPAT_KHALA_ENFORCED",
    KHALA_SOMETHING: null,
  };
  // Variables of Kubernetes for a service named khala, of systemd, and of our own tools.
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

test("an empty compatibility window is refused", () => {
  for (const settings of [
    { OA_COMPAT_KHALA_MIN_SCHEMA_VERSION: "2" },
    { OA_COMPAT_KHALA_MIN_CLIENT_BUILD_ID: "20260301T000000Z", OA_COMPAT_KHALA_MAX_CLIENT_BUILD_ID: "20260228T000000Z" },
  ]) {
    const { code, problem } = run(["config", "--check"], { settings });
    assert.equal(code, 2);
    assert.match(problem, new RegExp(`^khala: ${Object.keys(settings)[0]} is above OA_COMPAT_KHALA_MAX_`));
  }
});

test("config --check, the server and the doctor report an unusable key file", (t) => {
  const place = folder(t);
  const junk = join(place, "junk.json");
  writeFileSync(junk, "{}");
  for (const [file, words] of [[join(place, "none.json"), /No such file/], [junk, /junk\.json: /]]) {
    const settings = { RUNTIME_SYNC_JWKS_FILE: file, RUNTIME_SYNC_TOKEN_ISSUER: "issuer" };
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
