"""The anchor: a small file beside the journal that reveals a copy or a restored backup.

A database cannot detect that it was rolled back. The anchor remembers which incarnation it was, its head, and on which
file and machine. A journal that does not match its anchor is distrusted: nothing is sent until an operator confirms it.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import msgspec

from beforehand.errors import JournalUnavailable
from beforehand.journal.host import sync
from beforehand.model.heads import Head


class Anchor(msgspec.Struct, frozen=True):
    """The end of the journal as last seen. `record` is the largest stored record id, `hash` its chain hash in hex.

    `entry` and `entry_hash` are the same of the ledger. Device numbers may change with each boot, so `device` counts
    only within one `boot`. `log` has the hashes of the head at `record` and `entry`; `missing` is how many rows the
    log lacked when an operator confirmed it all the same.
    """

    incarnation: str
    record: int
    hash: str
    inode: int
    device: int
    machine: str
    boot: str
    entry: int
    entry_hash: str
    log: tuple[str, str]
    missing: int = 0

    @property
    def head(self) -> Head:
        """The head of the log that was described."""
        return Head(self.record, self.entry, *self.log)


class LogEnds(msgspec.Struct, frozen=True):
    """The end of a file, and its chain hashes where its anchor ends; None: those rows are missing.

    `missing` is how many of its numbers have no row.
    """

    record: int = 0
    entry: int = 0
    record_hash: str | None = None
    entry_hash: str | None = None
    missing: int = 0


def beside(journal: Path) -> Path:
    """The default path of a journal's anchor."""
    return journal.with_name(journal.name + ".anchor")


def load(path: Path) -> Anchor | None:
    """The anchor, or None where there is none that can be read."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Anchor)
    except (OSError, msgspec.DecodeError):
        return None


def save(path: Path, mark: Anchor) -> None:
    """Replace the anchor atomically: after a power loss the old or the new one is there, never half of it."""
    fresh = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        descriptor = os.open(fresh, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            os.write(descriptor, msgspec.json.format(msgspec.json.encode(mark)) + b"\n")
            sync(descriptor)
        finally:
            os.close(descriptor)
        is_first = not path.exists()
        fresh.replace(path)
        if is_first:
            # A replacement that a power loss takes back leaves the older anchor, which is never wrong;
            # but without any anchor a journal with records would be distrusted.
            sync_directory(path.parent)
    except OSError as error:
        with contextlib.suppress(OSError):
            fresh.unlink()
        raise JournalUnavailable(
            f"the anchor {path} cannot be written: {error.strerror}",
            known="the journal itself is intact; without its anchor a restored backup would go unnoticed",
            next_step="make room or give write permission, and try again",
        ) from error


def doubt(kept: Anchor | None, found: Anchor, tails: LogEnds) -> str:
    """The reason to distrust the journal, in a sentence; empty when anchor and file agree.

    `found` describes the file as it is; `tails` holds its hashes at the record and the entry that the anchor names.
    """
    if kept is None:
        if not found.record and not found.entry:
            return ""
        return "the anchor file is missing, so this may be a copy or a restored backup"
    if kept.machine != found.machine:
        return "the anchor was written on another machine: this is a copy"
    if kept.inode != found.inode or (kept.boot == found.boot and kept.device != found.device):
        return "the anchor was written for another file: this is a copy or a restored backup"
    if kept.incarnation != found.incarnation:
        return "the anchor belongs to another incarnation of this journal: one of the two was restored"
    return lost_tail(kept, tails) or _lost_rows(kept, tails)


def _lost_rows(kept: Anchor, tails: LogEnds) -> str:
    lost = tails.missing - kept.missing
    if lost > 0:
        return f"{lost} of its records or ledger entries were removed: `beforehand verify` names them"
    return "records or ledger entries were put into its log: `beforehand verify` names them" if lost else ""


def lost_tail(kept: Anchor, tails: LogEnds) -> str:
    """The rows that the anchor names and the file lacks, in a sentence; empty where none is missing."""
    if kept.record and tails.record_hash != kept.hash:
        return (
            f"the anchor knows {kept.record} records, and this file ends at {tails.record} or differs:"
            " it was rolled back or restored"
        )
    if kept.entry and tails.entry_hash != kept.entry_hash:
        return (
            f"the anchor knows {kept.entry} ledger entries, and this file ends at {tails.entry} or differs:"
            " it was rolled back, restored, or cut"
        )
    return ""


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        sync(descriptor)
    finally:
        os.close(descriptor)
