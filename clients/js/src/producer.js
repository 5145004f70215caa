// Appends events: each has an id from the start, so a repeated request never stores a second event.
import { hintOf, KhalaError } from "./errors.js";
import { backOffMs, realWorld, tokenLifeMs } from "./machine.js";
import { fetchOwn, randomBytes, refusalOf } from "./request.js";

const REFUSALS_MAX = 3;
const encoder = new TextEncoder();

let lastTime = 0;

/** A UUIDv7 whose time never goes back within this process. */
export function eventId(wall = Date.now()) {
  lastTime = Math.max(lastTime, wall);
  const random = randomBytes(10);
  random[0] = (random[0] & 0x0f) | 0x70;
  random[2] = (random[2] & 0x3f) | 0x80;
  const text = lastTime.toString(16).padStart(12, "0") + [...random].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  return text.replace(/^(.{8})(.{4})(.{4})(.{4})/, "$1-$2-$3-$4-");
}

export class Producer {
  #options;
  #world;
  #queue = []; // {line, bytes, id, resolve, reject}, in the order of the calls
  #bytes = 0;
  #isSending = false;
  #timer = null;
  #room = [];
  #token = null;
  #interrupt = () => {}; // ends the wait or the request in progress
  #closed = null;

  /** options: {url, token, fetch, queueItemsMax, queueBytesMax, batchItemsMax, batchBytesMax, batchMs, backOff}. */
  constructor(options, world = realWorld) {
    const { url, fetch = globalThis.fetch } = options;
    this.#options = { queueItemsMax: 1000, queueBytesMax: 8 << 20, batchItemsMax: 200, batchBytesMax: 1 << 20, batchMs: 5, tokenTimeoutMs: 15_000, requestTimeoutMs: 30_000, ...options, url: new URL(url).href.replace(/\/$/, ""), fetch: (...call) => fetch(...call) };
    this.#world = world;
  }

  get length() {
    return this.#queue.length;
  }

  get isFull() {
    const { queueItemsMax, queueBytesMax } = this.#options;
    return this.#queue.length >= queueItemsMax || this.#bytes >= queueBytesMax;
  }

  /**
   * Appends an event to {run_id}, {worker_id} or {topic}, and resolves with the server's answer. A
   * full queue rejects with queue_full at once: await room(), then append again.
   */
  append(event) {
    if (this.#closed) return Promise.reject(this.#closed);
    if (this.isFull) return Promise.reject(new KhalaError("queue_full", "The queue of the producer is full."));
    const whole = { event_id: eventId(this.#world.wall()), ...event };
    const line = JSON.stringify(whole);
    const bytes = encoder.encode(line).length + 1;
    return new Promise((resolve, reject) => {
      this.#queue.push({ line, bytes, id: whole.idempotency_key ? null : whole.event_id, resolve, reject });
      this.#bytes += bytes;
      this.#sendSoon();
    });
  }

  /** Resolves when the queue has room. */
  room() {
    return this.isFull && !this.#closed ? new Promise((resolve) => this.#room.push(resolve)) : Promise.resolve();
  }

  /** Resolves when every event has its answer. */
  async flush() {
    while (this.#queue.length > 0 && !this.#closed) {
      this.#sendNow();
      await this.#sending;
    }
  }

  /** Rejects the events without an answer. Flush first to keep them. */
  async close() {
    this.#fail(new KhalaError("closed", "The producer is closed."));
    await this.#sending;
  }

  #sending = Promise.resolve();

  #sendSoon() {
    if (this.#isSending || this.#timer !== null) return;
    const { batchItemsMax, batchBytesMax, batchMs } = this.#options;
    if (this.#queue.length >= batchItemsMax || this.#bytes >= batchBytesMax) this.#sendNow();
    else this.#timer = this.#world.setTimeout(() => this.#sendNow(), batchMs);
  }

  #sendNow() {
    this.#world.clearTimeout(this.#timer);
    this.#timer = null;
    if (this.#isSending) return;
    this.#isSending = true;
    this.#sending = this.#sendAll().finally(() => { this.#isSending = false; });
  }

  /** One batch at a time, so that events of one entity keep their order. */
  async #sendAll() {
    let attempts = 0;
    let refusals = 0;
    let itemsMax = this.#options.batchItemsMax;
    while (this.#queue.length > 0 && !this.#closed) {
      const batch = this.#nextBatch(itemsMax);
      const { left, error } = await this.#send(batch);
      if (this.#closed) return;
      if (left < batch.length) attempts = refusals = 0;
      if (!error) continue;
      if (error.policy === "reauthenticate") {
        this.#token = null;
        refusals++;
      }
      if (error.policy === "final" || refusals >= REFUSALS_MAX) {
        this.#fail(new KhalaError(error.code, error.message));
        return;
      }
      if (error.status === 413 && batch.length > 1) {
        itemsMax = Math.max(1, batch.length >> 1);
        continue;
      }
      // A refusal of the whole batch, such as 403: no later attempt can succeed.
      if (error.policy === "topic_final") {
        for (const item of batch) this.#settle(item, (one) => one.reject(new KhalaError(error.code, error.message, { status: error.status })));
        continue;
      }
      const ms = backOffMs(attempts++, error.retryAfterMs, this.#world.random(), this.#options.backOff);
      let timer;
      await new Promise((resolve) => {
        timer = this.#world.setTimeout(resolve, ms);
        this.#interrupt = resolve;
      });
      this.#world.clearTimeout(timer);
    }
  }

  #nextBatch(itemsMax) {
    const batch = [];
    let bytes = 0;
    for (const item of this.#queue) {
      if (batch.length >= itemsMax || (batch.length > 0 && bytes + item.bytes > this.#options.batchBytesMax)) break;
      batch.push(item);
      bytes += item.bytes;
    }
    return batch;
  }

  /** Sends the batch and settles the items that have an answer. Answers how many are left and the error of the first. */
  async #send(batch) {
    const late = new AbortController();
    const timer = this.#world.setTimeout(() => late.abort(), this.#options.requestTimeoutMs);
    this.#interrupt = () => late.abort();
    try {
      const response = await fetchOwn(this.#options.fetch, `${this.#options.url}/v1/events:batch`, {
        method: "POST", body: batch.map(({ line }) => `${line}\n`).join(""), signal: late.signal,
        headers: { "content-type": "application/x-ndjson", authorization: `Bearer ${await this.#freshToken()}` },
      });
      const isExpected = response.status === 200 && response.headers.get("content-type")?.startsWith("application/x-ndjson");
      if (!isExpected) return { left: batch.length, error: await refusalOf(response) };
      return this.#answers(batch, await response.text());
    } catch (cause) {
      return { left: batch.length, error: cause?.final ? { policy: "final", code: "token_failed", message: String(cause) } : { policy: "retry", code: "connection_lost" } };
    } finally {
      this.#world.clearTimeout(timer);
    }
  }

  #answers(batch, text) {
    let left = batch.length;
    let error = null;
    for (const line of text.split("\n")) {
      let answer;
      try {
        answer = JSON.parse(line);
      } catch {
        continue; // the answer broke off; what is missing is asked again
      }
      const item = batch[answer?.index];
      // An idempotency key may answer an earlier event. Any other id is not of this item.
      if (!item || (answer.event && item.id && answer.event.event_id !== item.id)) continue;
      const { status } = answer;
      if (status === 429 || status >= 500 || status === 424) {
        const { details } = answer.error ?? {};
        error ??= { policy: "retry", status, code: answer.error?.error, retryAfterMs: hintOf(details?.retry_after_ms) };
        continue;
      }
      left--;
      if (status === 200) this.#settle(item, (one) => one.resolve(answer));
      else this.#settle(item, (one) => one.reject(new KhalaError(answer.error?.error ?? "refused", answer.error?.message, { status, details: answer.error?.details })));
    }
    return { left, error: error ?? (left > 0 ? { policy: "retry", code: "answer_incomplete" } : null) };
  }

  #settle(item, act) {
    const index = this.#queue.indexOf(item);
    if (index < 0) return;
    this.#queue.splice(index, 1);
    this.#bytes -= item.bytes;
    act(item);
    if (!this.isFull) for (const resolve of this.#room.splice(0)) resolve();
  }

  async #freshToken() {
    const now = this.#world.now();
    if (this.#token && now < this.#token.until) return this.#token.text;
    let timer;
    const late = new Promise((_, reject) => { timer = this.#world.setTimeout(() => reject(new Error("The token callback was too slow.")), this.#options.tokenTimeoutMs); });
    try {
      const text = await Promise.race([this.#options.token(), late]);
      if (typeof text !== "string" || text === "") throw new Error("The token callback did not answer a token.");
      this.#token = { text, until: now + 0.75 * (tokenLifeMs(text, this.#world.wall()) ?? Infinity) };
      return text;
    } finally {
      this.#world.clearTimeout(timer);
    }
  }

  #fail(error) {
    if (this.#closed) return;
    this.#closed = error;
    this.#interrupt();
    this.#world.clearTimeout(this.#timer);
    for (const { reject } of this.#queue.splice(0)) reject(error);
    this.#bytes = 0;
    for (const resolve of this.#room.splice(0)) resolve();
  }
}
