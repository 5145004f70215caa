// Quotas per owner: each at its border, what uses nothing, what passes, and that the usage survives every end of a server.
import assert from "node:assert/strict";
import { onPostgres } from "../../lib/database.mjs";
import { alone, test } from "../../lib/cases.mjs";
import { assertError, run } from "../../lib/khala.mjs";
import { operate, refused, UNHURRIED } from "../../lib/operator.mjs";
import { range } from "../../lib/samples.mjs";
import { alter, sql } from "../../lib/store.mjs";
import { until } from "../../lib/wait.mjs";

const ROW_BYTES = 256; // that an event or an entity counts beside its texts
const COUNTED = "events, bytes, metadata_bytes, open_runs, open_workers";

const put = (operator, owner, quotas) => operator.ask("PUT", `quotas/${encodeURIComponent(owner)}`, JSON.stringify(quotas));

/** Sets quotas that must be accepted. */
async function set(operator, owner, quotas) {
  const { status, body } = await put(operator, owner, quotas);
  assert.equal(status, 200, body);
  return JSON.parse(body);
}

const usage = async (operator, owner) => (await operator.read(`quotas/${encodeURIComponent(owner)}`)).usage;

/** A request that a quota must refuse. Answers the details. */
async function exceeds(quota, request) {
  const response = await request;
  const { details } = assertError(response, 429, "quota_exceeded");
  assert.equal(details.quota, quota);
  assert.equal(response.headers["retry-after"], details.retry_after_ms ? String(Math.ceil(details.retry_after_ms / 1000)) : undefined);
  return details;
}

/** What the store holds agrees with a count of it. */
function assertCounted(operator) {
  const difference = sql(operator.data, `SELECT count(*) FROM owner_usage u FULL JOIN owner_usage_counted c ON c.owner = u.owner
    WHERE (coalesce(u.events, 0), coalesce(u.bytes, 0), coalesce(u.metadata_bytes, 0), coalesce(u.open_runs, 0), coalesce(u.open_workers, 0))
       <> (coalesce(c.events, 0), coalesce(c.bytes, 0), coalesce(c.metadata_bytes, 0), coalesce(c.open_runs, 0), coalesce(c.open_workers, 0))`);
  assert.equal(difference, "0", `${sql(operator.data, `SELECT owner, ${COUNTED} FROM owner_usage`)}\n${sql(operator.data, `SELECT owner, ${COUNTED} FROM owner_usage_counted`)}`);
}

const owned = (owner_user_id, more = {}) => ({ owner_user_id, ...more });

test("open runs and workers are counted, until they end", async (t) => {
  const operator = await operate(t, { settings: { KHALA_QUOTA_OPEN_RUNS: "2", KHALA_QUOTA_OPEN_WORKERS: "1" } });
  for (const run_id of ["r1", "r2"]) await operator.did("runs", owned("ada", { run_id }), 201);
  assert.deepEqual(await exceeds("open_runs", operator.post("runs", owned("ada", { run_id: "r3" }))), { quota: "open_runs", used: 2, limit: 2 });
  // Another owner has its own, and a repeated creation opens none.
  await operator.did("runs", owned("bob", { run_id: "b1" }), 201);
  assert.equal((await operator.did("runs", owned("ada", { run_id: "r2" }))).deduplicated, true);
  await operator.did("runs/r1/events", { event_type: "run.cancel_requested" });
  await exceeds("open_runs", operator.post("runs", owned("ada", { run_id: "r3" })));
  await operator.did("runs/r1/events", { event_type: "run.finished", payload: { status: "canceled" } });
  await operator.did("runs", owned("ada", { run_id: "r3" }), 201);

  await operator.did("workers", owned("ada", { worker_id: "w1" }), 201);
  await exceeds("open_workers", operator.post("workers", owned("ada", { worker_id: "w2" })));
  await operator.did("workers/w1/status", { status: "failed" });
  await operator.did("workers", owned("ada", { worker_id: "w2" }), 201);
  // A worker that comes back is open again.
  await exceeds("open_workers", operator.post("workers", owned("ada", { worker_id: "w1" })));
  await exceeds("open_workers", operator.post("workers/w1/status", { status: "running" }));
  await operator.did("workers/w2/status", { status: "failed" });
  await operator.did("workers/w1/status", { status: "running" });
  const { open_runs, open_workers } = await usage(operator, "user:ada");
  assert.deepEqual([open_runs, open_workers], [2, 1]);
  assertCounted(operator);
});

test("stored bytes are exact to the byte, and what ends something passes", async (t) => {
  const operator = await operate(t);
  const type = "run.log";
  await operator.did("runs", owned("ada", { run_id: "r" }), 201);
  await operator.did("runs", owned("ada", { run_id: "s" }), 201);
  await operator.did("workers", owned("ada", { worker_id: "w" }), 201);
  const { bytes_stored } = await usage(operator, "user:ada");
  const cost = (payload) => ROW_BYTES + type.length + JSON.stringify(payload).length;
  const payload = { text: "x".repeat(100) };
  const limit = bytes_stored + cost(payload);
  await set(operator, "user:ada", { bytes_stored: limit });
  assert.deepEqual(await exceeds("bytes_stored", operator.post("runs/r/events", { event_type: type, payload: { text: "x".repeat(101) } })),
    { quota: "bytes_stored", used: bytes_stored, limit });
  await operator.did("runs/r/events", { event_type: type, payload });
  assert.equal((await usage(operator, "user:ada")).bytes_stored, limit);
  await exceeds("bytes_stored", operator.post("runs/r/events", { event_type: type }));

  await exceeds("bytes_stored", operator.post("runs/r/events", { event_type: "run.finished", payload: { status: "failed", text: "x".repeat(4096) } }));
  await operator.did("runs/r/events", { event_type: "run.cancel_requested" });
  // A repetition ends nothing, so it would be a way around the quota.
  await exceeds("bytes_stored", operator.post("runs/r/events", { event_type: "run.cancel_requested" }));
  await operator.did("runs/r/events", { event_type: "run.finished", payload: { status: "canceled" } });
  await operator.did("runs/s/events", { event_type: "run.finished", payload: { status: "succeeded" } });
  await exceeds("bytes_stored", operator.post("workers/w/status", { status: "running" }));
  await operator.did("workers/w/status", { status: "stopping" });
  await operator.did("workers/w/status", { status: "stopped" });
  await exceeds("bytes_stored", operator.post("workers/w/status", { status: "stopped" }));
  const after = await usage(operator, "user:ada");
  assert.ok(after.bytes_stored > limit);
  assert.deepEqual([after.open_runs, after.open_workers], [0, 0]);
  assertCounted(operator);
});

test("the owner of an event is its user, else its guest, else its organisation", async (t) => {
  const operator = await operate(t);
  const event = { event_type: "said", payload: {} };
  await operator.did("topics/room/events", { ...event, ...owned("ada", { org_id: "acme" }) });
  await operator.did("topics/room/events", { ...event, owner_guest_scope: "g" });
  await operator.did("topics/room/events", { ...event, org_id: "acme" });
  await operator.did("topics/room/events", event);
  await operator.did("notifications", { payload: {}, ...owned("ada") });
  const bytes = ROW_BYTES + "said".length + 2;
  const { items } = await operator.read("usage");
  assert.deepEqual(items.map((item) => [item.owner, item.usage.events]), [["guest:g", 1], ["org:acme", 1], ["user:ada", 2]]);
  assert.equal(items[0].usage.bytes_stored, bytes);
  const first = await operator.read("usage?limit=2");
  assert.deepEqual([first.items.length, first.next_cursor, first.has_more], [2, "org:acme", true]);
  const second = await operator.read("usage?limit=2&after=org:acme");
  assert.deepEqual([second.items.map((item) => item.owner), second.next_cursor, second.has_more], [["user:ada"], null, false]);
  assertCounted(operator);
});

test("bytes of metadata count at creation, in patches and when they shrink", async (t) => {
  const operator = await operate(t);
  await set(operator, "user:ada", { metadata_bytes: 1000 });
  const metadata = (size) => ({ m: "x".repeat(size - '{"m":""}'.length) });
  await operator.did("runs", owned("ada", { run_id: "r1", metadata: metadata(600) }), 201);
  const details = await exceeds("metadata_bytes", operator.post("runs", owned("ada", { run_id: "r2", metadata: metadata(401) })));
  assert.deepEqual(details, { quota: "metadata_bytes", used: 600, limit: 1000 });
  await operator.did("workers", owned("ada", { worker_id: "w", metadata: metadata(300) }), 201);
  await exceeds("metadata_bytes", operator.post("workers/w/heartbeat", { metadata_patch: metadata(401) }));
  await operator.did("workers/w/heartbeat", { metadata_patch: metadata(400) });
  await operator.did("workers/w/heartbeat", {});
  assert.equal((await usage(operator, "user:ada")).metadata_bytes, 1000);
  await operator.did("workers/w/heartbeat", { metadata_patch: metadata(100) });
  assert.equal((await usage(operator, "user:ada")).metadata_bytes, 700);
  // The worker's row keeps its metadata through heartbeats that bring none.
  await operator.did("workers/w/heartbeat", {});
  assert.deepEqual((await operator.read("workers/w")).worker.metadata, metadata(100));
  assert.equal(sql(operator.data, "SELECT metadata FROM codex_workers"), JSON.stringify(metadata(100)));
  assertCounted(operator);
});

test("texts count their bytes, not their characters", async (t) => {
  const operator = await operate(t);
  const metadata = { "mü": "漢字 😀" };
  await operator.did("runs", owned("ädä", { run_id: "lauf-ü", thread_id: "fädön", metadata }), 201);
  await operator.did("workers", owned("ädä", { worker_id: "wörker", workspace_ref: "größe", codex_home_ref: "ø", adapter: "ñ", metadata }), 201);
  await operator.did(`topics/${encodeURIComponent("räume")}/events`, owned("ädä", { event_type: "gesagt.ß", payload: metadata }));
  const bytes = (...texts) => texts.reduce((sum, text) => sum + Buffer.byteLength(text), 0);
  assert.equal((await usage(operator, "user:ädä")).metadata_bytes, 2 * bytes(JSON.stringify(metadata)));
  const [run] = await operator.events(encodeURIComponent("lauf-ü"));
  const { bytes_stored } = await usage(operator, "user:ädä");
  assert.ok(bytes_stored > 5 * ROW_BYTES + bytes("lauf-ü", "fädön", JSON.stringify(metadata), JSON.stringify(run.payload)), `${bytes_stored}`);
  assertCounted(operator);
});

test("rates refuse with the time to wait, and items of a batch see each other", async (t) => {
  const operator = await operate(t, { settings: { ...UNHURRIED, KHALA_QUOTA_EVENTS_PER_SECOND: "5" } });
  const items = range(1, 20).map((i) => owned("ada", { topic: `room:${i}`, event_type: "said", payload: { i } }));
  const statuses = async () => (await operator.batch(items)).reduce((counts, { status }) => ({ ...counts, [status]: (counts[status] ?? 0) + 1 }), {});
  const first = await statuses();
  // One batch is applied at one time.
  assert.deepEqual(first, { 200: 5, 429: 15 });
  const singles = await Promise.all(range(1, 20).map(() => operator.post("topics/x/events", owned("ada", { event_type: "said" }))));
  const details = await exceeds("events_per_second", singles.find(({ status }) => status === 429));
  assert.ok(details.retry_after_ms >= 1 && details.retry_after_ms <= 200, JSON.stringify(details));
  assert.equal(details.limit, 5);
  assert.ok(details.used >= 4 && details.used <= 5, JSON.stringify(details));
  await operator.did("topics/x/events", owned("bob", { event_type: "said" }));
  await until(async () => (await operator.post("topics/x/events", owned("ada", { event_type: "said" }))).status === 200, "a token of the rate");
  // After a refused item, later ones of its entity are not attempted.
  const same = await operator.batch(range(1, 80).map((i) => owned("ada", { topic: "same", event_type: "said", payload: { i } })));
  const refusedAt = same.findIndex((item) => item.status === 429);
  assert.ok(refusedAt >= 0);
  assert.ok(same.slice(refusedAt + 1).every((item) => item.status === 424));
  assertCounted(operator);
});

test("bytes a second include metadata, and a larger event passes an unused rate alone", async (t) => {
  const operator = await operate(t, { settings: UNHURRIED });
  await set(operator, "user:ada", { bytes_per_second: 10_000 });
  const metadata = { m: "x".repeat(15_000) };
  // The event, the row and the summary: four and a half seconds of the rate.
  await operator.did("runs", owned("ada", { run_id: "r1", metadata }), 201);
  const details = await exceeds("bytes_per_second", operator.post("runs", owned("ada", { run_id: "r2" })));
  assert.ok(details.retry_after_ms > 2500 && details.retry_after_ms < 4600, JSON.stringify(details));
  await set(operator, "user:ada", { bytes_per_second: 0 });
  assert.equal((await exceeds("bytes_per_second", operator.post("runs", owned("ada", { run_id: "r2" })))).retry_after_ms, undefined);
  await set(operator, "user:ada", { bytes_per_second: null });
  await operator.did("runs", owned("ada", { run_id: "r2" }), 201);
});

test("creations a minute are limited, for topics too", async (t) => {
  const operator = await operate(t, { settings: { KHALA_QUOTA_ENTITIES_PER_MINUTE: "3" } });
  await operator.did("runs", owned("ada", { run_id: "r" }), 201);
  await operator.did("workers", owned("ada", { worker_id: "w" }), 201);
  await operator.did("topics/t1/events", owned("ada", { event_type: "said" }));
  const details = await exceeds("entities_per_minute", operator.post("topics/t2/events", owned("ada", { event_type: "said" })));
  assert.ok(details.retry_after_ms > 15_000 && details.retry_after_ms <= 20_000, JSON.stringify(details));
  assert.deepEqual([details.used, details.limit], [3, 3]);
  await operator.did("topics/t1/events", owned("ada", { event_type: "said" }));
});

test("a producer's token pays for its events without an owner by its own rates", async (t) => {
  const operator = await operate(t, { settings: { ...UNHURRIED, KHALA_QUOTA_EVENTS_PER_SECOND: "5" } });
  const token = operator.sign({ oa_user_id: "ada", oa_sync_scopes: ["runtime.append"], oa_sync_topics: ["room"] });
  const items = range(1, 40).map((i) => JSON.stringify({ topic: "room", event_type: "said", payload: { i } })).join("\n");
  const { body } = await operator.ask("POST", "/v1/events:batch", items, { authorization: `Bearer ${token}`, "content-type": "application/x-ndjson" });
  const counts = body.trim().split("\n").map((line) => JSON.parse(line).status);
  assert.ok(counts.filter((status) => status === 200).length < 10, String(counts));
  assert.ok(counts.includes(429), String(counts));
  assertCounted(operator);
});

test("events without an owner count for the producer that stores them, also after a restart", async (t) => {
  const operator = await operate(t, { settings: UNHURRIED });
  const producer = (node) => ({ authorization: `Bearer ${node.sign({ oa_user_id: "ada", oa_sync_scopes: ["runtime.append"],
    oa_sync_topics: ["room", "run:free:events"] })}` });
  const says = (node, body = {}) => node.ask("POST", "/v1/topics/room/events", JSON.stringify({ event_type: "said", ...body }), producer(node));
  const bytes = ROW_BYTES + "said".length + 2;
  await set(operator, "user:ada", { bytes_stored: 4 * bytes });
  for (const body of [{}, {}, owned("ada")]) assert.equal((await says(operator, body)).status, 200);
  assert.equal((await usage(operator, "user:ada")).bytes_stored, 3 * bytes);
  await operator.server.crash();
  const next = await operate(t, { data: operator.data, settings: UNHURRIED });
  assert.equal((await says(next)).status, 200);
  const { details } = assertError(await says(next), 429, "quota_exceeded");
  assert.deepEqual(details, { quota: "bytes_stored", used: 4 * bytes, limit: 4 * bytes });
  assertError(await says(next, owned("ada")), 429, "quota_exceeded");
  const { bytes_stored, events } = await usage(next, "user:ada");
  assert.deepEqual([bytes_stored, events], [4 * bytes, 1]);
  // The operator's own events are nobody's.
  await next.did("topics/room/events", { event_type: "said" });

  // A run without an owner is not its producer's either.
  await set(next, "user:ada", { bytes_stored: null });
  await next.did("runs", { run_id: "free" }, 201);
  await next.did("runs", owned("ada", { run_id: "adas" }), 201);
  const finished = { event_type: "run.finished", payload: { status: "succeeded" } };
  assert.equal((await next.ask("POST", "/v1/runs/free/events", JSON.stringify(finished), producer(next))).status, 200);
  assert.equal((await usage(next, "user:ada")).open_runs, 1);
  assertCounted(next);
});

test("what is deduplicated uses nothing", async (t) => {
  const operator = await operate(t);
  const event_id = "01a1de6e-baa9-744d-bf0e-772106485e79";
  await operator.did("runs", owned("ada", { run_id: "r", idempotency_key: "k", metadata: { a: 1 } }), 201);
  await operator.did("runs/r/events", { event_type: "run.log", event_id });
  const before = await usage(operator, "user:ada");
  await set(operator, "user:ada", { bytes_stored: before.bytes_stored, open_runs: 1, metadata_bytes: 7, entities_per_minute: 0, bytes_per_second: 0, events_per_second: 0 });
  await operator.did("runs", owned("ada", { run_id: "r", idempotency_key: "k", metadata: { a: 1 } }));
  await operator.did("runs/r/events", { event_type: "run.log", event_id });
  const [item] = await operator.batch([{ run_id: "r", event_type: "run.log", event_id }]);
  assert.deepEqual([item.status, item.deduplicated], [200, true]);
  assert.deepEqual(await usage(operator, "user:ada"), before);
  await exceeds("bytes_stored", operator.post("runs/r/events", { event_type: "run.log" }));
});

test("each setting is the limit of owners without a quota of their own", async (t) => {
  const settings = { KHALA_QUOTA_BYTES_STORED: "101", KHALA_QUOTA_METADATA_BYTES: "102", KHALA_QUOTA_OPEN_RUNS: "103", KHALA_QUOTA_OPEN_WORKERS: "104",
    KHALA_QUOTA_BYTES_PER_SECOND: "105", KHALA_QUOTA_EVENTS_PER_SECOND: "106", KHALA_QUOTA_ENTITIES_PER_MINUTE: "107", KHALA_QUOTA_SUBSCRIPTIONS: "108",
    KHALA_QUOTA_BATCH_BYTES: "109" };
  const operator = await operate(t, { settings });
  const limits = Object.fromEntries(Object.entries(settings).map(([key, value]) => [key.slice("KHALA_QUOTA_".length).toLowerCase(), Number(value)]));
  assert.deepEqual((await operator.read("quotas/user:ada")).limits, limits);
  assert.deepEqual((await set(operator, "user:ada", { open_runs: 1 })).limits, { ...limits, open_runs: 1 });
});

test("only an operator sets quotas, and each is checked", async (t) => {
  const operator = await operate(t);
  const bad = (owner, quotas) => refused(operator, () => put(operator, owner, quotas), 400, "invalid_request");
  for (const owner of ["ada", "user:", "users:ada", "User:ada", "user: ada", "user:*", ":ada"]) await bad(owner, { open_runs: 1 });
  for (const value of [-1, 1.5, "1", true, {}, [], 9007199254740992, 1e300]) await bad("user:ada", { open_runs: value });
  await bad("user:ada", { open_runs: 1, open_doors: 1 });
  await bad("user:ada", [1]);
  await refused(operator, () => operator.ask("PUT", "quotas/user:ada", "{"), 400, "invalid_request");
  await refused(operator, () => operator.get("usage?owner=x"), 400, "unknown_parameter");
  for (const [method, path] of [["PUT", "quotas/user:ada"], ["DELETE", "quotas/user:ada"], ["GET", "quotas"], ["GET", "quotas/user:ada"], ["GET", "usage"]]) {
    const { status } = await operator.ask(method, path, method === "PUT" ? "{}" : undefined, { authorization: `Bearer ${operator.reader}` });
    assert.equal(status, 401, `${method} ${path}`);
  }
  assert.deepEqual((await operator.read("quotas")).items, []);

  const name = "user:müller/1 %";
  const answer = await set(operator, name, { open_runs: 0, batch_bytes: 9007199254740991 });
  assert.deepEqual([answer.owner, answer.quotas, answer.limits.open_runs], [name, { open_runs: 0, batch_bytes: 9007199254740991 }, 0]);
  assert.equal(answer.limits.open_workers, 100_000);
  await set(operator, "guest:g", { subscriptions: 5 });
  assert.deepEqual((await operator.read("quotas")).items.map((item) => [item.owner, item.quotas]),
    [["guest:g", { subscriptions: 5 }], [name, { open_runs: 0, batch_bytes: 9007199254740991 }]]);
  assert.deepEqual((await set(operator, name, { open_runs: null })).quotas, { batch_bytes: 9007199254740991 });
  const removed = await operator.ask("DELETE", `quotas/${encodeURIComponent(name)}`);
  assert.deepEqual([removed.status, JSON.parse(removed.body).quotas], [200, {}]);
  assert.deepEqual((await operator.read("quotas")).items.map((item) => item.owner), ["guest:g"]);
});

test("khala quota shows and sets quotas with their usage", async (t) => {
  const operator = await operate(t);
  const quota = (...args) => run(["quota", ...args, "--url", operator.server.url, "--data-dir", operator.data]);
  await operator.did("runs", owned("ada", { run_id: "r" }), 201);
  assert.match(quota("set", "user:ada", "open_runs=3", "subscriptions=7").out, /^user:ada\n[^]*  open_runs +1\/3\*\n[^]*  subscriptions +7\*\n/);
  assert.match(quota("get", "user:ada").out, /  open_workers +0\/100000\n/);
  assert.match(quota("ls").out, /^user:ada  bytes_stored=\d+\/\d+  open_runs=1\/3\*  subscriptions=7\*\n$/);
  assert.equal(JSON.parse(quota("ls", "--usage", "--json").out).items[0].usage.open_runs, 1);
  assert.match(quota("set", "user:ada", "open_runs=null").out, /  open_runs +1\/100000\n/);
  assert.equal(quota("set", "user:ada", "open_runs=-1").code, 2);
  assert.equal(quota("set", "user:ada", "doors=1").code, 2);
  assert.equal(quota("set", "ada", "open_runs=1").code, 1);
  assert.equal(quota("get").code, 2);
});

test("usage and quotas survive a restart and a kill, and an import counts", async (t) => {
  const first = await operate(t);
  await set(first, "user:ada", { open_runs: 2 });
  await first.did("runs", owned("ada", { run_id: "r1", metadata: { a: "b" } }), 201);
  await first.did("workers", owned("ada", { worker_id: "w", metadata: { c: "d" } }), 201);
  const before = await usage(first, "user:ada");
  await first.server.stop();
  const second = await operate(t, { data: first.data });
  assert.deepEqual(await usage(second, "user:ada"), before);
  await second.did("runs", owned("ada", { run_id: "r2" }), 201);
  await second.server.crash();
  const third = await operate(t, { data: first.data });
  await exceeds("open_runs", third.post("runs", owned("ada", { run_id: "r3" })));
  const last = await usage(third, "user:ada");
  assert.equal(last.open_runs, 2);
  assertCounted(third);

  // An import is never refused.
  const log = run(["export", "--url", third.server.url, "--data-dir", third.data]);
  const other = await operate(t, { settings: { KHALA_QUOTA_OPEN_RUNS: "0", KHALA_QUOTA_BYTES_STORED: "0", KHALA_QUOTA_EVENTS_PER_SECOND: "0" } });
  const { status, body } = await other.ask("POST", "/api/events/import", log.out, { "content-type": "application/x-ndjson" });
  assert.equal(status, 200, body);
  assert.deepEqual(await usage(other, "user:ada"), last);
  await exceeds("bytes_stored", other.post("runs/r1/events", { event_type: "run.log" }));
  assertCounted(other);
});

test("the doctor names a usage that is not what is counted", async (t) => {
  const operator = await operate(t);
  await operator.did("runs", owned("ada", { run_id: "r" }), 201);
  await operator.server.stop();
  const doctor = () => run(["doctor", "--data-dir", operator.data]);
  assert.match(doctor().out, /usage.*the stored usage of every owner is what is counted/);
  alter(operator.data, "UPDATE owner_usage SET bytes = bytes + 1000, open_runs = 5");
  const { out, code } = doctor();
  assert.equal(code, 1);
  assert.match(out, /usage of user:ada: 1 events, \d+ bytes, 0 bytes of metadata, 5 open runs and 0 open workers are stored; counted are 1, \d+, 0, 1 and 0/);
  alter(operator.data, "DELETE FROM owner_usage; INSERT INTO owner_usage SELECT * FROM owner_usage_counted");
  assert.match(doctor().out, /the stored usage of every owner is what is counted/);
});

test("a failed commit gives its use back", async (t) => {
  const operator = await operate(t);
  await operator.did("runs", owned("ada", { run_id: "r" }), 201);
  await set(operator, "user:ada", { open_runs: 2 });
  const before = await usage(operator, "user:ada");
  // The name of the next entity is taken, so that its commit contradicts the store.
  const kind = onPostgres ? "2::smallint" : "2";
  alter(operator.data, `INSERT INTO entities (ref, kind, id, created_at) SELECT max(ref) + 1, ${kind}, 'stray', 1 FROM entities`);
  const { status } = await operator.post("runs", owned("ada", { run_id: "s" }));
  assert.equal(status, 503);
  assert.deepEqual(await usage(operator, "user:ada"), before);
  alter(operator.data, "DELETE FROM entities WHERE id = 'stray'");
  await until(async () => (await operator.post("runs", owned("ada", { run_id: "s" }))).status === 201, "the next commit");
  await exceeds("open_runs", operator.post("runs", owned("ada", { run_id: "u" })));
  assertCounted(operator);
});

alone("creations with wide metadata and heartbeats of wide workers stay within their quotas", async (t) => {
  const operator = await operate(t, { settings: UNHURRIED });
  const token = (oa_user_id) => ({ authorization: `Bearer ${operator.sign({ oa_user_id, oa_sync_scopes: ["runtime.append"] })}` });
  await set(operator, "user:greedy", { bytes_stored: 1_000_000 });
  const body = JSON.stringify({ metadata: { m: "x".repeat(16_000) } });
  const answers = await Promise.all(range(1, 40).map(() => operator.ask("POST", "/v1/runs", body, token("greedy"))));
  assert.deepEqual([...new Set(answers.map(({ status }) => status))].sort(), [201, 429]);
  assert.equal(answers.filter(({ status }) => status === 201).length, Math.floor(1_000_000 / 33_000));
  assert.ok((await usage(operator, "user:greedy")).bytes_stored <= 1_000_000);

  // A heartbeat of a worker with 60 KB of metadata writes nothing of it, and so the rate counts nothing of it.
  const metadata = { m: "x".repeat(60_000) };
  await operator.did("workers", owned("wide", { worker_id: "w", metadata }), 201);
  const stored = () => Number(sql(operator.data, `SELECT (SELECT sum(length(payload)) FROM journal WHERE payload IS NOT NULL)
    + (SELECT sum(length(metadata)) FROM summary_metadata)`));
  const toast = () => (onPostgres ? Number(sql(operator.data, "SELECT pg_relation_size(reltoastrelid) FROM pg_class WHERE oid = 'runtime.entities'::regclass")) : 0);
  const before = await usage(operator, "user:wide");
  const rate = 400_000;
  await set(operator, "user:wide", { bytes_per_second: rate });
  const beat = async (name, bodyOf) => {
    const [storedBefore, begun] = [stored(), performance.now()];
    const times = await Promise.all(range(1, 100).map((i) => operator.ask("POST", "/v1/workers/w/heartbeat", bodyOf(i), token("wide"))));
    const passed = times.filter(({ status }) => status === 200).length;
    const seconds = (performance.now() - begun) / 1000;
    const written = stored() - storedBefore;
    t.diagnostic(`${passed} of 100 ${name} in ${seconds.toFixed(2)} s wrote ${written} bytes`);
    return { passed, written, seconds };
  };
  const toastBefore = toast();
  const { passed, written } = await beat("heartbeats", () => "{}");
  assert.equal(passed, 100);
  assert.ok(written <= 100 * 2048, `${written} bytes`);
  assert.equal(toast(), toastBefore, "the worker's row keeps its metadata where it is");
  const after = await usage(operator, "user:wide");
  assert.equal(after.metadata_bytes, before.metadata_bytes);
  assert.equal(after.bytes_stored, before.bytes_stored + passed * (ROW_BYTES + "worker.heartbeat".length + 2));

  // Each patch makes a version of 60 KB, and writes the worker's row.
  const patched = await beat("patches", (i) => JSON.stringify({ metadata_patch: { i } }));
  assert.ok(patched.passed > 0 && patched.passed < 100);
  assert.ok(patched.written <= rate * (patched.seconds + 2), `${patched.written} bytes in ${patched.seconds} s`);
  assertCounted(operator);
});
