"""The thin layer over a SQLite library: statements in, rows out, one kind of failure.

The rest of the store does not know which library runs below. Values cross it as plain tuples, so
the same statements run through the standard library and through apsw.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Literal, Protocol
from weakref import WeakSet

import msgspec

from beforehand.errors import JournalError
from beforehand.journal.host import FileIdentity, file_identity

Value = str | bytes | int | float | None
_COMPANIONS: Final = ("", "-lock", "-wal", "-shm", ".anchor")
_APPLICATION: Final = slice(68, 72)  # where the header of an SQLite file says which program it belongs to
_HEADER: Final = 32  # bytes of a log's header; a log that was never written to has none
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
    """SQLite refused a statement. `code` is its extended result code, `kind` its meaning for us."""

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


class Library(Protocol):
    """A SQLite library, as `Connect`; `alone`: the connection reads the file without its log and its locks."""

    def __call__(self, path: Path, read_only: bool, *, alone: bool = False) -> Database: ...


class OpenFile:
    """The part of a connection that other connections of this process see: its file and its library.

    POSIX drops the locks that a process holds on a file when the process closes any descriptor of it. One copy of
    SQLite takes care of that among its own connections; two copies in one process (Python's own and apsw's) do not
    know of each other, and one that closes would let a third process write over what the other is writing.
    """

    def __init__(self, path: Path, library: str) -> None:
        self.library: Final = library
        self.file = _identity(path)
        _OPEN.add(self)  # before the comparison: of two threads that open at once, at least one sees the other
        other = next((one for one in list(_OPEN) if one.file == self.file and one.library != library), None)
        if self.file is not None and other is not None:
            self.leave()
            raise JournalError(
                f"{path} is already open in this process through {other.library}; {library} cannot open it as well",
                known="two copies of SQLite in one process would drop each other's locks; nothing was opened",
                next_step="use one address for this journal in the whole process: with sqlite+apsw:// or without",
            )

    def leave(self) -> None:
        """The connection was closed."""
        _OPEN.discard(self)


_OPEN: Final[WeakSet[OpenFile]] = WeakSet()

if hasattr(os, "register_at_fork"):
    # A child never uses nor closes what it inherited (see `inherited.py`), so that its own choice is free.
    os.register_at_fork(after_in_child=_OPEN.clear)


def is_open_here(path: Path) -> bool:
    """True while this process has a connection to the file. Then nothing else in it may open and close the file."""
    found = _identity(path)
    return found is not None and any(one.file == found for one in list(_OPEN))


def application_of(path: Path) -> int:
    """The application id in the header of an SQLite file; 0 for a file that cannot be read, or is open here.

    To open and close a file that this process has open would drop the locks that SQLite holds on it.
    """
    if is_open_here(path):
        return 0
    try:
        with path.open("rb") as file:
            return int.from_bytes(file.read(_APPLICATION.stop)[_APPLICATION], "big")
    except OSError:
        return 0


def _identity(path: Path) -> FileIdentity | None:
    try:
        return file_identity(path)
    except OSError:
        return None


def sidecar(path: Path, suffix: str) -> Path:
    """A file beside a journal file."""
    return path.with_name(path.name + suffix)


def size_of(path: Path) -> int | None:
    """The bytes of a journal file and its write-ahead log; None where the file cannot be looked at."""
    try:
        size = path.stat().st_size
    except OSError:
        return None
    with contextlib.suppress(OSError):  # it has no log, or another process has just removed it
        size += sidecar(path, "-wal").stat().st_size
    return size


def location(path: Path, *, read_only: bool, alone: bool = False) -> str:
    """The file as SQLite's URI. Opened read-only it cannot be created, written, or checkpointed when closed.

    `alone`: the file as it is, without its log and without any lock. Only where no other way is open.
    """
    uri = f"{path.absolute().as_uri()}?mode={'ro' if read_only else 'rwc'}"
    return f"{uri}&immutable=1" if alone else uri


class StandardDatabase:
    """The standard library's sqlite3, in autocommit mode: transactions are ours to begin and end."""

    def __init__(self, path: Path, read_only: bool, *, alone: bool = False) -> None:
        self._file = OpenFile(path, "Python's sqlite3")
        try:
            self._connection = sqlite3.connect(
                location(path, read_only=read_only, alone=alone),
                uri=True,
                timeout=0,
                isolation_level=None,
                check_same_thread=False,  # threads are kept apart as `opening.Connections` says
                cached_statements=256,
            )
        except sqlite3.Error as error:
            self._file.leave()
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
        self._file.leave()


def _failure(error: sqlite3.Error | OverflowError | UnicodeError) -> DatabaseFailure:
    """Errors that the library raises without asking SQLite (a closed connection) count as broken.

    An integer over 64 bits or text that is not UTF-8 is refused: the statement was not run, and the next one can be.
    """
    if not isinstance(error, sqlite3.Error):
        return DatabaseFailure(sqlite3.SQLITE_MISMATCH, str(error))
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_INTERNAL)
    return DatabaseFailure(code, str(error))


# --- a connection that only reads --------------------------------------------------------------------------------


class View(msgspec.Struct, frozen=True):
    """A connection that only reads. `alone`: without the log; `stale`: and there is a log, which may hold more.

    A file that cannot be written (on a read-only mount or a full disk, in a read-only directory, or read-only) is taken
    as it is: nothing is changed, created or locked for others. SQLite reads a file in WAL mode together with its log
    where it finds (or may make) the log's index. Where it does not, the file is read alone: it is whole as of its last
    checkpoint, and what was written after that is not seen.
    """

    database: Database
    alone: bool = False
    stale: bool = False


def is_unwritable(path: Path) -> bool:
    """True if this process may not write the file, its directory, or a file that belongs to it."""
    files = (path.with_name(path.name + suffix) for suffix in _COMPANIONS)
    places = [path.absolute().parent, *(file for file in files if file.exists())]
    return not all(os.access(place, os.W_OK) for place in places)


def view_of(path: Path, connect: Library) -> View:
    """Open the file for reading, with its log if that can be done. Lets `DatabaseFailure` pass."""
    try:
        return View(_probed(connect(path, True)))
    except DatabaseFailure:
        if not is_unwritable(path):
            raise
    return View(_probed(connect(path, True, alone=True)), alone=True, stale=_has_log(path))


def _probed(database: Database) -> Database:
    try:
        database.rows("select 1 from sqlite_master limit 1")
    except BaseException:
        database.close()
        raise
    return database


def _has_log(path: Path) -> bool:
    """True if a log or a rollback journal that was ever written to lies beside the file."""
    return any(_is_begun(path.with_name(path.name + suffix)) for suffix in ("-wal", "-journal"))


def _is_begun(log: Path) -> bool:
    try:
        with log.open("rb") as file:
            return any(file.read(_HEADER))
    except FileNotFoundError:
        return False
    except OSError:
        return True  # it exists, and its contents are unknown
