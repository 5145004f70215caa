// The lifetime of connections: timeouts, closing and shutdown.
import assert from "node:assert/strict";
import { readdirSync } from "node:fs";
import { alone, test } from "../../lib/cases.mjs";
import { assertError, connect, folder, getRequest, run, serve } from "../../lib/khala.mjs";
import { operate } from "../../lib/operator.mjs";
import { streamPath } from "../../lib/paths.mjs";
import { Stream } from "../../lib/sse.mjs";
import { until, within } from "../../lib/wait.mjs";

test("a refusal reaches a peer that keeps sending", async (t) => {
  const server = await serve(t);
  for (let round = 0; round < 5; round++) {
    const peer = await connect(server);
    await peer.send(getRequest("/healthz/live", "Content-Length: 3000000") + "x".repeat(3000000));
    assertError(await peer.response(), 413, "payload_too_large");
    assert.equal(await peer.rest(), "");
    assert.equal(peer.error, null, "no reset overtakes the answer");
    peer.close();
  }
});

test("a peer that never stops sending is cut off", async (t) => {
  const server = await serve(t);
  const peer = await connect(server);
  await peer.send(getRequest("/healthz/live", "Connection: close"));
  assert.equal((await peer.response()).status, 200);
  const piece = Buffer.alloc(1 << 20, "x");
  let sent = 0;
  while (peer.error === null) {
    await peer.send(piece);
    sent += piece.length;
    assert.ok(sent < 256 << 20, "the server reads on for ever");
  }
  assert.match(peer.error, /^(ECONNRESET|EPIPE)$/);
});

test("a peer that sends ahead and ends its side while its append is stored gets every answer", async (t) => {
  const operator = await operate(t);
  const body = JSON.stringify({ event_type: "tick" });
  const append = ["POST /internal/v1/topics/ahead/events HTTP/1.1", "Host: khala", `Authorization: Bearer ${operator.key}`,
    `Content-Length: ${body.length}`, "", body].join("\r\n");
  let seq = 0;
  for (let round = 0; round < 10; round++) {
    const peer = await connect(operator.server);
    await peer.send(append);
    await peer.send(append + append);
    peer.finish();
    for (let i = 0; i < 3; i++) assert.equal(JSON.parse((await peer.response()).body).event.seq, ++seq);
    assert.equal(await peer.rest(), "");
    assert.equal(peer.error, null);
  }
});

const PATIENT = { KHALA_REQUEST_TIMEOUT_MS: "3600000", KHALA_IDLE_TIMEOUT_MS: "3600000", KHALA_SHUTDOWN_GRACE_MS: "600000" };

test("a server does not wait long for a peer that neither sends nor closes", async (t) => {
  const server = await serve(t, { settings: PATIENT });
  const peer = await connect(server);
  await peer.send(getRequest("/healthz/live", "Connection: close"));
  assert.equal((await peer.response()).status, 200);
  assert.equal(await peer.rest(), "");
  await server.stop();
});

// A TLS handshake must fit into it on a busy machine.
const HASTY = { KHALA_REQUEST_TIMEOUT_MS: "250" };

alone("a request that does not arrive in time is answered 408 and closed", async (t) => {
  const server = await serve(t, { settings: HASTY });
  for (const beginning of ["G", "GET /healthz/live HTTP/1.1\r\nHost: kha"]) {
    const peer = await connect(server);
    await peer.send(beginning);
    const response = await peer.response();
    assertError(response, 408, "request_timeout");
    assert.equal(response.headers.connection, "close");
    assert.equal(await peer.rest(), "");
  }
});

alone("a trickle of bytes does not extend the request timeout", async (t) => {
  // Short, so that the trickle does not reach the limit of a target.
  const server = await serve(t, { settings: { KHALA_REQUEST_TIMEOUT_MS: "100" } });
  const peer = await connect(server);
  await peer.send("GET /");
  while (peer.pending === 0 && !peer.ended) await peer.send("x");
  assertError(await peer.response(), 408, "request_timeout");
});

alone("the request after a pipelined one has the same timeout", async (t) => {
  const server = await serve(t, { settings: HASTY });
  const peer = await connect(server);
  await peer.send(getRequest("/healthz/live") + "GET /healthz/re");
  assert.equal((await peer.response()).status, 200);
  assertError(await peer.response(), 408, "request_timeout");
  assert.equal(await peer.rest(), "");
});

test("an idle connection is closed without an answer", async (t) => {
  const server = await serve(t, { settings: { KHALA_IDLE_TIMEOUT_MS: "50" } });
  const silent = await connect(server);
  assert.equal(await silent.rest(), "");
  const used = await connect(server);
  await used.send(getRequest("/healthz/live"));
  assert.equal((await used.response()).status, 200);
  assert.equal(await used.rest(), "");
});

test("a peer that does not read its answers is closed", async (t) => {
  const server = await serve(t, { settings: { KHALA_REQUEST_TIMEOUT_MS: "200" } });
  const peer = await connect(server);
  peer.socket.pause();
  const piece = getRequest("/healthz/live").repeat(1000);
  while (peer.error === null) await peer.send(piece);
  assert.match(peer.error, /^(ECONNRESET|EPIPE)$/);
});

test("peers that disconnect inside a request do no harm", async (t) => {
  const server = await serve(t, { args: ["--loops", "1"] });
  const beginnings = ["G", "GET /healthz/live HTTP/1.1\r\n", getRequest("/nowhere", "Content-Length: 9") + "abc",
    getRequest("/healthz/live").repeat(200), getRequest("/healthz/live") + "GET /he"];
  for (let round = 0; round < 20; round++) {
    const peer = await connect(server);
    await peer.send(beginnings[round % beginnings.length]);
    if (round % 2) peer.reset();
    else peer.close();
  }
  const peer = await connect(server);
  await peer.send(getRequest("/healthz/ready"));
  assert.equal((await peer.response()).status, 200);
});

test("SIGTERM ends an idle server at once", async (t) => {
  const server = await serve(t, { settings: PATIENT });
  const fresh = await connect(server);
  const used = await connect(server);
  await used.send(getRequest("/healthz/live"));
  await used.response();
  await server.stop();
  assert.equal(await fresh.rest(), "");
  assert.equal(await used.rest(), "");
  assert.match(server.log, /server\.ended/);
});

test("SIGINT ends a server like SIGTERM", async (t) => {
  const server = await serve(t);
  await server.stop("SIGINT");
});

/** Waits until the server does not listen any more. A connection just before that may be reset. */
function unheard(server) {
  return until(async () => {
    const late = await connect(server).catch((error) => error);
    late.close?.();
    return late.code === "ECONNREFUSED";
  }, "the end of listening");
}

/** A connection on which the server has read half of a request. */
async function halfway(server, path) {
  const peer = await connect(server);
  await peer.send(getRequest("/healthz/live") + getRequest(path).slice(0, -9));
  assert.equal((await peer.response()).status, 200);
  return { peer, other: getRequest(path).slice(-9) };
}

test("a request under way at SIGTERM is finished, and no other is accepted", async (t) => {
  const server = await serve(t, { settings: PATIENT });
  const live = await halfway(server, "/healthz/live");
  const ready = await halfway(server, "/healthz/ready");
  server.kill("SIGTERM");
  await server.saw("log", /server\.draining/);
  await ready.peer.send(ready.other);
  assertError(await ready.peer.response(), 503, "shutting_down");
  await live.peer.send(live.other + getRequest("/healthz/live"));
  const response = await live.peer.response();
  assert.equal(response.status, 200);
  assert.equal(response.headers.connection, "close");
  assert.equal(await live.peer.rest(), "");
  await unheard(server);
  live.peer.close();
  ready.peer.close();
  await within(server.ended, "the end of the server");
  assert.match(server.log, /server\.ended/);
});

test("a second signal ends the server at once", async (t) => {
  const server = await serve(t, { settings: PATIENT });
  const { peer } = await halfway(server, "/healthz/live");
  server.kill("SIGTERM");
  await server.saw("log", /server\.draining/);
  await server.stop();
  assert.equal(await peer.rest(), "");
  assert.match(server.log, /server\.ending/);
});

test("a request that is not finished within the grace period is cut off", async (t) => {
  const server = await serve(t, { settings: { ...PATIENT, KHALA_SHUTDOWN_GRACE_MS: "50" } });
  const { peer } = await halfway(server, "/healthz/live");
  await server.stop();
  assert.equal(await peer.rest(), "");
  assert.match(server.log, /server\.grace_over/);
});

test("a second server on the same address is refused once, and creates no folder", async (t) => {
  const server = await serve(t);
  for (const log of ["text", "json"]) {
    const cwd = folder(t);
    const second = run(["serve", "--bind", `127.0.0.1:${server.port}`, "--log", log], { cwd });
    assert.equal(second.code, 3);
    assert.equal(second.out, "");
    assert.match(second.problem, /cannot listen on .*: Address already in use; --bind or RUNTIME_BIND_ADDR names another/);
    assert.equal(second.problem.match(/cannot listen/g).length, 1, second.problem);
    assert.equal(/^khala: /m.test(second.problem), log === "text");
    assert.deepEqual(readdirSync(cwd), []);
  }
  const off = run(["serve", "--bind", `127.0.0.1:${server.port}`, "--log", "json", "--log-level", "off"], { cwd: folder(t) });
  assert.match(off.problem, /^khala: cannot listen on /m);
  const peer = await connect(server);
  await peer.send(getRequest("/healthz/live"));
  assert.equal((await peer.response()).status, 200);
});

test("a host that does not resolve is refused", (t) => {
  const { code, problem } = run(["serve", "--bind", "no-such-host.invalid:0"], { cwd: folder(t) });
  assert.equal(code, 3);
  assert.match(problem, /^khala: cannot listen on .*: the host does not resolve$/m);
});

// ThreadSanitizer assumes one descriptor table, so its reports would be wrong.
const OWN_TABLES = { ...PATIENT, KHALA_LOOPS_OWN_DESCRIPTORS: "true", TSAN_OPTIONS: "report_bugs=0" };

test("loops with their own descriptor tables serve, stop listening and end", async (t) => {
  const server = await serve(t, { settings: OWN_TABLES, args: ["--loops", "4"] });
  const peers = await Promise.all(Array.from({ length: 64 }, () => connect(server)));
  for (const peer of peers) await peer.send(getRequest("/healthz/ready"));
  for (const peer of peers) assert.equal((await peer.response()).status, 200);
  // A request under way keeps the server alive while it no longer listens.
  await peers[0].send("GET /healthz/live HTTP/1.1\r\n");
  server.kill("SIGTERM");
  await server.saw("log", /server\.draining/);
  await unheard(server);
  await peers[0].send("Host: x\r\n\r\n");
  assert.equal((await peers[0].response()).status, 200);
  for (const peer of peers) peer.close();
  await within(server.ended, "the end of the server");
});

const DESCRIPTORS = 256;
const STREAMS = 320;

test("loops with their own descriptor tables hold more connections than one table, deliver to all and free the port", async (t) => {
  const operator = await operate(t, {
    settings: { ...OWN_TABLES, KHALA_CONNECTIONS_PER_PRINCIPAL_MAX: "10000" },
    args: ["--loops", "4"],
    command: ["sh", "-c", `ulimit -n ${DESCRIPTORS}; exec "$@"`, "sh"],
  });
  const append = (n) => operator.did("topics/room/events", { event_type: "step", payload: { n } });
  await append(1);
  const path = streamPath("room", `after_seq=0&token=${operator.reader}`);
  const streams = [];
  // The kernel spreads them over the loops by a hash of their ports: about 80 for each loop, which has room for over 100.
  while (streams.length < STREAMS) {
    streams.push(...await Promise.all(Array.from({ length: 40 }, () => Stream.open(operator, path))));
  }
  assert.deepEqual([...new Set(streams.map((stream) => stream.status))], [200]);
  await append(2);
  for (const stream of streams) await stream.until((one) => one.messages.length === 2, "both events");
  operator.server.kill("SIGTERM");
  for (const stream of streams) await stream.until((one) => one.ended, "the end of a stream");
  await within(operator.server.ended, "the end of the server");
  await serve(t, { bind: `127.0.0.1:${operator.server.port}` });
});
