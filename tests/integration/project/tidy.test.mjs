// tools/tidy on a small tree of its own: no findings in a clean tree, and one test for each rule.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { cpSync, mkdirSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { folder, start } from "../../lib/khala.mjs";

const root = fileURLToPath(new URL("../../..", import.meta.url));
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

/** Writes the tree with the changes, runs tools/tidy in it, returns its findings. */
async function findings(t, changes) {
  const tree = folder(t);
  for (const path of ["tools", "spec", ".clang-format", ".clang-tidy", "docs/codes.md", "docs/metrics.md", "docs/client_states.md", "clients/js/src/tables.js",
    "clients/python/src/khala/_tables.py"]) {
    cpSync(join(root, path), join(tree, path), { recursive: true, filter: (source) => !source.endsWith("README.md") });
  }
  const files = { "src/base/thing.c": GOOD, "docs/configuration.md": PAGE, "docs/khala.1": PAGE, "docs/clients.md": PAGE, ".gitignore": "/build/\n", ...changes };
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
  const tidy = start(t, [join(tree, "tools/tidy"), "build"], { cwd: tree });
  const { code } = await tidy.end();
  const [order, ...found] = tidy.out.trim().split("\n").slice(0, -1);
  assert.match(order, /^folders: spec base wire topic .* api server cli$/);
  assert.match(tidy.out, new RegExp(`^tidy: ${found.length} findings in \\d+ files$`, "m"), tidy.log);
  assert.equal(code, found.length ? 1 : 0);
  return found;
}

const LONG_SIGNATURE = "int thing(int number_with_a_long_name, int another_with_a_long_name, int third_with_a_long_name,\n" +
  "          int number) {";

/** A page with a walk of one or two steps, and the sources that it names. */
function walkOf(...rows) {
  return {
    "docs/architecture.md": `# Architecture\n\n### Walk: one\n\n| step | file | function | reached by |\n|---|---|---|---|\n${rows.map((row) => `${row}\n`).join("")}`,
    "docs/rooms.svg": "",
    "src/base/thing.c": GOOD,
    "src/wire/user.c": 'static const struct table table = {.thing = thing};\n\nint use(int number) {\n    return thing(number) + table.other(number);\n}\n',
  };
}

const faults = {
  "a layer that includes a later one": [
    { "src/wire/late.h": "int late(void);\n", "src/base/thing.c": `#include "wire/late.h"\n\n${GOOD}` },
    /^src\/base\/thing\.c:1: base must not include wire$/],
  "a verb that includes the inside of the client library": [
    { "src/client/late.h": "int late(void);\n", "src/cli/verb/tail.c": `#include "client/late.h"\n\n${GOOD}` },
    /^src\/cli\/verb\/tail\.c:1: this verb must not include client, but <khala\/khala\.h>$/],
  "an unknown layer": [
    { "src/cellar/x.h": "int x(void);\n", "src/base/thing.c": `#include "cellar/x.h"\n\n${GOOD}` },
    /^src\/base\/thing\.c:1: include of unknown layer cellar$/],
  "a function one line too long": [
    { "src/base/thing.c": functionOf(71) }, /^src\/base\/thing\.c:3: function of 71 lines, at most 70$/],
  "a long function under a long signature": [
    { "src/base/thing.c": functionOf(80, LONG_SIGNATURE).replace("int thing(int number);\n\n", "") },
    /^src\/base\/thing\.c:2: function of \d+ lines, at most 70$/],
  "a file one line too long": [
    { "src/base/thing.c": GOOD + lines(896, "") }, /^src\/base\/thing\.c: 901 lines, at most 900$/],
  "a script of the tests one line too long": [
    { "tests/integration/thing.test.mjs": lines(901, "") }, /^tests\/integration\/thing\.test\.mjs: 901 lines, at most 900$/],
  "a header and a source file that include one another": [
    { "src/base/other.h": '#include "base/thing.h"\n', "src/base/thing.h": "int thing(int number);\n",
      "src/base/thing.c": `#include "base/other.h"\n\n${GOOD}` },
    /^src\/base\/other: include cycle: base\/other -> base\/thing -> base\/other$/],
  "headers that include one another": [
    { "src/base/a.h": '#include "base/b.h"\n', "src/base/b.h": '#include "base/c.h"\n',
      "src/base/c.h": '#include "base/a.h"\n#include "base/b.h"\n' },
    /^src\/base\/b: include cycle: base\/b -> base\/c -> base\/b \(3 modules include one another\)$/],
  "modules of a subfolder that include one another": [
    { "src/http/a.h": '#include "http/admit/b.h"\n', "src/http/admit/b.c": '#include "http/a.h"\n',
      "src/http/admit/b.h": "int b(void);\n" },
    /^src\/http\/a: include cycle: http\/a -> http\/admit\/b -> http\/a$/],
  "a comment that hides its subject": [
    { "src/base/thing.c": `/* The table.\n * Who${"ever"} reads it waits. */\n${GOOD}` },
    /^src\/base\/thing\.c:2: sentence hides its subject: Whoever reads it waits\.$/],
  "a page that hides its subject": [
    { "docs/plan.md": `# Plan\n\n- One. No${"body"} waits.\n` },
    /^docs\/plan\.md:3: sentence hides its subject: Nobody waits\.$/],
  "seven parameters": [
    { "src/base/thing.h": "int seven(int a, int b, int c, int d, int e, int f, int g);\n" },
    /^src\/base\/thing\.h:1: seven takes 7 parameters, at most 6$/],
  "a marker in code": [
    { "src/base/thing.c": `/* TO${"DO"}: more */\n${GOOD}` }, /^src\/base\/thing\.c:1: left-over marker/],
  "a marker in a page": [
    { "docs/plan.md": `This is not ${"implemented"} yet.\n` }, /^docs\/plan\.md:1: left-over marker/],
  "a marker in a tool": [
    { "tools/other": `# FIX${"ME"}\n` }, /^tools\/other:1: left-over marker/],
  "a page that names a file that is not there": [
    { "docs/plan.md": "# Plan\n\nSee `base/absent.c`.\n" }, /^docs\/plan\.md:3: names base\/absent\.c, which does not exist$/],
  "a page that links to a page that is not there": [
    { "docs/plan.md": "# Plan\n\nSee [it](absent.md#part).\n" }, /^docs\/plan\.md:3: links to absent\.md, which does not exist$/],
  "a page that names a function that is not there": [
    { "docs/plan.md": "# Plan\n\nIt calls `thing_absent(number)`.\n" }, /^docs\/plan\.md:3: names thing_absent, which does not exist$/],
  "a walk through a file that is not there": [
    walkOf("| one | `base/absent.c` | `thing` | |"), /^docs\/architecture\.md:7: names base\/absent\.c, which does not exist$/],
  "a walk through a function that the file does not define": [
    walkOf("| one | `wire/user.c` | `thing` | a turn |"), /^docs\/architecture\.md:7: wire\/user\.c does not define thing$/],
  "a walk whose step is not called": [
    walkOf("| one | `base/thing.c` | `thing` | a turn |", "| two | `wire/user.c` | `use` | |"),
    /^docs\/architecture\.md:8: base\/thing\.c does not call use$/],
  "a walk whose step is called by a file that it did not pass": [
    walkOf("| one | `base/thing.c` | `thing` | `wire/user.c` |"),
    /^docs\/architecture\.md:7: thing is reached from wire\/user\.c, which the walk did not pass$/],
  "a walk through a function pointer that is not called": [
    walkOf("| one | `wire/user.c` | `use` | a turn |", "| two | `base/thing.c` | `thing` | `absent` |"),
    /^docs\/architecture\.md:8: wire\/user\.c does not call thing through absent$/],
  "a step of a walk that names no function": [
    walkOf("| one | `wire/user.c` |"), /^docs\/architecture\.md:7: a step of a walk names one file and one function$/],
  "a picture of the folders that is out of date": [
    walkOf(), /^docs\/rooms\.svg: out of date; run tools\/rooms docs\/rooms\.svg$/],
  "a threat without a test": [
    { "SECURITY.md": "## Keys\n\n### Guesses\n\nText.\n\nCode: `base/thing.c`.\n" }, /^SECURITY\.md:3: the threat 'Guesses' names no tests$/],
  "a threat whose test is no path": [
    { "SECURITY.md": "### Guesses\n\nCode: `base/thing.c`.\n\nTests: `base/thing.c`,\n`test_thing.c`.\n" }, /^SECURITY\.md:1: test_thing\.c is no path$/],
  "a page of codes that is out of date": [
    { "docs/codes.md": "# Codes\n" }, /^docs\/codes\.md: out of date; run .*tools\/generate docs/],
  "a page of metrics that is out of date": [
    { "docs/metrics.md": "# Metrics\n" }, /^docs\/metrics\.md: out of date; run .*tools\/generate metrics/],
  "a page of settings that is out of date": [
    { "docs/configuration.md": "# Old\n" }, /^docs\/configuration\.md: out of date; run .*khala config --markdown/],
  "a manual page that is out of date": [
    { "docs/khala.1": ".TH OLD\n" }, /^docs\/khala\.1: out of date; run .*khala man/],
  "code in another format": [
    { "src/base/thing.c": GOOD.replace("    return", "  return") },
    /^src\/base\/thing\.c:\d+: not as clang-format writes it$/],
  "a test in another format": [
    { "tests/unit/base/test_thing.c": GOOD.replace("    return", "  return") },
    /^tests\/unit\/base\/test_thing\.c:\d+: not as clang-format writes it$/],
  "a finding of clang-tidy": [
    { "src/base/thing.c": GOOD.replace("return number", "return number == number") },
    /^src\/base\/thing\.c:4: .*\[misc-redundant-expression\]$/],
  "code that does not compile": [
    { "src/base/thing.c": GOOD.replace("number;", "unknown;") }, /^src\/base\/thing\.c:4: .*clang-diagnostic-error/],
  "an analysis that could not run": [
    { "build/compile_commands.json": "" }, /^src\/base\/thing\.c: has no compile command/],
};

// clang-tidy takes most of the time, so a few trees are checked at once.
describe("tools/tidy", { concurrency: 3, skip }, () => {
  test("tidy has no findings in a correct tree", async (t) => {
    assert.deepEqual((await findings(t, {
      "docs/plan.md": "Who reads this page? The caller knows who waits. `Whose` is a word. `base/thing.c` and\n`thing(1)` exist.\n\n```\nWhoever\n```\n",
      "src/server/config_table.c": GOOD + lines(1000, ""),
    })).filter((line) => !line.includes("clang-format")), []);
    assert.deepEqual(await findings(t, {}), []);
    assert.deepEqual((await findings(t, walkOf("| one | `wire/user.c` | `use` | a turn |", "| two | `base/thing.c` | `thing` | |",
      "| two | `base/thing.c` | `thing` | `wire/user.c` |", "| two | `base/thing.c` | `thing` | `other` in `wire/user.c` |")))
      .filter((line) => line.startsWith("docs/architecture")), []);
    assert.deepEqual(await findings(t, {
      "src/base/thing.c": functionOf(70),
      "tests/lib/thing.mjs": lines(900, ""),
    }), []);
    assert.deepEqual(await findings(t, {
      "src/base/thing.h": "int thing(int number);\n",
      "src/wire/other.c": '#include "base/thing.h"\n\nint other(void);\n\nint other(void) {\n    return thing(1);\n}\n',
    }), []);
  });

  for (const [name, [changes, expected]] of Object.entries(faults)) {
    test(`tidy reports ${name}`, async (t) => {
      const found = await findings(t, changes);
      assert.ok(found.some((line) => expected.test(line)), found.join("\n"));
    });
  }
});
