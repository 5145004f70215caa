"""The connection: runs its machine, asks for tokens, chooses the transport and passes messages to topics."""

from __future__ import annotations

import asyncio
import inspect
import math
from dataclasses import dataclass, replace
from typing import Any, Awaitable, Callable, Dict, List, Optional, Protocol, Sequence, Set, Union

from ._errors import KhalaError, Refusal
from ._frames import Position
from ._machine import BackOff, Machine, Timer, World, back_off, token_life
from ._position import Part, Range, is_of_entity
from ._subscription import Beginning, Start, Subscription
from ._tables import CONNECTION

TICK_SECONDS = 1.0
SLEEP_SECONDS = 10.0  # a tick that late means that the machine slept
PROBE_SECONDS = 5.0
STABLE_SECONDS = 10.0  # a connection that lived so long starts the backoff anew
REFUSALS_MAX = 4  # new tokens in a row
ATTEMPTS_OF_FIRST_TRANSPORT = 2
PREFER_AGAIN = BackOff(base=30.0, limit=300.0)  # the time in a fallback before the WebSocket is tried beside it
HEARTBEAT_SECONDS = 15.0
RENEW_BACK_OFF = BackOff(limit=10.0)

TokenCallback = Callable[[], Union[str, Awaitable[str]]]


class Transport(Protocol):
    """Carries topics. It reports everything through its events, and nothing after close()."""

    name: str

    def open(self, token: str) -> None: ...
    def join(self) -> None: ...
    def refresh(self, token: str) -> None: ...
    def heartbeat(self) -> None: ...
    def subscribe(self, name: str, position: Optional[Position], start: Beginning) -> None: ...
    def unsubscribe(self, name: str) -> None: ...
    def close(self) -> None: ...
    async def closed(self) -> None: ...


@dataclass(frozen=True)
class Options:
    token: TokenCallback
    transports: Sequence[Callable[[TransportEvents], Transport]]
    changed: Callable[[], None]
    warn: Callable[[KhalaError], None]
    token_timeout: float = 15.0
    connect_timeout: float = 10.0
    back_off: BackOff = BackOff()
    prefer_again: BackOff = PREFER_AGAIN


async def ask_token(callback: TokenCallback, seconds: float) -> str:
    """Calls the token callback. A callback that ignores its cancellation holds up nothing."""

    async def call() -> Any:
        answer: Any = callback()
        return await answer if inspect.isawaitable(answer) else answer

    task = asyncio.ensure_future(call())
    try:
        await asyncio.wait({task}, timeout=seconds)
    finally:
        if not task.done():
            task.cancel()
    if not task.done():
        raise KhalaError("token_timeout", "The token callback was too slow.")
    if task.cancelled():
        raise KhalaError("token_failed", "The token callback was cancelled.")
    token = task.result()
    if not isinstance(token, str) or token.strip() == "":
        raise KhalaError("token_missing", "The token callback did not answer a token.")
    return token.strip()  # the output of a command ends with a newline


class TransportEvents:
    """The reports of one transport. Those of a transport that was replaced have no effect.

    A candidate only opens, joins and closes; when it has joined, it becomes the transport.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.transport: Optional[Transport] = None

    @property
    def _is_current(self) -> bool:
        return self.transport is not None and self._connection.active is self.transport

    def _topic(self, name: Optional[str]) -> Optional[Subscription]:
        return self._connection.subscriptions.get(name) if name is not None and self._is_current else None

    @property
    def _is_candidate(self) -> bool:
        candidate = self._connection.candidate
        return candidate is not None and self.transport is not None and candidate.transport is self.transport

    def opened(self) -> None:
        if self._is_current:
            self._connection.give("opened")
        elif self._is_candidate and self.transport:
            self.transport.join()

    def joined(self, heartbeat: Any, silence: Optional[float] = None) -> None:
        if self._is_current:
            self._connection.joined(heartbeat, silence)
        elif self._is_candidate:
            self._connection.move_over(heartbeat, silence)

    def heard(self, is_proof: bool) -> None:
        if self._is_current:
            self._connection.heard(is_proof)

    def expiring(self) -> None:
        if self._is_current:
            self._connection.give("expiring")

    def refreshed(self) -> None:
        if self._is_current:
            self._connection.give("refreshed")

    def closed(self, refusal: Refusal) -> None:
        if self._is_current:
            self._connection.closed(refusal)
        elif self._is_candidate:
            self._connection.drop_candidate()

    def pending(self, name: Optional[str], is_pending: bool) -> None:
        topic = self._topic(name)
        if topic:
            topic.pending(is_pending)

    def accepted(self, name: Optional[str], epoch: Optional[str], after: Optional[int] = None) -> None:
        topic = self._topic(name)
        if topic:
            topic.accepted(epoch, after)

    def started(self, name: Optional[str], start: Start) -> None:
        topic = self._topic(name)
        if topic:
            topic.started(start)

    def snapshot(self, name: Optional[str], reasons: Optional[Sequence[str]] = None) -> None:
        topic = self._topic(name)
        if topic:
            topic.give("snapshot", reasons)

    def part(self, name: Optional[str], part: Part) -> None:
        topic = self._topic(name)
        if topic:
            topic.part(part)

    def range(self, name: Optional[str], given: Range) -> None:
        topic = self._topic(name)
        if topic:
            topic.range(given)

    def covered(self, name: Optional[str], given: Range) -> None:
        topic = self._topic(name)
        if topic:
            topic.covered(given)

    def stale(self, name: Optional[str], reasons: Optional[Sequence[str]]) -> None:
        topic = self._topic(name)
        if topic:
            topic.fault("stale", reasons)

    def busy(self, name: Optional[str], refusal: Refusal) -> None:
        topic = self._topic(name)
        if topic:
            topic.give("busy", refusal.error(name))

    def refused(self, name: Optional[str], refusal: Refusal) -> None:
        topic = self._topic(name)
        if topic and refusal.code == "owner_mismatch" and is_of_entity(topic.name):
            # An older server refuses a run or worker that does not exist, as one of another owner. Both may come.
            topic.pending(True, refusal.request_id)
            topic.give("busy", refusal.error(name))
        elif topic:
            topic.give("final", refusal.error(name))

    def position(self, name: str) -> Optional[Position]:
        """The end of the last range of the topic that arrived."""
        topic = self._topic(name)
        return topic.received if topic else None


@dataclass
class Candidate:
    """An attempt with the first transport, beside a fallback that works."""

    token: str = ""
    transport: Optional[Transport] = None
    begun_at: float = math.inf


class Connection:
    def __init__(self, options: Options, world: World) -> None:
        self._options = options
        self._world = world
        self.subscriptions: Dict[str, Subscription] = {}
        self.error: Optional[KhalaError] = None  # the last reason for an end
        self.active: Optional[Transport] = None
        self._tasks: Set[asyncio.Task[None]] = set()
        self._closing: List[Transport] = []
        self._transport_index = 0
        self._prefer_again_at = math.inf
        self._prefer_attempts = 0
        self.candidate: Optional[Candidate] = None
        self._is_proven = False
        self._end: Optional[Refusal] = None  # the end of the transport
        self._failed_opens = 0
        self._attempts = 0
        self._refusals = 0
        self._asks = 0
        self._token = ""
        self._retry: Optional[Timer] = None
        self._ticker: Optional[Timer] = None
        self._last_tick = (0.0, 0.0)  # monotonic, wall
        self._live_since: Optional[float] = None
        self._heard_at = 0.0
        self._silence = math.inf
        self._beat = HEARTBEAT_SECONDS
        self._beat_at = 0.0
        self._opened_at = 0.0
        self._renewer: Optional[Timer] = None
        self._renewal: Optional[Renewal] = None
        actions: Dict[str, Callable[[Any], None]] = {
            "ask_token": lambda _: self._begin(self._ask_token(self._next_ask())),
            "open": lambda _: self._open(),
            "join": lambda _: self._transport.join(),
            "subscribe": lambda _: self._each("connected"),
            "refresh": lambda _: self._transport.refresh(self._token),
            "renew_later": lambda _: self._renew_later(),
            "probe": lambda _: self._probe(),
            "drop": lambda _: self._drop(),
            "count_refusal": self._count_refusal,
            "back_off": self._back_off,
            "cancel": lambda _: self._cancel(),
            "fail": self._fail,
            "stop": lambda _: self._each("stop"),
        }
        self._machine = Machine(CONNECTION, "idle", actions, self._changed)

    @property
    def state(self) -> str:
        return self._machine.state

    @property
    def is_live(self) -> bool:
        return self.state in ("live", "reauthenticating")

    @property
    def transport_name(self) -> Optional[str]:
        return self.active.name if self.active and self.is_live else None

    @property
    def _transport(self) -> Transport:
        assert self.active is not None
        return self.active

    def give(self, name: str, data: Any = None) -> None:
        self._machine.give(name, data)

    def warn(self, error: KhalaError) -> None:
        self._options.warn(error)

    def _begin(self, work: Any) -> None:
        task: asyncio.Task[None] = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def finished(self) -> None:
        """Waits for the tasks of the connection, after it was closed."""
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(set(self._tasks))
        for transport in self._closing:
            await transport.closed()
        self._closing = []

    def _each(self, name: str, data: Any = None) -> None:
        for subscription in list(self.subscriptions.values()):
            subscription.give(name, data)

    def _fail(self, error: Optional[KhalaError]) -> None:
        self.error = error
        self._each("final", error)

    def _changed(self) -> None:
        if self.state in ("idle", "closed"):
            for timer in (self._ticker, self._renewer):
                if timer:
                    timer.cancel()
            self._ticker = None
            self._asks += 1
        elif self._ticker is None:
            self._last_tick = (self._world.now(), self._world.wall())
            self._next_tick()
        if self.state == "live":
            self.error = None
        self._options.changed()

    # ---- tokens ----

    def _next_ask(self) -> int:
        self._asks += 1
        return self._asks

    async def _ask_token(self, ask: int) -> None:
        try:
            token = await ask_token(self._options.token, self._options.token_timeout)
        except Exception as cause:
            if ask == self._asks:
                self._token_failed(cause)
            return
        if ask != self._asks:
            return
        self._take_token(token)
        self.give("token")

    def _take_token(self, token: str) -> None:
        self._token = token
        self._renewal = None
        life = token_life(token, self._world.wall())
        if life is not None:
            self._renew_in(life * 0.75)

    def _token_failed(self, cause: Exception) -> None:
        error = self._warn_of_token(cause)
        self.give("final" if getattr(cause, "final", False) is True else "token_failed", error)

    def _warn_of_token(self, cause: Exception) -> KhalaError:
        error = cause if isinstance(cause, KhalaError) else KhalaError("token_failed", "The token callback failed.")
        if error is not cause:
            error.__cause__ = cause
        self.warn(error)
        return error

    def _renew_later(self) -> None:
        self._renew_in(back_off(self._attempts, None, self._world.random(), RENEW_BACK_OFF))
        self._attempts += 1

    def _renew_in(self, seconds: float) -> None:
        self._renewal = Renewal(self._world.now(), self._world.wall(), seconds)
        if self._renewer:
            self._renewer.cancel()
        self._renewer = self._world.call_later(seconds + 0.001, self._renew_if_due)

    def _renew_if_due(self) -> None:
        if self.state == "live" and self._renewal and self._renewal.is_due(self._world.now(), self._world.wall()):
            self.give("expiring")

    # ---- transports ----

    def _open(self) -> None:
        now = self._world.now()
        if now >= self._prefer_again_at:
            self._transport_index = 0
            self._prefer_again_at = math.inf
        self._opened_at = now
        self._is_proven = False
        self._end = None
        self.active = self._make(self._transport_index)
        self.active.open(self._token)

    def _make(self, index: int) -> Transport:
        events = TransportEvents(self)
        events.transport = self._options.transports[index](events)
        return events.transport

    def joined(self, heartbeat: Any, silence: Optional[float]) -> None:
        self._welcomed(heartbeat, silence)
        self.give("joined")

    def _welcomed(self, heartbeat: Any, silence: Optional[float]) -> None:
        is_interval = isinstance(heartbeat, (int, float)) and 0.01 <= heartbeat <= 3600
        self._beat = float(heartbeat) if is_interval else HEARTBEAT_SECONDS
        self._silence = 2 * self._beat + PROBE_SECONDS if silence is None else silence
        self._live_since = self._beat_at = self._world.now()
        self.heard(False)

    def heard(self, is_proof: bool) -> None:
        """The server sent something. The first message proves that nothing blocks the transport."""
        self._heard_at = self._world.now()
        if not is_proof or self._is_proven:
            return
        self._is_proven = True
        self._failed_opens = 0
        if self._transport_index == 0:
            self._prefer_first()
        elif self._prefer_again_at == math.inf:
            self._prefer_later()

    # ---- the way back to the first transport ----

    def _prefer_first(self) -> None:
        self._transport_index = self._prefer_attempts = 0
        self._prefer_again_at = math.inf

    def _prefer_later(self) -> None:
        limits = self._options.prefer_again
        seconds = min(limits.limit, limits.base * 2.0 ** min(self._prefer_attempts, 20))
        self._prefer_attempts += 1
        self._prefer_again_at = self._world.now() + seconds * (1 + self._world.random() / 4)

    async def _try_first(self, candidate: Candidate) -> None:
        """Opens the first transport beside the one that works."""
        try:
            token = await ask_token(self._options.token, self._options.token_timeout)
        except Exception as cause:
            if self.candidate is candidate:
                self.candidate = None
                self._warn_of_token(cause)
            return
        if self.candidate is candidate:
            candidate.token = token
            candidate.begun_at = self._world.now()
            candidate.transport = self._make(0)
            candidate.transport.open(token)

    def drop_candidate(self) -> None:
        candidate, self.candidate = self.candidate, None
        if candidate and candidate.transport:
            self._close(candidate.transport)

    def move_over(self, heartbeat: Any, silence: Optional[float]) -> None:
        """The candidate becomes the transport.

        Every topic subscribes on it behind the frames that arrived, and what the old transport still
        sends is not heard, so no frame is missing or comes twice.
        """
        candidate, self.candidate = self.candidate, None
        assert candidate and self.active
        old, self.active = self.active, candidate.transport
        self._close(old)
        self._asks += 1  # an answer for the old connection is of no use
        self._is_proven = True
        self._prefer_first()
        self._each("disconnected")
        self._take_token(candidate.token)
        self._welcomed(heartbeat, silence)
        self.give("refreshed")  # a token for the old transport may be on its way
        self._each("connected")
        self._options.changed()

    def _close(self, transport: Transport) -> None:
        transport.close()
        self._closing.append(transport)
        self._begin(self._forget(transport))

    # ---- the end of a transport ----

    def closed(self, refusal: Refusal) -> None:
        self._end = refusal
        error = self.error = refusal.error()
        inputs = {"final": "final", "reauthenticate": "refused"}
        self.give(inputs.get(refusal.policy, "lost"), error)

    def _drop(self) -> None:
        transport, self.active = self.active, None
        self._asks += 1  # an answer for the old connection is of no use
        self.drop_candidate()
        if not self._is_proven:
            self._judge(self._end)
        if self._live_since is not None and self._world.now() - self._live_since >= STABLE_SECONDS:
            self._attempts = self._refusals = 0
        self._live_since = None
        self._renewal = None
        if transport:
            self._close(transport)
        self._each("disconnected")

    def _judge(self, end: Optional[Refusal]) -> None:
        """The transport ended before its first message: perhaps something between client and server blocks it."""
        if end and end.is_unreachable:
            self._failed_opens = self._transport_index = 0  # the server is away, which is no fault of a transport
        elif end is None or end.is_of_transport():
            self._failed_opens += 1
            if self._failed_opens >= (ATTEMPTS_OF_FIRST_TRANSPORT if self._transport_index == 0 else 1):
                # If the next fails too, the first comes again.
                self._failed_opens = 0
                self._transport_index = (self._transport_index + 1) % len(self._options.transports)

    async def _forget(self, transport: Transport) -> None:
        await transport.closed()
        if transport in self._closing:
            self._closing.remove(transport)

    def _count_refusal(self, error: Any) -> None:
        self._refusals += 1
        if self._refusals >= REFUSALS_MAX:
            self.give("exhausted", error)

    def _back_off(self, error: Optional[KhalaError]) -> None:
        self.error = error or self.error
        hint = error.retry_after if error else None
        seconds = back_off(self._attempts, hint, self._world.random(), self._options.back_off)
        self._attempts += 1
        self._retry = self._world.call_later(seconds, lambda: self.give("timer"))

    def _cancel(self) -> None:
        if self._retry:
            self._retry.cancel()
            self._retry = None

    # ---- time ----

    def _probe(self) -> None:
        self._transport.heartbeat()
        self._heard_at = min(self._heard_at, self._world.now() - self._silence + PROBE_SECONDS)
        self._renew_if_due()

    def _next_tick(self) -> None:
        def tick() -> None:
            self._next_tick()
            self._tick()

        self._ticker = self._world.call_later(TICK_SECONDS, tick)

    def _tick(self) -> None:
        now, wall = self._world.now(), self._world.wall()
        before, self._last_tick = self._last_tick, (now, wall)
        if max(now - before[0], wall - before[1]) - TICK_SECONDS > SLEEP_SECONDS:
            self.give("wake")
        for subscription in self.subscriptions.values():
            subscription.tick(now)
        if self.is_live:
            if self.candidate is None and now >= self._prefer_again_at:
                self.candidate = Candidate()
                self._prefer_later()
                self._begin(self._try_first(self.candidate))
            elif self.candidate and now - self.candidate.begun_at > self._options.connect_timeout:
                self.drop_candidate()
            self._renew_if_due()
            if now - self._heard_at > self._silence:
                self.give("lost", KhalaError("silent", "The server sent nothing for too long."))
            elif now - self._beat_at >= self._beat:
                self._beat_at = now
                self._transport.heartbeat()
        elif self.state in ("connecting", "joining") and now - self._opened_at > self._options.connect_timeout:
            self.give("lost", KhalaError("connect_timeout", "The server did not answer in time."))

    # ---- topics ----

    def subscribe(self, subscription: Subscription, position: Optional[Position]) -> None:
        if self.active:
            start = replace(subscription.start, since=None if position else subscription.since)
            self.active.subscribe(subscription.name, position, start)

    def unsubscribe(self, subscription: Subscription) -> None:
        if self.active:
            self.active.unsubscribe(subscription.name)

    def add(self, subscription: Subscription) -> None:
        self.subscriptions[subscription.name] = subscription
        self.give("start")

    def remove(self, subscription: Subscription) -> None:
        if self.subscriptions.get(subscription.name) is not subscription:
            return
        del self.subscriptions[subscription.name]
        if not self.subscriptions:
            self.give("unused")


@dataclass(frozen=True)
class Renewal:
    """The time after which a token is renewed."""

    mono: float
    wall: float
    after: float

    def is_due(self, mono: float, wall: float) -> bool:
        """By the clock that has advanced further: one of them may stand still while the machine sleeps."""
        return max(mono - self.mono, wall - self.wall) >= self.after
