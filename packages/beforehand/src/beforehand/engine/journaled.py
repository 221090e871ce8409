"""A step that is recorded once: performed where the record lacks its answer, and delivered from the record either way.

Every step of agent code goes through `journaled` except writes and reads of tools, whose drivers record more than one
answer, and the ends of transactions and time limits, which are no answers. In this order: what is on record comes
first, the step is performed, its answer is taken in its turn, and code that comes back with another step diverges.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from beforehand.engine.messages import deliver_messages, interrupted_by, is_interrupted
from beforehand.engine.sealing import take_answer
from beforehand.engine.transactions import may_begin
from beforehand.model import records as r

if TYPE_CHECKING:
    from beforehand.engine.active_run.scopes import Scope
    from beforehand.engine.suspension import Pause, StreamWatch
    from beforehand.model.run_history import Answer

A = TypeVar("A")


async def journaled(
    scope: Scope,
    step: str,
    kind: type[A] | tuple[type[A], ...],
    perform: Callable[[Answer | None], Awaitable[object]],
    same: Callable[[A], str] = lambda _: "",
    *,
    writes: bool = False,
) -> A:
    """The recorded answer of a step, which has to be of this `kind`. Raises `Interrupted` where a message ended it.

    `perform` records the answer. `same` compares a recorded one with what the code asks now: empty, or the difference
    in words. A step that `writes` changes the world by itself: it begins only once code has come back to every recorded
    write, and it is performed again with its answer, since a crash may have cut off what follows from the record.
    """
    active, answers = scope.active, scope.active.history.steps.answers
    try:
        if step not in answers:
            await may_begin(scope, step, writes=writes)
            await perform(None)
        elif writes:
            await perform(answers[step])
    except asyncio.CancelledError:
        active.leave_answer(step)  # it may be on record, and on its way to the disk
        raise
    answer = answers[step]
    other = same(answer) if isinstance(answer, kind) else "is recorded as another step than now"
    await take_answer(scope, step)
    active.replay.forget(step)
    if isinstance(answer, kind) and not other:
        return answer
    if not isinstance(answer, r.MessageHeard):
        active.replay.diverge(f"{step} {other}")
    raise interrupted_by(active.run, deliver_messages(scope, step))


async def wait_until(
    scope: Scope, pause: Pause, came: Callable[[], Awaitable[bool]], watch: StreamWatch | None = None
) -> None:
    """Wait until `came` has recorded what the step of `pause` waits for, or a message interrupts it.

    The run may be suspended meanwhile. It looks again at news of the `watch`, when the pause is due, and after a slice
    of time: the clock on the wall may be set.
    """
    process, slice_ms = scope.active.process, scope.active.process.settings.slice_ms
    while not await came() and not is_interrupted(scope, pause.step):
        left = slice_ms if pause.due is None else min(pause.due - process.wall_ms(), slice_ms)
        await scope.active.waiters.wait_ms(scope, left, pause, id if watch is None else watch.wake_at_news)
