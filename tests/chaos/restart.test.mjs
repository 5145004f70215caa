// Orderly restarts under a thousand live clients of every dialect and several tenants, while
// appends go on: readiness turns first, every client is told when to come back, each another time,
// comes back then and resumes behind its own cursor. In the end each saw what the log holds for it,
// whole and in order; what was acknowledged is in the log; nobody was told that it is stale. Beside
// them clients that never read, and requests that are half sent, which must not keep a server from
// ending. KHALA_CHAOS_CLIENTS and KHALA_CHAOS_RESTARTS set how many.
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import net from "node:net";
import { test } from "node:test";
import { Socket as PhoenixSocket } from "phoenix";
import WebSocket from "ws";
import { assertError, connect, folder, run, within } from "../lib/khala.mjs";
import { operate } from "../lib/operator.mjs";
import { Stream } from "../lib/sse.mjs";
import { handshake } from "../lib/socket.mjs";

const CLIENTS = Number(process.env.KHALA_CHAOS_CLIENTS ?? 1000);
const RESTARTS = Number(process.env.KHALA_CHAOS_RESTARTS ?? 3);
const TENANTS = ["ada", "bob", "eve", "joe", "zoe"];
const RUNS = TENANTS.flatMap((tenant) => [0, 1, 2, 3].map((i) => `${tenant}-${i}`));
const ROOMS = ["room:0", "room:1"];
const FAT = "ada-fat";
const SUMMARIES = "runtime.run_summaries";
const LOG = "the log";
const WRITERS = 4;
const APPENDS = 300; // between two restarts, at least
const RESTARTING = 1012;

// A busy machine may take its time over a thousand clients; nothing here is about how long.
const WAIT_MS_MAX = 90_000;

const cutsOff = (round) => round === RESTARTS && RESTARTS > 1;

/** Of the server that the round ends. The first can be seen to be unready; the last cuts off who does not finish. */
const settingsOf = (round) => ({
  KHALA_SHUTDOWN_DELAY_MS: round === 1 ? "3000" : "0",
  KHALA_SHUTDOWN_GRACE_MS: cutsOff(round) ? "3000" : "600000",
  KHALA_REQUEST_TIMEOUT_MS: "600000",
  KHALA_SLOW_CONSUMER_CHECK_MS: "3600000", // those that never read shall be there when it ends
  RUNTIME_KHALA_POLL_MIN_INTERVAL_MS: "0",
});

const pause = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));
const ownerOf = (run_id) => run_id.split("-")[0];

/** A port that no connection is made from: one to a port nobody listens on could meet itself. */
async function fixedPort() {
  for (;;) {
    const port = 10_000 + Math.floor(Math.random() * 20_000);
    const probe = net.createServer();
    const free = await new Promise((resolve) => probe.once("error", () => resolve(false)).listen(port, "127.0.0.1", () => resolve(true)));
    if (free) await new Promise((resolve) => probe.close(resolve));
    if (free) return port;
  }
}

/** What one client saw of one topic, without what it saw before. */
class Track {
  at = 0;
  seen = [];

  constructor(topic) {
    this.topic = topic;
  }

  /** Everything behind `after` up to what follows is told. */
  covers(after) {
    assert.ok(after <= this.at, `${this.topic}: what is told begins behind ${after}, the client stands at ${this.at}`);
  }

  take(seq, id) {
    if (seq <= this.at) {
      assert.ok(this.seen.includes(`${seq}:${id}`), `${this.topic}: ${seq} is another event the second time`);
      return;
    }
    this.at = seq;
    this.seen.push(`${seq}:${id}`);
  }

  /** Where nothing is hidden each follows the one before. */
  next(seq, id) {
    this.covers(seq - 1);
    this.take(seq, id);
  }

  passed(seq) {
    this.at = Math.max(this.at, seq);
  }
}

class LogTrack extends Track {
  at = null;
  #ids = new Set();

  event(event) {
    this.at = event.cursor;
    if (this.#ids.has(event.event_id)) return;
    this.#ids.add(event.event_id);
    this.seen.push(event.event_id);
  }
}

/** A client: it is live, is told when to come back, and does. Each kind has its own session(). */
class Follower {
  sessions = 0; // that were live
  isLive = false;
  told = []; // when to come back, once a restart
  refused = 0;
  deflates = false;
  #waiting = [];

  constructor(world, tenant, topics) {
    this.world = world;
    this.tenant = tenant;
    this.tracks = new Map(topics.map((topic) => [topic, topic === LOG ? new LogTrack(topic) : new Track(topic)]));
  }

  get track() {
    return this.tracks.values().next().value;
  }

  get name() {
    return `${this.constructor.name} of ${this.tenant} on ${[...this.tracks.keys()]}`;
  }

  token() {
    const { operator } = this.world;
    const room = [...this.tracks.keys()].find((topic) => ROOMS.includes(topic));
    if (this.tenant === null) return operator.reader;
    return operator.sign({ oa_user_id: this.tenant, oa_sync_scopes: ["runtime.run_events", "runtime.audit"], ...(room ? { oa_sync_topics: [room] } : {}) });
  }

  began() {
    this.sessions++;
    this.isLive = true;
    this.tell();
  }

  tell() {
    if (this.#waiting.length > 0) this.#waiting = this.#waiting.filter((one) => !one());
  }

  guard(take) {
    return (...given) => {
      try {
        if (!this.world.over) take(...given);
      } catch (error) {
        this.world.fail(error, this);
      }
      this.tell();
    };
  }

  until(ready, what) {
    const done = new Promise((resolve, reject) => {
      const look = () => {
        if (this.world.problem) reject(this.world.problem);
        else if (ready()) resolve();
        else return false;
        return true;
      };
      if (!look()) this.#waiting.push(look);
    });
    return within(done, `${this.name}: ${what}`, WAIT_MS_MAX);
  }

  /** What it is told at the end of a session that was live; the code where the dialect has one. */
  leaves(hint, code) {
    assert.ok(Number.isInteger(hint), `${this.name} was sent away without a word: ${code}`);
    if (code !== undefined) assert.equal(code, RESTARTING, this.name);
    this.told.push(hint);
    this.isLive = false;
    this.world.firstTold ??= this;
  }

  async live() {
    while (!this.world.over) {
      const sessions = this.sessions;
      await this.session();
      if (this.world.over) return;
      if (this.sessions === sessions) this.refused++;
      await pause(this.told.at(-1) ?? 400);
    }
  }

  socket(path) {
    const ws = new WebSocket(`ws://127.0.0.1:${this.world.port}${path}`, 
      { perMessageDeflate: this.deflates, headers: { authorization: `Bearer ${this.token()}` } });
    this.end = () => ws.terminate();
    ws.on("error", () => {});
    return ws;
  }

  /** Messages go to take, which answers the hint when it is one, until the socket closes. */
  hear(ws, take) {
    let hint;
    ws.on("message", this.guard((data) => { hint = take(JSON.parse(data)) ?? hint; }));
    return new Promise((resolve) => ws.on("close", this.guard((code) => {
      resolve();
      if (this.isLive) this.leaves(hint, code);
    })));
  }

  close() {
    this.end?.();
  }
}

/** Batches and errors of the Phoenix dialect; answers the hint. */
function pushed(follower, event, payload) {
  if (event === "sync:error") {
    assert.equal(payload.code, "shutting_down", `${follower.name}: ${JSON.stringify(payload)}`);
    return payload.reconnect_after_ms;
  }
  if (event !== "sync:update_batch") return undefined;
  const track = follower.tracks.get(payload.topic);
  track.covers(payload.after);
  for (const one of payload.updates) track.take(one.watermark, one.event_id);
  track.passed(payload.through);
  return undefined;
}

function subscription(follower) {
  const resume_after = Object.fromEntries([...follower.tracks].map(([topic, track]) => [topic, track.at]));
  return { topics: Object.keys(resume_after), resume_after, ...(follower.epoch ? { epoch: follower.epoch } : {}) };
}

class Phoenix extends Follower {
  session() {
    const ws = this.socket("/socket/websocket?vsn=2.0.0");
    const say = (ref, event, payload) => ws.send(JSON.stringify(["1", ref, "sync:v1", event, payload]));
    ws.on("open", () => {
      say("1", "phx_join", {});
      say("2", "sync:subscribe", subscription(this));
    });
    return this.hear(ws, ([, ref, , event, payload]) => {
      if (event !== "phx_reply") return pushed(this, event, payload);
      assert.equal(payload.status, "ok", `${this.name}: ${JSON.stringify(payload)}`);
      this.epoch ??= payload.response.epoch;
      if (ref === "2") this.began();
      return undefined;
    });
  }
}

/** The npm client, which comes back by itself: it only has to be told when. */
class PhoenixClient extends Follower {
  live() {
    const socket = new PhoenixSocket(`ws://127.0.0.1:${this.world.port}/socket`, {
      transport: WebSocket, params: () => ({ token: this.token() }), reconnectAfterMs: () => this.told.at(-1) ?? 400, rejoinAfterMs: () => 10,
    });
    const channel = socket.channel("sync:v1", {});
    let hint;
    for (const event of ["sync:update_batch", "sync:error"]) {
      channel.on(event, this.guard((payload) => { hint = pushed(this, event, payload) ?? hint; }));
    }
    channel.join().receive("ok", this.guard(({ epoch }) => {
      this.epoch ??= epoch;
      channel.push("sync:subscribe", subscription(this)).receive("ok", this.guard(() => this.began()))
        .receive("error", (body) => this.world.fail(new Error(JSON.stringify(body)), this));
    }));
    socket.onClose(this.guard(({ code }) => {
      if (this.isLive) this.leaves(hint, code);
      else this.refused++;
      hint = undefined;
    }));
    this.end = () => {
      socket.disconnect();
      socket.reconnectTimer.reset();
    };
    socket.connect();
  }
}

class TopicSocket extends Follower {
  session() {
    const ws = this.socket(`/internal/v1/khala/topics/${encodeURIComponent(this.track.topic)}/ws?after_seq=${this.track.at}`);
    return this.hear(ws, (one) => {
      if (one.type === "hello") {
        assert.equal(one.after_seq, this.track.at, `${this.name}: ${JSON.stringify(one)}`);
        this.began();
      } else if (one.type === "message") {
        this.track.covers(one.after);
        this.track.take(one.sequence, one.event_id);
      } else {
        assert.equal(one.code, "shutting_down", `${this.name}: ${JSON.stringify(one)}`);
        return one.reconnect_after_ms;
      }
      return undefined;
    });
  }
}

class AuditSocket extends Follower {
  session() {
    const ws = this.socket("/api/events/stream");
    ws.on("open", () => ws.send(JSON.stringify({ type: "init", version: 1, capability: this.token(), nonce: randomUUID(), ts: Date.now(),
      ...(this.track.at ? { after_cursor: this.track.at } : {}) })));
    return this.hear(ws, (one) => {
      if (one.type === "init_ack") this.began();
      else if (one.type === "event") this.track.event(one.event);
      else assert.match(one.type, /^(replay_complete|heartbeat|reconnect)$/, `${this.name}: ${JSON.stringify(one)}`);
      return one.type === "reconnect" ? one.retry_after_ms : undefined;
    });
  }
}

/** An event stream of a topic, or of the log. */
class EventStream extends Follower {
  lastId = "";

  async session() {
    const isLog = this.track instanceof LogTrack;
    const path = isLog ? "/events" : `/v1/topics/${encodeURIComponent(this.track.topic)}/sse?after_seq=0`;
    const headers = { authorization: `Bearer ${this.token()}`, ...(this.lastId ? { "last-event-id": this.lastId } : {}) };
    const stream = await Stream.open(this.world.operator, path, headers).catch(() => null);
    if (!stream) return;
    this.end = () => stream.close();
    assert.equal(stream.status, 200);
    this.began();
    const take = this.guard((event) => {
      if (event.type === "progress") {
        this.track.covers(event.data.after);
        this.track.passed(event.data.through);
      } else {
        assert.equal(event.type, "message", `${this.name}: ${JSON.stringify(event)}`);
        if (isLog) this.track.event(event.data);
        else if (this.track.topic === SUMMARIES) this.track.take(event.data.sequence, event.data.event_id);
        else this.track.next(event.data.sequence, event.data.event_id);
      }
      this.lastId = event.id;
    });
    while (!stream.ended || stream.events.length > 0) {
      await stream.until((one) => one.events.length > 0 || one.ended, "an event or the end", 600_000);
      for (const event of stream.events.splice(0)) take(event);
    }
    this.guard(() => this.leaves(stream.retries > 1 ? stream.retry : undefined))();
  }
}

/** Long polls of a topic where little happens, so that they wait when the server ends. */
class Poll extends Follower {
  async session() {
    for (const begun = this.sessions; !this.world.over;) {
      const path = `khala/topics/${encodeURIComponent(this.track.topic)}/messages?after_seq=${this.track.at}&wait_ms=${this.sessions === begun ? 0 : 60_000}`;
      const response = await this.world.operator.ask("GET", path, undefined, { authorization: `Bearer ${this.token()}` }).catch(() => null);
      if (!response) return;
      if (this.sessions === begun) this.began();
      let page;
      this.guard(() => {
        assert.equal(response.status, 200, `${this.name}: ${response.body}`);
        page = JSON.parse(response.body);
        for (const one of page.messages) this.track.next(one.sequence, one.event_id);
        if (response.headers.connection === "close") this.leaves(page.recommended_reconnect_backoff_ms);
      })();
      if (!this.isLive) return;
    }
  }
}

/** What was sent, what was acknowledged, and what the end of a server left in the dark. */
class Ledger {
  sent = new Map();
  acknowledged = new Map();
  unknown = []; // asked again, with the same id
  left = 0; // not asked again: there or not

  make(target) {
    const id = randomUUID().replace(/^.{15}/, `${Date.now().toString(16).padStart(12, "0").replace(/^(.{8})/, "$1-")}-7`);
    const event = { id, n: this.sent.size, ...target };
    this.sent.set(id, event);
    return event;
  }

  acknowledge(event, answer) {
    assert.equal(answer.event.event_id, event.id);
    this.acknowledged.set(event.id, answer.event.seq);
  }

  keep(event) {
    if (event.n % 2 === 0) this.unknown.push(event);
    else this.left++;
  }
}

const body = ({ id, n, pad }) => ({ event_type: "step", event_id: id, payload: { n, ...(pad ? { pad } : {}) } });

async function appendOne(world, event) {
  const response = await world.operator.post(event.run_id ? `runs/${event.run_id}/events` : `topics/${event.topic}/events`, body(event));
  if (response.status === 200) world.ledger.acknowledge(event, JSON.parse(response.body));
  else refused(world, response, [event]);
}

/** An answer that is no must say why. */
function refused(world, response, events) {
  assert.equal(response.status, 503, response.body);
  assert.match(JSON.parse(response.body).error, /^(shutting_down|store_unavailable)$/);
  for (const event of events) world.ledger.keep(event);
}

const line = ({ run_id, topic, ...event }) => `${JSON.stringify({ ...(run_id ? { run_id } : { topic }), ...body(event) })}\n`;

async function appendBatch(world, events) {
  const response = await world.operator.ask("POST", "events:batch", events.map(line).join(""), { "content-type": "application/x-ndjson" });
  if (response.status !== 200) refused(world, response, events);
  else answered(world, events, response.body);
}

function answered(world, events, text) {
  const items = text.trim().split("\n").map((one) => JSON.parse(one));
  assert.equal(items.length, events.length);
  items.forEach((item, i) => {
    assert.equal(item.status, 200, JSON.stringify(item));
    world.ledger.acknowledge(events[i], item);
  });
}

/** Appends all the time, at a pace that leaves the machine some for a thousand clients. */
async function write(world, writer) {
  const { ledger } = world;
  for (let round = 0; !world.quiet; round++) {
    const again = ledger.unknown.splice(0, 10);
    const target = (i) => ((round + i) % 10 === 0 ? { topic: ROOMS[writer % 2] } : { run_id: RUNS[(round * WRITERS + writer + i) % RUNS.length] });
    const events = again.length > 0 ? again : Array.from({ length: round % 8 === 0 ? 10 : 1 }, (_, i) => ledger.make(target(i)));
    try {
      if (events.length === 1) await appendOne(world, events[0]);
      else await appendBatch(world, events);
    } catch (error) {
      if (error instanceof assert.AssertionError) throw error;
      for (const event of events) if (!ledger.acknowledged.has(event.id)) ledger.keep(event);
    }
    await pause(15);
  }
}

class World {
  ledger = new Ledger();
  followers = [];
  over = false;
  quiet = false;
  problem = null;

  fail(error, follower) {
    this.problem ??= Object.assign(error, { message: `${follower.name}: ${error.message}` });
    for (const one of this.followers) one.tell();
  }

  add(Kind, count, tenantOf, topicsOf) {
    for (let i = 0; i < count; i++) {
      const tenant = tenantOf(i);
      this.followers.push(new Kind(this, tenant, topicsOf(i, tenant)));
    }
  }

  all(ready, what) {
    return Promise.all(this.followers.map((one) => one.until(() => ready(one), what)));
  }
}

/** Who follows what: every dialect, and most of them many times. */
function populate(world) {
  const tenant = (i) => TENANTS[i % TENANTS.length];
  const ownRun = (i, owner) => [`run:${owner}-${Math.floor(i / TENANTS.length) % 4}:events`];
  const runOrRoom = (i, owner) => (i % 8 === 7 ? [ROOMS[(i >> 3) % 2]] : ownRun(i, owner));
  world.add(Poll, 10, tenant, (i, owner) => [`run:${owner}-quiet:events`]);
  world.add(AuditSocket, 20, (i) => (i % 2 ? null : tenant(i)), () => [LOG]);
  world.add(EventStream, 10, (i) => (i % 2 ? null : tenant(i)), () => [LOG]);
  world.add(PhoenixClient, 20, tenant, ownRun);
  world.add(Phoenix, 30, tenant, (i, owner) => [...ownRun(i, owner), SUMMARIES]);
  world.add(EventStream, 10, tenant, () => [SUMMARIES]);
  const rest = CLIENTS - world.followers.length;
  world.add(EventStream, Math.floor(rest / 4), tenant, runOrRoom);
  world.add(TopicSocket, Math.floor(rest / 4), tenant, runOrRoom);
  world.add(Phoenix, CLIENTS - world.followers.length, tenant, ownRun);
}

/** Hints that all fell into one part of the time would bring everybody back at once. */
function assertSpread(hints, windowMs, what) {
  const [least, most] = [Math.min(...hints), Math.max(...hints)];
  assert.ok(most - least >= windowMs, `${what}: all within ${most - least} ms`);
  const tenths = Array(10).fill(0);
  for (const hint of hints) tenths[Math.min(9, Math.floor(((hint - least) * 10) / (most - least)))]++;
  assert.ok(Math.max(...tenths) < hints.length * 0.2 && Math.min(...tenths) > 0, `${what}: tenths of the time get ${tenths}`);
  return tenths;
}

/** A connection on which the first half of a request has come, and been read. */
async function halfway(world, request, cut) {
  const peer = await connect(world.operator.server);
  await peer.send(`GET /healthz/live HTTP/1.1\r\nHost: x\r\n\r\n${request.slice(0, -cut)}`);
  assert.equal((await peer.response()).status, 200);
  return { peer, finish: () => peer.send(request.slice(-cut)) };
}

function request(world, event) {
  const text = JSON.stringify(body(event));
  return `POST /internal/v1/runs/${event.run_id}/events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${world.operator.key}\r\n`
    + `Content-Length: ${text.length}\r\n\r\n${text}`;
}

/** Sockets that are behind by megabytes and never read. */
async function deaf(world) {
  for (let i = 0; i < 4; i++) {
    const peer = await connect(world.operator.server);
    peer.socket.pause();
    await peer.send(handshake(`/internal/v1/khala/topics/run:${FAT}:events/ws?after_seq=0&token=${world.operator.reader}`));
  }
}

/** Requests that are under way when the server is told to end, and what is to become of them. */
async function underWay(world) {
  const { ledger, operator } = world;
  const late = ledger.make({ run_id: RUNS[0] });
  const half = await halfway(world, request(world, late), 9);
  const batch = Array.from({ length: 20 }, () => ledger.make({ run_id: RUNS[1] }));
  const stream = operator.begin("POST", "events:batch", { "content-type": "application/x-ndjson" });
  stream.request.write(batch.slice(0, 10).map(line).join(""));
  const response = await within(stream.answer, "the first answers of a batch");
  return async () => {
    await half.finish();
    const answer = await half.peer.response();
    assert.equal(answer.status, 200, answer.body);
    ledger.acknowledge(late, JSON.parse(answer.body));
    half.peer.close();
    stream.request.end(batch.slice(10).map(line).join(""));
    const pieces = [];
    for await (const piece of response) pieces.push(piece);
    answered(world, batch, Buffer.concat(pieces).toString());
  };
}

/** Unready while everybody is still served. */
async function unready(world, probe) {
  await world.operator.server.saw("log", /server\.stopping/);
  await probe.finish();
  assertError(await probe.peer.response(), 503, "shutting_down");
  probe.peer.close();
  assert.equal(world.firstTold, null, "readiness goes first");
  assert.equal(world.followers.filter((one) => one.isLive).length, CLIENTS);
}

async function end(world, round) {
  const { server } = world.operator;
  const probe = round === 1 ? await halfway(world, "GET /healthz/ready HTTP/1.1\r\nHost: x\r\n\r\n", 9) : null;
  // Nobody waits for the other half for ever: of a head not long, of a body for the grace.
  await halfway(world, "GET /healthz/live HTTP/1.1\r\nHost: x\r\n\r\n", 9);
  if (cutsOff(round)) await halfway(world, request(world, world.ledger.make({ run_id: RUNS[0] })), 9);
  const finish = cutsOff(round) ? null : await underWay(world);
  world.firstTold = null;
  server.kill(round % 2 ? "SIGTERM" : "SIGINT");
  if (probe) await unready(world, probe);
  await world.all((one) => one.told.length === round, "is told when to come back");
  if (finish) await finish();
  const { code } = await within(server.ended, "the end of the server", WAIT_MS_MAX);
  assert.equal(code, 0, server.log);
  assert.equal(/grace_over/.test(server.log), cutsOff(round), "only half a body has to be cut off");
  server.crashed = true;
}

async function restart(t, world, round) {
  const { ledger, operator } = world;
  const acknowledged = ledger.acknowledged.size;
  for (const tenant of TENANTS) await appendOne(world, ledger.make({ run_id: `${tenant}-quiet` }));
  await deaf(world);
  await within((async () => {
    while (ledger.acknowledged.size < acknowledged + APPENDS && !world.problem) await pause(5);
  })(), "appends", WAIT_MS_MAX);
  await end(world, round);
  world.operator = await operate(t, { data: operator.data, settings: settingsOf(round + 1), bind: `127.0.0.1:${world.port}` });
  operator.close();
  await world.all((one) => one.isLive && one.sessions === round + 1, "comes back");
  const hints = world.followers.map((one) => one.told.at(-1));
  const tenths = assertSpread(hints, CLIENTS / 2, "all");
  for (const Kind of [Phoenix, TopicSocket, EventStream]) {
    assertSpread(world.followers.filter((one) => one.constructor === Kind).map((one) => one.told.at(-1)), CLIENTS / 2, Kind.name);
  }
  t.diagnostic(`restart ${round}: told ${Math.min(...hints)} to ${Math.max(...hints)} ms, by tenths ${tenths}`);
}

/** What the log holds for whom. */
async function authority(world) {
  const { operator } = world;
  const lines = (await operator.get("/api/events/export")).body.trim().split("\n").map((one) => JSON.parse(one));
  const { manifest } = lines.pop();
  assert.equal(manifest.count, lines.length);
  const topics = new Map();
  for (const event of lines) {
    const topic = event.entity === "run" ? `run:${event.entity_id}:events` : event.entity_id;
    if (!topics.has(topic)) topics.set(topic, []);
    topics.get(topic).push(`${event.seq}:${event.event_id}`);
    assert.equal(event.seq, topics.get(topic).length, `${topic} has a gap in the log`);
  }
  const summaries = [];
  for (let after = 0; ;) {
    const page = await operator.read(`khala/topics/${SUMMARIES}/messages?after_seq=${after}&limit=200`);
    summaries.push(...page.messages);
    after = page.next_cursor;
    if (page.replay_complete) break;
  }
  const isOf = (tenant, owner) => tenant === null || tenant === owner;
  const owner = (event) => (event.entity === "run" ? ownerOf(event.entity_id) : undefined);
  const expected = (tenant, topic) => {
    if (topic === LOG) return lines.filter((event) => isOf(tenant, owner(event))).map((event) => event.event_id);
    if (topic !== SUMMARIES) return topics.get(topic);
    return summaries.filter((one) => isOf(tenant, one.payload.owner_user_id)).map((one) => `${one.sequence}:${one.event_id}`);
  };
  return { lines, expected };
}

/** Everything acknowledged is where it was acknowledged, once; nothing is there that nobody sent. */
function assertLog(world, lines) {
  const found = new Map();
  for (const event of lines) {
    assert.ok(!found.has(event.event_id), `${event.event_id} is there twice`);
    found.set(event.event_id, event.seq);
    const sent = world.ledger.sent.get(event.event_id);
    assert.ok(sent || event.event_type === "run.started", `nobody sent ${event.event_id}`);
    if (sent) assert.deepEqual(event.payload, body(sent).payload);
  }
  for (const [id, seq] of world.ledger.acknowledged) assert.equal(found.get(id), seq, `acknowledged event ${id} is gone or moved`);
}

test(`${RESTARTS} restarts under ${CLIENTS} live clients`, { timeout: 230_000 }, async (t) => {
  const world = new World();
  world.port = await fixedPort();
  const data = folder(t);
  world.operator = await operate(t, { data, settings: settingsOf(1), bind: `127.0.0.1:${world.port}` });
  t.after(() => {
    world.over = world.quiet = true;
    for (const one of world.followers) one.close();
  });
  for (const run_id of [...RUNS, FAT, ...TENANTS.map((tenant) => `${tenant}-quiet`)]) {
    await world.operator.did("runs", { run_id, owner_user_id: ownerOf(run_id) }, 201);
  }
  for (const topic of ROOMS) await appendOne(world, world.ledger.make({ topic }));
  for (let i = 0; i < 40; i++) await appendOne(world, world.ledger.make({ run_id: FAT, pad: "x".repeat(200_000) }));
  populate(world);
  assert.equal(world.followers.length, CLIENTS);
  world.followers.forEach((one, i) => { one.deflates = i % 20 === 0; });
  for (const one of world.followers) Promise.resolve(one.live()).catch((error) => world.fail(error, one));
  await world.all((one) => one.isLive, "goes live");
  const writing = Array.from({ length: WRITERS }, (_, i) => write(world, i));
  for (const one of writing) one.catch((error) => world.fail(error, { name: "a writer" }));
  for (let round = 1; round <= RESTARTS; round++) await restart(t, world, round);
  world.quiet = true;
  await within(Promise.all(writing), "the writers' end");
  const { lines, expected } = await authority(world);
  assertLog(world, lines);
  for (const one of world.followers) {
    for (const [topic, track] of one.tracks) {
      const wanted = expected(one.tenant, topic);
      await one.until(() => track.seen.length >= wanted.length, `sees all of ${topic}, ${wanted.length}`);
      assert.deepEqual(track.seen, wanted, one.name);
    }
    assert.equal(one.sessions, RESTARTS + 1, `${one.name} came back once a restart`);
  }
  world.over = true;
  for (const one of world.followers) one.close();
  await world.operator.server.stop();
  world.operator.server.crashed = true;
  for (const verb of [["verify"], ["reproject", "--all", "--verify"]]) {
    const { code, out, problem } = run([...verb, "--data-dir", data]);
    assert.equal(code, 0, out + problem);
  }
  const { ledger } = world;
  t.diagnostic(`${ledger.acknowledged.size} acknowledged, ${ledger.left} left in the dark, ${lines.length} in the log, `
    + `${world.followers.reduce((sum, one) => sum + one.refused, 0)} knocks at a closed door, `
    + `${world.followers.reduce((sum, one) => sum + [...one.tracks.values()].reduce((all, track) => all + track.seen.length, 0), 0)} seen`);
});
