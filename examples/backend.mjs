// The backend of the examples: it serves their pages and mints tokens with the operator key. A real
// backend authenticates its users first, and mints for the user that it found.
import { readFile } from "node:fs/promises";
import http from "node:http";
import { createRequire } from "node:module";
import { basename, dirname, extname, join } from "node:path";
import { fileURLToPath } from "node:url";

const { KHALA_URL: url = "http://127.0.0.1:4100", KHALA_OPERATOR_KEY: key, PORT = "4200" } = process.env;
const pages = dirname(fileURLToPath(import.meta.url));
const library = dirname(createRequire(import.meta.url).resolve("khala"));
const TYPES = { ".html": "text/html", ".js": "text/javascript" };
const SCOPES = { reader: ["runtime.run_events", "runtime.codex_worker_events"], writer: ["runtime.append"] };

async function mint(role) {
  const answer = await fetch(`${url}/api/sync/token`, {
    method: "POST", headers: { authorization: `Bearer ${key}` }, body: JSON.stringify({ user_id: "ada", scopes: SCOPES[role] }),
  });
  if (!answer.ok) throw new Error(`The server refused to mint a token: ${answer.status}`);
  return (await answer.json()).token;
}

/** The type and the body of an answer. */
async function answerOf({ pathname, searchParams }) {
  if (pathname === "/token") return ["text/plain", await mint(searchParams.get("role"))];
  if (pathname === "/khala.json") return ["application/json", JSON.stringify({ url })];
  const file = basename(pathname) || "index.html";
  const folder = pathname.startsWith("/khala/") ? library : pages;
  return [TYPES[extname(file)] ?? "text/plain", await readFile(join(folder, file))];
}

const server = http.createServer(async (request, response) => {
  try {
    const [type, body] = await answerOf(new URL(request.url, "http://backend"));
    response.writeHead(200, { "content-type": `${type}; charset=utf-8` }).end(body);
  } catch (error) {
    response.writeHead(error.code === "ENOENT" ? 404 : 502).end(String(error.message));
  }
});
server.listen(Number(PORT), "127.0.0.1", () => console.log(`listens on http://127.0.0.1:${server.address().port}`));
