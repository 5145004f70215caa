// Lists of runs, workers, topics, connections and principals: filtered, and paged by an exclusive cursor.
import assert from "node:assert/strict";
import { test } from "node:test";
import { run } from "../../lib/khala.mjs";
import { operate, refused } from "../../lib/operator.mjs";
import { socketPath } from "../../lib/paths.mjs";
import { Client } from "../../lib/phoenix.mjs";
import { Socket } from "../../lib/socket.mjs";
import { tokenFor } from "../../lib/token.mjs";
import { until } from "../../lib/wait.mjs";

/** All items of a list, by pages of that size. */
async function pages(operator, path, limit) {
  const items = [];
  for (let after = ""; ;) {
    const page = await operator.read(`${path}${path.includes("?") ? "&" : "?"}limit=${limit}${after}`);
    assert.ok(page.items.length <= limit);
    items.push(...page.items);
    assert.equal(page.next_cursor === null, !page.has_more);
    if (!page.has_more) return items;
    after = `&after=${encodeURIComponent(page.next_cursor)}`;
  }
}

test("lists", async (t) => {
  const operator = await operate(t);
  const cli = (...args) => run(["get", ...args, "--url", operator.server.url, "--data-dir", operator.data]);
  for (const run_id of ["r3", "r1", "r2", "é"]) await operator.did("runs", { run_id, owner_user_id: run_id === "r2" ? "v" : "u", org_id: "o" }, 201);
  await operator.did("runs", { run_id: "g1", owner_guest_scope: "g" }, 201);
  await operator.did("runs/r3/events", { event_type: "run.finished", payload: { status: "failed" } });
  for (const worker_id of ["w2", "w1"]) await operator.did("workers", { worker_id, owner_user_id: worker_id }, 201);
  for (const topic of ["room:1", "room:2", "room.3", "rooms", "zoo"]) await operator.did(`topics/${topic}/events`, { event_type: "x" });

  await t.test("runs and workers are listed by id, those that match", async () => {
    const ids = async (query) => (await pages(operator, `runs${query}`, 2)).map((run) => run.run_id);
    assert.deepEqual(await ids(""), ["g1", "r1", "r2", "r3", "é"]);
    assert.deepEqual(await ids("?status=running"), ["g1", "r1", "r2", "é"]);
    assert.deepEqual(await ids("?status=failed"), ["r3"]);
    assert.deepEqual(await ids("?owner_user_id=u&status=running"), ["r1", "é"]);
    assert.deepEqual(await ids("?owner_guest_scope=g"), ["g1"]);
    assert.deepEqual(await ids("?org_id=o&owner_user_id=v"), ["r2"]);
    assert.deepEqual(await ids("?org_id=none"), []);
    const { items: [row] } = await operator.read("runs?limit=1");
    const { run: one } = await operator.read("runs/g1");
    assert.deepEqual(row, Object.fromEntries(Object.keys(row).map((name) => [name, one[name]])));
    const workers = await pages(operator, "workers?status=starting", 1);
    assert.deepEqual(workers.map((worker) => worker.worker_id), ["w1", "w2"]);
    assert.deepEqual((await pages(operator, "workers?owner_user_id=w2", 1)).map((worker) => worker.worker_id), ["w2"]);
  });

  await t.test("topics are listed by name, of a class and a prefix", async () => {
    const names = async (query) => (await pages(operator, `topics${query}`, 2)).map((topic) => topic.topic);
    assert.deepEqual(await names("?class=fallback"), ["room.3", "room:1", "room:2", "rooms", "zoo"]);
    assert.deepEqual(await names("?prefix=room"), ["room.3", "room:1", "room:2", "rooms"]);
    assert.deepEqual(await names("?prefix=room:"), ["room:1", "room:2"]);
    assert.deepEqual(await names("?prefix=rooms"), ["rooms"]);
    assert.deepEqual(await names("?prefix=run&class=fallback"), []);
    assert.deepEqual(await names("?class=durable_summary"), ["runtime.codex_worker_summaries", "runtime.run_summaries"]);
    assert.deepEqual((await operator.read("topics?prefix=room:1")).items, [{ topic: "room:1", stream_id: "runtime.topic.room.1", topic_class: "fallback",
      qos_tier: "cold", window: { oldest_seq: 1, head_seq: 1, replay_budget_events: 20000 } }]);
  });

  await t.test("a misspelt filter is refused", async () => {
    await refused(operator, () => operator.get("runs?status=runing"), 400, "invalid_request");
    await refused(operator, () => operator.get("workers?status=succeeded"), 400, "invalid_request");
    await refused(operator, () => operator.get("topics?class=none"), 400, "invalid_request");
    await refused(operator, () => operator.get("runs?limit=0"), 400, "invalid_request");
    await refused(operator, () => operator.get("runs?owner=u"), 400, "unknown_parameter");
    // Longer than any text of a query: also the first of several.
    for (const path of ["runs?after", "khala/why?connection", "principals?after"])
      await refused(operator, () => operator.get(`${path}=${"x".repeat(2100)}`), 400, "invalid_request");
    for (const path of ["runs", "workers", "topics", "connections", "principals"]) {
      const { status } = await operator.ask("GET", `/internal/v1/${path}`, undefined, { authorization: `Bearer ${operator.reader}` });
      assert.equal(status, 401, path);
    }
  });

  await t.test("one topic is described under either name", async () => {
    const topic = { topic: "room.3", stream_id: "runtime.topic.room.3", topic_class: "fallback", qos_tier: "cold",
      window: { oldest_seq: 1, head_seq: 1, replay_budget_events: 20000 } };
    assert.deepEqual(await operator.read("/v1/topics/room.3"), topic);
    assert.deepEqual(await operator.read("/v1/topics/runtime.topic.room.3"), topic);
    const none = await operator.read("/v1/topics/runtime.topic.none");
    assert.deepEqual([none.topic, none.stream_id, none.window], [null, "runtime.topic.none", null]);
    // A built-in topic is known before its first event.
    const audit = await operator.read("/v1/topics/runtime.topic.runtime.audit");
    assert.deepEqual([audit.topic, audit.window.head_seq], ["runtime.audit", 0]);
    assert.equal((await operator.get("/v1/topics/room:3")).status, 409);
    const token = tokenFor(operator, { user_id: "u", scopes: [], streams: ["runtime.topic.room.3"] });
    const asked = async (name) => (await operator.ask("GET", `/v1/topics/${name}`, undefined, { authorization: `Bearer ${token}` })).status;
    assert.deepEqual([await asked("room.3"), await asked("runtime.topic.room.3"), await asked("zoo")], [200, 200, 403]);
    const { events } = await operator.read("topics/runtime.topic.room.3/events");
    assert.equal(events[0].entity_id, "room.3");
  });

  await t.test("a plan denies a topic whose stream id another topic has", async () => {
    const { plans } = await operator.did("/v1/cursors/plan", { "room:3": 0, "runtime.topic.room.3": 0 });
    assert.deepEqual(plans.map((plan) => [plan.topic, plan.decision, plan.reason_codes]),
      [["room:3", "denied", ["stream_id_conflict"]], ["room.3", "resume", []]]);
  });

  await t.test("connections and principals of all loops are listed", async () => {
    const token = (user_id) => tokenFor(operator, { user_id, scopes: ["runtime.run_events"], topics: ["room:1", "room:2"] });
    const client = await Client.join(operator, { params: { token: token("ada") } });
    await client.subscribe({ topics: ["room:1", "room:2"] });
    const sockets = [];
    for (let i = 0; i < 5; i++) {
      const socket = await Socket.open(operator, socketPath("room:1"), { headers: { authorization: `Bearer ${token(i < 3 ? "bob" : "cy")}` } });
      await socket.until((one) => one.of("hello").length === 1, "hello");
      sockets.push(socket);
    }
    // A producer is listed as itself, also on an operator's route.
    const producer = operator.sign({ oa_user_id: "dee", oa_sync_scopes: ["runtime.append"] });
    const { request, answer } = operator.begin("POST", "events:batch", { authorization: `Bearer ${producer}`, "content-type": "application/x-ndjson" });
    request.write('{"topic":"room:1","event_type":"said"}\n');
    const answering = await answer;
    const lag = async () => (await pages(operator, "connections", 2)).find((one) => one.principal === "user:ada").lag;
    await until(async () => await lag() === 0, "every frame to arrive");
    const all = await pages(operator, "connections", 2);
    assert.deepEqual(all.map((one) => one.id), all.map((one) => one.id).toSorted((a, b) => a - b));
    const of = (principal) => all.filter((one) => one.principal === principal);
    assert.deepEqual([of("user:ada").length, of("user:bob").length, of("user:cy").length, of("user:dee").length], [1, 3, 2, 1]);
    const [{ id, request_id, since, ...rest }] = of("user:ada");
    assert.deepEqual(rest, { principal: "user:ada", dialect: "phoenix", remote_address: "127.0.0.1", topics: 2, lag: 0 });
    assert.ok(id > 0 && request_id && Math.abs(Date.now() - since) < 60_000);
    assert.ok(of("operator").length > 0);
    const principals = (await pages(operator, "principals", 1)).filter((one) => one.principal.startsWith("user:"));
    assert.deepEqual(principals, [
      { principal: "user:ada", connections: 1, subscriptions: 2 },
      { principal: "user:bob", connections: 3, subscriptions: 3 },
      { principal: "user:cy", connections: 2, subscriptions: 2 },
      { principal: "user:dee", connections: 1, subscriptions: 0 },
    ]);
    const ids = (path) => pages(operator, path, 2).then((items) => items.map((one) => one.id));
    assert.deepEqual(await ids("connections?prefix=user:b"), of("user:bob").map((one) => one.id));
    assert.deepEqual(await ids("connections?dialect=phoenix"), of("user:ada").map((one) => one.id));
    assert.deepEqual(await ids("connections?dialect=phoenix&prefix=user:b"), []);
    assert.deepEqual((await pages(operator, "principals?prefix=user:c", 1)).map((one) => one.principal), ["user:cy"]);
    request.end();
    answering.resume();
    await refused(operator, () => operator.get("connections?dialect=morse"), 400, "invalid_request");
    await refused(operator, () => operator.get("connections?after=x"), 400, "invalid_request");
  });

  await t.test("khala get prints lists, with their cursor on standard error", () => {
    const runs = cli("runs", "--user", "u", "--status", "running", "--limit", "1");
    assert.equal(runs.out, "r1\trunning\tu\t-\to\t1\t-\n");
    assert.match(runs.problem, /next_cursor\tr1\nhas_more\ttrue\n/);
    assert.equal(cli("workers", "--after", "w1").out, "w2\tstarting\tmissing\tw2\t-\t-\t1\n");
    assert.deepEqual(JSON.parse(cli("topics", "--prefix", "room:", "--class", "fallback", "--json").out).items.map((one) => one.topic), ["room:1", "room:2"]);
    assert.match(cli("connections").out, /\tphoenix\t127\.0\.0\.1\t2\t0\t/);
    assert.match(cli("principals").out, /user:bob\t3\t3\n/);
    assert.equal(cli("principals", "--prefix", "user:b").out, "user:bob\t3\t3\n");
    assert.match(cli("connections", "--dialect", "phoenix").out, /^\d+\tuser:ada\tphoenix\t[^\n]+\n$/);
    for (const args of [["connections", "--user", "u"], ["topics", "--status", "running"], ["runs", "--prefix", "r"], ["runs", "--run", "r1"]]) {
      const wrong = cli(...args);
      assert.equal(wrong.code, 2, `${args}`);
    }
  });

  await t.test("khala topic and khala cursor migrate ask the store of --url", () => {
    const at = ["--url", operator.server.url, "--data-dir", operator.data];
    assert.equal(run(["topic", "unmap", "runtime.topic.room.3"]).out, "room:3\n");
    assert.equal(run(["topic", "unmap", "runtime.topic.room.3", ...at]).out, "room.3\n");
    assert.deepEqual(JSON.parse(run(["topic", "map", "room.3", "--json", ...at]).out), { topic: "room.3", stream_id: "runtime.topic.room.3" });
    assert.equal(run(["topic", "unmap", "runtime.topic.nobody", ...at]).code, 1);
    assert.match(run(["topic", "map", "room:3", ...at]).problem, /stream_id_conflict/);
    const input = JSON.stringify({ cursors: [{ topic: "room.3", after_seq: 1 }, { stream_id: "runtime.topic.zoo", after_seq: 0 }], epoch: "018f3b7e-0000-7000-8000-000000000000" });
    const offline = run(["cursor", "migrate", "-"], { input });
    assert.deepEqual([offline.code, offline.out], [0, "runtime.topic.room.3 1 resume\nruntime.topic.zoo 0 resume\n"]);
    const asked = run(["cursor", "migrate", "-", ...at], { input });
    assert.equal(asked.code, 1, asked.problem);
    assert.match(asked.out, /^runtime\.topic\.room\.3 1 rebootstrap epoch_mismatch\n/);
    const fresh = run(["cursor", "migrate", "-", "--json", ...at], { input: JSON.stringify({ "room.3": 1 }) });
    assert.deepEqual([fresh.code, JSON.parse(fresh.out).window.head_seq], [0, 1], fresh.problem);
  });
});
