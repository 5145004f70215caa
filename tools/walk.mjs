#!/usr/bin/env node
// tools/walk.mjs [--main] [--list | --calls] [--tree FOLDER]: the files of src/ that a request walks through, from a trace
// of the real binary.
//
// Three walks: one append of an event of a run until its answer (with no subscriber), the same event until it is on a
// Phoenix socket, and a join with a stale cursor until the snapshot is there. Each is recorded several times, and only
// what every recording has counts, so that timers do not. Calls of tools and codecs (base/, wire/, inline functions of
// headers) are passed over: what they call back counts as called by their caller. Of the rest each walk has
//   files      that run at all
//   folders    of src/
//   crossings  pairs of files of which one calls the other, and starts of a thread's turn; repetitions count once
//   returns    crossings after which the calling function calls on, so that a reader must come back
// --main passes over the leaves too: the files that call no other file. They answer a question of their caller, and
// their names say which. A reader has to pass through what remains.
// --list prints the files in the order of their first call, --calls prints the functions, each with its file.
// --tree walks through another checkout with its own tests/lib, for example an older one, to compare it by the same count.
// It needs gcc, addr2line and the packages of scripts/setup. It builds the checkout with a recorder in its build/trace.
import { execFileSync, spawnSync } from "node:child_process";
import { closeSync, mkdirSync, mkdtempSync, openSync, readFileSync, readSync, rmSync, writeSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, relative, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";

const HERE = fileURLToPath(new URL("..", import.meta.url));
const flag = { type: "boolean" };
const { values: options } = parseArgs({ options: { main: flag, list: flag, calls: flag, tree: { type: "string", default: HERE } } });
const ROOT = resolve(options.tree);
const BUILD = join(ROOT, "build/trace");
const RECORDINGS = 5;
const TOOLS = /^src\/(base|wire)\/|\.h$/; // a reader need not open them to follow the path
const IS_RETURN = 1n << 63n; // as in tests/support/trace_calls.c
const FOLDERS = /^src\/(.*)\//;

/** Builds khala with a call of the recorder before and after each function. */
function build() {
  const run = (command, ...args) => execFileSync(command, args, { stdio: ["ignore", "ignore", "inherit"] });
  const recorder = join(BUILD, "trace_calls.o");
  mkdirSync(BUILD, { recursive: true });
  run("gcc", "-D_GNU_SOURCE", "-O2", "-c", join(HERE, "tests/support/trace_calls.c"), "-o", recorder);
  run("cmake", "-S", ROOT, "-B", BUILD, "-G", "Ninja", "-DCMAKE_C_COMPILER=gcc", "-DCMAKE_BUILD_TYPE=Debug",
    "-DCMAKE_C_FLAGS=-finstrument-functions", `-DCMAKE_EXE_LINKER_FLAGS=${recorder}`);
  run("cmake", "--build", BUILD, "--target", "khala");
}

build();
process.env.KHALA_BINARY = join(BUILD, "khala");
process.env.KHALA_BUILD = BUILD;
const { operate, UNHURRIED } = await import(join(ROOT, "tests/lib/operator.mjs"));
const { Client } = await import(join(ROOT, "tests/lib/phoenix.mjs"));

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

  /** The calls and returns while act ran, as [function, thread, is return]. */
  async record(act) {
    this.#word(8, 0);
    this.#word(0, 1);
    await act();
    this.#word(0, 0);
    const bytes = Buffer.alloc(this.#word(8) * 16);
    readSync(this.fd, bytes, 0, bytes.length, 16);
    return Array.from({ length: bytes.length / 16 }, (_, i) => {
      const thread = bytes.readBigUInt64LE(i * 16 + 8);
      return [bytes.readBigUInt64LE(i * 16), thread & ~IS_RETURN, (thread & IS_RETURN) !== 0n];
    });
  }
}

/** The name and file of each function, by its address in the process. */
class Functions {
  #known = new Map();

  constructor(pid) {
    const first = readFileSync(`/proc/${pid}/maps`, "utf8").split("\n").find((line) => line.endsWith("/khala"));
    this.base = BigInt(`0x${first.split("-")[0]}`);
  }

  learn(addresses) {
    const unknown = [...new Set(addresses)].filter((one) => !this.#known.has(one));
    const input = unknown.map((one) => `0x${(one - this.base).toString(16)}\n`).join("");
    const { stdout } = spawnSync("addr2line", ["-f", "-e", process.env.KHALA_BINARY], { input, encoding: "utf8", maxBuffer: 1 << 26 });
    const lines = stdout.split("\n");
    unknown.forEach((one, i) => {
      const file = relative(ROOT, lines[2 * i + 1].replace(/:\d+.*$/, ""));
      this.#known.set(one, { name: lines[2 * i], file, isTool: !file.startsWith("src/") || TOOLS.test(file) });
    });
  }

  of(address) {
    return this.#known.get(address);
  }
}

/** One recording: its functions in the order of their first call, its crossings, and those of them that are returns. */
function walkOf(calls, functions, leaves) {
  const isPassedOver = (one) => one.isTool || leaves.has(one.file);
  const stacks = new Map();
  const walk = { called: new Map(), crossings: new Set(), returns: new Set() };
  for (const [address, thread, isReturn] of calls) {
    const stack = stacks.get(thread) ?? stacks.set(thread, []).get(thread);
    if (isReturn) {
      // A function that was entered before the recording began returns without a frame.
      const depth = stack.findLastIndex((frame) => frame.address === address);
      if (depth >= 0) stack.length = depth;
      continue;
    }
    const callee = functions.of(address);
    if (!isPassedOver(callee)) {
      const caller = stack.findLast((frame) => !isPassedOver(frame.function));
      const crossing = `${caller?.function.file ?? ""} ${callee.file}`;
      walk.called.set(`${callee.file} ${callee.name}`, callee);
      caller?.left.forEach((one) => walk.returns.add(one));
      caller?.left.clear();
      if (caller?.function.file !== callee.file) {
        walk.crossings.add(crossing);
        caller?.left.add(crossing);
      }
    }
    stack.push({ address, function: callee, left: new Set() });
  }
  return walk;
}

const common = (sets) => sets.reduce((some, one) => new Set([...some].filter((value) => one.has(value))));

/** What all recordings of a walk have. */
function walkOfAll(recordings, functions, leaves) {
  const walks = recordings.map((calls) => walkOf(calls, functions, leaves));
  const called = [...common(walks.map((walk) => new Set(walk.called.keys())))].map((key) => walks[0].called.get(key));
  const crossings = common(walks.map((walk) => walk.crossings));
  return { called, crossings, returns: common(walks.map((walk) => walk.returns)), files: new Set(called.map((one) => one.file)) };
}

function report(name, recordings, functions) {
  let walk = walkOfAll(recordings, functions, new Set());
  const callers = new Set([...walk.crossings].map((crossing) => crossing.split(" ")[0]));
  if (options.main) walk = walkOfAll(recordings, functions, new Set([...walk.files].filter((file) => !callers.has(file))));
  const { called, crossings, returns, files } = walk;
  const folders = new Set([...files].map((file) => file.match(FOLDERS)[1].split("/")[0]));
  console.log(`${name}: ${files.size} files, ${folders.size} folders, ${crossings.size} crossings, ${returns.size} returns`);
  if (options.list) console.log([...files].map((file) => `  ${file}`).join("\n"));
  if (options.calls) console.log(called.map((one) => `  ${one.file} ${one.name}`).join("\n"));
  return files;
}

const ends = [];
const t = { after: (end) => ends.unshift(end) };
const place = mkdtempSync(join(tmpdir(), "khala-walk-"));
try {
  const trace = new Trace(join(place, "trace"));
  const operator = await operate(t, { settings: { ...UNHURRIED, KHALA_IO_LOOPS: "1", KHALA_TRACE_FILE: trace.path, RUNTIME_KHALA_RUN_EVENTS_REPLAY_BUDGET_EVENTS: "5" } });
  const functions = new Functions(operator.server.child.pid);
  const topic = "run:walk:events";
  const append = () => operator.did("runs/walk/events", { event_type: "run.log", payload: { text: "one" } });
  await operator.did("runs", { run_id: "walk", owner_user_id: "ada" }, 201);
  for (let i = 0; i < 20; i++) await append();

  const gather = async (act, prepare = () => {}) => {
    const recordings = [];
    for (let i = 0; i < RECORDINGS; i++) {
      const prepared = await prepare();
      const calls = await trace.record(() => act(prepared));
      functions.learn(calls.map(([address]) => address));
      recordings.push(calls);
    }
    return recordings;
  };
  const appendFiles = report("append to its answer", await gather(append), functions);
  const client = await Client.join(operator);
  await client.subscribe({ topics: [topic], from: "head" });
  await client.until(() => client.run(topic).completes > 0, "the topic");
  const both = await gather(async () => {
    const before = client.run(topic).updates.length;
    await append();
    await client.until(() => client.run(topic).updates.length > before, "the event");
  });
  const live = report("append to its answer and to a Phoenix socket", both, functions);
  console.log(`commit to a Phoenix socket: ${[...live].filter((file) => !appendFiles.has(file)).length} files that the append alone does not walk`);
  const summaries = "runtime.run_summaries";
  report("stale join to its snapshot", await gather(async (joined) => {
    await joined.refused("sync:subscribe", { topics: [summaries], resume_after: { [summaries]: 1_000_000 } });
    await joined.subscribe({ topics: [summaries], bootstrap: true });
    await joined.until(() => joined.run(summaries).completes > 0, "the snapshot and what follows");
  }, () => Client.join(operator)), functions);
} finally {
  for (const end of ends) await end();
  rmSync(place, { recursive: true, force: true });
}
