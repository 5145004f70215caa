// The endpoints that read: pages, replays, receipts, summaries, checkpoints and drift.
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import http from "node:http";
import net from "node:net";
import { test } from "../../lib/cases.mjs";
import { connect, folder } from "../../lib/khala.mjs";
import { memoryBytes, SANITIZED } from "../../lib/machine.mjs";
import { operate, refused } from "../../lib/operator.mjs";
import { range } from "../../lib/samples.mjs";
import { until } from "../../lib/wait.mjs";

async function filled(operator, run_id, count, payload = (i) => ({ i })) {
  await operator.did("runs", { run_id }, 201);
  for (let i = 0; i < count; i += 500) {
    const items = Array.from({ length: Math.min(500, count - i) }, (_, j) => ({ run_id, event_type: "run.log", payload: payload(i + j) }));
    for (const { status } of await operator.batch(items)) assert.equal(status, 200);
  }
}

test("the events of a run are listed in pages without a gap", async (t) => {
  const operator = await operate(t);
  await filled(operator, "p", 250);
  const first = await operator.read("runs/p/events");
  assert.equal(first.events.length, 100);
  assert.deepEqual([first.next_after_seq, first.has_more], [100, true]);
  const seqs = [];
  let after = 0;
  for (;;) {
    const page = await operator.read(`runs/p/events?after_seq=${after}&limit=7`);
    seqs.push(...page.events.map(({ seq }) => seq));
    after = page.next_after_seq;
    if (!page.has_more) break;
    assert.equal(page.events.length, 7);
  }
  assert.deepEqual(seqs, range(1, 251));
  assert.deepEqual(await operator.read("runs/p/events?after_seq=251"), { events: [], next_after_seq: 251, has_more: false });
  for (const ahead of ["252", "9007199254740991"]) {
    const { status, body } = await operator.get(`runs/p/events?after_seq=${ahead}`);
    assert.deepEqual([status, JSON.parse(body).reason_code], [410, "cursor_ahead_of_head"], body);
  }
  const last = await operator.read("runs/p/events?after_seq=241&limit=10");
  assert.deepEqual([last.events.length, last.has_more], [10, false]);
  const whole = await operator.read("runs/p/events?limit=1000");
  assert.deepEqual([whole.events.length, whole.has_more, whole.next_after_seq], [251, false, 251]);
});

test("a page of large events of a run ends early and names the next position", async (t) => {
  const operator = await operate(t);
  await filled(operator, "large", 30, () => ({ text: "x".repeat(200_000) }));
  const response = await operator.get("runs/large/events?limit=1000");
  const page = JSON.parse(response.body);
  assert.ok(response.body.length < 2_000_000);
  assert.equal(page.has_more, true);
  assert.equal(page.next_after_seq, page.events.at(-1).seq);
  assert.equal((await operator.events("large")).length, 31);
});

test("a page refuses invalid parameters", async (t) => {
  const operator = await operate(t);
  await filled(operator, "q", 1);
  for (const query of ["limit=0", "limit=1001", "limit=x", "limit=", "limit=-1", "limit=1.0", "limit=+1", "limit=01", "after_seq=-1",
    "after_seq=9007199254740992", "after_seq=", "after_seq=1e3", "after_seq=99999999999999999999999999999999999999999999999999999999999999999999"]) {
    await refused(operator, () => operator.get(`runs/q/events?${query}`), 400, "invalid_request");
  }
  for (const query of ["limit=1&limit=2", "limit=%zz"]) {
    await refused(operator, () => operator.get(`runs/q/events?${query}`), 400, "bad_request");
  }
});

test("every read answers 404 for an unknown entity", async (t) => {
  const operator = await operate(t);
  const cases = [["runs/x", "run_not_found"], ["runs/x/events", "run_not_found"], ["runs/x/replay", "run_not_found"],
    ["runs/x/receipt", "run_not_found"], ["workers/x", "worker_not_found"], ["workers/x/events", "worker_not_found"],
    ["topics/x/events", "not_found"], ["projectors/run-summary/x", "run_not_found"],
    ["projectors/worker-summary/x", "worker_not_found"], ["projectors/checkpoints/run_summary/x", "run_not_found"],
    ["projectors/checkpoints/codex_worker_summary/x", "worker_not_found"], ["projectors/checkpoints/other/x", "not_found"]];
  for (const [path, code] of cases) await refused(operator, () => operator.get(path), 404, code);
  const { body } = await refused(operator, () => operator.get("topics/x/events"), 404, "not_found");
  assert.match(body.message, /topic/);
  const { body: unknown } = await refused(operator, () => operator.get("projectors/checkpoints/other/x"), 404, "not_found");
  assert.equal(unknown.message, "The projections are run_summary, codex_worker_summary.");
  await refused(operator, () => operator.get("runs/%01"), 400, "invalid_request");
  await refused(operator, () => operator.get("topics/%01/events"), 400, "invalid_topic");
});

test("the events of a topic can be read, also the notifications", async (t) => {
  const operator = await operate(t);
  await operator.did("topics/chat/events", { event_type: "said", payload: { n: 1 } });
  await operator.did("topics/chat/events", { event_type: "said", payload: { n: 2 } });
  await operator.did("notifications", { event_type: "note" });
  assert.deepEqual((await operator.read("topics/chat/events?after_seq=1")).events.map(({ payload }) => payload.n), [2]);
  assert.equal((await operator.read("topics/runtime.notifications/events")).events.length, 1);
});

test("a receipt names the run, its first and last hash, and its head", async (t) => {
  const operator = await operate(t);
  await operator.did("runs", { run_id: "r", owner_user_id: "u", org_id: "o" }, 201);
  await operator.did("runs/r/events", { event_type: "run.finished", payload: { status: "succeeded" } });
  const events = await operator.events("r");
  assert.deepEqual(await operator.read("runs/r/receipt"), {
    schema: "openagents.receipt.v1",
    run_id: "r",
    status: "succeeded",
    owner_user_id: "u",
    owner_guest_scope: null,
    org_id: "o",
    event_count: 2,
    first_hash: events[0].chain_hash,
    last_hash: events[1].chain_hash,
    head: { seq: 2, event_id: events[1].event_id, cursor: events[1].cursor },
  });
});

test("the hash chain can be verified from a replay", async (t) => {
  const operator = await operate(t);
  await filled(operator, "c", 50);
  const response = await operator.get("runs/c/replay");
  assert.equal(response.headers["content-type"], "application/x-ndjson");
  const events = response.body.trimEnd().split("\n").map((line) => JSON.parse(line));
  assert.deepEqual(events, await operator.events("c"));
  let previous = Buffer.alloc(32);
  for (const event of events) {
    // JSON.stringify writes the canonical form of these payloads.
    const payload_hash = `sha256:${createHash("sha256").update(JSON.stringify(event.payload)).digest("hex")}`;
    assert.equal(event.payload_hash, payload_hash);
    const { guest_scope = null, org_id = null, user_id = null } = event.owner;
    const link = JSON.stringify({ chain_version: 2, cursor: event.cursor, entity: "run", entity_id: "c", event_id: event.event_id,
      event_type: event.event_type, owner: { guest_scope, org_id, user_id }, payload_hash, recorded_at: event.recorded_at, seq: event.seq });
    previous = createHash("sha256").update(previous).update(link).digest();
    assert.equal(event.chain_hash, `sha256:${previous.toString("hex")}`);
  }
});

test("a large replay takes constant memory", async (t) => {
  const operator = await operate(t);
  await filled(operator, "huge", 400, (i) => ({ i, text: "x".repeat(200_000) }));
  const before = memoryBytes(operator.server);
  let largest = before;
  let size = 0;
  let lines = 0;
  const { request, answer } = operator.begin("GET", "runs/huge/replay");
  request.end();
  const response = await answer;
  for await (const piece of response) {
    size += piece.length;
    for (const byte of piece) lines += byte === 10;
    largest = Math.max(largest, memoryBytes(operator.server));
    // Other requests are served between two pieces.
    if (lines % 100 === 0) await operator.get("/healthz/live");
  }
  assert.equal(lines, 401);
  assert.ok(size > 80_000_000);
  const limit = SANITIZED ? 200e6 : 30e6;
  assert.ok(largest - before < limit, `${before} grew to ${largest}`);
});

test("a replay whose client stops reading is cut off, and an abandoned one is released", async (t) => {
  const data = folder(t);
  let operator = await operate(t, { data });
  await filled(operator, "huge", 200, (i) => ({ i, text: "x".repeat(200_000) }));
  await operator.server.stop();
  // Only the reads have a short timeout: the batch may take as long as the machine needs.
  operator = await operate(t, { data, settings: { KHALA_REQUEST_TIMEOUT_MS: "1500" } });
  operator.agent.keepAlive = false; // the server closes a connection that is idle for so long
  for (const leaves of [true, false]) {
    const peer = await connect(operator.server);
    await peer.send(`GET /internal/v1/runs/huge/replay HTTP/1.1\r\nHost: x\r\nX-Request-Id: unread\r\nAuthorization: Bearer ${operator.key}\r\n\r\n`);
    await peer.head();
    if (leaves) {
      peer.close();
      continue;
    }
    peer.socket.pause();
    // Other clients are served until the server cuts this one off.
    await until(async () => (await operator.read("khala/why?connection=unread")).decisions.length > 0, "the end of the replay");
    peer.socket.resume();
    await peer.rest();
    assert.ok(peer.tcp.bytesRead < 40_000_000, `${peer.tcp.bytesRead}`);
  }
  await operator.did("runs/huge/events", { event_type: "run.log" });
});

test("an HTTP/1.0 replay is complete, and HEAD has no body", async (t) => {
  const operator = await operate(t);
  await filled(operator, "h", 2000);
  const socket = net.connect({ host: operator.server.host, port: operator.server.port });
  socket.write(`GET /internal/v1/runs/h/replay HTTP/1.0\r\nAuthorization: Bearer ${operator.key}\r\n\r\n`);
  let got = "";
  for await (const data of socket) got += data;
  const [head, body] = got.split("\r\n\r\n");
  assert.doesNotMatch(head, /transfer-encoding/i);
  assert.equal(body.trimEnd().split("\n").length, 2001);
  for (const path of ["runs/h/replay", "runs/h", "runs/h/events", "runs/h/receipt"]) {
    const response = await operator.ask("HEAD", path);
    assert.deepEqual([response.status, response.body], [200, ""], path);
  }
  assert.equal((await operator.ask("HEAD", "runs/none/replay")).status, 404);
});

test("summaries and checkpoints follow the log", async (t) => {
  const operator = await operate(t);
  await operator.did("runs", { run_id: "s", thread_id: "t", owner_user_id: "u" }, 201);
  await operator.did("runs/s/events", { event_type: "run.log" });
  const summary = await operator.read("projectors/run-summary/s");
  assert.equal(summary.document_id, "runtime/run_summary:s");
  assert.equal(summary.latest_seq, 2);
  assert.equal(summary.event_count, 2);
  assert.equal(summary.latest_event_type, "run.log");
  assert.equal(summary.owner_user_id, "u");
  assert.deepEqual(summary.runtime_source, { entity: "run", run_id: "s", seq: 2 });
  assert.equal(summary.projection_version, "khala_summary_v2");
  const checkpoint = await operator.read("projectors/checkpoints/run_summary/s");
  assert.equal(checkpoint.projection_name, "run_summary");
  assert.equal(checkpoint.entity_id, "s");
  assert.equal(checkpoint.document_id, "runtime/run_summary:s");
  assert.equal(checkpoint.last_runtime_seq, 2);
  assert.equal(checkpoint.last_projected_at, summary.projected_at);
  const { projected_at, ...hashed } = summary;
  assert.ok(projected_at > 0);
  const sorted = (value) => (value && typeof value === "object" && !Array.isArray(value)
    ? Object.fromEntries(Object.keys(value).sort().map((key) => [key, sorted(value[key])])) : value);
  assert.equal(checkpoint.summary_hash, `sha256:${createHash("sha256").update(JSON.stringify(sorted(hashed))).digest("hex")}`);

  await operator.did("workers", { worker_id: "w", owner_user_id: "u", adapter: "codex" }, 201);
  await operator.did("workers/w/status", { status: "running" });
  const worker = await operator.read("projectors/worker-summary/w");
  assert.equal(worker.status, "running");
  assert.equal(worker.adapter, "codex");
  assert.equal((await operator.read("projectors/checkpoints/codex_worker_summary/w")).last_runtime_seq, 2);
  assert.deepEqual(await operator.read("projectors/drift"), { drift: [], sinks: [] });
  await refused(operator, () => operator.get("projectors/drift?limit=0"), 400, "invalid_request");
});

test("reads answer the same after a restart", async (t) => {
  const data = folder(t);
  let operator = await operate(t, { data });
  await filled(operator, "again", 300);
  const before = [await operator.get("runs/again"), await operator.get("runs/again/replay"),
    await operator.get("projectors/run-summary/again"), await operator.get("runs/again/receipt")].map(({ body }) => body);
  await operator.server.stop();
  operator = await operate(t, { data });
  const after = [await operator.get("runs/again"), await operator.get("runs/again/replay"),
    await operator.get("projectors/run-summary/again"), await operator.get("runs/again/receipt")].map(({ body }) => body);
  assert.deepEqual(after, before);
});

test("many readers at once each get their own answer", async (t) => {
  const operator = await operate(t, { settings: { KHALA_READERS: "3" } });
  for (let i = 0; i < 20; i++) await filled(operator, `n${i}`, i);
  operator.agent = new http.Agent({ keepAlive: true, maxSockets: 64 });
  const asked = Array.from({ length: 400 }, async (_, i) => {
    const run = `n${i % 20}`;
    const { run: found } = await operator.read(`runs/${run}`);
    assert.deepEqual([found.run_id, found.latest_seq], [run, (i % 20) + 1]);
    assert.equal((await operator.get(`runs/${run}/replay`)).body.trimEnd().split("\n").length, (i % 20) + 1);
  });
  await Promise.all(asked);
});
