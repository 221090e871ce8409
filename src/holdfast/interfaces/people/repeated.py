"""An answer that is given again, by the same person and in the same words, as after a crash: it was taken."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from holdfast.engine.questions import question_stream
from holdfast.errors import UsageError
from holdfast.interfaces.applying import Applied
from holdfast.interfaces.people.answers import Answer, answer
from holdfast.interfaces.people.asked import Asked, asked
from holdfast.interfaces.service import Service
from holdfast.journal.bodies import read
from holdfast.model import records as r
from holdfast.model.names import same_person
from holdfast.model.outcome import ASKED_BACK
from holdfast.model.question import Answered

_WORDS: Final = {"happened": "happened", "did_not_happen": "did_not_happen", "retry_same_key": "same_key"}
_ENDS: Final = {"resume": "reopen", "take_over": "take_over", "abandon": "cancel"}
_VERDICTS: Final = (r.ApprovalGranted, r.ApprovalRefused, r.ArgumentsEdited, r.ResultGiven, r.Resolved)


async def answer_again(service: Service, item: str, given: Answer, *, by: str, shown: str = "") -> Applied:
    """As `answer`, and the same answer of the same person may be given again: it ends alike, and adds nothing."""
    try:
        return await answer(service, item, given, by=by, shown=shown)
    except UsageError:
        now = await asked(service.looking, item)
        if now.open or not by or not await _was_taken(service, now, given, by):
            raise
        return Applied(now.run, at_once=True)


async def _was_taken(service: Service, now: Asked, given: Answer, by: str) -> bool:
    """Whether the word that counted is this one. A word that came second is on record too, and is none."""
    if isinstance(now.subject, r.QuestionAsked):
        entries = await service.engine.journal.entries(question_stream(now.run, now.step))
        return bool(entries) and _replies(now.subject, read(entries[0], Answered), given, by)
    records = [record async for _, record in service.looking.records(now.run)]
    if isinstance(now.subject, r.RunStopped):
        return _ends(records, given, by)
    words = [one for one in records if isinstance(one, _VERDICTS) and one.step == now.step]
    return bool(words) and same_person(words[-1].by, by) and _says(words[-1], given)


def _ends(records: Sequence[r.Record], given: Any, by: str) -> bool:
    """Whether the last order that a run took is what this answer stands for."""
    orders = [one for one in records if isinstance(one, r.CommandApplied) and not one.refused]
    if not orders or not same_person(orders[-1].by, by):
        return False
    why = getattr(given, "why", "")
    return (orders[-1].command, orders[-1].note) == (_ENDS.get(_name(given)), why)


def _says(record: r.Record, given: Any) -> bool:
    """Whether a verdict on record is what this answer stands for."""
    match record:
        case r.ApprovalGranted():
            return _name(given) == "approve"
        case r.ApprovalRefused() if record.code == ASKED_BACK:
            return _name(given) == "ask_back" and record.reason == given.question
        case r.ApprovalRefused():
            return _name(given) == "decline" and record.reason == given.why
        case r.Resolved() if _name(given) in _WORDS:
            word = "retry" if getattr(given, "then", "") == "retry" else _WORDS[_name(given)]
            result = getattr(given, "result", r.NOTHING)
            return (word, given.evidence, result) == (record.word, record.evidence, record.result)
        case _:
            return False


def _replies(question: r.QuestionAsked, said: Answered, given: Any, by: str) -> bool:
    """Whether the answer on record is this one."""
    if not said.by or not same_person(said.by, by):
        return False
    if _name(given) == "take_over" or said.over:
        return _name(given) == "take_over" and said.over and said.note == given.why
    if _name(given) != "reply":
        return False
    try:
        value = question.question.read(given.value) if isinstance(given.value, str) else given.value
    except UsageError:
        return False
    return bool(value == said.value)


def _name(given: object) -> str:
    """What an answer is called on every face; an answer of another form has no name."""
    config: Any = getattr(type(given), "__struct_config__", None)
    return str(getattr(config, "tag", ""))
