// Events that users append in their own transactions on PostgreSQL, with real sessions of psql.
import assert from "node:assert/strict";
import { test } from "../../lib/cases.mjs";
import { folder, run } from "../../lib/khala.mjs";
import { operate } from "../../lib/operator.mjs";
import { newDatabase, psql } from "../../lib/database.mjs";
import { PsqlSession } from "../../lib/psql_session.mjs";
import { seeded } from "../../lib/seeded.mjs";
import { until } from "../../lib/wait.mjs";

const SEED = Number(process.env.KHALA_CHAOS_SEED ?? Date.now() % 1_000_000);
const KILLS = 4;
const PRODUCERS = 4;
const say = (topic, number) => `SELECT runtime.append_event('${topic}', 'said', '{"number": ${number}}')`;

/** The numbers in the events of a topic, in the order of the log. */
const numbersOf = (session, topic) => session.run(`SELECT coalesce(string_agg(e.payload::json->>'number', ' ' ORDER BY e.log_id), '')
  FROM runtime.events e JOIN runtime.entities n ON n.ref = e.entity_ref WHERE n.id = '${topic}'`);

/** Waits until a query answers that text. */
async function answers(session, query, text) {
  let last;
  await until(async () => (last = await session.run(query)) === text, `${query} answers ${text}`)
    .catch((error) => { throw new Error(`${error.message}; last: ${last}`); });
}

const outboxEmpties = (session) => answers(session, "SELECT count(*) FROM runtime.outbox", "0");

async function commitOrder(t, url) {
  const [open, first, second] = [1, 2, 3].map(() => new PsqlSession(t, url));
  await open.run("BEGIN", say("order", 0));
  await first.run("BEGIN", say("order", 1));
  await second.run("BEGIN", say("order", 2), say("order", 3));
  await second.run("COMMIT");
  await until(async () => await numbersOf(second, "order") === "2 3", "the transaction that committed first");
  await first.run("COMMIT");
  await until(async () => await numbersOf(second, "order") === "2 3 1", "the row with the lower id");
  await second.run("BEGIN", say("order", 4), "SAVEPOINT here", say("order", 5), "ROLLBACK TO here", "COMMIT");
  await second.run("BEGIN", say("order", 6), "ROLLBACK");
  await second.run(say("order", 7));
  await until(async () => await numbersOf(second, "order") === "2 3 1 4 7", "the rows of an open transaction delay no others");
  await open.run("COMMIT");
  await until(async () => await numbersOf(second, "order") === "2 3 1 4 7 0", "the transaction that stayed open");
}

async function manyRows(session) {
  const count = 3000;
  await session.run(`SELECT count(runtime.append_event('many', 'said', jsonb_build_object('number', n))) FROM generate_series(1, ${count}) n`);
  const expected = Array.from({ length: count }, (_, index) => index + 1).join(" ");
  await until(async () => await numbersOf(session, "many") === expected, "all rows in their order, above the publish rate");
}

/** A payload of JSON null is an absent one, by SQL as over HTTP. */
async function nullPayloads(operator, session) {
  await operator.did("topics/nothing/events", { event_type: "said", payload: null });
  for (const payload of ["", ", NULL", ", 'null'"]) await session.run(`SELECT runtime.append_event('nothing', 'said'${payload})`);
  await answers(session, `SELECT string_agg(e.payload, ' ') FROM runtime.events e
    JOIN runtime.entities n ON n.ref = e.entity_ref WHERE n.id = 'nothing'`, "{} {} {} {}");
}

async function refusals(session) {
  const bad = [
    ["append_event('', 'said')", "KH400", /^invalid_topic: /],
    [`append_event(repeat('x', 513), 'said')`, "KH400", /^invalid_topic: /],
    ["append_event('a*', 'said')", "KH400", /^invalid_topic: /],
    ["append_event(NULL, 'said')", "KH400", /^invalid_topic: /],
    ["append_event(E'a\\x01', 'said')", "KH400", /^invalid_topic: /],
    ["append_event('run:r:events', 'said')", "KH403", /^projection_owned_topic: /],
    ["append_event('runtime.notifications', 'said')", "KH403", /^projection_owned_topic: /],
    ["append_event('room', ' said')", "KH400", /^invalid_request: event_type/],
    ["append_event('room', NULL)", "KH400", /^invalid_request: event_type/],
    ["append_event('room', repeat('x', 129))", "KH400", /^invalid_request: event_type/],
    ["append_event('room', 'said', '[]')", "KH400", /^invalid_request: payload/],
    ["append_event('room', 'said', jsonb_build_object('a', repeat('x', 65536)))", "KH413", /^khala_frame_payload_too_large: /],
    [`append_event('room', 'said', (repeat('{"a":', 128) || '1' || repeat('}', 128))::jsonb)`, "KH400", /^json_too_deep: /],
    [`append_event('room', 'said', '{"a":"\\u0000"}')`, "22P05", /unsupported Unicode/],
    [`append_event('room', 'said', '{"a":"\\ud800"}')`, "22P02", /json/],
    ["append_event('room', 'said', '{}', '9b2c1f0e-0000-4000-8000-000000000001')", "KH400", /^invalid_request: event_id/],
    ["append_event('room', 'said', '{}', NULL, '')", "KH400", /^invalid_request: idempotency_key/],
    ["append_event('room', 'said', owner_user_id => 'a', owner_guest_scope => 'b')", "KH400", /exclude each other/],
    ["append_run_event('', 'step')", "KH400", /^invalid_request: run_id/],
    ["append_run_event('r', 'run.finished', '{}')", "KH400", /^invalid_request: payload/],
    ["append_worker_event('w', 'step')", "KH400", /^invalid_request: event_type/],
    ["append_worker_event('w', 'worker.heartbeat')", "KH400", /is reserved/],
  ];
  for (const [call, state, message] of bad) {
    const refused = await session.ask(`SELECT runtime.${call}`);
    assert.equal(refused.state, state, `${call}: ${refused.message}`);
    assert.match(refused.message, message, call);
  }
  const full = await session.ask(`SELECT runtime.append_event('full', 'said', jsonb_build_object('a', repeat('x', 32761), 'b', repeat('y', 32760)))`);
  assert.equal(full.state, "00000", `65 536 bytes without the spaces of jsonb: ${full.message}`);
}

/** All functions, answers by event id, and rows that only the writer can refuse. */
async function writerRefusals(operator, session) {
  const created = await operator.post("runs", { run_id: "r1", owner_user_id: "u1" });
  assert.equal(created.status, 201, created.body);
  assert.equal((await operator.post("workers", { worker_id: "w1", owner_user_id: "u1" })).status, 201);
  const event_id = await session.run(`SELECT runtime.append_run_event('r1', 'step', '{"b":1,"a":[2]}', owner_user_id => 'u1')`);
  assert.match(event_id, /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
  const stored = () => session.run(`SELECT payload, seq FROM runtime.events WHERE event_id = '${event_id}'`);
  await until(async () => await stored() === `{"a":[2],"b":1}|2`, "the event has the id that the function returned");
  await session.run(
    `SELECT runtime.append_run_event('r1', 'step', '{"a":[2],"b":1}', '${event_id}')`, // the same again
    `SELECT runtime.append_worker_event('w1', 'worker.said', '{"n":1}')`,
    `SELECT runtime.append_notification('{"n":1}', owner_user_id => 'u1')`,
    `SELECT runtime.append_run_event('r1', 'run.finished', '{"status":"cancelled"}')`,
    `SELECT runtime.append_run_event('r1', 'run.started')`,
    `SELECT runtime.append_run_event('r1', 'step', '{"a":3}', '${event_id}')`,
    "SELECT runtime.append_run_event('absent', 'step')",
    "SELECT runtime.append_run_event('r1', 'step', owner_user_id => 'u2')",
    "SELECT runtime.append_event('room', 'said', '{}', NULL, 'once')",
    "SELECT runtime.append_event('room', 'said', '{}', NULL, 'once')",
    ...["u1", "u2", "u1"].map((owner) => `SELECT runtime.append_notification('{"n":2}', idempotency_key => 'once', owner_user_id => '${owner}')`),
  );
  await outboxEmpties(session);
  assert.equal(await session.run("SELECT string_agg(target || ' ' || reason, ', ' ORDER BY id) FROM runtime.outbox_rejected"),
    "r1 invalid_transition, r1 event_id_conflict, absent run_not_found, r1 owner_mismatch");
  assert.equal(await session.run(`SELECT string_agg(n.id || ' ' || e.type, ', ' ORDER BY e.log_id) FROM runtime.events e
    JOIN runtime.entities n ON n.ref = e.entity_ref WHERE n.id IN ('r1', 'w1', 'runtime.notifications', 'room') AND e.seq > 1 OR n.id IN ('room', 'runtime.notifications')`),
  "r1 step, w1 worker.said, runtime.notifications notification, r1 run.finished, room said, runtime.notifications notification, runtime.notifications notification");
  // A key belongs to the owner, by SQL as over HTTP.
  for (const [owner, n, status] of [["u2", 2, 200], ["u2", 3, 409], ["u3", 3, 200]]) {
    const { status: answered, body } = await operator.post("notifications", { owner_user_id: owner, payload: { n }, idempotency_key: "once" });
    assert.equal(answered, status, body);
  }
}

/** Rows of a role that may write the table itself: nothing in them was checked. */
async function hostileRows(session) {
  const before = Number(await session.run("SELECT count(*) FROM runtime.outbox_rejected"));
  const rows = [
    "('', NULL, NULL, NULL, NULL, now())",
    "('audit', 'x', 'said', '{}', NULL, now())",
    "('topic', NULL, 'said', '{}', NULL, '-infinity')",
    `('topic', 'room', 'said', '{}, "event_type":"other"', NULL, 'infinity')`,
    "('topic', 'room', 'said', '{', NULL, '4713-01-01 BC')",
    `('topic', 'room', 'said', '{"a":1,"a":2}', NULL, '294000-01-01')`,
    `('topic', 'room', 'said', '{"a":1e999}', NULL, now())`,
    "('topic', 'runtime.run_summaries', 'said', '{}', NULL, now())",
    "('topic', E'a\\x01', 'said', '{}', NULL, now())",
    "('topic', 'room', 'said', '{}', '9b2c1f0e-0000-4000-8000-000000000001', now())",
    "('topic', 'room', 'said', repeat('x', 5000000), NULL, now())",
    "('topic', repeat('x', 5000000), 'said', '{}', NULL, now())",
    `('topic', 'room', 'said', repeat('[', 100000), NULL, now())`,
    `('run', 'r1', repeat('é', 100000), '{}', NULL, now())`,
  ];
  await session.run(`INSERT INTO runtime.outbox (kind, target, event_type, payload, event_id, inserted_at) VALUES ${rows.join(", ")}`);
  await session.run(`INSERT INTO runtime.outbox (id, kind, target, event_type, payload) OVERRIDING SYSTEM VALUE
    VALUES (-5, 'topic', 'negative', 'said', '{"number":5}'), (9223372036854775807, 'topic', 'negative', 'said', '{"number":6}')`);
  await outboxEmpties(session);
  assert.equal(await numbersOf(session, "negative"), "5 6");
  assert.equal(Number(await session.run("SELECT count(*) FROM runtime.outbox_rejected")), before + rows.length);
  assert.equal(await session.run("SELECT max(octet_length(payload)) < 1048577 AND max(octet_length(target)) < 1025 FROM runtime.outbox_rejected"), "t");
}

async function rights(t, url, session) {
  const name = `outbox_${process.pid}`;
  await session.run(`CREATE ROLE ${name} LOGIN IN ROLE khala_producer`);
  const producer = new PsqlSession(t, url.replace("khala@", `${name}@`));
  try {
    await producer.run("BEGIN", say("rights", 1), say("rights", 2), "COMMIT");
    await until(async () => await numbersOf(session, "rights") === "1 2", "the producer's events");
    for (const statement of ["SELECT * FROM runtime.outbox", "INSERT INTO runtime.outbox (kind) VALUES ('topic')",
      "SELECT * FROM runtime.events", "SELECT * FROM runtime.secrets", "DELETE FROM runtime.outbox_rejected", "SELECT * FROM runtime.meta",
      "SELECT runtime.find_cursor(gen_random_uuid())", "SELECT runtime.grant_producer('public')",
      "SELECT runtime.outbox_add('audit', 'a', 'b', '{}', NULL, NULL, NULL, NULL, NULL)",
      "CREATE TABLE runtime.mine (a int)", "UPDATE runtime.outbox_limits SET max_payload_bytes = 1000000"])
      assert.equal((await producer.ask(statement)).state, "42501", statement);
  } finally {
    await session.run(`DROP ROLE ${name}`);
  }
  await session.run("SET ROLE pg_read_all_settings");
  assert.equal((await session.ask(say("rights", 3))).state, "42501", "PUBLIC may not call the functions");
  await session.run("RESET ROLE");
}

/** A row that another session has locked waits, and delays no append by HTTP. */
async function lockedRow(t, operator, url) {
  const [holder, session] = [1, 2].map(() => new PsqlSession(t, url));
  operator.server.kill("SIGSTOP");
  await session.run(say("locked", 1));
  await holder.run("BEGIN", "SELECT id FROM runtime.outbox FOR UPDATE");
  operator.server.kill("SIGCONT");
  for (let number = 2; number < 5; number++)
    await until(async () => (await operator.post("topics/locked/events", { event_type: "said", payload: { number } })).status === 200, "an append by HTTP");
  await holder.run("ROLLBACK");
  await until(async () => await numbersOf(session, "locked") === "2 3 4 1", "the row that was locked");
}

async function shown(operator, url, data) {
  let metrics;
  await until(async () => {
    metrics = (await operator.get("/metrics")).body;
    return /^khala_outbox_waiting_rows 0$/m.test(metrics);
  }, "the writer finds the outbox empty");
  assert.match(metrics, /^khala_outbox_rejected_total\{status="invalid_transition"\} 1$/m);
  assert.match(metrics, /^khala_outbox_oldest_age_seconds 0\.0+$/m);
  assert.match(metrics, /^khala_outbox_rows_total [1-9]\d{3,}$/m);
  const examined = run(["doctor", "--json"], { settings: { DB_URL: url, KHALA_DATA_DIR: data } });
  assert.match(examined.out, /"outbox".*events appended by SQL were rejected; the latest: /);
  const verified = run(["verify"], { settings: { DB_URL: url, KHALA_DATA_DIR: data } });
  assert.equal(verified.code, 0, verified.problem);
}

test("users append in their own transactions", async (t) => {
  const url = newDatabase();
  const data = folder(t);
  const operator = await operate(t, { data, settings: {
    DB_URL: url, KHALA_OUTBOX_POLL_MS: "5", RUNTIME_KHALA_FALLBACK_PUBLISH_RATE_PER_SECOND: "90" } });
  const session = new PsqlSession(t, url);
  await t.test("rows arrive whatever the order of commits, and those rolled back do not", () => commitOrder(t, url));
  await t.test("more rows than one batch takes arrive in their order", () => manyRows(session));
  await t.test("a payload of null is an absent one", () => nullPayloads(operator, session));
  await t.test("bad input fails the user's statement", () => refusals(session));
  await t.test("rows that only the writer can refuse are kept aside", () => writerRefusals(operator, session));
  await t.test("rows that were inserted directly are checked again", () => hostileRows(session));
  await t.test("a producer may call the functions and nothing else", () => rights(t, url, session));
  await t.test("a row that another session has locked delays no append by HTTP", () => lockedRow(t, operator, url));
  await t.test("metrics and doctor show what was rejected", () => shown(operator, url, data));
});

/** Transactions of one producer until it is told to end. Answers the numbers that were committed. */
async function produce(session, producer, { below }, isOver) {
  const committed = [];
  for (let number = producer; !isOver();) {
    const numbers = [];
    await session.run("BEGIN");
    for (let count = 1 + below(3); count > 0; count--, number += PRODUCERS) {
      await session.run(say(`topic-${number % 3}`, number));
      numbers.push(number);
    }
    const isKept = below(4) > 0;
    await session.run(isKept ? "COMMIT" : "ROLLBACK");
    if (isKept) committed.push(...numbers);
  }
  return committed;
}

test("a server that is killed loses no committed row and sequences none twice", async (t) => {
  const url = newDatabase();
  const data = folder(t);
  const settings = { DB_URL: url, KHALA_OUTBOX_POLL_MS: "1" };
  const dice = seeded(SEED);
  let operator = await operate(t, { data, settings });
  let isOver = false;
  const producing = Array.from({ length: PRODUCERS }, (_, producer) =>
    produce(new PsqlSession(t, url), producer, dice, () => isOver));
  const session = new PsqlSession(t, url);
  const count = async () => Number(await session.run("SELECT count(*) FROM runtime.events"));
  for (let kill = 0; kill < KILLS; kill++) {
    const target = await count() + 5 + dice.below(40);
    await until(async () => await count() >= target, `${target} events`);
    await operator.server.crash();
    operator = await operate(t, { data, settings });
  }
  isOver = true;
  const committed = (await Promise.all(producing)).flat().sort((a, b) => a - b);
  await outboxEmpties(session);
  const stored = await session.run("SELECT string_agg(payload::json->>'number', ' ' ORDER BY (payload::json->>'number')::int) FROM runtime.events");
  assert.equal(stored, committed.join(" "), `seed ${SEED}`);
  assert.equal(psql(url, "SELECT count(*) FROM outbox_rejected"), "0");
  assert.equal(run(["verify"], { settings: { ...settings, KHALA_DATA_DIR: data } }).code, 0);
});
