// The Python client over event streams and long polling, and its way there if WebSockets are blocked.
import assert from "node:assert/strict";
import http from "node:http";
import net from "node:net";
import { test } from "../../lib/cases.mjs";
import { folder } from "../../lib/khala.mjs";
import { operate, operateRun, renewed, textOf } from "../../lib/operator.mjs";
import { events, range, TOPIC } from "../../lib/samples.mjs";
import { until } from "../../lib/wait.mjs";
import { frames, Python } from "./client.mjs";

const FALLBACKS = ["sse", "poll"];
const START = { reason: "start", from_seq: 1, truncated: false };
const python = await Python.ofFile();
const seqs = (seen) => seen.frames.map((frame) => frame.seq);

test("replay, live frames, and a resume after kill -9 without loss or repetition", async (t) => {
  const data = folder(t);
  const first = await operateRun(t, { count: 300, data });
  let signer = first;
  const all = [];
  for (const transport of FALLBACKS) {
    const khala = await python.open(t, { url: first.server.url, token: () => signer.reader, transports: [transport] });
    all.push({ transport, khala, seen: await python.follow(khala, TOPIC) });
  }
  for (const { seen } of all) await frames(seen, 300);
  await first.batch(events(20));
  for (const { seen, khala, transport } of all) {
    await frames(seen, 320);
    assert.equal(khala.state.transport, transport);
  }
  await first.server.crash();
  for (const { khala } of all) await khala.states.until(() => khala.state.status === "backing_off", "the loss");
  signer = await operate(t, { data, bind: `127.0.0.1:${first.server.port}` });
  await signer.batch(events(30));
  for (const { seen } of all) {
    await frames(seen, 350);
    assert.deepEqual([seqs(seen), seen.resets], [range(1, 350), [START]]);
  }
});

test("a stale position, a forbidden topic and a refused token are reported as over the WebSocket", async (t) => {
  const operator = await operateRun(t, { count: 100, settings: { RUNTIME_KHALA_RUN_EVENTS_REPLAY_BUDGET_EVENTS: "30" } });
  const { epoch } = JSON.parse((await operator.poll(TOPIC, "after_seq=99")).body);
  for (const transport of FALLBACKS) {
    const storage = { kind: "memory", name: transport };
    await python.call("save", { storage, key: `khala:${TOPIC}`, text: JSON.stringify({ epoch, seq: 5 }) });
    const options = { url: operator.server.url, transports: [transport] };
    const seen = await python.follow(await python.open(t, { ...options, token: operator.reader, storage }), TOPIC);
    await frames(seen, 30);
    assert.deepEqual(seen.all[0], { reset: { reason: "replay_budget_exceeded", from_seq: 71, truncated: true } });
    assert.deepEqual(seqs(seen), range(71, 100));
    const limited = await python.open(t, { ...options, token: operator.sign({ oa_sync_topics: ["room:*"] }) });
    const forbidden = await python.follow(limited, "hall:1");
    await forbidden.until(() => forbidden.end, "the refusal");
    const wrong = await python.follow(await python.open(t, { ...options, token: "rubbish" }), TOPIC);
    await wrong.until(() => wrong.end, "the end");
    assert.deepEqual([forbidden.end.error.code, wrong.end.error.code], ["forbidden_topic", "invalid_token"]);
  }
});

test("in a log that has had several epochs, a client without a position starts, and goes on", async (t) => {
  const operator = await renewed(t, await operateRun(t, { count: 5 }));
  await operator.batch(events(5));
  for (const transport of FALLBACKS) {
    const khala = await python.open(t, { url: operator.server.url, token: operator.reader, transports: [transport] });
    const seen = await python.follow(khala, TOPIC);
    await frames(seen, 10);
    assert.deepEqual([seen.resets, seqs(seen).slice(0, 10)], [[START], range(1, 10)]);
    const collection = await python.collect(khala, "runtime.run_summaries");
    await until(async () => await collection.get("a"), "the snapshot");
    const [{ event }] = await operator.batch(events(1));
    await until(async () => (await collection.get("a")).latest_seq === event.seq, "the change");
  }
});

test("collections have the snapshot, and tokens are renewed before they expire", async (t) => {
  const operator = await operateRun(t, { count: 4 });
  for (const transport of FALLBACKS) {
    let count = 0;
    const token = () => {
      count++;
      const now = Math.floor(Date.now() / 1000);
      return operator.sign({ oa_sync_scopes: ["runtime.read_all"], iat: now, exp: now + 3 });
    };
    const khala = await python.open(t, { url: operator.server.url, token, transports: [transport] });
    const collection = await python.collect(khala, "runtime.run_summaries");
    await until(async () => await collection.get("a"), "the snapshot");
    await until(() => count >= 2, "a renewal");
    const { latest_seq } = await collection.get("a");
    await operator.batch(events(1));
    await until(async () => (await collection.get("a")).latest_seq === latest_seq + 1, "the change");
    await khala.states.until(() => khala.states.all.some(({ status }) => status === "reauthenticating"), "the renewal on the open connection");
  }
});

/** A server between client and server that passes only the requests whose path fits, and no WebSocket. change gets polls. */
async function blocking(t, operator, pattern, change = (text) => text) {
  const pass = async (request, response) => {
    if (!pattern.test(request.url)) {
      response.writeHead(403, { "content-type": "text/html" }).end("<html>Blocked</html>");
      return;
    }
    const { authorization, "x-request-id": id } = request.headers;
    const { request: passed, answer } = operator.begin("GET", request.url, { authorization, "x-request-id": id });
    passed.end();
    const incoming = await answer;
    const { "content-length": _, ...headers } = incoming.headers;
    response.writeHead(incoming.statusCode, headers);
    if (request.url.includes("/sse")) incoming.pipe(response);
    else response.end(change(await textOf(incoming), request.url));
    response.on("close", () => passed.destroy());
  };
  const server = http.createServer((request, response) => void pass(request, response).catch(() => response.destroy()));
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  return `http://127.0.0.1:${server.address().port}`;
}

test("a client whose WebSockets are blocked uses event streams, and polls if those are blocked too", async (t) => {
  const operator = await operateRun(t, { count: 5 });
  for (const [pattern, transport] of [[/\/v1\/topics\//, "sse"], [/\/messages\?/, "poll"]]) {
    const khala = await python.open(t, { url: await blocking(t, operator, pattern), token: operator.reader });
    const seen = await python.follow(khala, TOPIC);
    await frames(seen, 5);
    await operator.batch(events(1));
    await until(() => seen.frames.length > 5, "a live frame");
    assert.equal(khala.state.transport, transport);
  }
});

test("a fallback takes positions as N@EPOCH, and sends a position without an epoch as it is", async (t) => {
  const operator = await operateRun(t, { count: 5 });
  const asked = [];
  // As a server whose log has had two epochs answers.
  const url = await blocking(t, operator, /\/v1\/topics\//, (text, path) => {
    asked.push(new URL(path, "http://x").searchParams);
    const page = JSON.parse(text);
    return JSON.stringify(asked.at(-1).has("epoch") ? page : { ...page, next_cursor: `${page.next_cursor}@${page.epoch}` });
  });
  for (const [transport, seq] of [["poll", 0], ["poll", 2], ["sse", 2]]) {
    const storage = { kind: "memory", name: `bare ${transport} ${seq}` };
    if (seq > 0) await python.call("save", { storage, key: `khala:${TOPIC}`, text: JSON.stringify({ seq }) });
    const seen = await python.follow(await python.open(t, { url, token: operator.reader, transports: [transport], storage }), TOPIC);
    await frames(seen, 5 - seq);
    assert.deepEqual([seqs(seen), seen.resets], [range(seq + 1, 5), seq > 0 ? [] : [START]]);
    await until(async () => (await seen.look()).position.seq === 5, "the position");
    assert.ok((await seen.look()).position.epoch, "the server named the epoch");
  }
  assert.ok(asked.some((query) => query.get("after_seq") === "2" && !query.has("epoch")), String(asked));
});

/** Passes connections to the server. What is set decides about each: "pass", or "block" for WebSockets alone. */
async function gate(t, port) {
  const door = { rule: "pass", sockets: new Set() };
  const server = net.createServer((socket) => {
    door.sockets.add(socket);
    socket.on("error", () => {});
    socket.on("close", () => door.sockets.delete(socket));
    socket.once("data", (head) => {
      if (door.rule === "block" && /upgrade: websocket/i.test(head.toString("latin1"))) {
        socket.end("HTTP/1.1 403 Blocked\r\nContent-Type: text/html\r\nContent-Length: 7\r\nConnection: close\r\n\r\nBlocked");
        return;
      }
      const onward = net.connect(port, "127.0.0.1");
      onward.on("error", () => socket.destroy());
      socket.on("close", () => onward.destroy());
      onward.write(head);
      socket.pipe(onward).pipe(socket);
    });
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => {
    server.close();
    for (const socket of door.sockets) socket.destroy();
  });
  door.url = `http://127.0.0.1:${server.address().port}`;
  return door;
}

test("a client moves from a fallback to the WebSocket without a gap or a repetition", async (t) => {
  const operator = await operateRun(t, { count: 5 });
  const door = await gate(t, operator.server.port);
  door.rule = "block";
  let tokens = 0;
  const token = () => {
    tokens++;
    return operator.reader;
  };
  const all = [];
  for (const transports of [["websocket", "sse"], ["websocket", "poll"]]) {
    const khala = await python.open(t, { url: door.url, token, transports, prefer_again: [0.05, 0.1] });
    const seen = await python.follow(khala, TOPIC);
    const board = await python.collect(khala, "runtime.run_summaries");
    await frames(seen, 5);
    assert.equal(khala.state.transport, transports[1]);
    all.push({ khala, seen, board });
  }
  const before = tokens;
  let count = 5;
  const feed = async () => {
    await operator.batch(events(3));
    count += 3;
  };
  // Events come while the attempts fail, and while one succeeds.
  await until(async () => {
    await feed();
    return tokens >= before + 4;
  }, "attempts that fail");
  assert.ok(all.every(({ khala }) => khala.state.transport !== "websocket"));
  door.rule = "pass";
  await until(async () => {
    await feed();
    return all.every(({ khala }) => khala.state.transport === "websocket");
  }, "the WebSocket");
  await feed();
  for (const { khala, seen, board } of all) {
    await frames(seen, count);
    assert.deepEqual([seqs(seen), seen.resets], [range(1, count), [START]]);
    await until(async () => (await board.get("a"))?.latest_seq === count, "the summary");
    const last = khala.states.all.map(({ transport }) => transport).lastIndexOf("websocket");
    assert.ok(khala.states.all.slice(last - 1).every(({ status }) => status === "live"), "the connection was live throughout");
  }
  const { items } = await operator.read("connections");
  assert.deepEqual(items.map(({ dialect }) => dialect).filter((dialect) => dialect !== "http"), ["phoenix", "phoenix"]);
});

test("an outage and failed tokens leave every client on its WebSocket", async (t) => {
  const data = folder(t);
  const first = await operateRun(t, { count: 5, data });
  let signer = first;
  let failures = 0;
  const token = () => {
    if (failures-- > 0) throw new Error("offline");
    return signer.reader;
  };
  const all = [];
  for (let i = 0; i < 10; i++) {
    const khala = await python.open(t, { url: first.server.url, token, back_off: [0.01, 0.05] });
    all.push({ khala, seen: await python.follow(khala, TOPIC) });
  }
  for (const { seen } of all) await frames(seen, 5);
  await first.server.crash();
  // Each of them meets closed doors several times.
  const losses = ({ states }) => states.all.filter(({ status }) => status === "connecting").length;
  for (const { khala } of all) await khala.states.until(() => losses(khala) >= 6, "attempts");
  failures = 30;
  signer = await operate(t, { data, bind: `127.0.0.1:${first.server.port}` });
  await signer.batch(events(1));
  for (const { khala, seen } of all) {
    await frames(seen, 6);
    assert.deepEqual([seqs(seen), seen.resets], [range(1, 6), [START]]);
    assert.equal(khala.state.transport, "websocket");
    assert.ok(khala.states.all.every(({ transport }) => transport === null || transport === "websocket"));
  }
});
