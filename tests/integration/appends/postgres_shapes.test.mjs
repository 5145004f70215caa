// The rules of shape are written twice: in C for requests over HTTP, and in SQL for the functions that users call. Both get
// the same rows here, and must take the same ones and refuse the others with the same code.
import assert from "node:assert/strict";
import { test } from "node:test";
import { newDatabase } from "../../lib/database.mjs";
import { operate } from "../../lib/operator.mjs";
import { PsqlSession } from "../../lib/psql_session.mjs";
import { until } from "../../lib/wait.mjs";

const MAX = { topic: 40000, run: 262144, worker: 65536 };
const SPACES = [0x20, 0xa0, 0x1680, 0x2000, 0x200a, 0x2028, 0x2029, 0x202f, 0x205f, 0x3000].map((code) => String.fromCodePoint(code));
const ODD = [0x01, 0x09, 0x0a, 0x0d, 0x1f, 0x7f, 0x80, 0x85, 0x9f, 0x61c, 0x180e, 0x200b, 0x200e, 0x200f, 0x202a, 0x202e, 0x2060, 0x2066, 0x2069,
  0xfeff, 0xfffd, 0x1f600].map((code) => String.fromCodePoint(code));

/** Texts around the edges of a rule for texts of so many bytes. */
const texts = (bytes) => ["", "a", "é", "a b", "a\\b'c\"d", "x".repeat(bytes), "x".repeat(bytes + 1), "é".repeat(bytes / 2), "é".repeat(bytes / 2) + "x",
  ...SPACES.flatMap((space) => [space, `${space}a`, `a${space}`, `a${space}b`]), ...ODD.flatMap((odd) => [odd, `a${odd}b`])];

const nested = (levels) => `${'{"a":'.repeat(levels)}1${"}".repeat(levels)}`;
const sized = (bytes) => `{"a":"${"x".repeat(bytes - 8)}"}`;

function* rows() {
  const topic = { topic: "room", event_type: "said" };
  for (const text of [...texts(512), ".", "..", "...", "*", "a*", "run:a", "run:a:events", "worker:a", "fleet:a", "runtime.a", "runtime", "Run:a", "a:run:"])
    yield { ...topic, topic: text };
  for (const text of texts(128)) yield { ...topic, event_type: text };
  for (const field of ["idempotency_key", "owner_user_id", "owner_guest_scope", "org_id"])
    for (const text of texts(256)) yield { ...topic, [field]: text };
  yield { ...topic, owner_user_id: "a", owner_guest_scope: "b" };
  for (const field of ["run_id", "worker_id"])
    for (const text of texts(256)) yield { [field]: text, event_type: "worker.said" };
  for (const event_type of ["said", "worker.", "worker.a", "worker", "workers.a", "worker.registered", "worker.heartbeat", "worker.status_changed", "run.started"])
    yield { worker_id: "w", event_type };
  for (const payload of ["{}", '{"status":"succeeded"}', '{"status":"cancelled"}', '{"status":"done"}', '{"status":1}', '{"status":null}'])
    yield { run_id: "unknown", event_type: "run.finished", payload };
  // A JSON null is an absent payload over HTTP; a function takes NULL for that.
  for (const payload of ["[]", "1", '"a"', "{}", '{"b":1,"a":[2,{"c":"\\u00e9\\n"}]}', nested(126), nested(127), nested(128)])
    yield { ...topic, payload };
  for (const [field, target] of [["topic", "room"], ["run_id", "r"], ["worker_id", "w"]])
    for (const more of [0, 1]) yield { [field]: target, event_type: "worker.said", payload: sized(MAX[field.replace("_id", "")] + more) };
  for (const event_id of ["01890000-0000-7000-8000-00000000aaaa", "01890000-0000-4000-8000-000000000001", "01890000-0000-7000-c000-000000000001"])
    yield { ...topic, event_id };
}

const literal = (text) => (text === undefined ? "NULL" : `convert_from(decode('${Buffer.from(text).toString("hex")}', 'hex'), 'UTF8')`);

/** The code of the function's refusal, or the id of the event. */
async function byFunction(session, { topic, run_id, worker_id, event_type, payload = "{}", event_id, ...rest }) {
  const [name, target] = topic !== undefined ? ["append_event", topic] : run_id !== undefined ? ["append_run_event", run_id] : ["append_worker_event", worker_id];
  const others = Object.entries(rest).map(([field, text]) => `, ${field} => ${literal(text)}`).join("");
  const answer = await session.ask(`SELECT runtime.${name}(${literal(target)}, ${literal(event_type)}, ${literal(payload)}::jsonb, ${literal(event_id)}::uuid${others})`);
  if (answer.state === "00000") return { id: answer.out };
  assert.match(answer.state, /^KH4/, `${JSON.stringify(rest)} ${answer.message}`);
  return { code: answer.message.match(/^(\w+): /)[1] };
}

const show = (row) => JSON.stringify(row).replace(/[^ -~]/g, (one) => `\\u${one.charCodeAt(0).toString(16)}`).slice(0, 200);

test("the functions of SQL and the requests over HTTP have the same rules of shape", async (t) => {
  const url = newDatabase();
  const operator = await operate(t, { settings: {
    DB_URL: url, KHALA_OUTBOX_POLL_MS: "5", RUNTIME_KHALA_FALLBACK_MAX_PAYLOAD_BYTES: String(MAX.topic) } });
  const session = new PsqlSession(t, url);
  await until(async () => await session.run("SELECT max_payload_bytes FROM runtime.outbox_limits WHERE kind = 'topic'") === String(MAX.topic),
    "the writer's limits");
  const all = [...rows()];
  // The payload is a text here, as the functions get it.
  const items = all.map(({ payload, ...row }) => `${JSON.stringify(row).slice(0, -1)}${payload ? `,"payload":${payload}` : ""}}\n`);
  await operator.did("runs", { run_id: "r" }, 201);
  await operator.did("workers", { worker_id: "w", owner_user_id: "u" }, 201);
  const functions = [];
  for (const row of all) functions.push(await byFunction(session, row));
  await until(async () => await session.run("SELECT count(*) FROM runtime.outbox") === "0", "an empty outbox");
  const rejected = new Map((await session.run("SELECT event_id, reason FROM runtime.outbox_rejected")).split("\n").map((line) => line.split("|")));
  const answers = (await operator.ask("POST", "events:batch", items.join(""), { "content-type": "application/x-ndjson" })).body.trim().split("\n").map((line) => JSON.parse(line));
  assert.equal(answers.length, all.length);
  const differing = all.flatMap((row, index) => {
    const { code, id } = functions[index];
    const bySql = code ?? rejected.get(id) ?? "ok";
    const byHttp = answers[index].error?.error ?? answers[index].error?.code ?? answers[index].error ?? "ok";
    return bySql === byHttp ? [] : [`${show(row)}: ${bySql} by SQL${code ? "" : ", from the writer"}, ${byHttp} over HTTP`];
  });
  assert.deepEqual(differing, []);
});
