// A Python process with clients of clients/python, which a test drives like objects of its own. driver.py
// describes the messages.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { after } from "node:test";
import { fileURLToPath } from "node:url";
import { Received, within } from "../../lib/wait.mjs";

const DRIVER = fileURLToPath(new URL("driver.py", import.meta.url));

/** The interpreter with the packages of scripts/setup. KHALA_PYTHON names another one. */
export const PYTHON = process.env.KHALA_PYTHON ?? "/usr/bin/python3";

export class Python {
  #process;
  #calls = new Map();
  #next = 0;
  #names = 0;
  #listeners = new Map();
  #ended;
  #failure = null;

  /** One process for all tests of a file. It ends after them, and must have written nothing on standard error. */
  static async ofFile() {
    const ends = [];
    const python = await Python.start({ after: (act) => ends.unshift(act) });
    after(async () => {
      for (const act of ends) await act();
      assert.equal(python.stderr, "");
    });
    return python;
  }

  /** Starts the process; it ends with the test. */
  static async start(t) {
    const python = new Python();
    python.#process = spawn(PYTHON, ["-W", "default", DRIVER], { stdio: ["pipe", "pipe", "pipe"] });
    python.stderr = "";
    python.#process.stderr.on("data", (data) => { python.stderr += data; });
    python.#process.stdin.on("error", () => {});
    python.#ended = new Promise((resolve) => python.#process.on("close", resolve));
    const ready = new Promise((resolve) => {
      createInterface({ input: python.#process.stdout }).on("line", (line) => python.#take(JSON.parse(line), resolve));
    });
    const failed = python.#ended.then((code) => {
      python.#failure = new Error(`the Python process ended with ${code}: ${python.stderr}`);
      for (const call of python.#calls.values()) call.reject(python.#failure);
      throw python.#failure;
    });
    failed.catch(() => {});
    await Promise.race([ready, failed]);
    t.after(async () => {
      python.#process.stdin.end();
      await within(python.#ended, "the end of the Python process").catch(() => python.#process.kill("SIGKILL"));
    });
    return python;
  }

  #take({ id, of, value, error, ...event }, resolve) {
    if (event.ready) resolve();
    else if (id === undefined) this.#listeners.get(of)?.(event);
    else {
      const call = this.#calls.get(id);
      this.#calls.delete(id);
      if (error) call.reject(Object.assign(new Error(error.message), error));
      else call.resolve(value);
    }
  }

  /** Runs a command of driver.py and answers its value. */
  call(action, members = {}) {
    if (this.#failure) return Promise.reject(this.#failure);
    const id = this.#next++;
    return new Promise((resolve, reject) => {
      this.#calls.set(id, { resolve, reject });
      this.#process.stdin.write(`${JSON.stringify({ id, do: action, ...members })}\n`);
    });
  }

  /** A new name of an object, whose events go to the listener. */
  name(kind, listener) {
    const name = `${kind}-${++this.#names}`;
    this.#listeners.set(name, listener);
    return name;
  }

  /** Kills the process with all of its clients. */
  async kill() {
    this.#process.kill("SIGKILL");
    await within(this.#ended, "the end of the Python process");
  }

  /** Opens a client. token is a text or a function; the events of the client are in states and warnings. */
  async open(t, { token, ...options }) {
    const client = { states: new Received(), warnings: new Received(), state: { status: "idle" } };
    const answer = this.#answerer(token);
    client.name = this.name("client", ({ question, state, warning }) => {
      if (question !== undefined) void answer(question);
      else if (warning) client.warnings.add(warning);
      else {
        client.state = state;
        client.states.add(state);
      }
    });
    await this.call("open", { name: client.name, token: typeof token === "function" ? null : token, ...options });
    client.close = () => this.call("close", { name: client.name });
    t.after(() => client.close().catch(() => {}));
    return client;
  }

  /** Follows a topic and gathers its frames, its resets and its end. */
  follow(client, topic, options = {}) {
    return this.#gather("topic", "follow", { client: client.name, topic, ...options });
  }

  /** Follows the whole log, as follow() does. look() answers the cursor. */
  async log(client, options = {}) {
    return this.#gather("log_position", "log", { client: client.name, ...options });
  }

  async #gather(look, action, options) {
    const seen = new Received();
    Object.assign(seen, { frames: [], resets: [] });
    const name = this.name("topic", ({ frame, reset, end }) => {
      if (frame) seen.frames.push(frame);
      else if (reset) seen.resets.push(reset);
      else seen.end = { error: end };
      seen.add(frame ? { frame } : reset ? { reset } : { end });
    });
    await this.call(action, { name, ...options });
    seen.look = () => this.call(look, { name });
    seen.close = () => this.call("close", { name });
    return seen;
  }

  #answerer(token) {
    return async (question) => {
      const answer = await Promise.resolve().then(token).then((text) => ({ token: text }), ({ message, final }) => ({ raise: message, final }));
      void this.call("answer", { number: question, answer }).catch(() => {});
    };
  }

  /** Opens a producer. token is a text or a function. */
  async produce(t, { token, ...options }) {
    const producer = { rejected: new Received(), lengths: new Received(), warnings: new Received() };
    const answer = this.#answerer(token);
    const name = this.name("producer", ({ question, rejected, warning, ...length }) => {
      if (question !== undefined) void answer(question);
      else if (rejected) producer.rejected.add(rejected);
      else if (warning) producer.warnings.add(warning);
      else producer.lengths.add(length);
    });
    await this.call("produce", { name, token: typeof token === "function" ? null : token, ...options });
    for (const action of ["chain", "close", "flush", "room"]) producer[action] = (members) => this.call(action, { name, ...members });
    producer.append = (...all) => this.call("append", { name, events: all });
    t.after(() => producer.close({ timeout: 0 }).catch(() => {}));
    return producer;
  }

  /** Follows a collection and gathers the types of its changes. */
  async collect(client, topic, options = {}) {
    const changes = new Received();
    const name = this.name("collection", ({ change }) => changes.add(change));
    await this.call("collect", { name, client: client.name, topic, ...options });
    return {
      changes, look: () => this.call("collection", { name }), get: (key) => this.call("get", { name, key }), release: () => this.call("release", { name }),
    };
  }
}

/** Waits until so many frames have come. */
export const frames = (seen, count) => seen.until(() => seen.frames.length >= count || seen.end, `${count} frames`);
