"""Assignment of items: delegating, snoozing and escalating. None of it changes the run.

Each is an entry of the ledger stream `items/RUN/STEP`, so that its author and time are kept.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec
from msgspec.structs import replace

from beforehand.errors import UsageError
from beforehand.journal.entry_codec import readable, written
from beforehand.journal.port import JournalReads, LedgerEntry, Post
from beforehand.model.ids import stream

ITEMS: Final = "items/"


class Handing(msgspec.Struct, frozen=True, omit_defaults=True):
    """One entry: an item is delegated `to` a person or a `queue`, snoozed, or escalated.

    `until_ms`: the wall clock until which it is snoozed. `via` and `proven_ms` are as in `Command`.
    """

    word: Literal["delegate", "snooze", "escalate"]
    by: str
    to: str = ""
    queue: str = ""
    until_ms: int = 0
    note: str = ""
    via: str = ""
    proven_ms: int = 0


class Handed(msgspec.Struct, frozen=True, omit_defaults=True):
    """The assignment of an item after all entries about it. `escalated` counts the escalations.

    `given_ms` is when it was last delegated, by the ledger.
    """

    to: str = ""
    queue: str = ""
    until_ms: int = 0
    escalated: int = 0
    said: tuple[str, ...] = ()
    given_ms: int = 0

    def queue_now(self, asks: str, asked_ms: int) -> str:
        """The item's present queue: where it was put, unless it was asked anew since in the queue `asks`."""
        return asks if asks and self.given_ms < asked_ms else self.queue or asks

    def after(self, one: Handing, at_ms: int = 0) -> Handed:
        """The assignment after one more entry. An item that is delegated or escalated is no longer snoozed."""
        said = (*self.said, sentence(one))
        if one.word == "snooze":
            return replace(self, until_ms=one.until_ms, said=said)
        urgent = self.escalated + (one.word == "escalate")
        if not (one.to or one.queue):
            return replace(self, until_ms=0, escalated=urgent, said=said)
        return Handed(one.to, one.queue, 0, urgent, said, at_ms)


UNASSIGNED: Final = Handed()


def item_stream(run: str, step: str) -> str:
    """The ledger stream of one item."""
    return stream("items", run, step)


def handing_post(run: str, step: str, one: Handing) -> Post:
    """The ledger entry. Raises `UsageError` for an empty one."""
    if one.word == "delegate" and not (one.to or one.queue):
        raise UsageError("no recipient is named", next_step="name a person or a queue")
    return Post(item_stream(run, step), "", written(one))


async def handed(journal: JournalReads, run: str, step: str) -> Handed:
    """The assignment of one item."""
    return _fold(await readable(journal, await journal.entries(item_stream(run, step)), Handing))


async def all_handed(journal: JournalReads) -> dict[str, Handed]:
    """The assignment of every item that was delegated, snoozed or escalated, by its ledger stream."""
    entries = await journal.entries(ITEMS)
    by_stream: dict[str, list[tuple[LedgerEntry, Handing]]] = {}
    for entry, one in await readable(journal, entries, Handing):
        by_stream.setdefault(entry.stream, []).append((entry, one))
    return {name: _fold(found) for name, found in by_stream.items()}


def _fold(entries: list[tuple[LedgerEntry, Handing]]) -> Handed:
    now = UNASSIGNED
    for entry, one in entries:
        now = now.after(one, entry.at_ms)
    return now


def sentence(one: Handing) -> str:
    """The entry in words."""
    note = f": {one.note}" if one.note else ""
    receiver = one.to or (f"the queue {one.queue}" if one.queue else "")
    match one.word:
        case "delegate":
            return f"{one.by} delegated it to {receiver}{note}"
        case "snooze":
            return f"{one.by} snoozed it{note}"
        case "escalate":
            return f"{one.by} escalated it" + (f" to {receiver}" if receiver else "") + note
