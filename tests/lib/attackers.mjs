// Attackers in a process of their own. Those of a real attack are on other machines, so these take little time from the
// clients that a test measures, and from the server. Where the promised figures are asserted, the kernel runs them only
// while a core has nothing else to do (SCHED_IDLE). On a busy machine they would never run then, so they only have a low
// priority.
//
// A module of attackers waits for its order, the data that the test gives, and then exchanges messages with the test.
import { fork } from "node:child_process";
import { fileURLToPath } from "node:url";
import { STRICT } from "./machine.mjs";
import { once } from "./wait.mjs";

const ONLY_IDLE_CORES = ["chrt", "--idle", "0"];

/** In front of the command of a program of attackers whose preparation takes long. */
export const BEHIND_OTHERS = STRICT ? ONLY_IDLE_CORES : [];

/** Starts the attackers of a module of this folder. Emits "message", and takes messages with send. */
export function attackers(t, module, data) {
  const [execPath, ...execArgv] = [...(STRICT ? ONLY_IDLE_CORES : ["nice", "-n", "10"]), process.execPath];
  const child = fork(fileURLToPath(new URL(module, import.meta.url)), { execPath, execArgv });
  t.after(() => child.kill("SIGKILL"));
  child.send(data);
  return child;
}

/** In the process of the attackers: the data that the test gave. */
export const order = () => once(process, "message", "the order of the attackers");

/** Sends the last message. The process ends when it has sent it. */
export const report = (message) => process.send(message, () => process.disconnect());
