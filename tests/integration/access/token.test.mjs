// Tokens minted with the operator key over HTTP and from the command line, and keys that change under
// a running server.
import assert from "node:assert/strict";
import { createHash, createHmac, createSign, generateKeyPairSync } from "node:crypto";
import { readFileSync, renameSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "../../lib/cases.mjs";
import { onPostgres } from "../../lib/database.mjs";
import { assertError, folder, run } from "../../lib/khala.mjs";
import { operate } from "../../lib/operator.mjs";
import { streamPath } from "../../lib/paths.mjs";
import { Client } from "../../lib/phoenix.mjs";
import { scrape } from "../../lib/prometheus.mjs";
import { Stream } from "../../lib/sse.mjs";
import { encode, usualClaims } from "../../lib/token.mjs";

const decode = (part) => JSON.parse(Buffer.from(part, "base64url").toString("utf8"));

function claimsOf(token) {
  const [header, claims] = token.split(".");
  return { header: decode(header), claims: decode(claims) };
}

test("a minted token names its principal, grants and lifetime", async (t) => {
  const operator = await operate(t);
  const answer = await operator.did("/api/sync/token", {
    user_id: "u1", org_id: "o1", scopes: ["runtime.run_events"], topics: ["run:a:events"],
    streams: ["runtime.run.b.events"], ttl_seconds: 120, device_id: "d1", session_id: "s1",
  });
  assert.deepEqual(Object.keys(answer), ["token", "token_type", "expires_in", "issued_at", "expires_at",
    "refresh_after_in", "issuer", "audience", "subject", "claims_version", "scopes", "granted_topics",
    "granted_streams", "kid", "token_id", "session_id", "device_id"]);
  assert.equal(answer.token_type, "Bearer");
  assert.equal(answer.expires_in, 120);
  assert.equal(answer.expires_at - answer.issued_at, 120000);
  assert.ok(answer.refresh_after_in > 0 && answer.refresh_after_in < 120);
  assert.equal(answer.subject, "user:u1");
  const { header, claims } = claimsOf(answer.token);
  assert.deepEqual(header, { alg: "HS256", kid: answer.kid, typ: "JWT" });
  assert.deepEqual(claims, {
    iss: "khala", aud: "openagents-sync", sub: "user:u1", iat: answer.issued_at / 1000, nbf: answer.issued_at / 1000,
    exp: answer.expires_at / 1000, jti: answer.token_id, oa_user_id: "u1", oa_org_id: "o1",
    oa_session_id: "s1", oa_device_id: "d1", oa_sync_scopes: ["runtime.run_events"],
    oa_sync_topics: ["run:a:events"], oa_sync_streams: ["runtime.run.b.events"],
    oa_claims_version: "oa_sync_claims_v1",
  });
});

test("tokens are minted under the names of older backends too, with the same answers", async (t) => {
  const operator = await operate(t, { settings: { KHALA_MINT_KEY: "a-mint-key-of-enough-characters" } });
  const names = ["/api/sync/token", "/api/v1/sync/token", "/internal/v1/sync/token"];
  const asked = { user_id: "u1", org_id: "o1", scopes: ["runtime.run_events"], topics: ["run:a:events"], ttl_seconds: 120, device_id: "d1", session_id: "s1" };
  const stable = ({ token, token_id: id, issued_at: issued, expires_at: expires, request_id: request, ...answer }) =>
    ({ ...answer, lasts: expires - issued, has: [typeof token, typeof id, typeof request] });
  const cases = [[asked], [{ guest_scope: "g" }], [{ user_id: "u", ttl_seconds: 59 }], [{ user_id: "u", scopes: ["runtime.nothing"] }], ["{"], [[]],
    [asked, { authorization: "Bearer a-mint-key-of-enough-characters" }], [{ scopes: ["runtime.read_all"] }, { authorization: "Bearer a-mint-key-of-enough-characters" }],
    [asked, { authorization: "" }], [asked, { authorization: "Bearer wrong" }], [asked, { authorization: `Bearer ${operator.reader}` }]];
  for (const [body, headers] of cases) {
    const answers = [];
    for (const name of names) {
      const text = typeof body === "string" ? body : JSON.stringify(body);
      const response = await operator.ask("POST", name, text, headers);
      const { session_id: session, ...answer } = stable(JSON.parse(response.body));
      answers.push({ status: response.status, answer, session: body.session_id ?? typeof session, type: response.headers["content-type"] });
    }
    assert.deepEqual(answers[1], answers[0]);
    assert.deepEqual(answers[2], answers[0]);
  }
  for (const name of names) {
    const get = await operator.get(name);
    assert.deepEqual([get.status, get.headers.allow], [405, "POST"], name);
  }
});

test("a token has its own id and session and five minutes by default", async (t) => {
  const operator = await operate(t);
  const { body } = await operator.post("/api/sync/token", { guest_scope: "g" });
  assert.match(body, /^[^\n]+\n$/, "one line, as every answer");
  const one = JSON.parse(body);
  const two = await operator.did("/api/sync/token", { guest_scope: "g" });
  assert.equal(one.expires_in, 300);
  assert.equal(one.subject, "guest:g");
  assert.equal(one.device_id, null);
  assert.notEqual(one.token_id, two.token_id);
  assert.notEqual(one.session_id, two.session_id);
});

/** The largest token that the server mints for a topic. */
async function largestToken(operator, topic) {
  const first = await operator.did("/api/sync/token", { topics: [topic] });
  const filler = (bytes) => Array.from({ length: Math.ceil(bytes / 400) }, (_, i) =>
    String(i).padStart(Math.min(400, bytes - i * 400), "x"));
  const mint = (bytes) => operator.post("/api/sync/token", { topics: [topic, ...filler(bytes)] });
  let most = null;
  for (let low = 0, high = 8192; low <= high;) {
    const bytes = (low + high) >> 1;
    const answer = await mint(bytes);
    if (answer.status === 200) [most, low] = [JSON.parse(answer.body).token, bytes + 1];
    else {
      assertError(answer, 413, "payload_too_large");
      high = bytes - 1;
    }
  }
  assert.ok(most.length > 8100 && most.length > first.token.length && most.length <= 8192, `${most.length}`);
  return most;
}

test("the largest minted token works in the query and in a header", async (t) => {
  const operator = await operate(t, { settings: { RUNTIME_KHALA_POLL_MIN_INTERVAL_MS: "0" } });
  const topic = "ü".repeat(256); // the longest name, and each byte of it three in a path
  await operator.did(`topics/${encodeURIComponent(topic)}/events`, { event_type: "e" });
  const token = await largestToken(operator, topic);
  const { url } = operator.server;
  const poll = `${url}/internal/v1/khala/topics/${encodeURIComponent(topic)}/messages?after_seq=0&wait_ms=0`;
  for (const [path, headers] of [[`${poll}&token=${token}`, {}], [poll, { authorization: `Bearer ${token}` }]]) {
    const response = await fetch(path, { headers });
    assert.equal(response.status, 200, await response.clone().text());
    assert.equal((await response.json()).messages.length, 1);
  }
  const stream = await fetch(`${url}/v1/topics/${encodeURIComponent(topic)}/sse?token=${token}&after_seq=0`);
  assert.equal(stream.status, 200);
  await stream.body.cancel();
  const client = await Client.join({ server: operator.server, reader: token });
  await client.subscribe({ topics: [topic], resume_after: { [topic]: 0 } });
  await client.reached(topic, 1);
});

test("a token that is too long is refused with a code in the query and in a header", async (t) => {
  const operator = await operate(t);
  const path = "/internal/v1/khala/topics/a/messages";
  for (const [bytes, inQuery, inHeader] of [[8193, [401, "invalid_token"], [401, "invalid_token"]],
    [20_000, [414, "uri_too_long"], [431, "headers_too_large"]], [300_000, [414, "uri_too_long"], [431, "headers_too_large"]]]) {
    const token = "x".repeat(bytes);
    assertError(await operator.ask("GET", `${path}?token=${token}`, "", { authorization: "" }), ...inQuery);
    assertError(await operator.ask("GET", path, "", { authorization: `Bearer ${token}` }), ...inHeader);
  }
});

test("a lifetime outside its bounds is 422 with the bounds", async (t) => {
  const operator = await operate(t);
  for (const ttl_seconds of [0, 59, 901, -1, 1e300]) {
    const body = assertError(await operator.post("/api/sync/token", { ttl_seconds }), 422, "invalid_ttl");
    assert.deepEqual(body.details, { ttl_seconds_min: 60, ttl_seconds_max: 900 });
  }
  for (const ttl_seconds of [60, 900]) await operator.did("/api/sync/token", { ttl_seconds });
});

test("only the operator key mints tokens", async (t) => {
  const operator = await operate(t);
  const { token } = await operator.did("/api/sync/token", { user_id: "u" });
  for (const authorization of [`Bearer ${token}`, "Bearer x", "Basic x"]) {
    const response = await operator.ask("POST", "/api/sync/token", "{}", { authorization });
    assert.equal(response.status, 401, authorization);
  }
  const response = await operator.ask("GET", "runs/x", undefined, { authorization: `Bearer ${token}` });
  assertError(response, 401, "invalid_token");
});

test("the signing key is generated once, readable by its owner only, and kept over a restart", async (t) => {
  const data = folder(t);
  const first = await operate(t, { data });
  const path = join(data, "sync-signing.jwk");
  assert.equal(statSync(path).mode & 0o777, 0o600);
  const key = readFileSync(path, "utf8");
  const { token } = await first.did("/api/sync/token", { user_id: "u" });
  await first.server.stop();
  await operate(t, { data });
  assert.equal(readFileSync(path, "utf8"), key);
  assert.equal(run(["token", "inspect", token, "--data-dir", data]).code, 0);
});

test("a given secret signs tokens with HS256", async (t) => {
  const secret = "a-secret-of-more-than-32-characters-in-all";
  const operator = await operate(t, { settings: {
    RUNTIME_SYNC_TOKEN_SIGNING_KEY: secret, RUNTIME_SYNC_TOKEN_ISSUER: "https://issuer.example" } });
  const { token, kid, issuer } = await operator.did("/api/sync/token", { user_id: "u" });
  const [header, claims, signature] = token.split(".");
  assert.equal(createHmac("sha256", secret).update(`${header}.${claims}`).digest("base64url"), signature);
  assert.equal(kid, "sync-auth-v1");
  assert.equal(issuer, "https://issuer.example");
  assert.equal(claimsOf(token).claims.iss, issuer);
});

test("a changed key file is loaded at run time, and a bad one is ignored", async (t) => {
  const place = folder(t);
  const path = join(place, "keys.json");
  const key = (kid) => ({ kty: "oct", kid, k: Buffer.from(`${kid} secret of thirty-two characters`).toString("base64url") });
  const write = (text) => {
    writeFileSync(`${path}.new`, text);
    renameSync(`${path}.new`, path);
  };
  write(JSON.stringify({ keys: [key("one")] }));
  const operator = await operate(t, { settings: { RUNTIME_SYNC_JWKS_FILE: path, RUNTIME_SYNC_TOKEN_ISSUER: "khala" } });
  const kid = async () => (await operator.did("/api/sync/token", {})).kid;
  assert.equal(await kid(), "one");
  write(JSON.stringify({ keys: [key("two"), key("one")] }));
  await operator.server.saw("log", /signing_keys\.loaded/);
  assert.equal(await kid(), "two");
  write("{");
  await operator.server.saw("log", /signing_keys\.kept/);
  assert.equal(await kid(), "two");
  write(JSON.stringify({ keys: [key("three")] }));
  operator.server.kill("SIGHUP");
  await operator.server.saw("log", /signing_keys\.loaded[\s\S]*signing_keys\.loaded/);
  assert.equal(await kid(), "three");
});

test("a server without usable keys does not start and names the file", async (t) => {
  const path = join(folder(t), "keys.json");
  writeFileSync(path, '{"keys":[]}');
  const { code, problem } = run(["serve", "--bind", "127.0.0.1:0", "--data-dir", folder(t)],
    { settings: { RUNTIME_SYNC_JWKS_FILE: path, RUNTIME_SYNC_TOKEN_ISSUER: "khala" } });
  assert.equal(code, 3);
  assert.match(problem, /keys\.json/);
});

test("minted tokens name their issuer, which is khala by default", async (t) => {
  const operator = await operate(t);
  const { token, issuer } = await operator.did("/api/sync/token", { user_id: "u" });
  assert.equal(issuer, "khala");
  assert.equal(claimsOf(token).claims.iss, "khala");
});

test("a server with a key file and without an issuer does not start and says why", async (t) => {
  const path = join(folder(t), "keys.json");
  writeFileSync(path, JSON.stringify({ kty: "oct", kid: "k", k: "A".repeat(43) }));
  for (const verb of [["serve", "--bind", "127.0.0.1:0", "--data-dir", folder(t)], ["config", "--check"]]) {
    const { code, problem } = run(verb, { settings: { RUNTIME_SYNC_JWKS_FILE: path } });
    assert.equal(code, 2);
    assert.match(problem, /^khala: RUNTIME_SYNC_JWKS_FILE is set, and RUNTIME_SYNC_TOKEN_ISSUER is not: /);
    assert.equal(run(verb, { settings: { RUNTIME_SYNC_JWKS_FILE: path, RUNTIME_SYNC_TOKEN_ISSUER: "" } }).code, 2);
  }
});

test("a token with an unknown scope is not minted, and the answer names the scope", async (t) => {
  const operator = await operate(t);
  const scopes = ["runtime.run_events", "runtime.run_event"];
  const { message } = assertError(await operator.post("/api/sync/token", { user_id: "u", scopes }), 422, "invalid_scope");
  assert.match(message, /^The scope 'runtime\.run_event' is not known\. The scopes are .*runtime\.run_events/);
  const long = "s".repeat(640);
  assert.ok(assertError(await operator.post("/api/sync/token", { scopes: [long] }), 422, "invalid_scope").message.endsWith("."));
  const url = `http://${operator.server.host}:${operator.server.port}`;
  for (const how of [["--url", url], ["--offline"]]) {
    const minted = run(["token", "mint", "--user", "u", "--scopes", scopes.join(), ...how, "--data-dir", operator.data]);
    assert.equal(minted.code, 1);
    assert.match(minted.problem, /^khala: invalid_scope: The scope 'runtime\.run_event' is not known\./);
    assert.equal(minted.out, "");
  }
});

test("minting warns of a token that opens nothing", async (t) => {
  const operator = await operate(t);
  const run_events = { scopes: ["runtime.run_events"] };
  const [append, cancel] = [{ scopes: ["runtime.append"] }, { scopes: ["runtime.cancel"] }];
  const closed = [
    [{}, /no scope/], [{ user_id: "u" }, /no scope/], [run_events, /no user/],
    [{ user_id: "u", topics: ["run:a:events"] }, /none of the granted topics/],
    [{ user_id: "u", streams: ["runtime.run.a.events"] }, /none of the granted topics/],
    [{ user_id: "u", ...run_events, topics: ["worker:a:lifecycle"] }, /none of the granted topics/],
    [{ ...run_events, topics: ["run:*:events"] }, /none of the granted topics/],
    [{ ...run_events, topics: ["runtime.run_summaries"] }, /none of the granted topics/],
    [{ user_id: "u", ...run_events, topics: ["run:a"] }, /none of the granted topics/],
    [{ ...append }, /no user/], [{ ...cancel }, /no user/], [{ user_id: "u", scopes: ["runtime.replay_all"] }, /no user/],
    [{ user_id: "u", ...cancel, topics: ["worker:a:lifecycle"] }, /none of the granted topics/],
    [{ ...append, topics: ["runtime.notifications", "run:*:events"] }, /none of the granted topics/],
    [{ user_id: "u", ...append, topics: ["runtime.run_summaries"] }, /none of the granted topics/],
  ];
  for (const [request, words] of closed) {
    const { warnings } = await operator.did("/api/sync/token", request);
    assert.equal(warnings?.length, 1, JSON.stringify(request));
    assert.match(warnings[0], /^This token opens nothing: /);
    assert.match(warnings[0], words);
  }
  const open = [
    { user_id: "u", ...run_events }, { scopes: ["runtime.read_all"] }, { topics: ["demo"] }, { topics: ["room:*"] },
    { streams: ["runtime.topic.demo"] }, { ...run_events, topics: ["run:a:events"] },
    { org_id: "o", ...run_events, topics: ["run:*:events"] }, { user_id: "u", ...run_events, topics: ["worker:a:lifecycle", "demo"] },
    { user_id: "u", ...append }, { user_id: "u", ...cancel }, { ...append, topics: ["run:a:events"] }, { ...cancel, streams: ["runtime.run.a.events"] },
    { ...append, topics: ["worker:a:lifecycle"] }, { user_id: "u", ...append, topics: ["runtime.notifications"] },
    { user_id: "u", ...cancel, topics: ["run:*:events"] }, { ...append, topics: ["room:*"] },
  ];
  for (const request of open) {
    assert.equal((await operator.did("/api/sync/token", request)).warnings, undefined, JSON.stringify(request));
  }
  const url = `http://${operator.server.host}:${operator.server.port}`;
  for (const how of [["--url", url], ["--offline"]]) {
    const minted = run(["token", "mint", "--user", "u", ...how, "--data-dir", operator.data]);
    assert.equal(minted.code, 0);
    assert.match(minted.problem, /^khala: This token opens nothing: it has no scope and grants no topic\.\n$/);
    assert.match(minted.out, /^[\w.-]+\n$/);
    assert.equal(run(["token", "mint", "--topics", "demo", ...how, "--data-dir", operator.data]).problem, "");
  }
});

test("old secrets stay valid during a rotation, and a connected client resumes across it", async (t) => {
  const data = folder(t);
  const [old, young] = ["the-old-secret-of-more-than-32-characters", "the-young-secret-of-more-than-32-characters"];
  const [oldKey, youngKey] = ["old-operator-key-0123456789", "young-operator-key-0123456789"];
  const begin = (key, settings) => {
    writeFileSync(join(data, "operator.key"), key, { mode: 0o600 });
    // A generated key in the database precedes the file.
    return operate(t, { data, settings: { ...settings, ...(onPostgres ? { KHALA_OPERATOR_KEY: key } : {}) } });
  };
  const append = (operator, key) => operator.ask("POST", "/internal/v1/topics/demo/events",
    JSON.stringify({ event_type: "said", payload: {} }), { authorization: `Bearer ${key}` });
  const follow = (operator, token, seq) => Stream.open(operator, streamPath("demo", `after_seq=${seq}&token=${token}`));
  const signer = (token) => {
    const [header, claims, signature] = token.split(".");
    const signed = (secret) => createHmac("sha256", secret).update(`${header}.${claims}`).digest("base64url") === signature;
    return [old, young].find(signed);
  };

  let operator = await begin(oldKey, { RUNTIME_SYNC_TOKEN_SIGNING_KEY: old });
  const { token } = await operator.did("/api/sync/token", { topics: ["demo"] });
  assert.equal(signer(token), old);
  assert.equal((await append(operator, oldKey)).status, 200);
  const before = await follow(operator, token, 0);
  await before.until(() => before.lastSeq === 1, "the first event");
  await operator.server.stop();

  operator = await begin(youngKey, { RUNTIME_SYNC_TOKEN_SIGNING_KEY: young, KHALA_OPERATOR_KEY_PREVIOUS: oldKey,
    RUNTIME_SYNC_TOKEN_FALLBACK_SIGNING_KEYS: `a-still-older-secret-of-32-characters,${old}` });
  const during = await follow(operator, token, before.lastSeq);
  assert.equal(during.status, 200);
  assert.equal((await append(operator, oldKey)).status, 200);
  assert.equal((await append(operator, youngKey)).status, 200);
  assert.equal((await append(operator, `${oldKey}x`)).status, 401);
  await during.until(() => during.lastSeq === 3, "the events during the rotation");
  const { token: fresh } = await operator.did("/api/sync/token", { topics: ["demo"] });
  assert.equal(signer(fresh), young);
  await operator.server.stop();

  operator = await begin(youngKey, { RUNTIME_SYNC_TOKEN_SIGNING_KEY: young });
  assert.equal((await append(operator, oldKey)).status, 401);
  assert.deepEqual(await (await follow(operator, token, 3)).refused(), [401, "invalid_token"]);
  assert.equal((await follow(operator, fresh, 3)).status, 200);
});

test("khala keys rotate replaces a generated key beside the server, and no token is refused", async (t) => {
  const data = folder(t);
  const rotate = (...args) => {
    const { code, out, problem } = run(["keys", "rotate", "--json", "--data-dir", data, ...args]);
    assert.equal(code, 0, problem);
    return JSON.parse(out);
  };
  if (!onPostgres) assert.match(run(["keys", "rotate", "--data-dir", data]).problem, /no signing key was generated yet/);
  let operator = await operate(t, { data });
  const mint = () => operator.did("/api/sync/token", { topics: ["demo"] });
  const read = async (token) => (await operator.ask("GET", "/v1/topics/demo/messages", undefined, { authorization: `Bearer ${token}` })).status;
  const first = await mint();
  const now = Date.now() / 1000;
  const next = rotate();
  assert.ok(next.signs_from >= now + 29 && next.signs_from <= now + 60 && next.old_keys_end === next.signs_from + 930, JSON.stringify(next));
  assert.match(next.kid, /^sync-auth-v1-[0-9a-f-]{36}$/);
  await operator.server.saw("log", /signing_keys\.loaded keys=2/);
  assert.equal(statSync(join(data, "sync-signing.jwk")).mode & 0o777, 0o600);
  assert.equal((await mint()).kid, "sync-auth-v1", "the new key waits until every server knows it");
  assert.equal(await read(first.token), 200);
  await operator.server.stop();

  operator = await operate(t, { data, settings: { KHALA_CLOCK_OFFSET_MS: "60000" } });
  const second = await mint();
  assert.equal(second.kid, next.kid);
  assert.deepEqual([await read(first.token), await read(second.token)], [200, 200]);
  const last = rotate("--now");
  await operator.server.saw("log", /signing_keys\.loaded keys=1/);
  assert.deepEqual([await read(first.token), await read(second.token)], [401, 401]);
  const third = await mint();
  assert.deepEqual([third.kid, await read(third.token)], [last.kid, 200]);
  await operator.server.stop();

  operator = await operate(t, { data, settings: { RUNTIME_SYNC_TOKEN_SIGNING_KEY: "a-secret-of-more-than-32-characters-here" } });
  const given = run(["keys", "rotate", "--data-dir", data], { settings: { RUNTIME_SYNC_TOKEN_SIGNING_KEY: "a-secret-of-more-than-32-characters-here" } });
  assert.equal(given.code, 1);
  assert.match(given.problem, /the keys are settings: .*RUNTIME_SYNC_TOKEN_FALLBACK_SIGNING_KEYS/);
});

test("minting with public keys only is answered 501", async (t) => {
  const path = join(folder(t), "keys.json");
  writeFileSync(path, JSON.stringify({ kty: "EC", crv: "P-256", kid: "public",
    x: "aQLwdymUabXP5V6z730PpnuNyBhLtgjW9BzWXQyg7n4", y: "1NDYQeI7grkNN5XKTE4_r63YlkBUoykHJ6kMoyqei8I" }));
  const operator = await operate(t, { settings: { RUNTIME_SYNC_JWKS_FILE: path, RUNTIME_SYNC_TOKEN_ISSUER: "khala" } });
  assertError(await operator.post("/api/sync/token", {}), 501, "signing_key_missing");
});

test("a refused token names its claim and rule to operators, and only the code to the peer", async (t) => {
  const operator = await operate(t);
  const now = Math.floor(Date.now() / 1000);
  const at = ["--data-dir", operator.data];
  const cases = [
    ["invalid_token", /^iss: /, { iss: "another" }], ["invalid_token", /^aud: /, { aud: "another" }],
    ["invalid_token", /^oa_claims_version: /, { oa_claims_version: "v0" }], ["invalid_token", /^exp: is required$/, { exp: undefined }],
    ["invalid_token", /^oa_sync_topics: /, { oa_sync_topics: "room:1" }], ["invalid_token", /^oa_user_id: /, { oa_user_id: "u", oa_guest_scope: "g" }],
    ["token_expired", /^exp: must be later/, { exp: now - 1 }], ["token_not_yet_valid", /^nbf: /, { nbf: now + 600 }],
    ["token_not_yet_valid", /^iat: /, { iat: now + 600, exp: now + 900 }], ["token_too_old", /^iat: must be less/, { iat: now - 5000 }],
    ["missing_iat", /^iat: is required$/, { iat: undefined }], ["missing_jti", /^jti: is required/, { jti: undefined }],
  ];
  for (const [code, rule, claims] of cases) {
    const token = operator.sign(claims);
    const answer = await operator.ask("GET", "/v1/topics/room:1/snapshot", undefined, { authorization: `Bearer ${token}`, "x-request-id": "mine" });
    const { message, details } = assertError(answer, 401, code);
    assert.doesNotMatch(`${message} ${JSON.stringify(details)}`, /must|required/);
    const { decisions: [why] } = await operator.read("khala/why?limit=1");
    assert.deepEqual([why.code, why.connection], [code, "mine"]);
    assert.match(why.rule, rule);
    const inspected = run(["token", "inspect", token, "--json", ...at]);
    assert.equal(inspected.code, 1);
    assert.deepEqual([JSON.parse(inspected.out).status, JSON.parse(inspected.out).rule], [code, why.rule]);
  }
  const foreign = `${operator.sign({}).split(".").slice(0, 2).join(".")}.${"A".repeat(43)}`;
  assert.match(run(["token", "inspect", foreign, ...at]).out, /\nstatus invalid_token\nrule signature: must be made with the key that kid names\n$/);
  assert.match(run(["why", "--url", operator.server.url, ...at]).out, /denied missing_jti {2}rule="jti: is required/);
  assert.match(operator.server.log, /client\.denied code=token_expired .*rule="exp: must be later than now"/);
});

test("khala token mints with and without a server, and inspects tokens", async (t) => {
  const operator = await operate(t);
  const at = ["--data-dir", operator.data];
  const url = `http://${operator.server.host}:${operator.server.port}`;
  const options = ["--user", "u", "--scopes", "runtime.run_events,runtime.audit", "--topics", "a,b", "--ttl", "60"];
  for (const how of [["--url", url], ["--offline"]]) {
    const minted = run(["token", "mint", ...options, ...how, ...at]);
    assert.equal(minted.code, 0, minted.problem);
    assert.match(run(["token", "mint", "--json", ...how, ...at]).out, /^[^\n]+\n$/);
    const { claims } = claimsOf(minted.out.trim());
    assert.deepEqual(claims.oa_sync_scopes, ["runtime.run_events", "runtime.audit"]);
    assert.deepEqual(claims.oa_sync_topics, ["a", "b"]);
    const inspected = run(["token", "inspect", minted.out.trim(), "--json", ...at]);
    assert.equal(inspected.code, 0);
    assert.deepEqual(JSON.parse(inspected.out).claims, claims);
    assert.equal(JSON.parse(inspected.out).status, "ok");
    const touched = run(["token", "inspect", `${minted.out.trim()}A`, "--json", ...at]);
    assert.equal(touched.code, 1);
    assert.equal(JSON.parse(touched.out).status, "invalid_token");
    assert.equal(run(["token", "mint", "--ttl", "5", ...how, ...at]).code, 1);
  }
  assert.equal(run(["token", "inspect", "no token", ...at]).code, 1);
  assert.equal(run(["token", "mint", "--ttl", "x", ...at]).code, 2);
  assert.equal(run(["token"]).code, 2);
});

test("one unsound key of a key file is refused by name, and the sound keys serve", async (t) => {
  const place = folder(t);
  const path = join(place, "keys.json");
  const rsa = generateKeyPairSync("rsa", { modulusLength: 2048 });
  const ec = generateKeyPairSync("ec", { namedCurve: "P-256" });
  const good = { ...rsa.publicKey.export({ format: "jwk" }), kid: "good" };
  const point = { ...ec.publicKey.export({ format: "jwk" }), kid: "point" };
  const bytes = Buffer.from(good.n, "base64url");
  const number = (change) => {
    const changed = Buffer.from(bytes);
    change(changed);
    return changed.toString("base64url");
  };
  const huge = Buffer.alloc(9, 1).toString("base64url");
  const off = Buffer.from(point.y, "base64url");
  off[31] ^= 1;
  const bad = [
    [{ ...good, kid: "e1", e: "AQ" }, /exponent 'e' is 1/],
    [{ ...good, kid: "e-even", e: "Ag" }, /exponent 'e' is even/],
    [{ ...good, kid: "e-huge", e: huge }, /more than 64 bits/],
    [{ ...good, kid: "e-none", e: undefined }, /exponent 'e' is not base64url/],
    [{ ...good, kid: "n-even", n: number((n) => { n[255] &= 0xfe; }) }, /modulus 'n' is even/],
    [{ ...good, kid: "n-2047", n: number((n) => { n[0] &= 0x7f; n[0] |= 0x40; }) }, /fewer than 2048 bits/],
    [{ ...good, kid: "n-1024", n: bytes.subarray(128).toString("base64url") }, /fewer than 2048 bits|leading zeros/],
    [{ ...point, kid: "off-curve", y: off.toString("base64url") }, /not a point of P-256/],
    [{ ...point, kid: "zero", x: "A".repeat(43), y: "A".repeat(43) }, /not a point of P-256/],
    [{ ...good, kid: "good" }, /same id/],
  ];
  const write = (keys) => {
    writeFileSync(`${path}.new`, JSON.stringify({ keys }));
    renameSync(`${path}.new`, path);
  };
  write([good, ...bad.map(([key]) => key), point]);
  const settings = { RUNTIME_SYNC_JWKS_FILE: path, RUNTIME_SYNC_TOKEN_ISSUER: "khala" };
  const operator = await operate(t, { settings });
  for (const [key, reason] of bad) {
    const line = operator.server.log.split("\n").find((one) => one.includes("signing_key.refused") && one.includes(`kid=${key.kid} `) && reason.test(one));
    assert.ok(line, `${key.kid}: ${operator.server.log}`);
  }
  assert.equal((await scrape(operator)).get("khala_signing_keys_refused"), bad.length);
  const signed = (kid, alg, sign) => {
    const text = [{ alg, kid, typ: "JWT" }, { ...usualClaims(), oa_sync_scopes: ["runtime.read_all"] }].map(encode).join(".");
    return `${text}.${sign(Buffer.from(text)).toString("base64url")}`;
  };
  const status = async (token) => (await operator.ask("GET", "/api/events?limit=1", undefined, { authorization: `Bearer ${token}` })).status;
  assert.equal(await status(signed("good", "RS256", (text) => createSign("sha256").update(text).sign(rsa.privateKey))), 200);
  assert.equal(await status(signed("point", "ES256", (text) => createSign("sha256").update(text).sign({ key: ec.privateKey, dsaEncoding: "ieee-p1363" }))), 200);
  // With an exponent of 1 the padded digest is its own signature.
  const forged = (text) => Buffer.concat([Buffer.from([0, 1]), Buffer.alloc(202, 0xff), Buffer.from("003031300d060960864801650304020105000420", "hex"), createHash("sha256").update(text).digest()]);
  assert.equal(forged("").length, 256);
  assert.equal(await status(signed("e1", "RS256", forged)), 401);
  const findings = JSON.parse(run(["doctor", "--json", "--data-dir", operator.data], { settings }).out).checks.filter(({ check }) => check === "keys");
  assert.ok(findings.some(({ message }) => /the key 'e1' is not used: its exponent 'e' is 1/.test(message)), JSON.stringify(findings));
  // A set without a sound key is not loaded; the old one stays.
  write([bad[0][0]]);
  await operator.server.saw("log", /signing_keys\.kept.*'e1' cannot be used: its exponent 'e' is 1/);
  write([good]);
  await operator.server.saw("log", /signing_keys\.loaded/);
  assert.equal((await scrape(operator)).get("khala_signing_keys_refused"), 0);
});
