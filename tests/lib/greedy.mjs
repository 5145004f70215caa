// A victim beside a greedy principal: the victim appends, polls, joins and streams, and its times during an attack are
// compared with its quiet ones. KHALA_CHAOS_SECONDS limits the time of each attack. KHALA_CHAOS_STRICT=1 asserts the
// promised figures, with enough samples for them: a 99th percentile of at most three times the quiet one, and an idle
// server within a second. They hold on a machine that does nothing else. A bound below two ticks of the kernel's
// timer for each round trip counts as these: a thread on a busy core may wait that long. A machine that is busy with an attack
// takes time from any server on it: tests/support/bare_server.c is asked in between, and what its own 99th percentile rose
// by is allowed on top.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { connect } from "node:net";
import { join } from "node:path";
import { folder, start } from "./khala.mjs";
import { SANITIZED, STRICT } from "./machine.mjs";
import { pollPath, streamPath } from "./paths.mjs";
import { Client } from "./phoenix.mjs";
import { Stream } from "./sse.mjs";
import { once, until } from "./wait.mjs";

const SECONDS = Math.min(2, Number(process.env.KHALA_CHAOS_SECONDS ?? 1.2));
const ROUNDS_MIN = STRICT ? 300 : 1; // rounds of the victim during each attack
const WARM_ROUNDS = STRICT ? 50 : 0;
const QUIET_ROUNDS = STRICT ? 1000 : 40;
const BATCH_ROUNDS = 5; // one of so many rounds has a batch
const TOPIC = "run:victim:events";
// What a bare server is asked beside each kind of request, byte after byte: an append waits for the commit under way and
// for its own, and a join takes four round trips: connection, upgrade, channel, topic.
const BARE = { append: "aa", stream: "aa", batch: "aa", poll: "r", join: "rrrr" };
const JOIN_TRIPS = BARE.join.length;
const PAGE_SIZE = 4096; // the unit of the kernel's count of socket memory
// A broken server misses the wide bounds by far: seconds, a whole core, gigabytes.
const RATIO_MAX = STRICT ? 3 : 20;
const DELAY_MS_MAX = STRICT ? 8 : SANITIZED ? 5000 : 2000; // of a round trip: two ticks at 250 Hz
const IDLE_MS_MAX = STRICT ? 1000 : 30_000;
const IDLE_WINDOW_MS = 250;

/** A token of one user. */
export const users = (operator, oa_user_id, scopes = ["runtime.run_events", "runtime.codex_worker_events"]) => operator.sign({ oa_user_id, oa_sync_scopes: scopes });

export class Victim {
  times = { append: [], stream: [], poll: [], join: [] };

  bareTimes = Object.fromEntries(Object.values(BARE).map((asked) => [asked, []]));

  #roundCount = 0;

  /** With batchItems the victim also sends a batch of so many items now and then. */
  static async start(t, operator, { batchItems = 0 } = {}) {
    await operator.did("runs", { run_id: "victim", owner_user_id: "victim" }, 201);
    const victim = new Victim();
    if (batchItems > 0) victim.times.batch = [];
    victim.batchLines = `${JSON.stringify({ run_id: "victim", event_type: "run.log" })}\n`.repeat(batchItems);
    victim.operator = operator;
    victim.token = users(operator, "victim", ["runtime.run_events", "runtime.append"]);
    victim.stream = await Stream.open(operator, streamPath(TOPIC, `after_seq=0&token=${victim.token}`));
    await victim.stream.until((one) => one.lastSeq >= 1, "the first event");
    const bare = start(t, [join(process.env.KHALA_BUILD, "bare_server"), join(folder(t), "pages")]);
    victim.bare = connect(Number((await bare.saw("out", /port (\d+)\n/))[1]), "127.0.0.1").setNoDelay();
    t.after(() => victim.bare.destroy());
    return victim;
  }

  async #timed(name, act, times = this.times) {
    const begun = performance.now();
    await act();
    times[name].push(performance.now() - begun);
  }

  #ask(method, path, body, headers = {}) {
    return this.operator.ask(method, path, body, { authorization: `Bearer ${this.token}`, ...headers });
  }

  async #batch() {
    const { status, body } = await this.#ask("POST", "/v1/events:batch", this.batchLines, { "content-type": "application/x-ndjson" });
    assert.equal(status, 200, body);
    const refused = body.trim().split("\n").filter((line) => !line.includes('"status":200'));
    assert.deepEqual(refused, [], "no item of the victim's batch is refused");
  }

  async #poll() {
    const { status, body } = await this.#ask("GET", pollPath(TOPIC, `after_seq=${this.seq - 1}`));
    assert.equal(status, 200, body);
  }

  async #append() {
    const { status, body } = await this.#ask("POST", "/v1/runs/victim/events", JSON.stringify({ event_type: "run.log" }));
    assert.equal(status, 200, body);
    return JSON.parse(body).event.seq;
  }

  async #join() {
    const client = await Client.join(this.operator, { params: { token: this.token } });
    await client.subscribe({ topics: [TOPIC], resume_after: { [TOPIC]: this.seq - 1 } });
    await client.until(() => client.run(TOPIC).completes > 0, "the victim's topic");
    client.close();
  }

  /** The time of the stream is that from the append's request to the event on the stream. */
  async round() {
    await this.#timed("stream", async () => {
      await this.#timed("append", async () => { this.seq = await this.#append(); });
      await this.stream.until((one) => one.lastSeq >= this.seq, "the event on the stream");
    });
    await this.#timed("poll", () => this.#poll());
    await this.#timed("join", () => this.#join());
    if (this.times.batch && this.#roundCount++ % BATCH_ROUNDS === 0) await this.#timed("batch", () => this.#batch());
    for (const asked of Object.keys(this.bareTimes)) await this.#timed(asked, () => this.#askBare(asked), this.bareTimes);
  }

  async #askBare(asked) {
    for (const byte of asked) {
      this.bare.write(byte);
      await once(this.bare, "data", "the answer of the bare server");
    }
  }

  /** The 99th percentile of each kind of request since the last call, here and at the bare server. */
  percentiles() {
    const bare = percentilesOf(this.bareTimes);
    return { own: percentilesOf(this.times), bare };
  }

  /** Measures the quiet times, which the later ones are compared with. */
  async measureQuiet(t) {
    for (let i = 0; i < WARM_ROUNDS; i++) await this.round();
    this.percentiles();
    for (let i = 0; i < QUIET_ROUNDS; i++) await this.round();
    this.quiet = this.percentiles();
    t.diagnostic(`quiet: p99 in ms: ${show(this.quiet)}`);
  }

  /** Rounds for the length of an attack; each is called after one. */
  async rounds(each = () => {}) {
    const begun = performance.now();
    this.#roundCount = 0;
    for (let rounds = 0; rounds < ROUNDS_MIN || performance.now() - begun < SECONDS * 1000; rounds++) {
      await this.round();
      await each();
    }
  }

  /** Compares the times since the last call with the quiet ones. more is text for the printed line. */
  check(t, name, more = "") {
    const times = this.percentiles();
    t.diagnostic(`${name}: p99 in ms: ${show(times)}${more}`);
    for (const [kind, ms] of Object.entries(times.own)) {
      const quiet = this.quiet.own[kind];
      const machine = Math.max(0, times.bare[BARE[kind]] - this.quiet.bare[BARE[kind]]);
      assert.ok(ms <= Math.max(RATIO_MAX * quiet, DELAY_MS_MAX * (kind === "join" ? JOIN_TRIPS : 1)) + machine,
        `${name}: ${kind} took ${ms} ms, and ${quiet} ms before; the bare server took ${machine} ms more than before`);
    }
  }
}

/** Empties the times. */
function percentilesOf(times) {
  return Object.fromEntries(Object.keys(times).map((name) => {
    const sorted = times[name].sort((a, b) => a - b);
    times[name] = [];
    return [name, sorted[Math.floor(sorted.length * 0.99)]];
  }));
}

const listed = (times) => Object.entries(times).map(([name, ms]) => `${name} ${ms.toFixed(1)}`).join(", ");
const show = ({ own, bare }) => `${listed(own)} (bare server: ${listed(bare)})`;

/** Memory of all TCP sockets of the machine. */
export const kernelBytes = () => Number(readFileSync("/proc/net/sockstat", "utf8").match(/^TCP:.* mem (\d+)/m)[1]) * PAGE_SIZE;

function cpuSeconds(server) {
  const fields = readFileSync(`/proc/${server.child.pid}/stat`, "utf8").replace(/^.*\) /, "").split(" ");
  return (Number(fields[11]) + Number(fields[12])) / 100;
}

/** Waits until the server uses less than a fifth of a core. Answers after how many milliseconds it began to. */
export async function idle(operator, what) {
  const begun = performance.now();
  let since = begun;
  let used = cpuSeconds(operator.server);
  const [idleMs] = await until(() => {
    const now = performance.now();
    if (now - since < IDLE_WINDOW_MS) return false;
    const share = ((cpuSeconds(operator.server) - used) * 1000) / (now - since);
    const window = [since - begun];
    [since, used] = [now, cpuSeconds(operator.server)];
    return share < 0.2 ? window : false;
  }, `the server is idle after ${what}`, IDLE_MS_MAX + 10_000);
  assert.ok(idleMs <= IDLE_MS_MAX, `${what}: idle after ${idleMs} ms`);
  return idleMs;
}
