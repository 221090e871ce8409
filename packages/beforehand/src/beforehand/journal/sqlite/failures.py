"""Explanations of a failing disk, file or lock, for the person who has to fix it."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from beforehand.errors import JournalError, JournalLocked, JournalUnavailable, RecordRefused
from beforehand.journal.fork_safety import NEXT_STEP
from beforehand.journal.host import lock_holder
from beforehand.journal.sqlite.driver import DatabaseFailure

LOCK_LIMIT_S = 30.0
"""How long a write waits for other processes before it fails."""


def explain(failure: DatabaseFailure, path: Path) -> JournalError:
    """Explain a failure of SQLite to a person."""
    match failure.kind:
        case "full":
            return JournalUnavailable(
                f"{path}: no space left on the disk",
                known="nothing was written; what was acknowledged is safe",
                next_step="make room: open processes then continue by themselves, beforehand worker the other runs",
            )
        case "readonly":
            return JournalUnavailable(
                f"{path} cannot be written: {failure}",
                known="nothing was written",
                next_step="check the permissions of the file and its directory, and the mount",
            )
        case "damaged" if failure.code & 0xFF == sqlite3.SQLITE_NOTADB:
            return JournalUnavailable(
                f"{path} is not a SQLite database",
                known="nothing was changed in it: it is another file, or the first page of the journal is damaged",
                next_step="name the journal; if this is it, keep a copy of the file and restore a backup",
            )
        case "damaged":
            return JournalUnavailable(
                f"{path} is damaged: {failure}",
                known="nothing more is written to it",
                next_step="keep a copy of the file, restore a backup if need be, and look first: beforehand verify",
            )
        case "busy":
            return kept_locked(path, LOCK_LIMIT_S)
        case "refused":
            return RecordRefused(f"{path} refused a record: {failure}", known="nothing of it was written")
        case "broken":
            return JournalUnavailable(
                f"{path}: the disk failed: {failure} (SQLite code {failure.code})",
                known="what was acknowledged is safe; the journal takes no more writes through this process",
                next_step="check the disk, then restart the process",
            )


def kept_locked(path: Path, limit_s: float) -> JournalLocked:
    """Another process holds the file for longer than is waited."""
    lock = path.with_name(path.name + "-lock")
    found = lock_holder(lock)
    who, command = "another process", f"find out which one: fuser {path} {lock}"
    if found is not None:
        state = f", which is {found.state}" if found.state else ""
        who = f"process {found.pid}{state}, on this machine"
        command = f"look at it: ps -fp {found.pid}"
        if found.state.startswith("stopped"):
            command = f"let it go on (kill -CONT {found.pid}) or end it (kill -KILL {found.pid})"
    return JournalLocked(
        f"{path} has been locked for {limit_s:g} s by {who}",
        known="nothing was written; runs go on when the lock is free",
        next_step=command,
    )


def inherited(path: Path) -> JournalUnavailable:
    """The journal was opened by the parent of this forked process."""
    return JournalUnavailable(
        f"{path} was opened before this process was forked",
        known="nothing was read or written; the parent goes on with it",
        next_step=NEXT_STEP,
    )


def file_gone(path: Path) -> JournalUnavailable:
    """The path no longer leads to the file that is open."""
    return JournalUnavailable(
        f"{path}, its log or its lock file was deleted, moved or replaced while it was open",
        known="what was acknowledged before is in the file that was there then",
        next_step="put the file back, or start the process again with the new one",
    )


def rows_gone(path: Path, lost: int) -> JournalUnavailable:
    """Rows were removed from, or put into, the log of a journal that is open."""
    what = f"{lost} of its records or ledger entries were removed" if lost > 0 else "rows were put into its log"
    return JournalUnavailable(
        f"{path}: {what} by other means while it was open",
        known="nothing more is written or sent through this process",
        next_step="stop the process, keep a copy of the file, and look:\n  beforehand verify\n  beforehand doctor",
    )
