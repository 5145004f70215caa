"""The state machine of spec/client_states.json: every cell through the Python client, and the policies."""

import json
import unittest

from support import SPEC

from khala._errors import policy_of
from khala._machine import BackOff, Machine, back_off, step
from khala._tables import CONNECTION, TOPIC

STATES = json.loads((SPEC / "client_states.json").read_text())
MACHINES = (("connection", CONNECTION), ("topic", TOPIC))
CELLS = 291


class States(unittest.TestCase):
    def cells(self):
        for name, table in MACHINES:
            machine = STATES[name]
            for state in machine["states"]:
                for given in machine["inputs"]:
                    yield name, table, state, given, machine["table"][state][given]

    def test_every_cell(self):
        count = 0
        for name, table, state, given, (after, *actions) in self.cells():
            with self.subTest(machine=name, state=state, input=given):
                found = step(table, state, given)
                self.assertEqual((found[0], list(found[1])), (after, actions))
            count += 1
        self.assertEqual(count, CELLS)

    def test_the_machine_runs_the_actions_of_each_cell_in_their_order(self):
        for name, table, state, given, (after, *actions) in self.cells():
            done, changes = [], []
            act = {action: (lambda data, action=action: done.append((action, data))) for action in STATES[name]["actions"]}
            machine = Machine(table, state, act, lambda: changes.append(1))
            machine.give(given, "data")
            with self.subTest(machine=name, state=state, input=given):
                self.assertEqual(machine.state, after)
                self.assertEqual(done, [(action, "data") for action in actions])
                self.assertEqual(len(changes), 0 if after == state else 1)

    def test_an_input_that_an_action_gives_comes_after_the_actions_of_its_own_step(self):
        done = []
        table = {"": {"a": ("x", "one", "two")}, "x": {"b": ("y", "three")}}

        def one(data):
            machine.give("b")
            done.append("one")

        act = {"one": one, "two": lambda data: done.append("two"), "three": lambda data: done.append("three")}
        machine = Machine(table, "", act, lambda: done.append("changed"))
        machine.give("a")
        self.assertEqual(done, ["one", "two", "changed", "three", "changed"])

    def test_each_code_has_the_policy_of_its_table_and_others_are_retried(self):
        for row in json.loads((SPEC / "close.json").read_text())["close"]:
            self.assertEqual(policy_of(None, close=row["code"]), row["client"], row)
        for status, policy in STATES["http"].items():
            self.assertEqual(policy_of({"error": "other"}, status=int(status)), policy)
        for code, policy in STATES["codes"].items():
            for body in ({"code": code}, {"error": code}, {"error": "unauthorized", "reason_code": code}):
                self.assertEqual(policy_of(body, status=400, close=4003), policy, code)
        for close in (1005, 1006, 1011, 1015, 3000, 4999, None):
            self.assertEqual(policy_of(None, close=close), "retry")
        for status in (200, 302, 408, 409, 429, 500, 502, 503, 504):
            self.assertEqual(policy_of({}, status=status), "retry")
        for body in (None, [], "x", {"code": ["x"]}, {"code": {}}):
            self.assertEqual(policy_of(body), "retry")

    def test_the_wait_grows_to_its_limit_half_of_it_is_chance_and_a_hint_is_the_least_wait(self):
        limits = BackOff()
        for attempt in range(40):
            whole = min(30.0, 0.3 * 2**attempt)
            self.assertEqual(back_off(attempt, None, 0, limits), whole / 2)
            self.assertLessEqual(back_off(attempt, None, 0.999, limits), whole)
            for chance in (0, 0.5, 0.999):
                self.assertGreaterEqual(back_off(attempt, 1.234, chance, limits), 1.234)


if __name__ == "__main__":
    unittest.main()
