// Prometheus' own opinion of an exposition; scripts/setup installs the tool.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";

/** What promtool finds in it; "" when that is nothing. */
export function promtool(text) {
  const done = spawnSync("promtool", ["check", "metrics"], { input: text, encoding: "utf8" });
  assert.equal(done.error, undefined, "scripts/setup test installs promtool");
  assert.equal(done.status === 0, done.stderr + done.stdout === "", "a finding is a failure");
  return done.stderr + done.stdout;
}
