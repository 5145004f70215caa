// A random run of changes to workers, read by clients with and without filters, which break their connections again and
// again, also in the middle of a batch.
import assert from "node:assert/strict";
import { Collection, DIALECTS, History, WORKERS } from "./selected.mjs";
import { seeded } from "./seeded.mjs";
import { until } from "./wait.mjs";

const WORKER_COUNT = 40;
const NEXT = { starting: ["running", "stopping", "failed"], running: ["stopping", "stopped", "failed"], stopping: ["stopped", "failed"],
  stopped: ["starting", "running"], failed: ["starting", "running"] };

const ASKED = [
  { where: { status: "running" } },
  { where: { status: ["starting", "failed"] } },
  { where: { worker_id: ["w1", "w2", "w3"], status: ["running", "stopped"] } },
  { where: {}, conflate_ms: 50 },
  { where: { status: "running" }, conflate_ms: 50 },
  { where: { status: ["stopping", "stopped"] }, conflate_ms: 5 },
];

/** Appends so many changes: each worker in its own order, the workers beside one another. */
async function change(operators, random, changes) {
  let left = changes;
  const work = async (index) => {
    const operator = operators[index % operators.length];
    const worker_id = `w${index}`;
    const owner_user_id = index % 3 ? "ada" : "bob";
    await operator.did("workers", { worker_id, owner_user_id }, 201);
    for (let status = "starting"; left > 0; left--) {
      if (random.random() < 0.4) {
        await operator.did(`workers/${worker_id}/heartbeat`, { owner_user_id });
      } else {
        status = random.pick(NEXT[status]);
        await operator.did(`workers/${worker_id}/status`, { owner_user_id, status });
      }
    }
  };
  await Promise.all(Array.from({ length: WORKER_COUNT }, (_, i) => work(i)));
}

/** A client that follows until the run is over, and reconnects at random. */
async function follow(t, operators, random, { dialect, asked, user, state }) {
  const collection = new Collection(asked);
  const broken = [];
  let frames = 0, next = 1 + random.below(200);
  collection.cut = () => {
    if (state.isOver || ++frames < next) return false;
    [frames, next] = [0, 1 + random.below(200)];
    return true;
  };
  const done = (async () => {
    while (true) {
      const operator = random.pick(operators);
      const token = user ? operator.sign({ oa_user_id: user, oa_sync_scopes: ["runtime.codex_worker_events"] }) : operator.reader;
      const { client, end, polling } = await DIALECTS[dialect](operator, WORKERS, collection, asked, token);
      polling?.catch((error) => broken.push(error));
      await until(() => client.isOver || broken.length > 0 || (state.isOver && collection.position >= state.head), `${dialect} at the end`, 300_000);
      await end();
      if (broken.length > 0) throw broken[0];
      if (!state.isOver || collection.position < state.head) continue;
      collection.comparable = 0;
      collection.reached(collection.position);
      return;
    }
  })();
  return { collection, done, dialect, asked, user };
}

/** Runs it on these nodes and answers what was wrong. */
export async function randomRun(t, operators, { changes, seed = Number(process.env.KHALA_WHERE_SEED ?? Date.now() % 100000) }) {
  t.diagnostic(`KHALA_WHERE_SEED=${seed}`);
  const random = seeded(seed);
  const state = { isOver: false, head: 0 };
  const clients = [];
  // Half of them begin in the middle, with a snapshot of what is there by then.
  const begin = async (asked, dialect, user) => clients.push(await follow(t, operators, random, { dialect, asked, user, state }));
  const dialects = Object.keys(DIALECTS);
  const changing = change(operators, random, changes);
  for (const [i, asked] of ASKED.entries()) {
    for (const [j, dialect] of dialects.entries()) await begin(asked, dialect, (i + j) % 3 ? undefined : "ada");
  }
  await changing;
  const history = await History.read(operators[0], WORKERS);
  state.head = Math.max(...[...history.documents.values()].map((frames) => frames.at(-1)[0]));
  state.isOver = true;
  await Promise.all(clients.map((one) => one.done));
  const ada = new History();
  ada.documents = new Map([...history.documents].filter(([, frames]) => frames[0][1].owner_user_id === "ada"));
  const wrong = [];
  let checked = 0;
  for (const { collection, dialect, asked, user } of clients) {
    try {
      checked += collection.check(user ? ada : history);
    } catch (error) {
      wrong.push(`${dialect} ${JSON.stringify(asked)} ${user ?? "all"}: ${error.message}`);
    }
  }
  assert.ok(clients.some((one) => one.collection.removals > 0));
  return { wrong, checked };
}
