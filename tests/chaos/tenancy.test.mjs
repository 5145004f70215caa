// Two tenants on one server: events of both are appended to runs, workers, notifications and
// application topics, while clients with random tokens subscribe to random topics over every dialect.
// Everything they receive is searched for the other tenant's names, event ids and cursors. Announced
// ranges have no gap, and in the end each principal reads exactly its own events. The run repeats with
// KHALA_CHAOS_SEED; KHALA_CHAOS_SUBSCRIPTIONS and KHALA_CHAOS_SECONDS limit the number and the time.
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import http from "node:http";
import { test } from "node:test";
import WebSocket from "ws";
import { operate } from "../lib/operator.mjs";
import { AUDIT_SOCKET, pollPath, snapshotPath, socketPath } from "../lib/paths.mjs";
import { seeded } from "../lib/seeded.mjs";
import { auditInit } from "../lib/socket.mjs";
import { tokenFor } from "../lib/token.mjs";
import { until, Watched, within } from "../lib/wait.mjs";

const SUBSCRIPTIONS = Number(process.env.KHALA_CHAOS_SUBSCRIPTIONS ?? 1000);
const SECONDS = Number(process.env.KHALA_CHAOS_SECONDS ?? 20);
const SEED = Number(process.env.KHALA_CHAOS_SEED ?? Date.now() % 1_000_000);
const CLIENTS = 24;
const BATCH = 16;
const EVENTS = 8000; // then they come one by one: what is searched stays bounded
const LOBBY = "lobby:1";
const SHARED = ["runtime.run_summaries", "runtime.codex_worker_summaries", "runtime.codex_worker_events", "runtime.notifications"];
const SCOPES = ["runtime.run_events", "runtime.codex_worker_events", "runtime.worker_lifecycle_events", "runtime.notifications", "runtime.audit"];
const PATTERNS = ["run:*:events", "worker:*:lifecycle", "fleet:user:*:workers", "fleet:guest:*:workers", "runtime.*", "lobby:*"];

const SETTINGS = {
  KHALA_WINDOW_FRAMES_MAX: "50",
  KHALA_WS_MESSAGES_PER_SECOND: "100000",
  KHALA_HEARTBEAT_MS: "200",
  KHALA_LOG_LEVEL: "warn",
  RUNTIME_KHALA_POLL_MIN_INTERVAL_MS: "0",
  RUNTIME_KHALA_SLOW_CONSUMER_LAG_THRESHOLD: "1000000",
  RUNTIME_KHALA_RUN_SUMMARIES_SNAPSHOT_CADENCE_SECONDS: "1",
  RUNTIME_KHALA_CODEX_WORKER_SUMMARIES_SNAPSHOT_CADENCE_SECONDS: "1",
  RUNTIME_KHALA_FALLBACK_REPLAY_BUDGET_EVENTS: "100000",
};

const { random, below, pick, some } = seeded(SEED);

// ---- who there is ----

/** A tenant: a user, a guest and an organisation, whose names all contain the tenant's tag. */
class Tenant {
  constructor(tag) {
    this.tag = tag;
    this.identities = {
      user: { tenant: this, owner: { owner_user_id: `${tag}-user` }, request: { user_id: `${tag}-user` } },
      guest: { tenant: this, owner: { owner_guest_scope: `${tag}-guest` }, request: { guest_scope: `${tag}-guest` } },
      org: { tenant: this, owner: { org_id: `${tag}-org` }, request: { org_id: `${tag}-org` } },
    };
    this.runs = [];
    this.workers = [];
    this.room = `${tag}:room`;
  }

  get topics() {
    return [...this.runs.map(({ id }) => `run:${id}:events`), ...this.workers.map(({ id }) => `worker:${id}:lifecycle`),
      `fleet:user:${this.tag}-user:workers`, `fleet:guest:${this.tag}-guest:workers`, this.room];
  }
}

const TENANTS = [new Tenant("crimson7f3a"), new Tenant("cobalt9b2e")];
const OWNERLESS = new Tenant("ownerless5d1c");
const other = (tenant) => TENANTS.find((one) => one !== tenant);

/** The owners of the acknowledged events. */
class Ledger {
  owners = new Map(); // event id → identity; null: anybody's who may read its topic
  ticks = 0;
  #waiting = [];

  acknowledge(event, identity) {
    this.owners.set(event.event_id, identity);
  }

  tick() {
    this.ticks++;
    this.#waiting = this.#waiting.filter((one) => !one());
  }

  /** Resolves after so many further batches, or at the end of the writer. */
  news(count, state) {
    const goal = this.ticks + count;
    return new Promise((resolve) => {
      this.#waiting.push(() => (this.ticks >= goal || state.over) && (resolve(), true));
    });
  }
}

// ---- the writer ----

async function found(operator, ledger, tenant, identity) {
  const number = tenant.runs.length + tenant.workers.length;
  const run = { id: `${tenant.tag}-run${number}`, identity };
  ledger.acknowledge((await operator.did("runs", { run_id: run.id, ...identity.owner }, 201)).event, identity);
  tenant.runs.push(run);
  if (identity.owner.org_id) return;
  const worker = { id: `${tenant.tag}-worker${number}`, identity };
  ledger.acknowledge((await operator.did("workers", { worker_id: worker.id, ...identity.owner }, 201)).event, identity);
  tenant.workers.push(worker);
}

/** A random item of a batch, and the owner of its event. */
function invent() {
  const tenant = random() < 0.1 ? OWNERLESS : pick(TENANTS);
  const payload = { note: `${tenant.tag}-${below(1e9)}` };
  const identity = tenant === OWNERLESS ? { tenant, owner: {} } : pick(Object.values(tenant.identities));
  const kind = below(tenant === OWNERLESS ? 1 : 5);
  if (kind === 1 || (kind === 0 && tenant.runs.length > 0 && random() < 0.3)) {
    const run = pick(tenant.runs);
    return { item: { run_id: run.id, event_type: "run.log", payload }, identity: run.identity };
  }
  if (kind === 2) {
    const worker = pick(tenant.workers);
    return { item: { worker_id: worker.id, event_type: "worker.note", payload }, identity: worker.identity };
  }
  if (kind === 3) return { item: { topic: tenant.room, event_type: "said", payload, ...identity.owner }, identity };
  if (kind === 4 && random() < 0.5) {
    return { item: { topic: LOBBY, event_type: "said", payload: { note: "for everybody" } }, identity: null };
  }
  if (kind === 4) return { item: { topic: LOBBY, event_type: "said", payload, ...identity.owner }, identity };
  return { item: { topic: "runtime.notifications", event_type: "notification", payload, ...identity.owner }, identity };
}

async function write(operator, ledger, state) {
  while (!state.over) {
    if (random() < 0.05) {
      const tenant = pick(TENANTS);
      await found(operator, ledger, tenant, pick(Object.values(tenant.identities)));
    }
    const invented = Array.from({ length: ledger.owners.size < EVENTS ? BATCH : 1 }, invent);
    const answers = await operator.batch(invented.map(({ item }) => item));
    for (const [i, { status, event, error }] of answers.entries()) {
      assert.equal(status, 200, JSON.stringify(error));
      ledger.acknowledge(event, invented[i].identity);
    }
    ledger.tick();
  }
  ledger.tick();
}

// ---- the search ----

const UUID = /[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}/g;
const CURSOR = /[A-Za-z0-9_-]{60,80}/g;

/** A client: what it received, and the names it asked for, which answers may repeat. */
class Client {
  bytes = 0;
  ids = new Set();
  refusals = 0;

  constructor(tenant, token, asked, what) {
    Object.assign(this, { tenant, token, what });
    this.asked = asked.flatMap((name) => [name, name.replaceAll(":", ".")]);
  }

  /** Searches one message or body. */
  receive(text) {
    this.bytes += text.length;
    let rest = text;
    for (const name of this.asked) rest = rest.replaceAll(name, "");
    for (const { tag } of [other(this.tenant), OWNERLESS]) {
      const at = rest.indexOf(tag);
      assert.ok(at < 0, `seed ${SEED}: ${this.what} of ${this.tenant.tag} received ${rest.slice(Math.max(0, at - 200), at + 100)}`);
    }
    for (const [id] of text.matchAll(UUID)) this.ids.add(id);
    for (const [cursor] of text.matchAll(CURSOR)) {
      for (const [id] of Buffer.from(cursor, "base64url").toString("latin1").matchAll(UUID)) this.ids.add(id);
    }
  }

  /** Asserts that no received id belongs to another tenant. */
  judge(ledger) {
    for (const id of this.ids) {
      const identity = ledger.owners.get(id);
      if (identity) assert.equal(identity.tenant.tag, this.tenant.tag, `seed ${SEED}: ${this.what} received the id ${id}`);
    }
  }
}

/** The ranges of a topic, which must be consecutive. */
class Cover {
  at = null;

  take(after, through, what) {
    if (this.at !== null) assert.equal(after, this.at, `seed ${SEED}: ${what}: behind ${this.at} comes what begins behind ${after}`);
    assert.ok(through >= after, what);
    this.at = through;
  }

  /** Takes the position that a heartbeat covers. */
  cover(through, what) {
    assert.ok(through >= this.at, `seed ${SEED}: ${what}: a heartbeat covers ${through} after ${this.at}`);
    if (this.at !== null) this.at = through;
  }
}

// ---- the dialects ----

const place = (operator) => ({ host: operator.server.host, port: operator.server.port });

async function request(operator, client, method, path, body) {
  const response = await operator.ask(method, path, body, { authorization: `Bearer ${client.token}` });
  client.receive(JSON.stringify(response.headers));
  client.receive(response.body);
  if (response.status === 200) return response.body;
  // A cursor beyond the replay budget is stale for every principal.
  assert.ok(response.status === 403 || (response.status === 410 && path.includes("after_seq=")) || (response.status === 404 && path.includes("/tree")),
    response.body);
  client.refusals += response.status === 403 ? 1 : 0;
  return null;
}

/** Opens a WebSocket whose messages are searched and passed on; null when it is refused. */
async function socket(operator, client, path, take) {
  const ws = new WebSocket(`ws://${operator.server.host}:${operator.server.port}${path}`, { perMessageDeflate: random() < 0.5 });
  const line = Object.assign(new Watched(), { ws, problem: null, closed: null });
  operator.server.peers.push({ close: () => ws.terminate() });
  ws.on("error", () => {});
  ws.on("message", (data) => {
    try {
      client.receive(data.toString());
      take(JSON.parse(data));
    } catch (error) {
      line.problem ??= error;
    }
    line.changed();
  });
  ws.on("close", (code, reason) => {
    client.receive(reason.toString());
    line.closed = code;
    line.changed();
  });
  line.came = (ready, what) => line.until(() => {
    if (line.problem) throw line.problem;
    return ready() || line.closed !== null;
  }, `${client.what}: ${what}`);
  const opened = await new Promise((resolve) => {
    ws.once("open", () => resolve(true));
    ws.once("unexpected-response", (_, response) => {
      const pieces = [];
      response.on("data", (piece) => pieces.push(piece));
      response.on("end", () => {
        client.receive(Buffer.concat(pieces).toString());
        assert.equal(response.statusCode, 403);
        client.refusals++;
        resolve(false);
      });
    });
  });
  return opened ? line : null;
}

const DIALECTS = {
  async phoenix(operator, client, topics, state) {
    const covers = new Map(topics.map((topic) => [topic, new Cover()]));
    const complete = new Set();
    const replies = new Map();
    const frames = random() < 0.3;
    const line = await socket(operator, client, `/socket/websocket?vsn=2.0.0&token=${client.token}`, ([, ref, , event, payload]) => {
      if (event === "phx_reply") replies.set(ref, payload);
      if (event === "sync:frame") client.receive(Buffer.from(payload.payload_bytes, "base64").toString());
      if (event === "sync:snapshot" && payload.last) covers.get(payload.topic).at = payload.watermark;
      if (event === "sync:heartbeat") for (const { topic, through } of payload.covered) covers.get(topic).cover(through, client.what);
      if (event !== "sync:update_batch") return;
      covers.get(payload.topic).take(payload.after, payload.through, client.what);
      if (payload.replay_complete) complete.add(payload.topic);
    });
    const ask = async (ref, event, payload) => {
      line.ws.send(JSON.stringify(["1", ref, "sync:v1", event, payload]));
      await line.came(() => replies.has(ref), `the reply to ${event}`);
      return replies.get(ref);
    };
    await ask("1", "phx_join", {});
    const resume_after = Object.fromEntries(some(topics, 0.7).map((topic) => [topic, below(3)]));
    const { status, response } = await ask("2", "sync:subscribe", { topics, resume_after, frames, replay_batch_size: 1 + below(1000) });
    if (status === "ok") {
      await line.came(() => complete.size === topics.length || frames, "the replay");
      await state.ledger.news(1 + below(4), state);
      await ask("3", "sync:heartbeat", {});
    } else {
      assert.ok(["forbidden_topic", "stale_cursor"].includes(response.code), JSON.stringify(response));
      client.refusals++;
    }
    if (line.problem) throw line.problem;
    line.ws.terminate();
  },

  async topic_ws(operator, client, [topic], state) {
    const cover = new Cover();
    const after = random() < 0.5 ? `&after_seq=${below(3)}` : "";
    const path = socketPath(topic, `token=${client.token}${after}`);
    const line = await socket(operator, client, path, (one) => {
      if (one.type === "hello") cover.at = one.after_seq ?? null;
      if (one.type === "snapshot" && one.last) cover.at = one.watermark;
      if (one.type === "message") cover.take(one.after, one.sequence, client.what);
      if (one.type === "progress") cover.take(one.after, one.through, client.what);
    });
    if (!line) return;
    await state.ledger.news(2 + below(4), state);
    if (line.problem) throw line.problem;
    line.ws.terminate();
  },

  async audit_ws(operator, client, _, state) {
    let caught = false;
    const line = await socket(operator, client, AUDIT_SOCKET, (one) => { caught ||= one.type === "replay_complete"; });
    const filters = random() < 0.3 ? { filters: { entities: ["run"] } } : {};
    line.ws.send(JSON.stringify(auditInit(client.token, filters)));
    await line.came(() => caught, "the replay");
    if (line.closed !== null) {
      client.refusals++;
      return;
    }
    await state.ledger.news(2 + below(20), state);
    if (line.problem) throw line.problem;
    line.ws.terminate();
  },

  async sse(operator, client, [topic], state) {
    const path = random() < 0.3 ? "/events?" : `/v1/topics/${encodeURIComponent(topic)}/sse?${random() < 0.5 ? "after_seq=0&" : ""}`;
    const opened = http.get({ ...place(operator), path: `${path}token=${client.token}`, agent: false });
    operator.server.peers.push({ close: () => opened.destroy() });
    opened.on("error", () => {});
    const response = await within(new Promise((resolve) => opened.once("response", resolve)), client.what);
    const pieces = [];
    response.on("data", (piece) => pieces.push(piece));
    response.on("error", () => {});
    if (response.statusCode === 200) {
      await state.ledger.news(2 + below(4), state);
    } else {
      assert.equal(response.statusCode, 403);
      client.refusals++;
      await within(new Promise((resolve) => response.once("end", resolve)), client.what);
    }
    opened.destroy();
    client.receive(Buffer.concat(pieces).toString());
  },

  async poll(operator, client, [topic]) {
    const cover = new Cover();
    for (let after = below(3), pages = 1 + below(6); pages > 0; pages--) {
      const body = await request(operator, client, "GET",
        pollPath(topic, `after_seq=${after}&limit=${1 + below(200)}&wait_ms=${below(2) * 50}`));
      if (body === null) return;
      const page = JSON.parse(body);
      cover.take(after, page.next_cursor, client.what);
      assert.ok(page.messages.every((one) => one.sequence > after && one.sequence <= page.next_cursor));
      after = page.next_cursor;
    }
  },

  async snapshot(operator, client) {
    await request(operator, client, "GET", snapshotPath(pick(SHARED.slice(0, 2))));
  },

  async list(operator, client) {
    for (let query = "", pages = 1 + below(5); pages > 0; pages--) {
      const body = await request(operator, client, "GET", `/api/events?limit=${1 + below(200)}${query}`);
      if (body === null) return;
      const { next_cursor } = JSON.parse(body);
      query = next_cursor ? `&after_cursor=${next_cursor}` : "";
    }
  },

  /** Rows of runs and workers, and the tree of a run. */
  async rows(operator, client, [topic]) {
    const [kind, id] = pick([["runs", "run_id"], ["workers", "worker_id"]]);
    const filter = pick(["", "", `&owner_user_id=${pick(TENANTS).tag}-user`, "&created_after=1h", "&count=true"]);
    const sort = `sort=${pick(["", "-"])}${pick(["updated_at", "created_at", id])}`;
    for (let query = "", pages = 1 + below(5); pages > 0 && query !== null; pages--) {
      const body = await request(operator, client, "GET", `/v1/${kind}?${sort}${filter}&limit=${1 + below(20)}${query}`);
      if (body === null) break;
      const { next_cursor } = JSON.parse(body);
      query = next_cursor && `&after=${next_cursor}`;
    }
    if (topic.startsWith("run:")) await request(operator, client, "GET", `/v1/runs/${topic.split(":")[1]}/tree`);
  },

  async export(operator, client) {
    await request(operator, client, "GET", `/api/events/export?format=${pick(["ndjson", "csv"])}`);
  },

  async plan(operator, client, topics) {
    const cursors = topics.map((topic) => ({ topic, watermark: below(4) }));
    const body = await request(operator, client, "POST", "/v1/cursors/plan", JSON.stringify(cursors));
    client.refusals += JSON.parse(body).plans.filter((one) => one.decision === "denied").length > 0 ? 1 : 0;
  },
};

/** A request for a token of a random principal of the tenant, with random scopes and grants. */
function grantOf(tenant) {
  const { user, guest, org } = tenant.identities;
  const request = pick([user.request, guest.request, org.request, { ...user.request, ...org.request }]);
  const grants = pick([{}, {}, {}, { topics: [...PATTERNS, tenant.room] }, { topics: [LOBBY, tenant.room] },
    // No more than a token has room for.
    { topics: [...some(tenant.topics, 0.5), ...some(SHARED, 0.8), LOBBY, "runtime.audit"].slice(-100) }]);
  return { ...request, scopes: some(SCOPES, 0.8), ...grants };
}

async function subscribe(operator, state) {
  const tenant = pick(TENANTS);
  const dialect = pick(Object.keys(DIALECTS));
  const pool = () => pick([() => pick(tenant.topics), () => pick(tenant.topics), () => pick(SHARED), () => pick(SHARED), () => LOBBY,
    () => pick(other(tenant).topics), () => `run:${randomUUID()}:events`])();
  const honest = random() < 0.7;
  const topics = [...new Set(Array.from({ length: 1 + below(4) }, () => (honest ? pick([pick(tenant.topics), pick(SHARED), LOBBY]) : pool())))];
  const client = new Client(tenant, tokenFor(operator, grantOf(tenant)), topics, `${dialect} of ${topics.join()}`);
  state.clients.push(client);
  await DIALECTS[dialect](operator, client, topics, state);
  client.token = null;
}

// ---- the end ----

/** Asserts that each principal reads exactly its own events in the order of the log. */
async function settle(operator, ledger) {
  const everything = (await operator.get("/api/events/export")).body.trim().split("\n").slice(0, -1).map((line) => JSON.parse(line).event_id);
  for (const tenant of TENANTS) {
    for (const identity of Object.values(tenant.identities)) {
      const own = everything.filter((id) => ledger.owners.get(id) === identity);
      const client = new Client(tenant, tokenFor(operator, { ...identity.request, scopes: SCOPES }), [], "the end");
      const exported = (await request(operator, client, "GET", "/api/events/export")).trim().split("\n").slice(0, -1);
      assert.deepEqual(exported.map((line) => JSON.parse(line).event_id), own, `seed ${SEED}: the export of ${JSON.stringify(identity.request)}`);
      const listed = [];
      for (let query = ""; ;) {
        const page = JSON.parse(await request(operator, client, "GET", `/api/events?limit=200${query}`));
        listed.push(...page.items.map((one) => one.event_id));
        if (!page.has_more) break;
        query = `&after_cursor=${page.next_cursor}`;
      }
      assert.deepEqual(listed, own, `seed ${SEED}: the list of ${JSON.stringify(identity.request)}`);
      const { documents } = JSON.parse(await request(operator, client, "GET", snapshotPath("runtime.run_summaries")));
      const runs = tenant.runs.filter((run) => run.identity === identity).map((run) => run.id);
      assert.deepEqual(documents.map((one) => one.payload.run_id).sort(), runs.sort());
      const rows = [];
      for (let query = ""; ;) {
        const page = JSON.parse(await request(operator, client, "GET", `/v1/runs?sort=-updated_at&limit=20${query}`));
        rows.push(...page.items.map((one) => one.run_id));
        if (!page.has_more) break;
        query = `&after=${page.next_cursor}`;
      }
      assert.deepEqual(rows.sort(), runs, `seed ${SEED}: the runs of ${JSON.stringify(identity.request)}`);
      client.judge(ledger);
    }
  }
}

test("no client receives an event of another tenant", async (t) => {
  t.diagnostic(`seed ${SEED}`);
  const operator = await operate(t, { settings: SETTINGS });
  const ledger = new Ledger();
  const state = { over: false, ledger, clients: [] };
  for (const tenant of TENANTS) {
    for (const identity of Object.values(tenant.identities)) {
      await found(operator, ledger, tenant, identity);
      await found(operator, ledger, tenant, identity);
    }
  }
  const writing = write(operator, ledger, state);
  writing.catch(() => { state.over = true; ledger.tick(); });
  const deadline = Date.now() + SECONDS * 1000;
  const work = async () => {
    while (!state.over && state.clients.length < SUBSCRIPTIONS && Date.now() < deadline) await subscribe(operator, state);
  };
  await Promise.all(Array.from({ length: CLIENTS }, work)).finally(() => { state.over = true; });
  await writing;
  for (const client of state.clients) client.judge(ledger);
  // An older snapshot would lack the last runs until its cadence ends.
  await until(async () => (await operator.read(snapshotPath("runtime.run_summaries"))).documents.length
    >= TENANTS[0].runs.length + TENANTS[1].runs.length, "a snapshot with every run");
  await settle(operator, ledger);
  const read = state.clients.filter((client) => [...client.ids].some((id) => ledger.owners.has(id))).length;
  const refused = state.clients.filter((client) => client.refusals > 0).length;
  const bytes = state.clients.reduce((sum, client) => sum + client.bytes, 0);
  t.diagnostic(`${state.clients.length} subscriptions, ${read} read something, ${refused} refused something, ${bytes} bytes searched, ${ledger.owners.size} events`);
  assert.ok(state.clients.length >= Math.min(SUBSCRIPTIONS, 200), `only ${state.clients.length} subscriptions`);
  assert.ok(read > state.clients.length / 4 && refused > state.clients.length / 20, `${read} read, ${refused} were refused`);
});
