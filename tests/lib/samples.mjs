// Sample data: numbers, events of a run, and what is measured of a list of times.

/** The topic of the run that `events` appends to. */
export const TOPIC = "run:a:events";

/** The whole numbers from the first to the last, both included. */
export const range = (from, to) => Array.from({ length: to - from + 1 }, (_, i) => from + i);

/** The items of a batch that appends so many events to a run, numbered from 0. */
export function events(count, { run_id = "a", event_type = "run.log", payload = (i) => ({ i }) } = {}) {
  return Array.from({ length: count }, (_, i) => ({ run_id, event_type, payload: payload(i) }));
}

/** The items of a batch by which a run says what it does. */
export const reports = (run_id) => [
  ["run.updated", { title: "Plan \"é\"", tags: ["a", "b"], metadata_patch: { k: { l: 1 }, text: "x".repeat(300) } }],
  ["run.step_started", { step_id: "s1", name: "plan", kind: "llm" }],
  ["run.step_started", { step_id: "s2", name: "search", kind: "tool", parent_step_id: "s1" }],
  ["run.usage", { input_tokens: 100, output_tokens: 20, cost: "0.0125", model: "m" }],
  ["run.step_started", { step_id: "s3", name: "write" }],
  ["run.step_finished", { step_id: "s2", status: "ok" }],
  ["run.usage", { input_tokens: 5, cost: "0.1" }],
  ["run.updated", { metadata_patch: { k: { l: null, m: [1] } } }],
  ["run.waiting", { for: "approval", question: "Go on?" }],
].map(([event_type, payload]) => ({ run_id, event_type, payload }));

/** The members of the run's summary after these, without times. */
export const REPORTED = {
  title: "Plan \"é\"", tags: ["a", "b"], metadata: { k: { m: [1] }, text: "x".repeat(300) }, open_steps: 2,
  current_step: { step_id: "s3", name: "write" }, usage: { cost: "0.1125", input_tokens: 105, model: "m", output_tokens: 20 },
  waiting: { for: "approval", question: "Go on?" }, error: null,
};

/** A payload of two kilobytes. */
export const wide = (i) => ({ i, text: "x".repeat(2000) });

/** The middle of the times. */
export const median = (times) => [...times].sort((a, b) => a - b)[Math.floor(times.length / 2)];
