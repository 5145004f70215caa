// What tests of the real binary share: run a verb, run a server, speak to it byte by byte.
// The binary is KHALA_BINARY, as tests/run sets it. Nothing here sleeps: everything waits for
// what it needs, and gives up after WAIT_MS_MAX with the name of what did not come.
import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import net from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import tls from "node:tls";

const WAIT_MS_MAX = 30_000;
const SANITIZER_REPORT = /(Address|Leak|Memory|Thread|UndefinedBehavior)Sanitizer|runtime error:/;

export const binary = process.env.KHALA_BINARY;
assert.ok(binary, "KHALA_BINARY names the binary under test; tests/run sets it");

export function vectors(name) {
  return JSON.parse(readFileSync(new URL(`../../spec/vectors/${name}.json`, import.meta.url), "utf8"));
}

/** What every process is given besides; tests/lib/secure.mjs puts TLS here. */
export const defaults = { settings: {}, authority: null };

/** The environment without any setting of Khala's, plus the given ones. */
export function environment(settings = {}) {
  const plain = Object.entries(process.env).filter(([name]) => !/^(KHALA|RUNTIME|OA|DB)_/.test(name));
  return { ...Object.fromEntries(plain), ...defaults.settings, ...settings };
}

/** Runs a verb to its end: its exit code, its answer and what it said beside it. */
export function run(args, { input = "", settings = {}, cwd } = {}) {
  const done = spawnSync(binary, args, { input, cwd, env: environment(settings), maxBuffer: 1 << 26 });
  assert.equal(done.error, undefined);
  const answer = { code: done.status, out: done.stdout.toString("utf8"), problem: done.stderr.toString("utf8") };
  assert.equal(done.signal, null, `khala ${args.join(" ")} died: ${answer.problem}`);
  assert.doesNotMatch(answer.problem, SANITIZER_REPORT);
  return answer;
}

/** The one line a verb answers with when all is well. */
export function answer(args, options) {
  const { code, out, problem } = run(args, options);
  assert.equal(code, 0, problem);
  assert.equal(problem, "");
  assert.match(out, /^[^\n]*\n$/, "one line");
  return out.slice(0, -1);
}

/** A fresh folder that goes with the test. */
export function folder(t) {
  const path = mkdtempSync(join(tmpdir(), "khala-"));
  t.after(() => rmSync(path, { recursive: true, force: true }));
  return path;
}

export function within(promise, what, milliseconds = WAIT_MS_MAX) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`${what}: not within ${milliseconds} ms`)), milliseconds);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

/** Asks again until it answers something, and no longer than one waits. */
export function until(ask, what) {
  let isOver = false;
  const asking = async () => {
    while (!isOver) {
      const found = await ask();
      if (found) return found;
      await new Promise((resolve) => setImmediate(resolve));
    }
  };
  return within(asking(), what).finally(() => { isOver = true; });
}

/** A process of the binary, its output gathered as text while it runs. */
class Process {
  constructor(args, { command = [], settings = {}, cwd } = {}) {
    this.out = "";
    this.log = "";
    this.watchers = new Set();
    this.settings = settings;
    const [program, ...rest] = [...command, binary, ...args];
    this.child = spawn(program, rest, { cwd, env: environment(settings), stdio: ["ignore", "pipe", "pipe"] });
    this.child.stdout.on("data", (data) => this.#grew("out", data));
    this.child.stderr.on("data", (data) => this.#grew("log", data));
    this.ended = new Promise((resolve) => {
      this.child.on("close", (code, signal) => {
        this.over = true;
        resolve({ code, signal });
        this.#grew("log", "");
      });
    });
  }

  #grew(which, data) {
    this[which] += data;
    for (const watcher of [...this.watchers]) watcher();
  }

  /** Waits until the output ("out") or the log ("log") matches; answers the match. */
  saw(which, pattern) {
    let watcher;
    const seen = new Promise((resolve, reject) => {
      watcher = () => {
        const found = this[which].match(pattern);
        if (found) resolve(found);
        else if (this.over) reject(new Error(`ended without ${pattern}: ${this.out}${this.log}`));
      };
      this.watchers.add(watcher);
      watcher();
    });
    return within(seen, `${pattern} in ${which}`).finally(() => this.watchers.delete(watcher));
  }

  kill(signal) {
    this.child.kill(signal);
  }
}

/**
 * A server in a folder of its own, ready. When the test ends it is asked to end too, and must do
 * so cleanly: exit code 0 and no word from a sanitizer. A command goes in front of the binary, and
 * becomes it in the end.
 */
export async function serve(t, {
  args = [], settings = {}, bind = "127.0.0.1:0", authority = defaults.authority, command } = {}) {
  const server = new Process(["serve", "--bind", bind, ...args], { command, settings, cwd: folder(t) });
  /** Gone without a word, as by the kernel or a power cut. */
  server.crash = async () => {
    server.crashed = true;
    server.kill("SIGKILL");
    await within(server.ended, "the death of the server");
  };
  server.stop = async (signal = "SIGTERM") => {
    if (server.crashed) return;
    server.kill(signal);
    const { code } = await within(server.ended, "the end of the server");
    assert.doesNotMatch(server.log, SANITIZER_REPORT);
    assert.equal(code, 0, server.log);
  };
  server.peers = [];
  t.after(() => {
    for (const peer of server.peers) peer.close();
    return server.stop();
  });
  const [, url] = await server.saw("out", /listens on (https?:\S+)\n/);
  server.url = url;
  server.ca = authority?.pem; // of whoever speaks TLS to it
  server.host = new URL(url).hostname.replace(/^\[|\]$/g, "");
  server.port = Number(new URL(url).port);
  return server;
}

/** A connection as a peer without manners would use it: any bytes out, answers in. */
export class Peer {
  #received = Buffer.alloc(0);
  #watchers = new Set();

  static async connect(server) {
    const peer = new Peer();
    peer.tcp = net.connect({ port: server.port, host: server.host, allowHalfOpen: true, noDelay: true });
    peer.socket = server.ca ? tls.connect({ socket: peer.tcp, ca: server.ca, host: server.host }) : peer.tcp;
    peer.ended = false; // the server sends no more
    peer.error = null;
    peer.socket.on("data", (data) => peer.#grew(() => { peer.#received = Buffer.concat([peer.#received, data]); }));
    peer.socket.on("end", () => peer.#grew(() => { peer.ended = true; }));
    peer.socket.on("error", (error) => peer.#grew(() => { peer.error = error.code; }));
    peer.socket.on("close", () => peer.#grew(() => { peer.ended = true; }));
    await within(new Promise((resolve, reject) => {
      peer.tcp.once("error", reject);
      peer.tcp.once("connect", server.ca ? () => peer.socket.once("close", resolve) : resolve);
      peer.socket.once("secureConnect", resolve);
    }), "a connection");
    return peer;
  }

  #grew(change) {
    change();
    for (const watcher of [...this.#watchers]) watcher();
  }

  #until(ready, what) {
    let watcher;
    const done = new Promise((resolve) => {
      watcher = () => ready() && resolve();
      this.#watchers.add(watcher);
      watcher();
    });
    return within(done, what).finally(() => this.#watchers.delete(watcher));
  }

  /** Resolves when the kernel has the bytes, and after what came meanwhile was looked at. */
  send(bytes) {
    const sent = new Promise((resolve) => this.socket.write(bytes, () => setImmediate(resolve)));
    return within(sent, "room for the bytes");
  }

  /** No more bytes from this side. */
  finish() {
    this.socket.end();
  }

  /** Gone without a word: the server sees a reset. */
  reset() {
    this.tcp.resetAndDestroy();
  }

  close() {
    this.socket.destroy();
  }

  /** The next whole answer; bodiless for one to HEAD. */
  async response({ bodiless = false } = {}) {
    const ready = () => this.#cut(bodiless) !== null;
    await this.#until(() => ready() || this.ended, "an answer");
    const cut = this.#cut(bodiless);
    assert.ok(cut, `the connection ended inside an answer: ${this.#received} ${this.error ?? ""}`);
    this.#received = this.#received.subarray(cut.size);
    return cut.response;
  }

  /** The head of an answer whose body is something else. */
  async head() {
    const end = () => this.#received.indexOf("\r\n\r\n");
    await this.#until(() => end() >= 0 || this.ended, "the head of an answer");
    assert.ok(end() >= 0, `the connection ended before an answer: ${this.#received} ${this.error ?? ""}`);
    const head = this.#received.subarray(0, end() + 4).toString("latin1");
    this.#received = this.#received.subarray(end() + 4);
    return head;
  }

  /** What cut({size, …} or null) takes from the front; null when the server ended before it could. */
  async part(cut) {
    let found = null;
    await this.#until(() => (found = cut(this.#received)) !== null || this.ended, "more bytes");
    if (found) this.#received = this.#received.subarray(found.size);
    return found;
  }

  /** Whether an answer comes before the end. */
  async answered() {
    await this.#until(() => this.#received.length > 0 || this.ended, "an answer or the end");
    return this.#received.length > 0;
  }

  /** Everything still to come, until the server has closed its side. */
  async rest() {
    await this.#until(() => this.ended, "the end of the connection");
    const rest = this.#received.toString("latin1");
    this.#received = Buffer.alloc(0);
    return rest;
  }

  /** Bytes received and not yet looked at. */
  get pending() {
    return this.#received.length;
  }

  #cut(bodiless) {
    const end = this.#received.indexOf("\r\n\r\n");
    if (end < 0) return null;
    const [first, ...lines] = this.#received.subarray(0, end).toString("latin1").split("\r\n");
    const headers = Object.fromEntries(lines.map((line) => {
      const [, name, value] = line.match(/^([^:]+): (.*)$/);
      return [name.toLowerCase(), value];
    }));
    const [, status] = first.match(/^HTTP\/1\.1 (\d{3}) .+$/);
    const empty = bodiless || status === "100";
    const size = end + 4 + (empty ? 0 : Number(headers["content-length"]));
    if (this.#received.length < size) return null;
    const body = this.#received.subarray(end + 4, size).toString("utf8");
    return { size, response: { status: Number(status), headers, body } };
  }
}

/** Opens a connection that goes with the server. */
export async function connect(server) {
  const peer = await Peer.connect(server);
  server.peers.push(peer);
  return peer;
}

/** The one shape of every error body. */
export function assertError(response, status, code) {
  assert.equal(response.status, status, response.body);
  assert.equal(response.headers["content-type"], "application/json");
  const body = JSON.parse(response.body);
  assert.equal(body.error, code);
  assert.match(body.message, /^[A-Z].*\.$/);
  assert.ok(body.request_id.length > 0);
  assert.equal(response.headers["x-request-id"], body.request_id);
  for (const name of Object.keys(body)) {
    assert.ok(["error", "message", "reason_code", "request_id", "details"].includes(name), name);
  }
  return body;
}
