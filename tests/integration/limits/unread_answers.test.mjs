// Answers that clients do not read: little of them is in the kernel, their memory is bounded for each
// principal, and a client that reads nothing loses its connection.
import assert from "node:assert/strict";
import net from "node:net";
import { test } from "node:test";
import { assertError, getRequest } from "../../lib/khala.mjs";
import { operate } from "../../lib/operator.mjs";
import { pollPath } from "../../lib/paths.mjs";
import { scrape } from "../../lib/prometheus.mjs";
import { events, range } from "../../lib/samples.mjs";
import { once, repeat, until } from "../../lib/wait.mjs";

const TIMEOUT_MS = 3000;
const PAGE_BYTES = 1_000_000; // at least, of a page of 200 messages
const PAGE_MESSAGES = 200;
const POLLS = 30;
const READ_MS = 150; // between two reads of a slow client

/** A client that has sent a poll and reads nothing of the answer. */
async function unread(operator, token) {
  const socket = net.connect({ host: operator.server.host, port: operator.server.port });
  socket.on("error", () => {}).pause();
  await once(socket, "connect", "a connection");
  socket.write(getRequest(pollPath("run:wide:events", "after_seq=0&limit=200"), `Authorization: Bearer ${token}`));
  operator.server.peers.push({ close: () => socket.destroy() });
  return socket;
}

async function poll(operator, token) {
  return operator.ask("GET", pollPath("run:wide:events", "after_seq=0&limit=200"), undefined, { authorization: `Bearer ${token}` });
}

/** A refusal of a stored event would make its client append it again. */
async function appendsALargeEvent(operator, token) {
  const [{ run_id: _, ...event }] = events(1, { payload: () => ({ text: "x".repeat(200_000) }) });
  const appended = await operator.ask("POST", "/v1/runs/own/events", JSON.stringify(event), { authorization: `Bearer ${token}` });
  assert.equal(appended.status, 200, appended.body.slice(0, 200));
  assert.ok(appended.body.length > 200_000, "the answer has the event");
}

/** Reads so many bytes of an answer every 200 ms. */
function trickles(t, socket, bytes) {
  repeat(t, 200, () => socket.read(Math.min(bytes, socket.readableLength)) ?? socket.read());
}

/** How much of its answer a slow client gets, which always reads within the timeout. */
async function slowly(socket) {
  let bytes = 0;
  const ended = once(socket, "close", "the end of the slow client");
  socket.on("data", (data) => {
    bytes += data.length;
    socket.pause();
    if (bytes > PAGE_BYTES) socket.destroy();
    else setTimeout(() => socket.resume(), READ_MS);
  });
  socket.resume();
  await ended;
  return bytes;
}

test("answers that are not read are bounded for each principal, and end", async (t) => {
  const operator = await operate(t, { settings: { KHALA_UNREAD_BYTES_PER_PRINCIPAL_MAX: String(PAGE_BYTES), RUNTIME_KHALA_POLL_MIN_INTERVAL_MS: "0",
    KHALA_REQUEST_TIMEOUT_MS: String(TIMEOUT_MS) } });
  await operator.did("runs", { run_id: "wide" }, 201);
  await operator.batch(events(200, { run_id: "wide", payload: (i) => ({ i, text: "x".repeat(6000) }) }));
  const greedy = operator.sign({ oa_user_id: "greedy", oa_sync_scopes: ["runtime.read_all", "runtime.append"] });
  const other = operator.sign({ oa_user_id: "other", oa_sync_scopes: ["runtime.read_all"] });
  const third = operator.sign({ oa_user_id: "third", oa_sync_scopes: ["runtime.read_all"] });
  const slow = unread(operator, other).then(slowly);
  await Promise.all(range(1, POLLS).map(() => unread(operator, greedy)));
  // One of them holds all the memory of its principal.
  const refusals = async () => (await scrape(operator)).get("khala_http_answers_refused_total");
  await until(async () => await refusals() >= POLLS - 1, "the refusals");
  // Most pages are refused before they are written: those that are being written count as unread.
  const written = (await scrape(operator)).get("khala_fanout_frames_total", { dialect: "poll" });
  assert.ok(written < PAGE_MESSAGES * POLLS / 3, `${written} messages of ${POLLS} polls were written`);
  const answered = (status, what) => until(async () => {
    const response = await poll(operator, greedy);
    return response.status === status ? response : null;
  }, what);
  const refused = await answered(429, "a refusal");
  assert.equal(refused.headers["retry-after"], "1");
  assertError(refused, 429, "rate_limited");
  await operator.did("runs", { run_id: "own", owner_user_id: "greedy" }, 201);
  await appendsALargeEvent(operator, greedy);
  assert.equal((await poll(operator, third)).status, 200, "another principal is not affected");
  assert.ok(await refusals() >= POLLS);
  assert.ok((await slow) > PAGE_BYTES, "a client that reads slowly gets its whole answer");
  await answered(200, "room for the answers of the principal, after the unread ones are dropped");
});

test("answers of many principals that are read in trickles end while they hold much memory together", async (t) => {
  const operator = await operate(t, { settings: { KHALA_UNREAD_BYTES_PER_PRINCIPAL_MAX: String(PAGE_BYTES / 2), RUNTIME_KHALA_POLL_MIN_INTERVAL_MS: "0",
    KHALA_REQUEST_TIMEOUT_MS: "2000" } });
  await operator.did("runs", { run_id: "wide" }, 201);
  await operator.batch(events(200, { run_id: "wide", payload: (i) => ({ i, text: "x".repeat(6000) }) }));
  const tokenOf = (i) => operator.sign({ oa_user_id: `reader-${i}`, oa_sync_scopes: ["runtime.read_all"] });
  const ended = async () => (await scrape(operator)).get("khala_http_answers_unread_total");
  // 40 KB in each request timeout is more than the absolute minimum, and little of a page.
  for (const i of range(1, 12)) trickles(t, await unread(operator, tokenOf(i)), 4000);
  await until(async () => await ended() >= 3, "answers that hold much and are hardly read end");
  assert.equal((await poll(operator, tokenOf(0))).status, 200);
});
