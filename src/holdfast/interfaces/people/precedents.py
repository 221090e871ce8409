"""What people said in similar cases: words about the same tool, in a bounded look at the journal."""

from __future__ import annotations

from typing import Final

import msgspec

from holdfast.interfaces.looking import Looking
from holdfast.model import records as r
from holdfast.model.outcome import ASKED_BACK

RUNS: Final = 200
"""At how many runs of the listing the look ends: a dossier must not take longer than reading it."""


class Precedents(msgspec.Struct, frozen=True, omit_defaults=True):
    """How often people said what about the same tool, in `runs` runs that were looked at."""

    approved: int = 0
    declined: int = 0
    asked_back: int = 0
    runs: int = 0

    @property
    def answered(self) -> int:
        """All of them together."""
        return self.approved + self.declined + self.asked_back


async def precedents(looking: Looking, agent: str, tool: str, but: str) -> Precedents:
    """The words about `tool` in runs of the same agent, without the operation `but` (RUN/STEP)."""
    found, runs, after = Precedents(), 0, ""
    while runs < RUNS and (rows := await looking.journal.runs(limit=RUNS, after=after)):
        after = rows[-1].run
        for row in rows[: RUNS - runs]:
            runs += 1
            if row.agent == agent:
                found = await _in_run(looking, row.run, tool, but, found)
    return msgspec.structs.replace(found, runs=runs)


async def _in_run(looking: Looking, run: str, tool: str, but: str, found: Precedents) -> Precedents:
    tools: dict[str, str] = {}
    async for _, record in looking.records(run):
        if isinstance(record, r.OperationPlanned):
            tools[record.step] = record.intent.tool
        if not isinstance(record, r.ApprovalGranted | r.ApprovalRefused):
            continue
        if tools.get(record.step) == tool and f"{run}/{record.step}" != but:
            found = _counted(found, record)
    return found


def _counted(found: Precedents, word: r.ApprovalGranted | r.ApprovalRefused) -> Precedents:
    if isinstance(word, r.ApprovalGranted):
        return msgspec.structs.replace(found, approved=found.approved + 1)
    if word.code == ASKED_BACK:
        return msgspec.structs.replace(found, asked_back=found.asked_back + 1)
    return msgspec.structs.replace(found, declined=found.declined + 1)
