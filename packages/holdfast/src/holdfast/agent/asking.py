"""`run.ask`: a question to a person, typed by its choices or by `returns`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import NamedTuple

from holdfast.engine import questions
from holdfast.engine.questions import AnswerTerms
from holdfast.engine.scopes import Scope
from holdfast.errors import UsageError
from holdfast.model.questions import FORMS, Question, Scalar
from holdfast.model.records.run import Handoff
from holdfast.policies import milliseconds


class Limit(NamedTuple):
    """How long an answer is waited for (not said: as a setting says), and what then stands in for it."""

    timeout: timedelta | None = None
    default: Scalar | None = None


async def ask(
    scope: Scope, question: Question, limit: Limit, step: str | None, handoff: Handoff | None = None
) -> Scalar:
    """The answer, or the default at the deadline. Raises `TimeoutError` where there is no default."""
    timeout, default = limit
    if default is not None and timeout is None and not scope.instance.engine.settings.answer_within_ms:
        raise UsageError(
            f"the question {question.text!r} has a default that nothing leads to", next_step="give it a timeout too"
        )
    kept = None if default is None else question.checked(default)
    ms = None if timeout is None else milliseconds(timeout)
    answer = await questions.ask(scope, question, AnswerTerms(ms, kept), step, handoff)
    if answer.value is None:
        raise TimeoutError(
            f"nobody answered {question.text!r} " + ("in time" if timeout is None else f"within {timeout}")
        )
    return question.checked(answer.value)


def question_of(text: str, choices: Sequence[Scalar], returns: type[Scalar]) -> Question:
    """The question as data. Raises `UsageError` for choices of several types, or a type that nobody can write."""
    kinds: set[type[Scalar]] = {type(choice) for choice in choices} or {returns}
    if len(kinds) != 1 or not kinds <= FORMS.keys():
        raise UsageError(
            f"the question {text!r} has no single plain type",
            next_step="ask for str, int, float or bool, or give choices of one of them",
        )
    return Question(text, FORMS[kinds.pop()], tuple(choices))
