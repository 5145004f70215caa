// The state machine of the connection and of a topic. A pure function of the tables in spec/.
import { CONNECTION, TOPIC } from "./tables.js";

/** The next state and the actions, in order. A missing cell ignores the input. */
function step(table, state, input) {
  const [next, ...actions] = (table[state][input] ?? state).split(" ");
  return { next, actions };
}

export const connectionStep = (state, input) => step(CONNECTION, state, input);
export const topicStep = (state, input) => step(TOPIC, state, input);

/** The wait before an attempt: half of it is random. A hint is the least wait. */
export function backOffMs(attempt, hintMs, random, { baseMs = 300, maxMs = 30_000 } = {}) {
  const whole = Math.min(maxMs, baseMs * 2 ** Math.min(attempt, 20));
  return hintMs === undefined ? whole / 2 + (random * whole) / 2 : hintMs + random * Math.max(baseMs, hintMs / 4);
}

/** Turns inputs into steps one after another, also those that an action gives. */
export class Machine {
  #inputs = [];
  #isRunning = false;

  constructor(step, state, act, changed) {
    this.state = state;
    this.#run = (input, data) => {
      const { next, actions } = step(this.state, input);
      const isChange = next !== this.state;
      this.state = next;
      for (const action of actions) act[action](data);
      if (isChange) changed();
    };
  }

  #run;

  give(input, data) {
    this.#inputs.push([input, data]);
    if (this.#isRunning) return;
    this.#isRunning = true;
    try {
      while (this.#inputs.length > 0) this.#run(...this.#inputs.shift());
    } finally {
      this.#isRunning = false;
    }
  }
}

/** Clocks, timers and chance. Tests give their own. */
export const realWorld = {
  now: () => performance.now(),
  wall: () => Date.now(),
  random: () => Math.random(),
  setTimeout: (act, ms) => setTimeout(act, ms),
  clearTimeout: (timer) => clearTimeout(timer),
};

/** Calls every listener. An error of one does not stop the others, nor the machine: the platform reports it. */
export function notify(listeners, value) {
  for (const listener of [...listeners]) {
    try {
      listener(value);
    } catch (error) {
      queueMicrotask(() => { throw error; });
    }
  }
}
