// bench peers: its client notices a lost acknowledgement and a lost event. Otherwise its figures would mean nothing.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { test } from "../../lib/cases.mjs";

/** Runs a small load on one peer. */
async function peers(...options) {
  const child = spawn(join(process.env.KHALA_BUILD, "bench/bench_peers"), ["--quick", ...options], {
    stdio: ["ignore", "pipe", "ignore"],
  });
  let text = "";
  child.stdout.on("data", (piece) => { text += piece; });
  const [code] = await once(child, "close");
  return { code, text };
}

// Two peers are versions of NATS.
for (const peer of ["khala", "redis", "nats", "durable-streams", "centrifugo"]) {
  test(`${peer}: every event is acknowledged in order and stored`, async () => {
    const { code, text } = await peers("--row", "single-plain", "--peer", peer);
    assert.match(text, /^(single-plain +\S+ +([0-9.]+ .*us CPU\/event; .* events\/s|not installed)\n)+$/);
    assert.equal(code, 0);
  });
}

for (const peer of ["redis", "durable-streams", "centrifugo"]) {
  test(`${peer}: a client that comes back gets every event that it missed, or the figure is void`, async () => {
    const { code, text } = await peers("--row", "return", "--peer", peer);
    assert.match(text, /^return +\S+ +([0-9.]+ .*us CPU\/client; .* clients\/s|not installed)\n$/);
    assert.equal(code, 0);
    const faulty = await peers("--row", "return", "--peer", peer, "--fault", "event");
    assert.match(faulty.text, /^return +\S+ +(void: client: a gap: after seq 900 came \(901, 901\]|not installed)\n$/);
    assert.equal(faulty.code, faulty.text.includes("void") ? 1 : 0);
  });
}

test("a figure is void when one acknowledgement is missing", async () => {
  const { code, text } = await peers("--row", "ingest-plain", "--peer", "khala", "--fault", "ack");
  assert.match(text, /^ingest-plain +khala +void: (\d+) events were sent, \d+ acknowledged and \1 stored\n$/);
  assert.equal(code, 1);
});

test("a figure is void when a subscriber misses an event", async () => {
  const { code, text } = await peers("--row", "fanout-1k", "--peer", "khala-sse", "--fault", "event");
  assert.match(text, /^fanout-1k +khala-sse +void: client: a gap: after seq 0 came \(1, 1\]\n$/);
  assert.equal(code, 1);
});
