// Filtered and conflated summaries through libkhala.
import assert from "node:assert/strict";
import { test } from "node:test";
import { operate } from "../../lib/operator.mjs";
import { Program } from "./program.mjs";

const SUMMARIES = "runtime.run_summaries";

test("a filter gives the runs that match, and a frame of the kind removed for one that does not any more", async (t) => {
  const operator = await operate(t);
  for (const run_id of ["a", "b", "c"]) await operator.did("runs", { run_id, owner_user_id: "ada" }, 201);
  const finish = (run) => operator.did(`runs/${run}/events`, { event_type: "run.finished", payload: { status: "failed" } });
  await finish("a");
  const environment = { WHERE: "{\"status\":\"running\"}", CONFLATE_MS: "50" };
  const seen = Program.start(t, operator.server.url, { token: operator.reader, topics: [SUMMARIES], environment }).seen(SUMMARIES);
  await seen.until(() => seen.resets.length > 0, "the snapshot");
  assert.deepEqual(seen.resets[0].documents.map(({ doc_key }) => doc_key).sort(), ["runtime/run_summary:b", "runtime/run_summary:c"]);
  await finish("b");
  await seen.until(() => seen.frames.length > 0, "the end of a run");
  await operator.did("runs/c/events", { event_type: "run.log", payload: {} });
  await seen.until(() => seen.frames.length > 1, "a change of a run");
  assert.deepEqual(seen.frames.map(({ kind, doc_key, doc_version }) => [kind, doc_key, doc_version]),
    [["removed", "runtime/run_summary:b", 2], ["run_summary", "runtime/run_summary:c", 2]]);
});

test("a filter that is no JSON object, an unknown form and too long an interval are refused", async (t) => {
  const operator = await operate(t);
  for (const environment of [{ WHERE: "status" }, { WHERE: "[]" }, { FORM: "slim" }, { CONFLATE_MS: "5001" }]) {
    const program = Program.start(t, operator.server.url, { token: operator.reader, topics: [SUMMARIES], environment });
    await program.lines.until(() => program.all("follow").length > 0, "the refusal");
    assert.equal(program.all("follow")[0].follow, 3);
  }
});
