// Programs on libkhala behind a proxy that damages connections at random by seed. In the end each has
// the state of the authority: no frame twice, none missing, each event stored once. The faults end
// after KHALA_FAULTS of them or after KHALA_FAULT_SECONDS. KHALA_SEED sets the seed.
import assert from "node:assert/strict";
import { test } from "node:test";
import { operate, UNHURRIED } from "../../lib/operator.mjs";
import { range } from "../../lib/samples.mjs";
import { until } from "../../lib/wait.mjs";
import { FaultProxy } from "../proxy.mjs";
import { Program } from "./program.mjs";

const FAULTS = Number(process.env.KHALA_FAULTS ?? 400);
const SEED = Number(process.env.KHALA_SEED ?? Date.now() % 1_000_000);
const SECONDS = Number(process.env.KHALA_FAULT_SECONDS ?? 6);
const WAIT_MS = 60_000 + SECONDS * 1000;
const TOPICS = ["room:1", "room:2"];
const SUMMARIES = "runtime.run_summaries";
const environment = { BACK_OFF_BASE_MS: "2", BACK_OFF_MAX_MS: "20", REQUEST_TIMEOUT_MS: "10000" };

/** The documents as a board would show them: those of the last reset, then each newer one. */
function documents(program) {
  const all = new Map();
  for (const { reset, frame } of program.lines.all.filter((line) => line.topic === SUMMARIES)) {
    if (reset) all.clear();
    for (const { payload } of reset?.documents ?? []) all.set(payload.run_id, payload);
    if (frame) all.set(frame.payload.run_id, frame.payload);
  }
  return all;
}

test(`up to ${FAULTS} faults, seed ${SEED}: every program ends with the state of the authority`, async (t) => {
  const operator = await operate(t, { settings: { ...UNHURRIED, RUNTIME_KHALA_FALLBACK_REPLAY_BUDGET_EVENTS: "100000", KHALA_HEARTBEAT_MS: "50",
    RUNTIME_KHALA_POLL_MIN_INTERVAL_MS: "0" } });
  const proxies = [];
  const start = async (options, proxy = {}) => {
    proxies.push(await FaultProxy.start(t, () => operator.server.url, { seed: SEED + proxies.length, ...proxy }));
    return Program.start(t, proxies.at(-1).url, { environment, ...options });
  };
  const followers = [];
  for (const loop of ["own", "given"]) followers.push(await start({ token: operator.reader, loop, topics: [...TOPICS, SUMMARIES] }));
  const writer = operator.sign({ oa_sync_scopes: ["runtime.append"], oa_sync_topics: TOPICS });
  const sender = await start({ token: writer, topics: [] }, { bytesMax: 2000 });
  await operator.did("runs", { run_id: "a" }, 201);
  const total = () => proxies.reduce((sum, proxy) => sum + proxy.total, 0);
  const begun = performance.now();
  let sent = 0;
  // A follower that is further behind than the server replays would get a reset.
  const isAhead = () => 2 * sent - Math.min(...followers.map((one) => one.all("frame").length), sender.all("appended").length) > 100;
  await until(async () => {
    for (const topic of isAhead() ? [] : TOPICS) {
      sender.append({ topic, event_type: "said", payload: { topic, n: topic === TOPICS[0] ? ++sent : sent, text: "x".repeat(sent % 300) } });
    }
    if (sent % 20 === 0) await operator.did("runs/a/events", { event_type: "run.log", payload: {} });
    return total() >= FAULTS || performance.now() - begun > SECONDS * 1000;
  }, `${FAULTS} faults`, WAIT_MS);
  for (const proxy of proxies) proxy.heal();
  await sender.lines.until(() => sender.all("appended").length === 2 * sent, "every answer", WAIT_MS);
  assert.equal(new Set(sender.all("appended").map(({ appended }) => appended.event_id)).size, 2 * sent);
  const summary = await operator.read("projectors/run-summary/a");
  for (const program of followers) {
    for (const topic of TOPICS) {
      const frames = () => program.all("frame").filter((line) => line.topic === topic);
      await program.lines.until(() => frames().length >= sent || program.all("end").length > 0, `${sent} frames of ${topic}`, WAIT_MS).catch((error) => {
        throw new Error(`${error.message}; ${frames().length} frames came; ${JSON.stringify(program.all("reset"))}`);
      });
      assert.deepEqual(frames().map(({ frame }) => frame.payload.n), range(1, sent), topic);
      assert.ok(frames().every(({ frame }) => frame.payload.topic === topic), topic);
      assert.deepEqual(program.all("reset").filter((line) => line.topic === topic).map(({ reset }) => reset), [{ reason: "start", from_seq: 1, truncated: false }]);
      const { head_cursor } = JSON.parse((await operator.poll(topic, "after_seq=0")).body);
      assert.equal(head_cursor, sent, "each event was stored once");
    }
    await program.lines.until(() => documents(program).get("a")?.latest_seq === summary.latest_seq, "the summary", WAIT_MS);
    assert.deepEqual(documents(program).get("a"), summary);
    assert.equal(await program.close(), 0);
  }
  assert.equal(await sender.close(), 0);
  t.diagnostic(`${total()} faults, ${2 * sent} events`);
});
