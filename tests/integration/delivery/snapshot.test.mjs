// Snapshots of summary topics: their content, their cost and their failures.
import assert from "node:assert/strict";
import { readdirSync, readlinkSync } from "node:fs";
import http from "node:http";
import { gunzipSync } from "node:zlib";
import { alone, test } from "../../lib/cases.mjs";
import { assertError, connect, folder, run } from "../../lib/khala.mjs";
import { limitFileSize, MEASURED, memoryBytes } from "../../lib/machine.mjs";
import { operate } from "../../lib/operator.mjs";
import { pollPath, snapshotPath } from "../../lib/paths.mjs";
import { sqliteOnly } from "../../lib/database.mjs";
import { sql, sqlRows, storeWithSummaries } from "../../lib/store.mjs";
import { until } from "../../lib/wait.mjs";

const TOPIC = "runtime.run_summaries";
const WORKERS = "runtime.codex_worker_summaries";
const QUICK = {
  RUNTIME_KHALA_POLL_MIN_INTERVAL_MS: "0",
  RUNTIME_KHALA_RUN_SUMMARIES_SNAPSHOT_CADENCE_SECONDS: "1",
};

const snapshot = (operator, topic = TOPIC) => operator.read(snapshotPath(topic));

/** An answer with the bytes of its body. */
async function raw(operator, method, headers) {
  const { request, answer } = operator.begin(method, snapshotPath(TOPIC), headers);
  request.end();
  const response = await answer;
  const pieces = [];
  for await (const piece of response) pieces.push(piece);
  return { status: response.statusCode, headers: response.headers, body: Buffer.concat(pieces) };
}

const state = async (operator, topic = TOPIC) => {
  const answer = await operator.read("khala/snapshots");
  return { ...answer, ...answer.snapshots.find((one) => one.topic === topic) };
};

test("a poll without a cursor names the snapshot, and polling continues after it", async (t) => {
  const operator = await operate(t, { data: storeWithSummaries(t, 5), settings: QUICK });
  const headers = { authorization: `Bearer ${await operator.token()}` };
  const ask = async (url) => {
    const response = await fetch(new URL(url, operator.server.url), { headers });
    assert.equal(response.status, 200, await response.clone().text());
    return response.json();
  };
  const first = await ask(pollPath(TOPIC));
  assert.deepEqual(first.messages, [], "its journal is pruned");
  assert.deepEqual(first.bootstrap, { from_seq: 6, truncated: true, snapshot: { url: snapshotPath(TOPIC), head_watermark: 5 } });
  const { documents, watermark } = await ask(first.bootstrap.snapshot.url);
  assert.equal(documents.length, 5);
  await operator.did("runs", { run_id: "next" }, 201);
  const tail = await ask(pollPath(TOPIC, `after_seq=${watermark}`));
  assert.deepEqual(tail.messages.map((one) => [one.sequence, one.payload.run_id]), [[6, "next"]]);
  assert.equal(tail.bootstrap, undefined);
});

test("a snapshot contains every summary and describes itself", async (t) => {
  const operator = await operate(t);
  for (let i = 0; i < 300; i++) await operator.did("runs", { run_id: `r${i}`, owner_user_id: `u${i % 3}` }, 201);
  await operator.batch(Array.from({ length: 500 }, (_, i) => ({ run_id: `r${i % 300}`, event_type: "run.log" })));
  await operator.did("workers", { worker_id: "w", owner_user_id: "u" }, 201);
  const { documents, ...about } = await snapshot(operator);
  const head = Number(sql(operator.data, "SELECT head_seq FROM topics WHERE ref = 1"));
  assert.deepEqual(about, {
    topic: TOPIC, format: "openagents.sync.snapshot.v1", schema_version: 1, cadence_seconds: 300,
    source_table: "runtime.sync_run_summaries", watermark: head,
    epoch: sql(operator.data, "SELECT value || '.0' FROM meta WHERE name = 'epoch'"),
  });
  assert.equal(documents.length, 300);
  for (const document of documents) {
    assert.deepEqual(Object.keys(document), ["doc_key", "doc_version", "payload", "payload_hash"]);
    assert.equal(document.doc_key, `runtime/run_summary:${document.payload.run_id}`);
    assert.deepEqual(document.payload, await operator.read(`projectors/run-summary/${document.payload.run_id}`));
  }
  for (const document of documents.slice(0, 5)) {
    assert.equal(document.payload_hash, run(["json", "hash"], { input: JSON.stringify(document.payload) }).out.trim());
  }
  const rows = sqlRows(operator.data, "SELECT doc_key, doc_version, payload FROM sync_run_summaries ORDER BY entity_ref");
  assert.deepEqual(documents.map(({ payload_hash, ...document }) => document),
    rows.map((row) => ({ ...row, payload: JSON.parse(row.payload) })));
  const workers = await snapshot(operator, WORKERS);
  assert.equal(workers.cadence_seconds, 120);
  assert.equal(workers.source_table, "runtime.sync_codex_worker_summaries");
  assert.deepEqual(workers.documents.map((document) => document.doc_key), ["runtime/codex_worker_summary:w"]);
});

test("an empty topic has a snapshot at 0", async (t) => {
  const operator = await operate(t);
  const answer = await snapshot(operator);
  assert.equal(answer.watermark, 0);
  assert.deepEqual(answer.documents, []);
});

test("a snapshot during appends is consistent, and its tail reaches the head", async (t) => {
  const operator = await operate(t,
    { settings: { ...QUICK, RUNTIME_KHALA_RUN_SUMMARIES_REPLAY_BUDGET_EVENTS: "1000000" } });
  for (let i = 0; i < 60; i++) await operator.did("runs", { run_id: `r${i}` }, 201);
  let appending = true;
  const appends = (async () => {
    for (let i = 0; appending; i++) {
      await operator.batch(Array.from({ length: 37 }, (_, k) => ({ run_id: `r${(i * 7 + k) % 60}`, event_type: "run.log" })));
    }
  })();
  const taken = [];
  try {
    await until(async () => {
      const answer = await snapshot(operator);
      if (taken.at(-1)?.watermark !== answer.watermark) taken.push(answer);
      return taken.length === 4;
    }, "four snapshots");
  } finally {
    appending = false;
    await appends;
  }
  assert.ok(taken.at(-1).watermark > taken[0].watermark);
  for (const { watermark, documents } of taken) {
    // The documents equal the journal up to the watermark.
    const rows = sqlRows(operator.data,
      `SELECT payload FROM journal WHERE topic_ref = 1 AND seq IN (SELECT max(seq) FROM journal
        WHERE topic_ref = 1 AND seq <= ${watermark} GROUP BY entity_ref) ORDER BY entity_ref`);
    assert.deepEqual(documents.map((document) => document.payload), rows.map((row) => JSON.parse(row.payload)));
    const runs = new Map(documents.map(({ payload }) => [payload.run_id, payload]));
    for (let after = watermark, complete = false; !complete;) {
      const page = await operator.read(pollPath(TOPIC, `after_seq=${after}&limit=200`));
      for (const message of page.messages) {
        assert.equal(message.sequence, ++after);
        runs.set(message.payload.run_id, message.payload);
      }
      complete = page.replay_complete;
    }
    for (const [id, payload] of runs) assert.deepEqual(payload, await operator.read(`projectors/run-summary/${id}`));
  }
});

test("a snapshot can be followed for two cadences beyond the replay budget; later a newer one helps", async (t) => {
  const settings = { RUNTIME_KHALA_POLL_MIN_INTERVAL_MS: "0", RUNTIME_KHALA_RUN_SUMMARIES_REPLAY_BUDGET_EVENTS: "20" };
  const data = folder(t);
  const first = await operate(t, { data, settings });
  await first.did("runs", { run_id: "a" }, 201);
  const { watermark } = await snapshot(first);
  for (let i = 0; i < 30; i++) await first.did("runs/a/events", { event_type: "run.log" });
  assert.equal((await first.poll(TOPIC, `after_seq=${watermark}`)).status, 200);
  await first.server.stop();
  const later = await operate(t, { data, settings: { ...settings, KHALA_CLOCK_OFFSET_MS: "3600000" } });
  assert.equal((await later.poll(TOPIC, `after_seq=${watermark}`)).status, 410);
  const { watermark: next, documents } = await snapshot(later);
  assert.equal((await later.poll(TOPIC, `after_seq=${next}`)).status, 200);
  assert.equal(documents[0].payload.latest_seq, 31);
});

test("a snapshot supports gzip, conditional requests and HEAD", async (t) => {
  const operator = await operate(t, { data: storeWithSummaries(t, 3000), settings: QUICK });
  const plain = await raw(operator, "GET");
  assert.equal(plain.status, 200);
  assert.equal(plain.headers["content-type"], "application/json");
  assert.equal(plain.headers["content-encoding"], undefined);
  assert.match(plain.headers.vary, /Accept-Encoding/);
  const value = JSON.parse(plain.body);
  assert.equal(value.documents.length, 3000);
  assert.match(plain.headers.etag, new RegExp(`^"${value.epoch}-3000-all"$`));
  const packed = await raw(operator, "GET", { "accept-encoding": "br, gzip;q=0.5" });
  assert.equal(packed.headers["content-encoding"], "gzip");
  assert.ok(gunzipSync(packed.body).equals(plain.body));
  assert.ok(packed.body.length < plain.body.length / 3);
  assert.notEqual(packed.headers.etag, plain.headers.etag);
  assert.equal((await raw(operator, "GET", { "accept-encoding": "gzip;q=0" })).headers["content-encoding"], undefined);
  for (const etag of [plain.headers.etag, packed.headers.etag, `"x", W/${plain.headers.etag}`, "*"]) {
    const unchanged = await raw(operator, "GET", { "if-none-match": etag });
    assert.equal(unchanged.status, 304, etag);
    assert.equal(unchanged.body.length, 0);
    assert.ok(unchanged.headers.etag);
  }
  assert.equal((await raw(operator, "GET", { "if-none-match": '"x"' })).status, 200);
  for (const headers of [{}, { "accept-encoding": "gzip" }]) {
    const head = await raw(operator, "HEAD", headers);
    assert.equal(head.status, 200);
    assert.equal(head.body.length, 0);
    assert.equal(head.headers.etag, headers["accept-encoding"] ? packed.headers.etag : plain.headers.etag);
  }
  // The next snapshot has another watermark.
  await operator.did("runs", { run_id: "new" }, 201);
  await until(async () => (await raw(operator, "GET", { "if-none-match": plain.headers.etag })).status === 200,
    "a new snapshot");
});

test("a snapshot of another topic is refused", async (t) => {
  const operator = await operate(t);
  for (const topic of ["run:a:events", "runtime.notifications", "runtime.codex_worker_events", "chat:lobby"]) {
    const response = await operator.get(snapshotPath(topic));
    assertError(response, 404, "no_snapshot");
  }
  assertError(await operator.get(snapshotPath("a\nb")), 400, "invalid_topic");
  assert.equal((await operator.ask("GET", snapshotPath(TOPIC), undefined, { authorization: "Bearer wrong" })).status, 401);
  assert.equal((await operator.ask("POST", snapshotPath(TOPIC), "{}")).status, 405);
});

test("concurrent snapshot requests share one read of the store", async (t) => {
  const operator = await operate(t, { data: storeWithSummaries(t, 5000) });
  const before = (await state(operator)).store_rows_read;
  const answers = await Promise.all(Array.from({ length: 50 }, () => raw(operator, "GET")));
  for (const answer of answers) assert.ok(answer.body.equals(answers[0].body));
  const after = await state(operator);
  assert.equal(after.built, 1);
  assert.equal(after.served, 50);
  assert.ok(after.store_rows_read - before < 5000 * 1.2, `${after.store_rows_read - before} rows`);
});

alone("a snapshot of a hundred thousand documents takes the memory of a thousand", sqliteOnly, { timeout: 240_000 }, async (t) => {
  const peaks = [];
  for (const count of [1000, 100_000]) {
    const operator = await operate(t, { data: storeWithSummaries(t, count), settings: MEASURED });
    const before = memoryBytes(operator.server, "VmRSS");
    for (const headers of [{}, { "accept-encoding": "gzip" }]) {
      const { request, answer } = operator.begin("GET", snapshotPath(TOPIC), headers);
      request.end();
      let bytes = 0;
      for await (const piece of await answer) bytes += piece.length;
      assert.ok(bytes > (headers["accept-encoding"] ? count : count * 500));
    }
    assert.equal((await state(operator)).documents, count);
    peaks.push(memoryBytes(operator.server, "VmHWM") - before);
    await operator.server.stop();
  }
  // The documents have 60 MB. The page caches of the sessions that a busy machine wakes have 4 MB each.
  assert.ok(peaks[1] < peaks[0] + (44 << 20), `peaks grew by ${peaks}`);
});

test("an unread snapshot costs one page of memory, and its file is released with the client", async (t) => {
  const operator = await operate(t, { data: storeWithSummaries(t, 20_000), settings: { ...QUICK, ...MEASURED, KHALA_REQUEST_TIMEOUT_MS: "60000",
    RUNTIME_KHALA_RUN_SUMMARIES_SNAPSHOT_CADENCE_SECONDS: "4" } }); // all readers come within it
  const peers = [];
  for (let i = 0; i < 20; i++) {
    const peer = await connect(operator.server);
    peer.socket.pause();
    await peer.send(`GET ${snapshotPath(TOPIC)} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${operator.key}\r\n\r\n`);
    peers.push(peer);
  }
  await until(async () => (await state(operator)).served >= 20, "everybody is served");
  const held = (await state(operator)).bytes;
  assert.ok(held > 10e6);
  // After the cadence the readers still hold the old snapshot, and others get a new one.
  await until(async () => (await state(operator)).watermark === undefined, "the end of the cadence");
  assert.equal((await operator.read("khala/snapshots")).bytes, held);
  assert.equal((await snapshot(operator)).documents.length, 20_000);
  assert.ok(memoryBytes(operator.server, "VmRSS") < 200e6);
  for (const peer of peers) peer.close();
  await until(async () => (await operator.read("khala/snapshots")).bytes === 0, "the files are gone");
  const open = readdirSync(`/proc/${operator.server.child.pid}/fd`)
    .filter((fd) => fd !== "2") // its log is a file without a name
    .map((fd) => { try { return readlinkSync(`/proc/${operator.server.child.pid}/fd/${fd}`); } catch { return ""; } })
    .filter((name) => name.includes("(deleted)"));
  assert.deepEqual(open, []);
});

test("a full disk fails a snapshot, and the next request tries again", async (t) => {
  const operator = await operate(t, { data: storeWithSummaries(t, 5000) });
  limitFileSize(operator.server, 1_000_000);
  const answers = await Promise.all(Array.from({ length: 5 }, () => operator.get(snapshotPath(TOPIC))));
  for (const answer of answers) {
    assertError(answer, 503, "store_unavailable");
    assert.equal(answer.headers["retry-after"], "1");
  }
  // The line may arrive after the answers.
  await until(() => /snapshot\.failed.*File too large/.test(operator.server.log), "the line of the failure");
  limitFileSize(operator.server, "unlimited");
  assert.equal((await snapshot(operator)).documents.length, 5000);
});

test("snapshots use no more disk than the setting allows", async (t) => {
  const operator = await operate(t, { data: storeWithSummaries(t, 5000), settings: { KHALA_SNAPSHOTS_BYTES_MAX: "1000000" } });
  assertError(await operator.get(snapshotPath(TOPIC)), 503, "limit_reached");
  assert.equal((await state(operator)).bytes, 0);
});

test("an old snapshot that is read slowly is withdrawn for a new one", async (t) => {
  const operator = await operate(t, { data: storeWithSummaries(t, 20_000),
    settings: { ...QUICK, KHALA_SNAPSHOTS_BYTES_MAX: "20000000", KHALA_REQUEST_TIMEOUT_MS: "60000" } });
  const peer = await connect(operator.server);
  await peer.send(`GET ${snapshotPath(TOPIC)} HTTP/1.1\r\nHost: x\r\nX-Request-Id: slow\r\nAuthorization: Bearer ${operator.key}\r\n\r\n`);
  await peer.head();
  peer.socket.pause();
  await until(async () => (await state(operator)).watermark === undefined, "the end of the cadence");
  assert.ok((await operator.read("khala/snapshots")).bytes > 12e6);
  assert.equal((await snapshot(operator)).documents.length, 20_000);
  assert.match(operator.server.log, /snapshot\.withdrawn topic=runtime\.run_summaries watermark=20000 /);
  assert.ok((await operator.read("khala/snapshots")).bytes < 20e6);
  peer.socket.resume();
  assert.doesNotMatch(await peer.rest(), /\]\}\n\r\n0\r\n\r\n$/, "it is not taken for a whole one");
  const { decisions: [why] } = await operator.read("khala/why?connection=slow");
  assert.deepEqual([why.decision, why.code, why.topic], ["disconnected", "slow_consumer", TOPIC]);
});

test("an ETag depends on the documents that its principal may read", async (t) => {
  const operator = await operate(t, { data: storeWithSummaries(t, 100) });
  const of = (claims) => ({ authorization: `Bearer ${operator.sign({ oa_sync_scopes: ["runtime.run_events"], ...claims })}` });
  const claims = [{ oa_user_id: "u1" }, { oa_user_id: "u2" }, { oa_guest_scope: "u1" }, { oa_org_id: "u1" }, { oa_user_id: "u1", oa_org_id: "o" },
    { oa_sync_scopes: ["runtime.read_all"] }, {}];
  const answers = [];
  for (const claim of claims) answers.push(await raw(operator, "GET", of(claim)));
  assert.equal(new Set(answers.map((answer) => answer.headers.etag)).size, claims.length);
  assert.deepEqual(answers.map((answer) => JSON.parse(answer.body).documents.length), [10, 10, 0, 0, 10, 100, 0]);
  for (const [i, claim] of claims.entries()) {
    for (const [k, { headers }] of answers.entries()) {
      const { status } = await raw(operator, "GET", { ...of(claim), "if-none-match": headers.etag });
      assert.equal(status, i === k ? 304 : 200, `${JSON.stringify(claim)} with the tag of ${JSON.stringify(claims[k])}`);
    }
    assert.equal(answers[i].headers["cache-control"], "private, no-cache");
    assert.match(answers[i].headers.vary, /Authorization/);
  }
});

alone("a server killed while it builds a snapshot leaves no file behind", async (t) => {
  const data = storeWithSummaries(t, 100_000);
  const operator = await operate(t, { data, args: ["--log-level", "debug"] });
  const before = readdirSync(data).sort();
  for (let i = 0; i < 8; i++) {
    const request = http.get({ host: operator.server.host, port: operator.server.port, path: snapshotPath(TOPIC),
      headers: { authorization: `Bearer ${operator.key}` }, agent: false });
    request.on("error", () => {});
    request.on("response", (response) => response.resume().on("error", () => {}));
  }
  await operator.server.saw("log", /snapshot\.building/);
  await operator.server.crash();
  assert.doesNotMatch(operator.server.log, /snapshot\.built/);
  assert.deepEqual(readdirSync(data).sort(), before);
  const again = await operate(t, { data });
  assert.equal((await snapshot(again)).documents.length, 100_000);
});

test("a server that ends does not wait for a snapshot build", async (t) => {
  const operator = await operate(t, { data: storeWithSummaries(t, 100_000), args: ["--log-level", "debug"],
    settings: { KHALA_SHUTDOWN_GRACE_MS: "0" } });
  const { request, answer } = operator.begin("GET", snapshotPath(TOPIC));
  request.end();
  await operator.server.saw("log", /snapshot\.building/);
  await operator.server.stop();
  await assert.rejects(answer);
  assert.match(operator.server.log, /snapshot\.(failed.*shutting_down|built)/);
});

test("a server that ends cuts off an unread snapshot visibly", async (t) => {
  const operator = await operate(t, { data: storeWithSummaries(t, 40_000), settings: { KHALA_SHUTDOWN_GRACE_MS: "100" } });
  const { request, answer } = operator.begin("GET", snapshotPath(TOPIC));
  request.end();
  const response = await answer;
  await operator.server.stop();
  await assert.rejects(async () => {
    for await (const piece of response) assert.ok(piece.length > 0);
  }, { code: "ECONNRESET" });
  assert.equal(response.complete, false);
});

test("khala snapshot prints text and JSON", async (t) => {
  const operator = await operate(t);
  for (let i = 0; i < 200; i++) await operator.did("runs", { run_id: `r${i}` }, 201);
  const options = { settings: { KHALA_URL: operator.server.url, KHALA_DATA_DIR: operator.data } };
  const json = run(["snapshot", TOPIC, "--json"], options);
  assert.equal(json.code, 0, json.problem);
  const value = JSON.parse(json.out);
  assert.equal(value.documents.length, 200);
  const people = run(["snapshot", TOPIC], options);
  assert.equal(people.code, 0, people.problem);
  const lines = people.out.trim().split("\n");
  assert.ok(lines.includes("watermark\t200"));
  assert.deepEqual(lines.slice(-200), value.documents.map(({ doc_key, doc_version, payload }) =>
    `${doc_key}\t${doc_version}\t${JSON.stringify(payload)}`));
  const empty = run(["snapshot", WORKERS], options);
  assert.match(empty.out, /^watermark\t0$/m);
  const none = run(["snapshot", "chat:lobby"], options);
  assert.equal(none.code, 1);
  assert.match(none.problem, /no_snapshot/);
  assert.equal(run(["snapshot"], options).code, 2);
});
