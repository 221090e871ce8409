"""What its caller left in the middle: on replay it is left at the same point, and not made again.

A call that was in flight has a record of that. What only waited, or read, has none: there the time limit around it is
on record as over, and the step is not.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from holdfast.engine.suspension import Pause
from holdfast.engine.tool_protocol import wake
from holdfast.model import records as r

if TYPE_CHECKING:
    from holdfast.engine.active_run.run import ActiveRun
    from holdfast.engine.operation_driver import OperationDriver
    from holdfast.engine.scopes import Scope
    from holdfast.engine.timers import TimeLimit


def expired_limit(scope: Scope) -> TimeLimit | None:
    """The innermost limit around this branch, or around one that began it, that is over on record.

    A step in it that is not on record did not end in time. Whatever the world holds now came too late for it: an event,
    an answer of a person or a model, the end of a pause.
    """
    host: Scope | None = scope.host
    while host is not None:
        for limit in reversed(host.limits):
            if limit.fired:
                return limit
        host = host.parent
    return None


async def replay_timeout(scope: Scope, step: str, limit: TimeLimit) -> None:
    """Leave the step where its branch is in the body of the limit; a branch that the body began may outlive it."""
    if limit in scope.host.limits:
        await replay_detachment(scope, step)
    pause = Pause("left", step, scope.instance.engine.environment.clock.wall_ms())
    await scope.instance.wait(scope, limit.outlived, pause)


async def replay_detachment(scope: Scope, step: str) -> None:
    """The caller is cancelled at the same point: by its own time limit where it has one, else by us."""
    instance, loop = scope.instance, asyncio.get_running_loop()
    instance.begun.discard(step)
    limit = next((one for one in reversed(scope.host.limits) if one.fired), None)
    if limit is not None:
        limit.fire()
    pause = Pause("left", step, instance.engine.environment.clock.wall_ms())
    forever: asyncio.Future[None] = loop.create_future()
    timer = loop.call_later(instance.engine.settings.patience_ms / 1000, wake, forever)
    try:
        await instance.wait_for(scope, forever, pause)
    finally:
        timer.cancel()
    raise asyncio.CancelledError(f"the caller of {step} was cancelled here before")


async def record_before_detaching(flight: OperationDriver) -> None:
    """Record what is left here: replay leaves it at the same point. The ledger may still refuse its first record."""
    instance = flight.instance
    if instance.checking:  # else the record that follows would not say that its caller left, or be the first
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait(instance.checking)
    if instance.sealed is None and not (flight.recorded or instance.checking):
        flight.started = None  # it was not sent yet, or refused
        assert flight.tool is not None, flight.step
        instance.ride(*instance.contract_record(flight.tool), flight.planned())


def detach(instance: ActiveRun, step: str) -> None:
    """The caller was cancelled while the operation was in flight: it goes on without it."""
    if instance.sealed is None and step in instance.history.operations:
        instance.ride(r.CallerLeft(step=step, **instance.stamp()))
        instance.forgo(step)
