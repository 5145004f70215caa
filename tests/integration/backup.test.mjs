// Backup beside a running server, restore under a new epoch, and what is left when either is killed.
import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { chmodSync, copyFileSync, existsSync, openSync, readdirSync, statSync, writeFileSync, writeSync, closeSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { binary, environment, folder, run, within } from "../lib/khala.mjs";
import { operate, sql } from "../lib/operator.mjs";

const KILLS = 8;
const epoch = (data) => sql(data, "SELECT value FROM meta WHERE name = 'epoch'");
const count = (data) => Number(sql(data, "SELECT count(*) FROM events"));
const log = (data, last) => execFileSync("sqlite3", ["-readonly", join(data, "khala.db"),
  `SELECT log_id, hex(event_hash) FROM events WHERE log_id <= ${last} ORDER BY log_id`], { maxBuffer: 1 << 28 }).toString();
const change = (file, query) => execFileSync("sqlite3", [file, query]);

/** A verb that runs while the test goes on. */
function start(args) {
  const child = spawn(binary, args, { env: environment(), stdio: ["ignore", "pipe", "pipe"] });
  const verb = { child, out: "", problem: "" };
  child.stdout.on("data", (data) => { verb.out += data; });
  child.stderr.on("data", (data) => { verb.problem += data; });
  verb.ended = within(new Promise((resolve) => child.on("close", (code, signal) => resolve({ code, signal }))), args[0]);
  return verb;
}

function items(size, run_id = "load") {
  return Array.from({ length: size }, (_, n) => ({ run_id, event_type: "run.log", payload: { n, text: "x".repeat(200) } }));
}

/** A data folder with so many events, its server stopped. */
async function stored(t, size) {
  const operator = await operate(t);
  await operator.did("runs", { run_id: "load" }, 201);
  for (let left = size - 1; left > 0; left -= 1000) {
    for (const answer of await operator.batch(items(Math.min(left, 1000)))) assert.equal(answer.status, 200);
  }
  await operator.server.stop();
  operator.server.crashed = true; // it has stopped; nothing is left to stop
  assert.equal(count(operator.data), size);
  return operator.data;
}

function backup(data, file) {
  const { code, out, problem } = run(["backup", file, "--data-dir", data, "--json"]);
  assert.equal(code, 0, problem);
  return JSON.parse(out);
}

test("a backup under load is a prefix of the log, and lives on elsewhere under another epoch", async (t) => {
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
  const verb = start(["backup", file, "--data-dir", operator.data, "--json"]);
  const { code } = await verb.ended;
  const during = sent;
  loading = false;
  await load;
  assert.equal(code, 0, verb.problem);
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

test("a backup replaces no file, unless it is told to", async (t) => {
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

test("a backup that cannot be written leaves nothing", async (t) => {
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

test("a restore keeps the store that was there, and that can be restored in turn", async (t) => {
  const data = await stored(t, 20);
  const file = join(folder(t), "backup.db");
  const first = backup(data, file);
  const operator = await operate(t, { data });
  await operator.did("runs/load/events", { event_type: "run.log" });
  await operator.server.stop();
  operator.server.crashed = true;
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

test("what is not a sound backup is refused, and the store stays as it was", async (t) => {
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

test("a restore waits for nobody: not beside a server, nor beside a reader", async (t) => {
  const operator = await operate(t);
  await operator.did("runs", { run_id: "load" }, 201);
  const file = join(folder(t), "backup.db");
  backup(operator.data, file);
  const served = run(["restore", file, "--data-dir", operator.data]);
  assert.equal(served.code, 3);
  assert.match(served.problem, /is in use by another process \(pid \d+\)/);
  await operator.server.stop();
  operator.server.crashed = true;

  const reader = spawn("sqlite3", [join(operator.data, "khala.db")], { stdio: ["pipe", "pipe", "inherit"] });
  t.after(() => reader.kill("SIGKILL"));
  const reads = new Promise((resolve) => reader.stdout.once("data", resolve));
  reader.stdin.write("BEGIN; SELECT count(*) FROM events;\n");
  await within(reads, "the reader");
  const before = epoch(operator.data);
  const beside = run(["restore", file, "--data-dir", operator.data]);
  assert.equal(beside.code, 3);
  assert.match(beside.problem, /somebody reads the store/);
  assert.equal(epoch(operator.data), before);
});

test("a store too damaged to open is kept with its log, and replaced", async (t) => {
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

/** Runs the verb once for its duration, then kills it at moments spread over it. */
async function killed(args, check, prepare = () => {}) {
  prepare();
  const begun = performance.now();
  const whole = start(args);
  assert.equal((await whole.ended).code, 0, whole.problem);
  const duration = performance.now() - begun;
  check(true);
  let deaths = 0;
  for (let i = 0; i < KILLS; i++) {
    prepare();
    const verb = start(args);
    const timer = setTimeout(() => verb.child.kill("SIGKILL"), (duration * (i + 0.5)) / KILLS);
    const { code } = await verb.ended;
    clearTimeout(timer);
    assert.ok(code === 0 || code === null, verb.problem);
    deaths += code === null;
    check(code === 0);
  }
  assert.ok(deaths > 0, "none was killed in time");
}

test("a backup that is killed leaves the old file or the new one", async (t) => {
  const old = await stored(t, 5);
  const data = await stored(t, 3000);
  const place = folder(t);
  const file = join(place, "backup.db");
  const small = join(place, "small.db");
  backup(old, small);
  await killed(["backup", file, "--force", "--data-dir", data], (done) => {
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
  await killed(["restore", file, "--data-dir", data], (done) => {
    const found = Number(run(["verify", "--data-dir", data]).out.match(/^(\d+) events/)?.[1]);
    assert.ok(done ? found === 3000 : [5, 3000].includes(found), `${found} events`);
    // The new one never shows itself under an epoch that was in use.
    assert.equal(epoch(data) === before, found === 5);
    assert.notEqual(epoch(data), grown.epoch);
  }, () => {
    assert.equal(run(["restore", small, "--data-dir", data]).code, 0);
    before = epoch(data);
  });
});
