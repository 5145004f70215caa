// Operator keys and the record of operators on several nodes, and events appended by SQL.
import assert from "node:assert/strict";
import { test } from "node:test";
import { join } from "../../lib/cluster.mjs";
import { newDatabase, psql } from "../../lib/database.mjs";
import { openWith, REFUSE_REVOCATIONS, REVOKED } from "../../lib/key_connections.mjs";
import { textOf } from "../../lib/operator.mjs";
import { until, within } from "../../lib/wait.mjs";

/** The bound of a revocation on other nodes. */
const BOUND_MS = 5000;

const bearer = (key) => ({ authorization: `Bearer ${key}` });

async function cluster(t, settings = {}) {
  const url = newDatabase();
  const nodes = [];
  for (let i = 0; i < 3; i++) nodes.push(await join(t, url, settings));
  return { url, nodes };
}

const may = async (node, key) => (await node.ask("GET", "runs", undefined, bearer(key))).status === 200;

const types = async (node) => (await node.log()).map(({ event_type }) => event_type).filter((type) => type.startsWith("operator."));

test("a key that any node adds, rotates or removes is known on every node within the bound", async (t) => {
  const { nodes } = await cluster(t);
  const [writer, first, second] = nodes;
  const { key } = await first.did("keys", { name: "reader", role: "read" }, 201);
  for (const node of nodes) await until(() => may(node, key), "the key on every node", BOUND_MS);
  const { request, answer } = second.begin("GET", "/events", bearer(key));
  request.end();
  const open = textOf(await answer).catch(() => "");
  const { key: rotated } = await second.did("keys/reader/rotate", { overlap_seconds: 60 });
  for (const node of nodes) await until(() => may(node, rotated), "the new key on every node", BOUND_MS);
  for (const node of nodes) assert.equal(await may(node, key), true, "the old key is valid beside it");
  const { nodes_unconfirmed } = JSON.parse((await writer.ask("DELETE", "keys/reader")).body);
  assert.equal(nodes_unconfirmed, 0);
  for (const node of nodes) assert.deepEqual([await may(node, key), await may(node, rotated)], [false, false], "when the answer is there");
  await within(open, "the end of the stream on another node", BOUND_MS);
  assert.deepEqual(await types(writer), ["operator.key_added", "operator.key_rotated", "operator.key_removed"]);
});

test("what a key has open on any node ends with the key, also where its revocation cannot be stored", async (t) => {
  const { url, nodes } = await cluster(t);
  const [writer] = nodes;
  await writer.did("topics/room:1/events", { event_type: "said", payload: {} });
  const openOnAll = async (name) => {
    const { key } = await writer.did("keys", { name, role: "admin" }, 201);
    for (const node of nodes) await until(() => may(node, key), "the key on every node", BOUND_MS);
    return Promise.all(nodes.map((node) => openWith(node, key)));
  };
  const rotated = await openOnAll("rotated");
  await writer.did("keys/rotated/rotate", { overlap_seconds: 1 });
  for (const ended of rotated) assert.deepEqual(await within(ended(), "the end after the overlap", 1000 + BOUND_MS), REVOKED);
  const removed = await openOnAll("removed");
  assert.equal((await writer.ask("DELETE", "keys/removed")).status, 200);
  for (const ended of removed) assert.deepEqual(await within(ended(), "the end after the removal", BOUND_MS), REVOKED);
  const unrevoked = [await openOnAll("unrevoked-1"), await openOnAll("unrevoked-2")];
  psql(url, REFUSE_REVOCATIONS);
  assert.ok((await writer.ask("DELETE", "keys/unrevoked-1")).status >= 500);
  assert.ok((await writer.post("keys/unrevoked-2/rotate", { overlap_seconds: 0 })).status >= 500);
  for (const ended of unrevoked.flat()) assert.deepEqual(await within(ended(), "the end of a key without a revocation", BOUND_MS), REVOKED);
});

test("a mint on a follower is forwarded and recorded, and without a writer it is 503", async (t) => {
  const { nodes } = await cluster(t);
  const [writer, follower] = nodes;
  const { key } = await writer.did("keys", { name: "mint", role: "mint" }, 201);
  const mint = () => follower.ask("POST", "/api/sync/token", JSON.stringify({ user_id: "u" }), bearer(key));
  await until(async () => (await mint()).status === 200, "a mint with the key on the follower", BOUND_MS);
  const minted = (await follower.log()).filter(({ event_type }) => event_type === "operator.token_minted");
  assert.deepEqual([minted.length, minted[0].payload.by], [1, { key: "mint", role: "mint" }]);
  const before = (await follower.log()).length;
  writer.server.crash();
  const answers = [];
  await until(async () => {
    const answer = await mint();
    answers.push(answer);
    return answer.status === 200;
  }, "a mint after the takeover");
  for (const { status, headers, body } of answers.slice(0, -1)) {
    assert.ok([502, 503].includes(status), body);
    if (status === 503 && JSON.parse(body).error === "not_writer") assert.ok(headers["retry-after"], body);
  }
  assert.ok((await follower.log()).length > before);
});

test("a revocation on a node that is not the writer is recorded by the writer", async (t) => {
  const { url, nodes } = await cluster(t);
  const [writer, follower] = nodes;
  const { key } = await writer.did("keys", { name: "admin-2", role: "admin" }, 201);
  await until(() => may(follower, key), "the key on the follower", BOUND_MS);
  assert.equal((await follower.ask("POST", "sync/sessions/revoke", `{"jtis":["j1"]}`, bearer(key))).status, 200);
  await until(async () => (await types(follower)).includes("operator.token_revoked"), "the record of the revocation");
  const [{ payload }] = (await follower.log()).filter(({ event_type }) => event_type === "operator.token_revoked");
  assert.deepEqual(payload, { by: { key: "admin-2", role: "admin" }, jti: "j1" });
  assert.equal(psql(url, "SELECT count(*) FROM runtime.outbox_rejected"), "0");
});

test("SQL appends no event of a reserved type", async (t) => {
  const url = newDatabase();
  const operator = await join(t, url);
  await operator.did("runs", { run_id: "r" }, 201);
  for (const call of ["append_event('room', 'operator.key_added')", "append_event('room', 'x.erased')", "append_run_event('r', 'run.erased')",
    "append_worker_event('w', 'worker.erased')", "append_notification('{}', 'operator.x')"]) {
    const text = psql(url, `DO $$ BEGIN PERFORM runtime.${call}; EXCEPTION WHEN SQLSTATE 'KH403' THEN RAISE NOTICE 'refused'; RETURN; END $$; SELECT count(*) FROM runtime.outbox`);
    assert.match(text, /0/, call);
  }
  // Rows that go around the functions are refused by the writer, except those of the audit log, which only the owner of the schema can make.
  psql(url, "INSERT INTO runtime.outbox (kind, target, event_type, payload) VALUES ('topic', 'room', 'operator.key_added', '{}')");
  await until(() => psql(url, "SELECT count(*) FROM runtime.outbox_rejected WHERE reason = 'reserved_event_type'") === "1", "the refusal");
  assert.deepEqual(await types(operator), []);
});
