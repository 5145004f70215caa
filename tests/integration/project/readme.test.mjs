// The clients of README.md and of docs/protocol.md, as they are printed there, behind nginx with TLS.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import http from "node:http";
import { fileURLToPath } from "node:url";
import { test } from "../../lib/cases.mjs";
import { start } from "../../lib/khala.mjs";
import { proxy } from "../../lib/nginx.mjs";
import { operate } from "../../lib/operator.mjs";
import { signingKey } from "../../lib/token.mjs";
import { repeat, until } from "../../lib/wait.mjs";

const snippets = ["README.md", "docs/protocol.md"].flatMap((page) => {
  const text = readFileSync(new URL(`../../../${page}`, import.meta.url), "utf8");
  return [...text.matchAll(/```js\n([^]*?)```/g)].map(([, code]) => code);
});
const LIBRARY = new URL("../../../clients/js/src/khala.js", import.meta.url).href;
const TOKEN_SECONDS = 2;
const SESSION = "session-of-the-readme";
const OTHER_EPOCH = "01a1e1a3-0000-7000-8000-000000000000";
const ROUTES = ["/socket/websocket", "/socket/websocket", "/v1/topics/demo/sse", "/v1/topics/demo/ws"];

/** The backend of the clients: each path is a client, and each request gets a new short token. */
async function backend(t, operator, seconds = TOKEN_SECONDS) {
  const key = signingKey(operator.data); // clients may ask while the server is down
  const server = http.createServer((request, response) => {
    const exp = Math.floor(Date.now() / 1000) + seconds;
    server.firstEnds[Number(request.url.slice(1))] ??= exp * 1000;
    response.end(operator.sign({ oa_sync_topics: ["demo"], oa_session_id: SESSION, exp }, key));
  });
  server.firstEnds = snippets.map(() => null);
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  server.url = `http://127.0.0.1:${server.address().port}`;
  return server;
}

/** A producer that appends one event after the other, and repeats each until it is acknowledged. */
function produce(t, world) {
  const producer = { last: 0 };
  let isBusy = false;
  repeat(t, 30, async () => {
    if (isBusy) return;
    isBusy = true;
    const n = producer.last + 1;
    const body = { event_type: "counted", payload: { n }, idempotency_key: `n${n}` };
    await world.operator.did("topics/demo/events", body).then(() => { producer.last = n; }, () => {});
    isBusy = false;
  });
  return producer;
}

/** Starts each snippet with the address of that server and with changes of its text. */
function startClients(t, { server }, { url }, changes = []) {
  const s = server.ca ? "s" : "";
  const all = [[`"khala"`, `"${LIBRARY}"`], ["ws://127.0.0.1:4100", `ws${s}://${server.host}:${server.port}`], ["http://127.0.0.1:4100", `http${s}://${server.host}:${server.port}`], ...changes];
  const env = { ...process.env, ...(server.ca ? { NODE_EXTRA_CA_CERTS: server.authority } : {}) };
  return snippets.map((code, i) => {
    const getToken = `const getToken = async () => (await fetch("${url}/${i}")).text();\n`;
    const program = all.reduce((text, [from, to]) => text.replace(from, to), code);
    const client = start(t, [process.execPath, "--input-type=module", "-e", getToken + program],
      { cwd: fileURLToPath(new URL("../..", import.meta.url)), env });
    client.counts = () => client.lines.map((line) => Number(line.match(/^\d+\S* \{ n: (\d+) \}$/)?.[1] ?? line));
    return client;
  });
}

test("each printed client survives its token, a crash and a restart behind nginx, and misses no event", async (t) => {
  assert.equal(snippets.length, ROUTES.length);
  const world = { operator: await operate(t) };
  const { data, server: { port } } = world.operator;
  const proxied = await proxy(t, world.operator);
  const issuer = await backend(t, world.operator);
  const producer = produce(t, world);
  const clients = startClients(t, proxied, issuer);

  /** Waits until every client has the event that is appended next. */
  const allFollow = async (when) => {
    const next = producer.last + 1;
    for (const client of clients) await client.until(() => client.counts().at(-1) >= next, `event ${next} ${when}`);
  };
  const startAgain = async () => {
    const begin = proxied.server.log().length;
    await until(() => ROUTES.every((route) => proxied.server.log().slice(begin).includes(`${route}" 502`)), "a 502 for each client");
    world.operator = await operate(t, { data, bind: `127.0.0.1:${port}` });
  };

  await allFollow("at the start");
  await until(() => issuer.firstEnds.every((end) => Date.now() > end), "the end of the first tokens");
  await allFollow("after the end of the first token");
  await world.operator.server.crash();
  await startAgain();
  await allFollow("after a crash");
  await world.operator.server.stop();
  await startAgain();
  await allFollow("after a restart");

  for (const client of clients) {
    const counts = [...new Set(client.counts())];
    assert.deepEqual(counts, counts.map((_, i) => i + 1), client.out);
    assert.equal(client.log, "");
  }
});

test("each printed client starts again where its position belongs to another history", async (t) => {
  const operator = await operate(t);
  const producer = produce(t, { operator });
  await until(() => producer.last >= 3, "three events");
  const clients = startClients(t, operator, await backend(t, operator), [
    ["position = {}; // store", `position = { resume_after: { demo: 2 }, epoch: "${OTHER_EPOCH}" }; // store`],
    ["{ reset }))", `{ reset, after: { epoch: "${OTHER_EPOCH}", seq: 2 } }))`], ["position = 0;", `position = "2@${OTHER_EPOCH}";`], ["after_seq=0", `after_seq=2&epoch=${OTHER_EPOCH}`]]);
  for (const client of clients) {
    await client.until(() => client.lines.length >= 4, "events after the notice");
    assert.match(client.lines[0], /starts again/);
    assert.deepEqual(client.counts().slice(1, 4), [1, 2, 3], client.out);
  }
});

test("each printed client stops when its session is revoked", async (t) => {
  const operator = await operate(t);
  const clients = startClients(t, operator, await backend(t, operator, 300));
  await operator.did("topics/demo/events", { event_type: "counted", payload: { n: 1 } });
  for (const client of clients) await client.until(() => client.lines.length > 0, "the event");
  await operator.did("sync/sessions/revoke", { session_ids: [SESSION], reason: "left" });
  for (const client of clients) assert.deepEqual(await client.end(), { code: 0, signal: null }, client.log);
});
