// The tree of a run: its steps from the step events, by pages, and its child runs.
import assert from "node:assert/strict";
import { test } from "node:test";
import { operate, refused } from "../../lib/operator.mjs";
import { tokenFor } from "../../lib/token.mjs";

test("the tree of a run", async (t) => {
  const operator = await operate(t);
  const append = async (event_type, payload, run = "root") => (await operator.did(`runs/${encodeURIComponent(run)}/events`, { event_type, payload })).event;
  await operator.did("runs", { run_id: "root", owner_user_id: "ada", title: "The root" }, 201);
  await operator.did("runs", { run_id: "other", owner_user_id: "bob" }, 201);
  const begun = await append("run.step_started", { step_id: "s1", name: "think", kind: "llm" });
  await append("run.step_started", { step_id: "s2", name: "search", kind: "tool", parent_step_id: "s1" });
  await append("run.note", { step_id: "s1" });
  const ended = await append("run.step_finished", { step_id: "s2", status: "failed", error: { code: "none", message: "no \"result\"" } });
  await append("run.step_finished", { step_id: "s1" });
  for (let i = 0; i < 3; i++) await operator.did("runs", { run_id: `child ${i}`, owner_user_id: "ada", parent_run_id: "root", title: `Child ${i}` }, 201);
  await append("run.finished", { status: "succeeded" }, "child 1");

  await t.test("has the run, its steps and children", async () => {
    const tree = await operator.read("runs/root/tree");
    assert.deepEqual(tree.run, (await operator.read("runs/root")).run);
    assert.equal(tree.run.title, "The root");
    assert.deepEqual(tree.steps.map(({ step_id, name, kind, parent_step_id, status, started_seq, finished_seq }) =>
      [step_id, name, kind, parent_step_id, status, started_seq, finished_seq]),
    [["s1", "think", "llm", null, null, 2, 6], ["s2", "search", "tool", "s1", "failed", 3, 5]]);
    assert.equal(tree.steps[0].started_at, begun.recorded_at);
    assert.equal(tree.steps[1].finished_at, ended.recorded_at);
    assert.deepEqual(tree.steps[1].error, { code: "none", message: "no \"result\"" });
    assert.deepEqual([tree.next_after_seq, tree.has_more, tree.children_has_more], [null, false, false]);
    assert.deepEqual(tree.children.map((child) => [child.run_id, child.title, child.status, child.latest_seq]),
      [["child 0", "Child 0", "running", 1], ["child 1", "Child 1", "succeeded", 2], ["child 2", "Child 2", "running", 1]]);
    assert.ok(tree.children[1].finished_at >= tree.children[1].started_at);
    assert.deepEqual((await operator.read("runs/child%201/tree")).children, []);
  });

  await t.test("has its steps by pages, which a client joins by step_id", async () => {
    const pages = [];
    for (let after = 0; after !== null;) {
      const page = await operator.read(`runs/root/tree?limit=1&after_seq=${after}`);
      assert.equal(page.has_more, page.next_after_seq !== null);
      pages.push(page.steps.map((step) => [step.step_id, step.started_seq, step.finished_seq]));
      after = page.next_after_seq;
    }
    assert.deepEqual(pages, [[["s1", 2, null]], [["s2", 3, 5]], [["s1", null, 6]]]);
    assert.deepEqual((await operator.read("runs/root/tree?after_seq=99")).steps, []);
  });

  await t.test("answers a run of another like one that does not exist", async () => {
    const ask = async (path, claims) => {
      const token = tokenFor(operator, { scopes: ["runtime.run_events"], ...claims });
      const { status, body } = await operator.ask("GET", path, undefined, { authorization: `Bearer ${token}` });
      const { request_id, ...rest } = JSON.parse(body);
      return { status, ...rest };
    };
    const ada = { user_id: "ada" };
    assert.equal((await ask("/v1/runs/root/tree", ada)).children.length, 3);
    assert.deepEqual(await ask("/v1/runs/other/tree", ada), await ask("/v1/runs/none/tree", ada));
    assert.equal((await ask("/v1/runs/other/tree", ada)).status, 404);
    assert.equal((await ask("/v1/runs/root/tree", { ...ada, scopes: ["runtime.append"] })).status, 403);
    assert.equal((await ask("/v1/runs/root/tree", { ...ada, topics: ["run:other:events"] })).status, 403);
    // A grant of the run is none of its children.
    const granted = await ask("/v1/runs/root/tree", { user_id: "eve", topics: ["run:root:events"] });
    assert.deepEqual([granted.run.run_id, granted.children], ["root", []]);
    const one = await ask("/v1/runs/root/tree", { user_id: "ada", topics: ["run:root:events", "run:child 0:events"] });
    assert.deepEqual(one.children.map((child) => child.run_id), ["child 0"]);
    await refused(operator, () => operator.get("runs/none/tree"), 404, "run_not_found");
    await refused(operator, () => operator.get("runs/root/tree?depth=2"), 400, "unknown_parameter");
    await refused(operator, () => operator.get("runs/root/tree?limit=0"), 400, "invalid_request");
  });
});
