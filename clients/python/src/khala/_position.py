"""Positions of a topic without I/O: which ranges continue a position, which frames are new."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, List, Mapping, Optional, Sequence, Tuple

from ._frames import Document, Position

EPOCH_CHARS_MAX = 128
SEQ_MAX = 2**53 - 1

_encode = json.JSONEncoder(separators=(",", ":")).encode


def is_seq(value: Any) -> bool:
    return type(value) is int and 0 <= value <= SEQ_MAX


def is_same_epoch(one: str, other: str) -> bool:
    """Shared topics number the log's epoch; the epoch without a number means number 0."""
    return one == other or one == f"{other}.0" or other == f"{one}.0"


_STREAMS = (
    (re.compile(r"run:(.+):events"), r"run.\1.events"),
    (re.compile(r"worker:(.+):lifecycle"), r"worker.\1.lifecycle"),
    (re.compile(r"fleet:(user|guest):(.+):workers"), r"fleet.\1.\2.workers"),
)


_is_entity_stream = re.compile(r"runtime\.(run\..+\.events|worker\..+\.lifecycle)").fullmatch


def stream_of(topic: str) -> str:
    """The stream id of a topic: the server answers with the topic's name to a client that named the stream."""
    for pattern, stream in _STREAMS:
        found = pattern.fullmatch(topic)
        if found:
            return f"runtime.{found.expand(stream)}"
    return f"runtime.topic.{topic.replace(':', '.')}"


def is_of_entity(topic: str) -> bool:
    """Whether the topic is one of a run or a worker, which may not exist yet."""
    return any(_is_entity_stream(name) is not None for name in (topic, stream_of(topic)))


def read_position(given: Any) -> Optional[Position]:
    """A position of a storage, of the application or of an answer, or None if it is not one.

    It is {epoch, seq}, {seq}, a number, or a text: one of these as JSON, or `N@EPOCH`.
    """
    value = given
    if isinstance(given, str):
        seq, at, epoch = given.partition("@")
        try:
            is_short = seq.isascii() and seq.isdigit() and len(seq) < 17
            value = (epoch if at else None, int(seq)) if is_short else json.loads(given)
        except (ValueError, RecursionError):
            return None
    if isinstance(value, dict):
        value = (value.get("epoch"), value.get("seq"))
    elif is_seq(value):
        value = (None, value)
    if not isinstance(value, tuple) or len(value) != 2:
        return None
    is_epoch = value[0] is None or (isinstance(value[0], str) and 0 < len(value[0]) <= EPOCH_CHARS_MAX)
    return Position(*value) if is_epoch and is_seq(value[1]) else None


def write_position(position: Position) -> str:
    return _encode({"seq": position.seq} if position.epoch is None else {"epoch": position.epoch, "seq": position.seq})


def is_of_epoch(position: Position, epoch: str) -> bool:
    """Whether the epoch may be that of the position. The server has accepted one without an epoch."""
    return position.epoch is None or is_same_epoch(epoch, position.epoch)


@dataclass
class Range:
    """Frames after a sequence up to another one, as the server sent them."""

    epoch: Any
    after: Any
    through: Any
    frames: Any
    complete: bool = False
    size: int = 0  # characters of the message


def first_seq_of(frame: Mapping[str, Any]) -> Any:
    """The first seq that a frame stands for: a folded one stands for several events."""
    folded = frame.get("folded")
    return folded.get("from_seq") if isinstance(folded, dict) else frame.get("seq")


def _is_fold(frame: Mapping[str, Any]) -> bool:
    folded, first, seq = frame.get("folded"), first_seq_of(frame), frame.get("seq")
    if folded is None:
        return True
    return isinstance(folded, dict) and is_seq(first) and first <= seq and folded.get("count") == seq - first + 1


def is_range(given: Range) -> bool:
    """Whether the range is well-formed: its frames ascend, do not overlap, and lie after its start, up to its end."""
    if not isinstance(given.epoch, str) or not is_seq(given.after) or not is_seq(given.through):
        return False
    if given.through < given.after or not isinstance(given.frames, list):
        return False
    last = given.after
    for frame in given.frames:
        seq = frame.get("seq") if isinstance(frame, dict) else None
        if type(seq) is not int or not seq <= given.through:
            return False
        if not _is_fold(frame) or not first_seq_of(frame) > last:
            return False
        last = seq
    return True


def continues(position: Optional[Position], given: Range) -> bool:
    """Whether a range continues the position. It may begin earlier, and then repeats frames.

    The position must not lie inside a folded frame: some of its events were applied, and the others
    stand in no other frame.
    """
    return (
        position is not None
        and is_range(given)
        and is_of_epoch(position, given.epoch)
        and given.after <= position.seq
        and not any(first_seq_of(frame) <= position.seq < frame["seq"] for frame in given.frames)
    )


@dataclass
class Part:
    """A part of a snapshot, as the server sent it."""

    members: Mapping[str, Any]
    size: int = 0

    @property
    def is_last(self) -> bool:
        return self.members.get("last") is True


class Parts:
    """Gathers the parts of a snapshot. All parts are of one epoch and watermark, in order."""

    def __init__(self) -> None:
        self._parts: List[Mapping[str, Any]] = []

    def fits(self, part: Part) -> bool:
        """Whether the part is the next one of the snapshot."""
        new = part.members
        documents = new.get("documents")
        if not isinstance(documents, list) or not is_seq(new.get("watermark")) or not isinstance(new.get("epoch"), str):
            return False
        if not all(isinstance(one, dict) and isinstance(one.get("doc_key"), str) for one in documents):
            return False
        number = new.get("part")
        if is_seq(number) and number != len(self._parts):
            return False
        first = self._parts[0] if self._parts else new
        return bool(new["watermark"] == first["watermark"] and new["epoch"] == first["epoch"])

    def add(self, part: Part) -> None:
        self._parts.append(part.members)

    def clear(self) -> None:
        self._parts = []

    def take(self) -> Tuple[Position, Sequence[Document]]:
        """The whole snapshot."""
        position = Position(self._parts[0]["epoch"], self._parts[0]["watermark"])
        documents = [
            Document(one["doc_key"], int(one.get("doc_version") or 0), one.get("payload"), one.get("payload_hash"))
            for part in self._parts
            for one in part["documents"]
        ]
        self.clear()
        return position, documents
