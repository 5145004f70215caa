// The clients of the restart test, one class a dialect. Each is told when to reconnect, does so, and
// asserts that what it receives continues where it stopped.
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
// A busy machine may be slow with a thousand clients; this test does not measure time.
export const WAIT_MS_MAX = 90_000;
const RESTARTING = 1012;

/** Waits as long as the server told the client to. */
const backOff = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

/** The events of one topic that one client received, without repetitions. */
class Track {
  at = 0;
  seen = [];

  constructor(topic) {
    this.topic = topic;
  }

  /** Asserts that a range which begins after `after` leaves no gap. */
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

  event(event) {
    this.at = event.cursor;
    if (this.#ids.has(event.event_id)) return;
    this.#ids.add(event.event_id);
    this.seen.push(event.event_id);
  }
}

/** A client that is told when to reconnect, and does so. Each kind has its own session(). */
class Follower extends Watched {
  sessions = 0; // that were live
  isLive = false;
  told = []; // when to come back, once a restart
  refused = 0;
  deflates = false;

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
    const { operator } = this.world;
    const room = [...this.tracks.keys()].find((topic) => ROOMS.includes(topic));
    if (this.tenant === null) return operator.reader;
    return operator.sign({ oa_user_id: this.tenant, oa_sync_scopes: ["runtime.run_events", "runtime.audit"], ...(room ? { oa_sync_topics: [room] } : {}) });
  }

  began() {
    this.sessions++;
    this.isLive = true;
    this.changed();
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

  /** Takes the reconnect time at the end of a session, and the close code where there is one. */
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
      await backOff(this.told.at(-1) ?? 400);
    }
  }

  socket(path) {
    const ws = new WebSocket(`ws://127.0.0.1:${this.world.port}${path}`,
      { perMessageDeflate: this.deflates, headers: { authorization: `Bearer ${this.token()}` } });
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

/** Takes batches and errors of the Phoenix dialect; answers the reconnect time. */
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

export class Phoenix extends Follower {
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

/** The npm client, which reconnects by itself at the told time. */
export class PhoenixClient extends Follower {
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

export class TopicSocket extends Follower {
  session() {
    const ws = this.socket(socketPath(this.track.topic, `after_seq=${this.track.at}`));
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

export class AuditSocket extends Follower {
  session() {
    const ws = this.socket(AUDIT_SOCKET);
    ws.on("open", () => ws.send(JSON.stringify(auditInit(this.token(), this.track.at ? { after_cursor: this.track.at } : {}))));
    return this.hear(ws, (one) => {
      if (one.type === "init_ack") this.began();
      else if (one.type === "event") this.track.event(one.event);
      else assert.match(one.type, /^(replay_complete|heartbeat|reconnect)$/, `${this.name}: ${JSON.stringify(one)}`);
      return one.type === "reconnect" ? one.retry_after_ms : undefined;
    });
  }
}

/** An event stream of a topic, or of the log. */
export class EventStream extends Follower {
  lastId = "";

  async session() {
    const isLog = this.track instanceof LogTrack;
    const path = isLog ? "/events" : streamPath(this.track.topic, "after_seq=0");
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

/** Long polls of a quiet topic, so that they wait when the server ends. */
export class Poll extends Follower {
  async session() {
    for (const begun = this.sessions; !this.world.over;) {
      const path = pollPath(this.track.topic, `after_seq=${this.track.at}&wait_ms=${this.sessions === begun ? 0 : 60_000}`);
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
