// The cases of a file. A case that mostly waits, for a timeout or for a server of its own, runs beside
// others. A case that measures time or memory, or needs a result of the others, runs alone after them.
import { describe, test as register } from "node:test";

const BESIDE = 3; // cases at a time

const cases = { beside: [], alone: [], isGathered: false };

// The modules of the program have added their cases when this runs.
queueMicrotask(() => {
  cases.isGathered = true;
  describe("cases beside one another", { concurrency: BESIDE }, () => {
    for (const one of cases.beside) register(...one);
  });
  for (const one of cases.alone) register(...one);
});

// A module that awaits something before its cases adds them later; they run one by one.
const add = (list, given) => (cases.isGathered ? register(...given) : list.push(given));

/** Adds a case that runs beside others; its arguments are those of node:test. */
export const test = (...given) => add(cases.beside, given);

/** Adds a case that runs after the others, and while no other case runs. */
export const alone = (...given) => add(cases.alone, given);
