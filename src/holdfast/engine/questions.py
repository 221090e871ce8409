"""Durable questions: a run asks, holds no process while it waits, and takes the first answer.

An answer and the end of the time are entries of one ledger stream under one key, so the first of them is final
and whoever comes second knows it.
"""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec

from holdfast.engine.boundary import sealing
from holdfast.engine.instance import Instance
from holdfast.engine.interrupting import interruption_at, interrupts
from holdfast.engine.rest import Ending, Pause
from holdfast.engine.scopes import Scope
from holdfast.engine.tooling import ring
from holdfast.engine.transactions import may_begin
from holdfast.journal.port import Post
from holdfast.model import records as r
from holdfast.model.ids import stream
from holdfast.model.question import Answered, Question, Scalar

ANSWER: Final = "answer"
_FIRST: Final = "first"


class Wanted(msgspec.Struct, frozen=True):
    """How long an answer is waited for, and what stands in for one that does not come."""

    ms: int | None = None
    default: Scalar | None = None


@sealing
async def ask(scope: Scope, question: Question, wanted: Wanted, step: str | None = None) -> Answered:
    """The first answer, or what the deadline gave. The same on replay. Raises `Interrupted` where a message came."""
    instance = scope.instance
    instance.check()
    name = scope.step("ask", step)
    if name not in instance.history.answers:
        if instance.history.transactions:
            await may_begin(scope, name)
        _put(instance, name, question, wanted)
        while not await _answered(instance, name) and not interrupts(scope, name):
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
    return Post(stream("question", run, step), _FIRST, msgspec.json.encode(answer))


def _put(instance: Instance, name: str, question: Question, wanted: Wanted) -> None:
    if name in instance.history.questions:
        instance.begun.discard(name)
        return
    stamp = instance.stamp()
    instance.ride(
        r.QuestionAsked(
            step=name,
            question=question,
            until=0 if wanted.ms is None else stamp["at"] + wanted.ms,
            default=wanted.default,
            **stamp,
        )
    )


def _same(instance: Instance, name: str, question: Question) -> None:
    """What comes back as another question is no silent replay."""
    asked = instance.history.questions.get(name)
    if asked is None or asked.question != question:
        instance.end(Ending("diverged", f"{name} asks something else"))
        raise instance.divergence(f"{name} asks something else than when it was recorded")


async def _answered(instance: Instance, name: str) -> bool:
    """Record the answer, or what the deadline says, if there is either."""
    journal, asked = instance.engine.journal, instance.history.questions[name]
    entries = await journal.entries(stream("question", instance.run, name))
    first = next(iter(entries), None)
    if first is None and asked.until and instance.engine.seams.clock.wall_ms() >= asked.until:
        first = await journal.post(answer_post(instance.run, name, _late(asked)))
    if first is None:
        return False
    answer = msgspec.json.decode(first.body, type=Answered)
    if answer.by:
        asked.question.checked(answer.value)
    await instance.append(
        r.EventReceived(
            step=name, event=ANSWER, key=name, payload=r.Raw(first.body), entry=first.id, **instance.stamp()
        )
    )
    return True


def _late(asked: r.QuestionAsked) -> Answered:
    return Answered(asked.default, late=asked.default is None)


async def _pause(scope: Scope, name: str) -> None:
    """Wait in this process until the next look at the ledger; the run may be suspended meanwhile."""
    instance, engine = scope.instance, scope.instance.engine
    asked = instance.history.questions[name]
    left = asked.until - engine.seams.clock.wall_ms() if asked.until else engine.settings.poll_ms
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    slice_ms = max(0, min(left, engine.settings.poll_ms))
    handle = asyncio.get_running_loop().call_later(slice_ms / 1000, ring, future)
    asks = (
        f"run {instance.run} asks: {asked.question.text} ({asked.question.expected}; "
        f"holdfast answer {instance.run}/{name} VALUE --by NAME)"
    )
    try:
        await instance.wait_for(scope, future, Pause("question", name, asked.until or None, asks, at=asked.at))
    finally:
        handle.cancel()
