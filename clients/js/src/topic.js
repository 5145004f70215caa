// A topic as the application follows it: frames in order, resets before the first frame of a history.
import { KhalaError } from "./errors.js";
import { readPosition } from "./position.js";

/** Gives a reset to the handler, or ends the loop with it. */
async function handleReset(what, reset, handler, tx) {
  if (handler) await handler(reset, tx);
  else throw new KhalaError("reset_unhandled", `${what} starts again${reset.from_seq ? ` at ${reset.from_seq}` : ""} (${reset.reason}). Pass a reset function to handle it.`, { reset });
}

const isLoss = ({ reason, truncated, documents }) => reason !== "start" || truncated || documents !== undefined;

export class Topic {
  #follow;
  #options;
  #subscription = null;

  /** follow: begins the subscription, with a position if one is given. */
  constructor(name, follow, options) {
    this.name = name;
    this.#follow = follow;
    this.#options = options;
  }

  get state() {
    return this.#subscription?.state ?? "closed";
  }

  /** Whether the topic does not exist yet, or belongs to another owner, as far as the server shows. */
  get isPending() {
    return this.#subscription?.isPending ?? false;
  }

  /** The position behind the last frame that the application applied. */
  get position() {
    return this.#subscription?.applied ?? null;
  }

  #begin(given, options = this.#options) {
    if (this.#subscription && this.#subscription.state !== "closed") throw new KhalaError("already_followed", `The topic ${this.name} is followed already.`);
    this.#subscription = this.#follow(this.name, options, given);
    return this.#subscription;
  }

  /**
   * Frames in order. A frame counts as applied when the loop asks for the next one. Its position is
   * stored then.
   */
  async *[Symbol.asyncIterator]() {
    const subscription = this.#begin(this.#options.after);
    try {
      for (let entry; (entry = await subscription.take());) {
        if (entry.frame) yield entry.frame;
        else if (entry.reset) await this.#reset(entry.reset, this.#options.reset);
        subscription.acknowledge(entry);
      }
    } finally {
      await this.#finish(subscription);
    }
  }

  /** Calls the handler for each frame, one after another. A frame is applied when its promise resolves. */
  async each(handler) {
    for await (const frame of this) await handler(frame);
  }

  async #reset(reset, handler, tx) {
    if (handler || isLoss(reset)) await handleReset(`The topic ${this.name}`, reset, handler, tx);
  }

  /**
   * Applies each frame exactly once. load() answers the stored position or null. transaction(work)
   * runs work(tx) in one transaction. apply(frame, tx), reset(reset, tx) and save(position, tx) write
   * in it. Without reset, a truncated start, or one that drops applied frames, ends with an error.
   */
  async exactlyOnce({ load, transaction, apply, save, reset }) {
    const given = await load();
    const stored = given ? readPosition(given) : null;
    if (given && !stored) throw new KhalaError("position_unreadable", "load() did not answer a position {epoch, seq} or null.");
    const subscription = this.#begin(stored, { ...this.#options, fold: false }); // each event has its own transaction
    try {
      for (let entry; (entry = await subscription.take());) {
        await transaction(async (tx) => {
          if (entry.frame) await apply(entry.frame, tx);
          else if (entry.reset) await this.#reset(entry.reset, reset, tx);
          await save(entry.position, tx);
        });
        subscription.acknowledge(entry);
      }
    } finally {
      await this.#finish(subscription);
    }
  }

  async #finish(subscription) {
    subscription.give("stop");
    await subscription.saved;
  }

  /** Ends the loop, and waits until the last position is stored. */
  async close() {
    if (this.#subscription) await this.#finish(this.#subscription);
  }
}

/** The whole log as the application follows it: events in the order of their commits, and a reset if its history changed. */
export class Log {
  #follow;
  #options;
  #follower = null;
  #isFollowed = false;

  constructor(follow, options) {
    this.#follow = follow;
    this.#options = options;
  }

  /** The cursor behind the last event that the application applied. */
  get position() {
    return this.#follower?.applied ?? null;
  }

  /** Events in order. An event counts as applied when the loop asks for the next one. Its cursor is stored then. */
  async *[Symbol.asyncIterator]() {
    if (this.#isFollowed) throw new KhalaError("already_followed", "This log is followed already.");
    this.#isFollowed = true;
    try {
      const follower = this.#follower = await this.#follow(this.#options, this.#options.after);
      for await (const entry of follower.entries()) {
        if (entry.event) yield entry.event;
        else if (entry.reset) await handleReset("The log", entry.reset, this.#options.reset);
        follower.acknowledge(entry);
      }
    } finally {
      this.#isFollowed = false;
      await this.#follower?.stop();
    }
  }

  /** Calls the handler for each event, one after another. An event is applied when its promise resolves. */
  async each(handler) {
    for await (const event of this) await handler(event);
  }

  /** Ends the loop, and waits until the last cursor is stored. */
  async close() {
    await this.#follower?.stop();
  }
}
