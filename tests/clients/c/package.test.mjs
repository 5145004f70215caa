// libkhala as make install installs it: the example builds with pkg-config, shared and static, and
// follows a topic of a real server. Only khala_* is exported.
import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { dirname, join } from "node:path";
import { createInterface } from "node:readline";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { binary, folder } from "../../lib/khala.mjs";
import { operate } from "../../lib/operator.mjs";
import { Received } from "../../lib/wait.mjs";

const ROOT = join(dirname(fileURLToPath(import.meta.url)), "../../..");
const SANITIZED = execFileSync("nm", [binary], { encoding: "utf8", maxBuffer: 1 << 26 }).includes("__asan_init");
const words = (text) => text.trim().split(/\s+/);

test("the installed library has a header, a soname, pkg-config and no symbols of the server", { skip: SANITIZED && "a sanitized library needs a sanitized program" }, async (t) => {
  const place = folder(t);
  execFileSync("make", ["-C", ROOT, "install-files", `BINARY=${binary}`, `PREFIX=${place}`], { stdio: "pipe" });
  const library = join(place, "lib/libkhala.so");
  const symbols = execFileSync("nm", ["-D", "--defined-only", library], { encoding: "utf8" }).trim().split("\n").map((line) => line.split(" ").at(-1).replace(/@.*/, ""));
  assert.ok(symbols.includes("khala_open"));
  assert.deepEqual(symbols.filter((name) => !/^khala_|^KHALA_0$/.test(name)), []);
  const global = execFileSync("nm", ["--defined-only", "--extern-only", join(place, "lib/libkhala.a")], { encoding: "utf8" }).match(/ [TDRB] (\w+)/g).map((line) => line.slice(3));
  assert.deepEqual(global.filter((name) => !name.startsWith("khala_")), []);
  assert.match(execFileSync("readelf", ["-d", library], { encoding: "utf8" }), /soname: \[libkhala\.so\.0\]/);

  const env = { ...process.env, PKG_CONFIG_PATH: join(place, "lib/pkgconfig"), LD_LIBRARY_PATH: join(place, "lib") };
  const ask = (...options) => words(execFileSync("pkg-config", [...options, "khala"], { encoding: "utf8", env }));
  const source = join(ROOT, "clients/c/follow.c");
  execFileSync("cc", ["-Wall", "-Werror", source, ...ask("--cflags", "--libs"), "-o", join(place, "shared")], { env });
  const rest = ask("--cflags", "--libs", "--static").map((word) => (word === "-lkhala" ? join(place, "lib/libkhala.a") : word));
  execFileSync("cc", ["-Wall", "-Werror", source, ...rest, "-o", join(place, "static")], { env });

  const operator = await operate(t);
  await operator.did("topics/room:1/events", { event_type: "said", payload: { n: 1 } });
  for (const name of ["shared", "static"]) {
    const lines = new Received();
    const child = spawn(join(place, name), [operator.server.url, operator.reader, "room:1"], { env, stdio: ["ignore", "pipe", "inherit"] });
    t.after(() => child.kill("SIGKILL"));
    createInterface({ input: child.stdout }).on("line", (line) => lines.add(line));
    const exit = new Promise((resolve) => child.on("close", (code) => resolve(code)));
    await lines.until(() => lines.all.length === 2, "a reset and a frame");
    assert.deepEqual(lines.all, ["the history begins at 1 (start)", '1 {"n":1}']);
    child.kill("SIGTERM");
    assert.equal(await exit, 0);
  }
});
