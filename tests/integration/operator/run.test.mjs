// The server with a PostgreSQL of its own that 'make run STORE=postgres' starts.
import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import { chmodSync, readFileSync } from "node:fs";
import { test } from "node:test";
import { psql } from "../../lib/database.mjs";
import { binary, environment, folder, start } from "../../lib/khala.mjs";
import { until } from "../../lib/wait.mjs";

const SCRIPT = new URL("../../../scripts/run", import.meta.url).pathname;
const APPEND = /\n {2}(curl \S+ \S+\/topics\/demo\/events .*)\n/;
const DATABASE = /^PostgreSQL for psql: (postgres:\S+)\n/;

/** Starts both, runs the printed append, and answers its event and the URL of the database. */
async function tryOut(t, place) {
  const running = start(t, [SCRIPT, binary, "--bind", "127.0.0.1:0"], { env: { ...environment(), RUN_DIR: place } });
  const [, append] = await running.saw("out", APPEND);
  const [, url] = await running.saw("out", DATABASE);
  const { event } = JSON.parse(execFileSync("sh", ["-c", append], { encoding: "utf8" }));
  assert.equal(psql(url, "SELECT max(seq) FROM events"), String(event.seq));
  const { code } = await running.end("SIGTERM");
  assert.equal(code, 0, running.log);
  const reached = spawnSync("psql", ["-X", "-d", url, "-c", "SELECT 1"], { encoding: "utf8" });
  assert.notEqual(reached.status, 0, "PostgreSQL ended with the server");
  return event;
}

test("make run with STORE=postgres serves from a database, and the next run continues with its data", async (t) => {
  const place = folder(t);
  chmodSync(place, 0o755); // root runs PostgreSQL as another user
  assert.equal((await tryOut(t, place)).seq, 1);
  assert.equal((await tryOut(t, place)).seq, 2);
  const making = (...words) => spawnSync("make", ["-n", "run", ...words, "ARGS=--bind x"], { cwd: new URL("../../..", import.meta.url), encoding: "utf8" }).stdout;
  assert.match(making("STORE=postgres"), /scripts\/setup postgres\n.*scripts\/run +build\/khala --bind x\n/);
  assert.match(making("NODES=3"), /scripts\/setup postgres\n.*scripts\/run nodes=3 build\/khala --bind x\n/);
});

test("make run with NODES=3 starts three servers over one database and prints their URLs", async (t) => {
  const place = folder(t);
  chmodSync(place, 0o755);
  const running = start(t, [SCRIPT, "nodes=3", binary, "--bind", "127.0.0.1:0"], { env: { ...environment(), RUN_DIR: place } });
  const urls = [];
  for (const number of [1, 2, 3]) urls.push((await running.saw("out", new RegExp(`^node ${number}: (http\\S+)$`, "m")))[1]);
  assert.equal(new Set(urls).size, 3);
  const [, key] = await running.saw("out", /^operator key: (\S+)$/m);
  const headers = { authorization: `Bearer ${readFileSync(key, "utf8").trim()}` };
  const append = (url) => fetch(`${url}/internal/v1/topics/demo/events`, { method: "POST", headers, body: JSON.stringify({ event_type: "said" }) });
  const seqs = [];
  for (const url of urls) {
    let answer;
    await until(async () => (answer = await append(url)).status === 200, "a node that takes appends");
    seqs.push((await answer.json()).event.seq);
  }
  assert.deepEqual(seqs, [1, 2, 3], "every node takes appends for the one log");
  const { code } = await running.end("SIGTERM");
  assert.equal(code, 0, running.log);
});
