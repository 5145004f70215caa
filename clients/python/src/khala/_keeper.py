"""Stores the position of one topic or log."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any, Callable, Optional, Tuple

from .storage import Storage


class PositionKeeper:
    """While one position is being stored, only the newest of the others waits. Without a storage nothing is stored."""

    def __init__(
        self,
        storage: Optional[Storage],
        key: str,
        write: Callable[[Any], str],
        failed: Callable[[str, Exception], None],
    ) -> None:
        self._storage = storage
        self._key = key
        self._write = write
        self._failed = failed
        self._unsaved: Optional[Tuple[Any]] = None
        self._saving: Optional[asyncio.Task[None]] = None

    async def load(self, before: Optional[PositionKeeper]) -> Tuple[Any, bool]:
        """What is stored, after what another keeper still stores; and whether it could be read."""
        if before:
            await before.saved()
        if self._storage is None:
            return None, True
        try:
            found = self._storage.load(self._key)
            return (await found if inspect.isawaitable(found) else found), True
        except Exception as cause:
            self._failed("The stored position could not be read.", cause)
            return None, False

    def save(self, position: Any) -> None:
        """Stores the position. A storage that answers at once needs no task."""
        self._unsaved = (position,)
        if self._storage is None or self._saving is not None:
            return
        try:
            saving = self._next()
            if inspect.isawaitable(saving):
                self._saving = asyncio.ensure_future(self._save_rest(saving))
        except Exception as cause:
            self._failed("The position could not be stored.", cause)

    def _next(self) -> Any:
        assert self._storage is not None and self._unsaved is not None
        (position,), self._unsaved = self._unsaved, None
        return self._storage.save(self._key, self._write(position))

    async def _save_rest(self, saving: Any) -> None:
        try:
            while True:
                try:
                    if inspect.isawaitable(saving):
                        await saving
                    if self._unsaved is None:
                        return
                    saving = self._next()
                except Exception as cause:
                    saving = None
                    self._failed("The position could not be stored.", cause)
        finally:
            self._saving = None  # set in the turn of the last look at _unsaved, so that none is left behind

    async def saved(self) -> None:
        """Waits until the position is stored."""
        while self._saving is not None:
            await asyncio.wait({self._saving})
