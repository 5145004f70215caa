// Topics and stream ids are one address space: each name reaches the same topic on every transport.
import assert from "node:assert/strict";
import { test } from "node:test";
import { operate, refused } from "../../lib/operator.mjs";
import { pollPath, socketPath, streamPath } from "../../lib/paths.mjs";
import { Client } from "../../lib/phoenix.mjs";
import { Socket } from "../../lib/socket.mjs";
import { Stream } from "../../lib/sse.mjs";
import { tokenFor } from "../../lib/token.mjs";

const bearer = (token) => ({ authorization: `Bearer ${token}` });
const pollAs = async (operator, token, topic, query) => {
  const { status, body } = await operator.ask("GET", pollPath(topic, query), undefined, bearer(token));
  return { status, body: JSON.parse(body) };
};
const streamOf = (topic) => `runtime.topic.${topic.replaceAll(":", ".")}`;

test("topics and stream ids are one address space", async (t) => {
  const operator = await operate(t, { settings: { RUNTIME_KHALA_POLL_MIN_INTERVAL_MS: "0" } });
  const append = (topic, event_type = "x") => operator.did(`topics/${topic}/events`, { event_type });

  await t.test("a topic has the same routes under /v1/topics and under /internal/v1/khala/topics", async () => {
    await append("both");
    for (const base of ["/v1/topics/both", "/internal/v1/khala/topics/both"]) {
      const page = await operator.read(`${base}/messages?after_seq=0`);
      assert.deepEqual(page.messages.map((one) => one.sequence), [1]);
      const socket = await Socket.open(operator, `${base}/ws?after_seq=0`, { headers: bearer(operator.reader) });
      await socket.until((one) => one.of("message").length === 1, "the message");
    }
  });

  await t.test("a stream id in a path means its topic", async () => {
    await append("c.d");
    await operator.did("runs", { run_id: "p", owner_user_id: "u" }, 201);
    const names = { "c.d": "runtime.topic.c.d", "run:p:events": "runtime.run.p.events" };
    for (const [topic, stream] of Object.entries(names)) {
      const page = JSON.parse((await operator.poll(stream, "after_seq=0")).body);
      assert.deepEqual([page.topic, page.messages.map((one) => [one.topic, one.sequence])], [topic, [[topic, 1]]]);
      const events = await Stream.open(operator, streamPath(stream, "after_seq=0"), bearer(operator.key));
      await events.until((one) => one.events.length === 1, "the event");
      assert.equal(events.events[0].data.topic, topic);
      const socket = await Socket.open(operator, socketPath(stream, "after_seq=0"), { headers: bearer(operator.reader) });
      await socket.until((one) => one.of("message").length === 1, "the message");
      assert.deepEqual([socket.messages[0].topic, socket.messages[0].stream_id], [topic, stream]);
    }
    const documents = await operator.read(`/v1/topics/${streamOf("runtime.run_summaries")}/snapshot`);
    assert.equal(documents.topic, "runtime.run_summaries");
  });

  await t.test("a grant may name a stream id, among the streams or among the topics", async () => {
    await append("g.h");
    const grants = [{ streams: ["runtime.topic.g.h"] }, { topics: ["runtime.topic.g.h"] }, { topics: ["g.h"] }, { streams: ["runtime.topic.g.*"] }];
    for (const grant of grants) {
      const token = await operator.token({ user_id: "u", scopes: [], ...grant });
      for (const name of ["g.h", "runtime.topic.g.h"]) {
        const { status, body } = await pollAs(operator, token, name, "after_seq=0");
        assert.deepEqual([status, body.messages?.length], [200, 1], JSON.stringify([grant, name, body]));
      }
    }
    const run = tokenFor(operator, { user_id: "other", scopes: ["runtime.run_events"], topics: ["runtime.run.p.events"] });
    assert.equal((await pollAs(operator, run, "runtime.run.p.events")).status, 200);
    // A pattern of built-in topics opens no stream.
    const wide = tokenFor(operator, { user_id: "u", scopes: ["runtime.run_events"], topics: ["runtime.*"] });
    for (const name of ["g.h", "runtime.topic.g.h", "runtime.topic.none", "runtime.run.p.events"])
      assert.equal((await pollAs(operator, wide, name)).status, 403, name);
    assert.equal((await pollAs(operator, tokenFor(operator, { user_id: "u", scopes: [], topics: ["g:h"] }), "runtime.topic.g.h")).body.error, "forbidden_topic");
  });

  await t.test("a subscribe takes stream ids in both lists and in resume_after", async () => {
    await append("s.t");
    await append("s.t");
    for (const field of ["topics", "streams"]) {
      const client = await Client.join(operator);
      const { topics, windows } = await client.subscribe({ [field]: ["runtime.topic.s.t"], resume_after: { "runtime.topic.s.t": 1 } });
      assert.deepEqual([topics, windows[0].topic, windows[0].stream_id], [["s.t"], "s.t", "runtime.topic.s.t"]);
      await client.reached("s.t", 2);
      assert.deepEqual(client.run("s.t").sequences, [2]);
      const { response } = await client.ask("sync:unsubscribe", { topics: ["runtime.topic.s.t"] });
      assert.deepEqual(response.topics, []);
    }
  });

  await t.test("a stream is bound when a topic with that stream id appears", async () => {
    const client = await Client.join(operator);
    const { topics, windows } = await client.subscribe({ streams: ["runtime.topic.late.one"] });
    assert.deepEqual([topics, windows[0].topic, windows[0].stream_id, windows[0].head_seq],
      [["runtime.topic.late.one"], "runtime.topic.late.one", "runtime.topic.late.one", 0]);
    // The same topic by its name, which is delivered once.
    await client.subscribe({ topics: ["late.one"] });
    const events = await Stream.open(operator, streamPath("runtime.topic.late.one"), bearer(operator.key));
    await events.until((one) => one.events.some(({ type }) => type === "bootstrap"), "the bootstrap");
    const socket = await Socket.open(operator, socketPath("runtime.topic.late.one"), { headers: bearer(operator.reader) });
    await socket.until((one) => one.of("hello").length === 1, "hello");
    const poll = operator.poll("runtime.topic.late.one", "after_seq=0&wait_ms=20000");
    await append("late.one");
    await append("late.one");
    await client.reached("late.one", 2);
    assert.deepEqual(client.run("late.one").sequences, [1, 2]);
    await events.until((one) => one.events.filter(({ type }) => type === "message").length === 2, "both events");
    await socket.until((one) => one.of("message").length === 2, "both messages");
    const page = JSON.parse((await poll).body);
    assert.deepEqual([page.topic, page.messages[0].sequence], ["late.one", 1]);
    assert.deepEqual((await client.ask("sync:unsubscribe", { topics: ["other"] })).response.topics, ["late.one"]);
  });

  await t.test("a stream that waits ends if its token may not read the topic that appears", async () => {
    const token = tokenFor(operator, { user_id: "u", scopes: [], topics: ["deny:me", "beside"] });
    const client = await Client.join(operator, { params: { token } });
    await client.subscribe({ streams: ["runtime.topic.deny.me"], topics: ["beside"] });
    const events = await Stream.open(operator, streamPath("runtime.topic.deny.me"), bearer(token));
    await events.until((one) => one.events.some(({ type }) => type === "bootstrap"), "the bootstrap");
    const socket = await Socket.open(operator, socketPath("runtime.topic.deny.me"), { headers: bearer(token) });
    const poll = pollAs(operator, token, "runtime.topic.deny.me", "after_seq=0&wait_ms=20000");
    await append("deny.me");
    await client.until((one) => one.of("sync:error").length === 1, "the error");
    const [error] = client.of("sync:error");
    assert.deepEqual([error.code, error.topic, error.stream_id], ["forbidden_topic", "runtime.topic.deny.me", "runtime.topic.deny.me"]);
    await append("beside");
    await client.reached("beside", 1);
    await events.until((one) => one.ended, "the end of the stream");
    assert.deepEqual(events.events.at(-1).data, { code: "forbidden_topic" });
    await socket.until((one) => one.closed, "the close");
    assert.equal(socket.messages.at(-1).code, "forbidden_topic");
    assert.deepEqual([(await poll).status, (await poll).body.error], [403, "forbidden_topic"]);
    assert.equal((await pollAs(operator, token, "runtime.topic.deny.me")).status, 403);
  });

  await t.test("a topic ends with stream_id_conflict if another topic takes its stream id", async () => {
    const client = await Client.join(operator);
    await client.subscribe({ topics: ["one:two"] });
    const poll = operator.poll("one:two", "after_seq=0&wait_ms=20000");
    await append("one.two");
    await client.until((one) => one.of("sync:error").length === 1, "the error");
    assert.deepEqual([client.of("sync:error")[0].code, client.of("sync:error")[0].topic], ["stream_id_conflict", "one:two"]);
    assert.deepEqual([(await poll).status, JSON.parse((await poll).body).error], [409, "stream_id_conflict"]);
    assert.equal((await client.refused("sync:subscribe", { topics: ["one:two"] })).code, "stream_id_conflict");
    assert.equal((await operator.poll("one:two", "after_seq=0")).status, 409);
    await refused(operator, () => operator.post("topics/one:two/events", { event_type: "x" }), 409, "stream_id_conflict");
    // The built-in topics have their stream ids before their first event.
    assert.equal((await operator.poll("runtime:audit", "after_seq=0")).status, 409);
    await refused(operator, () => operator.post("topics/runtime:audit/events", { event_type: "x" }), 409, "stream_id_conflict");
  });

  await t.test("the welcome names granted streams by their topics, and khala why takes stream ids", async () => {
    await append("w.x");
    const token = tokenFor(operator, { user_id: "u", scopes: [], topics: ["runtime.topic.w.x"], streams: ["runtime.topic.w.y"] });
    const client = await Client.join(operator, { params: { token } });
    assert.deepEqual(client.welcome.allowed_topics, ["w.x", "runtime.topic.w.y"]);
    assert.deepEqual(client.welcome.current_watermarks, [{ topic: "w.x", watermark: 1 }]);
    assert.equal((await pollAs(operator, token, "w.z")).status, 403);
    for (const name of ["w.z", "runtime.topic.w.z"]) {
      const { decisions } = await operator.read(`khala/why?topic=${name}`);
      assert.deepEqual(decisions.map((one) => [one.code, one.topic]), [["forbidden_topic", "w.z"]]);
    }
  });

  await t.test("appends take names of topics only", async () => {
    await refused(operator, () => operator.post("topics/runtime.topic.c.d/events", { event_type: "x" }), 403, "projection_owned_topic");
  });
});
