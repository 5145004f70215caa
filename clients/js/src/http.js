// Transports for networks that block WebSockets: an event stream or a long poll for each topic. Both
// use fetch, so that the token is in a header and Node needs no package.
import { errorOf, hintOf } from "./errors.js";
import { firstSeqOf, readPosition, streamOf } from "./position.js";
import { causeOf, fetchOwn, newRequestId, refusalOf } from "./request.js";

const TEXT_CHARS_MAX = 64 << 20;
const POLL_WAIT_MS = 20_000;
const POLL_PAUSE_MS = 260; // the server's least time between polls that have caught up
const POLL_PENDING_MS = 1000; // between polls of a topic that does not exist yet

/** Parameters that change how much is sent, and not what a client has in the end. */
const OPTIONAL = ["form", "fold", "conflate_ms"];

const whereOf = (where) => (where ? { where: JSON.stringify(where) } : {});

class HttpTransport {
  #token = null;
  #isClosed = false;
  streams = new Map(); // name → {abort, heardAt}

  /** settings: {url, fetch, world, query, unknown}; unknown: the names of parameters that the server does not know. */
  constructor(settings, events) {
    this.settings = settings;
    this.events = events;
  }

  open(token) {
    this.#token = token;
    queueMicrotask(() => this.events.opened());
  }

  join() {
    // Each stream watches its own silence.
    queueMicrotask(() => this.events.joined({ heartbeatMs: 1000, silenceMs: Infinity }));
  }

  /** Every stream begins again with the new token, behind the frames that arrived. */
  refresh(token) {
    this.#token = token;
    for (const [name, { options }] of [...this.streams]) this.subscribe(name, this.events.position(name), options);
    queueMicrotask(() => this.events.refreshed());
  }

  heartbeat() {
    const now = this.settings.world.now();
    for (const { heardAt, silenceMs } of this.streams.values()) {
      if (now - heardAt > silenceMs) {
        this.events.closed({ policy: "retry", code: "silent", message: "The server sent nothing for too long." });
        return;
      }
    }
  }

  close() {
    this.#isClosed = true;
    for (const name of [...this.streams.keys()]) this.unsubscribe(name);
  }

  unsubscribe(name) {
    this.streams.get(name)?.abort.abort();
    this.streams.delete(name);
  }

  subscribe(name, position, options) {
    this.unsubscribe(name);
    const stream = { abort: new AbortController(), heardAt: this.settings.world.now(), silenceMs: this.silenceMs, options };
    this.streams.set(name, stream);
    this.follow(name, position, stream).catch((cause) => this.#failed(name, stream, cause));
  }

  isCurrent(name, stream) {
    return !this.#isClosed && this.streams.get(name) === stream;
  }

  #failed(name, stream, cause) {
    if (!this.isCurrent(name, stream)) return;
    this.streams.delete(name);
    const error = cause?.refusal ?? { policy: "retry", code: "connection_lost", message: causeOf(cause) };
    const parameter = error.code === "unknown_parameter" ? error.body?.details?.parameter : undefined;
    if (OPTIONAL.includes(parameter) && !this.settings.unknown.has(parameter)) {
      this.settings.unknown.add(parameter); // an older server sends more frames without it
      this.subscribe(name, this.events.position(name), stream.options);
    } else if (error.policy === "stale") this.events.stale(name, { reasons: (error.body?.details ?? error.body)?.reason_codes });
    else if (error.policy === "topic_final") this.events.refused(name, error);
    else if (error.status === 409 || error.status === 429) this.events.busy(name, error);
    else this.events.closed(error);
  }

  heard(stream) {
    stream.heardAt = this.settings.world.now();
    this.events.heard(true);
  }

  /** Asks for a route of the topic, and throws the refusal of any answer but the expected one. */
  async ask(name, route, query, stream, type) {
    const search = new URLSearchParams({ ...query, ...this.settings.query });
    const address = `${this.settings.url}/v1/topics/${encodeURIComponent(name)}/${route}?${search}`;
    const id = newRequestId();
    const response = await fetchOwn(this.settings.fetch, address, { headers: { authorization: `Bearer ${this.#token}` }, signal: stream.abort.signal }, id);
    const isExpected = response.status === 200 && response.headers.get("content-type")?.startsWith(type);
    if (!isExpected) throw Object.assign(new Error("refused"), { refusal: await refusalOf(response, id) });
    return response;
  }

  /** Throws if the body is of another topic: something sent bytes of another answer. A lean frame names none. */
  check(name, { topic = name }) {
    if (topic !== name && (typeof topic !== "string" || streamOf(topic) !== name)) throw new Error("The answer belongs to another request.");
  }

  queryOf(position, { since, where, ...asks } = {}) {
    const query = { ...Object.fromEntries(Object.entries(asks).filter(([parameter, value]) => value !== undefined && !this.settings.unknown.has(parameter))), ...whereOf(where) };
    if (position) Object.assign(query, { after_seq: position.seq }, position.epoch === undefined ? {} : { epoch: position.epoch });
    else if (since) Object.assign(query, since === "head" ? { from: "head" } : { since });
    return query;
  }
}

/** Splits an event stream into events. An event without data is a comment or a hint. */
export class EventStreamDecoder {
  #text = "";
  #event = { type: "message", data: [], id: undefined, retry: undefined };

  *decode(chunk) {
    this.#text += chunk;
    if (this.#text.length > TEXT_CHARS_MAX) throw new Error("an event is too long");
    for (let end; (end = this.#text.search(/\r\n|\n|\r(?!$)/)) >= 0;) {
      const line = this.#text.slice(0, end);
      this.#text = this.#text.slice(end + (this.#text.startsWith("\r\n", end) ? 2 : 1));
      if (line !== "") this.#field(line);
      else {
        const { type, data, id, retry } = this.#event;
        this.#event = { type: "message", data: [], id: undefined, retry: undefined };
        yield { type, data: data.join("\n"), id, retry };
      }
    }
  }

  #field(line) {
    const [, name, value] = line.match(/^([^:]*):? ?([^]*)$/);
    if (name === "event") this.#event.type = value;
    else if (name === "data") this.#event.data.push(value);
    else if (name === "id") this.#event.id = value;
    else if (name === "retry" && /^\d+$/.test(value)) this.#event.retry = Number(value);
  }
}

class EventStreamTransport extends HttpTransport {
  name = "sse";
  silenceMs = 35_000; // two heartbeats and some seconds

  async follow(name, position, stream) {
    const response = await this.ask(name, "sse", this.queryOf(position, stream.options), stream, "text/event-stream");
    if (!this.isCurrent(name, stream)) return;
    stream.isResume = position?.seq > 0;
    stream.isStarted = position !== null;
    if (position) this.events.accepted(name, {});
    const reader = response.body.getReader();
    const text = new TextDecoder("utf-8", { fatal: true });
    const decoder = new EventStreamDecoder();
    for (;;) {
      const { done, value } = await reader.read();
      if (!this.isCurrent(name, stream)) return;
      if (done) throw Object.assign(new Error("ended"), { refusal: stream.last ?? { policy: "retry", code: "stream_ended", retryAfterMs: stream.hintMs } });
      this.heard(stream);
      for (const event of decoder.decode(text.decode(value, { stream: true }))) {
        this.#take(name, stream, event);
        if (!this.isCurrent(name, stream)) return;
      }
    }
  }

  #take(name, stream, { type, data, id, retry }) {
    if (retry !== undefined) stream.hintMs = hintOf(retry);
    if (data === "") return;
    const body = JSON.parse(data);
    const epoch = readPosition(id ?? null)?.epoch;
    if (["message", "bootstrap", "snapshot", "progress"].includes(type)) this.check(name, body);
    if (body.pending === true) this.events.pending(name);
    if (type === "message" || type === "progress") {
      const { after = firstSeqOf(body) - 1, ...frame } = body;
      const frames = type === "message" ? [frame] : [];
      // The first frame shows the position of a time.
      if (!stream.isStarted && stream.options.since) this.events.started(name, { epoch, from_seq: after + 1, truncated: false });
      stream.isStarted = true;
      this.events.range(name, { epoch, after, through: type === "message" ? frame.seq : body.through, frames, complete: true, bytes: data.length });
    } else if (type === "stale_cursor") {
      stream.reasons = body.reason_codes ?? ["stale_cursor"]; // the bootstrap follows
    } else if (type === "bootstrap") {
      const { reasons } = stream;
      if (stream.isResume && !reasons) throw new Error("The answer belongs to another request.");
      stream.isStarted = true;
      if (body.snapshot) this.events.snapshot(name, { reasons });
      else this.events.started(name, { epoch: body.epoch, from_seq: body.from_seq, truncated: body.truncated === true, reasons });
    } else if (type === "snapshot") {
      this.events.part(name, { ...body, bytes: data.length });
    } else if (type === "reauth_required") {
      this.events.expiring();
    } else if (body.pending !== true) {
      stream.last = errorOf(body); // the stream ends next
    }
  }
}

class PollTransport extends HttpTransport {
  name = "poll";
  silenceMs = POLL_WAIT_MS + 15_000;

  async follow(name, position, stream) {
    for (let isFirst = true; ; isFirst = false) {
      const query = { ...this.queryOf(position, stream.options), limit: 200, wait_ms: isFirst ? 0 : POLL_WAIT_MS };
      const response = await this.ask(name, "messages", query, stream, "application/json");
      const text = await response.text();
      if (!this.isCurrent(name, stream)) return;
      this.heard(stream);
      position = await this.#take(name, stream, position, JSON.parse(text), text.length, isFirst);
      if (!this.isCurrent(name, stream) || position === undefined) return;
      const pauseMs = stream.isPending ? POLL_PENDING_MS : stream.isCaughtUp ? POLL_PAUSE_MS : 0;
      if (pauseMs > 0) await new Promise((resolve) => this.settings.world.setTimeout(resolve, pauseMs));
      if (!this.isCurrent(name, stream)) return;
    }
  }

  /** Takes a page, and answers the position of the next; undefined if the stream is over. */
  async #take(name, stream, position, page, bytes, isFirst) {
    const { bootstrap, messages: frames } = page;
    this.check(name, page);
    stream.isCaughtUp = page.replay_complete === true;
    stream.isPending = page.pending === true;
    if (stream.isPending) {
      this.events.pending(name);
      if (isFirst && position) this.events.accepted(name, {});
      return position; // it begins when the topic exists
    }
    // To a request without an epoch the server may answer positions with one.
    const { seq: through, epoch = page.epoch } = readPosition(page.next_cursor) ?? {};
    let after = position?.seq;
    // A position is refused as stale, never replaced by a start.
    if (bootstrap && after > 0) throw new Error("The answer belongs to another request.");
    if (bootstrap?.snapshot) return this.#snapshot(name, stream);
    if (bootstrap) {
      this.events.started(name, { epoch, from_seq: bootstrap.from_seq, truncated: bootstrap.truncated === true });
      after = bootstrap.from_seq - 1;
    } else if (!position && stream.options.since) {
      after = frames?.[0] ? firstSeqOf(frames[0]) - 1 : through;
      this.events.started(name, { epoch, from_seq: after + 1, truncated: false });
    } else if (isFirst) this.events.accepted(name, { epoch });
    this.events.range(name, { epoch, after, through, frames, complete: stream.isCaughtUp, bytes });
    return { epoch, seq: through };
  }

  async #snapshot(name, stream) {
    this.events.snapshot(name, {});
    const response = await this.ask(name, "snapshot", whereOf(stream.options.where), stream, "application/json");
    const text = await response.text();
    if (!this.isCurrent(name, stream)) return undefined;
    this.heard(stream);
    const { topic, epoch, watermark: given, documents } = JSON.parse(text);
    const { seq: watermark } = readPosition(given) ?? {};
    this.check(name, { topic });
    this.events.part(name, { epoch, watermark, documents, last: true, bytes: text.length });
    return { epoch, seq: watermark };
  }
}

export const transports = { sse: EventStreamTransport, poll: PollTransport };
