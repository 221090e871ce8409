"""The same store through apsw, which brings a newer SQLite than most systems: addresses `sqlite+apsw://...`.

One process opens a file through one of the two libraries only: see `driver.OpenFile`.
"""

# apsw's stubs speak of `Buffer`, which the library's Python has from 3.12 on only.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import apsw

from beforehand.journal.sqlite.driver import DatabaseFailure, OpenFile, Value, location


class ApswDatabase:
    """One connection through apsw: `Parts(connect=ApswDatabase)`."""

    def __init__(self, path: Path, read_only: bool, *, alone: bool = False) -> None:
        self._file = OpenFile(path, "apsw")
        access = apsw.SQLITE_OPEN_READONLY if read_only else apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
        try:
            self._connection = apsw.Connection(
                location(path, read_only=read_only, alone=alone),
                flags=access | apsw.SQLITE_OPEN_URI,
                statementcachesize=256,
            )
        except apsw.Error as error:
            self._file.leave()
            raise _failure(error) from error
        self._execute = self._connection.execute

    @property
    def in_transaction(self) -> bool:
        return self._connection.in_transaction

    def rows(self, sql: str, values: Sequence[Value] = ()) -> list[tuple[Value, ...]]:
        try:
            return self._execute(sql, values).fetchall()
        except (apsw.Error, OverflowError, UnicodeError) as error:
            raise _failure(error) from error

    def change(self, sql: str, values: Sequence[Value] = ()) -> int:
        try:
            self._execute(sql, values)
        except (apsw.Error, OverflowError, UnicodeError) as error:
            raise _failure(error) from error
        return self._connection.changes()

    def close(self) -> None:
        try:
            self._connection.close()
        except apsw.Error as error:
            raise _failure(error) from error
        self._file.leave()


def _failure(error: apsw.Error | OverflowError | UnicodeError) -> DatabaseFailure:
    """Errors that apsw raises by itself (a closed connection) count as broken. Values that do not fit are refused."""
    if not isinstance(error, apsw.Error):
        return DatabaseFailure(apsw.SQLITE_MISMATCH, str(error))
    code = getattr(error, "extendedresult", apsw.SQLITE_INTERNAL)
    return DatabaseFailure(code, str(error))
