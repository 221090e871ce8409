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


def contradiction_text(phase: str, evidence: Iterable[str]) -> str:
    """The question of a review, in one sentence."""
    return f"it is recorded as {phase}, and was contradicted: {'; '.join(evidence)}"
