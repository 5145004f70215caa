// A real systemd as the first process of a box. The box has its own processes, mounts and control
// groups, a copy-on-write view of this machine's files, and this machine's network; nothing in it
// stays. It needs root, unshare, overlayfs and cgroup v2; open() answers why there is no box.
import { spawn, spawnSync } from "node:child_process";
import { mkdirSync, readFileSync, readdirSync, rmdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { folder } from "./khala.mjs";
import { until } from "./wait.mjs";

const MANAGER = "/usr/lib/systemd/systemd";

// Only units of the folder are known, so that systemd starts no service of this machine.
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

/** The folder of this process' control groups (v2), or null if there is none. */
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
  /** Starts a box, or answers a text that says why there is none. Settings go to khala.env. */
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

  /** The journal of the manager and of its processes. */
  get journal() {
    this.run("journalctl", "--sync");
    return this.run("journalctl", "--no-pager").out;
  }

  /** The manager's pid outside the box, or null while there is no manager. */
  get manager() {
    try {
      const pid = Number(readFileSync(`/proc/${this.child.pid}/task/${this.child.pid}/children`, "utf8"));
      return readFileSync(`/proc/${pid}/cmdline`, "utf8").startsWith(MANAGER) ? pid : null;
    } catch {
      return null;
    }
  }

  /** Waits for the manager's start, and answers whether it started. */
  isRunning() {
    const started = () => this.over || (this.manager && this.systemctl("is-system-running").out.trim() === "running");
    return until(started, "the manager's start").then(() => !this.over, () => false);
  }

  /** Runs a command inside the box. */
  run(...command) {
    const done = spawnSync("nsenter", ["-t", String(this.manager), "-m", "-p", "-C", ...command], { encoding: "utf8" });
    return { code: done.status, out: done.stdout, problem: done.stderr };
  }

  systemctl(...command) {
    return this.run("systemctl", ...command);
  }

  /** Writes the settings to /etc/khala/khala.env. */
  async set(settings) {
    writeFileSync(this.inside("/etc/khala/khala.env"), Object.entries(settings).map(([name, value]) => `${name}=${value}\n`).join(""));
  }

  /** The path outside the box of a file inside it. */
  inside(path) {
    return `/proc/${this.manager}/root${path}`;
  }

  /** The properties of a unit, as systemctl shows them. */
  show(unit, ...names) {
    const { out } = this.systemctl("show", unit, ...names.map((name) => `--property=${name}`));
    return Object.fromEntries(out.trim().split("\n").map((line) => [line.slice(0, line.indexOf("=")), line.slice(line.indexOf("=") + 1)]));
  }

  /** Waits until the unit has these properties. */
  async until(unit, wanted) {
    const names = Object.keys(wanted);
    let seen;
    const isSo = () => {
      seen = this.show(unit, ...names);
      return names.every((name) => seen[name] === wanted[name]);
    };
    await until(isSo, `${unit} ${JSON.stringify(wanted)}`).catch((error) => {
      throw Object.assign(error, { message: `${error.message}: it is ${JSON.stringify(seen)}` });
    });
  }

  /** Kills the manager, and everything in the box with it. */
  async close() {
    if (this.child) {
      this.child.kill("SIGKILL");
      await this.ended;
      this.child = null;
    }
    // A control group can be removed once the kernel has ended its last process.
    await until(() => {
      try {
        removeGroups(this.group);
        return true;
      } catch (error) {
        return error.code === "ENOENT";
      }
    }, "the end of the box");
  }
}
