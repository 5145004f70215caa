// The verbs of the command line that append and read events, and the verb that makes a store.
import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import net from "node:net";
import { folder, run, startVerb } from "../../lib/khala.mjs";
import { onPostgres } from "../../lib/database.mjs";
import { operate } from "../../lib/operator.mjs";
import { events } from "../../lib/samples.mjs";
import { repeat } from "../../lib/wait.mjs";

test("the command line appends and reads", async (t) => {
  const operator = await operate(t);
  const settings = { KHALA_URL: operator.server.url, KHALA_DATA_DIR: operator.data };
  const khala = (args, options = {}) => run(args, { settings, ...options });
  const one = khala(["append", "--run", "cli", "--create", "--type", "run.log", "--payload", "{\"a\": 1}"]);
  assert.deepEqual([one.code, one.problem], [0, ""]);
  assert.match(one.out, /^run:cli 2 run\.log [0-9a-f-]{36} \S+\n$/);
  const json = khala(["append", "--run", "cli", "--type", "run.log", "--payload", "-", "--json", "--expect-seq", "2"],
    { input: "{\"from\":\"stdin\"}" });
  assert.deepEqual(JSON.parse(json.out).event.payload, { from: "stdin" });
  assert.equal(khala(["append", "--topic", "chat", "--type", "said", "--idempotency-key", "k"]).code, 0);
  assert.match(khala(["append", "--topic", "chat", "--type", "said", "--idempotency-key", "k"]).out, /\(was there\)/);
  assert.equal(khala(["append", "--notification", "--type", "note"]).code, 0);
  const plain = khala(["append", "--notification", "--payload", "{\"text\":\"hi\"}", "--json"]);
  assert.deepEqual([plain.code, JSON.parse(plain.out).event.event_type], [0, "notification"]);
  assert.equal(khala(["append", "--notification"]).code, 0);

  const other = khala(["append", "--run", "other", "--create", "--type", "run.failed"]);
  assert.deepEqual([other.code, other.out.split("\n").length], [0, 2], "only the event is on standard output");
  assert.match(other.problem, /^khala: .*run\.finished and payload\.status.*\n$/);
  const both = khala(["append", "--batch", "-"], { input: "{\"run_id\":\"other\",\"event_type\":\"run.failed\"}\n".repeat(2) });
  assert.equal(both.problem.match(/run\.finished/g)?.length, 1, both.problem);

  const no = khala(["append", "--run", "cli", "--type", "run.log", "--expect-seq", "9"]);
  assert.equal(no.code, 1);
  assert.equal(no.out, "");
  assert.match(no.problem, /^khala: sequence_conflict: .*"actual_seq":3/);
  const wrong = khala(["get", "run", "cli", "--key", "wrong-key"]);
  assert.equal(wrong.code, 1);
  assert.match(wrong.problem, /^khala: invalid_token: /);
  const absent = khala(["get", "run", "nobody"]);
  assert.deepEqual([absent.code, absent.out], [1, ""]);
  for (const args of [["append"], ["append", "--run", "a"], ["append", "--run", "a", "--topic", "b", "--type", "c"],
    ["append", "--run", "a", "--type", "b", "--payload", "{"], ["get"], ["get", "all"],
    ["get", "run"], ["get", "events"], ["get", "events", "--run", "a", "--limit", "x"], ["get", "run", "a", "--url", "ftp://x"]]) {
    assert.equal(khala(args).code, 2, args.join(" "));
  }
  assert.equal(run(["get", "run", "a", "--key", "k", "--url", "http://127.0.0.1:1"]).code, 3);
  assert.equal(run(["get", "run", "a"], { cwd: folder(t) }).code, 2);

  assert.match(khala(["get", "run", "cli"]).out, /^status\trunning$/m);
  assert.match(khala(["get", "events", "--run", "cli", "--after", "1", "--limit", "1"]).out, /^2\t\d+\trun\.log\t\{"a":1\}$/m);
  assert.equal(JSON.parse(khala(["get", "events", "--run", "cli", "--json"]).out).events.length, 3);
  const page = khala(["get", "events", "--run", "cli", "--limit", "2"]);
  assert.match(page.out, /^1\t.*\n2\t.*\n$/, "only events are on standard output");
  assert.match(page.problem, /^next_after_seq\t2\nhas_more\ttrue\n$/);
  const missing = khala(["get", "run", "absent", "--json"]);
  assert.deepEqual([missing.code, missing.out, JSON.parse(missing.problem).error], [1, "", "run_not_found"]);
  assert.equal(khala(["get", "replay", "cli"]).out.trim().split("\n").length, 3);
  assert.equal(JSON.parse(khala(["get", "receipt", "cli", "--json"]).out).event_count, 3);
  assert.equal(JSON.parse(khala(["get", "summary", "run", "cli", "--json"]).out).latest_seq, 3);
  assert.match(khala(["get", "checkpoint", "run_summary", "cli"]).out, /^last_runtime_seq\t3$/m);
  assert.equal(khala(["get", "drift", "--json"]).out, "{\"drift\":[],\"sinks\":[]}\n");
});

test("the command line finds the server by the server's settings", async (t) => {
  const operator = await operate(t);
  const settings = { RUNTIME_BIND_ADDR: `127.0.0.1:${operator.server.port}`, KHALA_DATA_DIR: operator.data };
  const there = run(["append", "--run", "here", "--create", "--type", "run.log"], { settings });
  assert.deepEqual([there.code, there.problem], [0, ""]);
  assert.equal(run(["get", "run", "here"], { settings: { ...settings, KHALA_URL: "http://127.0.0.1:1" } }).code, 3);
  assert.equal(run(["get", "run", "here"], { settings: { ...settings, RUNTIME_BIND_ADDR: "x".repeat(600) } }).code, 2);
});

test("the command line appends a batch from a file, and line by line from stdin", async (t) => {
  const operator = await operate(t);
  const settings = { KHALA_URL: operator.server.url, KHALA_DATA_DIR: operator.data };
  await operator.did("runs", { run_id: "b" }, 201);
  const lines = events(3000, { run_id: "b" }).map((event) => JSON.stringify(event));
  const file = join(folder(t), "batch.ndjson");
  writeFileSync(file, lines.join("\n"));
  const done = run(["append", "--batch", file], { settings });
  assert.deepEqual([done.code, done.out, done.problem], [0, "3000 appended, 0 were there, 0 refused\n", ""]);
  const mixed = run(["append", "--batch", "-"], { settings, input: `${lines[0]}\nnot json\n{"run_id":"none","event_type":"x"}\n` });
  assert.equal(mixed.code, 1);
  assert.equal(mixed.out, "1 appended, 0 were there, 2 refused\n");
  assert.match(mixed.problem, /^item 1: 400 .*invalid_json/m);
  assert.match(mixed.problem, /^item 2: 404 .*run_not_found/m);

  // Each line is answered before the next one is sent.
  const verb = startVerb(t, ["append", "--batch", "-", "--json"], { settings, input: "pipe" });
  for (let i = 1; i <= 3; i++) {
    verb.child.stdin.write(`${lines[i]}\n`);
    await verb.until(() => verb.lines.length >= i, `the answer to line ${i}`);
  }
  verb.child.stdin.end();
  assert.equal((await verb.end()).code, 0, verb.log);
  assert.equal(verb.log, "", "no progress with --json");
});

test("the command line shows the progress of a batch on standard error", async (t) => {
  const operator = await operate(t);
  const settings = { KHALA_URL: operator.server.url, KHALA_DATA_DIR: operator.data };
  const verb = startVerb(t, ["append", "--batch", "-", "--progress"], { settings, input: "pipe" });
  let sent = 0;
  const stop = repeat(t, 20, () => verb.child.stdin.write(`${JSON.stringify({ topic: "slow", event_type: "said", payload: { sent: ++sent } })}\n`));
  const [, acknowledged] = await verb.saw("log", /^append: (\d+) events acknowledged\n/);
  stop();
  assert.ok(Number(acknowledged) > 0 && Number(acknowledged) <= sent, `${acknowledged} of ${sent}`);
  verb.child.stdin.end();
  assert.equal((await verb.end()).code, 0, verb.log);
  assert.equal(verb.out, `${sent} appended, 0 were there, 0 refused\n`);
  assert.equal(run(["append", "--topic", "slow", "--type", "said", "--progress"], { settings }).code, 2);
});

test("the command line appends a batch once, also if the server is killed meanwhile", async (t) => {
  const data = folder(t);
  let operator = await operate(t, { data });
  const settings = { KHALA_URL: operator.server.url, KHALA_DATA_DIR: data };
  const verb = startVerb(t, ["append", "--batch", "-", "--json"], { settings, input: "pipe" });
  let sent = 0;
  const stop = repeat(t, 1, () => {
    for (let i = 0; i < 20; i++) verb.child.stdin.write(`${JSON.stringify({ topic: "killed", event_type: "said", payload: { n: ++sent } })}\n`);
  });
  for (let round = 1; round <= 3; round++) {
    await verb.until(() => verb.lines.length >= round * 100, "answers");
    await operator.server.crash();
    operator = await operate(t, { data, args: ["--bind", `127.0.0.1:${operator.server.port}`] });
  }
  await verb.until(() => verb.lines.length >= 500, "answers after the last restart");
  stop();
  verb.child.stdin.end();
  assert.equal((await verb.end()).code, 0, verb.log);
  const answers = verb.lines.map((line) => JSON.parse(line));
  const stored = (await operator.log()).filter((event) => event.entity_id === "killed");
  assert.deepEqual(stored.map(({ payload }) => payload.n), Array.from({ length: sent }, (_, i) => i + 1));
  assert.deepEqual(answers.map(({ index, status }) => [index, status]), stored.map((_, i) => [i, 200]));
  assert.deepEqual(answers.map(({ event }) => event.event_id), stored.map(({ event_id }) => event_id));
});

/** Forwards to a server. The first answer is lost, together with its connection. */
async function forgetfulProxy(t, port) {
  let requests = 0;
  const proxy = net.createServer((client) => {
    const server = net.connect(port, "127.0.0.1");
    const isFirst = ++requests === 1;
    client.on("error", () => {}).pipe(server);
    server.on("error", () => {});
    server.once("data", () => isFirst && client.destroy());
    if (!isFirst) server.pipe(client);
  });
  await new Promise((resolve) => proxy.listen(0, "127.0.0.1", resolve));
  t.after(() => proxy.close());
  return { url: `http://127.0.0.1:${proxy.address().port}`, requests: () => requests };
}

test("the command line appends one event once, also if the answer is lost", async (t) => {
  const operator = await operate(t);
  const proxy = await forgetfulProxy(t, operator.server.port);
  const verb = startVerb(t, ["append", "--topic", "lost", "--type", "said", "--json"], { settings: { KHALA_URL: proxy.url, KHALA_DATA_DIR: operator.data } });
  assert.deepEqual([(await verb.end()).code, proxy.requests()], [0, 2]);
  const { event, deduplicated } = JSON.parse(verb.out);
  assert.deepEqual([event.seq, deduplicated], [1, true]);
  assert.match(verb.log, /^\{"notice":"the server closed the connection; tries again"\}\n$/);
  assert.equal((await operator.read("topics/lost/events")).events.length, 1);
});

test("migrate makes a store that serve opens, and may run twice", async (t) => {
  const data = join(folder(t), "new");
  for (let i = 0; i < 2; i++) {
    const { code, out } = run(["migrate", "--data-dir", data]);
    assert.equal(code, 0);
    assert.match(out, /schema version \d+\n/);
  }
  const operator = await operate(t, { data });
  // In PostgreSQL the server keeps its lock: no step is missing.
  const beside = run(["migrate", "--data-dir", data]);
  assert.equal(beside.code, onPostgres ? 0 : 3, beside.problem);
  await operator.did("runs", { run_id: "a" }, 201);
  assert.equal(readFileSync(join(data, "operator.key"), "utf8").trim(), operator.key);
});
