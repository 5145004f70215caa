"""Positions, frames and resets, as the application gets them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Mapping, NamedTuple, Optional, Sequence


class Position(NamedTuple):
    """The position of a topic, exclusive. Only the server knows the history of one without an epoch."""

    epoch: Optional[str]
    seq: int


class Frame:
    """One item of a topic. Its members are attributes; `members` has all of them as the server sent them.

    In the form "lean", the default, these are seq, kind, event_id, recorded_at and payload, and doc_key
    and doc_version of a summary.
    """

    __slots__ = ("members",)

    def __init__(self, members: Mapping[str, Any]) -> None:
        self.members = members

    def __repr__(self) -> str:
        return f"Frame({dict(self.members)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Frame) and self.members == other.members

    __hash__ = None  # type: ignore[assignment]

    @property
    def topic(self) -> Optional[str]:
        """Only in the form "full"."""
        return self.members.get("topic")

    @property
    def seq(self) -> int:
        return int(self.members["seq"])

    @property
    def kind(self) -> str:
        return str(self.members.get("kind"))

    @property
    def payload(self) -> Any:
        return self.members.get("payload")

    @property
    def event_id(self) -> Optional[str]:
        return self.members.get("event_id")

    @property
    def folded(self) -> Optional[Mapping[str, int]]:
        """The events that this item stands for, as {from_seq, count}: their delta texts are joined. None of one event."""
        return self.members.get("folded")

    @property
    def doc_key(self) -> Optional[str]:
        return self.members.get("doc_key")

    @property
    def doc_version(self) -> Optional[int]:
        return self.members.get("doc_version")

    @property
    def recorded_at(self) -> Optional[int]:
        return self.members.get("recorded_at")


class Document(NamedTuple):
    """A document of a summary topic."""

    doc_key: str
    doc_version: int
    payload: Any
    payload_hash: Optional[str] = None


@dataclass(frozen=True)
class Reset:
    """The history starts again: drop the data that was derived from earlier frames."""

    reason: str
    """`start`, `gap`, `position_unreadable`, or the first reason of the server."""
    from_seq: int
    truncated: bool
    """Frames before `from_seq` exist or existed, and are not delivered."""
    documents: Optional[Sequence[Document]] = None
    """All documents of a summary topic."""
