"""Errors of the server and of the client, and the policy for each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Mapping, Optional

from ._tables import POLICIES

if TYPE_CHECKING:
    from ._frames import Reset

HINT_SECONDS_MAX = 300.0


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
    ) -> None:
        super().__init__(message or code)
        self.code = code
        self.topic = topic
        self.reset = reset
        self.status = status
        self.details = details
        self.retry_after = retry_after


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
    """The error in a body, with its policy."""
    members = body if isinstance(body, dict) else {}
    details = members.get("details")
    codes = [members.get(name) for name in ("reason_code", "code", "error")]
    code = next((one for one in codes if isinstance(one, str)), f"closed_{close or status or 'early'}")
    hints = [
        holder.get(name)
        for holder in (members, details if isinstance(details, dict) else {})
        for name in ("reconnect_after_ms", "retry_after_ms")
    ]
    message = members.get("message")
    return Refusal(
        policy_of(body, status=status, close=close),
        code,
        message if isinstance(message, str) else None,
        hint_of(next((one for one in hints if one is not None), None)),
        status,
        members,
    )
