// The command line: usage, exit codes, and which stream each output goes to.
import assert from "node:assert/strict";
import { closeSync, openSync, readFileSync, readdirSync, writeFileSync } from "node:fs";
import { spawnSync } from "node:child_process";
import net from "node:net";
import { join } from "node:path";
import { test } from "node:test";
import { onPostgres } from "../../lib/database.mjs";
import { answer, binary, environment, folder, run, runAll, start, startVerb } from "../../lib/khala.mjs";
import { once, within } from "../../lib/wait.mjs";

/** The verbs that the help lists. */
const VERBS = [...run(["help"]).out.matchAll(/^ {2}(\w+) +[A-Z]/gm)].map(([, verb]) => verb);

/** The options that `khala help VERB` lists: the name and the kind of value ("" for a flag). */
function options(verb) {
  const [, list = ""] = run(["help", verb]).out.match(/^options:\n((?: {2}--.*\n)+)/m) ?? [];
  return [...list.matchAll(/^ {2}(--\S+) (\S*) +\S/gm)].map(([, name, takes]) => ({ name, takes }));
}

/** Checks wrong usage: exit code 2, nothing on stdout, a message on stderr. */
function misused(args, pattern = /^(khala|usage): /, options) {
  const { code, out, problem } = run(args, options);
  assert.equal(code, 2, `khala ${args.join(" ")}: ${out}${problem}`);
  assert.equal(out, "");
  assert.match(problem, pattern, args.join(" "));
}

test("help lists every verb, and every verb has its own help", () => {
  for (const verb of ["serve", "append", "get", "verify", "config", "help"]) assert.ok(VERBS.includes(verb), verb);
  const { code, out, problem } = run(["help"]);
  assert.equal(code, 0);
  assert.equal(problem, "");
  for (const verb of VERBS) {
    assert.match(out, new RegExp(`^  ${verb} +[A-Z].*\\.$`, "m"));
    const one = run(["help", verb]);
    assert.equal(one.code, 0);
    assert.match(one.out, new RegExp(`^usage: khala ${verb}\\b`, "m"));
    assert.match(one.out, /^examples:\n {2}\S/m);
    for (const flag of ["--help", "-h"]) assert.equal(run([verb, flag]).out, one.out, `${verb} ${flag}`);
  }
  for (const flag of ["--help", "-h"]) assert.equal(run([flag]).out, out);
});

test("a verb takes exactly the options that its help lists", () => {
  for (const verb of VERBS) {
    const listed = options(verb);
    for (const { name, takes } of listed) {
      // These mistakes are found before the verb does anything.
      if (takes) misused([verb, name], new RegExp(`^khala: ${name} needs a value`));
      else misused([verb, `${name}=x`], new RegExp(`^khala: ${name} takes no value`));
    }
    misused([verb, "--none-such"], /^khala: unknown option --none-such/);
    const usage = run(["help", verb]).out.match(/^usage: (?:.*\n)(?: {7}.*\n)*/m)[0];
    for (const [name] of usage.matchAll(/--[a-z][a-z-]+/g)) {
      assert.ok(listed.some((option) => option.name === name), `${verb} ${name}`);
    }
  }
});

test("the examples of the operations page print the output it shows", () => {
  const page = readFileSync(new URL("../../../docs/operations.md", import.meta.url), "utf8");
  const examples = page.match(/```console\n(\$ khala topic map[^]*?)```/)[1].split(/^\$ /m).filter(Boolean);
  assert.ok(examples.length >= 8);
  for (const example of examples) {
    const [command, ...expected] = example.split("\n");
    const done = spawnSync("bash", ["-c", `khala() { "${binary}" "$@"; }\n${command}`], { encoding: "utf8" });
    assert.equal(done.stdout, expected.join("\n"), command);
    assert.equal(done.status, 0, command);
  }
});

test("khala version prints text and JSON", () => {
  const text = answer(["version"]);
  assert.match(text, /^khala \d+\.\d+\.\d+$/);
  assert.equal(answer(["--version"]), text);
  assert.deepEqual(JSON.parse(answer(["version", "--json"])), { version: text.slice("khala ".length) });
});

test("wrong usage exits with 2 and a message on stderr", () => {
  misused([], /^usage: khala VERB/m);
  misused(["frobnicate"], /^khala: there is no verb 'frobnicate'/);
  misused(["help", "frobnicate"], /^khala: there is no verb 'frobnicate'/);
  misused(["help", "topic", "map"], /^khala: .+\nusage: khala help/);
  misused(["version", "--loud"], /^khala: unknown option --loud/);
  misused(["version", "--json=yes"], /^khala: --json takes no value/);
  misused(["version", "now"], /^khala: .+\nusage: khala version/);
  misused(["serve", "now"], /^khala: .+\nusage: khala serve/);
  misused(["serve", "--bind"], /^khala: --bind needs a value/);
  misused(["topic"], /^khala: .+\nusage: khala topic/);
  misused(["topic", "map"], /^khala: .+\nusage: khala topic/);
  misused(["topic", "map", "a", "b"], /^khala: .+\nusage: khala topic/);
  misused(["topic", "fold", "a"], /^khala: .+\nusage: khala topic/);
  misused(["json"], /^khala: .+\nusage: khala json/);
  misused(["json", "ugly"], /^khala: .+\nusage: khala json/);
  misused(["config", "bind"], /^khala: .+\nusage: khala config/);
});

test("khala cursor refuses incomplete arguments", () => {
  misused(["cursor"], /^khala: .+\nusage: khala cursor/);
  misused(["cursor", "fold"], /^khala: .+\nusage: khala cursor/);
  misused(["cursor", "encode", "1"], /^khala: .+\nusage: khala cursor/);
  misused(["cursor", "decode"], /^khala: .+\nusage: khala cursor/);
  misused(["cursor", "compare", "a"], /^khala: .+\nusage: khala cursor/);
  misused(["cursor", "migrate"], /^khala: .+\nusage: khala cursor/);
  misused(["cursor", "migrate", "a", "b"], /^khala: .+\nusage: khala cursor/);
  misused(["cursor", "plan"], /^khala: .+\nusage: khala cursor/);
  misused(["cursor", "plan", "--after", "1", "--oldest", "1"], /^khala: .+\nusage: khala cursor/);
  misused(["cursor", "plan", "--after", "1", "--epoch", "a"], /^khala: .+\nusage: khala cursor/);
  misused(["cursor", "plan", "--after", "-1"], /^khala: .*not a seq or seq@epoch/);
  misused(["cursor", "plan", "--after", "9007199254740992"], /^khala: .*not a seq or seq@epoch/);
  misused(["cursor", "decode", "a", "--after", "1"], /^khala: .+\nusage: khala cursor/);
  misused(["cursor", "decode", "a", "--store-epoch", "b"], /^khala: .+\nusage: khala cursor/);
});

test("every verb gives a reason with its usage", () => {
  for (const args of [["append"], ["append", "--run", "r"], ["append", "--create", "--topic", "t"], ["append", "--batch", "-", "--run", "r"],
    ["get"], ["get", "events"], ["get", "run"], ["get", "run", "r", "--limit", "1"], ["tail"], ["tail", "a", "--after", "x"],
    ["tail", "a", "--after", "1", "--from-start"], ["export", "x"], ["snapshot"], ["why", "x"], ["nodes", "x"],
    ["migrate", "x"], ["verify", "x"], ["reproject"], ["backup"], ["restore"], ["doctor", "x"], ["retention"], ["token"],
    ["token", "inspect"], ["token", "mint", "--jti", "x"], ["token", "revoke"], ["completion"], ["man", "x"], ["cursor"]]) {
    misused(args, new RegExp(`^khala: .{8,}\nusage: khala ${args[0]}`));
  }
});

test("errors are one line of JSON with --json", () => {
  const refused = [
    [["verify", "--json", "x"], 2, "usage"],
    [["verify", "--json", "--nothing"], 2, "usage"],
    [["verify", "--json", "--data-dir", "/nowhere"], 3, "unreachable"],
    [["config", "--json", "--bind", "\"x"], 2, "usage"],
    [["append", "--json", "--key", "k", "--url", "http://127.0.0.1:1", "--topic", "t", "--type", "x"], 3, "unreachable"],
    [["topic", "map", "", "--json"], 1, "no"],
  ];
  for (const [args, code, error] of refused) {
    const done = run(args);
    assert.equal(done.code, code, done.problem);
    assert.match(done.problem, /^[^\n]+\n$/);
    const said = JSON.parse(done.problem);
    assert.equal(said.error, error);
    assert.ok(said.message.length > 8, said.message);
  }
});

test("khala topic map refuses invalid topic names", () => {
  for (const topic of ["", "a\nb", "a\u007f", "x".repeat(513)]) {
    const { code, out, problem } = run(["topic", "map", topic]);
    assert.equal(code, 1);
    assert.equal(out, "");
    assert.match(problem, /^khala: invalid_topic: /);
  }
});

test("every answer has the same content as text and as JSON", () => {
  const uuid = "019b76da-a800-7000-8000-000000000000";
  const cursor = answer(["cursor", "encode", "1767225600000", uuid]);
  const plan = ["cursor", "plan", "--after", "0", "--oldest", "2", "--head", "9", "--budget", "3"];
  const said = [
    [["topic", "map", "a:\"b"], "runtime.topic.a.\"b", { topic: "a:\"b", stream_id: "runtime.topic.a.\"b" }],
    [["topic", "unmap", "runtime.run.abc.events"], "run:abc:events", { topic: "run:abc:events", stream_id: "runtime.run.abc.events" }],
    [["cursor", "encode", "1767225600000", uuid], cursor, { cursor }],
    [["cursor", "decode", cursor], `1767225600000 ${uuid}`, { timestamp_ms: 1767225600000, uuid }],
    [["cursor", "compare", cursor, cursor], "0", { order: 0 }],
    [plan, "rebootstrap retention_floor_breach,replay_budget_exceeded", {
      decision: "rebootstrap", reason_codes: ["retention_floor_breach", "replay_budget_exceeded"],
      oldest_available_cursor: 1, head_cursor: 9, replay_lag: 9, replay_budget_events: 3,
    }],
    [["cursor", "plan", "--after", "4"], "resume", { decision: "resume", after_seq: 4 }],
  ];
  for (const [args, text, json] of said) {
    const stale = json.decision === "rebootstrap";
    const told = (...flags) => {
      const { code, out, problem } = run([...args, ...flags]);
      assert.deepEqual([code, problem], [stale ? 1 : 0, ""], args.join(" "));
      return out;
    };
    assert.equal(told(), `${text}\n`);
    assert.deepEqual(JSON.parse(told("--json")), json, args.join(" "));
  }
  const hash = answer(["json", "hash"], { input: "{}" });
  assert.deepEqual(JSON.parse(answer(["json", "hash", "--json"], { input: "{}" })), { payload_hash: hash });
  assert.equal(answer(["json", "canonical", "--json"], { input: "{ }" }), "{}");
});

test("every verb with an answer has --json", () => {
  // These verbs write text of their own kind, or no answer.
  const others = ["serve", "completion", "man", "help"];
  for (const verb of VERBS) {
    assert.equal(options(verb).some(({ name }) => name === "--json"), !others.includes(verb), verb);
  }
});

test("every verb exits with 3 for an unreachable server and with 2 for wrong arguments", (t) => {
  const place = folder(t);
  const data = join(place, "data");
  const nobody = ["--url", "http://127.0.0.1:1", "--key", "k"];
  const remote = [
    ["append", "--run", "a", "--type", "x"], ["append", "--batch", "/dev/null"], ["get", "run", "a"], ["get", "events", "--run", "a"],
    ["tail", "chat"], ["tail", "--audit"], ["export"], ["snapshot", "runtime.run_summaries"], ["why"], ["nodes"],
    ["token", "mint", "--user", "u"], ["token", "revoke", "--session", "s"],
  ];
  const failed = (args, code, words) => {
    const done = run(args, { settings: { KHALA_DATA_DIR: data }, cwd: place });
    assert.equal(done.code, code, `${args.join(" ")}: ${done.problem}`);
    assert.match(done.problem, words, args.join(" "));
    assert.equal(done.out.replace(/^0 appended, 0 were there, 0 refused\n$/, ""), "", args.join(" "));
  };
  for (const args of remote) {
    failed([...args, ...nobody], 3, /^khala: cannot connect to 127\.0\.0\.1 port 1: [^;]+; does the server run there\?\n/);
    failed([...args, "--url", "ftp://x", "--key", "k"], 2, /^khala: 'ftp:\/\/x' is not http/);
    failed([...args, "--url", "http://127.0.0.1:1"], 2, /^khala: no operator key: /);
  }
  for (const args of [["verify"], ["reproject", "--all"], ["backup", "b.db"], ["retention", "run-once"]]) {
    failed(args, 3, onPostgres ? /^khala: (postgres:\S+ holds no store yet|the store is in PostgreSQL): / : /^khala: \S+\/data/);
  }
  failed(["restore", "none.db"], onPostgres ? 1 : 3, onPostgres ? /^khala: the store is in PostgreSQL: / : /^khala: none\.db: .*No such file/);
  assert.deepEqual(readdirSync(place), [], "nothing was made on the way");
});

test("a misspelled verb or option is answered with the nearest name", () => {
  misused(["serv"], /^khala: there is no verb 'serv'; did you mean 'serve'\?/);
  misused(["help", "retain"], /^khala: there is no verb 'retain'; see 'khala help'/);
  misused(["help", "retenton"], /did you mean 'retention'\?/);
  misused(["config", "--chek"], /^khala: unknown option --chek; did you mean --check\?/);
  misused(["serve", "--datadir=x"], /^khala: unknown option --datadir; did you mean --data-dir\?/);
  misused(["verify", "--limit", "3"], /^khala: unknown option --limit; see 'khala help verify'/);
});

test("every message of every verb ends in one newline", (t) => {
  const settings = { KHALA_DATA_DIR: join(folder(t), "none"), KHALA_URL: "http://127.0.0.1:1", KHALA_OPERATOR_KEY: "k" };
  for (const verb of VERBS)
    // run checks how the output ends.
    for (const args of [["--no-such-option"], ["--json", "--no-such-option"], ["--url"], ["x", "y", "z"], ["", "\n"], ...(verb === "serve" ? [] : [[], ["--json"]])]) {
      const { code, out, problem } = run([verb, ...args], { settings });
      if (code !== 0) assert.ok(problem !== "" || out.endsWith("\n"), `${verb} ${args}`);
    }
});

test("an operand after -- may begin with dashes", () => {
  assert.equal(answer(["topic", "map", "--", "--json"]), "runtime.topic.--json");
});

test("a failed write of the answer is an error", () => {
  const full = openSync("/dev/full", "w");
  const done = spawnSync(binary, ["version"], { stdio: ["ignore", full, "pipe"], encoding: "utf8" });
  closeSync(full);
  assert.equal(done.status, 3);
  assert.match(done.stderr, /^khala: cannot write the answer: /);
});

/** Runs a line of bash in which $0 is the binary. */
function shell(line, { cwd } = {}) {
  const done = spawnSync("bash", ["-c", line, binary], { encoding: "utf8", cwd, env: environment() });
  return { code: done.status, out: done.stdout, problem: done.stderr };
}

test("a closed stdout is an error, and the answer goes to no other file", (t) => {
  const cwd = folder(t);
  const { code, problem } = shell('"$0" migrate >&-', { cwd });
  assert.equal(code, 3);
  assert.match(problem, /^khala: cannot write the answer: Bad file descriptor/);
  assert.match(readFileSync(join(cwd, "khala-data/khala.lock"), "utf8"), /^\d+\n$/, "not even into a file of ours");
  assert.equal(shell('"$0" version <&- >&- 2>&-').code, 3);
  assert.equal(shell('"$0" json hash <&-').code, 1);
});

test("a verb ends with SIGPIPE when its reader closes the pipe", () => {
  const { out } = shell('for _ in {1..50}; do "$0" man || exit; done 2>&1 | head -n 1; echo "${PIPESTATUS[0]}"');
  assert.equal(out, ".\\\" Generated by `khala man`.\n141\n");
});

test("a server without a usable stdout serves and ends cleanly", async (t) => {
  for (const output of [">&-", "> >(true)", ">/dev/full"]) {
    const data = join(folder(t), "data");
    const server = start(t, ["bash", "-c", `exec "$0" serve --bind 127.0.0.1:0 --data-dir "$1" ${output}`, binary, data], { env: environment() });
    await server.saw("log", /server\.ready/);
    const { code } = await server.end("SIGTERM");
    assert.equal(code, 0, server.log);
    assert.match(server.log, /server\.ended/);
    assert.match(readFileSync(join(data, "khala.lock"), "utf8"), /^\d+\n$/);
  }
});

const WINDOW = { oldest_seq: 10, head_seq: 25, replay_budget_events: 200 };

function migrate(input, ...flags) {
  return run(["cursor", "migrate", "-", ...flags], { input: typeof input === "string" ? input : JSON.stringify(input) });
}

test("khala cursor migrate takes an array", () => {
  const done = migrate([
    { topic: "run:abc:events", after_seq: 7 },
    { topic: "runtime.codex_worker_events", watermark: 3 },
    { stream_id: "runtime.run.abc.events", after_seq: 9 },
  ]);
  assert.equal(done.code, 0, done.problem);
  assert.deepEqual(done.out.split("\n"), [
    "runtime.run.abc.events 7 resume",
    "runtime.codex.worker.events 3 resume",
    "runtime.run.abc.events 9 resume",
    "",
  ]);
});

test("khala cursor migrate takes a file with one cursor a line", (t) => {
  const path = join(folder(t), "cursors.ndjson");
  writeFileSync(path, '{"topic":"chat:room:7","after_seq":1}\n\n  \r\n{"topic":"chat","after_seq":0}');
  const { code, out } = run(["cursor", "migrate", path]);
  assert.equal(code, 0);
  assert.equal(out, "runtime.topic.chat.room.7 1 resume\nruntime.topic.chat 0 resume\n");
});

test("khala cursor migrate takes a map of topics", () => {
  const { code, out } = migrate({ "run:abc:events": 7, topic: 2 });
  assert.equal(code, 0);
  assert.equal(out, "runtime.run.abc.events 7 resume\nruntime.topic.topic 2 resume\n");
});

test("khala cursor migrate takes a single cursor", () => {
  assert.equal(migrate({ topic: "a", after_seq: 1 }).out, "runtime.topic.a 1 resume\n");
});

test("khala cursor migrate prints the decision for each cursor and window", () => {
  const cursors = [2, 9].map((after) => ({ topic: "run:abc:events", after_seq: after, window: WINDOW }));
  assert.deepEqual(migrate(cursors), {
    code: 1, out: "runtime.run.abc.events 2 rebootstrap retention_floor_breach\nruntime.run.abc.events 9 resume\n", problem: "",
  });
  const both = { topic: "a", after_seq: 0, window: { oldest_seq: 9, head_seq: 99, replay_budget_events: 1 } };
  assert.equal(migrate([both]).out,
    "runtime.topic.a 0 rebootstrap retention_floor_breach,replay_budget_exceeded\n");
  const lines = migrate(cursors, "--json").out.trim().split("\n").map((line) => JSON.parse(line));
  assert.deepEqual(lines, [
    {
      stream_id: "runtime.run.abc.events", decision: "rebootstrap", reason_codes: ["retention_floor_breach"],
      oldest_available_cursor: 9, head_cursor: 25, replay_lag: 23, replay_budget_events: 200,
    },
    { stream_id: "runtime.run.abc.events", decision: "resume", after_seq: 9 },
  ]);
});

test("khala cursor migrate names a bad row and answers the others", () => {
  const bad = [
    { topic: "a" },
    { after_seq: 1 },
    { topic: "a", after_seq: -1 },
    { topic: "a", after_seq: 1.5 },
    { topic: "a", after_seq: "one" },
    { topic: "a", after_seq: 9007199254740992 },
    { topic: "", after_seq: 1 },
    { topic: "a\u0000b", after_seq: 1 },
    { stream_id: "a\u0000b", after_seq: 1 },
    { stream_id: "a 1 resume\nb", after_seq: 1 },
    { stream_id: "a\u0085b", after_seq: 1 },
    { stream_id: "", after_seq: 1 },
    { topic: "a", stream_id: "b", after_seq: 1 },
    { topic: "a", after_seq: 1, watermark: 1 },
    { topic: 7, after_seq: 1 },
    { topic: "a", after_seq: 1, window: { oldest_seq: 1 } },
    { topic: "a", after_seq: 1, window: null },
    "a",
    null,
    [],
  ];
  for (const row of bad) {
    const { code, out, problem } = migrate([{ topic: "first", after_seq: 1 }, row, { topic: "third", after_seq: 3 }]);
    assert.equal(code, 1, JSON.stringify(row));
    assert.equal(out, "runtime.topic.first 1 resume\nruntime.topic.third 3 resume\n", JSON.stringify(row));
    assert.match(problem, /^khala: cursor 2: [a-z_0-9]+: .+\n$/, JSON.stringify(row));
  }
  const lines = migrate('{"topic":"a","after_seq":1}\n{"topic":\n{"topic":"b","after_seq":2}\n');
  assert.equal(lines.code, 1);
  assert.equal(lines.out, "runtime.topic.a 1 resume\nruntime.topic.b 2 resume\n");
  assert.match(lines.problem, /^khala: cursor 2: invalid_json: /);
  assert.equal(migrate({ a: 1, b: "x" }).code, 1);
});

test("khala cursor migrate accepts a stream id without a topic", () => {
  assert.equal(migrate([{ stream_id: "runtime.run..events", after_seq: 4 }]).out, "runtime.run..events 4 resume\n");
});

test("a key on the command line is hidden from the process list", async (t) => {
  const server = net.createServer();
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => server.close());
  const asked = new Promise((resolve) => server.once("connection", resolve));
  const url = `http://127.0.0.1:${server.address().port}`;
  const verb = startVerb(t, ["get", "run", "one", "--url", url, "--key", "open-sesame"]);
  const socket = await within(asked, "the request");
  await once(socket, "data", "the key");
  const seen = readFileSync(`/proc/${verb.child.pid}/cmdline`, "latin1");
  assert.ok(seen.includes("--key") && !seen.includes("sesame"), seen);
  socket.destroy();
  assert.equal((await verb.end()).code, 3);
});

test("an unreadable input file exits with 3 and the reason", (t) => {
  const path = folder(t);
  const missing = run(["cursor", "migrate", join(path, "none.json")]);
  assert.equal(missing.code, 3);
  assert.equal(missing.out, "");
  assert.match(missing.problem, /^khala: cannot read '.*none\.json': No such file or directory\n$/);
  const directory = run(["cursor", "migrate", path]);
  assert.equal(directory.code, 3);
  assert.match(directory.problem, /Is a directory\n$/);
  const batch = run(["append", "--key", "k", "--batch", join(path, "none.ndjson")]);
  assert.equal(batch.code, 3);
  assert.match(batch.problem, /^khala: cannot read '.*none\.ndjson': No such file or directory\n$/);
});

test("an input file above the maximum size is refused", (t) => {
  const path = join(folder(t), "large");
  const row = '{"topic":"a","after_seq":1}\n';
  writeFileSync(path, row + " ".repeat(64 * 1024 * 1024 - row.length));
  assert.equal(run(["cursor", "migrate", path]).out, "runtime.topic.a 1 resume\n");
  writeFileSync(path, " ", { flag: "a" });
  const { code, out, problem } = run(["cursor", "migrate", path]);
  assert.equal(code, 1);
  assert.equal(out, "");
  assert.match(problem, /^khala: payload_too_large: /);
});

/** The output of `khala config --json` by setting. */
function config(settings = {}, args = []) {
  const { code, out, problem } = run(["config", "--json", ...args], { settings });
  assert.equal(code, 0, problem);
  return Object.fromEntries(JSON.parse(out).map(({ name, value, source }) => [name, { value, source }]));
}

/** The rows of docs/configuration.md: name, flag, default and kind of value. */
function documented() {
  const page = readFileSync(new URL("../../../docs/configuration.md", import.meta.url), "utf8");
  const [settings] = page.split(/## The (?:topics file|command line)/);
  return settings.split("\n").filter((line) => line.startsWith("| `")).map((line) => {
    const cells = line.split("|").slice(1, -1).map((cell) => cell.trim().replace(/`/g, ""));
    return cells.length === 5
      ? { name: cells[0], flag: cells[1], fallback: cells[2], takes: cells[3] }
      : { name: cells[0], flag: "–", fallback: cells[1], takes: cells[2] };
  });
}

/** Settings that must be given together, or in this order. */
const TOGETHER = [["RUNTIME_SYNC_JWKS_FILE", "RUNTIME_SYNC_TOKEN_ISSUER"], ["KHALA_TLS_CERT_FILE", "KHALA_TLS_KEY_FILE"],
  ["OA_COMPAT_KHALA_MIN_SCHEMA_VERSION", "OA_COMPAT_KHALA_MAX_SCHEMA_VERSION"],
  ["OA_COMPAT_KHALA_MIN_CLIENT_BUILD_ID", "OA_COMPAT_KHALA_MAX_CLIENT_BUILD_ID"]];

/** Settings that need another one of that value. */
const NEEDS = { RUNTIME_FANOUT_DRIVER: { RUNTIME_FANOUT_URL: "postgres://127.0.0.1/khala" } };

/** A valid value of the setting, values beyond its bounds, and further invalid values. */
function samples({ name, takes, fallback }) {
  const long = "x".repeat(512);
  if (name === "DB_URL") return { good: "postgres://127.0.0.1/khala", bad: ["mysql://h"], junk: ["postgres"], shown: "********" };
  if (takes === "host:port") return { good: "localhost:80", bad: ["localhost"], junk: [":80", "localhost:65536", "localhost:-1", "[]:80"] };
  if (takes === "secret") return { good: "s3cret", bad: ["two words"], junk: ["x".repeat(257), "\u00e9"], shown: "********" };
  if (takes === "text or nothing") return { good: "somewhere", bad: [long], junk: ["a\nb"] };
  if (takes === "origins") return { good: "https://app.example, http://localhost:3000", bad: ["app.example"], junk: [long, "https://a.example/path"] };
  if (takes === "text") return { good: "/somewhere else", bad: [""], junk: [long, "a\u0007"] };
  const range = takes.match(/^(\d+) to (\d+)$/);
  if (!range) return { good: takes.split(", ").find((choice) => choice !== fallback), bad: ["loud"], junk: ["", `${fallback} `, takes] };
  const [least, most] = range.slice(1).map(Number);
  const bad = least > 0 ? [String(least - 1), String(most + 1)] : [String(most + 1)];
  return { good: String(most), least: String(least), bad, junk: ["-1", "", "1.5", "0x10", " 1", "many", "18446744073709551617"] };
}

test("the documented settings are exactly those of the binary, with their defaults", () => {
  const rows = documented();
  assert.ok(rows.length > 20);
  const effective = config();
  assert.deepEqual(Object.keys(effective), rows.map(({ name }) => name));
  for (const { name, fallback } of rows) {
    assert.deepEqual(effective[name], { value: fallback === "–" ? "" : fallback, source: "default" }, name);
  }
});

test("the environment overrides a default, and a flag overrides the environment", () => {
  for (const row of documented()) {
    const { good, shown = good, least } = samples(row);
    const beside = (value) => ({ ...NEEDS[row.name],
      ...Object.fromEntries((TOGETHER.find((names) => names.includes(row.name)) ?? []).map((name) => [name, value])) });
    if (least) assert.equal(config({ ...beside(least), [row.name]: least })[row.name].value, least, row.name);
    assert.deepEqual(config({ ...beside(good), [row.name]: good })[row.name], { value: shown, source: "environment" }, row.name);
    if (row.flag === "–") continue;
    assert.deepEqual(config({ [row.name]: row.fallback }, [row.flag, good])[row.name],
      { value: good, source: "flag" }, row.flag);
    assert.deepEqual(config({}, [`${row.flag}=${good}`])[row.name], { value: good, source: "flag" });
  }
});

test("config and serve name the setting whose value they refuse", async () => {
  const kinds = new Set();
  const calls = [];
  for (const row of documented()) {
    const { bad, junk } = samples(row);
    const kind = row.takes.replace(/\d+/g, "N");
    const more = kinds.has(kind) ? [] : junk;
    kinds.add(kind);
    for (const value of [...bad, ...more]) calls.push({ name: row.name, args: ["serve"], settings: { [row.name]: value } });
    calls.push({ name: row.name, args: ["config", "--check"], settings: { [row.name]: bad[0] } });
  }
  for (const [i, { code, out, problem }] of (await runAll(calls)).entries()) {
    const what = JSON.stringify(calls[i]);
    assert.deepEqual([code, out], [2, ""], what);
    assert.match(problem, new RegExp(`^khala: ${calls[i].name}\\b`), what);
  }
  for (const bad of ["", ":80", "host:", "host:65536", "host:-1", "host:http", "[]:80"]) {
    misused(["config", "--bind", bad], /^khala: RUNTIME_BIND_ADDR=/);
  }
});

test("khala config prints one setting a line, and --check prints nothing", () => {
  const { code, out } = run(["config"], { settings: { KHALA_LOG: "json" } });
  assert.equal(code, 0);
  const lines = out.trim().split("\n");
  assert.equal(lines.length, documented().length);
  for (const line of lines) assert.match(line, /^[A-Z_]+=\S* {2}# (default|environment|flag)$/);
  assert.ok(lines.includes("KHALA_LOG=json  # environment"));
  assert.deepEqual(run(["config", "--check"]), { code: 0, out: "", problem: "" });
});

test("an IPv6 address keeps its brackets", () => {
  assert.equal(config({}, ["--bind", "[::1]:80"]).RUNTIME_BIND_ADDR.value, "[::1]:80");
});

test("docs/configuration.md equals the page that the binary writes", () => {
  const page = readFileSync(new URL("../../../docs/configuration.md", import.meta.url), "utf8");
  assert.equal(run(["config", "--markdown"], { settings: { KHALA_LOG: "json" } }).out, page);
});
