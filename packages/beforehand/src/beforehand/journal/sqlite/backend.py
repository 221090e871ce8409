"""The back end of addresses that name an SQLite file: how such a place is read, found and opened."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from beforehand.errors import UsageError
from beforehand.installation import extra_command
from beforehand.journal.port import Journal, Reader
from beforehand.journal.sqlite.driver import Library, StandardDatabase, application_of, is_open_here

_APPLICATION_ID: Final = 0x42464844  # as in `schema`, whose import costs a command that reads more than this copy


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
        from beforehand.journal.sqlite.journal import SqliteJournal  # noqa: PLC0415 - a command that reads needs none
        from beforehand.journal.sqlite.opening import Parts  # noqa: PLC0415 - as above

        return SqliteJournal(place, parts=Parts(connect=self._connect()))

    def reader(self, place: str) -> Reader:
        from beforehand.journal.sqlite.reader import SqliteReader  # noqa: PLC0415 - a worker needs none

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

    def found_in(self, directory: Path) -> list[str]:
        return [str(path) for path in sorted(directory.glob("*.db")) if _is_journal(path)]

    def _connect(self) -> Library:
        if self._library == "sqlite3":
            return StandardDatabase
        try:
            from beforehand.journal.sqlite.apsw_driver import ApswDatabase  # noqa: PLC0415 - an extra
        except ModuleNotFoundError as error:
            raise UsageError(
                "a sqlite+apsw:// journal needs the package apsw", next_step=extra_command("apsw")
            ) from error
        return ApswDatabase


def _is_journal(path: Path) -> bool:
    return is_open_here(path) or application_of(path) == _APPLICATION_ID


STANDARD: Final = SqliteFiles("sqlite3")
APSW: Final = SqliteFiles("apsw")
