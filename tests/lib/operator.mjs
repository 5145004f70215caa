// The backend of an application: it holds the operator key, appends events and reads them back.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import http from "node:http";
import https from "node:https";
import { join } from "node:path";
import { folder, run, serve, trustOf } from "./khala.mjs";
import { pollPath } from "./paths.mjs";
import { events } from "./samples.mjs";
import { sql } from "./store.mjs";
import { headerOf, seal, signingKey, usualClaims } from "./token.mjs";

/** Publish rates that no test reaches. */
export const UNHURRIED = {
  RUNTIME_KHALA_RUN_EVENTS_PUBLISH_RATE_PER_SECOND: "1000000",
  RUNTIME_KHALA_WORKER_LIFECYCLE_PUBLISH_RATE_PER_SECOND: "1000000",
  RUNTIME_KHALA_CODEX_WORKER_EVENTS_PUBLISH_RATE_PER_SECOND: "1000000",
  RUNTIME_KHALA_FALLBACK_PUBLISH_RATE_PER_SECOND: "1000000",
};

export class Operator {
  constructor(server, data) {
    this.server = server;
    this.data = data;
    this.key = readFileSync(join(data, "operator.key"), "utf8").trim();
    this.offsetMs = Number(server.settings?.KHALA_CLOCK_OFFSET_MS ?? 0);
    this.agent = new (server.ca ? https : http).Agent({ keepAlive: true, maxSockets: 64, ...(server.trust ?? trustOf(server)) });
  }

  /** A token with the usual claims and these, signed here with the server's key. That is read once: a client may reconnect
   * after the folder is gone. */
  sign(claims, key = (this.signingKey ??= signingKey(this.data))) {
    return seal(key, headerOf(key), { ...usualClaims(this.offsetMs), ...claims });
  }

  /** A token that reads everything. */
  get reader() {
    return this.sign({ oa_sync_scopes: ["runtime.read_all"] });
  }

  /** Begins a request; the caller writes its body and ends it. The answer resolves with the head. */
  begin(method, path, headers = {}) {
    const request = (this.server.ca ? https : http).request({
      host: this.server.host,
      port: this.server.port,
      agent: this.agent,
      method,
      path: path.startsWith("/") ? path : `/internal/v1/${path}`,
      headers: { authorization: `Bearer ${this.key}`, ...headers },
    });
    const answer = new Promise((resolve, reject) => {
      request.on("response", resolve);
      request.on("error", reject);
    });
    answer.catch(() => {});
    return { request, answer };
  }

  /** Sends a request and answers its status, headers and body. */
  async ask(method, path, body, headers) {
    const { request, answer } = this.begin(method, path, headers);
    request.end(body);
    const response = await answer;
    return { status: response.statusCode, headers: response.headers, body: await textOf(response) };
  }

  get(path) {
    return this.ask("GET", path);
  }

  /** The answer to one poll of a topic. */
  poll(topic, query) {
    return this.get(pollPath(topic, query));
  }

  /** Posts a value as JSON, or a text as it is. */
  post(path, value) {
    return this.ask("POST", path, typeof value === "string" ? value : JSON.stringify(value));
  }

  /** The JSON of an answer that must be 200. */
  async read(path) {
    const response = await this.get(path);
    assert.equal(response.status, 200, response.body);
    return JSON.parse(response.body);
  }

  /** Posts, and answers the JSON of an answer that must have that status. */
  async did(path, value, status = 200) {
    const response = await this.post(path, value);
    assert.equal(response.status, status, response.body);
    return JSON.parse(response.body);
  }

  /** Appends a batch and answers the result of each item. */
  async batch(items) {
    const response = await this.ask("POST", "events:batch", items.map((item) => `${JSON.stringify(item)}\n`).join(""),
      { "content-type": "application/x-ndjson" });
    assert.equal(response.status, 200, response.body);
    return response.body.trim().split("\n").map((line) => JSON.parse(line));
  }

  /** A token that the server mints: for what the request names, or to read everything. */
  async token(request = { scopes: ["runtime.read_all"] }) {
    return (await this.did("/api/sync/token", request)).token;
  }

  /** All events of a run, read page by page. */
  async events(run) {
    const all = [];
    for (let after = 0; ;) {
      const page = await this.read(`runs/${run}/events?after_seq=${after}&limit=1000`);
      all.push(...page.events);
      if (!page.has_more) return all;
      after = page.next_after_seq;
    }
  }

  /** All events of the log, read page by page. */
  async log() {
    const all = [];
    for (let query = ""; ;) {
      const page = await this.read(`/api/events?limit=200${query}`);
      all.push(...page.items);
      if (!page.has_more) return all;
      query = `&after_cursor=${page.next_cursor}`;
    }
  }

  /** The number of rows in each table that an append may change. */
  stored() {
    return sql(this.data, "SELECT (SELECT count(*) FROM events), (SELECT count(*) FROM entities), " +
      "(SELECT count(*) FROM journal), (SELECT count(*) FROM topics)");
  }

  close() {
    this.agent.destroy();
  }
}

/** The body of an answer as text. */
export async function textOf(response) {
  const pieces = [];
  for await (const piece of response) pieces.push(Buffer.from(piece));
  return Buffer.concat(pieces).toString("utf8");
}

/** Starts a server on a data folder and answers its operator. */
export async function operate(t, { settings = {}, data = folder(t), args = [], ...rest } = {}) {
  const server = await serve(t, { args: ["--data-dir", data, ...args], settings: { ...UNHURRIED, ...settings }, ...rest });
  const operator = new Operator(server, data);
  t.after(() => operator.close());
  return operator;
}

/** The operator of the same server at its operator listener, which KHALA_OPERATOR_BIND_ADDR opens. */
export function operatorListener(t, outside) {
  const [, url] = outside.server.out.match(/Operator routes and \/metrics are on (http:\S+)\n/);
  const { hostname, port } = new URL(url);
  const inside = new Operator({ host: hostname, port: Number(port), url, peers: outside.server.peers }, outside.data);
  t.after(() => inside.close());
  return inside;
}

/** Starts a server and creates a run on it that has so many events. */
export async function operateRun(t, { count = 1, run_id = "a", owner_user_id, ...options } = {}) {
  const operator = await operate(t, options);
  await operator.did("runs", { run_id, owner_user_id }, 201);
  if (count > 1) await operator.batch(events(count - 1, { run_id }));
  return operator;
}

/** Gives the log of a server another epoch, and answers the server that has it then. */
export async function renewed(t, operator, options = {}) {
  await operator.server.stop();
  const { code, problem } = run(["migrate", "--new-epoch", "--data-dir", operator.data]);
  assert.equal(code, 0, problem);
  return operate(t, { ...options, data: operator.data });
}

/** Checks that the request is refused with that error, and that nothing was stored. */
export async function refused(operator, ask, status, code) {
  const before = operator.stored();
  const response = await ask();
  assert.equal(response.status, status, response.body);
  const body = JSON.parse(response.body);
  assert.equal(body.error, code, response.body);
  assert.match(body.message, /^\S.*\.$/);
  assert.ok(body.request_id);
  assert.equal(operator.stored(), before, `${code} stored something`);
  return { body, headers: response.headers };
}
