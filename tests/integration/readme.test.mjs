// The clients of the README, with the address of a test server.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { start } from "../lib/khala.mjs";
import { operate } from "../lib/operator.mjs";

const page = readFileSync(new URL("../../README.md", import.meta.url), "utf8");
const snippets = [...page.matchAll(/```js\n([^]*?)```/g)].map(([, code]) => code);

test("each client of the README prints stored and new events", async (t) => {
  assert.equal(snippets.length, 3);
  const operator = await operate(t);
  const say = (text) => operator.did("topics/demo/events", { event_type: "said", payload: { text } });
  const token = await operator.token({ topics: ["demo"] });
  await say("first");
  const clients = snippets.map((code) => {
    const program = `const token = ${JSON.stringify(token)};\n${code.replaceAll("127.0.0.1:4100", `${operator.server.host}:${operator.server.port}`)}`;
    return start(t, [process.execPath, "--input-type=module", "-e", program], { cwd: fileURLToPath(new URL("..", import.meta.url)) });
  });
  for (const client of clients) await client.saw("out", /\{ text: 'first' \}/);
  await say("second");
  for (const client of clients) {
    await client.saw("out", /\{ text: 'second' \}\n/);
    assert.equal(client.log, "");
    assert.deepEqual(client.out.trim().split("\n").map((line) => line.replace(/@\S+/, "")),
      ["1 { text: 'first' }", "2 { text: 'second' }"]);
  }
});
