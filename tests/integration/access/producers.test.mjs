// Producer tokens, which append for their own owner and read nothing, and the mint key.
import assert from "node:assert/strict";
import { test } from "../../lib/cases.mjs";
import { assertError, folder, run } from "../../lib/khala.mjs";
import { operate, refused, UNHURRIED } from "../../lib/operator.mjs";
import { pollPath, snapshotPath, streamPath } from "../../lib/paths.mjs";
import { Client } from "../../lib/phoenix.mjs";
import { alter, sql } from "../../lib/store.mjs";
import { until, within } from "../../lib/wait.mjs";

const MINT_KEY = "a-mint-key-of-enough-characters";
const NDJSON = "application/x-ndjson";
const UUID = "01a1de6e-baa9-744d-bf0e-772106485e79";

/** Requests with a token or key of its own. */
function caller(operator, token) {
  const ask = (method, path, body, type = "application/json") => operator.ask(method, path,
    body === undefined || typeof body === "string" ? body : JSON.stringify(body), { authorization: `Bearer ${token}`, "content-type": type });
  return {
    token,
    get: (path) => ask("GET", path),
    post: (path, body) => ask("POST", path, body),
    async did(path, body, status = 200) {
      const response = await ask("POST", path, body);
      assert.equal(response.status, status, response.body);
      return JSON.parse(response.body);
    },
    async batch(path, items) {
      const response = await ask("POST", path, items.map((item) => `${JSON.stringify(item)}\n`).join(""), NDJSON);
      assert.equal(response.status, 200, response.body);
      return response.body.trimEnd().split("\n").map((line) => JSON.parse(line));
    },
  };
}

const producer = (operator, claims) => caller(operator, operator.sign({ oa_sync_scopes: ["runtime.append"], ...claims }));

/** A server with a run and a worker of bob, who is another tenant. */
async function tenants(t, settings = {}) {
  const operator = await operate(t, { settings: { ...UNHURRIED, KHALA_MINT_KEY: MINT_KEY, ...settings } });
  await operator.did("runs", { run_id: "bobs", owner_user_id: "bob" }, 201);
  await operator.did("runs/bobs/events", { event_type: "run.log", payload: { secret: "bobs secret" }, event_id: UUID, idempotency_key: "k" });
  await operator.did("workers", { worker_id: "bobw", owner_user_id: "bob", metadata: { secret: "bobs secret" } }, 201);
  await operator.did("topics/bobs:room/events", { event_type: "said", payload: { secret: "bobs secret" } });
  return operator;
}

test("a producer creates and appends for its own owner, under both names of the routes", async (t) => {
  const operator = await tenants(t);
  const ada = producer(operator, { oa_user_id: "ada", oa_org_id: "acme" });
  for (const [index, root] of ["/v1", "/internal/v1"].entries()) {
    const run_id = `adas-${index}`;
    const worker_id = `adaw-${index}`;
    const { run, event } = await ada.did(`${root}/runs`, { run_id }, 201);
    assert.deepEqual([run.owner_user_id, run.org_id, event.payload.owner_user_id, event.seq], ["ada", "acme", "ada", 1]);
    assert.equal((await ada.did(`${root}/runs`, { run_id, owner_user_id: "ada" })).deduplicated, true);
    const appended = await ada.did(`${root}/runs/${run_id}/events`, { event_type: "run.log", payload: { n: 1 } });
    assert.deepEqual([Object.keys(appended), appended.event.seq], [["event", "deduplicated"], 2]);
    const { worker } = await ada.did(`${root}/workers`, { worker_id }, 201);
    assert.equal(worker.owner_user_id, "ada");
    for (const [path, body] of [["heartbeat", { metadata_patch: { a: 1 } }], ["status", { status: "running" }], ["events", { event_type: "worker.output" }]]) {
      assert.deepEqual(Object.keys(await ada.did(`${root}/workers/${worker_id}/${path}`, body)), ["event", "deduplicated"], "it reads no worker");
    }
    await ada.did(`${root}/notifications`, { payload: { text: "hello" } });
    const answers = await ada.batch(`${root}/events:batch`, [{ run_id, event_type: "run.log" }, { worker_id, status: "stopping" },
      { run_id: "bobs", event_type: "run.log" }, { worker_id: "bobw", event_type: "worker.x" }, { worker_id: "none", event_type: "worker.x" },
      { run_id: "none", event_type: "run.log" }, { topic: "bobs:room", event_type: "said" }, { audit: true, event_type: "audit.note" },
      { topic: "run:bobs:events", event_type: "x" }]);
    assert.deepEqual(answers.map(({ status, error }) => error?.error ?? status), [200, 200, "run_not_found", "worker_not_found", "worker_not_found",
      "run_not_found", "forbidden_topic", "forbidden_topic", "projection_owned_topic"]);
  }
  const reader = operator.sign({ oa_user_id: "ada", oa_sync_scopes: ["runtime.notifications"] });
  const { messages } = JSON.parse((await caller(operator, reader).get(pollPath("runtime.notifications"))).body);
  assert.deepEqual(messages.map(({ payload }) => payload.text), ["hello", "hello"]);
});

test("a producer neither writes to, reads from nor learns about another tenant", async (t) => {
  const operator = await tenants(t);
  const ada = producer(operator, { oa_user_id: "ada" });
  const all = producer(operator, { oa_user_id: "ada", oa_sync_scopes: ["runtime.append", "runtime.read_all"] });
  const write = (path, body, code) => refused(operator, () => ada.post(path, body), 403, code);
  /** A run or worker of another owner answers as one that does not exist. */
  const absent = async (one, path, body, code) => {
    const [foreign, none] = [await refused(operator, () => one.post(path, body), 404, code),
      await refused(operator, () => one.post(path.replace(/bobs|bobw/, "none"), body), 404, code)];
    const { request_id: id, ...answer } = foreign.body;
    const { request_id: other, ...expected } = none.body;
    assert.ok(id !== other);
    assert.deepEqual(answer, expected);
  };
  for (const one of [ada, all]) await absent(one, "/v1/runs/bobs/events", { event_type: "run.log" }, "run_not_found");
  for (const owner of [{ owner_user_id: "bob" }, { owner_guest_scope: "ada" }, { org_id: "acme" }]) {
    await write("/v1/runs", { run_id: "new", ...owner }, "owner_mismatch");
    await write("/v1/workers", { worker_id: "new", ...owner }, "owner_mismatch");
    await write("/v1/notifications", { payload: {}, ...owner }, "owner_mismatch");
  }
  // An id that is taken answers the same, whoever has it: not even the owner follows from it.
  await ada.did("/v1/runs", { run_id: "taken", metadata: { n: 1 } }, 201);
  const taken_by_ada = await refused(operator, () => ada.post("/v1/runs", { run_id: "taken" }), 409, "already_exists");
  for (const [path, body] of [["/v1/runs", { run_id: "bobs" }], ["/v1/workers", { worker_id: "bobw" }]]) {
    for (const one of [ada, all]) {
      const answer = await refused(operator, () => one.post(path, body), 409, "already_exists");
      const { request_id: id, ...seen } = answer.body, { request_id: other, ...expected } = taken_by_ada.body;
      assert.ok(id !== other);
      assert.deepEqual(seen, expected);
    }
  }
  await absent(ada, "/v1/workers/bobw/heartbeat", {}, "worker_not_found");
  await absent(ada, "/v1/workers/bobw/status", { status: "stopped" }, "worker_not_found");
  await absent(ada, "/v1/workers/bobw/events", { event_type: "worker.output" }, "worker_not_found");
  await write("/v1/topics/bobs:room/events", { event_type: "said" }, "forbidden_topic");
  await write("/v1/topics/never:used/events", { event_type: "said" }, "forbidden_topic");
  await write("/v1/topics/run:bobs:events/events", { event_type: "said" }, "projection_owned_topic");
  // Ownership is checked before keys, ids and positions: their answers would tell the content.
  for (const more of [{ idempotency_key: "k" }, { event_id: UUID }, { expected_previous_seq: 0 }]) {
    await absent(ada, "/v1/runs/bobs/events", { event_type: "run.log", payload: { secret: "bobs secret" }, ...more }, "run_not_found");
  }
  await ada.did("/v1/runs", { run_id: "adas" }, 201);
  const taken = await refused(operator, () => ada.post("/v1/runs/adas/events", { event_type: "run.log", event_id: UUID }), 409, "event_id_conflict");
  assert.doesNotMatch(JSON.stringify(taken.body), /bob/);
  await write("/v1/runs/adas/events", { event_type: "run.log", owner_user_id: "bob" }, "owner_mismatch");
  for (const token of [operator.sign({ oa_sync_scopes: ["runtime.append"] }), operator.sign({ oa_user_id: "ada", oa_sync_scopes: ["runtime.run_events"] })]) {
    const response = await caller(operator, token).post("/v1/runs", { run_id: "new" });
    assert.equal(response.status, 403, response.body);
  }
  // It reads nothing by that scope, its own data included, and no operator route takes it.
  for (const path of ["runs/bobs", "runs/adas", "runs/bobs/events", "runs/bobs/replay", "workers/bobw", "topics/bobs:room/events",
    "projectors/run-summary/bobs", "khala/why", "khala/fanout/metrics", "/metrics"]) {
    const response = await ada.get(path);
    assert.equal(response.status, 401, `${path} ${response.body}`);
    assert.doesNotMatch(response.body, /bobs secret/);
  }
  for (const path of [pollPath("run:bobs:events"), pollPath("run:adas:events"), pollPath("bobs:room"), streamPath("runtime.run_summaries"),
    snapshotPath("runtime.run_summaries"), "/events", "/api/events", "/api/events/export"]) {
    const response = await ada.get(path);
    assert.equal(response.status, 403, `${path} ${response.body}`);
  }
  for (const path of ["/api/sync/token", "/api/events/ingest", "sync/sessions/revoke", "retention/run", "projectors/reproject"]) {
    assert.equal((await ada.post(path, {})).status, 401, path);
  }
  const socket = await Client.join({ server: operator.server, reader: ada.token });
  await assert.rejects(socket.subscribe({ topics: ["run:adas:events"] }), /missing_scope|forbidden_topic/);
});

test("a producer with grants appends to what they name, and creates nothing", async (t) => {
  const operator = await tenants(t);
  await operator.did("runs", { run_id: "adas", owner_user_id: "ada" }, 201);
  const ada = producer(operator, { oa_user_id: "ada", oa_sync_topics: ["run:bobs:events"], oa_sync_streams: ["runtime.worker.bobw.lifecycle"] });
  const every = producer(operator, { oa_user_id: "ada", oa_sync_topics: ["run:*:events", "rooms:*"] });
  for (const root of ["/v1", "/internal/v1"]) {
    const no = (one, status, code, path, body) => refused(operator, () => one.post(`${root}/${path}`, body), status, code);
    await ada.did(`${root}/runs/bobs/events`, { event_type: "run.log" });
    await every.did(`${root}/topics/rooms:7/events`, { event_type: "said" });
    await every.did(`${root}/runs/adas/events`, { event_type: "run.log" });
    for (const id of ["bobs", "none"]) await no(every, 404, "run_not_found", `runs/${id}/events`, { event_type: "run.log" });
    for (const [path, body] of [["heartbeat", {}], ["status", { status: "running" }], ["events", { event_type: "worker.x" }]]) {
      assert.deepEqual(Object.keys(await ada.did(`${root}/workers/bobw/${path}`, body)), ["event", "deduplicated"]);
      for (const id of ["bobw", "none"]) await no(every, 403, "forbidden_topic", `workers/${id}/${path}`, body);
    }
    for (const [path, body] of [["runs", {}], ["runs", { run_id: "adas" }], ["runs", { run_id: "bobs" }], ["workers", {}], ["workers", { worker_id: "bobw" }]]) {
      for (const one of [ada, every]) assert.match((await no(one, 403, "forbidden_topic", path, body)).body.message, /creates no runs and no workers/);
    }
    await no(ada, 403, "forbidden_topic", "notifications", {});
    await no(ada, 403, "forbidden_topic", "topics/rooms:7/events", { event_type: "said" });
    // Another run answers the same, whether it is its own, another's or none.
    for (const id of ["adas", "none", "*", "\u00e9".repeat(128)]) await no(ada, 403, "forbidden_topic", `runs/${encodeURIComponent(id)}/events`, { event_type: "run.log" });
    const answers = await ada.batch(`${root}/events:batch`, [{ run_id: "bobs", event_type: "run.log" }, { run_id: "adas", event_type: "run.log" },
      { run_id: "none", event_type: "run.log" }, { worker_id: "bobw", metadata_patch: {} }, { worker_id: "none", metadata_patch: {} },
      { topic: "runtime.notifications", event_type: "n" }, { topic: "rooms:7", event_type: "said" }]);
    assert.deepEqual(answers.map(({ status, error }) => error?.error ?? status),
      [200, "forbidden_topic", "forbidden_topic", 200, "forbidden_topic", "forbidden_topic", "forbidden_topic"]);
  }
  assert.equal((await ada.get(pollPath("run:bobs:events"))).status, 403, "the scope to read it is missing");
});

test("a token to cancel appends run.cancel_requested within its grants, and nothing else", async (t) => {
  const operator = await tenants(t);
  await operator.did("runs", { run_id: "adas", owner_user_id: "ada" }, 201);
  const cancel = { event_type: "run.cancel_requested", payload: { reason: "no longer needed" } };
  const canceller = (claims) => producer(operator, { oa_sync_scopes: ["runtime.cancel"], ...claims });
  const ada = canceller({ oa_user_id: "ada" });
  for (const root of ["/v1", "/internal/v1"]) {
    const no = (one, status, code, path, body) => refused(operator, () => one.post(`${root}/${path}`, body), status, code);
    for (const [path, body] of [["runs/adas/events", { event_type: "run.log" }], ["runs/adas/events", { event_type: "run.finished", payload: { status: "failed" } }],
      ["runs/none/events", { event_type: "run.log" }], ["runs", {}], ["workers", {}], ["workers/bobw/heartbeat", {}], ["notifications", {}],
      ["topics/room:1/events", { event_type: "run.cancel_requested" }]]) {
      const { body: { message, reason_code } } = await no(ada, 403, "missing_scope", path, body);
      assert.match(message, /runtime\.append/);
      assert.equal(reason_code, "missing_scope");
    }
    for (const id of ["bobs", "none"]) await no(ada, 404, "run_not_found", `runs/${id}/events`, cancel);
    const granted = canceller({ oa_user_id: "ada", oa_sync_topics: ["run:bobs:events"] });
    for (const id of ["adas", "none"]) await no(granted, 403, "forbidden_topic", `runs/${id}/events`, cancel);
    await ada.did(`${root}/runs/adas/events`, cancel);
    await granted.did(`${root}/runs/bobs/events`, cancel);
    const answers = await ada.batch(`${root}/events:batch`, [{ run_id: "adas", ...cancel }, { run_id: "adas", event_type: "run.log" }, { run_id: "bobs", ...cancel }]);
    assert.deepEqual(answers.map(({ status, error }) => error?.error ?? status), [200, "missing_scope", "run_not_found"]);
  }
  assert.equal((await operator.read("runs/adas")).run.status, "canceling");
  assert.equal((await ada.get(pollPath("run:adas:events"))).status, 403, "it reads nothing");
});

test("a producer's token ends, also inside a batch", async (t) => {
  const operator = await tenants(t);
  const token = operator.sign({ oa_user_id: "ada", oa_session_id: "s1", oa_sync_scopes: ["runtime.append"] });
  const ada = caller(operator, token);
  await ada.did("/v1/runs", { run_id: "adas" }, 201);
  const { request, answer } = operator.begin("POST", "/v1/events:batch", { authorization: `Bearer ${token}`, "content-type": NDJSON });
  const line = `${JSON.stringify({ run_id: "adas", event_type: "run.log" })}\n`;
  request.write(line);
  const response = await within(answer, "the head of the answer");
  let text = "";
  response.on("data", (data) => { text += data; });
  response.on("error", () => {});
  request.on("error", () => {});
  const closed = new Promise((resolve) => response.on("close", resolve));
  await until(() => text.includes("\n"), "the first answer");
  await operator.did("sync/sessions/revoke", { session_ids: ["s1"] });
  request.end(line);
  await within(closed, "the end of the batch");
  const [first, ...later] = text.trim().split("\n").map((one) => JSON.parse(one));
  assert.equal(first.status, 200);
  assert.deepEqual(later.filter(({ status }) => status === 200), [], "no event after the revocation");
  assert.equal((await operator.events("adas")).length, 2);
  assertError(await ada.post("/v1/runs/adas/events", { event_type: "run.log" }), 401, "token_revoked");
  const old = operator.sign({ oa_user_id: "ada", oa_sync_scopes: ["runtime.append"], exp: Math.floor(Date.now() / 1000) - 1 });
  assertError(await caller(operator, old).post("/v1/runs", {}), 401, "token_expired");
});

test("the mint key mints tokens, and nothing else", async (t) => {
  const operator = await tenants(t);
  const minter = caller(operator, MINT_KEY);
  const { token, scopes } = await minter.did("/api/sync/token", { user_id: "ada", scopes: ["runtime.append", "runtime.run_events"] });
  assert.deepEqual(scopes, ["runtime.append", "runtime.run_events"]);
  await caller(operator, token).did("/v1/runs", { run_id: "adas" }, 201);
  for (const scope of ["runtime.read_all", "runtime.audit"]) {
    const { message } = assertError(await minter.post("/api/sync/token", { user_id: "ada", scopes: ["runtime.append", scope] }), 403, "forbidden_scope");
    assert.match(message, new RegExp(scope.replace(".", "\\.")));
    assert.equal((await operator.post("/api/sync/token", { user_id: "ada", scopes: [scope] })).status, 200, "the operator key still mints it");
  }
  for (const path of ["runs/bobs", "khala/why", "khala/fanout/metrics", "/metrics", "/api/events", pollPath("run:bobs:events")]) {
    assertError(await minter.get(path), 403, "forbidden_role");
  }
  for (const path of ["runs", "/v1/runs", "/v1/notifications", "sync/sessions/revoke", "retention/run", "projectors/reproject", "/api/events/ingest"]) {
    assertError(await minter.post(path, {}), 403, "forbidden_role");
  }
  const shown = run(["config", "--data-dir", operator.data], { settings: { KHALA_MINT_KEY: MINT_KEY } });
  assert.match(shown.out, /KHALA_MINT_KEY/);
  assert.doesNotMatch(shown.out + operator.server.log, new RegExp(MINT_KEY));
  const same = run(["serve", "--bind", "127.0.0.1:0", "--data-dir", `${operator.data}/other`], { settings: { KHALA_MINT_KEY: "k", KHALA_OPERATOR_KEY: "k" } });
  assert.deepEqual([same.code === 0, /KHALA_MINT_KEY must differ/.test(same.problem)], [false, true], same.problem);
});

test("the command line appends with a producer token as its key", async (t) => {
  const operator = await operate(t);
  const token = operator.sign({ oa_sync_scopes: ["runtime.append"], oa_user_id: "ada" });
  assert.ok(token.length > 256);
  const append = (more) => run(["append", "--run", "agent", "--type", "run.log", ...more], { settings: { KHALA_URL: operator.server.url, KHALA_OPERATOR_KEY: token } });
  const { code, problem } = append(["--create"]);
  assert.equal(code, 0, problem);
  assert.equal((await operator.read("runs/agent")).run.owner_user_id, "ada");
  assert.equal(append(["--key", token]).code, 0);
  assert.match(append(["--key", "x".repeat(8193)]).problem, /the key is not 1 to 8192 visible characters/);
});

const SAME = { idempotency_key: "order-123" };

test("an idempotency key of a topic or a notification belongs to its producing owner", async (t) => {
  const operator = await tenants(t);
  const ada = producer(operator, { oa_user_id: "ada", oa_sync_topics: ["room:1", "runtime.notifications"] });
  const eve = producer(operator, { oa_user_id: "eve", oa_sync_topics: ["room:1", "runtime.notifications"] });
  const guest = producer(operator, { oa_guest_scope: "ada", oa_sync_topics: ["room:1", "runtime.notifications"] });
  for (const [path, type] of [["/v1/notifications", "shipped"], ["/v1/topics/room:1/events", "said"]]) {
    const body = (who) => ({ event_type: type, payload: { who }, ...SAME });
    for (const [who, one] of [["ada", ada], ["eve", eve], ["guest", guest]]) {
      const { event, deduplicated } = await one.did(path, body(who));
      assert.deepEqual([deduplicated, event.payload], [false, { who }]);
      assert.deepEqual(await one.did(path, body(who)), { event, deduplicated: true });
      assertError(await one.post(path, body("other")), 409, "idempotency_key_conflict");
    }
  }
  // By the operator key the owner that a request names is the producing owner.
  const notify = (owner, text, status) => operator.did("notifications", { owner_user_id: owner, payload: { text }, ...SAME, event_type: "n" }, status);
  for (const owner of ["bob", "carl"]) assert.equal((await notify(owner, `for ${owner}`)).deduplicated, false);
  assert.equal((await notify("bob", "for bob")).deduplicated, true);
  assert.equal((await notify("ada", "", 409)).error, "idempotency_key_conflict", "the key of ada's own token");
});

test("keys of one batch belong to their owners, and to one topic", async (t) => {
  const operator = await tenants(t);
  const item = (topic, owner_user_id, n) => ({ topic, owner_user_id, event_type: "said", payload: { n }, ...SAME });
  const items = [item("a:1", "ada", 1), item("a:1", "eve", 2), item("a:1", "ada", 1), item("a:2", "ada", 3), item("a:1", "eve", 9), item("a:1", undefined, 4)];
  for (const again of [false, true]) {
    const answers = await operator.batch(items);
    assert.deepEqual(answers.map(({ status, deduplicated }) => (status === 200 ? deduplicated : status)), [again, again, true, again, 409, again]);
  }
});

test("a key that was stored before keys had an owner keeps its scope for the owner of its event", async (t) => {
  const data = folder(t);
  let operator = await operate(t, { data });
  const notify = (owner_user_id, text, status = 200) => operator.did("notifications", { owner_user_id, payload: { text }, ...SAME }, status);
  const first = await notify("ada", "hello");
  const said = await operator.did("topics/room:1/events", { event_type: "said", ...SAME });
  await operator.server.stop();
  // The key as an earlier version stored it: plain, beside the topic.
  alter(data, `UPDATE idempotency_keys SET key = 'order-123', entity_ref = (SELECT entity_ref FROM events e WHERE e.log_id = idempotency_keys.log_id)`);
  assert.equal(sql(data, "SELECT count(*) FROM idempotency_keys WHERE entity_ref > 0"), "2");
  operator = await operate(t, { data });
  assert.deepEqual(await notify("ada", "hello"), { event: first.event, deduplicated: true });
  assert.equal((await notify("ada", "other", 409)).error, "idempotency_key_conflict");
  for (const deduplicated of [false, true]) assert.equal((await notify("eve", "mine")).deduplicated, deduplicated);
  // A producer's event without an owner may be a retry of an event that was stored without one.
  const ada = producer(operator, { oa_user_id: "ada", oa_sync_topics: ["room:1"] });
  assert.deepEqual(await ada.did("/v1/topics/room:1/events", { event_type: "said", ...SAME }), { event: said.event, deduplicated: true });
});

test("the longest key of the longest topic and owner is kept", async (t) => {
  const operator = await operate(t);
  const topic = `t:${"\u00e9".repeat(127)}`;
  const body = { event_type: "said", owner_user_id: "\"".repeat(256), org_id: "\\".repeat(256), idempotency_key: "\"".repeat(256) };
  for (const deduplicated of [false, true]) assert.equal((await operator.did(`topics/${encodeURIComponent(topic)}/events`, body)).deduplicated, deduplicated);
});

test("a producer that floods a shared topic leaves the rate of the others alone", async (t) => {
  const operator = await tenants(t, { RUNTIME_KHALA_FALLBACK_PUBLISH_RATE_PER_SECOND: "30", RUNTIME_KHALA_CODEX_WORKER_EVENTS_PUBLISH_RATE_PER_SECOND: "30" });
  const granted = (user) => producer(operator, { oa_user_id: user, oa_sync_topics: ["room:1", "runtime.notifications"] });
  const [ada, eve, carl] = ["ada", "eve", "carl"].map(granted);
  for (const [path, body] of [["/v1/notifications", {}], ["/v1/topics/room:1/events", { event_type: "said" }]]) {
    const topic = path.includes("room") ? "room:1" : "runtime.notifications";
    const flood = await eve.batch("/v1/events:batch", Array.from({ length: 1000 }, () => ({ topic, event_type: "said" })));
    assert.ok(flood.some(({ status }) => status === 429));
    const statuses = [];
    for (const one of [ada, carl]) for (let i = 0; i < 20; i++) statuses.push((await one.post(path, body)).status);
    assert.deepEqual(statuses, Array(40).fill(200));
    const named = (owner_user_id) => operator.post(topic === "room:1" ? "topics/room:1/events" : "notifications", { ...body, owner_user_id });
    const byOperator = await Promise.all(Array.from({ length: 20 }, (_, i) => named(`user-${i}`)));
    assert.deepEqual(byOperator.map(({ status }) => status), Array(20).fill(200));
  }
});
