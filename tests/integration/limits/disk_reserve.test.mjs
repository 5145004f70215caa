// A disk that one tenant fills: its appends are refused before the file system is full, and everything that must go on does.
import assert from "node:assert/strict";
import { statSync } from "node:fs";
import { join } from "node:path";
import { test } from "../../lib/cases.mjs";
import { assertError, folder, run } from "../../lib/khala.mjs";
import { limitFileSize } from "../../lib/machine.mjs";
import { operate } from "../../lib/operator.mjs";
import { scrape } from "../../lib/prometheus.mjs";
import { mayMount, SmallDisk } from "../../lib/small_disk.mjs";
import { sql } from "../../lib/store.mjs";
import { until } from "../../lib/wait.mjs";

const MEGABYTE = 1 << 20;
const DAY_MS = 86_400_000;
const CONNECTIONS = 4;
const WIDE = { m: "x".repeat(50_000) };
const NEVER = { RUNTIME_KHALA_RETENTION_INTERVAL_MS: "86400000", RUNTIME_KHALA_POLL_MIN_INTERVAL_MS: "0" };

const greedy = (operator) => ({ authorization: `Bearer ${operator.sign({ oa_user_id: "greedy", oa_sync_scopes: ["runtime.append"] })}` });

/** What the server acknowledged. */
class Acknowledged {
  events = 0;

  /** Appends one event of the tenant, and answers the response. */
  async append(operator, headers = greedy(operator)) {
    const body = JSON.stringify({ event_type: "x", payload: { text: "x".repeat(60_000) } });
    const response = await operator.ask("POST", "/v1/runs/greedy/events", body, headers);
    this.events += response.status === 200;
    return response;
  }

  /** Creates workers with wide metadata, which goes with the first frames, and appends until the server refuses. */
  async fill(operator) {
    const headers = greedy(operator);
    const fillOne = async () => {
      for (let i = 0; ; i++) {
        const create = i % 4 === 0;
        const response = create
          ? await operator.ask("POST", "/v1/workers", JSON.stringify({ metadata: WIDE }), headers)
          : await this.append(operator, headers);
        if (response.status >= 400) return response;
        if (!create) continue;
        this.events++;
        const { worker_id } = JSON.parse(response.body).worker;
        const patched = await operator.ask("POST", `/v1/workers/${worker_id}/heartbeat`, JSON.stringify({ metadata_patch: { m: null } }), headers);
        if (patched.status >= 400) return patched;
        this.events++;
      }
    };
    return Promise.all(Array.from({ length: CONNECTIONS }, fillOne));
  }
}

/** Asserts that every kind of append is refused, and that readiness, metrics and doctor say so. */
async function refusesAppends(operator) {
  for (const [path, body] of [["topics/other/events", { event_type: "x" }], ["runs", {}], ["workers", { owner_user_id: "w" }],
    ["runs/other/events", { event_type: "x" }], ["notifications", { event_type: "n" }],
    ["/api/events/ingest", { event_type: "x", payload: {} }]]) {
    const response = await operator.post(path, body);
    assertError(response, 503, "disk_reserve");
    assert.equal(response.headers["retry-after"], "1", path);
  }
  const [item] = await operator.batch([{ run_id: "other", event_type: "x" }]);
  assert.deepEqual([item.status, item.error.error ?? item.error], [503, "disk_reserve"]);
  const ready = assertError(await operator.get("/healthz/ready"), 503, "disk_reserve");
  assert.equal(ready.reason_code, "store_full");
  assert.equal((await operator.get("/healthz/live")).status, 200);
  const metrics = await scrape(operator);
  assert.equal(metrics.get("khala_store_appends_stopped"), 1);
  assert.equal(metrics.get("khala_store_writable"), 0);
}

/** Asserts that the reads of another tenant go on. */
async function servesReads(operator) {
  assert.deepEqual((await operator.events("other")).map((event) => event.seq), [1, 2, 3]);
  assert.equal(JSON.parse((await operator.poll("run:other:events", "after_seq=0")).body).messages.length, 3);
  assert.equal((await operator.read("projectors/run-summary/other")).latest_seq, 3);
}

const revoke = (operator, jti) => operator.did("sync/sessions/revoke", { jtis: [jti] });

const isRefused = async (operator, token) => {
  const answer = await operator.ask("GET", "/v1/topics/run:other:events/messages?after_seq=0", undefined, { authorization: `Bearer ${token}` });
  assert.equal(answer.status, 401, answer.body);
  assert.equal(JSON.parse(answer.body).reason_code, "token_revoked");
};

test("a disk of 64 MB that a tenant fills refuses appends, and nothing else", { skip: !mayMount }, async (t) => {
  const disk = await SmallDisk.make(t, "64m");
  let operator = await disk.operate(t, NEVER);
  const tokens = ["jti-a", "jti-b", "jti-c"].map((jti) => [jti, operator.sign({ jti, oa_sync_scopes: ["runtime.read_all"] })]);
  await operator.did("runs", { run_id: "other", owner_user_id: "other" }, 201);
  for (let i = 0; i < 2; i++) await operator.did("runs/other/events", { event_type: "x" });
  const same = { event_type: "x", idempotency_key: "again" };
  await operator.did("topics/other/events", same);
  disk.fill("ballast", 8 * MEGABYTE);
  const acknowledged = new Acknowledged();
  await operator.did("runs", { run_id: "greedy", owner_user_id: "greedy" }, 201);
  acknowledged.events = 5;

  for (const response of await acknowledged.fill(operator)) {
    assertError(response, 503, "disk_reserve");
    assert.equal(response.headers["retry-after"], "1");
  }
  t.diagnostic(`${acknowledged.events} events, ${disk.freeBytes} bytes are free`);
  assert.ok(acknowledged.events > 200, `${acknowledged.events} events`);
  assert.ok(disk.freeBytes >= 3 * MEGABYTE, `${disk.freeBytes} bytes are free`);
  assert.equal(statSync(join(disk.data, "khala.reserve")).blocks * 512, 4 * MEGABYTE);
  await operator.server.saw("log", /store\.appends_stopped .*free_bytes=\d+ .*until there is room/);
  await refusesAppends(operator);
  await servesReads(operator);
  assert.equal((await operator.did("topics/other/events", same)).deduplicated, true);
  const { out } = disk.run("doctor", "--url", operator.server.url);
  assert.match(out, /wrong +disk +.*appends are stopped/);

  // Another program uses up the rest. Appends cannot, and revocations get the reserve.
  disk.fill("rest");
  assert.equal(disk.freeBytes, 0);
  await revoke(operator, "jti-a");
  await isRefused(operator, tokens[0][1]);
  await operator.token();
  await servesReads(operator);
  await operator.server.crash();

  // The server starts on the full disk, and remembers.
  disk.fill("more");
  operator = await disk.operate(t, NEVER);
  await refusesAppends(operator);
  await servesReads(operator);
  await isRefused(operator, tokens[0][1]);
  for (const [jti, token] of tokens.slice(1)) {
    await revoke(operator, jti);
    await isRefused(operator, token);
  }
  await operator.server.crash();

  // Retention removes rows on the full disk.
  disk.fill("again");
  operator = await disk.operate(t, { ...NEVER, KHALA_CLOCK_OFFSET_MS: String(8 * DAY_MS) });
  assert.equal((await operator.post("topics/other/events", { event_type: "x" })).status, 503);
  const before = Number(disk.sql("SELECT count(*) FROM journal"));
  const { deleted } = await operator.did("retention/run", {});
  assert.ok(deleted > 50, `${deleted} rows`);
  assert.ok(Number(disk.sql("SELECT count(*) FROM journal")) < before);
  await operator.server.crash();

  operator = await disk.operate(t, NEVER);
  await refusesAppends(operator);
  disk.remove("rest");
  disk.remove("more");
  disk.remove("again");
  await operator.server.saw("log", /store\.appends_resumed/);
  // The pages that retention has freed take events, without the ballast's room.
  await until(async () => (await operator.get("/healthz/ready")).status === 200, "that the server is ready");
  let last = acknowledged.events;
  for (const response of await acknowledged.fill(operator)) assertError(response, 503, "disk_reserve");
  t.diagnostic(`${acknowledged.events - last} events fit into freed pages, ${disk.freeBytes} bytes are free`);
  assert.ok(acknowledged.events > last + 10);
  disk.remove("ballast");
  await until(async () => (await operator.get("/healthz/ready")).status === 200, "that the server is ready again");
  last = acknowledged.events;
  for (const response of await acknowledged.fill(operator)) assertError(response, 503, "disk_reserve");
  assert.ok(acknowledged.events > last + 50, `${acknowledged.events - last} events more`);
  await operator.server.stop();

  const verified = disk.run("verify");
  assert.equal(verified.code, 0, verified.problem);
  assert.equal(Number(disk.sql("SELECT count(*) FROM events WHERE type NOT LIKE 'operator.%'")), acknowledged.events);
});

test("mints leave a part of the reserve to revocations, removals of keys and retention", { skip: !mayMount }, async (t) => {
  const disk = await SmallDisk.make(t, "64m");
  let operator = await disk.operate(t, NEVER);
  for (const name of ["first", "second"]) await operator.did("keys", { name, role: "mint" }, 201);
  const acknowledged = new Acknowledged();
  await operator.did("runs", { run_id: "greedy", owner_user_id: "greedy" }, 201);
  disk.fill("ballast", 24 * MEGABYTE);
  for (const response of await acknowledged.fill(operator)) assertError(response, 503, "disk_reserve");
  disk.fill("rest");
  const topics = Array.from({ length: 32 }, (_, i) => `room:${i}${"x".repeat(100)}`);
  let minted = 0;
  const mintAll = async () => {
    while (minted < 20_000) {
      const response = await operator.post("/api/sync/token", { user_id: "u", topics });
      if (response.status !== 200) return response;
      minted++;
    }
    return assert.fail("the reserve is without end");
  };
  for (const response of await Promise.all(Array.from({ length: CONNECTIONS }, mintAll))) {
    assertError(response, 503, "disk_reserve");
    assert.equal(response.headers["retry-after"], "1");
  }
  const held = statSync(join(disk.data, "khala.reserve")).size;
  t.diagnostic(`${minted} mints, ${held} bytes of the reserve are left`);
  assert.ok(minted > 50, `${minted} mints`);
  assert.ok(held >= MEGABYTE, `${held} bytes of the reserve are left`);
  for (let i = 0; i < 50; i++) await revoke(operator, `jti-${i}`);
  assert.equal((await operator.ask("DELETE", "keys/first")).status, 200);
  await operator.server.crash();
  operator = await disk.operate(t, { ...NEVER, KHALA_CLOCK_OFFSET_MS: String(8 * DAY_MS) });
  assert.equal((await operator.ask("DELETE", "keys/second")).status, 200);
  const { deleted } = await operator.did("retention/run", {});
  assert.ok(deleted > 50, `${deleted} rows`);
  await operator.server.stop();
  for (const name of ["ballast", "rest"]) disk.remove(name);
  const verified = disk.run("verify");
  assert.equal(verified.code, 0, verified.problem);
});

test("appends stop where no file may grow, and go on when it may", async (t) => {
  const operator = await operate(t, { settings: NEVER });
  const acknowledged = new Acknowledged();
  await operator.did("runs", { run_id: "other", owner_user_id: "other" }, 201);
  for (let i = 0; i < 2; i++) await operator.did("runs/other/events", { event_type: "x" });
  await operator.did("runs", { run_id: "greedy", owner_user_id: "greedy" }, 201);
  acknowledged.events = 4;
  const jti = "jti-a";
  const token = operator.sign({ jti, oa_sync_scopes: ["runtime.read_all"] });
  for (let round = 0; round < 2; round++) {
    limitFileSize(operator.server, statSync(join(operator.data, "khala.db-wal")).size + MEGABYTE);
    for (const response of await acknowledged.fill(operator)) assertError(response, 503, "disk_reserve");
    // The write-ahead log may begin anew at any time, which is room: appends need not be refused for long.
    await servesReads(operator);
    await revoke(operator, jti);
    await isRefused(operator, token);
    limitFileSize(operator.server, "unlimited");
    await until(async () => (await operator.get("/healthz/ready")).status === 200, "that the server is ready");
    assert.equal((await acknowledged.append(operator)).status, 200);
  }
  await operator.server.stop();
  const verified = run(["verify", "--data-dir", operator.data]);
  assert.equal(verified.code, 0, verified.problem);
  assert.equal(Number(sql(operator.data, "SELECT count(*) FROM events WHERE type NOT LIKE 'operator.%'")), acknowledged.events);
});

test("the setting says how much is reserved, and 0 gives the reserve back", async (t) => {
  const data = folder(t);
  for (const [bytes, held] of [[String(2 * MEGABYTE), MEGABYTE], ["1048576", MEGABYTE / 2], ["0", 0]]) {
    const operator = await operate(t, { data, settings: { KHALA_DISK_RESERVE_BYTES: bytes } });
    assert.equal(statSync(join(data, "khala.reserve")).blocks * 512, held);
    await operator.did("topics/other/events", { event_type: "x" });
    if (held === 0) {
      limitFileSize(operator.server, statSync(join(data, "khala.db-wal")).size);
      assertError(await operator.post("topics/other/events", { event_type: "x", payload: { text: "x".repeat(60_000) } }), 503, "store_unavailable");
      const ready = assertError(await operator.get("/healthz/ready"), 503, "store_unavailable");
      assert.equal(ready.reason_code, "store_full");
      limitFileSize(operator.server, "unlimited");
    }
    await operator.server.stop();
  }
});
