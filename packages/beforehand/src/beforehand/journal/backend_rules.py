"""Rules that every journal follows, whatever it writes to."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from hashlib import sha256
from typing import Final

import msgspec

from beforehand.errors import ArgumentError, LeaseLost, QueueDraining, QueueFull, RecordRefused, SendingPaused
from beforehand.journal.port import (
    Lease,
    NewRun,
    Post,
    Row,
    RunRow,
    StatusFilter,
    Trust,
    Write,
)  # fmt: skip
from beforehand.model.shell import to_type

MAX_BODY = 64 << 20
"""Largest size of one record in bytes. Larger results belong into a file whose name is recorded."""

FOREVER_MS = 2**53 - 1
"""Silence of an unknown worker in milliseconds: the largest integer that JSON carries exactly."""

NEWS_PAGE: Final = 10_000
"""How many new ledger entries are looked through at once: a process that was stopped for long may have missed many."""

SENDING: Final = "pause/*"
"""The stream of commands about all sending. It is paused while the key of the newest of them begins with `PAUSED`."""
PAUSED: Final = "pause/"

CHANGED: Final = "it was changed, removed or moved after it was written"
"""The reason why a row breaks its chain, in a sentence."""


def check_size(write: Write, row: Row) -> None:
    """Raise `RecordRefused` where a record is larger than any journal takes."""
    if len(row.body) > MAX_BODY:
        raise RecordRefused(
            f"{write.lease.run}: record {row.seq} has {len(row.body)} bytes; the limit is {MAX_BODY}",
            next_step="store the content elsewhere and record where it is",
        )


def first_write(lease: Lease, new: NewRun) -> Write:
    """The first write of a new run. Raises `RecordRefused` for a record that is too large."""
    write = Write(lease, new.rows, new.change)
    check_extras(write)
    for row in new.rows:
        check_size(write, row)
    return write


def lease_lost(lease: Lease) -> LeaseLost:
    """The refusal of a write under a lease that another owner has taken over."""
    return LeaseLost(
        f"run {lease.run}: lease {lease.token} was taken over by another owner",
        known="nothing was written",
        next_step=f"the new owner continues the run: {to_type('show', lease.run)}",
    )


def sending_paused(run: str) -> SendingPaused:
    """The refusal of a write that would begin an attempt while all sending is paused."""
    return SendingPaused(
        f"run {run}: all sending is paused",
        known="nothing was written, and nothing is sent",
        next_step="see by whom and why: beforehand doctor",
    )


def out_of_order(write: Write, expected: int) -> RecordRefused:
    """The refusal of a write that does not continue at the end of its run."""
    return RecordRefused(
        f"{write.lease.run}: record {write.rows[0].seq} came where {expected} is next",
        known="an earlier write of this run was refused, or two logs write to it",
    )


def check_post(post: Post) -> None:
    """Raise `ArgumentError` where an entry has a name or a size that no journal accepts."""
    for what, text in (("stream", post.stream), ("key", post.key)):
        if not is_text(text):
            raise ArgumentError(
                f"{text!r} cannot be the {what} of a ledger entry",
                parameter=what,
                next_step="give text that has a UTF-8 form; nothing was stored",
            )
    if len(post.body) > MAX_BODY:
        raise ArgumentError(f"a ledger entry has {len(post.body)} bytes; the limit is {MAX_BODY}", parameter="body")


def check_extras(write: Write) -> None:
    """Check what is stored beside records. Raises for a listing outside of 64 bits, or an invalid ledger entry."""
    change = write.change
    if change is not None and not (change.due_ms is None or abs(change.due_ms) <= FOREVER_MS):
        raise RecordRefused(f"{write.lease.run}: {change.due_ms} is not a time at which a run can be due")
    for post in write.posts:
        check_post(post)


def is_text(text: object) -> bool:
    """True if the text has a UTF-8 form: it has no lone surrogates."""
    if not isinstance(text, str):
        return False
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def ledger_hash(previous: bytes | None, post: Post, at_ms: int) -> bytes:
    """The hash of a ledger entry; `previous` is the entry before it in the same stream, if any."""
    head = previous or sha256(b"beforehand/1/ledger\0" + post.stream.encode()).digest()
    fields = b"\0".join((post.key.encode(), str(at_ms).encode(), post.body))
    return sha256(head + fields).digest()


def trust_entry(trust: Trust, by: str, incarnation: str, reason: str = "") -> bytes:
    """The ledger entry of an operator's decision about a distrusted journal."""
    return msgspec.json.encode({"trust": trust, "by": by, "incarnation": incarnation, "reason": reason})


def stands(line: RunRow, which: StatusFilter | None) -> bool:
    """True if the line matches the filter."""
    if which == "halted":
        return line.status == "stopped" and line.waits != b"[]"
    return which in (None, line.status)


ENDED: Final = ("completed", "stopped", "undone")
"""The states of a run that goes on only by a command."""


def wants_worker(line: RunRow, wall_ms: int, gone: Callable[[str], bool]) -> bool:
    """True if a worker should claim the run: no living worker owns it, and it runs, is due, or lost its owner.

    An owner that died with a waiting run may have claimed it to deliver something to it. So may one that died with a
    run that has ended: those who gave it further commands relied on that owner.
    """
    if line.owner is not None and line.status in ENDED:
        return gone(line.owner)
    if line.status not in {"running", "suspended"} or line.queue:  # those of queues are found by `take`
        return False
    if line.owner is not None:
        return gone(line.owner)
    return line.status == "running" or (line.due_ms is not None and line.due_ms <= wall_ms)


def due_since(line: RunRow) -> tuple[int, int]:
    """Sort key: the run that has been due longest gets a worker first."""
    waits = line.status == "suspended" and line.due_ms is not None and line.owner is None
    return line.due_ms if waits and line.due_ms is not None else line.updated_ms, line.row


def wants_look(line: RunRow, wall_ms: int, gone: Callable[[str], bool]) -> bool:
    """True if a worker should verify again what a stopped run left unknown: it is due and no living worker owns it."""
    due = line.due_ms is not None and line.due_ms <= wall_ms
    return line.status == "stopped" and due and (line.owner is None or gone(line.owner))


def queue_full(queue: str, waiting: int) -> QueueFull:
    """The error of a submission to a queue without room."""
    return QueueFull(
        f"the queue {queue} is full: {waiting} runs wait to begin",
        known="nothing was stored",
        next_step="submit again when `beforehand queues` shows room, start more workers, or raise its capacity",
    )


def queue_draining(queue: str) -> QueueDraining:
    """The error of a submission to a queue that is drained."""
    return QueueDraining(
        f"the queue {queue} is drained: it accepts no submissions",
        known="nothing was stored",
        next_step=f"submit to another queue, or again after: {to_type('queues', 'resume', queue)}",
    )


def page(lines: Iterable[RunRow], limit: int, wanted: Callable[[RunRow], bool]) -> list[RunRow]:
    """The first `limit` lines that match; reads no further than that."""
    found: list[RunRow] = []
    for line in lines:
        if len(found) >= limit:
            break
        if wanted(line):
            found.append(line)
    return found
