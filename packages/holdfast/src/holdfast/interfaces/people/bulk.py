"""Several answers at once: every word is in the ledger, or none is.

Each word is judged as if it were said alone, and collected instead of posted. Then all of them are committed in one
batch, which the ledger refuses as a whole where anybody answered one of the items meanwhile. A process that dies
before that commit has said nothing; after it the words are final, and whoever drives a run applies those for it.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from holdfast.engine.commands import Command
from holdfast.errors import LedgerTaken, UsageError
from holdfast.interfaces.applying import Applied, Collected
from holdfast.interfaces.people.answers import Answer, answer
from holdfast.interfaces.service import Service
from holdfast.journal.bodies import read_taken
from holdfast.journal.port import Post


class OneOf(msgspec.Struct, frozen=True):
    """One answer of several. `shown` is the digest of what was shown of its item."""

    item: str
    answer: Answer
    shown: str = ""


async def answer_all(
    service: Service, answers: Sequence[OneOf], *, by: str, also: tuple[Post, ...] = ()
) -> list[Applied]:
    """Give all these answers in somebody's name, or none of them. One `Applied` for each run that has a word.

    `also` are ledger entries that stand or fall with them. Raises `UsageError` naming the first that does not fit, or
    that somebody else answered meanwhile.
    """
    if twice := sorted({one.item for one in answers if [each.item for each in answers].count(one.item) > 1}):
        raise UsageError(f"{twice[0]} is answered twice", known="none of the answers was taken")
    words = Collected(service.engine.seams.clock.wall_ms())
    draft = Service(service.engine, words, via=service.via, proven_ms=service.proven_ms)
    for one in answers:
        try:
            await answer(draft, one.item, one.answer, by=by, shown=one.shown)
        except UsageError as error:
            known = f"{error.known}; none of the answers was taken" if error.known else "none of the answers was taken"
            raise UsageError(f"{one.item}: {error.message}", known=known, next_step=error.next_step) from error
    try:
        await service.sink.post_all((*words.posts, *also))
    except LedgerTaken as taken:
        raise UsageError(
            f"{_first(taken)} answered one of them meanwhile",
            known="none of the answers was taken", next_step="look again: holdfast inbox",
        ) from taken  # fmt: skip
    return [await service.sink.apply(run, answered) for run, answered in words.runs.items()]


def _first(taken: LedgerTaken) -> str:
    return read_taken(taken, Command).by or "another person"
