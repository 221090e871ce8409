"""An answer that the same person repeats unchanged, as after a crash: it counts as accepted.

Accepted answers are read from the records, so those in the ledger are applied first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal

import msgspec

from beforehand.control.service import ControlService
from beforehand.control.undo import call_off_reason
from beforehand.engine.commands import Applied
from beforehand.engine.durable_waits import question_stream
from beforehand.errors import UsageError
from beforehand.inspect.contradictions import last_answer
from beforehand.journal.entry_codec import read, readable
from beforehand.model import records as r
from beforehand.model.commands import Command, command_stream
from beforehand.model.contradiction import note_of
from beforehand.model.names import same_person
from beforehand.model.outcome import ASKED_BACK
from beforehand.model.questions import Answered
from beforehand.model.transaction import TransactionState
from beforehand.people import answers as a
from beforehand.people.answers import Answer, OneOf, answer, answer_all, name_of
from beforehand.people.loaded_item import LoadedItem, load_item, refresh_item
from beforehand.people.stopped_runs import WAYS

_WORDS: Final = {"happened": "happened", "did_not_happen": "did_not_happen", "retry_same_key": "same_key",
                 "compensate": "happened"}  # fmt: skip
_DECISIONS: Final[dict[str, Literal["accept"]]] = {"abandon": "accept"}
_VERDICTS: Final = (r.ApprovalGranted, r.ApprovalRefused, r.ArgumentsEdited, r.ResultGiven, r.Resolved)


async def answer_idempotently(
    service: ControlService, item: str | LoadedItem, given: Answer, *, by: str, shown: str = ""
) -> Applied:
    """As `answer`, and the same answer of the same person may be given again: it ends alike, and adds nothing."""
    try:
        return await answer(service, item, given, by=by, shown=shown)
    except UsageError:
        applied = await _taken(service, item, given, by)
        if applied is None:
            raise
        return applied


async def answer_all_idempotently(service: ControlService, answers: Sequence[OneOf], *, by: str) -> list[Applied]:
    """As `answer_all`, and the same answers of the same person may be given again: all of them were taken, or none."""
    try:
        return await answer_all(service, answers, by=by)
    except UsageError:
        applied = list[Applied]()
        for one in answers:
            if (taken := await _taken(service, one.loaded or one.item, one.answer, by)) is None:
                raise
            applied.append(taken)
        return applied


async def _taken(service: ControlService, item: str | LoadedItem, given: Answer, by: str) -> Applied | None:
    """The result of an answer that was accepted before; None where it was not."""
    now = await (load_item(service.reader, item) if isinstance(item, str) else refresh_item(service.reader, item))
    applied = Applied(now.run, at_once=True)
    if by and now.open:  # its giver may have died before the run had it
        applied = msgspec.structs.replace(await service.sink.apply(now.run, ""), note="", alert=False)
        now = await refresh_item(service.reader, now)
    return applied if by and await _was_taken(service, now, given, by) else None


async def decide_transaction_idempotently(
    service: ControlService, item: str, word: Literal["retry", "accept", "abort"], *, by: str, why: str, shown: str = ""
) -> Applied:
    """Decide about a transaction. The same person may repeat the same decision, which adds nothing."""
    run, _, name = item.partition("/")
    try:
        if word == "abort":
            return await service.call_off(run, name, by=by, why=why)
        return await service.resolve_transaction(run, name, word, by=by, why=why, shown=shown)
    except UsageError:
        records = [record async for _, record in service.reader.records(run)]
        if not _decides(records, name, word, by, why):
            raise
        return Applied(run, at_once=True)


def _decides(records: Sequence[r.Record], transaction: str, word: str, by: str, why: str) -> bool:
    """True if the last decision of a person about a transaction is this one, and it is not stuck again since."""
    told = [
        one
        for one in records
        if isinstance(one, r.TransactionResolved | r.TransactionAborting | r.TransactionParked)
        and one.transaction == transaction
    ]
    if word != "abort" and told and isinstance(told[-1], r.TransactionParked):
        return False
    given = [one for one in told if not isinstance(one, r.TransactionParked) and one.by]
    if not given or not same_person(given[-1].by, by):
        return False
    last = given[-1]
    if isinstance(last, r.TransactionAborting):
        return word == "abort" and last.reason == call_off_reason(why, by)
    return (word, why) == (last.word, last.note)


async def _was_taken(service: ControlService, now: LoadedItem, given: Answer, by: str) -> bool:
    """True if the answer that counted is this one. An answer that came second is on record too, and does not count."""
    if isinstance(now.subject, r.QuestionAsked | r.RunStoppedRecord) and now.open:
        return False
    if isinstance(now.subject, r.QuestionAsked):
        entries = await service.engine.journal.entries(question_stream(now.run, now.step))
        return bool(entries) and _replies(now.subject, read(entries[0], Answered), given, by)
    records = [record async for _, record in service.reader.records(now.run)]
    if isinstance(now.subject, r.RunStoppedRecord):
        return _ends(records, given, by)
    if isinstance(now.subject, TransactionState):
        word = _DECISIONS.get(name_of(given), "retry")
        why = getattr(given, "why", "") or getattr(given, "evidence", "")
        meant = (word, "abort") if word == "retry" else (word,)  # before its end, compensation calls it off
        return any(_decides(records, now.step, one, by, why) for one in meant)
    if now.contradicted and not now.open:
        return await _answers_contradiction(service, now, given, by)
    if now.open:
        return await _waits_for_the_run(service, now, given, by, {getattr(one, "entry", 0) for one in records})
    words = [one for one in records if isinstance(one, _VERDICTS) and one.step == now.step]
    return bool(words) and same_person(words[-1].by, by) and _says(words[-1], given)


async def _waits_for_the_run(service: ControlService, now: LoadedItem, given: Any, by: str, applied: set[int]) -> bool:
    """True if this answer is in the ledger, and is applied by the process that has the run's code."""
    entries = await service.engine.journal.entries(command_stream(now.run))
    waiting = [entry for entry in entries if entry.id not in applied]
    words = [
        one for _, one in await readable(service.engine.journal, waiting, Command) if not one.after and not one.refused
    ]
    found = [one.record for one in words if isinstance(one.record, _VERDICTS) and same_person(one.by, by)]
    return any(one.step == now.step and _says(one, given) for one in found)


async def _answers_contradiction(service: ControlService, now: LoadedItem, given: Any, by: str) -> bool:
    """True if the last answer to the contradictions of an operation is this one."""
    last = await last_answer(service.reader, now.run, now.step)
    return (
        last is not None and same_person(last.by, by) and last.note == note_of(now.step, name_of(given), given.evidence)
    )


def _ends(records: Sequence[r.Record], given: Any, by: str) -> bool:
    """True if the last command that a run took is the one this answer gives."""
    orders = [one for one in records if isinstance(one, r.CommandApplied) and not one.refused]
    if not orders or not same_person(orders[-1].by, by):
        return False
    why = getattr(given, "why", "")
    return (orders[-1].command, orders[-1].note) == (WAYS.get(name_of(given)), why)


def _says(record: r.Record, given: Any) -> bool:
    """True if a recorded decision is the one this answer gives."""
    match record:
        case r.ApprovalGranted():
            return isinstance(given, a.Approve)
        case r.ApprovalRefused():
            return bool(given == (a.AskBack if record.code == ASKED_BACK else a.Decline)(record.reason))
        case r.ArgumentsEdited():
            return bool(given == a.Edit(msgspec.json.decode(record.changes), record.note))
        case r.ResultGiven():
            return bool(given == a.StandIn(msgspec.json.decode(record.result), record.note))
        case r.Resolved() if isinstance(given, a.HappenedTimes):
            otherwise = "retry" if given.then == "retry" else "did_not_happen"
            return record.evidence == given.evidence and record.word in {"happened", otherwise}
        case r.Resolved() if name_of(given) in _WORDS:
            word = "retry" if getattr(given, "then", "") == "retry" else _WORDS[name_of(given)]
            result = getattr(given, "result", r.NOTHING)
            words = {word, "did_not_happen"} if word == "retry" else {word}  # where nothing is sent any more
            return record.word in words and (given.evidence, result) == (record.evidence, record.result)
        case _:
            return False


def _replies(question: r.QuestionAsked, answered: Answered, given: Any, by: str) -> bool:
    """True if the recorded answer is this one."""
    if not answered.by or not same_person(answered.by, by):
        return False
    if answered.over or not isinstance(given, a.ReplyAnswer):
        return answered.over and bool(given == a.TakeOver(answered.note))
    try:
        value = question.question.read(given.value) if isinstance(given.value, str) else given.value
    except UsageError:
        return False
    return bool(value == answered.value)
