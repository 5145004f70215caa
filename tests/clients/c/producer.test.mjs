// Appending with libkhala against the real server: order, refusals, a full queue, tokens and the outbox.
import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { folder } from "../../lib/khala.mjs";
import { operate } from "../../lib/operator.mjs";
import { range } from "../../lib/samples.mjs";
import { until } from "../../lib/wait.mjs";
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

test("a refusal is the answer of its own event", async (t) => {
  const program = open(t);
  program.append(said("room:large", 1));
  program.append(said("room:large", 2, { text: "x".repeat(70_000) }));
  program.append(said("room:large", 3));
  program.append(said("hall:1", 4));
  program.append({ topic: "room:large" });
  await answers(program, 5);
  assert.deepEqual(program.all("refused").map(({ refused, http_status }) => `${http_status} ${refused}`).sort(),
    ["400 invalid_request", "403 forbidden_topic", "413 khala_frame_payload_too_large"]);
  assert.deepEqual((await stored("room:large")).map(({ payload }) => payload.n), [1, 3]);
  program.child.stdin.write("this is no event\n");
  await program.lines.until(() => program.all("result").length === 1, "the refusal of a text that is not JSON");
  assert.equal(await program.close(), 0);
});

test("a full queue refuses at once, and tells when it has room", async (t) => {
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
  const program = open(t, { OUTBOX: join(folder(t), "outbox") }, { url: "http://127.0.0.1:1", name: "khala_client_failing" });
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
