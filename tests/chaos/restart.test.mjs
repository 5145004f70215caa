// Restarts under a thousand live clients of every dialect and several tenants during appends.
// Readiness fails first; every client gets a different time to reconnect, reconnects then, and
// resumes after its cursor. In the end each client has received its part of the log completely and in
// order, every acknowledged event is in the log, and no cursor was stale. Clients that never read and
// half-sent requests must not delay the end of a server. KHALA_CHAOS_CLIENTS and KHALA_CHAOS_RESTARTS
// set the numbers.
import assert from "node:assert/strict";
import { test } from "node:test";
import { assertError, connect, folder, run } from "../lib/khala.mjs";
import { operate, textOf } from "../lib/operator.mjs";
import { assertFollowed, assertLog, bodyOf, Ledger, lineOf, readAuthority } from "../lib/oracle.mjs";
import { socketPath } from "../lib/paths.mjs";
import { fixedPort } from "../lib/ports.mjs";
import {
  AuditSocket, EventStream, LOG, Phoenix, PhoenixClient, Poll, ROOMS, SUMMARIES, TopicSocket, WAIT_MS_MAX,
} from "../lib/followers.mjs";
import { until, within } from "../lib/wait.mjs";
import { handshake } from "../lib/websocket.mjs";

const CLIENTS = Number(process.env.KHALA_CHAOS_CLIENTS ?? 1000);
const RESTARTS = Number(process.env.KHALA_CHAOS_RESTARTS ?? 3);
const TENANTS = ["ada", "bob", "eve", "joe", "zoe"];
const RUNS = TENANTS.flatMap((tenant) => [0, 1, 2, 3].map((i) => `${tenant}-${i}`));
const FAT = "ada-fat";
const WRITERS = 4;
const APPENDS = 300; // between two restarts, at least
const RESTARTING = 1012;

const cutsOff = (round) => round === RESTARTS && RESTARTS > 1;

/** The settings of the server that a round ends. The first has a delay to observe readiness; the last cuts off a request. */
const settingsOf = (round) => ({
  KHALA_SHUTDOWN_DELAY_MS: round === 1 ? "2000" : "0",
  KHALA_SHUTDOWN_GRACE_MS: cutsOff(round) ? "1500" : "600000",
  KHALA_REQUEST_TIMEOUT_MS: "600000",
  KHALA_SLOW_CONSUMER_CHECK_MS: "3600000", // those that never read shall be there when it ends
  RUNTIME_KHALA_POLL_MIN_INTERVAL_MS: "0",
  KHALA_READS_PER_PRINCIPAL_MAX: "1000", // two hundred clients of one principal come back at once
});

const ownerOf = (run_id) => run_id.split("-")[0];

/** Keeps an event whose fate is unknown: every second one is sent again. */
function keep(ledger, event) {
  if (event.n % 2 === 0) ledger.unknown.push(event);
  else ledger.left++;
}

async function appendOne(world, event) {
  const response = await world.operator.post(event.run_id ? `runs/${event.run_id}/events` : `topics/${event.topic}/events`, bodyOf(event));
  if (response.status === 200) world.ledger.acknowledge(event, JSON.parse(response.body));
  else refused(world, response, [event]);
}

/** Checks a refusal of appends, and keeps the events. */
function refused(world, response, events) {
  assert.equal(response.status, 503, response.body);
  assert.match(JSON.parse(response.body).error, /^(shutting_down|store_unavailable)$/);
  for (const event of events) keep(world.ledger, event);
}

async function appendBatch(world, events) {
  const response = await world.operator.ask("POST", "events:batch", events.map(lineOf).join(""), { "content-type": "application/x-ndjson" });
  if (response.status !== 200) refused(world, response, events);
  else answered(world, events, response.body);
}

function answered(world, events, text) {
  const items = text.trim().split("\n").map((one) => JSON.parse(one));
  assert.equal(items.length, events.length);
  items.forEach((item, i) => {
    assert.equal(item.status, 200, JSON.stringify(item));
    world.ledger.acknowledge(events[i], item);
  });
}

/** A client that receives every event, and takes the longest to read one. */
const witnessOf = (world) => world.followers.find((one) => one.tenant === null && one.track.topic === LOG);

/** Appends, and waits for the delivery before the next append, so that a thousand clients can follow. */
async function write(world, writer) {
  const { ledger } = world;
  const witness = witnessOf(world);
  for (let round = 0; !world.quiet; round++) {
    const { sessions } = witness;
    const again = ledger.unknown.splice(0, 10);
    const target = (i) => ((round + i) % 10 === 0 ? { topic: ROOMS[writer % 2] } : { run_id: RUNS[(round * WRITERS + writer + i) % RUNS.length] });
    const events = again.length > 0 ? again : Array.from({ length: round % 8 === 0 ? 10 : 1 }, (_, i) => ledger.make(target(i)));
    try {
      if (events.length === 1) await appendOne(world, events[0]);
      else await appendBatch(world, events);
    } catch (error) {
      if (error instanceof assert.AssertionError) throw error;
      for (const event of events) if (!ledger.acknowledged.has(event.id)) keep(ledger, event);
    }
    const stored = events.filter((event) => ledger.acknowledged.has(event.id));
    if (stored.length > 0) await witness.until(() => stored.every((event) => witness.track.has(event.id)), "sees what was appended");
    else await witness.until(() => witness.sessions > sessions, "comes back after appends were refused");
  }
}

class World {
  ledger = new Ledger();
  followers = [];
  over = false;
  quiet = false;
  problem = null;

  nodeOf() {
    return this.operator;
  }

  /** The time that the server named, which doubles while no server is there: the attempts of all clients would slow down this process. */
  pauseMs(follower) {
    return (follower.delaysMs.at(-1) ?? 400) * 2 ** Math.min(follower.refusedInRow, 3);
  }

  /** Takes the only error that a client may get, and answers its reconnect time. */
  notice(follower, body) {
    assert.equal(body.code, "shutting_down", `${follower.name}: ${JSON.stringify(body)}`);
    return body.reconnect_after_ms;
  }

  /** Takes the reconnect time at the end of a session, and the close code where there is one. */
  left(follower, hint, code) {
    assert.ok(Number.isInteger(hint), `${follower.name} was sent away without a word: ${code}`);
    if (code !== undefined) assert.equal(code, RESTARTING, follower.name);
    follower.delaysMs.push(hint);
    this.firstTold ??= follower;
  }

  fail(error, follower) {
    this.problem ??= Object.assign(error, { message: `${follower.name}: ${error.message}` });
    for (const one of this.followers) one.changed();
  }

  add(Kind, count, tenantOf, topicsOf) {
    for (let i = 0; i < count; i++) {
      const tenant = tenantOf(i);
      this.followers.push(new Kind(this, tenant, topicsOf(i, tenant)));
    }
  }

  all(ready, what) {
    return Promise.all(this.followers.map((one) => one.until(() => ready(one), what)));
  }
}

/** Creates clients of every dialect. */
function populate(world) {
  const tenant = (i) => TENANTS[i % TENANTS.length];
  const ownRun = (i, owner) => [`run:${owner}-${Math.floor(i / TENANTS.length) % 4}:events`];
  const runOrRoom = (i, owner) => (i % 8 === 7 ? [ROOMS[(i >> 3) % 2]] : ownRun(i, owner));
  world.add(Poll, 10, tenant, (i, owner) => [`run:${owner}-quiet:events`]);
  world.add(AuditSocket, 20, (i) => (i % 2 ? null : tenant(i)), () => [LOG]);
  world.add(EventStream, 10, (i) => (i % 2 ? null : tenant(i)), () => [LOG]);
  world.add(PhoenixClient, 20, tenant, ownRun);
  world.add(Phoenix, 30, tenant, (i, owner) => [...ownRun(i, owner), SUMMARIES]);
  world.add(EventStream, 10, tenant, () => [SUMMARIES]);
  const rest = CLIENTS - world.followers.length;
  world.add(EventStream, Math.floor(rest / 4), tenant, runOrRoom);
  world.add(TopicSocket, Math.floor(rest / 4), tenant, runOrRoom);
  world.add(Phoenix, CLIENTS - world.followers.length, tenant, ownRun);
}

/** Asserts that the reconnect times are spread evenly over at least that time. */
function assertSpread(hints, windowMs, what) {
  const [least, most] = [Math.min(...hints), Math.max(...hints)];
  assert.ok(most - least >= windowMs, `${what}: all within ${most - least} ms`);
  const tenths = Array(10).fill(0);
  for (const hint of hints) tenths[Math.min(9, Math.floor(((hint - least) * 10) / (most - least)))]++;
  assert.ok(Math.max(...tenths) < hints.length * 0.2 && Math.min(...tenths) > 0, `${what}: tenths of the time get ${tenths}`);
  return tenths;
}

/** A connection on which the server has read the first part of a request. */
async function halfway(world, request, cut) {
  const peer = await connect(world.operator.server);
  await peer.send(`GET /healthz/live HTTP/1.1\r\nHost: x\r\n\r\n${request.slice(0, -cut)}`);
  assert.equal((await peer.response()).status, 200);
  return { peer, finish: () => peer.send(request.slice(-cut)) };
}

function request(world, event) {
  const text = JSON.stringify(bodyOf(event));
  return `POST /internal/v1/runs/${event.run_id}/events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${world.operator.key}\r\n`
    + `Content-Length: ${text.length}\r\n\r\n${text}`;
}

/** Opens sockets that are megabytes behind and never read. */
async function deaf(world) {
  for (let i = 0; i < 4; i++) {
    const peer = await connect(world.operator.server);
    peer.socket.pause();
    await peer.send(handshake(socketPath(`run:${FAT}:events`, `after_seq=0&token=${world.operator.reader}`)));
  }
}

/** Begins requests before the server ends; the answer finishes and checks them. */
async function underWay(world) {
  const { ledger, operator } = world;
  const late = ledger.make({ run_id: RUNS[0] });
  const half = await halfway(world, request(world, late), 9);
  const batch = Array.from({ length: 20 }, () => ledger.make({ run_id: RUNS[1] }));
  const stream = operator.begin("POST", "events:batch", { "content-type": "application/x-ndjson" });
  stream.request.write(batch.slice(0, 10).map(lineOf).join(""));
  const response = await within(stream.answer, "the first answers of a batch");
  return async () => {
    await half.finish();
    const answer = await half.peer.response();
    assert.equal(answer.status, 200, answer.body);
    ledger.acknowledge(late, JSON.parse(answer.body));
    half.peer.close();
    stream.request.end(batch.slice(10).map(lineOf).join(""));
    answered(world, batch, await textOf(response));
  };
}

/** Asserts that readiness fails while every client is still served. */
async function unready(world, probe) {
  await world.operator.server.saw("log", /server\.stopping/);
  await probe.finish();
  assertError(await probe.peer.response(), 503, "shutting_down");
  probe.peer.close();
  assert.equal(world.firstTold, null, "readiness goes first");
  assert.equal(world.followers.filter((one) => one.isLive).length, CLIENTS);
}

async function end(world, round) {
  const { server } = world.operator;
  const probe = round === 1 ? await halfway(world, "GET /healthz/ready HTTP/1.1\r\nHost: x\r\n\r\n", 9) : null;
  // The server waits a short time for the rest of a head, and the grace period for the rest of a body.
  await halfway(world, "GET /healthz/live HTTP/1.1\r\nHost: x\r\n\r\n", 9);
  if (cutsOff(round)) await halfway(world, request(world, world.ledger.make({ run_id: RUNS[0] })), 9);
  const finish = cutsOff(round) ? null : await underWay(world);
  world.firstTold = null;
  server.kill(round % 2 ? "SIGTERM" : "SIGINT");
  if (probe) await unready(world, probe);
  await world.all((one) => one.delaysMs.length === round, "gets a time to come back");
  if (finish) await finish();
  const { code } = await within(server.ended, "the end of the server", WAIT_MS_MAX);
  assert.equal(code, 0, server.log);
  assert.equal(/grace_over/.test(server.log), cutsOff(round), "only half a body has to be cut off");
  server.crashed = true;
}

async function restart(t, world, round) {
  const { ledger, operator } = world;
  const acknowledged = ledger.acknowledged.size;
  for (const tenant of TENANTS) await appendOne(world, ledger.make({ run_id: `${tenant}-quiet` }));
  await deaf(world);
  await until(() => world.problem || ledger.acknowledged.size >= acknowledged + APPENDS, "appends", WAIT_MS_MAX);
  await end(world, round);
  world.operator = await operate(t, { data: operator.data, settings: settingsOf(round + 1), bind: `127.0.0.1:${world.port}` });
  operator.close();
  await world.all((one) => one.isLive && one.sessions === round + 1, "comes back");
  const hints = world.followers.map((one) => one.delaysMs.at(-1));
  const tenths = assertSpread(hints, CLIENTS / 2, "all");
  for (const Kind of [Phoenix, TopicSocket, EventStream]) {
    assertSpread(world.followers.filter((one) => one.constructor === Kind).map((one) => one.delaysMs.at(-1)), CLIENTS / 2, Kind.name);
  }
  t.diagnostic(`restart ${round}: delays of ${Math.min(...hints)} to ${Math.max(...hints)} ms, by tenths ${tenths}`);
}

test(`${CLIENTS} live clients resume without loss over ${RESTARTS} restarts`, { timeout: 230_000 }, async (t) => {
  const world = new World();
  world.port = await fixedPort();
  const data = folder(t);
  world.operator = await operate(t, { data, settings: settingsOf(1), bind: `127.0.0.1:${world.port}` });
  t.after(() => {
    world.over = world.quiet = true;
    for (const one of world.followers) one.close();
  });
  for (const run_id of [...RUNS, FAT, ...TENANTS.map((tenant) => `${tenant}-quiet`)]) {
    await world.operator.did("runs", { run_id, owner_user_id: ownerOf(run_id) }, 201);
  }
  for (const topic of ROOMS) await appendOne(world, world.ledger.make({ topic }));
  for (let i = 0; i < 40; i++) await appendOne(world, world.ledger.make({ run_id: FAT, pad: "x".repeat(200_000) }));
  populate(world);
  assert.equal(world.followers.length, CLIENTS);
  world.followers.forEach((one, i) => { one.deflates = i % 20 === 0; });
  witnessOf(world).deflates = true;
  for (const one of world.followers) Promise.resolve(one.live()).catch((error) => world.fail(error, one));
  await world.all((one) => one.isLive, "goes live");
  const writing = Array.from({ length: WRITERS }, (_, i) => write(world, i));
  for (const one of writing) one.catch((error) => world.fail(error, { name: "a writer" }));
  for (let round = 1; round <= RESTARTS; round++) await restart(t, world, round);
  world.quiet = true;
  await within(Promise.all(writing), "the writers' end");
  const { lines, expected } = await readAuthority(world.operator, ownerOf);
  assertLog(world.ledger, lines);
  for (const one of world.followers) {
    await assertFollowed(one, expected);
    assert.equal(one.sessions, RESTARTS + 1, `${one.name} came back once a restart`);
  }
  world.over = true;
  for (const one of world.followers) one.close();
  await world.operator.server.stop();
  for (const verb of [["verify"], ["reproject", "--all", "--verify"]]) {
    const { code, out, problem } = run([...verb, "--data-dir", data]);
    assert.equal(code, 0, out + problem);
  }
  const { ledger } = world;
  t.diagnostic(`${ledger.acknowledged.size} acknowledged, ${ledger.left} left in the dark, ${lines.length} in the log, `
    + `${world.followers.reduce((sum, one) => sum + one.refused, 0)} knocks at a closed door, `
    + `${world.followers.reduce((sum, one) => sum + [...one.tracks.values()].reduce((all, track) => all + track.seen.length, 0), 0)} seen`);
});
