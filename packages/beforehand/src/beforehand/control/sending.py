"""One switch for all sending. While it is off, no process records an attempt of any operation (`Write.sends`)."""

from __future__ import annotations

from typing import Literal

import msgspec

from beforehand.control.input_checks import checked_by
from beforehand.engine.breaker import ToolPause, restriction_in
from beforehand.engine.engine import Engine
from beforehand.errors import JournalError, Unreadable
from beforehand.inspect.reader import JournalReader
from beforehand.journal.backend_rules import SENDING
from beforehand.journal.entry_codec import written
from beforehand.journal.port import LedgerEntry, Post
from beforehand.model.ids import operation_id
from beforehand.model.outcome import FINAL
from beforehand.queues.modes import Restriction


class OpenAttempt(msgspec.Struct, frozen=True):
    """An attempt on record whose call may still be under way: its effect may still happen. `since_ms`: wall clock."""

    run: str
    operation: str
    tool: str
    attempt: int
    since_ms: int


async def switch_sending(
    engine: Engine, word: Literal["pause", "unpause"], *, by: str, why: str = ""
) -> tuple[Restriction | None, bool]:
    """Pause all sending, or let it go on. Who has paused it, if it is paused then, and whether this has changed it.

    Once this returns, no attempt becomes durable in any process while it is paused. Outcomes are recorded, and the
    world is read back.
    """
    command = written(ToolPause(word, checked_by(by), why))
    while True:
        newest = next(reversed(await engine.journal.entries(SENDING)), None)
        paused = None if newest is None else _restriction(newest)
        if (paused is None) == (word == "unpause"):
            return paused, False
        # The key makes it a compare-and-set: a command that another one has overtaken reads again.
        posted = await engine.journal.commit(Post(SENDING, f"{word}/{0 if newest is None else newest.id}", command))
        if posted.fresh:
            await engine.look()
            return _restriction(posted), True


async def open_attempts(reader: JournalReader) -> tuple[list[OpenAttempt], list[str]]:
    """The attempts whose end is not known, and the runs that cannot be read, each with the reason.

    While all sending is paused these are all whose effect may still happen.
    """
    found, unreadable = list[OpenAttempt](), list[str]()
    async for row in reader.every_run():
        if row.status in {"queued", "completed", "undone"}:
            continue
        try:
            history = await reader.history(row.run)
        except JournalError as error:
            unreadable.append(f"{row.run}: {error.message}")
            continue
        found += [
            OpenAttempt(row.run, operation_id(row.run, one.step), one.intent.tool, attempt.number, attempt.at)
            for one in history.operations.values()
            for attempt in one.attempts
            if one.phase not in FINAL and attempt.over_up is None
        ]
    return sorted(found, key=lambda one: (one.since_ms, one.operation)), unreadable


def _restriction(entry: LedgerEntry) -> Restriction | None:
    """Who has paused all sending with this command. One that cannot be read may have been a pause, so it is."""
    try:
        return restriction_in(entry)
    except Unreadable:
        return Restriction(f"ledger entry {entry.id}", entry.at_ms, "it cannot be read")
