// An agent that writes its output as a run: each line of its input becomes one event.
//   command | node agent.mjs RUN
import { createInterface } from "node:readline";
import { Producer } from "khala/producer";

const { BACKEND = "http://127.0.0.1:4200" } = process.env;
const [run_id = "demo"] = process.argv.slice(2);
const ask = async (path) => {
  const answer = await fetch(BACKEND + path);
  if (!answer.ok) throw new Error(`The backend answered ${answer.status}.`);
  return answer;
};
const token = async () => (await ask("/token?role=writer")).text();
const { url } = await (await ask("/khala.json")).json();

/** Creates the run. Its key makes a repetition harmless, so a lost answer is no problem. */
async function create() {
  for (let attempt = 1; ; attempt++) {
    try {
      const answer = await fetch(`${url}/v1/runs`, {
        method: "POST", headers: { authorization: `Bearer ${await token()}` }, body: JSON.stringify({ run_id, idempotency_key: run_id }),
      });
      if (answer.ok) return;
      if (answer.status < 500 && answer.status !== 429) throw Object.assign(new Error(await answer.text()), { isFinal: true });
    } catch (error) {
      if (error.isFinal) throw error;
    }
    await new Promise((resolve) => setTimeout(resolve, Math.min(10_000, 200 * 2 ** attempt) * Math.random()));
  }
}

await create();
const producer = new Producer({ url, token });
const refused = (error) => {
  console.error(error.code, error.message);
  process.exit(1);
};
for await (const line of createInterface({ input: process.stdin })) {
  await producer.room(); // a full queue stops the reading, and so the command before the pipe
  producer.append({ run_id, event_type: "run.log", payload: { line } }).catch(refused);
}
const { event } = await producer.append({ run_id, event_type: "run.finished", payload: { status: "succeeded" } });
console.log(`run ${run_id} has ${event.seq} events`);
await producer.close();
