// libkhala with a storage, a token callback, a proxy and a clock that behave badly.
import assert from "node:assert/strict";
import http from "node:http";
import { after, before, test } from "node:test";
import { SteppedClock } from "../../lib/clock.mjs";
import { operate } from "../../lib/operator.mjs";
import { range } from "../../lib/samples.mjs";
import { Program } from "./program.mjs";

const LIVE = 4;
const REAUTHENTICATING = 5;
const TOPIC = "room:1";
const HOUR_MS = 3_600_000;

const ends = [];
let operator;
before(async () => {
  operator = await operate({ after: (act) => ends.unshift(act) });
  await operator.did(`topics/${TOPIC}/events`, { event_type: "said", payload: { n: 1 } });
});
after(async () => {
  for (const act of ends) await act();
});

const follow = (t, environment, options = {}) => Program.start(t, operator.server.url, { token: operator.reader, topics: [TOPIC], environment, ...options });
const warnings = (program) => program.all("warning").map(({ warning }) => warning);

test("a storage that fails is reported, and the topic goes on", async (t) => {
  const program = follow(t, { STORAGE_FAILS: "1" });
  const seen = program.seen(TOPIC);
  await program.lines.until(() => seen.frames.length === 1 && warnings(program).length >= 2, "the frame and two warnings");
  assert.deepEqual([...new Set(warnings(program))], ["storage_failed"]);
  assert.equal(seen.resets[0].reason, "position_unreadable");
  assert.equal(await program.close(), 0);
});

for (const loop of ["own", "given"]) {
  test(`a token callback that fails, answers nothing or answers late is called again, on ${loop} loop`, async (t) => {
    const program = follow(t, { TOKEN_FAULTS: "1", TOKEN_TIMEOUT_MS: "50" }, { loop });
    await program.lines.until(() => program.seen(TOPIC).frames.length === 1, "the frame");
    assert.deepEqual(warnings(program).slice(0, 3), ["token_failed", "token_missing", "token_timeout"]);
    assert.equal(await program.close(), 0);
  });
}

for (const loop of ["own", "given"]) {
  test(`an application that takes its frames later gets all of them, from the shortest queue, on ${loop} loop`, async (t) => {
    const topic = `room:later-${loop}`;
    await operator.batch(range(1, 44).map((n) => ({ topic, event_type: "said", payload: { n } })));
    const program = follow(t, { LATER: "1", QUEUE_FRAMES_MAX: "1" }, { loop, topics: [topic] });
    const { frames } = program.seen(topic);
    await program.lines.until(() => frames.length === 44, "the frames");
    await operator.did(`topics/${topic}/events`, { event_type: "said", payload: { n: 45 } });
    await program.lines.until(() => frames.length === 45, "a live frame");
    assert.deepEqual(frames.map(({ seq }) => seq), range(1, 45));
    assert.equal(await program.close(), 0);
  });
}

test("502, HTML, 503, 429 and an answer that breaks off are tried again, and the event is stored once", async (t) => {
  const answers = [
    [502, { "content-type": "text/html" }, "<html>Bad Gateway</html>"],
    [200, { "content-type": "text/html" }, "<html>Log in</html>"],
    [503, { "content-type": "application/json", "retry-after": "0" }, '{"error":"store_unavailable","message":"later","request_id":"x"}'],
    [429, { "content-type": "application/json", "retry-after": "0" }, '{"error":"rate_limited","message":"later","request_id":"x"}'],
  ];
  let requests = 0;
  const proxy = http.createServer(async (request, response) => {
    const body = Buffer.concat(await request.toArray());
    const answer = answers[requests++];
    if (answer) {
      response.writeHead(answer[0], answer[1]).end(answer[2]);
      return;
    }
    const upstream = await fetch(`${operator.server.url}${request.url}`, { method: "POST", headers: { authorization: request.headers.authorization, "content-type": request.headers["content-type"] }, body });
    const text = await upstream.text();
    // The first answer of the server breaks off.
    if (requests === answers.length + 1) request.socket.destroy();
    else response.writeHead(upstream.status, { "content-type": upstream.headers.get("content-type") }).end(text);
  });
  await new Promise((resolve) => proxy.listen(0, "127.0.0.1", resolve));
  t.after(() => {
    proxy.closeAllConnections();
    proxy.close();
  });
  const token = operator.sign({ oa_sync_scopes: ["runtime.append"], oa_sync_topics: ["room:2"] });
  const program = Program.start(t, `http://127.0.0.1:${proxy.address().port}`, { token, topics: [] });
  program.append({ topic: "room:2", event_type: "said", payload: { n: 1 } });
  await program.lines.until(() => program.all("appended").length + program.all("refused").length === 1, "the answer");
  assert.deepEqual(program.all("appended").map(({ appended, deduplicated }) => [appended.seq, deduplicated]), [[1, true]]);
  assert.equal(requests, answers.length + 2);
  assert.deepEqual(program.all("warning").map(({ warning, http_status, request_id }) => [warning, http_status, request_id.slice(0, 1)]).slice(0, 4),
    [["bad_gateway", 502, ""], ["bad_gateway", 200, ""], ["store_unavailable", 503, "x"], ["rate_limited", 429, "x"]]);
  assert.ok(program.all("warning").every(({ message }) => /\w/.test(message)), "words");
  assert.equal(await program.close(), 0);
});

test("a clock that jumps ahead, as after sleep, renews the token on the open connection", async (t) => {
  const clock = new SteppedClock(t);
  const program = follow(t, clock.settings);
  const renewals = () => program.all("state").filter(({ state }) => state === REAUTHENTICATING).length;
  await program.lines.until(() => program.state === LIVE, "the connection");
  assert.equal(renewals(), 0);
  clock.set(HOUR_MS);
  await program.lines.until(() => renewals() > 0 && program.state === LIVE, "a renewal");
  // A clock that is set back renews nothing, and frames go on.
  clock.set(-HOUR_MS);
  const count = program.seen(TOPIC).frames.length;
  await operator.did(`topics/${TOPIC}/events`, { event_type: "said", payload: { n: 2 } });
  await program.lines.until(() => program.seen(TOPIC).frames.length > count, "a frame");
  assert.equal(program.all("state").filter(({ state }) => state === LIVE).length, 1 + renewals(), "one connection");
  assert.equal(await program.close(), 0);
});
