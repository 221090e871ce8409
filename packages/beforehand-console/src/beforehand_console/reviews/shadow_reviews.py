"""Shadow reviews: people say afterwards whether it was right that a call was sent without a person.

A policy draws the calls, and the engine posts each to the ledger with its ruling. A review is the second entry of the
same stream: no run waits for it, and none is touched by it.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec
from msgspec.structs import replace

from beforehand.control.input_checks import checked_by
from beforehand.errors import UsageError
from beforehand.inspect.reader import JournalReader
from beforehand.journal.entry_codec import read, readable, written
from beforehand.journal.port import Journal, JournalReads, LedgerEntry, Post
from beforehand.model.ids import operation_id, split_operation_id
from beforehand.model.shadow import SHADOW, Left, shadow_stream
from beforehand.model.shell import to_type
from beforehand.people.dossier import Dossier, dossier

REVIEWED: Final = "said"
"""The key of the review that counts: the first one."""
ReviewWord = Literal["right", "wrong"]


class ShadowReview(msgspec.Struct, frozen=True, omit_defaults=True):
    """A person's review of a call. `via` is how their name is known."""

    word: ReviewWord
    by: str
    note: str = ""
    via: str = ""


class DrawnCall(msgspec.Struct, frozen=True):
    """A call that was drawn: its operation (RUN/STEP), the rule that sent it, the question, and the time it was drawn.

    `review` is the review that counts; None while there is none.
    """

    operation: str
    run: str
    tool: str
    agent: str
    rule: str
    asks: str
    at_ms: int
    review: ShadowReview | None = None


async def open_reviews(journal: JournalReads) -> list[DrawnCall]:
    """The calls that wait for a review, the oldest first."""
    first: dict[str, LedgerEntry] = {}
    for entry in await journal.entries(SHADOW):
        if entry.key == REVIEWED:
            first.pop(entry.stream, None)
        elif entry.key == "":
            first.setdefault(entry.stream, entry)
    return [_drawn(entry, left) for entry, left in await readable(journal, list(first.values()), Left)]


async def drawn_call(journal: JournalReads, operation: str) -> DrawnCall:
    """The call of this operation. Raises `UsageError` if it was not drawn."""
    entries = await journal.entries(shadow_stream(*split_operation_id(operation)))
    called = next((entry for entry in entries if entry.key == ""), None)
    if called is None:
        raise UsageError(
            f"{operation} was not drawn for a shadow review",
            next_step="see the calls that wait for one: beforehand shadow-reviews",
        )
    review = next((read(entry, ShadowReview) for entry in entries if entry.key == REVIEWED), None)
    return replace(_drawn(called, read(called, Left)), review=review)


def _drawn(entry: LedgerEntry, left: Left) -> DrawnCall:
    name, traits = operation_id(left.run, left.step), left.traits
    return DrawnCall(name, left.run, traits.tool, traits.agent, traits.rule, left.asks, entry.at_ms)


async def dossier_of_call(reader: JournalReader, call: DrawnCall) -> Dossier:
    """The dossier of the operation. No person was asked about it, so it names no answers."""
    found = await dossier(reader, call.operation)
    why = f"its rule {call.rule!r} sent it without approval"
    return replace(found, asks=call.asks, why=why, open=False, recommended="", answers=(), words=())


async def review(journal: Journal, call: DrawnCall, given: ShadowReview) -> str:
    """Record a review; returns the command that undoes what was wrong. The first review counts.

    Raises `UsageError` for a second one, which is on record beside it.
    """
    checked_by(given.by, "a review")
    stream = shadow_stream(*split_operation_id(call.operation))
    entry = await journal.commit(Post(stream, REVIEWED, written(given)))
    if not entry.fresh:
        first = read(entry, ShadowReview)
        await journal.commit(Post(stream, f"late/{given.by}", written(given)))
        raise UsageError(f"{call.operation} was reviewed before", known=f"{first.by} said that it was {first.word}")
    return to_type("undo", call.run) if given.word == "wrong" else ""
