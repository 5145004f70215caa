// Storages of positions: {load(key), save(key, text)}, plain or with promises.

/** Stores the position of one topic. While one is being stored, only the newest of the others waits. */
export class PositionKeeper {
  #storage;
  #key;
  #failed;
  #isSaving = false;
  #unsaved = null;
  saved = undefined; // settles when the last position is stored

  /** failed: gets the message and the cause of each failure. Without a storage nothing is stored. */
  constructor(storage, key, failed) {
    this.#storage = storage;
    this.#key = key;
    this.#failed = failed;
  }

  /** {text}, which is null if nothing was stored, and whether it could be read. */
  async load() {
    try {
      return { text: (await this.#storage?.load(this.#key)) ?? null, isRead: true };
    } catch (cause) {
      this.#failed("The stored position could not be read.", cause);
      return { text: null, isRead: false };
    }
  }

  save(position) {
    this.#unsaved = position;
    if (this.#storage && !this.#isSaving) this.saved = this.#saveAll();
  }

  async #saveAll() {
    this.#isSaving = true;
    while (this.#unsaved) {
      const position = this.#unsaved;
      this.#unsaved = null;
      try {
        await this.#storage.save(this.#key, JSON.stringify(position));
      } catch (cause) {
        this.#failed("The position could not be stored.", cause);
      }
    }
    this.#isSaving = false; // set in the turn of the last look at #unsaved, so that none is left behind
  }
}

/** Forgets with the process. */
export function memoryStorage() {
  const all = new Map();
  return { load: (key) => all.get(key) ?? null, save: (key, text) => void all.set(key, text) };
}

/** The browser's localStorage. */
export function localStorageStorage(prefix = "") {
  return {
    load: (key) => globalThis.localStorage.getItem(prefix + key),
    save: (key, text) => globalThis.localStorage.setItem(prefix + key, text),
  };
}

/** The browser's IndexedDB, which workers have too. */
export function indexedDbStorage(database = "khala") {
  const answer = (request) => new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
  let opened = null;
  const store = async (mode) => {
    opened ??= (() => {
      const request = globalThis.indexedDB.open(database, 1);
      request.onupgradeneeded = () => request.result.createObjectStore("positions");
      return answer(request);
    })();
    try {
      return (await opened).transaction("positions", mode).objectStore("positions");
    } catch (error) {
      opened = null; // the next call opens it again
      throw error;
    }
  };
  return {
    load: async (key) => (await answer((await store("readonly")).get(key))) ?? null,
    save: async (key, text) => void await answer((await store("readwrite")).put(text, key)),
  };
}
