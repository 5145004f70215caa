// Plain HTTP requests with libkhala against the real server: tokens, bodies of any length, refusals and ends.
import assert from "node:assert/strict";
import net from "node:net";
import { after, before, test } from "node:test";
import { operate } from "../../lib/operator.mjs";
import { Program } from "./program.mjs";

const ends = [];
let operator;
before(async () => { operator = await operate({ after: (act) => ends.unshift(act) }); });
after(async () => {
  for (const act of ends) await act();
});

/** Sends the requests one after another, and answers [HTTP status, bytes of the body, error] of each. */
async function ask(t, requests, { url = operator.server.url, token = operator.reader, ...options } = {}) {
  const program = Program.start(t, url, { token, topics: [], ...options });
  for (const [i, request] of requests.entries()) {
    program.child.stdin.write(`${request}\n`);
    await program.lines.until(() => program.all("problem").length + program.all("request").length > i, "the answer");
  }
  assert.equal(await program.close(), 0);
  return program.lines.all.filter((line) => "problem" in line || "request" in line).map(({ http_status, bytes, problem, request }) => request ?? [http_status, bytes, problem]);
}

for (const loop of ["own", "given"]) {
  test(`a request has a token of the callback, and its answer a status and a body, on ${loop} loop`, async (t) => {
    const path = "/v1/topics/runtime.run_summaries/snapshot";
    const { body } = await operator.get(path);
    const answers = await ask(t, [`get ${path}`, "get /v1/topics/a/snapshot", "get /healthz/ready"], { loop });
    assert.deepEqual(answers[0], [200, Buffer.byteLength(body), ""]);
    assert.deepEqual([answers[1][0], answers[1][2]], [404, ""]);
    assert.deepEqual([answers[2][0], answers[2][2]], [200, ""]);
  });
}

test("a body may come in pieces of any number, and a refusal may come before its end", async (t) => {
  const answers = await ask(t, ["post /internal/v1/events:batch {\"topic\":\"upload\",\"event_type\":\"said\"}", "upload /internal/v1/events:batch 5000"], { token: operator.key });
  assert.deepEqual(answers.map(([status, , problem]) => [status, problem]), [[200, ""], [200, ""]]);
  assert.equal((await operator.log()).filter((event) => event.entity_id === "upload").length, 5001);
  const [[status]] = await ask(t, ["upload /api/events/import 100000"], { token: "rubbish" });
  assert.equal(status, 401);
});

test("a request ends with an error: refused, cancelled, lost or without a server", async (t) => {
  assert.deepEqual(await ask(t, ["get healthz", "get /a\rb"]), ["refused", "refused"]);
  assert.deepEqual(await ask(t, ["get /healthz/live"], { url: "http://127.0.0.1:1" }), [[0, 0, "connect_failed"]]);
  const silent = net.createServer((socket) => socket.on("error", () => {}));
  const rude = net.createServer((socket) => socket.on("error", () => {}).once("data", () => socket.destroy()));
  for (const server of [silent, rude]) await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => { silent.close(); rude.close(); });
  const at = (server) => ({ url: `http://127.0.0.1:${server.address().port}`, environment: { REQUEST_TIMEOUT_MS: "200" } });
  assert.deepEqual(await ask(t, ["cancel /a", "get /a"], at(silent)), [[0, 0, "cancelled"], [0, 0, "request_timeout"]]);
  assert.deepEqual(await ask(t, ["get /a"], at(rude)), [[0, 0, "connection_lost"]]);
});

test("a client that closes answers its requests", async (t) => {
  const silent = net.createServer((socket) => socket.on("error", () => {}));
  await new Promise((resolve) => silent.listen(0, "127.0.0.1", resolve));
  t.after(() => silent.close());
  const program = Program.start(t, `http://127.0.0.1:${silent.address().port}`, { token: "t", topics: [] });
  program.child.stdin.write("get /a\n");
  assert.equal(await program.close(), 0);
  assert.deepEqual(program.all("problem").map(({ problem }) => problem), ["closed"]);
});
