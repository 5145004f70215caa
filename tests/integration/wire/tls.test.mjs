// TLS for clients, operators and attackers. tls_http.test.mjs and tls_delivery.test.mjs run the
// suites of plain connections over TLS.
import assert from "node:assert/strict";
import { execFile, execFileSync, spawnSync } from "node:child_process";
import { chmodSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import https from "node:https";
import net from "node:net";
import { join } from "node:path";
import tls from "node:tls";
import { promisify } from "node:util";
import { test } from "../../lib/cases.mjs";
import { binary, connect, environment, folder, run, serve, start } from "../../lib/khala.mjs";
import { MEASURED, memoryBytes } from "../../lib/machine.mjs";
import { operate, operateRun, Operator } from "../../lib/operator.mjs";
import { socketPath, streamPath } from "../../lib/paths.mjs";
import { Client } from "../../lib/phoenix.mjs";
import { events, range, TOPIC, wide } from "../../lib/samples.mjs";
import { Socket } from "../../lib/socket.mjs";
import { Stream } from "../../lib/sse.mjs";
import { Authority } from "../../lib/tls.mjs";
import { repeat, within } from "../../lib/wait.mjs";
import { CLOSE, RawSocket, TEXT } from "../../lib/websocket.mjs";

const LIVE = '{"status":"live"}\n';
const GET_LIVE = "GET /healthz/live HTTP/1.1\r\nHost: khala\r\n\r\n";

/** An authority, its certificate, and the options of a server with it. */
function trusted(t, settings = {}) {
  const authority = new Authority(folder(t));
  const pair = authority.issue("khala");
  return { authority, pair, options: { authority, settings: { ...Authority.settings(pair), ...settings } } };
}

async function withRun(t, settings) {
  const made = trusted(t, settings);
  return { ...made, operator: await operateRun(t, made.options) };
}

/** A handshake of Node's TLS: its protocol, cipher and certificate, or the error's code. */
function shake(server, options = {}) {
  return within(new Promise((resolve) => {
    const socket = tls.connect({ host: server.host, port: server.port, ca: server.ca, ...options });
    socket.on("error", (error) => resolve({ error: error.code ?? error.message }));
    socket.on("secureConnect", () => {
      resolve({
        protocol: socket.getProtocol(), cipher: socket.getCipher().name, alpn: socket.alpnProtocol,
        name: socket.getPeerCertificate().subject?.CN, reused: socket.isSessionReused(),
      });
      socket.destroy();
    });
  }), "a handshake");
}

/** The handshakes that the server counted. */
async function handshakes(operator) {
  const { body } = await operator.get("/metrics");
  const count = (status) => Number(body.match(new RegExp(`^khala_tls_handshakes_total\\{status="${status}"\\} (\\d+)$`, "m"))[1]);
  return { ok: count("ok"), failed: count("failed") };
}

const curl = async (...args) => (await promisify(execFile)("curl", ["-sS", "--max-time", "20", ...args])).stdout;

test("curl and Node are answered over https, and only by a name the certificate has", async (t) => {
  const { authority, options } = trusted(t);
  const server = await serve(t, options);
  assert.match(server.url, /^https:\/\/127\.0\.0\.1:\d+$/);
  const trust = ["--cacert", authority.file];
  assert.equal(await curl(...trust, "-f", `${server.url}/healthz/live`), LIVE);
  assert.equal(await curl(...trust, "-f", "--tls-max", "1.2", `${server.url}/healthz/live`, `${server.url}/healthz/live`,
    "-w", "%{num_connects}%{ssl_verify_result}\n"), `${LIVE}10\n${LIVE}00\n`);
  await assert.rejects(curl(`${server.url}/healthz/live`), { code: 60 });
  const answer = await new Promise((resolve, reject) => {
    https.get(`${server.url}/healthz/live`, { ca: authority.pem, agent: false }, resolve).on("error", reject);
  });
  assert.equal(answer.statusCode, 200);
  answer.destroy();
  assert.equal((await shake(server, { servername: "elsewhere.example" })).error, "ERR_TLS_CERT_ALTNAME_INVALID");
});

test("the server accepts only TLS 1.2 and 1.3 with authenticated forward-secret ciphers, and http/1.1", async (t) => {
  const { options } = trusted(t);
  const server = await serve(t, options);
  const newest = await shake(server, { ALPNProtocols: ["h2", "http/1.1"] });
  assert.deepEqual([newest.protocol, newest.alpn], ["TLSv1.3", "http/1.1"]);
  const older = await shake(server, { maxVersion: "TLSv1.2" });
  assert.equal(older.protocol, "TLSv1.2");
  assert.match(older.cipher, /^ECDHE-.*(GCM|CHACHA20)/);
  const old = { minVersion: "TLSv1", maxVersion: "TLSv1.1", ciphers: "ALL:@SECLEVEL=0" };
  assert.match((await shake(server, old)).error, /PROTOCOL_VERSION/);
  for (const ciphers of ["ECDHE-ECDSA-AES128-SHA256", "ECDHE-ECDSA-AES256-SHA", "ALL:!ECDHE:@SECLEVEL=0"]) {
    assert.match((await shake(server, { maxVersion: "TLSv1.2", ciphers })).error, /HANDSHAKE_FAILURE|NO_CIPHERS/, ciphers);
  }
  // The server's order counts: 256 bits first, and AES before CHACHA20.
  const asked = await shake(server, { maxVersion: "TLSv1.2", ciphers: "ECDHE-ECDSA-CHACHA20-POLY1305:ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-ECDSA-AES256-GCM-SHA384" });
  assert.equal(asked.cipher, "ECDHE-ECDSA-AES256-GCM-SHA384");
  assert.match((await shake(server, { ALPNProtocols: ["h2"] })).error, /NO_APPLICATION_PROTOCOL/);
  const strict = await serve(t, { ...options, settings: { ...options.settings, KHALA_TLS_MIN_VERSION: "1.3" } });
  assert.match((await shake(strict, { maxVersion: "TLSv1.2" })).error, /PROTOCOL_VERSION/);
  assert.equal((await shake(strict)).protocol, "TLSv1.3");
});

test("a TLS session is resumed by its ticket, and renegotiation is refused", async (t) => {
  const { options } = trusted(t);
  const server = await serve(t, options);
  for (const maxVersion of ["TLSv1.2", "TLSv1.3"]) {
    const session = await within(new Promise((resolve, reject) => {
      const socket = tls.connect({ host: server.host, port: server.port, ca: server.ca, maxVersion });
      socket.on("error", reject);
      socket.on("session", (ticket) => {
        resolve(ticket);
        socket.destroy();
      });
      socket.on("secureConnect", () => socket.write(GET_LIVE));
    }), "a ticket");
    assert.equal((await shake(server, { session, maxVersion })).reused, true, maxVersion);
  }
  const refused = await within(new Promise((resolve, reject) => {
    const socket = tls.connect({ host: server.host, port: server.port, ca: server.ca, maxVersion: "TLSv1.2" });
    socket.on("secureConnect", () => socket.renegotiate({}, (error) => (error ? resolve(error) : reject(new Error("renegotiated")))));
    socket.on("error", resolve);
  }), "an answer to a renegotiation");
  assert.match(String(refused.code ?? refused), /NO_RENEGOTIATION|ECONNRESET|ERR_SSL/);
});

test("every dialect receives pushes over TLS", async (t) => {
  const { operator } = await withRun(t);
  const phoenix = await Client.join(operator);
  await phoenix.subscribe({ topics: [TOPIC], resume_after: { [TOPIC]: 0 } });
  const headers = { authorization: `Bearer ${operator.reader}` };
  const socket = await Socket.open(operator, socketPath(TOPIC, "after_seq=0"), { headers });
  const stream = await Stream.open(operator, streamPath(TOPIC, "after_seq=0"), headers);
  await operator.batch(events(500, { payload: wide }));
  await phoenix.reached(TOPIC, 501);
  await socket.until((one) => one.messages.at(-1)?.sequence === 501, "the head");
  await stream.until((one) => one.lastSeq === 501, "the head");
  assert.deepEqual(phoenix.run(TOPIC).sequences, range(1, 501));
  assert.deepEqual(socket.of("message").map((one) => one.sequence), range(1, 501));
  assert.deepEqual(stream.messages.map((one) => one.data.sequence), range(1, 501));
});

test("the operator listener uses TLS too", async (t) => {
  const { authority, options } = trusted(t, { KHALA_OPERATOR_BIND_ADDR: "127.0.0.1:0" });
  const outside = await operate(t, options);
  const [, url] = outside.server.out.match(/Operator routes and \/metrics are on (https:\S+)\n/);
  const inside = new Operator({ host: "127.0.0.1", port: Number(new URL(url).port), ca: authority.pem }, outside.data);
  t.after(() => inside.close());
  await inside.did("runs", { run_id: "a" }, 201);
  assert.equal((await inside.get("/metrics")).status, 200);
  assert.equal((await outside.get("runs/a")).status, 404);
});

test("megabytes pass in both directions unchanged", async (t) => {
  const { operator } = await withRun(t);
  const items = events(20_000, { payload: (i) => ({ i, text: "y".repeat(i % 1500) }) });
  const results = await operator.batch(items);
  assert.equal(results.length, items.length);
  assert.deepEqual(results.map((one) => one.status ?? one.http_status).filter((status) => status >= 400), []);
  const exported = (await operator.get("/api/events/export")).body.trim().split("\n").map((line) => JSON.parse(line));
  const payloads = exported.filter((one) => one.event_type === "run.log").map((one) => one.payload);
  assert.deepEqual(payloads, items.map((one) => one.payload));
  const [first, ...others] = await Promise.all(range(1, 4).map(() => operator.get("/api/events/export")));
  assert.ok(first.body.length > 14e6, String(first.body.length));
  for (const other of others) assert.equal(other.body.length, first.body.length);
});

test("a TLS client that stops reading is evicted with 4000, and resumes without loss", async (t) => {
  const { operator } = await withRun(t, { KHALA_SLOW_CONSUMER_CHECK_MS: "50" });
  const raw = await RawSocket.stuck(operator, TOPIC);
  let head = 1;
  for (; !/client.disconnected code=slow_consumer /.test(operator.server.log); head += 200) {
    assert.ok(head < 20_000, "it is never evicted");
    await operator.batch(events(200, { payload: wide }));
  }
  const seen = [];
  raw.peer.socket.resume();
  const last = await raw.find((one) => {
    if (one.opcode !== TEXT) return one.opcode === CLOSE;
    const [, , , event, payload] = JSON.parse(one.payload);
    if (event === "sync:update_batch") seen.push(...payload.updates.map((update) => update.watermark));
    return false;
  });
  assert.equal(last.payload.readUInt16BE(0), 4000);
  const again = await Client.join(operator);
  await again.subscribe({ topics: [TOPIC], resume_after: { [TOPIC]: seen.at(-1) } });
  await again.reached(TOPIC, head);
  assert.deepEqual([...seen, ...again.run(TOPIC).sequences], range(1, head));
});

test("a slow client that keeps reading is not evicted", async (t) => {
  const { operator } = await withRun(t, { KHALA_SLOW_CONSUMER_CHECK_MS: "200", RUNTIME_KHALA_SLOW_CONSUMER_LAG_THRESHOLD: "1000000" });
  await operator.batch(events(400, { payload: (i) => ({ i, text: "x".repeat(20_000) }) }));
  const raw = await RawSocket.stuck(operator, TOPIC);
  let received = 0;
  raw.peer.socket.on("data", (data) => { received += data.length; });
  repeat(t, 5, () => {
    raw.peer.socket.resume();
    setImmediate(() => raw.peer.socket.pause());
  });
  for (let last = -1; received < 8e6 && received !== last;) {
    last = received;
    await raw.peer.part(() => (received > last + 200_000 || received >= 8e6 ? { size: 0 } : null));
  }
  assert.ok(received >= 8e6);
  assert.doesNotMatch(operator.server.log, /slow_consumer/);
});

/** The growth of the server's memory while 20 MB are published beside clients that do not read. */
async function grownBeside(t, count) {
  const { operator } = await withRun(t, { ...MEASURED, KHALA_SLOW_CONSUMER_CHECK_MS: "60000" });
  await operator.batch(events(2000, { payload: wide }));
  for (let i = 0; i < count; i += 20) await Promise.all(range(1, 20).map(() => RawSocket.stuck(operator, TOPIC)));
  const before = memoryBytes(operator.server);
  for (let i = 0; i < 10; i++) await operator.batch(events(1000, { payload: wide }));
  return memoryBytes(operator.server) - before;
}

test("many clients that do not read cost no growing memory", async (t) => {
  const alone = await grownBeside(t, 0);
  const crowd = await grownBeside(t, 200);
  t.diagnostic(`${alone} bytes alone, ${crowd} bytes beside 200`);
  // Each may hold a push of 64 KiB, as much of ciphertext, and the buffers of TLS.
  assert.ok(crowd - alone < 200 * 160 * 1024);
});

test("SIGHUP loads a new certificate under load and keeps connections", async (t) => {
  const { operator, authority, pair } = await withRun(t);
  const { server } = operator;
  const clients = await Promise.all(range(1, 100).map(() => Client.join(operator)));
  for (const client of clients) await client.subscribe({ topics: [TOPIC], resume_after: { [TOPIC]: 0 } });
  const load = (async () => {
    for (let i = 0; i < 20; i++) await operator.batch(events(20));
  })();
  assert.equal((await shake(server)).name, "khala");
  for (const name of ["second", "third"]) {
    Authority.replace(pair, authority.issue(name));
    server.kill("SIGHUP");
    await server.saw("log", new RegExp(`(tls\\.reloaded[^]*){${name === "second" ? 1 : 2}}`));
    assert.equal((await shake(server)).name, name);
  }
  await load;
  for (const client of clients) await client.reached(TOPIC, 401);
  for (const client of clients) {
    assert.deepEqual(client.run(TOPIC).sequences, range(1, 401));
    assert.deepEqual([client.closes, client.opened], [[], 1]);
  }
});

test("an unusable certificate is not loaded, and the log says why", async (t) => {
  const { operator, authority, pair } = await withRun(t);
  const { server } = operator;
  const other = authority.issue("other");
  const bad = [
    ["not a certificate", () => writeFileSync(pair.certificate, "-----BEGIN CERTIFICATE-----\nAAAA\n")],
    ["another key", () => writeFileSync(pair.key, readFileSync(other.key))],
    ["no file", () => rmSync(pair.certificate)],
  ];
  const good = { certificate: readFileSync(pair.certificate), key: readFileSync(pair.key) };
  for (const [i, [what, spoil]] of bad.entries()) {
    spoil();
    server.kill("SIGHUP");
    await server.saw("log", new RegExp(`(ERROR tls\\.reload_failed reason=[^]*){${i + 1}}`));
    assert.equal((await shake(server)).name, "khala", what);
    assert.equal((await operator.get("runs/a")).status, 200);
    writeFileSync(pair.certificate, good.certificate);
    writeFileSync(pair.key, good.key);
  }
  assert.match(server.log, new RegExp(`reload_failed reason=\\S*${pair.certificate}`.replaceAll("/", "\\/")));
  assert.doesNotMatch(server.log, /PRIVATE KEY/);
});

/** Sends bytes to the server's port and answers everything it sends until it closes. */
function garble(server, bytes, { finish = false } = {}) {
  return within(new Promise((resolve) => {
    const pieces = [];
    const socket = net.connect({ host: server.host, port: server.port, allowHalfOpen: true });
    socket.on("data", (data) => pieces.push(data));
    socket.on("error", () => {});
    socket.on("end", () => socket.end());
    socket.on("close", () => resolve(Buffer.concat(pieces)));
    socket.write(bytes);
    if (finish) socket.end();
  }), "the end of a connection");
}

test("plain HTTP, garbage and broken handshakes are closed and counted", async (t) => {
  const { operator } = await withRun(t, { KHALA_LOG_LEVEL: "debug", KHALA_REQUEST_TIMEOUT_MS: "2000" });
  const { server } = operator;
  assert.equal((await garble(server, GET_LIVE)).length, 0);
  await server.saw("log", /DEBUG tls\.handshake_failed reason="http request"/);
  const hello = Buffer.from("16030100050100000100", "hex");
  const alert = await garble(server, Buffer.concat([hello, Buffer.alloc(64, 0xff)]));
  assert.equal(alert[0], 21, "an alert says why");
  for (const bytes of [Buffer.alloc(100_000, 0), Buffer.alloc(100_000, 0xff), Buffer.from("SSH-2.0-x\r\n"), Buffer.from("1603", "hex")]) {
    await garble(server, bytes);
  }
  await garble(server, Buffer.from("16", "hex"), { finish: true });
  await garble(server, Buffer.alloc(0), { finish: true });
  const { ok, failed } = await handshakes(operator);
  assert.equal(failed, 7, "who says nothing at all did not begin");
  assert.ok(ok >= 1);
  assert.equal((await operator.get("runs/a")).status, 200);
});

test("connections that flood the server with KeyUpdates are closed and counted, and a few are honest", async (t) => {
  const { operator } = await withRun(t, { KHALA_LOG_LEVEL: "debug" });
  const { host, port } = operator.server;
  const flood = async (kind, records) => {
    const clients = start(t, [join(process.env.KHALA_BUILD, "tls_flood"), host, String(port), "5", kind, String(records)], { input: "pipe" });
    await clients.saw("out", /ready\n/);
    clients.child.stdin.write("go\n");
    return (await clients.saw("out", /sent \d+ ended (\d+)\n/))[1];
  };
  const count = async () => Number((await operator.get("/metrics")).body.match(/^khala_tls_floods_total (\d+)$/m)[1]);
  assert.equal(await flood("updates", 5), "0");
  assert.equal(await flood("requests", 5), "0");
  assert.equal(await count(), 0);
  assert.equal(await flood("updates", 4000), "5");
  assert.equal(await flood("requests", 4000), "5");
  assert.equal(await count(), 10);
  await operator.server.saw("log", /DEBUG tls\.flood/);
});

test("a slowly sent TLS handshake has the timeout of a request", async (t) => {
  const { operator } = await withRun(t, { KHALA_REQUEST_TIMEOUT_MS: "2000", KHALA_IDLE_TIMEOUT_MS: "60000" });
  const socket = net.connect({ host: operator.server.host, port: operator.server.port });
  socket.on("error", () => {});
  const bytes = Buffer.concat([Buffer.from("1603010200010001fc0303", "hex"), Buffer.alloc(500)]);
  let at = 0;
  repeat(t, 20, () => socket.write(bytes.subarray(at, ++at)));
  await within(new Promise((resolve) => socket.on("close", resolve)), "the end of the handshake's time");
  assert.ok(at < 200, "it dripped to its end");
});

test("a client that closes its side gets its answers, and both sides send close_notify", async (t) => {
  const { operator } = await withRun(t);
  await operator.batch(events(2000, { payload: wide }));
  const peer = await connect(operator.server);
  const ask = (path) => `GET /internal/v1/${path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${operator.key}\r\n\r\n`;
  await peer.send(ask("runs/a") + ask("runs/a/events?limit=1000"));
  peer.finish();
  assert.equal((await peer.finalResponse()).status, 200);
  assert.equal(JSON.parse((await peer.finalResponse()).body).events.length > 100, true);
  assert.equal(await peer.rest(), "");
  assert.equal(peer.error, null);
  // openssl reports a connection that ends without close_notify.
  const said = spawnSync("openssl", ["s_client", "-connect", `${operator.server.host}:${operator.server.port}`, "-ign_eof"],
    { input: "GET /healthz/live HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", encoding: "utf8", timeout: 20_000 });
  assert.match(said.stdout, /"status":"live"/);
  assert.match(said.stdout, /^closed$/m);
  assert.doesNotMatch(said.stderr, /unexpected eof/);
});

/** A whole handshake that is closed properly, or left after a request. */
function meet(server, secureContext, leaves) {
  return new Promise((resolve) => {
    const socket = tls.connect({ host: server.host, port: server.port, secureContext });
    socket.on("error", () => {});
    socket.on("close", resolve);
    socket.on("secureConnect", () => (leaves ? socket.write(GET_LIVE, () => socket.destroy()) : socket.end()));
  });
}

/** A handshake that is reset after its first bytes. */
function breakOff(server, hello) {
  return new Promise((resolve) => {
    const socket = net.connect({ host: server.host, port: server.port });
    socket.on("error", () => {});
    socket.on("close", resolve);
    socket.on("connect", () => socket.write(hello, () => socket.resetAndDestroy()));
  });
}

test("five thousand handshakes leak no memory", async (t) => {
  const { operator } = await withRun(t, MEASURED);
  const { server } = operator;
  const halves = [Buffer.from("16", "hex"), Buffer.from("1603010200010001fc0303", "hex"), Buffer.from(GET_LIVE)];
  const contexts = ["TLSv1.2", "TLSv1.3"].map((maxVersion) => tls.createSecureContext({ ca: server.ca, maxVersion }));
  const storm = (count) => Promise.all(range(1, 16).map(async (lane) => {
    for (let i = lane; i <= count; i += 16) {
      if (i % 10 === 0) await breakOff(server, halves[i % 3]);
      else await meet(server, contexts[i % 2], i % 10 === 1);
    }
  }));
  await storm(1000);
  const before = memoryBytes(server);
  await storm(4000);
  const grown = memoryBytes(server) - before;
  const { ok, failed } = await handshakes(operator);
  t.diagnostic(`${ok} handshakes and ${failed} that broke off, ${grown} bytes more`);
  assert.ok(ok >= 4500);
  // Two kilobytes each would be a leak.
  assert.ok(grown < 8 << 20, `${grown} bytes`);
});

test("the verbs use https with a given authority", async (t) => {
  const { operator, authority } = await withRun(t);
  const at = ["--url", operator.server.url, "--key", operator.key];
  const line = run(["append", ...at, "--ca", authority.file, "--run", "a", "--type", "run.log", "--payload", '{"a":1}']);
  assert.equal(line.code, 0, line.problem);
  const got = run(["get", "run", "a", ...at, "--json"], { settings: { KHALA_CA_FILE: authority.file } });
  assert.equal(JSON.parse(got.out).run.latest_seq, 2);
  const batch = events(3000, { payload: wide }).map((one) => JSON.stringify(one)).join("\n");
  assert.match(run(["append", ...at, "--ca", authority.file, "--batch", "-"], { input: batch }).out, /^3000 appended/m);
  assert.equal(run(["export", ...at, "--ca", authority.file]).out.match(/"run\.log"/g).length, 3001);
  const byName = operator.server.url.replace("127.0.0.1", "localhost");
  assert.equal(run(["get", "run", "a", "--url", byName, "--key", operator.key, "--ca", authority.file]).code, 0);
  const unknown = run(["get", "run", "a", ...at]);
  assert.equal(unknown.code, 3);
  assert.match(unknown.problem, /is not trusted: .*--ca/);
  const plain = run(["get", "run", "a", "--key", operator.key, "--url", operator.server.url.replace("https", "http")]);
  assert.deepEqual([plain.code, plain.problem], [3, "khala: the server closed the connection\n"]);
  const nowhere = run(["get", "run", "a", ...at, "--ca", "/nowhere.pem"]);
  assert.equal(nowhere.code, 3);
  assert.match(nowhere.problem, /\/nowhere\.pem holds no certificates/);
});

test("a verb refuses a server with another host's certificate", async (t) => {
  const authority = new Authority(folder(t));
  const pair = authority.issue("other", { names: "subjectAltName=DNS:other.example" });
  const operator = await operate(t, { authority, settings: Authority.settings(pair) }).catch((error) => error);
  const asked = run(["get", "run", "a", "--url", operator.server.url, "--key", "x", "--ca", authority.file]);
  assert.equal(asked.code, 3);
  assert.match(asked.problem, /is not trusted: IP address mismatch/);
  const named = run(["get", "run", "a", "--url", operator.server.url.replace("127.0.0.1", "localhost"), "--key", "x", "--ca", authority.file]);
  assert.match(named.problem, /is not trusted: hostname mismatch/i);
});

test("the check and the server refuse unusable TLS settings by name", (t) => {
  const authority = new Authority(folder(t));
  const pair = authority.issue("khala");
  const other = authority.issue("other");
  const locked = join(authority.folder, "locked.key");
  execFileSync("openssl", ["ec", "-in", pair.key, "-aes256", "-passout", "pass:x", "-out", locked], { stdio: "ignore" });
  const cases = [
    [{ KHALA_TLS_CERT_FILE: pair.certificate }, /KHALA_TLS_KEY_FILE is not set/],
    [{ KHALA_TLS_KEY_FILE: pair.key }, /KHALA_TLS_CERT_FILE is not set/],
    [Authority.settings({ ...pair, certificate: "/nowhere.pem" }), /\/nowhere\.pem: No such file/],
    [Authority.settings({ ...pair, key: "/nowhere.key" }), /\/nowhere\.key: No such file/],
    [Authority.settings({ ...pair, certificate: pair.key }), /khala\.key holds no certificates/],
    [Authority.settings({ ...pair, key: pair.certificate }), /khala\.pem holds no key/],
    [Authority.settings({ ...pair, key: other.key }), /other\.key holds no key .*mismatch/],
    [Authority.settings({ ...pair, key: locked }), /locked\.key holds no key .*without a passphrase/],
  ];
  for (const [settings, problem] of cases) {
    const checked = run(["config", "--check"], { settings });
    assert.equal(checked.code, 2, JSON.stringify(settings));
    assert.match(checked.problem, problem);
    const served = run(["serve", "--bind", "127.0.0.1:0"], { settings: { ...settings, KHALA_LOG_LEVEL: "off" }, cwd: folder(t) });
    assert.notEqual(served.code, 0);
    assert.match(served.problem, problem);
    assert.doesNotMatch(served.problem, /PRIVATE/);
  }
  assert.equal(run(["config", "--check"], { settings: Authority.settings(pair) }).code, 0);
});

test("the doctor reports a readable key, a near expiry and unreadable TLS files", async (t) => {
  const { operator, authority, pair } = await withRun(t);
  const settings = { ...Authority.settings(pair), KHALA_CA_FILE: authority.file };
  const look = (more = {}) => {
    const done = spawnSync(binary, ["doctor", "--json", "--data-dir", operator.data, "--url", operator.server.url],
      { env: environment({ ...settings, ...more }), encoding: "utf8" });
    return JSON.parse(done.stdout).checks.filter((one) => one.check === "tls" || one.check === "server").map((one) => [one.check, one.finding]);
  };
  assert.deepEqual(look(), [["tls", "ok"], ["server", "ok"]]);
  chmodSync(pair.key, 0o640); // how a service with a user that comes and goes reads it
  assert.deepEqual(look(), [["tls", "ok"], ["server", "ok"]]);
  chmodSync(pair.key, 0o644);
  assert.deepEqual(look(), [["tls", "warning"], ["tls", "ok"], ["server", "ok"]]);
  const brief = authority.issue("brief", { days: 3 });
  assert.deepEqual(look(Authority.settings(brief)), [["tls", "warning"], ["server", "ok"]]);
  assert.deepEqual(look({ KHALA_TLS_KEY_FILE: "/nowhere.key" }), [["tls", "wrong"], ["server", "ok"]]);
});
