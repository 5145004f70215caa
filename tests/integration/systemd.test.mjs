// The unit file, and what a service manager hears from the server.
import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { binary, folder, serve, within } from "../lib/khala.mjs";

const UNIT = readFileSync(new URL("../../dist/khala.service", import.meta.url), "utf8");

// Node has no Unix datagrams.
const LISTENER = `
import socket, sys
name = sys.argv[1]
listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
listener.bind("\\0" + name[1:] if name.startswith("@") else name)
print("bound", flush=True)
while True:
    print(listener.recv(4096).decode().replace("\\n", " "), flush=True)
`;

/** A service manager's ear: what it heard so far, and a wait for more. */
async function listen(t, name) {
  const child = spawn("python3", ["-c", LISTENER, name], { stdio: ["ignore", "pipe", "inherit"] });
  t.after(() => child.kill("SIGKILL"));
  const ear = { text: "", wake: () => {} };
  child.stdout.on("data", (data) => { ear.text += data; ear.wake(); });
  ear.heard = (pattern) => within(new Promise((resolve) => {
    ear.wake = () => pattern.test(ear.text) && resolve();
    ear.wake();
  }), `${pattern}`);
  await ear.heard(/^bound$/m);
  return ear;
}

test("the unit file is one that systemd takes", (t) => {
  if (spawnSync("systemd-analyze", ["--version"]).error) return t.skip("systemd-analyze is not installed");
  const path = join(folder(t), "khala.service");
  writeFileSync(path, UNIT.replaceAll("/usr/local/bin/khala", binary));
  const done = spawnSync("systemd-analyze", ["verify", "--man=no", path], { encoding: "utf8" });
  assert.deepEqual([done.status, done.stderr], [0, ""]);
});

test("the manager hears when the server is ready and when it stops", async (t) => {
  for (const name of [join(folder(t), "notify"), `@khala-test-${process.pid}`]) {
    const ear = await listen(t, name);
    const server = await serve(t, { settings: { NOTIFY_SOCKET: name, KHALA_SHUTDOWN_DELAY_MS: "1000", KHALA_SHUTDOWN_GRACE_MS: "3000" } });
    await ear.heard(/^READY=1 STATUS=Serves$/m);
    assert.doesNotMatch(ear.text, /STOPPING|WATCHDOG/);
    await server.stop();
    // The delay, the grace, and some more.
    await ear.heard(/^STOPPING=1 .* EXTEND_TIMEOUT_USEC=\d+$/m);
    const [, extended] = ear.text.match(/EXTEND_TIMEOUT_USEC=(\d+)/);
    assert.ok(Number(extended) > (1 + 3) * 1e6 && Number(extended) < 60e6, extended);
    server.crashed = true; // it has stopped; nothing is left to stop
  }
});

test("the watchdog is kept quiet while the loops answer", async (t) => {
  const name = join(folder(t), "notify");
  const ear = await listen(t, name);
  await serve(t, { settings: { NOTIFY_SOCKET: name, WATCHDOG_USEC: "100000" } });
  await ear.heard(/(WATCHDOG=1\n[^]*){5}/);
});

test("a server that cannot start says nothing, and exits", async (t) => {
  const name = join(folder(t), "notify");
  const ear = await listen(t, name);
  const server = await serve(t, { settings: { NOTIFY_SOCKET: name } });
  await ear.heard(/^READY=1/m);
  const second = spawnSync(binary, ["serve", "--bind", `127.0.0.1:${server.port}`],
    { cwd: folder(t), encoding: "utf8", env: { ...process.env, NOTIFY_SOCKET: name } });
  assert.equal(second.status, 3);
  assert.equal(ear.text.match(/READY=1/g).length, 1);
});
