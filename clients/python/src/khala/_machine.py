"""The state machine of the connection and of a topic, clocks, waits and the life of tokens."""

from __future__ import annotations

import asyncio
import base64
import json
import random
import time
from collections import deque
from dataclasses import dataclass
from typing import Any, Callable, Deque, Mapping, Optional, Protocol, Sequence, Tuple

from ._tables import Table


def step(table: Table, state: str, name: str) -> Tuple[str, Sequence[str]]:
    """The next state and the actions, in order. A missing cell ignores the input."""
    cell = table[state].get(name)
    return (cell[0], cell[1:]) if cell else (state, ())


class Machine:
    """Turns inputs into steps one after another, also those that an action gives."""

    def __init__(
        self, table: Table, state: str, act: Mapping[str, Callable[[Any], None]], changed: Callable[[], None]
    ) -> None:
        self.state = state
        self._table = table
        self._act = act
        self._changed = changed
        self._inputs: Deque[Tuple[str, Any]] = deque()
        self._is_running = False

    def give(self, name: str, data: Any = None) -> None:
        self._inputs.append((name, data))
        if self._is_running:
            return
        self._is_running = True
        try:
            while self._inputs:
                self._run(*self._inputs.popleft())
        finally:
            self._is_running = False

    def _run(self, name: str, data: Any) -> None:
        before = self.state
        self.state, actions = step(self._table, before, name)
        for action in actions:
            self._act[action](data)
        if self.state != before:
            self._changed()


@dataclass(frozen=True)
class BackOff:
    """The wait before an attempt doubles from base to limit, in seconds."""

    base: float = 0.3
    limit: float = 30.0


def back_off(attempt: int, hint: Optional[float], chance: float, limits: BackOff) -> float:
    """The wait before an attempt, in seconds: half of it is random. A hint is the least wait."""
    if hint is not None:
        return hint + chance * max(limits.base, hint / 4)
    whole = min(limits.limit, limits.base * 2.0 ** min(attempt, 20))
    return whole / 2 + chance * whole / 2


def token_life(token: str, wall: float) -> Optional[float]:
    """How many seconds the token lives from now, by its own claims; None if it has none of them."""
    try:
        middle = token.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(middle + "=" * (-len(middle) % 4)))
        whole = float(claims["exp"] - claims["iat"])
        left = claims["exp"] - wall
    except (ValueError, LookupError, TypeError, RecursionError):
        return None
    if whole <= 0:
        return None
    # A wrong clock of this machine shows as a remainder that cannot be.
    return left if 0 < left <= whole else whole


class Timer(Protocol):
    def cancel(self) -> None: ...


class World:
    """Clocks in seconds, timers and chance. Tests give their own."""

    def now(self) -> float:
        return time.monotonic()

    def wall(self) -> float:
        return time.time()

    def random(self) -> float:
        return random.random()

    def call_later(self, seconds: float, act: Callable[[], None]) -> Timer:
        return asyncio.get_running_loop().call_later(seconds, act)
