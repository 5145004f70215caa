// Programs on libkhala behind a proxy that damages connections at random by seed. In the end each has
// the state of the authority: no frame twice, none missing, each event stored once.
import assert from "node:assert/strict";
import { test } from "node:test";
import { FaultWorld, NAME, PENDING_MAX, SUMMARIES, TOPICS, WAIT_MS } from "../fault_world.mjs";
import { Program } from "./program.mjs";

const LOOPS = ["own", "given", "own", "given"];
const environment = { BACK_OFF_BASE_MS: "1", BACK_OFF_MAX_MS: "10", REQUEST_TIMEOUT_MS: "10000" };

test(NAME, async (t) => {
  const world = await FaultWorld.start(t);
  const followers = [];
  for (const loop of LOOPS) {
    followers.push(Program.start(t, await world.proxied(), { token: world.reader, loop, topics: [...TOPICS, SUMMARIES], environment }));
  }
  const sender = Program.start(t, await world.proxied({ bytesMax: 2000 }), { token: world.writer, topics: [], environment });
  let sent = 0;
  const answers = () => sender.all("appended").map(({ appended }) => appended);
  await world.disturb(() => {
    if (sent - answers().length >= PENDING_MAX) return;
    for (const topic of TOPICS) sender.append(world.next(topic));
    sent += TOPICS.length;
  });
  await sender.lines.until(() => answers().length === sent, "every answer", WAIT_MS);
  await world.settle(answers());
  for (const program of followers) {
    for (const topic of TOPICS) await world.check(program.seen(topic), topic, "libkhala");
    const board = program.seen(SUMMARIES);
    const { summary } = world;
    await board.until(() => board.documents.get("a")?.latest_seq === summary.latest_seq, "the summary", WAIT_MS);
    assert.deepEqual(board.documents.get("a"), summary);
    assert.equal(await program.close(), 0);
  }
  assert.equal(await sender.close(), 0);
});
