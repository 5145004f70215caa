// HTTP/1.1 of correct clients: routes, answers and reuse of a connection.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import net from "node:net";
import { test } from "node:test";
import { promisify } from "node:util";
import { assertError, connect, getRequest, serve } from "../../lib/khala.mjs";
import { operate } from "../../lib/operator.mjs";

const LIVE = '{"status":"live"}\n';
const READY = '{"status":"ready"}\n';
const UUID7 = /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/;

function available(host) {
  return new Promise((resolve) => {
    const probe = net.createServer().on("error", () => resolve(false));
    probe.listen(0, host, () => probe.close(() => resolve(true)));
  });
}

async function curl(...args) {
  const { stdout } = await promisify(execFile)("curl", ["-sS", "--max-time", "20", ...args]);
  return stdout;
}

test("curl finds the server live and ready", async (t) => {
  const server = await serve(t);
  assert.equal(await curl("-f", `${server.url}/healthz/live`), LIVE);
  assert.equal(await curl("-f", `${server.url}/healthz/ready`), READY);
  assert.equal(await curl("-f", `${server.url}/healthz/ready?deep=1`), READY);
  const head = await curl("-fI", `${server.url}/healthz/live`);
  assert.match(head, /^HTTP\/1\.1 200 OK\r\n/);
  assert.match(head, new RegExp(`^Content-Length: ${LIVE.length}\\r$`, "m"));
  const both = await curl("-f", `${server.url}/healthz/live`, `${server.url}/healthz/ready`,
    "-w", "%{num_connects}\n");
  assert.equal(both, `${LIVE}1\n${READY}0\n`, "the second request reuses the connection");
});

test("an answer has a content type and a connection header", async (t) => {
  const peer = await connect(await serve(t));
  await peer.send(getRequest("/healthz/live"));
  const { status, headers, body } = await peer.response();
  assert.equal(status, 200);
  assert.equal(body, LIVE);
  assert.equal(headers["content-type"], "application/json");
  assert.equal(headers.connection, "keep-alive");
});

test("HEAD answers as GET would, without the body", async (t) => {
  const peer = await connect(await serve(t));
  await peer.send(getRequest("/healthz/live").replace("GET", "HEAD") + getRequest("/nowhere").replace("GET", "HEAD"));
  const known = await peer.response({ bodiless: true });
  assert.equal(known.status, 200);
  assert.equal(known.headers["content-length"], String(LIVE.length));
  const unknown = await peer.response({ bodiless: true });
  assert.equal(unknown.status, 404);
  assert.ok(Number(unknown.headers["content-length"]) > 0);
  await peer.send(getRequest("/healthz/live"));
  assert.equal((await peer.response()).body, LIVE, "nothing came between the heads");
});

test("an unknown path is answered with a coded 404", async (t) => {
  const server = await serve(t);
  const peer = await connect(server);
  for (const path of ["/", "/nowhere", "/healthz", "/healthz/live/", "/healthz/liv%65", "/healthz/../healthz/live"]) {
    await peer.send(getRequest(path));
    const body = assertError(await peer.response(), 404, "not_found");
    assert.match(body.request_id, UUID7);
  }
  await peer.send("OPTIONS /nowhere HTTP/1.1\r\nHost: khala\r\n\r\n");
  assertError(await peer.response(), 404, "not_found");
  assert.equal(JSON.parse(await curl(`${server.url}/nowhere`)).error, "not_found");
});

test("OPTIONS * is answered for the server, and later minor versions as HTTP/1.1", async (t) => {
  const peer = await connect(await serve(t));
  for (const lines of [[], ["Origin: https://other.example", "Access-Control-Request-Method: GET"]]) {
    await peer.send(getRequest("*", ...lines).replace("GET", "OPTIONS"));
    const { status, headers } = await peer.response({ bodiless: true });
    assert.deepEqual([status, headers.allow, headers.connection], [204, "GET, HEAD, POST, OPTIONS", "keep-alive"]);
  }
  for (const version of ["HTTP/1.2", "HTTP/1.9"]) {
    await peer.send(getRequest("/healthz/live").replace("HTTP/1.1", version));
    const { status, headers } = await peer.response();
    assert.deepEqual([status, headers.connection], [200, "keep-alive"]);
  }
});

test("another method is answered with a coded 405 that lists the allowed ones", async (t) => {
  const peer = await connect(await serve(t));
  for (const method of ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND"]) {
    await peer.send(getRequest("/healthz/live").replace("GET", method));
    const response = await peer.response();
    assertError(response, 405, "method_not_allowed");
    assert.equal(response.headers.allow, "GET, HEAD");
    assert.equal(response.headers.connection, "keep-alive");
  }
});

test("a valid X-Request-Id is echoed, and any other is replaced", async (t) => {
  const peer = await connect(await serve(t));
  const ask = async (id) => {
    await peer.send(getRequest("/nowhere", `X-Request-Id: ${id}`));
    return assertError(await peer.response(), 404, "not_found").request_id;
  };
  for (const id of ["abc", "A-1_b.c", "x".repeat(64)]) assert.equal(await ask(id), id);
  for (const id of ["", "x".repeat(65), "a b", 'a"b', "a/b", "é"]) assert.match(await ask(id), UUID7);
  assert.notEqual(await ask(""), await ask(""));
});

test("an answer that is no error has X-Request-Id if the request had a valid one", async (t) => {
  const operator = await operate(t, { settings: { RUNTIME_KHALA_POLL_MIN_INTERVAL_MS: "0" } });
  await operator.did("topics/demo/events", { event_type: "said" });
  const idOf = async (path, ...lines) => {
    const peer = await connect(operator.server);
    await peer.send(getRequest(path, `Authorization: Bearer ${operator.key}`, ...lines));
    const head = await peer.head();
    peer.close();
    assert.match(head, /^HTTP\/1\.1 200 /, path);
    return head.match(/^x-request-id: (.*)\r$/im)?.[1] ?? null;
  };
  for (const path of ["/healthz/live", "/v1/topics/demo/messages", "/v1/topics/demo/sse", "/api/events/export", "/events", "/api/events"]) {
    assert.equal(await idOf(path, "X-Request-Id: mine.1"), "mine.1", path);
    assert.equal(await idOf(path), null, path);
    assert.equal(await idOf(path, "X-Request-Id: not valid"), null, path);
  }
});

test("pipelined requests are answered in order", async (t) => {
  const peer = await connect(await serve(t));
  const count = 500;
  const paths = Array.from({ length: count }, (_, i) => (i % 3 === 2 ? `/nowhere/${i}` : "/healthz/live"));
  await peer.send(paths.map((path, i) => getRequest(path, `X-Request-Id: request-${i}`)).join(""));
  for (let i = 0; i < count; i++) {
    const response = await peer.response();
    if (i % 3 === 2) assert.equal(assertError(response, 404, "not_found").request_id, `request-${i}`);
    else assert.equal(response.body, LIVE);
  }
  assert.equal(peer.pending, 0);
});

test("a request may arrive byte by byte, and so may the next", async (t) => {
  const peer = await connect(await serve(t));
  for (let round = 0; round < 2; round++) {
    for (const byte of getRequest("/healthz/ready", "Accept: */*")) await peer.send(byte);
    assert.equal((await peer.response()).body, READY);
  }
});

test("many pipelined requests of one connection do not delay the request of another", async (t) => {
  const server = await serve(t, { args: ["--loops", "1"] });
  const many = 1000;
  const [greedy, other] = [await connect(server), await connect(server)];
  for (const peer of [greedy, other]) {
    await peer.send(getRequest("/healthz/live"));
    assert.equal((await peer.response()).status, 200);
  }
  // All requests wait in the kernel when the server continues. The ids of a loop's answers rise in their order.
  server.kill("SIGSTOP");
  await greedy.send(getRequest("/none").repeat(many));
  await other.send(getRequest("/none"));
  server.kill("SIGCONT");
  const idOf = async (peer) => (await peer.response()).headers["x-request-id"];
  const ids = [];
  while (ids.length < many) ids.push(await idOf(greedy));
  const idOther = await idOf(other);
  const earlier = ids.filter((id) => id < idOther).length;
  assert.ok(earlier < many / 10, `${earlier} requests were answered first`);
  assert.deepEqual(ids, ids.toSorted());
});

test("a pipelined request may be cut anywhere", async (t) => {
  const server = await serve(t);
  const text = getRequest("/healthz/live") + getRequest("/healthz/ready");
  for (let cut = 1; cut < text.length; cut += 7) {
    const peer = await connect(server);
    await peer.send(text.slice(0, cut));
    await peer.send(text.slice(cut));
    assert.equal((await peer.response()).body, LIVE);
    assert.equal((await peer.response()).body, READY);
    peer.close();
  }
});

test("Connection: close ends the connection after the answer", async (t) => {
  const peer = await connect(await serve(t));
  await peer.send(getRequest("/healthz/live", "Connection: close") + getRequest("/healthz/ready"));
  const { headers, body } = await peer.response();
  assert.equal(body, LIVE);
  assert.equal(headers.connection, "close");
  assert.equal(await peer.rest(), "", "what was pipelined behind it is not answered");
});

test("HTTP/1.0 closes unless asked to keep the connection", async (t) => {
  const server = await serve(t);
  const closing = await connect(server);
  await closing.send("GET /healthz/live HTTP/1.0\r\n\r\n");
  assert.equal((await closing.response()).headers.connection, "close");
  assert.equal(await closing.rest(), "");
  const kept = await connect(server);
  for (let i = 0; i < 2; i++) {
    await kept.send("GET /healthz/live HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    assert.equal((await kept.response()).headers.connection, "keep-alive");
  }
});

test("a client that ends its side still gets its answers", async (t) => {
  const peer = await connect(await serve(t));
  await peer.send(getRequest("/healthz/live") + getRequest("/healthz/ready"));
  peer.finish();
  assert.equal((await peer.response()).body, LIVE);
  assert.equal((await peer.response()).body, READY);
  assert.equal(await peer.rest(), "");
});

test("a body that no route takes is refused without 100 Continue", async (t) => {
  const server = await serve(t);
  for (const [path, framing, status, code] of [
    ["/healthz/live", "Content-Length: 5", 413, "payload_too_large"],
    ["/healthz/live", "Transfer-Encoding: chunked", 413, "payload_too_large"],
    ["/nowhere", "Content-Length: 5", 404, "not_found"],
  ]) {
    const peer = await connect(server);
    await peer.send(getRequest(path, framing, "Expect: 100-continue"));
    const response = await peer.response();
    assertError(response, status, code);
    assert.equal(response.headers.connection, "close");
    assert.equal(await peer.rest(), "");
  }
  const peer = await connect(server);
  await peer.send(getRequest("/healthz/live", "Content-Length: 0", "Expect: 100-continue"));
  assert.equal((await peer.response()).body, LIVE, "there is no body to wait for");
  await peer.send(getRequest("/healthz/live", "Expect: miracles"));
  assertError(await peer.response(), 417, "expectation_failed");
});

test("the server speaks IPv6", async (t) => {
  if (!(await available("::1"))) return t.skip("this machine has no ::1");
  const server = await serve(t, { bind: "[::1]:0" });
  assert.match(server.url, /^https?:\/\/\[::1\]:\d+$/);
  assert.equal(await curl("-f", `${server.url}/healthz/ready`), READY);
});

test("every io loop answers", async (t) => {
  const server = await serve(t, { args: ["--loops", "4"] });
  await server.saw("log", /server\.ready.*loops=4/);
  const peers = await Promise.all(Array.from({ length: 64 }, () => connect(server)));
  for (const peer of peers) await peer.send(getRequest("/healthz/ready"));
  for (const peer of peers) assert.equal((await peer.response()).body, READY);
});

test("log lines are JSON when the setting says so", async (t) => {
  const server = await serve(t, { settings: { KHALA_LOG: "json" } });
  await server.stop();
  const lines = server.log.trim().split("\n").map((line) => JSON.parse(line));
  const events = lines.map((line) => line.event);
  for (const event of ["server.ready", "server.draining", "server.ended"]) {
    assert.ok(events.includes(event), `${event} in ${events}`);
  }
  assert.equal(lines.find((line) => line.event === "server.ready").port, server.port);
});
