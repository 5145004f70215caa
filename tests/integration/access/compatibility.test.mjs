// The compatibility gate: the answers that clients of each dialect get when they are too old, too
// new or of another protocol.
import assert from "node:assert/strict";
import { test } from "node:test";
import { EventSource } from "eventsource";
import { run } from "../../lib/khala.mjs";
import { operate } from "../../lib/operator.mjs";
import { Client } from "../../lib/phoenix.mjs";
import { parseMetrics } from "../../lib/prometheus.mjs";
import { Socket } from "../../lib/socket.mjs";
import { within } from "../../lib/wait.mjs";

const ENFORCED = {
  OA_COMPAT_KHALA_ENFORCED: "true",
  OA_COMPAT_KHALA_MIN_CLIENT_BUILD_ID: "20260101T000000Z",
  OA_COMPAT_KHALA_MAX_CLIENT_BUILD_ID: "20261231T235959Z",
  OA_COMPAT_KHALA_MIN_SCHEMA_VERSION: "2",
  OA_COMPAT_KHALA_MAX_SCHEMA_VERSION: "3",
};
const WINDOW = {
  retryable: false, upgrade_required: true, surface: "khala_websocket", protocol_version: "khala.ws.v1",
  min_client_build_id: "20260101T000000Z", max_client_build_id: "20261231T235959Z",
  min_schema_version: 2, max_schema_version: 3,
};
const GOOD = { client_build_id: "20260601T000000Z", protocol_version: "khala.ws.v1", schema_version: 2 };

/** Rows in the order of the checks; each row would also fail the later checks. */
const REFUSED = [
  ["invalid_client_build", {}],
  ["invalid_client_build", { client_build_id: "  ", protocol_version: "other", schema_version: 9 }],
  ["unsupported_protocol_version", { ...GOOD, client_build_id: "20250101T000000Z", protocol_version: "khala.ws.v0", schema_version: 9 }],
  ["unsupported_schema_version", { ...GOOD, client_build_id: "20250101T000000Z", schema_version: 1 }],
  ["unsupported_schema_version", { ...GOOD, schema_version: "two" }],
  ["upgrade_required", { ...GOOD, client_build_id: "20251231T235959Z" }],
  ["unsupported_client_build", { ...GOOD, client_build_id: "20270101T000000Z" }],
];

const query = (claim) => new URLSearchParams(Object.entries(claim).map(([name, value]) => [name, String(value)])).toString();

/** The reply to a join whose claim is in the socket's query or in the join's payload. */
async function join(operator, { params, payload }) {
  const client = new Client(operator, { params });
  const reply = await client.joined(payload).then((response) => ({ status: "ok", response }), (error) => ({ status: "error", response: error.body }));
  client.close();
  return reply;
}

function refused(body, code) {
  const { error, message, request_id: id, details } = JSON.parse(body);
  assert.equal(error, code);
  assert.ok(message && id);
  assert.deepEqual(details, { code, message, ...WINDOW });
}

test("a Phoenix client passes the compatibility gate by its payload or query, or is refused with the window", async (t) => {
  const operator = await operate(t, { settings: ENFORCED });
  for (const [code, claim] of REFUSED) {
    for (const way of [{ payload: claim }, { params: claim }]) {
      const { status, response } = await join(operator, way);
      assert.equal(status, "error", JSON.stringify(way));
      assert.ok(response.message);
      assert.deepEqual(response, { code, message: response.message, ...WINDOW });
    }
  }
  for (const way of [{ payload: GOOD }, { params: GOOD }, { params: { ...GOOD, client_build_id: "1" }, payload: GOOD },
    { params: { client_build_id: GOOD.client_build_id }, payload: { ...GOOD, client_build_id: null, schema_version: "3" } }]) {
    assert.equal((await join(operator, way)).status, "ok", JSON.stringify(way));
  }
  assert.equal((await join(operator, { params: GOOD, payload: { ...GOOD, schema_version: 1 } })).status, "error");
});

test("a refused client may not subscribe, and a compatible client may join", async (t) => {
  const operator = await operate(t, { settings: ENFORCED });
  const client = new Client(operator);
  await assert.rejects(client.joined({}), (error) => error.body.code === "invalid_client_build");
  client.close();
  const other = await Client.join(operator, { payload: GOOD });
  assert.deepEqual((await other.subscribe({ topics: ["runtime.run_summaries"] })).topics, ["runtime.run_summaries"]);
});

test("every HTTP route of clients answers 426 with the same body", async (t) => {
  const operator = await operate(t, { settings: { ...ENFORCED, RUNTIME_KHALA_POLL_MIN_INTERVAL_MS: "0" } });
  const token = `token=${operator.reader}`;
  await operator.did("topics/news/events", { event_type: "a" });
  for (const [code, claim] of REFUSED) {
    for (const path of ["/v1/topics/news/sse", "/internal/v1/khala/topics/news/messages",
      "/v1/topics/runtime.run_summaries/snapshot", "/events"]) {
      const response = await operator.ask("GET", `${path}?${token}&${query(claim)}`, undefined, { authorization: "none" });
      assert.equal(response.status, 426, path);
      assert.equal(response.headers.upgrade, "websocket");
      refused(response.body, code);
    }
    for (const path of ["/internal/v1/khala/topics/news/ws", "/api/events/stream"]) {
      const response = await Socket.refused(operator, `${path}?${token}&${query(claim)}`);
      assert.equal(response.status, 426, path);
      refused(response.body, code);
    }
  }
  const good = `${token}&${query(GOOD)}`;
  for (const path of ["/internal/v1/khala/topics/news/messages", "/v1/topics/runtime.run_summaries/snapshot"]) {
    assert.equal((await operator.ask("GET", `${path}?${good}`, undefined, { authorization: "none" })).status, 200, path);
  }
  for (const path of ["/internal/v1/khala/topics/news/ws", "/api/events/stream"]) {
    await Socket.open(operator, `${path}?${good}`);
  }
  const source = new EventSource(`${operator.server.url}/v1/topics/news/sse?${good}`);
  operator.server.peers.push(source);
  const seen = await within(new Promise((resolve) => { source.onmessage = resolve; }), "a message");
  assert.equal(JSON.parse(seen.data).sequence, 1);
});

test("a wrong token is refused before the gate, and the operator passes it", async (t) => {
  const operator = await operate(t, { settings: ENFORCED });
  const wrong = await operator.ask("GET", "/v1/topics/news/sse?token=x", undefined, { authorization: "none" });
  assert.equal(wrong.status, 401);
  assert.equal((await operator.get("runs/none")).status, 404);
  assert.equal((await operator.get("/healthz/ready")).status, 200);
});

test("clients need no compatibility claim while the gate is off", async (t) => {
  const operator = await operate(t);
  assert.equal((await join(operator, {})).status, "ok");
  assert.equal((await join(operator, { payload: { client_build_id: 7, schema_version: [] } })).status, "ok");
});

test("refused clients are counted by surface and listed by khala why", async (t) => {
  const operator = await operate(t, { settings: ENFORCED });
  await join(operator, { payload: { ...GOOD, client_build_id: "20250101T000000Z" } });
  await operator.ask("GET", `/v1/topics/news/sse?token=${operator.reader}`, undefined, { authorization: "none", "x-request-id": "old-page" });
  const metrics = parseMetrics((await operator.get("/metrics")).body);
  const of = (code) => metrics.get("openagents_runtime_sync_socket_compatibility_rejected_total", { surface: "khala_websocket", code });
  assert.equal(of("upgrade_required"), 1);
  assert.equal(of("invalid_client_build"), 1);
  assert.equal(metrics.get("openagents_runtime_sync_socket_errors_total", { dialect: "phoenix", status: "upgrade_required" }), 1);
  assert.equal(metrics.get("khala_auth_denials_total"), 0);
  const why = run(["why", "--url", operator.server.url, "--key", operator.key]).out.trim().split("\n");
  assert.equal(why.length, 2);
  assert.match(why.join("\n"), /denied upgrade_required .*dialect=phoenix/);
  const one = run(["why", "--connection", "old-page", "--url", operator.server.url, "--key", operator.key]).out;
  assert.match(why.join("\n"), /client_build_id=20250101T000000Z +protocol_version=khala\.ws\.v1 +schema_version=2/);
  const { decisions } = await operator.read("khala/why");
  const old = decisions.find((one) => one.code === "upgrade_required");
  assert.deepEqual([old.client_build_id, old.protocol_version, old.schema_version], ["20250101T000000Z", "khala.ws.v1", "2"]);
  await operator.server.saw("log", /client\.denied code=upgrade_required .*client_build_id=20250101T000000Z protocol_version=khala\.ws\.v1 schema_version=2/);
  assert.match(one, /denied invalid_client_build +surface=khala_websocket +topic=news +principal=service +connection=old-page/);
});
