// Several servers over one PostgreSQL database.
import { folder } from "./khala.mjs";
import { newDatabase } from "./database.mjs";
import { operate } from "./operator.mjs";
import { until } from "./wait.mjs";

/** Starts a node over the database and answers its operator. */
export function join(t, url, settings = {}) {
  return operate(t, { data: folder(t), settings: { DB_URL: url, ...settings } });
}

/** Starts two nodes over a new database: the writer, then a follower. */
export async function pair(t, settings = {}) {
  const url = newDatabase();
  const writer = await join(t, url, settings);
  const follower = await join(t, url, settings);
  return { url, writer, follower };
}

/** Appends to a topic until the node takes it, as a producer does. Answers the body. */
export async function appended(operator, topic, body) {
  let answer;
  await until(async () => {
    answer = await operator.post(`/internal/v1/topics/${topic}/events`, body);
    return answer.status === 200;
  }, `an append to ${topic}`);
  return JSON.parse(answer.body);
}
