"""Appends events: each has an id from the start, so a repeated request never stores a second event.

The events of one entity keep their order: one request at a time carries some of them. Entities do
not wait for one another.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import ssl as tls
import time
from collections import deque
from copy import copy
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Callable, Deque, Dict, Iterable, List, Mapping, Optional, Set, Tuple

from ._collection import call
from ._connection import TokenCallback, ask_token
from ._errors import KhalaError, Refusal, hint_of, lost
from ._http import BadAnswer, Exchange, HttpClient, base_of
from ._machine import BackOff, Timer, World, back_off, token_life
from .outbox import Outbox

REFUSALS_MAX = 3
MEDIA_TYPE = "application/x-ndjson"

_last_ms = 0


def event_id(wall: Optional[float] = None) -> str:
    """A UUIDv7 whose time never goes back within this process."""
    global _last_ms
    _last_ms = max(_last_ms, int((time.time() if wall is None else wall) * 1000))
    number = _last_ms << 80 | secrets.randbits(80)
    number = number & ~(0xF << 76) | 0x7 << 76
    number = number & ~(0x3 << 62) | 0x2 << 62
    text = f"{number:032x}"
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


@dataclass(frozen=True)
class Appended:
    """The server's answer: the event as it is stored, and whether an earlier request stored it."""

    event: Mapping[str, Any]
    deduplicated: bool

    @property
    def event_id(self) -> str:
        return str(self.event["event_id"])

    @property
    def seq(self) -> int:
        return int(self.event["seq"])

    @property
    def cursor(self) -> str:
        return str(self.event["cursor"])


@dataclass(eq=False)
class _Item:
    line: bytes
    event_id: Optional[str]  # None if an idempotency key may answer an earlier event
    row: Optional[int]  # its row in the outbox
    lane: _Lane
    answer: asyncio.Future[Appended]
    number: int  # counts the calls


@dataclass(eq=False)
class _Lane:
    """The events of one entity that have no answer. It is in the ready ones, in a request, or waits."""

    key: str
    items: Deque[_Item] = field(default_factory=deque)  # those that are in no request
    count: int = 0
    size: int = 0  # bytes
    is_sent: bool = False
    attempts: int = 0  # refused ones since the last stored event
    timer: Optional[Timer] = None


Batch = Dict[_Lane, List[_Item]]


@dataclass(frozen=True)
class Limits:
    """Bounds of the queue, of a batch and of the requests at one time. An event waits batch_seconds for others."""

    queue_items: int = 1000
    queue_bytes: int = 8 << 20
    batch_items: int = 200
    batch_bytes: int = 1 << 20
    batch_seconds: float = 0.005
    requests: int = 4


def _name_of(event: Mapping[str, Any]) -> str:
    """The entity of an event, for people, and as a key; empty if it names none."""
    kinds = (("run_id", "run"), ("worker_id", "worker"), ("topic", "topic"), ("audit", "audit"))
    return ", ".join(f"{kind} {event[name]}" for name, kind in kinds if event.get(name) is not None)


class Producer:
    """Appends to one server. Use it in a running event loop, as `async with Producer(url, token=…)`.

    rejected(event, error) is called for each event that the server refuses for good, also for those
    that an earlier process left in the outbox.
    """

    def __init__(
        self,
        url: str,
        *,
        token: TokenCallback,
        limits: Limits = Limits(),
        outbox: Optional[Outbox] = None,
        rejected: Optional[Callable[[Mapping[str, Any], KhalaError], Any]] = None,
        back_off: BackOff = BackOff(),
        token_timeout: float = 15.0,
        request_timeout: float = 30.0,
        close_timeout: float = 10.0,
        ssl: Optional[tls.SSLContext] = None,
        world: Optional[World] = None,
    ) -> None:
        if not callable(token):
            raise TypeError("token must be a function that answers a token")
        self._http = HttpClient(base_of(url), ssl)
        self._callback = token
        self._limits = limits
        self._outbox = outbox
        self._rejected = rejected
        self._back_off = back_off
        self._token_timeout = token_timeout
        self._request_timeout = request_timeout
        self._close_timeout = close_timeout
        self._world = world or World()
        self._warners: Set[Callable[[KhalaError], Any]] = set()
        self._items: Dict[_Item, None] = {}  # those without an answer
        self._bytes = 0
        self._number = 0
        self._lanes: Dict[str, _Lane] = {}
        self._ready: Dict[_Lane, None] = {}  # the lane of the next turn is the first
        self._ready_items = 0
        self._ready_bytes = 0
        self._items_max = limits.batch_items
        self._requests: Set[asyncio.Task[None]] = set()
        self._timer: Optional[Timer] = None  # runs while the events that came wait for others
        self._pause: Optional[Timer] = None  # runs after a request that failed as a whole
        self._attempts = 0
        self._refusals = 0
        self._token: Optional[Tuple[str, float]] = None  # text, end of its use
        self._asking: Optional[asyncio.Task[str]] = None
        self._warning: Optional[KhalaError] = None
        self._is_closing = False
        self._closed: Optional[KhalaError] = None
        self._answered = asyncio.Event()  # set whenever events got their answers
        for row, line in outbox.all() if outbox else []:
            self._put(json.loads(line), line, row)

    def __len__(self) -> int:
        return len(self._items)

    @property
    def is_full(self) -> bool:
        return len(self._items) >= self._limits.queue_items or self._bytes >= self._limits.queue_bytes

    def _has_room(self, lane: Optional[_Lane]) -> bool:
        """Whether the entity may have one more event. A refused one leaves as much of the queue free as it uses."""
        if self.is_full:
            return False
        if lane is None or lane.attempts == 0:
            return True
        free_items, free_bytes = self._limits.queue_items - len(self._items), self._limits.queue_bytes - self._bytes
        return lane.count <= free_items and lane.size <= free_bytes

    def on_warning(self, listener: Callable[[KhalaError], Any]) -> Callable[[], None]:
        """Calls the listener for each failed attempt that the producer repeats; the returned function ends that.

        The message says what failed and when the next attempt is. The error also has code, status,
        request_id and, as retry_after, the seconds until then.
        """

        def one(error: KhalaError) -> None:
            listener(error)

        self._warners.add(one)
        return lambda: self._warners.discard(one)

    def append(
        self,
        *,
        run_id: Optional[str] = None,
        worker_id: Optional[str] = None,
        topic: Optional[str] = None,
        event_type: Optional[str] = None,
        payload: Optional[Mapping[str, Any]] = None,
        event_id: Optional[str] = None,
        idempotency_key: Optional[str] = None,
        expected_previous_seq: Optional[int] = None,
        **more: Any,
    ) -> asyncio.Future[Appended]:
        """Queues an event for a run, a worker or a topic. Await the answer of the server, or go on without it.

        A full queue raises queue_full at once: await room(), then append again. Cancelling the
        answer does not withdraw the event.
        """
        if self._closed:
            raise self._closed
        if self._is_closing:
            raise KhalaError("closed", "The producer is being closed.")
        named = {
            "event_id": event_id or new_event_id(self._world.wall()),
            "run_id": run_id,
            "worker_id": worker_id,
            "topic": topic,
            "event_type": event_type,
            "payload": payload,
            "idempotency_key": idempotency_key,
            "expected_previous_seq": expected_previous_seq,
        }
        event = {**{name: value for name, value in named.items() if value is not None}, **more}
        if not self._has_room(self._lanes.get(_name_of(event))):
            blocked = f"Too many events wait for {_name_of(event)}, which the server refuses for now."
            raise KhalaError("queue_full", "The queue of the producer is full." if self.is_full else blocked)
        line = json.dumps(event, separators=(",", ":"), allow_nan=False)
        return self._put(event, line, self._outbox.add(line) if self._outbox else None)

    def _put(self, event: Mapping[str, Any], line: str, row: Optional[int]) -> asyncio.Future[Appended]:
        answer: asyncio.Future[Appended] = asyncio.get_running_loop().create_future()
        answer.add_done_callback(_observe)
        own = None if event.get("idempotency_key") else event.get("event_id")
        key = _name_of(event)
        lane = self._lanes.setdefault(key, _Lane(key))
        item = _Item(line.encode() + b"\n", own, row, lane, answer, self._number)
        self._number += 1
        self._items[item] = None
        self._bytes += len(item.line)
        lane.count += 1
        lane.size += len(item.line)
        lane.items.append(item)
        if lane in self._ready:
            self._ready_items += 1
            self._ready_bytes += len(item.line)
        elif not lane.is_sent and lane.timer is None:
            self._make_ready(lane)
        if self._ready_items >= self._limits.batch_items or self._ready_bytes >= self._limits.batch_bytes:
            self._send()
        elif self._timer is None and not self._pause and self._ready:
            self._timer = self._world.call_later(self._limits.batch_seconds, self._send)
        return answer

    async def room(
        self, *, run_id: Optional[str] = None, worker_id: Optional[str] = None, topic: Optional[str] = None
    ) -> None:
        """Waits until the queue has room for an event of that entity; without one, of any entity."""
        key = _name_of({"run_id": run_id, "worker_id": worker_id, "topic": topic})

        def has_room() -> bool:
            if key:
                return self._has_room(self._lanes.get(key))
            return not self.is_full and all(self._has_room(lane) for lane in self._lanes.values())

        while not self._closed and not has_room():
            await self._next_answer()

    async def flush(self) -> None:
        """Waits until every event that was appended before has its answer."""
        self._send()
        end = self._number
        while self._items and next(iter(self._items)).number < end and not self._closed:
            await self._next_answer()

    async def _next_answer(self) -> None:
        self._answered.clear()
        await self._answered.wait()

    async def close(self, timeout: Optional[float] = None) -> None:
        """Sends what is queued, waits for the answers, and ends the producer.

        After close_timeout seconds, or the given number, the events without an answer get the error
        closed. Those in an outbox stay there for the next process.
        """
        self._is_closing = True
        flushing = asyncio.ensure_future(self.flush())
        seconds = self._close_timeout if timeout is None else timeout
        late = self._world.call_later(seconds, partial(_cancel, flushing))
        try:
            await asyncio.wait({flushing})
        finally:
            late.cancel()
            flushing.cancel()
            self._fail(KhalaError("closed", self._last_words()))
            for task in (*self._requests, *([self._asking] if self._asking else [])):
                task.cancel()
            self._http.close()
        if self._requests:
            await asyncio.wait(set(self._requests))

    def _last_words(self) -> str:
        if not self._items:
            return "The producer is closed."
        cause = f" The last attempt failed: {self._warning}" if self._warning else ""
        again = "Some may be stored: append them again with their event_id."
        where = "The outbox keeps them." if self._outbox else again
        return f"The producer was closed while {_count(len(self._items))} had no answer. {where}{cause}"

    async def __aenter__(self) -> Producer:
        return self

    async def __aexit__(self, kind: Any, error: Any, trace: Any) -> None:
        # A task that was cancelled does not wait for the server.
        await self.close(None if kind is None or issubclass(kind, Exception) else 0)

    # ---- sending ----

    def _make_ready(self, lane: _Lane) -> None:
        self._ready[lane] = None
        self._ready_items += len(lane.items)
        self._ready_bytes += sum(len(item.line) for item in lane.items)

    def _send(self) -> None:
        """Starts requests while entities are ready. Whatever ends a request or a wait calls it again."""
        if self._timer:
            self._timer.cancel()
            self._timer = None
        while self._ready and len(self._requests) < self._limits.requests and not self._pause and not self._closed:
            task = asyncio.ensure_future(self._carry(self._next_batch()))
            self._requests.add(task)
            task.add_done_callback(self._requests.discard)

    def _next_batch(self) -> Batch:
        """Events of the ready entities, in their turns. An entity whose events do not all fit comes again later."""
        batch: Batch = {}
        count = size = 0
        for lane in list(self._ready):
            if count >= self._items_max:
                break
            taken: List[_Item] = []
            while lane.items and count < self._items_max:
                if count and size + len(lane.items[0].line) > self._limits.batch_bytes:
                    break
                item = lane.items.popleft()
                taken.append(item)
                count += 1
                size += len(item.line)
            if not taken:
                break
            del self._ready[lane]
            lane.is_sent = True
            batch[lane] = taken
            self._ready_items -= len(taken) + len(lane.items)
            self._ready_bytes -= sum(len(item.line) for item in (*taken, *lane.items))
        return batch

    async def _carry(self, batch: Batch) -> None:
        """One request with a batch, and what follows from its answer."""
        items = [item for taken in batch.values() for item in taken]
        refused: Dict[_Lane, Refusal] = {}
        error: Optional[Refusal] = None
        token = request_id = None
        try:
            token = await self._fresh_token()
            headers = {"Content-Type": MEDIA_TYPE, "Authorization": f"Bearer {token}"}
            body = b"".join(item.line for item in items)
            exchange = self._http.exchange("POST", "/v1/events:batch", headers, body)
            request_id = exchange.request_id
            error = await asyncio.wait_for(self._exchange(items, exchange, refused), self._request_timeout)
        except Exception as cause:
            if token is None:
                policy = "final" if getattr(cause, "final", False) is True else "retry"
                error = Refusal(policy, "token_failed", f"The token callback failed: {cause!r}.")
            else:
                error = lost(cause, "connection_lost", request_id)
                self._token = None
        # This task is over: without a wait, so that an event that comes now is sent by what follows.
        task = asyncio.current_task()
        assert task is not None
        self._requests.discard(task)
        if self._closed:
            return
        if error is None:
            self._attempts = self._refusals = 0
        elif error.status == 413 and len(items) > 1:
            self._items_max = max(1, len(items) // 2)
        elif error.policy == "topic_final" or error.status == 413:
            # A refusal of the whole batch, such as 403: no later attempt can succeed.
            for item in items:
                self._refuse(item, error.error())
            self._remove(items)
        else:
            self._wait_after(error, token, len(items))
        self._give_back(batch, refused)
        if not self._items:
            self._items_max = self._limits.batch_items
        self._send()

    async def _exchange(
        self, items: List[_Item], exchange: Exchange, refused: Dict[_Lane, Refusal]
    ) -> Optional[Refusal]:
        """The refusal of the whole batch. Entities whose events were not all settled are in refused."""
        async with exchange as answer:
            if not answer.is_expected(MEDIA_TYPE):
                return await answer.refusal()
            text = bytearray()
            try:
                async for piece in answer.pieces():
                    text += piece
            except (OSError, EOFError, BadAnswer):
                pass  # the answer broke off; the items without an answer are sent again
        self._answers(items, bytes(text), exchange.request_id, refused)
        return None

    def _answers(self, items: List[_Item], text: bytes, request_id: str, refused: Dict[_Lane, Refusal]) -> None:
        left = dict(enumerate(items))
        done: List[_Item] = []
        for line in text.split(b"\n"):
            try:
                answer = json.loads(line)
                item = left[answer["index"]]
                status = int(answer["status"])
            except (ValueError, LookupError, TypeError, RecursionError):
                continue  # the answer broke off, or repeats another one
            event, error = answer.get("event"), answer.get("error")
            members: Mapping[str, Any] = error if isinstance(error, dict) else {}
            if isinstance(event, dict) and item.event_id and event.get("event_id") != item.event_id:
                continue  # an answer to other events
            code, details = str(members.get("error", "refused")), members.get("details")
            message = members.get("message")
            given_id = str(members.get("request_id", request_id))
            if status in (424, 429) or status >= 500:
                hint = hint_of(details.get("retry_after_ms")) if isinstance(details, dict) else None
                refused.setdefault(item.lane, Refusal("retry", code, message, hint, status, None, given_id))
                continue
            if status == 200 and isinstance(event, dict):
                item.lane.attempts = 0
                if not item.answer.done():
                    item.answer.set_result(Appended(event, answer.get("deduplicated") is True))
            else:
                self._refuse(item, KhalaError(code, message, status=status, details=details, request_id=given_id))
            done.append(left.pop(answer["index"]))
        for item in left.values():
            message = "The answer of the server broke off."
            refused.setdefault(item.lane, Refusal("retry", "answer_incomplete", message, request_id=request_id))
        self._remove(done)

    def _give_back(self, batch: Batch, refused: Mapping[_Lane, Refusal]) -> None:
        """Entities go on, or wait after a refusal of their own."""
        reasons: Dict[Tuple[str, Optional[int]], Tuple[Refusal, List[_Lane], List[float]]] = {}
        for lane, taken in batch.items():
            lane.is_sent = False
            lane.items.extendleft(item for item in reversed(taken) if item in self._items)
            if not lane.items:
                self._lanes.pop(lane.key, None)
            elif lane in refused:
                refusal = refused[lane]
                seconds = back_off(lane.attempts, refusal.retry_after, self._world.random(), self._back_off)
                lane.attempts += 1
                lane.timer = self._world.call_later(seconds, partial(self._go_on, lane))
                _, lanes, waits = reasons.setdefault((refusal.code, refusal.status), (refusal, [], []))
                lanes.append(lane)
                waits.append(seconds)
            else:
                self._make_ready(lane)
        for refusal, lanes, waits in reasons.values():
            count = sum(lane.count for lane in lanes)
            entity = lanes[0].key if len(lanes) == 1 else None
            what = f"{_count(count)} of {entity or f'{len(lanes)} entities'}"
            self._warn(refusal, what, min(waits), entity)

    def _go_on(self, lane: _Lane) -> None:
        lane.timer = None
        self._make_ready(lane)
        self._send()

    def _wait_after(self, error: Refusal, token: Optional[str], count: int) -> None:
        """A request failed as a whole: no other one would do better now."""
        if error.policy == "reauthenticate" and self._token and self._token[0] == token:
            self._token = None
            self._refusals += 1
        if error.policy == "final" or self._refusals >= REFUSALS_MAX:
            self._fail(error.error())
        elif self._pause is None:
            seconds = back_off(self._attempts, error.retry_after, self._world.random(), self._back_off)
            self._attempts += 1
            self._pause = self._world.call_later(seconds, self._resume)
            self._warn(error, _count(count), seconds)

    def _resume(self) -> None:
        self._pause = None
        self._send()

    def _warn(self, error: Refusal, what: str, seconds: float, entity: Optional[str] = None) -> None:
        status = f"{error.status} " if error.status else ""
        reason = f": {error.message}" if error.message else ""
        request = f" (request {error.request_id})" if error.request_id else ""
        message = f"Retrying {what} in {seconds:.1f} s after {status}{error.code}{reason}{request}"
        self._warning = replace(error, message=message, retry_after=seconds).error()
        self._warning.entity = entity
        for warner in list(self._warners):
            call(warner, self._warning)

    def _refuse(self, item: _Item, error: KhalaError) -> None:
        event = json.loads(item.line)
        error.event_id = event.get("event_id")
        if not item.answer.done():
            item.answer.set_exception(error)
        if self._rejected:
            rejected = self._rejected
            call(lambda _: rejected(event, error), None)

    def _remove(self, items: Iterable[_Item]) -> None:
        """Takes the items that have their answers out of the queue."""
        rows: List[int] = []
        for item in items:
            if item in self._items:
                del self._items[item]
                self._bytes -= len(item.line)
                item.lane.count -= 1
                item.lane.size -= len(item.line)
                if item.row is not None:
                    rows.append(item.row)
        if self._outbox and rows:
            # Rows that cannot be removed are sent again by the next process, and change nothing.
            call(self._outbox.remove, rows)
        self._answered.set()

    async def _fresh_token(self) -> str:
        """The token of all requests at a time. One call of the application is for all that wait."""
        if self._token and self._world.now() < self._token[1]:
            return self._token[0]
        if self._asking is None:
            self._asking = asyncio.ensure_future(self._ask())
            self._asking.add_done_callback(_observe)
        return await asyncio.shield(self._asking)

    async def _ask(self) -> str:
        try:
            now = self._world.now()
            text = await ask_token(self._callback, self._token_timeout)
            life = token_life(text, self._world.wall())
            self._token = (text, now + 0.75 * life if life is not None else float("inf"))
            return text
        finally:
            self._asking = None

    def _fail(self, error: KhalaError) -> None:
        if self._closed:
            return
        self._closed = error
        for timer in (self._timer, self._pause, *(lane.timer for lane in self._lanes.values())):
            if timer:
                timer.cancel()
        for item in self._items:
            if not item.answer.done():
                own = copy(error)
                own.event_id = json.loads(item.line).get("event_id")
                item.answer.set_exception(own)
        self._items.clear()
        self._lanes.clear()
        self._ready.clear()
        self._bytes = 0
        self._answered.set()


def _count(events: int) -> str:
    return "1 event" if events == 1 else f"{events} events"


def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()


def _observe(answer: asyncio.Future[Any]) -> None:
    """Marks the exception as seen: an application may append without a look at the answers."""
    if not answer.cancelled():
        answer.exception()


new_event_id = event_id  # append() has a parameter of that name
