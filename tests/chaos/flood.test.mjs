// A flood of silent connections, twice as many as the server has descriptors, must not stop the others: appends,
// polls and live streams go on, new clients and the operator get in, and SIGTERM ends the server.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import http from "node:http";
import { alone } from "../lib/cases.mjs";
import { flood } from "../lib/flood.mjs";
import { operate } from "../lib/operator.mjs";
import { pollPath } from "../lib/paths.mjs";
import { Client } from "../lib/phoenix.mjs";
import { TOPIC } from "../lib/samples.mjs";
import { until } from "../lib/wait.mjs";

const SAMPLES = 40;
// The descriptors of the machine may be a million. This many connections exceed every limit of connections too.
const DESCRIPTORS_MAX = 5000;
// A server that spins answers nothing at all; a busy machine is only slower.
const FACTOR_MAX = 10;
const SLACK_MS = 500;

const own = Number(execFileSync("sh", ["-c", "ulimit -Hn"]).toString().replace("unlimited", "1e9"));

/** Starts the binary with that many descriptors. */
const limited = (count) => ["sh", "-c", `ulimit -n ${count}; exec "$@"`, "sh"];

/** A request on a connection of its own; answers the status, or the error's code. */
function fresh(operator, path, token) {
  return new Promise((resolve) => {
    http.get({ host: operator.server.host, port: operator.server.port, path, agent: false,
      headers: { authorization: `Bearer ${token}` } }, (response) => {
      response.resume().on("end", () => resolve(response.statusCode));
    }).on("error", (error) => resolve(error.code));
  });
}

const median = (list) => list.sort((a, b) => a - b)[list.length >> 1];

async function timed(list, act) {
  const start = performance.now();
  await act();
  list.push(performance.now() - start);
}

/** What one client sees: appends, polls and pushes on open connections, and requests on new ones. */
class Others {
  constructor(operator, stream) {
    this.operator = operator;
    this.stream = stream;
    this.seq = 1;
  }

  static async join(operator) {
    await operator.did("runs", { run_id: "a", owner_user_id: "u" }, 201);
    const stream = await Client.join(operator);
    await stream.subscribe({ topics: [TOPIC], resume_after: { [TOPIC]: 0 } });
    await stream.reached(TOPIC, 1);
    return new Others(operator, stream);
  }

  /** The median times in milliseconds, and the answers on new connections. */
  async measure() {
    const times = { append: [], push: [], poll: [], fresh: [] };
    const answers = [];
    for (let i = 0; i < SAMPLES; i++) {
      await timed(times.push, async () => {
        await timed(times.append, () => this.operator.did("runs/a/events", { event_type: "run.log", payload: { i } }));
        await this.stream.reached(TOPIC, ++this.seq);
      });
      await timed(times.poll, async () => {
        const { status, body } = await this.operator.poll(TOPIC, `after_seq=${this.seq - 1}`);
        assert.equal(status, 200, body);
        assert.equal(JSON.parse(body).messages.length, 1);
      });
      const token = i % 2 ? this.operator.key : this.operator.sign({ oa_user_id: `u${i}`, oa_sync_scopes: ["runtime.read_all"] });
      await timed(times.fresh, async () => answers.push(await fresh(this.operator, pollPath(TOPIC, "after_seq=0"), token)));
    }
    assert.deepEqual(this.stream.closes, []);
    return { medians: Object.fromEntries(Object.entries(times).map(([name, list]) => [name, median(list)])), answers };
  }
}

const shown = (medians) => Object.entries(medians).map(([name, ms]) => `${name} ${ms.toFixed(1)}`).join(", ");

for (const descriptors of [256, 1024, Math.min(own, DESCRIPTORS_MAX)]) {
  alone(`others go on during a flood at ${descriptors} descriptors, and SIGTERM ends the server`, async (t) => {
    const operator = await operate(t, { command: limited(descriptors), settings: { RUNTIME_KHALA_POLL_MIN_INTERVAL_MS: "0" } });
    const others = await Others.join(operator);
    await others.measure();
    const quiet = await others.measure();
    assert.ok(quiet.answers.every((answer) => answer === 200), quiet.answers.join(" "));
    const attack = await flood(t, operator.server, 2 * descriptors);
    const busy = await others.measure();
    t.diagnostic(`quiet: ${shown(quiet.medians)} ms; during the flood: ${shown(busy.medians)} ms`);
    for (const [name, ms] of Object.entries(busy.medians)) {
      assert.ok(ms < FACTOR_MAX * quiet.medians[name] + SLACK_MS, `${name}: ${ms} ms, ${quiet.medians[name]} ms when it is quiet`);
    }
    const served = busy.answers.filter((answer) => answer === 200).length;
    assert.ok(served > SAMPLES / 2, `new connections: ${busy.answers.join(" ")}`);
    await attack.end("SIGKILL");
    const ended = performance.now();
    await until(async () => Number((await operator.get("/metrics")).body.match(/^khala_http_connections (\d+)$/m)[1]) < 70,
      "the connections of the flood are gone");
    const after = await others.measure();
    t.diagnostic(`normal after ${(performance.now() - ended).toFixed(0)} ms, ${SAMPLES} rounds included: ${shown(after.medians)} ms`);
    assert.ok(after.answers.every((answer) => answer === 200), after.answers.join(" "));
    await flood(t, operator.server, 2 * descriptors);
    others.stream.close();
    await operator.server.stop();
  });
}
