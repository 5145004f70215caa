"""The main transport: all topics over one WebSocket, in the Phoenix dialect.

One socket can carry many topics, refuse one of them, and take a new token, which a topic's own
WebSocket cannot.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import ssl
from dataclasses import dataclass, field, replace
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple
from urllib.parse import quote

from ._connection import TransportEvents
from ._errors import Refusal, lost, policy_of, refusal_of
from ._frames import Position
from ._http import refusal_of_answer
from ._machine import World
from ._position import Part, Range, is_seq, read_position, stream_of
from ._subscription import Beginning, Start
from ._websocket import ConnectionClosed, HandshakeRefused, close_code_of, open_websocket

CHANNEL = "sync:v1"
TOPICS_PER_PUSH = 100
REPLY_SECONDS = 20.0
HEAD_TIME = "9999-12-31T00:00:00Z"  # a time of the future means the head

Replied = Callable[[str, Mapping[str, Any]], None]


@dataclass(frozen=True)
class Settings:
    url: str
    join: Mapping[str, Any]
    ssl: Optional[ssl.SSLContext]
    connect_timeout: float


@dataclass(frozen=True)
class Want:
    name: str
    position: Optional[Position]
    start: Beginning = field(default_factory=Beginning)
    is_alone: bool = False


def reasons_of(codes: Any) -> Optional[List[str]]:
    named = [one for one in codes if isinstance(one, str)] if isinstance(codes, list) else []
    return named or None


def start_of(epoch: Any, bootstrap: Mapping[str, Any], reasons: Optional[Sequence[str]] = None) -> Start:
    from_seq = bootstrap.get("from_seq")
    if not isinstance(epoch, str) or not isinstance(from_seq, int) or not is_seq(from_seq) or from_seq < 1:
        raise ValueError("not a start of a history")
    return Start(epoch, from_seq, bootstrap.get("truncated") is True, reasons)


class PhoenixTransport:
    name = "websocket"

    def __init__(self, settings: Settings, world: World, events: TransportEvents) -> None:
        self._settings = settings
        self._world = world
        self._events = events
        self._task: Optional[asyncio.Task[None]] = None
        self._outbox: asyncio.Queue[str] = asyncio.Queue()
        self._is_closed = False
        self._ref = 0
        self._pushes: Dict[str, Tuple[Replied, float]] = {}  # ref: what to do with the reply, time
        self._wanted: Dict[str, Want] = {}
        self._names: Dict[str, str] = {}  # topic or stream id of the server: name of the application
        self._last_error: Any = None
        self._request_id = secrets.token_hex(16)  # names the connection in the server's log
        self._is_flushing = False

    # ---- the socket ----

    def open(self, token: str) -> None:
        self._task = asyncio.ensure_future(self._run(token))

    async def _run(self, token: str) -> None:
        base = "ws" + self._settings.url[len("http") :]
        address = f"{base}/socket/websocket?vsn=2.0.0&token={quote(token, safe='')}"
        request_id = self._request_id
        try:
            socket = await open_websocket(
                address, {"x-request-id": request_id}, self._settings.ssl, self._settings.connect_timeout
            )
        except HandshakeRefused as cause:
            self._events.closed(refusal_of_answer(cause.status, cause.headers, cause.body, request_id))
            return
        except Exception as cause:  # an error of the network, of TLS or of the peer's bytes
            self._events.closed(lost(cause, "connect_failed", request_id))
            return
        writing = asyncio.ensure_future(self._write(socket))
        try:
            if not self._is_closed:
                self._events.opened()
            await self._read(socket)
        finally:
            writing.cancel()
            await self._close_socket(socket)

    async def _read(self, socket: Any) -> None:
        while not self._is_closed:
            try:
                data = await socket.recv()
            except ConnectionClosed as end:
                self._ended(close_code_of(end))
                return
            try:
                self._received(data)
            except Exception:
                message = "The server sent something that is not a message."
                self._events.closed(Refusal("retry", "invalid_message", message, request_id=self._request_id))
            # The application applies this message before the next one, or its queue would fill up.
            await asyncio.sleep(0)

    async def _write(self, socket: Any) -> None:
        try:
            while True:
                await socket.send(await self._outbox.get())
        except ConnectionClosed:
            return  # the read ends too, and reports it

    @staticmethod
    async def _close_socket(socket: Any) -> None:
        try:
            await socket.close(1000)
        except (OSError, ConnectionClosed, asyncio.TimeoutError):
            return  # it is closed

    def _ended(self, code: int) -> None:
        refusal = self._refusal(self._last_error, close=code)
        self._events.closed(replace(refusal, message=refusal.message or f"The connection was closed with {code}."))

    def _refusal(self, body: Any, close: Optional[int] = None) -> Refusal:
        refusal = refusal_of(body, close=close)
        return replace(refusal, request_id=refusal.request_id or self._request_id)

    def close(self) -> None:
        self._is_closed = True
        if self._task and self._task is not asyncio.current_task():
            self._task.cancel()

    async def closed(self) -> None:
        if self._task:
            await asyncio.wait({self._task})

    # ---- pushes ----

    def join(self) -> None:
        def replied(status: str, response: Mapping[str, Any]) -> None:
            if status != "ok":
                self._events.closed(self._refusal(response))
                return
            server = response.get("server")
            interval = server.get("heartbeat_interval_ms") if isinstance(server, dict) else None
            self._events.joined(interval / 1000 if isinstance(interval, (int, float)) else None)

        self._push("phx_join", self._settings.join, replied)

    def refresh(self, token: str) -> None:
        def replied(status: str, response: Mapping[str, Any]) -> None:
            if status == "ok":
                self._events.refreshed()
            else:
                policy = "final" if policy_of(response) == "final" else "reauthenticate"
                self._events.closed(replace(self._refusal(response), policy=policy))

        self._push("sync:refresh", {"token": token}, replied)

    def heartbeat(self) -> None:
        first = next(iter(self._pushes.values()), None)
        if first and self._world.now() - first[1] > REPLY_SECONDS:
            message = "The server did not reply."
            self._events.closed(Refusal("retry", "silent", message, request_id=self._request_id))
            return
        self._ref += 1
        self._send([None, str(self._ref), "phoenix", "heartbeat", {}])

    def subscribe(self, name: str, position: Optional[Position], start: Beginning) -> None:
        self._want(Want(name, position, start))

    def unsubscribe(self, name: str) -> None:
        self._wanted.pop(name, None)
        self._push("sync:unsubscribe", {"topics": [name]}, lambda status, response: None)

    def _want(self, want: Want) -> None:
        self._wanted[want.name] = want
        if not self._is_flushing:
            self._is_flushing = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        """Sends the wanted subscriptions, as few pushes as possible."""
        self._is_flushing = False
        groups: Dict[Any, List[Want]] = {}
        for want in self._wanted.values():
            groups.setdefault(want.name if want.is_alone else want.start, []).append(want)
        self._wanted.clear()
        for wants in groups.values():
            for i in range(0, len(wants), TOPICS_PER_PUSH):
                self._subscribe_all(wants[i : i + TOPICS_PER_PUSH])

    def _subscribe_all(self, wants: List[Want]) -> None:
        payload: Dict[str, Any] = {
            "topics": [want.name for want in wants],
            "resume_after": [
                {
                    "topic": want.name,
                    "watermark": want.position.seq,
                    **({} if want.position.epoch is None else {"epoch": want.position.epoch}),
                }
                for want in wants
                if want.position
            ],
        }
        start = wants[0].start
        payload.update(start.asks())
        if start.where:
            payload["where"] = json.loads(start.where)
        if start.since:
            payload["since"] = HEAD_TIME if start.since == "head" else start.since

        def replied(status: str, response: Mapping[str, Any]) -> None:
            if status == "ok":
                self._accepted(wants, response)
            else:
                self._refused(wants, response)

        self._push("sync:subscribe", payload, replied)

    def _accepted(self, wants: List[Want], response: Mapping[str, Any]) -> None:
        open_names = {want.name for want in wants}
        is_pending = response.get("pending") is True
        for window in response.get("windows") or []:
            names = [window.get("topic"), window.get("stream_id")]
            name = next((one for one in names if one in open_names), None)
            if name is None:
                continue
            self._names.update({alias: name for alias in names if isinstance(alias, str)})
            open_names.discard(name)
            self._events.pending(name, window.get("pending") is True or (is_pending and len(wants) == 1))
            epoch, bootstrap = window.get("epoch"), window.get("bootstrap")
            if not isinstance(bootstrap, dict):
                after = read_position(window.get("resume_after"))
                self._events.accepted(name, epoch if isinstance(epoch, str) else None, after.seq if after else None)
            elif bootstrap.get("snapshot"):
                self._events.snapshot(name)
            else:
                self._events.started(name, start_of(epoch, bootstrap))
        for name in open_names:
            self._events.pending(name, is_pending)

    def _refused(self, wants: List[Want], body: Mapping[str, Any]) -> None:
        """A subscribe is all or nothing. The topics that caused the error get it, and the others try again."""
        refusal = self._refusal(body)
        listed = self._stale_of(body) if refusal.policy == "stale" else self._forbidden_of(body)
        is_listed = any(want.name in listed for want in wants)
        # Of several refused topics the body has the reason of the first alone.
        is_shared = refusal.policy != "stale" and len(listed) > 1
        for want in wants:
            if len(wants) > 1 and (want.name not in listed or is_shared):
                self._want(replace(want, is_alone=not is_listed or want.name in listed))
            elif refusal.policy == "stale":
                self._events.stale(want.name, listed.get(want.name) or reasons_of(body.get("reason_codes")))
            else:
                self._topic_failed(want.name, refusal)

    def _topic_failed(self, name: Optional[str], refusal: Refusal) -> None:
        if refusal.policy == "topic_final":
            self._events.refused(name, refusal)
        elif refusal.policy == "retry":
            self._events.busy(name, refusal)
        else:
            self._events.closed(refusal)

    @staticmethod
    def _forbidden_of(body: Mapping[str, Any]) -> Dict[str, Optional[List[str]]]:
        topics = [one.get("topic") if isinstance(one, dict) else one for one in body.get("forbidden_topics") or []]
        return {topic: None for topic in topics if isinstance(topic, str)}

    @staticmethod
    def _stale_of(body: Mapping[str, Any]) -> Dict[str, Optional[List[str]]]:
        return {
            name: reasons_of(one.get("reason_codes"))
            for one in body.get("stale_topics") or []
            for name in (one.get("topic"), one.get("stream_id"))
            if isinstance(name, str)
        }

    def _push(self, event: str, payload: Mapping[str, Any], replied: Replied) -> None:
        self._ref += 1
        self._pushes[str(self._ref)] = (replied, self._world.now())
        self._send(["1", str(self._ref), CHANNEL, event, payload])

    def _send(self, message: List[Any]) -> None:
        self._outbox.put_nowait(json.dumps(message, separators=(",", ":")))

    # ---- messages ----

    def _received(self, data: Any) -> None:
        message = json.loads(data)
        _, ref, channel, event, body = message
        if not isinstance(message, list) or not isinstance(body, dict):
            raise ValueError("not a message")
        self._events.heard(channel == CHANNEL)
        if channel != CHANNEL:
            return
        if event != "sync:error":
            self._last_error = None  # an error before a close is the last message
        if event == "phx_reply":
            push = self._pushes.pop(ref, None) if isinstance(ref, str) else None
            if push:
                response = body.get("response")
                push[0](str(body.get("status")), response if isinstance(response, dict) else {})
        elif event == "sync:update_batch":
            is_complete = body.get("replay_complete") is True
            given = Range(
                body.get("epoch"), body.get("after"), body.get("through"), body.get("updates"), is_complete, len(data)
            )
            self._events.range(self._name_of(body), given)
        elif event == "sync:snapshot":
            self._events.part(self._name_of(body), Part(body, len(data)))
        elif event == "sync:heartbeat":
            for one in body.get("covered") or []:
                self._events.covered(self._name_of(one), Range(one.get("epoch"), one.get("after"), one.get("through"), []))
        elif event == "sync:error":
            self._failed(body)
        elif event in ("phx_error", "phx_close"):
            self._events.closed(self._refusal(body))

    def _name_of(self, body: Mapping[str, Any]) -> Optional[str]:
        topic = body.get("topic")
        if not isinstance(topic, str):
            return None
        name = self._names.get(topic)
        return name if name is not None else self._names.get(stream_of(topic), topic)

    def _failed(self, body: Mapping[str, Any]) -> None:
        code = body.get("code")
        if code == "reauth_required":
            self._events.expiring()
        elif code == "stale_cursor":
            stale = {self._names.get(topic, topic): reasons for topic, reasons in self._stale_of(body).items()}
            for name, reasons in stale.items():
                self._events.stale(name, reasons)
        elif isinstance(body.get("topic"), str) and policy_of(body) == "topic_final":
            self._topic_failed(self._name_of(body), self._refusal(body))
        else:
            self._last_error = body  # the close that follows has only a code
