// Several nodes over one PostgreSQL of a test. Each node reaches the database through a proxy of its
// own, which can be cut. A node that was killed is started again at the same port, as a service manager
// does. All processes end with the test. KHALA_CHAOS_LOGS=1 prints the logs of all nodes.
import assert from "node:assert/strict";
import { nats, redis } from "./fanout_servers.mjs";
import { binary, environment, folder, run, start } from "./khala.mjs";
import { Operator, UNHURRIED } from "./operator.mjs";
import { fixedPort } from "./ports.mjs";
import { postgres } from "./postgres_server.mjs";
import { proxyThread } from "./proxy_thread.mjs";
import { until } from "./wait.mjs";

const SANITIZER_REPORT = /(Address|Leak|Memory|Thread|UndefinedBehavior)Sanitizer|runtime error:/;
const LISTEN_MS_MAX = 60_000;
const UNREACHABLE = 3; // the exit code of a node that finds no database
/** Settings of a database for several nodes. */
export const DATABASE_SETTINGS = { max_connections: 300, shared_buffers: "32MB" };
export const DRIVERS = ["postgres_notify", "nats", "redis", "memory"];

// The session that has the writer role.
const WRITER = `SELECT a.pid, a.application_name FROM runtime.writer w JOIN pg_stat_activity a ON a.pid = w.backend_pid
  AND a.backend_start = w.backend_start`;

/** One node: its process, its proxy and the operator that speaks to it. */
class Node {
  isStopped = false;
  directions = []; // the cut directions of its network
  log = ""; // the log of the processes that have ended

  constructor(cluster, index) {
    this.cluster = cluster;
    this.index = index;
    this.data = folder(cluster.t);
  }

  /** The name of its sessions in the database. */
  get name() {
    return `node${this.index}`;
  }

  get url() {
    return `http://${this.server.host}:${this.server.port}`;
  }

  /** The state of its process and of its network, for a report. */
  get description() {
    return { name: this.name, url: this.server && this.url, pid: this.process?.child.pid, over: this.process?.over,
      isStopped: this.isStopped, cut: this.directions };
  }

  /** Stops bytes between the node and the database, "toServer", "toClient" or both. */
  cut(...directions) {
    this.directions = directions;
    for (const proxy of this.proxies) proxy.cut(...directions);
  }

  heal() {
    this.directions = [];
    for (const proxy of this.proxies) proxy.repair();
  }

  /** Starts the process and waits until it listens. While the database is away it tries again. */
  async start() {
    const { cluster } = this;
    this.server ??= { host: "127.0.0.1", port: await fixedPort(), settings: {}, peers: { push() {} } };
    for (let isListening = false; !isListening && !cluster.isOver;) {
      const env = environment({ ...UNHURRIED, ...cluster.settings, ...cluster.driverSettings(this), KHALA_LOG_LEVEL: "info",
        KHALA_DATA_DIR: this.data, DB_URL: cluster.urlOf(this) });
      this.log += this.process?.log ?? "";
      this.process = start(cluster.t, [binary, "serve", "--bind", `127.0.0.1:${this.server.port}`], { env, cwd: this.data });
      await this.process.until(() => /listens on/.test(this.process.out) || this.process.over, "a node that listens", LISTEN_MS_MAX).catch((error) => {
        if (!this.process.over) throw error;
      });
      isListening = !this.process.over;
      if (!isListening && !this.isKilled) assert.equal(this.process.over.code, UNREACHABLE, this.process.log);
    }
    this.operator ??= new Operator(this.server, this.data);
    const { process } = this;
    this.isKilled = false;
    process.ended.then(() => { if (process === this.process && !this.isKilled) cluster.fail(new Error(`node ${this.index} ended: ${process.log}`)); });
  }

  async #end(signal) {
    this.isKilled = true;
    const ended = await this.process.end(signal);
    assert.doesNotMatch(this.process.log, SANITIZER_REPORT);
    return ended;
  }

  /** Kills the process, as the kernel or a power cut would. */
  async kill() {
    await this.#end("SIGKILL");
  }

  /** Ends the process as an operator does; it must succeed. */
  async end() {
    const { code, signal } = await this.#end("SIGTERM");
    assert.deepEqual({ code, signal }, { code: 0, signal: null }, this.process.log);
  }

  stop() {
    this.process.kill("SIGSTOP");
    this.isStopped = true;
  }

  continue() {
    this.process.kill("SIGCONT");
    this.isStopped = false;
  }
}

export class Cluster {
  nodes = [];
  isOver = false;
  problem = null;
  #admin = null;

  /** Starts that many nodes over a database, which may be on several servers: the first is the primary. */
  static async open(t, { count = 3, driver = "postgres_notify", settings = {}, servers, onProblem = () => {} } = {}) {
    const cluster = Object.assign(new Cluster(), { t, driver, settings, onProblem });
    t.after(() => cluster.close());
    cluster.servers = servers ?? [await postgres(t, DATABASE_SETTINGS)];
    cluster.database = cluster.servers[0];
    if (driver === "nats" || driver === "redis") cluster.wakeups = await { nats, redis }[driver](t);
    for (let index = 0; index < count; index++) {
      const node = new Node(cluster, index);
      node.proxies = await Promise.all(cluster.servers.map(({ url }) => proxyThread(t, url)));
      cluster.nodes.push(node);
    }
    for (const node of cluster.nodes) await node.start();
    return cluster;
  }

  fail(error) {
    if (this.isOver) return;
    this.problem ??= error;
    this.onProblem(error);
  }

  /** The URL by which a node reaches the database. With several servers it is on the one that can be written to. */
  urlOf({ name, proxies }) {
    const hosts = proxies.map(({ port }) => `127.0.0.1:${port}`).join(",");
    return `postgres://khala@${hosts}/postgres?application_name=${name}${proxies.length > 1 ? "&target_session_attrs=read-write" : ""}`;
  }

  driverSettings(node) {
    if (this.wakeups) return { RUNTIME_FANOUT_DRIVER: this.driver, RUNTIME_FANOUT_URL: this.wakeups.url };
    return { RUNTIME_FANOUT_DRIVER: this.driver, ...(this.driver === "postgres_notify" ? { RUNTIME_FANOUT_URL: this.urlOf(node) } : {}) };
  }

  /** Another server has the database from now on. The port of a server that is gone refuses connections. */
  replace(server, other) {
    this.database = other;
    if (other.port === server.port) return;
    for (const { proxies } of this.nodes) for (const proxy of proxies) if (proxy.target === server.port) proxy.close();
  }

  /** A session of psql without a proxy, which its user closes. */
  session() {
    return this.database.session();
  }

  /** Runs a statement that may be repeated. A session that a restart ended is opened again. */
  async sql(statement) {
    const isNew = !this.#admin;
    this.#admin ??= this.session();
    try {
      return await this.#admin.run(statement);
    } catch (error) {
      this.#admin?.close();
      this.#admin = null;
      if (isNew) throw error;
      return this.sql(statement);
    }
  }

  /** The database session of the writer role, and the node that has it; null while no node holds the role. */
  async writer() {
    const [pid, name] = (await this.sql(WRITER)).split("|");
    const node = this.nodes.find((one) => one.name === name);
    return node ? { pid: Number(pid), node } : null;
  }

  /** Waits until a node holds the writer role, and answers it. */
  knownWriter(isWanted = () => true) {
    return until(async () => {
      const found = await this.writer().catch(() => null);
      return found && isWanted(found) ? found : null;
    }, "a writer");
  }

  /** Runs a verb on the database; it must succeed. */
  check(...verb) {
    const { code, out, problem } = run(verb, { settings: { DB_URL: this.database.url, KHALA_DATA_DIR: this.nodes[0].data } });
    assert.equal(code, 0, `khala ${verb.join(" ")}: ${out}${problem}`);
    return out;
  }

  /** Ends all nodes as an operator does. */
  async end() {
    this.isOver = true;
    for (const node of this.nodes) node.operator?.close();
    await Promise.all(this.nodes.map((node) => node.end()));
  }

  close() {
    this.isOver = true;
    this.#admin?.close();
    for (const node of this.nodes) {
      if (process.env.KHALA_CHAOS_LOGS) console.error(`node ${node.index} at ${node.url}\n${node.log}${node.process?.log}`);
      node.operator?.close();
      if (node.process && !node.process.over) node.process.kill("SIGKILL");
    }
  }
}
