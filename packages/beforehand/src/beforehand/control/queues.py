"""Submitting runs to queues, and reading `queues.yaml`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, TypeAlias, TypedDict, TypeVar

import msgspec
from msgspec.structs import replace

from beforehand.agent.agent import Agent, named_run
from beforehand.agent.submission import Submission, check_place, place_in
from beforehand.control.code_location import unknown_agents
from beforehand.control.input_checks import check, checked_by
from beforehand.engine.engine import Engine
from beforehand.engine.queueing import store_submitted
from beforehand.errors import LimitsChanged, UsageError
from beforehand.journal.entry_codec import written
from beforehand.journal.port import Post
from beforehand.model.alike import nearest
from beforehand.people.policy.judge import PolicyError
from beforehand.people.policy.policy_files import read_yaml
from beforehand.policies import RunBudget
from beforehand.queues.limits import STREAM, DeclaredLimits, LimitsError, contradictions, removed
from beforehand.queues.modes import QueueCommand, QueueMode, QueueWord, command_key
from beforehand.queues.schedules import QueuesAndSchedules, read_declarations, schedule_faults

T = TypeVar("T")
R = TypeVar("R")
LimitsSource: TypeAlias = "str | os.PathLike[str] | Mapping[str, Any] | DeclaredLimits | QueuesAndSchedules"


class SubmitOptions(TypedDict, total=False):
    """The options of `Beforehand.submit`, for code that hands them on."""

    queue: str
    priority: int
    at: datetime | None
    key: str | None
    tenant: str
    by: str
    budget: RunBudget | None


class Submitted(msgspec.Struct, frozen=True):
    """A submitted run. `new` is false where the same submission was made before."""

    run: str
    queue: str
    new: bool


def declarations_of(source: LimitsSource | None) -> QueuesAndSchedules:
    """The limits and schedules that an app declares, given as such, as a YAML file, or as its contents.

    Raises `LimitsError` naming every fault.
    """
    if source is None:
        return QueuesAndSchedules()
    if isinstance(source, (str, os.PathLike)):
        try:
            return read_declarations(read_yaml(Path(source), "a file of queues"), os.fspath(source))
        except PolicyError as error:
            raise LimitsError(os.fspath(source), error.faults) from error
    if not isinstance(source, (DeclaredLimits, QueuesAndSchedules)):
        return read_declarations(source, "queues=")
    given = source if isinstance(source, QueuesAndSchedules) else QueuesAndSchedules(source)
    if given.limits is not None:
        check("queues", given.limits, DeclaredLimits)
    faults = contradictions(given.limits) if given.limits is not None else []
    faults += schedule_faults(given.schedules or {}, given.limits)
    if faults:
        raise LimitsError("queues=", tuple(faults))
    return given


async def declare_limits(engine: Engine, limits: DeclaredLimits) -> list[str]:
    """Declare limits for this journal. Remarks about names in them that concern nothing here."""
    before = engine.queues.limits or DeclaredLimits()
    await engine.queues.declare(engine.journal, limits)
    strange = await unknown_agents(engine.journal, limits.limited_agents(), engine.agents)
    return [*removed(before, limits), *strange, *misspelled_tools(limits, engine.tools)]


async def submit(
    engine: Engine, agent: Agent[T, R], given: T, how: Submission, *, key: str | None = None, by: str = ""
) -> Submitted:
    """Store a run in its queue, to be started by a worker. Its id is `key`, or the one that the agent makes.

    Raises `UsageError` for a queue, tenant or priority that does not exist, `QueueFull`, `QueueDraining`, and
    `ParameterMismatch` where the run exists with another input.
    """
    check("by", by, str)
    run = named_run(agent, given, key, engine.agents, "key")
    _check(how)
    stored = agent.stored_input(given, engine.identity.secret)
    stored = replace(stored, by=by, budget=how.budget or stored.budget)

    newest = engine.queues.newest or await engine.queues.begin(engine.journal)
    now = engine.wall_ms()
    due = now if how.at is None else max(now, int(how.at.timestamp() * 1000))
    while True:
        try:
            new = await store_submitted(engine, run, agent, stored, place_in(newest, agent, given, how), due)
        except LimitsChanged:  # the key, the capacity and the names are those of the limits in force
            newest = await engine.queues.begin(engine.journal)
        except UsageError:
            before, newest = newest, await engine.queues.begin(engine.journal)
            if newest == before:  # it is refused under the limits in force
                raise
        else:
            engine.came_due.set()
            return Submitted(run, how.queue, new)


async def steer_queue(engine: Engine, queue: str, word: QueueWord, *, by: str, why: str = "") -> tuple[QueueMode, bool]:
    """Pause, drain or resume a queue. Its mode, and whether this has changed it.

    Once this returns, no process starts a new run of a paused queue, or accepts a submission to a draining one. Raises
    `UsageError` for a queue that is not declared and has no runs.
    """
    command = QueueCommand(word, queue, checked_by(by), why)
    while True:
        newest = await engine.queues.begin(engine.journal)
        if queue not in {state.queue for state in await engine.journal.queues()}:
            newest.check_known(queue)
        mode = newest.mode(queue)
        if mode.after(command, 0) == mode:
            return mode, False
        # The key makes it a compare-and-set: a command that another one has overtaken reads again.
        post = Post(STREAM, command_key(queue, newest.entry), written(command))
        if (await engine.journal.commit(post)).fresh:
            engine.came_due.set()
            return (await engine.queues.begin(engine.journal)).mode(queue), True


def misspelled_tools(limits: DeclaredLimits, here: Iterable[str]) -> list[str]:
    """One remark for each limited tool that this app does not have, where it has one of a similar name."""
    known = set(here)
    return [
        f"the limit of tool {name} concerns no tool of this app; did you mean {near}?"
        for name in sorted(limits.limited_tools())
        if name not in known and (near := nearest(name, known))
    ]


def _check(how: Submission) -> None:
    """Raise `UsageError` for what no declaration makes right."""
    for name, value, kind in (("queue", how.queue, str), ("tenant", how.tenant, str), ("priority", how.priority, int)):
        check(name, value, kind)
    if how.budget is not None:
        check("budget", how.budget, RunBudget)
    if how.at is not None:
        check("at", how.at, datetime)
        if how.at.tzinfo is None:
            raise UsageError(f"at={how.at} has no time zone", next_step="give one: datetime(..., tzinfo=UTC)")
    check_place(how.priority, how.tenant)
