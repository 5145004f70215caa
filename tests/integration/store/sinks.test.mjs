// Sinks of the projector: a webhook and a NATS server get every document in order, whatever fails.
import assert from "node:assert/strict";
import { existsSync, writeFileSync } from "node:fs";
import http from "node:http";
import net from "node:net";
import { join } from "node:path";
import { folder, run, start } from "../../lib/khala.mjs";
import { alone, test } from "../../lib/cases.mjs";
import { operate } from "../../lib/operator.mjs";
import { freePort } from "../../lib/ports.mjs";
import { scrape } from "../../lib/prometheus.mjs";
import { events, range } from "../../lib/samples.mjs";
import { alter, sql } from "../../lib/store.mjs";
import { once, until, Watched } from "../../lib/wait.mjs";

const FANOUT = { RUNTIME_KHALA_SINK: "fanout" };

/** A receiver of documents that answers as it is told; "close" ends the connection without an answer. */
class Receiver extends Watched {
  documents = []; // those that it took
  asked = []; // all that it was sent
  answer = () => 200;

  static async open(t) {
    const receiver = new Receiver();
    const server = http.createServer((request, response) => {
      let text = "";
      request.on("data", (piece) => { text += piece; });
      request.on("end", () => {
        const document = JSON.parse(text);
        receiver.key = request.headers.authorization;
        receiver.path = request.url;
        const answer = receiver.answer(document);
        receiver.asked.push(document);
        if (answer === 200) receiver.documents.push(document);
        if (answer === "close") request.socket.destroy();
        else response.writeHead(answer).end();
        receiver.changed();
      });
    });
    await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
    t.after(() => { server.closeAllConnections(); server.close(); });
    receiver.url = `http://127.0.0.1:${server.address().port}/hook`;
    return receiver;
  }

  last(key) {
    return this.documents.filter((one) => one.doc_key === key).at(-1);
  }
}

const webhook = ({ url }) => ({ ...FANOUT, RUNTIME_KHALA_FANOUT_SINKS: "tables, webhook", KHALA_SINK_WEBHOOK_URL: url });

/** The latest document of a run has reached the receiver, unchanged, and versions never fell. */
async function arrived(operator, receiver, run_id, seq) {
  const key = `runtime/run_summary:${run_id}`;
  await receiver.until(() => receiver.last(key)?.payload.latest_seq === seq, `${run_id} at ${seq}`);
  assert.deepEqual(receiver.last(key).payload, await operator.read(`projectors/run-summary/${run_id}`));
  const versions = receiver.documents.filter((one) => one.doc_key === key).map((one) => one.doc_version);
  assert.deepEqual(versions, [...versions].sort((a, b) => a - b), key);
}

test("a webhook gets every document, also those of the time when it failed or the server was down", async (t) => {
  const receiver = await Receiver.open(t);
  const data = folder(t);
  const settings = { ...webhook(receiver), KHALA_SINK_WEBHOOK_URL: `${receiver.url}?a=b`, KHALA_SINK_WEBHOOK_KEY: "secret" };
  const first = await operate(t, { data, settings });
  await first.did("runs", { run_id: "a", owner_user_id: "ada" }, 201);
  await first.did("workers", { worker_id: "w", owner_user_id: "ada" }, 201);
  await arrived(first, receiver, "a", 1);
  await receiver.until(() => receiver.last("runtime/codex_worker_summary:w"), "the worker");
  assert.deepEqual([receiver.key, receiver.path], ["Bearer secret", "/hook?a=b"]);
  const { topic, kind, payload_hash } = receiver.last("runtime/run_summary:a");
  assert.deepEqual([topic, kind], ["runtime.run_summaries", "run_summary"]);
  assert.match(payload_hash, /^sha256:/);

  receiver.answer = () => 503;
  await first.batch(events(3));
  const failing = await until(async () => (await first.read("projectors/drift")).sinks.find((one) => one.status === "failing"), "the failure");
  assert.equal(failing.sink, "webhook");
  assert.match(failing.reason, /503/);
  const metrics = await scrape(first);
  assert.equal(metrics.get("khala_sink_failing", { sink: "webhook" }), 1);
  assert.ok(metrics.get("khala_sink_failures_total", { sink: "webhook" }) >= 1);
  const { code, out } = run(["doctor", "--json", "--data-dir", data]);
  const found = JSON.parse(out).checks.find(({ check }) => check === "sinks");
  assert.deepEqual([code, found.finding], [1, "wrong"]);
  assert.match(found.message, /webhook.*503/);

  await first.server.crash();
  receiver.answer = () => 200;
  const second = await operate(t, { data, settings });
  await second.batch(events(2));
  await arrived(second, receiver, "a", 6);
  await until(async () => (await second.read("projectors/drift")).sinks[0].status === "ok", "the recovery");
  assert.equal((await scrape(second)).get("khala_sink_failing", { sink: "webhook" }), 0);
});

const BAD = /:bad/;
const keyOf = (run_id) => `runtime/run_summary:${run_id}`;
const sinkOf = async (operator) => (await operator.read("projectors/drift")).sinks[0];
const isHolding = (operator, count) =>
  until(async () => (await sinkOf(operator)).held === count, `${count} held documents`);
const storedOf = (data) => sql(data, "SELECT value FROM meta WHERE name = 'sink-webhook'");
const inMetric = async (operator, name) => (await scrape(operator)).get(`khala_sink_${name}`, { sink: "webhook" });
const bad = (answer) => (document) => (BAD.test(document.doc_key) ? answer : 200);

for (const answer of [422, 403, 500, "close"]) {
  test(`a tenant whose documents the webhook answers with ${answer} delays no other, and loses nothing`, async (t) => {
    const receiver = await Receiver.open(t);
    receiver.answer = bad(answer);
    const data = folder(t);
    const settings = webhook(receiver);
    const first = await operate(t, { data, settings });
    for (const run_id of ["bad1", "good1", "bad2", "good2"]) {
      await first.did("runs", { run_id, owner_user_id: run_id.slice(0, -1) }, 201);
    }
    for (const run_id of ["good1", "good2"]) await arrived(first, receiver, run_id, 1);
    // The target takes another document after each refusal, so that the refusals are about these documents.
    for (let seq = 2; (await sinkOf(first)).held < 2; seq++) {
      await first.batch([...events(1, { run_id: "good1" }), ...events(1, { run_id: "bad1" })]);
      await arrived(first, receiver, "good1", seq);
    }
    const sink = await sinkOf(first);
    assert.deepEqual([sink.status, sink.held, sink.held_doc_key], ["holding", 2, keyOf("bad1")]);
    assert.match(sink.held_reason, answer === "close" ? /closed|reset/ : new RegExp(answer));
    assert.deepEqual([await inMetric(first, "held"), await inMetric(first, "refused_total")], [2, 2]);
    for (const run_id of ["bad1", "bad2"]) {
      await first.server.saw("log", new RegExp(`sink\\.document_held sink=webhook .*doc_key=${keyOf(run_id)}`));
    }

    const count = receiver.asked.length;
    await until(() => storedOf(data).split("\nheld ").length === 3, "the stored state");
    await first.server.crash();
    const { code, out } = run(["doctor", "--json", "--data-dir", data]);
    const found = JSON.parse(out).checks.find(({ check }) => check === "sinks");
    assert.deepEqual([code, found.finding], [1, "wrong"]);
    assert.match(found.message, /webhook holds 2 documents .*the oldest, runtime\/run_summary:bad1, for \d+ s: /);

    const second = await operate(t, { data, settings });
    await isHolding(second, 2);
    await second.batch([...events(3, { run_id: "bad2" }), ...events(1, { run_id: "good2" })]);
    await arrived(second, receiver, "good2", 2);
    const isAgain = () => receiver.asked.slice(count).some((one) => one.doc_key === keyOf("bad1"));
    await receiver.until(isAgain, "another attempt");
    receiver.answer = () => 200;
    for (const run_id of ["bad1", "bad2"]) {
      const { latest_seq } = await second.read(`projectors/run-summary/${run_id}`);
      await arrived(second, receiver, run_id, latest_seq);
    }
    await until(async () => (await inMetric(second, "held")) === 0, "nothing is held");
    await second.batch([...events(1, { run_id: "bad2" }), ...events(1, { run_id: "bad1" })]);
    await arrived(second, receiver, "bad2", 5);
    assert.equal((await sinkOf(second)).status, "ok");
    assert.doesNotMatch(second.server.log, /sink\.document_held/, "one line for each, also over a restart");
    await second.server.stop();
    assert.equal(run(["doctor", "--data-dir", data]).code, 0);
  });
}

for (const answer of [401, 503, "close"]) {
  test(`a webhook that answers everything with ${answer} gets each state in order afterwards`, async (t) => {
    const receiver = await Receiver.open(t);
    receiver.answer = () => answer;
    const data = folder(t);
    const settings = webhook(receiver);
    const first = await operate(t, { data, settings });
    // Each state is sent from the journal, not the newest from the walk over all documents.
    await until(() => /^position run_summary /m.test(storedOf(data)), "the first position");
    for (const run_id of ["a", "b", "c"]) await first.did("runs", { run_id }, 201);
    for (let i = 0; i < 3; i++) await first.batch(events(1));
    await until(async () => (await sinkOf(first)).failures >= 8, "some attempts");
    const sink = await sinkOf(first);
    assert.deepEqual([sink.status, sink.held, sink.waiting > 0], ["failing", 0, true]);
    await first.server.crash();
    const second = await operate(t, { data, settings });
    await until(async () => (await sinkOf(second)).failures >= 8, "some attempts");
    receiver.answer = () => 200;
    for (const [run_id, seq] of [["a", 4], ["b", 1], ["c", 1]]) await arrived(second, receiver, run_id, seq);
    const versions = receiver.documents.filter((one) => one.doc_key === keyOf("a")).map((one) => one.doc_version);
    assert.deepEqual(versions, [1, 2, 3, 4]);
    assert.equal(await inMetric(second, "refused_total"), 0);
    assert.doesNotMatch(first.server.log + second.server.log, /sink\.document_held/);
  });
}

test("a server that is killed while documents are held, sent again and retried loses none", async (t) => {
  const receiver = await Receiver.open(t);
  const data = folder(t);
  const settings = webhook(receiver);
  const runs = range(0, 11).map((i) => `run${i}`);
  const falls = [];
  for (let life = 0; life < 8; life++) {
    // In each life the receiver refuses other documents, and in some lives all of them for a while.
    const refused = new Set(runs.filter((_, i) => (i + life) % 3 === 0).map(keyOf));
    const newest = new Map();
    let isDown = life % 4 === 3;
    receiver.answer = ({ doc_key, doc_version }) => {
      if (isDown) return 503;
      if (refused.has(doc_key)) return 422;
      if ((newest.get(doc_key) ?? 0) > doc_version) falls.push(`${doc_key} ${newest.get(doc_key)} ${doc_version}`);
      newest.set(doc_key, doc_version);
      return 200;
    };
    const operator = await operate(t, { data, settings });
    if (life === 0) for (const run_id of runs) await operator.did("runs", { run_id }, 201);
    const asked = receiver.asked.length;
    for (const part of range(1, 10)) {
      await operator.batch(runs.flatMap((run_id) => events(1, { run_id })));
      if (part === 5) isDown = false;
      if (part === 7) refused.clear();
    }
    await receiver.until(() => receiver.asked.length >= asked + 8 * (life + 1), "documents on their way");
    await operator.server.crash();
  }
  receiver.answer = () => 200;
  const last = await operate(t, { data, settings });
  for (const run_id of runs) {
    const now = await last.read(`projectors/run-summary/${run_id}`);
    await receiver.until(() => receiver.last(keyOf(run_id))?.payload.latest_seq === now.latest_seq, run_id);
  }
  await isHolding(last, 0);
  assert.deepEqual(falls, [], "versions of an entity never fall while a server lives");
});

test("a webhook that refuses too many documents stops, and goes on when it takes them", async (t) => {
  const HELD_MAX = 1000;
  const receiver = await Receiver.open(t);
  receiver.answer = bad(422);
  const operator = await operate(t, { settings: webhook(receiver) });
  const create = async (from, to) => {
    for (const i of range(from, to)) await operator.did("runs", { run_id: `bad${i}` }, 201);
  };
  await create(1, HELD_MAX / 2);
  await operator.did("runs", { run_id: "one" }, 201);
  await isHolding(operator, HELD_MAX / 2);
  await create(HELD_MAX / 2 + 1, HELD_MAX);
  await operator.did("runs", { run_id: "two" }, 201);
  await isHolding(operator, HELD_MAX);
  await operator.did("runs", { run_id: "bad" }, 201);
  await operator.did("runs", { run_id: "three" }, 201);
  await until(async () => /too many/.test((await sinkOf(operator)).reason), "the sink as a whole fails");
  assert.equal(receiver.last(keyOf("three")), undefined);
  receiver.answer = () => 200;
  await arrived(operator, receiver, "three", 1);
  await isHolding(operator, 0);
  const taken = new Set(receiver.documents.map((one) => one.doc_key));
  assert.equal(taken.size, HELD_MAX + 4);
});

test("a webhook that joins later gets all documents first, and those that it refuses afterwards", async (t) => {
  const data = folder(t);
  const before = await operate(t, { data });
  for (const run_id of ["a", "bad", "b", "c"]) await before.did("runs", { run_id }, 201);
  await before.server.stop();
  const receiver = await Receiver.open(t);
  receiver.answer = bad(422);
  const after = await operate(t, { data, settings: webhook(receiver) });
  for (const run_id of ["a", "b", "c"]) await arrived(after, receiver, run_id, 1);
  await isHolding(after, 1);
  await after.batch([...events(1, { run_id: "bad" }), ...events(1)]);
  await arrived(after, receiver, "a", 2);
  receiver.answer = () => 200;
  await arrived(after, receiver, "bad", 2);
  await isHolding(after, 0);
  assert.equal(receiver.documents.length, 5, "each state that was not replaced, once");
});

test("documents and frames that were altered or lost are repaired before the webhook gets them", async (t) => {
  const data = folder(t);
  const change = (table, where) =>
    alter(data, `UPDATE ${table} SET payload = replace(payload, '"u"', '"v"') WHERE ${where}`);
  const of = (id) => `entity_ref = (SELECT ref FROM entities WHERE id = '${id}')`;
  const lose = (id) => alter(data, `DELETE FROM run_documents WHERE ${of(id)}`);
  const before = await operate(t, { data });
  for (const run_id of ["a", "bad1", "b", "bad2", "c"]) await before.did("runs", { run_id, owner_user_id: "u" }, 201);
  await before.server.stop();
  const drifted = async (operator) =>
    (await operator.read("projectors/drift")).drift.map((one) => one.entity_id ?? one.subject);

  // In the walk over all documents; the last row of the walk is among them.
  for (const id of ["a", "bad1"]) change("run_documents", of(id));
  for (const id of ["b", "c"]) lose(id);
  const receiver = await Receiver.open(t);
  receiver.answer = bad(422);
  const after = await operate(t, { data, settings: webhook(receiver) });
  for (const run_id of ["a", "b", "c"]) await arrived(after, receiver, run_id, 1);
  await isHolding(after, 2);
  assert.deepEqual((await drifted(after)).sort(), ["a", "b", "bad1", "c"]);

  // While they are held: the newest state is read again.
  change("run_documents", of("bad1"));
  lose("bad2");
  receiver.answer = () => 200;
  for (const run_id of ["bad1", "bad2"]) await arrived(after, receiver, run_id, 1);
  await isHolding(after, 0);
  assert.deepEqual((await drifted(after)).slice(0, 2).sort(), ["bad1", "bad2"]);

  // In the journal, while the target takes nothing.
  receiver.answer = () => 503;
  await after.batch(["a", "b", "bad1"].flatMap((run_id) => events(1, { run_id })));
  await until(async () => (await sinkOf(after)).status === "failing", "the failure");
  change("journal", "topic_ref = (SELECT ref FROM topics WHERE topic = 'runtime.run_summaries')");
  receiver.answer = () => 200;
  for (const run_id of ["a", "b", "bad1"]) await arrived(after, receiver, run_id, 2);
  assert.ok((await drifted(after)).includes("runtime.run_summaries"));
  const others = receiver.asked.filter(({ payload }) => payload.owner_user_id !== "u");
  assert.deepEqual(others, [], "nothing altered was sent");
});

test("positions and the projection version are in the store, which takes over the files of earlier versions", async (t) => {
  const receiver = await Receiver.open(t);
  const data = folder(t);
  const settings = webhook(receiver);
  const first = await operate(t, { data, settings });
  for (const run_id of ["a", "b"]) await first.did("runs", { run_id }, 201);
  for (const run_id of ["a", "b"]) await arrived(first, receiver, run_id, 1);
  await first.server.saw("log", /projection\.rebuilt/);
  await first.server.stop();
  const files = { "sink-webhook": "sink-webhook", "projection.version": "projection_version" };
  for (const [file, name] of Object.entries(files)) {
    assert.ok(!existsSync(join(data, file)), file);
    const value = sql(data, `SELECT value FROM meta WHERE name = '${name}'`);
    assert.notEqual(value, "", name);
    writeFileSync(join(data, file), value);
    alter(data, `DELETE FROM meta WHERE name = '${name}'`);
  }
  const count = receiver.documents.length;
  const second = await operate(t, { data, settings });
  await second.did("runs", { run_id: "c" }, 201);
  await arrived(second, receiver, "c", 1);
  await until(async () => (await sinkOf(second)).sent === 1, "the answer of the receiver");
  await second.server.stop();
  assert.deepEqual(receiver.documents.slice(count).map((one) => one.doc_key), ["runtime/run_summary:c"]);
  assert.doesNotMatch(second.server.log, /projection\.rebuilt/);
  for (const [file, name] of Object.entries(files)) {
    assert.ok(!existsSync(join(data, file)), `${file} is removed`);
    assert.notEqual(sql(data, `SELECT value FROM meta WHERE name = '${name}'`), "", name);
  }
});

/** A subscriber of a NATS server, which reads the text protocol. */
async function subscribe(t, port, subject) {
  const seen = new Watched();
  seen.messages = [];
  const socket = net.connect(port, "127.0.0.1");
  t.after(() => socket.destroy());
  await once(socket, "connect");
  socket.write(`CONNECT {"verbose":false,"headers":true}\r\nSUB ${subject} 1\r\nPING\r\n`);
  let text = Buffer.alloc(0);
  socket.on("data", (piece) => {
    text = Buffer.concat([text, piece]);
    for (let end; (end = text.indexOf("\r\n")) >= 0;) {
      const words = text.subarray(0, end).toString().split(" ");
      if (words[0] === "PONG") seen.ready = true;
      if (words[0] !== "HMSG") { text = text.subarray(end + 2); continue; }
      const [head, whole] = words.slice(-2).map(Number);
      if (text.length < end + 2 + whole + 2) break;
      const body = text.subarray(end + 2, end + 2 + whole);
      seen.messages.push({ subject: words[1], headers: body.subarray(0, head).toString(), document: JSON.parse(body.subarray(head)) });
      text = text.subarray(end + 2 + whole + 2);
    }
    seen.changed();
  });
  await seen.until(() => seen.ready, "the subscription");
  return seen;
}

alone("a NATS server that starts after the events gets every document, once it is there", async (t) => {
  const port = await freePort();
  const operator = await operate(t, { settings: { ...FANOUT, RUNTIME_KHALA_FANOUT_SINKS: "tables,nats", KHALA_SINK_NATS_URL: `nats://127.0.0.1:${port}`, KHALA_SINK_NATS_SUBJECT: "prod.khala" } });
  await operator.did("runs", { run_id: "a" }, 201);
  await until(async () => (await operator.read("projectors/drift")).sinks[0].status === "failing", "no server yet");
  const nats = start(t, ["nats-server", "-a", "127.0.0.1", "-p", String(port)]);
  await nats.saw("log", /Server is ready/);
  const seen = await subscribe(t, port, "prod.khala.>");
  await operator.batch(events(4));
  await seen.until(() => seen.messages.some(({ document }) => document.payload.latest_seq === 5), "the documents");
  const { subject, headers, document } = seen.messages.at(-1);
  assert.equal(subject, "prod.khala.runtime.run_summaries");
  assert.match(headers, /Nats-Msg-Id: runtime\.run_summaries\/\d+/);
  assert.equal(document.doc_key, "runtime/run_summary:a");
});

alone("a subject that the NATS server forbids is a failure: its documents wait, others go on", async (t) => {
  const [port, file] = [await freePort(), join(folder(t), "nats.conf")];
  const allow = (subject) => writeFileSync(file, `listen: "127.0.0.1:${port}"
    no_auth_user: khala
    authorization {
      users: [{ user: khala, password: khala, permissions: { publish: "${subject}", subscribe: ">" } }]
    }`);
  allow("khala.documents.runtime.run_summaries");
  const nats = start(t, ["nats-server", "-c", file]);
  await nats.saw("log", /Server is ready/);
  const data = folder(t);
  const url = `nats://127.0.0.1:${port}`;
  const settings = { ...FANOUT, RUNTIME_KHALA_FANOUT_SINKS: "tables,nats", KHALA_SINK_NATS_URL: url };
  const first = await operate(t, { data, settings });
  const seen = await subscribe(t, port, "khala.>");
  await first.did("workers", { worker_id: "w", owner_user_id: "ada" }, 201);
  await until(async () => (await sinkOf(first)).failures > 0, "the refusal");
  await first.did("runs", { run_id: "a" }, 201);
  await seen.until(() => seen.messages.some(({ document }) => document.doc_key === keyOf("a")), "the other document");
  await isHolding(first, 1);
  assert.match((await sinkOf(first)).held_reason, /Permissions Violation.*codex_worker_summaries/i);
  assert.deepEqual(seen.messages.filter(({ subject }) => subject.endsWith("codex_worker_summaries")), []);

  await first.server.crash();
  allow(">");
  await nats.end("SIGKILL");
  const again = start(t, ["nats-server", "-c", file]);
  await again.saw("log", /Server is ready/);
  const later = await subscribe(t, port, "khala.>");
  const second = await operate(t, { data, settings });
  const isHeld = ({ document }) => document.doc_key === "runtime/codex_worker_summary:w";
  await later.until(() => later.messages.some(isHeld), "the held document");
  await isHolding(second, 0);
});

test("noop keeps the log and writes no summary", async (t) => {
  const operator = await operate(t, { settings: { RUNTIME_KHALA_SINK: "noop" } });
  await operator.did("runs", { run_id: "a" }, 201);
  await operator.batch(events(2));
  assert.equal((await operator.get("projectors/run-summary/a")).status, 404);
  assert.equal((await operator.events("a")).length, 3);
});

test("a changed projection version rebuilds every summary while the server runs", async (t) => {
  const data = folder(t);
  const first = await operate(t, { data });
  for (const run_id of ["a", "b"]) await first.did("runs", { run_id }, 201);
  await first.did("workers", { worker_id: "w", owner_user_id: "ada" }, 201);
  await first.server.saw("log", /projection\.rebuilt version=khala_summary_v2 status=ok/);
  await first.server.stop();
  const settings = { RUNTIME_KHALA_PROJECTION_VERSION: "summary_v9" };
  const second = await operate(t, { data, settings });
  await second.server.saw("log", /projection\.rebuilt version=summary_v9 status=ok summaries=3/);
  for (const path of ["run-summary/a", "run-summary/b", "worker-summary/w"]) {
    assert.equal((await second.read(`projectors/${path}`)).projection_version, "summary_v9");
  }
  const { drift } = await second.read("projectors/drift");
  assert.equal(drift.filter((one) => one.reason_code === "projection_version_changed").length, 3);
  const { messages } = JSON.parse((await second.poll("runtime.run_summaries", "after_seq=0")).body);
  assert.deepEqual(messages.map((one) => [one.doc_key.at(-1), one.doc_version, one.projection_version]),
    [["a", 1, "khala_summary_v2"], ["b", 1, "khala_summary_v2"], ["a", 2, "summary_v9"], ["b", 2, "summary_v9"]]);
  assert.equal(run(["reproject", "--all", "--verify", "--data-dir", data], { settings }).code, 0);
  await second.server.stop();
  const third = await operate(t, { data, settings });
  await third.did("runs", { run_id: "c" }, 201);
  assert.equal((await third.read("projectors/run-summary/c")).projection_version, "summary_v9");
  assert.doesNotMatch(third.server.log, /projection\.rebuilt/, "the rebuild was complete");
});

test("sinks that cannot work are refused at start with the name of the setting", (t) => {
  const refused = (settings, words) => {
    const { code, problem } = run(["serve", "--bind", "127.0.0.1:0", "--data-dir", folder(t)], { settings: { ...FANOUT, ...settings } });
    assert.equal(code, 2, problem);
    assert.match(problem, words);
  };
  refused({ RUNTIME_KHALA_FANOUT_SINKS: "tables,kafka" }, /RUNTIME_KHALA_FANOUT_SINKS: 'kafka' is not one of/);
  refused({ RUNTIME_KHALA_FANOUT_SINKS: "webhook", KHALA_SINK_WEBHOOK_URL: "http://127.0.0.1:1" }, /add tables/);
  refused({ RUNTIME_KHALA_FANOUT_SINKS: "tables,webhook" }, /KHALA_SINK_WEBHOOK_URL is not set/);
  refused({ RUNTIME_KHALA_FANOUT_SINKS: "tables,nats" }, /KHALA_SINK_NATS_URL is not set/);
  refused({ RUNTIME_KHALA_FANOUT_SINKS: "" }, /names no sink/);
});
