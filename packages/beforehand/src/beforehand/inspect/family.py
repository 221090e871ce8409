"""The tree of child runs below a run, for readers."""

from __future__ import annotations

import msgspec

from beforehand.inspect.reader import JournalReader
from beforehand.model import records as r

MOST_SHOWN = 200
"""How many runs of a tree are read: a run may start thousands."""


class FamilyMember(msgspec.Struct, frozen=True, omit_defaults=True):
    """One child run: its state, and its own children. `more` counts those that were not read."""

    run: str
    agent: str
    status: str
    reason: str = ""
    children: tuple[FamilyMember, ...] = ()
    more: int = 0


class Family(msgspec.Struct, frozen=True, omit_defaults=True):
    """The relatives of a run: the run that started it, if one did, and the tree of its children."""

    parent: str = ""
    children: tuple[FamilyMember, ...] = ()
    more: int = 0


async def family_of(reader: JournalReader, records: list[r.Record]) -> Family | None:
    """The relatives of a run with these records; None if it has none."""
    room = _Room(reader, MOST_SHOWN)
    first = records[0] if records else None
    parent = first.parent.run if isinstance(first, r.RunStarted) and first.parent is not None else ""
    started = [record for record in records if isinstance(record, r.ChildStarted)]
    children, more = await room.members(started)
    return Family(parent, children, more) if parent or children else None


class _Room:
    """Reads a tree from the top, a level of each branch at a time, as far as there is room."""

    def __init__(self, reader: JournalReader, most: int) -> None:
        self._reader = reader
        self._left = most

    async def members(self, started: list[r.ChildStarted]) -> tuple[tuple[FamilyMember, ...], int]:
        """These children with their own, and how many were left out."""
        shown = started[: max(0, self._left)]
        self._left -= len(shown)
        return tuple([await self._member(record) for record in shown]), len(started) - len(shown)

    async def _member(self, record: r.ChildStarted) -> FamilyMember:
        rows = await self._reader.journal.runs(run=record.run)
        if not rows:
            return FamilyMember(record.run, record.agent, "not begun")
        below = [one async for _, one in self._reader.readable_records(record.run, r.ChildStarted)]
        children, more = await self.members([one for one in below if isinstance(one, r.ChildStarted)])
        ended = rows[0].status in {"completed", "running"}
        return FamilyMember(record.run, record.agent, rows[0].status, "" if ended else rows[0].reason, children, more)
