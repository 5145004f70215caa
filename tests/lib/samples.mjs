// Sample data: numbers, events of a run, and what is measured of a list of times.

/** The topic of the run that `events` appends to. */
export const TOPIC = "run:a:events";

/** The whole numbers from the first to the last, both included. */
export const range = (from, to) => Array.from({ length: to - from + 1 }, (_, i) => from + i);

/** The items of a batch that appends so many events to a run, numbered from 0. */
export function events(count, { run_id = "a", event_type = "run.log", payload = (i) => ({ i }) } = {}) {
  return Array.from({ length: count }, (_, i) => ({ run_id, event_type, payload: payload(i) }));
}

/** A payload of two kilobytes. */
export const wide = (i) => ({ i, text: "x".repeat(2000) });

/** The middle of the times. */
export const median = (times) => [...times].sort((a, b) => a - b)[Math.floor(times.length / 2)];
