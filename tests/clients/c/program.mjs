// The test program on libkhala (tests/support/khala_client.c), with its lines of JSON as events.
import { spawn } from "node:child_process";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { Received } from "../../lib/wait.mjs";

export class Program {
  lines = new Received();

  /** options: {name, token, loop, topics, stored, environment}. */
  static start(t, url, { name = "khala_client", token, loop = "own", topics, stored = null, environment = {} }) {
    const program = new Program();
    const env = { ...process.env, ...environment, ...(stored === null ? {} : { STORED: stored }) };
    program.child = spawn(join(process.env.KHALA_BUILD, name), [url, token, loop, ...topics], { env, stdio: ["pipe", "pipe", "inherit"] });
    program.child.stdin.on("error", () => {}); // a program that ends early
    createInterface({ input: program.child.stdout }).on("line", (line) => program.lines.add(JSON.parse(line)));
    program.exit = new Promise((resolve) => program.child.on("close", (code, signal) => resolve(code ?? signal)));
    t.after(() => program.child.kill("SIGKILL"));
    return program;
  }

  /** Lines that have this member. */
  all(member) {
    return this.lines.all.filter((line) => member in line);
  }

  append(event) {
    this.child.stdin.write(`${JSON.stringify(event)}\n`);
  }

  /** Closes the client, and answers how the program ended. */
  async close() {
    this.child.stdin.end();
    return this.exit;
  }
}
