"""What arrived within the last five minutes, in bounded memory, without ever taking a new event for a known one."""

from __future__ import annotations

import re
from collections import OrderedDict
from typing import Any, List, Mapping, Optional, Set, Tuple, Union

WINDOW_SECONDS = 300.0
GENERATIONS_MAX = 8
GENERATION_IDS = 49_152  # seven full generations and the window: 1146 events a second
DOCUMENTS_MAX = 8192
TEXT_CHARS_MAX = 256
ID_BYTES = 16

_is_uuid = re.compile("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}").fullmatch


class _Generation:
    """The ids of one stretch of time that is over: UUIDs as sorted numbers of 16 bytes, others as texts."""

    __slots__ = ("_packed", "_texts", "_first", "_last", "used_at", "count")

    def __init__(self, ids: Set[Union[int, str]], numbers: List[int], used_at: float) -> None:
        numbers.sort()  # fast, because they came nearly so
        self._packed = b"".join(one.to_bytes(ID_BYTES, "big") for one in numbers)
        has_texts = len(numbers) < len(ids)
        self._texts = frozenset(one for one in ids if isinstance(one, str)) if has_texts else frozenset()
        self._first, self._last = (numbers[0], numbers[-1]) if numbers else (1, 0)
        self.used_at = used_at
        self.count = len(ids)

    def __contains__(self, known: Union[int, str]) -> bool:
        if isinstance(known, str):
            return known in self._texts
        # Most ids are later than those of older generations, because a UUIDv7 begins with its time.
        if not self._first <= known <= self._last:
            return False
        wanted = known.to_bytes(ID_BYTES, "big")
        low, high = 0, len(self._packed) // ID_BYTES
        while low < high:
            middle = (low + high) // 2
            if self._packed[middle * ID_BYTES : (middle + 1) * ID_BYTES] < wanted:
                low = middle + 1
            else:
                high = middle
        return self._packed[low * ID_BYTES : (low + 1) * ID_BYTES] == wanted


class Recent:
    """Recognises events by id and documents by version for five minutes.

    Events are in at most eight generations. The newest is a set, and the others take 16 bytes for
    an id. A generation is dropped as a whole, once its last id is too old.
    """

    def __init__(self, window: float = WINDOW_SECONDS, documents_max: int = DOCUMENTS_MAX) -> None:
        self._window = window
        self._documents_max = documents_max
        self._ids: Set[Union[int, str]] = set()
        self._numbers: List[int] = []  # those of the newest generation, as they came
        self._begun_at = self._used_at = 0.0  # times of the newest generation
        self._older: List[_Generation] = []  # the oldest is first
        # By age. A plain dict would search for its oldest entry behind those that were removed.
        self._documents: Optional[OrderedDict[str, Tuple[float, float]]] = None  # key: version, time

    def __len__(self) -> int:
        return len(self._ids) + sum(one.count for one in self._older) + len(self._documents or ())

    def repeats(self, frame: Mapping[str, Any], now: float) -> bool:
        """Whether the frame repeats an earlier one. A new frame is remembered."""
        key, kind, event_id = frame.get("doc_key"), frame.get("kind"), frame.get("event_id")
        if frame.get("folded"):
            return False  # its range is new, and its event_id is that of the last event alone
        if isinstance(key, str) and isinstance(kind, str) and (kind.endswith("_summary") or kind == "removed"):
            version = frame.get("doc_version")
            return self._repeats_document(key, version if isinstance(version, (int, float)) else 0, now)
        return isinstance(event_id, str) and len(event_id) <= TEXT_CHARS_MAX and self._repeats_event(event_id, now)

    def _repeats_event(self, event_id: str, now: float) -> bool:
        known: Union[int, str] = int(event_id.replace("-", ""), 16) if _is_uuid(event_id) else event_id
        self.expire(now)
        if known in self._ids or any(known in one for one in self._older):
            return True
        is_old = now - self._begun_at >= self._window / (GENERATIONS_MAX - 1)
        if len(self._ids) >= GENERATION_IDS or (self._ids and is_old):
            self._older.append(_Generation(self._ids, self._numbers, self._used_at))
            del self._older[: -(GENERATIONS_MAX - 1)]
            self._ids, self._numbers = set(), []
        if not self._ids:
            self._begun_at = now
        self._ids.add(known)
        if isinstance(known, int):
            self._numbers.append(known)
        self._used_at = now
        return False

    def _repeats_document(self, key: str, version: float, now: float) -> bool:
        documents = self._documents = self._documents or OrderedDict()
        self.expire(now)
        known = documents.get(key)
        if known and known[0] >= version:
            return True
        documents.pop(key, None)  # the new entry goes to the end
        documents[key] = (version, now)
        if len(documents) > self._documents_max:
            documents.popitem(last=False)
        return False

    def expire(self, now: float) -> None:
        """Drops what is too old. Without it, a topic that falls silent would keep its last five minutes for good."""
        while self._older and now - self._older[0].used_at > self._window:
            del self._older[0]
        if self._ids and now - self._used_at > self._window:
            self._ids, self._numbers = set(), []
        while self._documents and now - next(iter(self._documents.values()))[1] > self._window:
            self._documents.popitem(last=False)

    def clear(self) -> None:
        self._ids, self._numbers = set(), []
        self._older.clear()
        self._documents = None
