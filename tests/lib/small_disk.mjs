// A small file system of its own for a data folder: a tmpfs in a mount namespace that a holder
// process keeps. Servers are started inside of it, one after the other or killed, on the same disk.
import { execFileSync, spawnSync } from "node:child_process";
import { readdirSync, rmSync, statfsSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { binary, environment, folder, serve, start } from "./khala.mjs";
import { Operator, UNHURRIED } from "./operator.mjs";

/** Whether this machine lets a test mount a file system. */
export const mayMount = spawnSync("unshare", ["-rm", "mount", "-t", "tmpfs", "none", "/mnt"]).status === 0;

export class SmallDisk {
  /** A disk of that size, such as "64m", until the end of the test. */
  static async make(t, size) {
    const disk = new SmallDisk();
    disk.place = folder(t);
    const mount = `mount -t tmpfs -o size=${size} none "$0" && echo mounted && exec tail -f /dev/null`;
    const holder = start(t, ["unshare", "-rm", "sh", "-c", mount, disk.place]);
    await holder.saw("out", /mounted\n/);
    disk.command = ["nsenter", `--target=${holder.child.pid}`, "--user", "--mount", "--preserve-credentials"];
    /** The disk as the test sees it. */
    disk.data = `/proc/${holder.child.pid}/root${disk.place}`;
    return disk;
  }

  /** Starts a server on the disk, and answers its operator. */
  async operate(t, settings = {}) {
    const server = await serve(t, { command: this.command, args: ["--data-dir", this.place], settings: { ...UNHURRIED, ...settings } });
    const operator = new Operator(server, this.data);
    t.after(() => operator.close());
    return operator;
  }

  /** Runs a verb on the disk. */
  run(verb, ...args) {
    const [program, ...rest] = [...this.command, binary, verb, "--data-dir", this.place, ...args];
    const { status, stdout, stderr } = spawnSync(program, rest, { encoding: "utf8", env: environment() });
    return { code: status, out: stdout, problem: stderr };
  }

  /** One query of the store. SQLite does not open it by the path that the test sees. */
  sql(query) {
    const [program, ...rest] = [...this.command, "sqlite3", "-readonly", join(this.place, "khala.db"), query];
    return execFileSync(program, rest, { encoding: "utf8" }).trim();
  }

  get freeBytes() {
    const { bavail, bsize } = statfsSync(this.data);
    return bavail * bsize;
  }

  /** Fills what is free, or so many bytes of it, with a file of that name. */
  fill(name, bytes = this.freeBytes) {
    try {
      writeFileSync(join(this.data, name), Buffer.alloc(bytes, 1));
    } catch (error) {
      if (error.code !== "ENOSPC") throw error;
    }
  }

  remove(name) {
    rmSync(join(this.data, name));
  }

  /** Removes all files with such a name. */
  removeAll(pattern) {
    for (const name of readdirSync(this.data)) if (pattern.test(name)) this.remove(name);
  }
}
