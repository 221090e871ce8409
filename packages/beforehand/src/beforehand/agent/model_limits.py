"""Limits of models: the permit of one call of a model, waiting for it, and what the call has used."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from functools import partial
from typing import TYPE_CHECKING, Self

from beforehand.engine.call_limits import limited_call
from beforehand.engine.engine import LOG
from beforehand.engine.suspension import limit_pause
from beforehand.engine.tool_protocol import wake
from beforehand.model.alike import nearest
from beforehand.model.decision.situation import LimitWait
from beforehand.model.ids import operation_id
from beforehand.model.run_budget import reservation
from beforehand.model.usage import Usage
from beforehand.queues.call_limits import LimitedCall

if TYPE_CHECKING:
    from beforehand.engine.active_run.scopes import Scope
    from beforehand.engine.process import Queues
    from beforehand.journal.port import Permit


class LimitedModelCall:
    """One call of a model under its limits: `async with` holds its permit. Where no limit holds it does nothing.

    The call is estimated at the tokens of the largest one so far. In a long wait the run is suspended. `used` is what
    a call that was `made` has used; while that is unknown, its estimate counts.
    """

    def __init__(self, scope: Scope, step: str, models: Collection[str], question: int) -> None:
        self.made = False
        self.used = Usage()
        self._scope = scope
        self._step = step
        process, history = scope.active.process, scope.active.history
        limited = tuple(name for name in models if name in process.queues.limited_models)
        if process.queues.limited_models and not limited:
            _remark(process.queues, operation_id(scope.active.run, step), models)
        tokens = reservation(process.limits.largest_answer, question)
        self._call = LimitedCall("", limited_call(history, "").tenant, limited, tokens)
        self._permit: Permit | None = None

    async def __aenter__(self) -> Self:
        await self.take()
        return self

    async def __aexit__(self, *_error: object) -> None:
        self.give_back()

    async def take(self) -> None:
        """Wait for the permit, if a limit asks for one."""
        if self._call.models:
            self._permit = await _await_model(self._scope, self._step, self._call)

    def give_back(self) -> None:
        """Give back the permit, if it is held. A call that was not made counts for nothing."""
        permit, self._permit = self._permit, None
        if permit is not None:
            used = self.used if self.made else None
            self._scope.active.process.limits.release_model(permit, self._call.models, used)

    def put_down(self) -> WithoutPermit:
        """Hold no permit while the call waits for something else: other runs need it meanwhile."""
        return WithoutPermit(self)

    async def slow(self, asked_s: float) -> None:
        """Let no process call the model for as long as its service asks. Of several models that is not known."""
        if asked_s and len(self._call.models) == 1:
            await self._scope.active.process.limits.slow(self._call, int(asked_s * 1000))


class WithoutPermit:
    """Around a wait of a call: its permit is given back, and taken again after it."""

    def __init__(self, call: LimitedModelCall) -> None:
        self._call = call

    async def __aenter__(self) -> None:
        self._call.give_back()

    async def __aexit__(self, error: type[BaseException] | None, *_more: object) -> None:
        if error is None:
            await self._call.take()


def _remark(queues: Queues, call: str, models: Collection[str]) -> None:
    """Log, once in this process, that a call is under no limit where models have limits, and its name may be why."""
    for model in {*models} - queues.remarked:
        queues.remarked.add(model)
        if near := nearest(model, queues.limited_models):
            LOG.warning("queues: calls of the model %s are under no limit; the nearest limit is of %s", model, near)
    if not models and "" not in queues.remarked:
        queues.remarked.add("")
        text = "queues: %s names no model, so limits of models do not hold for it; name it (run.options(model=...))"
        LOG.warning(text, call)


async def _await_model(scope: Scope, step: str, call: LimitedCall) -> Permit | None:
    """Wait for the permit of a call of a model; None where it has no limit any more."""
    limits, operation = scope.active.process.limits, operation_id(scope.active.run, step)
    try:
        while limits.of(call):
            wait = limits.wait(call, operation)
            if wait is not None:
                await _rest(scope, step, wait, operation)
            elif (permit := await limits.take(call, operation)) is not None:
                return permit
            scope.active.check()
        return None
    finally:
        limits.leave(operation)


async def _rest(scope: Scope, step: str, wait: LimitWait, operation: str) -> None:
    """Wait until the limit may permit a call. The run may be suspended meanwhile."""
    active, process = scope.active, scope.active.process
    pause = limit_pause(wait, step, process.wall_ms(), operation)

    def news(waiting: asyncio.Future[None]) -> None:
        process.limits.waits(wait.name, operation, wait.ms, partial(wake, waiting))

    await active.waiters.wait_ms(scope, min(wait.ms, process.settings.slice_ms), pause, news)
