"""The claims of a run that its records do not prove, and who hears of them: the model, `on_error`, and then a person.

A model is told before its conversation ends, once, and again after each reopening: what a person told the run comes
with it. A claim that is missing is recorded, because the effect may be on record by the time of a replay.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from beforehand.engine.active_run.log import load
from beforehand.engine.steps import value
from beforehand.errors import ClaimUnproven
from beforehand.model.receipts import receipts_in, unproven
from beforehand.model.run_history import CLAIMED, TOLD

if TYPE_CHECKING:
    from beforehand.engine.active_run.run import ActiveRun
    from beforehand.engine.active_run.scopes import Scope


async def check_claims(active: ActiveRun, requires: Sequence[str], result: object) -> None:
    """Raise `ClaimUnproven` if a run with this result claims what is not proven."""
    if missing := await _unproven(active, requires, result):
        raise _error(active, missing)


async def check_claims_of_code(scope: Scope, requires: Sequence[str], result: object) -> None:
    """Like `check_claims`, for an error that agent code receives, and receives again on replay."""
    active = scope.active
    recorded = scope.next_step(CLAIMED) in active.history.steps.answers
    missing = () if recorded or active.replay.replaying() else await _unproven(active, requires, result)
    if recorded or missing:
        raise _error(active, await _noted(scope, CLAIMED, missing))


async def claims_to_tell(scope: Scope, tools: Sequence[str] | None, result: object, before: str) -> Sequence[str]:
    """The claims that a model is told of at the end of its conversation; empty if there are none or it was told.

    `tools` are those that it may call; None means all. `before` is the path at which it was told last.
    """
    active, lifecycle = scope.active, scope.active.history.lifecycle
    missing: Sequence[str] = ()
    if scope.next_step(TOLD) not in active.history.steps.answers:
        agent = None if lifecycle.started is None else active.process.agents.get(lifecycle.started.agent)
        told = before and any(step.startswith(before) for step in lifecycle.told_claims)
        if agent is None or told or active.replay.replaying():
            return []  # a conversation after which code went on has had its end
        requires = [tool for tool in agent.requires if tools is None or tool in tools]
        if not (missing := await _unproven(active, requires, result)):
            return []
    return await _noted(scope, TOLD, missing)


async def _noted(scope: Scope, what: str, missing: Sequence[str]) -> Sequence[str]:
    """The claims on record at this step; these, the first time."""
    claims: dict[str, Any] = {"missing": list(missing)}
    noted: Sequence[str] = (await value(scope, what, lambda: claims))["missing"]
    return noted


async def _unproven(active: ActiveRun, requires: Sequence[str], result: object) -> Sequence[str]:
    """The claims that the records do not prove. They are read again: memory no longer has them all."""
    if not requires and next(receipts_in(result), None) is None:
        return ()
    await active.log.flush()
    return unproven(await load(active.process, active.run), requires, result)


def _error(active: ActiveRun, missing: Sequence[str]) -> ClaimUnproven:
    text = f"run {active.run} claims what is not proven: {'; '.join(missing)}"
    return ClaimUnproven(text, run=active.run, missing=tuple(missing))
