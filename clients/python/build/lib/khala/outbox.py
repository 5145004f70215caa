"""An outbox on disk: events that have no answer yet survive the process that appended them."""

from __future__ import annotations

import os
import sqlite3
from typing import List, Tuple, Union


class Outbox:
    """A SQLite file with the events of one producer, in their order.

    An event is on disk when append() returns. With fsync=False it survives a crash of the process, but perhaps not a
    power failure, and append() is faster. One process at a time can use the file.
    """

    def __init__(self, path: Union[str, "os.PathLike[str]"], *, fsync: bool = True) -> None:
        self._db = sqlite3.connect(os.fspath(path), isolation_level=None, timeout=1.0)
        self._db.execute("PRAGMA locking_mode = EXCLUSIVE")
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute(f"PRAGMA synchronous = {'FULL' if fsync else 'NORMAL'}")
        self._db.execute("CREATE TABLE IF NOT EXISTS outbox (id INTEGER PRIMARY KEY AUTOINCREMENT, line TEXT NOT NULL)")

    def add(self, line: str) -> int:
        row = self._db.execute("INSERT INTO outbox (line) VALUES (?)", (line,)).lastrowid
        assert row is not None
        return row

    def remove(self, rows: List[int]) -> None:
        self._db.execute("BEGIN")
        try:
            self._db.executemany("DELETE FROM outbox WHERE id = ?", [(row,) for row in rows])
        finally:
            self._db.execute("COMMIT")

    def all(self) -> List[Tuple[int, str]]:
        return self._db.execute("SELECT id, line FROM outbox ORDER BY id").fetchall()

    def close(self) -> None:
        self._db.close()
