// Waiting with a deadline. Every wait of the tests goes through this file; a wait that fails names
// what did not come. The tests wait for an event or a condition, never for time alone.

const WAIT_MS_MAX = 60_000; // enough on a busy machine; a wait is no measurement
export const ASK_AGAIN_MS = 5;

/** Settles as the promise does, and rejects at the deadline with the name of what did not come. */
export function within(promise, what, milliseconds = WAIT_MS_MAX) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`${what}: not within ${milliseconds} ms`)), milliseconds);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

/** Asks every few milliseconds until the answer is true, and resolves with that answer. */
export function until(ask, what, milliseconds) {
  let isOver = false;
  const asking = async () => {
    while (!isOver) {
      const answer = await ask();
      if (answer) return answer;
      await new Promise((resolve) => setTimeout(resolve, ASK_AGAIN_MS));
    }
    return undefined;
  };
  return within(asking(), what, milliseconds).finally(() => { isOver = true; });
}

/** Resolves with the first value that the emitter emits under that name. */
export function once(emitter, name, what = name) {
  return within(new Promise((resolve) => emitter.once(name, resolve)), what);
}

/** Calls act at that interval until the test ends or the returned function is called. */
export function repeat(t, milliseconds, act) {
  const timer = setInterval(act, milliseconds);
  const stop = () => clearInterval(timer);
  t.after(stop);
  return stop;
}

/** An object that reports its changes, so that a test can wait for a condition on it. */
export class Watched {
  #watchers = new Set();

  /** Tells every waiting condition to look again; a subclass calls it after each change. */
  changed() {
    for (const watcher of [...this.#watchers]) watcher();
  }

  /** The error that ends a wait for a condition that can no longer hold; null while it still can. */
  failure(_what) {
    return null;
  }

  /** Resolves when the condition on this object holds, and rejects when it fails, throws or is late. */
  until(ready, what, milliseconds) {
    let watcher;
    const done = new Promise((resolve, reject) => {
      watcher = () => {
        try {
          if (ready(this)) {
            resolve();
            return;
          }
        } catch (error) {
          reject(error);
          return;
        }
        const failure = this.failure(what);
        if (failure) reject(failure);
      };
      this.#watchers.add(watcher);
      watcher();
    });
    return within(done, what, milliseconds).finally(() => this.#watchers.delete(watcher));
  }
}

/** A list that a test fills from callbacks and waits on. */
export class Received extends Watched {
  all = [];

  add(value) {
    this.all.push(value);
    this.changed();
  }
}
