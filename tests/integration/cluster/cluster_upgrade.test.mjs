// Nodes of two releases over one PostgreSQL. The newer one, khala_next, has one schema step more.
import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { dirname, join as path } from "node:path";
import { test } from "../../lib/cases.mjs";
import { appended, join, pair } from "../../lib/cluster.mjs";
import { newDatabase, psql } from "../../lib/database.mjs";
import { binary, environment, folder, start } from "../../lib/khala.mjs";
import { operate } from "../../lib/operator.mjs";
import { Client } from "../../lib/phoenix.mjs";
import { PsqlSession } from "../../lib/psql_session.mjs";
import { until } from "../../lib/wait.mjs";

const NEXT = path(dirname(binary), "khala_next");
const LONG = process.env.KHALA_TEST_LONG ? {} : { skip: "needs KHALA_TEST_LONG=1" };
const HOLDERS = "SELECT count(*) FROM runtime.writer w JOIN pg_stat_activity a ON a.pid = w.backend_pid AND a.backend_start = w.backend_start";
const said = { event_type: "said", payload: {} };

const meta = (url, name) => Number(psql(url, `SELECT value FROM runtime.meta WHERE name = '${name}'`));
const termOf = (url) => Number(psql(url, "SELECT term FROM runtime.writer"));

/** Runs a verb of a program to its end. */
async function ran(t, program, url, ...args) {
  const process = start(t, [program, ...args], { env: environment({ DB_URL: url }), cwd: folder(t) });
  const { code } = await process.end();
  return { code, said: process.out + process.log };
}

/** Waits until every node has written its row several times, so that it could have taken the role. */
async function beaten(url) {
  const now = psql(url, "SELECT clock_timestamp()");
  await until(() => psql(url, `SELECT bool_and(seen_at > '${now}'::timestamptz + interval '1.5 s') FROM runtime.nodes`) === "t", "beats of every node");
}

test("an upgrade: the old nodes give the role up, read and forward, and end when they cannot read the schema", async (t) => {
  const { url, writer, follower } = await pair(t);
  const old = meta(url, "schema_version");
  await appended(writer, "room", said);
  const client = await Client.join(follower);
  await client.subscribe({ topics: ["room"], resume_after: { room: 0 } });
  await client.reached("room", 1);

  const early = await ran(t, NEXT, url, "serve", "--bind", "127.0.0.1:0");
  assert.notEqual(early.code, 0);
  assert.match(early.said, /run 'khala migrate'/);
  const migrated = await ran(t, NEXT, url, "migrate");
  assert.equal(migrated.code, 0, migrated.said);
  assert.equal(meta(url, "schema_version"), old + 1);
  const late = await ran(t, binary, url, "serve", "--bind", "127.0.0.1:0");
  assert.notEqual(late.code, 0);
  assert.match(late.said, /run a newer khala/);

  const term = termOf(url);
  await beaten(url);
  assert.deepEqual([termOf(url), psql(url, HOLDERS)], [term, "0"], "no old node takes the role");
  assert.equal((await writer.poll("room", "after_seq=0")).status, 200);
  assert.equal((await writer.post("/internal/v1/topics/room/events", said)).status, 503);

  const next = await operate(t, { program: NEXT, data: folder(t), settings: { DB_URL: url } });
  for (const node of [next, writer, follower]) await appended(node, "room", said);
  await client.reached("room", 4);
  assert.deepEqual(client.closes, []);
  assert.equal((await writer.get("/healthz/ready")).status, 200);
  assert.equal(termOf(url), term + 1);

  for (const { server } of [writer, follower]) server.crashed = true; // they end by themselves, with an error
  psql(url, `UPDATE runtime.meta SET value = '${old + 1}' WHERE name = 'reader_version'`);
  for (const { server } of [writer, follower]) {
    const { code, signal } = await server.end();
    assert.deepEqual([code > 0, signal], [true, null], server.log);
    assert.match(server.log, /cannot read it: run the newer khala/);
  }
  await until(() => client.closes.length > 0, "the end of the subscription");
  assert.equal(client.closes[0].code, 1012);
  await appended(next, "room", said);
});

test("a migration without a step leaves the running writer alone", async (t) => {
  const url = newDatabase();
  const node = await join(t, url);
  const term = termOf(url);
  const { code, said: text } = await ran(t, binary, url, "migrate");
  assert.deepEqual([code, termOf(url)], [0, term], text);
  await appended(node, "room", said);
});

test("a migration names the session that keeps the role", LONG, async (t) => {
  const url = newDatabase();
  assert.equal((await ran(t, binary, url, "migrate")).code, 0);
  const session = new PsqlSession(t, `${url}?application_name=stubborn`);
  await session.run("BEGIN", "SELECT FROM runtime.writer FOR UPDATE");
  const { code, said: text } = await ran(t, NEXT, url, "migrate");
  assert.equal(code, 3, text);
  assert.match(text, /another khala server uses this database.*session \d+ of stubborn/);
});

test("several migrations at once, and nodes that start on an empty database at once, make one schema", async (t) => {
  const url = newDatabase();
  const made = await Promise.all([1, 2, 3].map(() => ran(t, binary, url, "migrate")));
  assert.deepEqual(made.map(({ code }) => code), [0, 0, 0], JSON.stringify(made));
  const next = await Promise.all([1, 2, 3].map(() => ran(t, NEXT, url, "migrate")));
  assert.deepEqual(next.map(({ code }) => code), [0, 0, 0], JSON.stringify(next));
  const empty = newDatabase();
  const nodes = await Promise.all([1, 2, 3].map(() => join(t, empty)));
  for (const node of nodes) await appended(node, "room", said);
  assert.equal(psql(empty, "SELECT count(*) FROM meta WHERE name IN ('epoch', 'schema_version')"), "2");
});

// ---- the release before the row of the writer: the session that wrote held an advisory lock ----

const STEPS = new URL("../../../src/store/postgres/migrations/", import.meta.url);
const BEFORE = 9; // its schema
const OLD = process.env.KHALA_TEST_OLD_BINARY;
const OLD_LOCK = "SELECT pg_advisory_lock(461312715873)";
const OLD_TERM = "SELECT term FROM runtime.writer WHERE id = 1 FOR UPDATE"; // begins each commit
const OLD_TAKE = "UPDATE runtime.writer SET term = term + 1, taken_at = now() WHERE id = 1 RETURNING term";
const OLD_REVOKE = `INSERT INTO runtime.sync_revocations (kind, id, reason, revoked_at, expires_at, serial)
  VALUES (0, 'old', NULL, 1, 9000000000000, nextval('runtime.revocation_serials'))`;
const waits = (url, name) => until(() => psql(url, `SELECT count(*) FROM pg_stat_activity WHERE application_name = '${name}'
  AND datname = current_database() AND wait_event_type = 'Lock'`) === "1", `${name} waits`);

/** A database of that release, without events. */
function databaseBefore() {
  const url = newDatabase();
  const steps = readdirSync(STEPS).sort().slice(0, BEFORE).map((name) => readFileSync(new URL(name, STEPS), "utf8"));
  psql(url, `CREATE SCHEMA runtime; ${steps.join(";\n")};
    INSERT INTO runtime.meta (name, value) VALUES ('epoch', '01a1e2dc-f8af-70da-82b2-6848dedda1d7'), ('schema_version', '${BEFORE}')`);
  return url;
}

test("a writer of the release before cannot write or take the role once the schema is migrated", async (t) => {
  const url = databaseBefore();
  const old = new PsqlSession(t, `${url}?application_name=old`);
  await old.run(OLD_LOCK);
  const term = Number(await old.run(OLD_TAKE));
  // The migration waits for a commit, and does not lose it.
  await old.run("BEGIN", OLD_TERM, "INSERT INTO runtime.secrets (name, value) VALUES ('committed', '')");
  const migrating = ran(t, binary, `${url}?application_name=migrate`, "migrate");
  await waits(url, "migrate");
  await old.run("COMMIT");
  const { code, said: text } = await migrating;
  assert.equal(code, 0, text);
  assert.equal(psql(url, "SELECT count(*) FROM secrets WHERE name = 'committed'"), "1");
  // The next commit of the old writer finds another term, and gives up. Its lock keeps nobody from writing.
  assert.ok(Number(await old.run(OLD_TERM)) > term);
  const node = await join(t, url);
  await appended(node, "room", said);
  const taken = termOf(url);
  assert.equal((await old.ask(OLD_TAKE)).state, "42703", "it cannot raise the term of a schema that it does not know");
  await appended(node, "room", said);
  assert.equal(termOf(url), taken);
  // An old node that follows still writes revocations: their serials rise in the order of the commits, with those of new nodes.
  const first = new PsqlSession(t, `${url}?application_name=first`);
  await first.run("BEGIN", "SELECT FROM runtime.locks WHERE name = 'revocations' FOR UPDATE");
  const second = old.run(OLD_REVOKE);
  await waits(url, "old");
  await first.run("COMMIT");
  await second;
});

test("a migration that an old commit blocks changes nothing and names the session", LONG, async (t) => {
  const url = databaseBefore();
  const old = new PsqlSession(t, `${url}?application_name=old`);
  await old.run("BEGIN", OLD_TERM);
  const { code, said: text } = await ran(t, binary, url, "migrate");
  assert.equal(code, 3, text);
  assert.match(text, /session \d+ of old/);
  assert.equal(meta(url, "schema_version"), BEFORE);
});

test("nodes of the release before follow after the migration", OLD ? {} : { skip: "needs KHALA_TEST_OLD_BINARY, a khala 0.2.0" }, async (t) => {
  const url = newDatabase();
  const older = () => operate(t, { program: OLD, data: folder(t), settings: { DB_URL: url } });
  const writer = await older();
  const follower = await older();
  for (const node of [writer, follower]) await appended(node, "room", said);
  const refused = await ran(t, binary, url, "serve", "--bind", "127.0.0.1:0");
  assert.match(refused.said, /run 'khala migrate'/);
  assert.equal(meta(url, "schema_version"), BEFORE);
  let isOver = false;
  let stored = 2;
  const producing = [writer, follower].map(async (node) => {
    for (; !isOver; await new Promise((resolve) => setTimeout(resolve, 5)))
      if ((await node.post("/internal/v1/topics/room/events", said)).status === 200) stored++;
  });
  const { code, said: text } = await ran(t, binary, url, "migrate");
  assert.equal(code, 0, text);
  await until(() => psql(url, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())") === "0", "no old lock");
  const next = await join(t, url);
  const second = await join(t, url);
  for (const node of [next, second, writer, follower]) await appended(node, "room", said);
  stored += 4;
  for (const node of [writer, next, follower, second]) await node.did("/internal/v1/sync/sessions/revoke", { session_ids: [node.data] });
  const term = termOf(url);
  await next.server.crash();
  for (const node of [second, writer, follower]) await appended(node, "room", said);
  stored += 3;
  assert.equal(termOf(url), term + 1, "no old node took the role");
  isOver = true;
  await Promise.all(producing);
  for (const node of [writer, follower]) await node.server.stop();
  assert.equal(psql(url, "SELECT count(*) >= " + stored + ", count(*) = max(seq) FROM events"), "t|t");
  assert.equal((await ran(t, binary, url, "verify")).code, 0);
  await appended(second, "room", said);
});
