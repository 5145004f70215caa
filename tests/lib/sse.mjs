// A client of event streams that follows the WHATWG rules over a plain HTTP response: events, ids,
// retry times and comments.
import http from "node:http";
import https from "node:https";
import { Watched, within } from "./wait.mjs";

export class Stream extends Watched {
  events = [];
  comments = 0;
  retry = null;
  retries = 0; // retry fields that came
  lastId = "";
  ended = false;
  #rest = "";
  #event = { type: "", data: [] };
  #id = ""; // the id of the event that is being read: it counts when that event is whole

  /** The sequence in the last id, which is "seq@epoch". */
  get lastSeq() {
    return Number(this.lastId.split("@")[0]);
  }

  /** Opens a stream, which is closed with the server; status says whether the server accepted it. */
  static async open(operator, path, headers = {}) {
    const stream = new Stream();
    const { host, port, ca, trust } = operator.server;
    stream.request = (ca ? https : http).get({ host, port, path, agent: false, headers, ...trust });
    stream.request.on("error", () => stream.#end());
    stream.response = await within(new Promise((resolve, reject) => {
      stream.request.once("response", resolve);
      stream.request.once("error", reject);
    }), "the head of a stream");
    stream.status = stream.response.statusCode;
    stream.headers = stream.response.headers;
    stream.response.setEncoding("utf8");
    if (stream.status !== 200) stream.refusal = "";
    stream.response.on("data", (text) => stream.#take(text));
    stream.response.on("end", () => stream.#end());
    stream.response.on("error", () => stream.#end());
    stream.response.on("close", () => stream.#end());
    operator.server.peers.push(stream);
    return stream;
  }

  #end() {
    this.ended = true;
    this.changed();
  }

  #take(text) {
    if (this.refusal !== undefined) {
      this.refusal += text;
      return;
    }
    const lines = (this.#rest + text).split("\n");
    this.#rest = lines.pop();
    for (const line of lines) this.#line(line);
    this.changed();
  }

  #line(line) {
    if (line === "") {
      this.lastId = this.#id;
      if (this.#event.data.length > 0) {
        this.events.push({ type: this.#event.type || "message", id: this.lastId, data: JSON.parse(this.#event.data.join("\n")) });
      }
      this.#event = { type: "", data: [] };
      return;
    }
    if (line.startsWith(":")) {
      this.comments++;
      return;
    }
    const colon = line.indexOf(":");
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (field === "data") this.#event.data.push(value);
    else if (field === "event") this.#event.type = value;
    else if (field === "id") this.#id = value;
    else if (field === "retry") [this.retry, this.retries] = [Number(value), this.retries + 1];
  }

  failure(what) {
    return this.ended && new Error(`the stream ended before ${what}`);
  }

  /** The status of a stream that was refused, and the reason code of its error. */
  async refused() {
    await this.until((one) => one.ended, "the end of a refusal");
    return [this.status, JSON.parse(this.refusal).reason_code];
  }

  /** The events without a type of their own. */
  get messages() {
    return this.events.filter((event) => event.type === "message");
  }

  close() {
    this.request.destroy();
  }
}
