// A crowd of sockets, each of which subscribes to many topics that do not exist, as tests/lib/attackers.mjs runs it. Data:
// {host, port, token, connections, names}. They come one after the other and stay. The last message is how many
// subscriptions the server accepted ("ok") and refused ("error").
import { order, report } from "./attackers.mjs";
import { Client } from "./phoenix.mjs";
import { range } from "./samples.mjs";
import { once } from "./wait.mjs";

const { host, port, token, connections, names } = await order();
const operator = { server: { host, port, peers: [] } };
const counts = { ok: 0, error: 0 };

for (let i = 0; i < connections; i++) {
  const client = await Client.join(operator, { params: { token } });
  counts[(await client.ask("sync:subscribe", { topics: range(1, names).map((n) => `run:c${i}n${n}:events`) })).status]++;
}
process.send(counts);
await once(process, "message", "the end of the attack");
for (const client of operator.server.peers) client.close();
report(counts);
