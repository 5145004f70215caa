// Folded deltas through the JavaScript client: a late reader gets few frames and the text of the log, on every transport.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { operate } from "../../lib/operator.mjs";
import { range } from "../../lib/samples.mjs";
import { until } from "../../lib/wait.mjs";
import { checkTalk, reached, say, TALK, talk } from "../deltas.mjs";
import { follow, open, TRANSPORTS } from "./client.mjs";

const HEAD = 702;
const FRAMES_MAX = HEAD / 20;
const ends = [];
let operator;
before(async () => {
  operator = await operate({ after: (act) => ends.unshift(act) });
  await talk(operator);
});
after(async () => {
  for (const act of ends) await act();
});
const of = (one = operator) => ({ server: one.server, sign: (claims) => one.sign(claims) });

for (const transport of TRANSPORTS) {
  test(`a folding reader gets few frames with the text of the log, over ${transport}`, async (t) => {
    const client = () => open(t, of(), { transports: [transport] });
    const seen = follow(client(), TALK, { fold: true });
    await reached(seen, HEAD);
    const count = await checkTalk(operator, seen.frames);
    assert.ok(count <= FRAMES_MAX, `${count} frames`);
    const { epoch } = seen.topic.position;
    const middle = follow(client(), TALK, { fold: true, after: { epoch, seq: 150 } });
    await reached(middle, HEAD);
    assert.ok(await checkTalk(operator, middle.frames, 150) <= FRAMES_MAX);
  });

  test(`a reader that does not ask, and one that counts exactly once, get each event, over ${transport}`, async (t) => {
    const plain = follow(open(t, of(), { transports: [transport] }), TALK);
    await reached(plain, HEAD);
    assert.equal(await checkTalk(operator, plain.frames), HEAD);
    const seqs = [];
    const topic = open(t, of(), { transports: [transport] }).topic(TALK, { fold: true });
    const done = topic.exactlyOnce({ load: () => null, transaction: (work) => work(seqs), apply: ({ seq }, tx) => { tx.push(seq); }, save: () => {} });
    await until(() => seqs.length >= HEAD, "every event");
    await topic.close();
    await done;
    assert.deepEqual(seqs, range(1, HEAD));
  });
}

test("a folding reader that follows gets each new delta once", async (t) => {
  const own = await operate(t);
  await talk(own);
  const khala = open(t, of(own));
  const seen = follow(khala, TALK, { fold: true });
  await reached(seen, HEAD);
  for (let i = 1; i <= 5; i++) {
    await say(own, "m3", 10);
    await reached(seen, HEAD + 10 * i);
  }
  await checkTalk(own, seen.frames);
});
