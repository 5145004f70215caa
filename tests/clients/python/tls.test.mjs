// The Python client over TLS: it follows and appends with a trusted certificate, and sends nothing, not
// even a token, to a server with any other one.
import assert from "node:assert/strict";
import { test } from "node:test";
import { folder } from "../../lib/khala.mjs";
import { operate } from "../../lib/operator.mjs";
import { Authority } from "../../lib/tls.mjs";
import { refusedServers } from "../tls_servers.mjs";
import { frames, Python } from "./client.mjs";

const TRANSPORTS = ["websocket", "sse", "poll"];
const said = (n) => ({ topic: "room:1", event_type: "said", payload: { n } });

test("the Python client follows and appends over TLS", async (t) => {
  const authority = new Authority(folder(t));
  const operator = await operate(t, { authority, settings: Authority.settings(authority.issue("khala")) });
  const python = await Python.start(t);
  const options = { url: operator.server.url, ca_file: authority.file };
  const producer = await python.produce(t, { ...options, token: operator.sign({ oa_sync_scopes: ["runtime.append"], oa_sync_topics: ["room:1"] }) });
  assert.deepEqual((await producer.append(said(1))).map(({ seq }) => seq), [1]);
  for (const transport of TRANSPORTS) {
    const khala = await python.open(t, { ...options, token: operator.reader, transports: [transport] });
    await frames(await python.follow(khala, "room:1"), 1);
  }
});

test("the Python client refuses certificates that it must not trust", async (t) => {
  const { file, servers } = await refusedServers(t);
  const python = await Python.start(t);
  for (const { name, url, counts } of servers) {
    const producer = await python.produce(t, { url, ca_file: file, token: "secret" });
    const appended = producer.append(said(1));
    for (const transport of TRANSPORTS) {
      const khala = await python.open(t, { url, ca_file: file, token: "secret", transports: [transport] });
      await python.follow(khala, "room:1");
      await khala.states.until(() => khala.states.all.filter(({ status, error }) => status === "backing_off" && error).length >= 2, `two refusals of a certificate ${name} over ${transport}`);
      await khala.close();
    }
    await producer.close({ timeout: 0 });
    assert.deepEqual((await appended).map(({ error }) => error?.code), ["closed"], name);
    assert.equal(counts.trusted, 0, name);
  }
});
