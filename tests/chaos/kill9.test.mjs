// Kills the server without warning at random moments under load, restarts it on the same folder,
// and holds it to one sentence: everything acknowledged is in the log where it was acknowledged,
// nothing is there twice or half, chains verify, documents equal a rebuild from scratch, and every
// topic's journal is whole and ends with what its documents and events say.
// Repeats by KHALA_CHAOS_SEED; KHALA_CHAOS_KILLS sets how many times it dies.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import http from "node:http";
import { test } from "node:test";
import { binary, environment, folder, run, within } from "../lib/khala.mjs";
import { sql } from "../lib/operator.mjs";
import { seeded } from "../lib/seeded.mjs";

const KILLS = Number(process.env.KHALA_CHAOS_KILLS ?? 200);
const SEED = Number(process.env.KHALA_CHAOS_SEED ?? Date.now() % 1_000_000);
const RUNS = 12;
const WRITERS = 8;
const KEY = "chaos-operator-key-0123456789";

const { random, pick } = seeded(SEED);

let counter = 0;
/** A lower-case UUIDv7 that is never made twice. */
function uuid7() {
  const hex = Date.now().toString(16).padStart(12, "0") + "7" + (SEED & 0xfff).toString(16).padStart(3, "0")
    + "8" + (counter++).toString(16).padStart(15, "0");
  return hex.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, "$1-$2-$3-$4-$5");
}

class Server {
  constructor(dataFolder) {
    this.settings = {
      KHALA_DATA_DIR: dataFolder,
      KHALA_OPERATOR_KEY: KEY,
      KHALA_LOG_LEVEL: "warn",
      RUNTIME_KHALA_RUN_EVENTS_PUBLISH_RATE_PER_SECOND: "1000000",
      RUNTIME_KHALA_WORKER_LIFECYCLE_PUBLISH_RATE_PER_SECOND: "1000000",
      RUNTIME_KHALA_CODEX_WORKER_EVENTS_PUBLISH_RATE_PER_SECOND: "1000000",
    };
  }

  async start() {
    this.child = spawn(binary, ["serve", "--bind", "127.0.0.1:0"],
      { env: environment(this.settings), stdio: ["ignore", "pipe", "pipe"] });
    this.log = "";
    this.child.stderr.on("data", (data) => { this.log += data; });
    this.ended = new Promise((resolve) => this.child.once("close", (code, signal) => resolve({ code, signal })));
    this.port = await within(new Promise((resolve, reject) => {
      let text = "";
      this.child.stdout.on("data", (data) => {
        text += data;
        const found = text.match(/listens on http:\/\/127\.0\.0\.1:(\d+)\n/);
        if (found) resolve(Number(found[1]));
      });
      this.ended.then(() => reject(new Error(`the server did not start: ${this.log}`)));
    }), "the server's start");
    this.agent = new http.Agent({ keepAlive: true, maxSockets: WRITERS });
  }

  async kill() {
    this.child.kill("SIGKILL");
    const { signal } = await within(this.ended, "the end by SIGKILL");
    assert.equal(signal, "SIGKILL", `it ended before it was killed: ${this.log}`);
    this.agent.destroy();
  }

  async stop() {
    this.agent.destroy();
    this.child.kill("SIGTERM");
    const { code } = await within(this.ended, "the end by SIGTERM");
    assert.equal(code, 0, this.log);
  }

  /** The whole answer; rejects when the connection dies first. */
  request(method, path, body, type = "application/json") {
    return new Promise((resolve, reject) => {
      const request = http.request({
        port: this.port, host: "127.0.0.1", method, path, agent: this.agent,
        headers: { authorization: `Bearer ${KEY}`, ...(body ? { "content-type": type, "content-length": Buffer.byteLength(body) } : {}) },
      }, (response) => {
        const pieces = [];
        response.on("data", (piece) => pieces.push(piece));
        response.on("end", () => (response.complete
          ? resolve({ status: response.statusCode, body: Buffer.concat(pieces).toString() })
          : reject(new Error("cut"))));
        response.on("error", reject);
      });
      request.on("error", reject);
      request.end(body);
    });
  }
}

/** What was asked, what was acknowledged, and what is not known because the server died. */
class Ledger {
  sent = new Map(); // event id → {run, n}
  acknowledged = new Map(); // event id → seq
  unknown = []; // asked, not answered
  deduplicated = 0;

  make(run) {
    const event = { run, id: uuid7(), n: this.sent.size, keyed: random() < 0.3 };
    this.sent.set(event.id, event);
    return event;
  }

  acknowledge(id, seq, deduplicated) {
    const before = this.acknowledged.get(id);
    assert.ok(before === undefined || before === seq, `event ${id} was seq ${before}, now ${seq}`);
    this.acknowledged.set(id, seq);
    this.deduplicated += deduplicated ? 1 : 0;
  }
}

function body(event, batch) {
  return JSON.stringify({
    ...(batch ? { run_id: event.run } : {}),
    event_type: "chaos.step",
    event_id: event.id,
    ...(event.keyed ? { idempotency_key: `key-${event.id}` } : {}),
    payload: { n: event.n, pad: "x".repeat(event.n % 300) },
  });
}

async function appendOne(server, ledger, event) {
  const answer = await server.request("POST", `/internal/v1/runs/${event.run}/events`, body(event, false));
  assert.equal(answer.status, 200, answer.body);
  const { event: stored, deduplicated } = JSON.parse(answer.body);
  assert.equal(stored.event_id, event.id);
  ledger.acknowledge(event.id, stored.seq, deduplicated);
}

async function appendBatch(server, ledger, events) {
  const text = events.map((event) => body(event, true)).join("\n") + "\n";
  const answer = await server.request("POST", "/internal/v1/events:batch", text, "application/x-ndjson");
  assert.equal(answer.status, 200, answer.body);
  const items = answer.body.trim().split("\n").map((line) => JSON.parse(line));
  assert.equal(items.length, events.length);
  items.forEach((item, index) => {
    assert.equal(item.index, index);
    assert.equal(item.status, 200, JSON.stringify(item));
    assert.equal(item.event.event_id, events[index].id);
    ledger.acknowledge(item.event.event_id, item.event.seq, item.deduplicated === true);
  });
}

/** One writer: asks until the server is gone, and keeps what it does not know the answer to. */
async function write(server, ledger, state) {
  while (!state.dying) {
    const retry = ledger.unknown.splice(0, 20);
    const run = `run-${Math.floor(random() * RUNS)}`;
    const events = retry.length > 0 ? retry
      : random() < 0.3 ? Array.from({ length: 1 + Math.floor(random() * 40) }, () => ledger.make(`run-${Math.floor(random() * RUNS)}`))
        : [ledger.make(run)];
    try {
      if (events.length === 1) await appendOne(server, ledger, events[0]);
      else await appendBatch(server, ledger, events);
      if (random() < 0.05) await server.request("POST", `/internal/v1/workers/worker-${Math.floor(random() * 4)}/heartbeat`, "{}");
    } catch (error) {
      if (error instanceof assert.AssertionError) throw error;
      ledger.unknown.push(...events.filter((event) => !ledger.acknowledged.has(event.id)));
      return;
    }
  }
}

async function prepare(server) {
  for (let i = 0; i < RUNS; i++) {
    const answer = await server.request("POST", "/internal/v1/runs", JSON.stringify({ run_id: `run-${i}`, owner_user_id: `user-${i % 3}` }));
    assert.equal(answer.status, 201, answer.body);
  }
  for (let i = 0; i < 4; i++) {
    const answer = await server.request("POST", "/internal/v1/workers", JSON.stringify({ worker_id: `worker-${i}`, owner_user_id: `user-${i}` }));
    assert.equal(answer.status, 201, answer.body);
  }
}

/** Every run of the log against the ledger. */
async function compare(server, ledger) {
  const found = new Map();
  for (let i = 0; i < RUNS; i++) {
    const answer = await server.request("GET", `/internal/v1/runs/run-${i}/replay`);
    assert.equal(answer.status, 200);
    const events = answer.body.trim().split("\n").map((line) => JSON.parse(line));
    events.forEach((event, index) => assert.equal(event.seq, index + 1, `run-${i} has a gap`));
    assert.equal(events[0].event_type, "run.started");
    for (const event of events.slice(1)) {
      const sent = ledger.sent.get(event.event_id);
      assert.ok(sent, `nobody sent ${event.event_id}`);
      assert.equal(sent.run, `run-${i}`);
      assert.equal(event.payload.n, sent.n);
      assert.ok(!found.has(event.event_id), `event ${event.event_id} is there twice`);
      found.set(event.event_id, event.seq);
    }
  }
  for (const [id, seq] of ledger.acknowledged) assert.equal(found.get(id), seq, `acknowledged event ${id} is gone or moved`);
  return found.size;
}

function check(server, args) {
  const { code, out, problem } = run(args, { settings: server.settings });
  assert.equal(code, 0, `khala ${args.join(" ")}: ${out}${problem}`);
}

/** Counters against rows, and the last frame of each entity against its document. */
function checkJournal(data) {
  assert.equal(sql(data, `SELECT topic FROM sync_topic_sequences t WHERE entity_ref IS NULL AND
    (head_seq - oldest_seq + 1, oldest_seq, head_seq) IS NOT
    (SELECT count(*), min(seq), max(seq) FROM sync_stream_events WHERE topic_ref = t.ref)`), "");
  for (const [topic, table] of [["runtime.run_summaries", "sync_run_summaries"],
    ["runtime.codex_worker_summaries", "sync_codex_worker_summaries"]]) {
    const versions = `SELECT entity_ref, max(doc_version) FROM sync_stream_events WHERE topic_ref =
      (SELECT ref FROM sync_topic_sequences WHERE topic = '${topic}') GROUP BY entity_ref`;
    const documents = `SELECT entity_ref, doc_version FROM ${table}`;
    assert.equal(sql(data, `SELECT * FROM (${versions} EXCEPT ${documents})`), "", `frames of ${topic} without a document`);
    assert.equal(sql(data, `SELECT * FROM (${documents} EXCEPT ${versions})`), "", `documents of ${topic} without a frame`);
    assert.notEqual(sql(data, `SELECT count(*) FROM ${table}`), "0");
  }
  assert.equal(sql(data, `SELECT e.log_id FROM events e JOIN entities n ON n.ref = e.entity_ref WHERE n.kind = 1
    EXCEPT SELECT log_id FROM sync_stream_events WHERE topic_ref =
    (SELECT ref FROM sync_topic_sequences WHERE topic = 'runtime.codex_worker_events')`), "", "worker events without a frame");
}

test(`${KILLS} kills under load, seed ${SEED}`, { timeout: 580_000 }, async (t) => {
  const server = new Server(folder(t));
  const ledger = new Ledger();
  await server.start();
  await prepare(server);
  for (let round = 1; round <= KILLS; round++) {
    const state = { dying: false };
    const wanted = ledger.acknowledged.size + 1 + Math.floor(random() * 150);
    const writers = Array.from({ length: WRITERS }, () => write(server, ledger, state));
    // The moment is a number of acknowledgements, so that every kill comes under load.
    let gone = 0;
    for (const writer of writers) writer.finally(() => { gone += 1; }).catch(() => {});
    while (ledger.acknowledged.size < wanted) {
      if (gone === WRITERS) await Promise.all(writers);
      assert.ok(gone < WRITERS, `round ${round}: the server stopped answering before it was killed: ${server.log}`);
      await new Promise((resolve) => setImmediate(resolve));
    }
    await server.kill();
    state.dying = true;
    await within(Promise.all(writers), "the writers' end");
    await server.start();
    if (round % 20 === 0) await compare(server, ledger);
  }
  const stored = await compare(server, ledger);
  await server.stop();
  check(server, ["verify"]);
  check(server, ["reproject", "--all", "--verify"]);
  checkJournal(server.settings.KHALA_DATA_DIR);
  t.diagnostic(`seed ${SEED}: ${KILLS} kills, ${ledger.acknowledged.size} acknowledged, ${stored} stored, `
    + `${ledger.deduplicated} answered again after a retry`);
});
