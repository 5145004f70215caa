// Clients that follow topics over the end of servers, one class a dialect. Each resumes from its
// position and asserts that the server continues there, or starts again if the server says so. The
// world of a test chooses the server of a session, and judges errors and ends:
//   nodeOf(follower)            the operator of the server for the next session
//   notice(follower, body)      takes an error that the server sent; answers the reconnect time in it
//   left(follower, hint, code)  takes the end of a session that was live
//   pauseMs(follower)           the time until the next session
//   fail(error, follower), over, problem
import assert from "node:assert/strict";
import { Socket as PhoenixSocket } from "phoenix";
import WebSocket from "ws";
import { AUDIT_SOCKET, pollPath, socketPath, streamPath } from "./paths.mjs";
import { auditInit } from "./socket.mjs";
import { Stream } from "./sse.mjs";
import { Watched } from "./wait.mjs";

export const ROOMS = ["room:0", "room:1"];
export const SUMMARIES = "runtime.run_summaries";
export const LOG = "the log";
// A busy machine may be slow with a thousand clients; these tests do not measure time.
export const WAIT_MS_MAX = 90_000;
const HANDSHAKE_MS_MAX = 20_000;
const HEARTBEAT_MS = 20_000;
const STALE = "stale_cursor";

// Ten at a time, by default. On a busy machine each message of a client that inflates would wait for seconds then, and
// the client would see the end of its connection before the last messages.
const INFLATED_AT_A_TIME = 1000;

const inflating = (follower) => (follower.deflates ? { concurrencyLimit: INFLATED_AT_A_TIME } : false);

/** Waits as long as the server demanded. */
const backOff = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

/** The events of one topic that one client received, without repetitions. */
class Track {
  from = 0; // the position of the last start
  at = 0;
  epoch = null;
  seen = [];
  duplicates = 0;
  resets = 0;

  constructor(topic) {
    this.topic = topic;
  }

  /** The position in the form that every dialect takes. */
  get position() {
    return this.epoch === null || this.at === 0 ? this.at : `${this.at}@${this.epoch}`;
  }

  /** Forgets everything: the server said that the position is stale. */
  reset() {
    Object.assign(this, { from: 0, at: null, epoch: null, seen: [] });
    this.resets++;
  }

  /** Starts after a position that the server named. */
  start(after) {
    Object.assign(this, { from: after, at: after });
  }

  /** Takes the bootstrap that follows a reset; a snapshot names its position itself. */
  bootstrap({ from_seq }) {
    if (from_seq !== undefined) this.start(from_seq - 1);
  }

  snapshot({ watermark, last, epoch }) {
    this.epoch = epoch;
    if (last) this.start(watermark);
  }

  /** Asserts that a range which begins after `after` leaves no gap. */
  covers(after) {
    // A session may end between the reset and its bootstrap. The next one begins with the first frame.
    if (this.at === null && after === 0) this.start(0);
    assert.ok(this.at !== null && after <= this.at, `${this.topic}: a range begins after ${after}, the client is at ${this.at}`);
  }

  take(seq, id) {
    if (seq <= this.at) {
      assert.ok(this.seen.includes(`${seq}:${id}`), `${this.topic}: ${seq} is another event the second time`);
      this.duplicates++;
      return;
    }
    this.at = seq;
    this.seen.push(`${seq}:${id}`);
  }

  /** Takes an event of a topic without hidden events. */
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

  has(id) {
    return this.#ids.has(id);
  }

  reset() {
    super.reset();
    this.#ids.clear();
  }

  event(event) {
    this.at = event.cursor;
    if (this.#ids.has(event.event_id)) {
      this.duplicates++;
      return;
    }
    this.#ids.add(event.event_id);
    this.seen.push(event.event_id);
  }
}

/** A client that has one session after the other. Each kind has its own session(). */
class Follower extends Watched {
  sessions = 0; // those that were live
  isLive = false;
  delaysMs = []; // the times to come back, one for each session that ended
  refused = 0;
  refusedInRow = 0; // refusals since the last session that was live
  deflates = false;
  node = null; // the node of the current session

  constructor(world, tenant, topics) {
    super();
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
    const { node } = this;
    const room = [...this.tracks.keys()].find((topic) => ROOMS.includes(topic));
    if (this.tenant === null) return node.reader;
    return node.sign({ oa_user_id: this.tenant, oa_sync_scopes: ["runtime.run_events", "runtime.audit"], ...(room ? { oa_sync_topics: [room] } : {}) });
  }

  began() {
    this.sessions++;
    this.refusedInRow = 0;
    this.isLive = true;
    this.changed();
  }

  wasRefused() {
    this.refused++;
    this.refusedInRow++;
  }

  guard(take) {
    return (...given) => {
      try {
        if (!this.world.over) take(...given);
      } catch (error) {
        this.world.fail(error, this);
      }
      this.changed();
    };
  }

  failure() {
    return this.world.problem;
  }

  until(ready, what) {
    return super.until(ready, `${this.name}: ${what}`, WAIT_MS_MAX);
  }

  leaves(hint, code) {
    this.isLive = false;
    this.world.left(this, hint, code);
  }

  async live() {
    while (!this.world.over) {
      const sessions = this.sessions;
      this.node = this.world.nodeOf(this);
      await this.session();
      if (this.world.over) return;
      if (this.sessions === sessions) this.wasRefused();
      await backOff(this.world.pauseMs(this));
    }
  }

  socket(path) {
    const { host, port } = this.node.server;
    const ws = new WebSocket(`ws://${host}:${port}${path}`,
      { perMessageDeflate: inflating(this), handshakeTimeout: HANDSHAKE_MS_MAX, headers: { authorization: `Bearer ${this.token()}` } });
    this.end = () => ws.terminate();
    ws.on("error", () => {});
    return ws;
  }

  /** Passes messages to take until the socket closes; take answers the reconnect time if it finds one. */
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

// ---- Phoenix ----

/** Forgets the topics that the server found stale. */
function forget(follower, body) {
  for (const { topic } of body.stale_topics) follower.tracks.get(topic).reset();
}

/** Takes the windows of a subscription, which show where each topic begins. */
function welcomed(follower, { windows }) {
  for (const { topic, epoch, bootstrap } of windows) {
    const track = follower.tracks.get(topic);
    if (track.at === null && bootstrap) track.bootstrap(bootstrap);
    track.epoch = epoch;
  }
}

/** Takes pushes of the Phoenix dialect; answers the reconnect time. A stale cursor calls again(). */
function pushed(follower, event, payload, again) {
  const track = follower.tracks.get(payload.topic);
  if (event === "sync:error" && payload.code === STALE) {
    forget(follower, payload);
    again();
  } else if (event === "sync:error") {
    return follower.world.notice(follower, payload);
  } else if (event === "sync:snapshot") {
    track.snapshot(payload);
  } else if (event === "sync:heartbeat") {
    for (const { topic, through } of payload.covered) follower.tracks.get(topic).passed(through);
  } else if (event === "sync:update_batch") {
    track.covers(payload.after);
    for (const one of payload.updates) track.take(one.watermark, one.event_id);
    track.passed(payload.through);
    track.epoch = payload.epoch;
  }
  return undefined;
}

function subscription(follower) {
  const known = [...follower.tracks].filter(([, track]) => track.at !== null);
  return { topics: [...follower.tracks.keys()], resume_after: Object.fromEntries(known.map(([topic, track]) => [topic, track.position])) };
}

export class Phoenix extends Follower {
  session() {
    const ws = this.socket("/socket/websocket?vsn=2.0.0");
    let ref = 1;
    const say = (number, event, payload) => ws.send(JSON.stringify(["1", String(number), "sync:v1", event, payload]));
    const subscribe = () => say(++ref, "sync:subscribe", subscription(this));
    ws.on("open", () => say(1, "phx_join", {}));
    const beat = setInterval(() => ws.readyState === WebSocket.OPEN && ws.send(JSON.stringify([null, "0", "phoenix", "heartbeat", {}])), HEARTBEAT_MS);
    ws.on("close", () => clearInterval(beat));
    return this.hear(ws, ([, answered, , event, payload]) => {
      if (event !== "phx_reply") return pushed(this, event, payload, subscribe);
      const { status, response } = payload;
      if (status !== "ok" && response.code === STALE) {
        forget(this, response);
        subscribe();
      } else if (status !== "ok") {
        ws.close();
        return this.world.notice(this, response);
      } else if (answered === "1") {
        subscribe();
      } else if (answered !== "0") {
        welcomed(this, response);
        if (!this.isLive) this.began();
      }
      return undefined;
    });
  }
}

/** The npm client, which reconnects by itself at the time that the server named. */
export class PhoenixClient extends Follower {
  live() {
    const urlOf = ({ server }) => `ws://${server.host}:${server.port}/socket`;
    const perMessageDeflate = inflating(this);
    this.node = this.world.nodeOf(this);
    const socket = new PhoenixSocket(urlOf(this.node), {
      transport: class extends WebSocket {
        constructor(url, protocols) {
          super(url, protocols, { perMessageDeflate });
        }
      },
      params: () => ({ token: this.token() }), reconnectAfterMs: () => this.world.pauseMs(this), rejoinAfterMs: () => 10,
    });
    const channel = socket.channel("sync:v1", {});
    let hint;
    const again = () => setTimeout(() => { if (!this.isLive && channel.isJoined()) subscribe(); }, 100);
    const subscribe = () => channel.push("sync:subscribe", subscription(this))
      .receive("ok", this.guard((response) => {
        welcomed(this, response);
        if (!this.isLive) this.began();
      }))
      .receive("error", this.guard((body) => {
        if (body.code === STALE) forget(this, body);
        else hint = this.world.notice(this, body) ?? hint;
        if (body.code === STALE) subscribe();
        else again();
      }))
      .receive("timeout", again);
    for (const event of ["sync:update_batch", "sync:snapshot", "sync:heartbeat", "sync:error"]) {
      channel.on(event, this.guard((payload) => { hint = pushed(this, event, payload, subscribe) ?? hint; }));
    }
    channel.join().receive("ok", this.guard(() => { subscribe(); }))
      .receive("error", this.guard((body) => { hint = this.world.notice(this, body) ?? hint; }));
    socket.onClose(this.guard(({ code }) => {
      if (this.isLive) this.leaves(hint, code);
      else this.wasRefused();
      hint = undefined;
      this.node = this.world.nodeOf(this);
      socket.endPoint = `${urlOf(this.node)}/websocket`;
    }));
    this.end = () => {
      socket.disconnect();
      socket.reconnectTimer.reset();
    };
    socket.connect();
  }
}

// ---- other sockets ----

export class TopicSocket extends Follower {
  session() {
    const { track } = this;
    const ws = this.socket(socketPath(track.topic, track.at === null ? "" : `after_seq=${track.position}`));
    return this.hear(ws, (one) => {
      if (one.type === "hello") {
        if (track.at === null && one.bootstrap) track.bootstrap(one.bootstrap);
        else assert.equal(one.after_seq, track.at, `${this.name}: ${JSON.stringify(one)}`);
        track.epoch = one.epoch;
        if (!this.isLive) this.began();
      } else if (one.type === "message") {
        track.covers(one.after);
        track.take(one.sequence, one.event_id);
      } else if (one.type === "progress") {
        track.covers(one.after);
        track.passed(one.through);
      } else if (one.type === STALE) {
        track.reset();
      } else {
        return this.world.notice(this, one);
      }
      return undefined;
    });
  }
}

export class AuditSocket extends Follower {
  session() {
    const { track } = this;
    const ws = this.socket(AUDIT_SOCKET);
    ws.on("open", () => ws.send(JSON.stringify(auditInit(this.token(), track.at ? { after_cursor: track.at } : {}))));
    return this.hear(ws, (one) => {
      if (one.type === "init_ack") this.began();
      else if (one.type === "event") track.event(one.event);
      else if (one.type === "reconnect") return one.retry_after_ms;
      else if (one.type === "error" && /^(cursor_ahead_of_head|epoch_mismatch)$/.test(one.details?.reason)) track.reset();
      else if (one.type === "error") return this.world.notice(this, one);
      else assert.match(one.type, /^(replay_complete|heartbeat)$/, `${this.name}: ${JSON.stringify(one)}`);
      return undefined;
    });
  }
}

// ---- HTTP ----

/** An event stream of a topic, or of the log. */
export class EventStream extends Follower {
  lastId = "";

  #take(event) {
    const { track } = this;
    const isLog = track instanceof LogTrack;
    this.lastId = event.id || this.lastId; // an id of an earlier connection
    if (event.type === STALE) {
      track.reset();
    } else if (event.type === "bootstrap") {
      if (!isLog) track.bootstrap(event.data);
    } else if (event.type === "snapshot") {
      track.snapshot(event.data);
    } else if (event.type === "error") {
      this.world.notice(this, event.data);
    } else if (event.type === "progress") {
      if (isLog) return;
      track.covers(event.data.after);
      track.passed(event.data.through);
    } else {
      assert.equal(event.type, "message", `${this.name}: ${JSON.stringify(event)}`);
      if (isLog) return void track.event(event.data);
      track.covers(event.data.after);
      track.take(event.data.sequence, event.data.event_id);
    }
  }

  async session() {
    const path = this.track instanceof LogTrack ? "/events" : streamPath(this.track.topic, "after_seq=0");
    const headers = { authorization: `Bearer ${this.token()}`, ...(this.lastId ? { "last-event-id": this.lastId } : {}) };
    const stream = await Stream.open(this.node, path, headers).catch(() => null);
    if (!stream) return;
    this.end = () => stream.close();
    if (stream.status !== 200) {
      await stream.until((one) => one.ended, "the end of a refusal", WAIT_MS_MAX);
      this.guard(() => this.world.notice(this, JSON.parse(stream.refusal)))();
      return;
    }
    this.began();
    const take = this.guard((event) => this.#take(event));
    while (!stream.ended || stream.events.length > 0) {
      await stream.until((one) => one.events.length > 0 || one.ended, "an event or the end", 600_000);
      for (const event of stream.events.splice(0)) take(event);
    }
    this.guard(() => this.leaves(stream.retries > 1 ? stream.retry : undefined))();
  }
}

/** Long polls. */
export class Poll extends Follower {
  waitMs = 60_000;

  /** Takes one answer; the answer is false when the session is over. */
  #take(response) {
    const { track } = this;
    const body = JSON.parse(response.body);
    if (response.status === 410) {
      assert.equal(body.error, STALE, response.body);
      track.reset();
      return true;
    }
    if (response.status !== 200) {
      const hint = this.world.notice(this, body);
      if (this.isLive) this.leaves(hint);
      return false;
    }
    if (track.at === null) track.bootstrap(body.bootstrap);
    track.epoch = body.epoch;
    for (const one of body.messages) track.next(one.sequence, one.event_id);
    if (response.headers.connection === "close") this.leaves(body.recommended_reconnect_backoff_ms);
    return this.isLive;
  }

  async session() {
    for (const begun = this.sessions; !this.world.over;) {
      const position = this.track.at === null ? "" : `after_seq=${this.track.position}&`;
      const path = pollPath(this.track.topic, `${position}wait_ms=${this.sessions === begun ? 0 : this.waitMs}`);
      const response = await this.node.ask("GET", path, undefined, { authorization: `Bearer ${this.token()}` }).catch(() => null);
      if (this.world.over) return;
      if (!response) {
        if (this.isLive) this.guard(() => this.leaves())();
        return;
      }
      if (this.sessions === begun && response.status < 400) this.began();
      let isOpen = false;
      this.guard(() => { isOpen = this.#take(response); })();
      if (!isOpen) return;
    }
  }
}
