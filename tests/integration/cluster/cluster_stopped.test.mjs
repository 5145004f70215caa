// A node that is stopped and continues after the others went on: a writer must not append then, and a follower that
// is far behind delivers everything. A node that stops or is cut off at any step must not keep the writer role.
import assert from "node:assert/strict";
import { test } from "../../lib/cases.mjs";
import { appended, join, pair } from "../../lib/cluster.mjs";
import { newDatabase, psql } from "../../lib/database.mjs";
import { run } from "../../lib/khala.mjs";
import { Client } from "../../lib/phoenix.mjs";
import { range } from "../../lib/samples.mjs";
import { tcpProxy } from "../../lib/tcp_proxy.mjs";
import { until } from "../../lib/wait.mjs";

const MANY = 9000; // more than a follower reads one by one
const SETTINGS = { RUNTIME_KHALA_FALLBACK_REPLAY_BUDGET_EVENTS: "100000", RUNTIME_KHALA_FALLBACK_PUBLISH_RATE_PER_SECOND: "100000" };
const said = (number) => ({ event_type: "said", payload: { number } });

const termOf = (url) => Number(psql(url, "SELECT term FROM runtime.writer"));
const numbers = (url) => psql(url, "SELECT payload::json->>'number' FROM runtime.events ORDER BY log_id").split("\n").map(Number);

test("a writer that is stopped loses the role, and appends nothing by itself when it continues", async (t) => {
  const { url, writer, follower } = await pair(t);
  await appended(writer, "room", said(1));
  const term = termOf(url);
  writer.server.kill("SIGSTOP");
  // The stopped process gets this request when it continues.
  const late = writer.post("/internal/v1/topics/room/events", said(99));
  await appended(follower, "room", said(2));
  const taken = termOf(url);
  assert.ok(taken > term, "another node has the role");
  writer.server.kill("SIGCONT");
  const answer = await late; // it was refused, or passed on to the new writer
  assert.match(String(answer.status), /^(200|503)$/, answer.body);
  const direct = await writer.ask("POST", "topics/room/events", JSON.stringify(said(98)), { "khala-forwarded": "a" });
  // On a busy machine the role may have changed once more.
  if (termOf(url) === taken) assert.equal(direct.status, 503, direct.body);
  await appended(writer, "room", said(3));
  await until(async () => (await writer.get("/healthz/ready")).status === 200, "the old writer follows");
  const stored = numbers(url);
  assert.deepEqual(stored.filter((number) => number < 90), [1, 2, 3]);
  const count = stored.filter((number) => number === 99).length;
  assert.ok(answer.status === 200 ? count === 1 : count <= 1, answer.body);
  await Promise.all([writer.server.stop(), follower.server.stop()]);
  assert.equal(run(["verify"], { settings: { DB_URL: url } }).code, 0);
});

test("a follower that is thousands of events behind delivers all of them", async (t) => {
  const { url, writer, follower } = await pair(t, SETTINGS);
  await appended(writer, "room", said(1));
  const client = await Client.join(follower);
  await client.subscribe({ topics: ["room"], resume_after: { room: 0 } });
  await client.reached("room", 1);
  follower.server.kill("SIGSTOP");
  for (let from = 2; from < MANY; from += 1000)
    await writer.batch(range(from, Math.min(from + 999, MANY)).map((number) => ({ topic: "room", ...said(number) })));
  assert.equal(psql(url, "SELECT max(log_id) FROM runtime.events"), String(MANY));
  follower.server.kill("SIGCONT");
  await client.reached("room", MANY);
  assert.deepEqual(client.run("room").sequences, range(1, MANY));
  assert.deepEqual(client.closes, []);
});

/** Waits until the network of a node is cut, and mends it when another node has appended. */
async function replaced(proxy, node, other) {
  await proxy.until(() => proxy.isCut, "the cut");
  await appended(await other(), "room", said(2));
  proxy.repair();
  await until(async () => (await node.get("/healthz/ready")).status === 200, "the node that was cut off follows");
}

test("a node that is cut off just after it took the writer role does not keep it", async (t) => {
  const url = newDatabase();
  const writer = await join(t, url);
  await appended(writer, "room", said(1));
  const proxy = await tcpProxy(t, url);
  const next = await join(t, proxy.url);
  // The second statement is sent only with the role.
  proxy.cutAt(["UPDATE runtime.writer t SET term", "to_regclass('runtime.nodes')"], "toServer");
  await writer.server.crash();
  await replaced(proxy, next, () => join(t, url));
});

test("a writer that is cut off inside the statements of a commit does not keep the writer role", async (t) => {
  const url = newDatabase();
  const proxy = await tcpProxy(t, url);
  const settings = { RUNTIME_KHALA_FALLBACK_MAX_PAYLOAD_BYTES: "262144" };
  const writer = await join(t, proxy.url, settings);
  const follower = await join(t, url, settings);
  await appended(writer, "room", said(1));
  // The commit is larger than one read of the proxy, so that its first bytes pass.
  proxy.cutAt(["the end"], "toServer");
  const lost = writer.post("/internal/v1/topics/room/events", { event_type: "said", payload: { pad: "x".repeat(200_000), rest: "the end" } });
  const [, { status }] = await Promise.all([replaced(proxy, writer, () => follower), lost]);
  assert.equal(status, 503, "it was not acknowledged");
  assert.equal(psql(url, "SELECT count(*), max(seq) FROM runtime.events"), "2|2");
});
