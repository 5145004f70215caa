// The unit file, and the server's notifications to a service manager.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";

const UNIT = readFileSync(new URL("../../../dist/khala.service", import.meta.url), "utf8");

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
import { binary, folder, serve, start } from "../../lib/khala.mjs";

/** Listens on the socket of a service manager; each message is a line of the output. */
async function listen(t, name) {
  const listener = start(t, ["python3", "-c", LISTENER, name]);
  await listener.saw("out", /^bound$/m);
  return listener;
}

test("systemd accepts the unit file", (t) => {
  if (spawnSync("systemd-analyze", ["--version"]).error) return t.skip("systemd-analyze is not installed");
  const path = join(folder(t), "khala.service");
  writeFileSync(path, UNIT.replaceAll("/usr/local/bin/khala", binary));
  const done = spawnSync("systemd-analyze", ["verify", "--man=no", path], { encoding: "utf8" });
  assert.deepEqual([done.status, done.stderr], [0, ""]);
});

test("the server notifies the manager when it is ready and when it stops", async (t) => {
  for (const name of [join(folder(t), "notify"), `@khala-test-${process.pid}`]) {
    const listener = await listen(t, name);
    const server = await serve(t, { settings: { NOTIFY_SOCKET: name, KHALA_SHUTDOWN_DELAY_MS: "600000", KHALA_SHUTDOWN_GRACE_MS: "300000" } });
    await listener.saw("out", /^READY=1 STATUS=Serves$/m);
    assert.doesNotMatch(listener.out, /STOPPING|WATCHDOG/);
    server.kill("SIGTERM");
    // The manager is asked to wait for the delay, the grace, and some more.
    const [, extended] = await listener.saw("out", /^STOPPING=1 .* EXTEND_TIMEOUT_USEC=(\d+)$/m);
    assert.ok(Number(extended) > (600 + 300) * 1e6 && Number(extended) < 960e6, extended);
    await server.stop(); // a second signal does not wait for the delay
  }
});

test("the server sends keep-alives while its loops respond", async (t) => {
  const name = join(folder(t), "notify");
  const listener = await listen(t, name);
  await serve(t, { settings: { NOTIFY_SOCKET: name, WATCHDOG_USEC: "100000" } });
  await listener.saw("out", /(WATCHDOG=1\n[^]*){5}/);
});

test("a server that cannot start does not notify the manager", async (t) => {
  const name = join(folder(t), "notify");
  const listener = await listen(t, name);
  const server = await serve(t, { settings: { NOTIFY_SOCKET: name } });
  await listener.saw("out", /^READY=1/m);
  const second = spawnSync(binary, ["serve", "--bind", `127.0.0.1:${server.port}`],
    { cwd: folder(t), encoding: "utf8", env: { ...process.env, NOTIFY_SOCKET: name } });
  assert.equal(second.status, 3);
  assert.equal(listener.out.match(/READY=1/g).length, 1);
});
