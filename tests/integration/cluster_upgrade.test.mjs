// Nodes of two releases over one PostgreSQL. The newer one, khala_next, has one schema step more.
import assert from "node:assert/strict";
import { dirname, join as path } from "node:path";
import { test } from "../lib/cases.mjs";
import { appended, join, pair } from "../lib/cluster.mjs";
import { newDatabase, psql } from "../lib/database.mjs";
import { binary, environment, folder, start } from "../lib/khala.mjs";
import { operate } from "../lib/operator.mjs";
import { Client } from "../lib/phoenix.mjs";
import { until } from "../lib/wait.mjs";

const NEXT = path(dirname(binary), "khala_next");
const LONG = process.env.KHALA_TEST_LONG ? {} : { skip: "needs KHALA_TEST_LONG=1" };
const HOLDERS = `SELECT count(*) FROM pg_locks JOIN pg_database d ON d.oid = database WHERE locktype = 'advisory' AND datname = current_database()
  AND (classid::bigint << 32) + objid::bigint = 461312715873`;
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

test("a migration names the session that does not give the lock up", LONG, async (t) => {
  const url = newDatabase();
  assert.equal((await ran(t, binary, url, "migrate")).code, 0);
  start(t, ["psql", "-Atqc", "SELECT pg_advisory_lock(461312715873), pg_sleep(120)", url], { env: environment({ PGAPPNAME: "stubborn" }) });
  await until(() => psql(url, HOLDERS) === "1", "the lock");
  const { code, said: text } = await ran(t, NEXT, url, "migrate");
  assert.equal(code, 3, text);
  assert.match(text, /another khala server uses this database.*session \d+ of stubborn/);
});
