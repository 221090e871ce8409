"""Planted bugs in messages to runs, questions, hand-overs and reviews."""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import replace

from beforehand.engine.durable_waits import AnswerTerms
from beforehand.model import records as r
from beforehand.model.questions import Answered
from beforehand.people.answers import DidNotHappenAnswer, RetrySameKey
from simulator.mutations.mutation import Mutant, always


def forgotten_at_once(original: Any) -> Any:
    """A branch forgets what it has heard."""

    def hear(scope: Any, step: str) -> Any:
        before = scope.host.last_received
        told = original(scope, step)
        scope.host.last_received = before
        return told

    return hear


def one_ear(original: Any) -> Any:
    """What anybody has heard, everybody knows."""

    def news_for(scope: Any) -> bool:
        messages = scope.active.history.messages
        return bool(original(scope)) and bool(messages.stop or messages.undelivered)

    return news_for


def stops_once(_original: Any) -> Any:
    """To stop is said once, as anything else is."""

    def news_for(scope: Any) -> bool:
        messages = scope.active.history.messages
        return messages is not None and messages.last > scope.host.last_received

    return news_for


def calls_nothing_off(original: Any) -> Any:
    """Only what begins later is called off."""

    def receive(self: Any, record: Any, _operations: Any) -> None:
        original(self, record, ())

    return receive


def only_the_last(original: Any) -> Any:
    """Of what was said meanwhile the last word counts."""

    def delivered_at(self: Any, step: str) -> Any:
        return original(self, step)[-1:]

    return delivered_at


def without_its_name(original: Any) -> Any:
    """Each time that it is given, it is a new message."""

    async def tell(self: Any, run: str, text: str, *, once: str = "", **more: Any) -> Any:
        del once
        return await original(self, run, text, **more)

    return tell


# --- questions and hand-overs -----------------------------------------------------------------------------------------


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

    async def answered(instance: Any, name: str, watch: Any) -> bool:
        history, asked = instance.history, instance.history.steps.questions[name]
        history.steps.questions[name] = replace(asked, until=max(1, asked.until - 3_600_000))
        try:
            return bool(await original(instance, name, watch))
        finally:
            history.steps.questions[name] = asked

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
        return frozenset(instance.process.tools)

    return tools_for


# --- reviews ----------------------------------------------------------------------------------------------------------


def given_up_and_sent(steps: Any) -> Any:
    """That it did not happen is always an order to send it again."""

    def resolved(operation: Any, record: Any, boot: str) -> Any:
        word = "retry" if record.word == "did_not_happen" else record.word
        return steps[r.Resolved](operation, replace(record, word=word), boot)

    return {**steps, r.Resolved: resolved}


def no_means_happened(steps: Any) -> Any:
    """Whatever a person says, it happened."""

    def resolved(operation: Any, record: Any, boot: str) -> Any:
        word = "happened" if record.word == "did_not_happen" else record.word
        return steps[r.Resolved](operation, replace(record, word=word, result=r.Raw(b'"so it seems"')), boot)

    return {**steps, r.Resolved: resolved}


def whatever_its_age(original: Any) -> Any:
    """What is to be sent under the same key is sent as if it had not happened."""

    async def review(service: Any, now: Any, given: Any, by: str) -> Any:
        known = DidNotHappenAnswer("retry", given.evidence) if isinstance(given, RetrySameKey) else given
        return await original(service, now, known, by)

    return review


# --- compensation that a person commands ------------------------------------------------------------------------------


def only_happened(_original: Any) -> Any:
    """An answer that asks for a compensation is recorded without it."""

    async def compensate(service: Any, now: Any, given: Any, by: str) -> Any:
        return await service.resolve(now.item, "happened", by=by, evidence=given.evidence, result=given.result)

    return compensate


def one_after_the_other(original: Any) -> Any:
    """The transaction is called off before anybody looks whether the rest of the word fits."""

    async def compensate(service: Any, now: Any, given: Any, by: str) -> Any:
        boundary = now.step.partition("/")[0]
        if boundary != now.step and not (await service.history(now.run)).boundaries.by_name[boundary].backward:
            await service.call_off(now.run, boundary, by=by, why=given.evidence)
        return await original(service, now, given, by)

    return compensate


def as_if_all_were_undone(original: Any) -> Any:
    """Code is not told what still stands."""

    def error(instance: Any, state: Any) -> Any:
        return original(instance, replace(state, still_standing=()))

    return error


# --- the list ---------------------------------------------------------------------------------------------------------


def only_looked_at(original: Any) -> Any:
    """A command is compared with the history before it is recorded, and the operation may go meanwhile."""

    async def recall(active: Any, entry: Any) -> None:
        kept = set(active.replay.kept)
        await original(active, entry)
        for step in active.replay.kept.keys() - kept:
            del active.replay.kept[step]

    return recall


REVIEWS: Final = (
    # What they tell a run.
    Mutant(
        "message ignored",
        "writes begin although a message waits",
        "beforehand.engine.situation:_blocked_by_message",
        always(""),
    ),
    Mutant(
        "message delivered again",
        "a branch receives the same message again",
        "beforehand.engine.messages:deliver_messages",
        forgotten_at_once,
    ),
    Mutant(
        "one delivery for all",
        "what one branch received is not delivered to the others",
        "beforehand.engine.active_run.scopes:Scope.has_message",
        one_ear,
    ),
    Mutant(
        "stopped once",
        "after a message that stops it, code begins the next write",
        "beforehand.engine.active_run.scopes:Scope.has_message",
        stops_once,
    ),
    Mutant(
        "message stops nothing",
        "a message does not call off what was not sent yet",
        "beforehand.model.messages:Messages.receive",
        calls_nothing_off,
    ),
    Mutant(
        "message counted twice",
        "a message that is sent again counts as another one",
        "beforehand.control.service:ControlService.tell",
        without_its_name,
    ),
    Mutant(
        "only the last message",
        "of several messages code receives one",
        "beforehand.model.messages:Messages.delivered_at",
        only_the_last,
    ),
    # What they are asked, and what is handed over to them.
    Mutant(
        "every answer is the first",
        "a second answer is accepted as the first",
        "beforehand.engine.durable_waits:answer_post",
        any_word_is_the_first,
    ),
    Mutant("impatient", "less time is waited than code says", "beforehand.engine.durable_waits:_put", impatient),
    Mutant(
        "default too early",
        "a default is used before the time is over",
        "beforehand.engine.durable_waits:_answered",
        before_its_time,
    ),
    Mutant(
        "another default",
        "a default is used that is not the recorded one",
        "beforehand.engine.durable_waits:_late",
        first_choice_by_default,
    ),
    Mutant(
        "answer ignored",
        "code continues with its default whatever was answered",
        "beforehand.engine.durable_waits:ask",
        by_default_and_not_said,
    ),
    Mutant(
        "taken for an answer",
        "taking a run over counts as an answer",
        "beforehand.control.service:ControlService.take_over",
        taken_for_an_answer,
    ),
    Mutant(
        "hand-off gains tools",
        "the agent of a hand-off may use all tools",
        "beforehand.agent.model_calls:tools_for",
        with_all_tools,
    ),
    # Their answers about operations that no rule could decide.
    Mutant(
        "given up and sent",
        "what did not happen is sent again unasked",
        "beforehand.model.transitions:_APPLY",
        given_up_and_sent,
    ),
    Mutant(
        "a no means happened",
        "that it did not happen is taken for a success",
        "beforehand.model.transitions:_APPLY",
        no_means_happened,
    ),
    Mutant(
        "forgotten under a command",
        "an operation is forgotten while a command about it waits to be recorded",
        "beforehand.engine.commands:_recall",
        only_looked_at,
    ),
    Mutant(
        "under a forgotten key",
        "an order to send under the same key is taken for one to send whatever its age",
        "beforehand.people.answering:_review",
        whatever_its_age,
    ),
    Mutant(
        "compensation not ordered",
        "an answer that asks for a compensation is recorded without it",
        "beforehand.people.answering:_compensate",
        only_happened,
    ),
    Mutant(
        "half an answer",
        "a transaction is called off by an answer of which the rest is refused",
        "beforehand.people.answering:_compensate",
        one_after_the_other,
    ),
    Mutant(
        "remaining effect hidden",
        "code is given a part that remains as if it were undone",
        "beforehand.engine.transactions:_error",
        as_if_all_were_undone,
    ),
)
