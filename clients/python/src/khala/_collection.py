"""The documents of a summary topic as an observable map.

It starts with the snapshot of each connection that cannot resume, and keeps no position in a
storage, because the documents are in memory only.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, AsyncIterator, Callable, Dict, Iterator, Mapping, Optional, Set

from ._errors import KhalaError
from ._frames import Document, Frame, Reset
from ._topic import Topic


@dataclass(frozen=True)
class Change:
    """A change of a collection.

    `set` has key, value and seq, `removed` key and seq, `reset` a reason, `error` an error. A document
    is removed when it does not match the filter of the collection any more.
    """

    type: str
    key: Optional[str] = None
    value: Any = None
    seq: Optional[int] = None
    reason: Optional[str] = None
    error: Optional[BaseException] = None


Listener = Callable[[Change], Any]


def call(listener: Callable[[Any], Any], value: Any) -> None:
    """Calls a function of the application. Its exception goes to the handler of the event loop, and stops nothing."""
    try:
        listener(value)
    except Exception as error:
        context = {"message": "A function that khala called failed.", "exception": error}
        asyncio.get_running_loop().call_exception_handler(context)


class Collection(Mapping[str, Any]):
    """Payloads by key: `runtime/run_summary:abc`, or only the id at its end, `abc`."""

    def __init__(self, topic_for: Callable[[Callable[[Reset], None]], Topic]) -> None:
        self._documents: Dict[str, Document] = {}
        self._view: Optional[Mapping[str, Any]] = None
        self._listeners: Set[Callable[[Change], None]] = set()
        self._topic = topic_for(self._restart)
        self._running: Optional[asyncio.Task[None]] = None
        self._users = 0
        self._readied = asyncio.Event()
        self.name = self._topic.name
        self.is_ready = False
        self.error: Optional[BaseException] = None

    # ---- the map ----

    def __getitem__(self, key: str) -> Any:
        document = self._documents.get(key)
        if document is None:
            first = next(iter(self._documents), "")
            document = self._documents[f"{first[: first.find(':') + 1]}{key}"]
        return document.payload

    def __iter__(self) -> Iterator[str]:
        return iter(self.snapshot())

    def __len__(self) -> int:
        return len(self._documents)

    def snapshot(self) -> Mapping[str, Any]:
        """All payloads by key. The same map until the next change."""
        if self._view is None:
            self._view = {key: document.payload for key, document in self._documents.items()}
        return self._view

    # ---- following ----

    def open(self) -> Callable[[], None]:
        """Follows the topic until every caller has called the returned function."""
        self._users += 1
        if self._running is None:
            self.error = None
            self._running = asyncio.ensure_future(self._run())
        is_open = True

        def release() -> None:
            nonlocal is_open
            if not is_open:
                return
            is_open = False
            self._users -= 1
            # Later, so that a view that is replaced by another does not drop the documents.
            asyncio.get_running_loop().call_soon(self._stop_if_unused)

        return release

    def _stop_if_unused(self) -> None:
        if self._users == 0 and self._running:
            asyncio.ensure_future(self._restart_if_used())

    async def _restart_if_used(self) -> None:
        """Ends the loop. A caller that opened the collection meanwhile found it running, so it begins again."""
        await self.close()
        if self._users > 0 and self._running is None:
            self._running = asyncio.ensure_future(self._run())

    async def _run(self) -> None:
        try:
            async for frame in self._topic:
                self._set(frame)
        except Exception as error:
            self.error = error
            self._tell(Change("error", error=error))
        finally:
            self._running = None
            self.is_ready = False
            self._readied.set()
            self._readied = asyncio.Event()

    async def ready(self) -> Collection:
        """Waits for the first snapshot. Something must follow the collection: open(), subscribe() or changes()."""
        if not self.is_ready:
            await self._readied.wait()
        if not self.is_ready:
            raise self.error or KhalaError("closed", "The collection was closed.")
        return self

    def _restart(self, reset: Reset) -> None:
        self._documents = {one.doc_key: one for one in reset.documents or ()}
        self.is_ready = True
        self.error = None
        self._readied.set()
        self._tell(Change("reset", reason=reset.reason))

    def _set(self, frame: Frame) -> None:
        key, version = frame.doc_key, frame.doc_version or 0
        known = self._documents.get(key) if isinstance(key, str) else None
        if key is None or (known and known.doc_version >= version):
            return
        if frame.kind != "removed":
            self._documents[key] = Document(key, version, frame.payload, frame.members.get("payload_hash"))
            self._tell(Change("set", key, frame.payload, frame.seq))
        elif self._documents.pop(key, None):
            self._tell(Change("removed", key, seq=frame.seq))

    def _tell(self, change: Change) -> None:
        self._view = None
        for listener in list(self._listeners):
            call(listener, change)

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Calls the listener after each change, and follows the topic until the returned function is called."""

        def one(change: Change) -> None:
            listener(change)

        self._listeners.add(one)
        release = self.open()

        def stop() -> None:
            self._listeners.discard(one)
            release()

        return stop

    async def changes(self) -> AsyncIterator[Change]:
        """The changes from now on. A slow loop gets the newest change of each document."""
        waiting: Dict[str, Change] = {}
        arrived = asyncio.Event()

        def gather(change: Change) -> None:
            if change.type == "reset":
                waiting.clear()
            key = change.key if change.key is not None else f"\0{change.type}"
            waiting.pop(key, None)
            waiting[key] = change
            arrived.set()

        stop = self.subscribe(gather)
        try:
            while True:
                while waiting:
                    change = waiting.pop(next(iter(waiting)))
                    if change.error:
                        raise change.error
                    yield change
                arrived.clear()
                await arrived.wait()
        finally:
            stop()

    async def close(self) -> None:
        running = self._running
        await self._topic.close()
        if running and running is not asyncio.current_task():
            await asyncio.wait({running})
