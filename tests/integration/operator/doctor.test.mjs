// The findings and the advice of `khala doctor`, and stores on which the server does not start.
import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import { chmodSync, chownSync, closeSync, copyFileSync, openSync, rmSync, statSync, writeFileSync, writeSync } from "node:fs";
import http from "node:http";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { onPostgres, sqliteOnly } from "../../lib/database.mjs";
import { binary, environment, folder, run, start, startVerb } from "../../lib/khala.mjs";
import { operate } from "../../lib/operator.mjs";
import { events } from "../../lib/samples.mjs";
import { alter, sql, uuidLiteral } from "../../lib/store.mjs";
import { Authority } from "../../lib/tls.mjs";

const ROOT = new URL("../../..", import.meta.url).pathname;

/** The statement that changes the schema version of the store. */
const schemaVersion = (version) => (onPostgres ? `UPDATE meta SET value = '${version}' WHERE name = 'schema_version'` : `PRAGMA user_version = ${version}`);

/** The findings of the doctor for a folder, by check. */
function examine(data, args = [], settings = {}) {
  const { code, out, problem } = run(["doctor", "--json", "--data-dir", data, ...args], { settings });
  assert.equal(problem, "");
  const { ok, checks } = JSON.parse(out);
  assert.equal(code, ok ? 0 : 1, out);
  const found = {};
  for (const { check, finding, message, advice } of checks) {
    assert.ok(["ok", "warning", "wrong"].includes(finding));
    assert.ok(message.length > 0 && (finding === "ok" || advice.length > 0), `${check}: ${message}`);
    (found[check] ??= []).push({ finding, message, advice });
  }
  return { ok, found };
}

/** Asserts that only that check is wrong, with a message that matches. */
function wrong({ ok, found }, check, words) {
  assert.equal(ok, false);
  const named = found[check].find(({ finding }) => finding === "wrong");
  assert.match(named.message, words);
  for (const [other, findings] of Object.entries(found)) {
    if (other !== check) assert.ok(findings.every(({ finding }) => finding !== "wrong"), other);
  }
}

/** A data folder with some events, whose server has stopped. */
async function stored(t, count = 300) {
  const operator = await operate(t);
  await operator.did("runs", { run_id: "one" }, 201);
  await operator.batch(events(count, { run_id: "one", payload: (n) => ({ n }) }));
  await operator.server.stop();
  return operator.data;
}

// The process that serves a store in PostgreSQL is not known.
const PROCESS = onPostgres ? "" : " \\(pid \\d+\\)";
const CHECKS = ["settings", "tls", "keys", "folder", "server", "files", "descriptors", "limits", "disk", "store",
  ...(onPostgres ? ["nodes"] : []), "pages", "chains", "projection", "journal", "documents", "usage", "clock", ...(onPostgres ? ["outbox"] : [])];

test("the doctor finds no fault in a healthy folder, with and without a server", async (t) => {
  const operator = await operate(t);
  await operator.did("runs", { run_id: "one" }, 201);
  const served = examine(operator.data, ["--url", operator.server.url]);
  assert.equal(served.ok, true, JSON.stringify(served.found));
  assert.match(served.found.server[0].message, new RegExp(`^the server at http:\\S+${PROCESS} is ready$`));
  assert.match(served.found.chains[0].message, /^1 events looked at/);
  await operator.server.stop();
  const idle = examine(operator.data);
  assert.equal(idle.ok, true);
  assert.deepEqual(Object.keys(idle.found), CHECKS);
  assert.match(idle.found.server[0].message, onPostgres ? /^the store is in PostgreSQL/ : /^no server runs on this folder$/);
  const { code, out } = run(["doctor", "--data-dir", operator.data]);
  assert.equal(code, 0);
  if (!onPostgres) assert.match(out, /^ok {7}pages {8}every page of the store is sound$/m);
});

test("the doctor and the log report how much memory the settings allow", async (t) => {
  const settings = { KHALA_CONNECTIONS_MAX: "1000", KHALA_IO_LOOPS: "2", KHALA_READERS: "2" };
  const operator = await operate(t, { settings });
  const figures = (found) => {
    assert.equal(found.limits[0].finding, "ok");
    const words = /^under the heaviest load that the settings allow, the server takes (\d+) MB of memory, and (\d+) MB more for a connection that fills every buffer; an idle server takes a small part of it$/;
    return found.limits[0].message.match(words).slice(1).map(Number);
  };
  const [fixed, each] = figures(examine(operator.data, ["--url", operator.server.url], settings).found);
  assert.ok(fixed > 0 && fixed < 20_000 && each > 0 && each < 2000, `${fixed} ${each}`);
  const more = figures(examine(operator.data, ["--url", operator.server.url], { ...settings, KHALA_WINDOWS_BYTES_MAX: `${(256 + 100) << 20}` }).found);
  assert.deepEqual(more, [fixed + 100, each]);
  const [, ...logged] = await operator.server.saw("log", /limits fixed_bytes=(\d+)[^\n]* connection_bytes=(\d+)/);
  assert.deepEqual(logged.map((bytes) => Math.floor(bytes / 2 ** 20)), [fixed, each]);
});

test("the doctor reports a server that does not answer", async (t) => {
  const operator = await operate(t);
  const message = onPostgres ? /^http:\/\/127\.0\.0\.1:1 does not answer/ : /^process \d+ has the store, and .* does not answer/;
  wrong(examine(operator.data, ["--url", "http://127.0.0.1:1"]), "server", message);
});

test("the doctor names a damaged page", sqliteOnly, async (t) => {
  const data = await stored(t, 2000);
  const path = join(data, "khala.db");
  const page = Number(sql(data, "SELECT pageno FROM dbstat WHERE name = 'events' AND pagetype = 'leaf' LIMIT 1 OFFSET 5"));
  const fd = openSync(path, "r+");
  writeSync(fd, Buffer.alloc(4096, 0xa5), 0, 4096, 4096 * (page - 1));
  closeSync(fd);
  const { ok, found } = examine(data);
  assert.equal(ok, false);
  assert.equal(found.pages[0].finding, "wrong");
  assert.match(found.pages[0].message, new RegExp(`damaged: .*[Pp]age ${page}\\b`));
  assert.match(found.pages[0].advice, /khala restore/);
});

test("the doctor names a file that is not a database", sqliteOnly, async (t) => {
  const data = await stored(t);
  writeFileSync(join(data, "khala.db"), "x".repeat(8192));
  wrong(examine(data), "store", /khala\.db: file is not a database/);
});

test("the doctor and the server refuse a forged event at the end of the log", async (t) => {
  const data = await stored(t);
  alter(data, "UPDATE events SET payload = '{\"n\":0}' WHERE log_id = 301");
  wrong(examine(data), "chains", /^log id 301 \(run:one seq 301\): the payload does not hash/);
  const { code, problem } = run(["serve", "--bind", "127.0.0.1:0", "--data-dir", data]);
  assert.equal(code, 3);
  assert.match(problem, /khala: the log in .* is damaged at log id 301 \(run:one\): .*'khala doctor' says what to do/);
});

test("the doctor and the server refuse a log that lost its end", sqliteOnly, async (t) => {
  const data = await stored(t);
  alter(data, "DELETE FROM events WHERE log_id = 301");
  const { found } = examine(data);
  assert.equal(found.pages[0].finding, "wrong");
  assert.match(found.pages[0].message, /the end of the log before event 302 is damaged/);
  const { code, problem } = run(["serve", "--bind", "127.0.0.1:0", "--data-dir", data]);
  assert.equal(code, 3);
  assert.match(problem, /khala: the store in .* is damaged: 'khala verify' names the place; restore a backup/);
});

test("the doctor reports an unknown schema version", async (t) => {
  const data = await stored(t);
  alter(data, schemaVersion(999));
  wrong(examine(data), "store", /schema version 999/);
});

test("the doctor names keys and folders that other users can read", async (t) => {
  const data = await stored(t);
  chmodSync(join(data, "operator.key"), 0o640);
  wrong(examine(data), "files", /operator\.key is open to other users \(mode 0640\)/);
  chmodSync(join(data, "operator.key"), 0o600);
  chmodSync(data, 0o755);
  if (!onPostgres) chmodSync(join(data, "khala.db"), 0o644);
  const { ok, found } = examine(data);
  assert.equal(ok, true);
  assert.equal(found.folder[0].finding, "warning");
  if (onPostgres) return;
  assert.match(found.files[0].message, /khala\.db is open to other users/);
  assert.equal(found.files[0].advice, `chmod 600 '${join(data, "khala.db")}'`);
  assert.equal(statSync(join(data, "khala.db")).mode & 0o777, 0o644, "looking changes nothing");
});

test("the doctor reports a missing folder and does not create it", sqliteOnly, (t) => {
  const data = join(folder(t), "none");
  wrong(examine(data), "folder", /No such file or directory/);
  assert.throws(() => statSync(data));
  assert.equal(examine(folder(t)).found.store[0].finding, "wrong");
});

test("the doctor reports an event ahead of the clock", async (t) => {
  const data = await stored(t);
  const ahead = (Date.now() + 3_600_000).toString(16).padStart(12, "0");
  alter(data, `UPDATE events SET cursor = ${uuidLiteral(`${ahead}70008000000000000000`)} WHERE log_id = 301`);
  const { found } = examine(data);
  assert.equal(found.clock[0].finding, "wrong");
  assert.match(found.clock[0].message, /^the cursor clock runs 3(5\d\d|600) s ahead/);
});

test("the doctor and the server report too few descriptors for the allowed connections", async (t) => {
  const data = await stored(t);
  const { ok, found } = examine(data, [], { KHALA_CONNECTIONS_MAX: "10000000" });
  assert.equal(ok, true);
  assert.equal(found.descriptors[0].finding, "warning");
  assert.match(found.descriptors[0].message, /KHALA_CONNECTIONS_MAX of 10000000 needs 10001024$/);
  const operator = await operate(t, { data, settings: { KHALA_CONNECTIONS_MAX: "10000000" } });
  await operator.server.saw("log", /server\.descriptors_few given=\d+ wanted=10001024/);
  assert.equal(examine(data, ["--url", operator.server.url], { KHALA_CONNECTIONS_MAX: "100" }).found.descriptors[0].finding, "ok");
});

/** Examines the folder with a changed disk or clock, by tests/support/moved_world.c. */
function elsewhere(t, data, settings) {
  const library = join(folder(t), "moved_world.so");
  execFileSync("gcc", ["-shared", "-fPIC", "-o", library, join(ROOT, "tests/support/moved_world.c"), "-ldl"]);
  // A sanitizer's runtime must be the first library.
  return examine(data, [], { ...settings, LD_PRELOAD: library, ASAN_OPTIONS: "verify_asan_link_order=0" });
}

test("the doctor reports a disk that is nearly full, full or read-only", async (t) => {
  const data = await stored(t);
  const look = (settings) => {
    const { ok, found } = elsewhere(t, data, settings);
    return [ok, found.disk[0].finding, found.disk[0].message];
  };
  assert.deepEqual(look({ MOVED_FREE_MB: "900" }), [true, "warning", `900 MB are free on the disk of ${data}`]);
  assert.deepEqual(look({ MOVED_FREE_MB: "100" }), [false, "wrong", `100 MB are free on the disk of ${data}`]);
  assert.deepEqual(look({ MOVED_READ_ONLY: "1" }), [false, "wrong", `${data} is on a read-only file system`]);
});

test("the doctor reports a clock that was never set", async (t) => {
  const { found } = elsewhere(t, await stored(t), { MOVED_CLOCK_S: "86400" });
  assert.deepEqual([found.clock[0].finding, found.clock[0].message], ["wrong", "this machine's clock has not been set"]);
});

test("the doctor reports an expired certificate", async (t) => {
  const data = await stored(t);
  const authority = new Authority(folder(t));
  const settings = Authority.settings(authority.issue("brief", { days: 3 }));
  const { found } = elsewhere(t, data, { ...settings, MOVED_CLOCK_S: String(Math.floor(Date.now() / 1000) + 10 * 86400) });
  assert.equal(found.tls[0].finding, "wrong");
  assert.match(found.tls[0].message, /^the certificate in \S+ has expired$/);
});

test("the doctor reports a default above its maximum", async (t) => {
  const { ok, found } = examine(await stored(t), [], { RUNTIME_KHALA_POLL_DEFAULT_LIMIT: "500" });
  assert.equal(ok, true);
  assert.match(found.settings[0].message, /^RUNTIME_KHALA_POLL_DEFAULT_LIMIT is above RUNTIME_KHALA_POLL_MAX_LIMIT/);
});

test("the doctor reports a weak secret and an unreadable key", async (t) => {
  const data = await stored(t);
  const { ok, found } = examine(data, [], { RUNTIME_SYNC_TOKEN_SIGNING_KEY: "short" });
  assert.deepEqual([ok, found.keys[0].finding], [true, "warning"]);
  assert.match(found.keys[0].message, /^the secret 'sync-auth-v1' is short/);
  writeFileSync(join(data, "sync-signing.jwk"), "junk");
  wrong(examine(data), "keys", /sync-signing\.jwk: /);
  chmodSync(join(data, "sync-signing.jwk"), 0o644);
  assert.match(examine(data).found.files[0].advice, /^chmod 600 .*make a new key/);
  rmSync(join(data, "sync-signing.jwk"));
  assert.deepEqual(examine(data).found.keys, [{ finding: "ok", message: "none yet: 'khala serve' makes one", advice: null }]);
  assert.throws(() => statSync(join(data, "sync-signing.jwk")), "looking makes none");
});

test("the doctor reports the leftovers of a restore", async (t) => {
  const data = await stored(t);
  writeFileSync(join(data, "khala.db.restoring"), "", { mode: 0o600 });
  const { ok, found } = examine(data);
  assert.deepEqual([ok, found.files[0].finding], [true, "warning"]);
  assert.match(found.files[0].message, /khala\.db\.restoring was left by an interrupted restore$/);
});

test("the doctor reports a file in place of the folder", sqliteOnly, (t) => {
  const path = join(folder(t), "file");
  writeFileSync(path, "");
  wrong(examine(path), "folder", /is not a folder that can be read: it is something else$/);
});

test("the doctor reports a folder of another user", async (t) => {
  if (process.getuid() !== 0) return t.skip("only root can be somebody else");
  const data = await stored(t);
  const copy = join(folder(t), "khala");
  copyFileSync(binary, copy);
  chmodSync(copy, 0o755);
  chmodSync(dirname(copy), 0o755);
  const look = () => {
    const { stdout } = spawnSync("setpriv", ["--reuid=65534", "--regid=65534", "--clear-groups", copy, "doctor", "--json", "--data-dir", data],
      { env: environment(), encoding: "utf8" });
    return JSON.parse(stdout).checks.filter(({ check }) => check === "folder").map(({ finding, message }) => [finding, message]);
  };
  chmodSync(data, 0o755);
  assert.deepEqual(look(), [["warning", `${data} belongs to another user (uid 0)`],
    ["wrong", `${data} cannot be read and written: Permission denied`]]);
});

test("the doctor reports files that the service's user cannot open", sqliteOnly, async (t) => {
  if (process.getuid() !== 0) return t.skip("only root can give files away");
  const data = await stored(t);
  chownSync(data, 65534, 65534);
  const { ok, found } = examine(data);
  assert.equal(ok, false);
  const named = found.files.find(({ message }) => message.startsWith(join(data, "khala.db ")));
  assert.deepEqual(named, { finding: "wrong", advice: `chown 65534:65534 '${join(data, "khala.db")}'`,
    message: `${join(data, "khala.db")} belongs to uid 0, and the service, which runs as the folder's owner (uid 65534), cannot open it` });
  for (const { advice } of found.files) execFileSync("sh", ["-c", advice]);
  assert.equal(examine(data).found.files.every(({ finding }) => finding === "ok"), true);
});

test("the doctor reports a server that is not ready", async (t) => {
  const operator = await operate(t);
  const unready = http.createServer((_, response) => response.writeHead(503).end());
  await new Promise((resolve) => unready.listen(0, "127.0.0.1", resolve));
  t.after(() => unready.close());
  const url = `http://127.0.0.1:${unready.address().port}`;
  const doctor = startVerb(t, ["doctor", "--json", "--data-dir", operator.data, "--url", url]);
  assert.equal((await doctor.end()).code, 1, doctor.log);
  const { finding, message } = JSON.parse(doctor.out).checks.find(({ check }) => check === "server");
  assert.equal(finding, "wrong");
  assert.match(message, new RegExp(`^the server at \\S+${PROCESS} is not ready: it answers 503$`));
});

test("the doctor reports a lock holder whose limits it cannot read", sqliteOnly, async (t) => {
  const data = await stored(t);
  const lock = join(data, "khala.lock");
  const holder = start(t, ["flock", lock, "cat"], { input: "pipe" });
  holder.child.stdin.write("held\n");
  await holder.saw("out", /held/);
  writeFileSync(lock, "4194305\n"); // above every pid
  const { found } = examine(data, ["--url", "http://127.0.0.1:1"]);
  assert.equal(found.descriptors[0].message, "the limits of process 4194305 cannot be read");
  assert.match(found.server[0].message, /^process 4194305 has the store, and http:\S+ does not answer: /);
});

test("the doctor reports an older schema and advises khala migrate", async (t) => {
  const data = await stored(t);
  alter(data, schemaVersion(1));
  wrong(examine(data), "store", /schema version 1.*khala migrate/);
});

test("the doctor reports an unreadable log", async (t) => {
  const data = await stored(t);
  alter(data, "ALTER TABLE events RENAME COLUMN chain_hash TO other");
  wrong(examine(data), "chains", /^the log cannot be read: .*(no such column|does not exist)/);
});

test("the doctor exits with 2 for bad settings", () => {
  assert.equal(run(["doctor"], { settings: { KHALA_READERS: "many" } }).code, 2);
  assert.equal(run(["doctor", "now"]).code, 2);
});
