// Throw-away PostgreSQL servers of a test, on free loopback ports: one that the test ends and restarts, a
// standby of it that can be promoted, and a server restored from its backup to an earlier state.
// PostgreSQL refuses to run as root, so root runs it as the user postgres of the package.
import { execFileSync } from "node:child_process";
import { chownSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { start } from "./khala.mjs";
import { fixedPort } from "./ports.mjs";
import { PsqlSession } from "./psql_session.mjs";
import { until, within } from "./wait.mjs";

const PROGRAMS = execFileSync("pg_config", ["--bindir"], { encoding: "utf8" }).trim();
const isRoot = process.getuid() === 0;
const AS_USER = isRoot ? ["setpriv", "--reuid=postgres", "--regid=postgres", "--init-groups", "--"] : [];
const STOP_MS_MAX = 90_000;
const SIGNALS = { fast: "SIGINT", immediate: "SIGQUIT" };

const idOf = (...args) => Number(execFileSync("id", [...args, "postgres"], { encoding: "utf8" }));

function makeFolder(path) {
  mkdirSync(path);
  if (isRoot) chownSync(path, idOf("-u"), idOf("-g"));
  return path;
}

const run = ([program, ...args], options) => {
  const [first, ...rest] = [...AS_USER, join(PROGRAMS, program), ...args];
  return execFileSync(first, rest, { encoding: "utf8", stdio: ["pipe", "pipe", "pipe"], cwd: "/", ...options });
};

/** One server: a data folder that exists, and its settings. */
class Server {
  copies = [];
  beforeStop = () => {}; // what a test undoes first, such as a stopped process

  constructor(t, path, settings) {
    this.t = t;
    this.path = path;
    this.settings = settings;
    this.data = join(path, "data");
  }

  /** The URL of its database. */
  get url() {
    return `postgres://khala@127.0.0.1:${this.port}/postgres`;
  }

  /** Runs a statement and answers its output. */
  psql(statement) {
    return run(["psql", "-X", "-A", "-t", "-q", "-v", "ON_ERROR_STOP=1", "-d", this.url], { input: statement }).trim();
  }

  /** A session of psql that stays open. */
  session() {
    return new PsqlSession(this.t, this.url);
  }

  /** Starts the server, the first time or after its end. */
  async start(ready = /database system is ready to accept (read-only )?connections/) {
    this.port ??= await fixedPort();
    const all = { listen_addresses: "127.0.0.1", port: this.port, unix_socket_directories: "", fsync: "off", ...this.settings };
    this.process = start(this.t, [...AS_USER, join(PROGRAMS, "postgres"), "-D", this.data,
      ...Object.entries(all).flatMap(([name, value]) => ["-c", `${name}=${value}`])], { cwd: this.path });
    await this.process.saw("log", ready);
  }

  /** Ends the server: "fast" ends its sessions, "immediate" is a crash. */
  async stop(mode = "fast") {
    if (!this.process || this.process.over) return;
    this.beforeStop();
    this.process.kill(SIGNALS[mode]);
    await within(this.process.ended, "the end of PostgreSQL", STOP_MS_MAX);
  }

  /** A copy of its data in a folder beside it, with other settings. */
  copy(name, settings) {
    const path = makeFolder(join(this.path, "..", name));
    run(["pg_basebackup", "-D", join(path, "data"), "-d", this.url, "--checkpoint=fast", "--no-sync"]);
    const copy = new Server(this.t, path, { ...this.settings, ...settings });
    this.copies.push(copy);
    return copy;
  }

  /** Starts a standby that this server waits for in every commit. */
  async standby() {
    const conninfo = `host=127.0.0.1 port=${this.port} user=khala application_name=standby`;
    const standby = this.copy("standby", { primary_conninfo: conninfo, wal_receiver_status_interval: "1" });
    writeFileSync(join(standby.data, "standby.signal"), "");
    await standby.start();
    this.psql("ALTER SYSTEM SET synchronous_standby_names = 'standby'");
    this.psql("SELECT pg_reload_conf()");
    await until(() => this.psql("SELECT sync_state FROM pg_stat_replication") === "sync", "the synchronous standby");
    return standby;
  }

  /** Turns a standby into the primary server. */
  promote() {
    this.psql("ALTER SYSTEM RESET synchronous_standby_names");
    this.psql("SELECT pg_reload_conf()");
    if (this.psql("SELECT pg_promote(true, 60)") !== "t") throw new Error("the standby was not promoted");
  }

  /** Replays the archived log on a copy up to a restore point, and starts it there. */
  async restore(copy, archive, point) {
    Object.assign(copy.settings, { restore_command: `cp ${archive}/%f %p`, recovery_target_name: point, recovery_target_action: "promote" });
    writeFileSync(join(copy.data, "recovery.signal"), "");
    copy.port = this.port;
    await copy.start(/database system is ready to accept connections/);
  }
}

/** Makes a database cluster and starts it. */
export async function postgres(t, settings = {}) {
  const top = mkdtempSync(join(tmpdir(), "khala-pg-"));
  if (isRoot) chownSync(top, idOf("-u"), idOf("-g"));
  const server = new Server(t, makeFolder(join(top, "first")), settings);
  t.after(async () => {
    for (const one of [server, ...server.copies]) await one.stop("immediate");
    rmSync(top, { recursive: true, force: true });
  });
  run(["initdb", "-D", server.data, "--no-sync", "-A", "trust", "-U", "khala", "-E", "UTF8", "--locale=C"]);
  await server.start();
  return server;
}
