// The world of a fault test: a server, a proxy that damages the connections of each client, and events
// until enough faults have come. In the end each client must have the state of the authority.
// KHALA_FAULTS sets the number of faults, KHALA_SEED the seed.
import assert from "node:assert/strict";
import { operate } from "../lib/operator.mjs";
import { range } from "../lib/samples.mjs";
import { until } from "../lib/wait.mjs";
import { FAULTS as KINDS, FaultProxy } from "./proxy.mjs";

export const FAULTS = Number(process.env.KHALA_FAULTS ?? 1000);
export const SEED = Number(process.env.KHALA_SEED ?? 1);
export const WAIT_MS = 60_000 + 100 * FAULTS;
export const TOPICS = ["room:1", "room:2"];
export const SUMMARIES = "runtime.run_summaries";
export const PENDING_MAX = 20; // events of the producer without an answer
export const NAME = `${FAULTS} faults, seed ${SEED}: every client ends with the state of the authority`;
const BYTES_MAX = 3000;
const SETTINGS = {
  RUNTIME_KHALA_POLL_MIN_INTERVAL_MS: "0", RUNTIME_KHALA_FALLBACK_REPLAY_BUDGET_EVENTS: "1000000",
  RUNTIME_KHALA_RECONNECT_BASE_BACKOFF_MS: "1", RUNTIME_KHALA_RECONNECT_JITTER_MS: "0",
  KHALA_HEARTBEAT_MS: "50", // heartbeats are lost, repeated and reordered too
};

export class FaultWorld {
  #t;
  #proxies = [];
  #sent = Object.fromEntries(TOPICS.map((topic) => [topic, 0]));
  #truth = new Map();

  static async start(t) {
    const world = new FaultWorld();
    world.#t = t;
    world.operator = await operate(t, { settings: SETTINGS });
    world.reader = world.operator.reader;
    world.writer = world.operator.sign({ oa_sync_scopes: ["runtime.append"], oa_sync_topics: TOPICS });
    await world.operator.did("runs", { run_id: "a" }, 201);
    return world;
  }

  /** The address of the server behind a new proxy. */
  async proxied(options) {
    const proxy = await FaultProxy.start(this.#t, () => this.operator.server.url, { seed: SEED * 100 + this.#proxies.length, bytesMax: BYTES_MAX, ...options });
    this.#proxies.push(proxy);
    return proxy.url;
  }

  get #total() {
    return this.#proxies.reduce((sum, { total }) => sum + total, 0);
  }

  get #counts() {
    return Object.fromEntries(KINDS.map((kind) => [kind, this.#proxies.reduce((sum, { counts }) => sum + counts[kind], 0)]));
  }

  /** The next event of the producer under test. */
  next(topic) {
    const n = ++this.#sent[topic];
    return { topic, event_type: "said", payload: { topic, n, text: "x".repeat(n % 300) } };
  }

  /** Calls send again and again until there were enough faults of every kind, then heals the proxies. */
  async disturb(send) {
    const { operator } = this;
    await until(async () => {
      await send();
      // These events do not pass a proxy, so that bytes always flow.
      await operator.batch([...TOPICS.map((topic) => ({ topic, event_type: "heard", payload: { topic } })), { run_id: "a", event_type: "run.log", payload: {} }]);
      return this.#total >= FAULTS;
    }, `${FAULTS} faults`, WAIT_MS);
    for (const proxy of this.#proxies) proxy.heal();
    for (const [kind, count] of Object.entries(this.#counts)) assert.ok(count > 0, `no ${kind}`);
  }

  /** Reads the state of the authority, after every event of the producer has its answer. */
  async settle(answered) {
    assert.equal(new Set(answered.map(({ event_id }) => event_id)).size, Object.values(this.#sent).reduce((sum, count) => sum + count));
    for (const topic of TOPICS) {
      const frames = await this.#framesOf(topic);
      this.#truth.set(topic, frames);
      assert.deepEqual(frames.map(({ seq }) => seq), range(1, frames.length));
      const said = frames.filter(({ kind }) => kind === "said");
      assert.deepEqual(said.map(({ payload }) => payload.n), range(1, this.#sent[topic]), "each event was stored once, in order");
    }
    this.summary = await this.operator.read("projectors/run-summary/a");
    const connections = this.#proxies.reduce((sum, one) => sum + one.connections, 0);
    this.#t.diagnostic(`${this.#total} faults ${JSON.stringify(this.#counts)}, ${connections} connections, ${[...this.#truth.values()].flat().length} events`);
  }

  /** The frames of a topic, as the server answers them without a proxy. */
  async #framesOf(topic) {
    const all = [];
    for (let after = 0; ;) {
      const { messages, next_cursor, replay_complete } = JSON.parse((await this.operator.poll(topic, `after_seq=${after}&limit=200`)).body);
      all.push(...messages);
      after = next_cursor;
      if (replay_complete) return all;
    }
  }

  /** Waits for all frames of a topic. seen: {frames, resets, end, until} of a client. */
  async check(seen, topic, client) {
    const truth = this.#truth.get(topic);
    const identify = ({ seq, event_id, payload }) => ({ seq, event_id, payload });
    await seen.until(() => seen.frames.length >= truth.length || seen.end, `${truth.length} frames of ${topic}, ${client}`, WAIT_MS).catch((error) => {
      throw new Error(`${error.message}; ${seen.frames.length} came, without ${truth.findIndex(({ seq }, index) => seen.frames[index]?.seq !== seq) + 1}`);
    });
    assert.equal(seen.end, undefined, JSON.stringify(seen.end));
    assert.deepEqual(seen.frames.map(identify), truth.map(identify), `${topic}, ${client}`);
    assert.deepEqual(seen.resets, [{ reason: "start", from_seq: 1, truncated: false }], `${topic}, ${client}`);
  }
}
