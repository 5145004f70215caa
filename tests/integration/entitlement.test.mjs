// Who may follow what, as event streams: tokens, scopes, grants, owners, origins.
import assert from "node:assert/strict";
import { test } from "node:test";
import { operate, sql } from "../lib/operator.mjs";
import { Stream } from "../lib/sse.mjs";

const RUNS = ["runtime.run_events"];

function follow(operator, topic, token, headers = {}) {
  return Stream.open(operator, `/v1/topics/${encodeURIComponent(topic)}/sse?after_seq=0&token=${token}`, headers);
}

/** Two tenants, an organisation and nobody, each with a run and its events. */
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
  const stream = await follow(operator, topic, token, headers);
  const pieces = [];
  for await (const piece of stream.response) pieces.push(piece);
  return [stream.status, JSON.parse(pieces.join("")).reason_code];
}

test("each topic opens for whom the table says, and for nobody else", async (t) => {
  const operator = await tenants(t);
  const alice = { user_id: "alice", scopes: RUNS };
  const rows = [
    [alice, "run:a:events", 200],
    [alice, "run:b:events", "owner_mismatch"],
    [alice, "run:none:events", "owner_mismatch"],
    [alice, "run:n:events", "owner_mismatch"],
    [alice, "run:o:events", "owner_mismatch"],
    [{ ...alice, org_id: "acme" }, "run:o:events", 200],
    [{ ...alice, org_id: "acme" }, "run:b:events", "owner_mismatch"],
    [{ user_id: "alice" }, "run:a:events", "missing_scope"],
    [{ user_id: "alice", scopes: ["runtime.audit"] }, "run:a:events", "missing_scope"],
    [{ guest_scope: "alice", scopes: RUNS }, "run:a:events", "owner_mismatch"],
    [{ ...alice, topics: ["run:b:events"] }, "run:b:events", 200],
    [{ ...alice, topics: ["run:b:events"] }, "run:a:events", "forbidden_topic"],
    [{ ...alice, topics: ["run:*:events"] }, "run:a:events", 200],
    [{ ...alice, topics: ["run:*:events"] }, "run:b:events", "owner_mismatch"],
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
    if (expected === 200) {
      const stream = await follow(operator, topic, token);
      assert.equal(stream.status, 200, what);
      stream.close();
    } else {
      assert.deepEqual(await refusal(operator, topic, token), [403, expected], what);
    }
  }
  await operator.server.saw("log", /client\.denied code=owner_mismatch .*topic=run:b:events/);
});

test("a shared topic shows each tenant its own, and an application topic what belongs to nobody", async (t) => {
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

test("what is no token is refused with its reason, the operator key among it", async (t) => {
  const operator = await tenants(t);
  assert.deepEqual(await refusal(operator, "run:a:events", operator.key), [401, "invalid_token"]);
  assert.deepEqual(await refusal(operator, "run:a:events", ""), [401, "missing_authorization"]);
  const token = await operator.token();
  assert.deepEqual(await refusal(operator, "run:a:events", `${token.slice(0, -4)}AAAA`), [401, "invalid_token"]);
  const asToken = await operator.ask("GET", `/internal/v1/khala/topics/run:a:events/messages?token=${operator.key}`);
  assert.equal(asToken.status, 200, "in its own header the key is the operator's, whatever the address says");
});

test("a page of another origin is refused", async (t) => {
  const operator = await tenants(t, { RUNTIME_KHALA_ALLOWED_ORIGINS: "https://app.example" });
  const token = await operator.token();
  const stream = await follow(operator, "run:a:events", token, { origin: "https://app.example" });
  assert.equal(stream.status, 200);
  stream.close();
  assert.deepEqual(await refusal(operator, "run:a:events", token, { origin: "https://evil.example" }), [403, "origin_not_allowed"]);
});

test("a session revoked in the store stays revoked after a restart", async (t) => {
  const operator = await tenants(t);
  const token = await operator.token({ session_id: "stolen", scopes: ["runtime.read_all"] });
  await operator.server.stop();
  const { execFileSync } = await import("node:child_process");
  execFileSync("sqlite3", [`${operator.data}/khala.db`,
    "INSERT INTO sync_revocations VALUES (0, 'stolen', 'test', 0, 9000000000000000)"]);
  assert.equal(sql(operator.data, "SELECT count(*) FROM sync_revocations"), "1");
  const again = await operate(t, { data: operator.data });
  assert.deepEqual(await refusal(again, "run:a:events", token), [401, "token_revoked"]);
});
