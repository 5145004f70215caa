// A machine of its own for clients: a network namespace of Linux, which the test can make vanish. It then answers nothing,
// not even with a reset, like a machine whose cable is pulled.
import { spawnSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { folder, start } from "./khala.mjs";

const ip = (...args) => spawnSync("ip", args, { encoding: "utf8" });

/** A program that opens a connection for each request, and reads the answers of those that say so. It prints "ready" when
 * each connection has sent its request and got the head of its answer. */
const CLIENT = `
const net = require("node:net");
const { host, port, requests } = JSON.parse(require("node:fs").readFileSync(process.argv[1]));
let left = requests.length;
for (const { text, reads } of requests) {
  const socket = net.connect({ host, port });
  socket.on("error", () => {});
  socket.once("data", () => {
    if (!reads) socket.pause();
    if (--left === 0) console.log("ready");
  });
  socket.write(text);
}
`;

export class Machine {
  /** NULL: this user may not make one. The server's host is then reachable at machine.host. */
  static make(t) {
    const id = process.pid % 16_384;
    const name = `khala-${id}`;
    const [here, there] = [`kh${id}`, `kt${id}`];
    const net = `10.213.${id >> 6}`;
    const last = (id % 64) * 4;
    if (ip("netns", "add", name).status !== 0) return null;
    t.after(() => { ip("link", "del", here); ip("netns", "del", name); });
    const host = `${net}.${last + 1}`;
    const address = `${net}.${last + 2}`;
    const steps = [
      ["link", "add", here, "type", "veth", "peer", "name", there, "netns", name],
      ["addr", "add", `${host}/30`, "dev", here],
      ["link", "set", here, "up"],
      ["-n", name, "addr", "add", `${address}/30`, "dev", there],
      ["-n", name, "link", "set", there, "up"],
      // The kernel there would otherwise take megabytes for a client that reads nothing, and confirm all of them.
      ["netns", "exec", name, "sh", "-c", "echo 4096 65536 262144 >/proc/sys/net/ipv4/tcp_rmem"],
    ];
    for (const step of steps) if (ip(...step).status !== 0) return null;
    const seen = ip("-n", name, "-o", "link", "show", there).stdout.match(/link\/ether (\S+)/);
    // The host goes on sending to that address when the machine is gone.
    if (!seen || ip("neigh", "replace", address, "lladdr", seen[1], "dev", here, "nud", "permanent").status !== 0) return null;
    return Object.assign(new Machine(), { name, host, there });
  }

  /** Starts the clients there; resolves when each has the head of its answer. */
  async connect(t, port, requests) {
    const file = join(folder(t), "requests");
    writeFileSync(file, JSON.stringify({ host: this.host, port, requests }));
    const command = ["ip", "netns", "exec", this.name, process.execPath, "-e", CLIENT, file];
    this.clients = start(t, command, {});
    await this.clients.saw("out", /ready/);
  }

  /** From now on its network card does not take what is sent to it. */
  vanish() {
    ip("-n", this.name, "link", "set", this.there, "arp", "off", "address", "02:00:00:00:00:99");
  }
}
