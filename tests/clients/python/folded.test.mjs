// Folded deltas through the Python client: a late reader gets few frames and the text of the log, on every transport.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { operate } from "../../lib/operator.mjs";
import { checkTalk, reached, say, TALK, talk } from "../deltas.mjs";
import { Python } from "./client.mjs";

const HEAD = 702;
const FRAMES_MAX = HEAD / 20;
const ends = [];
let python;
let operator;
before(async () => {
  const t = { after: (act) => ends.unshift(act) };
  python = await Python.start(t);
  operator = await operate(t);
  await talk(operator);
});
after(async () => {
  for (const act of ends) await act();
  assert.equal(python.stderr, "");
});
const open = (t, options) => python.open(t, { url: operator.server.url, token: operator.reader, ...options });

for (const transport of ["websocket", "sse", "poll"]) {
  test(`a folding reader gets few frames with the text of the log, a plain one each event, over ${transport}`, async (t) => {
    const seen = await python.follow(await open(t, { transports: [transport] }), TALK, { fold: true });
    await reached(seen, HEAD);
    const count = await checkTalk(operator, seen.frames);
    assert.ok(count <= FRAMES_MAX, `${count} frames`);
    const middle = await python.follow(await open(t, { transports: [transport] }), TALK, { fold: true, after: 150 });
    await reached(middle, HEAD);
    assert.ok(await checkTalk(operator, middle.frames, 150) <= FRAMES_MAX);
    const plain = await python.follow(await open(t, { transports: [transport] }), TALK);
    await reached(plain, HEAD);
    assert.equal(await checkTalk(operator, plain.frames), HEAD);
  });
}

test("a folding reader that follows gets each new delta once", async (t) => {
  const own = await operate(t);
  await talk(own);
  const seen = await python.follow(await open(t, { url: own.server.url, token: own.reader }), TALK, { fold: true });
  await reached(seen, HEAD);
  for (let i = 1; i <= 5; i++) {
    await say(own, "m3", 10);
    await reached(seen, HEAD + 10 * i);
  }
  await checkTalk(own, seen.frames);
});
