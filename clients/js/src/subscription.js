// One topic: runs the topic's machine, keeps its position and queues what the application applies.
import { KhalaError } from "./errors.js";
import { backOffMs, Machine, topicStep } from "./machine.js";
import { continues, isOfEpoch, isRange, Parts, readPosition } from "./position.js";
import { Recent } from "./recent.js";
import { PositionKeeper } from "./storage.js";

const QUEUE_FRAMES_MAX = 1000;
const QUEUE_BYTES_MAX = 8 << 20;
const FAULTS_MAX = 5; // within FAULTS_MS the breaker trips
const FAULTS_MS = 60_000;
const PENDING_MS_MAX = 5000; // between attempts for a topic that does not exist yet

/**
 * Entries of the queue: {frame, position}, {reset, position}, {position}. The application applies
 * them in order. After each one its position is stored.
 */
export class Subscription {
  #machine;
  #link;
  #world;
  #keeper;
  #recent = new Recent();
  #parts = new Parts();
  #queue = [];
  #bytes = 0;
  #frames = 0;
  #takers = [];
  #ended = null;
  #reasons = null;
  #faults = [];
  #trips = 0;
  #timer = null;

  /** link: {subscribe, unsubscribe, isLive, warn, changed, done} of the connection. */
  constructor(name, link, { storage, key, world, asks, since }) {
    this.name = name;
    this.asks = asks; // {form, fold, where, conflate_ms, replay}: how the server is to deliver the topic
    this.since = since; // the start instead of the beginning, until there is a position
    this.isPending = false; // the topic does not exist yet, or belongs to another owner
    this.received = null; // the end of the last range that arrived
    this.applied = null; // the position behind the last entry that the application applied
    this.#link = link;
    this.#world = world;
    this.#keeper = new PositionKeeper(storage, key, (message, cause) => link.warn(new KhalaError("storage_failed", message, { cause, topic: name })));
    this.#machine = new Machine(topicStep, "loading", this.#actions(), () => link.changed(this));
  }

  get state() {
    return this.#machine.state;
  }

  /** The last attempt to store a position. */
  get saved() {
    return this.#keeper.saved;
  }

  #actions() {
    return {
      subscribe: () => this.#link.subscribe(this, this.received),
      unsubscribe: () => this.#link.unsubscribe(this),
      reset: ({ epoch, from_seq, truncated, reasons }) => this.#restart({ from_seq, truncated }, { epoch, seq: from_seq - 1 }, reasons),
      discard: (data) => {
        this.#parts.clear();
        this.#reasons = data?.reasons ?? this.#reasons;
      },
      keep: (part) => this.#parts.add(part),
      apply_snapshot: (part) => {
        const { epoch, watermark, documents } = this.#parts.take();
        this.#restart({ from_seq: watermark + 1, truncated: false, documents }, { epoch, seq: watermark }, null, part.bytes);
      },
      deliver: (range) => this.#deliver(range),
      forget: (data) => {
        this.received = this.since = null;
        this.#reasons = data?.reasons ?? this.#reasons ?? ["gap"];
      },
      report: () => this.#link.warn(new KhalaError("repeatedly_stale", `The topic ${this.name} was stale again and again.`, { topic: this.name })),
      back_off: (error) => {
        const ms = backOffMs(this.#trips++, error?.retryAfterMs, this.#world.random(), { baseMs: 1000, ...(this.isPending ? { maxMs: PENDING_MS_MAX } : {}) });
        this.#timer = this.#world.setTimeout(() => this.#machine.give("timer"), ms);
      },
      cancel: () => this.#world.clearTimeout(this.#timer),
      fail: (error) => this.#end(error),
      end: () => this.#end(null),
    };
  }

  /** Reads the stored position, or takes the given one, and begins. */
  async load(given) {
    const { text, isRead } = given === undefined ? await this.#keeper.load() : { text: given, isRead: true };
    this.received = this.applied = readPosition(text);
    this.#reasons = [isRead && text === null ? "start" : "position_unreadable"];
    if (this.received || this.#reasons[0] !== "start") this.since = null;
    this.#machine.give("loaded");
    if (this.#link.isLive()) this.#machine.give("connected");
  }

  /** Gives the machine an input of the connection or of the server. */
  give(input, data) {
    this.#machine.give(input, data);
  }

  /** The server has not got the topic for this client yet: it does not exist, or belongs to another owner. */
  pend(error) {
    if (this.isPending) return;
    this.isPending = true;
    this.#link.warn(new KhalaError("topic_pending", `The topic ${this.name} does not exist yet, or it belongs to another owner. It begins when it exists.`, { topic: this.name, request_id: error?.request_id }));
  }

  /** Takes the epoch by which the server knows the position, and the position that it chose for a time. */
  accepted({ epoch, seq }) {
    if (!this.received && this.since && seq >= 0) {
      this.#machine.give("started", { epoch, from_seq: seq + 1, truncated: false });
      return;
    }
    if (this.received && typeof epoch === "string" && this.state === "joining") this.received = { ...this.received, epoch };
    this.#machine.give("accepted");
  }

  /** Takes a start of the history. One at the client's own position, such as 0, is a resume. */
  started({ epoch, from_seq, truncated, reasons }) {
    const isOwn = this.received && !reasons && isOfEpoch(this.received, epoch) && this.received.seq === from_seq - 1;
    if (isOwn) this.accepted({ epoch });
    else this.#machine.give("started", { epoch, from_seq, truncated: truncated && !(this.since && !reasons), reasons });
  }

  /** Takes a range or a fault in its place. */
  range(range) {
    if (this.state === "joining" && this.isPending && !this.received) {
      this.#link.subscribe(this, null); // the topic exists now, and another subscription shows where it starts
    } else if (this.state !== "replaying" && this.state !== "live") {
      this.#machine.give(range.complete ? "caught_up" : "range", range);
    } else if (!continues(this.received, range)) {
      this.fault("gap");
    } else if (this.asks.form === "lean" && range.frames.some(({ event_id, kind }) => event_id === undefined && kind !== "removed")) {
      this.asks = { ...this.asks, form: "full" }; // lean frames of a server before 0.3 have no event_id
      this.fault("gap");
    } else {
      this.#machine.give(range.complete ? "caught_up" : "range", range);
      if (this.#isFull()) this.#machine.give("full");
    }
  }

  /** Takes a range without frames, from a heartbeat. One that begins behind the position shows that a message is missing. */
  covered({ epoch, after, through }) {
    const range = { epoch, after, through, frames: [] };
    const isStreaming = this.state === "replaying" || this.state === "live";
    if (!isStreaming || !this.received || !isRange(range) || !isOfEpoch(this.received, epoch)) return;
    if (after > this.received.seq) this.fault("gap");
    else if (through > this.received.seq) this.#machine.give("range", range);
  }

  part(part) {
    if (this.state === "bootstrapping" && !this.#parts.fits(part)) this.fault("gap");
    else this.#machine.give(part?.last ? "whole" : "part", part);
  }

  /** A stale position or a gap. Several of them within a minute trip the breaker; progress forgives gaps. */
  fault(input, data) {
    if (this.state === "joining" && input === "gap") return;
    const now = this.#world.now();
    this.#faults = [...this.#faults.filter(({ at }) => now - at < FAULTS_MS), { at: now, input }];
    if (this.#faults.length < FAULTS_MAX) {
      this.#machine.give(input, data);
      return;
    }
    this.#faults = [];
    if (input === "stale") this.#reasons = data?.reasons ?? this.#reasons;
    if (input === "stale") this.received = this.since = null;
    this.#machine.give("tripped", data);
  }

  #restart(reset, position, reasons, bytes = 0) {
    const [reason] = reasons ?? this.#reasons ?? ["start"];
    this.#reasons = this.since = null;
    this.#recent.clear();
    this.received = position;
    this.#put({ reset: { reason, ...reset }, position, bytes });
  }

  #deliver(range) {
    const { epoch, through, frames } = range;
    const now = this.#world.now();
    const from = this.received.seq;
    const bytes = (range.bytes ?? 0) / (frames.length || 1);
    for (const frame of frames) {
      if (frame.seq <= from || this.#recent.repeats(frame, now)) continue;
      this.#put({ frame, position: { epoch, seq: frame.seq }, bytes });
    }
    if (through <= from) return;
    this.received = { epoch, seq: through };
    this.#trips = 0;
    this.isPending = false;
    this.#faults = this.#faults.filter(({ input }) => input !== "gap");
    if (this.#queue.at(-1)?.position.seq !== through) this.#put({ position: this.received, bytes: 0 });
  }

  #put(entry) {
    this.#queue.push(entry);
    this.#bytes += entry.bytes;
    this.#frames += entry.frame ? 1 : 0;
    // Two moves without a frame between them are one.
    const before = this.#queue.at(-2);
    if (!entry.frame && !entry.reset && before && !before.frame && !before.reset) this.#queue.splice(-2, 1);
    this.#serve();
  }

  #serve() {
    while (this.#takers.length > 0 && this.#queue.length > 0) {
      const entry = this.#queue.shift();
      this.#bytes -= entry.bytes;
      this.#frames -= entry.frame ? 1 : 0;
      this.#takers.shift().resolve(entry);
    }
    if (this.state === "paused" && this.#frames < QUEUE_FRAMES_MAX / 2 && this.#bytes < QUEUE_BYTES_MAX / 2) this.#machine.give("drained");
    if (!this.#ended) return;
    for (const { resolve, reject } of this.#takers.splice(0)) {
      if (this.#ended.error) reject(this.#ended.error);
      else resolve(null);
    }
  }

  #isFull() {
    return this.#frames >= QUEUE_FRAMES_MAX || this.#bytes >= QUEUE_BYTES_MAX;
  }

  #end(error) {
    this.#ended ??= { error };
    if (!error) this.#queue = []; // the application wants no more
    this.#link.done(this);
    this.#serve();
  }

  /** The next entry; null after the end. Entries that arrived before an error come first. */
  take() {
    return new Promise((resolve, reject) => {
      this.#takers.push({ resolve, reject });
      this.#serve();
    });
  }

  /** Forgets repetitions that are too old. */
  tick(now) {
    this.#recent.expire(now);
  }

  /** The application has applied the entry, so its position is stored. */
  acknowledge({ position }) {
    this.applied = position;
    this.#keeper.save(position);
  }
}
