// A page of another origin than the server's, in a real browser: fetch, EventSource and WebSocket.
import assert from "node:assert/strict";
import http from "node:http";
import { before, test } from "node:test";
import { openAddress, untilInPage } from "../lib/browser.mjs";
import { operate } from "../lib/operator.mjs";
import { events, range, TOPIC } from "../lib/samples.mjs";

/** An application's own server, with one empty page. */
async function application(t) {
  const server = http.createServer((request, response) => {
    response.setHeader("content-type", "text/html");
    response.end("<!doctype html><title>app</title>");
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => server.close());
  return `http://127.0.0.1:${server.address().port}`;
}

let allowed;
let other;
let operator;

before(async (t) => {
  [allowed, other] = [await application(t), await application(t)];
  operator = await operate(t, { settings: { RUNTIME_KHALA_ALLOWED_ORIGINS: allowed } });
  await operator.did("runs", { run_id: "a" }, 201);
  await operator.batch(events(20));
});

/** What a page gets for each request: status and code, or the name of the browser's own error. */
function fetched(page, requests) {
  return page.evaluate(([base, list]) => Promise.all(list.map(async ([path, options]) => {
    try {
      const response = await fetch(base + path, options);
      const text = await response.text();
      return [response.status, text.startsWith("{") ? JSON.parse(text).error ?? null : null];
    } catch (error) {
      return error.name;
    }
  })), [operator.server.url, requests]);
}

const bearer = () => ({ headers: { authorization: `Bearer ${operator.reader}` } });
const poll = `/internal/v1/khala/topics/${TOPIC}/messages`;

test("a page of an allowed origin reads answers and errors with fetch", async (t) => {
  const page = await openAddress(t, allowed);
  const plan = { method: "POST", body: JSON.stringify({ cursors: [] }), headers: { ...bearer().headers, "content-type": "application/json" } };
  assert.deepEqual(await fetched(page, [
    [`${poll}?after_seq=0&token=${operator.reader}`],
    [`${poll}?after_seq=21`, bearer()],
    ["/v1/topics/runtime.run_summaries/snapshot", bearer()],
    ["/v1/cursors/plan", plan],
    [`${poll}?after_seq=0`, { headers: { authorization: "Bearer wrong" } }],
    [`${poll}?after_seq=x&token=${operator.reader}`],
    ["/v1/nothing"],
  ]), [[200, null], [200, null], [200, null], [200, null], [401, "invalid_token"], [400, "invalid_request"], [404, "not_found"]]);
});

test("a page of an allowed origin reads Retry-After and X-Request-Id", async (t) => {
  const page = await openAddress(t, allowed);
  const id = await page.evaluate(async (address) =>
    (await fetch(address, { headers: { "x-request-id": "from-a-page" } })).headers.get("x-request-id"),
  `${operator.server.url}${poll}`);
  assert.equal(id, "from-a-page");
});

test("a page of an allowed origin follows a topic with EventSource and WebSocket", async (t) => {
  const page = await openAddress(t, allowed);
  await page.evaluate(([base, topic, token]) => {
    window.seen = { stream: [], socket: [] };
    const source = new EventSource(`${base}/v1/topics/${topic}/sse?after_seq=0&token=${token}`);
    source.onmessage = ({ data }) => window.seen.stream.push(JSON.parse(data).sequence);
    const socket = new WebSocket(`${base.replace("http", "ws")}/internal/v1/khala/topics/${topic}/ws?after_seq=0&token=${token}`);
    socket.onmessage = ({ data }) => {
      const message = JSON.parse(data);
      if (message.type === "message") window.seen.socket.push(message.sequence);
    };
  }, [operator.server.url, TOPIC, operator.reader]);
  await untilInPage(page, () => window.seen.stream.length >= 21 && window.seen.socket.length >= 21, null, "both replays");
  assert.deepEqual(await page.evaluate(() => window.seen), { stream: range(1, 21), socket: range(1, 21) });
});

test("a page of another origin reads nothing, and no page reads operator routes", async (t) => {
  const stranger = await openAddress(t, other);
  assert.deepEqual(await fetched(stranger, [
    [`${poll}?after_seq=0&token=${operator.reader}`],
    ["/v1/topics/runtime.run_summaries/snapshot", bearer()],
  ]), ["TypeError", "TypeError"]);
  await stranger.evaluate((address) => {
    window.failed = null;
    new EventSource(address).onerror = ({ target }) => { window.failed = target.readyState; };
  }, `${operator.server.url}/v1/topics/${TOPIC}/sse?token=${operator.reader}`);
  await untilInPage(stranger, () => window.failed === EventSource.CLOSED, null, "the refusal");
  const page = await openAddress(t, allowed);
  assert.deepEqual(await fetched(page, [["/internal/v1/runs/a", { headers: { authorization: `Bearer ${operator.key}` } }]]), ["TypeError"]);
});
