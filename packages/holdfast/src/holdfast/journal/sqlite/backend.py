"""The back end of addresses that name an SQLite file: how such a place is read, found and opened."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from holdfast.errors import UsageError
from holdfast.journal.port import Journal, Reader
from holdfast.journal.sqlite.driver import Library, StandardDatabase, is_open_here, sidecar

_APPLICATION: Final = slice(68, 72), b"HOLD"  # where an SQLite file says which program it belongs to, and what ours say


class SqliteFiles:
    """Journals in SQLite files, through one of the libraries that can open them. A place is a path."""

    lasting = True
    reads_wait = False

    def __init__(self, library: str) -> None:
        self._library = library

    def checked(self, place: str) -> str:
        if not place:
            raise UsageError("the journal has no name", next_step="give a path: --journal desk.db")
        if place == ":memory:":
            raise UsageError(
                "`:memory:` is not a file, and SQLite would forget the journal with each connection",
                next_step="give a path, or memory: for a journal that ends with the process",
            )
        return str(Path(place).expanduser())

    def journal(self, place: str) -> Journal:
        from holdfast.journal.sqlite.journal import SqliteJournal  # noqa: PLC0415 - a command that reads needs none
        from holdfast.journal.sqlite.opening import Parts  # noqa: PLC0415 - as above

        return SqliteJournal(place, parts=Parts(connect=self._connect()))

    def reader(self, place: str) -> Reader:
        from holdfast.journal.sqlite.reader import SqliteReader  # noqa: PLC0415 - a worker needs none

        return SqliteReader(place, connect=self._connect())

    def exists(self, place: str) -> bool:
        path = Path(place)
        return path.exists() and path.stat().st_size > 0  # opening an empty file would turn it into a journal

    def same(self, place: str, other: str) -> bool:
        return Path(place).resolve() == Path(other).resolve()

    def below(self, place: str, directory: Path) -> str:
        return str(directory / place)

    def shown(self, place: str) -> str:
        try:
            return str(Path(place).resolve().relative_to(Path.cwd()))
        except ValueError:
            return place

    def sidecar(self, place: str, suffix: str) -> Path:
        return sidecar(Path(place), suffix)

    def found_in(self, directory: Path) -> list[str]:
        return [str(path) for path in sorted(directory.glob("*.db")) if _is_journal(path)]

    def _connect(self) -> Library:
        if self._library == "sqlite3":
            return StandardDatabase
        try:
            from holdfast.journal.sqlite.apsw_driver import ApswDatabase  # noqa: PLC0415 - an extra
        except ModuleNotFoundError as error:
            raise UsageError(
                "a sqlite+apsw:// journal needs the package apsw", next_step="pip install 'holdfast[apsw]'"
            ) from error
        return ApswDatabase


def _is_journal(path: Path) -> bool:
    # To open and close a file that this process has open would drop the locks that SQLite holds on it.
    if is_open_here(path):
        return True
    place, ours = _APPLICATION
    try:
        with path.open("rb") as file:
            return file.read(place.stop)[place] == ours
    except OSError:
        return False


STANDARD: Final = SqliteFiles("sqlite3")
APSW: Final = SqliteFiles("apsw")
