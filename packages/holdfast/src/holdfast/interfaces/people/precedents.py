"""What people said in similar cases: words about the same tool, in a bounded look at the journal."""

from __future__ import annotations

from collections import Counter
from typing import Final

import msgspec

from holdfast.interfaces.looking import Looking
from holdfast.interfaces.people.earlier import Said, Word, said
from holdfast.model import records as r

RUNS: Final = 200
"""At how many runs, the newest first, the look ends: a dossier must not take longer than reading it."""


class Precedents(msgspec.Struct, frozen=True, omit_defaults=True):
    """How often people said what about the same tool, in `runs` runs that were looked at."""

    approved: int = 0
    declined: int = 0
    asked_back: int = 0
    edited: int = 0
    stood_in: int = 0
    runs: int = 0

    @property
    def answered(self) -> int:
        """All of them together."""
        return self.approved + self.declined + self.asked_back + self.edited + self.stood_in


async def precedents(looking: Looking, agent: str, tool: str, but: str) -> Precedents:
    """The words about `tool` in runs of the same agent, without the operation `but` (RUN/STEP)."""
    rows = await looking.journal.runs(limit=RUNS, newest=True)
    found = [await _words_in(looking, row.run, tool, but) for row in rows if row.agent == agent]
    counts: Counter[str] = Counter(word for words in found for word in words if word != "resolved")
    return Precedents(**counts, runs=len(rows))


async def _words_in(looking: Looking, run: str, tool: str, but: str) -> list[Said]:
    """What was said in one run; of an edit the approval that goes with it counts no second time."""
    tools: dict[str, str] = {}
    words: dict[tuple[str, str], Said] = {}
    async for _, record in looking.readable_records(run):
        if isinstance(record, r.OperationPlanned):
            tools[record.step] = record.intent.tool
        if isinstance(record, Word) and tools.get(record.step) == tool and f"{run}/{record.step}" != but:
            words.setdefault((record.step, record.by), said(record))
    return list(words.values())
