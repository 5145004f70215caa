// events:batch for clients that write their whole body before they read, and for those that send too slowly.
import assert from "node:assert/strict";
import { readdirSync } from "node:fs";
import net from "node:net";
import { alone, test } from "../../lib/cases.mjs";
import { assertError, connect } from "../../lib/khala.mjs";
import { memoryBytes, SANITIZED } from "../../lib/machine.mjs";
import { operate } from "../../lib/operator.mjs";
import { within } from "../../lib/wait.mjs";

const head = (operator, length, query = "") => `POST /internal/v1/events:batch${query} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${operator.key}\r\n` +
  `Content-Type: application/x-ndjson\r\nContent-Length: ${length}\r\nConnection: close\r\n\r\n`;

/**
 * Writes a batch of that many equal lines and reads nothing before the kernel has taken the last byte. Answers the number of
 * answers with that status, and the bytes that were read.
 */
async function writeThenRead(operator, line, count, query) {
  const socket = net.connect({ host: operator.server.host, port: operator.server.port });
  socket.pause();
  const closed = new Promise((resolve, reject) => { socket.on("close", resolve); socket.on("error", reject); });
  const piece = Buffer.from(line.repeat(Math.ceil(1_000_000 / line.length)));
  const lines = piece.length / line.length;
  socket.write(head(operator, line.length * count, query));
  let largest = 0;
  for (let left = count; left > 0; left -= lines) {
    const part = left >= lines ? piece : piece.subarray(0, left * line.length);
    await within(Promise.race([closed, new Promise((resolve) => socket.write(part, resolve))]), "room for the body", 60_000);
    largest = Math.max(largest, memoryBytes(operator.server));
  }
  // The kernel has the last byte: only now the answers are read.
  const pieces = [];
  socket.on("data", (data) => pieces.push(data));
  socket.resume();
  await within(closed, "the answers", 120_000);
  const answer = Buffer.concat(pieces);
  assert.equal(answer.subarray(-7).toString(), "\r\n0\r\n\r\n", "the answer is whole");
  const ok = textOf(answer).split(',"status":200,').length - 1;
  return { ok, read: answer.length, largest: Math.max(largest, memoryBytes(operator.server)) };
}

/** The body of a chunked answer. */
function textOf(answer) {
  const pieces = [];
  for (let at = answer.indexOf("\r\n\r\n") + 4; ;) {
    const end = answer.indexOf("\r\n", at);
    const size = Number.parseInt(answer.subarray(at, end).toString(), 16);
    if (size === 0) return Buffer.concat(pieces).toString("latin1");
    pieces.push(answer.subarray(end + 2, end + 2 + size));
    at = end + 2 + size + 2;
  }
}

alone("a client that writes 30 MB before it reads a byte gets every answer", async (t) => {
  const operator = await operate(t, { settings: { KHALA_REQUEST_TIMEOUT_MS: "5000" } });
  const line = `${JSON.stringify({ topic: "app", event_type: "a", payload: { text: "x".repeat(60_000) } })}\n`;
  const { ok, read, largest } = await writeThenRead(operator, line, 500);
  assert.equal(ok, 500);
  assert.ok(read > 30e6);
  assert.equal((await operator.poll("app", "after_seq=499")).status, 200);
  assert.ok(largest < (SANITIZED ? 900e6 : 200e6), `${largest} bytes`);
});

alone("many small items before the first read cost bounded memory, and answers=errors answers only refusals", async (t) => {
  const operator = await operate(t, { settings: { KHALA_REQUEST_TIMEOUT_MS: "5000" } });
  const line = '{"topic":"app","event_type":"a","payload":{"n":1}}\n';
  const count = SANITIZED ? 20_000 : 40_000;
  const all = await writeThenRead(operator, line, count);
  assert.equal(all.ok, count);
  assert.ok(all.largest < (SANITIZED ? 900e6 : 200e6), `${all.largest} bytes`);
  const none = await writeThenRead(operator, line, 1000, "?answers=errors");
  assert.deepEqual([none.ok, none.read < 1000], [0, true], "an answer without items");
  const post = (query, body, type) => operator.ask("POST", `events:batch${query}`, body, { "content-type": type });
  const items = [{ topic: "app", event_type: "a" }, { topic: "app" }, { topic: "app", event_type: "a" }, { topic: "*", event_type: "a" }];
  const lines = await post("?answers=errors", items.map((item) => `${JSON.stringify(item)}\n`).join(""), "application/x-ndjson");
  assert.deepEqual(lines.body.trim().split("\n").map((one) => JSON.parse(one)).map(({ index, status }) => [index, status]), [[1, 400], [3, 400]]);
  const array = await post("?answers=errors", JSON.stringify(items), "application/json");
  assert.deepEqual(JSON.parse(array.body).map(({ index }) => index), [1, 3]);
  assert.equal((await post("?answers=errors", JSON.stringify(items.slice(0, 1)), "application/json")).body, "[]\n");
  assert.equal(JSON.parse((await post("?answers=all", JSON.stringify(items), "application/json")).body).length, 4);
  assertError(await post("?answers=some", "[]", "application/json"), 400, "invalid_request");
  // The file of the answers has no name and leaves nothing behind.
  assert.deepEqual(readdirSync(operator.data).filter((name) => /answers/.test(name)), []);
});

test("a batch whose small items are all refused ends, with its answers read or not", async (t) => {
  const operator = await operate(t, { settings: { KHALA_REQUEST_TIMEOUT_MS: "400" } });
  for (const reads of [true, false]) {
    const peer = await connect(operator.server);
    if (!reads) peer.socket.pause();
    await peer.send(head(operator, 1000));
    let sent = 0;
    // An item each 100 ms never lets 400 ms pass without one.
    const drip = setInterval(() => { if (sent < 1000) peer.socket.write("1\n"[sent++ % 2]); }, 50);
    t.after(() => clearInterval(drip));
    // A client that does not read notices the end by the reset that answers its next byte.
    await peer.until(() => peer.ended || peer.error, "the end of a batch of refused items");
    clearInterval(drip);
    assert.ok(sent < 1000, `${sent} bytes`);
  }
});

test("a batch whose items are all refused by the writer ends", async (t) => {
  const operator = await operate(t, { settings: { KHALA_REQUEST_TIMEOUT_MS: "400" } });
  const line = `${JSON.stringify({ run_id: "none", event_type: "a" })}\n`;
  const peer = await connect(operator.server);
  await peer.send(head(operator, 200 * line.length));
  let sent = 0;
  const drip = setInterval(() => { if (sent < 200) sent++, peer.socket.write(line); }, 50);
  t.after(() => clearInterval(drip));
  await peer.until(() => peer.ended || peer.error, "the end of a batch of refused items");
  assert.ok(sent < 200, `${sent} items`);
});

test("a body that drips byte by byte ends, on every route with a body", async (t) => {
  const operator = await operate(t, { settings: { KHALA_REQUEST_TIMEOUT_MS: "400" } });
  const line = JSON.stringify({ topic: "app", event_type: "a", payload: { text: "x".repeat(500) } });
  for (const path of ["/internal/v1/events:batch", "/api/events/import", "/internal/v1/topics/app/events", "/api/sync/token"]) {
    const peer = await connect(operator.server);
    await peer.send(head(operator, line.length).replace("/internal/v1/events:batch", path));
    let sent = 0;
    // A byte each 50 ms never lets 400 ms pass without one.
    const drip = setInterval(() => { if (sent < line.length) peer.socket.write(line[sent++]); }, 50);
    t.after(() => clearInterval(drip));
    await peer.until(() => peer.ended, `the end of a body that drips: ${path}`);
    clearInterval(drip);
    assert.ok(sent < line.length, `${path}: ${sent} bytes`);
  }
});
