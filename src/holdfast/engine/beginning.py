"""Before a run is driven: whose it is, whether its input is the recorded one, and whether it goes on after a stop."""

from __future__ import annotations

import msgspec

from holdfast.engine.engine import AgentCode, Engine
from holdfast.engine.instance import Stamp
from holdfast.engine.leases import unchanged
from holdfast.errors import JournalError, ParameterMismatch, UsageError
from holdfast.journal.codec import encode
from holdfast.journal.log import RunLog
from holdfast.journal.port import Claimed, RunChange
from holdfast.model import records as r
from holdfast.model.plain import plain_arguments
from holdfast.model.run import RunHistory


def agent_of(engine: Engine, history: RunHistory, agent: AgentCode | None) -> AgentCode:
    """The code that drives this run. Raises `ParameterMismatch` for another agent, `UsageError` where it is unknown."""
    name = history.started.agent if history.started else agent.name if agent else ""
    if agent is not None and history.started is not None and agent.name != name:
        raise ParameterMismatch(
            f"run {history.run} belongs to the agent {name}, not {agent.name}", run=history.run,
            next_step="give the run another id",
        )  # fmt: skip
    found = agent or engine.agents.get(name)
    if found is None:
        known = sorted(name for name in engine.agents if not name.startswith("holdfast:"))  # ours are nobody's choice
        raise UsageError(
            f"the agent {name!r} of run {history.run} is not known to this app",
            known=f"known agents: {', '.join(known) or 'none'}",
            next_step="name the file or module that defines it",
        )
    return found


def check_input(history: RunHistory, stored: bytes, digest: str) -> None:
    """Raise `ParameterMismatch` where the run was begun with another input."""
    if history.started is None or history.started.digest == digest:
        return
    recorded, now = _shown(history.started.input), _shown(stored)
    if recorded == now:  # they differ in a type, or in what is not shown
        recorded, now = bytes(history.started.input).decode(), stored.decode()
    raise ParameterMismatch(
        f"run {history.run} exists with another input",
        run=history.run,
        known=f"recorded: {recorded}; now: {now}. Nothing was sent",
        next_step="a run id names one input: use another id, or the same input",
    )


def _shown(stored: bytes) -> str:
    """An input as a person would write it."""
    return msgspec.json.encode(plain_arguments(stored).get("input")).decode()


async def go_on_after_stop(engine: Engine, history: RunHistory, log: RunLog, by: str) -> None:
    """The run goes on, and is listed so: whoever finds it abandoned takes it up. Its outcomes hold.

    Raises `UsageError` where a person has taken it over.
    """
    if history.stopped is not None and history.stopped.reason == "handed_over":
        raise UsageError(
            f"run {history.run} is not ours any more: {history.stopped.error}", next_step=f"holdfast show {history.run}"
        )
    stamp = Stamp(at=engine.seams.clock.wall_ms(), up=engine.journal.now().ms)
    reopened = r.RunReopened(by=by, **stamp)
    await log.append([encode(reopened)], RunChange("running"))
    history.add(reopened)


async def release(engine: Engine, history: RunHistory, log: RunLog, claimed: Claimed) -> None:
    """Nothing was driven: the lease goes back, and the listing stays as it was, or as a reopening has made it."""
    change = unchanged(claimed.row, engine.seams.clock.wall_ms())
    if claimed.row.status == "stopped" and history.status == "running":
        change = RunChange("running", release=True)
    try:
        await log.append((), change)
    except JournalError:
        engine.leases.give_back(claimed.row)
