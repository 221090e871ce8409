"""Reading what people said, and what left without them, from the records of all runs. Nothing here writes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

import msgspec
from msgspec.structs import replace

from holdfast.engine.commands import command_stream
from holdfast.interfaces.looking import Looking
from holdfast.model import records as r
from holdfast.model.ids import operation_id
from holdfast.model.looks import Kind, Look, Passed, Said, Traits
from holdfast.model.outcome import ASKED_BACK, EXPIRED
from holdfast.model.planted import Ended, is_planted, shown_agent
from holdfast.model.system import is_system
from holdfast.model.transactions import WHOLE_RUN

Word: TypeAlias = (
    r.ApprovalGranted | r.ApprovalRefused | r.ArgumentsEdited | r.ResultGiven | r.Resolved | r.OperationSettled
)


class Gathered(msgspec.Struct):
    """What the journal holds: words of people, and operations that left without one."""

    looks: list[Look]
    passed: list[Passed]


async def gather(looking: Looking, since_ms: int = 0) -> Gathered:
    """Read every run that changed since that wall clock."""
    found = Gathered([], [])
    async for row in looking.every_run():
        if row.updated_ms < since_ms or (is_system(row.agent) and not is_planted(row.agent)):
            continue
        reading = RunReading(row.run)
        async for _, record in looking.records(row.run):
            reading.add(record)
        if reading.entries:
            reading.answered_at(await _moments(looking, row.run))
        found.looks.extend(reading.looks)
        found.passed.extend(reading.passed)
    return found


async def _moments(looking: Looking, run: str) -> Mapping[int, int]:
    """When each order was given. Its record says when it was applied, which may be much later."""
    return {entry.id: entry.at_ms for entry in await looking.journal.entries(command_stream(run))}


class RunReading:
    """One run, read record by record."""

    def __init__(self, run: str) -> None:
        self.run: Final = run
        self.looks: list[Look] = []
        self.entries: dict[int, int] = {}  # the ledger entry of a word, and its place among the looks
        self._agent = ""
        self._confidence: float | None = None
        self._met: dict[str, _Met] = {}
        self._left: dict[str, int] = {}
        self._undone = self._planted = False

    def add(self, record: r.Record) -> None:
        """One more record, in order."""
        intent = getattr(record, "intent", None)
        if isinstance(intent, r.Intent):
            self._meet(str(getattr(record, "step", "")), intent)
        match record:
            case r.RunStarted():
                self._agent, self._planted = shown_agent(record.agent), is_planted(record.agent)
            case r.RunCompleted() if self._planted:
                self._end(record)
            case r.DecisionRecorded() if record.confidence is not None:
                self._confidence = record.confidence
            case r.OperationParked() if record.step in self._met:
                met = self._met[record.step]
                met.asked_ms, met.shown = record.at, met.length + len(record.why)
            case r.TransactionAborting() if record.transaction == WHOLE_RUN:
                self._undone = True
            case (
                r.ApprovalGranted()
                | r.ApprovalRefused()
                | r.ArgumentsEdited()
                | r.ResultGiven()
                | r.Resolved()
                | r.OperationSettled()
            ):
                self._hear(record)
            case _:
                return

    def answered_at(self, moments: Mapping[int, int]) -> None:
        """Put in when each word was said, by the ledger."""
        for entry, place in self.entries.items():
            if entry in moments:
                self.looks[place] = replace(self.looks[place], answered_ms=moments[entry])

    @property
    def passed(self) -> list[Passed]:
        """What left without a person."""
        name = self.run
        return [
            Passed(operation_id(name, step), at, self._met[step].traits, self._undone)
            for step, at in self._left.items()
        ]

    def _meet(self, step: str, intent: r.Intent) -> None:
        if step not in self._met:
            traits = Traits(intent.tool, self._agent, self._confidence)
            self._met[step] = _Met(traits, len(bytes(intent.arguments)) + len(intent.tool))

    def _end(self, record: r.RunCompleted) -> None:
        """A planted case is over: its result says how."""
        ended = msgspec.json.decode(record.result, type=Ended)
        if ended.end != "withdrawn":
            said: Said = "approved" if ended.end == "missed" else "declined"
            for step, met in self._met.items():
                item = operation_id(self.run, step)
                self.looks.append(Look(item, "planted", said, ended.by, met.asked_ms, record.at, met.shown, met.traits))

    def _hear(self, word: Word) -> None:
        met, said = self._met.get(word.step), _word_of(word)
        if met is None or said is None or not met.asked_ms:
            return
        by, entry = (word.by, word.entry) if not isinstance(word, r.OperationSettled) else ("", 0)
        kind: Kind = "review" if isinstance(word, r.Resolved) else "approval"
        if entry:
            self.entries[entry] = len(self.looks)
        item = operation_id(self.run, word.step)
        self.looks.append(Look(item, kind, said, by, met.asked_ms, word.at, met.shown, met.traits))


class _Met(msgspec.Struct):
    """What is known of an operation so far. `length`: how many characters its call has."""

    traits: Traits
    length: int
    asked_ms: int = 0
    shown: int = 0


def _word_of(word: Word) -> Said | None:
    match word:
        case r.ApprovalGranted():
            return "approved"
        case r.ApprovalRefused():
            return "asked_back" if word.code == ASKED_BACK else "declined"
        case r.ArgumentsEdited():
            return "edited"
        case r.ResultGiven():
            return "answered"
        case r.Resolved():
            return "settled"
        case r.OperationSettled():
            return "expired" if word.code == EXPIRED else None
