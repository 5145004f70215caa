// The whole log by event cursor: pages, ingest, exports of any size and their manifest.
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { spawnSync } from "node:child_process";
import net from "node:net";
import { test } from "../../lib/cases.mjs";
import { binary, connect, environment, folder, run } from "../../lib/khala.mjs";
import { memoryBytes, SANITIZED } from "../../lib/machine.mjs";
import { operate, refused } from "../../lib/operator.mjs";
import { range } from "../../lib/samples.mjs";
import { until } from "../../lib/wait.mjs";

const sha256 = (bytes) => createHash("sha256").update(bytes).digest("hex");

/** Appends events to a run and to the audit log in turn. */
async function filled(operator, count, payload = (i) => ({ i })) {
  await operator.post("runs", { run_id: "r" });
  for (let i = 0; i < count; i += 1000) {
    const items = Array.from({ length: Math.min(1000, count - i) }, (_, j) => (
      { ...(j % 2 ? { run_id: "r" } : { audit: true }), event_type: "note", payload: payload(i + j) }));
    for (const { status } of await operator.batch(items)) assert.equal(status, 200);
  }
}

function page(operator, after, limit) {
  const query = new URLSearchParams({ ...(after && { after_cursor: after }), ...(limit && { limit }) });
  return operator.read(`/api/events?${query}`);
}

/** Reads all pages, and calls between after each but the last. */
async function paged(operator, limit, between = async () => {}) {
  const items = [];
  for (let after; ;) {
    const one = await page(operator, after, limit);
    items.push(...one.items);
    assert.equal(one.next_cursor, one.items.at(-1)?.cursor ?? after ?? null);
    if (!one.has_more) return items;
    assert.equal(one.items.length, limit);
    after = one.next_cursor;
    await between(one);
  }
}

function key(cursor) {
  return Buffer.from(cursor, "base64url").toString();
}

function cursorOf(milliseconds, uuid) {
  return Buffer.from(`${milliseconds}:${uuid}`).toString("base64url");
}

async function exported(operator, query = "") {
  const response = await operator.get(`/api/events/export${query}`);
  assert.equal(response.status, 200, response.body);
  return response;
}

/** Checks the manifest line against the bytes before it. */
function opened(text, format = "ndjson") {
  const csv = format === "csv";
  const end = csv ? "\r\n" : "\n";
  assert.ok(text.endsWith(end));
  const cut = text.lastIndexOf(end, text.length - end.length - 1);
  const data = cut < 0 ? "" : text.slice(0, cut + end.length);
  const line = text.slice(data.length, -end.length);
  const manifest = csv ? JSON.parse(line.replace(/^#manifest,/, "")) : JSON.parse(line).manifest;
  assert.deepEqual(Object.keys(manifest), ["format", "count", "first_cursor", "last_cursor", "bytes", "sha256"]);
  assert.equal(manifest.format, format);
  assert.equal(manifest.sha256, sha256(data));
  assert.equal(manifest.bytes, Buffer.byteLength(data));
  const lines = data.split(end).slice(0, -1);
  assert.equal(manifest.count, lines.length - (csv ? 1 : 0));
  return { manifest, data, lines };
}

const parsed = (lines) => lines.map((line) => JSON.parse(line));

test("pages list each of ten thousand events once and in order", async (t) => {
  const operator = await operate(t);
  await filled(operator, 10_000);
  const items = await paged(operator, 200);
  assert.equal(items.length, 10_001);
  const runs = items.filter(({ entity }) => entity === "run");
  const audits = items.filter(({ entity }) => entity === "audit");
  assert.deepEqual(runs.map(({ seq }) => seq), range(1, 5001));
  assert.deepEqual(audits.map(({ seq }) => seq), range(1, 5000));
  assert.deepEqual(items.slice(1).map(({ payload }) => payload.i), range(0, 9999));
  assert.deepEqual(Object.keys(items[0]), ["event_id", "cursor", "entity", "entity_id", "seq", "event_type", "payload",
    "payload_hash", "owner", "recorded_at", "prev_chain_hash", "chain_hash"]);
  for (let i = 1; i < items.length; i++) assert.ok(key(items[i - 1].cursor) < key(items[i].cursor));
});

test("pages read during appends neither miss nor repeat an event", async (t) => {
  const operator = await operate(t);
  await filled(operator, 2000);
  const appends = [];
  let n = 2000;
  const items = await paged(operator, 199, async () => {
    if (appends.length < 30) appends.push(operator.batch(Array.from({ length: 20 }, () => ({ audit: true, event_type: "note", payload: { i: n++ } }))));
  });
  await Promise.all(appends);
  const rest = await page(operator, items.at(-1).cursor, 200);
  for (let more = rest; ;) {
    items.push(...more.items);
    if (!more.has_more) break;
    more = await page(operator, more.next_cursor, 200);
  }
  assert.equal(items.length, n + 1);
  assert.equal(new Set(items.map(({ event_id }) => event_id)).size, n + 1);
  for (let i = 1; i < items.length; i++) assert.ok(key(items[i - 1].cursor) < key(items[i].cursor));
});

test("a page has a default size and says whether more events follow", async (t) => {
  const operator = await operate(t);
  assert.deepEqual(await page(operator), { items: [], next_cursor: null, has_more: false });
  await filled(operator, 59);
  const first = await page(operator);
  assert.deepEqual([first.items.length, first.has_more], [50, true]);
  assert.deepEqual((await page(operator, first.next_cursor, 10)).has_more, false);
  assert.deepEqual((await page(operator, first.next_cursor, 9)).has_more, true);
  const last = (await page(operator, null, 200)).items.at(-1);
  assert.deepEqual(await page(operator, last.cursor), { items: [], next_cursor: last.cursor, has_more: false });
});

test("a page of large events ends early and names the next position", async (t) => {
  const operator = await operate(t);
  await operator.did("runs", { run_id: "large" }, 201);
  await operator.batch(Array.from({ length: 20 }, () => ({ run_id: "large", event_type: "run.log", payload: { text: "x".repeat(200_000) } })));
  const one = await page(operator, null, 200);
  assert.ok(one.items.length < 10 && one.has_more);
  assert.equal((await page(operator, one.next_cursor, 200)).items[0].seq, one.items.at(-1).seq + 1);
});

test("a cursor is a position even if no event has it", async (t) => {
  const operator = await operate(t);
  await filled(operator, 3);
  const { items } = await page(operator);
  const uuid = "018f3b7e-0000-7000-8000-000000000000";
  assert.equal((await page(operator, cursorOf(1, uuid))).items.length, 4);
  const between = cursorOf(items[0].recorded_at, "ffffffff-ffff-7fff-bfff-ffffffffffff");
  assert.deepEqual((await page(operator, between)).items, items.filter(({ recorded_at }) => recorded_at > items[0].recorded_at));
  const future = cursorOf(9007199254740991, uuid);
  for (const path of [`/api/events?after_cursor=${future}`, `/api/events/export?after_cursor=${future}`]) {
    const { status, body } = await operator.get(path);
    assert.deepEqual([status, JSON.parse(body).error, JSON.parse(body).reason_code], [410, "stale_cursor", "cursor_ahead_of_head"], path);
  }
});

test("cursors of protocol version 1 are taken with KHALA_LEGACY_CURSORS, in lists, exports and the command line", async (t) => {
  const data = folder(t);
  let operator = await operate(t, { data });
  await filled(operator, 3);
  const { items } = await page(operator);
  const time = (item) => Number(key(item.cursor).split(":")[0]);
  const ids = (events) => events.map(({ event_id }) => event_id);
  const legacyOf = (item) => [Buffer.from(key(item.cursor)).toString("base64"), Buffer.from(`${time(item)}:~~~`).toString("base64"),
    Buffer.from(`${time(item)}:42`).toString("base64url")];
  const lists = ["/api/events?after_cursor=", "/api/events?start_cursor="];
  const exports = ["/api/events/export?after_cursor=", "/api/events/export?until_cursor="];
  const verb = (cursor) => run(["export", "--after", cursor, "--url", operator.server.url, "--data-dir", data]);
  assert.match(legacyOf(items[0])[0], /=$/);
  assert.match(legacyOf(items[0])[1], /[+/]/);
  for (const cursor of legacyOf(items[1])) {
    for (const place of [...lists, ...exports]) {
      await refused(operator, () => operator.get(place + encodeURIComponent(cursor)), 400, "TALOS_INVALID_CURSOR");
    }
    assert.match(verb(cursor).problem, /TALOS_INVALID_CURSOR|cursor/);
  }
  await operator.server.stop();
  operator = await operate(t, { data, settings: { KHALA_LEGACY_CURSORS: "true" } });
  for (const item of items) {
    const again = items.filter((one) => time(one) >= time(item)); // the whole millisecond repeats
    for (const cursor of legacyOf(item)) {
      const text = encodeURIComponent(cursor);
      for (const place of lists) assert.deepEqual((await operator.read(place + text)).items, again);
      const read = async (place) => opened((await exported(operator, place + text)).body).lines.map((line) => JSON.parse(line));
      assert.deepEqual(await read("?after_cursor="), again);
      assert.deepEqual(ids(await read("?until_cursor=")), ids(items.filter((one) => time(one) < time(item))));
      assert.deepEqual(ids(opened(verb(cursor).out).lines.map((line) => JSON.parse(line))), ids(again));
    }
  }
  assert.deepEqual((await page(operator, items[0].cursor)).items, items.slice(1), "a cursor of today is exact");
  const ahead = Buffer.from(`${time(items.at(-1)) + 1}:x`).toString("base64");
  await refused(operator, () => operator.get(lists[0] + encodeURIComponent(ahead)), 410, "stale_cursor");
  await refused(operator, () => operator.get(lists[0] + encodeURIComponent("MTo=")), 400, "TALOS_INVALID_CURSOR");
});

test("pages and exports refuse invalid parameters", async (t) => {
  const operator = await operate(t);
  for (const limit of ["0", "201", "-1", "x", "", "1.0", "01", "9".repeat(80)]) {
    await refused(operator, () => operator.get(`/api/events?limit=${limit}`), 400, "invalid_request");
  }
  const uuid4 = cursorOf(1, "018f3b7e-0000-4000-8000-000000000000");
  for (const cursor of ["", "x", "!!!", "MTox", uuid4, "A".repeat(300), `${cursorOf(1, "018f3b7e-0000-7000-8000-000000000000")}A`]) {
    const { body } = await refused(operator, () => operator.get(`/api/events?after_cursor=${cursor}`), 400, "TALOS_INVALID_CURSOR");
    assert.equal(body.details.parameter, "after_cursor");
    await refused(operator, () => operator.get(`/api/events/export?after_cursor=${cursor}`), 400, "TALOS_INVALID_CURSOR");
    const until = await refused(operator, () => operator.get(`/api/events/export?until_cursor=${cursor}`), 400, "TALOS_INVALID_CURSOR");
    assert.equal(until.body.details.parameter, "until_cursor");
  }
  for (const format of ["", "json", "CSV", "x".repeat(100)]) {
    await refused(operator, () => operator.get(`/api/events/export?format=${format}`), 400, "invalid_request");
  }
  for (const query of ["limit=1&limit=2", "after_cursor=%zz", "format=csv&format=csv"]) {
    await refused(operator, () => operator.get(`/api/events/export?${query}&after_cursor=%zz`), 400, "bad_request");
  }
  for (const [method, path] of [["GET", "/api/events"], ["GET", "/api/events/export"], ["POST", "/api/events/ingest"]]) {
    const response = await operator.ask(method, path, undefined, { authorization: "Bearer wrong" });
    assert.equal(response.status, 401);
  }
  assert.equal((await operator.ask("POST", "/api/events", "{}")).status, 405);
});

test("ingest appends to the audit log and answers like any append", async (t) => {
  const operator = await operate(t);
  const first = await operator.did("/api/events/ingest", { event_type: "login", payload: { user: "u" }, owner_user_id: "u" });
  assert.deepEqual([first.event.entity, first.event.entity_id, first.event.seq, first.deduplicated], ["audit", "audit", 1, false]);
  const again = { event_type: "login", event_id: "018f3b7e-0000-7000-8000-000000000001" };
  assert.equal((await operator.did("/api/events/ingest", again)).deduplicated, false);
  assert.equal((await operator.did("/api/events/ingest", again)).deduplicated, true);
  await refused(operator, () => operator.post("/api/events/ingest", { ...again, event_type: "logout" }), 409, "event_id_conflict");
  assert.deepEqual((await page(operator)).items.map(({ event_type }) => event_type), ["login", "login"]);
});

test("a given event_hash is verified", async (t) => {
  const operator = await operate(t);
  // The keys are in canonical order, so that JSON.stringify writes the canonical text.
  const body = { event_type: "login", more: [1, { a: null }], payload: { a: "é", b: [true, 2] } };
  const hash = sha256(JSON.stringify(body));
  for (const given of [hash, `sha256:${hash}`, hash.toUpperCase()]) {
    await operator.did("/api/events/ingest", { payload: { b: [true, 2], a: "é" }, event_hash: given, more: body.more, event_type: "login" });
  }
  await operator.did("/api/events/ingest", { ...body, event_hash: null });
  for (const changed of [{ ...body, event_type: "logout" }, { ...body, more: [] }, { ...body, extra: 1 }]) {
    await refused(operator, () => operator.post("/api/events/ingest", { ...changed, event_hash: hash }), 422, "event_hash_mismatch");
  }
  for (const given of ["", "x", 7, hash.slice(1), `md5:${hash}`]) {
    await refused(operator, () => operator.post("/api/events/ingest", { ...body, event_hash: given }), 400, "invalid_request");
  }
  await refused(operator, () => operator.post("/api/events/ingest", { payload: {}, event_hash: hash }), 400, "invalid_request");
  await refused(operator, () => operator.post("/api/events/ingest", "{"), 400, "invalid_json");
  await refused(operator, () => operator.post("/api/events/ingest", `{"event_type":"a","a":1,"a":2,"event_hash":"${hash}"}`), 400, "json_duplicate_key");
});

test("an export contains the log and a manifest with its hash", async (t) => {
  const operator = await operate(t);
  const empty = opened((await exported(operator)).body);
  assert.deepEqual(empty.manifest, { format: "ndjson", count: 0, first_cursor: null, last_cursor: null, bytes: 0, sha256: sha256("") });
  await filled(operator, 1500);
  const response = await exported(operator);
  assert.equal(response.headers["content-type"], "application/x-ndjson");
  const { manifest, lines } = opened(response.body);
  const all = await paged(operator, 200);
  assert.deepEqual(parsed(lines), all);
  assert.deepEqual([manifest.first_cursor, manifest.last_cursor], [all[0].cursor, all.at(-1).cursor]);
});

test("an export stops at until_cursor, and the next one continues after it", async (t) => {
  const operator = await operate(t);
  await filled(operator, 1000);
  const all = await paged(operator, 200);
  const first = opened((await exported(operator, `?until_cursor=${all[400].cursor}`)).body);
  const second = opened((await exported(operator, `?after_cursor=${first.manifest.last_cursor}`)).body);
  assert.deepEqual(parsed(first.lines), all.slice(0, 401));
  assert.deepEqual(parsed(second.lines), all.slice(401));
  const one = opened((await exported(operator, `?after_cursor=${all[6].cursor}&until_cursor=${all[7].cursor}`)).body);
  assert.deepEqual(parsed(one.lines), [all[7]]);
  const uuid = "018f3b7e-0000-7000-8000-000000000000";
  for (const [after, until] of [[all[7].cursor, all[7].cursor], [all[9].cursor, all[3].cursor], [all.at(-1).cursor, all.at(-1).cursor],
    [all[0].cursor, cursorOf(1, uuid)]]) {
    assert.equal(opened((await exported(operator, `?after_cursor=${after}&until_cursor=${until}`)).body).manifest.count, 0);
  }
  const beyond = opened((await exported(operator, `?until_cursor=${cursorOf(9007199254740991, uuid)}`)).body);
  assert.equal(beyond.manifest.count, 1001);
});

/** A strict parser of RFC 4180. */
function parseCsv(text) {
  const rows = [];
  const field = /(?:"((?:[^"]|"")*)"|([^",\r\n]*))(,|\r\n)/y;
  let row = [];
  while (field.lastIndex < text.length) {
    const at = field.lastIndex;
    const match = field.exec(text);
    assert.ok(match, `not CSV at ${at}: ${text.slice(at, at + 80)}`);
    row.push(match[1]?.replaceAll('""', '"') ?? match[2]);
    if (match[3] === "\r\n") {
      rows.push(row);
      row = [];
    }
  }
  assert.equal(row.length, 0);
  return rows;
}

test("a CSV export contains the same events, quoted as RFC 4180 says", async (t) => {
  const operator = await operate(t);
  await operator.did("runs", { run_id: 'a,"b"' }, 201);
  await operator.did("topics/=1+1/events", { event_type: "=cmd|x", payload: { text: 'a "quoted"\nline, and =1+1', list: [1, null] } });
  await operator.did("/api/events/ingest", { event_type: "plain" });
  const response = await exported(operator, "?format=csv");
  assert.match(response.headers["content-type"], /^text\/csv; charset=utf-8/);
  const { data } = opened(response.body, "csv");
  const [header, ...rows] = parseCsv(data);
  const items = await paged(operator, 200);
  const numbers = ["seq", "recorded_at", "chain_version"];
  const read = rows.map((row) => Object.fromEntries(row.map((text, i) => [header[i],
    header[i] === "payload" ? JSON.parse(text) : numbers.includes(header[i]) ? Number(text) : text])));
  // The owner is spread over columns, and each row names the version of its link.
  const flat = items.map(({ owner, recorded_at, prev_chain_hash, chain_hash, ...item }) => ({ ...item, owner_user_id: owner.user_id ?? "",
    owner_guest_scope: owner.guest_scope ?? "", org_id: owner.org_id ?? "", recorded_at, prev_chain_hash, chain_hash, chain_version: 2 }));
  assert.deepEqual(header, Object.keys(flat[0]));
  assert.deepEqual(read, flat);
  assert.match(data, /,=1\+1,/);
  assert.equal(opened((await exported(operator, `?format=csv&after_cursor=${items.at(-1).cursor}`)).body, "csv").manifest.count, 0);
});

test("HEAD of an export has no body, and an HTTP/1.0 export ends with the connection", async (t) => {
  const operator = await operate(t);
  await filled(operator, 3000);
  const head = await operator.ask("HEAD", "/api/events/export");
  assert.deepEqual([head.status, head.body], [200, ""]);
  const socket = net.connect({ host: operator.server.host, port: operator.server.port });
  socket.write(`GET /api/events/export HTTP/1.0\r\nAuthorization: Bearer ${operator.key}\r\n\r\n`);
  let text = "";
  for await (const piece of socket) text += piece;
  assert.equal(opened(text.slice(text.indexOf("\r\n\r\n") + 4)).manifest.count, 3001);
});

test("a hundred thousand events are exported in constant memory, also from the middle", async (t) => {
  const operator = await operate(t);
  const count = SANITIZED ? 20_000 : 100_000;
  await filled(operator, count, (i) => ({ i, text: "x".repeat(300) }));
  await exported(operator, "?format=csv"); // caches are warm
  const before = memoryBytes(operator.server);
  let largest = before;
  const hash = createHash("sha256");
  const { request, answer } = operator.begin("GET", "/api/events/export");
  request.end();
  let size = 0;
  let seen = 0;
  let middle;
  let rest = Buffer.alloc(0);
  for await (const piece of await answer) {
    size += piece.length;
    largest = Math.max(largest, memoryBytes(operator.server));
    const text = Buffer.concat([rest, piece]);
    const end = text.lastIndexOf(10) + 1;
    rest = text.subarray(end);
    for (const line of text.subarray(0, end).toString().split("\n").slice(0, -1)) {
      const one = JSON.parse(line);
      if (one.manifest) {
        assert.equal(one.manifest.count, count + 1);
        assert.equal(one.manifest.sha256, hash.digest("hex"));
        seen = -seen;
        continue;
      }
      hash.update(`${line}\n`);
      assert.equal(one.payload.i ?? -1, seen - 1);
      if (++seen === count / 2) middle = one.cursor;
    }
  }
  assert.equal(seen, -(count + 1), "the manifest is the last line");
  assert.ok(size > count * 600);
  assert.ok(largest - before < (SANITIZED ? 200e6 : 20e6), `${before} grew to ${largest}`);
  const { manifest, lines } = opened((await exported(operator, `?after_cursor=${middle}`)).body);
  assert.equal(manifest.count, count / 2 + 1);
  assert.equal(JSON.parse(lines[0]).payload.i, count / 2 - 1);
});

test("an export ends at the head that the log had at its start", async (t) => {
  const operator = await operate(t);
  await filled(operator, 5000, (i) => ({ i, text: "x".repeat(500) }));
  const { request, answer } = operator.begin("GET", "/api/events/export");
  request.end();
  let text = "";
  let added = 0;
  for await (const piece of await answer) {
    text += piece;
    if (added++ < 20) await operator.batch(Array.from({ length: 100 }, () => ({ audit: true, event_type: "late" })));
  }
  const { manifest } = opened(text);
  assert.equal(manifest.count, 5001);
});

test("an export whose client stops reading is cut off, and an abandoned one is released", async (t) => {
  const data = folder(t);
  let operator = await operate(t, { data });
  await filled(operator, 20_000, (i) => ({ i, text: "x".repeat(1000) }));
  await operator.server.stop();
  // Only the reads have a short timeout: the batches may take as long as the machine needs.
  operator = await operate(t, { data, settings: { KHALA_REQUEST_TIMEOUT_MS: "1500" } });
  for (const leaves of [true, false]) {
    const peer = await connect(operator.server);
    await peer.send(`GET /api/events/export HTTP/1.1\r\nHost: x\r\nX-Request-Id: unread\r\nAuthorization: Bearer ${operator.key}\r\n\r\n`);
    await peer.head();
    if (leaves) {
      peer.close();
      continue;
    }
    peer.socket.pause();
    // Other clients are served until the server cuts this one off.
    await until(async () => (await operator.read("khala/why?connection=unread")).decisions.length > 0, "the end of the export");
    peer.socket.resume();
    assert.doesNotMatch((await peer.rest()).slice(-500), /manifest/);
  }
  assert.equal(opened((await exported(operator)).body).manifest.count, 20_001);
});

test("khala export writes the server's export", async (t) => {
  const operator = await operate(t);
  await filled(operator, 1200);
  const settings = { KHALA_URL: operator.server.url, KHALA_DATA_DIR: operator.data };
  const all = await paged(operator, 200);
  const whole = run(["export"], { settings });
  assert.equal(whole.code, 0, whole.problem);
  assert.deepEqual(parsed(opened(whole.out).lines), all);
  const part = run(["export", "--after", all[2].cursor, "--until", all[5].cursor, "--format", "csv"], { settings });
  assert.equal(opened(part.out, "csv").manifest.count, 3);
  const bad = run(["export", "--after", "nonsense"], { settings });
  assert.deepEqual([bad.code, bad.out], [1, ""]);
  assert.match(bad.problem, /^khala: TALOS_INVALID_CURSOR: /);
  assert.equal(run(["export", "--format", "xml"], { settings }).code, 1);
  assert.equal(run(["export", "more"], { settings }).code, 2);
  assert.equal(run(["export"], { settings: { ...settings, KHALA_URL: "http://127.0.0.1:1" } }).code, 3);
  const full = spawnSync("bash", ["-c", `"${binary}" export > /dev/full`], { env: environment(settings), encoding: "utf8" });
  assert.equal(full.status, 3, full.stderr);
});
