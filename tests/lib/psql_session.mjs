// A session of psql that stays open, for transactions that overlap.
import { start } from "./khala.mjs";

export class PsqlSession {
  #process;
  #asked = 0;

  constructor(t, url) {
    this.#process = start(t, ["psql", "-XqAt", "-d", url], { input: "pipe" });
    // A session whose server ended cannot be written to; the wait for the answer reports that.
    this.#process.child.stdin.on("error", () => {});
  }

  /** Runs one statement. Answers its output, and the SQLSTATE and message if it failed. */
  async ask(statement) {
    const mark = `answered-${++this.#asked}`;
    const from = this.#process.out.length;
    this.#process.child.stdin.write(`${statement};\n\\echo ${mark} :SQLSTATE :LAST_ERROR_MESSAGE\n`);
    let found;
    await this.#process.until(() => (found = this.#process.out.slice(from).match(`^([^]*?)${mark} (\\S+) (.*)\n`)), statement);
    const [, out, state, message] = found;
    return { out: out.trim(), state, message: state === "00000" ? "" : message };
  }

  /** Runs statements that must succeed, and answers the output of the last one. */
  async run(...statements) {
    let answer;
    for (const statement of statements) {
      answer = await this.ask(statement);
      if (answer.state !== "00000") throw new Error(`${statement}: ${answer.state} ${answer.message}`);
    }
    return answer.out;
  }

  close() {
    if (!this.#process.over) this.#process.kill("SIGKILL");
  }
}
