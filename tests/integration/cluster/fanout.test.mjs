// Fan-out drivers against their real servers: the same cases for each. fanout_node of the build is a
// node without a store; it prints the hints it gets.
import assert from "node:assert/strict";
import { join } from "node:path";
import { test } from "../../lib/cases.mjs";
import { nats, notify, redis } from "../../lib/fanout_servers.mjs";
import { folder, run, start } from "../../lib/khala.mjs";
import { operate } from "../../lib/operator.mjs";
import { freePort } from "../../lib/ports.mjs";
import { Authority } from "../../lib/tls.mjs";
import { until } from "../../lib/wait.mjs";

const EPOCH = "01a1dec5-1260-72e1-823b-7915efd6f48b";
const NODE = join(process.env.KHALA_BUILD, "fanout_node");
const SANITIZER_REPORT = /Sanitizer|runtime error:/;
const hintOf = (log_id, epoch = EPOCH) => `1 ${epoch} ${String(log_id).padStart(20, "0")}`;

const SERVERS = { postgres_notify: notify, nats, redis };

// ---- the nodes ----

/** A node on a channel of that server. */
function enter(t, driver, url, { channel = "khala.abc", env } = {}) {
  const node = start(t, [NODE, driver, url, channel], { input: "pipe", env: { ...process.env, ...env } });
  node.tell = (line) => node.child.stdin.write(`${line}\n`);
  node.announce = (log_id) => node.tell(`announce ${EPOCH} ${log_id}`);
  /** Asks for the status until it is as wanted. */
  node.reaches = (wanted, what) => until(async () => {
    const asked = node.lines.filter((line) => line.startsWith("{")).length;
    node.tell("status");
    await node.until(() => node.lines.filter((line) => line.startsWith("{")).length > asked, "the status");
    const status = JSON.parse(node.lines.filter((line) => line.startsWith("{")).at(-1));
    return wanted(status) ? status : null;
  }, what);
  node.is = (state) => node.reaches((status) => status.state === state, state);
  node.hears = (log_id) => node.saw("out", new RegExp(`^hint ${EPOCH} ${log_id}$`, "m"));
  node.hints = () => node.lines.filter((line) => line.startsWith("hint")).map((line) => line.split(" ")[2]);
  node.leaves = async () => {
    node.child.stdin.end();
    const { code } = await node.end();
    assert.doesNotMatch(node.log, SANITIZER_REPORT);
    assert.equal(code, 0, node.log);
  };
  return node;
}

// ---- the cases of every driver ----

/** Hints reach the other nodes of the channel, whatever else is sent there. */
async function reaches(t, driver, server) {
  const [writer, follower, stranger] = ["khala.abc", "khala.abc", "khala.xyz"].map((channel) => enter(t, driver, server.url, { channel }));
  for (const node of [writer, follower, stranger]) await node.is("connected");
  writer.announce(7);
  await follower.hears(7);
  await writer.reaches(({ sent, lag }) => sent >= 1 && lag === 0, "the hint sent");

  // Repeated, forged and late hints are hints; other texts are counted.
  const hints = [hintOf(7), hintOf(7), hintOf("9223372036854775807"), hintOf(3)];
  const garbage = ["", "x", "{\"log_id\":9}", hintOf(9).slice(1), `${hintOf(9)}\n`, hintOf("99999999999999999999"), "y".repeat(7000)];
  await server.publish("khala.abc", [...hints, ...garbage]);
  await follower.reaches(({ received, ignored }) => received >= 5 && ignored === garbage.length, "what was published");
  await writer.hears("9223372036854775807");
  writer.announce(8);
  await follower.hears(8);
  assert.deepEqual(follower.hints(), ["7", "7", "7", "9223372036854775807", "3", "8"]);
  assert.deepEqual(writer.hints(), ["9223372036854775807"], "its own positions are no news");
  assert.deepEqual(stranger.hints(), []);

  // A storm of commits sends few hints, and the newest.
  writer.tell(`storm ${EPOCH} 200000`);
  await writer.saw("out", /^stormed \d+$/m);
  // A node that prints its hints slowly may lose the newest.
  for (let log_id = 200001; !follower.hints().some((one) => Number(one) >= 200000 && Number(one) <= log_id); log_id++) {
    await writer.reaches(({ lag }) => lag === 0, "the hint sent");
    writer.announce(log_id);
    await follower.reaches(() => true, "the follower");
  }
  const { sent } = await writer.reaches(({ lag }) => lag === 0, "the newest hint sent");
  assert.ok(sent < 100_000, `${sent} hints for 200000 commits`);
  for (const node of [writer, follower, stranger]) await node.leaves();
}

/** A server that ends and comes back costs hints only. */
async function comesBack(t, driver, server) {
  const [writer, follower] = [0, 1].map(() => enter(t, driver, server.url));
  for (const node of [writer, follower]) await node.is("connected");
  await server.crash();
  for (const node of [writer, follower]) {
    const { error, failures } = await node.is("reconnecting");
    assert.ok(error.length > 0 && failures >= 1, error);
  }
  for (const log_id of [1, 2, 3]) writer.announce(log_id);
  assert.equal((await writer.reaches(({ lag }) => lag > 0, "the lag")).lag, 3);
  await server.start();
  for (const node of [writer, follower]) {
    await node.is("connected");
    await node.until(() => node.lines.filter((line) => line === "lost").length >= 2, "the report of lost hints");
  }
  // The follower may have connected after the writer's hint.
  writer.announce(4);
  await follower.hears(4);
  assert.ok(!follower.hints().includes("1") && !follower.hints().includes("2"), "only the newest");
  assert.ok((await writer.reaches(({ lag }) => lag === 0, "no lag")).connects >= 2);
  for (const node of [writer, follower]) await node.leaves();
}

/** A server that hangs loses the connection, and delays neither commits nor the end. */
async function hangs(t, driver, server) {
  const node = enter(t, driver, server.url);
  await node.is("connected");
  server.hang();
  node.tell(`storm ${EPOCH} 1000`);
  await node.saw("out", /^stormed/m);
  assert.match((await node.reaches(({ failures }) => failures > 0, "the failure")).error, /time/i);
  await node.leaves();
}

for (const [driver, serve] of Object.entries(SERVERS)) {
  test(`${driver}: hints reach the other nodes, and a server that fails costs hints only`, async (t) => {
    const server = await serve(t);
    for (const happens of [reaches, comesBack, hangs]) await happens(t, driver, server);
  });
}

test("a message larger than any hint costs at most the connection", async (t) => {
  for (const driver of ["nats", "redis"]) {
    const server = await SERVERS[driver](t);
    const [writer, follower] = [0, 1].map(() => enter(t, driver, server.url));
    for (const node of [writer, follower]) await node.is("connected");
    await server.publish("khala.abc", ["z".repeat(1_000_000)]);
    if (driver === "redis") assert.match((await follower.reaches(({ failures }) => failures > 0, "the refusal")).error, /larger than any hint/);
    let log_id = 0;
    await until(async () => {
      await writer.reaches(({ lag }) => lag === 0, "the hint sent");
      writer.announce(++log_id);
      return follower.hints().length > 0;
    }, "a hint afterwards");
    for (const node of [writer, follower]) await node.leaves();
  }
});

test("passwords are used, and no error shows one", async (t) => {
  const guarded = {
    nats: [await nats(t, ["--user", "ada", "--pass", "sesame"]), "ada:sesame@", "ada:sesame-wrong@"],
    redis: [await redis(t, ["--requirepass", "sesame"]), ":sesame@", ":sesame-wrong@"],
  };
  for (const [driver, [server, good, bad]] of Object.entries(guarded)) {
    const urlWith = (login) => server.url.replace("://", `://${login}`);
    const right = enter(t, driver, urlWith(good));
    await right.is("connected");
    await right.leaves();
    for (const login of [bad, ""]) {
      const wrong = enter(t, driver, urlWith(login));
      const { error } = await wrong.is("down");
      assert.match(error, /auth|password/i);
      assert.doesNotMatch(error + wrong.log, /sesame/);
      await wrong.leaves();
    }
  }
});

test("nats: a TLS server is verified by its certificate", async (t) => {
  const authority = new Authority(folder(t));
  const { certificate, key } = authority.issue("nats");
  const server = await nats(t, ["--tls", "--tlscert", certificate, "--tlskey", key]);
  const url = server.url.replace("nats://", "tls://");
  // The libraries count references in ways that ThreadSanitizer cannot see.
  const env = { TSAN_OPTIONS: `${process.env.TSAN_OPTIONS}:ignore_noninstrumented_modules=1` };
  const right = enter(t, "nats", url, { env: { ...env, SSL_CERT_FILE: authority.file } });
  await right.is("connected");
  const wrong = enter(t, "nats", url, { env });
  assert.match((await wrong.is("down")).error, /SSL/);
  for (const node of [right, wrong]) await node.leaves();
});

// ---- the server ----

const hookOf = async (operator, backend) => (await operator.read("khala/fanout/hooks")).hooks.find((hook) => hook.backend === backend);

test("the server is ready and takes appends while its driver is down, and shows its state", async (t) => {
  const port = await freePort();
  const url = `nats://ada:sesame@127.0.0.1:${port}`;
  const operator = await operate(t, { settings: { RUNTIME_FANOUT_DRIVER: "nats", RUNTIME_FANOUT_URL: url } });
  const reaches = (status) => until(async () => {
    const hook = await hookOf(operator, "nats");
    return hook.status === status ? hook : null;
  }, status);
  const down = await reaches("down");
  assert.ok(down.last_error.length > 0 && down.last_error_at_ms > 0);
  assert.match(down.channel, /^khala\.[0-9a-f]{6}$/);
  assert.equal((await operator.get("/healthz/ready")).status, 200);
  await operator.did("runs", { run_id: "a" }, 201);
  assert.ok((await hookOf(operator, "nats")).lag > 0);
  const hooks = await operator.read("khala/fanout/hooks");
  assert.deepEqual([hooks.driver, hooks.hooks.map((hook) => hook.status)], ["nats", ["active", "inactive", "down", "inactive"]]);

  const server = start(t, ["nats-server", "-a", "127.0.0.1", "-p", String(port), "--user", "ada", "--pass", "sesame"]);
  const connected = await reaches("connected");
  assert.equal(connected.connects, 1);
  const follower = enter(t, "nats", url, { channel: down.channel });
  await follower.is("connected");
  await operator.did("runs/a/events", { event_type: "run.log" });
  await follower.saw("out", /^hint [-0-9a-f]{36} 2$/m);
  await until(async () => (await hookOf(operator, "nats")).lag === 0, "no lag");

  await server.end("SIGKILL");
  await reaches("reconnecting");
  assert.equal((await operator.get("/healthz/ready")).status, 200);
  await operator.did("runs/a/events", { event_type: "run.log" });
  await follower.leaves();
  assert.doesNotMatch(operator.server.log, /sesame/);
  assert.match(operator.server.log, /fanout\.failing driver=nats/);
});

test("a driver without its URL is refused, and the URL is masked", () => {
  const refused = (settings, words) => {
    const { code, problem } = run(["config", "--check"], { settings });
    assert.notEqual(code, 0);
    assert.match(problem, words);
    assert.doesNotMatch(problem, /sesame/);
  };
  for (const driver of Object.keys(SERVERS)) {
    refused({ RUNTIME_FANOUT_DRIVER: driver }, new RegExp(`RUNTIME_FANOUT_DRIVER is ${driver}, and RUNTIME_FANOUT_URL is not set`));
    refused({ RUNTIME_FANOUT_DRIVER: driver, RUNTIME_FANOUT_URL: "http://ada:sesame@h" }, /RUNTIME_FANOUT_URL is no URL like/);
  }
  refused({ RUNTIME_FANOUT_DRIVER: "kafka" }, /RUNTIME_FANOUT_DRIVER='kafka' is not one of memory\|postgres_notify\|nats\|redis/);
  refused({ RUNTIME_FANOUT_DRIVER: "redis", RUNTIME_FANOUT_URL: "rediss://:sesame@h" }, /no TLS for Redis/);
  const { out } = run(["config"], { settings: { RUNTIME_FANOUT_DRIVER: "nats", RUNTIME_FANOUT_URL: "nats://ada:sesame@h" } });
  assert.match(out, /RUNTIME_FANOUT_DRIVER\W+nats/);
  assert.doesNotMatch(out, /sesame/);
});
