// The whole log over an event stream, by event cursor: connects, resumes, and recognises what it has seen.
import { errorOf, hintOf, KhalaError } from "./errors.js";
import { EventStreamDecoder } from "./http.js";
import { backOffMs } from "./machine.js";
import { causeOf, fetchOwn, newRequestId, refusalOf } from "./request.js";
import { PositionKeeper } from "./storage.js";
import { askToken } from "./token.js";

const SILENCE_MS = 35_000; // two heartbeats and some seconds
const REFUSALS_MAX = 4; // new tokens in a row
const RENEWAL_MS = 1000; // the least time between two streams whose token ends

/** The time and the id in a cursor, which order it; null if it is none. The text itself does not order. */
function readCursor(cursor) {
  try {
    const [, time, id] = atob(cursor.replaceAll("-", "+").replaceAll("_", "/")).match(/^(\d{1,16}):(.+)$/);
    return { time: Number(time), id: /^[0-9a-f-]{36}$/.test(id) ? id : "" };
  } catch {
    return null;
  }
}

function isLater(cursor, other) {
  const [one, two] = [readCursor(cursor), readCursor(other)];
  if (!one) throw new Error("The server sent a cursor that is none.");
  return !two || one.time > two.time || (one.time === two.time && one.id > two.id);
}

const refused = (refusal) => Object.assign(new Error(refusal.code), { refusal });

/** Entries: {event, cursor}, {reset, cursor: null} and {cursor}, in order. After each one its cursor is stored. */
export class LogFollower {
  applied = null; // the cursor behind the last entry that the application applied
  #settings;
  #given;
  #keeper;
  #cursor = null; // the cursor of the last entry that arrived
  #since;
  #isOver = false;
  #interrupt = () => {}; // ends the wait or the request in progress

  /**
   * settings: {url, fetch, world, query, token, tokenTimeoutMs, connectTimeoutMs, backOff, since, storage, key, warn,
   * done}. given: a cursor in place of the stored one, null for none.
   */
  constructor(settings, given) {
    this.#settings = settings;
    this.#given = given;
    this.#since = settings.since;
    this.#keeper = new PositionKeeper(settings.storage, settings.key, (message, cause) => settings.warn(new KhalaError("storage_failed", message, { cause })));
  }

  /** Ends the entries, and waits until the last cursor is stored. */
  async stop() {
    this.#isOver = true;
    this.#interrupt();
    this.#settings.done(this);
    await this.#keeper.saved;
  }

  acknowledge({ cursor }) {
    this.applied = cursor;
    this.#keeper.save({ cursor });
  }

  async #load() {
    if (this.#given !== undefined) return { cursor: this.#given, isRead: true };
    const { text, isRead } = await this.#keeper.load();
    if (text === null) return { cursor: null, isRead };
    try {
      const { cursor } = JSON.parse(text);
      return { cursor, isRead: cursor === null || readCursor(cursor) !== null };
    } catch {
      return { cursor: null, isRead: false };
    }
  }

  async *entries() {
    const { world, backOff, warn } = this.#settings;
    const { cursor, isRead } = await this.#load();
    this.#cursor = this.applied = isRead ? cursor : null;
    if (this.#cursor || !isRead) this.#since = undefined;
    if (!isRead) yield { reset: { reason: "position_unreadable" }, cursor: null };
    let attempts = 0;
    let refusals = 0;
    while (!this.#isOver) {
      let error = null;
      const begunAt = world.now();
      try {
        for await (const entry of this.#stream()) {
          attempts = refusals = 0;
          if (entry) yield entry;
        }
      } catch (cause) {
        error = cause.refusal ?? { policy: cause.final ? "final" : "retry", code: cause instanceof KhalaError ? cause.code : "connection_lost", message: causeOf(cause) };
      }
      if (this.#isOver) return;
      if (!error) { // the token ends, and the next stream gets a new one
        if (world.now() - begunAt < RENEWAL_MS) await this.#wait(RENEWAL_MS); // the next token may be as short-lived
        continue;
      }
      const { policy, code, message, status, request_id, retryAfterMs } = error;
      const isFinal = policy === "final" || policy === "topic_final" || (policy === "reauthenticate" && ++refusals >= REFUSALS_MAX);
      if (isFinal) throw new KhalaError(code, message, { status, request_id });
      if (policy === "stale") yield this.#reset(error.body?.details);
      if (this.#isOver) return;
      const ms = backOffMs(attempts++, retryAfterMs, world.random(), backOff);
      warn(new KhalaError(code, `The log is followed again in ${Math.ceil(ms)} ms: ${message}`, { status, request_id, retryAfterMs: ms }));
      await this.#wait(ms);
    }
  }

  async #wait(ms) {
    let timer;
    await new Promise((resolve) => {
      timer = this.#settings.world.setTimeout(resolve, ms);
      this.#interrupt = resolve;
    });
    this.#settings.world.clearTimeout(timer);
  }

  /** One connection. Yields null for a message without an entry; returns when the next one may begin at once. */
  async *#stream() {
    const { url, fetch, world, query, token, tokenTimeoutMs, connectTimeoutMs } = this.#settings;
    const abort = new AbortController();
    this.#interrupt = () => abort.abort();
    /** The promise, with a time limit that stands still while the application works. */
    const within = async (ms, promise) => {
      const timer = world.setTimeout(() => abort.abort(new Error("The server sent nothing for too long.")), ms);
      return promise.finally(() => world.clearTimeout(timer));
    };
    const authorization = `Bearer ${await askToken(token, tokenTimeoutMs, world)}`;
    if (this.#isOver) return;
    const start = this.#cursor ? { after_cursor: this.#cursor } : this.#since === "head" ? { from: "head" } : this.#since ? { since: this.#since } : {};
    const id = newRequestId();
    const address = `${url}/events?${new URLSearchParams({ ...start, ...query })}`;
    const response = await within(connectTimeoutMs, fetchOwn(fetch, address, { headers: { authorization }, signal: abort.signal }, id));
    const isExpected = response.status === 200 && response.headers.get("content-type")?.startsWith("text/event-stream");
    if (!isExpected) throw refused(await refusalOf(response, id));
    const reader = response.body.getReader();
    const text = new TextDecoder("utf-8", { fatal: true });
    const decoder = new EventStreamDecoder();
    const end = { policy: "retry", code: "stream_ended", message: "The stream ended.", request_id: id };
    try {
      for (;;) {
        const { done, value } = await within(SILENCE_MS, reader.read());
        if (done) throw refused(end);
        yield null;
        for (const message of decoder.decode(text.decode(value, { stream: true }))) {
          if (message.retry !== undefined) end.retryAfterMs = hintOf(message.retry);
          if (message.data === "") continue;
          const body = JSON.parse(message.data);
          if (message.type === "reauth_required" || body.code === "token_expired") return;
          if (message.type === "error") Object.assign(end, errorOf(body), { body }); // the stream ends next
          yield this.#take(message, body);
        }
      }
    } finally {
      abort.abort();
    }
  }

  /** The log starts again at its first event. */
  #reset(body) {
    this.#cursor = null;
    this.#since = undefined;
    return { reset: { reason: body?.reason_codes?.[0] ?? "stale_cursor" }, cursor: null };
  }

  #take({ type, id }, body) {
    if (type === "stale_cursor") return this.#reset(body);
    const cursor = type === "bootstrap" ? body.after_cursor : id;
    const isMove = ["message", "progress", "bootstrap"].includes(type) && typeof cursor === "string";
    // A cursor that is not later was sent before.
    if (!isMove || (this.#cursor && !isLater(cursor, this.#cursor))) return null;
    this.#cursor = cursor;
    return type === "message" ? { event: body, cursor } : { cursor };
  }
}
