// The documents of a summary topic as an observable map. It starts with the snapshot of each connection
// that cannot resume, and keeps no position in a storage, because the documents are in memory only.
import { notify } from "./machine.js";

export class Collection {
  #documents = new Map(); // doc_key → {doc_key, doc_version, payload}
  #view = new Map(); // made anew after a change, so that equal references mean equal content
  #isViewCurrent = true;
  #listeners = new Set();
  #topic;
  #running = null;
  #users = 0;
  #isUnused = false; // the topic ends because nothing uses it, so it begins again if it is opened meanwhile
  #whenReady;
  error = null;

  constructor(topicFor) {
    this.#topic = topicFor({ after: null, reset: (reset) => this.#restart(reset) });
    this.name = this.#topic.name;
    this.#prepare();
  }

  #prepare() {
    this.isReady = false;
    this.ready = new Promise((resolve, reject) => { this.#whenReady = { resolve, reject }; });
    this.ready.catch(() => {}); // an application may never look
  }

  /** Starts to follow. It stops when every caller has called the returned function. */
  open() {
    this.#users++;
    this.#running ??= this.#run();
    let isOpen = true;
    return () => {
      if (!isOpen) return;
      isOpen = false;
      // Later, so that a view that is replaced by another does not drop the documents.
      if (--this.#users === 0) setTimeout(() => this.#users === 0 && this.#release(), 0);
    };
  }

  #release() {
    this.#isUnused = true;
    void this.close();
  }

  async #run() {
    try {
      do {
        this.#isUnused = false;
        for await (const frame of this.#topic) this.#set(frame);
      } while (this.#isUnused && this.#users > 0);
      this.#whenReady.reject(new Error("The collection was closed."));
    } catch (error) {
      this.error = error;
      this.#whenReady.reject(error);
      this.#notify({ type: "error", error });
    } finally {
      this.#running = null;
      this.#prepare();
    }
  }

  #restart({ reason, documents = [] }) {
    this.#documents = new Map(documents.map((one) => [one.doc_key, one]));
    this.isReady = true;
    this.error = null;
    this.#whenReady.resolve(this);
    this.#notify({ type: "reset", reason });
  }

  /** A frame of the kind "removed" says that the document does not match the filter any more. */
  #set({ kind, doc_key, doc_version, payload, seq }) {
    const known = this.#documents.get(doc_key);
    if (typeof doc_key !== "string" || known?.doc_version >= doc_version) return;
    if (kind !== "removed") {
      this.#documents.set(doc_key, { doc_key, doc_version, payload });
      this.#notify({ type: "set", key: doc_key, value: payload, seq });
    } else if (this.#documents.delete(doc_key)) {
      this.#notify({ type: "removed", key: doc_key, seq });
    }
  }

  #notify(change) {
    this.#isViewCurrent = false;
    notify(this.#listeners, change);
  }

  /** The payload of a document, by its key or by the id at the end of it. */
  get(key) {
    const [first] = this.#documents.keys();
    return (this.#documents.get(key) ?? this.#documents.get(`${first?.slice(0, first.indexOf(":") + 1)}${key}`))?.payload;
  }

  get size() {
    return this.#documents.size;
  }

  /** All payloads by key. The same Map until the next change. */
  snapshot() {
    if (!this.#isViewCurrent) {
      this.#view = new Map([...this.#documents].map(([key, { payload }]) => [key, payload]));
      this.#isViewCurrent = true;
    }
    return this.#view;
  }

  /** Calls the listener after each change, and follows the topic meanwhile. */
  subscribe(listener) {
    const one = (change) => listener(change);
    this.#listeners.add(one);
    const release = this.open();
    return () => {
      this.#listeners.delete(one);
      release();
    };
  }

  /** The changes from now on, as an async iterator. A slow reader gets the newest change of each document. */
  async *changes() {
    const waiting = new Map();
    let wake = () => {};
    const stop = this.subscribe((change) => {
      if (change.type === "reset") waiting.clear();
      waiting.delete(change.key);
      waiting.set(change.key ?? change.type, change);
      wake();
    });
    try {
      for (;;) {
        for (const [key, change] of waiting) {
          waiting.delete(key);
          if (change.error) throw change.error;
          yield change;
        }
        if (waiting.size === 0) await new Promise((resolve) => { wake = resolve; });
      }
    } finally {
      stop();
    }
  }

  async close() {
    await this.#topic.close();
  }
}
