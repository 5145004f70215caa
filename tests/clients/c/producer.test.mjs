// Appending with libkhala against the real server: order, refusals, a full queue, entities that wait, closing, tokens and
// the outbox. A server of the test holds answers back if the order of requests matters.
import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import http from "node:http";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { folder } from "../../lib/khala.mjs";
import { operate } from "../../lib/operator.mjs";
import { range } from "../../lib/samples.mjs";
import { Received, until } from "../../lib/wait.mjs";
import { Program } from "./program.mjs";

const ends = [];
let operator;
let token;
before(async () => {
  operator = await operate({ after: (act) => ends.unshift(act) }, { settings: { RUNTIME_KHALA_FALLBACK_PUBLISH_RATE_PER_SECOND: "200" } });
  token = operator.sign({ oa_sync_scopes: ["runtime.append"], oa_sync_topics: ["room:*"] });
});
after(async () => {
  for (const act of ends) await act();
});

const open = (t, environment = {}, { url = operator.server.url, ...options } = {}) => Program.start(t, url, { token, topics: [], environment, ...options });
const said = (topic, n, more = {}) => ({ topic, event_type: "said", payload: { n, ...more } });
const stored = async (topic) => (await operator.read(`topics/${topic}/events?limit=1000`)).events;
const answers = (program, count) => program.lines.until(() => program.all("appended").length + program.all("refused").length >= count, `${count} answers`);

for (const loop of ["own", "given"]) {
  test(`events get ids and keep their order, also at a limited rate, on ${loop} loop`, async (t) => {
    const program = open(t, {}, { loop });
    for (const n of range(1, 300)) program.append(said(`room:${loop}`, n));
    await answers(program, 300);
    assert.deepEqual(program.all("appended").map(({ appended }) => appended.payload.n), range(1, 300));
    assert.deepEqual((await stored(`room:${loop}`)).map(({ payload }) => payload.n), range(1, 300));
    assert.equal(await program.close(), 0);
  });
}

for (const loop of ["own", "given"]) {
  test(`an event that is appended 0 to 10 turns after an answer is sent, on ${loop} loop`, async (t) => {
    const OUTBOX = join(folder(t), "outbox");
    const program = open(t, { OUTBOX }, { loop });
    const topics = range(1, 3).map((n) => `room:chain-${loop}-${n}`);
    for (const topic of topics) program.command(`chain ${topic} 66`);
    await program.lines.until(() => program.all("chained").length === topics.length, "the ends of the chains");
    assert.deepEqual(program.all("chained").map(({ chained }) => chained), topics.map(() => 66));
    for (const topic of topics) assert.deepEqual((await stored(topic)).map(({ payload }) => payload.n), range(1, 66));
    assert.equal(await program.close(), 0);
    assert.equal(readFileSync(OUTBOX, "utf8"), "");
  });

  test(`closing sends what is queued and waits for the answers, on ${loop} loop`, async (t) => {
    const program = open(t, {}, { loop });
    for (const n of range(1, 50)) program.append(said(`room:closed-${loop}`, n));
    assert.equal(await program.close(), 0);
    assert.deepEqual([program.all("appended").length, program.all("refused")], [50, []]);
    assert.deepEqual((await stored(`room:closed-${loop}`)).map(({ payload }) => payload.n), range(1, 50));
  });

  test(`closing without an answer ends at its deadline, and says what happened to each event, on ${loop} loop`, async (t) => {
    const held = await HeldServer.start(t);
    const silent = open(t, { CLOSE_TIMEOUT_MS: "300" }, { loop, url: held.url });
    silent.append(said("room:a", 1));
    await held.requests.until(() => held.requests.all.length === 1, "the request");
    silent.append(said("room:a", 2));
    assert.equal(await silent.close(), 0);
    assert.deepEqual(silent.all("refused").map(({ refused, topic, message }) => [refused, topic, message]), [
      ["closed", "room:a", "The client was closed before the answer to the event came: it may be stored."],
      ["closed", "room:a", "The client was closed before it sent the event."],
    ]);
    const absent = open(t, { CLOSE_TIMEOUT_MS: "300" }, { loop, url: "http://127.0.0.1:1" });
    absent.append(said("room:a", 1));
    await absent.lines.until(() => absent.all("warning").length > 0, "the warning");
    assert.equal(await absent.close(), 0);
    const [{ warning, message, retry_ms }] = absent.all("warning");
    assert.deepEqual([warning, message.split(":")[0]], ["connect_failed", "cannot connect to 127.0.0.1 port 1"]);
    assert.ok(retry_ms > 0);
    assert.deepEqual(absent.all("refused").map(({ refused }) => refused), ["closed"]);
  });
}

test("an entity over its rate waits alone, and the application is warned", async (t) => {
  const slow = await operate(t, { settings: { RUNTIME_KHALA_FALLBACK_PUBLISH_RATE_PER_SECOND: "50" } });
  const own = slow.sign({ oa_sync_scopes: ["runtime.append"], oa_sync_topics: ["room:*"] });
  await Promise.all(["own", "given"].map(async (loop) => {
    const program = open(t, {}, { loop, url: slow.server.url, token: own });
    const [hot, calm] = [`room:hot-${loop}`, `room:calm-${loop}`];
    const answered = (topic) => program.all("appended").filter(({ appended }) => appended.entity_id === topic).map(({ appended }) => appended.payload.n);
    for (const n of range(1, 400)) program.append(said(hot, n));
    await program.lines.until(() => program.all("warning").length > 0, "the warning");
    for (const n of range(1, 20)) program.append(said(calm, n));
    await program.lines.until(() => answered(calm).length === 20, "the answers of the calm entity");
    // A batch has 200 events, so in one queue the calm ones would come with the last 200 of the hot ones.
    assert.ok(answered(hot).length < 200, `${answered(hot).length} of the hot entity came before`);
    await program.lines.until(() => answered(hot).length === 400, "the answers of the hot entity");
    assert.deepEqual([answered(hot), answered(calm)], [range(1, 400), range(1, 20)]);
    const [warning] = program.all("warning");
    assert.deepEqual([warning.warning, warning.topic, warning.http_status], ["khala_publish_rate_limited", hot, 429]);
    assert.match(warning.message, /\w+ \w+/);
    assert.match(warning.request_id, /./);
    assert.ok(warning.retry_ms > 0);
    assert.equal(await program.close(), 0);
  }));
});

test("an entity that waits leaves room in the queue for others", async (t) => {
  const program = open(t, { APPEND_ITEMS_MAX: "800" });
  for (const n of range(1, 790)) program.append(said("room:greedy", n));
  await program.lines.until(() => program.all("warning").length > 0, "the warning");
  for (const n of range(791, 1500)) program.append(said("room:greedy", n));
  for (const n of range(1, 50)) program.append(said("room:modest", n));
  const modest = () => program.all("appended").filter(({ appended }) => appended.entity_id === "room:modest");
  await program.lines.until(() => modest().length === 50, "the answers of the other entity");
  assert.ok(program.all("result").length > 0, "the greedy entity was refused");
  await program.close();
});

/** Takes batches and answers them when the test says so, or at once if it is willing. */
class HeldServer {
  isWilling = false;
  requests = new Received(); // {events, token, answer()}
  #server = http.createServer(async (request, response) => {
    const text = Buffer.concat(await request.toArray()).toString();
    const events = text.trim().split("\n").map((line) => JSON.parse(line));
    const lines = events.map((event, index) => JSON.stringify({ index, status: 200, event, deduplicated: false }));
    const one = {
      events, token: request.headers.authorization.slice("Bearer ".length),
      answer: () => one.reply(200, "application/x-ndjson", `${lines.join("\n")}\n`),
      refuse: (status, error) => one.reply(status, "application/json", JSON.stringify({ error, message: "refused", request_id: "request-1" })),
      reply: (status, type, body) => response.writeHead(status, { "content-type": type }).end(body),
    };
    this.requests.add(one);
    if (this.isWilling) one.answer();
  });

  static async start(t) {
    const held = new HeldServer();
    await new Promise((resolve) => held.#server.listen(0, "127.0.0.1", resolve));
    held.url = `http://127.0.0.1:${held.#server.address().port}`;
    t.after(() => {
      held.#server.closeAllConnections();
      held.#server.close();
    });
    return held;
  }

  /** The topics and numbers of the next requests that the test has not seen. */
  async next(count) {
    const from = this.seen ?? 0;
    this.seen = from + count;
    await this.requests.until(() => this.requests.all.length >= this.seen, `request ${this.seen}`);
    return this.requests.all.slice(from, this.seen);
  }
}

const sentOf = ({ events }) => events.map(({ topic, payload }) => `${topic} ${payload.n}`);

test("one batch of an entity is in flight, and those of others go on beside it", async (t) => {
  const held = await HeldServer.start(t);
  const program = open(t, {}, { url: held.url });
  program.append(said("room:a", 1));
  const [first] = await held.next(1);
  program.append(said("room:a", 2));
  program.append(said("room:b", 1));
  program.append({ ...said(undefined, 1), run_id: "c" });
  const [second] = await held.next(1);
  assert.deepEqual([sentOf(first), sentOf(second)], [["room:a 1"], ["room:b 1", "undefined 1"]]);
  program.append(said("room:b", 2));
  program.append(said("room:d", 1));
  const [third] = await held.next(1);
  assert.deepEqual(sentOf(third), ["room:d 1"]);
  second.answer();
  const [fourth] = await held.next(1);
  assert.deepEqual(sentOf(fourth), ["room:b 2"]);
  for (const request of [first, third, fourth]) request.answer();
  (await held.next(1))[0].answer();
  await answers(program, 6);
  assert.deepEqual(held.requests.all.map(sentOf).at(-1), ["room:a 2"]);
  assert.equal(await program.close(), 0);
});

test("a token that is refused in several requests at once is one refused token", async (t) => {
  const held = await HeldServer.start(t);
  const program = open(t, {}, { url: held.url, token: "token-" });
  const early = [];
  for (const n of range(1, 4)) {
    program.append(said(`room:${n}`, n));
    early.push(...await held.next(1));
  }
  held.isWilling = true;
  for (const request of early) request.refuse(401, "invalid_token");
  await answers(program, 4);
  assert.deepEqual(held.requests.all.map(({ token: one }) => one), [...Array(4).fill("token-1"), ...Array(held.requests.all.length - 4).fill("token-2")]);
  assert.deepEqual(program.all("refused"), []);
  assert.deepEqual(program.all("warning").map(({ warning, request_id }) => [warning, request_id]), [["invalid_token", "request-1"]]);
  assert.equal(await program.close(), 0);
});

test("the 413 of a proxy halves a batch and ends a single event, and other events go on", async (t) => {
  const held = await HeldServer.start(t);
  const program = open(t, {}, { url: held.url });
  /** Has one event of room:a in flight, and its others in the queue: the event of room:b, which is sent, came after them. */
  const fill = async (...numbers) => {
    program.append(said("room:a", numbers[0]));
    const [first] = await held.next(1);
    for (const n of numbers.slice(1)) program.append(said("room:a", n));
    program.append(said("room:b", numbers[0]));
    const [beside] = await held.next(1);
    assert.deepEqual([sentOf(first), sentOf(beside)], [[`room:a ${numbers[0]}`], [`room:b ${numbers[0]}`]]);
    beside.answer();
    return first;
  };
  const large = async (request) => {
    request.reply(413, "text/html", "<h1>413 Request Entity Too Large</h1>");
    return (await held.next(1))[0];
  };
  const batch = await large(await fill(1, 2, 3, 4));
  assert.deepEqual(sentOf(batch), ["room:a 2", "room:a 3", "room:a 4"]);
  const single = await large(batch);
  assert.deepEqual(sentOf(single), ["room:a 2"]);
  single.reply(413, "application/json", "{\"error\":\"large\"}");
  for (const n of [3, 4]) {
    const [request] = await held.next(1);
    assert.deepEqual(sentOf(request), [`room:a ${n}`]);
    request.answer();
  }
  await answers(program, 5);
  // The queue was empty, so a batch may be as large as at first.
  (await fill(5, 6, 7)).answer();
  const [last] = await held.next(1);
  assert.deepEqual(sentOf(last), ["room:a 6", "room:a 7"]);
  last.answer();
  await answers(program, 9);
  assert.deepEqual(program.all("refused").map(({ topic, http_status, final }) => [topic, http_status, final]),
    Array(2).fill(["room:a", 413, true]));
  assert.deepEqual(program.all("warning"), []);
  assert.equal(await program.close(), 0);
});

test("a server that answers one event twice, first with a refusal for now, is a warning about its entity", async (t) => {
  const held = await HeldServer.start(t);
  // Memory that is freed is overwritten, so a name that is read from it is no name.
  const GLIBC_TUNABLES = "glibc.malloc.tcache_count=0:glibc.malloc.perturb=165";
  const program = open(t, { GLIBC_TUNABLES }, { url: held.url });
  program.append(said("room:twice", 1));
  const [request] = await held.next(1);
  const lines = [
    { index: 0, status: 429, error: { error: "khala_publish_rate_limited", message: "refused" } },
    { index: 0, status: 200, event: request.events[0], deduplicated: false },
  ];
  request.reply(200, "application/x-ndjson", lines.map((line) => `${JSON.stringify(line)}\n`).join(""));
  await program.lines.until(() => program.all("warning").length === 1, "the warning");
  assert.deepEqual(program.all("warning").map(({ warning, topic }) => [warning, topic]),
    [["khala_publish_rate_limited", "room:twice"]]);
  assert.deepEqual(program.all("appended").map(({ appended }) => appended.payload.n), [1]);
  assert.equal(await program.close(), 0);
});

test("a refusal is the answer of its own event", async (t) => {
  const program = open(t);
  program.append(said("room:large", 1));
  program.append(said("room:large", 2, { text: "x".repeat(70_000) }));
  program.append(said("room:large", 3));
  program.append(said("hall:1", 4));
  program.append({ topic: "room:large" });
  program.append({ audit: true, event_type: "said" });
  await answers(program, 6);
  assert.deepEqual(program.all("refused").map(({ refused, http_status }) => `${http_status} ${refused}`).sort(),
    ["400 invalid_request", "403 forbidden_topic", "403 forbidden_topic", "413 khala_frame_payload_too_large"]);
  assert.deepEqual(program.all("refused").map(({ topic }) => topic).sort(), ["", "hall:1", "room:large", "room:large"]);
  assert.ok(program.all("refused").every(({ message, request_id }) => /\w+ \w+/.test(message) && request_id), "words and the request");
  assert.deepEqual((await stored("room:large")).map(({ payload }) => payload.n), [1, 3]);
  program.child.stdin.write("this is no event\n");
  await program.lines.until(() => program.all("result").length === 1, "the refusal of a text that is not JSON");
  assert.equal(await program.close(), 0);
});

test("a full queue refuses at once, and reports when it has room", async (t) => {
  const program = open(t, { APPEND_ITEMS_MAX: "3" });
  for (const n of range(1, 20)) program.append(said("room:full", n));
  await program.lines.until(() => program.all("room").length > 0 && program.all("appended").length + program.all("result").length === 20, "room");
  const accepted = program.all("appended").length;
  assert.ok(accepted >= 3 && accepted < 20, `${accepted} accepted`);
  assert.equal((await stored("room:full")).length, accepted);
  program.append(said("room:full", 21));
  await answers(program, accepted + 1);
  program.child.stdin.write("flush\n");
  await program.lines.until(() => program.all("flushed").length === 1, "the flush");
  assert.equal(await program.close(), 0);
});

test("tokens that are always refused end the producer", async (t) => {
  const program = open(t, {}, { token: "rubbish" });
  program.append(said("room:token", 1));
  await answers(program, 1);
  program.append(said("room:token", 2));
  await answers(program, 2);
  assert.deepEqual(program.all("refused").map(({ refused }) => refused), ["invalid_token", "invalid_token"]);
  assert.equal(await program.close(), 0);
});

test("a token is minted with the operator's key, and a wrong key is the answer's error", async (t) => {
  const program = open(t);
  program.child.stdin.write(`mint ${operator.key} {"scopes":["runtime.read_all"]}\n`);
  await program.lines.until(() => program.all("minted").length === 1, "a token");
  const [{ minted }] = program.all("minted");
  const other = open(t, {}, { token: minted, topics: ["room:own"] });
  await other.lines.until(() => other.all("reset").length === 1, "a reset with the token");
  program.child.stdin.write("mint rubbish {}\n");
  await program.lines.until(() => program.all("unminted").length === 1, "the refusal");
  assert.equal(program.all("unminted")[0].http_status, 401);
  assert.equal(await program.close(), 0);
  assert.equal(await other.close(), 0);
});

test("an outbox is synced to its disk, also without an answer", async (t) => {
  const program = open(t, { CLOSE_TIMEOUT_MS: "1", OUTBOX: join(folder(t), "outbox") }, { url: "http://127.0.0.1:1", name: "khala_client_failing" });
  for (const n of range(1, 10)) program.append(said("room:synced", n));
  assert.equal(await program.close(), 0);
  const [{ syncs }] = program.all("syncs");
  assert.ok(syncs >= 1 && syncs <= 10, `${syncs} syncs`);
});

test("events of an outbox survive kill -9 of the process, and are stored once", async (t) => {
  const OUTBOX = join(folder(t), "outbox");
  const lost = open(t, { OUTBOX }, { url: "http://127.0.0.1:1" });
  for (const n of range(1, 10)) lost.append(said("room:outbox", n));
  await until(() => existsSync(OUTBOX) && readFileSync(OUTBOX, "utf8").split("\n").length === 11, "ten lines in the outbox");
  lost.child.kill("SIGKILL");
  await lost.exit;
  const next = open(t, { OUTBOX });
  next.child.stdin.write("flush\n");
  await next.lines.until(() => next.all("flushed").length === 1, "the events of the outbox");
  assert.deepEqual((await stored("room:outbox")).map(({ payload }) => payload.n), range(1, 10));
  assert.equal(readFileSync(OUTBOX, "utf8"), "");
  assert.equal(await next.close(), 0);
});
