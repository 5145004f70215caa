// The published shape of the JavaScript client: exports, types against the sources, size.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { build } from "esbuild";
import { folder } from "../../lib/khala.mjs";

const client = fileURLToPath(new URL("../../../clients/js", import.meta.url));
const modules = fileURLToPath(new URL("../../node_modules", import.meta.url));
const manifest = JSON.parse(readFileSync(join(client, "package.json"), "utf8"));
const CORE_BYTES_MAX = 12_500;

test("every export has its source and its types, and every declared name exists", async () => {
  for (const [name, { types, default: source }] of Object.entries(manifest.exports)) {
    assert.ok(existsSync(join(client, source)), source);
    const declared = [...readFileSync(join(client, types), "utf8").matchAll(/^export (?:class|function) (\w+)/gm)].map(([, one]) => one);
    assert.ok(declared.length > 0);
    if (name === "./react") continue; // needs react, which the client does not have
    const actual = await import(join(client, source));
    assert.deepEqual(Object.keys(actual).sort(), declared.sort(), name);
  }
  assert.equal(manifest.dependencies, undefined);
});

test("the core is below 12.5 kB, minified and compressed", async (t) => {
  // Everything that the entry exports. The fallback is loaded only if WebSockets are blocked, and the log only if it is followed.
  const external = ["./http.js", "./log.js", "./request.js"];
  const { outputFiles: [core] } = await build({
    stdin: { contents: "export * from \"./src/khala.js\";", resolveDir: client }, external,
    bundle: true, minify: true, format: "esm", platform: "browser", write: false,
  });
  for (const name of external) assert.ok(core.text.includes(`import("${name}")`), name);
  const bytes = gzipSync(core.contents, { level: 9 }).length;
  t.diagnostic(`${bytes} bytes`);
  assert.ok(bytes < CORE_BYTES_MAX, `${bytes} bytes`);
});

const PROGRAM = `
import { Khala, KhalaError, localStorageStorage, type Frame, type Position } from "khala";
import { fileStorage } from "khala/node";
import { Producer } from "khala/producer";
import { useCollection, useConnection, useRun, useRuns, useTopic } from "khala/react";

interface Line { line: string }
const khala = new Khala({ url: "http://x", token: async () => "t", storage: fileStorage("p"), transports: ["websocket", "poll"] });
for await (const frame of khala.topic<Line>("run:a:events", { reset: ({ reason, documents }) => console.log(reason, documents?.length) })) {
  const text: string = frame.payload.line + frame.seq;
  // @ts-expect-error a sequence is a number
  const wrong: string = frame.seq;
}
await khala.topic<Line>("t").exactlyOnce<{ rows: Frame<Line>[]; at: Position | null }>({
  load: () => null, transaction: (work) => work({ rows: [], at: null }), apply: (frame, tx) => { tx.rows.push(frame); }, save: (at, tx) => { tx.at = at; },
});
const runs = khala.collection<{ status: string }>("runtime.run_summaries", { where: { status: ["running"], tag: "a" }, conflateMs: 100 });
for await (const { folded, event_id } of khala.topic("t", { fold: true, form: "full" })) console.log((folded?.count ?? 1) + event_id.length);
const status: string | undefined = runs.get("a")?.status;
for await (const change of runs.changes()) if (change.type === "set") console.log(change.value.status, change.key);
const answer = await new Producer({ url: "http://x", token: () => "t" }).append({ topic: "t", event_type: "said", payload: { a: 1 } });
const seq: number = answer.event.seq;
const producer = new Producer({ url: "http://x", token: () => "t", requestsMax: 2 });
producer.onWarning(({ code, request_id, retryAfterMs, entity }) => console.log(code, request_id?.length, retryAfterMs?.toFixed(), entity));
await producer.close({ timeoutMs: 10 });
for await (const { cursor, payload } of khala.log<Line>({ from: { since: "2h" }, reset: ({ reason }) => console.log(reason) })) console.log(cursor, payload.line);
khala.topic("t", { from: "head", after: "5@e" }).isPending;
// @ts-expect-error no such start
khala.topic("t", { from: "end" });
export function board() {
  const { documents } = useCollection<{ status: string }>(khala, "runtime.run_summaries");
  useRuns(khala, { where: { worker_id: "w" } }).runs.map(({ run_id }) => useRun(khala, run_id).run?.status);
  return [useConnection(khala).status === "live", documents.get("a")?.status, useTopic<Line>(khala, "t").frames[0]?.payload.line];
}
// @ts-expect-error a token callback is needed
new Khala({ url: "http://x" });
export { KhalaError, localStorageStorage, seq, status };
`;

test("a strict TypeScript program uses every part of the types", (t) => {
  const path = folder(t);
  mkdirSync(join(path, "node_modules"));
  symlinkSync(client, join(path, "node_modules/khala"));
  for (const name of ["@types", "react", "csstype"]) symlinkSync(join(modules, name), join(path, "node_modules", name));
  writeFileSync(join(path, "program.mts"), PROGRAM);
  const done = spawnSync(process.execPath, [join(modules, "typescript/bin/tsc"), "--strict", "--noEmit", "--target", "es2022", "--lib", "es2022,dom,esnext.disposable", "--skipLibCheck", "--types", "react", "--module", "nodenext", "program.mts"],
    { cwd: path, encoding: "utf8" });
  assert.equal(done.stdout + done.stderr, "");
  assert.equal(done.status, 0);
});
