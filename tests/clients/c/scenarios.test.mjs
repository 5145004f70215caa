// Every scenario of spec/client_scenarios.json through libkhala. Every second one runs on a loop of the application.
import { readFileSync } from "node:fs";
import { describe, test } from "node:test";
import { play } from "./scenario.mjs";

const { topic, scenarios } = JSON.parse(readFileSync(new URL("../../../spec/client_scenarios.json", import.meta.url), "utf8"));
const chosen = scenarios.filter(({ name }) => name.includes(process.env.SCENARIO ?? ""));

describe("scenarios", { concurrency: 8 }, () => {
  for (const [index, scenario] of chosen.entries()) {
    test(scenario.name, (t) => play(t, scenario, topic, { loop: index % 2 ? "given" : "own" }));
  }
});
