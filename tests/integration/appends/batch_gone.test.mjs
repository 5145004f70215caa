// Clients of events:batch that go away while the server is behind. Their kernels still send the body that they were given,
// before the end, so the server must find out in another way, and drops the rest. A client that has only closed its sending
// side gets every answer.
import assert from "node:assert/strict";
import net from "node:net";
import { test } from "../../lib/cases.mjs";
import { groupsOf, hold, lineOf, runs } from "../../lib/backlog.mjs";
import { operate } from "../../lib/operator.mjs";
import { scrape } from "../../lib/prometheus.mjs";
import { holdWriter } from "../../lib/store.mjs";
import { until } from "../../lib/wait.mjs";

const GROUPS_MAX = 8; // of a batch, posted and not answered
const GROUP_ITEMS = 256;
const ITEMS = 30_000; // more than the server reads ahead

const connectionsOf = async (operator) => (await scrape(operator)).get("khala_http_connections");

/** The body of a chunked answer so far; null while it is not complete. */
function bodyOf(text) {
  let body = "";
  for (let at = text.indexOf("\r\n\r\n") + 4; at >= 4;) {
    const end = text.indexOf("\r\n", at);
    if (end < 0) return null;
    const size = Number.parseInt(text.slice(at, end), 16);
    if (size === 0) return body;
    body += text.slice(end + 2, end + 2 + size);
    at = end + 4 + size;
  }
  return null;
}

/** A batch to the run "a" whose first item is stored, and whose others wait for a writer that is held. */
async function heldBatch(t, operator) {
  const { host, port } = operator.server;
  const body = lineOf("a").repeat(ITEMS) + lineOf("missing");
  const client = net.connect({ host, port, allowHalfOpen: true });
  t.after(() => client.destroy());
  const batch = { client, text: "" };
  client.on("error", () => {});
  client.on("data", (data) => { batch.text += data.toString("latin1"); });
  client.write(["POST /internal/v1/events:batch?answers=errors HTTP/1.1", "Host: khala", `Authorization: Bearer ${operator.key}`,
    "Content-Type: application/x-ndjson", `Content-Length: ${body.length}`, "Connection: close", "", ""].join("\r\n"));
  client.write(body.slice(0, lineOf("a").length));
  await until(async () => (await operator.read("runs/a")).run.latest_seq === 2, "the first item");
  batch.release = await hold(operator, () => holdWriter(t, operator.data));
  client.write(body.slice(lineOf("a").length));
  await until(async () => await groupsOf(operator) >= GROUPS_MAX, "the slices");
  return batch;
}

for (const [how, leave] of [["closes its connection", (client) => client.destroy()], ["resets it", (client) => client.resetAndDestroy()]]) {
  test(`the rest of a batch is dropped when the client ${how}`, async (t) => {
    const operator = await operate(t);
    await runs(operator, "a");
    const { client, release } = await heldBatch(t, operator);
    const open = await connectionsOf(operator);
    leave(client);
    await until(async () => await connectionsOf(operator) < open, "the end of the connection");
    await release();
    await until(async () => await groupsOf(operator) === 0, "an empty queue");
    const { latest_seq } = (await operator.read("runs/a")).run;
    assert.ok(latest_seq <= 2 + GROUP_ITEMS, `${latest_seq} events of ${ITEMS}`);
  });
}

test("a client that closes its sending side while the server is behind gets every answer", async (t) => {
  const operator = await operate(t);
  await runs(operator, "a");
  const batch = await heldBatch(t, operator);
  batch.client.end();
  // The head of the answer, and zeros that begin the size of the first chunk.
  await until(() => /\r\n\r\n00/.test(batch.text), "bytes that change nothing");
  await batch.release();
  await until(() => bodyOf(batch.text) !== null, "the whole answer");
  const { index, status } = JSON.parse(bodyOf(batch.text));
  assert.deepEqual([index, status], [ITEMS, 404]);
  assert.equal((await operator.read("runs/a")).run.latest_seq, 1 + ITEMS);
});
