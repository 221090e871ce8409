"""Shadow reviews in the ledger: open ones, and recording a person's answer to one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.errors import UsageError
from holdfast.journal.entry_codec import read, written
from holdfast.journal.port import Journal, LedgerEntry, Post
from holdfast.model.shadow import SAID, SHADOW, Judged, Word, shadow_stream

if TYPE_CHECKING:
    from holdfast.control.command_sink import CommandSink


async def open_shadows(journal: Journal) -> list[LedgerEntry]:
    """Operations that were sent and wait for a review, the oldest first."""
    first: dict[str, LedgerEntry] = {}
    for entry in await journal.entries(SHADOW):
        if entry.key == SAID:
            first.pop(entry.stream, None)
        elif entry.key == "":
            first.setdefault(entry.stream, entry)
    return list(first.values())


async def judge_afterwards(sink: CommandSink, run: str, step: str, judged: Judged) -> str:
    """Record a review; returns what to do next. The first one counts. Raises `UsageError` for a second one."""
    stream = shadow_stream(run, step)
    entry = await sink.post(Post(stream, SAID, written(judged)))
    if not entry.fresh:
        first = read(entry, Judged)
        await sink.post(Post(stream, f"late/{judged.by}", written(judged)))
        raise UsageError(f"{run}/{step} was reviewed before", known=f"{first.by} said that it was {first.word}")
    return after(run, judged.word)


def after(run: str, word: Word) -> str:
    """The next step after a review."""
    if word == "right":
        return ""
    return f"It stays in effect until it is undone: holdfast undo {run}"


def answer_afterwards(item: str) -> str:
    """The command that answers a shadow review."""
    return f"holdfast answer {item} right | wrong --by NAME"
