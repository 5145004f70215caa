// The nginx configuration of docs/operations.md, in front of a real server.
import assert from "node:assert/strict";
import { test } from "../../lib/cases.mjs";
import { proxy } from "../../lib/nginx.mjs";
import { operate } from "../../lib/operator.mjs";
import { Socket } from "../../lib/socket.mjs";
import { Stream } from "../../lib/sse.mjs";
import { until } from "../../lib/wait.mjs";

test("nginx passes events at once, shuts operator routes and logs no token", async (t) => {
  const operator = await operate(t);
  const proxied = await proxy(t, operator);
  const { log } = proxied.server;
  const token = await operator.token({ topics: ["demo"] });
  const say = (text) => operator.did("topics/demo/events", { event_type: "said", payload: { text } });

  await say("stored");
  const stream = await Stream.open(proxied, `/v1/topics/demo/sse?after_seq=0&token=${token}`);
  const socket = await Socket.open(proxied, `/v1/topics/demo/ws?after_seq=0&token=${token}`);
  const texts = () => [stream.messages.map(({ data }) => data.payload.text), socket.of("message").map(({ payload }) => payload.text)];
  const bothHave = (...wanted) => until(() => texts().every((all) => all.join() === wanted.join()), wanted.join());
  await bothHave("stored");
  await say("live");
  await bothHave("stored", "live");
  const poll = await proxied.ask("GET", `/v1/topics/demo/messages?after_seq=0&token=${token}`, undefined, { authorization: `Bearer ${token}` });
  assert.equal(JSON.parse(poll.body).messages.length, 2, poll.body);

  const shut = ["/internal/v1/runs", "/internal/v1/khala/topics/demo/messages", "/metrics", "/internal/v1/runs/..%2f..%2f..%2fv1",
    "//internal/v1/khala/why", "/%69nternal/v1/khala/why", "/v1/../internal/v1/khala/why"];
  for (const path of shut) {
    const { status, body } = await proxied.ask("GET", path);
    assert.equal(status, 404, `${path} ${body}`);
  }
  for (const path of ["/api/sync/token", "/api/v1/sync/token", "/internal/v1/sync/token", "/api/events/ingest", "/api/events/import?x=1"])
    assert.equal((await proxied.post(path, { scopes: ["runtime.read_all"], event_type: "login" })).status, 404, path);
  assert.equal((await operator.get("/internal/v1/khala/why")).status, 200, "the server itself answers");

  stream.close();
  socket.close();
  await operator.server.stop();
  const gone = await proxied.ask("GET", `/v1/topics/demo/messages?after_seq=0&token=${token}`);
  assert.equal(gone.status, 502);
  await until(() => /demo\/sse" 200/.test(log()) && /demo\/ws" 101/.test(log()) && /messages" 502/.test(log()), "three lines of the access log");
  assert.doesNotMatch(log() + log("error"), /\?|token=|eyJ/);
});
