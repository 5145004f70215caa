// libkhala of the release build, as make install installs it: the example builds with pkg-config, shared and static, and
// follows a topic of a real server. Exactly the functions of the header are exported.
import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { createInterface } from "node:readline";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { folder } from "../../lib/khala.mjs";
import { operate } from "../../lib/operator.mjs";
import { Received } from "../../lib/wait.mjs";

const ROOT = join(dirname(fileURLToPath(import.meta.url)), "../../..");
const BUILD = join(ROOT, "build/release");
const words = (text) => text.trim().split(/\s+/);
const run = (program, ...args) => execFileSync(program, args, { cwd: ROOT, encoding: "utf8", stdio: "pipe", maxBuffer: 1 << 26 });
/** The global symbols that a library defines. */
const defined = (...args) => run("nm", "--defined-only", "--extern-only", ...args).split("\n").flatMap((line) => line.match(/^[0-9a-f]+ \w ([^@]+)/)?.[1] ?? []).sort();

test("the installed library has a header, a soname, pkg-config and no symbols of the server", async (t) => {
  const place = folder(t);
  // The release build differs from the others: it optimises across files. Only its library is what users get.
  run("cmake", "--preset", "release");
  run("cmake", "--build", BUILD, "--target", "khala_shared", "khala_static");
  run("cmake", "--install", BUILD, "--prefix", place, "--component", "library");
  const library = join(place, "lib/libkhala.so");
  const functions = readFileSync(join(place, "include/khala/khala.h"), "utf8").match(/KHALA_API [^(]*\bkhala_\w+/g).map((text) => text.match(/\w+$/)[0]).sort();
  assert.ok(functions.includes("khala_open"));
  assert.deepEqual(defined("-D", library).filter((name) => name !== "KHALA_0"), functions);
  assert.deepEqual(defined(join(place, "lib/libkhala.a")), functions);
  assert.match(run("readelf", "-d", library), /soname: \[libkhala\.so\.0\]/);

  const env = { ...process.env, PKG_CONFIG_PATH: join(place, "lib/pkgconfig"), LD_LIBRARY_PATH: join(place, "lib") };
  const ask = (...options) => words(execFileSync("pkg-config", [...options, "khala"], { encoding: "utf8", env }));
  const source = join(ROOT, "clients/c/follow.c");
  execFileSync("cc", ["-Wall", "-Werror", source, ...ask("--cflags", "--libs"), "-o", join(place, "shared")], { env });
  const rest = ask("--cflags", "--libs", "--static").map((word) => (word === "-lkhala" ? join(place, "lib/libkhala.a") : word));
  execFileSync("cc", ["-Wall", "-Werror", source, ...rest, "-o", join(place, "static")], { env });
  assert.doesNotMatch(run("readelf", "-d", join(place, "static")), /libkhala/);

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
