// Headless Chromium, on a page of the server's origin or of another.
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

/** A page of that address, closed with the test. A page that the test made up would count as one of
 * another network, which may not connect here. */
export async function openAddress(t, address) {
  const context = await (await browser()).newContext();
  t.after(() => context.close());
  const page = await context.newPage();
  await page.goto(address);
  return page;
}

/** A page on the server's origin. */
export const openPage = (t, operator) => openAddress(t, `${operator.server.url}/healthz/live`);

/** Waits until a script in the page answers true. */
export function untilInPage(page, script, argument, what) {
  return within(page.waitForFunction(script, argument, { timeout: 0, polling: 20 }), what);
}
