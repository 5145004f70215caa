// The memory of batches is divided among their principals, the operator has a reserve, and a batch whose client makes too
// little progress while memory is short loses its memory.
import assert from "node:assert/strict";
import net from "node:net";
import { alone, test } from "../../lib/cases.mjs";
import { assertError } from "../../lib/khala.mjs";
import { operate, UNHURRIED } from "../../lib/operator.mjs";
import { scrape } from "../../lib/prometheus.mjs";
import { range } from "../../lib/samples.mjs";
import { repeat, until } from "../../lib/wait.mjs";

const NDJSON = { "content-type": "application/x-ndjson" };
const BYTES_MAX = 8 << 20;
const HELD_BYTES_MAX = 1.5 * BYTES_MAX; // batches under way may grow beyond the share by what they are sending
const ITEM_BYTES = 20_000;

const started = async (t, settings = {}) => {
  const operator = await operate(t, { settings: { ...UNHURRIED, KHALA_BATCHES_BYTES_MAX: String(BYTES_MAX), KHALA_BATCH_SPOOL_BYTES_MAX: "0",
    KHALA_REQUEST_TIMEOUT_MS: "60000", ...settings } });
  for (const user of ["a", "b", "c"]) await operator.did("runs", { run_id: user, owner_user_id: user }, 201);
  return operator;
};

const tokenOf = (operator, user) => operator.sign({ oa_user_id: user, oa_sync_scopes: ["runtime.append"] });

/** An event id that is the same for each attempt. */
const idOf = (user, i) => `${user.repeat(8)}-0000-7000-8000-${String(i).padStart(12, "0")}`;

const itemOf = (user, i, text = "") => ({ run_id: user, event_type: "run.log", event_id: idOf(user, i), payload: { i, text } });

const linesOf = (items) => items.map((item) => `${JSON.stringify(item)}\n`).join("");

/** Sends a whole batch as that user, and answers the response. */
const sends = (operator, user, items) =>
  operator.ask("POST", "/v1/events:batch", linesOf(items), { ...NDJSON, authorization: `Bearer ${tokenOf(operator, user)}` });

/** A batch of many items whose client reads only what read() says. */
class Batch {
  bytes = 0;
  isClosed = false;
  #text = "";

  constructor(operator, user, items) {
    this.socket = net.connect({ host: operator.server.host, port: operator.server.port });
    this.socket.pause();
    this.socket.on("error", () => {});
    this.socket.on("close", () => { this.isClosed = true; });
    operator.server.peers.push({ close: () => this.socket.destroy() });
    const body = linesOf(items);
    this.socket.write(["POST /v1/events:batch HTTP/1.1", "Host: khala", `Authorization: Bearer ${tokenOf(operator, user)}`,
      "Content-Type: application/x-ndjson", `Content-Length: ${body.length}`, "Connection: close", "", body].join("\r\n"));
  }

  read(bytes) {
    const piece = this.socket.read(Math.min(bytes, this.socket.readableLength)) ?? this.socket.read();
    if (!piece) return;
    this.bytes += piece.length;
    this.#text += piece.toString("latin1");
  }

  get answered() {
    return this.#text.split(',"status":200,').length - 1;
  }

  /** Reads the rest of the answer. */
  async rest() {
    const reading = setInterval(() => this.read(1 << 20), 2);
    await until(() => this.isClosed || this.socket.readableEnded, "the end of the answer").finally(() => clearInterval(reading));
    return this.answered;
  }
}

const held = async (operator) => (await scrape(operator)).get("khala_batches_bytes");
const unread = async (operator) => (await scrape(operator)).get("khala_http_answers_unread_total");
const large = (user, count, from = 0) => range(from, from + count - 1).map((i) => itemOf(user, i, "x".repeat(ITEM_BYTES)));

/** Opens batches of a user that does not read, until the server refuses another one. */
async function fills(operator, user, code = 503) {
  const batches = [];
  const refused = await until(async () => {
    batches.push(new Batch(operator, user, large(user, 1000, batches.length * 1000)));
    const response = await sends(operator, user, [itemOf(user, 900_000)]);
    return response.status === code && response;
  }, `a batch of ${user} is refused`);
  return { batches, refused };
}

test("a principal beyond its share is refused, and neither a newcomer nor the operator notices", async (t) => {
  const operator = await started(t);
  const { batches, refused } = await fills(operator, "a");
  assertError(refused, 503, "limit_reached");
  assert.equal(refused.headers["retry-after"], "1");
  assert.ok((await scrape(operator)).get("khala_batches_refused_total", { status: "limit_reached" }) >= 1);
  assert.ok(await held(operator) <= HELD_BYTES_MAX);
  for (const user of ["b", "c"]) {
    const answer = await sends(operator, user, large(user, 200));
    assert.equal(answer.status, 200, answer.body);
    assert.equal(answer.body.split('"status":200').length - 1, 200);
  }
  await fills(operator, "b");
  const items = range(1, 200).map((i) => ({ topic: "app", event_type: "x", payload: { i, text: "x".repeat(ITEM_BYTES) } }));
  assert.deepEqual((await operator.batch(items)).map(({ status }) => status), Array(200).fill(200));
  assert.equal((await sends(operator, "c", [itemOf("c", 900_000)])).status, 200);
  assert.ok(await held(operator) <= HELD_BYTES_MAX);
  for (const { socket } of batches) socket.destroy();
  await until(async () => (await sends(operator, "a", [itemOf("a", 900_000)])).status === 200, "room for the principal");
});

test("a principal whose share shrinks keeps its batches, and they go on when they are read", async (t) => {
  const operator = await started(t);
  const { batches } = await fills(operator, "a");
  const before = await held(operator);
  await fills(operator, "b");
  await fills(operator, "c");
  // The share is now half of what it was.
  assert.ok(before > BYTES_MAX / 3, `${before}`);
  const all = await held(operator);
  assert.ok(all > before / 2 && all <= HELD_BYTES_MAX, `${before} bytes, then ${all}`);
  assert.equal(batches[0].isClosed, false);
  assert.equal(await batches[0].rest(), 1000, "a batch that is read is answered whole");
});

test("a principal beyond its quota of batches gets 429 with the quota", async (t) => {
  const operator = await started(t, { KHALA_QUOTA_BATCH_BYTES: "1000000" });
  const { refused } = await fills(operator, "a", 429);
  const { details } = assertError(refused, 429, "quota_exceeded");
  assert.equal(refused.headers["retry-after"], "1");
  assert.deepEqual([details.quota, details.limit, details.used >= 1000000], ["batch_bytes", 1000000, true]);
  assert.ok((await scrape(operator)).get("khala_batches_refused_total", { status: "quota_exceeded" }) >= 1);
  assert.equal((await sends(operator, "b", large("b", 100))).status, 200);
  // The operator key has no quota.
  assert.equal((await operator.batch([{ topic: "app", event_type: "x" }]))[0].status, 200);
});

test("an owner's own quota of batches holds for batches that are open", async (t) => {
  const operator = await started(t);
  const { status, body } = await operator.ask("PUT", "quotas/user:a", JSON.stringify({ batch_bytes: 500_000 }));
  assert.equal(status, 200, body);
  const { batches, refused } = await fills(operator, "a", 429);
  const { details } = assertError(refused, 429, "quota_exceeded");
  assert.deepEqual([details.quota, details.limit, details.used >= 500_000], ["batch_bytes", 500_000, true]);
  assert.equal((await sends(operator, "b", large("b", 100))).status, 200);
  // More than what the open batches hold.
  await operator.ask("PUT", "quotas/user:a", JSON.stringify({ batch_bytes: null }));
  assert.equal((await sends(operator, "a", [itemOf("a", 900_001)])).status, 200);
  for (const { socket } of batches) socket.destroy();
});

alone("a batch that is read in trickles while memory is short ends, and a retry is deduplicated", async (t) => {
  const operator = await started(t, { KHALA_REQUEST_TIMEOUT_MS: "5000" });
  const items = range(0, 3).map((n) => large("a", 500, n * 500));
  const batches = items.map((some) => new Batch(operator, "a", some));
  // 50 KB in each request timeout is more than the absolute minimum, and little of what the batch holds.
  repeat(t, 100, () => { for (const batch of batches) batch.read(1000); });
  await until(async () => await unread(operator) >= 1, "an answer that is hardly read ends", 40_000);
  await until(() => batches.some(({ isClosed }) => isClosed), "its connection closes");
  for (const { socket } of batches) socket.destroy();
  await until(async () => await held(operator) === 0, "its memory returns");
  const stored = (await operator.events("a")).length - 1;
  assert.ok(stored > 0, `${stored}`);
  for (const some of items) {
    const answer = await sends(operator, "a", some);
    assert.equal(answer.status, 200);
    assert.equal(answer.body.split('"status":200').length - 1, 500);
  }
  assert.equal((await operator.events("a")).length, 2001, "each event is stored once");
});

alone("a slow client whose batch holds little is not hurt by others who fill the memory", async (t) => {
  const operator = await started(t, { KHALA_REQUEST_TIMEOUT_MS: "10000" });
  const phone = new Batch(operator, "c", large("c", 15));
  // 20 KB a second.
  repeat(t, 200, () => phone.read(4000));
  const open = ["a", "b"].flatMap((user) => range(0, 3).map((n) => new Batch(operator, user, large(user, 300, n * 300))));
  t.after(() => { for (const { socket } of open) socket.destroy(); });
  await until(async () => await unread(operator) >= 1, "greedy batches end as unread", 40_000);
  await until(() => phone.isClosed || phone.socket.readableEnded, "the end of the slow client");
  assert.equal(phone.answered, 15);
});

alone("a body that trickles while memory is short ends, and one that arrives steadily does not", async (t) => {
  const operator = await started(t, { KHALA_REQUEST_TIMEOUT_MS: "4000" });
  const part = JSON.stringify(itemOf("a", 0, "x".repeat(400_000))).slice(0, 300_000);
  const sockets = [];
  const opens = () => {
    const socket = net.connect({ host: operator.server.host, port: operator.server.port });
    socket.on("error", () => {}).resume();
    socket.write(["POST /v1/events:batch HTTP/1.1", "Host: khala", `Authorization: Bearer ${tokenOf(operator, "a")}`,
      "Content-Type: application/x-ndjson", "Content-Length: 100000000", "", part].join("\r\n"));
    sockets.push(socket);
  };
  t.after(() => { for (const socket of sockets) socket.destroy(); });
  // 24 KB in each request timeout prolongs the deadline of the connection.
  repeat(t, 100, () => {
    opens();
    for (const socket of sockets) if (!socket.destroyed) socket.write("x".repeat(600));
  });
  await until(async () => await held(operator) > BYTES_MAX / 4, "incomplete items count as memory");
  const steady = operator.begin("POST", "/v1/events:batch", { ...NDJSON, authorization: `Bearer ${tokenOf(operator, "b")}` });
  let sent = 0;
  const stop = repeat(t, 200, () => { steady.request.write(linesOf([itemOf("b", sent++)])); });
  await until(async () => await unread(operator) >= 1, "a body that trickles ends", 40_000);
  await until(() => sent >= 20, "more of the steady body");
  stop();
  steady.request.end();
  const response = await steady.answer;
  assert.equal(response.statusCode, 200);
  response.resume();
  await until(() => response.complete, "the steady answer");
  assert.equal((await operator.events("b")).length - 1, sent);
});
