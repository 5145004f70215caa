// bench clients: frames per second that each client library can apply in a replay, beside the bare
// socket. Each follower is a process of its own (clients/measure.mjs). The followers take turns on one
// server. Each round gives a ratio, and the median is shown.
//
// --frames N  of the topic (default 50000)
// --rounds N  (default 7)
import { spawnSync } from "node:child_process";
import { dirname, join } from "node:path";
import { parseArgs } from "node:util";
import { fileURLToPath } from "node:url";
import { operate } from "../tests/lib/operator.mjs";
import { median } from "../tests/lib/samples.mjs";

const { values: { frames: framesText, rounds: roundsText } } = parseArgs({ options: { frames: { type: "string", default: "50000" }, rounds: { type: "string", default: "7" } } });
const frames = Number(framesText);
const rounds = Number(roundsText);
const TOPIC = "run:bench:events";
const BATCH = 1000;
const program = (name, ...args) => [process.execPath, fileURLToPath(new URL(`clients/${name}`, import.meta.url)), ...args];
const python = (...args) => ["/usr/bin/python3", fileURLToPath(new URL("clients/python.py", import.meta.url)), ...args];

// The first is the baseline.
const followers = [
  { name: "bare socket (ws)", command: program("bare.mjs") },
  { name: "bare socket, messages parsed", command: program("bare.mjs", "parse") },
  { name: "libkhala", command: [join(dirname(process.env.KHALA_BINARY), "bench/client_follow")] },
  { name: "clients/js", command: program("js.mjs") },
  { name: "bare websockets, parsed", command: python("bare") },
  { name: "clients/python", command: python() },
];

/** Runs a follower to its end, and answers its figures. */
function follow({ command: [file, ...args], name }, settings) {
  const { status, stdout } = spawnSync(file, args, { env: { ...process.env, ...settings }, encoding: "utf8", stdio: ["ignore", "pipe", "inherit"] });
  if (status !== 0) throw new Error(`${name} ended with ${status}`);
  const figures = JSON.parse(stdout);
  if (figures.frames !== frames) throw new Error(`${name} applied ${figures.frames} frames`);
  return figures;
}

const ends = [];
try {
  // The whole topic is in the window, so that the store does not limit the clients.
  const operator = await operate({ after: (act) => ends.unshift(act) }, { settings: {
    RUNTIME_KHALA_RUN_EVENTS_REPLAY_BUDGET_EVENTS: String(frames), KHALA_WINDOW_FRAMES_MAX: String(frames + 1), KHALA_WINDOW_BYTES_MAX: String(256 << 20),
  } });
  await operator.did("runs", { run_id: "bench" }, 201);
  for (let i = 1; i < frames; i += BATCH) {
    const count = Math.min(BATCH, frames - i);
    await operator.batch(Array.from({ length: count }, (_, n) => ({ run_id: "bench", event_type: "run.log", payload: { line: `line ${i + n} ${"x".repeat(100)}` } })));
  }
  const settings = { BENCH_URL: operator.server.url, BENCH_TOKEN: operator.reader, BENCH_TOPIC: TOPIC, BENCH_FRAMES: String(frames) };
  const taken = followers.map(() => []);
  for (let round = 0; round < rounds; round++) {
    for (const [i, follower] of followers.entries()) taken[i].push(follow(follower, settings));
  }
  console.log(`${frames} frames of a run, ${rounds} rounds`);
  for (const [i, { name }] of followers.entries()) {
    const ratio = (field) => median(taken[i].map((one, round) => taken[0][round][field] / one[field])).toFixed(2);
    const rate = Math.round(frames / median(taken[i].map(({ seconds }) => seconds)));
    const cost = (median(taken[i].map(({ cpu_seconds }) => cpu_seconds)) / frames) * 1e6;
    console.log(`${name.padEnd(30)} ${String(rate).padStart(8)} frames/s   ${cost.toFixed(1).padStart(5)} us CPU a frame   ${ratio("seconds")} of bare, by CPU ${ratio("cpu_seconds")}`);
  }
} finally {
  for (const act of ends) await act();
}
