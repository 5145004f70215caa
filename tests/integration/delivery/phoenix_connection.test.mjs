// Connections of the main dialect: raw frames that no client library would send, silence, message rates and closing.
import assert from "node:assert/strict";
import WebSocket from "ws";
import { alone, test } from "../../lib/cases.mjs";
import { connect, getRequest } from "../../lib/khala.mjs";
import { operate, operateRun } from "../../lib/operator.mjs";
import { Client } from "../../lib/phoenix.mjs";
import { events, range, TOPIC } from "../../lib/samples.mjs";
import { repeat, until, within } from "../../lib/wait.mjs";
import { BINARY, CLOSE, frame, handshake, message, phoenixPath, PING, PONG, RawSocket, TEXT } from "../../lib/websocket.mjs";

/** Starts a server with a run of so many events. */
const withRun = (t, count, settings = {}) => operateRun(t, { count, owner_user_id: "u", settings });

alone("the server sends heartbeats and closes a silent client", async (t) => {
  const operator = await withRun(t, 4, { KHALA_HEARTBEAT_MS: "40", KHALA_SILENCE_TIMEOUT_MS: "2000" });
  const client = await Client.join(operator, { heartbeatIntervalMs: 100 });
  await client.subscribe({ topics: [TOPIC], resume_after: { [TOPIC]: 0 } });
  const silent = await RawSocket.open(operator);
  const beaten = async () => {
    const found = await silent.find((one) => one.opcode === TEXT && JSON.parse(one.payload)[3] === "sync:heartbeat");
    return JSON.parse(found.payload);
  };
  assert.deepEqual(await beaten(), [null, null, "sync:v1", "sync:heartbeat", { covered: [], watermarks: [] }]);
  await beaten();
  assert.equal((await silent.closed()).code, 1001);
  await client.until(() => client.of("sync:heartbeat").length > 30, "heartbeats");
  assert.deepEqual(client.of("sync:heartbeat").at(-1),
    { covered: [{ topic: TOPIC, epoch: client.welcome.epoch, after: 4, through: 4 }], watermarks: [{ topic: TOPIC, watermark: 4 }] });
  assert.deepEqual(client.closes, [], "one that speaks is not closed");
});

alone("after a pause the server reads the waiting input before it closes silent connections", async (t) => {
  const settings = { KHALA_SILENCE_TIMEOUT_MS: "2000", KHALA_IDLE_TIMEOUT_MS: "2000", KHALA_REQUEST_TIMEOUT_MS: "2000" };
  const operator = await operate(t, { settings });
  const [silent, ...speaking] = await Promise.all(range(1, 9).map(() => RawSocket.open(operator)));
  const idle = await connect(operator.server);
  await idle.send(getRequest("/healthz/live"));
  assert.equal((await idle.response()).status, 200);
  const halfway = await connect(operator.server);
  await halfway.send("GET /healthz/live HTTP/1.1\r\n");
  operator.server.kill("SIGSTOP");
  const stoppedMs = Date.now();
  for (const raw of speaking) await raw.send(message(["1", "h", "sync:v1", "sync:heartbeat", {}]));
  await idle.send(getRequest("/healthz/live"));
  await halfway.send("Host: khala\r\n\r\n");
  await until(() => Date.now() > stoppedMs + 2200, "a pause longer than the timeouts");
  operator.server.kill("SIGCONT");
  for (const raw of speaking) assert.equal((await raw.reply("h")).status, "ok");
  assert.equal((await idle.response()).status, 200);
  assert.equal((await halfway.response()).status, 200);
  assert.equal((await silent.closed()).code, 1001);
});

test("bytes of an incomplete message do not reset the silence timeout", async (t) => {
  const operator = await operate(t, { settings: { KHALA_SILENCE_TIMEOUT_MS: "1000" } });
  const raw = await RawSocket.open(operator);
  const bytes = message(["1", "2", "sync:v1", "sync:heartbeat", { text: "x".repeat(5000) }]);
  let sent = 0;
  repeat(t, 5, () => {
    if (!raw.peer.ended) raw.peer.socket.write(bytes.subarray(sent, ++sent));
  });
  assert.equal((await raw.closed()).code, 1001);
  assert.ok(sent < bytes.length - 1, "the whole message was sent");
});

test("messages and frames that break the rules close with their code", async (t) => {
  const operator = await operate(t, { settings: { KHALA_WS_MESSAGE_BYTES_MAX: "4096" } });
  const cases = [
    ["no JSON", frame(TEXT, "hello"), 4003],
    ["another shape", frame(TEXT, "[1,2]"), 4003],
    ["binary", frame(BINARY, "[]"), 4003],
    ["unmasked", frame(TEXT, "[]", { mask: false }), 1002],
    ["a reserved bit", frame(TEXT, "[]", { rsv: 2 }), 1002],
    ["compressed without agreement", frame(TEXT, "[]", { rsv: 4 }), 1002],
    ["an unknown opcode", frame(5, "x"), 1002],
    ["a fragmented ping", frame(PING, "x", { fin: false }), 1002],
    ["a long ping", frame(PING, "x".repeat(126)), 1002],
    ["a continuation of nothing", frame(0, "x"), 1002],
    ["a text in a text", Buffer.concat([frame(TEXT, "[", { fin: false }), frame(TEXT, "]")]), 1002],
    ["broken UTF-8", frame(TEXT, Buffer.from([0x22, 0xff, 0x22])), 1007],
    ["a cut character", frame(TEXT, Buffer.from([0x22, 0xc3])), 1007],
    ["too big", frame(TEXT, "x".repeat(4097)), 1009],
    ["too big by its header", frame(TEXT, "x", { size: 2 ** 40 }), 1009],
    ["a header and nothing behind it", frame(TEXT, "", { size: 2 ** 62 }), 1009],
    ["a header with the top bit and nothing behind it", frame(TEXT, "", { size: 2 ** 63 }), 1002],
    ["a fragment's header that is too much with what came before",
      Buffer.concat([frame(TEXT, "x".repeat(2000), { fin: false }), frame(0, "", { size: 2097 })]), 1009],
    ["endless fragments", Buffer.concat([frame(TEXT, "x".repeat(1000), { fin: false }),
      ...Array.from({ length: 5 }, () => frame(0, "x".repeat(1000), { fin: false }))]), 1009],
    ["a close of one byte", frame(CLOSE, "x"), 1002],
    ["a close with a wrong code", frame(CLOSE, Buffer.from([0x03, 0xed])), 1002],
  ];
  const healthy = await Client.join(operator);
  for (const [what, bytes, code] of cases) {
    const raw = await RawSocket.open(operator);
    await raw.send(bytes);
    const closed = await raw.closed();
    assert.equal(closed?.code, code, what);
  }
  const empty = await RawSocket.open(operator);
  let count = 0;
  await empty.send(frame(TEXT, "", { fin: false }));
  const fragments = Buffer.concat(Array.from({ length: 1000 }, () => frame(0, "", { fin: false })));
  for (; count < 1000 && !empty.peer.ended; count++) await empty.send(fragments).catch(() => {});
  assert.equal((await empty.closed())?.code, 1009, "endless empty fragments");
  assert.equal((await healthy.ask("sync:heartbeat", {})).status, "ok");
});

test("a client closed for a wrong message receives its position", async (t) => {
  const operator = await withRun(t, 5, { KHALA_WS_MESSAGE_BYTES_MAX: "4096" });
  for (const [bytes, code, why] of [[frame(TEXT, "hello"), 4003, "invalid_message"],
    [frame(TEXT, "x".repeat(4097)), 1009, "payload_too_large"], [frame(5, "x"), 1002, "ws_protocol_error"]]) {
    const raw = await RawSocket.open(operator);
    await raw.send(message(["1", "2", "sync:v1", "sync:subscribe", { topics: [TOPIC], resume_after: { [TOPIC]: 0 } }]));
    await raw.find((one) => one.opcode === TEXT && JSON.parse(one.payload)[4].through === 5);
    await raw.send(bytes);
    const [, , channel, event, body] = JSON.parse((await raw.frame()).payload);
    assert.deepEqual([channel, event, body.code], ["sync:v1", "sync:error", why]);
    assert.deepEqual(body.resume_after, [{ topic: TOPIC, watermark: 5 }]);
    assert.deepEqual(await raw.closed(), { code, reason: `resume_after ${TOPIC}=5` });
  }
});

test("a closed socket of several topics receives the position of each topic", async (t) => {
  const operator = await withRun(t, 5, { KHALA_SILENCE_TIMEOUT_MS: "1500", KHALA_SHUTDOWN_GRACE_MS: "0" });
  const long = `chat:${"x".repeat(200)}`;
  for (const [others, reason] of [[["runtime.notifications"], `resume_after runtime.notifications=0, ${TOPIC}=5`],
    [[long], ""]]) {
    const ends = { frame: (raw) => raw.send(frame(5, "x")), silence: () => {} };
    if (reason === "") ends.restart = () => operator.server.kill("SIGTERM");
    for (const [why, end] of Object.entries(ends)) {
      const raw = await RawSocket.open(operator);
      const resume_after = { [TOPIC]: 0, [others[0]]: 0 };
      await raw.send(message(["1", "2", "sync:v1", "sync:subscribe", { topics: [TOPIC, ...others], resume_after }]));
      await raw.find((one) => one.opcode === TEXT && JSON.parse(one.payload)[4].through === 5);
      end(raw);
      const last = await raw.find((one) => one.opcode === CLOSE || JSON.parse(one.payload)[3] === "sync:error");
      assert.equal(last.opcode, TEXT, `${why}: closed without an error`);
      const body = JSON.parse(last.payload)[4];
      assert.deepEqual(body.resume_after, [{ topic: others[0], watermark: 0 }, { topic: TOPIC, watermark: 5 }], why);
      const codes = { frame: [1002, "ws_protocol_error"], silence: [1001, "ws_silent"], restart: [1012, "shutting_down"] };
      const closed = await raw.closed();
      assert.deepEqual([closed.code, body.code], codes[why]);
      assert.equal(closed.reason, reason, why);
      await raw.send(frame(CLOSE, ""));
    }
  }
  await operator.server.stopped();
});

test("an invalid handshake is answered as HTTP", async (t) => {
  const operator = await operate(t);
  const good = handshake(phoenixPath(operator));
  const cases = [
    [good.replace("Upgrade: websocket\r\n", ""), 426], [good.replace(/Sec-WebSocket-Key: \S+/, "Sec-WebSocket-Key: x"), 400],
    [good.replace("Version: 13", "Version: 8"), 426], [good.replace("vsn=2.0.0", "vsn=1.0.0"), 400],
    [good.replace(/token=[^&\s]+/, "token=wrong"), 401], [good.replace("GET", "HEAD"), 400],
    [good.replace(/(Sec-WebSocket-Key: \S+\r\n)/, "$1$1"), 400], [good.replace(/(Sec-WebSocket-Version: 13\r\n)/, "$1$1"), 400],
  ];
  for (const [text, status] of cases) {
    const peer = await connect(operator.server);
    await peer.send(text);
    const answer = await peer.response({ bodiless: text.startsWith("HEAD") });
    assert.ok(answer.status === status || (status === 426 && answer.status === 400), `${answer.status}: ${text}`);
  }
  const both = await RawSocket.open(operator, { path: `/sync${phoenixPath(operator)}` });
  await both.send(frame(PING, "are you there"));
  const pong = await both.find((one) => one.opcode === PONG);
  assert.equal(pong.payload.toString(), "are you there");
});

test("a handshake may repeat the fields of lists, and ask for a smaller window", async (t) => {
  const operator = await withRun(t, 50);
  const repeated = ["Sec-WebSocket-Protocol: a", "Sec-WebSocket-Protocol: b", "Sec-WebSocket-Extensions: x-unknown; a=1",
    "Sec-WebSocket-Extensions: permessage-deflate; server_max_window_bits=10", "Connection: keep-alive"].join("\r\n");
  const raw = await RawSocket.open(operator, { headers: { "X-First": `1\r\n${repeated}` } });
  assert.match(raw.head, /permessage-deflate; server_no_context_takeover; client_no_context_takeover; server_max_window_bits=10\r\n/);
  await raw.subscribe(TOPIC);
  const batch = await raw.find((one) => one.opcode === TEXT && (one.rsv === 4 || JSON.parse(one.payload)[3] === "sync:update_batch"));
  assert.ok(batch.payload.length > 1024 && batch.rsv === 0, "a message beyond the window is not compressed");
});

test("a message may have thousands of fragments", async (t) => {
  const operator = await operate(t);
  const raw = await RawSocket.open(operator);
  const text = Buffer.from(JSON.stringify(["1", "7", "sync:v1", "sync:heartbeat", { padding: "x".repeat(6000) }]));
  const pieces = [...text].map((byte, i) => frame(i === 0 ? TEXT : 0, Buffer.from([byte]), { fin: i === text.length - 1 }));
  assert.ok(pieces.length > 5000);
  await raw.send(Buffer.concat(pieces));
  assert.equal((await raw.reply("7")).status, "ok");
});

alone("after a protocol failure the server ends the connection without waiting", async (t) => {
  const operator = await operate(t);
  const begun = performance.now();
  for (const bytes of [frame(TEXT, "[]", { rsv: 2 }), frame(5, "x"), frame(0, "x"), frame(TEXT, "[]", { mask: false })]) {
    const raw = await RawSocket.open(operator);
    await raw.send(bytes);
    assert.equal((await raw.closed()).code, 1002);
    await raw.send(frame(CLOSE, Buffer.from([0x03, 0xea])));
    await raw.peer.rest();
  }
  // A server that waits takes two seconds for each.
  assert.ok(performance.now() - begun < 4000, `${performance.now() - begun} ms`);
});

test("messages sent together with the handshake are answered in order", async (t) => {
  const operator = await withRun(t, 3);
  const peer = await connect(operator.server);
  await peer.send(Buffer.concat([Buffer.from(handshake(phoenixPath(operator))),
    message(["1", "1", "sync:v1", "phx_join", {}]),
    message(["1", "2", "sync:v1", "sync:subscribe", { topics: [TOPIC], resume_after: { [TOPIC]: 0 } }]),
    message(["1", "3", "sync:v1", "sync:heartbeat", {}]),
    message(["1", "4", "sync:v1", "sync:subscribe", { topics: ["run:b:events"] }]),
    message(["1", "5", "sync:v1", "sync:unsubscribe", { topics: [TOPIC] }])]));
  await peer.head();
  const raw = new RawSocket();
  raw.peer = peer;
  const refs = [];
  while (refs.at(-1) !== "5") {
    const { payload } = await raw.find((one) => one.opcode === TEXT);
    const [, ref, , event, body] = JSON.parse(payload);
    if (event === "phx_reply") refs.push(ref);
    if (ref === "3") assert.deepEqual(body.response.watermarks, [{ topic: TOPIC, watermark: 3 }]);
  }
  assert.deepEqual(refs, ["1", "2", "3", "4", "5"]);
});

test("messages after a large reply are all answered", async (t) => {
  const operator = await withRun(t, 1);
  const raw = await RawSocket.open(operator);
  const topics = range(1, 1000).map((i) => `room:${"x".repeat(100)}:${i}`);
  await raw.send(message(["1", "s", "sync:v1", "sync:subscribe", { topics }]));
  assert.equal((await raw.reply("s")).status, "ok");
  await raw.send(Buffer.concat(range(1, 20).map((i) => message(["1", `h${i}`, "sync:v1", "sync:heartbeat", {}]))));
  for (const i of range(1, 20)) assert.equal((await raw.reply(`h${i}`)).status, "ok");
});

test("a client above the message rate receives an error, and is closed if it continues", async (t) => {
  const operator = await operate(t, { settings: { KHALA_WS_MESSAGES_PER_SECOND: "50" } });
  const healthy = await Client.join(operator);
  const raw = await RawSocket.open(operator);
  const codes = new Map();
  let ref = 2;
  const closed = (async () => {
    for (;;) {
      const next = await raw.frame();
      if (next === null) return null;
      if (next.opcode === CLOSE) return next.payload.readUInt16BE(0);
      const [, , , event, body] = JSON.parse(next.payload);
      if (event === "sync:error") assert.deepEqual([body.code, body.retry_after_ms > 0], ["rate_limited", true]);
      if (event === "sync:error") continue;
      const code = body.status === "ok" ? "ok" : body.response.code;
      codes.set(code, (codes.get(code) ?? 0) + 1);
    }
  })();
  repeat(t, 5, () => {
    const some = Array.from({ length: 20 }, () => message(["1", String(ref++), "sync:v1", "sync:heartbeat", {}]));
    if (!raw.peer.ended) raw.peer.socket.write(Buffer.concat(some));
  });
  assert.equal(await within(closed, "the close"), 1013);
  assert.ok(codes.get("ok") >= 50, "a burst is allowed");
  assert.ok(codes.get("rate_limited") >= 100, "it was told");
  assert.equal((await healthy.ask("sync:heartbeat", {})).status, "ok");
});

test("a client that floods with pings or pongs is closed", async (t) => {
  const operator = await operate(t);
  for (const opcode of [PING, PONG]) {
    const raw = await RawSocket.open(operator);
    const flood = Buffer.concat(range(1, 10_000).map(() => frame(opcode, "")));
    // A server that allows the flood answers the close with its own code.
    await raw.send(Buffer.concat([flood, frame(CLOSE, Buffer.from([0x03, 0xe8]))]));
    assert.equal((await raw.closed())?.code, 1013);
  }
  const modest = await RawSocket.open(operator);
  await modest.send(Buffer.concat(range(1, 100).map(() => frame(PING, "a"))));
  for (const _ of range(1, 100)) assert.equal((await modest.find((one) => one.opcode === PONG)).payload.toString(), "a");
});

test("a large message counts as several, also when it was compressed", async (t) => {
  const operator = await operate(t, { settings: { KHALA_WS_MESSAGES_PER_SECOND: "50" } });
  class Transport extends WebSocket {
    constructor(url, protocols, options) {
      super(url, { ...options, perMessageDeflate: { threshold: 0 } });
    }
  }
  const client = await Client.join(operator, { transport: Transport });
  const socket = client.socket.conn;
  const closed = new Promise((resolve) => socket.on("close", resolve));
  let replies = 0;
  socket.on("message", (data) => { if (JSON.parse(data)[3] === "phx_reply") replies++; });
  const padding = "x".repeat(200 * 1024);
  const large = JSON.stringify(["1", "7", "sync:v1", "sync:heartbeat", { padding }]);
  for (let i = 0; i < 200; i++) socket.send(large, () => {});
  assert.equal(await within(closed, "the end of the flood"), 1013);
  assert.ok(replies >= 2, "the first is answered, the next is told why it is not");
  assert.ok(replies < 50, `${replies} replies to large messages within moments`);
});

test("a client that closes is released at once, and one that never closes is cut off", async (t) => {
  const operator = await withRun(t, 2);
  const raw = await RawSocket.open(operator);
  await raw.send(frame(CLOSE, Buffer.from([0x03, 0xe8])));
  assert.equal((await raw.closed()).code, 1000);
  await raw.peer.rest();
  // A closed client that keeps sending is cut off.
  const rude = await RawSocket.open(operator);
  await rude.send(frame(TEXT, "nonsense"));
  assert.equal((await rude.closed()).code, 4003);
  repeat(t, 50, () => rude.peer.socket.write(frame(PING, "still here")));
  await within(rude.peer.rest(), "the end of one that goes on sending", 10_000);
});

test("a half-open connection is closed", async (t) => {
  const operator = await withRun(t, 2, { KHALA_SILENCE_TIMEOUT_MS: "1500" });
  const raw = await RawSocket.open(operator);
  raw.peer.socket.pause();
  const half = await RawSocket.open(operator);
  half.peer.finish();
  assert.equal(await half.closed(), null);
  raw.peer.socket.resume();
  assert.equal((await raw.closed()).code, 1001);
});

test("a server that ends tells every client to reconnect at a different time", async (t) => {
  const operator = await withRun(t, 5, { RUNTIME_KHALA_RECONNECT_JITTER_MS: "100000" });
  const clients = [];
  for (let i = 0; i < 20; i++) {
    const raw = await RawSocket.open(operator);
    await raw.subscribe(TOPIC);
    await raw.find((one) => one.opcode === TEXT && JSON.parse(one.payload)[4].through === 5);
    clients.push(raw);
  }
  repeat(t, 20, () => {
    for (const raw of clients) if (!raw.peer.ended) raw.peer.socket.write(message(["1", "9", "sync:v1", "sync:heartbeat", {}]));
  });
  operator.server.kill("SIGTERM");
  const ends = await Promise.all(clients.map(async (raw) => {
    const errors = [];
    const last = await raw.find((one) => {
      if (one.opcode === TEXT && JSON.parse(one.payload)[3] === "sync:error") errors.push(JSON.parse(one.payload)[4]);
      return one.opcode === CLOSE;
    });
    if (!last) return { code: null };
    const reason = last.payload.subarray(2).toString();
    await raw.send(frame(CLOSE, last.payload.subarray(0, 2)));
    return { code: last.payload.readUInt16BE(0), reason, errors };
  }));
  for (const { code, reason, errors } of ends) {
    assert.equal(code, 1012);
    assert.equal(reason, `resume_after ${TOPIC}=5`);
    assert.equal(errors.length, 1);
    assert.equal(errors[0].code, "shutting_down");
    assert.ok(errors[0].reconnect_after_ms >= 400);
    assert.deepEqual(errors[0].resume_after, [{ topic: TOPIC, watermark: 5 }]);
  }
  const hints = ends.map(({ errors }) => errors[0].reconnect_after_ms);
  assert.ok(new Set(hints).size > ends.length / 2, `all at once: ${hints}`);
  await operator.server.stopped();
});
