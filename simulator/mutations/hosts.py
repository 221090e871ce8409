"""Planted bugs in hosted runs: names, waits, late bodies, calls that a host makes twice, cancels or does not await."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from typing import Any, Final

from beforehand.agent.hosted import HostControl
from beforehand.engine.active_run.scopes import SCOPE
from simulator.generator.hosts import HOSTED
from simulator.mutations.mutation import Mutant, always, never_mind


def named_by_tasks(_original: Any) -> Any:
    """A call of a host is named after the task in which it is made."""

    @contextlib.contextmanager
    def hosting(self: Any, _name: str) -> Generator[Any]:
        scope = self.host_step(f"task-{self.path.count('~')}")
        token = SCOPE.set(scope)
        try:
            yield scope
        finally:
            SCOPE.reset(token)
            scope._ended(None)  # noqa: SLF001 - as the original

    return hosting


def asked_each_time(_original: Any) -> Any:
    """A model's answer is not recorded."""

    async def turn(self: Any, name: str, _seen: Any, model: Any, **_settings: Any) -> Any:
        with self.step(name):
            return await model()

    return turn


def control_as_result(original: Any) -> Any:
    """Control flow of the host is taken for the result of the call."""

    async def call_body(self: Any, name: str, tool: Any, arguments: Any, body: Any) -> Any:
        async def returning() -> Any:
            try:
                return await body()
            except HostControl as control:
                return str(control.payload)

        return await original(self, name, tool, arguments, returning)

    return call_body


def control_anew(original: Any) -> Any:
    """The payload of control flow is that of this process."""

    async def call_body(self: Any, name: str, tool: Any, arguments: Any, body: Any) -> Any:
        outcome, control = await original(self, name, tool, arguments, body)
        return outcome, None if control is None else f"{control} of {id(body)}"

    return call_body


def every_task_counts(original: Any) -> Any:
    """A run is suspended only when all tasks of the host wait for it too."""

    def at_rest(self: Any) -> bool:
        return bool(original(self)) and not (self.made_in is not None and self.alive and not self.waiting)

    return at_rest


def numbered_with_the_host(_original: Any) -> Any:
    """Branches of agent code take their numbers from the same count as the tasks of a host."""

    def child(self: Any, name: str | None = None) -> Any:
        return self._below(self._path_of(name))

    return child


def stays_in_turn(_original: Any) -> Any:
    """A delivery whose caller is cancelled is still waited for by all later ones."""

    def forgo(_self: Any, _step: str) -> None:
        return

    return forgo


def nothing(_original: Any) -> Any:
    """A function that does nothing."""

    def does_nothing(*_args: object, **_named: object) -> None:
        return

    return does_nothing


HOSTS: Final = (
    Mutant(
        "named by tasks",
        "a call of a host is named after its tasks",
        "beforehand.engine.active_run.scopes:Scope.hosting",
        named_by_tasks,
        from_seed=HOSTED,
    ),
    Mutant(
        "answers not recorded",
        "a host's model is asked again",
        "beforehand.agent.hosted:HostedRun.turn",
        asked_each_time,
        from_seed=HOSTED,
    ),
    Mutant(
        "control is a result",
        "control flow of a host counts as a success",
        "beforehand.agent.hosted:HostedRun.call_body",
        control_as_result,
        from_seed=HOSTED,
    ),
    Mutant(
        "control drawn anew",
        "control flow of a host differs in a replay",
        "beforehand.agent.hosted:HostedRun.call_body",
        control_anew,
        from_seed=HOSTED,
    ),
    Mutant(
        "helpers keep the run",
        "a task of the host keeps a run from being suspended",
        "beforehand.engine.active_run.scopes:Scope.at_rest",
        every_task_counts,
        from_seed=HOSTED,
    ),
    Mutant(
        "numbered with the host",
        "branches of agent code are numbered with tasks of the host",
        "beforehand.engine.active_run.scopes:Scope.child",
        numbered_with_the_host,
        from_seed=HOSTED,
    ),
    Mutant(
        "the body is not handed over",
        "an operation never gets the body that the host brings again",
        "beforehand.engine.steps:_supply_arguments",
        nothing,
        from_seed=HOSTED,
    ),
    Mutant(
        "refusals forgotten",
        "a repeated call that was refused is sent in a replay",
        "beforehand.engine.active_run.run:ActiveRun.note",
        nothing,
        from_seed=HOSTED,
    ),
    Mutant(
        "cancelled calls made twice",
        "a call that the host cancels and makes again is sent again",
        "beforehand.engine.steps:left_by_host",
        always(None),
        from_seed=HOSTED,
    ),
    Mutant(
        "no patience in a replay",
        "a host that works between its calls is called diverged",
        "beforehand.engine.active_run.waiters:Waiters._host_may_go_on",
        always(False),
        from_seed=HOSTED,
    ),
    Mutant(
        "a cancelled turn stays",
        "a delivery that no code takes keeps all later ones waiting",
        "beforehand.engine.active_run.replay:Replay.forgo",
        stays_in_turn,
        from_seed=HOSTED,
    ),
    Mutant(
        "no time to come back",
        "a call that the host does not await is called missing",
        "beforehand.engine.run_driver:_branches_come_back",
        never_mind,
        from_seed=HOSTED,
    ),
)
"""Each is looked for in the seeds of hosted runs."""
