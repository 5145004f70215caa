// Appends events: each has an id from the start, so a repeated request never stores a second event.
// Every entity has a lane of its own: one batch of it is in flight, and only it waits when it is refused.
import { hintOf, KhalaError } from "./errors.js";
import { backOffMs, notify, realWorld } from "./machine.js";
import { causeOf, fetchOwn, hiddenError, inquire, newRequestId, randomBytes, refusalOf } from "./request.js";
import { askToken, tokenLifeMs } from "./token.js";

const REFUSALS_MAX = 3;
const encoder = new TextEncoder();
const DEFAULTS = {
  queueItemsMax: 1000, queueBytesMax: 8 << 20, batchItemsMax: 200, batchBytesMax: 1 << 20, batchMs: 5, requestsMax: 4,
  tokenTimeoutMs: 15_000, requestTimeoutMs: 30_000, closeTimeoutMs: 10_000,
};

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

/** What the event belongs to: the events of one entity keep their order. */
function entityOf({ run_id, worker_id, topic }) {
  if (run_id !== undefined) return `run ${run_id}`;
  return worker_id === undefined ? `topic ${topic}` : `worker ${worker_id}`;
}

const isRetried = ({ status }) => status === 429 || status === 424 || status >= 500;

export class Producer {
  #options;
  #world;
  #items = new Set(); // {number, entity, line, bytes, id, event_id, resolve, reject} without an answer, in the order of the calls
  #bytes = 0;
  #number = 0;
  #lanes = new Map(); // entity → {items, count, bytes, isBusy, attempts, timer}; its items are those that no request carries
  #waiting = { items: 0, bytes: 0 }; // the content of the lanes
  #requests = new Set(); // {abort, done}
  #itemsMax; // the size of a batch; halved while batches are too large
  #timer = null; // begins the next batch
  #pause = null; // the wait after a failed request
  #failures = 0; // requests in a row
  #refusals = 0; // tokens in a row
  #waiters = []; // {isDone, resolve} of room and flush
  #token = null; // {text, until}
  #asked = null; // the promise of a token
  #warners = new Set();
  #hidden = 0; // failed requests in a row whose answers the browser hid
  #isClosing = false;
  #closed = null;

  /**
   * options: {url, token, fetch, queueItemsMax, queueBytesMax, batchItemsMax, batchBytesMax, batchMs, requestsMax,
   * requestTimeoutMs, tokenTimeoutMs, closeTimeoutMs, backOff}.
   */
  constructor(options, world = realWorld) {
    const { url, fetch = globalThis.fetch } = options;
    this.#options = { ...DEFAULTS, ...options, url: new URL(url).href.replace(/\/$/, ""), fetch: (...call) => fetch(...call) };
    this.#itemsMax = this.#options.batchItemsMax;
    this.#world = world;
  }

  get length() {
    return this.#items.size;
  }

  get isFull() {
    const { queueItemsMax, queueBytesMax } = this.#options;
    return this.#items.size >= queueItemsMax || this.#bytes >= queueBytesMax;
  }

  /** Whether the entity may have one more event. A refused one leaves as much of the queue free as it uses. */
  #hasRoom(lane) {
    if (this.isFull) return false;
    if (!lane?.attempts) return true;
    const { queueItemsMax, queueBytesMax } = this.#options;
    return lane.count <= queueItemsMax - this.#items.size && lane.bytes <= queueBytesMax - this.#bytes;
  }

  /** Calls the listener for each refusal and each failed request that the producer survives; the returned function ends that. */
  onWarning(listener) {
    this.#warners.add(listener);
    return () => void this.#warners.delete(listener);
  }

  /**
   * Appends an event to {run_id}, {worker_id} or {topic}, and resolves with the server's answer. A
   * full queue rejects with queue_full at once, as do too many events of a refused entity: await room(), then append again.
   */
  append(event) {
    if (this.#closed) return Promise.reject(this.#closed);
    if (this.#isClosing) return Promise.reject(new KhalaError("closed", "The producer is closed."));
    const entity = entityOf(event);
    if (!this.#hasRoom(this.#lanes.get(entity))) {
      const blocked = `Too many events wait for ${entity}, which the server refuses for now.`;
      return Promise.reject(new KhalaError("queue_full", this.isFull ? "The queue of the producer is full." : blocked, this.isFull ? {} : { entity }));
    }
    const whole = { event_id: eventId(this.#world.wall()), ...event };
    const line = JSON.stringify(whole);
    const bytes = encoder.encode(line).length + 1;
    return new Promise((resolve, reject) => {
      const { event_id, idempotency_key } = whole;
      const item = { number: this.#number++, entity, line, bytes, id: idempotency_key ? null : event_id, event_id, resolve, reject };
      this.#items.add(item);
      this.#bytes += bytes;
      this.#enqueue(entity, [item]);
      const lane = this.#lanes.get(entity);
      lane.count++;
      lane.bytes += bytes;
      this.#sendSoon();
    });
  }

  /** Resolves when the queue has room for an event of {run_id}, {worker_id} or {topic}; without one, of every entity. */
  room(target) {
    const entity = target && entityOf(target);
    return this.#until(() => (entity ? this.#hasRoom(this.#lanes.get(entity))
      : !this.isFull && [...this.#lanes.values()].every((lane) => this.#hasRoom(lane))));
  }

  /** Resolves when every event that was appended before has its answer. */
  flush() {
    this.#send();
    const end = this.#number;
    return this.#until(() => !(this.#items.values().next().value?.number < end));
  }

  /** Resolves when that is so, or the producer has ended. */
  #until(isDone) {
    return this.#closed || isDone() ? Promise.resolve() : new Promise((resolve) => this.#waiters.push({ isDone, resolve }));
  }

  #wake() {
    for (const waiter of this.#waiters.splice(0)) {
      if (this.#closed || waiter.isDone()) waiter.resolve();
      else this.#waiters.push(waiter);
    }
  }

  /**
   * Waits for the answers of all events, at most for so long, and ends the producer. An event without
   * an answer is rejected then; the server may have it or not, and append with its event_id is safe.
   */
  async close({ timeoutMs = this.#options.closeTimeoutMs } = {}) {
    this.#isClosing = true;
    let timer;
    const late = new Promise((resolve) => { timer = this.#world.setTimeout(resolve, timeoutMs); });
    await Promise.race([this.flush(), late]);
    this.#world.clearTimeout(timer);
    const requests = [...this.#requests];
    this.#fail({ code: "closed", message: `The producer was closed, and this event had no answer within ${timeoutMs} ms. The server may have stored it: append it again with its event_id.` });
    await Promise.all(requests.map(({ done }) => done));
  }

  // ---- lanes ----

  /** Puts items into the lane of their entity: new ones at its end, those that come back at its front. */
  #enqueue(entity, items, isFront) {
    if (!this.#lanes.has(entity)) this.#lanes.set(entity, { items: [], count: 0, bytes: 0, isBusy: false, attempts: 0, timer: null });
    const lane = this.#lanes.get(entity);
    if (isFront) lane.items.unshift(...items);
    else lane.items.push(...items);
    this.#waiting.items += items.length;
    for (const { bytes } of items) this.#waiting.bytes += bytes;
  }

  /** The next batch: of every entity that does not wait, as much as fits. An entity that was served goes behind the others. */
  #nextBatch() {
    const batch = [];
    const served = [];
    let bytes = 0;
    const fits = (item) => batch.length < this.#itemsMax && (batch.length === 0 || bytes + item.bytes <= this.#options.batchBytesMax);
    for (const [entity, lane] of this.#lanes) {
      if (lane.isBusy || lane.timer !== null || lane.items.length === 0) continue;
      let count = 0;
      for (; count < lane.items.length && fits(lane.items[count]); count++) {
        batch.push(lane.items[count]);
        bytes += lane.items[count].bytes;
      }
      if (count === 0) break;
      lane.items.splice(0, count);
      lane.isBusy = true;
      served.push([entity, lane]);
    }
    for (const [entity, lane] of served) {
      this.#lanes.delete(entity);
      this.#lanes.set(entity, lane);
    }
    this.#waiting.items -= batch.length;
    this.#waiting.bytes -= bytes;
    return batch.sort((one, other) => one.number - other.number);
  }

  // ---- requests ----

  // What is to be sent follows from the lanes alone, at every append, answer and end of a wait. A flag that is
  // cleared later than an answer is told would leave an event behind that is appended between the two.
  #sendSoon() {
    const { batchItemsMax, batchBytesMax, batchMs } = this.#options;
    if (this.#waiting.items >= batchItemsMax || this.#waiting.bytes >= batchBytesMax) this.#send();
    else this.#timer ??= this.#world.setTimeout(() => this.#send(), batchMs);
  }

  #send() {
    this.#world.clearTimeout(this.#timer);
    this.#timer = null;
    while (!this.#closed && this.#pause === null && this.#requests.size < this.#options.requestsMax) {
      const batch = this.#nextBatch();
      if (batch.length === 0) return;
      const request = { abort: new AbortController(), done: null };
      this.#requests.add(request);
      request.done = this.#ask(batch, request.abort).then((answer) => {
        this.#requests.delete(request);
        if (!this.#closed) this.#take(batch, answer);
      });
    }
  }

  /** Sends the batch. Answers {results}, the server's answer to each item that has one, or {error}; and the id of the request. */
  async #ask(batch, abort) {
    const { fetch, url, requestTimeoutMs } = this.#options;
    const request_id = newRequestId();
    let timer;
    try {
      const aborted = new Promise((_, reject) => abort.signal.addEventListener("abort", () => reject(abort.signal.reason)));
      const token = await Promise.race([this.#freshToken(), aborted]);
      timer = this.#world.setTimeout(() => abort.abort(new Error("The server did not answer in time.")), requestTimeoutMs);
      const response = await fetchOwn(fetch, `${url}/v1/events:batch`, {
        method: "POST", body: batch.map(({ line }) => `${line}\n`).join(""), signal: abort.signal,
        headers: { "content-type": "application/x-ndjson", authorization: `Bearer ${token}` },
      }, request_id);
      const isExpected = response.status === 200 && response.headers.get("content-type")?.startsWith("application/x-ndjson");
      if (isExpected) return { request_id, results: resultsOf(batch, await response.text()) };
      return { request_id, token, error: await refusalOf(response, request_id) };
    } catch (cause) {
      const policy = cause.final ? "final" : "retry";
      const isToken = cause instanceof KhalaError;
      if (!isToken && !this.#closed) this.#inquire();
      return { request_id, error: { policy, request_id, code: isToken ? cause.code : "connection_lost", message: isToken ? cause.message : `The server cannot be reached (${causeOf(cause)}).` } };
    } finally {
      this.#world.clearTimeout(timer);
    }
  }

  /** Settles what has an answer, puts the rest back, and sends what can be sent, all in one turn. */
  #take(batch, { results = new Map(), error, token, request_id }) {
    const left = new Map(); // entity → {items, refusal}
    for (const item of batch) {
      const answer = results.get(item);
      if (answer?.status === 200) this.#settle(item, () => item.resolve(answer));
      else if (answer && !isRetried(answer)) this.#settle(item, () => item.reject(errorOfItem(answer, item, request_id)));
      else if (error?.status === 413 ? batch.length === 1 : error?.policy === "topic_final") {
        // A refusal of the whole batch, such as 403: no later attempt can succeed. A proxy's 413 is as final as the server's.
        this.#settle(item, () => item.reject(new KhalaError(error.code, error.message, { status: error.status, request_id: error.request_id, event_id: item.event_id })));
      } else {
        const one = left.get(item.entity) ?? { items: [], refusal: null };
        one.items.push(item);
        one.refusal ??= answer ?? null;
        left.set(item.entity, one);
      }
    }
    for (const { entity } of batch) this.#lanes.get(entity).isBusy = false;
    for (const [entity, { items }] of left) this.#enqueue(entity, items, true);
    if (error) this.#failed(error, token, batch.length);
    else {
      this.#failures = this.#refusals = this.#hidden = 0;
      let isCut = false;
      for (const [entity, { items, refusal }] of left) {
        const isProgress = items.length < batch.filter((item) => item.entity === entity).length;
        if (isProgress) this.#lanes.get(entity).attempts = 0;
        if (refusal) this.#backOffLane(entity, refusal, items.length, request_id);
        else isCut = true;
      }
      if (isCut) this.#failed({ code: "answer_incomplete", message: "The answer broke off.", request_id });
    }
    for (const entity of new Set(batch.map((item) => item.entity))) {
      const lane = this.#lanes.get(entity);
      if (lane && !left.has(entity)) lane.attempts = 0;
      if (lane && lane.items.length === 0 && !lane.isBusy && lane.timer === null) this.#lanes.delete(entity);
    }
    if (this.#items.size === 0) this.#itemsMax = this.#options.batchItemsMax;
    this.#wake();
    this.#send();
  }

  /** The request failed as a whole: nothing is sent until the end of a wait, because the fault is of no entity. */
  #failed(error, token, items) {
    if (error.policy === "reauthenticate" && this.#token?.text === token) {
      this.#token = null;
      this.#refusals++;
    }
    if (error.policy === "final" || this.#refusals >= REFUSALS_MAX) {
      this.#fail(error);
      return;
    }
    if (error.status === 413) this.#itemsMax = Math.max(1, items >> 1);
    if (error.status === 413 || error.policy === "topic_final" || this.#pause !== null || this.#closed) return;
    const ms = backOffMs(this.#failures++, error.retryAfterMs, this.#world.random(), this.#options.backOff);
    this.#pause = this.#world.setTimeout(() => {
      this.#pause = null;
      this.#send();
    }, ms);
    this.#warn(error, `${this.#items.size} events wait`, ms);
  }

  /** The server refuses events of this entity for now. Others go on. */
  #backOffLane(entity, { status, error }, count, request_id) {
    const lane = this.#lanes.get(entity);
    const retryAfterMs = hintOf(error?.details?.retry_after_ms);
    const ms = backOffMs(lane.attempts++, retryAfterMs, this.#world.random(), this.#options.backOff);
    lane.timer = this.#world.setTimeout(() => {
      lane.timer = null;
      this.#send();
    }, ms);
    this.#warn({ code: error?.error ?? "refused", message: error?.message ?? "", status, request_id: error?.request_id ?? request_id }, `${count} events of ${entity} wait`, ms, entity);
  }

  #warn({ code, message, status, request_id }, waiting, ms, entity) {
    const text = `${status ? `${status} ` : ""}${code}: ${message ?? ""} ${waiting}, and are sent again in ${Math.ceil(ms)} ms.`;
    notify(this.#warners, new KhalaError(code, text, { status, request_id, entity, retryAfterMs: ms }));
  }

  /** Finds out whether the browser hides the answers from this page. Tells it at the second such request in a row. */
  async #inquire() {
    const { fetch, url } = this.#options;
    if (!globalThis.location) return;
    const isHidden = await inquire(fetch, url, this.#world) === "hidden";
    this.#hidden = isHidden ? this.#hidden + 1 : 0;
    if (this.#hidden === 2) notify(this.#warners, hiddenError(url));
  }

  #settle(item, act) {
    if (!this.#items.delete(item)) return;
    this.#bytes -= item.bytes;
    const lane = this.#lanes.get(item.entity);
    lane.count--;
    lane.bytes -= item.bytes;
    act();
  }

  /** A token for a request. Requests that need one at the same time share it. */
  #freshToken() {
    if (this.#token && this.#world.now() < this.#token.until) return this.#token.text;
    this.#asked ??= askToken(this.#options.token, this.#options.tokenTimeoutMs, this.#world).then((text) => {
      this.#token = { text, until: this.#world.now() + 0.75 * (tokenLifeMs(text, this.#world.wall()) ?? Infinity) };
      return text;
    }).finally(() => { this.#asked = null; });
    return this.#asked;
  }

  #fail({ code, message, status, request_id }) {
    if (this.#closed) return;
    this.#closed = new KhalaError(code, code === "closed" ? "The producer is closed." : message, { status, request_id });
    for (const timer of [this.#timer, this.#pause, ...[...this.#lanes.values()].map((lane) => lane.timer)]) this.#world.clearTimeout(timer);
    for (const { abort } of this.#requests) abort.abort();
    for (const item of [...this.#items]) {
      this.#settle(item, () => item.reject(new KhalaError(code, message, { status, request_id, event_id: item.event_id })));
    }
    this.#lanes.clear();
    this.#wake();
  }
}

/** The answers in the text by their item. What is missing, because the text broke off, is asked again. */
function resultsOf(batch, text) {
  const results = new Map();
  for (const line of text.split("\n")) {
    let answer;
    try {
      answer = JSON.parse(line);
    } catch {
      continue;
    }
    const item = batch[answer?.index];
    // An idempotency key may answer an earlier event. Any other id is not of this item.
    if (item && !(answer.event && item.id && answer.event.event_id !== item.id)) results.set(item, answer);
  }
  return results;
}

function errorOfItem({ status, error }, { event_id }, request_id) {
  return new KhalaError(error?.error ?? "refused", error?.message, { status, details: error?.details, request_id: error?.request_id ?? request_id, event_id });
}
