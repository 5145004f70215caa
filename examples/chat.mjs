// A chat. node chat.mjs writer RUN streams an answer into a run, token by token; node chat.mjs reader RUN shows it.
import { Khala } from "khala";
import { Producer } from "khala/producer";
import WebSocket from "ws"; // browsers, and Node from 22 on, have their own
import { ask, model } from "./model.mjs";
const [role, run_id = "chat"] = process.argv.slice(2);
const [{ url }, token] = [JSON.parse(await ask("/khala.json")), () => ask(`/token?role=${role}`)];
if (role === "writer") {
  const headers = { authorization: `Bearer ${await token()}` };
  await fetch(`${url}/v1/runs`, { method: "POST", headers, body: JSON.stringify({ run_id, idempotency_key: run_id }) });
  const producer = new Producer({ url, token });
  for await (const delta of model()) {
    await producer.room(); // waits while the server is away for long
    producer.append({ run_id, event_type: "chat.delta", payload: { id: run_id, delta } });
  }
  producer.append({ run_id, event_type: "run.finished", payload: { status: "succeeded" } });
  await producer.close(); // sends what is left
} else for await (const { kind, payload } of new Khala({ url, token, WebSocket }).topic(`run:${run_id}:events`, { fold: true })) {
  if (kind === "chat.delta") process.stdout.write(payload.delta);
}
