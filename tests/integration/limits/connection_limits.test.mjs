// The limits of connections: in total, without a token, of one principal and of one address, and the connections that
// are reserved for the operator.
import assert from "node:assert/strict";
import { test } from "../../lib/cases.mjs";
import { assertError, connect, getRequest } from "../../lib/khala.mjs";
import { operate } from "../../lib/operator.mjs";
import { AUDIT_SOCKET, pollPath } from "../../lib/paths.mjs";
import { scrape } from "../../lib/prometheus.mjs";
import { auditInit, Socket } from "../../lib/socket.mjs";
import { once, until } from "../../lib/wait.mjs";
import { message, RawSocket } from "../../lib/websocket.mjs";
import net from "node:net";

const LIVE = "/healthz/live";
const POLL = pollPath("app", "after_seq=0");
const SETTINGS = { RUNTIME_KHALA_POLL_MIN_INTERVAL_MS: "0" };
const REFUSED = "khala_http_connections_refused_total";

/** A server with one loop, so that all its connections are in one order. */
const limited = (t, settings, loops = 1) => operate(t, { settings: { ...SETTINGS, ...settings }, args: ["--loops", String(loops)] });

/** The token of a user, for a number of seconds. */
const tokenOf = (operator, user, seconds = 300) => operator.sign({
  oa_user_id: user, oa_sync_scopes: ["runtime.read_all", "runtime.audit"], exp: Math.floor(Date.now() / 1000) + seconds });

const bearer = (token) => `Authorization: Bearer ${token}`;

/** Asks on that connection, and answers the answer. */
async function ask(peer, path, token) {
  await peer.send(getRequest(path, ...(token ? [bearer(token)] : [])));
  return peer.response();
}

/** A new connection that has asked with that token. */
async function asked(operator, token, path = POLL) {
  const peer = await connect(operator.server);
  return { peer, answer: await ask(peer, path, token) };
}

/** Asserts a refusal that tells when to come back and closes the connection. */
async function assertRefused({ peer, answer }, status, code) {
  assertError(answer, status, code);
  assert.equal(answer.headers["retry-after"], "1");
  assert.equal(await peer.rest(), "");
}

test("beyond the unauthenticated limit the connection that was silent longest gives way", async (t) => {
  const operator = await limited(t, { KHALA_CONNECTIONS_UNAUTHENTICATED_MAX: "3" });
  const token = tokenOf(operator, "u");
  const { peer: client } = await asked(operator, token);
  const silent = [await connect(operator.server), await connect(operator.server)];
  const { peer: late } = await asked(operator, undefined, LIVE);
  assert.equal((await ask(silent[0], LIVE)).status, 200);
  assert.equal((await asked(operator, undefined, LIVE)).answer.status, 200);
  assert.equal(await silent[1].rest(), "");
  assert.equal((await ask(silent[0], LIVE)).status, 200);
  assert.equal((await ask(late, LIVE)).status, 200);
  assert.equal((await ask(client, POLL, token)).status, 200, "a client that has shown a token stays");
  assert.ok((await scrape(operator)).get(REFUSED, { limit: "unauthenticated" }) >= 1);
});

test("the connection that was silent longest gives way to one of another loop", async (t) => {
  const operator = await limited(t, { KHALA_CONNECTIONS_UNAUTHENTICATED_MAX: "4" }, 4);
  const accepted = async () => (await scrape(operator)).get("khala_http_connections_accepted_total");
  const silent = [];
  for (let i = 0; i < 16; i++) {
    const before = await accepted();
    silent.push(await connect(operator.server));
    await until(async () => (await accepted()) > before, "the connection is accepted");
    // The connection before the last four was closed, whichever loop has it.
    if (i >= 4) await silent[i - 4].until(() => silent[i - 4].ended, `the end of connection ${i - 4}`);
    assert.ok(silent.slice(-4).every((peer) => !peer.ended), `connection ${i}`);
  }
  for (const peer of silent.slice(-4)) assert.equal((await ask(peer, LIVE)).status, 200);
});

test("a flood of refusals does not fill the log", async (t) => {
  const operator = await limited(t, { KHALA_CONNECTIONS_UNAUTHENTICATED_MAX: "1" });
  for (let i = 0; i < 10; i++) {
    const silent = await connect(operator.server);
    assert.equal((await asked(operator, tokenOf(operator, "u"))).answer.status, 200);
    assert.equal(await silent.rest(), "");
  }
  assert.ok((await scrape(operator)).get(REFUSED, { limit: "unauthenticated" }) >= 10);
  const lines = operator.server.log.match(/accept\.refused/g).length;
  assert.ok(lines <= 2, `${lines} lines`);
});

test("a new connection that sends no whole request head is closed sooner than an idle one", async (t) => {
  const operator = await limited(t, { KHALA_REQUEST_TIMEOUT_MS: "1500", KHALA_IDLE_TIMEOUT_MS: "60000" });
  const idle = await asked(operator, undefined, LIVE);
  const rests = await Promise.all(["", "\r\n", "G", getRequest(LIVE).slice(0, -1)].map(async (sent) => {
    const peer = await connect(operator.server);
    await peer.send(sent);
    return (await peer.rest()).split("\r\n")[0];
  }));
  assert.deepEqual(rests, ["", "", "HTTP/1.1 408 Request Timeout", "HTTP/1.1 408 Request Timeout"]);
  assert.equal((await ask(idle.peer, LIVE)).status, 200);
});

test("a principal at its limit is refused, and no other principal notices", async (t) => {
  const operator = await limited(t, { KHALA_CONNECTIONS_PER_PRINCIPAL_MAX: "2" }, 2);
  const reader = tokenOf(operator, "u");
  const first = await RawSocket.open({ server: operator.server, reader });
  await asked(operator, reader);
  await assertRefused(await asked(operator, reader), 429, "too_many_connections");
  await assertRefused(await asked(operator, tokenOf(operator, "u"), `/socket/websocket?vsn=2.0.0&token=${reader}`), 429, "too_many_connections");
  assert.equal((await asked(operator, tokenOf(operator, "v"))).answer.status, 200);
  for (let i = 0; i < 4; i++) assert.equal((await asked(operator, operator.key)).answer.status, 200);
  const { answer } = await asked(operator, operator.sign({ oa_guest_scope: "u", oa_sync_scopes: ["runtime.read_all"] }));
  assert.equal(answer.status, 200, "a guest is another principal than the user of that name");
  assert.ok((await scrape(operator)).get(REFUSED, { limit: "principal" }) >= 2);
  first.peer.close();
  await until(async () => (await asked(operator, reader)).answer.status === 200, "a connection that closed no longer counts");
});

test("a connection counts for the principal of its last request", async (t) => {
  const operator = await limited(t, { KHALA_CONNECTIONS_PER_PRINCIPAL_MAX: "1" }, 2);
  const { peer } = await asked(operator, tokenOf(operator, "u"));
  assert.equal((await ask(peer, POLL, tokenOf(operator, "v"))).status, 200);
  assert.equal((await asked(operator, tokenOf(operator, "u"))).answer.status, 200);
  await assertRefused(await asked(operator, tokenOf(operator, "v")), 429, "too_many_connections");
});

test("connections in the last minute of their token leave room for their renewal, once", async (t) => {
  const operator = await limited(t, { KHALA_CONNECTIONS_PER_PRINCIPAL_MAX: "2" });
  const ending = tokenOf(operator, "u", 50);
  const old = await RawSocket.open({ server: operator.server, reader: ending });
  await asked(operator, ending);
  const fresh = tokenOf(operator, "u");
  assert.equal((await asked(operator, fresh)).answer.status, 200);
  await old.send(message(["1", "r", "sync:v1", "sync:refresh", { token: fresh }]));
  assert.equal((await old.reply("r")).status, "ok");
  await assertRefused(await asked(operator, fresh), 429, "too_many_connections");
  await assertRefused(await asked(operator, ending), 429, "too_many_connections");
});

test("an audit socket beyond the limit is closed with 1013", async (t) => {
  const operator = await limited(t, { KHALA_CONNECTIONS_PER_PRINCIPAL_MAX: "1" });
  const token = tokenOf(operator, "u");
  await asked(operator, token);
  const socket = await Socket.open(operator, AUDIT_SOCKET);
  socket.ws.send(JSON.stringify(auditInit(token)));
  await socket.until(() => socket.closed, "the close");
  const { code, details } = socket.of("error")[0];
  assert.deepEqual([socket.closed.code, code, details.reason, details.retry_after_ms], [1013, "RATE_LIMITED", "too_many_connections", 1000]);
});

/** The status of a request from another address of this machine. */
async function statusFrom(operator, localAddress) {
  const socket = net.connect({ port: operator.server.port, host: operator.server.host, localAddress });
  operator.server.peers.push({ close: () => socket.destroy() });
  socket.write(getRequest(LIVE));
  return Number(String(await once(socket, "data", "an answer")).slice(9, 12));
}

test("an address at its limit is refused, but not the operator there", async (t) => {
  const operator = await limited(t, { KHALA_CONNECTIONS_PER_ADDRESS_MAX: "2" }, 2);
  const token = tokenOf(operator, "u");
  await asked(operator, token);
  await asked(operator, undefined, LIVE);
  await assertRefused(await asked(operator, token), 429, "too_many_connections");
  assert.equal((await asked(operator, operator.key)).answer.status, 200);
  for (let i = 0; i < 2; i++) assert.equal(await statusFrom(operator, "127.0.0.2"), 200);
  assert.ok((await scrape(operator)).get(REFUSED, { limit: "address" }) >= 1);
});

for (const loops of [1, 4]) {
  test(`a full server with ${loops} loops refuses clients, and serves health checks and the operator`, async (t) => {
    const operator = await limited(t, { KHALA_CONNECTIONS_MAX: "5" }, loops);
    const token = tokenOf(operator, "u");
    const clients = [];
    for (let i = 0; i < 5; i++) clients.push(await asked(operator, token));
    for (const { answer } of clients) assert.equal(answer.status, 200, answer.body);
    for (let i = 0; i < 8; i++) await assertRefused(await asked(operator, token), 503, "server_full");
    await assertRefused(await asked(operator, token, `/socket/websocket?vsn=2.0.0&token=${token}`), 503, "server_full");
    assert.equal((await asked(operator, undefined, LIVE)).answer.status, 200);
    assert.equal((await asked(operator, operator.key)).answer.status, 200);
    assert.ok((await scrape(operator)).get(REFUSED, { limit: "total" }) >= 9);
    await operator.server.saw("log", /accept\.refused .*connections_max=5/);
    for (const { peer } of clients) assert.equal((await ask(peer, POLL, token)).status, 200);
    clients[0].peer.close();
    await until(async () => (await asked(operator, token)).answer.status === 200, "a free connection");
  });
}

test("a silent connection gives way to a client when the server is full", async (t) => {
  const operator = await limited(t, { KHALA_CONNECTIONS_MAX: "2" });
  const silent = [await connect(operator.server), await connect(operator.server)];
  const token = tokenOf(operator, "u");
  for (let i = 0; i < 2; i++) assert.equal((await asked(operator, token)).answer.status, 200);
  for (const peer of silent) assert.equal(await peer.rest(), "");
});
