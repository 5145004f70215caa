// The README's clients, as they stand there but for the address, against the real server.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { within } from "../lib/khala.mjs";
import { operate } from "../lib/operator.mjs";

const page = readFileSync(new URL("../../README.md", import.meta.url), "utf8");
const snippets = [...page.matchAll(/```js\n([^]*?)```/g)].map(([, code]) => code);

test("each client of the README prints what is there and what comes", async (t) => {
  assert.equal(snippets.length, 3);
  const operator = await operate(t);
  const say = (text) => operator.did("topics/demo/events", { event_type: "said", payload: { text } });
  const token = await operator.token({ topics: ["demo"] });
  await say("first");
  const clients = snippets.map((code) => {
    const program = `const token = ${JSON.stringify(token)};\n${code.replaceAll("127.0.0.1:4100", `${operator.server.host}:${operator.server.port}`)}`;
    const child = spawn(process.execPath, ["--input-type=module", "-e", program],
      { cwd: fileURLToPath(new URL("..", import.meta.url)), stdio: ["ignore", "pipe", "pipe"] });
    operator.server.peers.push({ close: () => child.kill() });
    const client = { out: "", over: null };
    const watchers = new Set();
    const grew = (data) => {
      client.out += data;
      for (const watcher of [...watchers]) watcher();
    };
    for (const stream of [child.stdout, child.stderr]) stream.on("data", grew);
    child.on("close", (end) => { client.over = end; grew(""); });
    client.saw = (text) => within(new Promise((resolve, reject) => {
      const watcher = () => {
        if (client.out.includes(text)) resolve();
        else if (client.over !== null) reject(new Error(`ended with ${client.over}: ${client.out}`));
      };
      watchers.add(watcher);
      watcher();
    }), `'${text}' of ${code}`);
    return client;
  });
  for (const client of clients) await client.saw("{ text: 'first' }");
  await say("second");
  for (const client of clients) {
    await client.saw("{ text: 'second' }");
    assert.deepEqual(client.out.trim().split("\n").map((line) => line.replace(/@\S+/, "")),
      ["1 { text: 'first' }", "2 { text: 'second' }"]);
  }
});
