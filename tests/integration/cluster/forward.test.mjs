// Appends through a node that is not the writer: it passes them on, and its clients read their own writes.
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { after, before } from "node:test";
import { backlog, BATCHES, hold, ITEMS, producer, runs, single, TURN } from "../../lib/backlog.mjs";
import { test, alone } from "../../lib/cases.mjs";
import { appended, join, pair } from "../../lib/cluster.mjs";
import { newDatabase, psql } from "../../lib/database.mjs";
import { assertError, connect, folder } from "../../lib/khala.mjs";
import { MEASURED, memoryBytes } from "../../lib/machine.mjs";
import { operate, textOf } from "../../lib/operator.mjs";
import { scrape } from "../../lib/prometheus.mjs";
import { PsqlSession } from "../../lib/psql_session.mjs";
import { range } from "../../lib/samples.mjs";
import { Authority } from "../../lib/tls.mjs";
import { until, within } from "../../lib/wait.mjs";

const PATIENT = { RUNTIME_KHALA_POLL_MIN_INTERVAL_MS: "0" };

/** A new event id. */
function newId() {
  const hex = Date.now().toString(16).padStart(12, "0");
  return `${hex.slice(0, 8)}-${hex.slice(8)}-7${randomUUID().slice(15)}`;
}

const said = (number, more = {}) => ({ event_type: "said", payload: { number }, ...more });

const item = (number, more = {}) => ({ topic: "room", ...said(number, more) });

const linesOf = (text) => text.trim().split("\n").map((line) => JSON.parse(line));

const OUTCOMES = ["answered", "unknown", "unreachable", "refused", "abandoned"];

/** The forwarded requests that this node counts, by outcome. */
async function outcomes(operator) {
  const metrics = await scrape(operator);
  return Object.fromEntries(OUTCOMES.map((outcome) => [outcome, metrics.get("khala_forward_requests_total", { outcome })]));
}

/** How often this node tried again to reach the writer. */
const retries = async (operator) => (await scrape(operator)).get("khala_forward_retries_total");

/** Sends a batch whose items come from a generator, and answers the text that came back. */
async function stream(operator, pieces, headers = { "content-type": "application/x-ndjson" }) {
  const { request, answer } = operator.begin("POST", "events:batch", headers);
  answer.catch(() => {});
  for await (const piece of pieces) {
    if (!request.write(piece)) await new Promise((resolve) => request.once("drain", resolve));
  }
  request.end();
  const response = await answer;
  return { status: response.statusCode, body: await textOf(response) };
}

// The nodes of the cases that end none. Each such case has topics and runs of its own.
let shared;
const ends = [];
before(async () => { shared = await pair({ after: (end) => ends.push(end) }, PATIENT); });
after(async () => { for (const end of ends) await end(); });

test("a follower passes every kind of append to the writer, and its client reads its own write at once", async () => {
  const { writer, follower } = shared;
  await follower.did("runs", { run_id: "a", owner_user_id: "u" }, 201);
  assert.equal((await follower.get("runs/a")).status, 200);
  await follower.did("runs/a/events", { event_type: "run.log", payload: {} });
  await follower.did("workers", { worker_id: "w", owner_user_id: "u" }, 201);
  await follower.did("workers/w/heartbeat", {});
  await follower.did("workers/w/status", { status: "running" });
  for (const number of range(1, 200)) {
    const { event } = await follower.did("topics/room/events", said(number));
    assert.equal(event.seq, number);
    const page = JSON.parse((await follower.poll("room", `after_seq=${number - 1}`)).body);
    assert.deepEqual(page.messages.map((one) => one.sequence), [number]);
    if (number % 50 === 0) {
      await follower.did("runs", { run_id: `r${number}`, owner_user_id: "u" }, 201);
      assert.equal((await follower.get(`runs/r${number}`)).status, 200);
      const { items } = await follower.read("runs?limit=1000");
      assert.ok(items.some((one) => one.run_id === `r${number}`));
    }
  }
  const counted = await outcomes(follower);
  assert.ok(counted.answered > 200, JSON.stringify(counted));
  assert.equal(counted.unknown + counted.unreachable + counted.refused, 0);
  assert.equal((await outcomes(writer)).answered, 0);
});

test("forwarded appends keep their principal: its rate, its idempotency keys and its grants", async (t) => {
  const { writer, follower } = await pair(t, { ...PATIENT, RUNTIME_KHALA_FALLBACK_PUBLISH_RATE_PER_SECOND: "20" });
  await writer.did("runs", { run_id: "bobs", owner_user_id: "bob" }, 201);
  const by = (user, topics) => {
    const authorization = `Bearer ${writer.sign({ oa_user_id: user, oa_sync_scopes: ["runtime.append"], ...(topics && { oa_sync_topics: topics }) })}`;
    return async (path, body) => {
      const { status, body: text } = await follower.ask("POST", path, JSON.stringify(body), { authorization, "content-type": "application/json" });
      return { status, ...JSON.parse(text) };
    };
  };
  const [ada, eve, job] = [by("ada"), by("eve"), by("eve", ["run:bobs:events"])];
  for (const [one, text] of [[ada, "a"], [eve, "e"]]) {
    const sent = { payload: { text }, idempotency_key: "order-123" };
    for (const deduplicated of [false, true]) assert.equal((await one("/v1/notifications", sent)).deduplicated, deduplicated);
  }
  const flood = await eve("/v1/events:batch", Array(300).fill({ topic: "runtime.notifications", event_type: "n" }));
  assert.ok(Object.values(flood).some(({ status }) => status === 429));
  assert.equal((await ada("/v1/notifications", {})).status, 200);
  assert.equal((await job("/v1/runs/bobs/events", { event_type: "run.log" })).status, 200);
  assert.deepEqual([(await job("/v1/runs", {})).error, (await eve("/v1/runs/bobs/events", { event_type: "run.log" })).error], ["forbidden_topic", "run_not_found"]);
});

alone("answers of the writer are passed on byte for byte, and refusals at the door stay on the follower", async () => {
  const { writer, follower } = shared;
  const id = newId();
  await writer.did("runs", { run_id: "b", owner_user_id: "u" }, 201);
  await writer.did("runs/b/events", { event_type: "run.log", payload: {}, event_id: id });
  const repeated = await follower.did("runs/b/events", { event_type: "run.log", payload: {}, event_id: id });
  assert.equal(repeated.deduplicated, true);
  const requests = [
    ["runs", "{"],
    ["runs", JSON.stringify({ run_id: "b", owner_user_id: "v" })],
    ["runs/none/events", JSON.stringify(said(1))],
    ["runs/b/events", JSON.stringify({ event_type: "run.log", payload: {}, expected_previous_seq: 900 })],
    ["runs/b/events", JSON.stringify({ event_type: "run.log", payload: { other: true }, event_id: id })],
    ["topics/run:b:events/events", JSON.stringify(said(1))],
    ["events:batch", "[]"],
    ["projectors/reproject", JSON.stringify({ run_id: "none" })],
    ["retention/run", JSON.stringify({ x: 1 })],
  ];
  for (const [path, body] of requests) {
    const headers = { "x-request-id": "the-same", "content-type": "text/plain" };
    const [direct, passed] = [await writer.ask("POST", path, body, headers), await follower.ask("POST", path, body, headers)];
    assert.ok(direct.status >= 400 && direct.status < 500, `${path} ${direct.status}`);
    delete direct.headers.date;
    delete passed.headers.date;
    assert.deepEqual(passed, direct, path);
  }
  const before = (await outcomes(follower)).answered;
  const token = { authorization: "Bearer nonsense" };
  assertError(await follower.ask("POST", "runs", "{}", token), 401, "invalid_token");
  const peer = await connect(follower.server);
  await peer.send(`POST /internal/v1/runs HTTP/1.1\r\nHost: k\r\nAuthorization: Bearer ${follower.key}\r\nContent-Length: 99999999999\r\n\r\n`);
  assertError(await peer.response(), 413, "payload_too_large");
  assert.equal((await outcomes(follower)).answered, before);
});

test("import, rebuild, retention, mint, revocation and why work on a follower", async (t) => {
  const source = await operate(t);
  await source.did("runs", { run_id: "moved", owner_user_id: "u" }, 201);
  await source.did("topics/room/events", said(1));
  const log = (await source.ask("GET", "/api/events/export", undefined, { authorization: `Bearer ${source.key}` })).body;
  const { writer, follower } = await pair(t, PATIENT);
  const imported = await follower.ask("POST", "/api/events/import", log, { "content-type": "application/x-ndjson" });
  assert.equal(imported.status, 200, imported.body);
  assert.equal((await follower.read("runs/moved")).run.run_id, "moved", "at once on the follower");
  await follower.did("projectors/reproject", { all: true });
  await follower.did("retention/run", {});
  assert.equal((await outcomes(follower)).answered, 3);

  const { token } = await follower.did("/api/sync/token", { topics: ["room"], session_id: "stolen" });
  const poll = (node) => node.ask("GET", "/internal/v1/khala/topics/room/messages?after_seq=0", undefined, { authorization: `Bearer ${token}` });
  for (const node of [writer, follower]) assert.equal((await poll(node)).status, 200);
  const { nodes_confirmed } = await follower.did("sync/sessions/revoke", { session_ids: ["stolen"] });
  assert.equal(nodes_confirmed, 2);
  for (const node of [writer, follower]) {
    assertError(await poll(node), 401, "token_revoked");
    // Each node answers for the clients that it denied.
    const { decisions } = await node.read("khala/why");
    assert.equal(decisions.filter((one) => JSON.stringify(one).includes("token_revoked")).length, 1);
  }
});

/** Keeps the commits of the writer waiting until the answer is called. */
async function holdCommits(t, url) {
  const session = new PsqlSession(t, url);
  await session.run("BEGIN", "SELECT term FROM runtime.writer FOR UPDATE");
  return () => session.run("ROLLBACK");
}

test("forwarded appends wait by their principal at the writer", async (t) => {
  const { url, writer, follower } = await pair(t, PATIENT);
  await runs(writer, "a", "b");
  const release = await hold(writer, () => holdCommits(t, url));
  const answered = await backlog(follower, writer, "a", producer(writer, "a"));
  const placed = await single(follower, writer, "b", "/v1", producer(writer, "b"));
  await release();
  await answered();
  const place = await placed();
  // Behind two creations, the event that was held, and one turn.
  assert.ok(place > 3 && place <= 3 + TURN, `the append is event ${place} of ${BATCHES * ITEMS}`);
});

test("a client that goes while its append is forwarded leaves the follower usable, and the append whole or absent", async (t) => {
  const { url, writer, follower } = await pair(t, PATIENT);
  await follower.did("topics/left/events", said(0));
  const release = await holdCommits(t, url);
  const { request, answer } = follower.begin("POST", "topics/left/events");
  answer.catch(() => {});
  request.end(JSON.stringify(said(1)));
  await until(async () => (await scrape(writer)).get("khala_store_queue_groups") > 0, "the append at the writer");
  request.destroy();
  await release();
  const ended = async () => Object.values(await outcomes(follower)).reduce((sum, count) => sum + count);
  await until(async () => await ended() === 2, "the end of the request");
  const { event } = await appended(follower, "left", said(2));
  assert.deepEqual((await follower.poll("left", "after_seq=0")).status, 200);
  assert.equal(psql(url, "SELECT count(*) FROM events"), String(event.seq));
});

test("a forwarded request is not forwarded again, and the header alone lifts no limit", async (t) => {
  const { writer, follower } = await pair(t, { ...PATIENT, KHALA_CONNECTIONS_PER_ADDRESS_MAX: "3" });
  const forwarded = { "khala-forwarded": "somebody" };
  assertError(await follower.ask("POST", "topics/room/events", JSON.stringify(said(1)), forwarded), 503, "not_writer");
  assertError(await follower.ask("POST", "events:batch", JSON.stringify(item(1)), { ...forwarded, "content-type": "application/x-ndjson" }), 503, "not_writer");
  assert.equal((await writer.ask("POST", "topics/room/events", JSON.stringify(said(1)), forwarded)).status, 200);
  // Many appends at a time use more connections to the writer than one address may have.
  const numbers = range(2, 30);
  await Promise.all(numbers.map((number) => follower.did("topics/room/events", said(number))));
  for (let i = 0; i < 3; i++) {
    const held = await connect(writer.server);
    // With its answer the connection is counted, on whatever loop it is.
    await held.send("GET /healthz/live HTTP/1.1\r\nHost: k\r\n\r\n");
    assert.equal((await held.response()).status, 200);
  }
  const token = writer.sign({ oa_sync_scopes: ["runtime.append"], sub: "u" });
  const body = JSON.stringify(said(0));
  const line = (more) => `POST /v1/topics/room/events HTTP/1.1\r\nHost: k\r\nAuthorization: Bearer ${token}\r\n${more}Content-Length: ${body.length}\r\n\r\n${body}`;
  const beyond = await connect(writer.server);
  await beyond.send(line("Khala-Forwarded: a\r\nKhala-Forwarded-Proof: " + "0".repeat(64) + "\r\n"));
  assert.equal((await beyond.response()).status, 429);
  await follower.did("topics/room/events", said(31));
});

test("a body that waits for 100 Continue, and one in chunks, go through a follower", async () => {
  const { follower } = shared;
  const peer = await connect(follower.server);
  const body = `${JSON.stringify(item(1, { topic: "hall" }))}\n`;
  const head = (path, more) => `POST ${path} HTTP/1.1\r\nHost: k\r\nAuthorization: Bearer ${follower.key}\r\n${more}\r\n`;
  await peer.send(head("/internal/v1/events:batch", `Expect: 100-continue\r\nContent-Type: application/x-ndjson\r\nContent-Length: ${body.length}\r\n`));
  assert.equal((await peer.response()).status, 100);
  await peer.send(body);
  assert.match(await peer.head(), /^HTTP\/1\.1 200 /);
  await peer.part((bytes) => (bytes.includes("\r\n0\r\n\r\n") ? { size: bytes.length } : null));
  const single = JSON.stringify(said(2));
  await peer.send(head("/internal/v1/topics/hall/events", "Expect: 100-continue\r\nTransfer-Encoding: chunked\r\n"));
  assert.equal((await peer.response()).status, 100);
  await peer.send(`${single.length.toString(16)}\r\n${single}\r\n0\r\n\r\n`);
  assert.equal((await peer.response()).status, 200);
  await peer.send(head("/internal/v1/events:batch", "Content-Type: application/x-ndjson\r\nTransfer-Encoding: chunked\r\n"));
  for (const byte of body) await peer.send(`1\r\n${byte}\r\n`);
  await peer.send("0\r\n\r\n");
  assert.match(await peer.head(), /^HTTP\/1\.1 200 /);
  const refused = await connect(follower.server);
  await refused.send(head("/internal/v1/events:batch", "Expect: 100-continue\r\nContent-Type: text/plain\r\nContent-Length: 5\r\n"));
  assertError(await refused.response(), 415, "unsupported_media_type");
});

test("an append reaches the next writer when the writer was killed before", async (t) => {
  const { url, writer, follower } = await pair(t, PATIENT);
  await follower.did("topics/room/events", said(1));
  await writer.server.crash();
  const began = performance.now();
  await follower.did("topics/room/events", said(2, { event_id: newId() }));
  const results = await follower.batch(range(3, 5).map((number) => item(number)));
  t.diagnostic(`appended ${Math.round(performance.now() - began)} ms after the writer was killed`);
  assert.deepEqual(results.map((one) => one.status), [200, 200, 200]);
  assert.equal(psql(url, "SELECT count(*), max(seq) FROM events"), "5|5");
});

test("a writer that is killed within a batch leaves coded answers, and a retry by event id leaves no gap", async (t) => {
  const { url, writer, follower } = await pair(t, PATIENT);
  const count = 4000;
  const items = range(1, count).map((number) => item(number, { event_id: newId() }));
  const lines = items.map((one) => `${JSON.stringify(one)}\n`);
  const { request, answer } = follower.begin("POST", "events:batch", { "content-type": "application/x-ndjson" });
  for (const line of lines.slice(0, count / 2)) request.write(line);
  const response = await answer;
  let text = "";
  response.on("data", (piece) => { text += piece; });
  const ended = new Promise((resolve, reject) => { response.on("end", resolve); response.on("error", reject); });
  await until(() => text.includes("\n"), "the first answer");
  await writer.server.crash();
  for (const line of lines.slice(count / 2)) request.write(line);
  request.end();
  await within(ended, "the end of the answer");
  const answers = linesOf(text);
  const last = answers.at(-1);
  assert.equal(last.status, 503, JSON.stringify(last));
  assert.equal(last.error.error, "append_outcome_unknown");
  assert.equal(last.index, answers.length - 1, "the first item without an answer");
  assert.deepEqual(answers.slice(0, -1).map((one) => [one.index, one.status]), range(0, answers.length - 2).map((index) => [index, 200]));
  const again = await stream(follower, lines.slice(last.index));
  assert.equal(again.status, 200, again.body);
  assert.ok(linesOf(again.body).every((one) => one.status === 200), again.body.slice(-400));
  assert.equal(psql(url, "SELECT count(*), count(DISTINCT event_id), max(seq) FROM events"), `${count}|${count}|${count}`);
});

test("a stopped writer leaves an unknown outcome, and an event id makes the retry at the next writer safe", async (t) => {
  const { url, writer, follower } = await pair(t, { ...PATIENT, KHALA_FORWARD_TIMEOUT_MS: "500" });
  // No timeout of this node ends a request in time: only the change of the writer does.
  const patient = await join(t, url, { ...PATIENT, KHALA_FORWARD_TIMEOUT_MS: "600000" });
  await patient.did("topics/room/events", said(1));
  await follower.did("topics/room/events", said(2));
  writer.server.kill("SIGSTOP");
  const failing = range(1, 20).map(() => follower.post("topics/room/events", said(3)));
  const asked = Promise.all([
    failing[0],
    follower.post("topics/room/events", said(4, { event_id: newId() })),
    patient.post("topics/room/events", said(5)),
    patient.post("topics/room/events", said(6, { event_id: newId() })),
    patient.post("topics/room/events", said(7, { idempotency_key: "seven" })),
  ]);
  const [late, repeated, ended, again, keyed] =
    await within(asked, "answers while the old writer is stopped").finally(() => writer.server.kill("SIGCONT"));
  for (const unknown of [late, ended]) {
    assertError(unknown, 503, "append_outcome_unknown");
    assert.equal(unknown.headers["retry-after"], "1");
  }
  for (const safe of [repeated, again, keyed]) assert.equal(safe.status, 200, safe.body);
  await until(async () => (await writer.post("topics/room/events", said(8))).status === 200, "the old writer as a follower");
  assert.equal(psql(url, "SELECT count(*) - max(seq) FROM events"), "0");
  for (const number of [4, 6, 7]) assert.equal(psql(url, `SELECT count(*) FROM events WHERE payload = '{"number":${number}}'`), "1");
  assert.ok((await outcomes(patient)).unknown >= 1);
  for (const answer of await Promise.all(failing)) assertError(answer, 503, "append_outcome_unknown");
  const warnings = follower.server.log.split("\n").filter((line) => line.includes("forward.done"));
  assert.ok(warnings.length > 0 && warnings.length < failing.length, `${warnings.length} warnings`);
});

test("nodes reach one another by TLS, and refuse an authority that they do not trust", async (t) => {
  const authority = new Authority(folder(t));
  const secure = { ...PATIENT, ...Authority.settings(authority.issue("node")) };
  const url = newDatabase();
  const node = (more) => operate(t, { data: folder(t), authority, settings: { ...secure, DB_URL: url, ...more } });
  await node({});
  const trusting = await node({ KHALA_CLUSTER_CA_FILE: authority.file });
  await trusting.did("topics/room/events", said(1));
  const results = await trusting.batch(range(2, 400).map((number) => item(number)));
  assert.ok(results.every((one) => one.status === 200));
  const careful = await node({});
  const { request, answer } = careful.begin("POST", "topics/room/events");
  request.end(JSON.stringify(said(401)));
  answer.catch(() => {});
  await until(async () => (await retries(careful)) > 0, "an attempt that fails");
  request.destroy();
});

alone("batches of 24 MB stream through a follower in bounded memory, also for a client that reads late", async (t) => {
  const { url, follower } = await pair(t, { ...PATIENT, ...MEASURED });
  const text = "x".repeat(3000);
  const lines = (count) => range(1, count).map((number) => `${JSON.stringify(item(number, { payload: { number, text } }))}\n`);
  const first = await stream(follower, lines(8000));
  assert.equal(linesOf(first.body).length, 8000);
  const before = memoryBytes(follower.server);
  const array = [`[${lines(8000).join(",")}]`];
  const { status, body } = await stream(follower, array, { "content-type": "application/json" });
  assert.equal(status, 200);
  assert.ok(JSON.parse(body).every((one) => one.status === 200));
  const peer = await connect(follower.server);
  peer.socket.pause();
  const late = lines(2000).join("");
  await peer.send(`POST /internal/v1/events:batch HTTP/1.1\r\nHost: k\r\nAuthorization: Bearer ${follower.key}\r\nContent-Type: application/x-ndjson\r\nContent-Length: ${late.length}\r\n\r\n${late}`);
  peer.socket.resume();
  assert.match(await peer.head(), /^HTTP\/1\.1 200 /);
  await peer.part((bytes) => (bytes.includes("\r\n0\r\n\r\n") ? { size: bytes.length } : null));
  assert.equal(psql(url, "SELECT count(*), max(seq) FROM events"), "18000|18000");
  const grown = memoryBytes(follower.server) - before;
  assert.ok(grown < 64 << 20, `${grown >> 20} MB more`);
});
