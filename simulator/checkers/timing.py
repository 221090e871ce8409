"""What is about time, as the services and the machine saw it: who wrote last, how long there was for attempts.

As the checker, it reads the world and the durable records; it never asks the product.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from beforehand.model import records as r
from beforehand.model.ids import operation_id
from beforehand.policies import milliseconds
from simulator.agents.timing_and_processes import LIMIT, PATIENCE
from simulator.services.service import Effect

if TYPE_CHECKING:
    from simulator.world import World

TWICE: Final = 2
LIMITS: Final = 10
ENDS: Final = 19
ATTEMPTS: Final = 5


class Timing:
    """Everything in one simulation that is about time."""

    def __init__(self, world: World, broken: Callable[[int, str], None]) -> None:
        self._world = world
        self._broken = broken
        self._tools: dict[str, str] = {}
        self._begun: dict[str, int] = {}
        """When the first attempt of each operation became durable."""
        self._attempts: Counter[str] = Counter()
        self._waited: Counter[str] = Counter()
        """Attempts on record at whose end the system was working on the key."""
        self._busy: dict[str, list[int]] = {}
        """When the system said of each operation that it works on its key."""
        self._dark: list[tuple[int, int]] = []

    def restored(self) -> None:
        """The records say less than they did."""
        self._tools.clear()
        self._begun.clear()
        self._attempts.clear()
        self._waited.clear()
        self._busy.clear()

    # --- events ----------------------------------------------------------------------------------------------

    def dark(self, ms: int) -> None:
        """No process does anything, from now on and for so long."""
        now = self._world.now_ms()
        self._dark.append((now, now + ms))

    def dark_ms(self) -> int:
        """For how long no process could do anything so far, or will not until the last of these times is over."""
        return sum(end - begin for begin, end in self._dark)

    def in_progress(self, operation: str) -> None:
        """The system said that it works on the key of this operation."""
        self._busy.setdefault(operation, []).append(self._world.now_ms())

    def happened(self, effect: Effect) -> None:
        """A write has landed: never on top of a later one of the same run."""
        if effect.service != "label" or self._world.restored_ms >= 0:
            return
        others = self._world.services["label"].effects
        on_top = [one for one in others if one.thing == effect.thing and one.value == "second"]
        residue = self._world.checker.stood_still(effect.operation, effect.attempt)
        if effect.value == "first" and on_top and not residue:
            self._broken(TWICE, f"{effect.operation} landed on top of the later write {on_top[0].operation}")

    def heard(self, run: str, record: r.Record) -> None:
        """A record became durable."""
        name = operation_id(run, getattr(record, "step", ""))
        match record:
            case r.OperationPlanned(intent=intent):
                self._tools[name] = intent.tool
            case r.AttemptStarted():
                if record.intent is not None:
                    self._tools[name] = record.intent.tool
                self._begun.setdefault(name, self._world.now_ms())
                self._attempts[name] += 1
            case r.OperationSettled(status="failed", reason=reason) if "time for attempts" in reason:
                self._out_of_time(name, reason)
            case r.AttemptEnded(end=end):
                self._waited[name] += end.kind == "key_in_progress"
            case r.OperationSettled(status="unknown", reason=why) | r.OperationParked(why=why):
                self._given_up(name, why)
            case r.OperationSettled(status="succeeded") if self._waited[name]:
                self._world.reach.endings["time: a key in progress was waited for"] += 1
            case r.DecisionRecorded(status="failed", function="ask_model", reason=reason):
                self._broken(ENDS, f"{name}: an outage of minutes became the answer of a model: {reason}")
            case _:
                return

    def _out_of_time(self, name: str, reason: str) -> None:
        """It failed by its time limit: so much time was there for it, without what passed in the dark."""
        begun, now = self._begun.get(name), self._world.now_ms()
        if self._tools.get(name) != "dispatch" or begun is None:
            return
        dark = sum(max(0, min(end, now) - max(start, begun)) for start, end in self._dark)
        self._world.reach.endings["time: over"] += 1
        if now - begun - dark < milliseconds(LIMIT):
            self._broken(LIMITS, f"{name} failed ({reason}), and {dark} of {now - begun} ms were dark")

    def _given_up(self, name: str, why: str) -> None:
        """Its attempts are said to be spent: those at which the system was working on its key are not among them."""
        busy, now = self._busy.get(name, []), self._world.now_ms()
        if self._tools.get(name) != "build" or not busy or "attempts were made" not in why:
            return
        spent = self._attempts[name] - min(len(busy), self._waited[name])
        if spent < ATTEMPTS and now - busy[0] < milliseconds(PATIENCE):
            self._broken(LIMITS, f"{name} was given up after {now - busy[0]} ms, while the system worked on it")
