"""Appends events: each has an id from the start, so a repeated request never stores a second event."""

from __future__ import annotations

import asyncio
import json
import secrets
import ssl as tls
import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, Callable, List, Mapping, Optional, Tuple

from ._collection import call
from ._connection import TokenCallback, ask_token
from ._errors import KhalaError, Refusal, hint_of
from ._http import BadAnswer, HttpClient, base_of
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
    row: Optional[int]  # in the outbox
    answer: asyncio.Future[Appended]


@dataclass(frozen=True)
class Limits:
    """Bounds of the queue and of a batch. An event waits batch_seconds for others."""

    queue_items: int = 1000
    queue_bytes: int = 8 << 20
    batch_items: int = 200
    batch_bytes: int = 1 << 20
    batch_seconds: float = 0.005


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
        self._world = world or World()
        self._queue: OrderedDict[_Item, None] = OrderedDict()  # in the order of the calls
        self._bytes = 0
        self._room = asyncio.Event()
        self._room.set()
        self._timer: Optional[Timer] = None
        self._sending: Optional[asyncio.Task[None]] = None
        self._token: Optional[Tuple[str, float]] = None  # text, end of its use
        self._closed: Optional[KhalaError] = None
        for row, line in outbox.all() if outbox else []:
            self._put(json.loads(line), line, row)

    def __len__(self) -> int:
        return len(self._queue)

    @property
    def is_full(self) -> bool:
        return len(self._queue) >= self._limits.queue_items or self._bytes >= self._limits.queue_bytes

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
        if self.is_full:
            raise KhalaError("queue_full", "The queue of the producer is full.")
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
        line = json.dumps(event, separators=(",", ":"), allow_nan=False)
        return self._put(event, line, self._outbox.add(line) if self._outbox else None)

    def _put(self, event: Mapping[str, Any], line: str, row: Optional[int]) -> asyncio.Future[Appended]:
        answer: asyncio.Future[Appended] = asyncio.get_running_loop().create_future()
        answer.add_done_callback(_observe)
        own = None if event.get("idempotency_key") else event.get("event_id")
        item = _Item(line.encode() + b"\n", own, row, answer)
        self._queue[item] = None
        self._bytes += len(item.line)
        if self.is_full:
            self._room.clear()
        self._send_soon()
        return answer

    async def room(self) -> None:
        """Waits until the queue has room."""
        await self._room.wait()

    async def flush(self) -> None:
        """Waits until every event has its answer."""
        while self._queue and not self._closed:
            self._send_now()
            if self._sending:
                await asyncio.wait({self._sending})

    async def close(self) -> None:
        """Ends the producer. Events without an answer get the error closed; those in an outbox stay there."""
        self._fail(KhalaError("closed", "The producer is closed."))
        sending = self._sending
        if sending:
            sending.cancel()
            await asyncio.wait({sending})
        self._http.close()

    async def __aenter__(self) -> Producer:
        return self

    async def __aexit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is None:
            await self.flush()
        await self.close()

    # ---- sending ----

    def _send_soon(self) -> None:
        if self._sending or self._closed:
            return
        if len(self._queue) >= self._limits.batch_items or self._bytes >= self._limits.batch_bytes:
            self._send_now()
        elif self._timer is None:
            self._timer = self._world.call_later(self._limits.batch_seconds, self._send_now)

    def _send_now(self) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None
        if self._sending is None and self._queue and not self._closed:
            self._sending = asyncio.ensure_future(self._send_all())

    async def _send_all(self) -> None:
        """One batch at a time, so that events of one entity keep their order."""
        attempts = refusals = 0
        items_max = self._limits.batch_items
        try:
            while self._queue and not self._closed:
                batch = self._next_batch(items_max)
                left, error = await self._send(batch)
                if left < len(batch):
                    attempts = refusals = 0
                if error is None:
                    continue
                if error.policy == "reauthenticate":
                    self._token = None
                    refusals += 1
                if error.policy == "final" or refusals >= REFUSALS_MAX:
                    self._fail(KhalaError(error.code, error.message, status=error.status))
                elif error.status == 413 and len(batch) > 1:
                    items_max = max(1, len(batch) // 2)
                elif error.policy == "topic_final":
                    # A refusal of the whole batch, such as 403: no later attempt can succeed.
                    self._reject(batch, KhalaError(error.code, error.message, status=error.status))
                else:
                    seconds = back_off(attempts, error.retry_after, self._world.random(), self._back_off)
                    attempts += 1
                    await self._wait(seconds)
        finally:
            self._sending = None

    async def _wait(self, seconds: float) -> None:
        over = asyncio.Event()
        timer = self._world.call_later(seconds, over.set)
        try:
            await over.wait()
        finally:
            timer.cancel()

    def _next_batch(self, items_max: int) -> List[_Item]:
        batch: List[_Item] = []
        size = 0
        for item in self._queue:
            if batch and (len(batch) >= items_max or size + len(item.line) > self._limits.batch_bytes):
                break
            batch.append(item)
            size += len(item.line)
        return batch

    async def _send(self, batch: List[_Item]) -> Tuple[int, Optional[Refusal]]:
        """Sends the batch and settles the items that have an answer: how many are left, and the error of the first."""
        try:
            token = await self._fresh_token()
        except Exception as cause:
            is_final = getattr(cause, "final", False) is True
            return len(batch), Refusal("final" if is_final else "retry", "token_failed", f"The token callback failed: {cause!r}.")
        try:
            return await asyncio.wait_for(self._exchange(batch, token), self._request_timeout)
        except Exception as cause:  # of the network, of TLS, of the peer's bytes, a token that is no header
            self._token = None
            return len(batch), Refusal("retry", "connection_lost", f"The request failed: {cause!r}.")

    async def _exchange(self, batch: List[_Item], token: str) -> Tuple[int, Optional[Refusal]]:
        headers = {"Content-Type": MEDIA_TYPE, "Authorization": f"Bearer {token}"}
        body = b"".join(item.line for item in batch)
        async with self._http.exchange("POST", "/v1/events:batch", headers, body) as answer:
            if not answer.is_expected(MEDIA_TYPE):
                return len(batch), await answer.refusal()
            text = bytearray()
            try:
                async for piece in answer.pieces():
                    text += piece
            except (OSError, EOFError, BadAnswer):
                pass  # the answer broke off; the items without an answer are sent again
        return self._answers(batch, bytes(text))

    def _answers(self, batch: List[_Item], text: bytes) -> Tuple[int, Optional[Refusal]]:
        left = dict(enumerate(batch))
        error: Optional[Refusal] = None
        done: List[_Item] = []
        for line in text.split(b"\n"):
            try:
                answer = json.loads(line)
                item = left[answer["index"]]
                status = int(answer["status"])
            except (ValueError, LookupError, TypeError, RecursionError):
                continue  # the answer broke off, or repeats another one
            event, refused = answer.get("event"), answer.get("error")
            members: Mapping[str, Any] = refused if isinstance(refused, dict) else {}
            if isinstance(event, dict) and item.event_id and event.get("event_id") != item.event_id:
                continue  # an answer to other events
            if status == 200 and isinstance(event, dict):
                if not item.answer.done():
                    item.answer.set_result(Appended(event, answer.get("deduplicated") is True))
            elif status in (424, 429) or status >= 500:
                details = members.get("details")
                hint = hint_of(details.get("retry_after_ms")) if isinstance(details, dict) else None
                error = error or Refusal("retry", str(members.get("error")), None, hint, status)
                continue
            else:
                code, message = str(members.get("error", "refused")), members.get("message")
                self._refuse(item, KhalaError(code, message, status=status, details=members.get("details")))
            done.append(left.pop(answer["index"]))
        self._remove(done)
        return len(left), error or (Refusal("retry", "answer_incomplete") if left else None)

    def _reject(self, batch: List[_Item], error: KhalaError) -> None:
        for item in batch:
            self._refuse(item, error)
        self._remove(batch)

    def _refuse(self, item: _Item, error: KhalaError) -> None:
        if not item.answer.done():
            item.answer.set_exception(error)
        if self._rejected:
            rejected, event = self._rejected, json.loads(item.line)
            call(lambda _: rejected(event, error), None)

    def _remove(self, items: List[_Item]) -> None:
        for item in items:
            if item in self._queue:
                del self._queue[item]
                self._bytes -= len(item.line)
        if self._outbox and items:
            # Rows that cannot be removed are sent again by the next process, and change nothing.
            call(self._outbox.remove, [item.row for item in items if item.row is not None])
        if not self.is_full:
            self._room.set()

    async def _fresh_token(self) -> str:
        now = self._world.now()
        if self._token and now < self._token[1]:
            return self._token[0]
        text = await ask_token(self._callback, self._token_timeout)
        life = token_life(text, self._world.wall())
        self._token = (text, now + 0.75 * life if life is not None else float("inf"))
        return text

    def _fail(self, error: KhalaError) -> None:
        if self._closed:
            return
        self._closed = error
        if self._timer:
            self._timer.cancel()
            self._timer = None
        for item in self._queue:
            if not item.answer.done():
                item.answer.set_exception(error)
        self._queue.clear()
        self._bytes = 0
        self._room.set()


def _observe(answer: asyncio.Future[Appended]) -> None:
    """Marks the exception as seen: an application may append without a look at the answers."""
    if not answer.cancelled():
        answer.exception()


new_event_id = event_id  # append() has a parameter of that name
