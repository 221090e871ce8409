"""`run.start` and `run.join`: child runs, for the code of their parent."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypeVar

from msgspec.structs import replace

from beforehand.agent.model_calls import tools_for
from beforehand.agent.submission import Submission, check_place, place_in
from beforehand.engine import children
from beforehand.engine.active_run.scopes import Scope
from beforehand.errors import ChildStopped, UnknownTool, UsageError
from beforehand.model.shell import to_type
from beforehand.model.stop_reasons import after_stop
from beforehand.policies import RunBudget

if TYPE_CHECKING:
    from beforehand.agent.agent import Agent
    from beforehand.model.records import ChildJoined

T = TypeVar("T")
R = TypeVar("R")
WhenParentEnds = Literal["cancel", "continue"]
"""The fate of a child when the run that started it completes without having joined it."""
_BOTH: Final = ("cancel", "continue")


class ChildRun(Generic[R]):
    """A child run that was started. `id` is its name; `await run.join(child)` waits for its end."""

    def __init__(self, id: str, parent: str, agent: Agent[Any, R]) -> None:  # noqa: A002 - the spelling users read
        self.id: Final = id
        self.parent: Final = parent
        self.agent: Final = agent

    def __repr__(self) -> str:
        """The child's name."""
        return f"<child {self.id}>"


async def start(
    scope: Scope, agent: Agent[T, R], given: T, how: Submission, ends: WhenParentEnds, step: str | None
) -> ChildRun[R]:
    """Start a child run of this agent. It is in no queue if `how` names none."""
    active = scope.active
    if ends not in _BOTH:
        raise UsageError(
            f"when_parent_ends={ends!r} is neither of {', '.join(_BOTH)}", known="nothing was stored",
            next_step='"cancel" cancels a child that was not joined, "continue" lets it go on',
        )  # fmt: skip
    _check_authority(scope, agent)
    _check(how.budget)
    check_place(how.priority, how.tenant)
    stored = agent.stored_input(given, active.process.identity.secret)
    stored = replace(stored, budget=how.budget or stored.budget)
    started = active.history.lifecycle.started
    how = replace(how, tenant=how.tenant or ("" if started is None else started.tenant))
    stored = replace(stored, tenant=how.tenant)
    place = partial(place_in, agent=agent, given=given, how=how) if how.queue else None
    terms = children.ChildTerms(place, outlives=ends == "continue")
    child = await children.start(scope, agent, stored, terms, step)
    return ChildRun(child, active.run, agent)


async def join(scope: Scope, child: ChildRun[R], step: str | None) -> R:
    """Wait for the end of this child. Raises `ChildStopped` if it has no result."""
    if not isinstance(child, ChildRun) or child.parent != scope.active.run:  # pyright: ignore[reportUnnecessaryIsInstance] - users may not check types
        raise UsageError(
            f"run {scope.active.run} joins {child!r}, which it did not start",
            next_step="join what run.start(...) returned in this run",
        )
    ended = await children.join(scope, child.id, child.agent.name, step)
    if ended.status == "completed":
        return child.agent.codec.decode(bytes(ended.result))  # type: ignore[return-value]  # decoded by R's own annotation
    raise _stopped(ended)


def _stopped(ended: ChildJoined) -> ChildStopped:
    reason = ended.reason or ended.status
    known, go_on = after_stop(ended.run, reason)
    return ChildStopped(
        f"the child {ended.run} ended without a result ({reason}): {ended.error}", run=ended.run, reason=reason,
        known=known, next_step=go_on or to_type("show", ended.run),
    )  # fmt: skip


def _check(budget: RunBudget | None) -> None:
    if budget is not None and not isinstance(budget, RunBudget):  # pyright: ignore[reportUnnecessaryIsInstance] - as above
        raise UsageError(
            f"budget={budget!r} is not a RunBudget",
            next_step="from beforehand.policies import RunBudget, and write: budget=RunBudget(tokens=50_000)",
        )


def _check_authority(scope: Scope, agent: Agent[Any, Any]) -> None:
    """Raise `UnknownTool` if code that a run was handed over to starts an agent that may do more than it."""
    if scope.authority is None:
        return
    beyond = sorted(tools_for(scope.active, agent) - scope.authority.tools)
    if beyond:
        raise UnknownTool(
            f"{scope.authority.agent} may not use {', '.join(beyond)} in this run, and starts no agent that may",
            known="nothing was stored; a run that is handed over gains no tools by it",
            next_step=f"start {agent.name} before the run is handed over",
        )
