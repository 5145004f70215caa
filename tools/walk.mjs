#!/usr/bin/env node
// tools/walk.mjs [--list]: the files of src/ that a request walks through, from a trace of the real binary.
//
// Three walks: one append of an event of a run until its answer (with no subscriber), the same event until it is on a
// Phoenix socket, and a join with a stale cursor until the snapshot is there. Each is recorded several times. A file counts if every
// recording has it, so that timers do not. Folders are those of src/. A crossing is a call into another file than the
// call before on the same thread; a return is a crossing into a file where the walk has been before. --list prints the
// files in the order of their first call.
// It needs the preset "trace" (built here), gcc and addr2line.
import { execFileSync, spawnSync } from "node:child_process";
import { closeSync, mkdtempSync, openSync, readFileSync, readSync, rmSync, writeSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, relative } from "node:path";
import { fileURLToPath } from "node:url";

const ROOT = fileURLToPath(new URL("..", import.meta.url));
const BUILD = join(ROOT, "build/trace");
const RECORDINGS = 5;
const TOOLS = /^src\/(base|wire)\/|\.h$/; // a reader need not open them to follow the path
const FOLDERS = /^src\/(.*)\//;

for (const args of [["--preset", "trace"], ["--build", BUILD, "--target", "khala"]]) execFileSync("cmake", args, { cwd: ROOT, stdio: ["ignore", "ignore", "inherit"] });
process.env.KHALA_BINARY = join(BUILD, "khala");
process.env.KHALA_BUILD = BUILD;
const { operate, UNHURRIED } = await import("../tests/lib/operator.mjs");
const { Client } = await import("../tests/lib/phoenix.mjs");

/** What tests/support/trace_calls.c writes. */
class Trace {
  constructor(path) {
    this.fd = openSync(path, "w+");
    this.path = path;
  }

  #word(at, value) {
    const bytes = Buffer.alloc(8);
    if (value === undefined) readSync(this.fd, bytes, 0, 8, at);
    else { bytes.writeBigUInt64LE(BigInt(value)); writeSync(this.fd, bytes, 0, 8, at); }
    return Number(bytes.readBigUInt64LE());
  }

  /** The calls while act ran, as [function, thread]. */
  async record(act) {
    this.#word(8, 0);
    this.#word(0, 1);
    await act();
    this.#word(0, 0);
    const bytes = Buffer.alloc(this.#word(8) * 16);
    readSync(this.fd, bytes, 0, bytes.length, 16);
    return Array.from({ length: bytes.length / 16 }, (_, i) => [bytes.readBigUInt64LE(i * 16), bytes.readBigUInt64LE(i * 16 + 8)]);
  }
}

/** The file of each function, by its address in the process. */
class Files {
  #known = new Map();

  constructor(pid) {
    const first = readFileSync(`/proc/${pid}/maps`, "utf8").split("\n").find((line) => line.endsWith("/khala"));
    this.base = BigInt(`0x${first.split("-")[0]}`);
  }

  learn(functions) {
    const unknown = [...new Set(functions)].filter((one) => !this.#known.has(one));
    const input = unknown.map((one) => `0x${(one - this.base).toString(16)}\n`).join("");
    const { stdout } = spawnSync("addr2line", ["-e", process.env.KHALA_BINARY], { input, encoding: "utf8", maxBuffer: 1 << 26 });
    stdout.split("\n").slice(0, -1).forEach((line, i) => this.#known.set(unknown[i], relative(ROOT, line.replace(/:\d+.*$/, ""))));
  }

  of(address) {
    return this.#known.get(address);
  }
}

/** The walk of one recording: the file of each call of src/, without calls inside one file. */
function walkOf(calls, files) {
  files.learn(calls.map(([address]) => address));
  const last = new Map();
  const walk = [];
  for (const [address, thread] of calls) {
    const file = files.of(address);
    if (!file.startsWith("src/") || last.get(thread) === file) continue;
    last.set(thread, file);
    walk.push(file);
  }
  return walk;
}

function report(name, walks) {
  const common = walks.map((walk) => new Set(walk)).reduce((some, one) => new Set([...some].filter((file) => one.has(file))));
  const numbers = walks.map((walk) => {
    const kept = walk.filter((file, i) => common.has(file));
    const path = kept.filter((file, i) => file !== kept[i - 1]);
    return { crossings: path.length - 1, returns: path.length - common.size };
  }).sort((a, b) => a.crossings - b.crossings)[Math.floor(walks.length / 2)];
  const folders = new Set([...common].map((file) => file.match(FOLDERS)[1].split("/")[0]));
  const domain = [...common].filter((file) => !TOOLS.test(file)).length;
  console.log(`${name}: ${common.size} files (${domain} without tools and codecs), ${folders.size} folders, ${numbers.crossings} crossings, ${numbers.returns} returns`);
  if (process.argv.includes("--list")) console.log([...common].map((file) => `  ${file}`).join("\n"));
  return common;
}

const ends = [];
const t = { after: (end) => ends.unshift(end) };
const place = mkdtempSync(join(tmpdir(), "khala-walk-"));
try {
  const trace = new Trace(join(place, "trace"));
  const operator = await operate(t, { settings: { ...UNHURRIED, KHALA_IO_LOOPS: "1", KHALA_TRACE_FILE: trace.path, RUNTIME_KHALA_RUN_EVENTS_REPLAY_BUDGET_EVENTS: "5" } });
  const files = new Files(operator.server.child.pid);
  const topic = "run:walk:events";
  const append = () => operator.did("runs/walk/events", { event_type: "run.log", payload: { text: "one" } });
  await operator.did("runs", { run_id: "walk", owner_user_id: "ada" }, 201);
  for (let i = 0; i < 20; i++) await append();

  const gather = async (act, prepare = () => {}) => {
    const walks = [];
    for (let i = 0; i < RECORDINGS; i++) {
      const prepared = await prepare();
      walks.push(walkOf(await trace.record(() => act(prepared)), files));
    }
    return walks;
  };
  const appendFiles = report("append to its answer", await gather(append));
  const client = await Client.join(operator);
  await client.subscribe({ topics: [topic], from: "head" });
  await client.until(() => client.run(topic).completes > 0, "the topic");
  const both = await gather(async () => {
    const before = client.run(topic).updates.length;
    await append();
    await client.until(() => client.run(topic).updates.length > before, "the event");
  });
  const live = report("append to its answer and to a Phoenix socket", both);
  console.log(`commit to a Phoenix socket: ${[...live].filter((file) => !appendFiles.has(file)).length} files that the append alone does not walk`);
  const summaries = "runtime.run_summaries";
  report("stale join to its snapshot", await gather(async (joined) => {
    await joined.refused("sync:subscribe", { topics: [summaries], resume_after: { [summaries]: 1_000_000 } });
    await joined.subscribe({ topics: [summaries], bootstrap: true });
    await joined.until(() => joined.run(summaries).completes > 0, "the snapshot and what follows");
  }, () => Client.join(operator)));
} finally {
  for (const end of ends) await end();
  rmSync(place, { recursive: true, force: true });
}
