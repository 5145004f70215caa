// Creating runs and workers again with the same event id or idempotency key.
import assert from "node:assert/strict";
import { test } from "node:test";
import { folder } from "../../lib/khala.mjs";
import { operate } from "../../lib/operator.mjs";
import { sql } from "../../lib/store.mjs";

const ID = (n) => `018f3b7e-1000-7000-8000-00000000000${n}`;
const KINDS = [
  { kind: "run", body: { owner_user_id: "ada", org_id: "o", thread_id: "t", metadata: { a: 1 } }, other: { thread_id: "u" } },
  { kind: "worker", body: { owner_user_id: "ada", org_id: "o", workspace_ref: "x", metadata: { a: 1 } }, other: { workspace_ref: "y" } },
];
const count = (data) => Number(sql(data, "SELECT count(*) FROM events"));

/** Checks that a creation is refused with this code and stores nothing. */
async function refused(operator, kind, body, code) {
  const before = count(operator.data);
  const { status, body: text } = await operator.post(`${kind}s`, body);
  assert.deepEqual([status, JSON.parse(text).error], [409, code], JSON.stringify(body));
  assert.equal(count(operator.data), before);
}

test("a repeated creation answers with the first run or worker, also after a restart", async (t) => {
  const data = folder(t);
  let operator = await operate(t, { data });
  const made = [];
  for (const { kind, body, other } of KINDS) {
    for (const [repeat, code] of [[{ event_id: ID(kind.length) }, "event_id_conflict"], [{ idempotency_key: "k \"1\"" }, "idempotency_key_conflict"]]) {
      const first = await operator.did(`${kind}s`, { ...body, ...repeat }, 201);
      assert.equal(first.deduplicated, false);
      if (repeat.event_id) assert.equal(first.event.event_id, repeat.event_id);
      const before = count(data);
      const id = first[kind][`${kind}_id`];
      for (const given of [{}, { [`${kind}_id`]: id }]) {
        const again = await operator.did(`${kind}s`, { ...body, ...repeat, ...given }, 200);
        assert.equal(again.deduplicated, true);
        assert.deepEqual([again.event, again[kind][`${kind}_id`]], [first.event, id]);
      }
      assert.equal(count(data), before);
      for (const change of [other, { metadata: { a: 2 } }, { [`${kind}_id`]: "another" }])
        await refused(operator, kind, { ...body, ...repeat, ...change }, code);
      made.push({ kind, body: { ...body, ...repeat }, first, id, code, other });
    }
  }
  // An event id belongs to one event of the whole log; a key belongs to a kind and an owner.
  await refused(operator, "run", { ...KINDS[0].body, event_id: ID(6) }, "event_id_conflict");
  await refused(operator, "worker", { ...KINDS[1].body, owner_user_id: "eve", event_id: ID(6) }, "event_id_conflict");
  for (const owner of [{ owner_user_id: "eve" }, { org_id: null }, { owner_user_id: null, owner_guest_scope: "ada" }])
    assert.equal((await operator.did("runs", { ...KINDS[0].body, idempotency_key: "k \"1\"", ...owner }, 201)).deduplicated, false);
  await operator.server.stop();
  operator = await operate(t, { data });
  for (const { kind, body, first, id, code, other } of made) {
    // The entity is answered as it is now.
    await operator.did(kind === "run" ? `runs/${id}/events` : `workers/${id}/heartbeat`, { event_type: "run.log" });
    const again = await operator.did(`${kind}s`, body, 200);
    assert.deepEqual([again.event, again.deduplicated, again[kind].latest_seq], [first.event, true, 2]);
    await refused(operator, kind, { ...body, ...other }, code);
  }
});

test("creations that arrive together with one key create one run", async (t) => {
  const operator = await operate(t);
  const answers = await Promise.all(Array.from({ length: 16 }, (_, i) => operator.post("runs",
    { owner_user_id: "ada", ...(i % 2 ? { idempotency_key: "k" } : { event_id: ID(1) }) })));
  for (const odd of [0, 1]) {
    const same = answers.filter((_, i) => i % 2 === odd);
    assert.deepEqual(same.map(({ status }) => status).sort(), [...Array(7).fill(200), 201]);
    assert.equal(new Set(same.map(({ body }) => JSON.parse(body).run.run_id)).size, 1);
  }
  assert.equal(count(operator.data), 2);
});

test("a repeated registration of a revived worker answers with the revival", async (t) => {
  const operator = await operate(t);
  const owner = { worker_id: "w", owner_user_id: "ada" };
  await operator.did("workers", { ...owner, metadata: { a: 1 } }, 201);
  await operator.did("workers/w/status", { status: "failed" });
  const body = { ...owner, adapter: "other", idempotency_key: "again" };
  const revived = await operator.did("workers", body, 200);
  assert.deepEqual([revived.event.seq, revived.deduplicated], [3, false]);
  await operator.did("workers/w/status", { status: "failed" });
  const again = await operator.did("workers", body, 200);
  assert.deepEqual([again.event, again.deduplicated, again.worker.status], [revived.event, true, "failed"]);
  await refused(operator, "worker", { ...body, adapter: "third" }, "idempotency_key_conflict");
});

test("a creation takes the longest idempotency key and the longest names", async (t) => {
  const operator = await operate(t);
  const owner = { owner_user_id: `"${"\\".repeat(250)}` , org_id: "\u00e9".repeat(128) };
  const keys = ["k".repeat(256), `${"k".repeat(255)}l`, "\"".repeat(256), "\\".repeat(255)];
  for (const { kind } of KINDS) {
    for (const idempotency_key of keys) {
      const body = { ...owner, idempotency_key };
      const first = await operator.did(`${kind}s`, body, 201);
      assert.deepEqual((await operator.did(`${kind}s`, body)).event, first.event, "the same key answers with the same event");
      assert.equal((await operator.did(`${kind}s`, { ...body, org_id: "o" }, 201)).deduplicated, false);
      await refused(operator, kind, { ...body, metadata: { other: true } }, "idempotency_key_conflict");
    }
  }
});
