// Cuts of the power. A recording notes every write, rename and sync of programs below its folder, and the promises that
// they made meanwhile, each at its place. Afterwards the program power_cut cuts the power at many moments of it.
import assert from "node:assert/strict";
import { execFile, execFileSync } from "node:child_process";
import { appendFileSync, cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { until } from "./wait.mjs";

const BUILD = process.env.KHALA_BUILD;
const RECORDER = join(BUILD, "libpower_recorder.so");
const PROGRAM = join(BUILD, "power_cut");
// Of tests/power_cut/trace.h.
const HEAD_BYTES = 32;
const [OPEN, CREATE, WRITE, SYNC, MARK] = [1, 2, 4, 9, 10];
// The program ends with all its memory, and each cut is a child with a copy of it.
const ENVIRONMENT = { ...process.env, ASAN_OPTIONS: "detect_leaks=0" };
const MEMORY = "/dev/shm"; // syncs of the stores that are judged cost nothing there

/** A folder in memory that is removed at the end of the test. */
function memoryFolder(t) {
  const path = mkdtempSync(join(existsSync(MEMORY) ? MEMORY : tmpdir(), "khala-power-"));
  t.after(() => rmSync(path, { recursive: true, force: true }));
  return path;
}

export class Recording {
  /** The recording of a folder, which prepare(folder) may fill before. */
  constructor(t, prepare = () => {}) {
    this.place = memoryFolder(t);
    this.disk = join(this.place, "disk");
    mkdirSync(this.disk);
    prepare(this.disk);
    cpSync(this.disk, join(this.place, "base"), { recursive: true });
    this.trace = join(this.place, "trace");
    writeFileSync(this.trace, "");
    /** The environment of a program that is recorded. */
    this.settings = {
      LD_PRELOAD: RECORDER, POWER_CUT_FOLDER: this.disk, POWER_CUT_TRACE: this.trace, ASAN_OPTIONS: "verify_asan_link_order=0",
    };
  }

  path(...names) {
    return join(this.disk, ...names);
  }

  /** Notes a promise: see tests/power_cut/promises.h. */
  mark(...words) {
    const text = Buffer.from(words.join(" "));
    const head = Buffer.alloc(HEAD_BYTES);
    head.writeUInt32LE(HEAD_BYTES + text.length, 0);
    head.writeUInt16LE(MARK, 4);
    head.writeUInt32LE(text.length, 12);
    appendFileSync(this.trace, Buffer.concat([head, text]));
  }

  /** The records so far: {kind, path, inode, offset}. */
  records() {
    const bytes = readFileSync(this.trace);
    const records = [];
    for (let at = 0; at < bytes.length; at += bytes.readUInt32LE(at)) {
      const path = bytes.toString("utf8", at + HEAD_BYTES, at + HEAD_BYTES + bytes.readUInt16LE(at + 6));
      records.push({ kind: bytes.readUInt16LE(at + 4), path, inode: bytes.readBigUInt64LE(at + 16), offset: Number(bytes.readBigInt64LE(at + 24)) });
    }
    return records;
  }

  /** Waits until the file is whole, and a sync followed its last write. */
  synced(path, isWhole) {
    return until(() => {
      const records = this.records();
      const opened = records.findLast(({ kind, path: found }) => (kind === OPEN || kind === CREATE) && found === path);
      const last = (wanted) => records.findLastIndex(({ kind, inode }) => kind === wanted && inode === opened?.inode);
      return isWhole() && last(SYNC) > last(WRITE);
    }, `a sync of ${path}`);
  }

  /** How often a write-ahead log was begun anew by a server that went on, which needs a checkpoint. */
  checkpoints() {
    const begun = new Map(); // by inode, which the next log may get again
    let count = 0;
    for (const { kind, path, inode, offset } of this.records()) {
      if (kind === CREATE) begun.set(inode, path.endsWith("-wal") ? 0 : NaN);
      else if (kind === WRITE && offset === 0) begun.set(inode, begun.get(inode) + 1);
      count += kind === WRITE && offset === 0 && begun.get(inode) > 1 ? 1 : 0;
    }
    return count;
  }

  /** Notes that a store is recorded in that folder. The file of its log is written when the recording is over. */
  store(name) {
    this.log = join(this.place, `${name}.log`);
    this.mark("store", name, this.log);
  }

  /** Writes the log of a store into a file for marks. */
  writeLog(folder, file = this.log) {
    writeFileSync(file, execFileSync(PROGRAM, ["log", folder], { env: ENVIRONMENT, maxBuffer: 1 << 28 }));
  }

  /** Cuts the power once for each seed; without: the syncs of these paths are left out. Answers how many cuts broke a
   * promise, and the reasons. */
  async cut({ first = 1, count, without }) {
    const work = mkdtempSync(join(this.place, "work-"));
    const args = ["cut", this.trace, join(this.place, "base"), work, "first", first, "count", count, ...(without ? ["without", without] : [])];
    const { code, stdout, stderr } = await promisify(execFile)(PROGRAM, args.map(String), { env: ENVIRONMENT, maxBuffer: 1 << 28 }).catch((error) => error);
    rmSync(work, { recursive: true, force: true });
    const sum = stdout.match(/: (\d+) broke a promise\n$/);
    assert.ok(sum, `power_cut ended with ${code}: ${stdout}${stderr}`);
    return { broken: Number(sum[1]), text: stdout };
  }

  /** Writes the files that one cut leaves into a new folder, and answers the folder. */
  leave(t, seed) {
    const left = memoryFolder(t);
    execFileSync(PROGRAM, ["leave", this.trace, join(this.place, "base"), String(seed), left], { env: ENVIRONMENT });
    return left;
  }
}
