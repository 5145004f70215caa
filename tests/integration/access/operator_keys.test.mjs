// Operator keys with names and roles, what each role may call, and the record of what operators do.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { join } from "node:path";
import { test } from "../../lib/cases.mjs";
import { onPostgres, sqliteOnly } from "../../lib/database.mjs";
import { assertError, run, startVerb } from "../../lib/khala.mjs";
import { openWith, REFUSE_REVOCATIONS, REVOKED } from "../../lib/key_connections.mjs";
import { operate, refused, textOf } from "../../lib/operator.mjs";
import { pollPath, socketPath, streamPath } from "../../lib/paths.mjs";
import { alter } from "../../lib/store.mjs";
import { until } from "../../lib/wait.mjs";

const ROLES = ["admin", "append", "mint", "read", "metrics"];
const ROUTES = JSON.parse(execFileSync(join(process.env.KHALA_BUILD, "khala_routes"), { encoding: "utf8" }));
const PARAMETERS = { topic: "room:1", owner: "user:a", projection: "run_summary" };

const bearer = (key) => ({ authorization: `Bearer ${key}`, "content-type": "application/json" });

async function add(operator, name, role) {
  return (await operator.did("keys", { name, role }, 201)).key;
}

async function keysOf(operator) {
  const keys = { };
  for (const role of ROLES) keys[role] = await add(operator, `the-${role}`, role);
  return keys;
}

/** The head of an answer, and its body unless it stays open. */
async function asked(operator, { method, path }, headers) {
  const text = path.replace(/\{(\w+)\}/g, (_, name) => encodeURIComponent(PARAMETERS[name] ?? "none"));
  const { request, answer: head } = operator.begin(method, text, headers);
  request.end(method === "POST" || method === "PUT" ? "{}" : undefined);
  const response = await head;
  if (/event-stream/.test(response.headers["content-type"] ?? "")) {
    request.destroy();
    return { status: response.statusCode, body: {} };
  }
  const body = await textOf(response);
  return { status: response.statusCode, body: response.headers["content-type"] === "application/json" && body ? JSON.parse(body.split("\n")[0].replace(/[[,]$/, "[]}")) : {} };
}

const events = async (operator, type) => (await operator.log()).filter((event) => event.event_type.startsWith(type ?? "operator."));

test("each role may call exactly its routes of the route table", async (t) => {
  const operator = await operate(t);
  const keys = await keysOf(operator);
  assert.ok(ROUTES.length > 60);
  for (const role of ROLES) {
    for (const route of ROUTES.filter(({ path }) => path !== "/api/events/stream")) {
      const what = `${role}: ${route.method} ${route.path}`;
      const { status, body } = await asked(operator, route, bearer(keys[role]));
      if (route.roles.includes(role)) {
        assert.ok(status !== 401 && body.error !== "forbidden_role", `${what}: ${status} ${JSON.stringify(body)}`);
      } else if (route.roles.length > 0) {
        assert.deepEqual([status, body.error, body.details], [403, "forbidden_role", { role, roles: route.roles }], what);
        assert.match(body.message, new RegExp(`^The key the-${role} has the role ${role}\\. This request needs the role `));
      } else if (route.takes_token) {
        assert.deepEqual([status, body.error], [401, "invalid_token"], what);
      } else {
        assert.equal(status, 200, what);
      }
    }
  }
});

test("a token with runtime.dashboard reads the routes of operators, and changes nothing", async (t) => {
  const operator = await operate(t, { settings: { KHALA_MINT_KEY: "a-mint-key-of-enough-characters" } });
  const token = await operator.token({ scopes: ["runtime.dashboard"] });
  const narrowed = await operator.token({ scopes: ["runtime.dashboard"], topics: ["room:1"] });
  for (const route of ROUTES.filter(({ needs_key }) => needs_key)) {
    const what = `${route.method} ${route.path}`;
    const { status, body } = await asked(operator, route, bearer(token));
    if (route.method === "GET" && route.roles.includes("read")) {
      assert.ok(status !== 401 && status !== 403, `${what}: ${status}`);
      assert.equal((await asked(operator, route, bearer(narrowed))).body.error, "forbidden_topic", what);
    } else {
      assert.ok(status === 401 || status === 403, `${what}: ${status} ${JSON.stringify(body)}`);
    }
  }
  for (const path of ["/api/events", "/api/events/export", "/events", streamPath("runtime.audit"), pollPath("runtime.audit")]) {
    assert.equal((await operator.ask("GET", path, undefined, bearer(token))).status, 403, path);
  }
  assert.equal((await operator.get(`nodes?token=${token}`)).status, 200, "the header has the operator key");
  assert.equal((await operator.ask("GET", `nodes?token=${token}`, undefined, { authorization: "" })).status, 401);
  const ended = operator.sign({ oa_sync_scopes: ["runtime.dashboard"], exp: 1 });
  assertError(await operator.ask("GET", "nodes", undefined, bearer(ended)), 401, "token_expired");
  // Neither a key of the role mint nor a key that only appends makes such a token.
  const mint = await add(operator, "mint", "mint");
  for (const key of [mint, "a-mint-key-of-enough-characters"]) {
    for (const scope of ["runtime.dashboard", "runtime.read_all", "runtime.replay_all", "runtime.audit"]) {
      assertError(await operator.ask("POST", "/api/sync/token", JSON.stringify({ scopes: [scope] }), bearer(key)), 403, "forbidden_scope");
    }
    const body = JSON.stringify({ user_id: "u", scopes: ["runtime.run_events", "runtime.append", "runtime.cancel"] });
    assert.equal((await operator.ask("POST", "/api/sync/token", body, bearer(key))).status, 200);
  }
});

test("a key of the role read reads client routes in the header only, and no WebSocket takes a key", async (t) => {
  const operator = await operate(t);
  const keys = await keysOf(operator);
  await operator.did("topics/room:1/events", { event_type: "said", payload: { n: 1 }, owner_user_id: "ada" });
  for (const role of ["admin", "read"]) {
    const { status, body } = await operator.ask("GET", pollPath("room:1"), undefined, bearer(keys[role]));
    assert.deepEqual([status, JSON.parse(body).messages.length], [200, 1]);
    for (const path of [pollPath("room:1"), streamPath("room:1"), "/events", "/api/events"]) {
      const query = `${path}${path.includes("?") ? "&" : "?"}token=${keys[role]}`;
      assertError(await operator.ask("GET", query, undefined, { authorization: "" }), 401, "invalid_token");
    }
    for (const path of [socketPath("room:1"), "/socket/websocket?vsn=2.0.0"]) {
      assertError(await operator.ask("GET", path, undefined, bearer(keys[role])), 401, "invalid_token");
    }
  }
  const appended = await operator.ask("POST", "/v1/runs", JSON.stringify({ run_id: "of-ada", owner_user_id: "ada" }), bearer(keys.append));
  assert.equal(appended.status, 201, appended.body);
});

test("keys are shown once, stored as hashes, and survive a restart by kill", async (t) => {
  const first = await operate(t);
  const key = await add(first, "ci", "append");
  assert.match(key, /^khk_[A-Za-z0-9_-]{43}$/);
  const { items } = await first.read("keys");
  assert.deepEqual(items.map(({ name, role, source }) => [name, role, source]), [["operator", "admin", "file"], ["ci", "append", "store"]]);
  assert.ok(!JSON.stringify(items).includes(key));
  assert.ok(!JSON.stringify(await first.log()).includes(key.slice(4)));
  assert.ok(!first.server.log.includes(key.slice(4)));
  await first.server.crash();
  const second = await operate(t, { data: first.data });
  assert.equal((await second.ask("POST", "runs", "{}", bearer(key))).status, 201);
  await second.did("keys/ci/rotate", { overlap_seconds: 0 });
  await second.server.crash();
  const third = await operate(t, { data: first.data });
  assertError(await third.ask("POST", "runs", "{}", bearer(key)), 401, "invalid_token");
  assert.equal((await third.ask("DELETE", "keys/ci")).status, 200);
  await third.server.crash();
  const fourth = await operate(t, { data: first.data });
  assert.deepEqual((await fourth.read("keys")).items.map(({ name }) => name), ["operator"]);
});

test("a rotated key is valid beside the new one until its overlap ends, without a restart", async (t) => {
  const operator = await operate(t);
  const can = async (key) => (await operator.ask("GET", "runs", undefined, bearer(key))).status === 200;
  const first = await add(operator, "reader", "read");
  const { key: second, previous_until } = await operator.did("keys/reader/rotate", { overlap_seconds: 3600 });
  assert.ok(previous_until > Date.now() + 3_500_000 && previous_until < Date.now() + 3_700_000);
  assert.deepEqual([await can(first), await can(second)], [true, true]);
  const { key: third, keys_revoked } = await operator.did("keys/reader/rotate", { overlap_seconds: 1 });
  assert.equal(keys_revoked, 1, "one old key at most");
  assert.deepEqual([await can(first), await can(third)], [false, true]);
  await until(async () => !(await can(second)), "the end of the overlap");
  const { key: fourth } = await operator.did("keys/reader/rotate", { overlap_seconds: 0 });
  assert.deepEqual([await can(third), await can(fourth)], [false, true]);
  const { body } = await operator.post("keys/reader/rotate", "");
  assert.ok(JSON.parse(body).previous_until > Date.now() + 86_000_000, "a day by default");
});

test("a removed key ends its open streams at once, and a key may remove itself", async (t) => {
  const operator = await operate(t);
  const reader = await add(operator, "reader", "read");
  const { request, answer: head } = operator.begin("GET", "/events", bearer(reader));
  request.end();
  const response = await head;
  assert.equal(response.statusCode, 200);
  const ended = textOf(response).catch(() => "");
  const { keys_revoked } = JSON.parse((await operator.ask("DELETE", "keys/reader")).body);
  assert.equal(keys_revoked, 1);
  await ended;
  assertError(await operator.ask("GET", "runs", undefined, bearer(reader)), 401, "invalid_token");
  const admin = await add(operator, "admin-2", "admin");
  const rotated = JSON.parse((await operator.ask("POST", "keys/admin-2/rotate", `{"overlap_seconds":0}`, bearer(admin))).body);
  assert.equal((await operator.ask("DELETE", "keys/admin-2", undefined, bearer(rotated.key))).status, 200);
  assertError(await operator.ask("GET", "runs", undefined, bearer(rotated.key)), 401, "invalid_token");
});

/** A server, a named key of the role admin, and what it has open. */
async function openKey(t) {
  const operator = await operate(t);
  await operator.did("topics/room:1/events", { event_type: "said", payload: {} });
  const key = await add(operator, "backend", "admin");
  return { operator, key, ended: await openWith(operator, key) };
}

const noRevocations = onPostgres ? REFUSE_REVOCATIONS
  : "CREATE TRIGGER refuse BEFORE INSERT ON sync_revocations BEGIN SELECT RAISE(ABORT, 'refused'); END";

test("what a key has open ends with the key: when it is removed, or rotated without overlap", async (t) => {
  for (const end of [(operator) => operator.ask("DELETE", "keys/backend"), (operator) => operator.post("keys/backend/rotate", { overlap_seconds: 0 })]) {
    const { operator, ended } = await openKey(t);
    assert.equal((await end(operator)).status, 200);
    assert.deepEqual(await ended(), REVOKED);
    assert.equal(JSON.parse((await operator.poll("room:1", "after_seq=0")).body).messages.length, 1, "nothing was appended");
  }
});

test("what a rotated key has open ends with the overlap, whenever it was opened", async (t) => {
  const { operator, key, ended } = await openKey(t);
  const { key: present, previous_until } = await operator.did("keys/backend/rotate", { overlap_seconds: 2 });
  const [late, kept] = [await openWith(operator, key), await openWith(operator, present)];
  let isOver = false;
  const all = kept().then((result) => { isOver = true; return result; });
  assert.deepEqual(await ended(), REVOKED);
  assert.ok(Date.now() >= previous_until - 5);
  assert.deepEqual(await late(), REVOKED);
  assert.equal(isOver, false, "the present key goes on");
  assert.equal((await operator.ask("DELETE", "keys/backend")).status, 200);
  assert.deepEqual(await all, REVOKED);
});

test("what a key has open ends also where its revocation cannot be stored", async (t) => {
  for (const end of [(operator) => operator.ask("DELETE", "keys/backend"), (operator) => operator.post("keys/backend/rotate", { overlap_seconds: 0 })]) {
    const { operator, key, ended } = await openKey(t);
    alter(operator.data, noRevocations);
    const { status, body } = await end(operator);
    assert.notEqual(status, 200, body);
    assert.deepEqual(await ended(), REVOKED);
    assertError(await operator.ask("GET", "runs", undefined, bearer(key)), 401, "invalid_token");
  }
});

test("a key whose role this build does not know is refused, listed with its role, and can be removed", async (t) => {
  const first = await operate(t);
  const key = await add(first, "newer", "read");
  await first.server.stop();
  alter(first.data, "UPDATE operator_keys SET role = 'oracle' WHERE name = 'newer'");
  const operator = await operate(t, { data: first.data });
  assertError(await operator.ask("GET", "runs", undefined, bearer(key)), 401, "invalid_token");
  assert.equal((await operator.post("keys", { name: "newer", role: "read" })).status, 409);
  const at = ["--url", operator.server.url, "--data-dir", operator.data];
  assert.match(run(["key", "ls", ...at]).out, /^newer +oracle +store$/m);
  assert.match(run(["key", "rm", "newer", ...at]).out, /^removed newer\n$/);
  assert.deepEqual((await operator.read("keys")).items.map(({ name }) => name), ["operator"]);
  assert.equal(operator.server.log.match(/operator_key\.role_unknown/g).length, 1, "it is logged once");
});

test("names and bodies that are no key are refused before anything is recorded", async (t) => {
  const operator = await operate(t);
  await add(operator, "taken", "read");
  const before = operator.stored();
  for (const body of ["", "{", "[]", "null", "{}", `{"name":"a"}`, `{"name":"a","role":"root"}`, `{"name":"a","role":"read","x":1}`,
    `{"name":"operator","role":"read"}`, `{"name":"${"a".repeat(65)}","role":"read"}`, `{"name":"a\\u0000","role":"read"}`,
    `{"name":"../a","role":"read"}`, `{"name":"\u202ea","role":"read"}`, `{"name":{"a":1},"role":["read"]}`]) {
    const { status, body: text } = await operator.post("keys", body);
    assert.equal(status, 400, `${body}: ${text}`);
  }
  await refused(operator, () => operator.post("keys", { name: "taken", role: "admin" }), 409, "already_exists");
  assert.equal((await operator.post("keys", " ".repeat(5000))).status, 413);
  for (const name of ["none", "operator", "%2e%2e", "A", "a%00", "a".repeat(400), "%ff", "%F0%9F%98%80"]) {
    for (const [method, path] of [["DELETE", `keys/${name}`], ["POST", `keys/${name}/rotate`]]) {
      const { status } = await operator.ask(method, path, method === "POST" ? "{}" : undefined);
      assert.ok(status === 404 || (status === 400 && /%ff|%00/.test(name)), `${method} ${path} ${status}`);
    }
  }
  for (const body of ["1", "{", `{"overlap_seconds":-1}`, `{"overlap_seconds":1e99}`, `{"overlap_seconds":2592001}`, `{"overlap":1}`]) {
    assert.equal((await operator.post("keys/taken/rotate", body)).status, 400, body);
  }
  assert.equal(operator.stored(), before);
  for (const key of ["khk_", `khk_${"A".repeat(43)}`, `khk_${"A".repeat(5000)}`, "khk_\u00e4"]) {
    assert.equal((await operator.ask("GET", "runs", undefined, { authorization: `Bearer ${encodeURI(key)}` })).status, 401);
  }
});

test("at most 256 keys have names", async (t) => {
  const operator = await operate(t);
  for (let i = 0; i < 256; i++) await add(operator, `k${i}`, "metrics");
  const { status } = await operator.post("keys", { name: "more", role: "metrics" });
  assert.equal(status, 503);
  assert.equal((await operator.ask("DELETE", "keys/k0")).status, 200);
  await add(operator, "more", "metrics");
});

test("each act of an operator is an event that only operators and runtime.read_all see", async (t) => {
  const operator = await operate(t, { settings: { KHALA_MINT_KEY: "a-mint-key-of-enough-characters" } });
  const ci = await add(operator, "ci", "mint");
  const minted = JSON.parse((await operator.ask("POST", "/api/sync/token", JSON.stringify({ user_id: "ada", scopes: ["runtime.run_events"], topics: ["room:1"], device_id: "d" }), bearer(ci))).body);
  await operator.ask("POST", "/api/sync/token", JSON.stringify({ user_id: "eve" }), bearer("a-mint-key-of-enough-characters"));
  await operator.did("sync/sessions/revoke", { jtis: ["j"], session_ids: ["s"], device_ids: ["d"], reason: "stolen" });
  await operator.did("keys/ci/rotate", { overlap_seconds: 60 });
  assert.equal((await operator.ask("DELETE", "keys/ci")).status, 200);
  assert.equal((await operator.ask("PUT", "quotas/user:ada", `{"open_runs":5,"subscriptions":null}`)).status, 200);
  assert.equal((await operator.ask("DELETE", "quotas/user:ada")).status, 200);
  await operator.post("retention/run", "{}");
  await operator.did("runs", { run_id: "r" }, 201);
  await operator.did("projectors/reproject", { run_id: "r" });
  await operator.did("projectors/reproject", { all: true });
  const all = await events(operator);
  const by = { key: "operator", role: "admin" };
  assert.deepEqual(all.map(({ event_type, payload: { by: { key }, ...rest } }) => [event_type, key, Object.keys(rest).join()]), [
    ["operator.key_added", "operator", "key_id,name,role"],
    ["operator.token_minted", "ci", "device_id,expires_at,jti,scopes,session_id,streams,subject,topics"],
    ["operator.token_minted", "KHALA_MINT_KEY", "expires_at,jti,scopes,session_id,streams,subject,topics"],
    ["operator.token_revoked", "operator", "reason,session_id"],
    ["operator.token_revoked", "operator", "device_id,reason"],
    ["operator.token_revoked", "operator", "jti,reason"],
    ["operator.key_rotated", "operator", "key_id,name,overlap_seconds"],
    ["operator.key_removed", "operator", "key_id,name"],
    ["operator.quotas_set", "operator", "owner,quotas"],
    ["operator.quotas_removed", "operator", "owner"],
    ["operator.retention_run", "operator", ""],
    ["operator.reprojected", "operator", "run_id"],
    ["operator.reprojected", "operator", "journal"],
  ]);
  assert.deepEqual(all[1].payload, { by: { key: "ci", role: "mint" }, device_id: "d", expires_at: minted.expires_at, jti: minted.token_id,
    scopes: ["runtime.run_events"], session_id: minted.session_id, streams: [], subject: "user:ada", topics: ["room:1"] });
  assert.deepEqual(all[8].payload, { by, owner: "user:ada", quotas: [{ name: "open_runs", value: 5 }, { name: "subscriptions", value: null }] });
  assert.equal(all[7].payload.key_id, all[6].payload.key_id, "the key that was removed is the one of the rotation");
  for (const event of all) assert.deepEqual(event.owner, {});
  assert.ok(!JSON.stringify(all).includes(minted.token.split(".")[2]), "no token is in the log");

  const seenWith = async (claims) => {
    const { status, body } = await operator.ask("GET", "/api/events?limit=200", undefined, bearer(operator.sign(claims)));
    return status === 200 ? JSON.parse(body).items.filter(({ event_type }) => event_type.startsWith("operator.")).length : status;
  };
  const audit = ["runtime.audit", "runtime.dashboard", "runtime.replay_all", "runtime.run_events", "runtime.notifications", "runtime.append"];
  assert.equal(await seenWith({ oa_sync_scopes: ["runtime.read_all"] }), all.length);
  for (const claims of [{ oa_user_id: "ada" }, { oa_user_id: "operator" }, { oa_org_id: "acme" }, { oa_guest_scope: "g" }, {},
    { oa_user_id: "ada", oa_sync_topics: ["runtime.audit"] }, { oa_user_id: "ada", oa_sync_streams: ["runtime.audit"] }]) {
    const seen = await seenWith({ ...claims, oa_sync_scopes: audit });
    assert.ok(seen === 0 || seen === 403, `${JSON.stringify(claims)} saw ${seen}`);
    const token = operator.sign({ ...claims, oa_sync_scopes: audit });
    const exported = await operator.ask("GET", "/api/events/export", undefined, bearer(token));
    assert.doesNotMatch(exported.body, /operator\./);
    const polled = await operator.ask("GET", pollPath("runtime.audit"), undefined, bearer(token));
    assert.doesNotMatch(polled.body, /operator\./);
  }
  assert.equal(run(["verify", "--data-dir", operator.data]).code, 0);
});

test("other signing keys are recorded once", sqliteOnly, async (t) => {
  const operator = await operate(t);
  operator.server.kill("SIGHUP");
  await operator.server.saw("log", /signing_keys\.loaded/);
  assert.equal(run(["keys", "rotate", "--data-dir", operator.data]).code, 0);
  await until(async () => (await events(operator, "operator.signing_keys")).length > 0, "the record of the rotation");
  const [{ payload }] = await events(operator, "operator.signing_keys");
  assert.equal(payload.kids.length, 2);
  operator.server.kill("SIGHUP");
  await operator.server.saw("log", /(signing_keys\.loaded[^]*){3}/);
  await operator.token({ scopes: ["runtime.read_all"] });
  assert.equal((await events(operator, "operator.signing_keys")).length, 1);
});

test("a minted token is found in the log and revoked by its id", async (t) => {
  const operator = await operate(t);
  const { token, token_id } = await operator.did("/api/sync/token", { user_id: "ada", scopes: ["runtime.run_events"] });
  const reads = () => operator.ask("GET", pollPath("runtime.run_summaries"), undefined, bearer(token));
  assert.equal((await reads()).status, 200);
  const at = ["--url", operator.server.url, "--data-dir", operator.data];
  const tail = startVerb(t, ["tail", "--audit", "--since", "1h", "--json", ...at]);
  const [line] = await tail.saw("out", /.*"operator\.token_minted".*"subject":"user:ada".*\n/);
  const found = JSON.parse(line);
  assert.equal(found.payload.jti, token_id);
  assert.equal(run(["token", "revoke", "--jti", found.payload.jti, ...at]).code, 0);
  assertError(await reads(), 401, "token_revoked");
});

test("types that only the server writes are refused everywhere, and imported", async (t) => {
  const operator = await operate(t);
  const keys = await keysOf(operator);
  await operator.did("runs", { run_id: "r", owner_user_id: "ada" }, 201);
  const ada = operator.sign({ oa_user_id: "ada", oa_sync_scopes: ["runtime.append"] });
  for (const event_type of ["operator.token_minted", "run.erased", "operator."]) {
    for (const path of ["runs/r/events", "topics/room:1/events", "notifications", "/api/events/ingest"]) {
      await refused(operator, () => operator.post(path, { event_type, payload: {} }), 403, "reserved_event_type");
    }
    await refused(operator, () => operator.ask("POST", "/v1/runs/r/events", JSON.stringify({ event_type }), bearer(ada)), 403, "reserved_event_type");
    await refused(operator, () => operator.ask("POST", "/api/events/ingest", JSON.stringify({ event_type }), bearer(keys.append)), 403, "reserved_event_type");
    const items = await operator.batch([{ run_id: "r", event_type }, { topic: "room:1", event_type }, { audit: true, event_type }, { run_id: "r", event_type: "run.log" }]);
    assert.deepEqual(items.map(({ status, error }) => error?.error ?? status), ["reserved_event_type", "reserved_event_type", "reserved_event_type", 200]);
  }
  // Payloads of the record are canonical, so an import finds their hashes.
  await operator.did("sync/sessions/revoke", { jtis: ["j"], session_ids: ["s"], device_ids: ["d"], reason: "\"\u00e4\\\u0001" });
  await operator.did("/api/sync/token", { guest_scope: "\u{1f600}\"", scopes: ["runtime.append"], topics: ["a\\b"], device_id: "d" });
  await operator.ask("PUT", "quotas/user:ada", `{"open_runs":5,"subscriptions":null,"bytes_stored":9007199254740991}`);
  await operator.did("keys/the-read/rotate", { overlap_seconds: 5 });
  await operator.did("projectors/reproject", { all: true, journal: true });
  await operator.did("projectors/reproject", { worker_id: "none" }, 404).catch(() => {});
  const exported = (await operator.get("/api/events/export")).body;
  assert.match(exported, /operator\.key_added/);
  const other = await operate(t);
  const imported = await other.ask("POST", "/api/events/import", exported, { "content-type": "application/x-ndjson" });
  assert.equal(imported.status, 200, imported.body);
  assert.deepEqual((await other.log()).map(({ event_id }) => event_id), (await operator.log()).map(({ event_id }) => event_id));
});

test("the verb adds, lists, rotates and removes keys", async (t) => {
  const operator = await operate(t);
  const key = (...words) => run(["key", ...words, "--url", operator.server.url, "--data-dir", operator.data]);
  const added = key("add", "--name", "ci", "--role", "read");
  assert.equal(added.code, 0, added.problem);
  assert.match(added.out, /^khk_[A-Za-z0-9_-]{43}\n$/);
  assert.match(added.problem, /shown only now/);
  assert.equal((await operator.ask("GET", "runs", undefined, bearer(added.out.trim()))).status, 200);
  assert.match(key("ls").out, /^operator +admin +file\nci +read +store\n$/);
  const rotated = key("rotate", "ci", "--overlap", "60");
  assert.match(rotated.out, /^khk_/);
  assert.match(key("ls").out, /the old key is valid until \d+/);
  assert.equal(JSON.parse(key("ls", "--json").out).items.length, 2);
  assert.match(key("rm", "ci").out, /^removed ci\n$/);
  assert.deepEqual([key("revoke", "ci").code, key("rotate", "ci").code], [1, 1]);
  for (const words of [[], ["add"], ["add", "--name", "a"], ["add", "--name", "A", "--role", "read"], ["add", "--name", "a", "--role", "root"],
    ["ls", "--name", "a"], ["rotate"], ["rotate", "a", "--overlap", "x"], ["rm"], ["rm", "../a"], ["frob"]]) {
    assert.equal(key(...words).code, 2, words.join(" "));
  }
  assert.match(run(["key", "frob"]).problem, /key/);
});

test("a verb for keys without a running server says so", sqliteOnly, async (t) => {
  const operator = await operate(t);
  await operator.server.stop();
  const { code, problem } = run(["key", "ls", "--url", operator.server.url, "--data-dir", operator.data]);
  assert.equal(code, 3, problem);
});
