// Forwarding at its limits: more appends than connections to the writer, lost answers, and the operator listener.
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { test } from "../../lib/cases.mjs";
import { join, pair } from "../../lib/cluster.mjs";
import { newDatabase, psql } from "../../lib/database.mjs";
import { assertError, folder } from "../../lib/khala.mjs";
import { operate, operatorListener } from "../../lib/operator.mjs";
import { fixedPort } from "../../lib/ports.mjs";
import { scrape } from "../../lib/prometheus.mjs";
import { PsqlSession } from "../../lib/psql_session.mjs";
import { range } from "../../lib/samples.mjs";
import { tcpProxy } from "../../lib/tcp_proxy.mjs";
import { until, within } from "../../lib/wait.mjs";

// Of one io loop: FORWARD_CONNECTIONS_MAX, and an eighth of FORWARD_WAITING_MAX, in base/limits.h.
const CONNECTIONS = 64;
const WAITING = 256;
const SETTINGS = { RUNTIME_KHALA_POLL_MIN_INTERVAL_MS: "0" };
const OPERATOR = { KHALA_OPERATOR_BIND_ADDR: "127.0.0.1:0" };
const LONG = process.env.KHALA_TEST_LONG ? {} : { skip: "needs KHALA_TEST_LONG=1" };

/** A new event id. */
function newId() {
  const hex = Date.now().toString(16).padStart(12, "0");
  return `${hex.slice(0, 8)}-${hex.slice(8)}-7${randomUUID().slice(15)}`;
}

const said = (number, more = {}) => ({ event_type: "said", payload: { number }, ...more });
const countOf = (url, number) => psql(url, `SELECT count(*) FROM events WHERE payload = '{"number":${number}}'`);

test("appends beyond the connections to the writer wait, more are refused, and no answer is missing", async (t) => {
  const { url, follower } = await pair(t, { ...SETTINGS, KHALA_IO_LOOPS: "1" });
  await follower.did("topics/room/events", said(0));
  const holder = new PsqlSession(t, url);
  await holder.run("BEGIN", "SELECT term FROM runtime.writer FOR UPDATE");
  const beyond = 80;
  follower.agent.maxSockets = Infinity;
  const early = [];
  const asked = range(1, CONNECTIONS + WAITING + beyond).map((number) => follower.post("topics/room/events", said(number)));
  for (const one of asked) one.then((answer) => early.push(answer));
  await until(() => early.length >= beyond, "the appends that find no place");
  for (const answer of early) assertError(answer, 503, "limit_reached");
  const metrics = await scrape(follower);
  assert.equal(metrics.get("khala_forward_connections"), CONNECTIONS);
  assert.ok(metrics.get("khala_forward_waiting") <= WAITING);
  await holder.run("ROLLBACK");

  const answers = await within(Promise.all(asked), "an answer to each append");
  const taken = answers.filter((one) => one.status === 200).length;
  for (const answer of answers) if (answer.status !== 200) assertError(answer, 503, "limit_reached");
  assert.ok(taken >= CONNECTIONS, `${taken} are taken`);
  assert.equal(psql(url, "SELECT count(*), max(seq) FROM events"), `${taken + 1}|${taken + 1}`);
  await follower.did("topics/room/events", said(0));
});

test("appends of one principal that wait for the writer neither refuse nor hold up another's", async (t) => {
  const { url, follower } = await pair(t, { ...SETTINGS, KHALA_IO_LOOPS: "1" });
  await follower.did("runs", { run_id: "a", owner_user_id: "u" }, 201);
  const holder = new PsqlSession(t, url);
  await holder.run("BEGIN", "SELECT term FROM runtime.writer FOR UPDATE");
  follower.agent.maxSockets = Infinity;
  const flood = range(1, CONNECTIONS + WAITING + 1).map((number) => follower.post("topics/room/events", said(number)));
  assertError(await within(Promise.race(flood), "the append that finds no place"), 503, "limit_reached");

  const token = follower.sign({ oa_sync_scopes: ["runtime.append"], oa_user_id: "u" });
  const body = JSON.stringify({ event_type: "run.log", payload: { number: 0 } });
  const asked = follower.ask("POST", "/v1/runs/a/events", body, { authorization: `Bearer ${token}` });
  await until(async () => (await scrape(follower)).get("khala_forward_waiting") > WAITING, "the other principal's append waits");
  await holder.run("ROLLBACK");
  const answer = await within(asked, "the answer");
  assert.equal(answer.status, 200, answer.body);
  await within(Promise.all(flood), "an answer to each append");
  const before = psql(url, `SELECT count(*) FROM events WHERE log_id < (SELECT log_id FROM events WHERE payload = '{"number":0}')`);
  assert.ok(Number(before) < 2 * CONNECTIONS, `${before} events are before it`);
});

test("a follower that has not read the writer's row yet waits for it, and refuses nothing", async (t) => {
  const url = newDatabase();
  await join(t, url, SETTINGS);
  // Rows of nodes do not come before the trigger is gone.
  psql(url, `CREATE FUNCTION public.no_row() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
    CREATE TRIGGER no_row BEFORE INSERT OR UPDATE ON runtime.nodes FOR EACH ROW EXECUTE FUNCTION public.no_row();
    DELETE FROM runtime.nodes`);
  const follower = await join(t, url, SETTINGS);
  const asked = follower.post("topics/room/events", said(1));
  await Promise.race([asked, until(async () => await retries(follower) > 0, "the append that waits")]);
  psql(url, "DROP FUNCTION public.no_row CASCADE");
  const answer = await within(asked, "the answer");
  assert.equal(answer.status, 200, answer.body);
});

/** A follower that reaches its writer through a proxy. */
async function distant(t) {
  const url = newDatabase();
  const port = await fixedPort();
  const proxy = await tcpProxy(t, `http://127.0.0.1:${port}`);
  const settings = { ...SETTINGS, DB_URL: url, KHALA_ADVERTISE_ADDR: `127.0.0.1:${proxy.port}` };
  const writer = await operate(t, { data: folder(t), bind: `127.0.0.1:${port}`, settings });
  const follower = await join(t, url, SETTINGS);
  await follower.did("topics/room/events", said(0));
  /** Sends an append whose answer is lost with the connection, after the writer has stored it. */
  const lose = async (number, more) => {
    proxy.cutAt([`"number":${number}`], "toClient");
    const asked = follower.post("topics/room/events", said(number, more));
    await until(() => countOf(url, number) === "1", "the event in the log");
    proxy.drop();
    return asked;
  };
  return { url, proxy, writer, follower, lose };
}

const retries = async (operator) => (await scrape(operator)).get("khala_forward_retries_total");

test("an append whose answer was lost is sent again only with its event id or key, and is stored once", async (t) => {
  const { url, proxy, follower, lose } = await distant(t);
  const before = await retries(follower);
  assertError(await lose(1), 503, "append_outcome_unknown");
  proxy.repair();
  assert.equal(await retries(follower), before, "it was not sent again");

  for (const [number, identity] of [[2, { event_id: newId() }], [3, { idempotency_key: "three" }]]) {
    const attempts = await retries(follower);
    const asked = lose(number, identity);
    await until(async () => await retries(follower) > attempts, "the second attempt");
    proxy.repair();
    const repeated = await within(asked, "the answer");
    assert.equal(repeated.status, 200, repeated.body);
    assert.equal(JSON.parse(repeated.body).deduplicated, true);
  }
  await follower.did("topics/room/events", said(4));
  for (const number of range(1, 4)) assert.equal(countOf(url, number), "1", `event ${number}`);
});

test("an append that may be stored is of unknown outcome, also when later attempts find no writer", LONG, async (t) => {
  const { url, proxy, follower, lose } = await distant(t);
  const other = await join(t, url, SETTINGS);
  // This node has not the role, and answers 503 not_writer to what other nodes pass on.
  proxy.behind = other.server.port;
  const asked = lose(1, { event_id: newId() });
  await until(async () => await retries(follower) > 0, "the second attempt");
  proxy.repair();
  assertError(await asked, 503, "append_outcome_unknown");
  assert.equal(countOf(url, 1), "1");
});

test("the operator listener of a follower passes appends to that of the writer, and the public one refuses them", async (t) => {
  const { url, follower: outside } = await pair(t, { ...SETTINGS, ...OPERATOR });
  const inside = operatorListener(t, outside);
  await inside.did("runs", { run_id: "a", owner_user_id: "u" }, 201);
  assert.equal((await inside.read("runs/a")).run.run_id, "a", "at once on the follower");
  const results = await inside.batch(range(1, 50).map((number) => ({ topic: "room", ...said(number) })));
  assert.deepEqual([...new Set(results.map((one) => one.status))], [200]);
  await inside.did("retention/run", {});
  assertError(await outside.post("topics/room/events", said(51)), 404, "not_found");
  const token = outside.sign({ oa_sync_scopes: ["runtime.append"], oa_user_id: "u" });
  const body = JSON.stringify({ event_type: "run.log", payload: {} });
  const produced = await outside.ask("POST", "/v1/runs/a/events", body, { authorization: `Bearer ${token}` });
  assert.equal(produced.status, 200, produced.body);
  const forwarded = { "khala-forwarded": "another node" };
  assertError(await inside.ask("POST", "topics/room/events", JSON.stringify(said(51)), forwarded), 503, "not_writer");
  assert.equal(psql(url, "SELECT count(*) FROM events WHERE type <> 'operator.retention_run'"), "52");
});
