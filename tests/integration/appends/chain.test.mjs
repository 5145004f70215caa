// The hash chain of the log: links of both versions, the owner in them, and "the same content".
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { test } from "node:test";
import { folder, run } from "../../lib/khala.mjs";
import { operate } from "../../lib/operator.mjs";
import { sqliteOnly } from "../../lib/database.mjs";
import { alter, sqlRows } from "../../lib/store.mjs";

const ZERO = Buffer.alloc(32);
const digest = (text, before = Buffer.alloc(0)) => createHash("sha256").update(before).update(text).digest();
const tagged = (bytes) => `sha256:${bytes.toString("hex")}`;
const lines = (text) => text.trimEnd().split("\n").map((line) => JSON.parse(line));
const exported = async (operator) => lines((await operator.get("/api/events/export")).body).slice(0, -1);
const verify = (data) => run(["verify", "--data-dir", data, "--json"]);

/** The canonical JSON of an event's link, by the protocol. */
function linkOf(event) {
  const { cursor, entity, entity_id, event_id, event_type, owner, payload_hash, recorded_at, seq } = event;
  if (event.chain_version === 1)
    return JSON.stringify({ cursor, entity: `${entity}:${entity_id}`, event_id, payload_hash, seq, type: event_type });
  const { guest_scope = null, org_id = null, user_id = null } = owner;
  return JSON.stringify({ chain_version: 2, cursor, entity, entity_id, event_id, event_type,
    owner: { guest_scope, org_id, user_id }, payload_hash, recorded_at, seq });
}

/** Recomputes all chains of a log. */
function assertChains(events) {
  const heads = new Map();
  for (const event of events) {
    const key = `${event.entity}:${event.entity_id}`;
    const before = heads.get(key) ?? ZERO;
    assert.equal(event.prev_chain_hash, tagged(before), key);
    const link = digest(linkOf(event), before);
    assert.equal(event.chain_hash, tagged(link), JSON.stringify(event));
    heads.set(key, link);
  }
}

/** Appends events of every kind of entity, with every kind of owner. */
async function fill(operator, suffix) {
  await operator.did("runs", { run_id: `r${suffix}`, owner_user_id: "ada", org_id: "o \"1\"" }, 201);
  await operator.did(`runs/r${suffix}/events`, { event_type: "run.log", payload: { n: 1 } });
  await operator.did("runs", { run_id: `ownerless${suffix}` }, 201);
  await operator.did("workers", { worker_id: `w${suffix}`, owner_guest_scope: "gäst" }, 201);
  await operator.did(`workers/w${suffix}/heartbeat`, { metadata_patch: { a: 1 } });
  await operator.did("topics/app.t/events", { event_type: "x", owner_user_id: "ada" });
  await operator.did("notifications", { org_id: "o1" });
  await operator.did("/api/events/ingest", { event_type: "login" });
}

test("every event names its owner and its link, which covers the owner", async (t) => {
  const operator = await operate(t);
  await fill(operator, 1);
  const events = await exported(operator);
  assert.deepEqual(Object.keys(events[0]), ["event_id", "cursor", "entity", "entity_id", "seq", "event_type", "payload",
    "payload_hash", "owner", "recorded_at", "prev_chain_hash", "chain_hash"]);
  assert.deepEqual(events.map(({ owner }) => owner), [{ user_id: "ada", org_id: "o \"1\"" }, { user_id: "ada", org_id: "o \"1\"" },
    {}, { guest_scope: "gäst" }, { guest_scope: "gäst" }, { user_id: "ada" }, { org_id: "o1" }, {}]);
  for (const { payload, payload_hash } of events) assert.equal(payload_hash, tagged(digest(JSON.stringify(payload))));
  assertChains(events);
  // Every way to read an event answers the same.
  assert.deepEqual(await operator.events("r1"), events.filter(({ entity_id }) => entity_id === "r1"));
  assert.deepEqual(JSON.parse((await operator.get("/api/events?limit=200")).body).items, events);
  const again = await operator.did("topics/app.t/events",
    { event_type: "x", owner_user_id: "ada", event_id: "018f3b7e-1000-7000-8000-000000000001" });
  assert.deepEqual((await exported(operator)).at(-1), again.event);
});

test("another owner is another content for an event id, and has keys of its own", async (t) => {
  const operator = await operate(t);
  const event_id = "018f3b7e-1000-7000-8000-000000000001";
  const owners = [{ owner_user_id: "eve" }, { owner_user_id: null }, { org_id: "o" }, { owner_user_id: null, owner_guest_scope: "ada" }];
  const asked = { event_type: "x", payload: { a: 1 }, owner_user_id: "ada" };
  for (const repeat of [{ event_id }, { idempotency_key: "k" }]) {
    const { event } = await operator.did("topics/app.t/events", { ...asked, ...repeat });
    assert.deepEqual(await operator.did("topics/app.t/events", { ...asked, ...repeat }), { event, deduplicated: true });
  }
  for (const other of owners) {
    const { status, body } = await operator.post("topics/app.t/events", { ...asked, event_id, ...other });
    assert.deepEqual([status, JSON.parse(body).error], [409, "event_id_conflict"], JSON.stringify(other));
    for (const deduplicated of [false, true])
      assert.equal((await operator.did("topics/app.t/events", { ...asked, idempotency_key: "k", ...other })).deduplicated, deduplicated);
  }
  assert.equal((await exported(operator)).length, 2 + owners.length);
  // A producer's key is its own whatever owner its events have: the owner is part of the content.
  const authorization = `Bearer ${operator.sign({ oa_user_id: "ada", oa_sync_scopes: ["runtime.append"], oa_sync_topics: ["app.t"] })}`;
  const { status, body } = await operator.ask("POST", "/v1/topics/app.t/events", JSON.stringify({ event_type: "x", payload: { a: 1 }, idempotency_key: "k" }), { authorization });
  assert.deepEqual([status, JSON.parse(body).error], [409, "idempotency_key_conflict"]);
});

test("the owner of a worker stays the same when it is registered again", async (t) => {
  const operator = await operate(t);
  await operator.did("workers", { worker_id: "w", owner_user_id: "ada" }, 201);
  await operator.did("workers/w/status", { status: "failed" });
  const { status, body } = await operator.post("workers", { worker_id: "w", owner_user_id: "ada", org_id: "o" });
  assert.deepEqual([status, JSON.parse(body).error], [403, "owner_mismatch"]);
  await operator.did("workers", { worker_id: "w", owner_user_id: "ada" }, 200);
  assertChains(await exported(operator));
});

/** Gives the events of a store the links that version 1 had; khala migrate leaves such rows. */
function makeOld(data) {
  const rows = sqlRows(data, `SELECT log_id, hex(cursor) AS cursor, hex(event_id) AS event_id, kind, id, seq, type,
    lower(hex(payload_hash)) AS payload_hash FROM events JOIN entities ON ref = entity_ref ORDER BY log_id`);
  const heads = new Map();
  const uuid = (hex) => hex.toLowerCase().replace(/(.{8})(.{4})(.{4})(.{4})/, "$1-$2-$3-$4-");
  const updates = rows.map((row) => {
    const entity = `${["run", "worker", "topic", "audit"][row.kind]}:${row.id}`;
    const cursor = uuid(row.cursor);
    const time = parseInt(row.cursor.slice(0, 12), 16);
    const link = JSON.stringify({ cursor: Buffer.from(`${time}:${cursor}`).toString("base64url"), entity,
      event_id: row.event_id ? uuid(row.event_id) : cursor, payload_hash: `sha256:${row.payload_hash}`, seq: row.seq, type: row.type });
    const before = heads.get(entity) ?? ZERO;
    const hash = digest(link, before);
    heads.set(entity, hash);
    return `UPDATE events SET prev_chain_hash = x'${before.toString("hex")}', chain_hash = x'${hash.toString("hex")}' WHERE log_id = ${row.log_id};`;
  });
  alter(data, `${updates.join("\n")} UPDATE events SET chain_version = 1;`);
}

test("links of version 2 follow links of version 1, and verify checks both", sqliteOnly, async (t) => {
  const data = folder(t);
  let operator = await operate(t, { data });
  await fill(operator, 1);
  const before = await exported(operator);
  await operator.server.stop();
  makeOld(data);
  assert.equal(verify(data).code, 0, verify(data).out);
  operator = await operate(t, { data });
  const old = await exported(operator);
  assert.ok(old.every(({ chain_version }) => chain_version === 1));
  assert.deepEqual(old.map(({ recorded_at, cursor, owner }) => [recorded_at, cursor, owner]),
    before.map(({ cursor, owner }) => [Number(Buffer.from(cursor, "base64url").toString().split(":")[0]), cursor, owner]));
  await operator.did("runs/r1/events", { event_type: "run.log" });
  await fill(operator, 2);
  const events = await exported(operator);
  assert.deepEqual(events.slice(0, old.length), old);
  assert.ok(events.slice(old.length).every(({ chain_version }) => chain_version === undefined));
  assertChains(events);
  await operator.server.stop();
  assert.deepEqual(JSON.parse(verify(data).out).ok, true);
  // Links of version 1 do not cover the owner, those of version 2 do.
  alter(data, "UPDATE entities SET owner_user_id = 'eve' WHERE id = 'r1'");
  const found = verify(data);
  assert.equal(found.code, 1);
  const { broken } = JSON.parse(found.out);
  assert.deepEqual([broken.entity, broken.seq, broken.log_id], ["run:r1", 3, old.length + 1]);
});
