// The server on a PostgreSQL that refuses it, limits it, or is cut off: a refusal at start names the remedy; a fault at run
// time has a coded answer and ends the readiness; the server continues without a restart when the fault is over.
import assert from "node:assert/strict";
import net from "node:net";
import { test } from "../../lib/cases.mjs";
import { newDatabase, psql } from "../../lib/database.mjs";
import { append, appended, eventOf, isReady, refusedForNow, terminate } from "../../lib/database_faults.mjs";
import { folder, startVerb } from "../../lib/khala.mjs";
import { operate } from "../../lib/operator.mjs";
import { pgbouncer } from "../../lib/pgbouncer.mjs";
import { postgres } from "../../lib/postgres_server.mjs";
import { PsqlSession } from "../../lib/psql_session.mjs";
import { tcpProxy } from "../../lib/tcp_proxy.mjs";
import { until } from "../../lib/wait.mjs";

const CODES = ["writer_lost", "store_unavailable"];
let roles = 0;

/** A database and a role that owns it. Answers the URLs of the role and of a superuser. */
function ownedDatabase(attributes = "") {
  const admin = newDatabase();
  const role = `role_${process.pid}_${++roles}`;
  const name = new URL(admin).pathname.slice(1);
  psql(admin, `CREATE ROLE ${role} LOGIN ${attributes}; ALTER DATABASE ${name} OWNER TO ${role}`);
  const url = new URL(admin);
  url.username = role;
  return { admin, role, name, url: url.href };
}

/** Starts a server that must end by itself. */
async function refuses(t, url, message, code = 3) {
  const verb = startVerb(t, ["serve", "--bind", "127.0.0.1:0"], { settings: { DB_URL: url, KHALA_DATA_DIR: folder(t), KHALA_READERS: "2" } });
  assert.equal((await verb.end()).code, code, verb.log);
  assert.match(verb.log, message);
  assert.doesNotMatch(verb.log, /sesame/);
}

const serveOn = (t, url, settings) => operate(t, { data: folder(t), settings: { DB_URL: url, ...settings } });

/** An append that succeeds, a fault that lasts for some appends, and its end. */
async function survives(t, { url, admin }, begin, end) {
  const operator = await serveOn(t, url);
  await appended(operator, 1);
  begin();
  assert.ok(CODES.includes(await refusedForNow(operator, 2)));
  await isReady(operator, false);
  assert.ok(CODES.includes(await refusedForNow(operator, 2)));
  assert.equal((await operator.get("/healthz/live")).status, 200);
  end();
  await appended(operator, 2);
  await isReady(operator);
  assert.equal(psql(admin, "SELECT count(*), max(seq) FROM events"), "2|2");
}

/** A server that says it has that version. It answers no query. */
async function fakeServer(t, version) {
  const message = (type, ...parts) => {
    const body = Buffer.concat(parts);
    const head = Buffer.alloc(5, type);
    head.writeUInt32BE(body.length + 4, 1);
    return Buffer.concat([head, body]);
  };
  const welcome = Buffer.concat([
    message("R", Buffer.alloc(4)),
    message("S", Buffer.from(`server_version\0${version}\0`)),
    message("S", Buffer.from("client_encoding\0UTF8\0")),
    message("Z", Buffer.from("I")),
  ]);
  const server = net.createServer((socket) => {
    socket.on("error", () => {});
    // Both requests for encryption have 8 bytes.
    socket.on("data", (bytes) => socket.write(bytes.length === 8 ? "N" : welcome));
  });
  t.after(() => server.close());
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  return `postgres://u:sesame@127.0.0.1:${server.address().port}/d`;
}

test("a URL that leads nowhere, a wrong password, missing rights and an old server are refused with the remedy", async (t) => {
  const { admin, url, role, name } = ownedDatabase();
  const server = admin.slice(0, admin.lastIndexOf("/"));
  const other = new URL(admin);
  Object.assign(other, { username: "secret", password: "sesame" });
  psql(admin, `ALTER DATABASE ${name} OWNER TO khala`);
  await Promise.all([
    refuses(t, "postgres://u:sesame@127.0.0.1:1/d", /127\.0\.0\.1.*refused.*check DB_URL/),
    refuses(t, "postgres://u:sesame@absent.invalid/d", /absent\.invalid.*check DB_URL/),
    refuses(t, "postgres://u:sesame@127.0.0.1:port/d", /DB_URL is not a URL of PostgreSQL/),
    refuses(t, `${server}/absent`, /database "absent" does not exist.*check DB_URL/),
    refuses(t, other.href, /password authentication failed.*check DB_URL/),
    refuses(t, url, /permission denied.*needs the right to create and use the schema runtime/),
    refuses(t, await fakeServer(t, "13.22"), /older than PostgreSQL 14: upgrade it/),
  ]);
  psql(admin, `ALTER DATABASE ${name} OWNER TO ${role}; ALTER ROLE ${role} SET default_transaction_read_only = on`);
  await refuses(t, url, /default_transaction_read_only is on: reset it/);
});

test("a server without free connections is refused with the remedy", async (t) => {
  const database = await postgres(t, { max_connections: 5 });
  await refuses(t, database.url, /too many clients.*raise max_connections of the server, or lower KHALA_READERS/);
});

test("a pooler in transaction mode is refused with the reason, one in session mode works", async (t) => {
  const url = newDatabase();
  const reason = /pooler in transaction mode.*connect to the server itself, or use session mode/;
  await Promise.all([
    pgbouncer(t, url, "transaction").then((pooled) => refuses(t, pooled, reason)),
    pgbouncer(t, url, "transaction", 1).then((pooled) => refuses(t, pooled, reason)),
    pgbouncer(t, url, "statement").then((pooled) => refuses(t, pooled, reason)),
    pgbouncer(t, newDatabase(), "session", 1).then((pooled) => refuses(t, pooled, /gives no second session: raise its pool size/)),
  ]);
  const operator = await serveOn(t, await pgbouncer(t, url, "session"));
  await appended(operator, 1);
  terminate(url);
  await appended(operator, 2);
  assert.equal(psql(url, "SELECT count(*), max(seq) FROM events"), "2|2");
});

test("time limits and the isolation level of a role do not apply to the server", async (t) => {
  const { admin, url, role } = ownedDatabase();
  psql(admin, `ALTER ROLE ${role} SET statement_timeout = 500; ALTER ROLE ${role} SET lock_timeout = 400;
    ALTER ROLE ${role} SET idle_session_timeout = 500; ALTER ROLE ${role} SET idle_in_transaction_session_timeout = 500;
    ALTER ROLE ${role} SET default_transaction_isolation = 'serializable'`);
  const operator = await serveOn(t, url);
  await appended(operator, 1);
  const holder = new PsqlSession(t, admin);
  await holder.run("BEGIN", "SELECT term FROM runtime.writer FOR UPDATE");
  const waiting = append(operator, eventOf(2));
  await until(() => psql(admin, `SELECT count(*) FROM pg_stat_activity WHERE usename = '${role}' AND wait_event_type = 'Lock'
    AND now() - query_start > interval '700 ms'`) === "1", "a statement that waits for longer than the limits");
  await holder.run("ROLLBACK");
  assert.equal((await waiting).status, 200);
  await isReady(operator);
});

test("appends continue when the rights of the role are back", async (t) => {
  const database = ownedDatabase();
  await survives(t, database,
    () => psql(database.admin, `REVOKE INSERT ON runtime.events FROM ${database.role}`),
    () => psql(database.admin, `GRANT INSERT ON runtime.events TO ${database.role}`));
});

test("appends continue when the role may connect again", async (t) => {
  const database = ownedDatabase();
  await survives(t, database,
    () => { psql(database.admin, `ALTER ROLE ${database.role} CONNECTION LIMIT 0`); terminate(database.admin); },
    () => psql(database.admin, `ALTER ROLE ${database.role} CONNECTION LIMIT -1`));
});

test("appends continue when the database may be written again", async (t) => {
  const database = ownedDatabase();
  await survives(t, database,
    () => { psql(database.admin, `ALTER DATABASE ${database.name} SET default_transaction_read_only = on`); terminate(database.admin); },
    () => psql(new URL("/postgres", database.admin).href, `ALTER DATABASE ${database.name} RESET default_transaction_read_only`));
});

/** The number of live sessions that have the writer role. */
const holders = (url) => psql(url, "SELECT count(*) FROM writer w JOIN pg_stat_activity a ON a.pid = w.backend_pid AND a.backend_start = w.backend_start");

test("a server that is stopped loses the writer role, and takes it again when it continues", async (t) => {
  const url = newDatabase();
  const operator = await serveOn(t, url);
  await appended(operator, 1);
  const term = Number(psql(url, "SELECT term FROM writer"));
  operator.server.kill("SIGSTOP");
  t.after(() => operator.server.kill("SIGCONT"));
  await until(() => holders(url) === "0", "the role is free");
  operator.server.kill("SIGCONT");
  await appended(operator, 2);
  await isReady(operator);
  assert.ok(Number(psql(url, "SELECT term FROM writer")) > term);
  assert.equal(psql(url, "SELECT count(*), max(seq) FROM events"), "2|2");
});

/** Cuts the network in these directions while a commit is sent. */
async function cutAtCommit(t, directions) {
  const url = newDatabase();
  const proxy = await tcpProxy(t, url);
  const operator = await serveOn(t, proxy.url);
  await appended(operator, 1);
  // Other work of the writer commits too, so the cut waits for the payload of the event.
  proxy.cutAt(["number", "COMMIT\0"], ...directions);
  assert.equal(await refusedForNow(operator, 2), "append_outcome_unknown", "it is not acknowledged");
  assert.ok(proxy.isCut);
  await isReady(operator, false);
  const stored = psql(url, "SELECT max(seq) FROM events");
  proxy.repair();
  const repeated = JSON.parse((await appended(operator, 2)).body);
  await isReady(operator);
  assert.equal(psql(url, "SELECT count(*), max(seq) FROM events"), "2|2", "it is stored once");
  return { stored, repeated };
}

test("a commit that does not reach the database has an unknown outcome, and the retry stores it", async (t) => {
  const { stored, repeated } = await cutAtCommit(t, ["toServer"]);
  assert.equal(stored, "1");
  assert.equal(repeated.deduplicated, false);
});

test("a commit whose answer is lost has an unknown outcome, and the retry finds it", async (t) => {
  const { stored, repeated } = await cutAtCommit(t, ["toClient"]);
  assert.equal(stored, "2");
  assert.equal(repeated.deduplicated, true);
});

test("a server that is cut off from its database is not ready, and recovers by itself", async (t) => {
  const url = newDatabase();
  const proxy = await tcpProxy(t, url);
  const operator = await serveOn(t, proxy.url);
  await appended(operator, 1);
  proxy.cut("toServer", "toClient");
  await isReady(operator, false);
  assert.equal(await refusedForNow(operator, 2), "writer_lost");
  await until(() => holders(url) === "0", "the role is free for another server");
  proxy.repair();
  await appended(operator, 2);
  await isReady(operator);
  assert.equal(psql(url, "SELECT count(*), max(seq) FROM events"), "2|2");
});
