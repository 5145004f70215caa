// A backend as the tests play it: the operator key, JSON over kept connections, a look into the
// store behind the server's back.
import { createHmac, randomUUID } from "node:crypto";
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import http from "node:http";
import https from "node:https";
import { join } from "node:path";
import { folder, serve } from "./khala.mjs";

/** No limit that a test would run into by being quick. */
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
    this.agent = new (server.ca ? https : http).Agent({ keepAlive: true, maxSockets: 64, ca: server.ca });
  }

  /** A token with these claims beside the usual ones, signed here with the server's own key. */
  sign(claims, key = JSON.parse(readFileSync(join(this.data, "sync-signing.jwk"), "utf8"))) {
    const now = Math.floor((Date.now() + this.offsetMs) / 1000);
    const encode = (value) => Buffer.from(JSON.stringify(value)).toString("base64url");
    const head = encode({ alg: "HS256", typ: "JWT", kid: key.kid });
    const body = encode({
      aud: "openagents-sync", sub: "service", iat: now, exp: now + 900, jti: randomUUID(),
      oa_claims_version: "oa_sync_claims_v1", ...claims,
    });
    const seal = createHmac("sha256", Buffer.from(key.k, "base64url")).update(`${head}.${body}`).digest("base64url");
    return `${head}.${body}.${seal}`;
  }

  /** A token for whoever reads everything. */
  get reader() {
    return this.sign({ oa_sync_scopes: ["runtime.read_all"] });
  }

  /** A request under way: write to it, end it; answer resolves with the head, body still to come. */
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

  async ask(method, path, body, headers) {
    const { request, answer } = this.begin(method, path, headers);
    request.end(body);
    const response = await answer;
    const pieces = [];
    for await (const piece of response) pieces.push(piece);
    const text = Buffer.concat(pieces).toString("utf8");
    return { status: response.statusCode, headers: response.headers, body: text };
  }

  get(path) {
    return this.ask("GET", path);
  }

  post(path, value) {
    return this.ask("POST", path, typeof value === "string" ? value : JSON.stringify(value));
  }

  /** The JSON of an answer that must be well. */
  async read(path) {
    const response = await this.get(path);
    assert.equal(response.status, 200, response.body);
    return JSON.parse(response.body);
  }

  async did(path, value, status = 200) {
    const response = await this.post(path, value);
    assert.equal(response.status, status, response.body);
    return JSON.parse(response.body);
  }

  async batch(items) {
    const response = await this.ask("POST", "events:batch", items.map((item) => `${JSON.stringify(item)}\n`).join(""),
      { "content-type": "application/x-ndjson" });
    assert.equal(response.status, 200, response.body);
    return response.body.trim().split("\n").map((line) => JSON.parse(line));
  }

  /** A subscriber's token: for whatever is asked, or to read everything. */
  async token(request = { scopes: ["runtime.read_all"] }) {
    return (await this.did("/api/sync/token", request)).token;
  }

  /** All events of a run, by its pages. */
  async events(run) {
    const all = [];
    for (let after = 0; ;) {
      const page = await this.read(`runs/${run}/events?after_seq=${after}&limit=1000`);
      all.push(...page.events);
      if (!page.has_more) return all;
      after = page.next_after_seq;
    }
  }

  /** What the store holds of everything that appending may change. */
  stored() {
    return sql(this.data, "SELECT (SELECT count(*) FROM events), (SELECT count(*) FROM entities), " +
      "(SELECT count(*) FROM sync_stream_events), (SELECT count(*) FROM sync_topic_sequences)");
  }

  close() {
    this.agent.destroy();
  }
}

export function sql(data, query) {
  return execFileSync("sqlite3", ["-readonly", `file:${join(data, "khala.db")}?mode=ro`, query], { encoding: "utf8" }).trim();
}

/** A server on a data folder, and the operator to go with it. */
export async function operate(t, { settings = {}, data = folder(t), args = [], ...rest } = {}) {
  const server = await serve(t, { args: ["--data-dir", data, ...args], settings: { ...UNHURRIED, ...settings }, ...rest });
  const operator = new Operator(server, data);
  t.after(() => operator.close());
  return operator;
}

/** The one error body, and nothing stored. */
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
