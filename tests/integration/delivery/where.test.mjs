// Subscriptions to summary topics with `where` and `conflate_ms`.
import assert from "node:assert/strict";
import { test } from "../../lib/cases.mjs";
import { sqliteOnly } from "../../lib/database.mjs";
import { binary, Process, run } from "../../lib/khala.mjs";
import { operate } from "../../lib/operator.mjs";
import { pollPath, snapshotPath, socketPath, streamPath } from "../../lib/paths.mjs";
import { Client } from "../../lib/phoenix.mjs";
import { range } from "../../lib/samples.mjs";
import { queryOf } from "../../lib/selected.mjs";
import { randomRun } from "../../lib/selected_run.mjs";
import { Socket } from "../../lib/socket.mjs";
import { Stream } from "../../lib/sse.mjs";
import { alter, sql } from "../../lib/store.mjs";

const RUNS = "runtime.run_summaries";
const RUNNING = { where: { status: "running" } };
const QUICK = { RUNTIME_KHALA_POLL_MIN_INTERVAL_MS: "0", KHALA_HEARTBEAT_MS: "50" };

const start = (operator, run_id, more = {}) => operator.did("runs", { run_id, owner_user_id: "u", ...more }, 201);
const append = (operator, run_id, event_type, payload) => operator.did(`runs/${run_id}/events`, { event_type, payload });
const finish = (operator, run_id, status = "succeeded") => append(operator, run_id, "run.finished", { status });

/** The frames of a list of messages, shortened. */
const short = (frames) => frames.map((one) => [one.seq, one.kind, one.doc_key.split(":")[1], one.payload?.status]);

test("a snapshot holds what matches, and updates say what came, changed and left", async (t) => {
  const operator = await operate(t, { settings: QUICK });
  for (const id of ["a", "b", "c"]) await start(operator, id);
  await finish(operator, "a");
  const client = await Client.join(operator);
  await client.subscribe({ topics: [RUNS], bootstrap: true, ...RUNNING });
  await client.until((one) => one.run(RUNS).completes > 0, "the end of the replay");
  const [snapshot] = client.of("sync:snapshot");
  assert.deepEqual(snapshot.documents.map((one) => one.payload.run_id), ["b", "c"]);
  await append(operator, "b", "run.log");
  await append(operator, "a", "run.log");
  await finish(operator, "b", "failed");
  await append(operator, "b", "run.log");
  await start(operator, "d");
  await client.reached(RUNS, 9);
  assert.deepEqual(short(client.run(RUNS).updates), [[5, "run_summary", "b", "running"], [7, "removed", "b", undefined],
    [9, "run_summary", "d", "running"]]);
  const [, removed] = client.run(RUNS).updates;
  assert.deepEqual(removed, { topic: RUNS, seq: 7, kind: "removed", doc_key: "runtime/run_summary:b", doc_version: 3,
    watermark: 7, hydration_required: false });
  const framed = await Client.join(operator);
  await framed.subscribe({ topics: [RUNS], resume_after: { [RUNS]: 4 }, frames: true, ...RUNNING });
  await framed.reached(RUNS, 9);
  assert.deepEqual(framed.of("sync:frame").map(({ seq, kind, doc_key }) => [seq, kind, doc_key]),
    [[5, "run_summary", undefined], [7, "removed", "runtime/run_summary:b"], [9, "run_summary", undefined]]);
  await finish(operator, "d");
  await append(operator, "a", "run.log");
  await client.reached(RUNS, 11);
  assert.ok(client.of("sync:heartbeat").some(({ covered }) => covered[0]?.through === 11), "the heartbeat covers what is hidden");
  // The same by every other way to read, from the same positions.
  const token = operator.reader;
  const page = await operator.read(pollPath(RUNS, `after_seq=4&${queryOf(RUNNING)}`));
  assert.deepEqual(short(page.messages), short(client.run(RUNS).updates));
  assert.equal(page.next_cursor, 11);
  const lean = await operator.read(pollPath(RUNS, `after_seq=6&limit=1&form=lean&${queryOf(RUNNING)}`));
  assert.deepEqual(lean.messages, [{ seq: 7, kind: "removed", doc_key: "runtime/run_summary:b", doc_version: 3 }]);
  const stream = await Stream.open(operator, streamPath(RUNS, `after_seq=4&token=${token}&${queryOf(RUNNING)}`));
  await stream.until((one) => one.lastSeq === 11, "the stream");
  assert.deepEqual(short(stream.messages.map((one) => one.data)), short(page.messages));
  const socket = await Socket.open(operator, socketPath(RUNS, `after_seq=4&token=${token}&${queryOf(RUNNING)}`));
  await socket.until((one) => one.of("message").length === 4, "the socket");
  assert.deepEqual(short(socket.of("message")), short(page.messages));
  const documents = async (where) =>
    (await operator.read(`${snapshotPath(RUNS)}?${queryOf({ where })}`)).documents.map((one) => one.payload.run_id);
  assert.deepEqual(await documents({ status: ["succeeded", "failed"] }), ["a"], "the snapshot within its cadence");
  assert.deepEqual(await documents({ status: "running" }), ["b", "c"]);
  assert.deepEqual(await documents({ status: "running", worker_id: "none" }), []);
  assert.deepEqual(await documents({ tag: "x" }), []);
});

test("tags, parents and workers of runs are fields too", async (t) => {
  const operator = await operate(t, { settings: QUICK });
  await start(operator, "root", { tags: ["red", "large"] }); // 1
  await start(operator, "child", { parent_run_id: "root", tags: ["red"] }); // 2
  await append(operator, "root", "run.updated", { tags: ["blue"] }); // 3
  await append(operator, "child", "run.updated", { title: "still red" }); // 4
  await append(operator, "child", "run.updated", { tags: [] }); // 5
  await append(operator, "root", "run.updated", { tags: ["blue", "large"] }); // 6
  const read = async (where) =>
    (await operator.read(pollPath(RUNS, `after_seq=0&${queryOf({ where })}`))).messages.map((one) => [one.seq, one.kind === "removed"]);
  assert.deepEqual(await read({ tag: "red" }), [[1, false], [2, false], [3, true], [4, false], [5, true]]);
  assert.deepEqual(await read({ tags: ["large", "none"] }), [[1, false], [3, true], [6, false]]);
  assert.deepEqual(await read({ parent_run_id: "root" }), [[2, false], [4, false], [5, false]]);
  assert.deepEqual(await read({ parent_run_id: "root", tag: "red" }), [[2, false], [4, false], [5, true]]);
  const { documents } = await operator.read(`${snapshotPath(RUNS)}?${queryOf({ where: { tag: ["blue"], status: "running" } })}`);
  assert.deepEqual(documents.map((one) => one.payload.run_id), ["root"]);
});

test("khala tail prints what matches", async (t) => {
  const operator = await operate(t, { settings: QUICK });
  await start(operator, "a");
  await start(operator, "b");
  await finish(operator, "a", "failed");
  const tail = (...args) => new Process([binary, "tail", RUNS, "--json", "--url", operator.server.url, "--data-dir", operator.data,
    "--after", "0", ...args], { env: process.env });
  const following = tail("--where", "status=failed,canceled", "--conflate-ms", "100");
  t.after(() => following.child.kill());
  const [line] = await following.saw("out", /^\{.*"kind":"run_summary".*\}\n/m);
  assert.deepEqual([JSON.parse(line).seq, JSON.parse(line).payload.run_id], [3, "a"]);
  const refused = run(["tail", RUNS, "--where", "status"]);
  assert.deepEqual([refused.code, /FIELD=VALUE/.test(refused.problem)], [2, true]);
});

test("a filter with an unknown field, another shape or another topic is refused", async (t) => {
  const operator = await operate(t, { settings: QUICK });
  await start(operator, "a");
  const token = operator.reader;
  const paths = [pollPath(RUNS, "after_seq=0"), `${streamPath(RUNS, "after_seq=0")}`, `${snapshotPath(RUNS)}?_=1`];
  const refusals = [
    [{ where: { color: "red" } }, "unknown_parameter", "color"],
    [{ where: { status: [] } }, "invalid_request"],
    [{ where: { status: 1 } }, "invalid_request"],
    [{ where: { tags: ["a", null] } }, "invalid_request"],
    [{ where: { status: "x".repeat(257) } }, "invalid_request"],
    [{ where: { status: range(1, 33).map(String) } }, "invalid_request"],
    [{ where: { tags: range(1, 9).map((i) => String(i).repeat(256)) } }, "invalid_request"],
    [{ where: ["status"] }, "invalid_request"],
  ];
  const client = await Client.join(operator);
  for (const [asked, error, parameter] of refusals) {
    for (const path of paths) {
      const response = await fetch(new URL(`${path}&${queryOf(asked)}`, operator.server.url), { headers: { authorization: `Bearer ${token}` } });
      const body = await response.json();
      assert.deepEqual([response.status, body.error, body.details?.parameter], [400, error, parameter], JSON.stringify(asked));
    }
    const { code, message } = await client.refused("sync:subscribe", { topics: [RUNS], ...asked });
    assert.equal(code, error === "invalid_request" ? "bad_subscription" : error);
    assert.match(message, parameter ? /no field "color"/ : /^where is an object/);
  }
  const { status, body } = await Socket.refused(operator, socketPath(RUNS, `token=${token}&${queryOf(refusals[0][0])}`));
  assert.deepEqual([status, JSON.parse(body).details], [400, { parameter: "color" }]);
  // Events have no fields, and each of them is delivered.
  for (const query of [queryOf(RUNNING), "conflate_ms=100"]) {
    for (const path of [pollPath("run:a:events", query), streamPath("run:a:events", query), pollPath("app:x", query)]) {
      const response = await fetch(new URL(path, operator.server.url), { headers: { authorization: `Bearer ${token}` } });
      const { error, message } = await response.json();
      assert.deepEqual([response.status, error, message], [400, "invalid_request", "where and conflate_ms are for the topics of summaries."]);
    }
  }
  assert.equal((await client.refused("sync:subscribe", { topics: [RUNS, "run:a:events"], ...RUNNING })).code, "bad_subscription");
  assert.equal((await client.refused("sync:subscribe", { topics: [RUNS], conflate_ms: 5001 })).code, "bad_subscription");
  assert.equal((await operator.get(pollPath(RUNS, "conflate_ms=5001"))).status, 400);
  assert.equal((await operator.get(`${snapshotPath(RUNS)}?conflate_ms=1`)).status, 400);
});

test("conflate_ms sends only the newest of a document, in time, and delays no other subscription", async (t) => {
  const operator = await operate(t, { settings: { ...QUICK, KHALA_IO_LOOPS: "1" } });
  await start(operator, "a");
  await start(operator, "b");
  const [slow, plain] = [await Client.join(operator), await Client.join(operator)];
  const begun = performance.now();
  await slow.subscribe({ topics: [RUNS], resume_after: { [RUNS]: 2 }, conflate_ms: 700 });
  await slow.subscribe({ topics: ["run:a:events"], resume_after: { "run:a:events": 1 } });
  await plain.subscribe({ topics: [RUNS], resume_after: { [RUNS]: 2 } });
  await slow.until((one) => one.run(RUNS).completes > 0, "the end of the replay");
  for (let i = 0; i < 40; i++) await append(operator, i % 8 === 7 ? "b" : "a", "run.log");
  await plain.reached(RUNS, 42);
  await slow.until((one) => one.run("run:a:events").updates.length === 35, "all events of the run");
  await slow.reached(RUNS, 42);
  const services = Math.floor((performance.now() - begun) / 700) + 1;
  const updates = slow.run(RUNS).updates;
  assert.ok(updates.length <= 2 * services, `${updates.length} frames in ${services} services`);
  assert.deepEqual(updates.slice(-2).map((one) => [one.seq, one.doc_version]), [[41, 36], [42, 6]]);
  const fast = plain.run(RUNS).updates;
  assert.equal(fast.length, 40, "each frame");
  // A heartbeat covers no frame that waits.
  const sent = (client, through) => client.run(RUNS).sequences.filter((seq) => seq <= through).length;
  for (const { covered } of slow.of("sync:heartbeat")) {
    const through = covered.find((one) => one.topic === RUNS)?.through ?? 0;
    assert.ok(through <= 2 || sent(slow, through) > 0, `a heartbeat covers ${through}`);
  }
  const page = await operator.read(pollPath(RUNS, "after_seq=2&conflate_ms=250"));
  assert.deepEqual([page.messages.map((one) => one.seq), page.next_cursor, page.replay_complete], [[41, 42], 42, true]);
});

test("with both, the newest frame that is not hidden is sent, at every position to resume from", async (t) => {
  const operator = await operate(t, { settings: QUICK });
  await start(operator, "stays"); // 1
  await start(operator, "leaves"); // 2
  const asked = { ...RUNNING, conflate_ms: 250 };
  await start(operator, "passes"); // 3: comes and goes within the page
  await finish(operator, "passes"); // 4
  await append(operator, "leaves", "run.log"); // 5
  await finish(operator, "leaves"); // 6
  await append(operator, "leaves", "run.log"); // 7: hidden by itself, and does not replace the removal
  await append(operator, "stays", "run.log"); // 8
  const page = async (after) => short((await operator.read(pollPath(RUNS, `after_seq=${after}&${queryOf(asked)}`))).messages);
  const passed = [4, "removed", "passes", undefined]; // a reader may have stopped within an earlier page, and have it
  assert.deepEqual(await page(2), [passed, [6, "removed", "leaves", undefined], [8, "run_summary", "stays", "running"]]);
  assert.deepEqual(await page(6), [[8, "run_summary", "stays", "running"]]);
  // A reader that stopped before the removal gets it.
  assert.deepEqual(await page(5), [[6, "removed", "leaves", undefined], [8, "run_summary", "stays", "running"]]);
  assert.deepEqual(await page(3), [passed, [6, "removed", "leaves", undefined], [8, "run_summary", "stays", "running"]]);
});

test("frames without a record are delivered whole or as removed", sqliteOnly, async (t) => {
  const operator = await operate(t, { settings: QUICK });
  await start(operator, "a");
  await finish(operator, "a");
  await append(operator, "a", "run.log");
  const page = async (where) => short((await operator.read(pollPath(RUNS, `after_seq=0&${queryOf({ where })}`))).messages);
  assert.deepEqual((await page({ status: "failed" })), []);
  assert.equal(sql(operator.data, "SELECT group_concat(fields_before, ' ') FROM journal WHERE topic_ref = 1"),
    '{"was":null} {"was":{"status":"running"}} {}');
  await operator.server.stop();
  alter(operator.data, "UPDATE journal SET fields_before = NULL");
  const again = await operate(t, { data: operator.data, settings: QUICK });
  const read = async (where) => short((await again.read(pollPath(RUNS, `after_seq=0&${queryOf({ where })}`))).messages);
  assert.deepEqual(await read({ status: "succeeded" }), [[1, "removed", "a", undefined], [2, "run_summary", "a", "succeeded"],
    [3, "run_summary", "a", "succeeded"]]);
});

test("a rebuilt journal begins with first frames", async (t) => {
  const operator = await operate(t, { settings: QUICK });
  for (const id of ["a", "b"]) await start(operator, id);
  await finish(operator, "a");
  await operator.server.stop();
  const { code, problem } = run(["reproject", "--all", "--journal", "--data-dir", operator.data]);
  assert.equal(code, 0, problem);
  const again = await operate(t, { data: operator.data, settings: QUICK });
  const { messages } = await again.read(pollPath(RUNS, "after_seq=4"));
  const read = async (where) => short((await again.read(pollPath(RUNS, `after_seq=4&${queryOf({ where })}`))).messages);
  assert.deepEqual(short(messages), [[5, "run_summary", "b", "running"], [6, "run_summary", "a", "succeeded"]]);
  assert.deepEqual(await read({ status: "running" }), [[5, "run_summary", "b", "running"]]);
  await finish(again, "b");
  assert.deepEqual(await read({ status: "running" }), [[5, "run_summary", "b", "running"], [7, "removed", "b", undefined]]);
});

test("readers with equal filters share a page, and others do not get it", async (t) => {
  const operator = await operate(t, { settings: { ...QUICK, KHALA_IO_LOOPS: "1" } });
  const clients = [];
  for (const where of [{ status: ["failed", "running"] }, { status: ["running", "failed", "running"] }, { status: "failed" }, undefined]) {
    const client = await Client.join(operator);
    await client.subscribe({ topics: [RUNS], resume_after: { [RUNS]: 0 }, where });
    clients.push(client);
  }
  for (let i = 0; i < 20; i++) {
    await start(operator, `r${i}`);
    await finish(operator, `r${i}`, i % 2 ? "failed" : "succeeded");
  }
  for (const client of clients) await client.until((one) => one.run(RUNS).at === 40, "the end");
  const [first, second, failed, all] = clients.map((client) => short(client.run(RUNS).updates));
  assert.deepEqual(first, second);
  assert.equal(first.length, 40);
  assert.equal(first.filter(([, kind]) => kind === "removed").length, 10);
  assert.deepEqual(failed.map(([seq, kind]) => [seq, kind]), range(0, 9).map((i) => [4 * i + 4, "run_summary"]));
  assert.deepEqual(all.filter(([, kind]) => kind === "removed"), []);
});

test("filtered collections equal a full scan at every position of a random run, also across reconnects", async (t) => {
  const operator = await operate(t, { settings: { ...QUICK, RUNTIME_KHALA_CODEX_WORKER_SUMMARIES_SNAPSHOT_CADENCE_SECONDS: "1",
    RUNTIME_KHALA_CODEX_WORKER_SUMMARIES_REPLAY_BUDGET_EVENTS: "1000000" } });
  const { wrong, checked } = await randomRun(t, [operator], { changes: Number(process.env.KHALA_WHERE_CHANGES ?? 1500) });
  assert.deepEqual(wrong, []);
  t.diagnostic(`${checked} positions compared`);
});
