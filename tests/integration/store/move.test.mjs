// A store that moves to PostgreSQL and back: the same log, ids, cursors and keys, and clients that go on.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { alone, test } from "../../lib/cases.mjs";
import { newDatabase, psql } from "../../lib/database.mjs";
import { binary, environment, folder, run } from "../../lib/khala.mjs";
import { assertSame, EVENT_ID, fill, openOnce, SETTINGS, stateOf, succeed } from "../../lib/moves.mjs";
import { operate } from "../../lib/operator.mjs";
import { Client } from "../../lib/phoenix.mjs";
import { PsqlSession } from "../../lib/psql_session.mjs";

const EMBEDDED = { DB_URL: "" };
const import_ = (data, url, settings = {}) => run(["import", "--from", data], { settings: { DB_URL: url, ...settings } });
const export_ = (url, data, settings = {}) => run(["export", "--store", data], { settings: { DB_URL: url, ...settings } });
const sqlite = (data, query) => spawnSync("sqlite3", [join(data, "khala.db"), query], { encoding: "utf8" }).stdout.trim();

/** A small embedded store of its own. */
async function small(t, count = 5) {
  const data = folder(t);
  const operator = await operate(t, { data, settings: { ...SETTINGS, ...EMBEDDED } });
  await operator.did("runs", { run_id: "a" }, 201);
  if (count > 1) await operator.batch(Array.from({ length: count - 1 }, (_, i) => ({ run_id: "a", event_type: "run.log", payload: { i } })));
  await operator.server.stop();
  return data;
}

function moves(done, count) {
  assert.equal(done.code, 0, done.problem);
  assert.match(done.out, new RegExp(`moved to \\S+: ${count} events, epoch `));
}

function refuses(done, code, pattern) {
  assert.deepEqual([done.code, done.out], [code, ""], done.problem);
  assert.match(done.problem, pattern);
}

test("a store moves to PostgreSQL, back and again, and clients go on after their cursors", async (t) => {
  const data = folder(t);
  const { operator: before, tokens } = await fill(t, data);
  const state = await stateOf(before);
  const client = await Client.join(before);
  const { epoch } = client.welcome;
  await client.subscribe({ topics: ["run:r2:events", "app.t"], resume_after: { "run:r2:events": 2400, "app.t": 1 } });
  await client.reached("run:r2:events", 2502);
  await client.reached("app.t", 2);
  const polled = JSON.parse((await before.poll("runtime.run_summaries", "after_seq=0&limit=1000")).body);
  client.close();
  await before.server.stop();

  const [one, two] = [newDatabase(), newDatabase()];
  const back = join(folder(t), "back");
  const steps = [
    [() => import_(data, one), { DB_URL: one }, folder(t), ["--data-dir", data], EMBEDDED],
    [() => export_(one, back), EMBEDDED, back, [], { DB_URL: one }],
    [() => import_(back, two), { DB_URL: two }, folder(t), ["--data-dir", back], EMBEDDED],
  ];
  let appended = 0;
  for (const [move, settings, target, sourceArgs, sourceSettings] of steps) {
    moves(move(), state["/api/events/export"].trim().split("\n").length - 1 + appended);
    assert.match(move().out, / was already moved to /, "a repeated move changes nothing");
    for (const [args, of] of [[["verify", ...sourceArgs], sourceSettings], [["verify", "--data-dir", target], settings]])
      assert.match(succeed(args, of), /every hash, link, sequence and cursor holds/);
    refuses(run(["serve", "--bind", "127.0.0.1:0", ...sourceArgs], { settings: sourceSettings }), 3, /was moved to .*khala migrate --undo-move/);

    const after = await operate(t, { data: target, settings: { ...SETTINGS, RUNTIME_SYNC_TOKEN_SINGLE_USE: "true", ...settings } });
    assert.equal(after.key, before.key, "the operator key moves");
    if (appended === 0) assertSame(await stateOf(after), state);
    assert.equal(await openOnce(after, tokens.used), "token_replayed");
    assert.equal(await openOnce(after, tokens.revoked), "token_revoked");

    // Retries of before the move are recognised.
    assert.equal((await after.did("runs/r1/events", { event_type: "run.cancel_requested", event_id: EVENT_ID })).deduplicated, true);
    assert.equal((await after.did("runs/r2/events", { event_type: "run.log", payload: { i: 2, text: "a\nb" }, idempotency_key: "once" })).deduplicated, true);
    assert.equal((await after.did("runs", { run_id: "r2", thread_id: "t", metadata: { b: [1.5, "é"] }, idempotency_key: "new-2" }, 200)).deduplicated, true);
    assert.equal((await after.did("notifications", { org_id: "o1", payload: { n: 1 }, idempotency_key: "once" })).deduplicated, true);
    const minted = JSON.parse((await after.get("runs/r2/events?after_seq=2&limit=1")).body).events[0];
    assert.equal((await after.did("runs/r2/events", { event_type: "run.log", payload: minted.payload, event_id: minted.event_id })).deduplicated, true);

    // A client of before the move goes on after its position, and sees no gap and no stale answer.
    const resumed = await Client.join(after);
    assert.equal(resumed.welcome.epoch, epoch);
    const at = 2502 + appended;
    await resumed.subscribe({ topics: ["run:r2:events"], resume_after: { "run:r2:events": 2502 }, epoch });
    await after.did("runs/r2/events", { event_type: "run.log", payload: { moved: appended } });
    appended++;
    await resumed.reached("run:r2:events", at + 1);
    assert.deepEqual(resumed.run("run:r2:events").sequences, Array.from({ length: at - 2501 }, (_, i) => 2503 + i));
    const next = await after.poll("runtime.run_summaries", `after_seq=${polled.next_cursor}&epoch=${polled.epoch}`);
    assert.equal(next.status, 200, next.body);
    assert.equal(JSON.parse(next.body).messages.length, appended);
    resumed.close();
    await after.server.stop();
  }
});

test("a move that is given up keeps the epoch before it is complete, and gets a new one after it", async (t) => {
  const data = await small(t);
  const url = newDatabase();
  succeed(["migrate"], { DB_URL: url });
  psql(url, `CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'not now'; END $$;
    CREATE TRIGGER refuse BEFORE INSERT ON events FOR EACH ROW EXECUTE FUNCTION refuse()`);
  const epoch = sqlite(data, "SELECT value FROM meta WHERE name = 'epoch'");
  refuses(import_(data, url), 3, /not now.*the same command continues the move/);
  refuses(run(["serve", "--bind", "127.0.0.1:0", "--data-dir", data], { settings: EMBEDDED }), 3, /is being moved to postgres:.*--undo-move/);
  refuses(run(["serve", "--bind", "127.0.0.1:0", "--data-dir", folder(t)], { settings: { DB_URL: url } }), 3, /holds a part of .*repeat the command/);
  refuses(run(["verify"], { settings: { DB_URL: url } }), 3, /holds a part of /);
  refuses(import_(data, newDatabase()), 1, /is being moved to postgres:/);
  assert.deepEqual(JSON.parse(succeed(["migrate", "--undo-move", "--json", "--data-dir", data], EMBEDDED)), { epoch, is_epoch_new: false });
  refuses(import_(data, url), 1, /holds an unfinished move from /);

  const target = newDatabase();
  moves(import_(data, target), 5);
  const undone = JSON.parse(succeed(["migrate", "--undo-move", "--json", "--data-dir", data], EMBEDDED));
  assert.equal(undone.is_epoch_new, true);
  assert.notEqual(undone.epoch, epoch);
  const operator = await operate(t, { data, settings: { ...SETTINGS, ...EMBEDDED } });
  const stale = await operator.poll("run:a:events", `after_seq=3&epoch=${epoch}`);
  assert.equal(stale.status, 410, stale.body);
  // The target went on after its last event, so that is where the histories part, here and in stores that it moves to.
  const log = (await operator.log()).length;
  assert.equal(sqlite(data, "SELECT value FROM meta WHERE name = 'fork_log_id'"), String(log));
  const head = JSON.parse((await operator.poll("run:a:events", "")).body).head_cursor;
  await operator.did("runs/a/events", { event_type: "run.log" });
  const reasonAt = async (one, topic, seq) => JSON.parse((await one.poll(topic, `after_seq=${seq}`)).body).reason_code;
  assert.deepEqual([await reasonAt(operator, "run:a:events", head), await reasonAt(operator, "run:a:events", head + 1)], [undefined, "epoch_required"]);
  await operator.server.stop();
  refuses(run(["migrate", "--undo-move", "--data-dir", data], { settings: EMBEDDED }), 1, /was not moved/);
  const elsewhere = newDatabase();
  moves(import_(data, elsewhere), log + 1);
  const notes = "SELECT name || '=' || value FROM meta WHERE name LIKE 'fork%' ORDER BY name";
  assert.equal(psql(elsewhere, notes), sqlite(data, notes));
  const there = await operate(t, { settings: { ...SETTINGS, DB_URL: elsewhere } });
  assert.deepEqual([await reasonAt(there, "run:a:events", head), await reasonAt(there, "run:a:events", head + 1)], [undefined, "epoch_required"]);
  await there.server.stop();
  succeed(["migrate", "--undo-move", "--data-dir", data], EMBEDDED);
  moves(export_(target, join(data, "out")), 5);
  succeed(["migrate", "--undo-move"], { DB_URL: target });
  psql(target, "SELECT append_event('room', 'said')");
});

test("a target that is not empty, a source that is in use and wrong usage are refused before the first write", async (t) => {
  const data = await small(t);
  const other = await small(t);
  const url = newDatabase();
  moves(import_(other, url), 5);
  const marks = (folder_) => sqlite(folder_, "SELECT count(*) FROM meta WHERE name LIKE 'move%'");
  refuses(import_(data, url), 1, /is not empty \(it has rows in events\): name an empty database/);
  const examined = run(["doctor", "--data-dir", other], { settings: EMBEDDED });
  assert.equal(examined.code, 1);
  assert.match(examined.out, /the store was moved to postgres:/);
  assert.equal(marks(data), "0");
  const busy = await operate(t, { data, settings: { ...SETTINGS, ...EMBEDDED } });
  refuses(import_(data, newDatabase()), 3, /is in use by another process/);
  await busy.server.stop();
  const served = await operate(t, { data: folder(t), settings: { ...SETTINGS, DB_URL: url } });
  refuses(export_(url, join(folder(t), "new")), 3, /another khala server uses this database/);
  await served.server.stop();
  refuses(import_(join(data, "absent"), newDatabase()), 3, /holds no store yet/);
  refuses(import_(data, "", { KHALA_DATA_DIR: data }), 2, /cannot be moved into itself/);
  refuses(import_(data, "", { KHALA_DATA_DIR: other }), 1, /is not empty|was moved to/);
  for (const args of [["import"], ["import", "file", "--from", data], ["import", "--from", data, "--url", "http://127.0.0.1:1"],
    ["export", "--store", data, "--since", "1h"], ["export", "--store", data, "--key", "k"]])
    assert.equal(run(args, { settings: { DB_URL: url } }).code, 2, args.join(" "));
  assert.equal(marks(data), "0");
  const copy = join(folder(t), "copy");
  const moved = JSON.parse(succeed(["import", "--from", data, "--json"], { ...EMBEDDED, KHALA_DATA_DIR: copy }));
  assert.deepEqual([moved.events, moved.to, moved.was_complete], [5, copy, false]);
  assert.equal(readFileSync(join(copy, "operator.key"), "utf8"), readFileSync(join(data, "operator.key"), "utf8"));
  assert.match(succeed(["verify", "--data-dir", copy], EMBEDDED), /^5 events of 1 entities/);
});

/** Fails one insert of an event in the database, by these statements. */
function failOnce(url, statements) {
  psql(url, `CREATE SEQUENCE IF NOT EXISTS failures;
    CREATE OR REPLACE FUNCTION fail_once() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN IF NEW.log_id > 1500 AND nextval('runtime.failures') = 1 THEN ${statements}; END IF; RETURN NEW; END $$;
    CREATE OR REPLACE TRIGGER fail_once BEFORE INSERT ON events FOR EACH ROW EXECUTE FUNCTION fail_once()`);
}

test("a full disk and a lost session leave a clear error, and the same command goes on", async (t) => {
  const data = await small(t, 3000);
  const url = newDatabase();
  succeed(["migrate"], { DB_URL: url });
  failOnce(url, "RAISE 'could not extend file' USING ERRCODE = 'disk_full'");
  refuses(import_(data, url), 3, /could not extend file.*the same command continues the move/);
  assert.equal(psql(url, "SELECT count(*) FROM events"), "1024", "the pages before are kept");
  psql(url, "SELECT setval('failures', 1, false)");
  failOnce(url, "PERFORM pg_terminate_backend(pg_backend_pid())");
  refuses(import_(data, url), 3, /(terminating connection|connection was lost|server closed the connection).*the same command continues/);
  moves(import_(data, url), 3000);
  assert.match(succeed(["verify"], { DB_URL: url }), /^3000 events of 1 entities/);
  const back = join(folder(t), "back");
  // The limit of a file's size stands for a full disk; the signal of it is ignored.
  const limited = spawnSync("bash", ["-c", `trap '' XFSZ; ulimit -f 300; "$0" export --store "$1"`, binary, back],
    { encoding: "utf8", env: environment({ DB_URL: url }) });
  refuses({ code: limited.status, out: limited.stdout, problem: limited.stderr }, 3, /the same command continues the move/);
  refuses(run(["serve", "--bind", "127.0.0.1:0", "--data-dir", back], { settings: EMBEDDED }), 3, /holds a part of postgres:/);
  moves(export_(url, back), 3000);
  assert.match(succeed(["verify", "--data-dir", back], EMBEDDED), /^3000 events of 1 entities/);
  assert.ok(existsSync(join(back, "sync-signing.jwk")));
});

test("rows of the outbox keep a store from moving out, and a moved store takes none", async (t) => {
  const url = newDatabase();
  const data = folder(t);
  const settings = { ...SETTINGS, DB_URL: url };
  succeed(["migrate"], settings);
  psql(url, "SELECT append_event('room', 'said')");
  const target = join(folder(t), "new");
  refuses(export_(url, target), 1, /rows of runtime\.outbox wait for a server/);
  psql(url, "DELETE FROM outbox");
  const user = new PsqlSession(t, url);
  await user.run("BEGIN ISOLATION LEVEL REPEATABLE READ", "SELECT 1");
  moves(export_(url, target), 0);
  const refused = await user.ask("SELECT runtime.append_event('room', 'said')");
  assert.match(refused.message, /khala_store_was_moved/);
  refuses(run(["serve", "--bind", "127.0.0.1:0", "--data-dir", data], { settings }), 3, /was moved to /);
});

/** The tables that move, with their columns, as the server's lists of columns name them. */
function movingTables() {
  const [lists, tables] = ["store_rows.h", "store_rows.c"].map((file) => readFileSync(new URL(`../../../src/store/${file}`, import.meta.url), "utf8"));
  const bodies = new Map([...`${lists}${tables}`.matchAll(/#define (\w+)\(FIRST, NEXT\)((?:.*\\\n)*.*)/g)].map(([, name, body]) => [name, body]));
  const columnsOf = (list) => [...bodies.get(list).matchAll(/(?:FIRST|NEXT)\((\w+),|(STORE_\w+)\((?:FIRST|NEXT), NEXT\)/g)]
    .flatMap(([, column, inner]) => column ?? columnsOf(inner));
  const layouts = new Map([...tables.matchAll(/LAYOUT\((\w+), \w+, \w+,\s+"[^"]*",\s+(\w+),/g)].map(([, layout, list]) => [layout, list]));
  const rows = [...tables.matchAll(/\.name = ("\w+"|\(table\)),\s*\.layout = &store_(\w+)_layout/g)]
    .flatMap(([, name, layout]) => (name === "(table)" ? ["run_documents", "worker_documents"] : [name.slice(1, -1)])
      .map((table) => ({ name: table, columns: columnsOf(layouts.get(layout)) })));
  assert.equal(rows.length, 18);
  return rows;
}

// The positions of an entity's events follow from the events. A row of the journal needs no number of its own.
// Nodes, their commits and the serials of revocations are about the servers of one database.
const STAYING = {
  sqlite: ["event_positions", "event_positions_recent", "journal.id"],
  postgres: ["writer", "locks", "built_in_topics", "outbox", "outbox_rejected", "outbox_limits", "secrets", "nodes", "commits",
    "sync_revocations.serial"],
};

alone("every table, column and property moves, or stays for a reason", async (t) => {
  const data = await small(t);
  const url = newDatabase();
  moves(import_(data, url), 5);
  const found = {
    sqlite: sqlite(data, `SELECT m.name || '.' || c.name FROM sqlite_schema m, pragma_table_info(m.name) c
      WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite_%'`),
    postgres: psql(url, `SELECT c.table_name || '.' || c.column_name FROM information_schema.columns c
      JOIN pg_tables t ON t.tablename = c.table_name AND t.schemaname = c.table_schema WHERE c.table_schema = 'runtime'`),
  };
  for (const engine of ["sqlite", "postgres"]) {
    const moving = movingTables().flatMap((table) => table.columns.map((column) => `${table.name}.${column}`));
    const lost = found[engine].split("\n").filter((name) => !moving.includes(name) && !STAYING[engine].includes(name)
      && !STAYING[engine].includes(name.split(".")[0]));
    assert.deepEqual(lost, [], `${engine}: src/store/store_rows.h names the columns that move`);
  }
  const names = "SELECT name FROM meta ORDER BY name";
  const known = ["database_history", "epoch", "journal_epoch", "move_in", "move_out", "projection_version", "reader_version", "schema_version", "unprojected_from"];
  for (const name of [...sqlite(data, names).split("\n"), ...psql(url, names).split("\n")]) assert.ok(known.includes(name), name);
});
