// The unit file under a real systemd, in a box of its own: that what it forbids leaves the server
// able to work, and that both understand each other about beginning, hanging and ending.
import assert from "node:assert/strict";
import { appendFileSync, chmodSync, chownSync, copyFileSync, readFileSync, readdirSync, statSync } from "node:fs";
import net from "node:net";
import { test } from "node:test";
import tls from "node:tls";
import { binary, connect, folder, within } from "../lib/khala.mjs";
import { Box } from "../lib/box.mjs";
import { Operator, UNHURRIED } from "../lib/operator.mjs";
import { Socket } from "../lib/socket.mjs";
import { Authority } from "../lib/tls.mjs";

const UNIT = readFileSync(new URL("../../dist/khala.service", import.meta.url), "utf8");
const STATE = "/var/lib/private/khala";

async function freePort() {
  const probe = net.createServer();
  await new Promise((resolve) => probe.listen(0, "127.0.0.1", resolve));
  const { port } = probe.address();
  await new Promise((resolve) => probe.close(resolve));
  return port;
}

/** A box with the service, not started, and with what would take minutes to see changed in its unit;
 * null when this machine cannot have one, and the test is skipped. */
async function service(t, { changes = "", settings = {} } = {}) {
  if (process.env.KHALA_BUILD?.match(/san$/)) {
    t.skip("a sanitizer needs what the unit forbids");
    return null;
  }
  const port = await freePort();
  const box = await Box.open(t, { binary, units: { "khala.service": UNIT, "khala.service.d/test.conf": `[Service]\n${changes}\n` },
    settings: { RUNTIME_BIND_ADDR: `127.0.0.1:${port}`, ...UNHURRIED, ...settings } });
  if (typeof box === "string") {
    t.skip(`no systemd in a box: ${box}`);
    return null;
  }
  box.port = port;
  return box;
}

function operatorOf(t, box) {
  const operator = new Operator({ host: "127.0.0.1", port: box.port, peers: [] }, box.inside(STATE));
  t.after(() => {
    for (const peer of operator.server.peers) peer.close();
    operator.close();
  });
  return operator;
}

function start(box) {
  const { code, problem } = box.systemctl("start", "khala");
  assert.equal(code, 0, `${problem}${box.journal}`);
}

/** The server's pid, seen from here. */
function mainPid(box) {
  const inside = box.show("khala", "MainPID").MainPID;
  return readdirSync("/proc").find((pid) => {
    try {
      return new RegExp(`^NSpid:\\s+${pid}\\s+${inside}$`, "m").test(readFileSync(`/proc/${pid}/status`, "utf8"))
        && readFileSync(`/proc/${pid}/cmdline`, "utf8").startsWith("/usr/local/bin/khala\0serve");
    } catch {
      return false;
    }
  });
}

test("under its unit the server has what it needs and nothing else, and stops in order", async (t) => {
  const box = await service(t, { settings: { KHALA_LOOPS_OWN_DESCRIPTORS: "true" } });
  if (!box) return;
  start(box);
  // Started is ready: nobody has to wait or ask again.
  const operator = operatorOf(t, box);
  assert.equal((await operator.get("/healthz/ready")).status, 200);
  assert.deepEqual(box.show("khala", "ActiveState", "StatusText", "NRestarts"),
    { ActiveState: "active", StatusText: "Serves", NRestarts: "0" });
  assert.doesNotMatch(box.journal, /WARN(?!.*descriptors_few)|ERROR/);

  await operator.did("runs", { run_id: "a" }, 201);
  const socket = await Socket.open(operator, `/internal/v1/khala/topics/run:a:events/ws?after_seq=0&token=${operator.reader}`);
  await operator.batch(Array.from({ length: 2000 }, (_, i) => ({ run_id: "a", event_type: "run.log", payload: { i } })));
  await socket.until(() => socket.of("message").length === 2001, "what is live");
  assert.equal((await operator.read("/v1/topics/runtime.run_summaries/snapshot")).documents.length, 1);
  assert.equal((await operator.post("retention/run", {})).status, 200);
  assert.match((await operator.get("/metrics")).body, /^openagents_runtime_/m);

  const pid = mainPid(box);
  const status = readFileSync(`/proc/${pid}/status`, "utf8");
  const field = (name) => status.match(new RegExp(`^${name}:\\s+(.*)$`, "m"))[1];
  const [uid] = field("Uid").split("\t");
  assert.ok(Number(uid) >= 61184 && Number(uid) <= 65519, `a user of its own: ${uid}`);
  assert.deepEqual([field("CapEff"), field("CapBnd"), field("NoNewPrivs"), field("Seccomp")], ["0000000000000000", "0000000000000000", "1", "2"]);
  for (const name of readdirSync(box.inside(STATE))) {
    const { mode, uid: owner } = statSync(`${box.inside(STATE)}/${name}`);
    assert.deepEqual([mode & 0o077, owner], [0, Number(uid)], name);
  }
  assert.equal(statSync(box.inside(STATE)).mode & 0o777, 0o700);

  // Keys are read again, and no connection ends.
  assert.equal(box.systemctl("reload", "khala").code, 0);
  await operator.did("runs/a/events", { event_type: "run.log" });
  await socket.until(() => socket.of("message").length === 2002, "what is live after a reload");
  assert.equal(mainPid(box), pid);

  assert.equal(box.systemctl("stop", "khala").code, 0);
  await socket.until(() => socket.closed, "the close");
  assert.equal(socket.closed.code, 1012);
  assert.match(box.journal, /server\.stopping[^]*server\.draining[^]*server\.ended[^]*khala\.service: Deactivated successfully/);
  assert.doesNotMatch(box.journal, /eyJ/, "no token is kept");

  start(box);
  assert.equal((await operator.events("a")).length, 2002);
});

test("a server that hangs or dies is started again by its manager, and has what it acknowledged", async (t) => {
  const box = await service(t, { changes: "WatchdogSec=1s\nTimeoutAbortSec=1s\nRestartSec=10ms" });
  if (!box) return;
  start(box);
  const operator = operatorOf(t, box);
  await operator.did("runs", { run_id: "a" }, 201);
  process.kill(Number(mainPid(box)), "SIGSTOP");
  await box.until("khala", { NRestarts: "1", ActiveState: "active" });
  assert.match(box.journal, /Watchdog timeout/);
  await operator.did("runs/a/events", { event_type: "run.log" });
  process.kill(Number(mainPid(box)), "SIGKILL");
  await box.until("khala", { NRestarts: "2", ActiveState: "active" });
  assert.equal((await operator.events("a")).length, 2);
  // It is quiet again while the loops turn: several times the watchdog's second.
  const socket = await Socket.open(operator, `/internal/v1/khala/topics/run:a:events/ws?after_seq=0&token=${operator.reader}`);
  for (let i = 0; i < 30; i++) {
    await operator.did("runs/a/events", { event_type: "run.log" });
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  assert.equal(box.show("khala", "NRestarts").NRestarts, "2");
  socket.close();
});

test("a key of a group that the unit names is read, and again with a reload", async (t) => {
  const box = await service(t, { changes: "SupplementaryGroups=khala-tls",
    settings: { KHALA_TLS_CERT_FILE: "/etc/khala/khala.pem", KHALA_TLS_KEY_FILE: "/etc/khala/khala.key" } });
  if (!box) return;
  appendFileSync(box.inside("/etc/group"), "khala-tls:x:4100:\n");
  const authority = new Authority(folder(t));
  const put = (name) => {
    const pair = authority.issue(name);
    for (const [from, to] of [[pair.certificate, "/etc/khala/khala.pem"], [pair.key, "/etc/khala/khala.key"]]) {
      copyFileSync(from, box.inside(to));
      chownSync(box.inside(to), 0, 4100);
      chmodSync(box.inside(to), 0o640);
    }
  };
  const subject = async () => {
    const socket = tls.connect({ host: "127.0.0.1", port: box.port, ca: authority.pem });
    await within(new Promise((resolve, reject) => socket.once("secureConnect", resolve).once("error", reject)), "a handshake");
    const { CN } = socket.getPeerCertificate().subject;
    socket.destroy();
    return CN;
  };
  put("first");
  start(box);
  assert.equal(await subject(), "first");
  put("second");
  assert.equal(box.systemctl("reload", "khala").code, 0);
  await within((async () => {
    while (!/tls\.reloaded/.test(box.journal)) await new Promise((resolve) => setTimeout(resolve, 20));
  })(), "the reload");
  assert.equal(await subject(), "second");
  assert.equal(box.show("khala", "NRestarts").NRestarts, "0");
});

test("the manager waits as long as the settings say, also where the unit says less", async (t) => {
  const box = await service(t, { changes: "TimeoutStopSec=1s", settings: { KHALA_SHUTDOWN_GRACE_MS: "4000" } });
  if (!box) return;
  start(box);
  const operator = operatorOf(t, box);
  await operator.did("runs", { run_id: "a" }, 201);
  const peer = await connect(operator.server);
  const body = JSON.stringify({ event_type: "run.log" });
  await peer.send(`POST /internal/v1/runs/a/events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${operator.key}\r\n`
    + `Content-Length: ${body.length}\r\n\r\n${body.slice(0, 4)}`);
  await operator.get("runs/a");
  assert.equal(box.systemctl("stop", "khala").code, 0);
  assert.match(box.journal, /grace_over[^]*server\.ended[^]*khala\.service: Deactivated successfully/);
});

test("wrong settings are said once, and not tried again", async (t) => {
  const box = await service(t, { changes: "RestartSec=10ms", settings: { KHALA_READERS: "none" } });
  if (!box) return;
  assert.equal(box.systemctl("start", "khala").code, 1);
  await within((async () => {
    while (box.show("khala", "ActiveState").ActiveState === "activating") await new Promise((resolve) => setTimeout(resolve, 20));
  })(), "the manager's verdict");
  assert.deepEqual(box.show("khala", "ActiveState", "Result", "NRestarts"), { ActiveState: "failed", Result: "exit-code", NRestarts: "0" });
  assert.equal(box.journal.match(/KHALA_READERS/g).length, 1);
});
