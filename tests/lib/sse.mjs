// An event stream as the WHATWG rules read it, over a raw HTTP response: events, ids, retry,
// comments. It can stop reading, as a peer that hangs does.
import http from "node:http";
import https from "node:https";
import { within } from "./khala.mjs";

export class Stream {
  events = [];
  comments = 0;
  retry = null;
  retries = 0; // how often that was said
  lastId = "";

  // The position an id names: "seq@epoch".
  get lastSeq() {
    return Number(this.lastId.split("@")[0]);
  }
  ended = false;
  #rest = "";
  #event = { type: "", data: [] };
  #watchers = new Set();

  static async open(operator, path, headers = {}) {
    const stream = new Stream();
    const { host, port, ca } = operator.server;
    stream.request = (ca ? https : http).get({ host, port, ca, path, agent: false, headers });
    stream.request.on("error", () => stream.#end());
    stream.response = await within(new Promise((resolve, reject) => {
      stream.request.once("response", resolve);
      stream.request.once("error", reject);
    }), "the head of a stream");
    stream.status = stream.response.statusCode;
    stream.headers = stream.response.headers;
    stream.response.setEncoding("utf8");
    stream.response.on("data", (text) => stream.#take(text));
    stream.response.on("end", () => stream.#end());
    stream.response.on("error", () => stream.#end());
    stream.response.on("close", () => stream.#end());
    operator.server.peers.push(stream);
    return stream;
  }

  #end() {
    this.ended = true;
    this.#tell();
  }

  #tell() {
    for (const watcher of [...this.#watchers]) watcher();
  }

  #take(text) {
    const lines = (this.#rest + text).split("\n");
    this.#rest = lines.pop();
    for (const line of lines) this.#line(line);
    this.#tell();
  }

  #line(line) {
    if (line === "") {
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
    else if (field === "id") this.lastId = value;
    else if (field === "retry") [this.retry, this.retries] = [Number(value), this.retries + 1];
  }

  until(ready, what) {
    let watcher;
    const done = new Promise((resolve, reject) => {
      watcher = () => {
        if (ready(this)) resolve();
        else if (this.ended) reject(new Error(`the stream ended before ${what}`));
      };
      this.#watchers.add(watcher);
      watcher();
    });
    return within(done, what).finally(() => this.#watchers.delete(watcher));
  }

  get messages() {
    return this.events.filter((event) => event.type === "message");
  }

  close() {
    this.request.destroy();
  }
}
