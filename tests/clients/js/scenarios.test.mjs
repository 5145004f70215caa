// Every scenario of spec/client_scenarios.json through the JavaScript client, in Node and in a browser.
import { after, before, describe, test } from "node:test";
import WebSocket from "ws";
import { Khala, memoryStorage } from "../../../clients/js/src/khala.js";
import { openClientPage } from "./page.mjs";
import { chosen, followScenario, play } from "./scenarios.mjs";

describe("scenarios in Node", { concurrency: 8 }, () => {
  for (const scenario of chosen) {
    test(scenario.name, (t) => play(t, scenario, async (options, report) => followScenario({ Khala, memoryStorage, WebSocket }, options, report)));
  }
});

describe("scenarios in a browser", { concurrency: 8 }, () => {
  const ends = [];
  const reports = [];
  let page;
  before(async () => {
    page = await openClientPage({ after: (act) => ends.unshift(act) });
    await page.exposeFunction("report", (id, one) => reports[id](one));
    await page.evaluate(`window.clients = []; window.followScenario = ${followScenario}`);
  });
  after(async () => {
    for (const act of ends) await act();
  });

  async function follow(options, report) {
    const id = reports.push(report) - 1;
    await page.evaluate(async ([number, given]) => {
      const { Khala: Client, memoryStorage: memory } = await import("/src/khala.js");
      window.clients[number] = window.followScenario({ Khala: Client, memoryStorage: memory }, given, (one) => window.report(number, one));
    }, [id, options]);
    return {
      load: () => page.evaluate((number) => window.clients[number].load(), id),
      close: () => page.evaluate((number) => window.clients[number].close(), id),
    };
  }
  for (const scenario of chosen) test(scenario.name, (t) => play(t, scenario, follow));
});
