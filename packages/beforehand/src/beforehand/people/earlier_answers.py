"""Earlier answers: to previous versions of the same item, and to similar cases of the same tool."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, get_args

import msgspec

from beforehand.inspect.reader import JournalReader
from beforehand.inspect.render_records import record_note
from beforehand.inspect.text import moment
from beforehand.journal.entry_codec import readable
from beforehand.model import records as r
from beforehand.model.commands import Command, command_stream
from beforehand.model.operation import OperationState
from beforehand.model.outcome import ASKED_BACK

if TYPE_CHECKING:
    from beforehand.inspect.comparison import Change

Word: TypeAlias = r.ApprovalGranted | r.ApprovalRefused | r.ArgumentsEdited | r.ResultGiven | r.Resolved
Said = Literal["approved", "declined", "asked_back", "edited", "stood_in", "resolved"]


class Earlier(msgspec.Struct, frozen=True, omit_defaults=True):
    """A person's answer about this operation, or about an earlier one of the same tool in this run."""

    step: str
    by: str
    word: Said
    text: str
    arguments: r.Raw
    at_ms: int


def earlier_answers(operation: OperationState, records: Sequence[r.Record]) -> tuple[Earlier, ...]:
    """Earlier answers about this tool in this run, in order."""
    intents = _intents(records)
    found: list[Earlier] = []
    for record in records:
        if not isinstance(record, Word):
            continue
        intent = intents.get(record.step)
        if intent is None or intent.tool != operation.intent.tool:
            continue
        text = record_note(record)[1]
        found.append(Earlier(record.step, record.by, decision_of(record), text, intent.arguments, record.at))
    return tuple(found)


async def answers_about_step(reader: JournalReader, run: str, step: str, records: Sequence[r.Record]) -> list[str]:
    """Answers about one operation, in order, each with its time and how its giver's name is known."""
    found = [one for one in records if isinstance(one, Word) and one.step == step]
    if not found:
        return []
    entries = await reader.journal.entries(command_stream(run))
    orders = {entry.id: order for entry, order in await readable(reader.journal, entries, Command)}
    lines: list[str] = []
    for one in found:
        order = orders.get(one.entry)
        via = "" if order is None else order.via
        lines.append(f"{moment(one.at)}: {' '.join(record_note(one))}" + (f" ({via})" if via else ""))
    return lines


def decision_of(record: Word) -> Said:
    """An answer in a word."""
    match record:
        case r.ArgumentsEdited():
            return "edited"
        case r.ResultGiven():
            return "stood_in"
        case r.ApprovalGranted():
            return "approved"
        case r.ApprovalRefused():
            return "asked_back" if record.code == ASKED_BACK else "declined"
        case r.Resolved():
            return "resolved"


def changes_from(operation: OperationState, before: Sequence[r.Record]) -> tuple[Change, ...]:
    """The changes of its arguments from the original call, or from the last version that people refused in this run."""
    from beforehand.inspect.comparison import differences  # noqa: PLC0415 - `why` shows no changes

    if operation.edits:
        return differences(operation.as_called.arguments, operation.intent.arguments)
    refused = {record.step for record in before if isinstance(record, r.ApprovalRefused)}
    versions = [
        intent for step, intent in _intents(before).items() if step in refused and intent.tool == operation.intent.tool
    ]
    return differences(versions[-1].arguments, operation.intent.arguments) if versions else ()


def _intents(records: Sequence[r.Record]) -> dict[str, r.Intent]:
    found: dict[str, r.Intent] = {}
    for record in records:
        intent = getattr(record, "intent", None)
        if isinstance(intent, r.Intent):
            found[str(getattr(record, "step", ""))] = intent
    return found


RUNS: Final = 200
"""Number of runs that are searched, the newest first: a dossier must not take longer to make than to read."""


class Precedents(msgspec.Struct, frozen=True, omit_defaults=True):
    """Counts of the answers about the same tool, in the `runs` runs that were searched."""

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


async def precedents(reader: JournalReader, agent: str, tool: str, but: str) -> Precedents:
    """The answers about `tool` in runs of the same agent, without the operation `but` (RUN/STEP)."""
    rows = await reader.journal.runs(limit=RUNS, newest=True)
    found = [await _words_in(reader, row.run, tool, but) for row in rows if row.agent == agent]
    counts: Counter[str] = Counter(word for words in found for word in words if word != "resolved")
    return Precedents(**counts, runs=len(rows))


async def _words_in(reader: JournalReader, run: str, tool: str, but: str) -> list[Said]:
    """The answers in one run; the approval that goes with an edit is not counted again."""
    tools: dict[str, str] = {}
    words: dict[tuple[str, str], Said] = {}
    async for _, record in reader.readable_records(run, r.OperationPlanned, *get_args(Word)):
        if isinstance(record, r.OperationPlanned):
            tools[record.step] = record.intent.tool
        if isinstance(record, Word) and tools.get(record.step) == tool and f"{run}/{record.step}" != but:
            words.setdefault((record.step, record.by), decision_of(record))
    return list(words.values())
