"""Storages of positions. A storage has load(key) and save(key, text), plain or as coroutines."""

from __future__ import annotations

import asyncio
import hashlib
import os
import pathlib
from typing import Any, Dict, Optional, Protocol, Union
from urllib.parse import quote

NAME_CHARS_MAX = 200


class Storage(Protocol):
    def load(self, key: str) -> Any:
        """The text that was saved last, or None. It may be awaitable."""

    def save(self, key: str, text: str) -> Any:
        """Stores the text. The answer is awaited if it is awaitable."""


class MemoryStorage:
    """Forgets with the process."""

    def __init__(self) -> None:
        self._texts: Dict[str, str] = {}

    def load(self, key: str) -> Optional[str]:
        return self._texts.get(key)

    def save(self, key: str, text: str) -> None:
        self._texts[key] = text


class FileStorage:
    """One file for each topic in a folder.

    A file is replaced as a whole, so a crash leaves the old one or the new one. A saved position survives a power failure.
    """

    def __init__(self, folder: Union[str, "os.PathLike[str]"]) -> None:
        self._folder = pathlib.Path(folder)

    def _path(self, key: str) -> pathlib.Path:
        name = quote(key, safe="").replace(".", "%2E") or "%"
        if len(name) > NAME_CHARS_MAX:
            name = name[:100] + "%" + hashlib.sha256(key.encode()).hexdigest()
        return self._folder / name

    async def load(self, key: str) -> Optional[str]:
        return await asyncio.to_thread(self._read, self._path(key))

    async def save(self, key: str, text: str) -> None:
        await asyncio.to_thread(self._write, self._path(key), text)

    @staticmethod
    def _read(path: pathlib.Path) -> Optional[str]:
        try:
            return path.read_text("utf-8")
        except FileNotFoundError:
            return None

    @staticmethod
    def _write(path: pathlib.Path, text: str) -> None:
        folder = path.parent
        if not folder.exists():
            made = [one for one in (folder, *folder.parents) if not one.exists()]
            folder.mkdir(parents=True, exist_ok=True)
            for one in made:
                _sync_folder(one.parent)
        fresh = path.with_name(path.name + ".new")
        with open(fresh, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(fresh, path)
        _sync_folder(folder)


def _sync_folder(folder: pathlib.Path) -> None:
    """A new name in a folder is durable only after the folder is synced. Windows syncs no folder."""
    if os.name != "posix":
        return
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
