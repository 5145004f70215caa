"""Errors of the server and of the client, and the policy for each."""

from __future__ import annotations

import asyncio
import errno
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Mapping, Optional

from ._tables import POLICIES

if TYPE_CHECKING:
    from ._frames import Reset

HINT_SECONDS_MAX = 300.0
UNREACHABLE = (errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN, errno.EHOSTDOWN, errno.ETIMEDOUT)


class KhalaError(Exception):
    """An error that the application sees. Its code is stable; its message is for people."""

    def __init__(
        self,
        code: str,
        message: Optional[str] = None,
        *,
        topic: Optional[str] = None,
        reset: Optional[Reset] = None,
        status: Optional[int] = None,
        details: Any = None,
        retry_after: Optional[float] = None,
        request_id: Optional[str] = None,
    ) -> None:
        super().__init__(message or code)
        self.code = code
        self.topic = topic
        self.reset = reset
        self.status = status
        self.details = details
        self.retry_after = retry_after
        self.event_id: Optional[str] = None  # the event that was not appended
        self.entity: Optional[str] = None  # the entity that the server refuses events of for now, such as "run abc"
        self.request_id = request_id  # names the request or the connection in the server's log


class TokenDenied(Exception):
    """A token callback raises it if no later attempt can succeed. It closes the client."""

    final = True


@dataclass(frozen=True)
class Refusal:
    """The end of a connection, or a refusal of the server, with the policy for it."""

    policy: str
    code: str
    message: Optional[str] = None
    retry_after: Optional[float] = None  # seconds
    status: Optional[int] = None
    body: Optional[Mapping[str, Any]] = None
    request_id: Optional[str] = None
    is_unreachable: bool = False  # no connection to the server could be made

    def error(self, topic: Optional[str] = None) -> KhalaError:
        """The error for the application."""
        return KhalaError(
            self.code,
            self.message,
            topic=topic,
            status=self.status,
            retry_after=self.retry_after,
            request_id=self.request_id,
        )

    def is_of_transport(self) -> bool:
        """Whether something may block the transport: not if the server is away, or refuses the token or its load."""
        is_busy = self.status in (429, 503) and self.body is not None
        return not (self.is_unreachable or is_busy or self.policy in ("reauthenticate", "final"))


def policy_of(body: Any, *, status: Optional[int] = None, close: Optional[int] = None) -> str:
    """The policy for an error body, an HTTP status or a close code. A body's own code comes first."""
    members = body if isinstance(body, dict) else {}
    for code in (members.get("reason_code"), members.get("code"), members.get("error"), status, close):
        if isinstance(code, (str, int)) and str(code) in POLICIES:
            return POLICIES[str(code)]
    return "retry"


def hint_of(milliseconds: Any) -> Optional[float]:
    """A server's hint in seconds. Anything but a number in range is no hint."""
    is_number = isinstance(milliseconds, (int, float)) and not isinstance(milliseconds, bool)
    return min(milliseconds / 1000, HINT_SECONDS_MAX) if is_number and milliseconds >= 0 else None


def refusal_of(body: Any, *, status: Optional[int] = None, close: Optional[int] = None) -> Refusal:
    """The error in a body, with its policy. A message belongs to the body's own code; beside another it says so."""
    members = body if isinstance(body, dict) else {}
    details = members.get("details")
    texts = {name: value for name, value in members.items() if isinstance(value, str)}
    own, reason, message = texts.get("code", texts.get("error")), texts.get("reason_code"), texts.get("message")
    if reason and own and reason != own:
        message = f"The reason is {reason}. The server answered {own}{': ' + message if message else '.'}"
    hints = [
        holder.get(name)
        for holder in (members, details if isinstance(details, dict) else {})
        for name in ("reconnect_after_ms", "retry_after_ms")
    ]
    return Refusal(
        policy_of(body, status=status, close=close),
        reason or own or f"closed_{close or status or 'early'}",
        message,
        hint_of(next((one for one in hints if one is not None), None)),
        status,
        members,
        texts.get("request_id"),
    )


def without_connection(cause: BaseException) -> Optional[str]:
    """Why no connection could be made, in words; None if one was made, and broke."""
    if isinstance(cause, ConnectionRefusedError):
        return "The server refused the connection; perhaps it is not running."
    if isinstance(cause, socket.gaierror):
        return f"The name of the server could not be resolved ({cause.strerror})."
    # asyncio tries several addresses, and then raises one error without a number.
    is_unreachable = isinstance(cause, OSError) and (
        cause.errno in UNREACHABLE or (cause.errno is None and str(cause).startswith("Multiple exceptions"))
    )
    return f"The server could not be reached ({cause})." if is_unreachable else None


def lost(cause: BaseException, code: str, request_id: Optional[str] = None) -> Refusal:
    """An exchange that failed without an answer, of the network, of TLS or of the peer's bytes."""
    words = without_connection(cause)
    if words:
        return Refusal("retry", "connect_failed", words, request_id=request_id, is_unreachable=True)
    is_late = isinstance(cause, asyncio.TimeoutError)
    message = "The server did not answer in time." if is_late else f"The connection failed: {cause!r}."
    return Refusal("retry", code, message, request_id=request_id)
