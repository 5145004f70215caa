// Reprojection beside a running server: altered documents are repaired, versions never decrease, and
// appends continue.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { test } from "node:test";
import { promisify } from "node:util";
import { assertError, binary, environment, run } from "../../lib/khala.mjs";
import { operate } from "../../lib/operator.mjs";
import { storeSettings } from "../../lib/database.mjs";
import { alter, sql } from "../../lib/store.mjs";

const execute = promisify(execFile);

/** Runs a verb beside the server, while this process keeps appending. */
async function khala(operator, ...args) {
  const { stdout } = await execute(binary, [...args, "--data-dir", operator.data], {
    env: environment(storeSettings([args[0], "--data-dir", operator.data], { KHALA_URL: operator.server.url })) });
  return stdout;
}

function verified(operator) {
  const { code, out, problem } = run(["reproject", "--all", "--verify", "--data-dir", operator.data]);
  assert.equal(code, 0, out + problem);
  assert.equal(run(["verify", "--data-dir", operator.data]).code, 0);
}

/** Asserts that every topic's journal has all rows up to its head. */
function journalIsWhole(data) {
  assert.equal(sql(data, "SELECT count(*) FROM topics t WHERE entity_ref IS NULL AND " +
    "(head_seq - oldest_seq + 1 <> (SELECT count(*) FROM journal e WHERE e.topic_ref = t.ref) OR " +
    "head_seq <> coalesce((SELECT max(seq) FROM journal e WHERE e.topic_ref = t.ref), 0))"), "0");
}

const head = (data) => Number(sql(data, "SELECT head_seq FROM topics WHERE topic = 'runtime.run_summaries'"));

test("reproject repairs an altered document through the server", async (t) => {
  const operator = await operate(t);
  const { data } = operator;
  await operator.did("runs", { run_id: "a", owner_user_id: "u1" }, 201);
  await operator.did("runs/a/events", { event_type: "run.started" });
  const right = await operator.read("projectors/run-summary/a");
  const before = head(data);
  alter(data, "UPDATE run_documents SET payload = replace(payload, 'u1', 'u2')");
  assert.equal(await khala(operator, "reproject", "--run", "a"),
    "drift: runtime/run_summary:a: summary_hash_mismatch: the document differs from the log (log at 2, checkpoint at 2)\n" +
    "1 documents rebuilt from 2 events: 1 differed, 1 written\n");
  const repaired = await operator.read("projectors/run-summary/a");
  assert.deepEqual({ ...repaired, projected_at: 0 }, { ...right, projected_at: 0 });
  assert.equal(head(data), before + 1);
  const version = () => sql(data, "SELECT doc_version FROM sync_run_summaries");
  assert.equal(version(), "3");
  // The writer's cache contains the rewritten document.
  await operator.did("runs/a/events", { event_type: "x" });
  assert.equal(version(), "4");
  assert.equal(head(data), before + 2);
  verified(operator);
  journalIsWhole(data);
  assert.deepEqual(JSON.parse(await khala(operator, "reproject", "--run", "a", "--json")),
    { mode: "apply", drifts: [], ok: true, documents: 1, events: 3, drifted: 0, repaired: 0 });
});

test("reproject repairs all documents during appends", async (t) => {
  const operator = await operate(t);
  const { data } = operator;
  const names = Array.from({ length: 40 }, (_, i) => `e${i}`);
  for (const name of names) {
    await operator.did("runs", { run_id: name, owner_user_id: "u1" }, 201);
    await operator.did("workers", { worker_id: name, owner_user_id: name }, 201);
  }
  let over = false;
  let appended = 0;
  const appending = Promise.all([0, 1, 2, 3].map(async (lane) => {
    for (let i = lane; !over; i += 4) {
      await operator.did(`runs/${names[i % 40]}/events`, { event_type: "x" });
      await operator.did(`workers/${names[i % 40]}/heartbeat`, {});
      await operator.did("runs", { run_id: `new${i}` }, 201);
      appended += 3;
    }
  }));
  for (let round = 0; round < 3; round++) {
    alter(data, "UPDATE run_documents SET payload = replace(payload, 'u1', 'u2') WHERE entity_ref % 3 = 0");
    alter(data, "DELETE FROM worker_documents WHERE entity_ref % 4 = 0");
    const before = appended;
    const answer = await operator.did("projectors/reproject", { all: true });
    assert.ok(answer.entities >= 80, JSON.stringify(answer));
    assert.equal(answer.drifted, answer.repaired);
    assert.equal(answer.rewritten.length, answer.repaired);
    assert.ok(appended > before, "appends waited for the whole of it");
  }
  over = true;
  await appending;
  await khala(operator, "reproject", "--all");
  verified(operator);
  journalIsWhole(data);
});

test("reproject refuses invalid requests", async (t) => {
  const operator = await operate(t);
  const ask = (value) => operator.post("projectors/reproject", value);
  assertError(await ask({ run_id: "nobody" }), 404, "run_not_found");
  assertError(await ask({ worker_id: "nobody" }), 404, "worker_not_found");
  for (const value of [{}, { all: false }, { all: true, run_id: "a" }, { run_id: 1 }, { run_id: "" }]) {
    assertError(await ask(value), 400, "invalid_request");
  }
  assert.deepEqual(await operator.did("projectors/reproject", { all: true }),
    { rewritten: [], entities: 0, events: 0, drifted: 0, repaired: 0 });
  operator.key = "wrong";
  assert.equal((await ask({ all: true })).status, 401);
});

test("a server that ends does not wait for a running reprojection", async (t) => {
  const operator = await operate(t);
  await operator.batch(Array.from({ length: 3000 }, (_, i) => ({ topic: "t", event_type: "x", payload: { i } })));
  for (let i = 0; i < 300; i++) await operator.did("runs", { run_id: `r${i}` }, 201);
  const asked = operator.post("projectors/reproject", { all: true }).catch(() => {});
  await operator.server.stop();
  await asked;
});

test("reproject with --url uses that server and no local store", async (t) => {
  const operator = await operate(t);
  const { data } = operator;
  await operator.did("runs", { run_id: "a", owner_user_id: "u1" }, 201);
  await operator.server.stop();
  alter(data, "UPDATE run_documents SET payload = replace(payload, 'u1', 'u2')");
  const named = (...args) => run(["reproject", "--all", ...args, "--url", "http://127.0.0.1:1", "--data-dir", data]);
  assert.deepEqual([named().code, named().out], [3, ""]);
  assert.match(named().problem, /^khala: cannot connect to 127\.0\.0\.1 port 1: .*\n$/);
  assert.equal(named("--verify").code, 2, "what is verified is a store, not a server");
  assert.equal(run(["reproject", "--all", "--verify", "--data-dir", data]).code, 1, "the store was left alone");
});
