// bench lists: the first page of 50 runs of a store with few runs and of one with many, by order and filter. The rows are
// written by SQL, because appending a million runs takes minutes. Each row shows the median time of a request with few
// runs, with many, and their ratio, which should be at most 2. A tenth of the runs has the owner, the state, the tag and
// the title; 60 runs have the parent, and 60 the rare state, however many runs there are.
//
// --few N    (default 1000)
// --many N   (default 1000000)
// --rounds N requests of each row (default 101)
import { parseArgs } from "node:util";
import { onPostgres } from "../tests/lib/database.mjs";
import { operate } from "../tests/lib/operator.mjs";
import { median } from "../tests/lib/samples.mjs";
import { alter } from "../tests/lib/store.mjs";
import { tokenFor } from "../tests/lib/token.mjs";

const number = (text) => ({ type: "string", default: text });
const { values } = parseArgs({ options: { few: number("1000"), many: number("1000000"), rounds: number("101") } });
const [few, many, rounds] = [values.few, values.many, values.rounds].map(Number);
const RARE = 60;
const SPREAD = 20000; // a run is updated after at most so many later runs were created

const ROWS = [
  ["newest first", "runs?sort=-updated_at"],
  ["oldest first", "runs?sort=updated_at"],
  ["by creation", "runs?sort=-created_at"],
  ["by id", "runs?sort=run_id"],
  ["from a time in the middle", (count) => `runs?sort=updated_at&updated_after=${1e12 + Math.floor(count / 2)}`],
  ["of an owner, newest first", "runs?sort=-updated_at&owner_user_id=ada"],
  ["of an owner, by id", "runs?sort=run_id&owner_user_id=ada"],
  ["of a token, newest first", "/v1/runs?sort=-updated_at", "ada"],
  ["in a state that a tenth has", "runs?sort=-updated_at&status=failed"],
  [`in a state that ${RARE} runs have`, "runs?sort=-updated_at&status=canceling"],
  [`of a parent with ${RARE} children`, "runs?sort=-updated_at&parent_run_id=p"],
  ["with a tag that a tenth has", "runs?sort=-updated_at&tag=tenth"],
  ["with a text in the title that a tenth has", "runs?sort=-updated_at&title=tenth"],
];

/** Rows from one number to another. Updates have another order than creations. */
function fill(data, from, to) {
  const tenth = (then, otherwise) => `CASE WHEN i % 10 = 3 THEN ${then} ELSE ${otherwise} END`;
  const status = `CASE WHEN i < ${RARE} THEN 'canceling' WHEN i % 10 = 3 THEN 'failed' ELSE 'succeeded' END`;
  const updated = `${1e12} + i + (i * 7919) % ${SPREAD}`;
  const range = `WITH RECURSIVE n(i) AS (SELECT ${from} UNION ALL SELECT i + 1 FROM n WHERE i < ${to - 1})`;
  const hash = onPostgres ? "decode(repeat('00', 32), 'hex')" : "zeroblob(32)";
  alter(data, `INSERT INTO entities (ref, kind, id, owner_user_id, status, created_at)
    ${range} SELECT i + 1000, 0, 'run-' || i, ${tenth("'ada'", "'user-' || (i % 1000)")},
      ${status}, ${1e12} + i FROM n`);
  alter(data, `INSERT INTO run_documents (entity_ref, doc_key, doc_version, payload_hash, payload, owner, state, updated_at, parent_run_id, title, tags)
    ${range} SELECT i + 1000, 'runtime/run_summary:run-' || i, 1, ${hash}, '{"text":"${"x".repeat(600)}"}',
      'u' || ${tenth("'ada'", "'user-' || (i % 1000)")}, ${status}, ${updated}, CASE WHEN i < ${RARE} THEN '"p"' END,
      ${tenth("'\"a tenth of all\"'", "'\"a title\"'")}, ${tenth("'[\"tenth\",\"x\"]'", "'[\"y\"]'")} FROM n`);
}

/** The median time of each row in milliseconds. The rows take turns. */
async function measure(operator, count) {
  const token = tokenFor(operator, { user_id: "ada", scopes: ["runtime.run_events"] });
  const times = ROWS.map(() => []);
  for (let round = -3; round < rounds; round++)
    for (const [i, [name, path, owner]] of ROWS.entries()) {
      const target = `${typeof path === "string" ? path : path(count)}&limit=50`;
      const begin = performance.now();
      const { status, body } = await operator.ask("GET", target, undefined, owner ? { authorization: `Bearer ${token}` } : {});
      const milliseconds = performance.now() - begin;
      if (status !== 200 || JSON.parse(body).items.length !== 50) throw new Error(`${name}: ${status} ${body.slice(0, 500)}`);
      if (round >= 0) times[i].push(milliseconds);
    }
  return times.map((one) => median(one));
}

const ends = [];
const t = { after: (act) => ends.unshift(act) };
try {
  const first = await operate(t);
  await first.server.stop();
  const figures = [];
  for (const [from, to] of [[0, few], [few, many]]) {
    fill(first.data, from, to);
    const operator = await operate(t, { data: first.data });
    figures.push(await measure(operator, to));
    await operator.server.stop();
  }
  console.log(`a page of 50 runs, ${rounds} requests each: ms with ${few} runs, with ${many}, ratio`);
  for (const [i, [name]] of ROWS.entries())
    console.log(`${name.padEnd(44)} ${figures[0][i].toFixed(2).padStart(7)} ${figures[1][i].toFixed(2).padStart(7)} ${(figures[1][i] / figures[0][i]).toFixed(2).padStart(6)}`);
} finally {
  for (const act of ends) await act();
}
