"""What holds for every plan: the order that it names, fallbacks after proof only, and choices that are on record.

As the checker, it reads the world, the durable records, and what agent code heard; it never asks the product.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

import msgspec

from beforehand.model import records as r
from beforehand.model.ids import operation_id
from beforehand.model.plan import Chosen
from beforehand.planning.executor import PlanResult
from simulator.agents.plans import name_of
from simulator.plan import Act, Step
from simulator.services.service import Effect, Request

if TYPE_CHECKING:
    from simulator.world import World

ORDER: Final = 11
OVER: Final = frozenset({"failed", "cancelled"})


class _Place(msgspec.Struct, frozen=True):
    """Where in a plan an operation stands."""

    plan: str
    step: Step
    number: int
    call: int

    @property
    def act(self) -> Act:
        return self.step.acts[self.number]

    def operation(self, number: int, tool: str) -> str:
        """The operation of one call of one step of the same plan."""
        return f"{self.plan}/s{number}/{tool}#1"


class Plans:
    """Every plan of one simulation."""

    def __init__(self, world: World, broken: Callable[[int, str], None], effects: Mapping[str, list[Effect]]) -> None:
        self._world = world
        self._broken = broken
        self._effects = effects
        self._places: Final = dict(_places(world))
        self._status: dict[str, str] = {}
        self._chosen: dict[str, Chosen] = {}

    def restored(self) -> None:
        """The records say less than they did, and what a plan did before them is not known: it is not checked."""
        self._places.clear()
        self._status.clear()
        self._chosen.clear()

    # --- events ----------------------------------------------------------------------------------------------

    def heard(self, run: str, record: r.Record) -> None:
        """A record became durable."""
        if not self._places:
            return
        match record:
            case r.OperationSettled(status=status):
                self._status[operation_id(run, record.step)] = status
            case r.Resolved(word="happened" | "did_not_happen" as word):
                self._status[operation_id(run, record.step)] = "succeeded" if word == "happened" else "failed"
            case r.ApprovalRefused():
                self._status[operation_id(run, record.step)] = "failed"
            case r.ResultGiven():
                self._status[operation_id(run, record.step)] = "succeeded"
            case r.ValueRecorded(what="chose", value=value):
                chosen = msgspec.json.decode(msgspec.json.decode(value, type=str), type=Chosen)
                step = operation_id(run, record.step.rpartition("/")[0])
                self._world.reach.endings[f"plan: {chosen.chosen}"] += 1
                self._chosen[step] = chosen
            case _:
                return

    def arrived(self, request: Request) -> None:
        """A request of a plan is at its service: look whether this is its time."""
        place = self._places.get(request.operation)
        if place is None:
            return
        for tool in place.act.tools[: place.call]:
            name = place.operation(place.number, tool)
            status = self._status.get(name)
            tried = name in self._world.checker.operations
            if tried and (status not in OVER or self._world.services[tool].in_flight.get(name, 0) or self._done(name)):
                self._broken(ORDER, f"{request.operation} is a fallback of {name}, which is {status or 'on its way'}")
        if place.act.after >= 0 and not self._is_over(place):
            self._broken(ORDER, f"{request.operation} was sent before step s{place.act.after} was over")

    def _is_over(self, place: _Place) -> bool:
        """Whether the step that this one waits for has succeeded, or was found not to be needed."""
        before = place.step.acts[place.act.after]
        chosen = self._chosen.get(f"{place.plan}/s{place.act.after}")
        if chosen is not None and chosen.chosen == "skipped":
            return True
        names = [place.operation(place.act.after, tool) for tool in before.tools]
        return any(self._effects.get(name) or self._status.get(name) == "succeeded" for name in names)

    def happened(self, effect: Effect) -> None:
        """A service did something for a plan: once at most for each of its steps."""
        place = self._places.get(effect.operation)
        if place is None:
            return
        others = [tool for tool in place.act.tools if self._done(place.operation(place.number, tool))]
        if len(others) > 1:
            self._broken(2, f"step s{place.number} of {place.plan} was done by {' and by '.join(others)}")

    def _done(self, name: str) -> bool:
        return bool(self._effects.get(name))

    def told(self, run: str, step: Step, done: PlanResult | None) -> None:
        """Agent code heard what came of a plan: as it is on record, wherever it is."""
        for chosen in done.chosen if done is not None else ():
            recorded = self._chosen.get(f"{run}/{name_of(step)}/{chosen.step}")
            if recorded is not None and recorded != chosen:
                self._broken(14, f"{run} chose {chosen} when its plan came back, and {recorded} is on record")
        for number, act in enumerate(step.acts if done is not None else ()):
            result = done.results.get(f"s{number}") if done is not None else None
            if act.aborts and str(result).endswith("2"):
                self._broken(ORDER, f"{run}: step s{number} gave {result}, which calls its plan off, and it went on")

    # --- at the end of time ------------------------------------------------------------------------------------

    async def at_the_end(self) -> None:
        """Every choice of a run that has ended well is on record; what was called off was left before it."""
        ended = {row.run for row in await self._world.journal.runs(limit=10_000) if row.status == "completed"}
        for name, place in self._places.items():
            step = f"{place.plan}/s{place.number}"
            run = name.partition("/")[0]
            known = step in self._chosen or self._world.checker.messages.interrupted(run)
            trip = self._world.checker.trips.around(name)
            called_off = trip is not None and bool(trip.by)
            if run in ended and self._status.get(name) and not (known or called_off):
                self._broken(14, f"{name} is {self._status[name]}, and why it was chosen is on no record")


def _places(world: World) -> Iterator[tuple[str, _Place]]:
    """Every operation that a plan may lead to."""
    plans = [(script.id, step) for script in world.plan.scripts for step in script.steps if step.acts]
    for run, step in plans:
        calls = [(number, call) for number, act in enumerate(step.acts) for call in range(len(act.tools))]
        for number, call in calls:
            place = _Place(operation_id(run, name_of(step)), step, number, call)
            yield place.operation(number, step.acts[number].tools[call]), place
