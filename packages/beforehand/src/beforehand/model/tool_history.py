"""The history of one tool and one subject, over all runs: the ledger entries behind a policy's `history`.

An entry is written in the commit that makes it true: with the first attempt, and with a person's last answer. A crash
can neither lose one nor count it twice. Two calls that are judged at the same moment do not know of each other yet.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from beforehand.model.ids import stream
from beforehand.model.policy import Past, PolicyFacts


class HistoryEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """One operation was sent, or people said yes or no to it, at this wall clock (milliseconds)."""

    word: Literal["sent", "approved", "declined"]
    at: int
    operation: str
    amount: float = 0.0


def history_stream(tool: str, subject: str) -> str:
    """The ledger stream of one tool and one subject."""
    return stream("history", tool, subject)


def past_of(entries: Iterable[HistoryEntry], since_ms: int) -> Past:
    """The past that a policy judges by: the entries since that wall clock."""
    found = [entry for entry in entries if entry.at >= since_ms]
    sent = [entry for entry in found if entry.word == "sent"]
    approved, declined = (sum(entry.word == word for entry in found) for word in ("approved", "declined"))
    return Past(len(sent), sum((entry.amount for entry in sent), 0.0), approved, declined)


def history_entry(
    facts: PolicyFacts | None, word: Literal["sent", "approved", "declined"], operation: str, at: int
) -> HistoryEntry | None:
    """The history entry of an operation; None where its policy does not say whom it concerns."""
    return None if facts is None or not facts.subject else HistoryEntry(word, at, operation, facts.amount or 0.0)
