// A page of another origin than the server's, with the client's own modules or with a bundle.
import { readFileSync } from "node:fs";
import http from "node:http";
import { openAddress } from "../../lib/browser.mjs";

const sources = new URL("../../../clients/js/src/", import.meta.url);

/** Opens a page. Its modules are at /src/; a bundle is at /bundle.js. */
export async function openClientPage(t, bundle = "") {
  const server = http.createServer((request, response) => {
    const [, name] = request.url.match(/^\/src\/(\w+\.js)$/) ?? [];
    const isScript = name || request.url === "/bundle.js";
    response.writeHead(200, { "content-type": isScript ? "text/javascript" : "text/html" });
    response.end(name ? readFileSync(new URL(name, sources)) : isScript ? bundle : "<!doctype html><title>client</title><div id=root></div>");
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  return openAddress(t, `http://127.0.0.1:${server.address().port}/`);
}
