"""The whole log over an event stream, by event cursor: connects, resumes, and recognises what it has seen."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import ssl
from collections import deque
from dataclasses import dataclass, replace
from typing import Any, Callable, Deque, Dict, Mapping, NamedTuple, Optional, Tuple
from urllib.parse import urlencode

from ._connection import TokenCallback, ask_token
from ._errors import KhalaError, Refusal, hint_of, lost, refusal_of
from ._fallback import Event, EventStreamDecoder
from ._http import BadAnswer, HttpClient
from ._keeper import PositionKeeper
from ._machine import BackOff, World, back_off
from ._topic import settled

SILENCE_SECONDS = 35.0  # two heartbeats and some seconds
REFUSALS_MAX = 4  # new tokens in a row
RENEWAL_SECONDS = 1.0  # the least time between two streams whose token ends
QUEUE_EVENTS_MAX = 1000
QUEUE_CHARS_MAX = 8 << 20
CURSOR_CHARS_MAX = 512

_pair = re.compile("([0-9]{1,16}):([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})").fullmatch


class LogEvent:
    """An event of the log. Its members are attributes; `members` has all of them as the server sent them."""

    __slots__ = ("members",)

    def __init__(self, members: Mapping[str, Any]) -> None:
        self.members = members

    def __repr__(self) -> str:
        return f"LogEvent({dict(self.members)!r})"

    @property
    def cursor(self) -> str:
        return str(self.members["cursor"])

    @property
    def event_id(self) -> str:
        return str(self.members["event_id"])

    @property
    def event_type(self) -> str:
        return str(self.members.get("event_type"))

    @property
    def entity(self) -> str:
        return str(self.members.get("entity"))

    @property
    def entity_id(self) -> str:
        return str(self.members.get("entity_id"))

    @property
    def seq(self) -> int:
        return int(self.members["seq"])

    @property
    def payload(self) -> Any:
        return self.members.get("payload")


class LogReset(NamedTuple):
    """The log starts again at its first event: drop the data that was derived from earlier events."""

    reason: str


class Entry(NamedTuple):
    """An event, a reset, or only a move of the cursor. After each one its cursor is stored."""

    event: Optional[LogEvent]
    reset: Optional[LogReset]
    cursor: Optional[str]
    size: int = 0


@dataclass(frozen=True)
class LogSettings:
    url: str
    query: Mapping[str, Any]
    ssl: Optional[ssl.SSLContext]
    token: TokenCallback
    token_timeout: float
    connect_timeout: float
    back_off: BackOff
    warn: Callable[[KhalaError], None]
    ended: Callable[[LogFollower], None]


def is_cursor(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value) <= CURSOR_CHARS_MAX


def write_cursor(cursor: Optional[str]) -> str:
    return json.dumps({"cursor": cursor})


def pair_of(cursor: str) -> Optional[Tuple[int, str]]:
    """What orders a cursor; the text itself does not."""
    try:
        found = _pair(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode("ascii"))
    except ValueError:
        return None
    return (int(found[1]), found[2]) if found else None


def is_later(cursor: str, other: Optional[str]) -> bool:
    """Whether a cursor is not of what arrived. If the order is unknown, only the same cursor is."""
    if other is None:
        return True
    one, two = pair_of(cursor), pair_of(other)
    return one > two if one and two else cursor != other


class LogFollower:
    """Follows the log until stop(), or until an error that is final."""

    def __init__(
        self,
        settings: LogSettings,
        world: World,
        keeper: Optional[PositionKeeper],
        since: Optional[str],
        after: Optional[str],
    ) -> None:
        self.applied: Optional[str] = None  # the cursor behind the last entry that the application applied
        self._settings = settings
        self._world = world
        self._keeper = keeper
        self._since = since
        self._cursor = after  # the cursor of the last entry that arrived
        self._http = HttpClient(settings.url, settings.ssl)
        self._queue: Deque[Entry] = deque()
        self._size = 0
        self._moved = asyncio.Event()  # set whenever the queue changes
        self._error: Optional[BaseException] = None
        self._attempts = 0
        self._refusals = 0
        self._task: Optional[asyncio.Task[None]] = None
        self.is_over = False

    def start(self, before: Optional[PositionKeeper]) -> None:
        self._task = asyncio.ensure_future(self._run(before))

    def stop(self) -> None:
        if not self.is_over:
            self.is_over = True
            self._queue.clear()
            self._moved.set()
            self._http.close()
            self._settings.ended(self)
            if self._task and self._task is not asyncio.current_task():
                self._task.cancel()

    async def stopped(self) -> None:
        """Waits until the connection is closed and the cursor is stored."""
        if self._task and self._task is not asyncio.current_task():
            await asyncio.wait({self._task})
        if self._keeper:
            await self._keeper.saved()

    # ---- the application ----

    async def take(self) -> Optional[Entry]:
        """The next entry; None after the end. Entries that arrived before an error come first."""
        while not self._queue and not self.is_over and self._error is None:
            self._moved.clear()
            await self._moved.wait()
        if self._queue:
            entry = self._queue.popleft()
            self._size -= entry.size
            self._moved.set()
            return entry
        if self._error and not self.is_over:
            raise self._error
        return None

    def acknowledge(self, entry: Entry) -> None:
        self.applied = entry.cursor
        if self._keeper:
            self._keeper.save(entry.cursor)

    async def _put(self, entry: Entry) -> None:
        while len(self._queue) >= QUEUE_EVENTS_MAX or self._size >= QUEUE_CHARS_MAX:
            self._moved.clear()
            await self._moved.wait()
        self._cursor = entry.cursor
        self._queue.append(entry)
        self._size += entry.size
        self._moved.set()

    # ---- the stream ----

    async def _run(self, before: Optional[PositionKeeper]) -> None:
        try:
            await self._load(before)
            while not self.is_over:
                await self._follow()
        except Exception as error:
            self._error = error
            self._moved.set()
        finally:
            self._http.close()

    async def _load(self, before: Optional[PositionKeeper]) -> None:
        if self._keeper:
            text, is_read = await self._keeper.load(before)
            try:
                stored = json.loads(text)["cursor"] if text is not None else None
                is_read = is_read and (stored is None or is_cursor(stored))
            except (ValueError, TypeError, LookupError, RecursionError):
                is_read = False
            self._cursor = stored if is_read else None
            if not is_read:
                self._since = None
                await self._put(Entry(None, LogReset("position_unreadable"), None))
        self.applied = self._cursor
        if self._cursor is not None:
            self._since = None

    async def _follow(self) -> None:
        """One connection, and the wait for the next one."""
        begun_at = self._world.now()
        token = request_id = None
        try:
            token = await ask_token(self._settings.token, self._settings.token_timeout)
            exchange = self._http.exchange("GET", self._path(), {"Authorization": f"Bearer {token}"})
            request_id = exchange.request_id
            answer = await asyncio.wait_for(exchange.__aenter__(), self._settings.connect_timeout)
            try:
                if answer.is_expected("text/event-stream"):
                    end = await self._read(answer.pieces())
                else:
                    end = await asyncio.wait_for(answer.refusal(), self._settings.connect_timeout)
            finally:
                await exchange.__aexit__()
        except Exception as cause:
            if token is None:
                policy = "final" if getattr(cause, "final", False) is True else "retry"
                end = Refusal(policy, "token_failed", f"The token callback failed: {cause!r}.")
            else:
                end = lost(cause, "connection_lost")
        if self.is_over:
            return  # wait_for loses a cancellation that comes with the end of the stream
        if end is None:  # the token ends, and the next stream gets a new one, which may be as short-lived
            await self._wait(max(0.0, RENEWAL_SECONDS - (self._world.now() - begun_at)))
            return
        end = replace(end, request_id=end.request_id or request_id)
        if end.policy == "stale":
            await self._stale((end.body or {}).get("details"))
        elif end.policy in ("final", "topic_final"):
            raise end.error()
        elif end.policy == "reauthenticate":
            self._refusals += 1
            if self._refusals >= REFUSALS_MAX:
                raise end.error()
        seconds = back_off(self._attempts, end.retry_after, self._world.random(), self._settings.back_off)
        self._attempts += 1
        status = f"{end.status} " if end.status else ""
        message = f"Following the log again in {seconds:.1f} s after {status}{end.code}: {end.message}"
        self._settings.warn(replace(end, message=message, retry_after=seconds).error())
        await self._wait(seconds)

    def _path(self) -> str:
        start: Dict[str, str] = {}
        if self._cursor is not None:
            start = {"after_cursor": self._cursor}
        elif self._since is not None:
            start = {"from": "head"} if self._since == "head" else {"since": self._since}
        return f"/events?{urlencode({**start, **self._settings.query})}"

    async def _wait(self, seconds: float) -> None:
        over = asyncio.Event()
        timer = self._world.call_later(seconds, over.set)
        try:
            await over.wait()
        finally:
            timer.cancel()

    async def _read(self, pieces: Any) -> Optional[Refusal]:
        """Takes the events of a stream. Its end; None if the next one may begin at once."""
        decoder = EventStreamDecoder()
        hint: Optional[float] = None
        end = Refusal("retry", "stream_ended", "The stream ended.")
        while True:
            try:
                piece = await asyncio.wait_for(pieces.__anext__(), SILENCE_SECONDS)
            except StopAsyncIteration:
                return replace(end, retry_after=hint if end.retry_after is None else end.retry_after)
            self._attempts = self._refusals = 0
            for event in decoder.decode(piece):
                hint = hint_of(event.retry) if event.retry is not None else hint
                if not event.lines:
                    continue
                data = "\n".join(event.lines)
                body = json.loads(data)
                if not isinstance(body, dict):
                    raise BadAnswer("an event is not an object")
                if event.type == "reauth_required" or body.get("code") == "token_expired":
                    return None
                if event.type == "error":
                    end = refusal_of(body)  # the stream ends next
                elif event.type == "stale_cursor":
                    await self._stale(body)  # the start of the log follows
                else:
                    await self._take(event, body, len(data))

    async def _stale(self, body: Any) -> None:
        reasons = body.get("reason_codes") if isinstance(body, dict) else None
        reason = reasons[0] if isinstance(reasons, list) and reasons and isinstance(reasons[0], str) else "stale_cursor"
        self._since = None
        await self._put(Entry(None, LogReset(reason), None))

    async def _take(self, event: Event, body: Dict[str, Any], size: int) -> None:
        cursor = body.get("after_cursor") if event.type == "bootstrap" else event.id
        if event.type not in ("message", "progress", "bootstrap") or not is_cursor(cursor):
            if event.type == "message":
                raise BadAnswer("an event without a cursor")
            return
        assert isinstance(cursor, str)
        if is_later(cursor, self._cursor):  # else it was sent before
            self._since = None
            await self._put(Entry(LogEvent(body) if event.type == "message" else None, None, cursor, size))


class LogEvents:
    """The events of one loop. An event counts as applied when the loop asks for the next one.

    A loop that ends drops this object, which ends its follower.
    """

    def __init__(self, follower: LogFollower, reset: Optional[Callable[[LogReset], Any]]) -> None:
        self._follower = follower
        self._reset = reset
        self._entry: Optional[Entry] = None

    def __aiter__(self) -> LogEvents:
        return self

    async def __anext__(self) -> LogEvent:
        if self._entry:
            self._follower.acknowledge(self._entry)
            self._entry = None
        try:
            while True:
                entry = await self._follower.take()
                if entry is None:
                    break
                if entry.event is not None:
                    self._entry = entry
                    return entry.event
                if entry.reset is not None:
                    await self._handle(entry.reset)
                self._follower.acknowledge(entry)
        except BaseException:
            self._follower.stop()
            raise
        await self._follower.stopped()
        raise StopAsyncIteration

    async def _handle(self, reset: LogReset) -> None:
        if self._reset is None:
            message = f"The log starts again ({reset.reason}). Pass a reset function."
            raise KhalaError("reset_unhandled", message)
        await settled(self._reset(reset))

    def __del__(self) -> None:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return  # the loop has ended, and the follower with it
        self._follower.stop()


class Log:
    """The whole log. It is async iterable, one loop at a time, and an async context manager that ends the loop."""

    def __init__(self, follow: Callable[[], LogFollower], reset: Optional[Callable[[LogReset], Any]]) -> None:
        self._follow = follow
        self._reset = reset
        self._follower: Optional[LogFollower] = None

    @property
    def position(self) -> Optional[str]:
        """The cursor behind the last event that the application applied."""
        return self._follower.applied if self._follower else None

    def __aiter__(self) -> LogEvents:
        if self._follower and not self._follower.is_over:
            raise KhalaError("already_followed", "This log is followed already.")
        self._follower = self._follow()
        return LogEvents(self._follower, self._reset)

    async def each(self, handler: Callable[[LogEvent], Any]) -> None:
        """Calls the handler for each event, one after another. An event is applied when the handler is done."""
        async for event in self:
            await settled(handler(event))

    async def close(self) -> None:
        """Ends the loop, and waits until the last cursor is stored."""
        if self._follower:
            self._follower.stop()
            await self._follower.stopped()

    async def __aenter__(self) -> Log:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()
