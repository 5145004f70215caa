// Hooks for React 18 and later. Components that use the same topic or collection share it.
import { useCallback, useMemo, useSyncExternalStore } from "react";

/** {status, transport, error} of the client. */
export function useConnection(khala) {
  const subscribe = useCallback((listener) => khala.subscribe(listener), [khala]);
  const read = () => khala.state;
  return useSyncExternalStore(subscribe, read, read);
}

/** {documents, isReady, error} of a summary topic; documents is a Map that is replaced at each change. */
export function useCollection(khala, name, { where, conflateMs } = {}) {
  const collection = khala.collection(name, { where, conflateMs });
  const subscribe = useCallback((listener) => collection.subscribe(listener), [collection]);
  const read = () => collection.snapshot();
  const documents = useSyncExternalStore(subscribe, read, read);
  const { isReady, error } = collection;
  return useMemo(() => ({ documents, isReady, error }), [documents, isReady, error]);
}

const RUNS = "runtime.run_summaries";

/** {runs, isReady, error}: the summaries of the runs that match, as a list in the order in which they came. */
export function useRuns(khala, options) {
  const { documents, isReady, error } = useCollection(khala, RUNS, options);
  return useMemo(() => ({ runs: [...documents.values()], isReady, error }), [documents, isReady, error]);
}

/**
 * {run, isReady, error}: the summary of a run; null while it does not exist, or is not this reader's. All of a page share
 * one collection of the runs that its token may read. A component is rendered again only if its run changed.
 */
export function useRun(khala, id) {
  const collection = khala.collection(RUNS);
  const subscribe = useCallback((listener) => collection.subscribe(listener), [collection]);
  const read = () => (collection.isReady ? collection.get(`runtime/run_summary:${id}`) ?? null : undefined);
  const readError = () => collection.error;
  const run = useSyncExternalStore(subscribe, read, read);
  const error = useSyncExternalStore(subscribe, readError, readError);
  return useMemo(() => ({ run: run ?? null, isReady: run !== undefined, error }), [run, error]);
}

const EMPTY = { frames: [], reset: null, error: null };
const stores = new WeakMap(); // client → Map of stores by topic and limit

/** Follows a topic while a component listens, and keeps its last frames. */
class TopicStore {
  #khala;
  #name;
  #limit;
  #fold;
  #listeners = new Set();
  #topic = null;
  #isTelling = false;
  value = EMPTY;

  constructor(khala, name, { limit, fold }) {
    this.#khala = khala;
    this.#name = name;
    this.#limit = limit;
    this.#fold = fold;
  }

  subscribe(listener) {
    this.#listeners.add(listener);
    if (!this.#topic) void this.#run();
    return () => {
      this.#listeners.delete(listener);
      // Later, so that a component that is mounted again keeps the topic.
      setTimeout(() => this.#listeners.size === 0 && void this.#topic?.close(), 0);
    };
  }

  async #run() {
    const topic = this.#khala.topic(this.#name, { after: null, fold: this.#fold, reset: (reset) => this.#set({ frames: [], reset, error: null }) });
    this.#topic = topic;
    this.#set(EMPTY);
    try {
      for await (const frame of topic) this.#set({ ...this.value, frames: [...this.value.frames, frame].slice(-this.#limit) });
    } catch (error) {
      this.#set({ ...this.value, error });
    } finally {
      this.#topic = null;
      if (this.#listeners.size > 0 && !this.value.error) void this.#run();
    }
  }

  #set(value) {
    this.value = value;
    if (this.#isTelling) return;
    this.#isTelling = true;
    // One call for all frames of a message.
    queueMicrotask(() => {
      this.#isTelling = false;
      for (const listener of [...this.#listeners]) listener();
    });
  }
}

/**
 * {frames, reset, error} of a topic: its last frames, and the reset that its history began with. Older deltas are joined
 * into folded frames unless fold is false.
 */
export function useTopic(khala, name, { limit = 1000, fold = true } = {}) {
  const store = useMemo(() => {
    if (!stores.has(khala)) stores.set(khala, new Map());
    const all = stores.get(khala);
    const key = `${limit} ${fold} ${name}`;
    if (!all.has(key)) all.set(key, new TopicStore(khala, name, { limit, fold }));
    return all.get(key);
  }, [khala, name, limit, fold]);
  const subscribe = useCallback((listener) => store.subscribe(listener), [store]);
  const read = () => store.value;
  return useSyncExternalStore(subscribe, read, read);
}
