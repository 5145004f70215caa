// Malformed requests: each gets one coded answer, then the connection ends, and no byte after it is
// read as a request.
import assert from "node:assert/strict";
import { test } from "node:test";
import { assertError, connect, getRequest, serve } from "../../lib/khala.mjs";
import { operate } from "../../lib/operator.mjs";

const SMUGGLED = "GET /healthz/live HTTP/1.1\r\nHost: khala\r\n\r\n";

const request = (...lines) => getRequest("/healthz/live", ...lines);

async function refuses(server, name, bytes, status, code) {
  const peer = await connect(server);
  await peer.send(Buffer.concat([Buffer.from(bytes, "latin1"), Buffer.from(SMUGGLED + SMUGGLED)]));
  try {
    const response = await peer.response();
    assertError(response, status, code);
    assert.equal(response.headers.connection, "close");
    assert.equal(await peer.rest(), "", "nothing behind the refusal is answered");
    assert.equal(peer.error, null);
  } catch (error) {
    error.message = `${name}: ${error.message}`;
    throw error;
  }
  peer.close();
}

async function refuseAll(t, shapes, status, code) {
  const server = await serve(t);
  for (const [name, bytes] of Object.entries(shapes)) await refuses(server, name, bytes, status, code);
  const peer = await connect(server);
  await peer.send(SMUGGLED);
  assert.equal((await peer.response()).status, 200, "the server is none the worse");
}

test("a request with an ambiguous body length is refused", (t) => refuseAll(t, {
  "two lengths": request("Content-Length: 5", "Content-Length: 6"),
  "one length twice": request("Content-Length: 0", "Content-Length: 0"),
  "a list of lengths": request("Content-Length: 5, 5"),
  "a signed length": request("Content-Length: +5"),
  "a negative length": request("Content-Length: -5"),
  "a length in hexadecimal": request("Content-Length: 0x5"),
  "two numbers": request("Content-Length: 5 5"),
  "no number": request("Content-Length:"),
  "a length beyond 64 bits": request("Content-Length: 18446744073709551616"),
  "length and chunked": request("Content-Length: 5", "Transfer-Encoding: chunked"),
  "chunked and length": request("Transfer-Encoding: chunked", "Content-Length: 0"),
  "chunked on two lines": request("Transfer-Encoding: chunked", "Transfer-Encoding: chunked"),
  "chunked twice": request("Transfer-Encoding: chunked, chunked"),
  "chunked not last": request("Transfer-Encoding: chunked, identity"),
  "identity": request("Transfer-Encoding: identity"),
  "an unknown coding": request("Transfer-Encoding: xchunked"),
  "an empty coding": request("Transfer-Encoding: ,chunked"),
  "a vertical tab before chunked": request("Transfer-Encoding: \x0bchunked"),
  "chunked in HTTP/1.0": "GET / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n",
}, 400, "bad_request"));

const CHUNKED = "POST /api/sync/token HTTP/1.1\r\nHost: khala\r\nAuthorization: Bearer @\r\nTransfer-Encoding: chunked\r\n\r\n";

test("a chunked body with an ambiguous extension or trailer is refused", async (t) => {
  const operator = await operate(t);
  const head = CHUNKED.replace("@", operator.key);
  const shapes = {
    "a bare LF in an extension": `2;\nxx\r\n{}\r\n0\r\n\r\n`,
    "a bare CR in an extension": `2;a\rb\r\n{}\r\n0\r\n\r\n`,
    "a quoted line end": `2;a="\r\n0\r\n\r\n"\r\n{}\r\n0\r\n\r\n`,
    "a blank behind the size": `2 \r\n{}\r\n0\r\n\r\n`,
    "a folded trailer": `2\r\n{}\r\n0\r\nX: y\r\n z\r\n\r\n`,
    "a trailer that is a request": `2\r\n{}\r\n0\r\nGET /healthz/live HTTP/1.1\r\n\r\n`,
    "a bare LF behind a trailer": `2\r\n{}\r\n0\r\nX: y\n\r\n`,
  };
  for (const [name, body] of Object.entries(shapes)) await refuses(operator.server, name, head + body, 400, "bad_request");
  await refuses(operator.server, "endless extensions", `${head}2;${"x".repeat(9000)}\r\n{}\r\n0\r\n\r\n`, 431, "headers_too_large");
  await refuses(operator.server, "endless trailers", `${head}2\r\n{}\r\n0\r\n${"X: y\r\n".repeat(2000)}\r\n`, 431, "headers_too_large");
});

test("extensions and trailers are skipped, and the next request begins behind them", async (t) => {
  const operator = await operate(t);
  const head = CHUNKED.replace("@", operator.key);
  for (const body of [`2;a=b\r\n{}\r\n0\r\n\r\n`, `1 ; a="b;c"\r\n{\r\n1;x\r\n}\r\n0;last\r\n\r\n`,
    // A client that signs each chunk: the limit of extensions is for one chunk.
    `1;sig=${"f".repeat(80)}\r\n{\r\n${`1;sig=${"f".repeat(80)}\r\n \r\n`.repeat(200)}1\r\n}\r\n0\r\n\r\n`,
    `2\r\n{}\r\n0\r\nContent-Length: 44\r\nTransfer-Encoding: chunked\r\nX-Check: 1\r\n\r\n`]) {
    const peer = await connect(operator.server);
    await peer.send(head + body + SMUGGLED + SMUGGLED);
    const answers = [await peer.response(), await peer.response(), await peer.response()];
    assert.deepEqual(answers.map(({ status }) => status), [200, 200, 200], body);
    assert.equal(peer.pending, 0);
    peer.close();
  }
});

test("a request with an ambiguous line end is refused", (t) => refuseAll(t, {
  "a folded line": request("X-Folded: a", " b"),
  "a folded line by tab": request("X-Folded: a", "\tContent-Length: 5"),
  "a first field that begins with a blank": "GET / HTTP/1.1\r\n Host: khala\r\n\r\n",
  "LF behind the request line": "GET / HTTP/1.1\nHost: khala\r\n\r\n",
  "LF behind a field": "GET / HTTP/1.1\r\nHost: khala\nX: y\r\n\r\n",
  "LF for the blank line": "GET / HTTP/1.1\r\nHost: khala\r\n\n",
  "LF everywhere": "GET / HTTP/1.1\nHost: khala\n\n",
  "CR inside a value": request("X: a\rb"),
  "CR CR LF": request("X: a\r"),
  "CR inside the request line": "GET /\r HTTP/1.1\r\nHost: khala\r\n\r\n",
}, 400, "bad_request"));

test("a request with an ambiguous header field is refused", (t) => refuseAll(t, {
  "a blank before the colon": request("Content-Length : 5"),
  "a tab before the colon": request("Transfer-Encoding\t: chunked"),
  "a blank inside the name": request("Content Length: 5"),
  "no name": request(": 5"),
  "no colon": request("Content-Length 5"),
  "a NUL in a value": request("X: a\0b"),
  "a NUL in a name": request("X\0: a"),
  "DEL in a value": request("X: a\x7fb"),
  "a name beyond ASCII": request("Cont\xe9nt-Length: 5"),
}, 400, "bad_request"));

test("a request with an ambiguous host or target is refused", (t) => refuseAll(t, {
  "no host": "GET / HTTP/1.1\r\n\r\n",
  "two hosts": request("Host: other"),
  "a host with a path": "GET / HTTP/1.1\r\nHost: khala/x\r\n\r\n",
  "a host with a blank": "GET / HTTP/1.1\r\nHost: kha la\r\n\r\n",
  "a host with a user": "GET / HTTP/1.1\r\nHost: me@khala\r\n\r\n",
  "a target for another host": "GET http://other/ HTTP/1.1\r\nHost: khala\r\n\r\n",
  "a target of another scheme": "GET ftp://khala/ HTTP/1.1\r\nHost: khala\r\n\r\n",
  "a target without slash": "GET healthz/live HTTP/1.1\r\nHost: khala\r\n\r\n",
  "a star for a page": "GET * HTTP/1.1\r\nHost: khala\r\n\r\n",
  "a target beyond ASCII": "GET /h\xe9 HTTP/1.1\r\nHost: khala\r\n\r\n",
  "a blank in the target": "GET /a b HTTP/1.1\r\nHost: khala\r\n\r\n",
  "two blanks": "GET  / HTTP/1.1\r\nHost: khala\r\n\r\n",
  "a tab for a blank": "GET\t/ HTTP/1.1\r\nHost: khala\r\n\r\n",
  "a blank before the method": " GET / HTTP/1.1\r\nHost: khala\r\n\r\n",
  "a blank behind the version": "GET / HTTP/1.1 \r\nHost: khala\r\n\r\n",
  "no version": "GET /\r\nHost: khala\r\n\r\n",
  "a version in lower case": "GET / http/1.1\r\nHost: khala\r\n\r\n",
  "a version of many digits": "GET / HTTP/1.10\r\nHost: khala\r\n\r\n",
  "a method nobody knows": "FETCH / HTTP/1.1\r\nHost: khala\r\n\r\n",
  "too many blank lines": "\r\n\r\n\r\n" + request(),
  "two credentials": request("Authorization: Bearer a", "Authorization: Bearer b"),
  "TLS": "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n",
}, 400, "bad_request"));

test("other malformed requests are refused with their own code", async (t) => {
  await refuseAll(t, { "a coding besides chunked": request("Transfer-Encoding: gzip, chunked") },
    501, "unsupported_transfer_encoding");
  await refuseAll(t, {
    "HTTP/2": "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "HTTP/0.9": "GET / HTTP/0.9\r\nHost: khala\r\n\r\n",
  }, 505, "unsupported_http_version");
  await refuseAll(t, { "CONNECT": "CONNECT khala:443 HTTP/1.1\r\nHost: khala:443\r\n\r\n" },
    405, "method_not_allowed");
});

test("a request line or head above its limit is refused", async (t) => {
  await refuseAll(t, {
    "a long line": `GET /${"x".repeat(12288)} HTTP/1.1\r\nHost: khala\r\n\r\n`,
    "a line without end": "G".repeat(20000),
  }, 414, "uri_too_long");
  await refuseAll(t, {
    "a long field": request(`X: ${"x".repeat(12288)}`),
    "a field without end": request().slice(0, -2) + "x".repeat(20000),
    "a large head": request(...Array.from({ length: 20 }, (_, i) => `X-${i}: ${"x".repeat(1000)}`)),
    "many fields": request(...Array.from({ length: 64 }, (_, i) => `X-${i}: x`)),
  }, 431, "headers_too_large");
});

test("the largest line, field and head that fit are answered", async (t) => {
  const server = await serve(t);
  const ask = async (bytes, status) => {
    const peer = await connect(server);
    await peer.send(bytes);
    assert.equal((await peer.response()).status, status);
  };
  await ask(`GET /${"x".repeat(12288 - "GET / HTTP/1.1".length)} HTTP/1.1\r\nHost: khala\r\n\r\n`, 404);
  await ask(request(`X: ${"x".repeat(12288 - 3)}`), 200);
  await ask(request(...Array.from({ length: 63 }, (_, i) => `X-${i}: x`)), 200);
});

test("the limit of a request head is a setting", async (t) => {
  const server = await serve(t, { settings: { KHALA_REQUEST_HEAD_BYTES_MAX: "12288" } });
  const peer = await connect(server);
  await peer.send(request(`X: ${"x".repeat(6000)}`, `Y: ${"x".repeat(6300)}`));
  assertError(await peer.response(), 431, "headers_too_large");
  const largest = await serve(t, { settings: { KHALA_REQUEST_HEAD_BYTES_MAX: "65536" } });
  const other = await connect(largest);
  await other.send(request(...Array.from({ length: 8 }, () => `X: ${"x".repeat(8000)}`)));
  assert.equal((await other.response()).status, 200);
});

test("a body on a route without one is refused before it is read", (t) => refuseAll(t, {
  "with a length": request("Content-Length: 5"),
  "with a length beyond everything": request("Content-Length: 9223372036854775807"),
  "chunked": request("Transfer-Encoding: chunked"),
}, 413, "payload_too_large"));

test("a body on an unknown path is answered 404", (t) => refuseAll(t, {
  "with a length": "POST /nowhere HTTP/1.1\r\nHost: khala\r\nContent-Length: 5\r\n\r\nhello",
}, 404, "not_found"));
