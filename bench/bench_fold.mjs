// bench fold: viewers that come when an answer of many deltas has ended. Each opens an event stream, or polls, and reads to the
// last event: full frames, lean ones, and folded ones of both forms, in turns on one server. Bytes are those of the socket,
// with heads; CPU is that of all threads of the server, with connection and token. First: after a start, nothing is in memory.
// Then the viewers come one after the other, the same while one viewer stays so that the events are in memory, and at last all at
// once. Each viewer checks that it has the whole text. An empty poll shows what the connection and the token cost alone.
//
// --deltas N   of the answer (default 3000)
// --viewers N  (default 100)
// --rounds N   (default 5)
import { readdirSync, readFileSync } from "node:fs";
import net from "node:net";
import { parseArgs } from "node:util";
import { operate } from "../tests/lib/operator.mjs";
import { pollPath, streamPath } from "../tests/lib/paths.mjs";
import { median } from "../tests/lib/samples.mjs";
import { Stream } from "../tests/lib/sse.mjs";

const option = (name, value) => Number(parseArgs({ strict: false, options: { [name]: { type: "string", default: value } } }).values[name]);
const [deltas, viewers, rounds] = [option("deltas", "3000"), option("viewers", "100"), option("rounds", "5")];
const RUN = "answer";
const TOPIC = `run:${RUN}:events`;
const END = '"kind":"run.finished"';
const SETTINGS = { RUNTIME_KHALA_POLL_MIN_INTERVAL_MS: "0", RUNTIME_KHALA_SLOW_CONSUMER_LAG_THRESHOLD: "1000000" };
const KINDS = { full: "", lean: "&form=lean", folded: "&fold=true", "folded, lean": "&fold=true&form=lean" };

/** Seconds of CPU that all threads of a process have used. */
function cpuSeconds(pid) {
  const tasks = readdirSync(`/proc/${pid}/task`);
  return tasks.reduce((sum, task) => sum + Number(readFileSync(`/proc/${pid}/task/${task}/schedstat`, "utf8").split(" ")[0]), 0) / 1e9;
}

/** Sends a request on a connection of its own; resolves with the bytes of the answer when it has the end. */
function ask(operator, path, hasAll) {
  return new Promise((resolve, reject) => {
    const socket = net.connect(operator.server.port, operator.server.host);
    let text = "";
    let bytes = 0;
    socket.setEncoding("latin1");
    socket.on("data", (piece) => {
      text += piece;
      bytes += piece.length;
      if (!hasAll(text)) return;
      socket.destroy();
      resolve({ text, bytes });
    });
    socket.on("error", reject);
    socket.on("close", () => reject(new Error(`closed early: ${text.slice(0, 300)}`)));
    socket.write(`GET ${path} HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer ${operator.token}\r\n\r\n`);
  });
}

const bodyOf = (text) => text.slice(text.indexOf("\r\n\r\n") + 4);

const transports = {
  "event stream": async (operator, query) => {
    const { text, bytes } = await ask(operator, streamPath(TOPIC, `after_seq=0${query}`), (so_far) => so_far.includes(END, so_far.length - 70_000));
    const frames = [...text.matchAll(/^data: (.*?)\r?$/gm)].map(([, data]) => data).filter((data) => data.includes('"payload"'));
    return { bytes, frames: frames.map((data) => JSON.parse(data)) };
  },
  poll: async (operator, query) => {
    const all = { bytes: 0, frames: [] };
    for (let at = 0, isOver = false; !isOver;) {
      const { text, bytes } = await ask(operator, pollPath(TOPIC, `after_seq=${at}&limit=200${query}`), (so_far) => {
        const length = Number(/Content-Length: (\d+)/i.exec(so_far)?.[1] ?? Infinity);
        return bodyOf(so_far).length >= length;
      });
      const page = JSON.parse(bodyOf(text));
      all.bytes += bytes;
      all.frames.push(...page.messages);
      [at, isOver] = [page.next_cursor, page.replay_complete];
    }
    return all;
  },
};

function check({ frames }, expected) {
  const text = frames.map(({ payload }) => payload?.delta ?? "").join("");
  if (text !== expected) throw new Error(`a viewer has ${text.length} of ${expected.length} bytes`);
}

/** The CPU of a connection with a request that brings no event. */
async function emptyCost(operator, count) {
  const before = cpuSeconds(operator.server.child.pid);
  for (let i = 0; i < count; i++) await ask(operator, pollPath(TOPIC, "from=head"), (so_far) => so_far.includes('"replay_complete"') && so_far.endsWith("}\n"));
  return (cpuSeconds(operator.server.child.pid) - before) / count;
}

async function measure(operator, read, query, count, atOnce, expected) {
  const pid = operator.server.child.pid;
  const before = cpuSeconds(pid);
  const done = [];
  if (atOnce) done.push(...await Promise.all(Array.from({ length: count }, () => read(operator, query))));
  else for (let i = 0; i < count; i++) done.push(await read(operator, query));
  const cpu = (cpuSeconds(pid) - before) / count;
  for (const one of done) check(one, expected);
  return { cpu, bytes: done[0].bytes, frames: done[0].frames.length };
}

const ends = [];
try {
  const scope = { after: (act) => ends.unshift(act) };
  let operator = await operate(scope, { settings: SETTINGS });
  await operator.did("runs", { run_id: RUN, owner_user_id: "ada" }, 201);
  let expected = "";
  for (let i = 0; i < deltas; i += 500) {
    const items = Array.from({ length: Math.min(500, deltas - i) }, (_, n) => ({ run_id: RUN, event_type: "token.delta", payload: { id: "m1", delta: `tok${String(i + n).padStart(4)} ` } }));
    expected += items.map(({ payload }) => payload.delta).join("");
    await operator.batch(items);
  }
  await operator.did(`runs/${RUN}/events`, { event_type: "run.finished", payload: { status: "succeeded" } });
  const first = Object.fromEntries(Object.keys(transports).map((name) => [name, new Map(Object.keys(KINDS).map((kind) => [kind, []]))]));
  for (let round = 0; round < rounds; round++) {
    for (const [name, read] of Object.entries(transports)) {
      for (const [kind, query] of Object.entries(KINDS)) {
        await operator.server.stop();
        operator = await operate(scope, { data: operator.data, settings: SETTINGS });
        operator.token = operator.reader;
        first[name].get(kind).push(await measure(operator, read, query, 1, false, expected));
      }
    }
  }
  for (const [name, read] of Object.entries(transports)) {
    console.log(`${name}: a finished answer of ${deltas} deltas to ${viewers} viewers, ${rounds} rounds`);
    const taken = { later: new Map(), beside: new Map(), atOnce: new Map() };
    for (let round = 0; round < rounds; round++) {
      for (const [kind, query] of Object.entries(KINDS)) {
        for (const when of Object.keys(taken)) {
          const stays = when === "beside" ? await Stream.open(operator, streamPath(TOPIC, "after_seq=0"), { authorization: `Bearer ${operator.token}` }) : null;
          await stays?.until((one) => one.messages.at(-1)?.data.kind === "run.finished", "the end");
          taken[when].set(kind, [...taken[when].get(kind) ?? [], await measure(operator, read, query, viewers, when === "atOnce", expected)]);
          stays?.close();
        }
      }
    }
    for (const kind of Object.keys(KINDS)) {
      const { bytes, frames } = taken.later.get(kind)[0];
      const share = (all) => `${(1e6 * median(all.get(kind).map(({ cpu }) => cpu))).toFixed(0).padStart(6)} us CPU (1/${(median(all.get("full").map(({ cpu }, i) => cpu / all.get(kind)[i].cpu))).toFixed(1)})`;
      console.log(`${kind.padEnd(13)} ${String(frames).padStart(5)} frames ${String(bytes).padStart(8)} bytes (1/${(taken.later.get("full")[0].bytes / bytes).toFixed(1)})`
        + `   first ${share(first[name])}   then each ${share(taken.later)}   beside one that stays ${share(taken.beside)}   at once each ${share(taken.atOnce)}`);
    }
  }
  console.log(`an empty poll on its own connection: ${(1e6 * await emptyCost(operator, 10 * viewers)).toFixed(0)} us CPU`);
} finally {
  for (const act of ends) await act();
}
