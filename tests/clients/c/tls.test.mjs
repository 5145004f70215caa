// libkhala over TLS: it follows and appends with a trusted certificate, and sends nothing, not even a
// token, to a server with any other one.
import assert from "node:assert/strict";
import { test } from "node:test";
import { folder } from "../../lib/khala.mjs";
import { operate } from "../../lib/operator.mjs";
import { Authority } from "../../lib/tls.mjs";
import { refusedServers } from "../tls_servers.mjs";
import { Program } from "./program.mjs";

const said = (n) => ({ topic: "room:1", event_type: "said", payload: { n } });

test("libkhala follows and appends over TLS", async (t) => {
  const authority = new Authority(folder(t));
  const operator = await operate(t, { authority, settings: Authority.settings(authority.issue("khala")) });
  const token = operator.sign({ oa_sync_scopes: ["runtime.read_all", "runtime.append"], oa_sync_topics: ["room:1"] });
  for (const [index, loop] of ["own", "given"].entries()) {
    const program = Program.start(t, operator.server.url, { token, loop, topics: ["room:1"], environment: { KHALA_CA_FILE: authority.file } });
    const seen = program.seen("room:1");
    program.append(said(index));
    await program.lines.until(() => seen.frames.length === index + 1 && program.all("appended").length === 1, "the frame and the answer");
    assert.equal(await program.close(), 0);
  }
});

test("libkhala refuses certificates that it must not trust", async (t) => {
  const { file, servers } = await refusedServers(t);
  for (const { name, url, counts } of servers) {
    const program = Program.start(t, url, { token: "secret", topics: ["room:1"], environment: { KHALA_CA_FILE: file, CLOSE_TIMEOUT_MS: "1" } });
    program.append(said(1));
    // The follower and the producer both try again.
    await program.lines.until(() => program.all("state").filter(({ state }) => state === 6).length >= 2, `two refusals of a certificate ${name}`);
    assert.equal(counts.trusted, 0, name);
    assert.match(program.all("state").at(-1).error, /./, name);
    assert.equal(await program.close(), 0, name);
    assert.deepEqual([program.all("frame"), program.all("appended"), program.all("refused").map(({ refused }) => refused)], [[], [], ["closed"]], name);
    assert.equal(counts.trusted, 0, name);
  }
});
