// What a follower of bench_clients.mjs is given and answers. A program of any language can be one: it gets
// the environment variables BENCH_URL, BENCH_TOKEN, BENCH_TOPIC and BENCH_FRAMES, applies so many frames
// from the first on, and prints {"frames", "seconds", "cpu_seconds"}.
import { createRequire } from "node:module";

/** The npm ws of the tests. */
export const { WebSocket } = createRequire(new URL("../../tests/package.json", import.meta.url))("ws");

/** Runs the work with the given settings, and prints its figures. It answers the frames that it applied. */
export async function measure(work) {
  const { BENCH_URL: url, BENCH_TOKEN: token, BENCH_TOPIC: topic, BENCH_FRAMES: frames } = process.env;
  const begun = performance.now();
  const cpu = process.cpuUsage();
  const applied = await work({ url, token, topic, frames: Number(frames) });
  const { user, system } = process.cpuUsage(cpu);
  console.log(JSON.stringify({ frames: applied, seconds: (performance.now() - begun) / 1000, cpu_seconds: (user + system) / 1e6 }));
}
