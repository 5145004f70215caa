// Runs that say what they do: the events that fold into the summary, their shapes, and what a creation names.
import assert from "node:assert/strict";
import { test } from "../../lib/cases.mjs";
import { join, pair } from "../../lib/cluster.mjs";
import { onPostgres } from "../../lib/database.mjs";
import { run, vectors } from "../../lib/khala.mjs";
import { operate, refused } from "../../lib/operator.mjs";
import { snapshotPath } from "../../lib/paths.mjs";
import { REPORTED, reports } from "../../lib/samples.mjs";

const TIMES = new Set(["started_at", "since"]);
const withoutTimes = (value) => JSON.parse(JSON.stringify(value), (name, member) => (TIMES.has(name) ? undefined : member));
const summaryOf = async (operator, run_id) => withoutTimes(await operator.read(`projectors/run-summary/${run_id}`));
const members = (summary, names = Object.keys(REPORTED)) => Object.fromEntries(names.map((name) => [name, summary[name]]));
const bearer = (token) => ({ authorization: `Bearer ${token}` });
const producer = (operator, oa_user_id, claims = {}) => bearer(operator.sign({ oa_user_id, oa_sync_scopes: ["runtime.append", "runtime.run_events"], ...claims }));

function rebuiltAlike({ data }) {
  const { code, out, problem } = run(["reproject", "--all", "--verify", "--data-dir", data]);
  assert.equal(code, 0, out + problem);
}

test("the summaries are those of the vectors", async (t) => {
  const operator = await operate(t);
  for (const [i, { about, events, summary }] of vectors("run_summary").summaries.entries()) {
    const run_id = `v${i}`;
    const { run_id: _, worker_id, ...creation } = events[0][1];
    const parent = creation.parent_run_id ? { parent_run_id: "parent" } : {};
    if (parent.parent_run_id) await operator.did("runs", { run_id: "parent", owner_user_id: creation.owner_user_id }, 201);
    await operator.did("runs", { ...creation, ...parent, worker_id, run_id }, 201);
    const answers = events.length > 1 ? await operator.batch(events.slice(1).map(([event_type, payload]) => ({ run_id, event_type, payload }))) : [];
    const found = await summaryOf(operator, run_id);
    // What an append refuses is in no log, so it does not count. Here the run has another parent.
    const { event_count, latest_event_type, ...wanted } = { ...summary, ...parent };
    assert.deepEqual(members(found, Object.keys(withoutTimes(wanted))), withoutTimes(wanted), about);
    assert.equal(found.event_count, 1 + answers.filter(({ status }) => status === 200).length, about);
  }
  rebuiltAlike(operator);
});

test("an event of another shape is refused with the name of the member, and stores nothing", async (t) => {
  const operator = await operate(t);
  await operator.did("runs", { run_id: "a" }, 201);
  for (const { event_type, payload, status, member } of vectors("run_summary").shapes) {
    const event = { event_type, payload };
    if (status === "ok") {
      await operator.did("runs/a/events", event);
      continue;
    }
    const { body } = await refused(operator, () => operator.post("runs/a/events", event), status === "payload_too_large" ? 413 : 400, status);
    assert.ok(body.message.startsWith(`payload.${member} `), `${JSON.stringify(event)}: ${body.message}`);
    const [item] = await operator.batch([{ run_id: "a", ...event }]);
    assert.deepEqual([item.status, item.error.message], [status === "payload_too_large" ? 413 : 400, body.message]);
  }
  // The types belong to runs: a topic may use them in any shape.
  await operator.did("topics/room/events", { event_type: "run.usage", payload: { input_tokens: -1 } });
});

test("a creation is checked like the events", async (t) => {
  const operator = await operate(t);
  const bad = [[{ title: "x".repeat(257) }, 400, "title"], [{ title: "" }, 400, "title"], [{ tags: "a" }, 400, "tags"],
    [{ tags: Array(17).fill(0).map((_, i) => `${i}`) }, 400, "tags"], [{ tags: ["a", "a"] }, 400, "tags"], [{ tags: [1] }, 400, "tags"],
    [{ metadata: { a: "x".repeat(16_384) } }, 413, "metadata"], [{ parent_run_id: 5 }, 400, "parent_run_id"]];
  for (const [body, status, member] of bad) {
    const answer = await refused(operator, () => operator.post("runs", { run_id: "a", ...body }), status, status === 413 ? "payload_too_large" : "invalid_request");
    assert.ok(answer.body.message.startsWith(`${member} `), answer.body.message);
  }
  const { run: made, event } = await operator.did("runs", { run_id: "a", title: "T", tags: ["b", "a"], metadata: { k: 1 } }, 201);
  assert.deepEqual([made.run_id, event.payload], ["a", { metadata: { k: 1 }, run_id: "a", tags: ["b", "a"], title: "T" }]);
  await operator.did("runs", { run_id: "a", title: "T", tags: ["b", "a"], metadata: { k: 1 } });
  await refused(operator, () => operator.post("runs", { run_id: "a", title: "other", tags: ["b", "a"], metadata: { k: 1 } }), 409, "already_exists");
});

test("metadata has a limit after the merge", async (t) => {
  const operator = await operate(t);
  await operator.did("runs", { run_id: "a", metadata: { a: "x".repeat(10_000) } }, 201);
  const patch = (metadata_patch) => ({ event_type: "run.updated", payload: { metadata_patch, title: "never" } });
  await refused(operator, () => operator.post("runs/a/events", patch({ b: "x".repeat(7_000) })), 413, "payload_too_large");
  // Items of one batch see each other's merge.
  const answers = await operator.batch([patch({ b: 1 }), patch({ c: "x".repeat(7_000) }), { event_type: "run.updated", payload: { metadata_patch: { a: null } } },
    { event_type: "run.updated", payload: { metadata_patch: { c: "x".repeat(7_000) } } }].map((event) => ({ run_id: "a", ...event })));
  assert.deepEqual(answers.map(({ status }) => status), [200, 413, 200, 200]);
  const { run: found } = await operator.read("runs/a");
  assert.deepEqual(found.metadata, { b: 1, c: "x".repeat(7_000) });
  assert.deepEqual((await summaryOf(operator, "a")).metadata, found.metadata);
  let deep = { leaf: 1 };
  for (let i = 0; i < 16; i++) deep = { deep };
  await refused(operator, () => operator.post("runs/a/events", patch(deep)), 413, "payload_too_large");
});

test("a parent must exist and have the same owner", async (t) => {
  const operator = await operate(t);
  await operator.did("runs", { run_id: "ada", owner_user_id: "ada", org_id: "o" }, 201);
  await operator.did("runs", { run_id: "bob", owner_user_id: "bob" }, 201);
  await operator.did("runs", { run_id: "free" }, 201);
  const create = (body) => refused(operator, () => operator.post("runs", { run_id: "child", ...body }), 404, "run_not_found");
  const { body: { message } } = await create({ owner_user_id: "bob", parent_run_id: "none" });
  for (const body of [{ owner_user_id: "bob", parent_run_id: "ada" }, { owner_user_id: "ada", parent_run_id: "ada" },
    { owner_guest_scope: "bob", parent_run_id: "bob" }, { parent_run_id: "bob" }, { owner_user_id: "bob", parent_run_id: "free" },
    { owner_user_id: "bob", parent_run_id: "child" }]) {
    assert.equal((await create(body)).body.message, message);
  }
  await operator.did("runs", { run_id: "child", owner_user_id: "ada", org_id: "o", parent_run_id: "ada" }, 201);
  await operator.did("runs", { run_id: "child", owner_user_id: "ada", org_id: "o", parent_run_id: "ada" });
  assert.equal((await summaryOf(operator, "child")).parent_run_id, "ada");
  // A token creates children of its own runs, and learns nothing of others.
  const post = (body, headers) => operator.ask("POST", "/v1/runs", JSON.stringify(body), headers);
  const refusals = await Promise.all(["ada", "none"].map((parent_run_id) => post({ run_id: "x", parent_run_id }, producer(operator, "bob"))));
  const [one, two] = refusals.map(({ status, body }) => [status, { ...JSON.parse(body), request_id: 0 }]);
  assert.deepEqual(one, two);
  assert.equal(one[0], 404);
  assert.equal((await post({ run_id: "x", parent_run_id: "bob" }, producer(operator, "bob"))).status, 201);
});

test("a token says what its run does, and reads it", async (t) => {
  const operator = await operate(t);
  const ada = producer(operator, "ada");
  const ask = (method, path, body, headers = ada) => operator.ask(method, path, body && JSON.stringify(body), headers);
  assert.equal((await ask("POST", "/v1/runs", { run_id: "a", title: "T" })).status, 201);
  for (const { event_type, payload } of reports("a")) assert.equal((await ask("POST", "/v1/runs/a/events", { event_type, payload })).status, 200);
  await operator.did("runs", { run_id: "b", owner_user_id: "bob" }, 201);
  const { status, body } = await ask("GET", "/v1/runs/a");
  assert.equal(status, 200, body);
  const { run: found } = JSON.parse(body);
  assert.deepEqual(members(withoutTimes(found)), REPORTED);
  assert.deepEqual([found.run_id, found.status, found.latest_seq, found.parent_run_id], ["a", "running", 10, null]);
  assert.deepEqual(JSON.parse((await operator.get("runs/a")).body), JSON.parse(body));
  assert.deepEqual(JSON.parse((await operator.get("/v1/runs/a")).body), JSON.parse(body));
  // Absent and foreign runs give one answer.
  const answers = await Promise.all(["b", "none", "*"].map((run_id) => ask("GET", `/v1/runs/${run_id}`)));
  for (const answer of answers) assert.deepEqual([answer.status, { ...JSON.parse(answer.body), request_id: 0 }], [404, { error: "run_not_found", message: "The run does not exist.", request_id: 0 }]);
  const as = async (claims, run_id = "b") => (await ask("GET", `/v1/runs/${run_id}`, undefined, bearer(operator.sign({ oa_user_id: "ada", ...claims })))).status;
  assert.equal(await as({ oa_sync_scopes: ["runtime.read_all"] }), 200);
  assert.equal(await as({ oa_sync_scopes: ["runtime.append"] }, "a"), 403);
  assert.equal(await as({ oa_sync_scopes: ["runtime.append"] }, "none"), 403);
  assert.equal(await as({ oa_sync_scopes: ["runtime.run_events"], oa_sync_topics: ["run:b:events"] }), 200);
  assert.equal(await as({ oa_sync_scopes: ["runtime.run_events"], oa_sync_topics: ["run:b:events"] }, "a"), 403);
  assert.equal((await ask("GET", "/v1/runs/a", undefined, { authorization: "" })).status, 401);
});

test("frames and snapshots have the members, also after a restart, and so has a rebuild", async (t) => {
  const operator = await operate(t);
  const { data } = operator;
  await operator.did("runs", { run_id: "a", owner_user_id: "ada" }, 201);
  const items = reports("a");
  for (const { event_type, payload } of items.slice(0, 5)) await operator.did("runs/a/events", { event_type, payload });
  await operator.server.stop();
  const next = await operate(t, { data });
  await next.batch(items.slice(5));
  const summary = await next.read("projectors/run-summary/a");
  assert.deepEqual(members(withoutTimes(summary)), REPORTED);
  assert.deepEqual(summary.other_open_steps.map(({ step_id }) => step_id), ["s1"]);
  const { messages } = JSON.parse((await next.poll("runtime.run_summaries", "after_seq=0&limit=100")).body);
  assert.deepEqual(messages.at(-1).payload, summary);
  const { documents } = await next.read(snapshotPath("runtime.run_summaries"));
  assert.deepEqual(documents.map(({ payload }) => payload), [summary]);
  rebuiltAlike(next);
  await next.did("runs/a/events", { event_type: "run.finished", payload: { status: "failed", error: { code: "E", message: "boom" } } });
  const ended = await summaryOf(next, "a");
  assert.deepEqual([ended.error, ended.current_step, ended.open_steps, ended.waiting, ended.usage],
    [{ code: "E", message: "boom" }, null, 0, null, REPORTED.usage]);
  rebuiltAlike(next);
});

test("any node takes them", { skip: !onPostgres && "about several nodes" }, async (t) => {
  const { url, writer, follower } = await pair(t);
  const third = await join(t, url);
  await writer.did("runs", { run_id: "p", owner_user_id: "ada" }, 201);
  await follower.did("runs", { run_id: "a", owner_user_id: "ada", parent_run_id: "p" }, 201);
  const { status, body } = await follower.post("runs", { run_id: "x", owner_user_id: "bob", parent_run_id: "p" });
  assert.deepEqual([status, JSON.parse(body).error], [404, "run_not_found"]);
  for (const answer of await third.batch(reports("a"))) assert.equal(answer.status, 200);
  const [answer] = await third.batch([{ run_id: "a", event_type: "run.usage", payload: { cost: 1 } }]);
  assert.deepEqual([answer.status, answer.error.error], [400, "invalid_request"]);
  const answers = await Promise.all([writer, follower, third].map((node) => node.read("/v1/runs/a")));
  for (const { run: found } of answers) assert.deepEqual([members(withoutTimes(found)), found.parent_run_id], [REPORTED, "p"]);
});
