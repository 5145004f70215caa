// The quota of subscriptions of one principal: over all its connections and dialects, exact through
// everything that ends a subscription.
import assert from "node:assert/strict";
import { alone, test } from "../../lib/cases.mjs";
import { assertError } from "../../lib/khala.mjs";
import { memoryBytes, MEASURED, SANITIZED } from "../../lib/machine.mjs";
import { operate } from "../../lib/operator.mjs";
import { AUDIT_SOCKET, socketPath, streamPath } from "../../lib/paths.mjs";
import { Client } from "../../lib/phoenix.mjs";
import { range } from "../../lib/samples.mjs";
import { auditInit, Socket } from "../../lib/socket.mjs";
import { Stream } from "../../lib/sse.mjs";
import { until } from "../../lib/wait.mjs";

const SCOPES = ["runtime.run_events", "runtime.audit"];
const LIMIT = 6;

const serve = (t, limit, more = {}) => operate(t, { settings: { KHALA_QUOTA_SUBSCRIPTIONS: String(limit), ...more } });
const tokenOf = (operator, user, more = {}) => operator.sign({ oa_user_id: user, oa_sync_scopes: SCOPES, ...more });
const names = (prefix, count) => range(1, count).map((i) => `run:${prefix}${i}:events`);
const join = (operator, token) => Client.join(operator, { params: { token } });

/** The use of a principal, as a refusal names it. */
async function used(operator, token, limit = LIMIT) {
  const probe = await join(operator, token);
  const { code, message, quota, used: count, limit: named, retry_after_ms } = await probe.refused("sync:subscribe", { topics: names("probe", limit + 1) });
  probe.close();
  assert.deepEqual([code, quota, named], ["quota_exceeded", "subscriptions", limit]);
  assert.match(message, /quota/);
  assert.ok(retry_after_ms > 0);
  return count;
}

const usedBecomes = (operator, token, count) => until(async () => (await used(operator, token)) === count, `a use of ${count}`);

test("subscriptions count over all connections of a principal, all or none of a subscribe", async (t) => {
  const operator = await operate(t, { settings: { KHALA_QUOTA_SUBSCRIPTIONS: String(LIMIT) } });
  const token = tokenOf(operator, "alice");
  const [first, second] = [await join(operator, token), await join(operator, token)];
  await first.subscribe({ topics: names("a", 4) });
  assert.equal(await used(operator, token), 4);
  const refused = await second.refused("sync:subscribe", { topics: names("b", 3) });
  assert.deepEqual([refused.code, refused.used, refused.limit], ["quota_exceeded", 4, LIMIT]);
  assert.equal(await used(operator, token), 4, "a refused subscribe counts nothing");
  await second.subscribe({ topics: names("b", 2) });
  assert.equal(await used(operator, token), LIMIT);
  // At the limit topics may be subscribed again, and other principals notice nothing.
  await first.subscribe({ topics: names("a", 4) });
  assert.equal(await used(operator, token), LIMIT);
  await (await join(operator, tokenOf(operator, "bob"))).subscribe({ topics: names("a", LIMIT) });
  // What ends a subscription.
  await first.ask("sync:unsubscribe", { topics: names("a", 1) });
  assert.equal(await used(operator, token), LIMIT - 1);
  await first.leave();
  assert.equal(await used(operator, token), 2);
  second.close();
  await usedBecomes(operator, token, 0);
});

test("a stale or refused subscribe counts nothing, and a stale subscription that is dropped neither", async (t) => {
  const operator = await serve(t, LIMIT);
  await operator.did("runs", { run_id: "a1", owner_user_id: "alice" }, 201);
  const token = tokenOf(operator, "alice");
  const client = await join(operator, token);
  const [topic] = names("a", 1);
  assert.equal((await client.refused("sync:subscribe", { topics: [topic], resume_after: { [topic]: 99 } })).code, "stale_cursor");
  assert.equal((await client.refused("sync:subscribe", { topics: ["runtime.notifications"] })).code, "forbidden_topic");
  assert.equal(await used(operator, token), 0);
  // A position of a run that does not exist yet becomes stale when it begins.
  await client.subscribe({ topics: names("later", 1), resume_after: { [names("later", 1)[0]]: 5 } });
  assert.equal(await used(operator, token), 1);
  await operator.did("runs", { run_id: "later1", owner_user_id: "alice" }, 201);
  await client.until((one) => one.of("sync:error").length === 1, "the stale position");
  assert.equal(await used(operator, token), 0);
});

test("a stream and a topic that turn out to be the same count once", async (t) => {
  const operator = await serve(t, LIMIT);
  const token = tokenOf(operator, "alice", { oa_sync_topics: ["late.one", "run:*:events"], oa_sync_streams: ["runtime.topic.late.one"] });
  const client = await join(operator, token);
  await client.subscribe({ streams: ["runtime.topic.late.one"] });
  await client.subscribe({ topics: ["late.one"] });
  assert.equal(await used(operator, token), 2);
  await operator.did("topics/late.one/events", { event_type: "app.x" });
  await client.reached("late.one", 1);
  await usedBecomes(operator, token, 1);
  client.close();
  await usedBecomes(operator, token, 0);
});

test("a fresh token of another principal takes the subscriptions along, if it has room", async (t) => {
  const operator = await serve(t, LIMIT);
  const service = (sub) => operator.sign({ sub, oa_sync_scopes: SCOPES });
  const client = await join(operator, service("one"));
  await client.subscribe({ topics: names("a", 4) });
  assert.equal((await client.ask("sync:refresh", { token: service("two") })).status, "ok");
  assert.equal(await used(operator, service("one")), 0);
  assert.equal(await used(operator, service("two")), 4);
  const other = await join(operator, service("three"));
  await other.subscribe({ topics: names("b", 3) });
  assert.equal((await client.refused("sync:refresh", { token: service("three") })).code, "quota_exceeded");
  assert.deepEqual([await used(operator, service("two")), await used(operator, service("three"))], [4, 3]);
});

test("event streams and sockets of topics count, and are refused in their own words", async (t) => {
  const operator = await serve(t, 3);
  const token = tokenOf(operator, "alice");
  const authorization = { authorization: `Bearer ${token}` };
  const [a, b] = names("a", 2);
  const open = [await Stream.open(operator, streamPath(a, `token=${token}`)), await Stream.open(operator, "/events", authorization),
    await Socket.open(operator, socketPath(b, `token=${token}`))];
  const details = { quota: "subscriptions", used: 3, limit: 3 };
  for (const path of [streamPath(a), "/events"]) {
    const refused = await operator.ask("GET", path, undefined, authorization);
    assert.deepEqual(assertError(refused, 429, "quota_exceeded").details, details, path);
  }
  const refused = await Socket.refused(operator, socketPath(b, `token=${token}`));
  assert.equal(refused.status, 429);
  assert.deepEqual(JSON.parse(refused.body).details, details);
  const audit = await Socket.open(operator, AUDIT_SOCKET);
  audit.say(auditInit(token));
  await audit.until(() => audit.closed, "the close");
  const { code, details: told } = audit.of("error")[0];
  assert.deepEqual([audit.closed.code, code, told.reason, told.quota, told.used, told.limit, told.retry_after_ms],
    [1013, "RATE_LIMITED", "quota_exceeded", "subscriptions", 3, 3, 1000]);
  for (const one of open) one.close();
  await until(async () => (await used(operator, token, 3)) === 0, "nothing is left");
  const last = await Socket.audit(operator, token);
  await last.until((one) => one.of("init_ack").length === 1, "the audit socket");
  assert.equal(await used(operator, token, 3), 1);
  // The operator key is not a principal of a quota.
  for (let i = 0; i < 4; i++) assert.equal((await Stream.open(operator, streamPath(a), { authorization: `Bearer ${operator.key}` })).status, 200);
});

test("an owner's own quota of subscriptions holds from the next subscribe on", async (t) => {
  const operator = await serve(t, LIMIT);
  const set = async (owner, subscriptions) => assert.equal((await operator.ask("PUT", `quotas/${owner}`, JSON.stringify({ subscriptions }))).status, 200);
  const alice = await join(operator, tokenOf(operator, "alice"));
  await alice.subscribe({ topics: names("a", 3) });
  await set("user:alice", 2);
  await set("guest:g", 1);
  const refused = await alice.refused("sync:subscribe", { topics: names("b", 1) });
  assert.deepEqual([refused.code, refused.used, refused.limit], ["quota_exceeded", 3, 2], "what is open stays");
  await alice.subscribe({ topics: names("a", 2) });
  await alice.ask("sync:unsubscribe", { topics: names("a", 3) });
  await alice.subscribe({ topics: names("b", 2) });
  const guest = await join(operator, operator.sign({ oa_guest_scope: "g", oa_sync_scopes: SCOPES }));
  await guest.subscribe({ topics: names("a", 1) });
  assert.equal((await guest.refused("sync:subscribe", { topics: names("b", 1) })).limit, 1);
  await (await join(operator, tokenOf(operator, "bob"))).subscribe({ topics: names("a", LIMIT) });
  await set("user:alice", null);
  await alice.subscribe({ topics: names("a", LIMIT - 2) });
  assert.equal(await used(operator, tokenOf(operator, "alice")), LIMIT);
});

alone("names without a topic cost little, and one principal's memory is bounded", async (t) => {
  const limit = 20_000;
  const operator = await serve(t, limit, { ...MEASURED, KHALA_LOG_LEVEL: "error" });
  const token = tokenOf(operator, "alice");
  await (await join(operator, tokenOf(operator, "bob"))).subscribe({ topics: names("warm", 1000) });
  const before = memoryBytes(operator.server);
  for (let i = 0; i < limit / 1000; i++) {
    const client = await join(operator, token);
    await client.subscribe({ topics: names(`c${i}x`, 1000) });
  }
  const bytes = (memoryBytes(operator.server) - before) / limit;
  t.diagnostic(`${bytes.toFixed(0)} bytes for each name without a topic`);
  assert.ok(SANITIZED || bytes < 1300, `${bytes} bytes for each name`);
  assert.equal((await (await join(operator, token)).refused("sync:subscribe", { topics: ["run:more:events"] })).code, "quota_exceeded");
});
