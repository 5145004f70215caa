// The data directory disappears under a running server: moved, deleted, replaced, or its disk is
// full. No append is acknowledged without being stored, and every client is told.
import assert from "node:assert/strict";
import { copyFileSync, existsSync, mkdirSync, readdirSync, readFileSync, readlinkSync, renameSync, rmSync } from "node:fs";
import { join } from "node:path";
import { test } from "../../lib/cases.mjs";
import { assertError, folder, run } from "../../lib/khala.mjs";
import { operate } from "../../lib/operator.mjs";
import { snapshotPath, streamPath } from "../../lib/paths.mjs";
import { range } from "../../lib/samples.mjs";
import { mayMount, SmallDisk } from "../../lib/small_disk.mjs";
import { Stream } from "../../lib/sse.mjs";
import { sql } from "../../lib/store.mjs";
import { until } from "../../lib/wait.mjs";

const TRIES = 50;
const SNAPSHOT = snapshotPath("runtime.run_summaries");
const count = (text, pattern) => (text.match(pattern) ?? []).length;

/** Starts a server on a directory that can be moved. */
async function onMovable(t) {
  const place = folder(t);
  const data = join(place, "data");
  const operator = await operate(t, { data });
  await operator.did("runs", { run_id: "r", owner_user_id: "u" }, 201);
  for (let i = 0; i < 20; i++) await operator.did("runs/r/events", { event_type: "x", payload: { i } });
  return { operator, data, away: join(place, "away") };
}

const append = (operator) => operator.post("runs/r/events", { event_type: "y" });

/** Asserts that every write is refused, and that health and metrics say so. */
async function refusesToWrite(operator, reason) {
  for (let i = 0; i < TRIES; i++) assertError(await append(operator), 503, "store_unavailable");
  for (const item of await operator.batch([{ run_id: "r", event_type: "z" }, { topic: "chat", event_type: "z" }])) {
    assert.equal(item.status, 503);
    assert.equal(item.error.error ?? item.error, "store_unavailable");
  }
  assertError(await operator.post("sync/sessions/revoke", { session_ids: ["s"] }), 503, "store_unavailable");
  const ready = assertError(await operator.get("/healthz/ready"), 503, "store_unavailable");
  assert.equal(ready.reason_code, reason);
  assert.equal((await operator.get("/healthz/live")).status, 200);
  assert.match((await operator.get("/metrics")).body, /^khala_store_writable 0$/m);
}

/** Asserts that the store contains exactly the acknowledged events. */
function holds(data, events) {
  const verified = run(["verify", "--data-dir", data]);
  assert.equal(verified.code, 0, verified.problem);
  assert.match(verified.out, new RegExp(`^${events} events `));
  assert.equal(sql(data, "SELECT count(*), max(seq) FROM events"), `${events}|${events}`);
}

test("a server whose directory is moved refuses appends and recovers when it is back", async (t) => {
  const { operator, data, away } = await onMovable(t);
  const { server } = operator;
  const live = await Stream.open(operator, streamPath("run:r:events", "after_seq=0"),
    { authorization: `Bearer ${operator.reader}` });
  await live.until(() => live.messages.length === 21, "what was appended");
  renameSync(data, away);
  assertError(await append(operator), 503, "store_unavailable");
  await server.saw("log", /store\.moved .*khala\.db was moved or deleted while in use .*put it back/);
  await refusesToWrite(operator, "store_moved");
  for (let i = 0; i < 5; i++) assert.equal((await operator.get(SNAPSHOT)).status, 503);
  // No new directory was made, and reads answer the stored events.
  assert.equal(existsSync(data), false);
  assert.deepEqual((await operator.events("r")).map((event) => event.seq), range(1, 21));
  assert.equal(count(server.log, /store\.commit_failed/g), 1);
  assert.equal(count(server.log, /store\.moved/g), 1);
  assert.equal(count(server.log, /snapshot\.failed/g), 1);
  assert.ok(count(server.log, /\n/g) < 20, server.log);

  renameSync(away, data);
  const { event } = await operator.did("runs/r/events", { event_type: "after" });
  assert.equal(event.seq, 22);
  await server.saw("log", /store\.commit_recovered/);
  await server.saw("log", /store\.back/);
  assert.equal((await operator.get("/healthz/ready")).status, 200);
  assert.equal((await operator.get(SNAPSHOT)).status, 200);
  await live.until(() => live.messages.length === 22, "the event of after");
  assert.deepEqual(live.messages.map((message) => message.data.sequence), range(1, 22));
  await server.stop();
  holds(data, 22);
});

test("an idle server also notices that its directory was moved", async (t) => {
  const { operator, data, away } = await onMovable(t);
  renameSync(data, away);
  await operator.server.saw("log", /store\.moved /);
  const ready = assertError(await operator.get("/healthz/ready"), 503, "store_unavailable");
  assert.equal(ready.reason_code, "store_moved");
  renameSync(away, data);
  await operator.server.saw("log", /store\.back /);
  assert.equal((await operator.get("/healthz/ready")).status, 200);
});

test("a moved directory contains every acknowledged event for a new server", async (t) => {
  const { operator, data, away } = await onMovable(t);
  renameSync(data, away);
  assertError(await append(operator), 503, "store_unavailable");
  await operator.server.stop();
  assert.equal(existsSync(data), false);
  const next = await operate(t, { data: away });
  assert.equal((await next.did("runs/r/events", { event_type: "x" })).event.seq, 22);
  await next.server.stop();
  holds(away, 22);
});

test("another directory in place of a moved one is not written to", async (t) => {
  const { operator, data, away } = await onMovable(t);
  const other = await operate(t);
  await other.did("runs", { run_id: "other" }, 201);
  await other.server.crash(); // so that its log still holds what was appended
  renameSync(data, away);
  renameSync(other.data, data);
  mkdirSync(other.data);
  const before = readdirSync(data).map((name) => [name, readFileSync(join(data, name))]);
  assertError(await append(operator), 503, "store_unavailable");
  await operator.server.saw("log", /store\.moved .*another file is there/);
  await operator.server.stop();
  assert.deepEqual(readdirSync(data).map((name) => [name, readFileSync(join(data, name))]), before);
  holds(data, 1);
  holds(away, 21);
});

test("a deleted directory can be recovered while the server runs", async (t) => {
  const { operator, data, away } = await onMovable(t);
  const { server } = operator;
  rmSync(data, { recursive: true });
  assertError(await append(operator), 503, "store_unavailable");
  await server.saw("log", /store\.moved .*copy it and its -wal from \/proc\/PID\/fd/);
  await refusesToWrite(operator, "store_moved");
  mkdirSync(away);
  const fds = `/proc/${server.child.pid}/fd`;
  for (const fd of readdirSync(fds)) {
    const [, name] = readlinkSync(join(fds, fd)).match(/\/(khala\.db(?:-wal)?) \(deleted\)$/) ?? [];
    if (name) copyFileSync(join(fds, fd), join(away, name));
  }
  // The directory is back with other files, so appends are still refused.
  renameSync(away, data);
  assertError(await append(operator), 503, "store_unavailable");
  await server.stop();
  holds(data, 21);
});

for (const suffix of ["-wal", "-shm"]) {
  test(`without khala.db${suffix} no append is acknowledged, and stopping the server saves the store`, async (t) => {
    const { operator, data } = await onMovable(t);
    rmSync(join(data, `khala.db${suffix}`));
    assertError(await append(operator), 503, "store_unavailable");
    await operator.server.saw("log", new RegExp(`store\\.moved .*khala\\.db${suffix} was .*end the server, which saves`));
    assert.equal((await operator.events("r")).length, 21);
    await operator.server.stop();
    holds(data, 21);
  });
}

test("appends during a move are acknowledged only if they are stored", async (t) => {
  const { operator, data, away } = await onMovable(t);
  let acknowledged = 21;
  let moving = true;
  const appender = async () => {
    while (moving) {
      const { status } = await append(operator);
      assert.ok(status === 200 || status === 503, String(status));
      acknowledged += status === 200;
    }
  };
  const appenders = [1, 2, 3, 4].map(appender);
  for (let i = 0; i < 20; i++) {
    const before = acknowledged;
    await until(() => acknowledged >= before + 20, "20 acknowledgements");
    renameSync(data, away);
    assertError(await append(operator), 503, "store_unavailable");
    renameSync(away, data);
  }
  moving = false;
  await Promise.all(appenders);
  await operator.server.stop();
  holds(data, acknowledged);
  assert.ok(count(operator.server.log, /store\.commit_failed/g) <= 20);
});

test("a full file system refuses appends with the reason until there is room", { skip: !mayMount }, async (t) => {
  const disk = await SmallDisk.make(t, "4m");
  const operator = await disk.operate(t);
  const { server } = operator;
  await operator.did("runs", { run_id: "r" }, 201);
  const payload = { text: "x".repeat(30000) };
  let acknowledged = 1;
  for (let round = 0; round < 2; round++) {
    disk.fill("filler");
    for (let failed = 0; failed < TRIES;) {
      const { status } = await operator.post("runs/r/events", { event_type: "x", payload });
      assert.ok(status === 200 || status === 503, String(status));
      acknowledged += status === 200;
      failed += status === 503;
    }
    const ready = assertError(await operator.get("/healthz/ready"), 503, "disk_reserve");
    assert.equal(ready.reason_code, "store_full");
    assert.equal((await operator.events("r")).length, acknowledged);
    disk.remove("filler");
    await until(async () => (await operator.get("/healthz/ready")).status === 200, "that the server is ready");
    await operator.did("runs/r/events", { event_type: "x" });
    acknowledged++;
  }
  assert.equal(count(server.log, /store\.appends_stopped/g), 2);
  await server.stop();
  assert.match(disk.run("verify").out, new RegExp(`^${acknowledged} events `));
});
