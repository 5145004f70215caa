// Forged tokens: truncated, altered, signed with other keys or algorithms, with duplicate claims or
// impossible times, or in the wrong place. Each is refused with its reason. All tokens with a wrong
// signature get the same answer, and no secret reaches the log.
import assert from "node:assert/strict";
import { createHmac, generateKeyPairSync, randomBytes, sign } from "node:crypto";
import { test } from "node:test";
import { connect } from "../../lib/khala.mjs";
import { operate } from "../../lib/operator.mjs";
import { Socket } from "../../lib/socket.mjs";
import { claimsFor, encode, headerOf, seal, signingKey } from "../../lib/token.mjs";

const POLL = "/internal/v1/khala/topics/room:1/messages?after_seq=0";
const READ_ALL = { user_id: "mallory", scopes: ["runtime.read_all"] };

/** Starts a server with a debug log; at the end of the test the log must contain no secret. */
async function observed(t) {
  const operator = await operate(t, { settings: { KHALA_LOG: "json", KHALA_LOG_LEVEL: "debug" } });
  const key = signingKey(operator.data);
  const secrets = new Set([operator.key, key.k]);
  t.after(() => {
    assert.match(operator.server.log, /client\.denied/);
    for (const secret of secrets) assert.ok(!operator.server.log.includes(secret), `in the log: ${secret}`);
  });
  return { operator, key, tell: (token) => token.split(".").filter((part) => part.length > 16).forEach((part) => secrets.add(part)) };
}

/** Asserts that every dialect refuses the token with that reason; answers the body without its id. */
async function refused({ operator, tell }, token, reason, what) {
  tell(token);
  const headers = { authorization: `Bearer ${token}` };
  const poll = await operator.ask("GET", POLL, undefined, headers);
  const body = JSON.parse(poll.body);
  assert.deepEqual([poll.status, body.error, body.reason_code], [401, reason, reason], `${what}: ${poll.body}`);
  const handshake = await Socket.refused(operator, `/socket/websocket?vsn=2.0.0&token=${encodeURIComponent(token)}`);
  assert.deepEqual([handshake.status, JSON.parse(handshake.body).reason_code], [401, reason], what);
  const audit = await Socket.audit(operator, token);
  await audit.until(() => audit.closed, "the close");
  const [error] = audit.of("error");
  assert.equal(error.details.reason, reason, what);
  assert.equal(audit.closed.code, reason === "token_expired" ? 4002 : 4001, what);
  return poll.body.replace(/"request_id":"[^"]+"/, "");
}

test("every token with a wrong signature gets the same answer", async (t) => {
  const world = await observed(t);
  const { key } = world;
  const header = headerOf(key);
  const good = seal(key, header, claimsFor(READ_ALL));
  const [head, claims, mac] = good.split(".");
  const text = `${head}.${claims}`;
  const pair = generateKeyPairSync("rsa", { modulusLength: 2048 });
  const stranger = { ...key, k: randomBytes(32).toString("base64url") };
  const hmac = (bytes, algorithm = "sha256", over = text) => createHmac(algorithm, bytes).update(over).digest("base64url");
  const forgeries = {
    "cut in the signature": good.slice(0, -1),
    "cut behind the claims": text,
    "cut in the claims": good.slice(0, head.length + 20),
    "without a signature": `${text}.`,
    "of one character": "x",
    "with a fourth part": `${good}.${mac}`,
    "padded": `${good}=`,
    "with a touched claim": `${head}.${encode(claimsFor({ ...READ_ALL, user_id: "root" }))}.${mac}`,
    "signed by a stranger": seal(stranger, header, claimsFor(READ_ALL)),
    "signed with an empty secret": `${text}.${hmac("")}`,
    "signed with the secret's text": `${text}.${hmac(key.k)}`,
    "of a key that is not there": seal(key, { ...header, kid: "sync-auth-v0" }, claimsFor(READ_ALL)),
    "of a key by path": seal(key, { ...header, kid: "../../dev/null" }, claimsFor(READ_ALL)),
    "with alg none": `${encode({ ...header, alg: "none" })}.${claims}.`,
    "with alg nOnE and a signature": seal(key, { ...header, alg: "nOnE" }, claimsFor(READ_ALL)),
    "with alg HS512": (() => { const other = `${encode({ ...header, alg: "HS512" })}.${claims}`; return `${other}.${hmac(Buffer.from(key.k, "base64url"), "sha512", other)}`; })(),
    "with alg RS256 over an HMAC": seal(key, { ...header, alg: "RS256" }, claimsFor(READ_ALL)),
    "with alg RS256 and its own key": (() => {
      const other = `${encode({ ...header, alg: "RS256", jwk: pair.publicKey.export({ format: "jwk" }) })}.${claims}`;
      return `${other}.${sign("sha256", Buffer.from(other), pair.privateKey).toString("base64url")}`;
    })(),
    "without an alg": seal(key, { typ: "JWT", kid: key.kid }, claimsFor(READ_ALL)),
    "with two algs": seal(key, `{"alg":"HS256","alg":"none","kid":"${key.kid}"}`, claimsFor(READ_ALL)),
    "with critical extensions": seal(key, { ...header, crit: ["exp"] }, claimsFor(READ_ALL)),
  };
  const answers = new Map();
  for (const [what, token] of Object.entries(forgeries)) answers.set(await refused(world, token, "invalid_token", what), what);
  await sent(world, `${head}.${"A".repeat(9000)}.${mac}`, "invalid_token", "longer than any token");
  assert.equal(answers.size, 1, `told apart: ${[...answers.values()].join()}`);
  assert.equal((await world.operator.ask("GET", POLL, undefined, { authorization: `Bearer ${good}` })).status, 200);
});

test("a signed token with impossible claims is refused with its reason", async (t) => {
  const world = await observed(t);
  const { key } = world;
  const plain = claimsFor(READ_ALL);
  const doubled = (name, value) => `${JSON.stringify(plain).slice(0, -1)},"${name}":${JSON.stringify(value)}}`;
  const raw = (name, number) => JSON.stringify({ ...plain, [name]: undefined }).slice(0, -1).concat(`,"${name}":${number}}`);
  const rows = [
    ["a doubled user", doubled("oa_user_id", "root"), "invalid_token"],
    ["a doubled end", doubled("exp", plain.exp + 9999), "invalid_token"],
    ["doubled scopes", doubled("oa_sync_scopes", ["runtime.audit"]), "invalid_token"],
    ["a doubled name in escapes", doubled("\\u0065xp", 99), "invalid_token"],
    ["an end beyond numbers", raw("exp", "1e400"), "invalid_token"],
    ["an end of 2^63", raw("exp", "9223372036854775808"), "invalid_token"],
    ["an end of 2^64 + 1", raw("exp", "18446744073709551617"), "invalid_token"],
    ["an end before time", raw("exp", "-1"), "invalid_token"],
    ["an end as text", raw("exp", `"${plain.exp}"`), "invalid_token"],
    ["an end with a fraction", raw("exp", `${plain.exp}.5`), "invalid_token"],
    ["no end", { ...plain, exp: undefined }, "invalid_token"],
    ["an end that has passed", { ...plain, exp: plain.iat - 60 }, "token_expired"],
    ["an end five seconds ago", { ...plain, iat: plain.iat - 60, exp: plain.iat - 5 }, "token_expired"],
    ["an age just above the maximum", { ...plain, iat: plain.iat - 905, exp: plain.iat + 60 }, "token_too_old"],
    ["a beginning before time", raw("iat", "-9007199254740991"), "invalid_token"],
    ["a beginning at 0", { ...plain, iat: 0 }, "token_too_old"],
    ["a beginning in the future", { ...plain, iat: plain.iat + 3600 }, "token_not_yet_valid"],
    ["a beginning at 2^53 - 1", { ...plain, nbf: Number.MAX_SAFE_INTEGER }, "token_not_yet_valid"],
    ["an endless life", { ...plain, iat: plain.iat - 3600, exp: Number.MAX_SAFE_INTEGER }, "token_too_old"],
    ["no beginning", { ...plain, iat: undefined }, "missing_iat"],
    ["no id", { ...plain, jti: undefined }, "missing_jti"],
    ["another issuer", { ...plain, iss: "https://issuer.example" }, "invalid_token"],
    ["no issuer", { ...plain, iss: undefined }, "invalid_token"],
    ["another audience", { ...plain, aud: "somebody-else" }, "invalid_token"],
    ["another version", { ...plain, oa_claims_version: "oa_sync_claims_v9" }, "invalid_token"],
    ["a user and a guest", { ...plain, oa_guest_scope: "g" }, "invalid_token"],
    ["a user with a NUL", { ...plain, oa_user_id: "mallory\0alice" }, "invalid_token"],
    ["a user with a line's end", { ...plain, oa_user_id: "mallory\r\nX-Evil: 1" }, "invalid_token"],
    ["a user that is a list", { ...plain, oa_user_id: ["alice"] }, "invalid_token"],
    ["scopes that are text", { ...plain, oa_sync_scopes: "runtime.read_all" }, "invalid_token"],
    ["scopes that are an object", { ...plain, oa_sync_scopes: { 0: "runtime.read_all" } }, "invalid_token"],
    ["a thousand scopes", { ...plain, oa_sync_scopes: Array.from({ length: 1000 }, (_, i) => `s${i}`) }, "invalid_token"],
    ["ten thousand scopes", { ...plain, oa_sync_scopes: Array.from({ length: 10_000 }, (_, i) => `s${i}`) }, "invalid_token"],
    ["claims that are a list", "[]", "invalid_token"],
    ["claims that are no JSON", "{", "invalid_token"],
    ["claims in claims", `${"[".repeat(2000)}`, "invalid_token"],
  ];
  for (const [what, claims, reason] of rows) await sent(world, seal(key, headerOf(key), claims), reason, what);
});

/** Like refused, but a token that does not fit into a request head may be refused for that. */
async function sent(world, token, reason, what) {
  if (token.length < 7000) return refused(world, token, reason, what);
  world.tell(token);
  const poll = await world.operator.ask("GET", POLL, undefined, { authorization: `Bearer ${token}` });
  assert.ok([401, 431].includes(poll.status), `${what}: ${poll.body}`);
  const audit = await Socket.audit(world.operator, token);
  await audit.until(() => audit.closed, "the close");
  assert.ok([4001, 4003, 1009].includes(audit.closed.code), `${what}: ${audit.closed.code}`);
  return poll.body;
}

test("a token in another place than the header or query is ignored", async (t) => {
  const world = await observed(t);
  const { operator, key } = world;
  const good = seal(key, headerOf(key), claimsFor(READ_ALL));
  world.tell(good);
  const rows = [
    [POLL, {}, "missing_authorization"],
    [POLL, { authorization: "Bearer" }, "invalid_token"],
    [POLL, { authorization: `Basic ${Buffer.from(`x:${good}`).toString("base64")}` }, "invalid_authorization_scheme"],
    [POLL, { authorization: good }, "invalid_authorization_scheme"],
    [POLL, { authorization: `Token ${good}` }, "invalid_authorization_scheme"],
    [POLL, { authorization: `Bearer ${good},${good}` }, "invalid_token"],
    [POLL, { authorization: `Bearer ${good} ${good}` }, "invalid_token"],
    [POLL, { cookie: `token=${good}` }, "missing_authorization"],
    [POLL, { "x-token": good, "proxy-authorization": `Bearer ${good}` }, "missing_authorization"],
    [`${POLL}&access_token=${good}`, {}, "missing_authorization"],
    [`${POLL}&TOKEN=${good}`, {}, "missing_authorization"],
    [`${POLL}&token=`, { authorization: `Bearer ${good}` }, "missing_authorization"],
    [`${POLL}&token=${good}%0d%0aX-Evil:%201`, {}, "invalid_token"],
    [`${POLL}&token=%0d%0aSet-Cookie:%20a=b`, {}, "invalid_token"],
  ];
  for (const [path, headers, reason] of rows) {
    // Without a header the operator's agent would add its key.
    const answer = await operator.ask("GET", path, undefined, { authorization: "", ...headers });
    assert.deepEqual([answer.status, JSON.parse(answer.body).reason_code], [401, reason], `${path} ${JSON.stringify(headers)}`);
    assert.equal(answer.headers["x-evil"] ?? answer.headers["set-cookie"], undefined);
  }
  for (const query of [`token=${good}%00`, `token=${good}&token=${good}`, `token=${good}%zz`]) {
    const answer = await operator.ask("GET", `${POLL}&${query}`, undefined, { authorization: "" });
    assert.equal(answer.status, 400, "a query that means nothing, or two things");
  }
});

test("the operator key is not a token, and a token is not the operator key", async (t) => {
  const world = await observed(t);
  const { operator, key } = world;
  for (const path of [`${POLL}&token=${operator.key}`, `/v1/topics/room:1/sse?token=${operator.key}`, `/api/events?token=${operator.key}`,
    `/events?token=${operator.key}`]) {
    const answer = await operator.ask("GET", path, undefined, { authorization: "" });
    assert.deepEqual([answer.status, JSON.parse(answer.body).reason_code], [401, "invalid_token"], path);
  }
  for (const path of ["/socket/websocket?vsn=2.0.0", "/internal/v1/khala/topics/room:1/ws?after_seq=0"]) {
    for (const options of [{ headers: { authorization: `Bearer ${operator.key}` } }, {}]) {
      const asked = options.headers ? path : `${path}&token=${operator.key}`;
      const refusal = await Socket.refused(operator, asked, options);
      assert.deepEqual([refusal.status, JSON.parse(refusal.body).reason_code], [401, "invalid_token"], asked);
    }
  }
  const audit = await Socket.audit(operator, operator.key);
  await audit.until(() => audit.closed, "the close");
  assert.equal(audit.closed.code, 4001);
  const token = seal(key, headerOf(key), claimsFor(READ_ALL));
  world.tell(token);
  const [OTHER, PRODUCER] = [[401, "invalid_token"], [403, "missing_scope"]]; // producers may use some of the routes
  for (const [[status, reason], method, path, body] of [[OTHER, "POST", "/api/sync/token", "{}"], [PRODUCER, "POST", "runs", "{}"],
    [OTHER, "GET", "/metrics"], [OTHER, "GET", "khala/why"], [PRODUCER, "POST", "events:batch", "[]"],
    [OTHER, "POST", "/api/events/ingest", "{}"], [OTHER, "POST", "retention/run", "{}"]]) {
    const answer = await operator.ask(method, path, body, { authorization: `Bearer ${token}` });
    assert.deepEqual([answer.status, JSON.parse(answer.body).reason_code], [status, reason], path);
    const named = await operator.ask(method, `${path}?token=${token}`, body, { authorization: "" });
    assert.equal(named.status, status, path);
  }
});

test("a header with a NUL or a bare line end is refused", async (t) => {
  const world = await observed(t);
  const { operator, key } = world;
  const good = seal(key, headerOf(key), claimsFor(READ_ALL));
  world.tell(good);
  for (const header of [`Authorization: Bearer ${good}\0`, `Authorization: Bearer\0 ${good}`, `Authorization: Bearer ${good}\rX-Evil: 1`,
    `Authorization: Bearer ${good}\nX-Evil: 1`, `Authorization: Bearer x\r\n ${good}`, `Authorization\0: Bearer ${good}`,
    `Authorization : Bearer ${good}`, `Authorization: Bearer ${good}\r\nAuthorization: Bearer ${good}`]) {
    const peer = await connect(operator.server);
    await peer.send(`GET ${POLL} HTTP/1.1\r\nHost: x\r\n${header}\r\n\r\n`);
    const answer = await peer.response();
    assert.ok([400, 401].includes(answer.status), `${JSON.stringify(header.slice(0, 30))}: ${answer.status}`);
    assert.equal(answer.headers["x-evil"], undefined);
  }
  assert.equal((await operator.ask("GET", POLL, undefined, { authorization: "Bearer wrong" })).status, 401);
});
