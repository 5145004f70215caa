// One topic: runs the topic's machine, keeps its position and queues what the application applies.
import { KhalaError } from "./errors.js";
import { backOffMs, Machine, topicStep } from "./machine.js";
import { continues, isRange, isSameEpoch, Parts, readPosition } from "./position.js";
import { Recent } from "./recent.js";

const QUEUE_FRAMES_MAX = 1000;
const QUEUE_BYTES_MAX = 8 << 20;
const FAULTS_MAX = 5; // within FAULTS_MS the breaker trips
const FAULTS_MS = 60_000;

/**
 * Entries of the queue: {frame, position}, {reset, position}, {position}. The application applies
 * them in order. After each one its position is stored.
 */
export class Subscription {
  #machine;
  #link;
  #world;
  #storage;
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
  #saving = false;
  #unsaved = null;

  /** link: {subscribe, unsubscribe, isLive, warn, changed, done} of the connection. */
  constructor(name, link, { storage, key, world, replay }) {
    this.name = name;
    this.key = key;
    this.replay = replay;
    this.received = null; // the end of the last range that arrived
    this.applied = null; // the position behind the last entry that the application applied
    this.#link = link;
    this.#world = world;
    this.#storage = storage;
    this.#machine = new Machine(topicStep, "loading", this.#actions(), () => link.changed(this));
  }

  get state() {
    return this.#machine.state;
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
        this.received = null;
        this.#reasons = data?.reasons ?? this.#reasons ?? ["gap"];
      },
      report: () => this.#link.warn(new KhalaError("repeatedly_stale", `The topic ${this.name} was stale again and again.`, { topic: this.name })),
      back_off: (error) => {
        const ms = backOffMs(this.#trips++, error?.retryAfterMs, this.#world.random(), { baseMs: 1000 });
        this.#timer = this.#world.setTimeout(() => this.#machine.give("timer"), ms);
      },
      cancel: () => this.#world.clearTimeout(this.#timer),
      fail: (error) => this.#end(error),
      end: () => this.#end(null),
    };
  }

  /** Reads the stored position, or takes the given one, and begins. */
  async load(given) {
    if (given !== undefined) {
      this.#loaded(readPosition(given), given ? "position_unreadable" : "start");
      return;
    }
    let text = null;
    let reason = "start";
    try {
      text = await this.#storage.load(this.key);
    } catch (cause) {
      reason = "position_unreadable";
      this.#link.warn(new KhalaError("storage_failed", "The stored position could not be read.", { cause, topic: this.name }));
    }
    this.#loaded(readPosition(text), text === null || text === undefined ? reason : "position_unreadable");
  }

  #loaded(position, reason) {
    this.received = position;
    this.applied = position;
    this.#reasons = [reason];
    this.#machine.give("loaded");
    if (this.#link.isLive()) this.#machine.give("connected");
  }

  /** Gives the machine an input of the connection or of the server. */
  give(input, data) {
    this.#machine.give(input, data);
  }

  /** Takes the epoch by which the server knows the position. */
  accepted({ epoch }) {
    if (this.received && typeof epoch === "string" && this.state === "joining") this.received = { ...this.received, epoch };
    this.#machine.give("accepted");
  }

  /** Takes a start of the history. One at the client's own position, such as 0, is a resume. */
  started({ epoch, from_seq, truncated, reasons }) {
    const isOwn = this.received && !reasons && isSameEpoch(epoch, this.received.epoch) && this.received.seq === from_seq - 1;
    if (isOwn) this.accepted({ epoch });
    else this.#machine.give("started", { epoch, from_seq, truncated, reasons });
  }

  /** Takes a range or a fault in its place. */
  range(range) {
    if (this.state !== "replaying" && this.state !== "live") {
      this.#machine.give(range.complete ? "caught_up" : "range", range);
    } else if (!continues(this.received, range)) {
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
    if (!isStreaming || !this.received || !isRange(range) || !isSameEpoch(epoch, this.received.epoch)) return;
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
    if (input === "stale") this.received = null;
    this.#machine.give("tripped", data);
  }

  #restart(reset, position, reasons, bytes = 0) {
    const [reason] = reasons ?? this.#reasons ?? ["start"];
    this.#reasons = null;
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
    if (!this.#storage) return;
    this.#unsaved = position;
    if (!this.#saving) this.saved = this.#save();
  }

  /** Stores the newest position. While one is being stored, only the newest of the others waits. */
  async #save() {
    this.#saving = true;
    while (this.#unsaved) {
      const position = this.#unsaved;
      this.#unsaved = null;
      try {
        await this.#storage.save(this.key, JSON.stringify(position));
      } catch (cause) {
        this.#link.warn(new KhalaError("storage_failed", "The position could not be stored.", { cause, topic: this.name }));
      }
    }
    this.#saving = false;
  }
}
