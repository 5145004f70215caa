// The power fails at random moments. Synced bytes and names stay; of the rest some pieces of 512 bytes and some names, in
// any order. Afterwards every acknowledged or delivered event, key, revocation and position must be there, chains whole, and
// derived data equal to a rebuild. Recordings of real programs are cut: a server under load, the verbs that change a whole
// store, and the files of clients. KHALA_POWER_CUTS sets the number of all cuts, KHALA_POWER_SEED the first seed; a broken
// promise is printed with its seed. Then the same recordings are cut with the syncs of one file left out, and some cut must
// notice that.
import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { cpSync, readFileSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { Program } from "../clients/c/program.mjs";
import { PYTHON } from "../clients/python/client.mjs";
import { folder, run, startVerb } from "../lib/khala.mjs";
import { operate } from "../lib/operator.mjs";
import { Recording } from "../lib/power_cut.mjs";
import { range } from "../lib/samples.mjs";
import { seeded } from "../lib/seeded.mjs";
import { Stream } from "../lib/sse.mjs";
import { sql } from "../lib/store.mjs";
import { Received, until } from "../lib/wait.mjs";

const CUTS = Number(process.env.KHALA_POWER_CUTS ?? 300);
const FIRST = Number(process.env.KHALA_POWER_SEED ?? 1);
const CUTS_WITHOUT = Number(process.env.KHALA_POWER_CUTS_WITHOUT ?? 6); // with a sync left out, at a time
const CUTS_WITHOUT_MAX = 40 * CUTS_WITHOUT;
const ROUNDS = 4;
const MIGRATIONS = new URL("../../src/store/sqlite/migrations/", import.meta.url);
const OLD_VERSION = 8;
const PRUNED = "SELECT count(*) FROM topics WHERE entity_ref IS NULL AND oldest_seq > 1";
const { below } = seeded(FIRST);
const users = range(0, 3);
const timeout = 120_000 + CUTS * 1000;

/** Cuts a share of all cuts, none of which may break a promise. Then, for each sync that is left out, as many as it takes to
 * notice that. */
async function judge(t, recording, share, syncs) {
  const { broken, text } = await recording.cut({ first: FIRST, count: Math.ceil(CUTS * share) });
  t.diagnostic(text.trim().split("\n").at(-1));
  assert.equal(broken, 0, text);
  for (const without of syncs) {
    let [cuts, lost] = [0, 0];
    while (lost === 0 && cuts < CUTS_WITHOUT_MAX) {
      lost = (await recording.cut({ first: FIRST + cuts, count: CUTS_WITHOUT, without })).broken;
      cuts += CUTS_WITHOUT;
    }
    t.diagnostic(`without the syncs of ${without}: ${lost} of ${cuts} cuts broke a promise`);
    assert.notEqual(lost, 0, `no cut noticed that the syncs of ${without} were left out`);
  }
}

// ---- a server ----

const payload = () => ({ n: below(1000), pad: "x".repeat(below(6) === 0 ? 6000 : below(300)) });
const step = (n) => ({ event_type: "step", payload: payload(), run_id: `run-${n}` });

class Recorded {
  /** A server whose folder is recorded; settings make checkpoints, pruning and single-use tokens frequent. */
  static async start(t, recording, name = "data") {
    const server = new Recorded();
    const settings = {
      ...recording.settings, KHALA_DISK_RESERVE_BYTES: "1000000", RUNTIME_KHALA_RETENTION_INTERVAL_MS: "50",
      RUNTIME_KHALA_RUN_SUMMARIES_RETENTION_SECONDS: "1", RUNTIME_SYNC_TOKEN_SINGLE_USE: "true",
    };
    server.recording = recording;
    server.operator = await operate(t, { data: recording.path(name), settings });
    for (const file of ["operator.key", "sync-signing.jwk"]) recording.mark("kept", `${name}/${file}`);
    return server;
  }

  acked({ event }) {
    this.recording.mark("acked", event.event_id);
  }

  async prepare() {
    for (const n of users) {
      this.acked(await this.operator.did("runs", { run_id: `run-${n}`, owner_user_id: `u${n}` }, 201));
      this.acked(await this.operator.did("workers", { worker_id: `worker-${n}`, owner_user_id: `u${n}` }, 201));
    }
  }

  /** One append, or one batch. */
  async append(n) {
    const kind = below(10);
    if (kind < 3) this.acked(await this.operator.did(`runs/run-${n}/events`, { event_type: "step", payload: payload() }));
    else if (kind < 4) this.acked(await this.operator.did(`workers/worker-${n}/heartbeat`, {}));
    else if (kind < 5) this.acked(await this.operator.did(`topics/room:${n}/events`, { event_type: "said", payload: payload() }));
    else for (const item of await this.operator.batch(range(1, 1 + below(12)).map(() => step(n)))) {
      assert.equal(item.status, 200, JSON.stringify(item));
      this.acked(item);
    }
  }

  /** Appends of several owners at the same time. */
  load(count) {
    return Promise.all(users.map(async (n) => { for (let i = 0; i < count; i++) await this.append(n); }));
  }

  /** Reads the log live with a token that opens one connection. Delivered events are durable too. */
  async read() {
    const token = await this.operator.token();
    const { jti } = JSON.parse(Buffer.from(token.split(".")[1], "base64url"));
    const stream = await Stream.open(this.operator, `/events?token=${token}`);
    assert.equal(stream.status, 200, stream.refusal);
    this.recording.mark("used", jti);
    let seen = 0;
    const watch = () => {
      for (; seen < stream.events.length; seen++) {
        const { event_id } = JSON.parse(stream.events[seen].data);
        if (event_id) this.recording.mark("acked", event_id);
      }
    };
    stream.until(() => { watch(); return stream.ended; }, "the end of the stream").catch(() => {});
  }

  async revoke(id) {
    await this.operator.did("sync/sessions/revoke", { session_ids: [id], device_ids: [], jtis: [], reason: "lost" });
    this.recording.mark("revoked", id);
  }

  async addKey(name) {
    await this.operator.did("keys", { name, role: "read" }, 201);
    this.recording.mark("key", name);
  }

  verb(...args) {
    const { code, problem } = run([...args, "--data-dir", this.operator.data], { settings: this.recording.settings });
    assert.equal(code, 0, problem);
  }
}

test(`a server keeps its promises over ${Math.ceil(CUTS / 2)} cuts, seed ${FIRST}`, { timeout }, async (t) => {
  const recording = new Recording(t);
  recording.store("data");
  let server = await Recorded.start(t, recording);
  await server.prepare();
  for (let round = 0; round < ROUNDS; round++) {
    await server.read();
    await server.load(round === 1 ? 40 : 8);
    // The size of the load depends on the seed.
    for (let more = 0; round === 1 && recording.checkpoints() === 0 && more < 10; more++) await server.load(20);
    await server.revoke(`session-${round}`);
    await server.addKey(`key-${round}`);
    const loaded = server.load(12);
    if (round === 1) {
      await server.operator.did("projectors/reproject", { all: true, journal: true });
      server.verb("keys", "rotate");
      recording.mark("kept", "data/sync-signing.jwk");
    } else if (round === 2) {
      server.verb("backup", recording.path("backup.db"));
      recording.mark("kept", "backup.db");
    }
    await loaded;
    if (round === ROUNDS - 1) await until(() => sql(server.operator.data, PRUNED) !== "0", "a pruning");
    // After a kill the next start recovers, which is recorded too.
    if (round % 2 === 0) await server.operator.server.crash();
    else await server.operator.server.stop();
    if (round < ROUNDS - 1) server = await Recorded.start(t, recording);
  }
  recording.writeLog(server.operator.data);
  assert.ok(recording.checkpoints() > 0, "the load is too small for a checkpoint");
  for (const seed of range(FIRST, FIRST + 1)) await serveLeft(t, recording, seed);
  await judge(t, recording, 1 / 2, ["khala.db-wal", "/khala.db", "data/", "./", "operator.key.new", "sync-signing.jwk.new",
    "backup.db.partial"]);
});

/** Starts a real server on the files that a cut leaves. */
async function serveLeft(t, recording, seed) {
  const data = join(recording.leave(t, seed), "data");
  const operator = await operate(t, { data });
  await operator.did("topics/room:left/events", { event_type: "said" });
  await operator.server.stop();
  for (const args of [["verify"], ["reproject", "--all", "--verify"]]) {
    const { code, out, problem } = run([...args, "--data-dir", data]);
    assert.equal(code, 0, `seed ${seed}: ${out}${problem}`);
  }
}

// ---- verbs that change a whole store ----

/** Makes a store as an older schema had it, with the rows of this one. */
function makeOlder(now, old) {
  const steps = readdirSync(MIGRATIONS).sort().slice(0, OLD_VERSION).map((name) => readFileSync(new URL(name, MIGRATIONS), "utf8"));
  const shell = (...statements) => execFileSync("sqlite3", ["-bail", join(old, "khala.db"), ...statements], { encoding: "utf8" }).trim();
  shell(`PRAGMA journal_mode = WAL; ${steps.join("\n")}; PRAGMA user_version = ${OLD_VERSION};
    PRAGMA application_id = ${sql(now, "PRAGMA application_id")}`);
  const shared = shell(`ATTACH '${join(now, "khala.db")}' AS now; SELECT o.name || '|' || (SELECT group_concat(c.name) FROM
    pragma_table_info(o.name, 'main') c JOIN pragma_table_info(o.name, 'now') d USING (name)) FROM main.sqlite_schema o
    JOIN now.sqlite_schema n USING (name) WHERE o.type = 'table'`);
  shell(`ATTACH '${join(now, "khala.db")}' AS now; ${shared.split("\n").map((line) => line.split("|")).map(([name, columns]) =>
    `DELETE FROM main.${name}; INSERT INTO main.${name} (${columns}) SELECT ${columns} FROM now.${name};`).join("\n")}`);
}

/** The data folder of a store with some events, without a server. */
async function filled(t) {
  const operator = await operate(t, {});
  for (const n of users) await operator.did("runs", { run_id: `run-${n}`, owner_user_id: `u${n}` }, 201);
  for (const n of users) await operator.batch(range(1, 20).map(() => step(n)));
  await operator.did("workers", { worker_id: "worker-0", owner_user_id: "u0" }, 201);
  const exported = (await operator.get("/api/events/export")).body;
  await operator.server.stop();
  return { data: operator.data, events: Number(sql(operator.data, "SELECT count(*) FROM events")), exported };
}

const verb = (recording, ...args) => {
  const { code, problem } = run([...args, "--data-dir", recording.path("data")], { settings: recording.settings });
  assert.equal(code, 0, problem);
};

test(`a migration keeps its promises over ${Math.ceil(CUTS / 10)} cuts`, { timeout }, async (t) => {
  const { data, events } = await filled(t);
  const old = folder(t);
  makeOlder(data, old);
  const recording = new Recording(t, (disk) => cpSync(old, join(disk, "data"), { recursive: true }));
  recording.store("data");
  recording.mark("events", events);
  verb(recording, "migrate");
  recording.writeLog(recording.path("data"));
  await judge(t, recording, 1 / 10, ["khala.db-wal", "/khala.db"]);
});

test(`an import keeps its promises over ${Math.ceil(CUTS / 10)} cuts`, { timeout }, async (t) => {
  const { events, exported } = await filled(t);
  const recording = new Recording(t);
  recording.store("data");
  const server = await Recorded.start(t, recording);
  const { status, body } = await server.operator.ask("POST", "/api/events/import", exported, { "content-type": "application/x-ndjson" });
  assert.equal(status, 200, body);
  assert.doesNotMatch(body, /"error"/);
  recording.mark("events", events);
  server.acked(await server.operator.did("runs/run-0/events", { event_type: "step" }));
  await server.operator.server.stop();
  recording.writeLog(recording.path("data"));
  await judge(t, recording, 1 / 10, ["khala.db-wal", "/khala.db", "data/"]);
});

test(`a restore keeps its promises over ${Math.ceil(CUTS / 10)} cuts`, { timeout }, async (t) => {
  const { data, events } = await filled(t);
  const backup = join(folder(t), "backup.db");
  assert.equal(run(["backup", backup, "--data-dir", data]).code, 0);
  const recording = new Recording(t);
  recording.store("data");
  const before = await Recorded.start(t, recording);
  await before.prepare();
  await before.load(4);
  await before.revoke("session");
  // The write-ahead log is not empty then.
  await before.operator.server.crash();
  const copy = folder(t);
  cpSync(recording.path("data"), copy, { recursive: true });
  recording.writeLog(copy);
  const restored = join(recording.place, "restored.log");
  recording.mark("replacing", restored, events);
  verb(recording, "restore", backup);
  recording.mark("replaced");
  const after = await Recorded.start(t, recording);
  after.acked(await after.operator.did("runs/run-0/events", { event_type: "step" }));
  await after.operator.server.stop();
  recording.writeLog(recording.path("data"), restored);
  await judge(t, recording, 1 / 10, ["khala.db.restoring", "khala.db-wal", "data/"]);
});

// ---- the files of clients ----

/** A UUIDv7 of that number. */
const uuid7 = (n) => `018f3b7e-1000-7000-8000-${String(n).padStart(12, "0")}`;
const said = (n) => ({ topic: "room:a", event_type: "said", event_id: uuid7(n), payload: payload() });

test(`the outbox of libkhala keeps its promises over ${Math.ceil(CUTS / 10)} cuts`, { timeout }, async (t) => {
  const recording = new Recording(t);
  const path = recording.path("outbox");
  const environment = { ...recording.settings, OUTBOX: path };
  const operator = await operate(t, {});
  const token = operator.sign({ oa_sync_scopes: ["runtime.append"], oa_sync_topics: ["room:*"] });
  const open = (url = operator.server.url) => Program.start(t, url, { token, topics: [], environment });
  const answered = (program, count) => program.lines.until(() => program.all("appended").length === count, `${count} answers`);
  const append = async (program, numbers) => {
    for (const n of numbers) program.append(said(n));
    await recording.synced("outbox", () => numbers.every((n) => readFileSync(path, "utf8").includes(uuid7(n))));
    for (const n of numbers) recording.mark("line", "outbox", uuid7(n));
  };
  const first = open();
  for (const n of range(1, 5)) first.append(said(n));
  await answered(first, 5);
  await operator.server.crash();
  await append(first, range(6, 15));
  first.child.kill("SIGKILL");
  await first.exit;
  const second = open();
  await append(second, range(16, 25));
  second.child.kill("SIGKILL");
  await second.exit;
  // From the answer on the outbox may forget an event, and the answer may come before any mark.
  for (const n of range(6, 25)) recording.mark("answered", "outbox", uuid7(n));
  const again = await operate(t, { data: operator.data });
  const third = open(again.server.url);
  await until(async () => (await again.read("topics/room:a/events?limit=100")).events.length === 25, "the events of the outbox");
  await again.server.crash();
  await append(third, range(26, 40));
  third.child.kill("SIGKILL");
  await third.exit;
  await judge(t, recording, 1 / 10, ["outbox", "./"]);
});

/** A recorded program that obeys each line of its input, then prints a line. */
class Worker {
  static async start(t, recording, [program, ...args], env = {}) {
    const worker = new Worker();
    worker.child = spawn(program, args, { env: { ...process.env, ...recording.settings, ...env }, stdio: ["pipe", "pipe", "inherit"] });
    t.after(() => worker.child.kill("SIGKILL"));
    worker.lines = new Received();
    createInterface({ input: worker.child.stdout }).on("line", (line) => worker.lines.add(line));
    await worker.lines.until(() => worker.lines.all.length === 1, "the start");
    return worker;
  }

  async tell(...words) {
    const count = this.lines.all.length;
    this.child.stdin.write(`${words.join(" ")}\n`);
    await this.lines.until(() => this.lines.all.length > count, words[0]);
  }
}

const PYTHON_FILES = `
import asyncio, json, sys
from khala import FileStorage, Outbox
storage, outbox, rows = FileStorage(sys.argv[1] + "/positions"), Outbox(sys.argv[1] + "/outbox.db"), {}
print("ready", flush=True)
for line in sys.stdin:
    word, *rest = line.split()
    if word == "save":
        asyncio.run(storage.save(*rest))
    elif word == "add":
        rows[rest[0]] = outbox.add(json.dumps({"event_id": rest[0], "pad": "x" * int(rest[1])}))
    else:
        outbox.remove([rows[one] for one in rest])
    print("done", flush=True)
`;

test(`the files of Python keep their promises over ${Math.ceil(CUTS / 10)} cuts`, { timeout }, async (t) => {
  const recording = new Recording(t);
  const sources = fileURLToPath(new URL("../../clients/python/src", import.meta.url));
  for (const round of range(0, 2)) {
    const python = await Worker.start(t, recording, [PYTHON, "-c", PYTHON_FILES, recording.disk], { PYTHONPATH: sources });
    const ids = range(1, 8).map((n) => uuid7(round * 100 + n));
    for (const [i, id] of ids.entries()) {
      await python.tell("add", id, below(3000));
      recording.mark("row", "outbox.db", id);
      await python.tell("save", "room:a", `position-${round}-${i}`);
      recording.mark("kept", "positions/room%3Aa");
    }
    for (const id of ids.slice(0, 5)) recording.mark("answered", "outbox.db", id);
    await python.tell("remove", ...ids.slice(0, 5));
    python.child.kill("SIGKILL");
  }
  await judge(t, recording, 1 / 10, ["outbox.db-wal", "room%3Aa.new", "positions/", "./"]);
});

const NODE_FILES = `
const { fileStorage } = await import(process.argv[1]);
const { createInterface } = await import("node:readline");
const storage = fileStorage(process.argv[2] + "/new/positions");
console.log("ready");
for await (const line of createInterface({ input: process.stdin })) {
  const [topic, position] = line.split(" ");
  await storage.save(topic, position);
  console.log("done");
}
`;

test(`the positions of JavaScript keep their promises over ${Math.ceil(CUTS / 30)} cuts`, { timeout }, async (t) => {
  const recording = new Recording(t);
  const module = new URL("../../clients/js/src/node.js", import.meta.url);
  const node = await Worker.start(t, recording, [process.execPath, "--input-type=module", "-e", NODE_FILES, module, recording.disk]);
  for (const n of range(1, 20)) {
    await node.tell("room:a", `position-${n}`);
    recording.mark("kept", "new/positions/room%3Aa");
  }
  node.child.kill("SIGKILL");
  await judge(t, recording, 1 / 30, ["room%3Aa.new", "positions/", "new/", "./"]);
});

test(`the position of khala tail keeps its promise over ${Math.ceil(CUTS / 10)} cuts`, { timeout }, async (t) => {
  const recording = new Recording(t, (disk) => writeFileSync(join(disk, "position"), ""));
  recording.mark("kept", "position");
  const operator = await operate(t, {});
  await operator.did("runs", { run_id: "a" }, 201);
  const tail = startVerb(t, ["tail", "--audit", "--from-start", "--json", "--cursor-file", recording.path("position"), "--url", operator.server.url,
    "--key", operator.key], { settings: recording.settings });
  for (const n of range(1, 20)) {
    await operator.did("runs/a/events", { event_type: "step", payload: payload() });
    await until(() => tail.lines.length > n, `event ${n}`);
  }
  await tail.end("SIGTERM");
  await judge(t, recording, 1 / 10, ["position.new"]);
});
