"""Transports for networks that block WebSockets: an event stream or a long poll for each topic."""

from __future__ import annotations

import asyncio
import codecs
import json
import math
import re
import ssl
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Set
from urllib.parse import quote, urlencode

from ._connection import TransportEvents
from ._errors import Refusal, hint_of, lost, refusal_of
from ._frames import Position
from ._http import Answer, BadAnswer, HttpClient
from ._machine import World
from ._phoenix import HEAD_TIME, reasons_of, start_of
from ._position import Part, Range, first_seq_of, is_seq, read_position, stream_of
from ._subscription import Beginning

EVENT_CHARS_MAX = 64 << 20
POLL_WAIT_MS = 20_000
POLL_PAUSE_SECONDS = 0.26  # the server's least time between polls that have caught up
POLL_PENDING_SECONDS = 1.0  # between polls for a topic that does not exist yet
POLL_FRAMES_MAX = 200
OPTIONAL = ("form", "fold", "conflate_ms")  # they change how much is sent, and not what a client has in the end


class Refused(Exception):
    """The answer is a refusal, or the stream ended with one."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.code)
        self.refusal = refusal


@dataclass(frozen=True)
class Settings:
    url: str
    query: Mapping[str, Any]
    ssl: Optional[ssl.SSLContext]
    unknown: Set[str] = field(default_factory=set)  # parameters that the server does not know


class Stream:
    """One topic of a transport."""

    def __init__(self, name: str, start: Beginning, now: float) -> None:
        self.name = name
        self.start = start
        self.heard_at = now
        self.task: Optional[asyncio.Task[None]] = None


class HttpTransport:
    name = ""
    silence = 0.0  # seconds of a stream without a message

    def __init__(self, settings: Settings, world: World, events: TransportEvents) -> None:
        self._settings = settings
        self._world = world
        self._events = events
        self._http = HttpClient(settings.url, settings.ssl)
        self._token = ""
        self._is_closed = False
        self._streams: Dict[str, Stream] = {}
        self._tasks: Set[asyncio.Task[None]] = set()

    def open(self, token: str) -> None:
        self._token = token
        self._soon(self._events.opened)

    def join(self) -> None:
        # Each stream watches its own silence.
        self._soon(lambda: self._events.joined(1.0, math.inf))

    @staticmethod
    def _soon(act: Callable[[], None]) -> None:
        asyncio.get_running_loop().call_soon(act)

    def refresh(self, token: str) -> None:
        """Every stream begins again with the new token, behind the frames that arrived."""
        self._token = token
        for stream in list(self._streams.values()):
            self.subscribe(stream.name, self._events.position(stream.name), stream.start)
        self._soon(self._events.refreshed)

    def heartbeat(self) -> None:
        now = self._world.now()
        if any(now - stream.heard_at > self.silence for stream in self._streams.values()):
            self._events.closed(Refusal("retry", "silent", "The server sent nothing for too long."))

    def close(self) -> None:
        self._is_closed = True
        for name in list(self._streams):
            self.unsubscribe(name)
        self._http.close()

    async def closed(self) -> None:
        if self._tasks:
            await asyncio.wait(set(self._tasks))

    def unsubscribe(self, name: str) -> None:
        stream = self._streams.pop(name, None)
        if stream and stream.task and stream.task is not asyncio.current_task():
            stream.task.cancel()

    def subscribe(self, name: str, position: Optional[Position], start: Beginning) -> None:
        self.unsubscribe(name)
        stream = self._streams[name] = Stream(name, start, self._world.now())
        stream.task = asyncio.ensure_future(self._run(stream, position))
        self._tasks.add(stream.task)
        stream.task.add_done_callback(self._tasks.discard)

    def is_current(self, stream: Stream) -> bool:
        return not self._is_closed and self._streams.get(stream.name) is stream

    async def _run(self, stream: Stream, position: Optional[Position]) -> None:
        try:
            if position is None and stream.start.since:
                position = await self._place(stream)
            if self.is_current(stream):
                await self.follow(stream, position)
        except Refused as cause:
            self._failed(stream, cause.refusal)
        except Exception as cause:  # an error of the network, of TLS or of the peer's bytes
            self._failed(stream, lost(cause, "connection_lost"))

    async def _place(self, stream: Stream) -> Optional[Position]:
        """Asks for the position of a time. A stream that ends before its first frame would lose it."""
        since = HEAD_TIME if stream.start.since == "head" else stream.start.since
        while True:
            page, _ = await self.read(stream, "messages", {"since": since, "limit": 1, "wait_ms": 0})
            is_pending = page.get("pending") is True
            self._events.pending(stream.name, is_pending)
            if not is_pending:
                break
            await asyncio.sleep(POLL_PENDING_SECONDS)
        frames, bootstrap, through = page.get("messages"), page.get("bootstrap"), read_position(page.get("next_cursor"))
        epoch = page.get("epoch") or (through.epoch if through else None)
        if not self.is_current(stream):
            return None
        if through is None or not isinstance(epoch, str) or not isinstance(frames, list):
            raise BadAnswer("a malformed page")
        from_seq = frames[0].get("seq") if frames else through.seq + 1
        start = start_of(epoch, bootstrap if isinstance(bootstrap, dict) else {"from_seq": from_seq})
        self._events.started(stream.name, start)
        if page.get("replay_complete") is True:
            await asyncio.sleep(POLL_PAUSE_SECONDS)
        return Position(epoch, start.from_seq - 1)

    async def read(self, stream: Stream, route: str, query: Mapping[str, Any]) -> Any:
        """The object that answers a request, and its size."""
        async with self.ask(stream, route, query) as answer:
            await expect(answer, "application/json")
            text = await answer.read()
        body = json.loads(text)
        if not isinstance(body, dict):
            raise BadAnswer("the answer is not an object")
        self.check(stream, body)
        if self.is_current(stream):
            self.heard(stream)
        return body, len(text)

    async def follow(self, stream: Stream, position: Optional[Position]) -> None:
        raise NotImplementedError

    def _failed(self, stream: Stream, refusal: Refusal) -> None:
        if not self.is_current(stream):
            return
        del self._streams[stream.name]
        details = (refusal.body or {}).get("details")
        parameter = details.get("parameter") if isinstance(details, dict) else None
        if refusal.code == "unknown_parameter" and parameter in OPTIONAL and parameter not in self._settings.unknown:
            self._settings.unknown.add(parameter)  # an older server sends more frames without it
            self.subscribe(stream.name, self._events.position(stream.name), stream.start)
        elif refusal.policy == "stale":
            body = refusal.body or {}
            holder = details if isinstance(details, dict) else body
            self._events.stale(stream.name, reasons_of(holder.get("reason_codes")))
        elif refusal.policy == "topic_final":
            self._events.refused(stream.name, refusal)
        elif refusal.status in (409, 429):
            self._events.busy(stream.name, refusal)
        else:
            self._events.closed(refusal)

    def heard(self, stream: Stream) -> None:
        stream.heard_at = self._world.now()
        self._events.heard(True)

    def ask(self, stream: Stream, route: str, query: Mapping[str, Any]) -> Any:
        search = urlencode({**query, **self._settings.query})
        path = f"/v1/topics/{quote(stream.name, safe='')}/{route}?{search}"
        return self._http.exchange("GET", path, {"Authorization": f"Bearer {self._token}"})

    def query_of(self, stream: Stream, position: Optional[Position]) -> Dict[str, Any]:
        query: Dict[str, Any] = {"after_seq": position.seq} if position else {}
        if position and position.epoch is not None:
            query["epoch"] = position.epoch
        for name, value in stream.start.asks().items():
            if name not in self._settings.unknown:
                query[name] = "true" if value is True else value
        return {**query, **self.where_of(stream)}

    @staticmethod
    def where_of(stream: Stream) -> Dict[str, Any]:
        return {"where": stream.start.where} if stream.start.where else {}

    @staticmethod
    def check(stream: Stream, body: Mapping[str, Any]) -> None:
        """Raises if the body is of another topic: something sent bytes of another answer. A lean frame names none."""
        topic = body.get("topic", stream.name)
        if topic != stream.name and (not isinstance(topic, str) or stream_of(topic) != stream.name):
            raise BadAnswer("The answer belongs to another request.")


async def expect(answer: Answer, media_type: str) -> None:
    if not answer.is_expected(media_type):
        raise Refused(await answer.refusal())


class Event:
    """An event of an event stream. One without data is a comment or a hint."""

    def __init__(self) -> None:
        self.type = "message"
        self.lines: List[str] = []
        self.id = ""
        self.retry: Optional[int] = None

    def field(self, line: str) -> None:
        name, _, value = line.partition(":")
        value = value[1:] if value.startswith(" ") else value
        if name == "event":
            self.type = value
        elif name == "data":
            self.lines.append(value)
        elif name == "id":
            self.id = value
        elif name == "retry" and re.fullmatch("[0-9]{1,9}", value):
            self.retry = int(value)


class EventStreamDecoder:
    """Splits the bytes of an event stream into events."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._text = ""
        self._size = 0
        self._event = Event()

    def decode(self, piece: bytes) -> Iterator[Event]:
        text = self._text + self._decoder.decode(piece)
        held = "\r" if text.endswith("\r") else ""  # a line feed may follow it
        *lines, last = re.split("\r\n|\n|\r", text[: len(text) - len(held)])
        self._text = last + held
        for line in lines:
            self._size += len(line)
            if line:
                self._event.field(line)
            else:
                event, self._event, self._size = self._event, Event(), 0
                yield event
        if self._size + len(self._text) > EVENT_CHARS_MAX:
            raise BadAnswer("an event is too long")


class EventStreamTransport(HttpTransport):
    name = "sse"
    silence = 35.0  # two heartbeats and some seconds

    async def follow(self, stream: Stream, position: Optional[Position]) -> None:
        async with self.ask(stream, "sse", self.query_of(stream, position)) as answer:
            await expect(answer, "text/event-stream")
            if position:
                self._events.accepted(stream.name, None)
            topic = EventStream(self, stream, self._events, is_resume=position is not None and position.seq > 0)
            decoder = EventStreamDecoder()
            async for piece in answer.pieces():
                if not self.is_current(stream):
                    return
                self.heard(stream)
                for event in decoder.decode(piece):
                    topic.take(event)
                    if not self.is_current(stream):
                        return
                # The application applies these events before the next ones, or its queue would fill up.
                await asyncio.sleep(0)
            raise Refused(topic.last or Refusal("retry", "stream_ended", None, topic.hint))


class EventStream:
    """The events of one stream in their order."""

    def __init__(self, transport: HttpTransport, stream: Stream, events: TransportEvents, is_resume: bool) -> None:
        self._transport = transport
        self._stream = stream
        self._events = events
        self._is_resume = is_resume
        self._is_known = False
        self._reasons: Optional[List[str]] = None
        self.hint: Optional[float] = None
        self.last: Optional[Refusal] = None

    def take(self, event: Event) -> None:
        if event.retry is not None:
            self.hint = hint_of(event.retry)
        data = "\n".join(event.lines)
        if not data:
            return
        body = json.loads(data)
        if not isinstance(body, dict):
            raise BadAnswer("an event is not an object")
        name = self._stream.name
        if event.type in ("message", "bootstrap", "snapshot"):
            self._transport.check(self._stream, body)
            self._is_known = True
        # The bootstrap says where a topic that does not exist yet begins: it ends no waiting.
        if event.type in ("message", "snapshot") or body.get("pending") is True:
            self._events.pending(name, body.get("pending") is True)
        if event.type in ("message", "progress"):
            self._range(event, body, len(data))
        elif event.type == "stale_cursor":
            self._reasons = reasons_of(body.get("reason_codes"))  # the bootstrap follows
        elif event.type == "bootstrap":
            if self._is_resume and not self._reasons:
                raise BadAnswer("The answer belongs to another request.")
            if body.get("snapshot"):
                self._events.snapshot(name, self._reasons)
            else:
                self._events.started(name, start_of(body.get("epoch"), body, self._reasons))
        elif event.type == "snapshot":
            self._events.part(name, Part(body, len(data)))
        elif event.type == "reauth_required":
            self._events.expiring()
        elif body.get("pending") is not True:
            self.last = refusal_of(body)  # the stream ends next

    def _range(self, event: Event, body: Dict[str, Any], size: int) -> None:
        if not self._is_known:
            return  # progress names no topic, so a frame must have done so
        position = read_position(event.id)
        epoch = position.epoch if position else None
        is_frame = event.type == "message"
        first = first_seq_of(body)
        after = body.pop("after", first - 1 if is_frame and is_seq(first) else None)
        through = body.get("seq") if is_frame else body.get("through")
        self._events.range(self._stream.name, Range(epoch, after, through, [body] if is_frame else [], True, size))


class PollTransport(HttpTransport):
    name = "poll"
    silence = POLL_WAIT_MS / 1000 + 15

    async def follow(self, stream: Stream, position: Optional[Position]) -> None:
        is_first = True
        while True:
            wait_ms = 0 if is_first else POLL_WAIT_MS
            query = {**self.query_of(stream, position), "limit": POLL_FRAMES_MAX, "wait_ms": wait_ms}
            page, size = await self.read(stream, "messages", query)
            if not self.is_current(stream):
                return
            self._events.pending(stream.name, page.get("pending") is True)
            if page.get("pending") is True:
                if position and is_first:
                    self._events.accepted(stream.name, None)
                await asyncio.sleep(POLL_PENDING_SECONDS)
                continue
            position = await self._take(stream, position, page, size, is_first)
            if position is None or not self.is_current(stream):
                return
            is_first = False
            if page.get("replay_complete") is True:
                await asyncio.sleep(POLL_PAUSE_SECONDS)

    async def _take(
        self, stream: Stream, position: Optional[Position], page: Mapping[str, Any], size: int, is_first: bool
    ) -> Optional[Position]:
        # A position without an epoch is answered with one, as N@EPOCH, once the log has had two.
        cursor, bootstrap = read_position(page.get("next_cursor")), page.get("bootstrap")
        epoch = page.get("epoch") or (cursor.epoch if cursor else None)
        if cursor is None or not isinstance(epoch, str):
            raise BadAnswer("a malformed page")
        through = cursor.seq
        after = position.seq if position else None
        if isinstance(bootstrap, dict):
            # A position is refused as stale, never replaced by a start.
            if after:
                raise BadAnswer("The answer belongs to another request.")
            if bootstrap.get("snapshot"):
                return await self._snapshot(stream)
            start = start_of(epoch, bootstrap)
            self._events.started(stream.name, start)
            after = start.from_seq - 1
        elif is_first:
            self._events.accepted(stream.name, epoch)
        is_complete = page.get("replay_complete") is True
        self._events.range(stream.name, Range(epoch, after, through, page.get("messages"), is_complete, size))
        return Position(epoch, through)

    async def _snapshot(self, stream: Stream) -> Optional[Position]:
        self._events.snapshot(stream.name)
        body, size = await self.read(stream, "snapshot", self.where_of(stream))
        if not self.is_current(stream):
            return None
        epoch, at = body.get("epoch"), read_position(body.get("watermark"))
        watermark = at.seq if at else None
        self._events.part(stream.name, Part({**body, "watermark": watermark, "last": True, "part": None}, size))
        return Position(epoch, watermark) if isinstance(epoch, str) and isinstance(watermark, int) else None
