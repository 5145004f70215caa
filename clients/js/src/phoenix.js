// The main transport: all topics over one WebSocket, in the Phoenix dialect. One socket can carry
// many topics, refuse one of them, and take a new token, which a topic's own WebSocket cannot.
import { errorOf, policyOf } from "./errors.js";
import { streamOf } from "./position.js";

const CHANNEL = "sync:v1";
const TOPICS_PER_PUSH = 100;
const CLOSE_MS = 1000;
const CLOSED = 3; // a value of readyState
const REPLY_MS = 20_000;

export class PhoenixTransport {
  name = "websocket";
  #events;
  #settings;
  #socket = null;
  #ref = 0;
  #pushes = new Map(); // ref → what to do with the reply
  #wanted = new Map(); // name → {position, asks, isAlone}
  #names = new Map(); // topic or stream id of the server → name of the application
  #lastError = null;
  #isFlushing = false;

  /** settings: {url, WebSocket, join, world}. */
  constructor(settings, events) {
    this.#settings = settings;
    this.#events = events;
  }

  open(token) {
    const { url, WebSocket } = this.#settings;
    const address = `${url.replace(/^http/, "ws")}/socket/websocket?vsn=2.0.0&token=${encodeURIComponent(token)}`;
    const socket = new WebSocket(address);
    this.#socket = socket;
    socket.onopen = () => this.#events.opened();
    socket.onmessage = ({ data }) => this.#received(data);
    socket.onerror = () => {}; // a close follows
    socket.onclose = ({ code }) => this.#ended(code);
  }

  #ended(code) {
    const error = errorOf(this.#lastError, { close: code });
    this.#events.closed({ ...error, close: code, message: error.message ?? `The connection was closed with ${code}.` });
  }

  join() {
    this.#push("phx_join", this.#settings.join, ({ status, response }) => {
      if (status === "ok") this.#events.joined({ heartbeatMs: response?.server?.heartbeat_interval_ms });
      else this.#events.closed(errorOf(response));
    });
  }

  refresh(token) {
    this.#push("sync:refresh", { token }, ({ status, response }) => {
      if (status === "ok") this.#events.refreshed();
      else this.#events.closed({ ...errorOf(response), policy: policyOf(response) === "final" ? "final" : "reauthenticate" });
    });
  }

  heartbeat() {
    const [first] = this.#pushes.values();
    if (first && this.#settings.world.now() - first.at > REPLY_MS) {
      this.#events.closed({ policy: "retry", code: "silent", message: "The server did not reply." });
      return;
    }
    this.#send([null, String(++this.#ref), "phoenix", "heartbeat", {}]);
  }

  close() {
    const socket = this.#socket;
    if (!socket) return; // its constructor failed
    socket.onopen = socket.onmessage = socket.onclose = null;
    if (socket.readyState === CLOSED) return;
    socket.close(1000);
    // The npm ws waits long for the answer of a peer that is gone, and keeps the process.
    const timer = setTimeout(() => socket.terminate?.(), CLOSE_MS);
    timer.unref?.();
    socket.onclose = () => clearTimeout(timer);
  }

  subscribe(name, position, { since, ...asks }) {
    // A time of the future is the head.
    const start = since === "head" ? "9999-12-31T00:00:00Z" : since;
    this.#wanted.set(name, { position, asks: position || !since ? asks : { ...asks, since: start } });
    this.#flushSoon();
  }

  unsubscribe(name) {
    this.#wanted.delete(name);
    this.#push("sync:unsubscribe", { topics: [name] }, () => {});
  }

  #flushSoon() {
    if (this.#isFlushing) return;
    this.#isFlushing = true;
    queueMicrotask(() => {
      this.#isFlushing = false;
      this.#flush();
    });
  }

  /** Sends the wanted subscriptions, as few pushes as possible. */
  #flush() {
    const groups = new Map();
    for (const [name, want] of this.#wanted) {
      const key = want.isAlone ? `alone ${name}` : JSON.stringify(want.asks);
      if (!groups.has(key)) groups.set(key, []);
      groups.get(key).push([name, want]);
    }
    this.#wanted.clear();
    for (const wants of groups.values()) {
      for (let i = 0; i < wants.length; i += TOPICS_PER_PUSH) this.#subscribeAll(wants.slice(i, i + TOPICS_PER_PUSH));
    }
  }

  #subscribeAll(wants) {
    const resume_after = wants.filter(([, { position }]) => position)
      .map(([topic, { position: { epoch, seq } }]) => ({ topic, watermark: seq, epoch }));
    const payload = { topics: wants.map(([name]) => name), resume_after, ...wants[0][1].asks };
    this.#push("sync:subscribe", payload, ({ status, response }) => {
      if (status === "ok") this.#accepted(wants, response);
      else this.#refused(wants, response);
    });
  }

  #accepted(wants, { windows, pending } = {}) {
    const open = new Set(wants.map(([name]) => name));
    for (const window of Array.isArray(windows) ? windows : []) {
      const name = [window.topic, window.stream_id].find((one) => open.has(one));
      if (name === undefined) continue;
      for (const alias of [window.topic, window.stream_id]) if (alias) this.#names.set(alias, name);
      open.delete(name);
      const { epoch, bootstrap, resume_after } = window;
      if (window.pending === true || (pending === true && wants.length === 1)) this.#events.pending(name);
      if (bootstrap?.snapshot) this.#events.snapshot(name, {});
      else if (bootstrap) this.#events.started(name, { epoch, from_seq: bootstrap.from_seq, truncated: bootstrap.truncated === true });
      else this.#events.accepted(name, { epoch, seq: resume_after });
    }
    if (pending === true) for (const name of open) this.#events.pending(name);
  }

  /** A subscribe is all or nothing. The topics that caused the error get it, and the others try again. */
  #refused(wants, body) {
    const error = errorOf(body);
    const listed = error.policy === "stale" ? this.#staleOf(body) : new Map((body?.forbidden_topics ?? []).map((topic) => [topic?.topic ?? topic, body]));
    const isSingle = wants.length === 1;
    // Of several refused topics the body has the reason of the first alone.
    const isShared = error.policy !== "stale" && listed.size > 1;
    const isListed = wants.some(([name]) => listed.has(name));
    for (const [name, want] of wants) {
      const isCause = isSingle || (listed.has(name) && !isShared);
      if (!isCause) this.#wanted.set(name, { ...want, isAlone: !isListed || listed.has(name) });
      else if (error.policy === "stale") this.#events.stale(name, { reasons: listed.get(name) ?? body.reason_codes });
      else this.#topicFailed(name, error);
    }
    this.#flushSoon();
  }

  #topicFailed(name, error) {
    if (error.policy === "topic_final") this.#events.refused(name, error);
    else if (error.policy === "retry") this.#events.busy(name, error);
    else this.#events.closed(error);
  }

  #staleOf(body) {
    const all = new Map();
    for (const { topic, stream_id, reason_codes } of body?.stale_topics ?? []) {
      for (const name of [topic, stream_id]) if (name) all.set(name, reason_codes);
    }
    return all;
  }

  #push(event, payload, replied) {
    const ref = String(++this.#ref);
    this.#pushes.set(ref, { replied, at: this.#settings.world.now() });
    this.#send(["1", ref, CHANNEL, event, payload]);
  }

  #send(message) {
    try {
      if (this.#socket.readyState === 1) this.#socket.send(JSON.stringify(message));
    } catch {
      // The socket ends, and its close event says so.
    }
  }

  #received(data) {
    let message;
    try {
      message = JSON.parse(data);
      if (!Array.isArray(message) || message.length !== 5 || typeof message[4] !== "object" || message[4] === null) throw new TypeError("not a message");
    } catch {
      this.#events.closed({ policy: "retry", code: "invalid_message", message: "The server sent something that is not a message." });
      return;
    }
    const [, ref, channel, event, body] = message;
    this.#events.heard(channel === CHANNEL);
    if (channel !== CHANNEL) return;
    if (event === "phx_reply") {
      const push = this.#pushes.get(ref);
      this.#pushes.delete(ref);
      push?.replied(body);
    } else if (event === "sync:update_batch") {
      const { epoch, after, through, updates: frames, replay_complete } = body;
      this.#events.range(this.#nameOf(body), { epoch, after, through, frames, complete: replay_complete === true, bytes: data.length });
    } else if (event === "sync:snapshot") {
      this.#events.part(this.#nameOf(body), { ...body, bytes: data.length });
    } else if (event === "sync:heartbeat") {
      for (const one of Array.isArray(body.covered) ? body.covered : []) this.#events.covered(this.#nameOf(one), one);
    } else if (event === "sync:error") {
      this.#failed(body);
    } else if (event === "phx_error" || event === "phx_close") {
      this.#events.closed(errorOf(body));
    }
  }

  #nameOf(body) {
    const { topic } = body;
    if (typeof topic !== "string") return undefined;
    if (!this.#names.has(topic)) this.#names.set(topic, this.#names.get(streamOf(topic)) ?? topic);
    return this.#names.get(topic);
  }

  #failed(body) {
    if (body.code === "reauth_required") this.#events.expiring();
    else if (body.code === "stale_cursor") {
      const stale = new Map([...this.#staleOf(body)].map(([topic, reasons]) => [this.#names.get(topic) ?? topic, reasons]));
      for (const [name, reasons] of stale) this.#events.stale(name, { reasons });
    } else if (typeof body.topic === "string" && policyOf(body) === "topic_final") {
      this.#topicFailed(this.#nameOf(body), errorOf(body));
    } else {
      this.#lastError = body; // the close that follows has only a code
    }
  }
}
