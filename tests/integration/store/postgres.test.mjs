// The server on PostgreSQL: its settings, its verbs, and a database that goes away and comes back.
import assert from "node:assert/strict";
import { statSync } from "node:fs";
import { join } from "node:path";
import { test } from "../../lib/cases.mjs";
import { folder, Process, run } from "../../lib/khala.mjs";
import { operate } from "../../lib/operator.mjs";
import { newDatabase, psql } from "../../lib/database.mjs";
import { append, appended, eventOf, isReady, terminate } from "../../lib/database_faults.mjs";
import { Stream } from "../../lib/sse.mjs";
import { until } from "../../lib/wait.mjs";

const SUPPORT = new URL("../../support/postgres", import.meta.url).pathname;

/** A PostgreSQL of this test alone. */
async function ownServer(t, ...settings) {
  // Killing it would leave its folder behind. It ends with its standard input.
  const server = new Process([SUPPORT, ...settings], { input: "pipe" });
  t.after(() => { server.child.stdin.end(); return server.end(); });
  const [, url] = await server.saw("out", /^(postgres:\S+)\n/);
  server.url = url;
  server.tell = async (command) => {
    const count = server.lines.length;
    server.child.stdin.write(`${command}\n`);
    await server.until(() => server.lines.length > count, command);
  };
  return server;
}

test("the verbs work on the database of DB_URL, and no output shows its password", async (t) => {
  const data = folder(t);
  const settings = { DB_URL: newDatabase(), KHALA_DATA_DIR: data };
  const migrated = run(["migrate"], { settings });
  assert.equal(migrated.code, 0, migrated.problem);
  assert.match(migrated.out, /^postgres:\/\/127\.0\.0\.1:\d+\/test_\S+ is at schema version \d+\n$/);
  const operator = await operate(t, { data, settings });
  assert.equal((await append(operator, { event_type: "said", payload: { text: "hello" } })).status, 200);
  const verified = run(["verify"], { settings });
  assert.equal(verified.code, 0, verified.problem);
  assert.match(verified.out, /^1 events of 1 entities/);
  const examined = run(["doctor", "--json"], { settings });
  assert.doesNotMatch(examined.out, /"wrong"/);
  const backup = run(["backup", join(data, "copy")], { settings });
  assert.notEqual(backup.code, 0);
  assert.match(backup.problem, /pg_dump/);
  const shown = run(["config"], { settings: { DB_URL: "postgres://u:sesame@h/d" } });
  assert.match(shown.out, /DB_URL/);
  assert.doesNotMatch(shown.out + shown.problem, /sesame/);
  const refused = run(["serve", "--bind", "127.0.0.1:0"], { settings: { DB_URL: "postgres://u:sesame@127.0.0.1:1/d", KHALA_DATA_DIR: data } });
  assert.equal(refused.code, 3, refused.problem);
  assert.doesNotMatch(refused.problem, /sesame/);
});

test("generated keys are in the database, and a server in another folder uses them", async (t) => {
  const settings = { DB_URL: newDatabase() };
  const first = await operate(t, { data: folder(t), settings });
  const token = first.sign({ oa_sync_scopes: ["runtime.read_all"] });
  await first.server.saw("log", /projection\.rebuilt/);
  await first.server.stop();
  const data = folder(t);
  const second = await operate(t, { data, settings });
  assert.equal(second.key, first.key);
  const read = await second.ask("GET", "/v1/topics/runtime.run_summaries/messages?after_seq=0", undefined, { authorization: `Bearer ${token}` });
  assert.notEqual(read.status, 401, read.body);
  assert.doesNotMatch(second.server.log, /projection\.rebuilt/, "the version of all summaries is in the database too");
  for (const name of ["operator.key", "sync-signing.jwk"]) assert.equal(statSync(join(data, name)).mode & 0o777, 0o600);
  assert.equal(psql(settings.DB_URL, "SELECT string_agg(name, ',' ORDER BY name) FROM secrets"), "operator.key,sync-signing.jwk");
});

test("appends continue after the database has ended all sessions", async (t) => {
  const url = newDatabase();
  const data = folder(t);
  const operator = await operate(t, { data, settings: { DB_URL: url } });
  for (let number = 1; number <= 5; number++) {
    await appended(operator, number);
    terminate(url);
  }
  const repeated = await appended(operator, 5);
  assert.equal(JSON.parse(repeated.body).deduplicated, true);
  assert.equal(psql(url, "SELECT count(*), max(seq) FROM events"), "5|5");
  await isReady(operator);
});

test("the server is not ready while the database is down, and recovers without a restart", async (t) => {
  const database = await ownServer(t);
  const url = `${database.url}/postgres`;
  const operator = await operate(t, { data: folder(t), settings: { DB_URL: url } });
  await appended(operator, 1);
  await database.tell("stop");
  const refused = await append(operator, { event_type: "said" });
  assert.equal(refused.status, 503);
  assert.ok(["writer_lost", "store_unavailable"].includes(JSON.parse(refused.body).error), refused.body);
  assert.equal((await operator.get("/healthz/ready")).status, 503);
  assert.equal((await operator.get("/healthz/live")).status, 200);
  await database.tell("start");
  await appended(operator, 2);
  await isReady(operator);
  assert.equal(psql(url, "SELECT count(*), max(seq) FROM events"), "2|2");
});

test("a commit that no standby confirmed is not acknowledged, is delivered later, and is stored once", async (t) => {
  const database = await ownServer(t);
  const url = `${database.url}/postgres`;
  const operator = await operate(t, { data: folder(t), settings: { DB_URL: url } });
  await appended(operator, 1);
  const stream = await Stream.open(operator, "/v1/topics/room/sse?after_seq=1", { authorization: `Bearer ${operator.key}` });
  assert.equal(stream.status, 200);
  psql(url, "ALTER SYSTEM SET synchronous_standby_names = 'absent'");
  psql(url, "SELECT pg_reload_conf()");
  const waiting = append(operator, eventOf(2));
  const cancelled = () => psql(url, "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'");
  await until(() => cancelled() === "t", "a commit that waits for the standby");
  const unknown = await waiting;
  assert.equal(unknown.status, 503);
  assert.equal(JSON.parse(unknown.body).error, "append_outcome_unknown");
  psql(url, "ALTER SYSTEM RESET synchronous_standby_names");
  psql(url, "SELECT pg_reload_conf()");
  const again = await appended(operator, 2);
  assert.equal(JSON.parse(again.body).deduplicated, true);
  assert.equal(psql(url, "SELECT count(*), max(seq) FROM events"), "2|2");
  await stream.until(() => stream.lastSeq === 2, "the event of unknown outcome");
  await isReady(operator);
});

test("a standby is refused with the reason", async (t) => {
  const standby = await ownServer(t, "standby=on");
  const settings = { DB_URL: `${standby.url}/postgres`, KHALA_DATA_DIR: folder(t) };
  const refused = run(["serve", "--bind", "127.0.0.1:0"], { settings });
  assert.notEqual(refused.code, 0);
  assert.match(refused.problem, /is a standby: let DB_URL name the primary server/);
});

test("a dropped derived table refuses no append, and is made again", async (t) => {
  const url = newDatabase();
  const operator = await operate(t, { data: folder(t), settings: { DB_URL: url } });
  assert.equal((await operator.post("/internal/v1/runs", { run_id: "a", owner_user_id: "u" })).status, 201);
  psql(url, "DROP TABLE runtime.run_documents, runtime.journal CASCADE");
  assert.equal((await operator.post("/internal/v1/runs", { run_id: "b", owner_user_id: "u" })).status, 201);
  const isMade = () => psql(url, "SELECT to_regclass('runtime.sync_run_summaries') IS NOT NULL") === "t";
  await until(() => isMade() && psql(url, "SELECT count(*) FROM sync_run_summaries") === "2", "the summaries of both runs");
  await isReady(operator);
});
