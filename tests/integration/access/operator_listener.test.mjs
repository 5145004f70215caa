// The operator listener: the routes of each listener, and the keys they need.
import assert from "node:assert/strict";
import net from "node:net";
import { test } from "node:test";
import { connect, folder, getRequest, run } from "../../lib/khala.mjs";
import { operate, operatorListener } from "../../lib/operator.mjs";
import { pollPath } from "../../lib/paths.mjs";
import { parseMetrics } from "../../lib/prometheus.mjs";

/** Starts a server with two listeners; answers the operator at the public and the operator address. */
async function operateBoth(t, settings = {}) {
  const outside = await operate(t, { settings: { KHALA_OPERATOR_BIND_ADDR: "127.0.0.1:0", ...settings } });
  return { outside, inside: operatorListener(t, outside) };
}

test("operator routes are served on the operator listener only", async (t) => {
  const { outside, inside } = await operateBoth(t);
  await inside.did("runs", { run_id: "a" }, 201);
  assert.equal((await inside.read("runs/a")).run.run_id, "a");
  for (const [method, path] of [["POST", "runs"], ["GET", "runs/a"], ["GET", "/metrics"], ["POST", "/metrics"],
    ["GET", "khala/fanout/metrics"], ["GET", "khala/why"], ["PUT", "runs"]]) {
    const response = await outside.ask(method, path, method === "POST" ? "{}" : undefined);
    assert.equal(response.status, 404, `${method} ${path}`);
    assert.equal(JSON.parse(response.body).error, "not_found");
    assert.equal(response.headers.allow, undefined);
  }
  assert.equal((await inside.ask("PUT", "runs")).status, 405);
});

test("on the operator listener /metrics needs no key and other routes do", async (t) => {
  const { inside } = await operateBoth(t);
  const metrics = await inside.ask("GET", "/metrics", undefined, { authorization: "" });
  assert.equal(metrics.status, 200);
  assert.ok(parseMetrics(metrics.body).get("process_resident_memory_bytes") > 0);
  for (const path of ["runs/a", "khala/why", "khala/fanout/hooks"]) {
    assert.equal((await inside.ask("GET", path, undefined, { authorization: "" })).status, 401, path);
  }
});

test("both listeners serve health, and each serves its own kind of streams", async (t) => {
  const { outside, inside } = await operateBoth(t);
  for (const operator of [outside, inside]) {
    assert.equal((await operator.get("/healthz/live")).status, 200);
    assert.equal((await operator.get("/healthz/ready")).status, 200);
  }
  assert.equal((await outside.ask("HEAD", `/v1/topics/t/sse?token=${outside.reader}`)).status, 200);
  assert.equal((await inside.get(`/socket/websocket?token=${outside.reader}`)).status, 404);
  for (const path of ["/v1/topics/t/sse", "/events", "/internal/v1/khala/topics/t/messages", "/v1/topics/runtime.run_summaries/snapshot"]) {
    assert.equal((await inside.ask("HEAD", path)).status, 200, path);
    const refused = await outside.get(path);
    assert.deepEqual([refused.status, JSON.parse(refused.body).reason_code], [401, "invalid_token"], path);
  }
});

test("without an operator address one listener serves everything", async (t) => {
  const operator = await operate(t, { settings: { KHALA_OPERATOR_BIND_ADDR: "" } });
  assert.doesNotMatch(operator.server.out, /Operator routes/);
  assert.equal((await operator.get("/metrics")).status, 200);
  assert.equal((await operator.ask("GET", "/metrics", undefined, { authorization: "" })).status, 401);
});

test("the operator can connect when clients have taken every connection", async (t) => {
  const { outside, inside } = await operateBoth(t, { KHALA_CONNECTIONS_MAX: "3" });
  const asked = async (token) => {
    const peer = await connect(outside.server);
    await peer.send(getRequest(pollPath("t"), `Authorization: Bearer ${token}`));
    return (await peer.response()).status;
  };
  for (let i = 0; i < 3; i++) assert.equal(await asked(outside.reader), 200);
  assert.equal(await asked(outside.reader), 503);
  assert.equal(await asked(inside.key), 503, "the public listener does not take the operator key");
  const metrics = parseMetrics((await inside.get("/metrics")).body);
  assert.ok(metrics.get("khala_http_connections_refused_total", { limit: "total" }) >= 2);
  assert.ok(metrics.get("khala_http_connections") >= 4);
});

test("verbs work with the operator's address", async (t) => {
  const { outside, inside } = await operateBoth(t);
  const append = (url) => run(["append", "--run", "a", "--create", "--type", "run.log", "--url", url, "--data-dir", inside.data]);
  assert.equal(append(inside.server.url).code, 0);
  assert.equal(append(outside.server.url).code, 1);
});

test("a taken or invalid operator address is refused by the setting's name", async (t) => {
  const holder = net.createServer().listen(0, "127.0.0.1");
  await new Promise((resolve) => holder.once("listening", resolve));
  t.after(() => holder.close());
  const taken = `127.0.0.1:${holder.address().port}`;
  const refused = run(["serve", "--bind", "127.0.0.1:0"], { settings: { KHALA_OPERATOR_BIND_ADDR: taken }, cwd: folder(t) });
  assert.equal(refused.code, 3);
  assert.match(refused.problem, /cannot listen on 127\.0\.0\.1:\d+: .*KHALA_OPERATOR_BIND_ADDR names another/);
  const wrong = run(["config", "--check"], { settings: { KHALA_OPERATOR_BIND_ADDR: "nowhere" } });
  assert.equal(wrong.code, 2);
  assert.match(wrong.problem, /KHALA_OPERATOR_BIND_ADDR='nowhere' is not host:port/);
});
