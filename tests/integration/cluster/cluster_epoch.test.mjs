// The epoch of a log in PostgreSQL after the database has changed, as by a failover: it stays if every node has
// confirmed that no event is lost, otherwise all clients start again.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { test } from "../../lib/cases.mjs";
import { appended, join } from "../../lib/cluster.mjs";
import { newDatabase, psql } from "../../lib/database.mjs";
import { assertError, folder, run } from "../../lib/khala.mjs";
import { operate } from "../../lib/operator.mjs";
import { Client } from "../../lib/phoenix.mjs";
import { fixedPort } from "../../lib/ports.mjs";
import { postgres } from "../../lib/postgres_server.mjs";
import { until } from "../../lib/wait.mjs";

const SETTINGS = { RUNTIME_KHALA_POLL_MIN_INTERVAL_MS: "0" };
const said = { event_type: "said", payload: {} };
const epochOf = (url) => psql(url, "SELECT value FROM runtime.meta WHERE name = 'epoch'");
const termOf = (url) => Number(psql(url, "SELECT term FROM runtime.writer"));

/** Makes the database look like another one, and ends all its sessions, as a failover does. */
const change = (url) => psql(url, `UPDATE runtime.meta SET value = '1/00000001' WHERE name = 'database_history';
  SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`);

const LONG = process.env.KHALA_TEST_LONG ? {} : { skip: "needs KHALA_TEST_LONG=1" };

/** Starts a node that keeps its address when it starts again. */
const stable = async (t, url) =>
  operate(t, { data: folder(t), bind: `127.0.0.1:${await fixedPort()}`, settings: { DB_URL: url, ...SETTINGS } });

/** Starts such a node, with a client on a topic of one event. */
async function single(t, url = newDatabase()) {
  const node = await stable(t, url);
  await appended(node, "room", said);
  const client = await Client.join(node);
  await client.subscribe({ topics: ["room"], resume_after: { room: 0 } });
  await client.reached("room", 1);
  await until(() => psql(url, "SELECT count(*) FROM runtime.nodes WHERE log_id = 1") === "1", "the row of the node");
  return { url, node, client, epoch: epochOf(url) };
}

/** Adds the row of a node that has read an event and does not answer. */
const addMissing = (url, event) => psql(url, `INSERT INTO runtime.nodes
  (node_id, address, version, schema_version, role, term, log_id, cursor, revocations_seen)
  SELECT 'missing', '127.0.0.1:1', '0', 6, 'follower', 1, ${event}, 0`);

/** Waits until the node has noticed the new epoch and has started again. A node that has not noticed it yet is ready too. */
const begunAgain = (node) => until(() => {
  const { log } = node.server;
  return log.includes("store.epoch_changed") && log.lastIndexOf("server.ready") > log.lastIndexOf("store.epoch_changed");
}, "the node that starts again");

/** The node takes positions of the room without an epoch up to there, and none above. */
async function assertParts(node, seq) {
  if (seq > 0) assert.equal((await node.poll("room", `after_seq=${seq}`)).status, 200);
  const refused = await node.poll("room", `after_seq=${seq + 1}`);
  assertError(refused, 410, "stale_cursor");
  assert.equal(JSON.parse(refused.body).reason_code, "epoch_required");
}

/** The node closes its connections, starts again in the new epoch, and refuses positions of the old one. */
async function assertBegunAgain({ url, node, client, epoch }, events) {
  await until(() => epochOf(url) !== epoch, "a new epoch");
  await client.until(() => client.closes.length > 0, "the end of the connection");
  assert.equal(client.closes[0].code, 1012);
  await begunAgain(node);
  await appended(node, "room", said);
  assert.equal(psql(url, "SELECT max(log_id) FROM runtime.events"), String(events + 1));
  assertError(await node.poll("room", `after_seq=${events}&epoch=${epoch}`), 410, "stale_cursor");
}

test("the epoch stays while all nodes confirm the log, and ends when a node has read a lost event", async (t) => {
  const world = await single(t);
  const { url, node, client, epoch } = world;
  const term = termOf(url);
  change(url);
  await until(() => termOf(url) > term, "the role");
  assert.equal(epochOf(url), epoch);
  await appended(node, "room", said);
  await client.reached("room", 2);
  assert.deepEqual(client.closes, []);
  assert.equal((await node.poll("room", "after_seq=2")).status, 200, "the log has one epoch");

  addMissing(url, "99, gen_random_uuid()");
  change(url);
  await assertBegunAgain(world, 2);
  await assertParts(node, 2);
  // The place stays where it is when the log gets a third epoch.
  const second = epochOf(url);
  addMissing(url, "99, gen_random_uuid()");
  change(url);
  await until(() => node.server.log.split("store.epoch_changed").length === 3, "a third epoch");
  await begunAgain(node);
  assert.notEqual(epochOf(url), second);
  await appended(node, "room", said);
  await assertParts(node, 2);
});

test("the epoch ends when a node is missing", LONG, async (t) => {
  const world = await single(t);
  addMissing(world.url, "0, NULL");
  change(world.url);
  await assertBegunAgain(world, 1);
});

test("nodes that start after the change confirm nothing", async (t) => {
  const url = newDatabase();
  const before = await join(t, url);
  const epoch = epochOf(url);
  await before.server.stop();
  change(url);
  await Promise.all([join(t, url), join(t, url)]);
  assert.notEqual(epochOf(url), epoch);
});

/** Appends until the topic has these events, and waits until each node has told the database that it has read the last. */
async function readByAll(url, node, count) {
  while ((await appended(node, "room", said)).event.seq < count);
  await until(() => psql(url, `SELECT bool_and(log_id = ${count}) FROM runtime.nodes`) === "t", "the rows of the nodes");
}

test("a dump that is restored under running nodes ends the epoch, though the database is the same", async (t) => {
  const world = await single(t);
  const { url, node, client } = world;
  const follower = await stable(t, url);
  const dump = execFileSync("pg_dump", ["-n", "runtime", "-d", url], { encoding: "utf8", maxBuffer: 1 << 28 });
  await readByAll(url, node, 3);
  await client.reached("room", 3);
  execFileSync("psql", ["-Xq1", "-v", "ON_ERROR_STOP=1", "-d", url], { input: `DROP SCHEMA runtime CASCADE;\n${dump}`, stdio: ["pipe", "ignore", "pipe"] });
  await assertBegunAgain(world, 1);
  await begunAgain(follower);
  assert.equal((await appended(follower, "room", said)).event.seq, 3);
  for (const one of [node, follower]) assert.equal(one.server.log.match(/store\.epoch_changed/g).length, 1, one.server.log);
  // A writer may have appended before a node found the loss, so it is not known where the histories part.
  for (const one of [node, follower]) await assertParts(one, 0);
});

test("an older copy of the files that is put back under running nodes ends the epoch", LONG, async (t) => {
  const database = await postgres(t);
  const { url } = database;
  const world = await single(t, url);
  const follower = await stable(t, url);
  const copy = database.copy("older", {});
  await readByAll(url, world.node, 3);
  await database.stop();
  copy.port = database.port;
  await copy.start();
  await assertBegunAgain(world, 1);
  await begunAgain(follower);
});

test("migrate --new-epoch ends the epoch of a store that no server uses", async (t) => {
  const url = newDatabase();
  const before = await join(t, url);
  const epoch = epochOf(url);
  const settings = { DB_URL: url };
  const refused = run(["migrate", "--new-epoch"], { settings });
  assert.equal(refused.code, 3, refused.out);
  assert.match(refused.problem, /another khala server uses this database/);
  assert.equal(epochOf(url), epoch);
  await before.server.stop();
  const renewed = run(["migrate", "--new-epoch"], { settings });
  assert.equal(renewed.code, 0, renewed.problem);
  assert.notEqual(epochOf(url), epoch);
  assert.match(renewed.out, new RegExp(`${epochOf(url)}: clients with a cursor of before start over`));
  assert.equal(psql(url, "SELECT value FROM runtime.meta WHERE name = 'fork_log_id'"), "0");

  const known = await single(t);
  await readByAll(known.url, known.node, 3);
  await known.node.server.stop();
  assert.equal(run(["migrate", "--fork", "2"], { settings: { DB_URL: known.url } }).code, 2);
  const forked = run(["migrate", "--new-epoch", "--fork", "2"], { settings: { DB_URL: known.url } });
  assert.equal(forked.code, 0, forked.problem);
  assert.equal(psql(known.url, "SELECT string_agg(name || '=' || value, ' ') FROM runtime.meta WHERE name LIKE 'fork%'"), "fork_log_id=2");
  await assertParts(await stable(t, known.url), 2);
});
