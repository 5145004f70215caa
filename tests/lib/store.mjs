// The store behind the server: what tests read from it and change in it directly.
import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { cpSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { folder, run } from "./khala.mjs";
import { copyDatabase, databaseOf, onPostgres, psqlOfSqlite } from "./database.mjs";
import { once, within } from "./wait.mjs";

const file = (data) => join(data, "khala.db");

/** The answer of a query, as the sqlite3 shell prints it. */
export function sql(data, query) {
  if (onPostgres) return psqlOfSqlite(databaseOf(data), query);
  return execFileSync("sqlite3", ["-readonly", `file:${file(data)}?mode=ro`, query], { encoding: "utf8", maxBuffer: 1 << 28 }).trim();
}

/** The rows of a query as objects. */
export function sqlRows(data, query) {
  if (onPostgres) return JSON.parse(psqlOfSqlite(databaseOf(data), `SELECT json_agg(q) FROM (${query}) q`) || "[]");
  const text = execFileSync("sqlite3", ["-readonly", "-json", file(data), query], { encoding: "utf8", maxBuffer: 1 << 28 });
  return text ? JSON.parse(text) : [];
}

/** Runs statements that change the store; a server may be running on it. */
export function alter(data, statements) {
  if (onPostgres) return void psqlOfSqlite(databaseOf(data), statements);
  execFileSync("sqlite3", ["-cmd", ".timeout 10000", file(data), statements]);
}

/** A uuid in a statement for alter, from its 32 hex digits. */
export const uuidLiteral = (hex) => (onPostgres ? `'${hex}'::uuid` : `x'${hex}'`);

const made = new Map(); // stores that were made once and are copied, by their content

process.on("exit", () => {
  for (const path of made.values()) rmSync(path, { recursive: true, force: true });
});

/** A data folder with so many run summaries, made without a server; ten users own them in turn. */
export function storeWithSummaries(t, count, owner = "'u' || (i % 10)") {
  const key = `${count} ${owner}`;
  if (!made.has(key)) made.set(key, makeSummaries(count, owner));
  const data = folder(t);
  cpSync(made.get(key), data, { recursive: true });
  if (onPostgres) copyDatabase(made.get(key), data);
  return data;
}

function makeSummaries(count, owner) {
  const data = mkdtempSync(join(tmpdir(), "khala-store-"));
  assert.equal(run(["migrate", "--data-dir", data]).code, 0);
  const numbers = `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ${count})`;
  alter(data, `BEGIN;
    ${numbers} INSERT INTO entities (ref, kind, id, owner_user_id, status, created_at)
      SELECT i + 1, 0, 'r' || i, ${owner}, 'running', 1 FROM n;
    ${numbers} INSERT INTO run_documents (entity_ref, doc_key, doc_version, payload_hash, payload)
      SELECT i + 1, 'runtime/run_summary:r' || i, 1, ${onPostgres ? `sha256(convert_to(${PAYLOAD}, 'UTF8'))` : "zeroblob(32)"}, ${PAYLOAD} FROM n;
    UPDATE topics SET head_seq = ${count}, oldest_seq = ${count + 1} WHERE ref = 1;
    COMMIT;`);
  if (!onPostgres) hashSummaries(data, count);
  return data;
}

const PAYLOAD_TEXT = "0".repeat(500);
const PAYLOAD = `'{"run_id":"r' || i || '","text":"' || hex(zeroblob(250)) || '"}'`;

/** SQLite has no SHA-256. */
function hashSummaries(data, count) {
  const hash = (i) => createHash("sha256").update(`{"run_id":"r${i}","text":"${PAYLOAD_TEXT}"}`).digest("hex");
  const updates = Array.from({ length: count }, (_, i) => `UPDATE run_documents SET payload_hash = x'${hash(i + 1)}' WHERE entity_ref = ${i + 2};`);
  execFileSync("sqlite3", [file(data)], { input: `BEGIN;\n${updates.join("\n")}\nCOMMIT;\n` });
}

/** Opens a transaction in another process with these statements; the answer ends it. */
async function transaction(t, data, statements) {
  const shell = onPostgres
    ? spawn("psql", ["-XqAt", "-d", databaseOf(data)], { stdio: ["pipe", "pipe", "inherit"] })
    : spawn("sqlite3", [file(data)], { stdio: ["pipe", "pipe", "inherit"] });
  t.after(() => shell.kill("SIGKILL"));
  const ended = new Promise((resolve) => shell.once("close", resolve));
  const opened = once(shell.stdout, "data", "the transaction");
  shell.stdin.write(onPostgres ? `SET search_path = runtime;\n${statements}\n` : `.bail on\n.timeout 10000\n${statements}\n`);
  await opened;
  return async () => {
    shell.stdin.end("ROLLBACK;\n");
    await within(ended, "the end of the transaction");
  };
}

/** Keeps the server's writer waiting until the answer is called. */
export function holdWriter(t, data) {
  return transaction(t, data, onPostgres ? "BEGIN; SELECT 'held' FROM writer FOR UPDATE;" : "BEGIN IMMEDIATE; SELECT 'held';");
}

/** Keeps a read of the store open until the answer is called. */
export function holdReader(t, data) {
  return transaction(t, data, "BEGIN; SELECT count(*) FROM events;");
}
