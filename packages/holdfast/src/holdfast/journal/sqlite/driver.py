"""The thin layer over a SQLite library: statements in, rows out, one kind of failure.

The rest of the store does not know which library runs below. Values cross it as plain tuples, so
the same statements run through the standard library and through apsw.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, Protocol

Value = str | bytes | int | float | None
Kind = Literal["busy", "full", "readonly", "refused", "damaged", "broken"]

_KINDS: dict[int, Kind] = {
    sqlite3.SQLITE_BUSY: "busy",
    sqlite3.SQLITE_LOCKED: "busy",
    sqlite3.SQLITE_FULL: "full",
    sqlite3.SQLITE_READONLY: "readonly",
    sqlite3.SQLITE_PERM: "readonly",
    sqlite3.SQLITE_CONSTRAINT: "refused",
    sqlite3.SQLITE_TOOBIG: "refused",
    sqlite3.SQLITE_MISMATCH: "refused",
    sqlite3.SQLITE_CORRUPT: "damaged",
    sqlite3.SQLITE_NOTADB: "damaged",
}


class DatabaseFailure(Exception):
    """SQLite refused a statement. `code` is its extended result code, `kind` what that means for us."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.kind: Kind = _KINDS.get(code & 0xFF, "broken")


class Database(Protocol):
    """One connection."""

    @property
    def in_transaction(self) -> bool: ...

    def rows(self, sql: str, values: Sequence[Value] = ()) -> list[tuple[Value, ...]]:
        """Run one statement and fetch all its rows."""
        ...

    def change(self, sql: str, values: Sequence[Value] = ()) -> int:
        """Run one INSERT, UPDATE or DELETE; the number of rows it changed."""
        ...

    def close(self) -> None: ...


Connect = Callable[[Path, bool], Database]
"""Opens a file; the flag asks for a connection that can only read."""


def location(path: Path, *, read_only: bool, alone: bool = False) -> str:
    """The file as SQLite's URI. Opened read-only it cannot be created, written, or checkpointed by who closes last.

    `alone`: the file as it is, without its log and without any lock. Only where no other way is open.
    """
    uri = f"{path.absolute().as_uri()}?mode={'ro' if read_only else 'rwc'}"
    return f"{uri}&immutable=1" if alone else uri


class StandardDatabase:
    """The standard library's sqlite3, in autocommit mode: transactions are ours to begin and end."""

    def __init__(self, path: Path, read_only: bool, *, alone: bool = False) -> None:
        try:
            self._connection = sqlite3.connect(
                location(path, read_only=read_only, alone=alone),
                uri=True,
                timeout=0,
                isolation_level=None,
                check_same_thread=False,  # the mutex of the committer keeps threads apart
                cached_statements=256,
            )
        except sqlite3.Error as error:
            raise _failure(error) from error
        self._execute = self._connection.execute

    @property
    def in_transaction(self) -> bool:
        return self._connection.in_transaction

    def rows(self, sql: str, values: Sequence[Value] = ()) -> list[tuple[Value, ...]]:
        try:
            return self._execute(sql, values).fetchall()
        except (sqlite3.Error, OverflowError, UnicodeError) as error:
            raise _failure(error) from error

    def change(self, sql: str, values: Sequence[Value] = ()) -> int:
        try:
            return self._execute(sql, values).rowcount
        except (sqlite3.Error, OverflowError, UnicodeError) as error:
            raise _failure(error) from error

    def close(self) -> None:
        try:
            self._connection.close()
        except sqlite3.Error as error:
            raise _failure(error) from error


def _failure(error: sqlite3.Error | OverflowError | UnicodeError) -> DatabaseFailure:
    """Errors that the library raises without asking SQLite (a closed connection) count as broken.

    An integer over 64 bits or text that is no UTF-8 is refused: the statement was not run, and the next one can be.
    """
    if not isinstance(error, sqlite3.Error):
        return DatabaseFailure(sqlite3.SQLITE_MISMATCH, str(error))
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_INTERNAL)
    return DatabaseFailure(code, str(error))
