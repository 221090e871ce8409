"""Contradictions: evidence against a final outcome. The outcome stays as recorded; a person reviews both.

Each operation has a ledger stream. The commit that records a contradiction opens it under its number, and an answer
closes every contradiction up to a number. So a contradiction on record is open or answered, whatever dies when, and
it can be asked about and answered after its run has ended.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from beforehand.model.ids import stream

CONTRADICTED: Final = "contradicted/"
"""How the ledger streams of contradictions begin."""
ANSWERED: Final = "answered/"
"""How the key of an answer begins; the number up to which it answers follows."""
_SAYS: Final = {"happened": "it happened", "did_not_happen": "it did not happen", "compensate": "it is compensated"}


class Opened(msgspec.Struct, frozen=True, omit_defaults=True):
    """A contradiction as it was opened: the outcome as recorded, and the evidence against it.

    `number` counts the contradictions of one operation. `amends`: its tool declares a compensation.
    """

    run: str
    step: str
    tool: str
    agent: str
    phase: str
    evidence: str
    number: int
    at: int
    amends: bool = False


def contradiction_stream(run: str, step: str) -> str:
    """The ledger stream of the contradictions of one operation."""
    return stream("contradicted", run, step)


def note_of(step: str, word: str, evidence: str) -> str:
    """An answer to a contradiction as it is recorded."""
    return f"{step}: {_SAYS[word]}" + (f" ({evidence})" if evidence else "")


def read_note(note: str) -> tuple[str, bool]:
    """The step that a recorded answer is about, and whether it says that it did not happen."""
    step, _, said = note.partition(": ")
    return step, said.startswith(_SAYS["did_not_happen"])


def contradiction_text(phase: str, evidence: Iterable[str]) -> str:
    """The question of a review, in one sentence."""
    return f"it is recorded as {phase}, and was contradicted: {'; '.join(evidence)}"
