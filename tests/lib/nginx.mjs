// An nginx with TLS in front of a server: it runs the configuration of docs/operations.md as it is
// printed there, except for ports and paths. scripts/setup fetches the program.
import assert from "node:assert/strict";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { folder, start, trustOf } from "./khala.mjs";
import { Operator } from "./operator.mjs";
import { freePort } from "./ports.mjs";
import { Authority } from "./tls.mjs";
import { until } from "./wait.mjs";

const PAGE = readFileSync(new URL("../../docs/operations.md", import.meta.url), "utf8");
const FETCHED = fileURLToPath(new URL("../../build/tools", import.meta.url));

/** One process, in the foreground, that writes only into its own folder. */
const MAIN = `daemon off; master_process off; pid nginx.pid; error_log stderr;
events {}
http {
  client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi; uwsgi_temp_path uwsgi; scgi_temp_path scgi;
  include khala.conf;
}
`;

/** The configurations of the page: a server for one node, and the addresses of several nodes. */
const [SERVER, NODES] = [...PAGE.matchAll(/```nginx\n([^]*?)```/g)].map(([, text]) => text);

/** The text with each text on the left replaced by the one on the right. */
function changed(text, changes) {
  for (const [from, to] of changes) {
    assert.equal(text.split(from).length, 2, `the configuration has one ${from}`);
    text = text.replace(from, to);
  }
  return text;
}

/** The configuration in front of these servers, one or two. */
function configuration([first, second], changes) {
  const address = ({ port }) => `127.0.0.1:${port}`;
  if (!second) return changed(SERVER, [...changes, ["127.0.0.1:4100", address(first)]]);
  return changed(NODES, [["10.0.0.1:4100", address(first)], ["10.0.0.2:4100", address(second)]])
    + changed(SERVER, [...changes, ["127.0.0.1:4100", "khala"]]);
}

/**
 * Starts nginx in front of the operator's server, or in front of two nodes. Answers an operator whose
 * requests go through nginx; its server also has the folder of nginx and a way to read the logs.
 */
export async function proxy(t, operator, ...nodes) {
  const path = folder(t);
  const authority = new Authority(path);
  const { certificate, key } = authority.issue("nginx");
  const port = await freePort();
  mkdirSync(join(path, "logs"));
  writeFileSync(join(path, "nginx.conf"), MAIN);
  writeFileSync(join(path, "khala.conf"), configuration([operator, ...nodes].map(({ server }) => server), [
    ["listen 443 ", `listen 127.0.0.1:${port} `],
    ["/etc/ssl/khala.pem", certificate], ["/etc/ssl/private/khala.key", key],
    ["/var/log/nginx/khala.log", "logs/access.log"], ["/var/log/nginx/khala.error.log", "logs/error.log"]]));
  const nginx = start(t, ["nginx", "-p", path, "-c", "nginx.conf", "-e", "stderr"],
    { env: { PATH: `${process.env.PATH}:/usr/sbin:${FETCHED}` } });
  const server = { host: "127.0.0.1", port, ca: authority.pem, authority: authority.file, peers: [] };
  server.trust = trustOf(server);
  server.log = (name = "access") => readFileSync(join(path, "logs", `${name}.log`), "utf8");
  const proxied = new Operator(server, operator.data);
  t.after(() => {
    for (const peer of server.peers) peer.close();
    proxied.close();
  });
  await until(() => {
    assert.equal(nginx.over, null, nginx.log);
    return proxied.get("/healthz/live").then(({ status }) => status === 200, () => false);
  }, "nginx");
  return proxied;
}
