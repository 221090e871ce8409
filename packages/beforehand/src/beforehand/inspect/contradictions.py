"""Contradictions of a recorded outcome: the answers about them, and the work that relied on the outcome."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

from beforehand.inspect.reader import JournalReader
from beforehand.inspect.text import moment
from beforehand.journal.entry_codec import readable
from beforehand.journal.port import LedgerEntry
from beforehand.model import records as r
from beforehand.model.commands import Command
from beforehand.model.contradiction import ANSWERED, contradiction_stream
from beforehand.model.ids import reuse_stream
from beforehand.model.run_history import RunHistory
from beforehand.model.shell import to_type

SHOWN: Final = 50
"""How many of those that relied on an outcome are named."""
Settling: TypeAlias = r.OperationSettled | r.Resolved


async def answers_about(reader: JournalReader, run: str, step: str) -> list[str]:
    """The answers to the contradictions of one operation, in order, each with its time and its giver."""
    answers = await _answers(reader, run, step)
    return [f"{moment(entry.at_ms)}: {one.by} answered the contradiction: {one.note}" for entry, one in answers]


async def last_answer(reader: JournalReader, run: str, step: str) -> Command | None:
    """The newest answer to the contradictions of one operation."""
    return next((one for _, one in reversed(await _answers(reader, run, step))), None)


async def _answers(reader: JournalReader, run: str, step: str) -> list[tuple[LedgerEntry, Command]]:
    entries = await reader.journal.entries(contradiction_stream(run, step))
    return await readable(reader.journal, [one for one in entries if one.key.startswith(ANSWERED)], Command)


async def relied_on(
    reader: JournalReader, history: RunHistory, records: Sequence[r.Record], step: str
) -> tuple[str, ...]:
    """The work begun after the outcome of `step` was given to the agent's code, and operations that reused it."""
    given = next((n for n, one in enumerate(records) if isinstance(one, Settling) and one.step == step), None)
    if given is None:
        return ()
    before = {str(getattr(one, "step", "")) for one in records[:given]}
    known = {**history.boundaries.former, **history.operations}
    found = [
        f"{other.step} ({other.phase}) began after it"
        for name, other in known.items()
        if name not in before and not other.intent.serves and (other.landed or not other.final)
    ]
    reused = await reader.journal.entries(reuse_stream(f"{history.run}/{step}"))
    found.extend(f"{entry.body.decode()} reused its outcome" for entry in reused)
    if history.lifecycle.completed is not None:
        found.append(f"run {history.run} completed with its result")
    hidden = len(found) - SHOWN
    return tuple(found) if hidden <= 0 else (*found[:SHOWN], f"and {hidden} more: {to_type('show', history.run)}")
