// How a server ends: readiness first, then what is under way, within a bound; and who may not begin
// beside it. How clients come back is tests/chaos/restart.test.mjs.
import assert from "node:assert/strict";
import { test } from "node:test";
import { assertError, connect, folder, run, serve, within } from "../lib/khala.mjs";
import { operate } from "../lib/operator.mjs";
import { Socket } from "../lib/socket.mjs";

const PATIENT = { KHALA_SHUTDOWN_GRACE_MS: "600000" };

function events(count, payload = {}) {
  return Array.from({ length: count }, () => ({ run_id: "a", event_type: "run.log", payload }));
}

async function withRun(t, settings = {}, rest = {}) {
  const operator = await operate(t, { settings: { ...PATIENT, ...settings }, ...rest });
  await operator.did("runs", { run_id: "a" }, 201);
  return operator;
}

function follow(operator) {
  return Socket.open(operator, `/internal/v1/khala/topics/run:a:events/ws?after_seq=0&token=${operator.reader}`);
}

async function ended(server) {
  const { code } = await within(server.ended, "the end of the server");
  assert.equal(code, 0, server.log);
  server.crashed = true; // it has stopped; nothing is left to stop
}

test("readiness goes first: for the delay all else is served, also who comes new", async (t) => {
  const operator = await withRun(t, { KHALA_SHUTDOWN_DELAY_MS: "600000" });
  const { server } = operator;
  const old = await follow(operator);
  assert.equal((await operator.get("/healthz/ready")).status, 200);
  server.kill("SIGTERM");
  await server.saw("log", /server\.stopping/);
  const answer = await operator.get("/healthz/ready");
  assertError({ ...answer, headers: answer.headers }, 503, "shutting_down");
  assert.equal((await operator.get("/healthz/live")).status, 200);
  assert.equal(answer.headers.connection, "keep-alive");
  const fresh = await follow(operator);
  await operator.batch(events(3));
  for (const one of [old, fresh]) await one.until(() => one.of("message").length === 4, "what is live");
  assert.equal(old.closed, null);
  assert.doesNotMatch(server.log, /server\.draining/);
  // A second signal does not wait for the rest of it, and clients hear when to come back all the same.
  server.kill("SIGTERM");
  for (const one of [old, fresh]) {
    await one.until(() => one.closed, "the close");
    assert.equal(one.closed.code, 1012);
    assert.ok(one.messages.at(-1).reconnect_after_ms >= 400);
  }
  await ended(server);
  assert.match(server.log, /server\.ending/);
});

test("when the delay is over the server ends by itself", async (t) => {
  const operator = await withRun(t, { KHALA_SHUTDOWN_DELAY_MS: "50" });
  const socket = await follow(operator);
  operator.server.kill("SIGINT");
  await socket.until(() => socket.closed, "the close");
  assert.equal(socket.closed.code, 1012);
  await ended(operator.server);
});

test("appends that have come as far as the machine are answered, read or not", async (t) => {
  const operator = await withRun(t);
  const { server } = operator;
  const body = JSON.stringify({ event_type: "run.log" });
  const post = `POST /internal/v1/runs/a/events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${operator.key}\r\n`
    + `Content-Length: ${body.length}\r\n\r\n${body}`;
  const peers = [];
  for (let i = 0; i < 100; i++) {
    const peer = await connect(server);
    await peer.send(post);
    assert.equal((await peer.response()).status, 200);
    peers.push(peer);
  }
  const idle = await connect(server);
  server.kill("SIGSTOP");
  for (const peer of peers) await peer.send(post);
  server.kill("SIGTERM");
  server.kill("SIGCONT");
  for (const peer of peers) {
    const response = await peer.response();
    assert.equal(response.status, 200, response.body);
    assert.equal(await peer.rest(), "");
    peer.close();
  }
  assert.equal(await idle.rest(), "");
  await ended(server);
});

test("who has not said what it wants does not keep a server from ending, however it dawdles", async (t) => {
  const operator = await withRun(t, { KHALA_REQUEST_TIMEOUT_MS: "3600000" });
  const { server } = operator;
  const [silent, slow] = [await connect(server), await connect(server)];
  for (const peer of [silent, slow]) {
    await peer.send("GET /healthz/live HTTP/1.1\r\nHost: x\r\n\r\nGET /healthz/live HTTP/1.1\r\nX: ");
    assert.equal((await peer.response()).status, 200);
  }
  server.kill("SIGTERM");
  await server.saw("log", /server\.draining/);
  const timer = setInterval(() => slow.socket.write("x"), 50);
  t.after(() => clearInterval(timer));
  for (const peer of [silent, slow]) assertError(await peer.response(), 408, "request_timeout");
  clearInterval(timer);
  for (const peer of [silent, slow]) peer.close();
  await ended(server);
  assert.doesNotMatch(server.log, /grace_over/);
});

/** Everything of an answer until it ends or breaks; whole says which. */
async function drainAnswer(response) {
  const pieces = [];
  let whole = true;
  try {
    for await (const piece of response) pieces.push(piece);
  } catch {
    whole = false;
  }
  return { whole: whole && response.complete, text: Buffer.concat(pieces).toString() };
}

async function begin(operator, path) {
  const { request, answer } = operator.begin("GET", path);
  request.end();
  return within(answer, "the head of the answer");
}

test("an export under way is finished for who reads it", async (t) => {
  const operator = await withRun(t);
  await operator.batch(events(30_000, { text: "x".repeat(300) }));
  const response = await begin(operator, "/api/events/export");
  operator.server.kill("SIGTERM");
  await operator.server.saw("log", /server\.draining/);
  const { whole, text } = await drainAnswer(response);
  assert.ok(whole);
  const lines = text.trim().split("\n").map((line) => JSON.parse(line));
  assert.equal(lines.at(-1).manifest.count, 30_001);
  await ended(operator.server);
});

test("who does not read its export is cut off with the grace, sees it, and goes on by cursor", async (t) => {
  const data = folder(t);
  const operator = await withRun(t, { KHALA_SHUTDOWN_GRACE_MS: "100" }, { data });
  await operator.batch(events(30_000, { text: "x".repeat(300) }));
  const exported = await begin(operator, "/api/events/export");
  await operator.server.stop();
  operator.server.crashed = true;
  assert.match(operator.server.log, /server\.grace_over/);
  const half = await drainAnswer(exported);
  assert.equal(half.whole, false);
  const seen = half.text.slice(0, half.text.lastIndexOf("\n")).split("\n").map((line) => JSON.parse(line));
  assert.equal(seen.at(-1).manifest, undefined);
  const again = await operate(t, { data });
  const { text } = await drainAnswer(await begin(again, `/api/events/export?after_cursor=${seen.at(-1).cursor}`));
  const rest = text.trim().split("\n").map((line) => JSON.parse(line));
  assert.equal(rest.at(-1).manifest.count, rest.length - 1);
  const log = (await again.read("/api/events?limit=1")).items;
  assert.equal(seen[0].cursor, log[0].cursor);
  assert.equal(new Set([...seen, ...rest.slice(0, -1)].map((one) => one.cursor)).size, seen.length + rest.length - 1);
});

test("a second server on the same data is refused, with the holder's pid, and disturbs nothing", async (t) => {
  const operator = await withRun(t);
  const socket = await follow(operator);
  const second = run(["serve", "--bind", "127.0.0.1:0", "--data-dir", operator.data]);
  assert.deepEqual([second.code, second.out], [3, ""]);
  assert.match(second.problem, new RegExp(`is in use by another process \\(pid ${operator.server.child.pid}\\): end that first`));
  await operator.batch(events(1));
  await socket.until(() => socket.of("message").length === 2, "what is live");
  // Also while the first one is about to end: it still writes.
  const { request, answer } = operator.begin("POST", "runs/a/events");
  await new Promise((resolve) => request.write(" ", resolve));
  await operator.get("runs/a");
  operator.server.kill("SIGTERM");
  await operator.server.saw("log", /server\.draining/);
  assert.equal(run(["serve", "--bind", "127.0.0.1:0", "--data-dir", operator.data]).code, 3);
  request.end(JSON.stringify({ event_type: "run.log" }));
  assert.equal((await answer).statusCode, 200);
  await ended(operator.server);
  const next = await serve(t, { args: ["--data-dir", operator.data] });
  assert.match(next.log, /server\.ready/);
});

for (const signal of ["SIGHUP", "SIGTERM"]) {
  test(`${signal} again and again until the end changes nothing about it`, async (t) => {
    const operator = await withRun(t);
    await operator.batch(events(500));
    let over = false;
    operator.server.ended.then(() => { over = true; });
    operator.server.kill("SIGTERM");
    while (!over) {
      for (let i = 0; i < 20; i++) operator.server.kill(signal);
      await new Promise((resolve) => setImmediate(resolve));
    }
    assert.deepEqual(await operator.server.ended, { code: 0, signal: null }, operator.server.log);
    assert.match(operator.server.log, /server\.ended state=clean/);
  });
}
