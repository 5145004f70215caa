// Entitlements of event streams: tokens, scopes, grants, owners and origins.
import assert from "node:assert/strict";
import { test } from "node:test";
import { operate } from "../../lib/operator.mjs";
import { AUDIT_SOCKET, pollPath, socketPath, streamPath } from "../../lib/paths.mjs";
import { Client } from "../../lib/phoenix.mjs";
import { events } from "../../lib/samples.mjs";
import { Socket } from "../../lib/socket.mjs";
import { Stream } from "../../lib/sse.mjs";
import { alter, sql } from "../../lib/store.mjs";

const RUNS = ["runtime.run_events"];

function follow(operator, topic, token, headers = {}) {
  return Stream.open(operator, streamPath(topic, `after_seq=0&token=${token}`), headers);
}

/** Starts a server with runs of two users, of an organisation and without an owner. */
async function tenants(t, settings) {
  const operator = await operate(t, { settings });
  await operator.did("runs", { run_id: "a", owner_user_id: "alice" }, 201);
  await operator.did("runs", { run_id: "b", owner_user_id: "bob", org_id: "acme" }, 201);
  await operator.did("runs", { run_id: "o", org_id: "acme" }, 201);
  await operator.did("runs", { run_id: "n" }, 201);
  await operator.did("topics/room:1/events", { event_type: "said", payload: {} });
  return operator;
}

async function refusal(operator, topic, token, headers) {
  return (await follow(operator, topic, token, headers)).refused();
}

test("each topic is open exactly to the principals of the table", async (t) => {
  const operator = await tenants(t);
  const alice = { user_id: "alice", scopes: RUNS };
  const rows = [
    [alice, "run:a:events", 200],
    [alice, "run:b:events", "pending"],
    [alice, "run:none:events", "pending"],
    [alice, "run:n:events", "pending"],
    [alice, "run:o:events", "pending"],
    [{ ...alice, org_id: "acme" }, "run:o:events", 200],
    [{ ...alice, org_id: "acme" }, "run:b:events", "pending"],
    [{ user_id: "alice" }, "run:a:events", "missing_scope"],
    [{ user_id: "alice", scopes: ["runtime.audit"] }, "run:a:events", "missing_scope"],
    [{ guest_scope: "alice", scopes: RUNS }, "run:a:events", "pending"],
    [{ ...alice, topics: ["run:b:events"] }, "run:b:events", 200],
    [{ ...alice, topics: ["run:b:events"] }, "run:a:events", "forbidden_topic"],
    [{ ...alice, topics: ["run:*:events"] }, "run:a:events", 200],
    [{ ...alice, topics: ["run:*:events"] }, "run:b:events", "pending"],
    [{ ...alice, streams: ["runtime.run.b.events"] }, "run:b:events", 200],
    [{ scopes: ["runtime.read_all"] }, "run:n:events", 200],
    [alice, "room:1", "forbidden_topic"],
    [{ topics: ["room:1"] }, "room:1", 200],
    [{ topics: ["room:*"] }, "room:1", 200],
    [alice, "runtime.run_summaries", 200],
    [alice, "runtime.notifications", "missing_scope"],
    [alice, "runtime.other", "forbidden_topic"],
    [alice, "fleet:user:alice:workers", "missing_scope"],
    [{ user_id: "alice", scopes: ["runtime.codex_worker_events"] }, "fleet:user:alice:workers", 200],
    [{ user_id: "alice", scopes: ["runtime.codex_worker_events"] }, "fleet:user:bob:workers", "owner_mismatch"],
  ];
  for (const [request, topic, expected] of rows) {
    const token = await operator.token(request);
    const what = `${JSON.stringify(request)} on ${topic}`;
    if (expected === 200 || expected === "pending") {
      const stream = await follow(operator, topic, token);
      assert.equal(stream.status, 200, what);
      if (expected === "pending") await stream.until((one) => one.events.length > 0, `the first event of ${what}`);
      assert.equal(stream.events[0]?.type === "pending", expected === "pending", what);
      stream.close();
    } else {
      assert.deepEqual(await refusal(operator, topic, token), [403, expected], what);
    }
  }
  await operator.server.saw("log", /client\.denied code=owner_mismatch .*topic=run:b:events/);
});

/** The waiting subscriptions of one token, on every transport; each tells what it has received. */
async function waitFor(operator, topic, token) {
  const client = await Client.join(operator, { params: { token } });
  const reply = await client.subscribe({ topics: [topic] });
  assert.deepEqual([reply.pending, reply.windows[0].pending, reply.windows[0].head_seq], [true, true, 0]);
  const socket = await Socket.open(operator, socketPath(topic, `token=${token}`));
  const stream = await Stream.open(operator, streamPath(topic, `token=${token}`));
  await socket.until((one) => one.messages.length > 0, "the hello");
  await stream.until((one) => one.events.length > 1, "the notices");
  assert.equal(socket.messages[0].pending, true);
  assert.deepEqual(stream.events.map((one) => [one.type, one.data.pending, one.data.truncated]),
    [["pending", true, undefined], ["bootstrap", undefined, false]]);
  const poll = operator.ask("GET", pollPath(topic, "wait_ms=60000"), undefined, { authorization: `Bearer ${token}` });
  return {
    client, socket, stream, poll,
    seen: () => [client.run(topic).sequences, socket.of("message").map((one) => one.seq),
      stream.messages.map((one) => one.data.seq)],
  };
}

test("a subscription waits for a run or worker of its owner, and begins when it exists", async (t) => {
  const operator = await tenants(t);
  const WORKERS = ["runtime.worker_lifecycle_events"];
  const RUN = { topic: "run:soon:events", path: "runs", body: { run_id: "soon" }, more: { run_id: "soon", event_type: "x" } };
  const WORKER = { topic: "worker:soon:lifecycle", path: "workers", body: { worker_id: "soon" }, more: { worker_id: "soon", event_type: "worker.log" } };
  for (const { topic, path, body, more } of [RUN, WORKER]) {
    const bob = await operator.token({ user_id: "bob", scopes: [...RUNS, ...WORKERS] });
    const mine = await waitFor(operator, topic, await operator.token({ user_id: "alice", scopes: [...RUNS, ...WORKERS] }));
    const granted = await waitFor(operator, topic, await operator.token({ user_id: "carol", scopes: [...RUNS, ...WORKERS], topics: [topic] }));
    const others = await waitFor(operator, topic, bob);
    await operator.did(path, { ...body, owner_user_id: "alice" }, 201);
    for (const one of [mine, granted]) {
      const { messages, pending } = JSON.parse((await one.poll).body);
      assert.deepEqual([messages.map((message) => message.seq), pending], [[1], undefined]);
    }
    await operator.batch([more, more]);
    for (const one of [mine, granted]) {
      await one.client.reached(topic, 3);
      await one.socket.until(() => one.socket.of("message").length === 3, "three messages");
      await one.stream.until(() => one.stream.messages.length === 3, "three events");
      assert.deepEqual(one.seen(), [[1, 2, 3], [1, 2, 3], [1, 2, 3]]);
    }
    // The other one still waits; it hears of a topic of its own on the same socket.
    await others.client.subscribe({ topics: ["run:b:events"] });
    await others.client.reached("run:b:events", 1);
    assert.deepEqual(others.seen(), [[], [], []]);
    assert.deepEqual((await others.client.ask("sync:heartbeat", {})).response.watermarks.find((one) => one.topic === topic).watermark, 0);
    const again = await others.client.subscribe({ topics: [topic] });
    assert.deepEqual([again.pending, again.windows[0].head_seq], [true, 0]);
    const poll = await operator.ask("GET", pollPath(topic), undefined, { authorization: `Bearer ${bob}` });
    assert.deepEqual([poll.status, JSON.parse(poll.body).pending, JSON.parse(poll.body).messages], [200, true, []]);
    for (const one of [mine, granted, others]) one.client.close();
  }
});

test("a position in a run that appears later is of another history", async (t) => {
  const operator = await tenants(t);
  const token = await operator.token({ user_id: "alice", scopes: RUNS });
  const client = await Client.join(operator, { params: { token } });
  const { windows, epoch } = await client.subscribe({ topics: ["run:late:events"], resume_after: { "run:late:events": 3 } });
  assert.deepEqual([windows[0].pending, windows[0].resume_after], [true, 3]);
  const other = await client.refused("sync:subscribe", { topics: ["run:b:events"], resume_after: { "run:b:events": "1@another" } });
  assert.deepEqual([other.code, other.reason_codes], ["stale_cursor", ["epoch_mismatch"]], "as of a run that does not exist");
  assert.equal((await client.subscribe({ topics: ["run:b:events"], resume_after: { "run:b:events": `1@${epoch}` } })).pending, true);
  await operator.did("runs", { run_id: "late", owner_user_id: "alice" }, 201);
  await client.until(() => client.of("sync:error").length > 0, "the stale answer");
  assert.deepEqual(client.of("sync:error")[0].reason_codes, ["cursor_ahead_of_head"]);
  client.close();
});

test("subscriptions that wait count for the limit, outlive a fresh token, and can be ended", async (t) => {
  const operator = await tenants(t, { KHALA_SUBSCRIPTIONS_MAX: "4" });
  const claims = { user_id: "alice", scopes: RUNS };
  const client = await Client.join(operator, { params: { token: await operator.token(claims) } });
  const topics = ["run:b:events", "run:w1:events", "run:w2:events"];
  assert.deepEqual((await client.subscribe({ topics: [...topics, "run:a:events"] })).windows.map((one) => one.pending), [true, true, true, undefined]);
  assert.equal((await client.refused("sync:subscribe", { topics: ["run:w3:events"] })).code, "limit_reached");
  assert.equal((await client.ask("sync:refresh", { token: await operator.token(claims) })).status, "ok");
  await client.ask("sync:unsubscribe", { topics: ["run:w2:events"] });
  for (const run_id of ["w1", "w2"]) await operator.did("runs", { run_id, owner_user_id: "alice" }, 201);
  await client.reached("run:w1:events", 1);
  const { topics: left } = (await client.ask("sync:unsubscribe", { topics: ["run:a:events"] })).response;
  assert.deepEqual([left.sort(), client.run("run:w2:events").sequences], [["run:b:events", "run:w1:events"], []]);
  client.close();
});

test("a refusal says the same on every transport, and names the scope that is missing", async (t) => {
  const operator = await tenants(t);
  const WORKERS = "runtime.codex_worker_events";
  const rows = [
    [{ user_id: "alice" }, "run:a:events", "missing_scope", "The token needs the scope runtime.run_events."],
    [{ user_id: "alice", scopes: RUNS }, "worker:w:lifecycle", "missing_scope", `The token needs the scope ${WORKERS} or runtime.worker_lifecycle_events.`],
    [{ user_id: "alice", scopes: RUNS }, "runtime.notifications", "missing_scope", "The token needs the scope runtime.notifications."],
    [{ user_id: "alice", scopes: RUNS }, "runtime.audit", "missing_scope", "The token needs the scope runtime.audit."],
    [{ user_id: "alice", scopes: [WORKERS] }, "fleet:user:bob:workers", "owner_mismatch", "The entity or topic belongs to another owner."],
    [{ user_id: "alice", scopes: RUNS }, "room:1", "forbidden_topic", "The token does not grant this topic."],
  ];
  for (const [request, topic, code, message] of rows) {
    const token = await operator.token(request);
    const poll = await operator.ask("GET", pollPath(topic), undefined, { authorization: `Bearer ${token}` });
    const body = JSON.parse(poll.body);
    assert.deepEqual([poll.status, body.error, body.reason_code, body.message], [403, code, code, message]);
    const socket = await Socket.refused(operator, socketPath(topic, `token=${token}`));
    assert.deepEqual([socket.status, JSON.parse(socket.body).message], [403, message]);
    const client = await Client.join(operator, { params: { token } });
    const error = await client.refused("sync:subscribe", { topics: [topic] });
    assert.deepEqual([error.code, error.reason_code, error.message], ["forbidden_topic", code, message]);
    client.close();
  }
  const reader = await operator.token({ user_id: "alice", scopes: RUNS });
  const asked = (method, path) => operator.ask(method, path, method === "POST" ? "{}" : undefined, { authorization: `Bearer ${reader}` });
  assert.equal(JSON.parse((await asked("POST", "/v1/runs")).body).message, "The token needs the scope runtime.append.");
  const REPLAY = "The token needs the scope runtime.replay_all.";
  assert.equal(JSON.parse((await asked("GET", pollPath("run:a:events", "replay=all"))).body).message, REPLAY);
  const client = await Client.join(operator, { params: { token: reader } });
  assert.equal((await client.refused("sync:subscribe", { topics: ["run:a:events"], replay: "all" })).message, REPLAY);
  client.close();
});

test("a shared topic shows each tenant its own events, and an application topic shows those without an owner", async (t) => {
  const operator = await tenants(t);
  const own = async (request, topic, count) => {
    const stream = await follow(operator, topic, await operator.token(request));
    await stream.until((one) => one.messages.length === count, `${count} messages`);
    return stream.messages.map((one) => one.data.payload.run_id ?? one.data.kind);
  };
  assert.deepEqual(await own({ user_id: "alice", scopes: RUNS }, "runtime.run_summaries", 1), ["a"]);
  assert.deepEqual(await own({ user_id: "bob", org_id: "acme", scopes: RUNS }, "runtime.run_summaries", 2), ["b", "o"]);
  assert.deepEqual(await own({ scopes: ["runtime.read_all"] }, "runtime.run_summaries", 4), ["a", "b", "o", "n"]);
  assert.deepEqual(await own({ topics: ["room:1"] }, "room:1", 1), ["said"]);
});

test("an invalid token is refused with its reason, and so is the operator key as a token", async (t) => {
  const operator = await tenants(t);
  assert.deepEqual(await refusal(operator, "run:a:events", operator.key), [401, "invalid_token"]);
  assert.deepEqual(await refusal(operator, "run:a:events", ""), [401, "missing_authorization"]);
  const token = await operator.token();
  assert.deepEqual(await refusal(operator, "run:a:events", `${token.slice(0, -4)}AAAA`), [401, "invalid_token"]);
  const asToken = await operator.ask("GET", `/internal/v1/khala/topics/run:a:events/messages?token=${operator.key}`);
  assert.equal(asToken.status, 401, "who brings a token is who the token says");
});

test("a page of another origin is refused", async (t) => {
  const operator = await tenants(t, { RUNTIME_KHALA_ALLOWED_ORIGINS: "https://app.example" });
  const token = await operator.token();
  const stream = await follow(operator, "run:a:events", token, { origin: "https://app.example" });
  assert.equal(stream.status, 200);
  stream.close();
  assert.deepEqual(await refusal(operator, "run:a:events", token, { origin: "https://evil.example" }), [403, "origin_not_allowed"]);
});

/** The CORS fields of an answer, as [status, allowed origin, vary]. */
async function crossOrigin(operator, method, path, headers) {
  const answer = await operator.ask(method, path, null, { authorization: "", ...headers });
  assert.equal(answer.headers["access-control-allow-credentials"], undefined);
  return [answer.status, answer.headers["access-control-allow-origin"], answer.headers.vary];
}

test("answers name the page's origin if it is allowed, never a wildcard", async (t) => {
  for (const list of ["https://*.example", "*"]) {
    const operator = await tenants(t, { RUNTIME_KHALA_ALLOWED_ORIGINS: list });
    const page = { origin: "https://app.example" };
    const asks = { ...page, "access-control-request-method": "GET", "access-control-request-headers": "authorization" };
    const poll = "/internal/v1/khala/topics/run:a:events/messages";
    const allowed = "https://app.example";
    assert.deepEqual(await crossOrigin(operator, "GET", poll, page), [401, allowed, "Origin"]);
    assert.deepEqual(await crossOrigin(operator, "GET", "/v1/nothing", page), [404, allowed, "Origin"]);
    assert.deepEqual(await crossOrigin(operator, "GET", poll, {}), [401, undefined, "Origin"]);
    assert.deepEqual(await crossOrigin(operator, "OPTIONS", poll, asks), [204, allowed, "Origin"]);
    assert.deepEqual(await crossOrigin(operator, "OPTIONS", "/v1/nothing", asks), [404, allowed, "Origin"]);
    assert.deepEqual(await crossOrigin(operator, "OPTIONS", poll, page), [405, allowed, "Origin"]);
    assert.deepEqual(await crossOrigin(operator, "OPTIONS", "/internal/v1/khala/why", asks), [404, allowed, "Origin"]);
    assert.deepEqual(await crossOrigin(operator, "GET", "/internal/v1/khala/why", page), [401, undefined, undefined]);
    const stranger = list === "*" ? { ...asks, origin: "https://app.example/path" } : { ...asks, origin: "https://evil.test" };
    assert.deepEqual(await crossOrigin(operator, "OPTIONS", poll, stranger), [403, undefined, "Origin"]);
    const { headers } = await operator.ask("OPTIONS", poll, null, asks);
    assert.equal(headers["access-control-allow-methods"], "GET, HEAD");
    assert.match(headers["access-control-allow-headers"], /Authorization.*Last-Event-ID/);
  }
});

test("a session revoked in the store stays revoked after a restart", async (t) => {
  const operator = await tenants(t);
  const token = await operator.token({ session_id: "stolen", scopes: ["runtime.read_all"] });
  await operator.server.stop();
  alter(operator.data, "INSERT INTO sync_revocations VALUES (0, 'stolen', 'test', 0, 9000000000000000)");
  assert.equal(sql(operator.data, "SELECT count(*) FROM sync_revocations"), "1");
  const again = await operate(t, { data: operator.data });
  assert.deepEqual(await refusal(again, "run:a:events", token), [401, "token_revoked"]);
});

test("a list skips the events of other tenants with cursors that reveal none of them", async (t) => {
  const operator = await tenants(t);
  await operator.batch(events(25_000, { run_id: "b" }));
  await operator.batch(events(2));
  const token = await operator.token({ user_id: "alice", scopes: ["runtime.audit"] });
  const ids = [];
  const cursors = [];
  for (let query = ""; ;) {
    const response = await operator.ask("GET", `/api/events?limit=2${query}`, undefined, { authorization: `Bearer ${token}` });
    assert.equal(response.status, 200, response.body);
    const page = JSON.parse(response.body);
    ids.push(...page.items.map((one) => `${one.entity_id}:${one.seq}`));
    cursors.push(page.next_cursor);
    if (!page.has_more) break;
    query = `&after_cursor=${page.next_cursor}`;
  }
  assert.deepEqual(ids, ["a:1", "a:2", "a:3"]);
  assert.ok(cursors.length >= 2, "in bounded pages");
  const foreign = (await operator.get("/api/events/export")).body.trim().split("\n").map((line) => JSON.parse(line))
    .filter((event) => event.entity_id !== "a").map((event) => event.cursor);
  assert.deepEqual(cursors.filter((cursor) => foreign.includes(cursor)), []);
});

test("a session that polls too early delays only itself", async (t) => {
  const operator = await tenants(t, { RUNTIME_KHALA_POLL_MIN_INTERVAL_MS: "60000" });
  const topic = "/internal/v1/khala/topics/runtime.run_summaries/messages?after_seq=0";
  const ask = async (request) => {
    const token = await operator.token({ scopes: RUNS, ...request });
    return (await operator.ask("GET", topic, undefined, { authorization: `Bearer ${token}` })).status;
  };
  const session_id = "tab";
  for (const request of [{ user_id: "alice", session_id }, { user_id: "bob", session_id }, { guest_scope: "alice", session_id },
    { org_id: "acme", session_id }, { session_id: "a" }, { session_id: "b" }, { user_id: "alice" }, { user_id: "alice" }]) {
    assert.equal(await ask(request), 200, JSON.stringify(request));
  }
  assert.equal(await ask({ user_id: "alice", session_id }), 429);
  assert.equal(await ask({ user_id: "alice", org_id: "acme", session_id }), 429, "the same user");
  assert.equal((await operator.get(topic)).status, 200);
  assert.equal((await operator.get(topic)).status, 429);
});

test("the audit socket refuses a page of another origin before the handshake", async (t) => {
  const operator = await tenants(t, { RUNTIME_KHALA_ALLOWED_ORIGINS: "https://app.example" });
  await Socket.open(operator, AUDIT_SOCKET, { origin: "https://app.example" });
  const refusal = await Socket.refused(operator, AUDIT_SOCKET, { origin: "https://evil.example" });
  assert.deepEqual([refusal.status, JSON.parse(refusal.body).reason_code], [403, "origin_not_allowed"]);
});

test("a join reply lists the open topics and their watermarks", async (t) => {
  const operator = await tenants(t);
  const welcome = async (request) => {
    const socket = await Socket.open(operator, `/socket/websocket?vsn=2.0.0&token=${await operator.token(request)}`);
    socket.say(["1", "1", "sync:v1", "phx_join", {}]);
    await socket.until(() => socket.messages.length > 0, "the reply");
    const { allowed_topics, current_watermarks } = socket.messages[0][4].response;
    return [allowed_topics, Object.fromEntries(current_watermarks.filter(({ watermark }) => watermark > 0).map(({ topic, watermark }) => [topic, watermark]))];
  };
  const summaries = { "runtime.run_summaries": 4 };
  assert.deepEqual(await welcome({ user_id: "alice", scopes: RUNS }), [["runtime.run_summaries"], summaries]);
  assert.deepEqual(await welcome({ user_id: "alice", scopes: ["runtime.worker_lifecycle_events", "runtime.audit"] }),
    [["runtime.codex_worker_summaries", "runtime.codex_worker_events", "runtime.audit", "fleet:user:alice:workers"], { "runtime.audit": 2 }]);
  assert.deepEqual(await welcome({ user_id: "alice" }), [[], {}]);
  assert.deepEqual(await welcome({ scopes: ["runtime.read_all"] }), [["*"], { ...summaries, "runtime.audit": 4 }]);
  assert.deepEqual(await welcome({ user_id: "alice", scopes: RUNS, topics: ["room:1", "room:2", "run:*:events", "worker:w:lifecycle"], streams: ["runtime.run.b.events"] }),
    [["room:1", "room:2", "run:*:events", "run:b:events"], { "room:1": 1, "run:b:events": 1 }]);
});

test("a stream covers hidden frames with the next message, or advances its id with the heartbeat", async (t) => {
  const operator = await tenants(t, { KHALA_HEARTBEAT_MS: "100" });
  const token = await operator.token({ user_id: "bob", scopes: RUNS });
  // The topic has summaries of a, b, o and n; bob may see the second.
  const stream = await follow(operator, "runtime.run_summaries", token);
  await stream.until((one) => one.lastSeq === 4, "the whole range");
  assert.deepEqual(stream.events.map(({ type, data }) => [type, data.after, data.sequence ?? data.through]),
    [["message", 0, 2], ["progress", 2, 4]]);
  await operator.did("runs", { run_id: "a2", owner_user_id: "alice" }, 201);
  await stream.until((one) => one.lastSeq === 5, "what is live and hidden");
  assert.deepEqual(stream.events.at(-1).data, { topic: "runtime.run_summaries", after: 4, through: 5 });
});
