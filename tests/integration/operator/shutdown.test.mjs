// The end of a server: readiness fails first, then requests under way finish within a bound; and a
// second server is refused. tests/chaos/restart.test.mjs tests how clients reconnect.
import assert from "node:assert/strict";
import { test } from "../../lib/cases.mjs";
import { sqliteOnly } from "../../lib/database.mjs";
import { assertError, connect, folder, run, serve } from "../../lib/khala.mjs";
import { operate, operateRun } from "../../lib/operator.mjs";
import { socketPath } from "../../lib/paths.mjs";
import { events, TOPIC } from "../../lib/samples.mjs";
import { Socket } from "../../lib/socket.mjs";
import { repeat, within } from "../../lib/wait.mjs";

const PATIENT = { KHALA_SHUTDOWN_GRACE_MS: "600000" };

const withRun = (t, settings = {}, rest = {}) => operateRun(t, { settings: { ...PATIENT, ...settings }, ...rest });

function follow(operator) {
  return Socket.open(operator, socketPath(TOPIC, `after_seq=0&token=${operator.reader}`));
}

test("during the shutdown delay only readiness fails, and new clients are served", async (t) => {
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
  // A second signal ends the delay, and clients are still told when to reconnect.
  server.kill("SIGTERM");
  for (const one of [old, fresh]) {
    await one.until(() => one.closed, "the close");
    assert.equal(one.closed.code, 1012);
    assert.ok(one.messages.at(-1).reconnect_after_ms >= 400);
  }
  await server.stopped();
  assert.match(server.log, /server\.ending/);
});

test("the server ends after the shutdown delay", async (t) => {
  const operator = await withRun(t, { KHALA_SHUTDOWN_DELAY_MS: "50" });
  const socket = await follow(operator);
  operator.server.kill("SIGINT");
  await socket.until(() => socket.closed, "the close");
  assert.equal(socket.closed.code, 1012);
  await operator.server.stopped();
});

test("appends that arrived before the shutdown are answered", async (t) => {
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
  await server.stopped();
});

test("an incomplete request does not delay the end of the server", async (t) => {
  const operator = await withRun(t, { KHALA_REQUEST_TIMEOUT_MS: "3600000" });
  const { server } = operator;
  const [silent, slow] = [await connect(server), await connect(server)];
  for (const peer of [silent, slow]) {
    await peer.send("GET /healthz/live HTTP/1.1\r\nHost: x\r\n\r\nGET /healthz/live HTTP/1.1\r\nX: ");
    assert.equal((await peer.response()).status, 200);
  }
  server.kill("SIGTERM");
  await server.saw("log", /server\.draining/);
  const stop = repeat(t, 50, () => slow.socket.write("x"));
  for (const peer of [silent, slow]) assertError(await peer.response(), 408, "request_timeout");
  stop();
  for (const peer of [silent, slow]) peer.close();
  await server.stopped();
  assert.doesNotMatch(server.log, /grace_over/);
});

/** Reads an answer until it ends or breaks off; whole says which. */
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

test("an export under way is finished for a client that reads", async (t) => {
  const operator = await withRun(t);
  await operator.batch(events(2000, { payload: () => ({ text: "x".repeat(10_000) }) }));
  const response = await begin(operator, "/api/events/export");
  operator.server.kill("SIGTERM");
  await operator.server.saw("log", /server\.draining/);
  const { whole, text } = await drainAnswer(response);
  assert.ok(whole);
  const lines = text.trim().split("\n").map((line) => JSON.parse(line));
  assert.equal(lines.at(-1).manifest.count, 2001);
  await operator.server.stopped();
});

test("an unread export is cut off after the grace period and continues by cursor", async (t) => {
  const data = folder(t);
  const operator = await withRun(t, { KHALA_SHUTDOWN_GRACE_MS: "100" }, { data });
  await operator.batch(events(2000, { payload: () => ({ text: "x".repeat(10_000) }) }));
  const exported = await begin(operator, "/api/events/export");
  await operator.server.stop();
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

test("a second server on the same data is refused with the holder's pid", sqliteOnly, async (t) => {
  const operator = await withRun(t);
  const socket = await follow(operator);
  const second = run(["serve", "--bind", "127.0.0.1:0", "--data-dir", operator.data]);
  assert.deepEqual([second.code, second.out], [3, ""]);
  assert.match(second.problem, new RegExp(`is in use by another process \\(pid ${operator.server.child.pid}\\): end that first`));
  await operator.batch(events(1));
  await socket.until(() => socket.of("message").length === 2, "what is live");
  // The first server still writes while it ends.
  const { request, answer } = operator.begin("POST", "runs/a/events");
  await new Promise((resolve) => request.write(" ", resolve));
  await operator.get("runs/a");
  operator.server.kill("SIGTERM");
  await operator.server.saw("log", /server\.draining/);
  assert.equal(run(["serve", "--bind", "127.0.0.1:0", "--data-dir", operator.data]).code, 3);
  request.end(JSON.stringify({ event_type: "run.log" }));
  assert.equal((await answer).statusCode, 200);
  await operator.server.stopped();
  const next = await serve(t, { args: ["--data-dir", operator.data] });
  assert.match(next.log, /server\.ready/);
});

for (const signal of ["SIGHUP", "SIGTERM"]) {
  test(`repeated ${signal} during the shutdown does not change its outcome`, async (t) => {
    const operator = await withRun(t);
    await operator.batch(events(500));
    operator.server.kill("SIGTERM");
    repeat(t, 1, () => {
      for (let i = 0; i < 20; i++) operator.server.kill(signal);
    });
    assert.deepEqual(await operator.server.end(), { code: 0, signal: null }, operator.server.log);
    assert.match(operator.server.log, /server\.ended state=clean/);
  });
}
