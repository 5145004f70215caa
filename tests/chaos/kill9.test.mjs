// Kills the server at random moments under load and restarts it on the same folder. Every
// acknowledged event must be in the log at its sequence, no event twice or in part; chains must
// verify, documents must equal a rebuild, and every topic's journal must be complete. Folding readers
// resume over the kills and must have every event of their runs. The run repeats
// with KHALA_CHAOS_SEED; KHALA_CHAOS_KILLS sets the number of kills.
import assert from "node:assert/strict";
import http from "node:http";
import { test } from "node:test";
import { folder, run, startVerb } from "../lib/khala.mjs";
import { UNHURRIED } from "../lib/operator.mjs";
import { onPostgres } from "../lib/database.mjs";
import { seeded } from "../lib/seeded.mjs";
import { sql } from "../lib/store.mjs";
import { Watched, within } from "../lib/wait.mjs";

const KILLS = Number(process.env.KHALA_CHAOS_KILLS ?? (onPostgres ? 40 : 200));
const SEED = Number(process.env.KHALA_CHAOS_SEED ?? Date.now() % 1_000_000);
const RUNS = 12;
const WRITERS = 8;
const STREAMING = 4; // runs whose events are deltas; a folding reader follows each
const KEY = "chaos-operator-key-0123456789";

const { random, pick } = seeded(SEED);

let counter = 0;
/** A new lower-case UUIDv7. */
function uuid7() {
  const hex = Date.now().toString(16).padStart(12, "0") + "7" + (SEED & 0xfff).toString(16).padStart(3, "0")
    + "8" + (counter++).toString(16).padStart(15, "0");
  return hex.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, "$1-$2-$3-$4-$5");
}

class Server {
  constructor(t, dataFolder) {
    this.t = t;
    this.settings = { ...UNHURRIED, KHALA_DATA_DIR: dataFolder, KHALA_OPERATOR_KEY: KEY, KHALA_LOG_LEVEL: "warn", RUNTIME_KHALA_POLL_MIN_INTERVAL_MS: "0",
      RUNTIME_KHALA_SLOW_CONSUMER_LAG_THRESHOLD: "1000000" };
  }

  async start() {
    this.process = startVerb(this.t, ["serve", "--bind", "127.0.0.1:0"], { settings: this.settings });
    this.port = Number((await this.process.saw("out", /listens on http:\/\/127\.0\.0\.1:(\d+)\n/))[1]);
    this.agent = new http.Agent({ keepAlive: true, maxSockets: WRITERS + STREAMING });
  }

  async kill() {
    const { signal } = await this.process.end("SIGKILL");
    assert.equal(signal, "SIGKILL", `it ended before it was killed: ${this.process.log}`);
    this.agent.destroy();
  }

  async stop() {
    this.agent.destroy();
    const { code } = await this.process.end("SIGTERM");
    assert.equal(code, 0, this.process.log);
  }

  /** The whole answer; rejects when the connection breaks first. */
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

/** The events that were sent and acknowledged, and those whose fate is unknown because the server died. */
class Ledger extends Watched {
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
    this.changed();
  }
}

/** The payload of an event: its number, as a text of a stream of deltas or as it is. */
const isStreaming = (run) => Number(run.slice("run-".length)) < STREAMING;
const payloadOf = ({ run, n }) => (isStreaming(run) ? { id: "m", delta: `${n} ` } : { n, pad: "x".repeat(n % 300) });
const numberOf = ({ payload }) => payload.n ?? Number(payload.delta);

/** A reader with fold=true of one run, which goes on after its last frame when the server is back. */
class FoldingReader {
  at = 0;
  text = "";
  folded = 0;

  constructor(run) {
    this.run = run;
  }

  /** Reads to the head, or until the server dies. */
  async read(server, isDying, waitMs = 0) {
    for (let isOver = false; !isOver && !isDying();) {
      const path = `/v1/topics/${this.run}/messages?fold=true&limit=200&wait_ms=${waitMs}&after_seq=${this.at}`;
      const answer = await server.request("GET", path.replace(this.run, `run:${this.run}:events`));
      assert.equal(answer.status, 200, answer.body);
      const page = JSON.parse(answer.body);
      for (const { seq, kind, payload, folded } of page.messages) {
        assert.equal(folded?.from_seq ?? seq, this.at + 1, `${this.run}: a frame behind ${this.at}`);
        assert.ok(!folded || folded.count === seq - folded.from_seq + 1);
        this.at = seq;
        this.folded += folded ? 1 : 0;
        this.text += kind === "chaos.delta" ? payload.delta : "";
      }
      assert.equal(page.next_cursor, this.at);
      isOver = page.replay_complete;
    }
  }

  /** Compares what it has with the events of its run in the log. */
  check(events) {
    assert.equal(this.at, events.length, `${this.run}: the reader is at ${this.at}`);
    assert.equal(this.text, events.slice(1).map(({ payload }) => payload.delta).join(""), `${this.run}: another text`);
  }
}

function body(event, batch) {
  return JSON.stringify({
    ...(batch ? { run_id: event.run } : {}),
    event_type: isStreaming(event.run) ? "chaos.delta" : "chaos.step",
    event_id: event.id,
    ...(event.keyed ? { idempotency_key: `key-${event.id}` } : {}),
    payload: payloadOf(event),
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

/** Appends until the server is killed, and keeps the events without an answer. */
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

/** Reads as long as the server lives. */
async function readOn(reader, server, state) {
  try {
    while (!state.dying) await reader.read(server, () => state.dying, 50);
  } catch (error) {
    if (error instanceof assert.AssertionError) throw error;
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

/** Compares every run of the log with the ledger, and those that are streamed with their readers. */
async function compare(server, ledger, readers) {
  const found = new Map();
  for (let i = 0; i < RUNS; i++) {
    const answer = await server.request("GET", `/internal/v1/runs/run-${i}/replay`);
    assert.equal(answer.status, 200);
    const events = answer.body.trim().split("\n").map((line) => JSON.parse(line));
    events.forEach((event, index) => assert.equal(event.seq, index + 1, `run-${i} has a gap`));
    assert.equal(events[0].event_type, "run.started");
    await readers[i]?.read(server, () => false);
    readers[i]?.check(events);
    for (const event of events.slice(1)) {
      const sent = ledger.sent.get(event.event_id);
      assert.ok(sent, `nobody sent ${event.event_id}`);
      assert.equal(sent.run, `run-${i}`);
      assert.equal(numberOf(event), sent.n);
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

/** Compares counters with rows, and the last frame of each entity with its document. */
function checkJournal(data) {
  assert.equal(sql(data, `SELECT topic FROM topics t WHERE entity_ref IS NULL AND EXISTS (SELECT 1 FROM
    (SELECT count(*) AS rows, coalesce(min(seq), t.oldest_seq) AS first, coalesce(max(seq), t.head_seq) AS last
      FROM journal WHERE topic_ref = t.ref) j
    WHERE j.rows <> head_seq - oldest_seq + 1 OR j.first <> oldest_seq OR j.last <> head_seq)`), "");
  for (const [topic, table] of [["runtime.run_summaries", "sync_run_summaries"],
    ["runtime.codex_worker_summaries", "sync_codex_worker_summaries"]]) {
    const versions = `SELECT entity_ref, max(doc_version) FROM journal WHERE topic_ref =
      (SELECT ref FROM topics WHERE topic = '${topic}') GROUP BY entity_ref`;
    const documents = `SELECT entity_ref, doc_version FROM ${table}`;
    assert.equal(sql(data, `SELECT * FROM (${versions} EXCEPT ${documents}) q`), "", `frames of ${topic} without a document`);
    assert.equal(sql(data, `SELECT * FROM (${documents} EXCEPT ${versions}) q`), "", `documents of ${topic} without a frame`);
    assert.notEqual(sql(data, `SELECT count(*) FROM ${table}`), "0");
  }
  assert.equal(sql(data, `SELECT e.log_id FROM events e JOIN entities n ON n.ref = e.entity_ref WHERE n.kind = 1
    EXCEPT SELECT log_id FROM journal WHERE topic_ref =
    (SELECT ref FROM topics WHERE topic = 'runtime.codex_worker_events')`), "", "worker events without a frame");
}

test(`the store keeps every acknowledged event over ${KILLS} kills under load, seed ${SEED}`, { timeout: 580_000 }, async (t) => {
  const server = new Server(t, folder(t));
  const ledger = new Ledger();
  const readers = Array.from({ length: STREAMING }, (_, i) => new FoldingReader(`run-${i}`));
  await server.start();
  await prepare(server);
  for (let round = 1; round <= KILLS; round++) {
    const state = { dying: false };
    const wanted = ledger.acknowledged.size + 1 + Math.floor(random() * 150);
    const writers = Array.from({ length: WRITERS }, () => write(server, ledger, state));
    const reading = Promise.all(readers.map((reader) => readOn(reader, server, state)));
    // The kill comes after a number of acknowledgements, so that it is always under load.
    const reached = ledger.until(() => ledger.acknowledged.size >= wanted, `round ${round}: ${wanted} acknowledgements`);
    await Promise.race([reached, Promise.all(writers).then(() => reached)]);
    await server.kill();
    state.dying = true;
    await within(Promise.all([...writers, reading]), "the end of writers and readers");
    await server.start();
    if (round % 20 === 0) await compare(server, ledger, readers);
  }
  const stored = await compare(server, ledger, readers);
  await server.stop();
  check(server, ["verify"]);
  check(server, ["reproject", "--all", "--verify"]);
  checkJournal(server.settings.KHALA_DATA_DIR);
  t.diagnostic(`seed ${SEED}: ${KILLS} kills, ${ledger.acknowledged.size} acknowledged, ${stored} stored, `
    + `${ledger.deduplicated} answered again after a retry, ${readers.reduce((sum, one) => sum + one.folded, 0)} folded frames`);
  assert.ok(readers.every((one) => one.folded > 0), "every reader got folded frames");
});
