// The check of an exposition by Prometheus' own tool, which scripts/setup fetches.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { fileURLToPath } from "node:url";

const FETCHED = fileURLToPath(new URL("../../build/tools", import.meta.url));

/** The findings of promtool; "" when there are none. */
export function promtool(text) {
  const done = spawnSync("promtool", ["check", "metrics"], {
    input: text, encoding: "utf8", env: { PATH: `${process.env.PATH}:${FETCHED}` },
  });
  assert.equal(done.error, undefined, "scripts/setup test fetches promtool");
  assert.equal(done.status === 0, done.stderr + done.stdout === "", "a finding is a failure");
  return done.stderr + done.stdout;
}
