// Clients whose machine vanishes without a word: the server closes their connections within seconds of the first bytes that
// they must confirm. A client that is there and reads nothing is not taken for one that has vanished.
import assert from "node:assert/strict";
import { test } from "node:test";
import { getRequest } from "../../lib/khala.mjs";
import { Machine } from "../../lib/namespace.mjs";
import { operate } from "../../lib/operator.mjs";
import { streamPath } from "../../lib/paths.mjs";
import { scrape } from "../../lib/prometheus.mjs";
import { events } from "../../lib/samples.mjs";
import { Stream } from "../../lib/sse.mjs";
import { until } from "../../lib/wait.mjs";

const TIMEOUT_MS = 1000;
const HEARTBEATS = 5; // of 1000 ms
const CLOSED_MS_MAX = 8 * TIMEOUT_MS; // a probe of a full window may be seconds away

const metric = async (operator, name) => (await scrape(operator)).get(name);

/** A batch that is answered with more than the kernel takes. */
function batchOf(operator) {
  const items = events(40, { run_id: "wide", payload: (i) => ({ i, text: "x".repeat(100_000) }) });
  const body = items.map((item) => `${JSON.stringify(item)}\n`).join("");
  return ["POST /internal/v1/events:batch HTTP/1.1", "Host: khala", `Authorization: Bearer ${operator.key}`, "Content-Type: application/x-ndjson",
    `Content-Length: ${body.length}`, "", body].join("\r\n");
}

test("connections of a machine that vanishes are closed within seconds, and those of a stopped client are not", async (t) => {
  const machine = Machine.make(t);
  if (!machine) return t.skip("no network namespace can be made");
  const operator = await operate(t, { bind: `${machine.host}:0`, settings: { KHALA_PEER_TIMEOUT_MS: String(TIMEOUT_MS), KHALA_HEARTBEAT_MS: "1000",
    KHALA_REQUEST_TIMEOUT_MS: "120000", RUNTIME_KHALA_POLL_MIN_INTERVAL_MS: "0" } });
  await operator.did("runs", { run_id: "wide" }, 201);
  const here = await Stream.open(operator, streamPath("app", `after_seq=0&token=${operator.reader}`));
  const before = await metric(operator, "khala_http_connections");
  await machine.connect(t, operator.server.port, [
    { text: getRequest(streamPath("app", `after_seq=0&token=${operator.reader}`), ""), reads: true },
    { text: batchOf(operator), reads: false },
  ]);
  const opened = await metric(operator, "khala_http_connections");
  assert.ok(opened >= before + 2, `${opened} connections`);
  assert.ok(await metric(operator, "khala_batches_bytes") > 0, "the batch holds memory");
  // Its kernel acknowledges everything, so a client that reads nothing for several timeouts stays.
  machine.clients.kill("SIGSTOP");
  const heard = here.comments;
  await here.until(() => here.comments >= heard + HEARTBEATS, "several timeouts");
  assert.equal(await metric(operator, "khala_http_connections_vanished_total"), 0);
  machine.vanish();
  const begun = performance.now();
  await operator.did("topics/app/events", { event_type: "x" });
  await until(async () => await metric(operator, "khala_http_connections_vanished_total") >= 1, "the subscriber is closed", CLOSED_MS_MAX);
  t.diagnostic(`the subscriber is closed after ${(performance.now() - begun).toFixed(0)} ms`);
  await until(async () => await metric(operator, "khala_http_connections_vanished_total") === 2, "both are closed", 4 * CLOSED_MS_MAX);
  t.diagnostic(`both are closed after ${(performance.now() - begun).toFixed(0)} ms`);
  assert.equal(await metric(operator, "khala_batches_bytes"), 0);
  assert.equal(here.ended, false);
});
