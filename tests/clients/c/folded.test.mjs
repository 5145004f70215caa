// Folded deltas through libkhala: a late reader gets few frames and the text of the log.
import assert from "node:assert/strict";
import { test } from "node:test";
import { operate } from "../../lib/operator.mjs";
import { checkTalk, reached, say, TALK, talk } from "../deltas.mjs";
import { Program } from "./program.mjs";

const HEAD = 702;

test("a folding reader gets few frames with the text of the log and then each new delta, a plain one each event", async (t) => {
  const operator = await operate(t);
  await talk(operator);
  const follow = (environment) => Program.start(t, operator.server.url, { token: operator.reader, topics: [TALK], environment }).seen(TALK);
  const [plain, folding, middle] = [follow({}), follow({ FOLD: "1" }), follow({ FOLD: "1", START: "after 150" })];
  for (const seen of [plain, folding, middle]) await reached(seen, HEAD);
  assert.equal(await checkTalk(operator, plain.frames), HEAD);
  for (const [seen, after] of [[folding, 0], [middle, 150]]) {
    const count = await checkTalk(operator, seen.frames, after);
    assert.ok(count <= HEAD / 20, `${count} frames`);
  }
  for (let i = 1; i <= 5; i++) {
    await say(operator, "m3", 10);
    for (const seen of [plain, folding, middle]) await reached(seen, HEAD + 10 * i);
  }
  await checkTalk(operator, folding.frames);
  assert.equal(await checkTalk(operator, plain.frames), HEAD + 50);
});
