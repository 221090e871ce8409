"""Hosted runs: what a host calls happens once, under the host's names, and each wait reaches the inbox.

As the checker, it reads the world and the durable records; it never asks the product.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from beforehand.model import records as r
from beforehand.model.ids import operation_id
from beforehand.model.run_history import REFUSED
from simulator.agents.hosts import LATE
from simulator.services.service import Effect

if TYPE_CHECKING:
    from simulator.plan import HostCall
    from simulator.world import World

TWICE: Final = 2
REPLAYED: Final = 14
ENDS: Final = 19


class Hosts:
    """Everything in one simulation that a host calls."""

    def __init__(self, world: World, broken: Callable[[int, str], None]) -> None:
        self._world = world
        self._broken = broken
        self._calls: dict[str, HostCall] = {
            f"{step.thing}.{number}.{at}": call
            for script in world.plan.scripts
            for step in script.steps
            for number, turn in enumerate(step.turns, 1)
            for at, call in enumerate(turn)
        }
        self._executions: Counter[str] = Counter()
        self._forgot: set[str] = set()
        self._refused: set[tuple[str, str]] = set()
        self._effects: defaultdict[str, list[Effect]] = defaultdict(list)

    def begins(self, run: str) -> bool:
        """The host is called. Whether it was called for this run before."""
        self._executions[run] += 1
        return self._executions[run] > 1

    def forgets(self, run: str) -> None:
        """The host does not make a call that it made before, perhaps."""
        self._forgot.add(run)

    def forgot(self, run: str) -> bool:
        """Whether it did so."""
        return run in self._forgot

    def refused(self, run: str, call: str) -> bool:
        """Whether it is on record that a call of that id was refused, beside an open one."""
        return (run, call) in self._refused

    def may_stop(self, run: str, record: r.RunStoppedRecord) -> bool:
        """Whether the run may end as diverged: its host was called again, and did not make a recorded call."""
        if run in self._forgot and record.reason == "diverged":
            self._reached("forgot a call")
            return True
        return False

    def happened(self, effect: Effect) -> None:
        """What one call is about happened: once, whatever the host did, and whichever answer of the model was asked."""
        call = self._calls.get(effect.thing)
        if call is None or not effect.operation:
            return
        done = self._effects[effect.thing]
        done.append(effect)
        operations = {one.operation for one in done}
        known = [self._world.checker.operations.get(one) for one in operations]
        repeated = call.again == "after"
        allowed = 1 + repeated + sum(one.retries for one in known if one is not None)
        stood_still = any(self._world.checker.stood_still(one.operation, one.attempt) for one in done)
        self._reached(f"{effect.service} {call.again or 'once'}")
        if len(done) > allowed and not stood_still:
            names = ", ".join(one.operation for one in done)
            self._broken(TWICE, f"the host called {effect.service} for {effect.thing}, which happened as {names}")

    def heard(self, run: str, record: r.Record) -> None:
        """A record became durable: the name of a call is the host's, whatever tasks it made the call in."""
        if isinstance(record, r.ValueRecorded) and record.what == REFUSED:
            self._refused.add((run, record.step.rpartition("/")[0].partition("#")[0]))
            self._reached("a repeated id refused")
        if not isinstance(record, r.AttemptStarted) or record.number > 1:
            return
        known = self._world.checker.operations.get(operation_id(run, record.step))
        intent = record.intent or (known.intent if known else None)
        if intent is not None and intent.tool in LATE and ("~" in record.step or record.step.count("/") != 1):
            self._broken(REPLAYED, f"{operation_id(run, record.step)} is named after tasks of the host")

    async def at_the_end(self) -> None:
        """What waits for a person is in the inbox, whatever tasks the host keeps."""
        listed = {row.run: row for row in await self._world.journal.runs()}
        for name, known in self._world.checker.operations.items():
            row = listed.get(known.run)
            tool = known.intent.tool if known.intent else ""
            if tool not in LATE or row is None or row.status != "suspended":
                continue
            answered = any(word.operation == name for word in self._world.people.said)
            waits = known.state() == "unknown" or (known.state() == "gated" and not answered)
            if waits and known.step.encode() not in row.waits:
                self._broken(ENDS, f"{name} waits for a person, and the inbox lists {row.waits.decode()}")
            self._reached(f"{tool} waits in the inbox")

    def _reached(self, what: str) -> None:
        self._world.reach.endings[f"host: {what}"] += 1
