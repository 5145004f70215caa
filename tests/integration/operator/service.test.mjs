// The unit file under a real systemd in a box: the server works within the restrictions, and systemd
// and the server agree on start, watchdog and stop.
import assert from "node:assert/strict";
import { appendFileSync, chmodSync, chownSync, copyFileSync, readFileSync, readdirSync, statSync } from "node:fs";
import { test } from "node:test";
import tls from "node:tls";
import { Box } from "../../lib/box.mjs";
import { binary, connect, folder } from "../../lib/khala.mjs";
import { Operator, UNHURRIED } from "../../lib/operator.mjs";
import { snapshotPath, socketPath } from "../../lib/paths.mjs";
import { freePort } from "../../lib/ports.mjs";
import { events, TOPIC } from "../../lib/samples.mjs";
import { Socket } from "../../lib/socket.mjs";
import { Authority } from "../../lib/tls.mjs";
import { until, within } from "../../lib/wait.mjs";

const UNIT = readFileSync(new URL("../../../dist/khala.service", import.meta.url), "utf8");
const STATE = "/var/lib/private/khala";

/** A box with the service, not started, and with changes to its unit. Where this machine cannot have a
 * box, the answer is null and the test is skipped. */
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

/** The server's pid outside the box. */
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

test("under its systemd unit the server runs unprivileged and stops cleanly", async (t) => {
  const box = await service(t, { settings: { KHALA_LOOPS_OWN_DESCRIPTORS: "true" } });
  if (!box) return;
  start(box);
  // systemctl start returns when the server is ready.
  const operator = operatorOf(t, box);
  assert.equal((await operator.get("/healthz/ready")).status, 200);
  assert.deepEqual(box.show("khala", "ActiveState", "StatusText", "NRestarts"),
    { ActiveState: "active", StatusText: "Serves", NRestarts: "0" });
  assert.doesNotMatch(box.journal, /WARN(?!.*(?:descriptors_few|connections_clamped))|ERROR/);

  await operator.did("runs", { run_id: "a" }, 201);
  const socket = await Socket.open(operator, socketPath(TOPIC, `after_seq=0&token=${operator.reader}`));
  await operator.batch(events(2000));
  await socket.until(() => socket.of("message").length === 2001, "what is live");
  assert.equal((await operator.read(snapshotPath("runtime.run_summaries"))).documents.length, 1);
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

  // A reload reads the keys again and keeps connections.
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

test("systemd restarts a server that hangs or dies, and no acknowledged event is lost", async (t) => {
  const box = await service(t, { changes: "WatchdogSec=500ms\nTimeoutAbortSec=100ms\nRestartSec=10ms" });
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
  // While the loops turn, the server answers the watchdog: here for more than twice its time.
  const heard = () => Number(box.show("khala", "WatchdogTimestampMonotonic").WatchdogTimestampMonotonic);
  const begun = heard();
  await until(async () => {
    await operator.did("runs/a/events", { event_type: "run.log" });
    return heard() - begun > 1.2e6;
  }, "keep-alives for the watchdog");
  assert.equal(box.show("khala", "NRestarts").NRestarts, "2");
});

test("the server reads a TLS key of its supplementary group, also on reload", async (t) => {
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
  await until(() => /tls\.reloaded/.test(box.journal), "the reload");
  assert.equal(await subject(), "second");
  assert.equal(box.show("khala", "NRestarts").NRestarts, "0");
});

test("systemd waits for the grace period of the settings", async (t) => {
  const box = await service(t, { changes: "TimeoutStopSec=500ms", settings: { KHALA_SHUTDOWN_GRACE_MS: "1500" } });
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

test("systemd does not restart a server with wrong settings", async (t) => {
  const box = await service(t, { changes: "RestartSec=10ms", settings: { KHALA_READERS: "none" } });
  if (!box) return;
  assert.equal(box.systemctl("start", "khala").code, 1);
  await until(() => box.show("khala", "ActiveState").ActiveState !== "activating", "the manager's verdict");
  assert.deepEqual(box.show("khala", "ActiveState", "Result", "NRestarts"), { ActiveState: "failed", Result: "exit-code", NRestarts: "0" });
  assert.equal(box.journal.match(/KHALA_READERS/g).length, 1);
});
