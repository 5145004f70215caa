// events:batch: items in both formats, answers in order while the body is still sent, bounded
// memory, and clients that stop reading or sending.
import assert from "node:assert/strict";
import net from "node:net";
import { test } from "../../lib/cases.mjs";
import { assertError } from "../../lib/khala.mjs";
import { memoryBytes, SANITIZED } from "../../lib/machine.mjs";
import { operate, refused } from "../../lib/operator.mjs";
import { holdWriter } from "../../lib/store.mjs";
import { until, Watched, within } from "../../lib/wait.mjs";

const NDJSON = { "content-type": "application/x-ndjson" };
const JSON_TYPE = { "content-type": "application/json" };

async function runs(operator, ...ids) {
  for (const run_id of ids) await operator.did("runs", { run_id }, 201);
}

function log(run_id, payload = {}) {
  return { run_id, event_type: "run.log", payload };
}

/** Reads answers line by line as they come. */
class Lines extends Watched {
  #text = "";
  #lines = [];

  constructor(response) {
    super();
    response.setEncoding("utf8");
    response.on("data", (data) => {
      const pieces = (this.#text + data).split("\n");
      this.#text = pieces.pop();
      this.#lines.push(...pieces);
      this.changed();
    });
    this.ended = new Promise((resolve, reject) => {
      response.on("end", resolve);
      response.on("error", reject);
    });
    this.ended.catch(() => {});
  }

  async next() {
    await this.until(() => this.#lines.length > 0, "an answer");
    return JSON.parse(this.#lines.shift());
  }
}

test("an NDJSON batch is answered in NDJSON, in order and item by item", async (t) => {
  const operator = await operate(t);
  await runs(operator, "a", "b");
  await operator.did("workers", { worker_id: "w", owner_user_id: "u" }, 201);
  const lines = [
    JSON.stringify(log("a", { n: 1 })),
    JSON.stringify({ ...log("b"), idempotency_key: "k" }),
    "",
    "{\"run_id\":",
    JSON.stringify(log("none")),
    "   \r",
    JSON.stringify({ topic: "chat", event_type: "said", payload: { text: "hi" } }),
    JSON.stringify({ audit: true, event_type: "audit.note" }),
    JSON.stringify({ worker_id: "w", event_type: "worker.output" }),
    JSON.stringify({ worker_id: "w", status: "running" }),
    JSON.stringify({ ...log("b"), idempotency_key: "k" }),
    JSON.stringify({ run_id: "a", topic: "chat", event_type: "x" }),
    "[1]",
    JSON.stringify({ topic: "run:a:events", event_type: "x" }),
    JSON.stringify(log("a", { n: 2 })),
  ];
  const response = await operator.ask("POST", "events:batch", lines.join("\n"), NDJSON);
  assert.equal(response.status, 200);
  assert.equal(response.headers["content-type"], "application/x-ndjson");
  const answers = response.body.trimEnd().split("\n").map((line) => JSON.parse(line));
  assert.deepEqual(answers.map(({ index }) => index), answers.map((_, index) => index));
  assert.deepEqual(answers.map(({ status, error }) => error?.error ?? status), [
    200, 200, "invalid_json", "run_not_found", 200, 200, 200, 200, 200, "invalid_request", "invalid_request",
    "projection_owned_topic", 200]);
  assert.deepEqual(answers.map(({ status }) => status), [200, 200, 400, 404, 200, 200, 200, 200, 200, 400, 400, 403, 200]);
  for (const { status, event, error, deduplicated } of answers) {
    if (status === 200) assert.equal(typeof deduplicated, "boolean");
    assert.equal(status === 200, Boolean(event));
    assert.equal(status !== 200, Boolean(error));
    if (error) assert.ok(error.message && error.request_id);
  }
  assert.equal(answers[8].deduplicated, true);
  assert.deepEqual(answers[8].event, answers[1].event);
  assert.equal(answers[0].event.seq, 2);
  assert.equal(answers[12].event.seq, 3);
  assert.deepEqual((await operator.events("a")).slice(1).map(({ payload }) => payload.n), [1, 2]);
});

test("a JSON array batch is answered with an array", async (t) => {
  const operator = await operate(t);
  await runs(operator, "a");
  const post = (body, type = "application/json; charset=utf-8") => operator.ask("POST", "events:batch", body, { "content-type": type });
  const response = await post(JSON.stringify([log("a", { n: 1 }), { run_id: 7 }, log("a", { n: 2 })]));
  assert.equal(response.status, 200);
  assert.equal(response.headers["content-type"], "application/json");
  assert.deepEqual(JSON.parse(response.body).map(({ index, status }) => [index, status]), [[0, 200], [1, 400], [2, 200]]);
  assert.deepEqual(JSON.parse((await post("[]")).body), []);
  assert.deepEqual(JSON.parse((await post(" [ ] ")).body), []);
  const empty = await operator.ask("POST", "events:batch", "", NDJSON);
  assert.deepEqual([empty.status, empty.body], [200, ""]);
});

test("a truncated array keeps the items before the error", async (t) => {
  const operator = await operate(t);
  await runs(operator, "a");
  const good = JSON.stringify(log("a"));
  for (const [rest, code, status] of [["", "invalid_json", 400], [",", "invalid_json", 400], ["}", "invalid_json", 400],
    [",{]", "invalid_json", 400], ["] x", "invalid_json", 400], [`,"${"x".repeat(600_000)}"]`, "payload_too_large", 413],
    [`,${"[".repeat(300)}`, "json_too_deep", 400]]) {
    const before = (await operator.read("runs/a")).run.latest_seq;
    const response = await operator.ask("POST", "events:batch", `[${good}${rest}`, JSON_TYPE);
    assert.equal(response.status, 200, rest);
    const answers = JSON.parse(response.body);
    assert.equal(answers.length, 2, rest.slice(0, 20));
    assert.equal(answers[0].status, 200);
    assert.deepEqual([answers[1].index, answers[1].status, answers[1].error.error], [1, status, code]);
    assert.equal((await operator.read("runs/a")).run.latest_seq, before + 1);
  }
  for (const body of ["", "{}", "1", "{\"run_id\":\"a\"}", "[", "[nonsense"]) {
    await refused(operator, () => operator.ask("POST", "events:batch", body, JSON_TYPE), 400, "invalid_json");
  }
});

test("a batch with another content type is refused", async (t) => {
  const operator = await operate(t);
  for (const headers of [{}, { "content-type": "text/plain" }, { "content-type": "application/jsonish" }]) {
    await refused(operator, () => operator.ask("POST", "events:batch", "[]", headers), 415, "unsupported_media_type");
  }
});

test("a compressed body is refused", async (t) => {
  const operator = await operate(t);
  const line = JSON.stringify({ topic: "app", event_type: "x" });
  const ask = (path, encoding) => operator.ask("POST", path, line,
    { "content-type": "application/x-ndjson", "content-encoding": encoding });
  for (const path of ["events:batch", "runs"]) {
    for (const encoding of ["gzip", "br", "identity, gzip"]) {
      await refused(operator, () => ask(path, encoding), 415, "unsupported_media_type");
    }
  }
  assert.equal((await ask("events:batch", "Identity")).status, 200);
});

test("a line that is too long fails alone", async (t) => {
  const operator = await operate(t);
  await runs(operator, "a");
  const large = JSON.stringify(log("a", { x: "y".repeat(262_144 - 8) }));
  const tooLargeForTheTopic = JSON.stringify(log("a", { x: "y".repeat(262_144) }));
  const tooLong = JSON.stringify(log("a", { x: "y".repeat(600_000) }));
  const response = await operator.ask("POST", "events:batch", [large, tooLargeForTheTopic, tooLong, tooLong, large].join("\n"), NDJSON);
  const answers = response.body.trimEnd().split("\n").map((line) => JSON.parse(line));
  assert.deepEqual(answers.map(({ status, error }) => error?.error ?? status),
    [200, "khala_frame_payload_too_large", "payload_too_large", "payload_too_large", 200]);
  assert.equal(answers[1].error.details.max_payload_bytes, 262144);
});

test("items are answered while the body is still being sent", async (t) => {
  const operator = await operate(t);
  await runs(operator, "a");
  const { request, answer } = operator.begin("POST", "events:batch", NDJSON);
  request.write(`${JSON.stringify(log("a", { i: 0 }))}\n`);
  const lines = new Lines(await within(answer, "the head of the answer"));
  for (let i = 1; i <= 5; i++) {
    assert.equal((await lines.next()).event.payload.i, i - 1);
    const line = `${JSON.stringify(log("a", { i }))}\n`;
    // A line sent in two pieces is one line.
    request.write(line.slice(0, 9));
    request.write(line.slice(9));
  }
  assert.equal((await lines.next()).event.payload.i, 5);
  request.end(JSON.stringify(log("a", { i: 6 })));
  assert.equal((await lines.next()).event.payload.i, 6);
  await lines.ended;
});

test("a group that the writer does not take holds back its own entities only", async (t) => {
  const operator = await operate(t, { settings: { KHALA_WRITER_QUEUE_MAX: "1" } });
  const filling = [];
  // One group is in the writer's batch, and one waits.
  const isFull = async () => {
    const { body } = await operator.get("/metrics");
    if (/^khala_store_queue_groups 2$/m.test(body)) return true;
    filling.push(operator.post("topics/other/events", { event_type: "x" }));
    return false;
  };
  let release;
  // A writer that loses its session on a busy machine cannot come back while it is held.
  await until(async () => {
    release = await holdWriter(t, operator.data);
    const filled = await until(isFull, "a full queue", 10_000).catch(() => false);
    if (!filled) await release();
    return filled;
  }, "a full queue");
  const { request, answer } = operator.begin("POST", "events:batch", NDJSON);
  const say = (...topics) => topics.forEach((topic) => request.write(`${JSON.stringify({ topic, event_type: "said" })}\n`));
  say("a");
  const lines = new Lines(await within(answer, "the head of the answer"));
  assert.equal((await lines.next()).status, 503);
  await release();
  await Promise.all(filling);
  say("a");
  assert.equal((await lines.next()).status, 424);
  say("b");
  assert.equal((await lines.next()).status, 200);
  request.end();
  await lines.ended;
});

test("a refused item is not overtaken by later items of its entity", async (t) => {
  const rate = { RUNTIME_KHALA_FALLBACK_PUBLISH_RATE_PER_SECOND: "100" };
  const operator = await operate(t, { settings: rate });
  const said = (topic, n) => JSON.stringify({ topic, event_type: "said", payload: { n } });
  const { request, answer } = operator.begin("POST", "events:batch", NDJSON);
  request.write(Array.from({ length: 160 }, (_, n) => `${said("busy", n)}\n`).join(""));
  const lines = new Lines(await within(answer, "the head of the answer"));
  const first = [];
  for (let i = 0; i < 160; i++) first.push(await lines.next());
  const accepted = first.findIndex(({ status }) => status !== 200);
  assert.ok(accepted >= 100, `${accepted}`);
  assert.deepEqual([first[accepted].status, first[accepted].error.error], [429, "khala_publish_rate_limited"]);
  for (const { index, status, error } of first.slice(accepted + 1)) {
    assert.deepEqual([status, error.error], [424, "not_attempted"], `item ${index}`);
    assert.match(error.message, /^An earlier item/);
  }
  // The topic takes events again, and another client uses that. The batch still keeps its order.
  await until(async () => (await operator.post("topics/busy/events", { event_type: "other" })).status === 200, "room in the rate");
  for (const topic of ["busy", "quiet", "busy"]) request.write(`${said(topic, 160)}\n`);
  assert.deepEqual([(await lines.next()).status, (await lines.next()).status, (await lines.next()).status], [424, 200, 424]);
  request.end();
  await lines.ended;
  const stored = (await operator.read("topics/busy/events?limit=200")).events;
  assert.deepEqual(stored.filter(({ event_type }) => event_type === "said").map(({ payload }) => payload.n),
    Array.from({ length: accepted }, (_, n) => n));
});

/** Sends lines as fast as the server takes them, and counts the answers. */
async function stream(operator, count, line) {
  const { request, answer } = operator.begin("POST", "events:batch", NDJSON);
  let done = 0;
  let bad = 0;
  let largest = 0;
  const reading = answer.then(async (response) => {
    let text = "";
    response.setEncoding("utf8");
    for await (const piece of response) {
      const lines = (text + piece).split("\n");
      text = lines.pop();
      for (const one of lines) {
        const item = JSON.parse(one);
        assert.equal(item.index, done++);
        if (item.status !== 200) bad++;
      }
      largest = Math.max(largest, memoryBytes(operator.server));
    }
  });
  for (let i = 0; i < count; i++) {
    if (!request.write(line(i))) await new Promise((resolve) => request.once("drain", resolve));
  }
  request.end();
  await within(reading, "the answers", 120_000);
  return { done, bad, largest };
}

test("50 000 lines go through bounded memory", async (t) => {
  const operator = await operate(t);
  const ids = Array.from({ length: 100 }, (_, i) => `m${i}`);
  await runs(operator, ...ids);
  const text = "x".repeat(200);
  const small = await stream(operator, 5_000, (i) => `${JSON.stringify(log(ids[i % 100], { i, text }))}\n`);
  assert.deepEqual([small.done, small.bad], [5_000, 0]);
  const before = memoryBytes(operator.server);
  const large = await stream(operator, 50_000, (i) => `${JSON.stringify(log(ids[i % 100], { i, text }))}\n`);
  assert.deepEqual([large.done, large.bad], [50_000, 0]);
  assert.equal((await operator.read("runs/m7/receipt")).event_count, 551);
  // Ten times the lines cost a few caches more; their text alone is 20 MB.
  const limit = SANITIZED ? 400e6 : 60e6;
  assert.ok(large.largest - before < limit, `${before} grew to ${large.largest}`);
});

test("a hundred megabytes of large items go through bounded memory", async (t) => {
  const operator = await operate(t);
  await runs(operator, "big");
  const line = `${JSON.stringify(log("big", { text: "x".repeat(250_000) }))}\n`;
  const { done, bad, largest } = await stream(operator, 400, () => line);
  assert.deepEqual([done, bad], [400, 0]);
  const limit = SANITIZED ? 800e6 : 150e6;
  assert.ok(largest < limit, `${largest}`);
});

test("a batch client that does not read its answers is closed, and others are served", async (t) => {
  const operator = await operate(t, { settings: { KHALA_REQUEST_TIMEOUT_MS: "700", KHALA_BATCH_SPOOL_BYTES_MAX: "8388608" } });
  await runs(operator, "a", "b");
  const socket = net.connect({ host: operator.server.host, port: operator.server.port });
  socket.on("error", () => {});
  const closed = new Promise((resolve) => socket.on("close", resolve));
  socket.pause();
  socket.write(`POST /internal/v1/events:batch HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${operator.key}\r\n` +
    "Content-Type: application/x-ndjson\r\nTransfer-Encoding: chunked\r\n\r\n");
  const line = `${JSON.stringify(log("a", { text: "x".repeat(100_000) }))}\n`;
  const chunk = `${line.length.toString(16)}\r\n${line}\r\n`;
  let sent = 0;
  const push = () => {
    while (sent < 2000 && !socket.destroyed && socket.write(chunk)) sent++;
  };
  socket.on("drain", push);
  push();
  while (!operator.server.over && !socket.destroyed) {
    await operator.did("runs/b/events", { event_type: "run.log" });
    if ((await operator.read("runs/b")).run.latest_seq > 50) break;
  }
  await within(closed, "the close of who does not read");
  assert.ok(sent < 2000, "all of it was taken");
  const held = (await operator.read("runs/a")).run.latest_seq;
  assert.ok(held > 1 && held < 2000, `${held}`);
  assert.ok(memoryBytes(operator.server) < 900e6);
});

test("batches with unread answers share one memory limit, and further batches are answered 503", async (t) => {
  const operator = await operate(t, { settings: { KHALA_BATCHES_BYTES_MAX: "4194304", KHALA_BATCH_SPOOL_BYTES_MAX: "0" } });
  await runs(operator, "a", "b");
  const line = `${JSON.stringify(log("a", { text: "x".repeat(50_000) }))}\n`;
  const deaf = Array.from({ length: 4 }, () => {
    const socket = net.connect({ host: operator.server.host, port: operator.server.port });
    socket.on("error", () => {});
    socket.pause();
    socket.write(`POST /internal/v1/events:batch HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${operator.key}\r\n` +
      `Content-Type: application/x-ndjson\r\nContent-Length: ${400 * line.length}\r\n\r\n`);
    for (let i = 0; i < 400; i++) socket.write(line);
    return socket;
  });
  const ask = () => operator.ask("POST", "events:batch", `${JSON.stringify(log("b"))}\n`, NDJSON);
  const answered = (status) => until(async () => {
    const response = await ask();
    return response.status === status && response;
  }, `an answer ${status}`);
  const full = await answered(503);
  assertError(full, 503, "limit_reached");
  assert.equal(full.headers["retry-after"], "1");
  const { run } = await operator.read("runs/a");
  assert.ok(run.latest_seq < 1600, "all of it was taken");
  // Single appends do not count as batches.
  await operator.did("runs/b/events", { event_type: "run.log" });
  for (const socket of deaf) socket.destroy();
  await answered(200);
});

test("a batch above the memory limit continues when its answers are read", async (t) => {
  const operator = await operate(t, { settings: { KHALA_BATCHES_BYTES_MAX: "65536" } });
  await runs(operator, "a");
  const answers = await operator.batch(Array.from({ length: 3000 }, (_, i) => log("a", { i, text: "x".repeat(100) })));
  assert.deepEqual(answers.map((one) => one.status), Array(3000).fill(200));
  assert.equal((await operator.read("runs/a")).run.latest_seq, 3001);
});

test("a client that disconnects inside a batch leaves only whole events", async (t) => {
  const operator = await operate(t);
  await runs(operator, "a");
  for (let round = 0; round < 10; round++) {
    const { request, answer } = operator.begin("POST", "events:batch", NDJSON);
    for (let i = 0; i < 200; i++) request.write(`${JSON.stringify(log("a", { round, i }))}\n`);
    request.write("{\"run_id\":\"a\",\"event_ty");
    const lines = new Lines(await within(answer, "the head of the answer"));
    assert.equal((await lines.next()).status, 200);
    request.destroy();
    const after = (await operator.read("runs/a")).run.latest_seq;
    assert.ok(after > 1 + round && after <= 1 + 200 * (round + 1), `${after}`);
  }
  const events = await operator.events("a");
  events.slice(1).forEach(({ payload, prev_chain_hash }, index) => {
    assert.equal(prev_chain_hash, events[index].chain_hash);
    assert.ok(payload.i < 200);
  });
});

test("a batch body that stalls or is malformed is cut off", async (t) => {
  const operator = await operate(t, { settings: { KHALA_REQUEST_TIMEOUT_MS: "1000" } });
  await runs(operator, "a");
  const head = `POST /internal/v1/events:batch HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${operator.key}\r\n` +
    "Content-Type: application/x-ndjson\r\nTransfer-Encoding: chunked\r\n\r\n";
  const line = `${JSON.stringify(log("a"))}\n`;
  const chunk = `${line.length.toString(16)}\r\n${line}\r\n`;
  const talk = (text) => within(new Promise((resolve) => {
    let got = "";
    const socket = net.connect({ host: operator.server.host, port: operator.server.port });
    socket.on("data", (data) => { got += data; });
    socket.on("error", () => {});
    socket.on("close", () => resolve(got));
    socket.on("end", () => socket.end());
    socket.write(text);
  }), "the close");
  // Before the first answer the server can still send an error.
  assert.match(await talk(head), /^HTTP\/1\.1 408 /);
  assert.match(await talk(`${head}zz\r\n`), /^HTTP\/1\.1 400 /);
  // After the first answer the response is truncated, without its last chunk.
  for (const text of [`${head}${chunk}`, `${head}${chunk}zz\r\n`]) {
    const got = await talk(text);
    if (!got.startsWith("HTTP/1.1 200 ")) continue; // broken before the commit was back
    assert.ok(!got.endsWith("0\r\n\r\n"), got);
  }
  await operator.did("runs/a/events", { event_type: "run.log" });
});

test("an HTTP/1.0 batch is answered without chunks and ends with the connection", async (t) => {
  const operator = await operate(t);
  await runs(operator, "a");
  const body = `${JSON.stringify(log("a"))}\n${JSON.stringify(log("none"))}\n`;
  const socket = net.connect({ host: operator.server.host, port: operator.server.port });
  socket.write(`POST /internal/v1/events:batch HTTP/1.0\r\nAuthorization: Bearer ${operator.key}\r\n` +
    `Content-Type: application/x-ndjson\r\nContent-Length: ${body.length}\r\n\r\n${body}`);
  let got = "";
  for await (const data of socket) got += data;
  const [head, text] = got.split("\r\n\r\n");
  assert.match(head, /^HTTP\/1\.1 200 /);
  assert.doesNotMatch(head, /transfer-encoding|content-length/i);
  assert.match(head, /connection: close/i);
  assert.deepEqual(text.trimEnd().split("\n").map((line) => JSON.parse(line).status), [200, 404]);
});

test("a connection serves further requests after a batch", async (t) => {
  const operator = await operate(t);
  await runs(operator, "a");
  const body = `${JSON.stringify(log("a"))}\n`;
  const batch = `POST /internal/v1/events:batch HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${operator.key}\r\n` +
    `Content-Type: application/x-ndjson\r\nContent-Length: ${body.length}\r\n\r\n${body}`;
  const get = `GET /internal/v1/runs/a HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${operator.key}\r\nConnection: close\r\n\r\n`;
  const socket = net.connect({ host: operator.server.host, port: operator.server.port });
  socket.write(batch + batch + get);
  let got = "";
  for await (const data of socket) got += data;
  assert.equal(got.match(/HTTP\/1\.1 200 OK/g).length, 3);
  assert.equal(got.match(/\r\n0\r\n\r\n/g).length, 2);
  assert.match(got, /"latest_seq":3/);
});

test("a batch that expects 100 Continue receives it", async (t) => {
  const operator = await operate(t);
  await runs(operator, "a");
  const { request, answer } = operator.begin("POST", "events:batch", { ...NDJSON, expect: "100-continue" });
  request.flushHeaders();
  await within(new Promise((resolve) => request.on("continue", resolve)), "100 Continue");
  request.end(JSON.stringify(log("a")));
  const response = await answer;
  assert.equal(response.statusCode, 200);
  response.resume();
});

test("a batch under way at SIGTERM is finished", async (t) => {
  const operator = await operate(t);
  await runs(operator, "a");
  const { request, answer } = operator.begin("POST", "events:batch", NDJSON);
  request.write(`${JSON.stringify(log("a", { i: 0 }))}\n`);
  const lines = new Lines(await within(answer, "the head of the answer"));
  assert.equal((await lines.next()).status, 200);
  operator.server.kill("SIGTERM");
  await operator.server.saw("log", /server\.draining/);
  request.end(`${JSON.stringify(log("a", { i: 1 }))}\n`);
  assert.equal((await lines.next()).event.seq, 3);
  await lines.ended;
  const { code } = await within(operator.server.ended, "the end of the server");
  assert.equal(code, 0);
});

test("a server that ends without a grace period releases its batches", async (t) => {
  const operator = await operate(t, { settings: { KHALA_SHUTDOWN_GRACE_MS: "0" } });
  await runs(operator, "a");
  const requests = Array.from({ length: 8 }, () => {
    const { request, answer } = operator.begin("POST", "events:batch", NDJSON);
    for (let i = 0; i < 500; i++) request.write(`${JSON.stringify(log("a", { i }))}\n`);
    request.on("error", () => {});
    return answer.then((response) => response.resume().on("error", () => {}), () => {});
  });
  await Promise.race(requests);
  await operator.server.stop();
});
