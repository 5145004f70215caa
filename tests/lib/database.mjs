// The store in PostgreSQL. With KHALA_TEST_STORE=postgres every server and verb of the tests works on a
// database of its own, which belongs to its data folder. KHALA_TEST_POSTGRES is the URL of the server.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { resolve } from "node:path";

const server = process.env.KHALA_TEST_POSTGRES;
const databases = new Map(); // URLs by data folder

/** Whether the tests run on PostgreSQL. */
export const onPostgres = process.env.KHALA_TEST_STORE === "postgres";

/** Runs statements on a database and answers what psql prints; columns are separated by "|". */
export function psql(url, statements) {
  const env = { ...process.env, PGOPTIONS: "-c search_path=runtime" };
  return execFileSync("psql", ["-XqAt", "-v", "ON_ERROR_STOP=1", "-d", url, "-c", statements],
    { encoding: "utf8", env, maxBuffer: 1 << 28, stdio: ["ignore", "pipe", "pipe"] }).trim();
}

// The tests' statements have the functions of the embedded store.
const FUNCTIONS_OF_SQLITE = `CREATE SCHEMA IF NOT EXISTS embedded;
  CREATE OR REPLACE FUNCTION embedded.zeroblob(size int) RETURNS bytea LANGUAGE sql
    AS $$ SELECT decode(repeat('00', size), 'hex') $$;
  CREATE OR REPLACE FUNCTION embedded.hex(bytes bytea) RETURNS text LANGUAGE sql
    AS $$ SELECT upper(encode(bytes, 'hex')) $$;
  CREATE OR REPLACE FUNCTION embedded.hex(id uuid) RETURNS text LANGUAGE sql
    AS $$ SELECT upper(encode(uuid_send(id), 'hex')) $$;`;
const prepared = new Set(); // databases that have these functions

/** Runs statements written for the embedded store. */
export function psqlOfSqlite(url, statements) {
  if (!prepared.has(url)) psql(url, FUNCTIONS_OF_SQLITE);
  prepared.add(url);
  const translated = statements.replace(/\bx'([0-9a-f]*)'/gi, "'\\x$1'::bytea").replace(/\bDROP TABLE \w+/g, "$& CASCADE");
  return psql(url, `SET search_path = embedded, runtime; ${translated}`);
}

/** The options of a case that is about the embedded store. */
export const sqliteOnly = onPostgres ? { skip: "about the embedded store" } : {};

/** A new database, which is dropped when this process ends. */
export function newDatabase(template = "template0") {
  assert.ok(server, "KHALA_TEST_POSTGRES names a server; tests/run starts one");
  const name = `test_${process.pid}_${databases.size}`;
  psql(`${server}/postgres`, `CREATE DATABASE ${name} TEMPLATE ${template} STRATEGY file_copy`);
  const url = `${server}/${name}`;
  databases.set(url, url);
  return url;
}

process.on("exit", () => {
  const names = [...new Set(databases.values())].map((url) => url.slice(url.lastIndexOf("/") + 1));
  // Each statement is a transaction of its own, on one connection.
  const drops = names.flatMap((name) => ["-c", `DROP DATABASE ${name} WITH (FORCE)`]);
  if (names.length > 0) execFileSync("psql", ["-Xq", "-d", `${server}/postgres`, ...drops], { stdio: "ignore" });
});

/** The database of a data folder. */
export function databaseOf(data) {
  const path = resolve(data);
  if (!databases.has(path)) databases.set(path, newDatabase());
  return databases.get(path);
}

/** Gives a data folder a copy of the database of another. */
export function copyDatabase(from, to) {
  const url = databaseOf(from);
  databases.set(resolve(to), newDatabase(url.slice(url.lastIndexOf("/") + 1)));
}

const STORE_VERBS = ["serve", "migrate", "verify", "doctor", "keys", "reproject", "retention", "backup", "restore"];

/** The settings of a verb, with the database of its data folder if the tests run on PostgreSQL. */
export function storeSettings(args, settings, cwd = ".") {
  // A file of settings names the store itself.
  if (!onPostgres || !STORE_VERBS.includes(args[0]) || "DB_URL" in settings || args.includes("--config")) return settings;
  const flag = args.indexOf("--data-dir");
  const data = flag >= 0 && args.length > flag + 1 ? args[flag + 1] : settings.KHALA_DATA_DIR ?? "khala-data";
  return { ...settings, DB_URL: databaseOf(resolve(cwd, data)) };
}
