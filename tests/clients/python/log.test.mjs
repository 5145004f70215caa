// The Python client follows the whole log: in order, once, over crashes, ends of tokens and other histories.
import assert from "node:assert/strict";
import http from "node:http";
import { test } from "../../lib/cases.mjs";
import { folder } from "../../lib/khala.mjs";
import { operate, operateRun } from "../../lib/operator.mjs";
import { events, range } from "../../lib/samples.mjs";
import { until } from "../../lib/wait.mjs";
import { frames, Python } from "./client.mjs";

const python = await Python.ofFile();
const open = (t, { server, ...options }) => python.open(t, { url: server.url, ...options });
const cursors = (seen) => seen.frames.map(({ cursor }) => cursor);
const logged = async (operator) => (await operator.log()).map(({ cursor }) => cursor);
const cursorOf = (time, id) => Buffer.from(`${time}:${id}`).toString("base64url");

test("every event of every entity once and in order, over kill -9 of the server and a new client", async (t) => {
  const data = folder(t);
  const first = await operateRun(t, { count: 300, data });
  let signer = first;
  const storage = { kind: "file", name: "log", folder: folder(t) };
  const khala = await open(t, { server: first.server, token: () => signer.reader, storage });
  const seen = await python.log(khala);
  await frames(seen, 300);
  await first.batch([...events(20), { topic: "room:1", event_type: "said", payload: {} }]);
  await frames(seen, 321);
  await first.server.crash();
  await khala.warnings.until(() => khala.warnings.all.length > 0, "a warning");
  const [{ code, message, retry_after }] = khala.warnings.all;
  assert.ok(["connection_lost", "connect_failed", "stream_ended"].includes(code), code);
  assert.match(message, /^Following the log again in \d+\.\d s after /);
  assert.ok(retry_after > 0);
  signer = await operate(t, { data, bind: `127.0.0.1:${first.server.port}` });
  await signer.batch(events(30));
  await frames(seen, 351);
  assert.deepEqual([cursors(seen), seen.resets], [await logged(signer), []]);
  await until(async () => await seen.look() === seen.frames[350].cursor, "the cursor");
  await khala.close();
  await seen.until(() => seen.end, "the end with the client");
  await signer.batch(events(1));
  const next = await python.log(await open(t, { server: signer.server, token: signer.reader, storage }));
  await frames(next, 1);
  assert.deepEqual(cursors(next), (await logged(signer)).slice(351));
});

test("the log starts at its head, at a time or after a cursor, and a loop that breaks leaves its last event", async (t) => {
  const operator = await operateRun(t, { count: 5 });
  const khala = await open(t, { server: operator.server, token: operator.reader });
  const all = await logged(operator);
  const head = await python.log(khala, { from_: "head", key: "head" });
  await until(() => head.look(), "the head");
  const past = await python.log(khala, { since: "1h", key: "past" });
  const behind = await python.log(khala, { after: all[2] });
  await frames(behind, 2);
  const two = await python.log(khala, { until: 2, key: "two" });
  await two.until(() => two.end, "the end of the loop");
  const rest = await python.log(khala, { key: "two" });
  await frames(rest, 4);
  await operator.batch(events(1));
  for (const [seen, count] of [[head, 1], [past, 6], [behind, 3], [rest, 5]]) {
    await frames(seen, count);
    assert.deepEqual([cursors(seen), seen.resets], [(await logged(operator)).slice(-count), []]);
  }
  await head.close();
  await head.until(() => head.end, "the end");
  assert.equal(head.end.error, null);
  assert.equal((await python.log(khala, { after: "" }).catch((error) => error)).code, "ValueError");
});

test("a cursor of another history starts the log again, with notice", async (t) => {
  const operator = await operateRun(t, { count: 5 });
  const khala = await open(t, { server: operator.server, token: operator.reader });
  const ahead = cursorOf(Date.now() + 3_600_000, "01a1effe-4951-7735-b954-468d20f77907");
  const seen = await python.log(khala, { after: ahead });
  await frames(seen, 5);
  assert.deepEqual([seen.all[0], cursors(seen)], [{ reset: { reason: "cursor_ahead_of_head" } }, await logged(operator)]);
  const careless = await python.log(khala, { after: ahead, is_handled: false });
  await careless.until(() => careless.end, "the error");
  assert.deepEqual([careless.end.error.code, careless.frames], ["reset_unhandled", []]);
  const storage = { kind: "memory", name: "rubbish" };
  for (const text of ["rubbish", "[]", "{\"cursor\":7}", "{\"cursor\":\"\"}"]) {
    await python.call("save", { storage, key: "khala-log", text });
    const again = await python.log(await open(t, { server: operator.server, token: operator.reader, storage }), { from_: "head" });
    await frames(again, 5);
    assert.deepEqual(again.all[0], { reset: { reason: "position_unreadable" } }, text);
  }
});

test("events that come again are dropped, also by another stream, and the order is not that of the text", async (t) => {
  // The texts of these cursors do not ascend.
  const id = (n) => `01a1effe-4951-7735-b954-${String(n).padStart(12, "0")}`;
  const all = range(1, 40).map((n) => cursorOf(1_795_027_781_000 + 61 * n, id(n)));
  assert.notDeepEqual([...all].sort(), all);
  const asked = [];
  const server = http.createServer((request, response) => {
    asked.push(new URL(request.url, "http://x").searchParams.get("after_cursor"));
    response.writeHead(200, { "content-type": "text/event-stream", "x-request-id": request.headers["x-request-id"] });
    const send = (cursor) => response.write(`id: ${cursor}\ndata: ${JSON.stringify({ cursor, event_id: "e", seq: 1 })}\n\n`);
    const [from, to] = [[0, 20], [10, 30], [0, 40]][Math.min(asked.length, 3) - 1];
    for (const cursor of [...all.slice(from, to), ...all.slice(to - 3, to)]) send(cursor);
    if (asked.length <= 2) response.end();
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  const seen = await python.log(await open(t, { server: { url: `http://127.0.0.1:${server.address().port}` }, token: "t" }));
  await frames(seen, 40);
  assert.deepEqual([cursors(seen), asked.slice(0, 3)], [all, [null, all[19], all[29]]]);
});

test("the log goes on with a new token, and ends with an error that is final", async (t) => {
  const operator = await operateRun(t, { count: 5 });
  let count = 0;
  const token = () => {
    count++;
    const now = Math.floor(Date.now() / 1000);
    return operator.sign({ oa_sync_scopes: ["runtime.read_all"], iat: now, exp: now + 3 });
  };
  const khala = await open(t, { server: operator.server, token });
  const seen = await python.log(khala);
  await frames(seen, 5);
  await until(() => count >= 2, "a second token");
  await operator.batch(events(1));
  await frames(seen, 6);
  assert.deepEqual(cursors(seen), await logged(operator));
  const poor = operator.sign({ oa_sync_scopes: ["runtime.append"] });
  for (const [refused, code, status] of [[poor, "missing_scope", 403], ["rubbish", "invalid_token", 401]]) {
    const ended = await python.log(await open(t, { server: operator.server, token: refused }));
    await ended.until(() => ended.end, "the end");
    assert.deepEqual([ended.end.error.code, ended.end.error.status], [code, status]);
    assert.ok(ended.end.error.request_id);
  }
  const denied = await open(t, { server: operator.server, token: () => { throw Object.assign(new Error("signed out"), { final: true }); } });
  const ended = await python.log(denied);
  await ended.until(() => ended.end, "the end");
  assert.equal(ended.end.error.code, "token_failed");
});
