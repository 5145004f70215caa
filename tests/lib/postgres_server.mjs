// A throw-away PostgreSQL of a test that ends and restarts it, on a free loopback port. PostgreSQL refuses
// to run as root, so root runs it as the user postgres of the package.
import { execFileSync } from "node:child_process";
import { mkdirSync, chownSync } from "node:fs";
import { join } from "node:path";
import { folder, start } from "./khala.mjs";
import { freePort } from "./ports.mjs";

const PROGRAMS = execFileSync("pg_config", ["--bindir"], { encoding: "utf8" }).trim();
const isRoot = process.getuid() === 0;
const AS_USER = isRoot ? ["setpriv", "--reuid=postgres", "--regid=postgres", "--init-groups", "--"] : [];

const idOf = (...args) => Number(execFileSync("id", [...args, "postgres"], { encoding: "utf8" }));

/** Makes a database cluster, starts it, and answers {url, process, psql, start}. */
export async function postgres(t, settings = {}) {
  const path = join(folder(t), "postgres");
  mkdirSync(path);
  if (isRoot) {
    chownSync(path, idOf("-u"), idOf("-g"));
    chownSync(join(path, ".."), idOf("-u"), idOf("-g"));
  }
  const data = join(path, "data");
  const run = ([program, ...args], options) => {
    const [first, ...rest] = [...AS_USER, join(PROGRAMS, program), ...args];
    return execFileSync(first, rest, { encoding: "utf8", stdio: ["pipe", "pipe", "pipe"], cwd: path, ...options });
  };
  run(["initdb", "-D", data, "--no-sync", "-A", "trust", "-U", "khala", "-E", "UTF8", "--locale=C"]);
  const port = await freePort();
  const all = { listen_addresses: "127.0.0.1", port, unix_socket_directories: "", fsync: "off", ...settings };
  const server = {
    url: `postgres://khala@127.0.0.1:${port}/postgres`,
    /** Runs a statement and answers its output. */
    psql: (statement) => run(["psql", "-X", "-A", "-t", "-q", "-v", "ON_ERROR_STOP=1", "-d", server.url], { input: statement }).trim(),
    /** Starts the server, the first time or after its end. */
    async start() {
      server.process = start(t, [...AS_USER, join(PROGRAMS, "postgres"), "-D", data,
        ...Object.entries(all).flatMap(([name, value]) => ["-c", `${name}=${value}`])], { cwd: path });
      await server.process.saw("log", /database system is ready to accept connections/);
    },
  };
  await server.start();
  return server;
}
