// How connections live and end: time limits, farewells, shutdown, and how many there may be.
import assert from "node:assert/strict";
import { test } from "node:test";
import { assertError, connect, serve } from "../lib/khala.mjs";

function get(path, ...lines) {
  return ["GET " + path + " HTTP/1.1", "Host: khala", ...lines, "", ""].join("\r\n");
}

test("a refusal reaches a peer that goes on sending", async (t) => {
  const server = await serve(t);
  for (let round = 0; round < 5; round++) {
    const peer = await connect(server);
    await peer.send(get("/healthz/live", "Content-Length: 3000000") + "x".repeat(3000000));
    assertError(await peer.response(), 413, "payload_too_large");
    assert.equal(await peer.rest(), "");
    assert.equal(peer.error, null, "no reset overtakes the answer");
    peer.close();
  }
});

test("a peer that never stops sending is cut off", async (t) => {
  const server = await serve(t);
  const peer = await connect(server);
  await peer.send(get("/healthz/live", "Connection: close"));
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

const PATIENT = { KHALA_REQUEST_TIMEOUT_MS: "3600000", KHALA_IDLE_TIMEOUT_MS: "3600000", KHALA_SHUTDOWN_GRACE_MS: "600000" };

test("a peer that neither sends nor ends is not waited for", async (t) => {
  const server = await serve(t, { settings: PATIENT });
  const peer = await connect(server);
  await peer.send(get("/healthz/live", "Connection: close"));
  assert.equal((await peer.response()).status, 200);
  assert.equal(await peer.rest(), "");
  await server.stop();
});
