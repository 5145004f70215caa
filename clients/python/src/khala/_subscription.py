"""One topic: runs the topic's machine, keeps its position and queues entries for the application."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Callable, Deque, Dict, List, Optional, Protocol, Sequence, Tuple

from ._errors import KhalaError
from ._frames import Frame, Position, Reset
from ._keeper import PositionKeeper
from ._machine import BackOff, Machine, Timer, World, back_off
from ._position import Part, Parts, Range, continues, is_of_epoch, is_range, read_position, write_position
from ._recent import Recent
from ._tables import TOPIC

if TYPE_CHECKING:
    from .storage import Storage

QUEUE_FRAMES_MAX = 1000
QUEUE_CHARS_MAX = 8 << 20
FAULTS_MAX = 5  # within FAULTS_SECONDS the breaker trips
FAULTS_SECONDS = 60.0
TRIP_BACK_OFF = BackOff(base=1.0)
PENDING_BACK_OFF = BackOff(base=1.0, limit=5.0)


@dataclass
class Entry:
    """A frame, a reset, or only a move of the position. The application applies entries in order.

    After each one its position is stored.
    """

    __slots__ = ("frame", "reset", "position", "size")
    frame: Optional[Frame]
    reset: Optional[Reset]
    position: Position
    size: float


@dataclass(frozen=True)
class Beginning:
    """What the application asks for: which frames of the log, since a time or "head", and how they are delivered."""

    replay: Optional[str] = None
    since: Optional[str] = None
    form: str = "lean"
    fold: bool = False
    where: Optional[str] = None  # JSON
    conflate_ms: Optional[int] = None

    def asks(self) -> Dict[str, Any]:
        """The members of a request, besides since and where. A replay of everything never folds."""
        asks = {"form": self.form, "conflate_ms": self.conflate_ms, "replay": self.replay}
        is_folded = self.fold and not self.replay
        return {name: value for name, value in asks.items() if value is not None} | ({"fold": True} if is_folded else {})


@dataclass(frozen=True)
class Start:
    """A history that starts at a sequence."""

    epoch: str
    from_seq: int
    truncated: bool
    reasons: Optional[Sequence[str]] = None


class Link(Protocol):
    """The connection, as a subscription sees it."""

    @property
    def is_live(self) -> bool: ...
    def subscribe(self, subscription: Subscription, position: Optional[Position]) -> None: ...
    def unsubscribe(self, subscription: Subscription) -> None: ...
    def warn(self, error: KhalaError) -> None: ...
    def remove(self, subscription: Subscription) -> None: ...


class Subscription:
    def __init__(
        self, name: str, link: Link, world: World, storage: Optional[Storage], key: str, start: Beginning
    ) -> None:
        self.name = name
        self.start = start
        self.since = start.since  # used until there is a position
        self.is_pending = False
        self.received: Optional[Position] = None  # the end of the last range that arrived
        self.applied: Optional[Position] = None  # the position of the last entry that the application applied
        self._link = link
        self._world = world
        self.keeper = PositionKeeper(storage, key, write_position, self._warn)
        self._recent = Recent()
        self._parts = Parts()
        self._queue: Deque[Entry] = deque()
        self._size = 0.0
        self._frames = 0
        self._arrived = asyncio.Event()
        self._is_ended = False
        self._error: Optional[KhalaError] = None
        self._reasons: Optional[Sequence[str]] = None
        self._faults: List[Tuple[float, str]] = []
        self._trips = 0
        self._timer: Optional[Timer] = None
        actions: dict[str, Callable[[Any], None]] = {
            "subscribe": lambda _: link.subscribe(self, self.received),
            "unsubscribe": lambda _: link.unsubscribe(self),
            "reset": self._restart,
            "discard": self._discard,
            "keep": self._parts.add,
            "apply_snapshot": self._apply_snapshot,
            "deliver": self._deliver,
            "forget": self._forget,
            "report": lambda _: self._report("repeatedly_stale", f"The topic {name} was stale again and again."),
            "back_off": self._back_off,
            "cancel": lambda _: self._cancel(),
            "fail": self._end,
            "end": lambda _: self._end(None),
        }
        self._machine = Machine(TOPIC, "loading", actions, lambda: None)

    @property
    def state(self) -> str:
        return self._machine.state

    def _report(self, code: str, message: str, request_id: Optional[str] = None) -> None:
        self._link.warn(KhalaError(code, message, topic=self.name, request_id=request_id))

    # ---- the stored position ----

    async def load(self, before: Optional[PositionKeeper]) -> None:
        """Reads the stored position, and begins."""
        text, is_read = await self.keeper.load(before)
        position = read_position(text) if isinstance(text, str) else None
        self.begin(position, "start" if is_read and text is None else "position_unreadable")

    def begin(self, position: Optional[Position], reason: str) -> None:
        self.received = self.applied = position
        self._reasons = [reason]
        if position or reason != "start":
            self.since = None
        self._machine.give("loaded")
        if self._link.is_live:
            self._machine.give("connected")

    def acknowledge(self, entry: Entry) -> None:
        """The application has applied the entry, so its position is stored."""
        self.applied = entry.position
        self.keeper.save(entry.position)

    def _warn(self, message: str, cause: Exception) -> None:
        error = KhalaError("storage_failed", message, topic=self.name)
        error.__cause__ = cause
        self._link.warn(error)

    # ---- inputs ----

    def give(self, name: str, data: Any = None) -> None:
        """Gives the machine an input of the connection or of the server."""
        self._machine.give(name, data)

    def pending(self, is_pending: bool, request_id: Optional[str] = None) -> None:
        """The topic does not exist yet, or belongs to another owner; the server does not say which."""
        if is_pending and not self.is_pending:
            why = "does not exist yet, or it belongs to another owner. It begins when it exists."
            self._report("topic_pending", f"The topic {self.name} {why}", request_id)
        self.is_pending = is_pending

    def accepted(self, epoch: Optional[str], after: Optional[int] = None) -> None:
        """Takes the epoch by which the server knows the position, and the position that it chose for a time."""
        if self.received is None and self.since and epoch is not None and after is not None:
            self._machine.give("started", Start(epoch, after + 1, False))
            return
        if self.received and epoch is not None and self.state == "joining":
            self.received = Position(epoch, self.received.seq)
        self._machine.give("accepted")

    def started(self, start: Start) -> None:
        """Takes a start of the history. One at the client's own position, such as 0, is a resume."""
        mine = self.received
        if mine and not start.reasons and is_of_epoch(mine, start.epoch) and mine.seq == start.from_seq - 1:
            self.accepted(start.epoch)
        else:
            # What lies before a time that the application chose is not lost.
            is_chosen = self.since is not None and not start.reasons
            self._machine.give("started", replace(start, truncated=start.truncated and not is_chosen))

    def range(self, given: Range) -> None:
        """Takes a range, or a fault in its place."""
        name = "caught_up" if given.complete else "range"
        if self.state == "joining" and self.is_pending and self.received is None:
            self._link.subscribe(self, None)  # the topic exists now; the answer shows where it begins
        elif self.state not in ("replaying", "live"):
            self._machine.give(name, given)
        elif not continues(self.received, given):
            self.fault("gap")
        elif self.start.form == "lean" and any("event_id" not in one and one.get("kind") != "removed" for one in given.frames):
            self.start = replace(self.start, form="full")  # lean frames of a server before 0.3 have no event_id
            self.fault("gap")
        else:
            self._machine.give(name, given)
            if self._frames >= QUEUE_FRAMES_MAX or self._size >= QUEUE_CHARS_MAX:
                self._machine.give("full")

    def covered(self, given: Range) -> None:
        """Takes a range without frames, from a heartbeat. One that begins behind the position shows that a message is missing."""
        mine = self.received
        is_streaming = self.state in ("replaying", "live")
        if not is_streaming or mine is None or not is_range(given) or not is_of_epoch(mine, given.epoch):
            return
        if given.after > mine.seq:
            self.fault("gap")
        elif given.through > mine.seq:
            self._machine.give("range", given)

    def part(self, part: Part) -> None:
        if self.state == "bootstrapping" and not self._parts.fits(part):
            self.fault("gap")
        else:
            self._machine.give("whole" if part.is_last else "part", part)

    def fault(self, name: str, reasons: Optional[Sequence[str]] = None) -> None:
        """A stale position or a gap. Several of them within a minute trip the breaker; progress forgives gaps."""
        if self.state == "joining" and name == "gap":
            return
        now = self._world.now()
        self._faults = [one for one in self._faults if now - one[0] < FAULTS_SECONDS] + [(now, name)]
        if len(self._faults) < FAULTS_MAX:
            self._machine.give(name, reasons)
            return
        self._faults = []
        if name == "stale":
            self._reasons = reasons or self._reasons
            self.received = self.since = None
        self._machine.give("tripped")

    # ---- actions ----

    def _discard(self, reasons: Any) -> None:
        self._parts.clear()
        if isinstance(reasons, list):
            self._reasons = reasons

    def _forget(self, reasons: Any) -> None:
        self.received = self.since = None
        if isinstance(reasons, list):
            self._reasons = reasons
        elif not self._reasons:
            self._reasons = ["gap"]

    def _restart(self, start: Start) -> None:
        self._reset(start.from_seq, Position(start.epoch, start.from_seq - 1), start.truncated, start.reasons)

    def _apply_snapshot(self, part: Part) -> None:
        position, documents = self._parts.take()
        self._begin_history(Reset(self._reason(None), position.seq + 1, False, documents), position, part.size)

    def _reset(self, from_seq: int, position: Position, truncated: bool, reasons: Optional[Sequence[str]]) -> None:
        self._begin_history(Reset(self._reason(reasons), from_seq, truncated), position, 0)

    def _reason(self, reasons: Optional[Sequence[str]]) -> str:
        return (reasons or self._reasons or ["start"])[0]

    def _begin_history(self, reset: Reset, position: Position, size: int) -> None:
        self._reasons = self.since = None
        self._recent.clear()
        self.received = position
        self._put(Entry(None, reset, position, size))

    def _deliver(self, given: Range) -> None:
        assert self.received is not None
        now = self._world.now()
        before = self.received.seq
        size = given.size / (len(given.frames) or 1)
        for frame in given.frames:
            if frame["seq"] > before and not self._recent.repeats(frame, now):
                self._put(Entry(Frame(frame), None, Position(given.epoch, frame["seq"]), size))
        if given.through <= before:
            return
        self.received = Position(given.epoch, given.through)
        self._trips = 0
        self.is_pending = False
        self._faults = [one for one in self._faults if one[1] != "gap"]
        if not self._queue or self._queue[-1].position.seq != given.through:
            self._move(self.received)

    def _back_off(self, error: Any) -> None:
        hint = error.retry_after if isinstance(error, KhalaError) else None
        limits = PENDING_BACK_OFF if self.is_pending else TRIP_BACK_OFF
        seconds = back_off(self._trips, hint, self._world.random(), limits)
        self._trips += 1
        self._timer = self._world.call_later(seconds, lambda: self._machine.give("timer"))

    def _cancel(self) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None

    def tick(self, now: float) -> None:
        """Forgets repetitions that are too old."""
        self._recent.expire(now)

    # ---- the queue ----

    def _move(self, position: Position) -> None:
        """Queues a move of the position. Two moves without a frame between them are one."""
        last = self._queue[-1] if self._queue else None
        if last and last.frame is None and last.reset is None:
            last.position = position
        else:
            self._put(Entry(None, None, position, 0))

    def _put(self, entry: Entry) -> None:
        self._queue.append(entry)
        self._size += entry.size
        self._frames += entry.frame is not None
        self._arrived.set()

    def _end(self, error: Optional[KhalaError]) -> None:
        if not self._is_ended:
            self._is_ended = True
            self._error = error
        if error is None:
            self._queue.clear()  # the application closed the topic
        self._link.remove(self)
        self._arrived.set()

    async def take(self) -> Optional[Entry]:
        """The next entry; None after the end. Entries that arrived before an error come first."""
        while not self._queue and not self._is_ended:
            self._arrived.clear()
            await self._arrived.wait()
        if self._queue:
            entry = self._queue.popleft()
            self._size -= entry.size
            self._frames -= entry.frame is not None
            if self.state == "paused" and self._frames < QUEUE_FRAMES_MAX / 2 and self._size < QUEUE_CHARS_MAX / 2:
                self._machine.give("drained")
            return entry
        if self._error:
            raise self._error
        return None
