// Answers that are streamed as deltas, and the checks of what a reader made of them. For the libraries of every language.
import assert from "node:assert/strict";

export const RUN = "talk";
export const TALK = `run:${RUN}:events`;
const WORDS = ["a ", "é", "\"quoted\" ", "😀", "\\ ", "new\nline ", "\u0001"];

export const deltaOf = (id, i) => ({ run_id: RUN, event_type: "chat.delta", payload: { id, delta: WORDS[i % WORDS.length] } });

/** Appends deltas of one answer. */
export function say(operator, id, count) {
  return operator.batch(Array.from({ length: count }, (_, i) => deltaOf(id, i)));
}

/** A run with two answers and an event between them: 1 + 400 + 1 + 300 events. */
export async function talk(operator) {
  await operator.did("runs", { run_id: RUN, owner_user_id: "ada" }, 201);
  await say(operator, "m1", 400);
  await operator.did(`runs/${RUN}/events`, { event_type: "run.log", payload: { line: "between" } });
  await say(operator, "m2", 300);
}

/** The text of each answer, in frames or in events. */
function textsOf(items) {
  const texts = {};
  for (const { payload } of items) if (payload?.delta !== undefined) texts[payload.id] = (texts[payload.id] ?? "") + payload.delta;
  return texts;
}

/** The frames follow each other from after to the head of the log, and have its texts. Answers how many there are. */
export async function checkTalk(operator, frames, after = 0) {
  const log = await operator.events(RUN);
  let last = after;
  for (const { seq, folded } of frames) {
    assert.equal(folded?.from_seq ?? seq, last + 1);
    if (folded) assert.equal(folded.count, seq - folded.from_seq + 1);
    last = seq;
  }
  assert.equal(last, log.at(-1).seq);
  assert.deepEqual(textsOf(frames), textsOf(log.filter(({ seq }) => seq > after)));
  for (const { seq, folded, kind, payload } of frames.filter((one) => !one.folded)) {
    assert.deepEqual([kind, payload, folded], [log[seq - 1].event_type, log[seq - 1].payload, undefined]);
  }
  return frames.length;
}

/** Waits until the frame of that seq has come. */
export const reached = (seen, seq) => seen.until(() => seen.frames.at(-1)?.seq >= seq || seen.end, `the frame ${seq}`);
