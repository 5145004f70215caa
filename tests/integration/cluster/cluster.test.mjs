// Several nodes over one PostgreSQL: followers deliver what the writer commits, and take over from it.
import assert from "node:assert/strict";
import { test } from "../../lib/cases.mjs";
import { appended, join, pair } from "../../lib/cluster.mjs";
import { newDatabase, psql } from "../../lib/database.mjs";
import { assertError, run } from "../../lib/khala.mjs";
import { pollPath, snapshotPath, streamPath } from "../../lib/paths.mjs";
import { proxy } from "../../lib/nginx.mjs";
import { uuid7 } from "../../lib/oracle.mjs";
import { Client } from "../../lib/phoenix.mjs";
import { PsqlSession } from "../../lib/psql_session.mjs";
import { events, range, TOPIC } from "../../lib/samples.mjs";
import { Stream } from "../../lib/sse.mjs";
import { until } from "../../lib/wait.mjs";

const PATIENT = { RUNTIME_KHALA_POLL_MIN_INTERVAL_MS: "0" };

const sequences = (stream) => stream.events.filter((one) => one.data?.sequence).map((one) => one.data.sequence);

const poll = async (operator, topic, query) => JSON.parse((await operator.poll(topic, query)).body);

test("a follower delivers the events and the summaries of the writer in every dialect, without a gap at the seam", async (t) => {
  const { writer, follower } = await pair(t, PATIENT);
  await writer.did("runs", { run_id: "a", owner_user_id: "u" }, 201);
  await writer.batch(events(20));
  assert.equal((await follower.get("/healthz/ready")).status, 200);
  const replayed = await poll(follower, TOPIC, "after_seq=0&limit=200");
  assert.deepEqual(replayed.messages.map((one) => one.sequence), range(1, 21));

  const client = await Client.join(follower);
  await client.subscribe({ topics: [TOPIC, "runtime.run_summaries"], resume_after: { [TOPIC]: 5 } });
  const headers = { authorization: `Bearer ${follower.reader}` };
  const stream = await Stream.open(follower, streamPath(TOPIC, "after_seq=0"), headers);
  const waiting = follower.get(pollPath(TOPIC, "after_seq=21&wait_ms=20000"));
  // Appends go on while the clients replay, so that some of their events come live.
  await writer.batch(events(200));
  await client.reached(TOPIC, 221);
  assert.deepEqual(client.run(TOPIC).sequences, range(6, 221));
  await stream.until(() => stream.lastSeq === 221, "the event stream at 221");
  assert.equal(JSON.parse((await waiting).body).messages[0].sequence, 22);
  // The snapshot may be later than the last append.
  const summaries = () => client.run("runtime.run_summaries").updates.at(-1)?.payload ?? client.of("sync:snapshot").at(-1)?.documents.at(-1)?.payload;
  await client.until(() => summaries()?.latest_seq === 221, "the summary of the last event");

  await writer.did("workers", { worker_id: "w", owner_user_id: "u" }, 201);
  await client.subscribe({ topics: ["fleet:user:u:workers"], resume_after: { "fleet:user:u:workers": 0 } });
  await client.until(() => client.run("fleet:user:u:workers").updates.length > 0, "the worker of the fleet");
  await writer.did("workers/w/status", { status: "running" });
  await client.until(() => client.run("fleet:user:u:workers").updates.some((one) => one.payload.status === "running"), "the worker's status");
});

test("a subscription on a follower waits for a run of its owner, which another node creates", async (t) => {
  const { writer, follower } = await pair(t, PATIENT);
  const scopes = ["runtime.run_events"];
  const subscribed = async (user_id) => {
    const token = await writer.token({ user_id, scopes });
    const client = await Client.join(follower, { params: { token } });
    const { pending, windows } = await client.subscribe({ topics: ["run:soon:events"] });
    assert.deepEqual([pending, windows[0].pending], [true, true]);
    const waiting = follower.ask("GET", pollPath("run:soon:events", "wait_ms=60000"), undefined, { authorization: `Bearer ${token}` });
    return { client, waiting };
  };
  const [ada, bob] = await Promise.all(["ada", "bob"].map(subscribed));
  await writer.did("runs", { run_id: "soon", owner_user_id: "ada" }, 201);
  await ada.client.reached("run:soon:events", 1);
  assert.deepEqual(JSON.parse((await ada.waiting).body).messages.map((one) => one.seq), [1]);
  await writer.batch(events(3, { run_id: "soon" }));
  await ada.client.reached("run:soon:events", 4);
  assert.deepEqual(bob.client.run("run:soon:events").sequences, []);
  assert.deepEqual((await bob.client.ask("sync:heartbeat", {})).response.watermarks, [{ topic: "run:soon:events", watermark: 0 }]);
});

/** Appends as another node that passes a request on. */
const forwarded = (operator, topic, body) => operator.ask("POST", `topics/${topic}/events`, JSON.stringify(body), { "khala-forwarded": "a" });

test("a follower refuses forwarded appends, and takes the role of a writer that is killed, without a gap in the log", async (t) => {
  const { url, writer, follower } = await pair(t, PATIENT);
  const said = (number) => ({ event_type: "said", payload: { number } });
  for (const number of range(1, 5)) await appended(writer, "room", said(number));
  const client = await Client.join(follower);
  await client.subscribe({ topics: ["room"], resume_after: { room: 0 } });
  await client.reached("room", 5);
  assertError(await forwarded(follower, "room", said(6)), 503, "not_writer");
  const begun = performance.now();
  await writer.server.crash();
  await appended(follower, "room", said(6));
  const tookMs = Math.round(performance.now() - begun);
  t.diagnostic(`the next append was taken ${tookMs} ms after the writer was killed`);
  for (const number of range(7, 10)) await appended(follower, "room", said(number));
  await client.reached("room", 10);
  assert.deepEqual(client.run("room").updates.map((one) => one.payload.number), range(1, 10));
  assert.equal(psql(url, "SELECT count(*), max(seq), max(log_id) FROM events"), "10|10|10");
  const verified = run(["verify"], { settings: { DB_URL: url } });
  assert.equal(verified.code, 0, verified.problem);

  // A node that comes back follows the new writer.
  const back = await join(t, url, PATIENT);
  assertError(await forwarded(back, "room", said(11)), 503, "not_writer");
  const again = await Client.join(back);
  await again.subscribe({ topics: ["room"], resume_after: { room: 8 } });
  await appended(follower, "room", said(11));
  await again.reached("room", 11);
  assert.deepEqual(again.run("room").sequences, [9, 10, 11]);
});

test("a follower without hints reads the log at its interval, and each node has its address in the table", async (t) => {
  const { url, writer, follower } = await pair(t, { RUNTIME_FANOUT_DRIVER: "memory", KHALA_FOLLOW_POLL_MS: "20", KHALA_ADVERTISE_ADDR: "node.example:4100" });
  const client = await Client.join(follower);
  await client.subscribe({ topics: ["room"], resume_after: { room: 0 } });
  await appended(writer, "room", { event_type: "said" });
  await client.reached("room", 1);
  const rows = () => psql(url, "SELECT role, address, term FROM nodes ORDER BY role").split("\n");
  await until(() => rows().length === 2, "the rows of both nodes");
  assert.deepEqual(rows(), ["follower|node.example:4100|1", "writer|node.example:4100|1"]);
  await follower.server.stop();
  follower.server.crashed = true;
  assert.deepEqual(rows(), ["writer|node.example:4100|1"]);
});

test("the first subscriber of a follower misses nothing while others append, whenever it comes", async (t) => {
  // A topic that is not followed leaves memory after a few events, so that each turn begins with none.
  const { writer, follower } = await pair(t, { ...PATIENT, KHALA_WINDOW_FRAMES_MAX: "1", KHALA_FOLLOW_POLL_MS: "20" });
  await writer.did("runs", { run_id: "a", owner_user_id: "u" }, 201);
  let head = 1, isOver = false;
  const appending = (async () => {
    for (let size = 1; !isOver; size = size % 7 + 1) head = (await writer.batch(events(size))).at(-1).event.seq;
  })();
  const headers = { authorization: `Bearer ${follower.reader}` };
  for (let turn = 0; turn < 8; turn++) {
    const from = head;
    const stream = await Stream.open(follower, streamPath(TOPIC, `after_seq=${from}`), headers);
    await stream.until(() => stream.lastSeq >= from + 40, "40 events");
    const seen = sequences(stream);
    assert.deepEqual(seen, range(from + 1, from + seen.length));
    stream.request.destroy();
    const left = head;
    await until(() => head >= left + 10, "events without a subscriber");
  }
  isOver = true;
  await appending;
});

test("commits of the writer do not make a follower write its row", async (t) => {
  const { url, writer } = await pair(t);
  await until(async () => (await writer.read("nodes")).nodes.length === 2, "both nodes");
  psql(url, "CREATE TABLE runtime.beats (at timestamptz); CREATE FUNCTION runtime.count_beat() RETURNS trigger LANGUAGE plpgsql AS " +
    "'BEGIN INSERT INTO runtime.beats VALUES (clock_timestamp()); RETURN NEW; END'; " +
    "CREATE TRIGGER count_beat BEFORE UPDATE ON runtime.nodes FOR EACH ROW EXECUTE FUNCTION runtime.count_beat()");
  const begun = performance.now();
  for (const number of range(1, 150)) await appended(writer, "room", { event_type: "said", payload: { number } });
  const beats = Number(psql(url, "SELECT count(*) FROM beats"));
  // Each of the two nodes writes its row about once a second.
  const expected = 2 * (performance.now() - begun) / 1000;
  assert.ok(beats <= 2 * expected + 10, `${beats} beats instead of ${Math.round(expected)}`);
});

const REVOKE = "/internal/v1/sync/sessions/revoke";

/** khala nodes marks the node that answers, and khala doctor names the writer. */
async function showsNodes(writer, follower) {
  for (const [operator, role] of [[writer, "writer"], [follower, "follower"]]) {
    const at = ["--url", operator.server.url, "--data-dir", operator.data];
    const own = new RegExp(`^\\* [0-9a-f]{16}  ${role} +live  127\\.0\\.0\\.1:${operator.server.port} +term=\\d+  log_id=\\d+  seen_ms_ago=\\d+  version=`);
    const lines = () => run(["nodes", ...at]).out.trim().split("\n");
    const isShown = (all) => all.length === 2 && all.filter((line) => own.test(line)).length === 1 && all.filter((line) => line.startsWith("*")).length === 1;
    await until(() => isShown(lines()), `${role} among two nodes`);
    const { nodes } = JSON.parse(run(["nodes", "--json", ...at]).out);
    assert.deepEqual(nodes.map((node) => node.role).sort(), ["follower", "writer"]);
  }
  const settings = { DB_URL: writer.server.settings.DB_URL };
  const doctor = () => JSON.parse(run(["doctor", "--json", "--url", writer.server.url, "--data-dir", writer.data], { settings }).out)
    .checks.filter((one) => one.check === "nodes").map(({ finding, message }) => `${finding} ${message}`).sort().join("\n");
  const healthy = /^ok node \w+ at \S+ is (a follower|the writer)\nok node \w+ at \S+ is (a follower|the writer)$/;
  await until(() => healthy.test(doctor()), "two live nodes");
  // The writer's beats write its row again, so a trigger keeps the role out of it.
  psql(settings.DB_URL, "CREATE FUNCTION runtime.no_writer() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN NEW.role := ''follower''; RETURN NEW; END'; " +
    "CREATE TRIGGER no_writer BEFORE INSERT OR UPDATE ON runtime.nodes FOR EACH ROW EXECUTE FUNCTION runtime.no_writer()");
  await until(() => doctor().includes("wrong no live node is the writer: appends are refused"), "the finding");
  psql(settings.DB_URL, "DROP FUNCTION runtime.no_writer CASCADE");
}

test("a revocation on one node ends the sessions on every node before it is answered, and single use holds on all nodes", async (t) => {
  const { writer, follower } = await pair(t, { RUNTIME_SYNC_TOKEN_SINGLE_USE: "true" });
  await until(async () => (await writer.read("nodes")).nodes.length === 2, "both nodes");
  const on = (operator, session) => ({ authorization: `Bearer ${operator.sign({ oa_sync_scopes: ["runtime.read_all"], oa_session_id: session })}` });
  for (const [from, to, session] of [[writer, follower, "one"], [follower, writer, "two"]]) {
    const stream = await Stream.open(to, streamPath("runtime.run_summaries", "after_seq=0"), on(to, session));
    assert.equal(stream.status, 200);
    const answer = await from.did(REVOKE, { session_ids: [session] });
    assert.deepEqual([answer.nodes_confirmed, answer.nodes_unconfirmed], [2, 0]);
    await stream.until(() => stream.ended, "the end of the revoked stream");
    const again = await Stream.open(to, streamPath("runtime.run_summaries", "after_seq=0"), on(to, session));
    assert.equal(again.status, 401);
  }
  await showsNodes(writer, follower);
  const token = on(writer, "three");
  assert.equal((await Stream.open(writer, streamPath("runtime.run_summaries", "after_seq=0"), token)).status, 200);
  const second = await Stream.open(follower, streamPath("runtime.run_summaries", "after_seq=0"), token);
  assert.equal(second.status, 401);
});

test("revocations on every node leave the role where it is, and no append fails", async (t) => {
  const { url, writer, follower } = await pair(t);
  await until(async () => (await writer.read("nodes")).nodes.length === 2, "both nodes");
  const holder = () => psql(url, "SELECT term, (SELECT node_id FROM nodes WHERE role = 'writer') FROM writer");
  const before = holder();
  let isOver = false;
  let number = 0;
  const append = async () => {
    for (; !isOver; number++) await writer.did("topics/room/events", { event_type: "said", payload: { number } });
  };
  const appending = append();
  // A revocation that takes long: it waits for its table, while the writer looks for requests for its role, once a second.
  const seen = () => Number(psql(url, `SELECT extract(epoch FROM seen_at) * 1000 FROM nodes WHERE role = 'writer'`));
  const session = new PsqlSession(t, url);
  await session.run("BEGIN; LOCK TABLE runtime.sync_revocations IN SHARE MODE");
  const begun = seen();
  const slow = follower.did(REVOKE, { session_ids: ["slow"] });
  await until(() => seen() > begun + 2500, "three beats of the writer");
  await session.run("ROLLBACK");
  await slow;
  for (let i = 0; i < 20; i++)
    await Promise.all([writer, follower].map((node, at) => node.did(REVOKE, { session_ids: [`s${i}.${at}`] })));
  isOver = true;
  await appending;
  assert.equal(holder(), before);
  assert.equal(psql(url, "SELECT count(*) FROM events WHERE type = 'said'"), `${number}`);
  await until(() => psql(url, "SELECT count(*) FROM events WHERE type = 'operator.token_revoked'") === "41", "the record of all revocations");
});

test("a follower asks the writer to repair what it finds altered, and never sends it", async (t) => {
  const { url, writer, follower } = await pair(t, { ...PATIENT, KHALA_WINDOW_BYTES_MAX: "1024" });
  for (const run_id of ["a", "b", "c", "d"]) await writer.did("runs", { run_id, owner_user_id: "u" }, 201);
  const frames = async (node) => (await poll(node, "runtime.run_summaries", "after_seq=0")).messages;
  const right = await frames(follower);
  const summary = await writer.read("projectors/run-summary/a");
  const of = (id) => `entity_ref = (SELECT ref FROM entities WHERE id = '${id}')`;
  /** Reads on the follower until it answers; until then it asks to be asked again. */
  const read = (path) => until(async () => {
    const answer = await follower.get(path);
    if (answer.status !== 200) assertError(answer, 503, "store_unavailable");
    return answer.status === 200 && JSON.parse(answer.body);
  }, path);
  psql(url, `UPDATE run_documents SET payload = replace(payload, '"u"', '"v"') WHERE ${of("a")} OR ${of("b")}; DELETE FROM run_documents WHERE ${of("c")};
    UPDATE journal SET payload = replace(payload, '"u"', '"v"') WHERE seq IN (2, 4)`);
  const answered = await read("projectors/run-summary/a");
  assert.deepEqual({ ...answered, projected_at: 0 }, { ...summary, projected_at: 0 });
  const { documents } = await read(snapshotPath("runtime.run_summaries"));
  assert.deepEqual(documents.map(({ payload }) => [payload.run_id, payload.owner_user_id]).sort(), ["a", "b", "c", "d"].map((id) => [id, "u"]));
  const { messages } = await read(pollPath("runtime.run_summaries", "after_seq=0"));
  assert.deepEqual(messages.slice(0, 4), right);
  const { drift } = await follower.read("projectors/drift");
  assert.deepEqual(drift.map((one) => one.entity_id ?? `${one.subject} ${one.expected_seq}`).sort(),
    ["a", "b", "c", "runtime.run_summaries 2", "runtime.run_summaries 4"]);
  // The last report may have crossed the repair.
  await until(() => psql(url, "SELECT count(*) FROM meta WHERE name LIKE 'damage %'") === "0", "the writer has taken all reports");
  assert.equal(run(["verify"], { settings: { DB_URL: url } }).code, 0);
});

test("a node that is stopped does not confirm a revocation, and delivers nothing when it continues until it has read it", async (t) => {
  const { writer, follower } = await pair(t);
  await until(async () => (await writer.read("nodes")).nodes.length === 2, "both nodes");
  await appended(writer, "room", { event_type: "said", payload: { number: 1 } });
  const token = follower.sign({ oa_sync_scopes: ["runtime.read_all"], oa_session_id: "gone" });
  const stream = await Stream.open(follower, streamPath("room", "after_seq=0"), { authorization: `Bearer ${token}` });
  await stream.until(() => stream.lastSeq === 1, "the first event");
  follower.server.kill("SIGSTOP");
  const answer = await writer.did(REVOKE, { session_ids: ["gone"] });
  assert.equal(answer.nodes_confirmed, 1);
  await appended(writer, "room", { event_type: "said", payload: { number: 2 } });
  follower.server.kill("SIGCONT");
  await stream.until(() => stream.ended, "the end of the revoked stream");
  assert.equal(stream.lastSeq, 1);
  // The node goes on by itself.
  await until(async () => (await follower.get("/healthz/ready")).status === 200, "the node is ready again");
  const client = await Client.join(follower);
  await client.subscribe({ topics: ["room"], resume_after: { room: 0 } });
  await client.reached("room", 2);
  const metrics = async () => (await follower.get("/metrics")).body;
  assert.match(await metrics(), /^khala_cluster_writer 0$/m);
  await until(async () => /^khala_cluster_followed_log_id 3$/m.test(await metrics()), "the followed log in the metrics");
});

test("a node does not take the role of a schema that it does not know", async (t) => {
  const { url, writer, follower } = await pair(t);
  const version = psql(url, "SELECT value FROM meta WHERE name = 'schema_version'");
  psql(url, "UPDATE meta SET value = '9999' WHERE name = 'schema_version'");
  await writer.server.crash();
  await follower.server.saw("log", /store\.schema_differs/);
  assert.equal((await follower.post("/internal/v1/topics/room/events", { event_type: "said" })).status, 503);
  assert.equal(psql(url, "SELECT count(*) FROM events"), "0");
  psql(url, `UPDATE meta SET value = '${version}' WHERE name = 'schema_version'`);
  await appended(follower, "room", { event_type: "said" });
});

test("nodes that start at once on an empty database have the same keys", async (t) => {
  const url = newDatabase();
  const nodes = await Promise.all(range(1, 3).map(() => join(t, url)));
  assert.equal(new Set(nodes.map((node) => node.key)).size, 1, "one operator key");
  for (const one of nodes) {
    const { token } = await one.did("/api/sync/token", { scopes: ["runtime.read_all"] });
    for (const other of nodes) {
      const answer = await other.ask("GET", pollPath("runtime.run_summaries", "after_seq=0"), undefined, { authorization: `Bearer ${token}` });
      assert.equal(answer.status, 200, answer.body);
    }
  }
});

test("every node reads a rotated signing key, and takes the tokens of the others", async (t) => {
  // The clocks are ahead of the command's by more than the delay: the new key signs when a node has read it.
  const { url, writer, follower } = await pair(t, { KHALA_CLOCK_OFFSET_MS: "60000" });
  const nodes = [writer, follower];
  const status = async (node, token) => (await node.ask("GET", pollPath("demo"), undefined, { authorization: `Bearer ${token}` })).status;
  const mint = (node) => node.did("/api/sync/token", { topics: ["demo"] });
  const old = await mint(writer);
  const rotate = (...args) => {
    const { code, out, problem } = run(["keys", "rotate", "--json", ...args], { settings: { DB_URL: url } });
    assert.equal(code, 0, problem);
    return JSON.parse(out);
  };
  const { kid } = rotate();
  for (const node of nodes) await node.server.saw("log", /signing_keys\.loaded keys=2/);
  for (const [from, to] of [[writer, follower], [follower, writer]]) {
    const minted = await mint(from);
    assert.deepEqual([minted.kid, await status(to, minted.token), await status(to, old.token)], [kid, 200, 200]);
  }
  rotate("--now");
  for (const node of nodes) {
    await node.server.saw("log", /signing_keys\.loaded keys=1/);
    assert.equal(await status(node, old.token), 401);
  }
});

test("clients behind nginx in front of two nodes go on when one node is killed", async (t) => {
  const { writer, follower } = await pair(t, PATIENT);
  const proxied = await proxy(t, writer, follower);
  const token = writer.sign({ oa_sync_scopes: ["runtime.read_all", "runtime.append"], oa_sync_topics: ["room"] });
  const authorization = { authorization: `Bearer ${token}` };
  const say = async (number) => {
    const body = JSON.stringify({ event_type: "said", event_id: uuid7(), payload: { number } });
    await until(async () => (await proxied.ask("POST", "/v1/topics/room/events", body, authorization)).status === 200, `event ${number}`);
  };
  const follow = (after) => Stream.open(proxied, `/v1/topics/room/sse?after_seq=${after}`, authorization);
  for (const number of range(1, 4)) await say(number);
  // nginx chooses the node with fewer connections, so each node has one of them.
  const streams = [await follow(0), await follow(0)];
  for (const stream of streams) await stream.until(() => stream.lastSeq === 4, "four events");
  await writer.server.crash();
  for (const number of range(5, 8)) await say(number);
  const numbers = await Promise.all(streams.map(async (stream) => {
    const seen = [];
    for (;;) {
      await until(() => stream.ended || stream.lastSeq === 8, "the last event, or the end of a node");
      seen.push(...stream.messages.map(({ data }) => data.payload.number));
      if (seen.length >= 8) return seen;
      stream = await follow(seen.length);
    }
  }));
  assert.ok(streams.some((stream) => stream.ended), "a client of the killed node");
  assert.deepEqual(numbers, [range(1, 8), range(1, 8)]);
});
