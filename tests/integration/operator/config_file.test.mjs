// The settings file: its syntax, its precedence, its refusals, and the verbs that read it.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { chmodSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { databaseOf, onPostgres } from "../../lib/database.mjs";
import { binary, environment, folder, run, serve } from "../../lib/khala.mjs";

/** Writes a settings file and answers its path. */
function written(t, text) {
  const path = join(folder(t), "khala.conf");
  writeFileSync(path, text);
  return path;
}

/** The effective settings by name. */
function effective(args, options) {
  const { code, out, problem } = run(["config", "--json", ...args], options);
  assert.equal(code, 0, problem);
  return Object.fromEntries(JSON.parse(out).map((one) => [one.name, one]));
}

const TEXT = `# the address
; another comment

RUNTIME_BIND_ADDR=127.0.0.1:4777
  KHALA_DATA_DIR = "/var/lib/it's \\"ours\\""\t
KHALA_LOG='json'\r
KHALA_LOG_LEVEL=warn
RUNTIME_SYNC_TOKEN_ISSUER=a\\ b\\\\c
KHALA_OPERATOR_KEY=hidden
RUNTIME_KHALA_RUN_EVENTS_REPLAY_BUDGET_EVENTS=77
`;

test("a settings file has comments and quotes, and config names the file and line of each value", (t) => {
  const path = written(t, TEXT);
  const settings = effective(["--config", path]);
  const value = (name) => settings[name].value;
  assert.deepEqual(settings.RUNTIME_BIND_ADDR, { name: "RUNTIME_BIND_ADDR", value: "127.0.0.1:4777", source: "file", path, line: 4 });
  assert.equal(value("KHALA_DATA_DIR"), "/var/lib/it's \"ours\"");
  assert.equal(value("KHALA_LOG"), "json");
  assert.equal(value("RUNTIME_SYNC_TOKEN_ISSUER"), "a b\\c");
  assert.equal(value("KHALA_OPERATOR_KEY"), "********");
  assert.equal(settings.KHALA_IO_LOOPS.source, "default");
  const { out } = run(["config", "--config", path]);
  assert.ok(out.includes(`KHALA_LOG_LEVEL=warn  # file ${path}:7\n`), out);
  assert.ok(!out.includes("hidden"));
});

test("a flag overrides the environment, and the environment overrides the file", (t) => {
  const path = written(t, "RUNTIME_BIND_ADDR=127.0.0.1:1\nKHALA_LOG=json\nKHALA_LOG_LEVEL=warn\nKHALA_OPERATOR_BIND_ADDR=127.0.0.1:2\n");
  const settings = effective(["--config", path, "--bind", "127.0.0.1:3"],
    { settings: { RUNTIME_BIND_ADDR: "127.0.0.1:4", KHALA_LOG: "text", KHALA_OPERATOR_BIND_ADDR: "" } });
  const got = (name) => [settings[name].value, settings[name].source];
  assert.deepEqual(got("RUNTIME_BIND_ADDR"), ["127.0.0.1:3", "flag"]);
  assert.deepEqual(got("KHALA_LOG"), ["text", "environment"]);
  assert.deepEqual(got("KHALA_LOG_LEVEL"), ["warn", "file"]);
  assert.deepEqual(got("KHALA_OPERATOR_BIND_ADDR"), ["", "environment"]);
});

test("a bad file is refused with the key, the file and the line", (t) => {
  const refused = [
    ["KHALA_LOG=text\nKHALA_DATADIR=x\n", 2, /KHALA_DATADIR is no setting; did you mean KHALA_DATA_DIR\?/],
    ["PATH=/bin\n", 1, /PATH is no setting/],
    ["KHALA_LOG=text\n\nKHALA_LOG=json\n", 3, /KHALA_LOG is already set in line 1/],
    ["KHALA_LOG=loud\n", 1, /KHALA_LOG='loud' is not one of text\|json/],
    ["RUNTIME_KHALA_RUN_EVENTS_REPLAY_BUDGET_EVENTS=many\n", 1, /RUN_EVENTS_REPLAY_BUDGET_EVENTS='many' is not a whole number/],
    ["KHALA_LOG=\"json\n", 1, /KHALA_LOG: the closing quote is missing/],
    ["KHALA_LOG='json' text\n", 1, /KHALA_LOG: there is text after the closing quote/],
    ["KHALA_LOG=json # loud\n", 1, /KHALA_LOG: a comment needs its own line/],
    ["KHALA_LOG=json\\\n", 1, /KHALA_LOG: a value ends on its line/],
    ["export KHALA_LOG=json\n", 1, /'export KHALA_LOG=json' is not KEY=value/],
    ["KHALA_LOG=json\n\u0000\n", 2, /the line is not text in UTF-8/],
    [`#${"x".repeat(2047)}\n#${"x".repeat(2048)}\n`, 2, /the line is longer than 2048 bytes/],
  ];
  for (const [text, line, reason] of refused) {
    const path = written(t, text);
    // append does not use the server's values, so it checks only the syntax and the keys.
    const isValue = /^KHALA_LOG=loud|BUDGET/.test(text);
    for (const verb of ["serve", "config", "verify", ...(isValue ? [] : ["append"])]) {
      const { code, problem } = run([verb, "--config", path], { cwd: folder(t) });
      assert.equal(code, 2, `${verb}: ${problem}`);
      assert.ok(problem.startsWith(`khala: ${path}:${line}: `), problem);
      assert.match(problem, reason);
    }
  }
});

test("a bad value in the file is refused also where the environment overrides it", (t) => {
  const path = written(t, "KHALA_LOG=loud\n");
  const { code, problem } = run(["config", "--config", path], { settings: { KHALA_LOG: "json" } });
  assert.equal(code, 2);
  assert.match(problem, /khala\.conf:1: KHALA_LOG='loud'/);
});

test("a file that is too large or cannot be read is refused", (t) => {
  const comments = (bytes) => "# comment\n".repeat(Math.ceil(bytes / 10)).slice(0, bytes - 1) + "\n";
  assert.equal(run(["config", "--check", "--config", written(t, comments(65536))]).code, 0);
  const large = run(["config", "--config", written(t, comments(65537))]);
  assert.deepEqual([large.code, /is larger than 65536 bytes/.test(large.problem)], [2, true], large.problem);
  for (const path of [join(folder(t), "absent.conf"), folder(t)]) {
    const { code, problem } = run(["config", "--config", path]);
    assert.equal(code, 2);
    assert.match(problem, /^khala: cannot read the settings in .*: (No such file or directory|Is a directory)\n$/);
  }
});

test("serve runs by its file, and the other verbs find the server by the same file", async (t) => {
  const data = folder(t);
  const store = `KHALA_DATA_DIR='${data}'\n${onPostgres ? `DB_URL=${databaseOf(data)}\n` : ""}`;
  const path = written(t, `${store}KHALA_OPERATOR_KEY=of-the-file\n`);
  const server = await serve(t, { args: ["--config", path] });
  const client = written(t, `${store}KHALA_OPERATOR_KEY=of-the-file\nKHALA_URL=${server.url}\n`);
  const appended = run(["append", "--config", client, "--topic", "demo", "--type", "said", "--json"]);
  assert.equal(appended.code, 0, appended.problem);
  assert.equal(run(["verify", "--config", client]).code, 0);
  assert.equal(run(["append", "--config", client, "--key", "other", "--topic", "demo", "--type", "said"]).code, 1);
});

const mayMount = spawnSync("unshare", ["-rm", "mount", "-t", "tmpfs", "none", "/mnt"]).status === 0;

test("without --config, /etc/khala/khala.conf is read where it exists", { skip: mayMount ? false : "needs a mount namespace" }, (t) => {
  const path = written(t, "KHALA_LOG=json\n");
  chmodSync(path, 0o644);
  const within = 'mount -t tmpfs none /mnt && cp "$0" /mnt/khala.conf && mount -t tmpfs none /etc && mkdir /etc/khala && cp /mnt/khala.conf /etc/khala && exec "$@"';
  const done = spawnSync("unshare", ["-rm", "sh", "-c", within, path, binary, "config"], { encoding: "utf8", env: environment() });
  assert.equal(done.status, 0, done.stderr);
  assert.match(done.stdout, /\nKHALA_LOG=json  # file \/etc\/khala\/khala\.conf:1\n/);
  assert.match(run(["config"]).out, /\nKHALA_LOG=text  # default\n/);
});
