// tools/tidy on a small tree of its own: silent when all is well, and each rule it has speaks up.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { cpSync, mkdirSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { folder } from "../lib/khala.mjs";

const root = fileURLToPath(new URL("../..", import.meta.url));
const tools = ["clang-tidy", "clang-format", "git"].every((tool) => spawnSync(tool, ["--version"]).status === 0);
const skip = tools ? false : "make setup installs what tidy needs";

const GOOD = "int thing(int number);\n\nint thing(int number) {\n    return number;\n}\n";
const PAGE = "# Configuration\n";

function lines(count, line) {
  return `${line}\n`.repeat(count);
}

function functionOf(count, signature = "int thing(int number) {") {
  return `int thing(int number);\n\n${signature}\n${lines(count - signature.split("\n").length - 2, "    number++;")}    return number;\n}\n`;
}

/** Writes the tree with the changes, runs tools/tidy in it, answers its findings. */
function findings(t, changes) {
  const tree = folder(t);
  for (const path of ["tools", "spec", ".clang-format", ".clang-tidy", "docs/codes.md", "docs/metrics.md"]) {
    cpSync(join(root, path), join(tree, path), { recursive: true });
  }
  const files = { "src/base/thing.c": GOOD, "docs/configuration.md": PAGE, "docs/khala.1": PAGE, ".gitignore": "/build/\n", ...changes };
  files["build/khala"] = `#!/bin/sh\nprintf '${PAGE.replace("\n", "\\n")}'\n`;
  const sources = Object.keys(files).filter((path) => path.endsWith(".c"));
  files["build/compile_commands.json"] ??= JSON.stringify(sources.map((path) => (
    { directory: tree, file: join(tree, path), arguments: ["clang", "-std=c17", `-I${tree}/src`, "-c", join(tree, path)] })));
  for (const [path, text] of Object.entries(files)) {
    mkdirSync(dirname(join(tree, path)), { recursive: true });
    writeFileSync(join(tree, path), text, { mode: 0o755 });
  }
  if (changes["build/compile_commands.json"] === "") rmSync(join(tree, "build/compile_commands.json"));
  spawnSync("git", ["init", "-q"], { cwd: tree });
  const done = spawnSync(join(tree, "tools/tidy"), ["build"], { cwd: tree, encoding: "utf8" });
  const found = done.stdout.trim().split("\n").slice(0, -1);
  assert.match(done.stdout, new RegExp(`^tidy: ${found.length} findings in \\d+ files$`, "m"), done.stderr);
  assert.equal(done.status, found.length ? 1 : 0);
  return found;
}

test("a tree without fault has no findings", { skip }, (t) => {
  assert.deepEqual(findings(t, {}), []);
  assert.deepEqual(findings(t, { "src/base/thing.c": functionOf(70) }), []);
  assert.deepEqual(findings(t, {
    "src/base/thing.h": "int thing(int number);\n",
    "src/wire/other.c": '#include "base/thing.h"\n\nint other(void);\n\nint other(void) {\n    return thing(1);\n}\n',
  }), []);
});

const LONG_SIGNATURE = "int thing(int number_with_a_long_name, int another_with_a_long_name, int third_with_a_long_name,\n" +
  "          int number) {";

const faults = {
  "a layer that includes a later one": [
    { "src/wire/late.h": "int late(void);\n", "src/base/thing.c": `#include "wire/late.h"\n\n${GOOD}` },
    /^src\/base\/thing\.c:1: base must not include wire$/],
  "a layer nobody knows": [
    { "src/cellar/x.h": "int x(void);\n", "src/base/thing.c": `#include "cellar/x.h"\n\n${GOOD}` },
    /^src\/base\/thing\.c:1: include of unknown layer cellar$/],
  "a function one line too long": [
    { "src/base/thing.c": functionOf(71) }, /^src\/base\/thing\.c:3: function of 71 lines, at most 70$/],
  "a long function under a long signature": [
    { "src/base/thing.c": functionOf(80, LONG_SIGNATURE).replace("int thing(int number);\n\n", "") },
    /^src\/base\/thing\.c:2: function of \d+ lines, at most 70$/],
  "a file one line too long": [
    { "src/base/thing.c": GOOD + lines(896, "") }, /^src\/base\/thing\.c: 901 lines, at most 900$/],
  "seven parameters": [
    { "src/base/thing.h": "int seven(int a, int b, int c, int d, int e, int f, int g);\n" },
    /^src\/base\/thing\.h:1: seven takes 7 parameters, at most 6$/],
  "a marker in code": [
    { "src/base/thing.c": `/* TO${"DO"}: more */\n${GOOD}` }, /^src\/base\/thing\.c:1: left-over marker/],
  "a marker in a page": [
    { "docs/plan.md": `This is not ${"implemented"} yet.\n` }, /^docs\/plan\.md:1: left-over marker/],
  "a marker in a tool": [
    { "tools/other": `# FIX${"ME"}\n` }, /^tools\/other:1: left-over marker/],
  "a page of codes that fell behind": [
    { "docs/codes.md": "# Codes\n" }, /^docs\/codes\.md: fell behind; run .*tools\/generate docs/],
  "a page of metrics that fell behind": [
    { "docs/metrics.md": "# Metrics\n" }, /^docs\/metrics\.md: fell behind; run .*tools\/generate metrics/],
  "a page of settings that fell behind": [
    { "docs/configuration.md": "# Old\n" }, /^docs\/configuration\.md: fell behind; run .*khala config --markdown/],
  "a manual page that fell behind": [
    { "docs/khala.1": ".TH OLD\n" }, /^docs\/khala\.1: fell behind; run .*khala man/],
  "code in another format": [
    { "src/base/thing.c": GOOD.replace("    return", "  return") },
    /^src\/base\/thing\.c:\d+: not as clang-format writes it$/],
  "a test in another format": [
    { "tests/unit/base/test_thing.c": GOOD.replace("    return", "  return") },
    /^tests\/unit\/base\/test_thing\.c:\d+: not as clang-format writes it$/],
  "what clang-tidy finds": [
    { "src/base/thing.c": GOOD.replace("return number", "return number == number") },
    /^src\/base\/thing\.c:4: .*\[misc-redundant-expression\]$/],
  "code that does not compile": [
    { "src/base/thing.c": GOOD.replace("number;", "nobody;") }, /^src\/base\/thing\.c:4: .*clang-diagnostic-error/],
  "an analysis that could not run": [
    { "build/compile_commands.json": "" }, /^src\/base\/thing\.c: has no compile command/],
};

for (const [name, [changes, expected]] of Object.entries(faults)) {
  test(name, { skip }, (t) => {
    const found = findings(t, changes);
    assert.ok(found.some((line) => expected.test(line)), found.join("\n"));
  });
}
