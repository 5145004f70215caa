// pgbouncer in front of a database. It refuses to run as root, so root runs it as another user.
import { chmodSync, existsSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { folder, start } from "./khala.mjs";
import { freePort } from "./ports.mjs";

const PROGRAM = ["/usr/sbin/pgbouncer", "/usr/bin/pgbouncer"].find((path) => existsSync(path)) ?? "pgbouncer";
const AS_USER = process.getuid() === 0 ? ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"] : [];

/** Starts pgbouncer in that mode, and answers the URL of the database through it. */
export async function pgbouncer(t, url, mode, poolSize = 20) {
  const { hostname, port, pathname, username } = new URL(url);
  const database = pathname.slice(1);
  const path = folder(t);
  const listen = await freePort();
  chmodSync(path, 0o755);
  writeFileSync(join(path, "pgbouncer.ini"), `[databases]
${database} = host=${hostname} port=${port} dbname=${database} user=${username}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = ${listen}
unix_socket_dir =
auth_type = any
pool_mode = ${mode}
default_pool_size = ${poolSize}
`);
  const pooler = start(t, [...AS_USER, PROGRAM, join(path, "pgbouncer.ini")], { cwd: path });
  await pooler.saw("log", /process up/);
  return `postgres://${username}@127.0.0.1:${listen}/${database}`;
}
