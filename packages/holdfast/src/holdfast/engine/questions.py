"""Durable questions: a run asks, holds no process while it waits, and takes the first answer.

An answer and the end of the time are entries of one ledger stream under one key, so the first of them is final
and whoever comes second knows it.
"""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec
from msgspec.structs import replace

from holdfast.engine.active_run.run import ActiveRun
from holdfast.engine.detached_calls import expired_limit, replay_timeout
from holdfast.engine.messages import between_attempts, interruption_at, is_interrupted
from holdfast.engine.scopes import Scope
from holdfast.engine.sealing import refuse, sealing
from holdfast.engine.suspension import Ending, Pause
from holdfast.engine.tool_protocol import wake
from holdfast.engine.transactions import may_begin
from holdfast.journal.entry_codec import read, written
from holdfast.journal.port import Post
from holdfast.model import records as r
from holdfast.model.ids import stream
from holdfast.model.questions import TAKE_OVER, Answered, Question, Scalar, why_ended
from holdfast.model.records.run import Handoff
from holdfast.model.waits import answer_with, then_of

ANSWER: Final = "answer"
_FIRST: Final = "first"


class AnswerTerms(msgspec.Struct, frozen=True):
    """How long an answer is waited for, and what stands in for one that does not come. Without `ms` a setting says."""

    ms: int | None = None
    default: Scalar | None = None


@sealing
async def ask(
    scope: Scope, question: Question, wanted: AnswerTerms, step: str | None = None, handoff: Handoff | None = None
) -> Answered:
    """The first answer, or what the deadline gave. The same on replay. Raises `Interrupted` where a message came.

    Where the run is handed over and somebody takes it, it ends here.
    """
    instance = scope.instance
    if instance.closed:
        await refuse(scope)
    name = scope.step("ask" if handoff is None else "hand_off", step)
    if name not in instance.history.answers:
        if (limit := expired_limit(scope)) is not None:
            await replay_timeout(scope, name, limit)
        if instance.history.transactions:
            await may_begin(scope, name)
        _put(
            instance,
            name,
            r.QuestionAsked(step=name, question=question, default=wanted.default, handoff=handoff),
            wanted,
        )
        while not await _answered(instance, name) and not is_interrupted(scope, name):
            await _pause(scope, name)
    _same(instance, name, question)
    await instance.take_turn(scope, name)
    answer, interrupted = instance.history.answers[name], interruption_at(scope, name)
    instance.forget(name)
    if interrupted is not None:
        raise interrupted
    assert isinstance(answer, r.EventReceived), answer
    return msgspec.json.decode(answer.payload, type=Answered)


def answer_post(run: str, step: str, answer: Answered) -> Post:
    """The ledger entry that an answer is; only the first one for a question is kept."""
    return Post(question_stream(run, step), _FIRST, written(answer))


def question_stream(run: str, step: str) -> str:
    """The ledger stream that holds the answer to a question, once there is one."""
    return stream("question", run, step)


def _put(instance: ActiveRun, name: str, asked: r.QuestionAsked, wanted: AnswerTerms) -> None:
    if name in instance.history.questions:
        instance.begun.discard(name)
        return
    stamp = instance.stamp()
    by = instance.engine.settings.answer_by(stamp["at"]) if wanted.ms is None else stamp["at"] + wanted.ms
    instance.ride(replace(asked, until=by, **stamp))


def _same(instance: ActiveRun, name: str, question: Question) -> None:
    """What comes back as another question is no silent replay."""
    asked = instance.history.questions.get(name)
    if asked is None or asked.question != question:
        instance.diverge(f"{name} asks something else than when it was recorded")


async def _answered(instance: ActiveRun, name: str) -> bool:
    """Record the answer, or what the deadline says, if there is either."""
    journal, asked = instance.engine.journal, instance.history.questions[name]
    entries = await journal.entries(question_stream(instance.run, name))
    first = next(iter(entries), None)
    if first is None and asked.until and instance.engine.environment.clock.wall_ms() >= asked.until:
        # The question is on record first: a process that was paused would end the question of the next owner otherwise.
        await instance.settle_writes()
        first = await journal.post(answer_post(instance.run, name, _late(asked)))
    if first is None:
        return False
    answer = read(first, Answered)
    if answer.over:
        await _end(instance, answer)
        return False
    if answer.by:
        asked.question.checked(answer.value)
    await instance.append(
        r.EventReceived(
            step=name, event=ANSWER, key=name, payload=r.Raw(first.body), entry=first.id, **instance.stamp()
        )
    )
    return True


async def _end(instance: ActiveRun, answer: Answered) -> None:
    """Somebody took the run over: nothing goes back to its code."""
    async with instance.taking_orders, between_attempts(instance):
        if instance.history.cancelled is None:
            taken = r.CommandApplied(command=TAKE_OVER, by=answer.by, entry=0, note=answer.note, **instance.stamp())
            await instance.append(taken)
    assert instance.history.cancelled is not None, "that record says so"
    instance.end(Ending("cancelled", why_ended(instance.history.cancelled)))


def _late(asked: r.QuestionAsked) -> Answered:
    return Answered(asked.default, late=asked.default is None)


async def _pause(scope: Scope, name: str) -> None:
    """Wait in this process until the next look at the ledger; the run may be suspended meanwhile."""
    instance, engine = scope.instance, scope.instance.engine
    asked = instance.history.questions[name]
    left = asked.until - engine.environment.clock.wall_ms() if asked.until else engine.settings.poll_ms
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    slice_ms = max(0, min(left, engine.settings.poll_ms))
    handle = asyncio.get_running_loop().call_later(slice_ms / 1000, wake, future)
    kind = "question" if asked.handoff is None else "handoff"
    verb = "asks" if asked.handoff is None else "is handed over"
    command = answer_with(instance.run, kind, name)
    asks = f"run {instance.run} {verb}: {asked.question.text} ({asked.question.expected}; {command})"
    try:
        queue = "" if asked.handoff is None else asked.handoff.queue
        pause = Pause(
            kind,
            name,
            asked.until or None,
            asks,
            at=asked.at,
            queue=queue,
            until=asked.until,
            then=then_of(asked.default),
        )
        await instance.wait_for(scope, future, pause)
    finally:
        handle.cancel()
