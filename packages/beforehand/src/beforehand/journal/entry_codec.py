"""Bodies of ledger entries: each is read back before it is stored; an unreadable one is set aside alone.

`written` and `read` are the only way in and out, so the reader's own decoder has seen every entry before it is stored.
An entry that cannot be read all the same (another version wrote it, or it was changed) is *refused*: `readable` skips
it and posts a mark to the stream `refused`, which `beforehand doctor` and `beforehand inbox` list. A reader whose
answer would be unsafe without the entry uses `read`, which raises `Unreadable` for what depends on it and for nothing
else.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable
from functools import cache
from typing import Any, Final, TypeVar

import msgspec

from beforehand.errors import ArgumentError, BeforehandError, LedgerTaken, Unreadable
from beforehand.journal.port import JournalReads, LedgerEntry, Post

T = TypeVar("T")
_LOG: Final = logging.getLogger("beforehand")
_ENCODER: Final = msgspec.json.Encoder()
REFUSED: Final = "refused"
"""The ledger stream of entries that were set aside; the key of each is the number of the entry."""


class SetAside(msgspec.Struct, frozen=True):
    """A ledger entry that cannot be read: its number, its stream, and why."""

    entry: int
    stream: str
    why: str


def written(value: object, kind: Any = None) -> bytes:
    """The body of a ledger entry. Raises `ArgumentError`, which names the field, where `read` would refuse it.

    `kind` is what its readers decode, where that is not the type of the value.
    """
    try:
        body = _ENCODER.encode(value)
        _decoder(type(value) if kind is None else kind).decode(body)  # type: ignore[arg-type]  # a type is hashable; typeshed says `object` is not
    except (msgspec.MsgspecError, ValueError, TypeError, OverflowError, RecursionError) as error:
        raise ArgumentError(
            f"this {type(value).__name__} cannot be stored: {error}",
            next_step="nothing was stored; give values of the declared types, finite numbers and valid text",
        ) from error
    return body


def read(entry: LedgerEntry, kind: type[T]) -> T:
    """Decode an entry. Raises `Unreadable`: what depends on the entry cannot continue, everything else can."""
    try:
        found: T = _decoder(kind).decode(entry.body)  # type: ignore[arg-type]  # as above
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise Unreadable(
            f"ledger entry {entry.id} of {entry.stream} cannot be read: {error}",
            known="it is set aside; other entries and runs are not affected",
            next_step="list it, and see whether it was changed:\n  beforehand doctor\n  beforehand verify",
        ) from error
    return found


def read_taken(taken: LedgerTaken, kind: type[T]) -> T:
    """Decode the entry that already holds the key. Raises `Unreadable` as `read` does."""
    return read(LedgerEntry(0, taken.stream, taken.key, taken.body, 0), kind)


async def readable(journal: JournalReads, entries: Iterable[LedgerEntry], kind: type[T]) -> list[tuple[LedgerEntry, T]]:
    """The entries with their decoded bodies; one that cannot be read is set aside, and the others count."""
    found: list[tuple[LedgerEntry, T]] = []
    for entry in entries:
        try:
            found.append((entry, read(entry, kind)))
        except Unreadable as error:
            await set_aside(journal, entry, error)
    return found


async def entries_below(journal: JournalReads, prefix: str) -> dict[str, list[LedgerEntry]]:
    """The entries of all streams below a prefix that ends in `/`, by the rest of their streams' names."""
    entries: dict[str, list[LedgerEntry]] = {}
    for entry in await journal.entries(prefix):
        entries.setdefault(entry.stream.removeprefix(prefix), []).append(entry)
    return entries


async def values_in(journal: JournalReads, stream: str, kind: type[T]) -> list[T]:
    """The decoded bodies of the readable entries of a stream, in order."""
    return [value for _, value in await readable(journal, await journal.entries(stream), kind)]


async def set_aside(journal: JournalReads, entry: LedgerEntry, error: Unreadable) -> None:
    """Mark an entry as refused, once, and log it. A journal that is only read, or cannot be written, keeps no mark."""
    mark = SetAside(entry.id, entry.stream, str(error.__cause__ or error.message))
    commit: Callable[[Post], Awaitable[LedgerEntry]] | None = getattr(journal, "commit", None)
    with contextlib.suppress(BeforehandError):
        if commit is not None and (await commit(Post(REFUSED, str(entry.id), written(mark)))).fresh:
            _LOG.warning("%s", error)


async def refused(journal: JournalReads) -> list[SetAside]:
    """The entries that were set aside, oldest first."""
    found: list[SetAside] = []
    for entry in await journal.entries(REFUSED):
        with contextlib.suppress(Unreadable):  # a mark that cannot be read says nothing
            found.append(read(entry, SetAside))
    return found


@cache
def _decoder(kind: type[Any]) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind)
