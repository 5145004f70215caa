// Attempts to get in are limited: wrong keys and tokens of one address, and the nonces and single-use
// tokens of one principal.
import assert from "node:assert/strict";
import net from "node:net";
import { test } from "../../lib/cases.mjs";
import { connect, getRequest } from "../../lib/khala.mjs";
import { operate } from "../../lib/operator.mjs";
import { AUDIT_SOCKET, pollPath, socketPath, streamPath } from "../../lib/paths.mjs";
import { Client } from "../../lib/phoenix.mjs";
import { range } from "../../lib/samples.mjs";
import { auditInit, Socket } from "../../lib/socket.mjs";
import { Stream } from "../../lib/sse.mjs";
import { once, until } from "../../lib/wait.mjs";

const TOPIC = "run:a:events";
const FAILURES_PER_MINUTE = 30; // an answer waits for two seconds, which three requests do not take on a busy machine
const BURST = FAILURES_PER_MINUTE / 3;
const WRONG = { authorization: "Bearer wrong" };

const forged = (operator) => `${operator.reader.slice(0, -8)}AAAAAAAA`;
const bearer = (token) => ({ authorization: `Bearer ${token}` });

/** A server whose bucket for this address is empty. */
async function annoyed(t, settings = {}) {
  const operator = await operate(t, { settings: { KHALA_AUTH_FAILURES_PER_MINUTE: String(FAILURES_PER_MINUTE), ...settings } });
  for (let i = 0; i < BURST; i++) assert.equal((await operator.ask("GET", "runs", undefined, WRONG)).status, 401);
  return operator;
}

/** Right keys and tokens are answered while the wrong one waits. */
async function waits(operator, wrong, what) {
  let isOver = false;
  const answer = wrong().finally(() => { isOver = true; });
  assert.equal((await operator.get("runs")).status, 200);
  assert.equal((await operator.ask("GET", pollPath("runtime.run_summaries", "after_seq=0"), undefined, bearer(operator.reader))).status, 200);
  const stream = await Stream.open(operator, streamPath("runtime.run_summaries"), bearer(operator.reader));
  assert.equal(stream.status, 200);
  stream.close();
  assert.equal(isOver, false, `${what} was answered at once`);
  return answer;
}

test("beyond a number of wrong keys and tokens their answers wait and close, and right ones are answered at once", async (t) => {
  const operator = await annoyed(t, { RUNTIME_KHALA_POLL_MIN_INTERVAL_MS: "0" });
  const token = forged(operator);
  const wrong = {
    "an operator key": () => operator.ask("GET", "runs", undefined, WRONG),
    "an operator key with a body": () => operator.ask("POST", "runs", JSON.stringify({ run_id: "x" }), WRONG),
    "a token in the header": () => operator.ask("GET", pollPath(TOPIC, "after_seq=0"), undefined, bearer(token)),
    "a token in the query": () => operator.ask("GET", pollPath(TOPIC, `after_seq=0&token=${token}`), undefined, { authorization: "" }),
    "an event stream": () => operator.ask("GET", streamPath(TOPIC), undefined, bearer(token)),
    "a producer": () => operator.ask("POST", "/v1/runs/a/events", "{}", bearer(token)),
  };
  for (const [what, ask] of Object.entries(wrong)) {
    const answer = await waits(operator, ask, what);
    const { error, reason_code } = JSON.parse(answer.body);
    assert.deepEqual([answer.status, reason_code ?? error, answer.headers.connection], [401, "invalid_token", "close"], what);
  }
  const socket = await waits(operator, () => Socket.refused(operator, socketPath(TOPIC, `token=${token}`)), "a socket");
  assert.equal(socket.status, 401);
  const { body } = await operator.get("/metrics");
  const count = (credential) => Number(body.match(new RegExp(`^khala_auth_failures_delayed_total\\{credential="${credential}"\\} (\\d+)$`, "m"))[1]);
  assert.deepEqual([count("key"), count("token")], [2, 5]);
});

test("a wrong capability of an audit socket waits too, and a wrong fresh token ends its connection", async (t) => {
  const operator = await annoyed(t);
  const audit = await Socket.open(operator, AUDIT_SOCKET);
  await waits(operator, async () => {
    audit.say(auditInit(forged(operator)));
    audit.say(auditInit(operator.reader));
    await audit.until(() => audit.closed, "the close");
  }, "an init");
  assert.deepEqual([audit.closed.code, audit.messages.length, audit.of("error")[0].details.reason], [4001, 1, "invalid_token"]);
  const client = await Client.join(operator);
  client.channel.push("sync:refresh", { token: forged(operator) });
  await client.until(() => client.closes.length > 0, "the close");
  assert.equal(client.closes[0].code, 4001);
});

test("only guesses count: not expired tokens, not missing ones, and not those of another address", async (t) => {
  const operator = await operate(t, { settings: { KHALA_AUTH_FAILURES_PER_MINUTE: String(FAILURES_PER_MINUTE) } });
  const expired = operator.sign({ exp: Math.floor(Date.now() / 1000) - 100 });
  for (let i = 0; i < 2 * BURST; i++) {
    for (const authorization of [`Bearer ${expired}`, "", "Basic x"]) {
      const { status, headers } = await operator.ask("GET", pollPath(TOPIC, "after_seq=0"), undefined, { authorization });
      assert.deepEqual([status, headers.connection], [401, "keep-alive"]);
    }
  }
  for (let i = 0; i < BURST; i++) assert.equal((await operator.ask("GET", "runs", undefined, WRONG)).headers.connection, "keep-alive");
  await waits(operator, () => operator.ask("GET", "runs", undefined, WRONG), "a wrong key");
  const socket = net.connect({ port: operator.server.port, host: operator.server.host, localAddress: "127.0.0.9" });
  operator.server.peers.push({ close: () => socket.destroy() });
  let isFirst = false;
  await waits(operator, async () => {
    const slow = operator.ask("GET", "runs", undefined, WRONG);
    socket.write(getRequest("/internal/v1/runs", "Authorization: Bearer wrong"));
    assert.match(String(await once(socket, "data", "an answer")), /^HTTP\/1\.1 401 /);
    isFirst = true;
    return slow;
  }, "a wrong key here");
  assert.ok(isFirst);
});

test("clients that leave while their answer waits leave nothing behind", async (t) => {
  const operator = await annoyed(t);
  const peers = [];
  for (let i = 0; i < 50; i++) {
    const peer = await connect(operator.server);
    await peer.send(getRequest("/internal/v1/runs", "Authorization: Bearer wrong"));
    peers.push(peer);
  }
  for (const peer of peers) peer.close();
  await until(async () => / 1$/m.test((await operator.get("/metrics")).body.match(/^khala_http_connections \d+$/m)[0]), "one connection");
  assert.equal((await operator.get("runs")).status, 200);
});

test("a principal has a rate of nonces, and others notice nothing", async (t) => {
  const operator = await operate(t, { settings: { KHALA_CONNECTIONS_PER_PRINCIPAL_MAX: "1000" } });
  const tokenOf = (user) => operator.sign({ oa_user_id: user, oa_sync_scopes: ["runtime.audit"] });
  const outcomes = async (user, count) => Promise.all(range(1, count).map(async () => {
    const socket = await Socket.audit(operator, tokenOf(user));
    await socket.until(() => socket.messages.length > 0, "the first message");
    const [{ type, code, details }] = socket.messages;
    if (type === "error") {
      assert.deepEqual([code, details.reason, details.retry_after_ms], ["RATE_LIMITED", "rate_limited", 1000]);
      await socket.until(() => socket.closed, "the close");
      assert.equal(socket.closed.code, 1013);
    }
    socket.close();
    return type;
  }));
  const mine = await outcomes("greedy", 400);
  const acks = mine.filter((one) => one === "init_ack").length;
  assert.ok(acks >= 256 && acks < 400, `${acks} of 400`);
  assert.deepEqual(await outcomes("other", 5), Array(5).fill("init_ack"));
  const { body } = await operator.get("/metrics");
  const number = (name) => Number(body.match(new RegExp(`^${name} (\\d+)$`, "m"))[1]);
  assert.equal(number('khala_single_uses_refused_total\\{kind="nonce"\\}'), 400 - acks);
  assert.ok(number("khala_single_use_commits_total") < acks + 5, "uses that wait share a transaction");
  await until(async () => (await outcomes("greedy", 1))[0] === "init_ack", "the rate lets it in again");
});

test("a principal has a rate of single-use tokens, which lets a fleet reconnect", async (t) => {
  const operator = await operate(t, { settings: { RUNTIME_SYNC_TOKEN_SINGLE_USE: "true", KHALA_CONNECTIONS_PER_PRINCIPAL_MAX: "1000" } });
  const answers = [];
  const open = async () => {
    const stream = await Stream.open(operator, streamPath("runtime.run_summaries"), bearer(operator.reader));
    if (stream.status === 429) assert.equal(stream.headers["retry-after"], "1");
    answers.push(stream.status);
    stream.close();
  };
  await Promise.all(range(1, 16).map(async () => { for (let i = 0; i < 16; i++) await open(); }));
  assert.deepEqual(answers, Array(256).fill(200));
  await Promise.all(range(1, 400).map(open));
  assert.ok(answers.includes(429));
  assert.deepEqual([...new Set(answers)].sort(), [200, 429]);
});
