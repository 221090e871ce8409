"""Durable time: sleeping, waiting for events, and time limits that end a body at the same point on replay."""

from __future__ import annotations

import asyncio
import contextlib
import shlex
from collections.abc import AsyncGenerator

from holdfast.engine.active_run.delivery import wake_all
from holdfast.engine.active_run.run import ActiveRun
from holdfast.engine.detached_calls import expired_limit, replay_timeout
from holdfast.engine.messages import interruption_at, is_interrupted
from holdfast.engine.scopes import Scope
from holdfast.engine.sealing import refuse, sealing
from holdfast.engine.suspension import Pause
from holdfast.engine.tool_protocol import wake
from holdfast.engine.transactions import may_begin
from holdfast.model import records as r
from holdfast.model.ids import stream


@sealing
async def sleep(scope: Scope, ms: int, step: str | None = None) -> None:
    """A durable pause. A long one holds no process."""
    await _timer(scope, scope.step("sleep", step), ms, None)


@sealing
async def wait_for_event(
    scope: Scope, event: str, key: str, ms: int | None, step: str | None = None
) -> r.EventReceived | None:
    """The next event of that name and key that this run has not taken yet; None when the time is over."""
    name = scope.step(f"wait_for:{event}", step)
    return await _timer(scope, name, ms, (event, key))


async def _timer(scope: Scope, name: str, ms: int | None, event: tuple[str, str] | None) -> r.EventReceived | None:
    instance = scope.instance
    if instance.closed:
        await refuse(scope)
    if name not in instance.history.answers:
        if (limit := expired_limit(scope)) is not None:
            await replay_timeout(scope, name, limit)
        if instance.history.transactions:
            await may_begin(scope, name)
        await _set_timer(instance, name, ms, event)
        while not await _rings(instance, name, event) and not is_interrupted(scope, name):
            timer = instance.history.timers[name]
            await _pause(scope, name, timer, event)
    await instance.take_turn(scope, name)
    answer, interrupted = instance.history.answers[name], interruption_at(scope, name)
    instance.forget(name)
    if interrupted is not None:
        raise interrupted
    return answer if isinstance(answer, r.EventReceived) else None


async def _set_timer(instance: ActiveRun, name: str, ms: int | None, event: tuple[str, str] | None) -> None:
    if name in instance.history.timers:
        instance.begun.discard(name)
        return
    stamp = instance.stamp()
    until = stamp["at"] + ms if ms is not None else 0
    what, key = event or ("", "")
    instance.ride(r.TimerSet(step=name, until=until, event=what, key=key, **stamp))


async def _rings(instance: ActiveRun, name: str, event: tuple[str, str] | None) -> bool:
    """Record the event that came, or the end of the time, if there is either."""
    if event is not None:
        for entry in await instance.engine.journal.entries(event_stream(instance.run, *event)):
            if entry.id not in instance.history.events_taken:
                received = r.EventReceived(
                    step=name, event=event[0], key=event[1], payload=r.Raw(entry.body), entry=entry.id,
                    **instance.stamp(),
                )  # fmt: skip
                await instance.append(received)
                return True
    until = instance.history.timers[name].until
    if until and instance.engine.environment.clock.wall_ms() >= until:
        await instance.append(r.TimerFired(step=name, **instance.stamp()))
        return True
    return False


async def _pause(scope: Scope, name: str, timer: r.TimerSet, event: tuple[str, str] | None) -> None:
    """Wait in this process until the timer or the next look at the ledger; the run may be suspended meanwhile."""
    instance, engine = scope.instance, scope.instance.engine
    loop = asyncio.get_running_loop()
    left = timer.until - engine.environment.clock.wall_ms() if timer.until else engine.settings.slice_ms
    slice_ms = min(left, engine.settings.poll_ms if event is not None else engine.settings.slice_ms)
    future: asyncio.Future[None] = loop.create_future()
    handle = loop.call_later(max(0, slice_ms) / 1000, wake, future)
    asks = f"run {instance.run} waits for {event[0]} {event[1]}".rstrip() if event else f"run {instance.run} sleeps"
    if event is not None:
        asks += f" ({signal_command(instance.run, *event)})"
    try:
        await instance.wait_for(scope, future, Pause("event" if event else "timer", name, timer.until or None, asks))
    finally:
        handle.cancel()


def signal_command(run: str, event: str, key: str) -> str:
    """What a person types to give the run that event."""
    return shlex.join(["holdfast", "signal", run, event, *(["--key", key] if key else [])])


def event_stream(run: str, event: str, key: str) -> str:
    """The ledger stream of one kind of event for one run. Early events are kept there."""
    return stream("event", run, event, key)


class TimeLimit:
    """A journaled time limit around a body of agent code."""

    def __init__(self, scope: Scope, ms: int) -> None:
        self._scope = scope
        self._name = scope.step("timeout")
        self._ms = ms
        self._limit: asyncio.Timeout | None = None
        self.outlived: list[asyncio.Future[None]] = []
        """Branches that its body began, and that go on when it is over, unless they are cancelled with it."""

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Run the body. Raises `TimeoutError` at the end of the time, and records that it did."""
        instance, name = self._scope.instance, self._name
        if instance.closed:
            await refuse(self._scope)
        await _set_timer(instance, name, self._ms, None)
        self._scope.host.limits.append(self)
        if not self.fired:
            instance.limits[name] = instance.history.timers[name].until
        try:
            async with asyncio.timeout(self._seconds()) as self._limit:
                yield
        except TimeoutError:
            if self._limit is not None and self._limit.expired() and not self.fired:
                await instance.append(r.TimerFired(step=name, **instance.stamp()))
            if self.fired:
                await instance.take_turn(self._scope, name)
            raise
        finally:
            self._scope.host.limits.remove(self)
            instance.limits.pop(name, None)
            wake_all(self.outlived)

    @property
    def fired(self) -> bool:
        """Whether the record says that it ended its body."""
        return self._name in self._scope.instance.history.answers

    def fire(self) -> None:
        """End the body now, as the record says it was ended."""
        if self._limit is not None:
            self._limit.reschedule(asyncio.get_running_loop().time())

    def _seconds(self) -> float:
        """What is left of the time; on the way to a recorded end, the body is only ended where it was."""
        engine = self._scope.instance.engine
        left = self._scope.instance.history.timers[self._name].until - engine.environment.clock.wall_ms()
        least = engine.settings.patience_ms if self.fired else 0
        return max(left, least) / 1000
