// Backup beside a running server, restore under a new epoch, and the files left when either is killed.
import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import {
  chmodSync, chownSync, closeSync, copyFileSync, existsSync, mkdirSync, openSync, readFileSync, readdirSync, statSync, truncateSync, writeFileSync, writeSync,
} from "node:fs";
import { join } from "node:path";
import { test } from "../../lib/cases.mjs";
import { binary, environment, folder, run, startVerb } from "../../lib/khala.mjs";
import { operate } from "../../lib/operator.mjs";
import { streamPath } from "../../lib/paths.mjs";
import { events } from "../../lib/samples.mjs";
import { Stream } from "../../lib/sse.mjs";
import { holdReader, sql } from "../../lib/store.mjs";
import { repeat } from "../../lib/wait.mjs";

const KILLS = 8;
// The schema before a store knew where its epochs part.
const LISTED = ["owner", "state", "updated_at", "parent_run_id", "title", "tags"]; // columns that lists added
const BEFORE_FORKS = `DELETE FROM meta WHERE name LIKE 'fork%'; DROP VIEW owner_usage_counted; DROP TABLE owner_usage; DROP TABLE owner_quotas; DROP TABLE operator_keys;
  ${["run_documents_by_update", "run_documents_by_owner", "run_documents_by_parent", "worker_documents_by_update", "worker_documents_by_owner",
    "entities_by_creation", "entities_by_owner", "entities_by_owner_id", "entities_by_worker"].map((name) => `DROP INDEX ${name};`).join(" ")}
  ${["run_documents", "worker_documents"].flatMap((table) => LISTED.map((name) => `ALTER TABLE ${table} DROP COLUMN ${name};`)).join(" ")}
  ALTER TABLE journal DROP COLUMN fields_before; PRAGMA user_version = 9`;
const FIRST_SCHEMA = new URL("../../../src/store/sqlite/migrations/0001_log.sql", import.meta.url);
const epoch = (data) => sql(data, "SELECT value FROM meta WHERE name = 'epoch'");
const count = (data) => Number(sql(data, "SELECT count(*) FROM events"));
const log = (data, last) => sql(data, `SELECT log_id, hex(chain_hash) FROM events WHERE log_id <= ${last} ORDER BY log_id`);
const change = (file, query) => execFileSync("sqlite3", [file, query]);
const items = (size) => events(size, { run_id: "load", payload: (n) => ({ n, text: "x".repeat(200) }) });

/** A data folder with so many events, whose server has stopped. */
async function stored(t, size) {
  const operator = await operate(t);
  await operator.did("runs", { run_id: "load" }, 201);
  for (let left = size - 1; left > 0; left -= 1000) {
    for (const answer of await operator.batch(items(Math.min(left, 1000)))) assert.equal(answer.status, 200);
  }
  await operator.server.stop();
  assert.equal(count(operator.data), size);
  return operator.data;
}

function backup(data, file) {
  const { code, out, problem } = run(["backup", file, "--data-dir", data, "--json"]);
  assert.equal(code, 0, problem);
  return JSON.parse(out);
}

test("a backup under load is a prefix of the log, and its restore has another epoch", async (t) => {
  const operator = await operate(t);
  const file = join(folder(t), "backup.db");
  const elsewhere = join(folder(t), "elsewhere");
  await operator.did("runs", { run_id: "load" }, 201);
  for (let i = 0; i < 20; i++) await operator.batch(items(1000));
  let loading = true;
  let sent = 0;
  const load = (async () => {
    for (; loading; sent++) await operator.batch(items(50));
  })();
  const verb = startVerb(t, ["backup", file, "--data-dir", operator.data, "--json"]);
  const { code } = await verb.end();
  const during = sent;
  loading = false;
  await load;
  assert.equal(code, 0, verb.log);
  const said = JSON.parse(verb.out);
  assert.ok(said.events >= 20_001 && during > 0, `${said.events} events, ${during} batches meanwhile`);
  assert.equal(said.bytes, statSync(file).size);
  assert.equal(statSync(file).mode & 0o777, 0o600);
  assert.deepEqual(readdirSync(join(file, "..")), ["backup.db"]);

  const { code: restored, out, problem } = run(["restore", file, "--data-dir", elsewhere]);
  assert.equal(restored, 0, problem);
  assert.match(out, new RegExp(`holds ${said.events} events now\n`));
  assert.match(run(["verify", "--data-dir", elsewhere]).out, new RegExp(`^${said.events} events of 1 entities: every hash`));
  assert.equal(log(elsewhere, said.events), log(operator.data, said.events));
  assert.notEqual(epoch(elsewhere), epoch(operator.data));
  assert.equal(epoch(operator.data), said.epoch);

  const second = await operate(t, { data: elsewhere });
  const { event } = await second.did("runs/load/events", { event_type: "run.log" });
  assert.equal(event.seq, said.events + 1);
});

test("a backup replaces an existing file only with --force", async (t) => {
  const data = await stored(t, 10);
  const file = join(folder(t), "backup.db");
  writeFileSync(file, "precious");
  const refused = run(["backup", file, "--data-dir", data]);
  assert.equal(refused.code, 1);
  assert.match(refused.problem, /^khala: .*backup\.db exists; --force/);
  assert.equal(statSync(file).size, "precious".length);
  const forced = run(["backup", "--force", file, "--data-dir", data]);
  assert.equal(forced.code, 0, forced.problem);
  assert.match(forced.out, /backup\.db holds 10 events of epoch [0-9a-f-]{36} in \d+ bytes\n$/);
  assert.deepEqual(readdirSync(join(file, "..")), ["backup.db"]);
});

test("a backup that cannot be written leaves no file", async (t) => {
  const data = await stored(t, 1000);
  const place = folder(t);
  const full = execFileSync("bash", ["-c", 'prlimit --fsize=65536 "$0" backup "$1" --data-dir "$2" 2>&1; echo "code $?"',
    binary, join(place, "backup.db"), data], { encoding: "utf8", env: environment() });
  assert.match(full, /^khala: .*disk.*\ncode 3\n$/);
  assert.deepEqual(readdirSync(place), []);
  assert.equal(run(["backup", join(place, "none", "backup.db"), "--data-dir", data]).code, 3);
  assert.equal(run(["backup", join(place, "backup.db"), "--data-dir", join(place, "none")]).code, 3);
  assert.deepEqual(readdirSync(place), []);
});

test("a backup does not replace a pipe or a folder", async (t) => {
  const operator = await operate(t);
  const place = folder(t);
  execFileSync("mkfifo", [join(place, "pipe")]);
  for (const options of [[], ["--force"]]) {
    for (const file of [join(place, "pipe"), place]) {
      const { code, problem } = run(["backup", ...options, file, "--data-dir", operator.data]);
      assert.equal(code, 2, `${file}: ${problem}`);
      assert.match(problem, /is not a file that a backup can replace; name another/);
    }
  }
  assert.ok(statSync(join(place, "pipe")).isFIFO());
  assert.deepEqual(readdirSync(place), ["pipe"]);
});

test("a backup does not overwrite a file of the store", async (t) => {
  const operator = await operate(t);
  await operator.did("runs", { run_id: "one" }, 201);
  const before = readdirSync(operator.data).sort();
  for (const name of ["khala.db", "khala.db-wal", "khala.lock", "khala.db.restoring"]) {
    for (const file of [join(operator.data, name), `${operator.data}/../${operator.data.split("/").pop()}/${name}`]) {
      const { code, problem } = run(["backup", "--force", file, "--data-dir", operator.data]);
      assert.equal(code, 2, file);
      assert.match(problem, /is a file of the store itself; name another/);
    }
  }
  assert.deepEqual(readdirSync(operator.data).sort(), before);
  await operator.did("runs/one/events", { event_type: "run.log" });
  assert.equal(backup(operator.data, join(operator.data, "beside.db")).events, 2);
});

test("a backup contains revocations and used tokens, and no key", async (t) => {
  const secret = "0123456789abcdef0123456789abcdef";
  const settings = { RUNTIME_SYNC_TOKEN_SIGNING_KEY: secret, RUNTIME_SYNC_TOKEN_SINGLE_USE: "true" };
  const key = { kid: "sync-auth-v1", k: Buffer.from(secret).toString("base64url") };
  const operator = await operate(t, { settings });
  const sign = (claims) => operator.sign({ oa_sync_scopes: ["runtime.read_all"], ...claims }, key);
  const [lost, used, free] = [sign({ oa_session_id: "lost" }), sign({}), sign({})];
  const open = async (server, token) => {
    const stream = await Stream.open({ server }, streamPath("chat", `token=${token}`));
    if (stream.status !== 200) return (await stream.refused())[1];
    stream.close();
    return 200;
  };
  assert.equal(await open(operator.server, used), 200);
  await operator.did("sync/sessions/revoke", { session_ids: ["lost"], reason: "test" });
  const file = join(folder(t), "backup.db");
  backup(operator.data, file);
  const data = join(folder(t), "elsewhere");
  assert.equal(run(["restore", file, "--data-dir", data]).code, 0);
  assert.deepEqual(readdirSync(data).sort(), ["khala.db", "khala.lock"]);
  const bytes = readFileSync(file);
  for (const text of [operator.key, secret, key.k]) assert.ok(!bytes.includes(text));
  const { server } = await operate(t, { data, settings });
  assert.equal(await open(server, lost), "token_revoked");
  assert.equal(await open(server, used), "token_replayed");
  assert.equal(await open(server, free), 200);
});

test("restored files are readable by their owner only, whatever the umask", async (t) => {
  const data = await stored(t, 3);
  const place = folder(t);
  const done = spawnSync("bash", ["-c", 'umask 0; "$0" backup "$1" --data-dir "$2" && "$0" restore "$1" --data-dir "$3"',
    binary, join(place, "backup.db"), data, join(place, "new")], { encoding: "utf8", env: environment() });
  assert.equal(done.status, 0, done.stderr);
  const mode = (path) => statSync(path).mode & 0o777;
  assert.equal(mode(join(place, "backup.db")), 0o600);
  assert.equal(mode(join(place, "new")), 0o700);
  for (const name of readdirSync(join(place, "new"))) assert.equal(mode(join(place, "new", name)), 0o600, name);
});

test("root's restore leaves every file to the owner of the folder", async (t) => {
  if (process.getuid() !== 0) return t.skip("only root can give files away");
  const place = folder(t);
  const data = await stored(t, 3);
  backup(data, join(place, "backup.db"));
  mkdirSync(join(place, "new"), { mode: 0o700 });
  chownSync(join(place, "new"), 65534, 65534);
  const { code, problem } = run(["restore", join(place, "backup.db"), "--data-dir", join(place, "new")]);
  assert.equal(code, 0, problem);
  const names = readdirSync(join(place, "new"));
  assert.ok(names.includes("khala.db") && names.includes("khala.lock"), names.join(" "));
  for (const name of names) assert.equal(statSync(join(place, "new", name)).uid, 65534, name);
});

test("a copy of the files that was put back gets another epoch by migrate --new-epoch, with the server stopped", async (t) => {
  const data = await stored(t, 3);
  const before = epoch(data);
  const server = await operate(t, { data });
  assert.equal(run(["migrate", "--new-epoch", "--data-dir", data]).code, 3);
  await server.server.stop();
  assert.equal(epoch(data), before);
  const renewed = run(["migrate", "--new-epoch", "--json", "--data-dir", data]);
  assert.equal(renewed.code, 0, renewed.problem);
  assert.notEqual(epoch(data), before);
  assert.deepEqual(JSON.parse(renewed.out), { epoch: epoch(data) });
  assert.equal(run(["migrate", "--new-epoch", "--undo-move", "--data-dir", data]).code, 2);
});

test("a store that was restored by a version without forks refuses positions without an epoch", async (t) => {
  const data = await stored(t, 3);
  const elsewhere = join(folder(t), "elsewhere");
  const file = join(folder(t), "backup.db");
  const fork = (place) => sql(place, "SELECT value FROM meta WHERE name = 'fork_log_id'");
  backup(data, file);
  assert.equal(run(["restore", file, "--data-dir", elsewhere]).code, 0);
  assert.equal(fork(elsewhere), "3");
  for (const [place, found] of [[elsewhere, "0"], [data, ""]]) {
    change(join(place, "khala.db"), BEFORE_FORKS);
    assert.equal(run(["migrate", "--data-dir", place]).code, 0);
    assert.equal(fork(place), found);
  }
  // A store of that schema that is replaced is not migrated, and says the same.
  change(join(elsewhere, "khala.db"), BEFORE_FORKS);
  assert.equal(run(["restore", file, "--data-dir", elsewhere]).code, 0);
  assert.equal(fork(elsewhere), "0");
});

test("a client that follows over a restore receives epoch_mismatch and starts again", async (t) => {
  const first = await operate(t);
  await first.did("runs", { run_id: "load" }, 201);
  await first.batch(items(4));
  const file = join(folder(t), "backup.db");
  const { port } = first.server;
  const tail = startVerb(t, ["tail", "run:load:events", "--from-start", "--json", "--url", first.server.url, "--data-dir", first.data]);
  const printed = () => tail.lines.map((line) => JSON.parse(line));
  const came = (size) => tail.until(() => tail.lines.length >= size, `${size} events`);
  await came(5);
  backup(first.data, file);
  await first.did("runs/load/events", { event_type: "run.lost" });
  await came(6);
  await first.server.stop();
  assert.equal(run(["restore", file, "--data-dir", first.data]).code, 0);
  const second = await operate(t, { data: first.data, bind: `127.0.0.1:${port}` });
  await came(11);
  await second.did("runs/load/events", { event_type: "run.other" });
  await came(12);
  assert.equal((await tail.end("SIGTERM")).code, 0, tail.log);
  assert.match(tail.log, /the cursor 6@\S+ is stale \[\\*"epoch_mismatch\\*"[\],]/);
  const seen = printed();
  assert.deepEqual(seen.map(({ sequence }) => sequence), [1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6]);
  assert.deepEqual([seen[5].kind, seen[11].kind], ["run.lost", "run.other"]);
});

test("a restore that runs out of disk leaves the store unchanged", async (t) => {
  const large = await stored(t, 2000);
  const data = await stored(t, 5);
  const file = join(folder(t), "backup.db");
  backup(large, file);
  const before = [epoch(data), readdirSync(data).sort().join()];
  const full = spawnSync("prlimit", ["--fsize=65536", binary, "restore", file, "--data-dir", data], { encoding: "utf8", env: environment() });
  assert.equal(full.status, 3, full.stderr);
  assert.match(full.stderr, /^khala: .*(disk|full)/);
  assert.deepEqual([epoch(data), readdirSync(data).sort().join()], before);
  assert.equal(run(["verify", "--data-dir", data]).code, 0);
});

test("a restored backup of an older schema is migrated", async (t) => {
  const data = await stored(t, 5);
  const file = join(folder(t), "backup.db");
  const [now, application] = [sql(data, "PRAGMA user_version"), sql(data, "PRAGMA application_id")];
  change(file, `PRAGMA user_version = 1; PRAGMA application_id = ${application}; ${readFileSync(FIRST_SCHEMA, "utf8")};
    INSERT INTO meta (name, value) VALUES ('epoch', '019b76da-a800-7000-8000-000000000000')`);
  const { code, out, problem } = run(["restore", file, "--data-dir", data, "--json"]);
  assert.equal(code, 0, problem);
  assert.equal(JSON.parse(out).events, 0);
  assert.ok(Number(now) > 1);
  assert.equal(sql(data, "PRAGMA user_version"), now);
  const operator = await operate(t, { data });
  await operator.did("sync/sessions/revoke", { session_ids: ["a"], reason: "test" });
});

test("a restore keeps the replaced store, which can be restored in turn", async (t) => {
  const data = await stored(t, 20);
  const file = join(folder(t), "backup.db");
  const first = backup(data, file);
  const operator = await operate(t, { data });
  await operator.did("runs/load/events", { event_type: "run.log" });
  await operator.server.stop();
  const before = epoch(data);

  const said = JSON.parse(run(["restore", file, "--data-dir", data, "--json"]).out);
  assert.equal(said.events, 20);
  assert.equal(said.epoch_before, first.epoch);
  assert.equal(epoch(data), said.epoch);
  assert.notEqual(said.epoch, before);
  assert.equal(count(data), 20);
  assert.ok(existsSync(said.kept));

  const back = JSON.parse(run(["restore", said.kept, "--data-dir", data, "--json"]).out);
  assert.equal(back.events, 21);
  assert.equal(count(data), 21);
  assert.ok(![before, said.epoch].includes(epoch(data)));
  assert.equal(run(["verify", "--data-dir", data]).code, 0);
});

test("a damaged or foreign backup is refused, and the store stays unchanged", async (t) => {
  const data = await stored(t, 400);
  const place = folder(t);
  const good = join(place, "good.db");
  backup(data, good);
  const made = (name, make) => {
    const file = join(place, name);
    copyFileSync(good, file);
    chmodSync(file, 0o600);
    make(file);
    return file;
  };
  const overwrite = (file, text, at) => {
    const fd = openSync(file, "r+");
    writeSync(fd, text, 0, text.length, at);
    closeSync(fd);
  };
  const cases = [
    [made("junk.db", (file) => writeFileSync(file, "junk")), 1, /not a database/],
    [made("empty.db", (file) => writeFileSync(file, "")), 1, /holds no store/],
    [made("other.db", (file) => change(file, "PRAGMA application_id = 7")), 1, /another application/],
    [made("newer.db", (file) => change(file, "PRAGMA user_version = 999")), 1, /schema version 999/],
    [made("short.db", (file) => truncateSync(file, statSync(file).size - 4096 * 3)), 1, /cannot be restored|malformed/],
    [made("torn.db", (file) => overwrite(file, Buffer.alloc(8192, 0xa5), 4096 * 30)), 1, /cannot be restored/],
    [made("forged.db", (file) => change(file, "UPDATE events SET type = 'run.forged' WHERE log_id = 399")), 1, /log id 399/],
    [join(place, "none.db"), 3, /No such file/],
  ];
  const before = [epoch(data), readdirSync(data).sort().join()];
  for (const [file, expected, words] of cases) {
    const { code, out, problem } = run(["restore", file, "--data-dir", data]);
    assert.equal(code, expected, `${file}: ${problem}`);
    assert.equal(out, "");
    assert.match(problem, words);
    assert.deepEqual([epoch(data), readdirSync(data).sort().join()], before, file);
  }
});

test("a restore is refused while a server or a reader uses the store", async (t) => {
  const operator = await operate(t);
  await operator.did("runs", { run_id: "load" }, 201);
  const file = join(folder(t), "backup.db");
  backup(operator.data, file);
  const served = run(["restore", file, "--data-dir", operator.data]);
  assert.equal(served.code, 3);
  assert.match(served.problem, /is in use by another process \(pid \d+\)/);
  await operator.server.stop();

  await holdReader(t, operator.data);
  const before = epoch(operator.data);
  const beside = run(["restore", file, "--data-dir", operator.data]);
  assert.equal(beside.code, 3);
  assert.match(beside.problem, /another process reads the store/);
  assert.equal(epoch(operator.data), before);
});

test("a restore keeps a store that is too damaged to open, and replaces it", async (t) => {
  const data = await stored(t, 20);
  const file = join(folder(t), "backup.db");
  backup(data, file);
  writeFileSync(join(data, "khala.db"), "not a database at all");
  writeFileSync(join(data, "khala.db-wal"), "nor a log");
  const { code, out, problem } = run(["restore", file, "--data-dir", data, "--json"]);
  assert.equal(code, 0, problem);
  const { kept } = JSON.parse(out);
  assert.equal(statSync(kept).size, 21);
  assert.equal(statSync(`${kept}-wal`).size, 9);
  assert.match(run(["verify", "--data-dir", data]).out, /^20 events/);
});

/** Runs the verb to learn how long it takes, then kills it at moments spread over that time. A run that ends before its
 * moment corrects the time: the first one may have been slow. */
async function killed(t, args, check, prepare = () => {}) {
  let duration = Infinity;
  const attempt = async (share) => {
    prepare();
    const begun = performance.now();
    const verb = startVerb(t, args);
    const stop = share < 1 ? repeat(t, duration * share, () => verb.kill("SIGKILL")) : () => {};
    const { code } = await verb.end();
    stop();
    assert.ok(code === 0 || (code === null && share < 1), verb.log);
    if (code === 0) duration = Math.min(duration, performance.now() - begun);
    check(code === 0);
    return code === null;
  };
  await attempt(1);
  let deaths = 0;
  for (let i = 0; i < KILLS || (deaths === 0 && i < 8 * KILLS); i++) deaths += await attempt(((i % KILLS) + 0.5) / KILLS);
  assert.ok(deaths > 0, "none was killed in time");
}

test("a backup that is killed leaves the old file or the new one", async (t) => {
  const old = await stored(t, 5);
  const data = await stored(t, 3000);
  const place = folder(t);
  const file = join(place, "backup.db");
  const small = join(place, "small.db");
  backup(old, small);
  await killed(t, ["backup", file, "--force", "--data-dir", data], (done) => {
    const found = Number(execFileSync("sqlite3", [file, "SELECT count(*) FROM events WHERE (SELECT * FROM pragma_integrity_check) = 'ok'"]));
    assert.ok(done ? found === 3000 : [5, 3000].includes(found), `${found} events`);
  }, () => copyFileSync(small, file));
});

test("a restore that is killed leaves the old store or the new one", async (t) => {
  const data = await stored(t, 5);
  const large = await stored(t, 3000);
  const place = folder(t);
  const file = join(place, "backup.db");
  const small = join(place, "small.db");
  const grown = backup(large, file);
  backup(data, small);
  let before;
  await killed(t, ["restore", file, "--data-dir", data], (done) => {
    const found = Number(run(["verify", "--data-dir", data]).out.match(/^(\d+) events/)?.[1]);
    assert.ok(done ? found === 3000 : [5, 3000].includes(found), `${found} events`);
    // The new store always has an epoch that was never in use.
    assert.equal(epoch(data) === before, found === 5);
    assert.notEqual(epoch(data), grown.epoch);
  }, () => {
    assert.equal(run(["restore", small, "--data-dir", data]).code, 0);
    before = epoch(data);
  });
});
