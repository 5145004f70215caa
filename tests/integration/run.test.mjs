// The server with a PostgreSQL of its own that 'make run STORE=postgres' starts.
import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import { chmodSync } from "node:fs";
import { test } from "node:test";
import { psql } from "../lib/database.mjs";
import { binary, environment, folder, start } from "../lib/khala.mjs";

const SCRIPT = new URL("../../scripts/run", import.meta.url).pathname;
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
  const made = spawnSync("make", ["-n", "run", "STORE=postgres", "ARGS=--bind x"], { cwd: new URL("../..", import.meta.url), encoding: "utf8" });
  assert.match(made.stdout, /scripts\/setup postgres\n.*scripts\/run build\/khala --bind x\n/);
});
