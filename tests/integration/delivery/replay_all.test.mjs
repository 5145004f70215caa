// replay=all: a worker reads every event of a topic that the log serves, beyond budget and floor.
import assert from "node:assert/strict";
import { test } from "node:test";
import { startVerb } from "../../lib/khala.mjs";
import { operate } from "../../lib/operator.mjs";
import { pollPath, socketPath, streamPath } from "../../lib/paths.mjs";
import { Client } from "../../lib/phoenix.mjs";
import { range } from "../../lib/samples.mjs";
import { Socket } from "../../lib/socket.mjs";
import { Stream } from "../../lib/sse.mjs";
import { alter } from "../../lib/store.mjs";

const COUNT = 600;
const ROOM = "room:1";
const SETTINGS = { RUNTIME_KHALA_POLL_MIN_INTERVAL_MS: "0", RUNTIME_KHALA_FALLBACK_REPLAY_BUDGET_EVENTS: "50",
  RUNTIME_KHALA_SLOW_CONSUMER_LAG_THRESHOLD: "10" };
const WORKER = { oa_user_id: "ada", oa_sync_scopes: ["runtime.replay_all", "runtime.notifications", "runtime.run_events"], oa_sync_topics: [ROOM] };
const READER = { oa_user_id: "ada", oa_sync_scopes: ["runtime.read_all"] };

/** The sequences that each transport delivers after a position with replay=all. */
const transports = {
  async poll(operator, topic, after, token) {
    const seen = [];
    for (let position = after; ;) {
      const { status, body } = await operator.ask("GET", pollPath(topic, `after_seq=${position}&replay=all&limit=100`), undefined,
        { authorization: `Bearer ${token}` });
      assert.equal(status, 200, body);
      const page = JSON.parse(body);
      seen.push(...page.messages.map((one) => one.sequence));
      if (page.replay_complete) return seen;
      position = `${page.next_cursor}@${page.epoch}`;
    }
  },
  async "topic WebSocket"(operator, topic, after, token, count) {
    const socket = await Socket.open(operator, socketPath(topic, `after_seq=${after}&replay=all&token=${token}`));
    await socket.until((one) => one.of("message").length >= count, "the messages");
    socket.close();
    return socket.of("message").map((one) => one.sequence);
  },
  async "event stream"(operator, topic, after, token, count) {
    const stream = await Stream.open(operator, streamPath(topic, `after_seq=${after}&replay=all&token=${token}`));
    await stream.until((one) => one.messages.length >= count, "the messages");
    stream.close();
    return stream.messages.map(({ data }) => data.sequence);
  },
  async phoenix(operator, topic, after, token, count) {
    const client = await Client.join(operator, { params: { token } });
    await client.subscribe({ topics: [topic], resume_after: { [topic]: after }, replay: "all" });
    await client.until((one) => one.run(topic).updates.length >= count, "the updates");
    client.close();
    return client.run(topic).sequences;
  },
};

async function everyTransportReadsEverything(operator, topic, count, token) {
  for (const after of [0, 7, count - 3])
    for (const [name, read] of Object.entries(transports))
      assert.deepEqual(await read(operator, topic, after, token, count - after), range(after + 1, count), `${name} after ${after}`);
}

/** The status and the code that each transport answers to a request that it refuses. */
async function refusals(operator, topic, token) {
  const answers = [];
  for (const path of [pollPath(topic, "replay=all"), streamPath(topic, "replay=all")]) {
    const { status, body } = await operator.ask("GET", path, undefined, { authorization: `Bearer ${token}` });
    answers.push([status, JSON.parse(body).error]);
  }
  const { status, body } = await Socket.refused(operator, socketPath(topic, `replay=all&token=${token}`));
  answers.push([status, JSON.parse(body).error]);
  const client = await Client.join(operator, { params: { token } });
  answers.push((await client.refused("sync:subscribe", { topics: [topic], replay: "all" })).code);
  client.close();
  return answers;
}

test("replay=all", async (t) => {
  const operator = await operate(t, { settings: SETTINGS });
  const worker = operator.sign(WORKER);
  const reader = operator.sign(READER);
  for (let from = 0; from < COUNT; from += 200)
    await operator.batch(range(from + 1, from + 200).map((i) => ({ topic: ROOM, event_type: "said", payload: { i } })));

  await t.test("a stale answer names the way to those that may take it", async () => {
    const stale = (token) => operator.ask("GET", pollPath(ROOM, "after_seq=1"), undefined, { authorization: `Bearer ${token}` });
    for (const [token, named] of [[operator.key, "all"], [worker, "all"], [reader, undefined]]) {
      const { status, body } = await stale(token);
      assert.equal(status, 410);
      assert.equal(JSON.parse(body).details.stale_topics[0].replay, named);
    }
  });

  await t.test("every transport reads every event beyond budget and floor", async () => {
    await everyTransportReadsEverything(operator, ROOM, COUNT, worker);
    alter(operator.data, `UPDATE topics SET oldest_seq = 590 WHERE topic = '${ROOM}'`);
    await everyTransportReadsEverything(operator, ROOM, COUNT, worker);
    assert.equal((await transports.poll(operator, ROOM, 0, operator.key)).length, COUNT);
  });

  await t.test("runs and notifications are served from the log", async () => {
    await operator.did("runs", { run_id: "a", owner_user_id: "ada" }, 201);
    for (let i = 0; i < 3; i++) await operator.did("notifications", { payload: { i }, owner_user_id: "ada" });
    for (const [topic, count] of [["run:a:events", 1], ["runtime.notifications", 3]])
      assert.deepEqual(await transports.poll(operator, topic, 0, operator.key), range(1, count), topic);
  });

  await t.test("a token without the scope is refused, and so are topics with a journal", async () => {
    assert.deepEqual(await refusals(operator, ROOM, reader), [[403, "missing_scope"], [403, "missing_scope"], [403, "missing_scope"], "missing_scope"]);
    const all = operator.sign({ oa_sync_scopes: ["runtime.read_all", "runtime.replay_all"] });
    for (const topic of ["runtime.run_summaries", "runtime.codex_worker_events", "fleet:user:ada:workers"])
      assert.deepEqual((await refusals(operator, topic, all)).map((one) => one.at(-1) === "e" ? one : one[1]),
        Array(4).fill("replay_all_unavailable"), topic);
    const { body } = await operator.poll("runtime.run_summaries", "replay=all");
    assert.match(JSON.parse(body).message, /audit stream \(\/events/);
    assert.equal((await operator.poll(ROOM, "replay=some")).status, 400);
    assert.equal((await operator.poll(ROOM, `after_seq=${COUNT + 1}&replay=all`)).status, 410, "another history");
  });

  await t.test("a fresh token without the scope cannot take over a replay of everything", async () => {
    const client = await Client.join(operator, { params: { token: worker } });
    await client.subscribe({ topics: [ROOM], resume_after: { [ROOM]: COUNT }, replay: "all" });
    const plain = operator.sign({ ...WORKER, oa_sync_scopes: WORKER.oa_sync_scopes.slice(1) });
    assert.equal((await client.refused("sync:refresh", { token: plain })).code, "missing_scope");
    assert.equal((await client.ask("sync:refresh", { token: operator.sign(WORKER) })).status, "ok");
    client.close();
  });

  await t.test("khala tail --from-start prints every event", async () => {
    const verb = startVerb(t, ["tail", ROOM, "--from-start", "--json", "--url", operator.server.url, "--key", operator.key]);
    await verb.until(() => verb.lines.length >= COUNT, "all events");
    assert.deepEqual(verb.lines.map((line) => JSON.parse(line).sequence), range(1, COUNT));
    assert.equal((await verb.end("SIGINT")).code, 0);
  });
});
