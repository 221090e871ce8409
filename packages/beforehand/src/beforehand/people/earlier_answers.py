"""Answers on record: to an item, to previous versions of it, and to similar cases of the same tool."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, get_args

import msgspec

from beforehand.inspect.contradictions import last_answer
from beforehand.inspect.reader import JournalReader
from beforehand.inspect.render_records import record_note
from beforehand.inspect.text import moment
from beforehand.journal.entry_codec import read, readable
from beforehand.model import records as r
from beforehand.model.commands import Command, command_stream
from beforehand.model.operation import OperationState
from beforehand.model.outcome import ASKED_BACK
from beforehand.model.questions import Answered, question_stream
from beforehand.people.loaded_item import LoadedItem

if TYPE_CHECKING:
    from beforehand.inspect.comparison import Change

Word: TypeAlias = r.ApprovalGranted | r.ApprovalRefused | r.ArgumentsEdited | r.ResultGiven | r.Resolved
Stated: TypeAlias = Word | r.CommandApplied | r.TransactionAborting | r.TransactionResolved | Command | Answered
Said = Literal["approved", "declined", "asked_back", "edited", "stood_in", "resolved"]
ENDS: Final = {"reopen": "resumes it", "take_over": "takes it over", "cancel": "cancels it"}
"""The commands that answer a run which has stopped, and what each does."""


class AnswerOnRecord(msgspec.Struct, frozen=True):
    """The answer that an item has, and when it was given (0: not known).

    `taken` is false while it is in the ledger and its run has not taken it.
    """

    said: Stated
    at_ms: int
    taken: bool = True


async def answer_on_record(
    reader: JournalReader, about: LoadedItem, records: Sequence[r.Record]
) -> AnswerOnRecord | None:
    """The answer that an item has, also one in the ledger that its run has not taken yet. None where it has none.

    Where several people have to approve an operation, it is the last of their answers so far.
    """
    if isinstance(about.subject, r.QuestionAsked):
        entries = await reader.journal.entries(question_stream(about.run, about.step))
        return AnswerOnRecord(read(entries[0], Answered), entries[0].at_ms) if entries else None
    if about.contradicted:
        last = None if about.open else await last_answer(reader, about.run, about.step)
        return None if last is None else AnswerOnRecord(last, 0)
    if isinstance(about.subject, r.RunStoppedRecord):
        return _end_of(about.subject, records)
    waiting = await _not_taken(reader, about) if about.open else None
    return waiting or _last_word(about, records)


def _end_of(stopped: r.RunStoppedRecord, records: Sequence[r.Record]) -> AnswerOnRecord | None:
    """The decision about a run that stopped."""
    for one in records:
        if isinstance(one, r.CommandApplied) and one.at >= stopped.at and one.command in ENDS and not one.refused:
            return AnswerOnRecord(one, one.at)
    return None


async def _not_taken(reader: JournalReader, about: LoadedItem) -> AnswerOnRecord | None:
    """An answer about an operation that is in the ledger, and that its run has not taken."""
    entries = await reader.journal.entries(command_stream(about.run), about.history.entry_seen)
    for entry, command in await readable(reader.journal, entries, Command):
        answer = command.record
        if isinstance(answer, Word) and answer.step == about.step and not command.after and not command.refused:
            return AnswerOnRecord(answer, entry.at_ms, taken=False)
    return None


def _last_word(about: LoadedItem, records: Sequence[r.Record]) -> AnswerOnRecord | None:
    """The last answer of a person about an operation or a transaction, since the question that is open."""
    for one in reversed(records):
        match one:
            case r.OperationParked(step=name) | r.TransactionParked(transaction=name) if about.open:
                if name == about.step:
                    return None
            case r.TransactionAborting(transaction=name) | r.TransactionResolved(transaction=name):
                if name == about.step and one.by:
                    return AnswerOnRecord(one, one.at)
            case _ if isinstance(one, Word) and one.step == about.step:
                return AnswerOnRecord(one, one.at)
            case _:
                pass
    return None


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
