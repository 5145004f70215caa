// The state machine of spec/client_states.json: every cell through the pure functions of the library,
// the policies, and properties that must hold for every row.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { policyOf } from "../../../clients/js/src/errors.js";
import { backOffMs, connectionStep, Machine, topicStep } from "../../../clients/js/src/machine.js";

const read = (name) => JSON.parse(readFileSync(new URL(`../../../spec/${name}.json`, import.meta.url), "utf8"));
const spec = read("client_states");
const machines = [["connection", connectionStep, "idle"], ["topic", topicStep, "loading"]];

for (const [name, step, first] of machines) {
  const { states, inputs, actions, table } = spec[name];

  test(`every cell of the table of the ${name}`, () => {
    let cells = 0;
    for (const state of Object.keys(states)) {
      for (const input of Object.keys(inputs)) {
        const [next, ...wanted] = table[state][input];
        assert.deepEqual(step(state, input), { next, actions: wanted }, `${state}, ${input}`);
        cells++;
      }
    }
    assert.equal(cells, Object.keys(states).length * Object.keys(inputs).length);
  });

  test(`the machine of the ${name} runs the actions of each cell in their order`, () => {
    for (const state of Object.keys(states)) {
      for (const input of Object.keys(inputs)) {
        const done = [];
        const act = Object.fromEntries(Object.keys(actions).map((action) => [action, () => done.push(action)]));
        let changes = 0;
        const machine = new Machine(step, state, act, () => changes++);
        machine.give(input);
        const [next, ...wanted] = table[state][input];
        assert.deepEqual([machine.state, done, changes], [next, wanted, next === state ? 0 : 1], `${state}, ${input}`);
      }
    }
  });

  test(`rules of the ${name}: closed is final, stop and final errors close from every state, every state is reached`, () => {
    for (const [state, row] of Object.entries(table)) {
      if (state === "closed") {
        for (const cell of Object.values(row)) assert.deepEqual(cell, ["closed"]);
      } else {
        assert.equal(row.stop[0], "closed", state);
        if (state !== "idle") assert.equal(row.final[0], "closed", state);
      }
    }
    const reached = new Set([first]);
    for (const state of reached) for (const [next] of Object.values(table[state])) reached.add(next);
    assert.deepEqual([...reached].sort(), Object.keys(states).sort());
  });
}

test("an open transport is dropped whenever the connection leaves its open states, and nothing else drops it", () => {
  const open = ["connecting", "joining", "live", "reauthenticating"];
  for (const [state, row] of Object.entries(spec.connection.table)) {
    for (const [input, [next, ...actions]] of Object.entries(row)) {
      assert.equal(actions.includes("drop"), open.includes(state) && !open.includes(next), `${state}, ${input}`);
    }
  }
});

test("an input that an action gives is handled after the actions of its own step", () => {
  const done = [];
  const machine = new Machine((state, input) => ({ next: input, actions: input === "a" ? ["one", "two"] : ["three"] }), "", {
    one: () => { machine.give("b"); done.push("one"); },
    two: () => done.push("two"),
    three: () => done.push("three"),
  }, () => done.push("changed"));
  machine.give("a");
  assert.deepEqual(done, ["one", "two", "changed", "three", "changed"]);
});

test("each close code, HTTP status and error code has the policy of its table; others are retried", () => {
  for (const { code, client } of read("close").close) assert.equal(policyOf(null, { close: code }), client, String(code));
  for (const [status, policy] of Object.entries(spec.http)) assert.equal(policyOf({ error: "other" }, { status: Number(status) }), policy);
  for (const [code, policy] of Object.entries(spec.codes)) {
    for (const body of [{ code }, { error: code }, { error: "unauthorized", reason_code: code }]) {
      assert.equal(policyOf(body, { status: 400, close: 4003 }), policy, code);
    }
  }
  const known = read("status").status.map(({ code }) => code);
  for (const code of Object.keys(spec.codes)) {
    if (!code.startsWith("bad_")) assert.ok(known.includes(code), code);
  }
  for (const close of [1005, 1006, 1011, 1015, 3000, 4999, undefined]) assert.equal(policyOf(null, { close }), "retry");
  for (const status of [200, 302, 408, 409, 429, 500, 502, 503, 504]) assert.equal(policyOf({}, { status }), "retry");
  assert.equal(policyOf({ code: "constructor" }, {}), "retry");
});

test("the wait grows to its maximum, half of it is chance, and a hint is the least wait", () => {
  for (let attempt = 0; attempt < 40; attempt++) {
    const whole = Math.min(30_000, 300 * 2 ** attempt);
    assert.equal(backOffMs(attempt, undefined, 0), whole / 2);
    assert.ok(backOffMs(attempt, undefined, 0.999) <= whole);
    for (const random of [0, 0.5, 0.999]) assert.ok(backOffMs(attempt, 1234, random) >= 1234);
  }
});
