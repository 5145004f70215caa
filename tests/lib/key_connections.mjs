// What a key of the role admin may keep open on one node, and how each of it ends.
import assert from "node:assert/strict";
import { textOf } from "./operator.mjs";
import { pollPath, streamPath } from "./paths.mjs";
import { Stream } from "./sse.mjs";
import { once, until } from "./wait.mjs";

const POLLS = /khala_fanout_polls_total\{dialect="poll"\} (\d+)\n/;

async function pollCount(operator) {
  return Number((await operator.get("/metrics")).body.match(POLLS)?.[1] ?? 0);
}

const reasonOf = ({ status, body }) => [status, body && JSON.parse(body).reason_code];

/** The reason that an event stream gives for its end. */
async function endOf(stream) {
  await stream.until((one) => one.ended, "the end of a stream");
  return stream.events.findLast(({ type }) => type === "error")?.data.code;
}

/** A request whose body has not ended. The server has admitted its head. */
async function beginBody(operator, path, authorization) {
  const { request, answer } = operator.begin("POST", path, {
    ...authorization, expect: "100-continue", "transfer-encoding": "chunked", "content-type": "application/x-ndjson",
  });
  request.on("error", () => {}); // the server closes the connection after its answer
  request.flushHeaders();
  await once(request, "continue", `the admission to ${path}`);
  return { request, answer };
}

/** Opens everything with the key. The topic room:1 has one event. Answers a function that resolves with how each ended. */
export async function openWith(operator, key) {
  const authorization = { authorization: `Bearer ${key}` };
  const streams = [];
  for (const path of [streamPath("room:1", "after_seq=0"), "/events"]) {
    const stream = await Stream.open(operator, path, authorization);
    assert.equal(stream.status, 200);
    await stream.until((one) => one.messages.length > 0, `the first event of ${path}`);
    streams.push(stream);
  }
  const polls = await pollCount(operator);
  const poll = operator.ask("GET", pollPath("room:1", "after_seq=1&wait_ms=60000"), undefined, authorization);
  await until(async () => (await pollCount(operator)) > polls, "the poll");
  const imported = await beginBody(operator, "/api/events/import", authorization);
  const batch = await beginBody(operator, "events:batch", authorization);
  const append = await beginBody(operator, "topics/room:1/events", authorization);
  return async () => {
    const [topic, log] = await Promise.all(streams.map(endOf));
    const ended = [reasonOf(await poll)];
    // A single body is read to its end, and is refused then.
    append.request.end(`{"event_type":"late"}`);
    for (const { answer } of [imported, batch, append]) {
      const response = await answer;
      ended.push(reasonOf({ status: response.statusCode, body: await textOf(response) }));
    }
    for (const { request } of [imported, batch]) request.destroy();
    return { streams: [topic, log], requests: ended };
  };
}

/** How connections of a revoked token end. */
export const REVOKED = {
  streams: ["token_revoked", "token_revoked"],
  requests: Array(4).fill([401, "token_revoked"]),
};

/** Statements after which PostgreSQL stores no revocation. */
export const REFUSE_REVOCATIONS = `CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql
  AS $$ BEGIN RAISE EXCEPTION 'refused'; END $$;
  CREATE TRIGGER refuse BEFORE INSERT ON sync_revocations FOR EACH ROW EXECUTE FUNCTION refuse()`;
