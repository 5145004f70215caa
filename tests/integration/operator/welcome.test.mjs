// The commands that a server prints when it starts, pasted into a shell twice.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { binary, folder, serve, start } from "../../lib/khala.mjs";
import { range } from "../../lib/samples.mjs";
import { Authority } from "../../lib/tls.mjs";

const LINES = /\n {2}(curl .*)\n {2}(curl .*)\n {2}(curl .*)\n/;
const EXPORTS = /\n {2}(export KHALA_URL=.*)\n/;

/** Runs a command to its end in another folder; its answer is JSON. */
function paste(line, settings) {
  const done = spawnSync("sh", ["-c", line], { cwd: "/", encoding: "utf8", env: { ...process.env, ...settings } });
  assert.equal(done.status, 0, `${line}: ${done.stderr}`);
  return JSON.parse(done.stdout);
}

/** Runs a line that follows a topic until it has printed so many messages, and answers those. */
async function follow(t, line, count, settings) {
  const shell = start(t, ["sh", "-c", `exec ${line}`], { cwd: "/", env: { ...process.env, ...settings } });
  const messages = () => shell.lines.filter((one) => one.startsWith("data: ")).map((one) => JSON.parse(one.slice(6)))
    .filter(({ topic, sequence }) => topic === "demo" && sequence);
  await shell.until(() => messages().length >= count, `${count} messages of ${line}`);
  return messages();
}

async function pasteAll(t, server, settings) {
  const [, append, sse, mint] = await server.saw("out", LINES);
  for (const round of [1, 2]) {
    assert.equal(paste(append, settings).event.seq, round);
    const messages = await follow(t, sse, round, settings);
    assert.deepEqual(messages.map((one) => one.sequence), range(1, round));
    assert.deepEqual(messages[0].payload, { text: "hello" });
    const minted = paste(mint, settings);
    assert.equal(minted.subject, "user:ada");
    assert.deepEqual(minted.scopes, ["runtime.run_events"]);
  }
  return { append, sse, mint };
}

test("the commands that the server prints at start work in any folder, repeatedly", async (t) => {
  const server = await serve(t, { args: ["--data-dir", "it's \"our\" $data"] });
  await pasteAll(t, server);
});

test("the printed variables name the server to the other verbs, in any folder", async (t) => {
  const authority = new Authority(folder(t));
  for (const tls of [{}, Authority.settings(authority.issue("it's ours"))]) {
    const server = await serve(t, { args: ["--data-dir", "it's ours"], settings: tls });
    const [, exports] = await server.saw("out", EXPORTS);
    const appended = paste(`${exports} && ${binary} append --topic demo --type said --json`);
    assert.equal(appended.event.seq, 1);
    const tail = start(t, ["sh", "-c", `${exports} && exec ${binary} tail demo --from-start --json`], { cwd: "/" });
    await tail.until(() => tail.lines.length > 0, "an event");
    assert.equal(JSON.parse(tail.lines[0]).sequence, 1);
  }
});

test("the output has no live token", async (t) => {
  const server = await serve(t);
  await server.saw("out", LINES);
  assert.doesNotMatch(server.out, /eyJ/);
  assert.match(server.out, /\$\(\S*khala' token mint --topics demo /);
});

test("the printed commands work with a given key, an operator address and a compatibility gate", async (t) => {
  const settings = { KHALA_OPERATOR_KEY: "given-by-the-test" };
  const server = await serve(t, { settings: { ...settings, KHALA_OPERATOR_BIND_ADDR: "127.0.0.1:0", OA_COMPAT_KHALA_ENFORCED: "1",
    OA_COMPAT_KHALA_MIN_CLIENT_BUILD_ID: "a & b", RUNTIME_SYNC_TOKEN_MAX_AGE_SECONDS: "60" } });
  const lines = await pasteAll(t, server, settings);
  assert.ok(!lines.append.includes(server.url));
  assert.ok(lines.sse.includes(server.url));
  // The other verbs use the operator's address for its routes, and the client's address to follow.
  const [, exports] = await server.saw("out", EXPORTS);
  assert.equal(paste(`${exports} && ${binary} get events --topic demo --json`, settings).events.length, 2);
});

test("the printed commands work over TLS with any certificate", async (t) => {
  const authority = new Authority(folder(t));
  const server = await serve(t, { settings: Authority.settings(authority.issue("it's ours")) });
  assert.match((await pasteAll(t, server)).append, /https:/);
});

test("the printed token reads only the topic of the examples", async (t) => {
  const server = await serve(t, { args: ["--data-dir", folder(t)] });
  const [, , sse] = await server.saw("out", LINES);
  const [mint] = /\$\(.*\)/.exec(sse);
  const token = spawnSync("sh", ["-c", `printf %s "${mint}"`], { cwd: "/", encoding: "utf8" }).stdout;
  assert.match(token, /^eyJ/);
  const ask = (path) => fetch(`${server.url}${path}`, { headers: { authorization: `Bearer ${token}` } });
  for (const path of ["/v1/topics/other/sse", "/v1/topics/run:demo:events/sse", "/events", "/v1/topics/runtime.run_summaries/snapshot"]) {
    assert.equal((await ask(path)).status, 403, path);
  }
  assert.equal((await ask("/internal/v1/topics/demo/events")).status, 401);
});

test("a server with public keys only prints commands that work without minting", async (t) => {
  const data = folder(t);
  const file = join(data, "keys.jwks");
  writeFileSync(file, JSON.stringify({ keys: [{ kty: "EC", crv: "P-256", kid: "theirs", alg: "ES256",
    x: "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU", y: "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0" }] }));
  const server = await serve(t, { args: ["--data-dir", data], settings: { RUNTIME_SYNC_JWKS_FILE: file, RUNTIME_SYNC_TOKEN_ISSUER: "theirs" } });
  const [, append, read] = await server.saw("out", /Tokens are made elsewhere.*\n\n {2}(curl .*)\n {2}(curl .*)\n/);
  for (const round of [1, 2]) {
    paste(append);
    assert.equal(paste(read).events.length, round);
  }
});
