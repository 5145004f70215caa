// Storages of positions: {load(key), save(key, text)}, plain or with promises.

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
