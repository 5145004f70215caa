"""Opens WebSockets with the package websockets, from version 10.4 on.

Both of its asyncio implementations are used as they are, but for two rules: a refused handshake has
its body, which has the reason, and redirects are not followed, because the address has the token.
"""

from __future__ import annotations

import asyncio
import importlib
import ssl
from typing import Any, Mapping, Optional, Tuple

import websockets.exceptions

ConnectionClosed = websockets.exceptions.ConnectionClosed

MESSAGE_BYTES_MAX = 64 << 20
REFUSAL_BYTES_MAX = 1 << 16
REFUSAL_SECONDS = 2.0
CLOSE_SECONDS = 1.0


class HandshakeRefused(Exception):
    """The handshake was answered with an HTTP status other than 101."""

    def __init__(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        super().__init__(f"The handshake was answered with {status}.")
        self.status = status
        self.headers = headers
        self.body = body


def _headers_of(headers: Any) -> Mapping[str, str]:
    return {str(name).lower(): str(value) for name, value in headers.raw_items()}


async def _open_modern(module: Any, address: str, headers: Mapping[str, str], settings: Mapping[str, Any]) -> Any:
    class Connect(module.connect):  # type: ignore[misc]
        def process_redirect(self, exc: Exception) -> Exception:
            return exc

    try:
        return await Connect(address, additional_headers=headers, **settings)
    except websockets.exceptions.InvalidHandshake as cause:
        response = getattr(cause, "response", None)
        if response is None:
            raise
        raise HandshakeRefused(response.status_code, _headers_of(response.headers), response.body or b"") from cause


async def _open_legacy(address: str, headers: Mapping[str, str], settings: Mapping[str, Any]) -> Any:
    from websockets.legacy.client import WebSocketClientProtocol, connect

    class ClientProtocol(WebSocketClientProtocol):
        async def read_http_response(self) -> Tuple[int, Any]:
            status, response_headers = await super().read_http_response()
            if status == 101:
                return status, response_headers
            length = response_headers.get("content-length", "")
            body = b""
            if length.isascii() and length.isdigit() and int(length) <= REFUSAL_BYTES_MAX:
                try:
                    body = await asyncio.wait_for(self.reader.readexactly(int(length)), REFUSAL_SECONDS)
                except (asyncio.TimeoutError, asyncio.IncompleteReadError):
                    body = b""
            raise HandshakeRefused(status, _headers_of(response_headers), body)

    create: Any = ClientProtocol
    return await connect(address, extra_headers=headers, create_protocol=create, **settings)


async def open_websocket(
    address: str, headers: Mapping[str, str], context: Optional[ssl.SSLContext], seconds: float
) -> Any:
    """An open WebSocket with recv(), send() and close()."""
    settings: dict[str, Any] = {
        "max_size": MESSAGE_BYTES_MAX,
        "open_timeout": seconds,
        "ping_interval": None,  # the client sends heartbeats of its own
        "close_timeout": CLOSE_SECONDS,
        "user_agent_header": None,
    }
    if context is not None and address.startswith("wss:"):
        settings["ssl"] = context
    try:
        module = importlib.import_module("websockets.asyncio.client")
    except ImportError:
        return await _open_legacy(address, headers, settings)
    return await _open_modern(module, address, headers, settings)


def close_code_of(end: BaseException) -> int:
    """The code of the server's close frame; 1006 without one."""
    received = getattr(end, "rcvd", None)
    return int(received.code) if received is not None else 1006
