// The binary under test: runs a verb, runs a server, and speaks to the server byte by byte. The
// environment variable KHALA_BINARY names the binary; tests/run sets it.
import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { closeSync, fstatSync, mkdtempSync, openSync, readdirSync, readFileSync, readSync, rmSync } from "node:fs";
import net from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import tls from "node:tls";
import { storeSettings } from "./database.mjs";
import { ASK_AGAIN_MS, Watched, within } from "./wait.mjs";

const SANITIZER_REPORT = /(Address|Leak|Memory|Thread|UndefinedBehavior)Sanitizer|runtime error:/;

export const binary = process.env.KHALA_BINARY;
assert.ok(binary, "KHALA_BINARY names the binary under test; tests/run sets it");

/** The rows of a file of spec/vectors. */
export function vectors(name) {
  return JSON.parse(readFileSync(new URL(`../../spec/vectors/${name}.json`, import.meta.url), "utf8"));
}

/** Settings that every process gets besides its own; tests/lib/secure.mjs puts TLS here. */
export const defaults = { settings: {}, authority: null };

/** The environment without any setting of Khala, plus the given settings. */
export function environment(settings = {}) {
  const plain = Object.entries(process.env).filter(([name]) => !/^(KHALA|RUNTIME|OA|DB)_/.test(name));
  return { ...Object.fromEntries(plain), ...defaults.settings, ...settings };
}

/** Runs a verb to its end and answers its exit code, its output and its error output. */
export function run(args, { input = "", settings = {}, cwd } = {}) {
  const env = environment(storeSettings(args, settings, cwd));
  const done = spawnSync(binary, args, { input, cwd, env, maxBuffer: 1 << 26 });
  assert.equal(done.error, undefined);
  const answer = { code: done.status, out: done.stdout.toString("utf8"), problem: done.stderr.toString("utf8") };
  assert.equal(done.signal, null, `khala ${args.join(" ")} died: ${answer.problem}`);
  assert.doesNotMatch(answer.problem, SANITIZER_REPORT);
  assert.match(answer.problem, /^$|[^\n]\n$/, `khala ${args.join(" ")}: the last message does not end in one newline: ${JSON.stringify(answer.problem)}`);
  return answer;
}

/** Runs several verbs to their end, a few at a time; the answers have the order of the arguments. */
export async function runAll(calls) {
  const answers = [];
  let next = 0;
  const work = async () => {
    for (let i = next++; i < calls.length; i = next++) {
      const { args, settings } = calls[i];
      const verb = new Process([binary, ...args], { env: environment(storeSettings(args, settings)) });
      const { code, signal } = await verb.end();
      assert.equal(signal, null, `khala ${args.join(" ")} died: ${verb.log}`);
      assert.doesNotMatch(verb.log, SANITIZER_REPORT);
      answers[i] = { code, out: verb.out, problem: verb.log };
    }
  };
  await Promise.all(Array.from({ length: 4 }, work));
  return answers;
}

/** Runs a verb that must succeed and answers the one line of its output. */
export function answer(args, options) {
  const { code, out, problem } = run(args, options);
  assert.equal(code, 0, problem);
  assert.equal(problem, "");
  assert.match(out, /^[^\n]*\n$/, "one line");
  return out.slice(0, -1);
}

/** Removes a folder. A server that still runs may add a file meanwhile; then it begins again. */
function remove(path, tries = 20) {
  try {
    rmSync(path, { recursive: true, force: true });
  } catch (error) {
    if (error.code !== "ENOTEMPTY" || tries === 0) throw error;
    remove(path, tries - 1);
  }
}

/** A fresh folder that is removed at the end of the test. */
export function folder(t) {
  const path = mkdtempSync(join(tmpdir(), "khala-"));
  t.after(() => remove(path));
  return path;
}

/** The error output of a program, in a file without a name. */
class ErrorOutput {
  #bytes = Buffer.alloc(0); // what was read so far

  constructor() {
    const place = mkdtempSync(join(tmpdir(), "khala-"));
    this.fd = openSync(join(place, "log"), "a+");
    remove(place);
  }

  #read() {
    const news = Buffer.alloc(fstatSync(this.fd).size - this.#bytes.length);
    if (news.length === 0) return;
    readSync(this.fd, news, 0, news.length, this.#bytes.length);
    this.#bytes = Buffer.concat([this.#bytes, news]);
  }

  get text() {
    if (this.fd !== null) this.#read();
    return this.#bytes.toString("utf8");
  }

  /** Keeps the text and closes the file. */
  close() {
    this.#read();
    closeSync(this.fd);
    this.fd = null;
  }
}

/**
 * A program that runs while the test goes on. Its output is gathered as text in out. The log is its
 * error output. It is a file, so that a test sees all that was written before the answer it waited for.
 */
export class Process extends Watched {
  out = "";
  over = null; // {code, signal} once it has ended
  #errors = new ErrorOutput();

  constructor([program, ...args], { cwd, env, input = "ignore", detached } = {}) {
    super();
    this.child = spawn(program, args, { cwd, env, detached, stdio: [input, "pipe", this.#errors.fd] });
    this.child.stdout.on("data", (data) => {
      this.out += data;
      this.changed();
    });
    this.ended = new Promise((resolve, reject) => {
      this.child.on("error", reject);
      this.child.on("close", (code, signal) => {
        this.#errors.close();
        this.over = { code, signal };
        resolve(this.over);
        this.changed();
      });
    });
  }

  get log() {
    return this.#errors.text;
  }

  /** Looks again also when only the log has grown. */
  until(...condition) {
    const timer = setInterval(() => this.changed(), ASK_AGAIN_MS);
    return super.until(...condition).finally(() => clearInterval(timer));
  }

  failure(what) {
    return this.over && new Error(`ended with ${JSON.stringify(this.over)} before ${what}: ${this.out}${this.log}`);
  }

  /** Waits until the output ("out") or the log ("log") matches, and answers the match. */
  async saw(which, pattern) {
    let found;
    await this.until(() => (found = this[which].match(pattern)), `${pattern} in ${which}`);
    return found;
  }

  /** The whole lines of the output so far. */
  get lines() {
    return this.out.split("\n").slice(0, -1);
  }

  /** After SIGSTOP no thread runs any more: the signal alone reaches them some time later. */
  kill(signal) {
    this.child.kill(signal);
    const tasks = `/proc/${this.child.pid}/task`;
    const isStopped = (task) => readFileSync(`${tasks}/${task}/stat`, "utf8").replace(/^.*\) /, "").startsWith("T");
    while (signal === "SIGSTOP" && this.child.exitCode === null && !readdirSync(tasks).every(isStopped));
  }

  /** Waits for the end, after the signal if one is given, and answers {code, signal}. */
  async end(signal) {
    if (signal) this.kill(signal);
    return within(this.ended, "the end of the process");
  }
}

/** Starts a program that is killed at the end of the test if it still runs. */
export function start(t, command, options) {
  const process = new Process(command, options);
  t.after(() => { if (!process.over) process.kill("SIGKILL"); });
  return process;
}

/** Starts a verb of the binary in the same way. */
export function startVerb(t, args, { settings = {}, ...options } = {}) {
  return start(t, [binary, ...args], { env: environment(storeSettings(args, settings, options.cwd)), ...options });
}

/**
 * A server in a folder of its own that is ready. The server is stopped at the end of the test and
 * must exit with code 0 and without a sanitizer's report. A command goes in front of the program,
 * which is the binary, and executes it in the end.
 */
export async function serve(t, {
  args = [], settings = {}, bind = "127.0.0.1:0", authority = defaults.authority, command = [], program = binary } = {}) {
  const cwd = folder(t);
  // Tests show many wrong tokens, all from one address; tests of that limit set it themselves.
  const env = environment(storeSettings(["serve", ...args], { KHALA_AUTH_FAILURES_PER_MINUTE: "1000000", ...settings }, cwd));
  const server = new Process([...command, program, "serve", "--bind", bind, ...args], { env, cwd });
  server.settings = settings;
  /** Kills the server, as the kernel or a power cut would. */
  server.crash = async () => {
    server.crashed = true;
    await server.end("SIGKILL");
  };
  /** Waits for the end of a server that got a signal to end, which must be clean. */
  server.stopped = async () => {
    const { code } = await server.end();
    assert.doesNotMatch(server.log, SANITIZER_REPORT);
    assert.equal(code, 0, server.log);
  };
  /** Tells the server to end, unless it was killed, and waits for that. */
  server.stop = async (signal = "SIGTERM") => {
    if (server.crashed) return;
    server.kill(signal);
    await server.stopped();
  };
  server.peers = [];
  t.after(() => {
    for (const peer of server.peers) peer.close();
    return server.stop();
  });
  const [, url] = await server.saw("out", /listens on (https?:\S+)\n/);
  server.url = url;
  server.ca = authority?.pem; // clients trust this authority
  server.trust = trustOf(server); // parsed once, since a thousand connections may use it
  server.host = new URL(url).hostname.replace(/^\[|\]$/g, "");
  server.port = Number(new URL(url).port);
  return server;
}

/** A connection that sends any bytes, also wrong ones, and reads answers. */
export class Peer extends Watched {
  #received = Buffer.alloc(0);

  static async connect(server) {
    const peer = new Peer();
    peer.tcp = net.connect({ port: server.port, host: server.host, allowHalfOpen: true, noDelay: true });
    peer.socket = server.ca ? tls.connect({ socket: peer.tcp, host: server.host, ...server.trust }) : peer.tcp;
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
    this.changed();
  }

  /** Resolves when the kernel has the bytes and this process has read what came meanwhile. */
  send(bytes) {
    const sent = new Promise((resolve) => this.socket.write(bytes, () => setImmediate(resolve)));
    return within(sent, "room for the bytes");
  }

  /** Ends this side of the connection. */
  finish() {
    this.socket.end();
  }

  /** Resets the connection. */
  reset() {
    this.tcp.resetAndDestroy();
  }

  close() {
    this.socket.destroy();
  }

  /** The next whole answer; an answer to HEAD is bodiless. */
  async response({ bodiless = false } = {}) {
    const ready = () => this.#cut(bodiless) !== null;
    await this.until(() => ready() || this.ended, "an answer");
    const cut = this.#cut(bodiless);
    assert.ok(cut, `the connection ended inside an answer: ${this.#received} ${this.error ?? ""}`);
    this.#received = this.#received.subarray(cut.size);
    return cut.response;
  }

  /** The next whole answer that is not an interim one. */
  async finalResponse() {
    const response = await this.response();
    return response.status === 100 ? this.finalResponse() : response;
  }

  /** The head of an answer whose body is read otherwise. */
  async head() {
    const end = () => this.#received.indexOf("\r\n\r\n");
    await this.until(() => end() >= 0 || this.ended, "the head of an answer");
    assert.ok(end() >= 0, `the connection ended before an answer: ${this.#received} ${this.error ?? ""}`);
    const head = this.#received.subarray(0, end() + 4).toString("latin1");
    this.#received = this.#received.subarray(end() + 4);
    return head;
  }

  /** Takes from the front what cut finds: {size, …}. Answers null when the server ends before that. */
  async part(cut) {
    let found = null;
    await this.until(() => (found = cut(this.#received)) !== null || this.ended, "more bytes");
    if (found) this.#received = this.#received.subarray(found.size);
    return found;
  }

  /** Whether an answer comes before the end of the connection. */
  async answered() {
    await this.until(() => this.#received.length > 0 || this.ended, "an answer or the end");
    return this.#received.length > 0;
  }

  /** The bytes until the server has closed its side. */
  async rest() {
    await this.until(() => this.ended, "the end of the connection");
    const rest = this.#received.toString("latin1");
    this.#received = Buffer.alloc(0);
    return rest;
  }

  /** How many received bytes no call has taken yet. */
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

/** The text of a GET request, with further header lines. */
export function getRequest(path, ...lines) {
  return [`GET ${path} HTTP/1.1`, "Host: khala", ...lines, "", ""].join("\r\n");
}

/** Opens a connection that is closed with the server. */
export async function connect(server) {
  const peer = await Peer.connect(server);
  server.peers.push(peer);
  return peer;
}

/** The TLS options of a client that trusts the server's authority; none without TLS. */
export function trustOf(server) {
  return server.ca ? { secureContext: tls.createSecureContext({ ca: server.ca }) } : {};
}

/** Checks an error answer against the one shape of error bodies, and answers the body. */
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
