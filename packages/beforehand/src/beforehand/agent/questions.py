"""`run.ask` and `run.hand_off`: questions to a person, and handing the run to people or to another agent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

import msgspec

from beforehand.engine import durable_waits
from beforehand.engine.active_run.scopes import Scope
from beforehand.engine.durable_waits import AnswerTerms
from beforehand.errors import UsageError
from beforehand.model.questions import ANYBODY, FORMS, Question, Scalar
from beforehand.model.records.run import Handoff
from beforehand.model.shell import is_placeholder
from beforehand.policies import milliseconds


class AnswerLimit(NamedTuple):
    """How long to wait for an answer (by default as the setting says), and the default that then replaces it."""

    timeout: timedelta | None = None
    default: Scalar | None = None


async def ask(
    scope: Scope, question: Question, limit: AnswerLimit, step: str | None, handoff: Handoff | None = None
) -> Scalar:
    """The answer, or the default at the deadline. Raises `TimeoutError` if no default was given."""
    timeout, default = limit
    if default is not None and timeout is None and not scope.active.process.settings.answer_within_ms:
        raise UsageError(
            f"the question {question.text!r} has a default and no timeout after which it is used",
            next_step="give it a timeout too",
        )
    kept = None if default is None else question.checked(default)
    ms = None if timeout is None else milliseconds(timeout)
    answer = await durable_waits.ask(scope, question, AnswerTerms(ms, kept), step, handoff)
    if answer.value is None:
        raise TimeoutError(
            f"no answer to {question.text!r} came " + ("in time" if timeout is None else f"within {timeout}")
        )
    return question.checked(answer.value)


def question_of(text: str, choices: Sequence[Scalar], returns: type[Scalar]) -> Question:
    """The question as data. Raises `UsageError` for choices of several types, or a type that cannot be typed in."""
    kinds: set[type[Scalar]] = {type(choice) for choice in choices} or {returns}
    if len(kinds) != 1 or not kinds <= FORMS.keys():
        raise UsageError(
            f"the question {text!r} has no single plain type",
            next_step="ask for str, int, float or bool, or give choices of one of them",
        )
    if word := next((str(one) for one in choices if is_placeholder(str(one))), ""):
        raise UsageError(f"the choice {word} of the question {text!r} cannot be typed: it is a placeholder")
    return Question(text, FORMS[kinds.pop()], tuple(choices))


# --- handoffs ---------------------------------------------------------------------------------------------------------


async def to_people(
    scope: Scope, queue: str, question: Question, state: Mapping[str, Any] | None, limit: AnswerLimit
) -> Scalar:
    """Hand the run to reviewers, and continue with an answer of one of them; or end, if one of them takes it over."""
    facts = {name: msgspec.to_builtins(fact) for name, fact in scope.active.facts.known.facts.items()}
    handoff = Handoff(
        "" if queue == ANYBODY else queue, _stored(dict(state or {}), "the state"), _stored(facts, "what is known")
    )
    return await ask(scope, question, limit, None, handoff)


def _stored(value: object, what: str) -> msgspec.Raw:
    try:
        return msgspec.Raw(msgspec.json.encode(value))
    except (TypeError, ValueError, OverflowError) as error:
        raise UsageError(f"{what} of a hand-off has no JSON form: {error}", next_step="give plain values") from error
