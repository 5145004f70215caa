// A cluster under load: clients of every dialect that move to another node when theirs fails, and
// producers that repeat each event until it is acknowledged. judge() compares everything with the log.
import assert from "node:assert/strict";
import { reportOf } from "./cluster_report.mjs";
import { Cluster } from "./faulty_cluster.mjs";
import {
  AuditSocket, EventStream, LOG, Phoenix, PhoenixClient, Poll, ROOMS, SUMMARIES, TopicSocket,
} from "./followers.mjs";
import { assertFollowed, assertLog, Ledger, readAuthority } from "./oracle.mjs";
import { appendOne, produceByHttp, produceBySql } from "./producers.mjs";
import { until, Watched, within } from "./wait.mjs";

const TENANTS = ["ada", "bob", "eve", "joe"];
const RUNS = TENANTS.flatMap((tenant) => [0, 1, 2].map((i) => `${tenant}-${i}`));
const HTTP_PRODUCERS = 3;
const PROGRESS_MS_MAX = 60_000;
// A request that a node passed to the lost writer may wait for long; the next one goes to the new writer.
const PROBE_MS_MAX = 1000;

const SETTINGS = {
  RUNTIME_KHALA_POLL_MIN_INTERVAL_MS: "0",
  RUNTIME_KHALA_RUN_EVENTS_REPLAY_BUDGET_EVENTS: "1000000",
  RUNTIME_KHALA_FALLBACK_REPLAY_BUDGET_EVENTS: "1000000",
  RUNTIME_KHALA_RUN_SUMMARIES_REPLAY_BUDGET_EVENTS: "1000000",
  KHALA_CONNECTIONS_PER_PRINCIPAL_MAX: "2000",
};
// Errors after which a client tries another node.
const TRIED_AGAIN = /^(shutting_down|store_unavailable|writer_lost|append_outcome_unknown|revocations_unknown|not_writer|epoch_changed|slow_consumer)$/;
// 4004: the node cannot read the store.
const CLOSES = [1001, 1006, 1012, 1013, 4004];

const ownerOf = (run_id) => run_id.split("-")[0];
const sum = (list) => list.reduce((all, one) => all + one, 0);

export class ClusterWorld extends Watched {
  ledger = new Ledger();
  followers = [];
  over = false;
  isQuiet = false;
  problem = null;
  counts = new Map(); // refusals and closes, by kind
  faulted = new Map(); // functions that end the faults, by node or "driver"
  faults = []; // all of them with their times, for a report
  takeovers = new Map(); // the ms until the next append was acknowledged, by fault
  producing = [];

  /** Starts a cluster and its load. */
  static async open(t, { dice, clients, paceMs = 15, ...options }) {
    const world = Object.assign(new ClusterWorld(), { t, dice, paceMs });
    t.after(() => {
      world.over = world.isQuiet = true;
      world.changed();
      for (const one of world.followers) one.close();
    });
    const onProblem = (error) => world.fail(error, { name: "the cluster" });
    world.cluster = await Cluster.open(t, { settings: SETTINGS, onProblem, ...options });
    const { operator } = world.cluster.nodes[0];
    for (const run_id of RUNS) await operator.did("runs", { run_id, owner_user_id: ownerOf(run_id) }, 201);
    for (const topic of ROOMS) assert.ok(await appendOne(world, operator, world.ledger.make({ topic })));
    world.populate(clients);
    world.produce();
    await world.progress(20);
    return world;
  }

  count(what) {
    this.counts.set(what, (this.counts.get(what) ?? 0) + 1);
  }

  /** The run or topic of a new event. */
  target() {
    return this.dice.random() < 0.15 ? { topic: this.dice.pick(ROOMS) } : { run_id: this.dice.pick(RUNS) };
  }

  // ---- the world of the followers ----

  /** Any node but the last one. */
  nodeOf(follower) {
    const others = this.cluster.nodes.filter((node) => node.operator !== follower.node);
    return this.dice.pick(others.length > 0 ? others : this.cluster.nodes).operator;
  }

  pauseMs(follower) {
    return follower.delaysMs.pop() ?? 20 + this.dice.below(200);
  }

  notice(follower, body) {
    const code = body.details?.reason ?? body.error ?? body.code;
    assert.match(String(code), TRIED_AGAIN, `${follower.name}: ${JSON.stringify(body)}`);
    this.count(`client: ${code}`);
    return body.reconnect_after_ms ?? body.retry_after_ms;
  }

  left(follower, hint, code) {
    if (code !== undefined) this.count(`close ${code}`);
    if (code !== undefined) assert.ok(CLOSES.includes(code), `${follower.name} was closed with ${code}`);
    if (hint !== undefined) follower.delaysMs.push(hint);
  }

  fail(error, { name }) {
    if (this.over) return;
    this.problem ??= Object.assign(error, { message: `${name}: ${error.message}` });
    for (const one of this.followers) one.changed();
    this.changed();
  }

  failure() {
    return this.problem;
  }

  // ---- load ----

  #add(Kind, count, isOperator, topicsOf) {
    for (let i = 0; i < count; i++) {
      const tenant = isOperator && i % 2 ? null : TENANTS[i % TENANTS.length];
      this.followers.push(Object.assign(new Kind(this, tenant, topicsOf(i, tenant)), { waitMs: 3000, deflates: i % 4 === 0 }));
    }
  }

  /** Creates clients of every dialect. */
  populate(clients) {
    const ownRun = (i, owner) => [`run:${owner}-${Math.floor(i / TENANTS.length) % 3}:events`];
    const runOrRoom = (i, owner) => (i % 5 === 4 ? [ROOMS[(i >> 2) % 2]] : ownRun(i, owner));
    const part = (fraction) => Math.max(2, Math.floor(clients * fraction));
    this.#add(AuditSocket, part(0.1), true, () => [LOG]);
    this.#add(EventStream, part(0.1), true, () => [LOG]);
    this.#add(EventStream, part(0.05), false, () => [SUMMARIES]);
    this.#add(PhoenixClient, part(0.1), false, ownRun);
    this.#add(Phoenix, part(0.15), false, (i, owner) => [...ownRun(i, owner), SUMMARIES]);
    this.#add(Poll, part(0.1), false, runOrRoom);
    this.#add(EventStream, part(0.15), false, runOrRoom);
    this.#add(TopicSocket, part(0.1), false, runOrRoom);
    this.#add(Phoenix, Math.max(2, clients - this.followers.length), false, runOrRoom);
    for (const one of this.followers) Promise.resolve(one.live()).catch((error) => this.fail(error, one));
  }

  /** Starts the producers, one by SQL and the others by HTTP. */
  produce() {
    this.isQuiet = false;
    this.producing = [produceBySql(this), ...Array.from({ length: HTTP_PRODUCERS }, () => produceByHttp(this))];
    for (const one of this.producing) one.catch((error) => this.fail(error, { name: "a producer" }));
  }

  /** Ends the producers when all their events are acknowledged and the log has them. */
  async quiet() {
    this.isQuiet = true;
    await within(Promise.all(this.producing), "the producers' end", PROGRESS_MS_MAX);
    await until(async () => await this.cluster.sql("SELECT count(*) FROM runtime.outbox") === "0", "an empty outbox", PROGRESS_MS_MAX);
    assert.equal(await this.cluster.sql("SELECT count(*) FROM runtime.outbox_rejected"), "0");
  }

  /** Waits until that many more events are acknowledged. */
  progress(events) {
    const wanted = this.ledger.acknowledged.size + events;
    return this.until(() => this.ledger.acknowledged.size >= wanted, `${wanted} acknowledged events`, PROGRESS_MS_MAX);
  }

  /** Appends at every node without a fault until one append is acknowledged. Answers the time that took. */
  async #appends() {
    const begun = performance.now();
    let took = null;
    await Promise.all(this.cluster.nodes.filter((node) => !this.faulted.has(node)).map(async ({ operator }) => {
      const event = this.ledger.make(this.target());
      while (took === null && !this.problem && performance.now() - begun < PROGRESS_MS_MAX) {
        const isDone = await appendOne(this, operator, event, PROBE_MS_MAX).catch((error) => {
          if (error instanceof assert.AssertionError) throw error;
          return false;
        });
        if (isDone) took ??= performance.now() - begun;
        else await new Promise((resolve) => setTimeout(resolve, 10));
      }
      if (!this.ledger.acknowledged.has(event.id)) this.ledger.unknown.push(event);
    }));
    if (this.problem) throw this.problem;
    assert.notEqual(took, null, `no append within ${PROGRESS_MS_MAX} ms`);
    return took;
  }

  // ---- faults ----

  /** Whether no fault has hit the node. */
  isFree(node) {
    return !this.faulted.has(node);
  }

  async heal(place) {
    const end = this.faulted.get(place);
    const fault = this.faults.findLast((one) => one.place === (place.name ?? place) && !one.healedAt);
    fault.healedAt = new Date();
    await end();
    this.faulted.delete(place);
    fault.wholeAt = new Date();
  }

  async healAll() {
    for (const place of [...this.faulted.keys()]) await this.heal(place);
  }

  /** Lets a fault happen, and measures the time until the next append. Returns null if no node is free for it. */
  async fault(name, act) {
    const { cluster, dice, faulted } = this;
    if (act.isDriver && faulted.has("driver")) return null;
    const fault = { name, at: new Date() };
    this.faults.push(fault);
    const done = await act({ cluster, dice, isFree: (node) => this.isFree(node) });
    if (!done) this.faults.splice(this.faults.indexOf(fault), 1);
    if (!done) return null;
    const place = done.node ?? "driver";
    Object.assign(fault, { place: place.name ?? place, doneAt: new Date() });
    if (done.heal) faulted.set(place, done.heal);
    // A single node must come back before the next append.
    if (!cluster.nodes.some((node) => this.isFree(node))) await this.heal(place);
    const ms = await this.#appends();
    fault.appendedAt = new Date();
    this.takeovers.set(name, [...this.takeovers.get(name) ?? [], Math.round(ms)]);
    return ms;
  }

  // ---- the end ----

  /** Compares the log with the producers, and each client with the log. Answers exact counts. */
  async judge() {
    const { cluster, ledger, followers } = this;
    await this.quiet();
    const { lines, expected } = await readAuthority(this.dice.pick(cluster.nodes).operator, ownerOf);
    assertLog(ledger, lines);
    const frames = await this.followed(expected);
    const tracks = followers.flatMap((one) => [...one.tracks.values()]);
    this.over = true;
    for (const one of followers) one.close();
    await cluster.end();
    cluster.check("verify");
    cluster.check("reproject", "--all", "--verify");
    return {
      clients: followers.length, acknowledged: ledger.acknowledged.size, rolled_back: ledger.withdrawn.size, in_log: lines.length,
      missing: RUNS.length + ledger.sent.size - ledger.withdrawn.size - lines.length, frames,
      duplicates: sum(tracks.map((track) => track.duplicates)), resets: sum(tracks.map((track) => track.resets)), gaps: 0,
      sessions: sum(followers.map((one) => one.sessions)), refused_sessions: sum(followers.map((one) => one.refused)),
      answers: Object.fromEntries([...this.counts].sort()),
    };
  }

  /** Waits until each client has received its part of the log. A gap fails the test. */
  async followed(expected) {
    let frames = 0;
    for (const one of this.followers) frames += await assertFollowed(one, expected);
    return frames;
  }

  /** The log as the clients must have received it. */
  async expected() {
    return (await readAuthority(this.dice.pick(this.cluster.nodes).operator, ownerOf)).expected;
  }

  /** Forgets the events that the log does not have: the database was restored to an earlier state. */
  async forgetLost() {
    const { lines } = await readAuthority(this.cluster.nodes[0].operator, ownerOf);
    const stored = new Set(lines.map((event) => event.event_id));
    for (const id of [...this.ledger.sent.keys()].filter((one) => !stored.has(one))) {
      for (const list of [this.ledger.sent, this.ledger.acknowledged, this.ledger.withdrawn]) list.delete(id);
    }
  }

  /** Runs a part of a test. When it fails, the state of the cluster is printed. */
  async reported(act) {
    try {
      return await act();
    } catch (error) {
      this.t.diagnostic(await reportOf(this));
      throw error;
    }
  }

  /** Prints how long appends were not possible. */
  printTakeovers() {
    for (const [name, all] of [...this.takeovers].sort()) {
      all.sort((a, b) => a - b);
      this.t.diagnostic(`${name}: ms until the next append, median ${all[all.length >> 1]}, maximum ${all.at(-1)}, of ${all.length}`);
    }
  }
}
