// Entitlements from one table: every kind of topic, principal and grant over every dialect. Each
// entity's name contains its owner, so that an answer shows whose entities it contains.
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { test } from "node:test";
import { operate } from "../../lib/operator.mjs";
import { pollPath, snapshotPath, socketPath, streamPath } from "../../lib/paths.mjs";
import { Socket } from "../../lib/socket.mjs";
import { Stream } from "../../lib/sse.mjs";
import { tokenFor } from "../../lib/token.mjs";
import { repeat } from "../../lib/wait.mjs";

// ---- the table ----

/** The answer by the relation of the principal to the topic, and by the grants of the token. Without
 * the needed scope every answer but forbidden_topic is missing_scope. A run or worker of another is
 * pending like one that does not exist, instead of owner_mismatch. */
const ANSWERS = {
  //             no grants          its name           a pattern         another name
  own:         { none: "ok",              exact: "ok",              pattern: "ok",              elsewhere: "forbidden_topic" },
  foreign:     { none: "owner_mismatch",  exact: "all",             pattern: "owner_mismatch",  elsewhere: "forbidden_topic" },
  shared:      { none: "ok",              exact: "ok",              pattern: "ok",              elsewhere: "forbidden_topic" },
  application: { none: "forbidden_topic", exact: "ok",              pattern: "ok",              elsewhere: "forbidden_topic" },
  reserved:    { none: "forbidden_topic", exact: "forbidden_topic", pattern: "forbidden_topic", elsewhere: "forbidden_topic" },
  everything:  { none: "all",             exact: "all",             pattern: "all",             elsewhere: "forbidden_topic" },
};

const RUN = ["runtime.run_events"];
const WORKER = ["runtime.codex_worker_events", "runtime.worker_lifecycle_events"];
const NOTIFICATIONS = ["runtime.notifications"];
const AUDIT = ["runtime.audit"];
const SCOPES = [...RUN, ...WORKER, ...NOTIFICATIONS, ...AUDIT];

/** The owners, as the backend names them. */
const OWNERS = {
  alice: { owner_user_id: "alice" },
  bob: { owner_user_id: "bob", org_id: "acme" },
  guest: { owner_guest_scope: "guest" },
  org: { org_id: "acme" },
  nobody: {},
};

/** The principals, and the owners whose entities they may read. */
const PRINCIPALS = {
  alice: { request: { user_id: "alice" }, owns: ["alice"] },
  bob: { request: { user_id: "bob", org_id: "acme" }, owns: ["bob", "org"] },
  guest: { request: { guest_scope: "guest" }, owns: ["guest"] },
  impostor: { request: { guest_scope: "alice" }, owns: ["impostor"] }, // a guest named like a user
  org: { request: { org_id: "acme" }, owns: ["org"] },
  service: { request: {}, owns: [] },
  everything: { request: {}, owns: Object.keys(OWNERS), scopes: ["runtime.read_all"] },
};

const WORKER_OWNERS = ["alice", "bob", "guest"]; // a worker has a user or a guest

const TOPICS = [
  ...Object.keys(OWNERS).map((owner) => ({ topic: `run:run-${owner}:events`, owner, needs: RUN, marks: [`run-${owner}`] })),
  { topic: "run:unknown:events", owner: "unknown", needs: RUN, marks: [] },
  ...WORKER_OWNERS.map((owner) => ({ topic: `worker:worker-${owner}:lifecycle`, owner, needs: WORKER, marks: [`worker-${owner}`] })),
  { topic: "worker:unknown:lifecycle", owner: "unknown", needs: WORKER, marks: [] },
  { topic: "fleet:user:alice:workers", owner: "alice", needs: WORKER, marks: ["worker-alice"] },
  { topic: "fleet:user:bob:workers", owner: "bob", needs: WORKER, marks: ["worker-bob"] },
  { topic: "fleet:guest:guest:workers", owner: "guest", needs: WORKER, marks: ["worker-guest"] },
  { topic: "fleet:guest:alice:workers", owner: "impostor", needs: WORKER, marks: [] },
  { topic: "fleet:user:unknown:workers", owner: "unknown", needs: WORKER, marks: [] },
  { topic: "runtime.run_summaries", kind: "shared", needs: RUN, marks: Object.keys(OWNERS).map((owner) => `run-${owner}`), snapshot: true },
  { topic: "runtime.codex_worker_summaries", kind: "shared", needs: WORKER, marks: WORKER_OWNERS.map((owner) => `worker-${owner}`), snapshot: true },
  { topic: "runtime.codex_worker_events", kind: "shared", needs: WORKER, marks: WORKER_OWNERS.map((owner) => `worker-${owner}`) },
  { topic: "runtime.notifications", kind: "shared", needs: NOTIFICATIONS, marks: Object.keys(OWNERS).map((owner) => `note-${owner}`) },
  { topic: "room:1", kind: "application", needs: [], marks: Object.keys(OWNERS).map((owner) => `said-${owner}`) },
  { topic: "runtime.unheard_of", kind: "reserved", needs: [], marks: [] },
];
const ALL_MARKS = [...new Set(TOPICS.flatMap(({ marks }) => marks))].sort();
const LOG = { topic: "runtime.audit", kind: "shared", needs: AUDIT, marks: ALL_MARKS };

const PATTERNS = ["run:*:events", "worker:*:lifecycle", "fleet:user:*:workers", "fleet:guest:*:workers", "runtime.*", "room:*"];
const GRANTS = {
  none: {},
  topics: { topics: [...TOPICS, LOG].map(({ topic }) => topic) },
  streams: { streams: [] }, // known once the server has named them
  patterns: { topics: PATTERNS },
  elsewhere: { topics: ["room:2"] },
};
const GRANT_KIND = { none: "none", topics: "exact", streams: "exact", patterns: "pattern", elsewhere: "elsewhere" };

const isEntity = (topic) => /^(run:.*:events|worker:.*:lifecycle)$/.test(topic);

/** The expected answer: the readable entities, or the reason of the refusal. */
function expectation(principal, grant, scopes, { topic, kind, owner, needs, marks }) {
  const own = principal.owns;
  const relation = principal.scopes ? "everything" : kind ?? (own.includes(owner) ? "own" : "foreign");
  const answer = ANSWERS[relation][GRANT_KIND[grant]];
  if (answer === "forbidden_topic") return { refusal: answer };
  if (!principal.scopes && needs.length > 0 && !needs.some((scope) => scopes.includes(scope))) return { refusal: "missing_scope" };
  const pending = isEntity(topic) && (answer === "owner_mismatch" || owner === "unknown");
  if (pending) return { pending, marks: [] };
  if (answer !== "ok" && answer !== "all") return { refusal: answer };
  const readable = (mark) => answer === "all" || own.includes(mark.split("-")[1]) || (kind === "application" && mark.endsWith("-nobody"));
  return { marks: marks.filter(readable).sort() };
}

// ---- the world ----

const marksIn = (text) => [...new Set(text.match(/\b(run|worker|note|said)-(alice|bob|guest|org|nobody)\b/g) ?? [])].sort();

async function world(t) {
  const operator = await operate(t, {
    settings: { RUNTIME_KHALA_POLL_MIN_INTERVAL_MS: "0", KHALA_WS_MESSAGES_PER_SECOND: "100000", KHALA_LOG_LEVEL: "warn" },
  });
  for (const [name, owner] of Object.entries(OWNERS)) {
    await operator.did("runs", { run_id: `run-${name}`, ...owner }, 201);
    if (WORKER_OWNERS.includes(name)) await operator.did("workers", { worker_id: `worker-${name}`, ...owner }, 201);
    await operator.did("notifications", { payload: { mark: `note-${name}` }, ...owner });
    await operator.did("topics/room:1/events", { event_type: "said", payload: { mark: `said-${name}` }, ...owner });
  }
  const { plans } = JSON.parse((await operator.post("/v1/cursors/plan", [...TOPICS, LOG].map(({ topic }) => ({ topic, watermark: 0 })))).body);
  GRANTS.streams.streams = plans.map((plan) => plan.stream_id);
  return operator;
}

/** The tokens to test: all scopes with each grant, no scope, and each scope alone. */
function cases() {
  const list = [];
  for (const [who, principal] of Object.entries(PRINCIPALS)) {
    for (const grant of Object.keys(GRANTS)) list.push({ who, principal, grant, scopes: SCOPES });
    if (principal.scopes) continue;
    for (const grant of ["none", "topics"]) list.push({ who, principal, grant, scopes: [] });
    for (const scope of SCOPES) list.push({ who, principal, grant: "none", scopes: [scope] });
  }
  return list;
}

/** The expectation of a case for each topic, and a description of it. */
function each(one, topics) {
  return topics.map((topic) => ({
    ...topic,
    expected: expectation(one.principal, one.grant, one.scopes, topic),
    what: `${one.who} with ${one.grant} grants and ${one.scopes.length === SCOPES.length ? "all scopes" : one.scopes.join() || "no scope"} on ${topic.topic}`,
  }));
}

const bearer = (token) => ({ authorization: `Bearer ${token}` });

async function overHttp(operator, path, token, row) {
  const response = await operator.ask("GET", path, undefined, bearer(token));
  if (row.expected.refusal) {
    assert.deepEqual([response.status, JSON.parse(response.body).reason_code], [403, row.expected.refusal], row.what);
    return null;
  }
  assert.equal(response.status, 200, `${row.what}: ${response.body}`);
  return response.body;
}

const seen = (row, text) => assert.deepEqual(marksIn(text), row.expected.marks, row.what);

// ---- the dialects ----

const messagesPath = (topic) => pollPath(topic, "after_seq=0");

async function byPoll(operator, one, token) {
  for (const row of each(one, TOPICS)) {
    const body = await overHttp(operator, messagesPath(row.topic), token, row);
    if (body === null) continue;
    const { pending, messages } = JSON.parse(body);
    assert.equal(pending, row.expected.pending, row.what);
    seen(row, JSON.stringify(messages));
  }
}

async function bySnapshot(operator, one, token) {
  for (const row of each(one, TOPICS.filter(({ snapshot }) => snapshot))) {
    const body = await overHttp(operator, snapshotPath(row.topic), token, row);
    if (body !== null) seen(row, body);
  }
}

async function byList(operator, one, token) {
  const [row] = each(one, [LOG]);
  const pages = [];
  for (let query = ""; ;) {
    const body = await overHttp(operator, `/api/events?limit=3${query}`, token, row);
    if (body === null) return;
    pages.push(body);
    const page = JSON.parse(body);
    if (!page.has_more) break;
    query = `&after_cursor=${page.next_cursor}`;
  }
  seen(row, pages.join(""));
}

async function byExport(operator, one, token) {
  const [row] = each(one, [LOG]);
  const ndjson = await overHttp(operator, "/api/events/export", token, row);
  const csv = await overHttp(operator, "/api/events/export?format=csv", token, row);
  if (ndjson === null) return;
  seen(row, ndjson);
  seen(row, csv);
  const lines = ndjson.trim().split("\n").map((line) => JSON.parse(line));
  const { manifest } = lines.pop();
  assert.equal(manifest.count, lines.length);
  assert.equal(manifest.first_cursor, lines[0]?.cursor ?? null);
  assert.equal(manifest.last_cursor, lines.at(-1)?.cursor ?? null);
}

async function byPlan(operator, one, token) {
  const rows = each(one, TOPICS);
  const response = await operator.ask("POST", "/v1/cursors/plan", JSON.stringify(rows.map(({ topic }) => ({ topic, watermark: 0 }))), bearer(token));
  assert.equal(response.status, 200, response.body);
  const { plans } = JSON.parse(response.body);
  for (const [i, row] of rows.entries()) {
    const { decision, reason_codes, replay_events, replay_bytes, window } = plans[i];
    if (row.expected.refusal) {
      assert.deepEqual({ decision, reason_codes, replay_events, replay_bytes, window },
        { decision: "denied", reason_codes: [row.expected.refusal], replay_events: 0, replay_bytes: 0, window: null }, row.what);
      continue;
    }
    assert.equal(decision, "resume", row.what);
    assert.equal(window === null, row.expected.pending ?? window === null, row.what);
    const { messages } = JSON.parse(await overHttp(operator, messagesPath(row.topic), token, row));
    assert.equal(replay_events, messages.length, row.what);
  }
}

async function bySse(operator, one, token) {
  for (const row of each(one, TOPICS)) {
    await streamed(operator, streamPath(row.topic, `after_seq=0&token=${token}`), row);
  }
  const [row] = each(one, [LOG]);
  await streamed(operator, `/events?token=${token}`, row);
}

async function streamed(operator, path, row) {
  const stream = await Stream.open(operator, path);
  const text = () => JSON.stringify(stream.messages);
  if (row.expected.refusal) {
    assert.deepEqual(await stream.refused(), [403, row.expected.refusal], row.what);
    return;
  }
  assert.equal(stream.status, 200, row.what);
  await stream.until(() => row.expected.marks.every((mark) => marksIn(text()).includes(mark)), `what is ${row.what}`);
  if (row.expected.pending) await stream.until(() => stream.events.length > 0, `the notice of ${row.what}`);
  assert.deepEqual(stream.events.filter(({ type }) => type === "pending").map(({ data }) => data.topic), row.expected.pending ? [row.topic] : [], row.what);
  seen(row, text());
  stream.close();
}

async function byTopicSocket(operator, one, token) {
  for (const row of each(one, TOPICS)) {
    const path = socketPath(row.topic, `after_seq=0&token=${token}`);
    if (row.expected.refusal) {
      const error = await Socket.refused(operator, path);
      assert.deepEqual([error.status, JSON.parse(error.body).reason_code], [403, row.expected.refusal], row.what);
      continue;
    }
    const socket = await Socket.open(operator, path);
    const text = () => JSON.stringify(socket.of("message"));
    await socket.until(() => row.expected.marks.every((mark) => marksIn(text()).includes(mark)), `what is ${row.what}`);
    await socket.until(() => socket.messages.length > 0, `the hello of ${row.what}`);
    assert.deepEqual([socket.messages[0].type, socket.messages[0].pending], ["hello", row.expected.pending], row.what);
    seen(row, text());
    socket.close();
  }
}

async function byAuditSocket(operator, one, token) {
  const [row] = each(one, [LOG]);
  const socket = await Socket.audit(operator, token);
  if (row.expected.refusal) {
    await socket.until(() => socket.closed, "the close");
    const [error] = socket.of("error");
    assert.deepEqual([error.code, error.details.reason], ["AUTH_FAILED", row.expected.refusal], row.what);
    assert.equal(socket.of("event").length, 0);
    return;
  }
  await socket.until(() => socket.of("replay_complete").length === 1, "the replay");
  seen(row, JSON.stringify(socket.messages));
  socket.close();
}

async function byPhoenix(operator, one, token) {
  const socket = await Socket.open(operator, `/socket/websocket?vsn=2.0.0&token=${token}`);
  const ask = async (event, payload) => {
    const ref = randomUUID();
    socket.say(["1", ref, "sync:v1", event, payload]);
    const reply = () => socket.messages.find((message) => message[1] === ref && message[3] === "phx_reply");
    await socket.until(reply, `the reply to ${event}`);
    return reply()[4];
  };
  const joined = await ask("phx_join", {});
  assert.equal(joined.status, "ok");
  const rows = each(one, TOPICS);
  checkWelcome(one, rows, joined.response);
  for (const row of rows) {
    const { status, response } = await ask("sync:subscribe", { topics: [row.topic], resume_after: { [row.topic]: 0 } });
    if (row.expected.refusal) {
      assert.deepEqual([status, response.code, response.reason_code, response.forbidden_topics],
        ["error", "forbidden_topic", row.expected.refusal, [row.topic]], row.what);
      continue;
    }
    assert.equal(status, "ok", `${row.what}: ${JSON.stringify(response)}`);
    assert.deepEqual([response.pending, response.windows[0].pending], [row.expected.pending, row.expected.pending], row.what);
    const batches = () => socket.messages.filter((message) => message[3] === "sync:update_batch" && message[4].topic === row.topic);
    await socket.until(() => batches().some((batch) => batch[4].replay_complete), "the replay");
    seen(row, JSON.stringify(batches().map((batch) => batch[4].updates)));
    assert.deepEqual(batches().map((batch) => batch[4].after), [0, ...batches().map((batch) => batch[4].through)].slice(0, -1));
  }
  socket.close();
}

/** Checks that a join lists only open topics, and only watermarks of those. */
function checkWelcome(one, rows, { allowed_topics, current_watermarks }) {
  // A stream that no topic has is named as the stream.
  const isOpen = (topic) => topic === LOG.topic || topic.startsWith("runtime.topic.") || rows.some((row) => row.topic === topic && !row.expected.refusal);
  if (one.principal.scopes && one.grant === "none") assert.deepEqual(allowed_topics, ["*"]);
  else if (one.grant === "elsewhere") assert.deepEqual(allowed_topics, ["room:2"]);
  else if (one.grant !== "patterns") assert.ok(allowed_topics.every(isOpen), `${one.who} ${one.grant}: ${allowed_topics}`);
  for (const { topic, watermark } of current_watermarks) {
    assert.ok(isOpen(topic) && watermark > 0, `${one.who} ${one.grant}: ${topic}`);
    assert.ok(!rows.some((row) => row.topic === topic && row.expected.pending), `${one.who} ${one.grant}: ${topic}`);
  }
  if (one.grant === "none" && !one.principal.scopes) {
    const shared = rows.filter((row) => row.kind === "shared" && !row.expected.refusal).map((row) => row.topic);
    assert.deepEqual(shared.filter((topic) => !allowed_topics.includes(topic)), []);
  }
}

const DIALECTS = {
  "a subscribe of the main dialect": byPhoenix,
  "a snapshot": bySnapshot,
  "a poll": byPoll,
  "an event stream": bySse,
  "a topic's WebSocket": byTopicSocket,
  "a list": byList,
  "an export": byExport,
  "a plan": byPlan,
  "the audit socket": byAuditSocket,
};

test("every kind of topic, principal and grant gets the answer of the table", async (t) => {
  const operator = await world(t);
  const all = cases();
  for (const [name, ask] of Object.entries(DIALECTS)) {
    await t.test(name, async () => {
      const left = all.map((one) => ({ one, token: tokenFor(operator, { ...one.principal.request, scopes: one.principal.scopes ?? one.scopes, ...GRANTS[one.grant] }) }));
      const work = async () => {
        for (let next = left.pop(); next; next = left.pop()) await ask(operator, next.one, next.token);
      };
      await Promise.all(Array.from({ length: 6 }, work));
    });
  }
});

test("the operator key reads everything over HTTP and opens no socket", async (t) => {
  const operator = await world(t);
  for (const { topic, marks, kind } of TOPICS) {
    const response = await operator.get(messagesPath(topic));
    assert.equal(response.status, 200, topic);
    assert.deepEqual(marksIn(response.body), [...marks].sort(), `${topic} ${kind}`);
    const refusal = await Socket.refused(operator, socketPath(topic), { headers: bearer(operator.key) });
    assert.deepEqual([refusal.status, JSON.parse(refusal.body).reason_code], [401, "invalid_token"]);
  }
  assert.deepEqual(marksIn((await operator.get("/api/events?limit=200")).body), ALL_MARKS);
  assert.deepEqual(marksIn((await operator.get("/api/events/export")).body), ALL_MARKS);
  const socket = await Socket.audit(operator, operator.key);
  await socket.until(() => socket.closed, "the close");
  assert.equal(socket.closed.code, 4001);
});

/** What a client can see of a topic by each transport; position undefined: a bootstrap. */
const SIGHTS = {
  async http(operator, token, { topic, stream_id, query, position }) {
    const get = async (path, method = "GET") => {
      const { status, headers, body } = await operator.ask(method, path, undefined, bearer(token));
      return [status, Object.keys(headers), headers["content-length"], body];
    };
    const cursors = [{ topic, watermark: position ?? 0 }, { stream_id, after_seq: position ?? 0 }];
    const plan = await operator.ask("POST", "/v1/cursors/plan", JSON.stringify(cursors), bearer(token));
    return [plan.status, plan.body, await get(pollPath(topic, query)), await get(pollPath(stream_id, `${query}&wait_ms=1`)),
      await get(`/v1/topics/${topic}`), await get(`/v1/topics/${stream_id}`), await get(snapshotPath(topic)),
      await get(streamPath(topic, query), "HEAD"), await get(`/v1/runs/${topic.split(":")[1]}`),
      await get(`/v1/runs/${topic.split(":")[1]}/tree`)];
  },
  async topicSocket(operator, token, { topic, query }) {
    const socket = await Socket.open(operator, socketPath(topic, `${query}&token=${token}`)).catch((error) => error);
    if (socket.status) return [socket.status, socket.body];
    await socket.until((one) => one.pings > 1, "two heartbeats");
    socket.close();
    return socket.messages;
  },
  async phoenix(operator, token, { topic, position }) {
    const socket = await Socket.open(operator, `/socket/websocket?vsn=2.0.0&token=${token}`);
    const resume = position === undefined ? {} : { resume_after: { [topic]: position } };
    socket.say(["1", "1", "sync:v1", "phx_join", {}]);
    socket.say(["1", "2", "sync:v1", "sync:subscribe", { topics: [topic], ...resume }]);
    socket.say(["1", "3", "sync:v1", "sync:heartbeat", {}]);
    await socket.until(() => socket.messages.filter((one) => one[3] === "sync:heartbeat").length > 1, "two heartbeats");
    socket.close();
    // Without the reply to the join, which is about other topics. Heartbeats repeat, and a reply may overtake a batch.
    const seen = socket.messages.filter(([, ref]) => ref !== "1");
    return [...new Set(seen.map(([, ref, , event, payload]) => JSON.stringify([ref, event, payload])))].sort();
  },
  async eventStream(operator, token, { topic, query }) {
    const stream = await Stream.open(operator, streamPath(topic, `${query}&token=${token}`));
    await stream.until((one) => one.ended || one.comments > 1, "two heartbeats");
    stream.close();
    return [stream.status, stream.refusal, stream.events];
  },
};

/** All that a client can see of a topic, without its names and the ids of the requests. */
async function sightOf(operator, token, topic, position) {
  const stream_id = `runtime.${topic.startsWith("room") ? "topic." : ""}${topic.replaceAll(":", ".")}`;
  const query = position === undefined ? "" : `after_seq=${position}`;
  const seen = [];
  for (const look of Object.values(SIGHTS)) seen.push(await look(operator, token, { topic, stream_id, query, position }));
  let text = JSON.stringify(seen).replaceAll(stream_id, "S");
  for (const name of [topic, encodeURIComponent(topic)]) text = text.replaceAll(name, "T");
  return text.replace(/(request_id|subscription_id)\\*":\\*"[^"\\]+/g, "$1")
    .replace(/recommended_reconnect_backoff_ms\\*":\d+/g, "backoff");
}

test("a topic of another tenant is answered like a topic that does not exist", async (t) => {
  const operator = await operate(t, { settings: { RUNTIME_KHALA_POLL_MIN_INTERVAL_MS: "0", KHALA_HEARTBEAT_MS: "200" } });
  // Two principals, since the polls of one are counted together.
  const tokens = ["alice", "alicf"].map((user_id) => tokenFor(operator, { user_id, scopes: SCOPES }));
  const twins = [["run:run-bob:events", "run:run-xxx:events"], ["worker:worker-bob:lifecycle", "worker:worker-xxx:lifecycle"],
    ["fleet:user:bob:workers", "fleet:user:xxx:workers"], ["room:1", "room:9"]];
  await operator.did("runs", { run_id: "run-bob", owner_user_id: "bob" }, 201);
  await operator.did("workers", { worker_id: "worker-bob", owner_user_id: "bob" }, 201);
  await operator.did("topics/room:1/events", { event_type: "said" });
  // The owner follows them, and they go on: neither the hub's memory nor its news may show.
  const bob = tokenFor(operator, { user_id: "bob", scopes: SCOPES });
  for (const [topic] of twins.slice(0, 2)) {
    const stream = await Stream.open(operator, streamPath(topic, `token=${bob}`));
    await stream.until((one) => one.messages.length > 0, "the first event");
  }
  const { epoch } = await operator.read(pollPath(twins[0][0]));
  let n = 0;
  const stop = repeat(t, 20, () => void operator.batch([{ run_id: "run-bob", event_type: "run.log", payload: { n: n++ } },
    { worker_id: "worker-bob", event_type: "worker.log", payload: { n } }]).catch(() => {}));
  for (const [index, pair] of twins.entries())
    for (const position of [undefined, 0, 1, 12, `1@${epoch}`, "1@another"]) {
      const sights = await Promise.all(pair.map((topic, i) => sightOf(operator, tokens[i], topic, position)));
      assert.equal(sights[0], sights[1], `${pair.join()} after ${position}`);
      assert.match(sights[0], index < 2 ? /pending/ : /"decision\\*":\\*"denied/);
      if (index < 2 && position === "1@another") assert.match(sights[0], /epoch_mismatch/);
    }
  stop();
});
