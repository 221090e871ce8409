"""Processes that come to harm: what stands still is asked about and goes on by itself, and poison harms only itself.

As the checker, it reads the world and the durable records; it never asks the product.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import msgspec

from beforehand.model import records as r
from beforehand.model.ids import operation_id
from simulator.agents.timing_and_processes import POISON
from simulator.services.service import Request

if TYPE_CHECKING:
    from simulator.plan import Fault
    from simulator.processes.worker import Life
    from simulator.world import World

HONEST: Final = 5
ALONE: Final = 18
ENDS: Final = 19
MINUTE: Final = 60_000
ASKED_MS: Final = 25 * MINUTE
"""By then a person is asked about a call whose process was stopped. Ten minutes are declared; others may be down."""

GOES_ON_MS: Final = 60 * MINUTE
"""By then an operation has an outcome whose process went on, or died."""

DEATHS: Final = 12
"""More processes than that do not die of one run."""


class _Stopped(msgspec.Struct):
    """A process that was stopped in the middle of a call, and what is on record of that call."""

    life: Life
    settled: bool = False
    asked: bool = False
    named: bool = False
    """Whether the record by which a person is asked names the process."""
    over: bool = False
    dark_ms: int = 0
    """For how long no process could do anything before."""


class Processes:
    """Everything in one simulation about processes that come to harm."""

    def __init__(self, world: World, broken: Callable[[int, str], None]) -> None:
        self._world = world
        self._broken = broken
        self._stopped: dict[str, _Stopped] = {}
        self._poison = {script.id for script in world.plan.scripts if any(step.kind in POISON for step in script.steps)}
        self._deaths = 0

    def busy(self) -> bool:
        """Whether a process is stopped, or what it did has no outcome yet."""
        return any(not one.over for one in self._stopped.values())

    def restored(self) -> None:
        """The records say less than they did."""
        for one in self._stopped.values():
            one.over = True

    # --- events ----------------------------------------------------------------------------------------------

    def stops(self, life: Life, request: Request, fault: Fault) -> None:
        """The process stops here, with the request in its hands, for as long as the fault says."""
        life.actor.paused = life.stopped = True
        one = self._stopped[request.operation] = _Stopped(
            life, over=self._world.restored_ms >= 0, dark_ms=self._world.checker.timing.dark_ms()
        )
        self._world.tell(life.actor, f"{fault.kind} for {fault.ms} ms")
        self._world.later(ASKED_MS, functools.partial(self._has_asked, request.operation, one))
        self._world.later(fault.ms, functools.partial(self._ends, request.operation, one, fault.kind))

    def died(self) -> None:
        """A process died of the run that it drove."""
        self._deaths += 1
        if self._deaths > DEATHS:
            self._broken(ALONE, f"{self._deaths} processes died of {sorted(self._poison)}, and it is not set aside")

    def heard(self, run: str, record: r.Record) -> None:
        """A record became durable."""
        match record:
            case r.RunStoppedRecord(reason=reason):
                self._run_stopped(run, reason)
            case r.OperationParked(step=step, rule="quarantined"):
                self._set_aside(run, operation_id(run, step))
            case r.Verified(step=step, verdict="did_not_happen", believable=True):
                self._believed(operation_id(run, step))
            case r.OperationSettled(step=step, status=status, reason=reason):
                self._settled(operation_id(run, step), status, reason)
            case _:
                return

    def _run_stopped(self, run: str, reason: str) -> None:
        """What it left in doubt is read back ever less often."""
        for name, one in self._stopped.items():
            one.over = one.over or name.startswith(f"{run}/")
        if reason == "quarantined":
            self._set_aside(run, run)

    def _set_aside(self, run: str, what: str) -> None:
        if run in self._poison:
            self._reached("poison set aside")
        elif self._poison:
            self._broken(ALONE, f"{what} is set aside, and every process died of {sorted(self._poison)}")

    def _believed(self, name: str) -> None:
        """Absence is believed: then its process does not stand still with the request in its hands."""
        one = self._stopped.get(name)
        if one is not None and not one.over and one.life.stopped and one.life.actor.alive:
            self._broken(HONEST, f"{name}: absence was believed while its process was stopped with the request")

    def _settled(self, name: str, status: str, reason: str) -> None:
        one = self._stopped.get(name)
        if one is None:
            return
        one.settled = status != "unknown"
        if status == "unknown" and not one.asked:
            one.asked, one.named = True, f"process {one.life.number} " in reason
            self._reached("a person is asked about one that is stopped")
        one.over = one.over or (one.settled and not one.life.stopped)

    # --- as time passes --------------------------------------------------------------------------------------

    def _has_asked(self, name: str, one: _Stopped) -> None:
        """A person has been asked about what hangs, and about which process."""
        if one.over or one.settled or not (one.life.stopped and one.life.actor.alive):
            return
        if not one.asked and (dark_ms := self._world.checker.timing.dark_ms() - one.dark_ms):
            one.dark_ms += dark_ms  # no process could ask meanwhile
            self._world.later(dark_ms, functools.partial(self._has_asked, name, one))
            return
        if not one.asked:
            self._broken(ENDS, f"{name}: its process is stopped since {ASKED_MS} ms, and no person is asked")
        elif not one.named:
            self._broken(ENDS, f"{name}: a person is asked, and is not told which process hangs")

    def _ends(self, name: str, one: _Stopped, kind: str) -> None:
        """It goes on, or it is killed. From now on the operation goes on by itself."""
        life = one.life
        life.stopped = False
        if life.actor.alive:
            self._reached(f"{kind} and ended")
            if kind == "stopped":
                life.actor.paused, self._world.woke_ms = False, self._world.now_ms()
                self._world.tell(life.actor, "wakes up")
            else:
                self._world.tell(life.actor, "is killed")
                life.kill()
        one.over = one.over or one.settled
        self._world.later(GOES_ON_MS, functools.partial(self._went_on, name, one))

    def _went_on(self, name: str, one: _Stopped) -> None:
        """It has an outcome: its process is not stopped any more, and what it did can be read back."""
        if not one.over:
            one.over = True
            self._broken(ENDS, f"{name}: its process went on or died {GOES_ON_MS} ms ago, and there is no outcome")

    def _reached(self, what: str) -> None:
        self._world.reach.endings[f"process: {what}"] += 1
