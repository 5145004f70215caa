// Repairs and rebuilds of derived data that end with kill -9 at any moment: the next start completes them.
import assert from "node:assert/strict";
import { test } from "node:test";
import { setTimeout as pause } from "node:timers/promises";
import { run } from "../lib/khala.mjs";
import { operate } from "../lib/operator.mjs";
import { alter, sql } from "../lib/store.mjs";
import { until } from "../lib/wait.mjs";

const DAMAGES = ["DROP TABLE run_documents", "DROP TABLE checkpoints", "DROP TABLE journal",
  "DELETE FROM journal WHERE seq % 7 = 0", "UPDATE checkpoints SET last_runtime_seq = 999"];

test("a repair or rebuild that is killed is completed by the next start", async (t) => {
  let operator = await operate(t);
  const { data } = operator;
  await operator.batch(Array.from({ length: 200 }, (_, i) => ({ topic: "t", event_type: "x", payload: { i } })));
  for (let i = 0; i < 60; i++) await operator.did("runs", { run_id: `r${i}`, owner_user_id: "u" }, 201);
  await operator.did("workers", { worker_id: "w", owner_user_id: "u" }, 201);
  const head = () => Number(sql(data, "SELECT head_seq FROM topics WHERE topic = 'runtime.run_summaries'"));
  let last = head();
  let seq = 1;
  for (const [round, damage] of DAMAGES.entries()) {
    alter(data, damage);
    const appended = operator.post("runs/r1/events", { event_type: "x" }).catch(() => ({ status: 0 }));
    const asked = operator.post("projectors/reproject", { all: true, journal: true }).catch(() => {});
    // The moment moves over the whole of the work from round to round.
    await pause(round * 12);
    await operator.server.crash();
    await asked;
    if ((await appended).status === 200) seq++;
    operator = await operate(t, { data });
    await until(() => sql(data, "SELECT count(*) FROM meta WHERE name = 'unprojected_from'") === "0", "the repair");
    const { event } = await operator.did("runs/r1/events", { event_type: "y" });
    assert.ok(event.seq > seq, "an acknowledged event is kept");
    seq = event.seq;
    assert.equal((await operator.did("projectors/reproject", { all: true, journal: true })).drifted >= 0, true);
    for (const verb of [["verify"], ["reproject", "--all", "--verify"]]) {
      const { code, out, problem } = run([...verb, "--data-dir", data]);
      assert.equal(code, 0, `${damage}: ${out}${problem}`);
    }
    assert.ok(head() > last, "no seq is used again");
    last = head();
  }
});
