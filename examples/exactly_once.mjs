// A worker that counts the events of a run in its own SQLite database, each exactly once: the count and
// the position change in one transaction. Kill it and the server as often as you like.
//   node exactly_once.mjs RUN FILE
import { spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { Khala } from "khala";
import WebSocket from "ws";

const { BACKEND = "http://127.0.0.1:4200" } = process.env;
const [run = "demo", file = "totals.db"] = process.argv.slice(2);
const quote = (text) => `'${String(text).replaceAll("'", "''")}'`;

/** The command sqlite3 as a database. Node from 22.5 on has its own, node:sqlite. */
class Database {
  #shell;
  #lines;

  constructor(path) {
    this.#shell = spawn("sqlite3", ["-batch", "-bail", path], { stdio: ["pipe", "pipe", "inherit"] });
    this.#lines = createInterface({ input: this.#shell.stdout })[Symbol.asyncIterator]();
  }

  /** Runs statements and answers the lines of their result. */
  async run(sql) {
    this.#shell.stdin.write(`${sql};\nSELECT 'done';\n`);
    const rows = [];
    for (;;) {
      const { value, done } = await this.#lines.next();
      if (done) throw new Error("The database has ended.");
      if (value === "done") return rows;
      rows.push(value);
    }
  }

  /** Commits the work, or nothing of it. */
  async transaction(work) {
    await this.run("BEGIN IMMEDIATE");
    try {
      await work(this);
      await this.run("COMMIT");
    } catch (error) {
      await this.run("ROLLBACK");
      throw error;
    }
  }
}

const database = new Database(file);
await database.run(`.timeout 10000
PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;
CREATE TABLE IF NOT EXISTS totals (kind TEXT PRIMARY KEY, count INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS position (id INTEGER PRIMARY KEY CHECK (id = 1), epoch TEXT NOT NULL, seq INTEGER NOT NULL)`);

const ask = (path) => fetch(BACKEND + path).then((answer) => (answer.ok ? answer : Promise.reject(new Error(`backend ${answer.status}`))));
const { url } = await (await ask("/khala.json")).json();
const khala = new Khala({ url, token: async () => (await ask("/token?role=reader")).text(), WebSocket });
khala.subscribe(({ status }) => console.log(status));

await khala.topic(`run:${run}:events`).exactlyOnce({
  load: async () => {
    const [row] = await database.run("SELECT json_object('epoch', epoch, 'seq', seq) FROM position");
    return row ? JSON.parse(row) : null;
  },
  transaction: (work) => database.transaction(work),
  apply: ({ kind }, tx) => tx.run(`INSERT INTO totals VALUES (${quote(kind)}, 1) ON CONFLICT (kind) DO UPDATE SET count = count + 1`),
  save: ({ epoch, seq }, tx) => tx.run(`INSERT OR REPLACE INTO position VALUES (1, ${quote(epoch)}, ${Number(seq)})`),
  // The history starts again, so the counts do too. A truncated one cannot be counted.
  reset: ({ truncated, reason }, tx) => {
    if (truncated) throw new Error(`events are missing: ${reason}`);
    return tx.run("DELETE FROM totals");
  },
});
