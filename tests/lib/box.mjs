// A real systemd as the first process of a box: its own processes, mounts and control groups over a
// copy-on-write view of this machine's files, on this machine's network. Nothing it does stays.
// Needs root, unshare, overlayfs and cgroup v2; where one is missing open() answers why.
import { spawn, spawnSync } from "node:child_process";
import { mkdirSync, readFileSync, readdirSync, rmdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { folder, within } from "./khala.mjs";

const MANAGER = "/usr/lib/systemd/systemd";

// Units are those of the folder only: without the machine's own, nothing else is started.
const PREPARE = `
set -e
exec 2> "$1/log"
mount --make-rprivate /
mount -t tmpfs -o mode=755 tmpfs "$1/box"
cd "$1/box"
mkdir upper work root
mount -t overlay overlay -o lowerdir=/,upperdir=upper,workdir=work root
cd root
mkdir -p old etc/khala
mount -t proc proc proc
mount -t sysfs sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
for folder in run tmp dev; do mount -t tmpfs -o mode=755 tmpfs $folder; done
chmod 1777 tmp
mkdir -p dev/pts dev/shm run/units
ln -s pts/ptmx dev/ptmx
for device in null zero full random urandom tty; do
  touch dev/$device
  mount --bind /dev/$device dev/$device
done
cp -r "$1/units/." run/units/
for unit in .service .socket -dev-log.socket; do cp lib/systemd/system/systemd-journald$unit run/units/; done
cp "$2" usr/local/bin/khala
pivot_root . old
umount -l /old
exec 2>&1 env -i container=khala PATH=/usr/sbin:/usr/bin:/sbin:/bin SYSTEMD_UNIT_PATH=/run/units SYSTEMD_GENERATOR_PATH= \\
  SYSTEMD_LOG_TARGET=journal ${MANAGER} --system --unit=box.target --show-status=no
`;

/** Where this process' control groups (v2) are; null: nowhere. */
function controlGroup() {
  const own = readFileSync("/proc/self/cgroup", "utf8").match(/^0::(.*)$/m);
  const mount = readFileSync("/proc/self/mounts", "utf8").match(/^\S+ (\S+) cgroup2 /m);
  return own && mount ? join(mount[1], own[1]) : null;
}

function removeGroups(path) {
  for (const entry of readdirSync(path, { withFileTypes: true })) if (entry.isDirectory()) removeGroups(join(path, entry.name));
  rmdirSync(path);
}

export class Box {
  /** A box that runs, or text: why there is none. Units by name; settings as in khala.env. */
  static async open(t, { binary, units, settings = {} }) {
    if (process.getuid() !== 0) return "only root can make one";
    for (const tool of [[MANAGER, "--version"], ["unshare", "--version"], ["nsenter", "--version"], ["systemctl", "--version"]]) {
      if (spawnSync(tool[0], tool.slice(1)).error) return `${tool[0]} is not installed`;
    }
    const parent = controlGroup();
    if (!parent) return "there is no cgroup v2";
    const box = new Box(t, parent);
    try {
      mkdirSync(box.group);
    } catch (error) {
      return `no control group: ${error.message}`;
    }
    box.write(units);
    box.begin(binary);
    return await box.isRunning() ? box.set(settings).then(() => box) : `it does not start: ${readFileSync(join(box.path, "log"), "utf8").trim().split("\n").at(-1)}`;
  }

  constructor(t, parent) {
    this.path = folder(t);
    this.group = join(parent, `khala-box-${process.pid}`);
    t.after(() => this.close());
  }

  write(units) {
    for (const name of ["box", "units"]) mkdirSync(join(this.path, name));
    const all = { "sysinit.target": "", "basic.target": "", "shutdown.target": "", "box.target": "Requires=sysinit.target basic.target systemd-journald.service\n" };
    for (const [name, lines] of Object.entries(all)) {
      writeFileSync(join(this.path, "units", name), `[Unit]\nDefaultDependencies=no\n${lines}`);
    }
    for (const [name, text] of Object.entries(units)) {
      if (name.includes("/")) mkdirSync(join(this.path, "units", name.split("/")[0]));
      writeFileSync(join(this.path, "units", name), text);
    }
  }

  begin(binary) {
    this.child = spawn("sh", ["-c", 'echo $$ > "$0/cgroup.procs" && exec unshare --pid --fork --kill-child --mount --uts --ipc --cgroup sh -c "$1" box "$2" "$3"',
      this.group, PREPARE, this.path, binary], { stdio: "ignore" });
    this.ended = new Promise((resolve) => this.child.once("close", () => {
      this.over = true;
      resolve();
    }));
  }

  /** What its processes and its manager had to say. */
  get journal() {
    this.run("journalctl", "--sync");
    return this.run("journalctl", "--no-pager").out;
  }

  /** The manager's pid, seen from here; null: not yet, or no more. */
  get manager() {
    try {
      const pid = Number(readFileSync(`/proc/${this.child.pid}/task/${this.child.pid}/children`, "utf8"));
      return readFileSync(`/proc/${pid}/cmdline`, "utf8").startsWith(MANAGER) ? pid : null;
    } catch {
      return null;
    }
  }

  isRunning() {
    const asking = async () => {
      for (;;) {
        if (this.over) return false;
        if (this.manager && this.systemctl("is-system-running").out.trim() === "running") return true;
        await new Promise((resolve) => setTimeout(resolve, 20));
      }
    };
    return within(asking(), "the manager's start").catch(() => false);
  }

  run(...command) {
    const done = spawnSync("nsenter", ["-t", String(this.manager), "-m", "-p", "-C", ...command], { encoding: "utf8" });
    return { code: done.status, out: done.stdout, problem: done.stderr };
  }

  systemctl(...command) {
    return this.run("systemctl", ...command);
  }

  /** What is in /etc/khala/khala.env from now on. */
  async set(settings) {
    writeFileSync(this.inside("/etc/khala/khala.env"), Object.entries(settings).map(([name, value]) => `${name}=${value}\n`).join(""));
  }

  /** A file of the box, by its name there. */
  inside(path) {
    return `/proc/${this.manager}/root${path}`;
  }

  /** Properties of a unit, as systemctl shows them. */
  show(unit, ...names) {
    const { out } = this.systemctl("show", unit, ...names.map((name) => `--property=${name}`));
    return Object.fromEntries(out.trim().split("\n").map((line) => [line.slice(0, line.indexOf("=")), line.slice(line.indexOf("=") + 1)]));
  }

  /** Waits until the unit's properties are so. */
  async until(unit, wanted) {
    const names = Object.keys(wanted);
    let seen;
    const asking = async () => {
      for (;;) {
        seen = this.show(unit, ...names);
        if (names.every((name) => seen[name] === wanted[name])) return;
        await new Promise((resolve) => setTimeout(resolve, 20));
      }
    };
    await within(asking(), `${unit} ${JSON.stringify(wanted)}`).catch((error) => {
      throw Object.assign(error, { message: `${error.message}: it is ${JSON.stringify(seen)}` });
    });
  }

  /** Everything in it dies with the manager. */
  async close() {
    if (this.child) {
      this.child.kill("SIGKILL");
      await this.ended;
      this.child = null;
    }
    const gone = async () => {
      for (;;) {
        try {
          return removeGroups(this.group);
        } catch (error) {
          if (error.code === "ENOENT") return undefined;
          await new Promise((resolve) => setTimeout(resolve, 20));
        }
      }
    };
    await within(gone(), "the end of the box");
  }
}
