// A producer of a server whose database fails: it repeats what was not acknowledged.
import assert from "node:assert/strict";
import { psql } from "./database.mjs";
import { until } from "./wait.mjs";

/** Appends an event to a topic. */
export const append = (operator, body) => operator.post("/internal/v1/topics/room/events", body);

/** The body of the event with that number, which has an id of the producer. */
export const eventOf = (number) => ({
  event_type: "said", payload: { number }, event_id: `01890000-0000-7000-8000-${String(number).padStart(12, "0")}` });

/** Repeats an append until it is accepted, as a producer does, and returns the last answer. */
export async function appended(operator, number) {
  for (;;) {
    const answer = await append(operator, eventOf(number));
    if (answer.status === 200) return answer;
    assert.equal(answer.status, 503, answer.body);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

/** Waits until the server is ready, or not ready. It looks at its write session once in a while. */
export const isReady = (operator, is = true) =>
  until(async () => (await operator.get("/healthz/ready")).status === (is ? 200 : 503), is ? "readiness" : "the end of readiness");

/** Checks that an append is refused for now, and answers its code. */
export async function refusedForNow(operator, number) {
  const refused = await append(operator, eventOf(number));
  assert.equal(refused.status, 503, refused.body);
  return JSON.parse(refused.body).error;
}

/** Ends all other sessions of a database, and waits until they are gone. */
export const terminate = (url) => psql(url, `SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity
  WHERE datname = current_database() AND pid <> pg_backend_pid()`);
