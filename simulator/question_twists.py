"""What the planted bugs put in the place of the functions that ask people, and that hand runs over."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from holdfast.engine.questions import AnswerTerms
from holdfast.model.questions import Answered


def any_word_is_the_first(original: Any) -> Any:
    """Each answer is an entry of its own."""

    def post(run: str, step: str, answer: Any) -> Any:
        return replace(original(run, step, answer), key="")

    return post


def impatient(original: Any) -> Any:
    """Who does not answer within a second does not answer."""

    def put(instance: Any, name: str, asked: Any, _wanted: Any) -> None:
        original(instance, name, asked, AnswerTerms(1_000, asked.default))

    return put


def before_its_time(original: Any) -> Any:
    """The deadline is what the clock of another day says."""

    async def answered(instance: Any, name: str) -> bool:
        history, asked = instance.history, instance.history.questions[name]
        history.questions[name] = replace(asked, until=max(1, asked.until - 3_600_000))
        try:
            return bool(await original(instance, name))
        finally:
            history.questions[name] = asked

    return answered


def first_choice_by_default(original: Any) -> Any:
    """Who says nothing agrees with what stands first."""

    def late(asked: Any) -> Any:
        choices = asked.question.choices
        return Answered(choices[0]) if choices else original(asked)

    return late


def by_default_and_not_said(original: Any) -> Any:
    """Code goes on with its default, whatever was said."""

    async def ask(scope: Any, question: Any, wanted: Any, *more: Any) -> Any:
        answer = await original(scope, question, wanted, *more)
        return answer if wanted.default is None else replace(answer, value=wanted.default)

    return ask


def taken_for_an_answer(_original: Any) -> Any:
    """Who takes a run over is heard as if they had answered."""

    async def take_over(self: Any, item: str, *, by: str, why: str = "") -> Any:
        await self.answer(item, 0, by=by)
        return await self.cancel(item.partition("/")[0], by=by, why=why)

    return take_over


def with_all_tools(_original: Any) -> Any:
    """Another agent may do whatever the run may."""

    def tools_for(instance: Any, _agent: Any) -> frozenset[str]:
        return frozenset(instance.engine.tools)

    return tools_for
