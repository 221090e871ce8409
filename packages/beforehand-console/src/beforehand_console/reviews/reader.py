"""Reading of reviews, and of operations sent without one, from the records of all runs. Nothing here writes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

import msgspec
from msgspec.structs import replace

from beforehand.errors import Unreadable
from beforehand.inspect.reader import JournalReader
from beforehand.journal.entry_codec import read, set_aside
from beforehand.journal.port import LedgerEntry
from beforehand.model import records as r
from beforehand.model.commands import command_stream
from beforehand.model.ids import operation_id
from beforehand.model.outcome import ASKED_BACK, EXPIRED
from beforehand.model.shadow import SHADOW, Left, Traits
from beforehand.model.system import is_planted, is_system, shown_agent
from beforehand.model.transaction import WHOLE_RUN
from beforehand_console.reviews.events import Kind, Review, ReviewAnswer, UnreviewedCall
from beforehand_console.reviews.seeded_cases import SeededCaseEnd
from beforehand_console.reviews.shadow_reviews import REVIEWED, ShadowReview

ReviewRecord: TypeAlias = (
    r.ApprovalGranted | r.ApprovalRefused | r.ArgumentsEdited | r.ResultGiven | r.Resolved | r.OperationSettled
)


class RecordedReviews(msgspec.Struct):
    """The reviews in the journal, and the operations that were sent without one."""

    looks: list[Review]
    passed: list[UnreviewedCall]


async def read_reviews(reader: JournalReader, since_ms: int = 0) -> RecordedReviews:
    """Read every run that changed since that wall clock."""
    found = RecordedReviews([], [])
    async for row in reader.every_run():
        if row.updated_ms < since_ms or (is_system(row.agent) and not is_planted(row.agent)):
            continue
        reading = RunReviews(row.run)
        async for _, record in reader.readable_records(row.run):
            reading.add(record)
        if reading.entries:
            reading.answered_at(await _moments(reader, row.run))
        found.looks.extend(reading.looks)
        found.passed.extend(reading.passed)
    found.looks.extend(await _afterwards(reader))
    return found


async def _afterwards(reader: JournalReader) -> list[Review]:
    """The reviews of operations that were sent already."""
    left: dict[str, LedgerEntry] = {}
    looks: list[Review] = []
    for entry in await reader.journal.entries(SHADOW):
        if entry.key == "":
            left.setdefault(entry.stream, entry)
        elif entry.key == REVIEWED and entry.stream in left:
            asked = left[entry.stream]
            try:
                what, given = read(asked, Left), read(entry, ShadowReview)
            except Unreadable as error:
                await set_aside(reader.journal, entry, error)
                continue
            item = operation_id(what.run, what.step)
            looks.append(
                Review(item, "shadow", given.word, given.by, asked.at_ms, entry.at_ms, len(what.asks), what.traits)
            )
    return looks


async def _moments(reader: JournalReader, run: str) -> Mapping[int, int]:
    """When each command was given. Its record says when it was applied, which may be much later."""
    return {entry.id: entry.at_ms for entry in await reader.journal.entries(command_stream(run))}


class RunReviews:
    """One run, read record by record."""

    def __init__(self, run: str) -> None:
        self.run: Final = run
        self.looks: list[Review] = []
        self.entries: dict[int, int] = {}  # the ledger entry of an answer, and its index in `looks`
        self._agent = ""
        self._confidence: float | None = None
        self._calls: dict[str, _ReviewedCall] = {}
        self._left: dict[str, int] = {}
        self._undone = self._planted = False

    def add(self, record: r.Record) -> None:
        """Read one more record, in order."""
        intent = getattr(record, "intent", None)
        if isinstance(intent, r.Intent):
            self._begin(str(getattr(record, "step", "")), intent)
        match record:
            case r.RunStarted():
                self._agent, self._planted = shown_agent(record.agent), is_planted(record.agent)
            case r.RunCompleted() if self._planted:
                self._end(record)
            case r.DecisionRecorded() if record.confidence is not None:
                self._confidence = record.confidence
            case r.Ruled() | r.AttemptStarted() | r.OperationParked() if record.step in self._calls:
                self._go_on(self._calls[record.step], record)
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
                self._add_answer(record)
            case _:
                return

    def answered_at(self, moments: Mapping[int, int]) -> None:
        """Set the time of each answer, by the ledger."""
        for entry, place in self.entries.items():
            if entry in moments:
                self.looks[place] = replace(self.looks[place], answered_ms=moments[entry])

    @property
    def passed(self) -> list[UnreviewedCall]:
        """The operations that were sent without a person."""
        name = self.run
        return [
            UnreviewedCall(operation_id(name, step), at, self._calls[step].traits, self._undone)
            for step, at in self._left.items()
        ]

    def _begin(self, step: str, intent: r.Intent) -> None:
        if step not in self._calls:
            traits = Traits(intent.tool, self._agent, self._confidence)
            self._calls[step] = _ReviewedCall(traits, len(bytes(intent.arguments)) + len(intent.tool))

    def _go_on(self, call: _ReviewedCall, record: r.Ruled | r.AttemptStarted | r.OperationParked) -> None:
        match record:
            case r.Ruled():
                self._rule(call, record)
            case r.AttemptStarted():
                if call.automatic and not call.asked_ms:
                    self._left.setdefault(record.step, record.at)
            case r.OperationParked():
                call.asked_ms, call.shown = record.at, call.length + len(record.why)

    def _rule(self, call: _ReviewedCall, record: r.Ruled) -> None:
        """Take the facts and the ruling of a policy: they are better than a guess from the decision before."""
        facts, ruling = record.facts, record.ruling
        known = call.traits if facts is None else replace(call.traits, amount=facts.amount)
        if facts is not None and facts.confidence is not None:
            known = replace(known, confidence=facts.confidence)
        call.traits = replace(known, stratum=ruling.stratum, rule=ruling.rule)
        call.sampled = ruling.sampled
        call.automatic = ruling.word != "refuse" and not ruling.asks

    def _end(self, record: r.RunCompleted) -> None:
        """End a planted case: its result says how."""
        ended = msgspec.json.decode(record.result, type=SeededCaseEnd)
        if ended.end != "withdrawn":
            answer: ReviewAnswer = "approved" if ended.end == "missed" else "declined"
            for step, call in self._calls.items():
                item = operation_id(self.run, step)
                self.looks.append(
                    Review(item, "planted", answer, ended.by, call.asked_ms, record.at, call.shown, call.traits)
                )

    def _add_answer(self, word: ReviewRecord) -> None:
        call, answer = self._calls.get(word.step), _word_of(word)
        if call is None or answer is None or not call.asked_ms:
            return
        by, entry = (word.by, word.entry) if not isinstance(word, r.OperationSettled) else ("", 0)
        kind: Kind = "review" if isinstance(word, r.Resolved) else "approval"
        if entry:
            self.entries[entry] = len(self.looks)
        item = operation_id(self.run, word.step)
        self.looks.append(Review(item, kind, answer, by, call.asked_ms, word.at, call.shown, call.traits, call.sampled))


class _ReviewedCall(msgspec.Struct):
    """The state of an operation so far. `length`: how many characters its call has."""

    traits: Traits
    length: int
    asked_ms: int = 0
    shown: int = 0
    sampled: bool = False
    automatic: bool = False


def _word_of(word: ReviewRecord) -> ReviewAnswer | None:
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
