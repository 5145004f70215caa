// Servers whose certificate a client must refuse. A client that trusts one of them sends a request.
import https from "node:https";
import { readFileSync } from "node:fs";
import { folder } from "../lib/khala.mjs";
import { Authority } from "../lib/tls.mjs";

async function listen(t, { certificate, key }) {
  const counts = { trusted: 0 };
  const server = https.createServer({ cert: readFileSync(certificate), key: readFileSync(key) }, (request, response) => {
    counts.trusted++;
    response.writeHead(500).end();
  });
  server.on("upgrade", (request, socket) => {
    counts.trusted++;
    socket.destroy();
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  return { url: `https://127.0.0.1:${server.address().port}`, counts };
}

/** Each as {name, url, counts}, and the file of the authority that the client trusts. */
export async function refusedServers(t) {
  const authority = new Authority(folder(t));
  const other = new Authority(folder(t));
  const pairs = {
    "of another authority": other.issue("other"),
    "of another host": authority.issue("elsewhere", { names: "subjectAltName=DNS:elsewhere.example,IP:127.0.0.2" }),
    "that has expired": authority.issueExpired("expired"),
  };
  const servers = [];
  for (const [name, pair] of Object.entries(pairs)) servers.push({ name, ...await listen(t, pair) });
  return { file: authority.file, servers };
}
