// One tenant fills a disk of 64 MB, and the server is killed there again and again, while other programs use up the rest of
// the disk or give it back. The reads of another tenant, revocations and retention go on at every moment, and no
// acknowledged event and no revocation is lost. The run repeats with KHALA_CHAOS_SEED; KHALA_CHAOS_ROUNDS sets the number of kills.
import assert from "node:assert/strict";
import { test } from "node:test";
import { assertError } from "../lib/khala.mjs";
import { seeded } from "../lib/seeded.mjs";
import { mayMount, SmallDisk } from "../lib/small_disk.mjs";

const ROUNDS = Number(process.env.KHALA_CHAOS_ROUNDS ?? 12);
const SEED = Number(process.env.KHALA_CHAOS_SEED ?? Date.now() % 1_000_000);
const CONNECTIONS = 4;
const READS = 40;
const DAY_MS = 86_400_000;
const SETTINGS = { RUNTIME_KHALA_RETENTION_INTERVAL_MS: "86400000", RUNTIME_KHALA_POLL_MIN_INTERVAL_MS: "0", KHALA_LOG_LEVEL: "warn" };
const { random, pick } = seeded(SEED);

/** The tenant that appends whatever the answers are. */
class Greedy {
  acknowledged = 0;
  unknown = 0;
  refused = 0;

  async #append(operator, headers, isWide) {
    const [path, body, created] = isWide
      ? ["/v1/workers", { metadata: { m: "x".repeat(50_000) } }, 201]
      : ["/v1/runs/greedy/events", { event_type: "x", payload: { text: "x".repeat(Math.floor(random() * 60_000)) } }, 200];
    const response = await operator.ask("POST", path, JSON.stringify(body), headers);
    if (response.status !== created) assertError(response, 503, "disk_reserve");
    this.acknowledged += response.status === created;
    this.refused += response.status === 503;
  }

  /** Appends until the server is gone. */
  start(operator) {
    const headers = { authorization: `Bearer ${operator.sign({ oa_user_id: "greedy", oa_sync_scopes: ["runtime.append"] })}` };
    return Promise.all(Array.from({ length: CONNECTIONS }, async () => {
      for (let i = 0; !operator.isGone; i++) {
        try {
          await this.#append(operator, headers, i % 4 === 0);
        } catch (error) {
          if (error.code === "ERR_ASSERTION") throw error;
          this.unknown++;
          return;
        }
      }
    }));
  }
}

/** Asserts that the victim reads its events, and answers how long the slowest read took. */
async function reads(operator) {
  let slowest = 0;
  for (let i = 0; i < READS; i++) {
    const begun = performance.now();
    const { status, body } = await operator.poll("run:other:events", "after_seq=0");
    slowest = Math.max(slowest, performance.now() - begun);
    assert.equal(status, 200, body);
    assert.equal(JSON.parse(body).messages.length, 3);
  }
  return slowest;
}

async function isRevoked(operator, jti) {
  const token = operator.sign({ jti, oa_sync_scopes: ["runtime.read_all"] });
  const { status, body } = await operator.ask("GET", "/v1/topics/run:other:events/messages?after_seq=0", undefined, { authorization: `Bearer ${token}` });
  assert.equal(status, 401, `${jti}: ${body}`);
}

test(`a tenant fills a disk, and the server is killed on it (seed ${SEED})`, { skip: !mayMount }, async (t) => {
  const disk = await SmallDisk.make(t, "64m");
  const greedy = new Greedy();
  let revoked = [];
  let revocations = 0;
  let slowest = 0;
  let deleted = 0;
  let operator = await disk.operate(t, SETTINGS);
  await operator.did("runs", { run_id: "other", owner_user_id: "other" }, 201);
  for (let i = 0; i < 2; i++) await operator.did("runs/other/events", { event_type: "x" });
  await operator.did("runs", { run_id: "greedy", owner_user_id: "greedy" }, 201);
  greedy.acknowledged = 4;
  for (let round = 0; round < ROUNDS; round++) {
    const appending = greedy.start(operator);
    const change = round === 0 ? "none" : pick(["none", "fill", "fill", "remove"]);
    if (change === "fill") disk.fill(`ballast${round}`, random() < 0.5 ? undefined : Math.floor(random() * 20_000_000));
    if (change === "remove") disk.removeAll(/^ballast/);
    slowest = Math.max(slowest, await reads(operator));
    // Several at once, of which the kill may leave the last without an answer.
    const last = Math.floor(random() * 6);
    for (let i = 0; i <= last; i++) {
      const jti = `jti-${round}-${i}`;
      await operator.did("sync/sessions/revoke", { jtis: [jti] });
      revoked.push(jti);
      revocations++;
      await isRevoked(operator, jti);
    }
    if (round % 3 === 2) deleted += (await operator.did("retention/run", {})).deleted;
    operator.isGone = true;
    await operator.server.crash();
    await appending;
    // Every third server believes that a week has passed, so that retention has something to remove.
    const offsetMs = round % 3 === 1 ? 7 * DAY_MS : 0;
    operator = await disk.operate(t, { ...SETTINGS, KHALA_CLOCK_OFFSET_MS: String(offsetMs) });
    // After a week the server may forget revocations, because no such token is valid any more.
    if (offsetMs > 0) revoked = [];
    for (const jti of revoked) await isRevoked(operator, jti);
  }
  t.diagnostic(`${greedy.acknowledged} events acknowledged, ${greedy.refused} refused, ${greedy.unknown} without an answer; ` +
    `${revocations} revocations; ${deleted} frames pruned; the slowest read took ${slowest.toFixed(0)} ms`);
  assert.ok(greedy.refused > 0, "the disk was full");
  assert.ok(deleted > 0, "retention has removed frames");
  await operator.server.stop();

  const verified = disk.run("verify");
  assert.equal(verified.code, 0, verified.problem);
  const stored = Number(disk.sql("SELECT count(*) FROM events WHERE type NOT LIKE 'operator.%'"));
  assert.ok(stored >= greedy.acknowledged && stored <= greedy.acknowledged + greedy.unknown, `${stored} events are stored`);
});
