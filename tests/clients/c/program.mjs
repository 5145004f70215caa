// The test program on libkhala (tests/support/khala_client.c), with its lines of JSON as events.
import { spawn } from "node:child_process";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { Received, Watched } from "../../lib/wait.mjs";

export class Program {
  lines = new Received();
  #seen = new Map();

  /** options: {name, token, loop, topics, stored, environment}. */
  static start(t, url, { name = "khala_client", token, loop = "own", topics, stored = null, environment = {} }) {
    const program = new Program();
    const env = { ...process.env, ...environment, ...(stored === null ? {} : { STORED: stored }) };
    program.child = spawn(join(process.env.KHALA_BUILD, name), [url, token, loop, ...topics], { env, stdio: ["pipe", "pipe", "inherit"] });
    program.child.stdin.on("error", () => {}); // a program that ends early
    createInterface({ input: program.child.stdout }).on("line", (line) => program.#take(JSON.parse(line)));
    program.exit = new Promise((resolve) => program.child.on("close", (code, signal) => resolve(code ?? signal)));
    t.after(() => program.child.kill("SIGKILL"));
    return program;
  }

  #take(line) {
    const seen = this.seen(line.topic);
    this.state = line.state ?? this.state;
    if (line.reset) {
      seen.resets.push(line.reset);
      seen.documents = new Map((line.reset.documents ?? []).map((one) => [one.payload.run_id, one.payload]));
    }
    if (line.frame) {
      seen.frames.push(line.frame);
      seen.documents.set(line.frame.payload?.run_id, line.frame.payload);
    }
    for (const one of line.end ? this.#seen.values() : []) one.end = line.end;
    this.lines.add(line);
    for (const one of line.end ? this.#seen.values() : [seen]) one.changed();
  }

  /** The frames, resets and run summaries of one topic, and the error that ended a topic of the program. */
  seen(topic) {
    if (!this.#seen.has(topic)) this.#seen.set(topic, Object.assign(new Watched(), { frames: [], resets: [], documents: new Map() }));
    return this.#seen.get(topic);
  }

  /** Lines that have this member. */
  all(member) {
    return this.lines.all.filter((line) => member in line);
  }

  append(event) {
    this.child.stdin.write(`${JSON.stringify(event)}\n`);
  }

  /** Sends "flush", "mint KEY REQUEST" or "memory". */
  command(text) {
    this.child.stdin.write(`${text}\n`);
  }

  /** Closes the client, and answers how the program ended. */
  async close() {
    this.child.stdin.end();
    return this.exit;
  }
}
