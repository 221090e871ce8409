"""The history of one tool and one subject, over all runs: the ledger entries behind a policy's `history`.

An entry is written in the commit that makes it true: with the first attempt, and with a person's last answer. A crash
can neither lose one nor count it twice. Two calls that are judged at the same moment do not know of each other yet.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from holdfast.model.ids import stream
from holdfast.model.policy import Past, PolicyFacts


class Deed(msgspec.Struct, frozen=True, omit_defaults=True):
    """One operation was sent, or people said yes or no to it, at this wall clock (milliseconds)."""

    word: Literal["sent", "approved", "declined"]
    at: int
    operation: str
    amount: float = 0.0


def deeds_stream(tool: str, subject: str) -> str:
    """The ledger stream of one tool and one subject."""
    return stream("history", tool, subject)


def past_of(deeds: Iterable[Deed], since_ms: int) -> Past:
    """The past that a policy judges by: the entries since that wall clock."""
    found = [deed for deed in deeds if deed.at >= since_ms]
    sent = [deed for deed in found if deed.word == "sent"]
    approved, declined = (sum(deed.word == word for deed in found) for word in ("approved", "declined"))
    return Past(len(sent), sum((deed.amount for deed in sent), 0.0), approved, declined)


def deed_of(
    facts: PolicyFacts | None, word: Literal["sent", "approved", "declined"], operation: str, at: int
) -> Deed | None:
    """The history entry of an operation; None where its policy does not say whom it concerns."""
    return None if facts is None or not facts.subject else Deed(word, at, operation, facts.amount or 0.0)
