"""Paths of the Python tests, and a world whose clocks and timers move only when a test says so."""

import asyncio
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]
SPEC = ROOT / "spec"
sys.path.insert(0, str(ROOT / "clients/python/src"))

from khala._machine import World  # noqa: E402


class StillTimer:
    def __init__(self, world, at, act):
        self.world, self.at, self.act = world, at, act

    def cancel(self):
        self.world.timers = [one for one in self.world.timers if one is not self]


class StillWorld(World):
    def __init__(self):
        self.mono, self.clock, self.timers = 1000.0, 1_700_000_000.0, []

    def now(self):
        return self.mono

    def wall(self):
        return self.clock

    def random(self):
        return 0.5

    def call_later(self, seconds, act):
        timer = StillTimer(self, self.mono + seconds, act)
        self.timers.append(timer)
        return timer

    async def advance(self, seconds):
        end = self.mono + seconds
        self.clock += seconds
        while True:
            due = min((one for one in self.timers if one.at <= end), key=lambda one: one.at, default=None)
            if due is None:
                break
            due.cancel()
            self.mono = max(self.mono, due.at)
            due.act()
            await settle()
        self.mono = end


async def settle():
    """Lets every task run that can."""
    for _ in range(10):
        await asyncio.sleep(0)
