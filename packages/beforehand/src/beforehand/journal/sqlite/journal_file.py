"""One journal file as one process sees it: its connections, its lock, and what to do when the disk fails.

Nothing here knows of event loops. The caller holds a mutex, so one thread at a time is inside. Without it `reader` and
`head` are used, on one thread only, and `follow` and `count_rows`, which open a connection of their own.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import NoReturn

from msgspec.structs import replace

from beforehand.errors import JournalError, JournalUnavailable
from beforehand.journal.backend_rules import trust_entry
from beforehand.journal.fork_safety import belongs_here, keep_for_ever
from beforehand.journal.host import wall_ms
from beforehand.journal.port import Identity, Post, Trust
from beforehand.journal.sqlite import anchor, heads, opening
from beforehand.journal.sqlite.batch import BatchWriter, CommitItem, Perform
from beforehand.journal.sqlite.driver import Database, DatabaseFailure, sidecar
from beforehand.journal.sqlite.failures import explain, file_gone, inherited, kept_locked, rows_gone
from beforehand.journal.sqlite.lock import FileLock
from beforehand.journal.sqlite.opening import CHECKPOINT_PAGES, Connections, FileSettings
from beforehand.model.heads import Head, first_head

_log = logging.getLogger("beforehand.journal")
_SAME_TIME_MS = 100  # file systems count time in ticks of up to 10 ms


class JournalFile:
    """The file. After `failure` is set it takes no more writes until it is opened anew."""

    def __init__(self, settings: FileSettings, perform: Perform | None = None) -> None:
        self.settings = settings
        self._perform = perform or _reads_only
        self.here = settings.parts.here
        self.failure: JournalError | None = None
        self.anchor_is_old = False
        self._lock = FileLock(settings.path.with_name(settings.path.name + "-lock"))
        self._name = str(settings.path)
        self._limit_s = settings.parts.lock_limit_s
        self._watches: list[int] = []
        self._is_new = False  # according to its anchor nothing was ever recorded in it
        self._files: Connections | None = None
        self._batch: BatchWriter | None = None
        self._head: Head | None = None  # how far it was followed; None where there is no anchor to start from
        self._calm: tuple[int, int, int] | None = None  # the log when no process was committing
        self._anchored: Head | None = None  # the head that the anchor was last compared with as a whole
        self._missing = 0  # rows that the log lacked when it was confirmed
        self._is_grown = False
        self._written_pages = 0.0  # estimated, since the last checkpoint
        self._page_scale = 1.0  # what the last checkpoint found, over what was estimated

    # --- opening and closing -------------------------------------------------------------------------

    def open(self) -> Identity:
        """Open the file. Raises `JournalError`."""
        opening.check_place(self.settings)
        path = self.settings.path
        try:
            return self._open(path)
        except DatabaseFailure as failure:
            self._let_go()
            raise explain(failure, path) from failure
        except OSError as error:
            self._let_go()
            raise JournalUnavailable(
                f"{error.filename or path} cannot be opened: {error.strerror}",
                next_step="check that the file and its directory can be read and written",
            ) from error
        except BaseException:
            self._let_go()
            raise

    def _open(self, path: Path) -> Identity:
        self._lock.open()
        if not self._lock.take(self._limit_s):
            raise kept_locked(path, self._limit_s)
        try:
            self._files = files = opening.open_files(self.settings)
            self._start_head(files)
            self._save_anchor(files)
            self._is_new = self._head is not None and not any((self._head.records, self._head.entries))
        finally:
            self._lock.release()
        self.failure = None
        if hasattr(os, "O_PATH"):
            # Descriptors that only name the files. Closing ordinary ones would drop SQLite's locks on them.
            names = [self._name, f"{self._name}-wal"] if files.wal else [self._name]
            self._watches = [os.open(name, os.O_PATH | os.O_CLOEXEC) for name in names]
        self._batch = BatchWriter(files.writer, self._perform)
        belongs_here(self)
        return files.identity

    def close(self) -> None:
        """Checkpoint the log, write the anchor, and release the file. Safe to call twice."""
        files = self._files
        if files is not None and self._lock.take(self._limit_s) and self.failure is None:
            with contextlib.suppress(DatabaseFailure, JournalError, OSError):
                files.writer.rows("pragma wal_checkpoint(passive)")
                self._save_anchor(files)
        self._let_go()

    def disown(self) -> None:
        """In a forked child: close the lock file, which would stay locked, and never touch the connections."""
        files, self._files, self._batch = self._files, None, None
        if files is not None:
            keep_for_ever(files.writer)
            keep_for_ever(files.reader)
        for watch in self._watches:
            os.close(watch)
        self._watches = []
        self.failure = inherited(self.settings.path)
        self._lock.close()

    def _let_go(self) -> None:
        files, self._files = self._files, None
        if files is not None:
            # In this order the log stays, at its full size: a reader that closes last removes nothing.
            for connection in (files.writer, files.reader):
                with contextlib.suppress(DatabaseFailure):
                    connection.close()
        for watch in self._watches:
            os.close(watch)
        self._watches = []
        self._lock.close()

    @property
    def reader(self) -> Database:
        if self._files is None:
            closed = JournalUnavailable(f"{self.settings.path} is closed", next_step="open the journal first")
            raise self.failure or closed
        return self._files.reader

    @property
    def identity(self) -> Identity:
        assert self._files is not None
        return self._files.identity

    # --- committing ----------------------------------------------------------------------------------

    def settle(self, items: Sequence[CommitItem], *, patient: bool) -> bool:
        """Commit a batch; afterwards each item has a result or an error.

        Without `patient` it does not wait: False says that the batch is untouched because another process is writing.
        """
        if self.failure is not None or self._batch is None:
            _fail(items, self.failure or JournalUnavailable(f"{self.settings.path} is closed"))
            return True
        if not (self._lock.take(self._limit_s) if patient else self._lock.try_take()):
            if patient:
                _fail(items, kept_locked(self.settings.path, self._limit_s))
            return patient
        try:
            return self._settle(self._batch, items, patient=patient)
        except Exception as error:  # noqa: BLE001 -- our own bug: callers that wait must receive it, not hang
            self._roll_back()
            self.failure = JournalError(f"{self.settings.path}: the journal failed: {error!r}")
            self.failure.__cause__ = error
            _fail(items, self.failure)
            return True
        finally:
            self._lock.release()

    def _settle(self, batch: BatchWriter, items: Sequence[CommitItem], *, patient: bool) -> bool:
        try:
            batch.commit(items)
        except DatabaseFailure as failure:
            self._roll_back()
            if failure.kind == "busy" and not patient:
                _clear(items)
                return False
            self._settle_after(failure, batch, items)
        self.anchor_is_old = True
        if self._is_new and self.failure is None:
            self._mark_beginning()
        self._written_pages += 2 + len(items)
        if self.failure is None and not self._still_has_a_name():
            self.failure = file_gone(self.settings.path)
            _fail(items, self.failure)
        return True

    def _mark_beginning(self) -> None:
        """Renew the anchor before the first record or entry of a journal is acknowledged.

        Later it follows within a second. Here it must not: a journal whose log was deleted in that second would be
        empty, and its anchor, which had seen nothing, would fit.
        """
        assert self._files is not None
        try:
            self._save_anchor(self._files)
        except (JournalUnavailable, DatabaseFailure, OSError) as error:
            _log.warning("the anchor was not renewed: %s", error)
        self._is_new = self._head is not None and not any((self._head.records, self._head.entries))

    def _settle_after(self, failure: DatabaseFailure, batch: BatchWriter, items: Sequence[CommitItem]) -> None:
        """A statement failed. What is in the file decides; only then may anything be tried again."""
        if self._landed(batch, items):
            return
        _clear(items)
        if failure.kind == "busy" and self._settle_slowly(batch, items):
            return
        if failure.kind in ("refused", "full") and len(items) > 1:
            for item in items:  # one bad write fails alone
                if self.failure is None:
                    self._settle(batch, [item], patient=True)
                else:
                    _fail([item], self.failure)
            return
        error = explain(failure, self.settings.path)
        if failure.kind in ("damaged", "broken"):
            # After a failed sync the system may have dropped the pages and call the next sync a success.
            self.failure = error
        _fail(items, error)

    def _settle_slowly(self, batch: BatchWriter, items: Sequence[CommitItem]) -> bool:
        """A process outside our lock holds the file (a shell, a backup): let SQLite wait for it."""
        assert self._files is not None
        writer = self._files.writer
        writer.rows(f"pragma busy_timeout = {int(self._limit_s * 1000)}")
        try:
            batch.commit(items)
        except DatabaseFailure:
            self._roll_back()
            _clear(items)
            return False
        finally:
            writer.rows("pragma busy_timeout = 0")
        return True

    def _landed(self, batch: BatchWriter, items: Sequence[CommitItem]) -> bool:
        """True if the transaction was committed although its end was reported as a failure."""
        try:
            with self._own_connection() as database:
                return batch.recheck(items, database)
        except DatabaseFailure:
            return False

    def _roll_back(self) -> None:
        assert self._files is not None
        if self._files.writer.in_transaction:
            with contextlib.suppress(DatabaseFailure):
                self._files.writer.rows("rollback")

    def _still_has_a_name(self) -> bool:
        """True if neither the file nor its log was deleted: writes to a deleted file are lost.

        Asked after each commit, so it must be cheap. Whether the *path* still leads here is asked with
        the anchor, about once a second.
        """
        for watch in self._watches:  # noqa: SIM110 -- a generator would double its price
            if not os.fstat(watch).st_nlink:
                return False
        return True

    # --- keeping house -------------------------------------------------------------------------------

    @property
    def wants_checkpoint(self) -> bool:
        return self._written_pages * self._page_scale >= CHECKPOINT_PAGES

    def grow_log(self) -> None:
        """Let the log have its full size, if it can: where the disk is full, commits will say so."""
        if self._files is not None and self._files.wal and not self._is_grown:
            self._is_grown = True
            with contextlib.suppress(OSError):
                opening.grow_log(self.settings.path)

    def checkpoint(self) -> None:
        """Copy the log into the file. SQLite could do it by itself, but would hide a failed sync."""
        if self._files is None or not self._files.wal or self.failure is not None:
            self._written_pages = 0
            return
        if not self._lock.try_take():
            return  # another process is writing; the next tick tries again
        try:
            ((_, pages, _),) = self._files.writer.rows("pragma wal_checkpoint(passive)")
        except DatabaseFailure as failure:
            if failure.kind in ("damaged", "broken"):
                self.failure = explain(failure, self.settings.path)
            return
        finally:
            self._lock.release()
            estimated, self._written_pages = self._written_pages, 0
        assert isinstance(pages, int)
        if pages > 0 and estimated > 0:
            self._page_scale = min(4.0, max(0.05, pages / estimated))

    def changed(self) -> bool | None:
        """See `Journal.changed`, from the time and the size of the log.

        None while the last write is so recent that the next one could bear the same time; while a process commits,
        because what it wrote is seen only after its sync, which does not change the time; and without a log: processes
        that share one are on one machine, and see the same times. The caller holds the committer's mutex.
        """
        if self._files is None or not self._files.wal:
            return None
        try:
            log = sidecar(self.settings.path, "-wal").stat()
        except OSError:
            return None
        if wall_ms() - log.st_mtime_ns // 1_000_000 < _SAME_TIME_MS:
            return None
        mark = log.st_ino, log.st_size, log.st_mtime_ns
        if mark == self._calm:
            return False
        if not self._lock.try_take():
            return None
        self._lock.release()
        self._calm = mark  # the last writer has ended: a read from here on finds what it committed
        return True

    def head(self) -> Head:
        """The head of the log as it is stored now. A journal that is distrusted is read from the beginning."""
        head, files = self._head, self._files
        if head is None:
            assert files is not None
            return heads.whole(self.reader, first_head(files.identity.namespace, files.identity.secret))
        # Two threads may do this at once: both compute the same, from committed rows that never change.
        self._head = head = heads.follow(self.reader, head)
        return head

    def follow(self) -> None:
        """Bring the head up to what is stored. Only reads, so it is called without the lock and delays no writer."""
        head = self._head
        if self._files is not None and head is not None and self.failure is None:
            with contextlib.suppress(DatabaseFailure), self._own_connection() as database:
                self._head = heads.follow(database, head)

    def count_rows(self) -> None:
        """Take no more writes once rows were removed from the open file: what was decided on them is unknown."""
        if self._files is None or self._head is None or self.failure is not None:
            return
        try:
            with self._own_connection() as database:
                lost = heads.missing(database) - self._missing
        except DatabaseFailure:
            return  # a file that cannot be read fails the next write
        if lost:
            self.failure = rows_gone(self.settings.path, lost)
            _log.error("%s", self.failure)

    @contextlib.contextmanager
    def _own_connection(self) -> Generator[Database]:
        """A connection that only reads, apart from those of other threads: see `Connections`."""
        database = self.settings.parts.connect(self.settings.path, True)
        try:
            yield database
        finally:
            database.close()

    def _start_head(self, files: Connections) -> None:
        """Start from the anchor, not from the file: what was changed before the anchor does not enter the head."""
        identity, kept = files.identity, anchor.load(self.settings.anchor)
        self._head, self._anchored, self._missing = None, None, 0
        if identity.trust != "distrustful":
            self._head = kept.head if kept else first_head(identity.namespace, identity.secret)
            self._missing = kept.missing if kept else 0

    def save_anchor(self) -> None:
        """Save the end of the journal in its anchor, unless it is distrusted or confirmed anew by others."""
        self.anchor_is_old = False
        if self._files is None or self.failure is not None:
            return
        if not self._lock.try_take():
            self.anchor_is_old = True
            return
        try:
            if self._lock.is_orphan() or self.settings.path.stat().st_ino != self._files.inode:
                self.failure = file_gone(self.settings.path)
                return
            self._save_anchor(self._files)
        except FileNotFoundError:
            self.failure = file_gone(self.settings.path)
        except (JournalUnavailable, DatabaseFailure, OSError) as error:
            _log.warning("the anchor was not renewed: %s", error)
        finally:
            self._lock.release()

    def _save_anchor(self, files: Connections) -> None:
        identity, path = files.identity, self.settings.anchor
        kept = anchor.load(path)
        if self._head is None or (kept and kept.incarnation != identity.incarnation):
            return
        self._head = head = heads.follow(files.writer, self._head)
        if kept and (kept.record > head.records or kept.entry > head.entries):
            # An anchor never goes back: rows were removed that another process has described, or our head met a gap.
            _log.warning("the anchor was not renewed: the log ends before it; check it with beforehand verify")
            return
        if kept and kept.head == head == self._anchored and kept.missing == self._missing:
            return  # nothing was added since: only a lease was renewed, for example
        mark = opening.measure(files.writer, self.settings, identity.incarnation, head, self._missing)
        if mark != kept:
            anchor.save(path, mark)
        self._anchored = head

    def confirm(self, trust: Trust, by: str) -> Identity:
        """Record an operator's decision: a new incarnation begins, and the anchor is made to fit."""
        assert self._files is not None
        old = self._files.identity
        fresh = self.settings.parts.entropy(8)
        reason = f"confirmed as {trust} by {by}: {old.reason}" if trust != "trusted" else ""

        def work(database: Database) -> None:
            for name, value in (("incarnation", fresh), ("trust", trust), ("reason", reason)):
                database.change("update meta set value = ? where name = ?", (value, name))
            entry = Post("journal", "", trust_entry(trust, by, old.incarnation, old.reason))
            self._perform(database, entry, None)

        item = CommitItem(work=work)
        self.settle([item], patient=True)
        if item.error is not None:
            raise item.error
        identity = replace(old, incarnation=fresh, trust=trust, reason=reason)
        self._files = replace(self._files, identity=identity)
        if trust != "distrustful":
            writer = self._files.writer
            # The operator's decision makes the file the truth, gaps included: the head is computed anew over it.
            self._head = heads.whole(writer, first_head(identity.namespace, identity.secret))
            self._missing = heads.missing(writer)
            mark = opening.measure(writer, self.settings, fresh, self._head, self._missing)
            anchor.save(self.settings.anchor, mark)
        return identity


def _reads_only(*_: object) -> NoReturn:
    raise JournalError("a reader commits nothing")


def _fail(items: Sequence[CommitItem], error: JournalError) -> None:
    for item in items:
        if item.error is None:
            item.error = error


def _clear(items: Sequence[CommitItem]) -> None:
    for item in items:
        item.error, item.result = None, None
