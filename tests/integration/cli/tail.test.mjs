// khala tail over stale cursors, restarts and signals.
import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import http from "node:http";
import { join } from "node:path";
import { test } from "node:test";
import { WebSocketServer } from "ws";
import { folder, run, startVerb } from "../../lib/khala.mjs";
import { operate } from "../../lib/operator.mjs";
import { events, range, TOPIC } from "../../lib/samples.mjs";
import { until } from "../../lib/wait.mjs";


/** Starts the verb beside the test. */
const tail = (t, operator, args) => startVerb(t, ["tail", ...args, "--url", operator.server.url, "--key", operator.key]);

const json = (one) => one.lines.map((line) => JSON.parse(line));
/** The lines without the record of the tokens that the verb mints for itself. */
const others = (one) => one.lines.filter((line) => !line.includes("operator.token_minted"));
const othersOf = (one) => others(one).map((line) => JSON.parse(line));
const seqs = (one) => one.lines.map((line) => Number(line.split("\t")[0]));

test("khala tail follows a topic from its start, a position or its head", async (t) => {
  const operator = await operate(t);
  await operator.did("runs", { run_id: "a" }, 201);
  await operator.batch(events(300));
  const whole = tail(t, operator, [TOPIC, "--from-start"]);
  const behind = tail(t, operator, [TOPIC, "--after", "290", "--json"]);
  await whole.until((one) => one.lines.length === 301, "the replay");
  await behind.until((one) => one.lines.length === 11, "the rest");
  const now = tail(t, operator, [TOPIC]);
  // Only a new event shows that the verb follows the head.
  await until(async () => {
    await operator.batch(events(1));
    return now.lines.length > 0;
  }, "the first line");
  const log = await operator.events("a");
  for (const one of [whole, now]) await one.until(() => seqs(one).at(-1) === log.length, "what is live");
  await behind.until(() => json(behind).at(-1).sequence === log.length, "what is live");
  assert.deepEqual(seqs(whole), range(1, log.length));
  assert.deepEqual(json(behind).map((one) => one.sequence), range(291, log.length));
  assert.deepEqual(seqs(now), range(seqs(now)[0], log.length));
  assert.ok(seqs(now)[0] > 301, "the past was replayed");
  assert.match(whole.lines[1], /^2\t\d{13}\trun\.log\t\{"i":0\}$/);
  for (const one of [whole, behind, now]) {
    assert.deepEqual(await one.end("SIGINT"), { code: 0, signal: null });
    assert.equal(one.log, "");
  }
});

test("khala tail --fold prints older deltas joined, and new ones as they come", async (t) => {
  const operator = await operate(t);
  const say = (text) => ({ topic: "chat:1", event_type: "token.delta", payload: { id: "m", delta: text } });
  await operator.batch([..."Hello "].map(say));
  const one = tail(t, operator, ["chat:1", "--after", "0", "--fold"]);
  await one.until(() => one.lines.length === 1, "the past");
  const as = tail(t, operator, ["chat:1", "--after", "2", "--fold", "--json"]);
  await as.until(() => as.lines.length === 1, "what follows");
  for (const text of ["you", "!"]) {
    const before = one.lines.length;
    await operator.batch([say(text)]);
    for (const each of [one, as]) await each.until(() => each.lines.length === before + 1, text);
  }
  assert.deepEqual(one.lines.map((line) => line.split("\t")).map(([seq, , kind, payload]) => [seq, kind, JSON.parse(payload).delta]),
    [["6", "token.delta", "Hello "], ["7", "token.delta", "you"], ["8", "token.delta", "!"]]);
  const [first, ...others] = json(as);
  assert.deepEqual([first.after, first.seq, first.folded, first.payload.delta], [2, 6, { from_seq: 3, count: 4 }, "llo "]);
  assert.deepEqual(others.map(({ seq, folded }) => [seq, folded]), [[7, undefined], [8, undefined]]);
  for (const args of [["--audit", "--fold"], ["chat:1", "--fold", "--from-start"]]) assert.equal(run(["tail", ...args]).code, 2);
});

test("khala tail says that it waits for a topic without events", async (t) => {
  const operator = await operate(t, { settings: { KHALA_HEARTBEAT_MS: "100" } });
  const head = tail(t, operator, ["later"]);
  const start = tail(t, operator, ["later", "--from-start", "--json"]);
  await head.saw("log", /^khala: waiting for topic later\n$/);
  await start.saw("log", /^\{"notice":"waiting for topic later"\}\n$/);
  await operator.did("topics/later/events", { event_type: "said" }, 200);
  for (const one of [head, start]) await one.until(() => one.lines.length === 1, "the event");
  const known = tail(t, operator, ["later"]);
  const replayed = tail(t, operator, ["later", "--from-start"]);
  await replayed.until(() => replayed.lines.length === 1, "the replay");
  await until(async () => {
    await operator.did("topics/later/events", { event_type: "said" }, 200);
    return known.lines.length > 0;
  }, "a new event");
  for (const one of [known, replayed]) assert.equal(one.log, "");
});

test("khala tail resumes after the last printed event over crashes and restarts", async (t) => {
  const data = folder(t);
  let operator = await operate(t, { data });
  const { port } = operator.server;
  await operator.did("runs", { run_id: "a" }, 201);
  await operator.batch(events(100));
  const topic = tail(t, operator, [TOPIC, "--from-start", "--json"]);
  const audit = tail(t, operator, ["--audit", "--from-start", "--json"]);
  for (let round = 1; round <= 3; round++) {
    for (const one of [topic, audit]) await one.until(() => others(one).length >= 51 + round * 50, "the replay");
    if (round === 2) {
      await operator.server.stop();
    } else {
      await operator.server.crash();
    }
    operator = await operate(t, { data, args: ["--bind", `127.0.0.1:${port}`] });
    await operator.batch(events(50));
  }
  for (const one of [topic, audit]) await one.until(() => others(one).length >= 251, "the end");
  const log = await operator.events("a");
  assert.deepEqual(json(topic).map((one) => one.event_id), log.map((one) => one.event_id));
  assert.deepEqual(othersOf(audit), log);
  assert.match(topic.log, /^\{"notice":".*; comes back"\}\n/);
  for (const one of [topic, audit]) assert.equal((await one.end("SIGTERM")).code, 0);
});

test("khala tail reports a stale position and continues with the newest events", async (t) => {
  const operator = await operate(t, { settings: { RUNTIME_KHALA_RUN_EVENTS_REPLAY_BUDGET_EVENTS: "20" } });
  await operator.did("runs", { run_id: "a" }, 201);
  await operator.batch(events(99));
  const one = tail(t, operator, [TOPIC, "--after", "5"]);
  await one.until(() => one.lines.length === 20, "the bootstrap");
  await operator.batch(events(1));
  await one.until(() => one.lines.length === 21, "what is live");
  assert.deepEqual(seqs(one), range(81, 101));
  assert.match(one.log, /^khala: the cursor 5 is stale \["replay_budget_exceeded"\]: events were missed/);
  const start = tail(t, operator, [TOPIC, "--from-start"]);
  await start.until(() => start.lines.length === 101, "everything that the log has");
  assert.deepEqual([seqs(start), start.log], [range(1, 101), ""]);
});

test("khala tail of a summary topic begins with its documents", async (t) => {
  const operator = await operate(t);
  for (const run_id of ["a", "b"]) await operator.did("runs", { run_id }, 201);
  const one = tail(t, operator, ["runtime.run_summaries", "--from-start"]);
  await one.until(() => one.lines.length === 2, "the documents");
  await operator.batch(events(1));
  await one.until(() => one.lines.length === 3, "what is live");
  assert.deepEqual(one.lines.map((line) => line.split("\t")[0]).slice(0, 2).sort(),
    ["runtime/run_summary:a", "runtime/run_summary:b"]);
  assert.match(one.lines[2], /^3\t\d{13}\trun_summary\t/);
});

test("khala tail --audit prints new events, or those after a cursor", async (t) => {
  const operator = await operate(t);
  await operator.did("runs", { run_id: "a" }, 201);
  await operator.batch(events(10));
  const { items } = await operator.read("/api/events");
  const one = tail(t, operator, ["--audit", "--after", items[4].cursor]);
  await one.until(() => others(one).length === 6, "the rest");
  assert.match(one.lines[0], /^\d{13}\trun\ta\t6\trun\.log\t\{"i":4\}$/);
  const now = tail(t, operator, ["--audit", "--json"]);
  await until(async () => {
    await operator.batch(events(1));
    return now.lines.length > 0;
  }, "the first line");
  const all = await operator.log();
  await now.until(() => json(now).at(-1).cursor === all.at(-1).cursor, "the last");
  assert.deepEqual(json(now), all.slice(-json(now).length));
  assert.ok(json(now).length < all.length - 10, "the past was replayed");
});

test("khala tail --audit follows a cursor of protocol version 1 if the server takes it", async (t) => {
  const data = folder(t);
  let operator = await operate(t, { data });
  await operator.did("runs", { run_id: "a" }, 201);
  await operator.batch(events(10));
  const { items } = await operator.read("/api/events");
  const time = ({ cursor }) => Buffer.from(cursor, "base64url").toString().split(":")[0];
  const legacy = Buffer.from(`${time(items[4])}:evt-4`).toString("base64");
  const remote = () => ["--url", operator.server.url, "--key", operator.key];
  const refused = run(["tail", "--audit", "--after", legacy, ...remote()]);
  assert.deepEqual([refused.code, refused.out], [1, ""], refused.problem);
  await operator.server.stop();
  operator = await operate(t, { data, settings: { KHALA_LEGACY_CURSORS: "true" } });
  const again = items.filter((item) => time(item) >= time(items[4]));
  const one = tail(t, operator, ["--audit", "--json", "--after", legacy]);
  await one.until(() => others(one).length === again.length, "the whole millisecond and the rest");
  assert.deepEqual(othersOf(one), again);
});

test("khala tail refuses wrong arguments and does not wait for a missing server", async (t) => {
  const operator = await operate(t);
  const remote = ["--url", operator.server.url, "--key", operator.key];
  for (const args of [[], ["a", "b"], ["a", "--after", "x"], ["a", "--after", "1", "--from-start"], ["--audit", "a"]]) {
    assert.equal(run(["tail", ...args, ...remote]).code, 2, args.join(" "));
  }
  const wrong = run(["tail", "a", "--url", operator.server.url, "--key", "wrong"]);
  assert.equal(wrong.code, 1);
  assert.match(wrong.problem, /^khala: invalid_token: /);
  assert.equal(run(["tail", "--audit", "--after", "x", ...remote]).code, 1);
  const absent = run(["tail", "a", "--url", "http://127.0.0.1:1", "--key", "x"]);
  assert.equal(absent.code, 3);
  assert.match(absent.problem, /cannot connect/);
});

test("khala tail ends when its reader closes the pipe", async (t) => {
  const operator = await operate(t);
  await operator.did("runs", { run_id: "a" }, 201);
  await operator.batch(events(10));
  const one = tail(t, operator, [TOPIC, "--from-start"]);
  await one.until(() => one.lines.length === 11, "the replay");
  one.child.stdout.destroy();
  await until(async () => {
    await operator.batch(events(1));
    return one.child.exitCode !== null || one.child.signalCode !== null;
  }, "the end of the verb");
});

/** A fake server: it answers numbered tokens and ends its first connection as an expired token does. */
async function impostor(t) {
  const seen = [];
  const sockets = new WebSocketServer({ noServer: true });
  const server = http.createServer((request, response) => {
    let body = "";
    request.on("data", (piece) => { body += piece; });
    request.on("end", () => {
      seen.push({ path: request.url, authorization: request.headers.authorization, body: JSON.parse(body) });
      response.end(JSON.stringify({ token: `token-${seen.length}` }));
    });
  });
  server.on("upgrade", (request, socket, head) => {
    const { pathname, searchParams } = new URL(request.url, "http://x");
    const connection = { path: pathname, authorization: request.headers.authorization, token: searchParams.get("token") };
    const seq = seen.filter((one) => one.path === pathname).length + 1;
    seen.push(connection);
    sockets.handleUpgrade(request, socket, head, (accepted) => accepted.on("message", (data) => {
      const [join_ref, ref, channel, event, payload] = JSON.parse(data);
      connection[event] = payload;
      const send = (name, body) => accepted.send(JSON.stringify([join_ref, ref, channel, name, body]));
      send("phx_reply", { status: "ok", response: { windows: [{ topic: "a", epoch: "e", resume_after: seq - 1 }] } });
      if (event !== "sync:subscribe") return;
      const frame = { topic: "a", seq, kind: "said", payload: {}, projected_at: 7, watermark: seq, hydration_required: false };
      send("sync:update_batch", { topic: "a", epoch: "e", after: seq - 1, through: seq, updates: [frame], replay_complete: true });
      if (seq > 1) return;
      send("sync:error", { code: "token_expired", message: "The token has expired." });
      accepted.close(4002);
    }));
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => { for (const socket of sockets.clients) socket.terminate(); server.closeAllConnections(); server.close(); });
  return { seen, url: `http://127.0.0.1:${server.address().port}` };
}

test("khala tail gets a token for each connection and sends the key only to the token endpoint", async (t) => {
  const { seen, url } = await impostor(t);
  const one = tail(t, { server: { url }, key: "the-operator-key" }, ["a", "--after", "0", "--json", "--client-build-id", "20260101T000000Z"]);
  await one.until(() => one.lines.length === 2, "both connections");
  assert.deepEqual(seen.map(({ path, authorization, token }) => [path, authorization ?? token]), [
    ["/api/sync/token", "Bearer the-operator-key"], ["/socket/websocket", "token-1"],
    ["/api/sync/token", "Bearer the-operator-key"], ["/socket/websocket", "token-3"]]);
  assert.deepEqual(seen[0].body, { scopes: ["runtime.read_all"] });
  assert.deepEqual(seen[1]["sync:subscribe"].resume_after, [{ topic: "a", watermark: 0 }]);
  assert.deepEqual(seen[3]["sync:subscribe"].resume_after, [{ topic: "a", watermark: 1, epoch: "e" }]);
  assert.equal(seen[3].phx_join.client_build_id, "20260101T000000Z");
  assert.deepEqual(json(one), [1, 2].map((seq) => ({ after: seq - 1, topic: "a", seq, kind: "said", payload: {}, projected_at: 7, sequence: seq, published_at: 7 })));
  assert.equal(one.log, "");
  assert.equal((await one.end("SIGINT")).code, 0);
});

test("khala tail with a cursor file resumes exactly, over crashes of the server and restarts of its own", async (t) => {
  const data = folder(t);
  const places = { topic: [TOPIC], audit: ["--audit"] };
  const printed = { topic: [], audit: [] };
  const last = {};
  const file = (name) => join(data, `${name}.cursor`);
  let operator = await operate(t, { data });
  const { port } = operator.server;
  await operator.did("runs", { run_id: "a" }, 201);
  for (let round = 1; round <= 3; round++) {
    await operator.batch(events(40));
    const verbs = Object.entries(places).map(([name, args]) => [name, tail(t, operator, [...args, "--from-start", "--json", "--cursor-file", file(name)])]);
    const came = (count) => Promise.all(verbs.map(([name, one]) => one.until(() => printed[name].length + others(one).length >= count, `${count} events`)));
    await came(60 * round - 19);
    await operator.server.crash();
    operator = await operate(t, { data, args: ["--bind", `127.0.0.1:${port}`] });
    await operator.batch(events(20));
    await came(60 * round + 1);
    for (const [name, one] of verbs) {
      assert.equal((await one.end("SIGTERM")).code, 0, one.log);
      printed[name].push(...othersOf(one));
      last[name] = json(one).at(-1)?.cursor ?? last[name];
    }
  }
  const log = await operator.events("a");
  assert.deepEqual(printed.topic.map((one) => [one.event_id, one.after]), log.map((one, i) => [one.event_id, i]));
  assert.deepEqual(printed.audit, log);
  assert.equal(JSON.parse(readFileSync(file("topic"), "utf8")).seq, log.length);
  assert.equal(readFileSync(file("audit"), "utf8").trim(), last.audit);
  const both = run(["tail", TOPIC, "--after", "1", "--cursor-file", file("topic"), "--url", operator.server.url, "--key", operator.key]);
  assert.equal(both.code, 2);
  writeFileSync(file("topic"), "rubbish\n");
  const rubbish = run(["tail", TOPIC, "--cursor-file", file("topic"), "--url", operator.server.url, "--key", operator.key]);
  assert.deepEqual([rubbish.code, rubbish.problem], [1, `khala: '${file("topic")}' holds no position of a topic\n`]);
});

test("khala tail and khala snapshot work with a separate operator address and a compatibility gate", async (t) => {
  const data = folder(t);
  const operator = await operate(t, { data, settings: { KHALA_OPERATOR_BIND_ADDR: "127.0.0.1:0", OA_COMPAT_KHALA_ENFORCED: "true",
    OA_COMPAT_KHALA_MIN_CLIENT_BUILD_ID: "20200101T000000Z" } });
  const [, url] = await operator.server.saw("out", /Operator routes and \/metrics are on (http:\S+)\n/);
  const append = run(["append", "--run", "a", "--create", "--type", "run.log", "--url", url, "--key", operator.key]);
  assert.equal(append.code, 0, append.problem);
  const one = tail(t, operator, [TOPIC, "--from-start", "--operator-url", url]);
  await one.until(() => one.lines.length === 2, "both events");
  const remote = ["--url", operator.server.url, "--key", operator.key];
  const snapshot = run(["snapshot", "runtime.run_summaries", ...remote], { settings: { KHALA_OPERATOR_URL: url } });
  assert.equal(snapshot.code, 0, snapshot.problem);
  assert.match(snapshot.out, /runtime\/run_summary:a/);
  assert.equal(run(["snapshot", "runtime.run_summaries", ...remote]).code, 1);
  const old = run(["tail", TOPIC, "--operator-url", url, "--client-build-id", "20190101T000000Z", ...remote]);
  assert.equal(old.code, 1);
  assert.match(old.problem, /^khala: upgrade_required: .*"min_client_build_id":"20200101T000000Z"/);
});
