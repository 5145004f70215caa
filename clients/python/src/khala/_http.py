"""HTTP/1.1 requests over asyncio, for the producer and for networks that block WebSockets.

Bodies are read piece by piece, so that an event stream is an answer like any other. Everything that
the peer sends is bounded, and anything malformed raises BadAnswer.
"""

from __future__ import annotations

import asyncio
import json
import re
import secrets
import ssl
from dataclasses import replace
from typing import Any, AsyncIterator, Dict, List, Mapping, Optional, Tuple
from urllib.parse import urlsplit

from ._errors import Refusal, hint_of, refusal_of

HEAD_BYTES_MAX = 1 << 16
BODY_BYTES_MAX = 64 << 20
REFUSAL_BYTES_MAX = 1 << 20
PIECE_BYTES = 1 << 16
SPARES_MAX = 4


class BadAnswer(Exception):
    """The answer is malformed, breaks off, or belongs to another request."""


def base_of(url: str) -> str:
    """The address of the server as http or https, without a slash at its end."""
    parts = urlsplit(url)
    scheme = {"ws": "http", "wss": "https"}.get(parts.scheme, parts.scheme)
    if scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise ValueError(f"not the address of a server: {url}")
    return f"{scheme}://{parts.netloc}{parts.path.rstrip('/')}"


def refusal_of_answer(status: int, headers: Mapping[str, str], body: bytes, request_id: str) -> Refusal:
    """An error answer. One without the server's own body comes from something between client and server."""
    if headers.get("x-request-id", request_id) != request_id:
        message = "The answer belongs to another request."
        return Refusal("retry", "bad_gateway", message, status=status, request_id=request_id)
    try:
        members: Any = json.loads(body[:REFUSAL_BYTES_MAX])
    except (ValueError, RecursionError):
        members = None
    is_own = isinstance(members, dict) and all(isinstance(members.get(name), str) for name in ("error", "request_id"))
    if is_own:
        refusal = refusal_of(members, status=status)
    else:
        message = f"An answer {status} that is not the server's."
        refusal = Refusal("retry", "bad_gateway", message, status=status, request_id=request_id)
    seconds = headers.get("retry-after", "")
    if refusal.retry_after is None and seconds.isascii() and seconds.isdigit():
        return replace(refusal, retry_after=hint_of(int(seconds[:9]) * 1000))
    return refusal


class Answer:
    """The head of an answer, and its body while it arrives."""

    def __init__(self, status: int, headers: Mapping[str, str], request_id: str, wire: _Wire) -> None:
        self.status = status
        self.headers = headers
        self._request_id = request_id
        self._wire = wire

    def is_expected(self, media_type: str) -> bool:
        return self.status == 200 and self.headers.get("content-type", "").startswith(media_type)

    async def pieces(self) -> AsyncIterator[bytes]:
        async for piece in self._wire.body(self.headers):
            yield piece

    async def read(self, bytes_max: int = BODY_BYTES_MAX) -> bytes:
        whole = bytearray()
        async for piece in self.pieces():
            whole += piece
            if len(whole) > bytes_max:
                raise BadAnswer("the body is too long")
        return bytes(whole)

    async def refusal(self) -> Refusal:
        """The refusal in this answer."""
        body = await self.read(REFUSAL_BYTES_MAX)
        return refusal_of_answer(self.status, self.headers, body, self._request_id)


class _Wire:
    """One connection. It carries another request if is_reusable is set."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.is_reusable = False

    def close(self) -> None:
        self._writer.close()

    async def send(self, head: str, body: bytes) -> None:
        self.is_reusable = False
        self._writer.write(head.encode("latin-1") + body)
        await self._writer.drain()

    async def head(self) -> Tuple[int, Dict[str, str]]:
        try:
            text = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        except asyncio.LimitOverrunError as cause:
            raise BadAnswer("the head is too long") from cause
        lines = text[:-4].split("\r\n")
        found = re.fullmatch(r"HTTP/1\.1 (\d{3})(?: .*)?", lines[0])
        if not found:
            raise BadAnswer("not an answer of HTTP/1.1")
        headers: Dict[str, str] = {}
        for line in lines[1:]:
            name, colon, value = line.partition(":")
            if not colon:
                raise BadAnswer("a malformed header")
            headers[name.lower()] = value.strip()
        return int(found[1]), headers

    async def body(self, headers: Mapping[str, str]) -> AsyncIterator[bytes]:
        length = headers.get("content-length", "")
        is_kept = headers.get("connection", "").lower() != "close"
        if headers.get("transfer-encoding", "").lower() == "chunked":
            async for piece in self._chunks():
                yield piece
        elif length.isascii() and length.isdigit() and len(length) < 12:
            async for piece in self._exactly(int(length)):
                yield piece
        else:
            is_kept = False
            while True:
                piece = await self._reader.read(PIECE_BYTES)
                if not piece:
                    break
                yield piece
        self.is_reusable = is_kept

    async def _chunks(self) -> AsyncIterator[bytes]:
        while True:
            line = await self._line()
            size = line.split(b";")[0].strip()
            if not re.fullmatch(rb"[0-9a-fA-F]{1,8}", size):
                raise BadAnswer("a malformed chunk")
            if int(size, 16) == 0:
                break
            async for piece in self._exactly(int(size, 16)):
                yield piece
            if await self._line() != b"":
                raise BadAnswer("a malformed chunk")
        while await self._line() != b"":
            continue  # trailers

    async def _line(self) -> bytes:
        try:
            return (await self._reader.readuntil(b"\r\n"))[:-2]
        except asyncio.LimitOverrunError as cause:
            raise BadAnswer("a line is too long") from cause

    async def _exactly(self, left: int) -> AsyncIterator[bytes]:
        while left > 0:
            piece = await self._reader.read(min(left, PIECE_BYTES))
            if not piece:
                raise BadAnswer("the body breaks off")
            left -= len(piece)
            yield piece


class Exchange:
    """An async context manager of one request. It ends the connection unless the whole answer was read."""

    def __init__(self, client: HttpClient, method: str, path: str, headers: Mapping[str, str], body: bytes) -> None:
        self._client = client
        self._request = (method, path, headers, body)
        self.request_id = secrets.token_hex(16)
        self._wire: Optional[_Wire] = None

    async def __aenter__(self) -> Answer:
        request_id = self.request_id
        head, body = self._client.head_of(*self._request, request_id)
        spare = self._client.spares.pop() if self._client.spares else None
        try:
            status, headers = await self._send(spare or await self._client.connect(), head, body)
        except (OSError, asyncio.IncompleteReadError):
            self._end()
            if spare is None:
                raise
            # The server had closed the idle connection.
            status, headers = await self._send(await self._client.connect(), head, body)
        if headers.get("x-request-id", request_id) != request_id:
            self._end()
            raise BadAnswer("The answer belongs to another request.")
        assert self._wire is not None
        return Answer(status, headers, request_id, self._wire)

    async def _send(self, wire: _Wire, head: str, body: bytes) -> Tuple[int, Dict[str, str]]:
        self._wire = wire
        try:
            await wire.send(head, body)
            status, headers = await wire.head()
            while 100 <= status < 200:
                status, headers = await wire.head()
            return status, headers
        except BaseException:
            self._end()
            raise

    def _end(self) -> None:
        if self._wire:
            self._wire.close()
            self._wire = None

    async def __aexit__(self, *error: object) -> None:
        spares = self._client.spares
        if self._wire and self._wire.is_reusable and len(spares) < SPARES_MAX and not self._client.is_closed:
            spares.append(self._wire)
        else:
            self._end()


class HttpClient:
    """Requests to one server. A few idle connections are kept for the next requests."""

    def __init__(self, base: str, context: Optional[ssl.SSLContext] = None) -> None:
        parts = urlsplit(base)
        self._host = parts.hostname or ""
        self._netloc = parts.netloc.rpartition("@")[2]
        self._prefix = parts.path
        self._port = parts.port or (443 if parts.scheme == "https" else 80)
        self._context = (context or ssl.create_default_context()) if parts.scheme == "https" else None
        self.spares: List[_Wire] = []
        self.is_closed = False

    async def connect(self) -> _Wire:
        return _Wire(
            *await asyncio.open_connection(self._host, self._port, ssl=self._context, limit=HEAD_BYTES_MAX)
        )

    def head_of(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes, request_id: str
    ) -> Tuple[str, bytes]:
        fields = {"Host": self._netloc, "X-Request-Id": request_id, **headers}
        if method != "GET":
            fields["Content-Length"] = str(len(body))
        lines = [f"{method} {self._prefix}{path} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items())]
        if any("\r" in line or "\n" in line for line in lines):
            raise ValueError("a header has a line break")
        return "\r\n".join(lines) + "\r\n\r\n", body

    def exchange(self, method: str, path: str, headers: Mapping[str, str], body: bytes = b"") -> Exchange:
        return Exchange(self, method, path, headers, body)

    def close(self) -> None:
        self.is_closed = True
        for spare in self.spares:
            spare.close()
        self.spares.clear()
