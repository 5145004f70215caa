// Files generated from the table of verbs: shell completion and the manual page, and where
// `make install` puts them.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { binary, folder, run } from "../../lib/khala.mjs";

const ROOT = new URL("../../..", import.meta.url).pathname;
const VERBS = [...run(["help"]).out.matchAll(/^ {2}(\w+) +[A-Z]/gm)].map(([, verb]) => verb);

/** The completions of bash for the last of these words. */
function offered(words, cwd) {
  const script = `${run(["completion", "bash"]).out}
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _khala; printf '%s\\n' "\${COMPREPLY[@]}"`;
  const done = spawnSync("bash", ["-c", script, "bash", "khala", ...words], { encoding: "utf8", cwd });
  assert.deepEqual([done.status, done.stderr], [0, ""]);
  return done.stdout.split("\n").filter(Boolean);
}

test("bash completes verbs, operands, options and their values", (t) => {
  assert.deepEqual(offered([""]), VERBS);
  assert.deepEqual(offered(["re"]), ["reproject", "restore", "retention"]);
  assert.deepEqual(offered(["help", "mig"]), ["migrate"]);
  assert.deepEqual(offered(["topic", ""]), ["map", "unmap", "policy"]);
  assert.deepEqual(offered(["completion", "z"]), ["zsh"]);
  assert.deepEqual(offered(["export", "--format", ""]), ["ndjson", "csv"]);
  assert.deepEqual(offered(["serve", "--log-level", "d"]), ["debug"]);
  assert.deepEqual(offered(["config", "--ch"]), ["--check"]);
  assert.deepEqual(offered(["append", "--run", ""]), []);
  const place = folder(t);
  writeFileSync(join(place, "a backup.db"), "");
  assert.deepEqual(offered(["restore", "a"], place), ["a backup.db"]);
  assert.deepEqual(offered(["serve", "--data-dir", "a"], place), [], "a file is no folder");
});

test("both shells and the manual list every option of every verb", () => {
  const zsh = run(["completion", "zsh"]).out;
  const manual = run(["man"]).out;
  for (const verb of VERBS) {
    const help = run(["help", verb]).out;
    const options = [...help.matchAll(/^ {2}(--\S+) /gm)].map(([, name]) => name);
    assert.deepEqual(offered([verb, "--"]), [...options, "--help"], verb);
    const section = manual.split(`.SS ${verb}\n`)[1].split(/^\.S[SH] /m)[0];
    const arguments_ = zsh.split(`\n    ${verb})\n`)[1].split(" ;;\n")[0];
    for (const option of options) {
      assert.ok(section.includes(`.B ${option.replaceAll("-", "\\-")}`), `${verb} ${option} in the manual`);
      assert.match(arguments_, new RegExp(`'${option}[=[]`), `${verb} ${option} in zsh`);
    }
  }
});

/** The completions of zsh at the end of each line. */
function offeredByZsh(t, lines) {
  const place = folder(t);
  writeFileSync(join(place, "_khala"), run(["completion", "zsh"]).out);
  const done = spawnSync("zsh", ["-f", join(ROOT, "tests/lib/offered.zsh"), place],
    { input: lines.map((line) => `${line}\n`).join(""), encoding: "utf8", timeout: 60_000 });
  assert.deepEqual([done.status, done.stderr], [0, ""]);
  return done.stdout.split("\n\n").slice(0, -1).map((words) => words.split("\n").filter(Boolean).sort());
}

test("zsh completes every verb and every option", (t) => {
  const [verbs, ...options] = offeredByZsh(t, ["khala ", ...VERBS.map((verb) => `khala ${verb} --`)]);
  assert.deepEqual(verbs, [...VERBS].sort());
  for (const [index, verb] of VERBS.entries()) {
    const listed = [...run(["help", verb]).out.matchAll(/^ {2}(--\S+) /gm)].map(([, name]) => name);
    assert.deepEqual(options[index], [...listed, "--help"].sort(), verb);
  }
});

/** The arguments of the verb for lines with tabs, typed into a shell at a terminal. */
function typed(shell, setup, lines, cwd) {
  const done = spawnSync("script", ["-qec", shell, "/dev/null"], {
    input: [`${setup}; khala() { printf '%s\\n' '' --khala-- "$@" --end--; }`, ...lines, "exit", ""].join("\n"),
    encoding: "utf8", cwd, timeout: 30_000, env: { PATH: process.env.PATH, TERM: "dumb", HOME: cwd },
  });
  return [...done.stdout.replaceAll("\r", "").matchAll(/^--khala--\n([^]*?)\n--end--$/gm)].map(([, words]) => words.split("\n"));
}

for (const [name, shell, setup] of [
  ["bash", "bash --norc --noprofile -i", "source ./khala.bash"],
  ["zsh", "zsh -f -i", "fpath=($PWD $fpath); autoload -Uz compinit; compinit -D -u"],
]) {
  test(`an interactive ${name} completes verbs, values, files and folders`, (t) => {
    const cwd = folder(t);
    for (const [file, kind] of [["khala.bash", "bash"], ["_khala", "zsh"]]) writeFileSync(join(cwd, file), run(["completion", kind]).out);
    writeFileSync(join(cwd, "a backup.db"), "");
    mkdirSync(join(cwd, "store"));
    const rows = [
      ["resto\t", "restore"], ["serve --log-level d\t", "serve", "--log-level", "debug"], ["serve --log=j\t", "serve", "--log=json"],
      ["restore a\t", "restore", "a backup.db"], ["backup --force a\t", "backup", "--force", "a backup.db"],
      ["restore --data-dir st\tx a\t", "restore", "--data-dir", "store/x", "a backup.db"],
      ["serve --data-dir=st\tx", "serve", "--data-dir=store/x"], ["topic un\tx", "topic", "unmap", "x"],
      ["help mig\t", "help", "migrate"], ["config --che\t", "config", "--check"], ["token mi\t--user u", "token", "mint", "--user", "u"],
      ["append --run a\t", "append", "--run", "a"],
    ];
    const said = typed(shell, setup, rows.map(([line]) => `khala ${line}`), cwd);
    assert.deepEqual(said, rows.map(([, ...words]) => words));
  });
}

test("docs/khala.1 equals the page that the binary writes", () => {
  assert.equal(run(["man"]).out, readFileSync(join(ROOT, "docs/khala.1"), "utf8"), "khala man > docs/khala.1");
});

test("groff reports no mistake in the manual page", () => {
  const done = spawnSync("groff", ["-man", "-ww", "-Kutf8", "-Tutf8"], { input: run(["man"]).out, encoding: "utf8" });
  assert.deepEqual([done.status, done.stderr], [0, ""]);
  assert.ok(done.stdout.replaceAll(/.\x08/g, "").includes("KHALA_SHUTDOWN_GRACE_MS"));
});

test("make install installs every file", (t) => {
  const place = folder(t);
  const done = spawnSync("make", ["-C", ROOT, "install-files", `BUILD=${dirname(binary)}`, `DESTDIR=${place}`, "PREFIX=/usr"], { encoding: "utf8" });
  assert.equal(done.status, 0, done.stderr);
  assert.equal(statSync(join(place, "usr/bin/khala")).mode & 0o777, 0o755);
  for (const file of ["share/man/man1/khala.1", "share/bash-completion/completions/khala", "share/zsh/site-functions/_khala"]) {
    assert.ok(statSync(join(place, "usr", file)).size > 1000, file);
  }
  const unit = readFileSync(join(place, "usr/lib/systemd/system/khala.service"), "utf8");
  assert.match(unit, /^ExecStart=\/usr\/bin\/khala serve$/m);
  assert.doesNotMatch(unit, /local/);
});
