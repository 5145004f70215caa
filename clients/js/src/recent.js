// What arrived within the last five minutes, in bounded memory, without ever taking a new event for a known one.

const WINDOW_MS = 300_000;
const GENERATIONS_MAX = 8;
const GENERATION_MS = WINDOW_MS / (GENERATIONS_MAX - 1); // rounded up, so that seven of them cover the window
const SLOTS_MIN = 64;
const SLOTS_MAX = 65_536; // a slot has 16 bytes
const FULL = 0.75; // the share of used slots; a set that is fuller takes long to find a free one
const TEXTS_MAX = 4096; // ids that are no UUID
const DOCUMENTS_MAX = 8192;
const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/;
const seed = Math.floor(Math.random() * 2 ** 32); // random, so that no producer can choose ids that collide

/** The bytes of a UUID as four numbers, in words; false for any other text and for the UUID of zeros. */
function readUuid(id, words) {
  if (!UUID.test(id)) return false;
  words[0] = parseInt(id.slice(0, 8), 16);
  words[1] = parseInt(id.slice(9, 13) + id.slice(14, 18), 16);
  words[2] = parseInt(id.slice(19, 23) + id.slice(24, 28), 16);
  words[3] = parseInt(id.slice(28), 16);
  return (words[0] | words[1] | words[2] | words[3]) !== 0;
}

function hashOf(words) {
  let hash = seed;
  for (const word of words) {
    hash = Math.imul(hash ^ word, 0x9e3779b1);
    hash ^= hash >>> 15;
  }
  return hash >>> 0;
}

/** The ids of one stretch of time: UUIDs as their 16 bytes in an open-addressing table, others as texts. */
class Generation {
  #slots = new Uint32Array(4 * SLOTS_MIN); // a slot of zeros is free
  #texts = new Set();
  #uuids = 0;

  constructor(now) {
    this.begunAt = this.usedAt = now;
  }

  get isFull() {
    return this.#uuids >= FULL * SLOTS_MAX || this.#texts.size >= TEXTS_MAX;
  }

  get size() {
    return this.#uuids + this.#texts.size;
  }

  get bytes() {
    return this.#slots.byteLength;
  }

  /** The place of the words in the table, or the free one for them. */
  #placeOf(slots, words, hash) {
    const mask = slots.length - 1;
    for (let at = (4 * hash) & mask; ; at = (at + 4) & mask) {
      const isFree = (slots[at] | slots[at + 1] | slots[at + 2] | slots[at + 3]) === 0;
      const isFound = slots[at] === words[0] && slots[at + 1] === words[1] && slots[at + 2] === words[2] && slots[at + 3] === words[3];
      if (isFree || isFound) return { at, isFound };
    }
  }

  has(id, words, hash) {
    return words ? this.#placeOf(this.#slots, words, hash).isFound : this.#texts.has(id);
  }

  add(id, words, hash, now) {
    this.usedAt = now;
    if (!words) {
      this.#texts.add(id);
      return;
    }
    if (this.#uuids >= (FULL * this.#slots.length) / 4) this.#grow();
    this.#slots.set(words, this.#placeOf(this.#slots, words, hash).at);
    this.#uuids++;
  }

  #grow() {
    const slots = new Uint32Array(2 * this.#slots.length);
    for (let at = 0; at < this.#slots.length; at += 4) {
      const words = this.#slots.subarray(at, at + 4);
      if ((words[0] | words[1] | words[2] | words[3]) !== 0) slots.set(words, this.#placeOf(slots, words, hashOf(words)).at);
    }
    this.#slots = slots;
  }
}

/**
 * Recognises events by id and documents by version for five minutes. Events are kept in at most eight
 * generations of 49152 ids and 1 MiB each. A generation is dropped as a whole, once its last id is too
 * old. So 1146 events a second fit, and a topic without events keeps nothing.
 */
export class Recent {
  #generations = []; // the newest is last
  #documents = new Map(); // key → {key, version, at}
  // The documents by age from #oldest on, with some that were replaced. It is a list of its own: a Map
  // whose first entries were deleted takes long to find the next.
  #order = [];
  #oldest = 0;
  #words = new Uint32Array(4);

  constructor({ windowMs = WINDOW_MS, documentsMax = DOCUMENTS_MAX } = {}) {
    this.windowMs = windowMs;
    this.documentsMax = documentsMax;
  }

  /** Whether the frame repeats an earlier one. A new frame is remembered. */
  repeats(frame, now) {
    const isDocument = typeof frame.doc_key === "string" && (frame.kind === "removed" || frame.kind?.endsWith?.("_summary") === true);
    this.expire(now);
    if (frame.folded) return false; // its range is new, and its event_id is that of the last event alone
    if (isDocument) return this.#repeatsDocument(frame.doc_key, Number(frame.doc_version), now);
    return typeof frame.event_id === "string" && this.#repeatsEvent(frame.event_id, now);
  }

  #repeatsEvent(id, now) {
    const words = readUuid(id, this.#words) ? this.#words : null;
    const hash = words ? hashOf(words) : 0;
    if (this.#generations.some((one) => now - one.usedAt <= this.windowMs && one.has(id, words, hash))) return true;
    let newest = this.#generations.at(-1);
    if (!newest || newest.isFull || now - newest.begunAt >= GENERATION_MS) {
      newest = new Generation(now);
      this.#generations.push(newest);
      if (this.#generations.length > GENERATIONS_MAX) this.#generations.shift();
    }
    newest.add(id, words, hash, now);
    return false;
  }

  #repeatsDocument(key, version, now) {
    const known = this.#documents.get(key);
    if (known && known.version >= version) return true;
    const entry = { key, version, at: now };
    if (known) this.#documents.delete(key); // the Map keeps the order of age then
    this.#documents.set(key, entry);
    this.#order.push(entry);
    return false;
  }

  /** Drops what is too old. Without it, a topic that falls silent would keep its last five minutes for good. */
  expire(now) {
    while (this.#generations.length > 0 && now - this.#generations[0].usedAt > this.windowMs) this.#generations.shift();
    if (this.#order.length >= 2 * this.documentsMax) {
      this.#order = [...this.#documents.values()];
      this.#oldest = 0;
    }
    for (; this.#oldest < this.#order.length; this.#oldest++) {
      const entry = this.#order[this.#oldest];
      const isCurrent = this.#documents.get(entry.key) === entry;
      if (isCurrent && now - entry.at <= this.windowMs && this.#documents.size < this.documentsMax) break;
      if (isCurrent) this.#documents.delete(entry.key);
    }
    if (this.#documents.size === 0) this.#order.length = this.#oldest = 0;
  }

  get size() {
    return this.#documents.size + this.#generations.reduce((sum, one) => sum + one.size, 0);
  }

  /** The bytes of the tables of events. */
  get bytes() {
    return this.#generations.reduce((sum, one) => sum + one.bytes, 0);
  }

  clear() {
    this.#generations = [];
    this.#documents.clear();
    this.#order = [];
    this.#oldest = 0;
  }
}
