"""Reading a journal file, without an event loop and without a thread: nothing here waits for a commit.

A file that can be written is opened as by a worker, which brings it up to date and heals what a crash left. One that
cannot be written is taken as it is (see `driver.View`); the identity's notices say so.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from beforehand.errors import JournalError, JournalUnavailable
from beforehand.journal.port import (
    ClockReading,
    Identity,
    KnownHead,
    LedgerEntry,
    LogCheck,
)
from beforehand.journal.sqlite import anchor, heads, ledger, opening, schema
from beforehand.journal.sqlite.driver import (
    Database,
    DatabaseFailure,
    Library,
    StandardDatabase,
    View,
    is_unwritable,
    view_of,
)
from beforehand.journal.sqlite.failures import explain
from beforehand.journal.sqlite.journal_file import JournalFile
from beforehand.journal.sqlite.log_check import check_log
from beforehand.journal.sqlite.reads import SqliteReads
from beforehand.journal.sqlite.runs import RunTables
from beforehand.model.heads import Head, first_head

T = TypeVar("T")


class SqliteReader(SqliteReads):
    """A journal that is only read.

    `untouched` takes a file as it is even if it could be written. One that cannot be is `untouched` anyway.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, untouched: bool = False, connect: Library = StandardDatabase
    ) -> None:
        self.path = Path(path).absolute()
        self._untouched = untouched
        self._connect = connect
        self._settings = opening.FileSettings(self.path, anchor.beside(self.path), parts=opening.Parts(connect=connect))
        self._roll = RunTables(self._settings.parts.here, lambda: self._identity.incarnation)
        self._store = JournalFile(self._settings)
        self._identity = Identity("", b"", "")
        self._database: Database | None = None
        self._why_untouched = f"{self.path.name} or its directory cannot be written"

    async def open(self) -> Identity:
        """Open it as far as it can be read. Raises `JournalError`."""
        if not self._untouched:
            try:
                self._identity = self._store.open()
                self._database = self._store.reader
            except JournalUnavailable as error:
                if _lacks_room(error):
                    self._why_untouched = "the disk is full (make room)"
                elif not is_unwritable(self.path):
                    raise
                self._untouched = True
        if self._untouched:
            self._identity = msgspec.structs.replace(self._take_as_it_is(), untouched=True)
        return self._identity

    async def close(self) -> None:
        database, self._database = self._database, None
        if database is not None and self._untouched:
            database.close()
        self._store.close()

    def _take_as_it_is(self) -> Identity:
        opening.check_place(self._settings)
        try:
            view = view_of(self.path, self._connect)
            with contextlib.ExitStack() as refused:
                refused.callback(view.database.close)
                identity = self._identify(view)
                refused.pop_all()
        except DatabaseFailure as failure:
            raise explain(failure, self.path) from failure
        self._database = view.database
        return identity

    def _identify(self, view: View) -> Identity:
        schema.check_is_journal(view.database, self.path)
        ((found,),) = view.database.rows("pragma user_version")
        assert isinstance(found, int)
        newest = self._settings.parts.migrations[-1].version
        if found != newest:
            raise JournalError(
                f"{self.path} has schema version {found}; this release reads {newest}",
                known="it cannot be brought up to date, as it cannot be written",
                next_step="use the release that wrote the file, or a copy that can be written",
            )
        identity = opening.read_identity(view.database, self._settings, _notices(self._why_untouched, view))
        if not view.stale or identity.trust != "distrustful":
            return identity
        return msgspec.structs.replace(identity, reason=f"{identity.reason} (or its end is in the log, unread)")

    # --- reading ---------------------------------------------------------------------------------------------

    def clock(self) -> ClockReading:
        here = self._roll.here
        return ClockReading(here.boot, up := here.uptime_ms(), up, here.wall_ms())

    async def head(self) -> Head:
        if not self._untouched:
            return self._read(lambda _: self._store.head())
        kept = anchor.load(self._settings.anchor)
        if kept is not None and self._identity.trust != "distrustful":
            return self._read(lambda database: heads.follow(database, kept.head))
        start = first_head(self._identity.namespace, self._identity.secret)
        return self._read(lambda database: heads.whole(database, start))

    # --- for operators ----------------------------------------------------------------------------------

    async def check(self, known: Sequence[KnownHead]) -> LogCheck:
        try:
            view = view_of(self.path, self._connect)
        except DatabaseFailure as failure:
            raise explain(failure, self.path) from failure
        return check_log(view, self.path, self._identity, known)

    async def ledger(self) -> AsyncIterator[LedgerEntry]:
        entries = self._page(0)
        while entries:
            for entry in entries:
                yield entry
            entries = self._page(entries[-1].id)

    async def next_stream(self, after: str) -> str:
        return self._read(lambda database: ledger.next_stream(database, after))

    def _page(self, after: int) -> list[LedgerEntry]:
        return self._read(lambda database: ledger.page(database, after))

    def _read(self, query: Callable[[Database], T]) -> T:
        if self._database is None:
            raise JournalUnavailable(f"{self.path} is not open", next_step="open the journal first")
        try:
            return query(self._database)
        except DatabaseFailure as failure:
            raise explain(failure, self.path) from failure


def _lacks_room(error: BaseException | None) -> bool:
    """True if an operation failed since the disk, or this user's quota, is full."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in {errno.ENOSPC, errno.EDQUOT}:
            return True
        if isinstance(error, DatabaseFailure) and error.kind == "full":
            return True
        error = error.__cause__
    return False


def _notices(why: str, view: View) -> tuple[str, ...]:
    notice = f"{why}: the journal is open for reading only"
    if view.stale:
        return (f"{notice}, and without its log: what was written last may be missing",)
    if view.alone:
        return (f"{notice}; if a process elsewhere writes to it now, look again",)
    return (notice,)
