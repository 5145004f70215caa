// Sinks of the projector: a webhook and a NATS server get every document in order, whatever fails.
import assert from "node:assert/strict";
import { existsSync, writeFileSync } from "node:fs";
import http from "node:http";
import net from "node:net";
import { join } from "node:path";
import { folder, run, start } from "../lib/khala.mjs";
import { alone, test } from "../lib/cases.mjs";
import { operate } from "../lib/operator.mjs";
import { freePort } from "../lib/ports.mjs";
import { scrape } from "../lib/prometheus.mjs";
import { events } from "../lib/samples.mjs";
import { alter, sql } from "../lib/store.mjs";
import { once, until, Watched } from "../lib/wait.mjs";

const FANOUT = { RUNTIME_KHALA_SINK: "fanout" };

/** A receiver of documents that answers as it is told. */
class Receiver extends Watched {
  documents = [];
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
        response.statusCode = receiver.answer(document);
        if (response.statusCode === 200) receiver.documents.push(document);
        response.end();
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

test("a document that the webhook refuses holds up no other", async (t) => {
  const receiver = await Receiver.open(t);
  receiver.answer = (document) => (document.doc_key.endsWith(":bad") ? 422 : 200);
  const operator = await operate(t, { settings: webhook(receiver) });
  await operator.did("runs", { run_id: "bad" }, 201);
  await operator.did("runs", { run_id: "good" }, 201);
  await arrived(operator, receiver, "good", 1);
  await operator.server.saw("log", /sink\.document_refused sink=webhook .*doc_key=runtime\/run_summary:bad/);
  assert.equal((await scrape(operator)).get("khala_sink_dropped_total", { sink: "webhook" }), 1);
});

test("a webhook that joins later gets all documents first", async (t) => {
  const data = folder(t);
  const before = await operate(t, { data });
  for (const run_id of ["a", "b", "c"]) await before.did("runs", { run_id }, 201);
  await before.server.stop();
  const receiver = await Receiver.open(t);
  const after = await operate(t, { data, settings: webhook(receiver) });
  for (const run_id of ["a", "b", "c"]) await arrived(after, receiver, run_id, 1);
  await after.batch(events(1));
  await arrived(after, receiver, "a", 2);
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
  await first.server.saw("log", /projection\.rebuilt version=khala_summary_v1 status=ok/);
  await first.server.stop();
  const settings = { RUNTIME_KHALA_PROJECTION_VERSION: "summary_v2" };
  const second = await operate(t, { data, settings });
  await second.server.saw("log", /projection\.rebuilt version=summary_v2 status=ok summaries=3/);
  for (const path of ["run-summary/a", "run-summary/b", "worker-summary/w"]) {
    assert.equal((await second.read(`projectors/${path}`)).projection_version, "summary_v2");
  }
  const { drift } = await second.read("projectors/drift");
  assert.equal(drift.filter((one) => one.reason_code === "projection_version_changed").length, 3);
  const { messages } = JSON.parse((await second.poll("runtime.run_summaries", "after_seq=0")).body);
  assert.deepEqual(messages.map((one) => [one.doc_key.at(-1), one.doc_version, one.projection_version]),
    [["a", 1, "khala_summary_v1"], ["b", 1, "khala_summary_v1"], ["a", 2, "summary_v2"], ["b", 2, "summary_v2"]]);
  assert.equal(run(["reproject", "--all", "--verify", "--data-dir", data], { settings }).code, 0);
  await second.server.stop();
  const third = await operate(t, { data, settings });
  await third.did("runs", { run_id: "c" }, 201);
  assert.equal((await third.read("projectors/run-summary/c")).projection_version, "summary_v2");
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
