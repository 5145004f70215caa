// Names of runs, workers, topics and owners: the ones that a client may create, and the older ones of a store.
import assert from "node:assert/strict";
import { test } from "node:test";
import { relinked, sealed } from "../../lib/chain.mjs";
import { folder } from "../../lib/khala.mjs";
import { operate, refused } from "../../lib/operator.mjs";
import { pollPath } from "../../lib/paths.mjs";
import { alter } from "../../lib/store.mjs";

const REFUSED = ["*", "a*b", "run:*", ".", "..", "a\u0007", "a\u0085b", "\u202eabc", "a\u2066b", "a\u200fb", "\ufeffa", "a\u2028b", " a", "a\t", "\u00a0a", "a\u3000"];
const TAKEN = ["a.b", "...", "..a", "a b", "été", "自由", "a:c", "~!@#$%^&()", "🚀"];
const post = (operator, path, body) => () => operator.post(path, body);

test("a name that is a wildcard, a step of a path or not displayed as it is cannot be created", async (t) => {
  const operator = await operate(t);
  const producer = { authorization: `Bearer ${operator.sign({ oa_user_id: "u", oa_sync_scopes: ["runtime.append"], oa_sync_topics: ["room:*"] })}` };
  for (const name of REFUSED) {
    await refused(operator, post(operator, "runs", { run_id: name }), 400, "invalid_request");
    await refused(operator, post(operator, "workers", { worker_id: name, owner_user_id: "u" }), 400, "invalid_request");
    for (const owner of [{ owner_user_id: name }, { owner_guest_scope: name }, { owner_user_id: "u", org_id: name }]) {
      await refused(operator, post(operator, "runs", owner), 400, "invalid_request");
      await refused(operator, post(operator, "workers", owner), 400, "invalid_request");
    }
    if (name !== "run:*")
      await refused(operator, post(operator, `topics/${encodeURIComponent(name).replaceAll(".", "%2E")}/events`, { event_type: "x" }), 400, "invalid_topic");
  }
  const { body } = await refused(operator, () => operator.ask("POST", "/v1/topics/room:*/events", '{"event_type":"x"}', producer), 400, "invalid_topic");
  assert.match(body.message, /'\*'/);
  const items = REFUSED.filter((name) => name !== "run:*").map((topic) => ({ topic, event_type: "x" }));
  assert.deepEqual((await operator.batch(items)).map(({ status, error }) => [status, error.error]), items.map(() => [400, "invalid_topic"]));
  for (const name of TAKEN) {
    await operator.did("runs", { run_id: name, owner_user_id: name }, 201);
    await operator.did("workers", { worker_id: name, owner_guest_scope: name }, 201);
    await operator.did(`topics/${encodeURIComponent(name)}/events`, { event_type: "x" });
  }
});

const NAMED = { "x-run": "*", "x-worker": "*", "x-topic": "room:*", "y-topic": "\u202e" };

/** A store as an older version could write it: its names are changed here. */
async function olderStore(t) {
  const data = folder(t);
  const operator = await operate(t, { data });
  await operator.did("runs", { run_id: "x-run", owner_user_id: "bob" }, 201);
  await operator.did("workers", { worker_id: "x-worker", owner_user_id: "bob" }, 201);
  for (const topic of ["x-topic", "y-topic"])
    await operator.did(`topics/${topic}/events`, { event_type: "x", owner_user_id: "bob", payload: { secret: true } });
  const lines = (await operator.get("/api/events/export")).body.trimEnd().split("\n").slice(0, -1);
  await operator.server.stop();
  for (const [from, to] of Object.entries(NAMED)) {
    const { chain_hash } = JSON.parse(relinked(lines.find((line) => JSON.parse(line).entity_id === from), { entity_id: to }));
    const hash = `x'${chain_hash.slice(7)}'`;
    alter(data, `UPDATE events SET chain_hash = ${hash} WHERE entity_ref = (SELECT ref FROM entities WHERE id = '${from}');
      UPDATE entities SET id = '${to}' WHERE id = '${from}';
      UPDATE topics SET topic = replace(topic, '${from}', '${to}'), stream_id = replace(stream_id, '${from}', '${to.replace(":", ".")}');`);
  }
  return data;
}

test("a wildcard of a grant does not open an older run, worker or topic of that name", async (t) => {
  const operator = await operate(t, { data: await olderStore(t) });
  const scopes = ["runtime.run_events", "runtime.codex_worker_events"];
  const ask = async (topic, claims) => {
    const authorization = `Bearer ${operator.sign({ oa_user_id: "alice", oa_sync_scopes: scopes, ...claims })}`;
    const { status, body } = await operator.ask("GET", pollPath(topic, "after_seq=0"), undefined, { authorization });
    const { error, pending, messages } = JSON.parse(body);
    return status === 200 && !pending ? messages.length : error ?? "waits";
  };
  for (const [topic, grant, stream] of [["run:*:events", "run:*:events", "runtime.run.*.events"], ["worker:*:lifecycle", "worker:*:lifecycle", "runtime.worker.*.lifecycle"]]) {
    assert.equal(await ask(topic, { oa_sync_topics: [grant] }), "waits", topic);
    assert.equal(await ask(topic, { oa_sync_topics: [stream] }), "forbidden_topic", topic);
    assert.equal(await ask(topic, { oa_sync_streams: [stream] }), "waits", topic);
    assert.equal(await ask(topic, { oa_user_id: "bob" }), 1, topic);
    const message = (await operator.read(pollPath(topic, "after_seq=0"))).messages[0];
    assert.equal(message.seq, 1);
  }
  // The operator still reads, lists and continues what such a store holds.
  assert.equal((await operator.read("runs/%2A")).run.run_id, "*");
  assert.equal((await operator.read("workers/%2A")).worker.worker_id, "*");
  assert.ok((await operator.read("runs")).items.some((run) => run.run_id === "*"));
  await operator.did("runs/%2A/events", { event_type: "run.log" });
  for (const topic of ["room:*", "\u202e"]) {
    assert.equal((await operator.read(pollPath(topic, "after_seq=0"))).messages.length, 1);
    assert.equal((await operator.did(`topics/${encodeURIComponent(topic)}/events`, { event_type: "x" })).event.seq, 2);
  }
});

test("an import creates no such name, and is refused before the first write", async (t) => {
  const operator = await operate(t);
  await operator.did("topics/first/events", { event_type: "x" });
  await operator.did("topics/star/events", { event_type: "x" });
  const lines = (await operator.get("/api/events/export")).body.trimEnd().split("\n").slice(0, -1);
  await operator.server.stop();
  const target = await operate(t);
  const { status, body } = await target.ask("POST", "/api/events/import", sealed([lines[0], relinked(lines[1], { entity_id: "*" })]),
    { "content-type": "application/x-ndjson" });
  const answer = JSON.parse(body.trimEnd().split("\n").at(-1));
  assert.deepEqual([status, answer.error, answer.details.line], [409, "import_refused", 2], body);
  assert.match(answer.message, /name or owner is not allowed/);
  assert.equal((await target.log()).length, 0);
});
