"""Client of the resumable sync server Khala, for asyncio."""

from ._client import ConnectionState, Khala, Since, since
from ._collection import Change, Collection
from ._errors import KhalaError, TokenDenied
from ._frames import Document, Frame, Position, Reset
from ._log import Log, LogEvent, LogReset
from ._machine import BackOff
from ._topic import Topic
from .outbox import Outbox
from .producer import Appended, Limits, Producer, event_id
from .storage import FileStorage, MemoryStorage, Storage

__all__ = [
    "Appended",
    "BackOff",
    "Change",
    "Collection",
    "ConnectionState",
    "Document",
    "FileStorage",
    "Frame",
    "Khala",
    "KhalaError",
    "Limits",
    "Log",
    "LogEvent",
    "LogReset",
    "MemoryStorage",
    "Outbox",
    "Position",
    "Producer",
    "Reset",
    "Since",
    "Storage",
    "TokenDenied",
    "Topic",
    "event_id",
    "since",
]
