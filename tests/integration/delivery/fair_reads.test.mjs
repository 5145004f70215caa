// Reads of the store: each principal has its own bounded queue, and the work for a client that is gone stops.
import assert from "node:assert/strict";
import { test } from "node:test";
import { assertError, connect, getRequest } from "../../lib/khala.mjs";
import { operate, textOf } from "../../lib/operator.mjs";
import { pollPath } from "../../lib/paths.mjs";
import { scrape } from "../../lib/prometheus.mjs";
import { events, range } from "../../lib/samples.mjs";
import { until } from "../../lib/wait.mjs";

const PLAN = "/v1/cursors/plan";
const TOPIC = "runtime.codex_worker_events";
const FRAMES = 3000;
const READS_MAX = 40; // of one principal, that wait; the work of so many plans takes far longer than a poll
const WIDE = 100; // large events, more of them than the kernel buffers for a client that does not read
const PLANS = READS_MAX + 20;
const BEHIND = 400_000; // bytes behind a request, more than the server and its kernel take

/** A shared topic with many frames of one user, of which another user reads none. */
async function filled(t, settings) {
  const operator = await operate(t, { settings: { ...settings, KHALA_READERS: "2",
    RUNTIME_KHALA_POLL_MIN_INTERVAL_MS: "0", RUNTIME_KHALA_CODEX_WORKER_EVENTS_REPLAY_BUDGET_EVENTS: "100000" } });
  await operator.did("workers", { worker_id: "w", owner_user_id: "owner" }, 201);
  const items = events(FRAMES, { event_type: "worker.log" }).map(({ run_id: _, ...item }) => ({ worker_id: "w", ...item }));
  await operator.batch(items);
  await operator.did("runs", { run_id: "v", owner_user_id: "victim" }, 201);
  return operator;
}

const userOf = (operator, oa_user_id) => operator.sign({ oa_user_id, oa_sync_scopes: ["runtime.run_events", "runtime.codex_worker_events"] });

/** A token without user, guest and organisation. */
const serviceOf = (operator, sub, scope) => operator.sign({ sub, oa_sync_scopes: [scope] });

/** A request for a plan. Without cursors it has many different ones, and the plan looks at as many rows as it may. */
function planRequest(token, cursors = range(0, 999).map((after_seq) => ({ topic: TOPIC, after_seq }))) {
  const body = JSON.stringify(cursors);
  return [`POST ${PLAN} HTTP/1.1`, "Host: khala", `Authorization: Bearer ${token}`, `Content-Length: ${body.length}`, "", body].join("\r\n");
}

async function plansOf(peer, token, cursors) {
  await peer.send(planRequest(token, cursors));
  const response = await peer.response();
  assert.equal(response.status, 200, response.body);
  return JSON.parse(response.body).plans;
}

/** Plans of equal cursors are equal, and look at the rows of one. */
async function plansARepeatedCursorOnce(operator) {
  const peer = await connect(operator.server);
  const equal = await plansOf(peer, userOf(operator, "other"), range(1, 1000).map(() => ({ topic: TOPIC, after_seq: 0 })));
  assert.equal(equal.length, 1000);
  assert.equal(equal[0].replay_events, 0);
  for (const one of equal) assert.deepEqual(one, equal[0]);
  const own = await plansOf(peer, userOf(operator, "owner"), [{ topic: TOPIC, after_seq: 1 }]);
  assert.equal(own[0].replay_events, FRAMES);
}

async function boundsTheRowsOfAPlan(operator) {
  const all = await plansOf(await connect(operator.server), userOf(operator, "other"));
  assert.equal(all.length, 1000);
  assert.equal(all[0].replay_events, 0);
  assert.deepEqual([all[999].decision, all[999].replay_events, all[999].replay_bytes], ["resume", null, null]);
  const measured = all.filter((one) => one.replay_events !== null).length;
  assert.ok(measured >= 20 && measured <= 200, `${measured} measured`);
}

/** Sends more plans than may wait, with bytes behind them. Resolves when the queue of the principal is full. */
async function fillQueue(operator, token, behind = "") {
  const peers = await Promise.all(range(1, PLANS).map(() => connect(operator.server)));
  const answers = [];
  for (const peer of peers) peer.finalResponse().then((response) => answers.push(response), () => {});
  await Promise.all(peers.map((peer) => peer.send(planRequest(token) + behind)));
  const refused = () => answers.filter(({ status }) => status !== 200);
  await until(() => refused().length > 0, "a refusal");
  return { refused, served: () => answers.length - refused().length, leave: (how) => peers.forEach((peer) => peer[how]()) };
}

/**
 * Many plans of one principal: another is served at once, some plans are refused, and the others end with their
 * clients, which close or reset their connections.
 */
async function isFair(operator, greedy, victim, { how, behind }) {
  const before = await scrape(operator);
  const plans = await fillQueue(operator, greedy, behind);
  const short = await operator.ask("GET", pollPath("run:v:events"), undefined, { authorization: `Bearer ${victim}` });
  assert.equal(short.status, 200, short.body);
  assert.ok(plans.served() < READS_MAX / 2, "the victim did not wait for the plans");
  plans.leave(how);
  for (const response of plans.refused()) {
    assert.equal(response.headers["retry-after"], "1");
    assert.equal(assertError(response, 429, "rate_limited").details.retry_after_ms, 1000);
  }
  await until(async () => (await scrape(operator)).get("khala_store_read_queue_depth") === 0, "an empty queue");
  const after = await scrape(operator);
  const rose = (name) => after.get(name) - before.get(name);
  assert.ok(rose("khala_store_reads_refused_total") >= plans.refused().length);
  assert.ok(rose("khala_store_reads_cancelled_total") >= 1, "the plans of the clients that are gone");
}

/** An answer that has started gets its further pages, although the queue of its principal is full. */
async function endsAnExport(operator) {
  await operator.did("runs", { run_id: "wide" }, 201);
  await operator.batch(events(WIDE, { run_id: "wide", payload: (i) => ({ i, text: "x".repeat(50_000) }) }));
  const token = serviceOf(operator, "exporter", "runtime.read_all");
  const { request, answer } = operator.begin("GET", "/api/events/export", { authorization: `Bearer ${token}` });
  request.end();
  const response = await answer; // its first page; the next ones are read with the answer
  assert.equal(response.statusCode, 200);
  const plans = await fillQueue(operator, serviceOf(operator, "exporter", "runtime.codex_worker_events"));
  const lines = textOf(response);
  await scrape(operator); // meanwhile the next page was asked for
  plans.leave("reset");
  assert.equal(JSON.parse((await lines).trim().split("\n").at(-1)).manifest.count, FRAMES + WIDE + 3);
}

/** The wait for a snapshot is a read of its principal too. A client that has the snapshot reads nothing else. */
async function countsWaitsForSnapshots(operator) {
  const token = userOf(operator, "summaries");
  const ask = (headers) => operator.ask("GET", "/v1/topics/runtime.run_summaries/snapshot", undefined, { authorization: `Bearer ${token}`, ...headers });
  const { status, headers } = await ask();
  assert.equal(status, 200);
  const plans = await fillQueue(operator, token);
  const answers = await Promise.all(range(1, 8).map(() => ask({ "if-none-match": headers.etag })));
  plans.leave("reset");
  const refused = answers.filter((answer) => answer.status !== 304);
  assert.ok(refused.length > 0, "a full queue refuses a snapshot");
  for (const answer of refused) {
    assert.equal(answer.headers["retry-after"], "1");
    assertError(answer, 429, "rate_limited");
  }
}

/** The client is not gone: it closes only its sending side. */
async function answersAHalfClosedClient(operator) {
  const peer = await connect(operator.server);
  await peer.send(getRequest(pollPath(TOPIC, "limit=200"), `Authorization: Bearer ${userOf(operator, "owner")}`));
  peer.finish();
  assert.match(await peer.rest(), /^(HTTP\/1\.1 100 Continue\r\n\r\n)*HTTP\/1\.1 200 OK\r\n[^]*"messages":\[\{/);
  // An answer that takes a second, too.
  const patient = await connect(operator.server);
  await patient.send(getRequest(pollPath("run:none:events", "wait_ms=1000"), `Authorization: Bearer ${operator.key}`));
  patient.finish();
  assert.match(await patient.rest(), /^(HTTP\/1\.1 100 Continue\r\n\r\n)+HTTP\/1\.1 200 OK\r\n[^]*"messages":\[\]/);
}

const EXPORTS = 150;
const EXPORTED = 100_000; // events of others: all exports together read them for much longer than a second
const EXPORT = "/api/events/export";
const requestOf = (path, token) => getRequest(path, `Authorization: Bearer ${token}`);

/** A user of whose events the log has none, or only the first one. */
const auditorOf = (operator, oa_user_id) => operator.sign({ oa_user_id, oa_sync_scopes: ["runtime.audit"] });

/** The bytes of an answer in chunks, without interim answers. */
function unchunked(text) {
  let rest = text.replace(/^(HTTP\/1\.1 100 Continue\r\n\r\n)*HTTP\/1\.1 200 OK\r\n[^]*?\r\n\r\n/, "");
  const pieces = [];
  for (;;) {
    const [head, digits] = rest.match(/^([0-9a-f]{1,16})\r\n/);
    const size = parseInt(digits, 16);
    if (size === 0) return pieces.join("");
    pieces.push(rest.slice(head.length, head.length + size));
    assert.equal(rest.slice(head.length + size, head.length + size + 2), "\r\n");
    rest = rest.slice(head.length + size + 2);
  }
}

/** Clients begin reads of a log of which they see few events, and leave: the reads end long before the end of the log. */
async function endsReadsOfClientsThatLeft(operator, path, token, hasBegun) {
  const before = await scrape(operator);
  const peers = await Promise.all(range(1, EXPORTS).map(() => connect(operator.server)));
  await Promise.all(peers.map((peer) => peer.send(requestOf(path, token))));
  if (hasBegun) await Promise.all(peers.map((peer) => peer.head()));
  for (const peer of peers) peer.close();
  // The clock is the server's own, so that a busy machine slows both.
  const poll = await operator.poll("run:none:events", "wait_ms=3000");
  assert.equal(poll.status, 200, poll.body);
  const after = await scrape(operator);
  const cancelled = after.get("khala_store_reads_cancelled_total") - before.get("khala_store_reads_cancelled_total");
  assert.equal(after.get("khala_store_read_queue_depth"), 0, `${cancelled} reads were cancelled`);
  assert.ok(cancelled >= EXPORTS / 2, `${cancelled} reads were cancelled`);
}

test("an export of events that its client may not see ends with its client", async (t) => {
  const operator = await filled(t, { KHALA_IO_LOOPS: "1" });
  await operator.did("runs", { run_id: "first", owner_user_id: "first" }, 201);
  const item = { worker_id: "w", event_type: "worker.log", payload: {} };
  for (let i = 0; i < EXPORTED; i += 1000) await operator.batch(Array(1000).fill(item));
  const ends = (...rest) => endsReadsOfClientsThatLeft(operator, ...rest);
  await t.test("before its answer begins", () => ends(EXPORT, auditorOf(operator, "none"), false));
  await t.test("in the middle of its answer", () => ends(EXPORT, auditorOf(operator, "first"), true));
  await t.test("and so does a list", () => ends("/api/events?limit=200", auditorOf(operator, "none"), false));
  await t.test("but not if the client closes only its sending side", async () => {
    // Several exports take longer than the first check of the server whether the client is there.
    const peers = await Promise.all(range(1, 8).map(() => connect(operator.server)));
    for (const peer of peers) await peer.send(requestOf(EXPORT, auditorOf(operator, "first")));
    for (const peer of peers) peer.finish();
    for (const peer of peers) {
      const lines = unchunked(await peer.rest()).trim().split("\n");
      assert.equal(lines.length, 2);
      assert.equal(JSON.parse(lines.at(-1)).manifest.count, 1);
    }
  });
});

test("reads of the store are fair and bounded", async (t) => {
  const operator = await filled(t, { KHALA_READS_PER_PRINCIPAL_MAX: String(READS_MAX) });
  await t.test("a plan looks once at a repeated cursor", () => plansARepeatedCursorOnce(operator));
  await t.test("a plan bounds the rows that it looks at", () => boundsTheRowsOfAPlan(operator));
  await t.test("reads of one principal do not delay another, are bounded, and end with their clients", () =>
    isFair(operator, userOf(operator, "other"), userOf(operator, "victim"), { how: "close" }));
  await t.test("more bytes than the server reads do not hide that a client is gone", () =>
    isFair(operator, userOf(operator, "more"), userOf(operator, "victim"), { how: "close", behind: "\r\n".padEnd(BEHIND, "x") }));
  await t.test("so do reads of tokens without an owner", () =>
    isFair(operator, serviceOf(operator, "other", "runtime.codex_worker_events"), serviceOf(operator, "victim", "runtime.read_all"), { how: "reset" }));
  await t.test("an export ends although other reads of its principal fill the queue", () => endsAnExport(operator));
  await t.test("a wait for a snapshot counts for its principal", () => countsWaitsForSnapshots(operator));
  await t.test("a client that closes only its sending side gets its answer", () => answersAHalfClosedClient(operator));
});
