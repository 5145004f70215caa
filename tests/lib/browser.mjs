// Headless Chromium on a page of the server's origin, so that WebSocket and EventSource work as in a
// page that the server delivered.
import { after } from "node:test";
import { chromium } from "playwright-core";
import { within } from "./wait.mjs";

const CHROMIUM = process.env.CHROMIUM_BINARY ?? "/usr/bin/chromium";

let started = null;

/** The browser of this test file, which every test shares. */
function browser() {
  started ??= chromium.launch({ executablePath: CHROMIUM, args: ["--no-sandbox", "--disable-gpu"] });
  return started;
}

after(async () => (await started)?.close());

/** A page on the server's origin, closed with the test. A page that the test made up would count as
 * one of another network, which may not connect here. */
export async function openPage(t, operator) {
  const context = await (await browser()).newContext();
  t.after(() => context.close());
  const page = await context.newPage();
  await page.goto(`${operator.server.url}/healthz/live`);
  return page;
}

/** Waits until a script in the page answers true. */
export function untilInPage(page, script, argument, what) {
  return within(page.waitForFunction(script, argument, { timeout: 0, polling: 20 }), what);
}
