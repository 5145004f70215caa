// Headless Chromium on a page of the server's own origin, so that its WebSocket and EventSource are
// used as a page there would use them.
import { chromium } from "playwright-core";
import { within } from "./khala.mjs";

const CHROMIUM = process.env.CHROMIUM_BINARY ?? "/usr/bin/chromium";

/** A page on the server's origin; it goes with the test. A page made up by the test itself would
 * count as one of another network, which may not connect here. */
export async function openPage(t, operator) {
  const browser = await chromium.launch({ executablePath: CHROMIUM, args: ["--no-sandbox", "--disable-gpu"] });
  t.after(() => browser.close());
  const page = await browser.newPage();
  await page.goto(`${operator.server.url}/healthz/live`);
  return page;
}

/** Waits until what a script in the page answers is true. */
export function until(page, script, argument, what) {
  return within(page.waitForFunction(script, argument, { timeout: 0, polling: 20 }), what);
}
