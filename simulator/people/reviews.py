"""Reviews of what no rule could decide, with commanded compensation: each decision counts once."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from beforehand.control.service import ControlService
from beforehand.model import records as r
from beforehand.model.ids import operation_id
from beforehand.model.outcome import Outcome
from beforehand.people.answering import answer
from beforehand.people.answers import CompensateAnswer, DidNotHappenAnswer, HappenedAnswer, RetrySameKey, Review
from beforehand.people.loaded_item import load_item
from beforehand.testing.loop import Actor
from simulator.people.approvers import Errand
from simulator.plan import Fault
from simulator.services.service import Effect

if TYPE_CHECKING:
    from simulator.world import World


WORDS: Final = 6
SAGA: Final = 11


class CompensationOrders:
    """Every order to compensate in one simulation."""

    def __init__(self, world: World, broken: Callable[[int, str], None], effects: Mapping[str, list[Effect]]) -> None:
        self._world = world
        self._broken = broken
        self._effects = effects
        self._ordered: dict[str, str] = {}
        """Who ordered the compensation of an operation, with a result that fits."""
        self._taken: set[str] = set()

    def restored(self) -> None:
        """What was said is forgotten, and people look anew."""
        self._ordered.clear()
        self._taken.clear()

    def ordered(self, name: str, by: str) -> None:
        """A person is about to order the compensation of this operation."""
        self._ordered[name] = by

    def taken_down(self, name: str) -> None:
        """The order is in the ledger."""
        if name in self._ordered:
            self._taken.add(name)
            self._reached("ordered")

    def heard(self, run: str, record: r.Record) -> None:
        """A record became durable: a transaction is called off in a person's name only if that person ordered it."""
        if not isinstance(record, r.TransactionAborting) or not record.by:
            return
        within = f"{operation_id(run, record.transaction)}/"
        cancelled = any((order.run, order.word) == (run, "cancel") for order in self._world.plan.orders)
        if not cancelled and not any(by == record.by and name.startswith(within) for name, by in self._ordered.items()):
            self._broken(WORDS, f"{record.by} is on record as having called {within} off, and never did so")
        self._reached("called off")

    def stands(self, name: str) -> None:
        """It is on record as happened because of that order alone: its transaction is called off already."""
        trip = self._world.checker.trips.around(name)
        if trip is None or not trip.backward:
            half = f"{self._ordered[name]} ordered the compensation of {name}, and only half of it is on record"
            self._broken(WORDS, half)

    # --- at the end of time ------------------------------------------------------------------------------------

    def at_the_end(self) -> None:
        """What was recorded was done: the outcome is true, and where all is undone, the compensation was made once."""
        for name in self._taken:
            known, trip = self._world.checker.operations[name], self._world.checker.trips.around(name)
            assert trip is not None, name
            if not trip.backward:
                self._broken(SAGA, f"the compensation of {name} was ordered, and {trip.name} is {trip.phase}")
            if known.state():
                self._broken(WORDS, f"the compensation of {name} was ordered, and it is {known.state()}")
            self._made_once(name)

    def _made_once(self, name: str) -> None:
        trips = self._world.checker.trips
        trip = trips.around(name)
        assert trip is not None, name
        made = trips.compensations_of(name)
        once = len(made) == 1 or (made and self._world.services[made[0].service].able.natural)
        if trip.phase == "aborted" and trips.compensable(name) and not once:
            self._broken(SAGA, f"the compensation of {name} was ordered, and was made {len(made)} times")
        self._reached("made" if made else "not to be made")

    def _reached(self, what: str) -> None:
        self._world.reach.endings[f"compensations: {what}"] += 1


# --- reviews ----------------------------------------------------------------------------------------------------------


LOOK_MS: Final = 10 * 60_000
"""No process stands still that long with a request in its hands: what is not there by then does not come."""

AGAIN_MS: Final = 60_000
TRIES: Final = 5


class _Item(msgspec.Struct):
    """An operation that no rule could decide. `tries` is how often a reviewer has looked at it."""

    by: str
    open: bool = True
    tries: int = 0
    said: list[Review] = []
    word: str = ""
    """What is on record: `happened`, `did_not_happen`, `retry` or `same_key`."""
    result: Any = None
    same_key: bool = False


class Reviews:
    """Everything in one simulation that a person has to look at."""

    def __init__(
        self,
        world: World,
        broken: Callable[[int, str], None],
        effects: Mapping[str, list[Effect]],
        compensations: CompensationOrders,
    ) -> None:
        self._world = world
        self._broken = broken
        self._effects = effects
        self._compensations = compensations
        self._items: dict[str, _Item] = {}
        self._waiting = 0

    def busy(self) -> bool:
        """True if a reviewer is about to look at it, or to answer."""
        return self._waiting > 0

    def restored(self) -> None:
        """What was said is forgotten, and what was done before cannot be known: it is not checked."""
        self._items.clear()

    # --- events ----------------------------------------------------------------------------------------------

    def heard(self, run: str, record: r.Record) -> None:
        """A record became durable."""
        if not self._world.plan.reviews or self._world.restored_ms >= 0:
            return
        match record:
            case r.OperationParked(step=step, asks="") | r.OperationSettled(step=step, status="unknown"):
                self._left_to_people(operation_id(run, step))
            case r.Resolved(step=step):
                self._resolved(operation_id(run, step), record)
            case r.OperationSettled(step=step):
                if (item := self._items.get(operation_id(run, step))) is not None:
                    item.open = False
            case _:
                return

    def _left_to_people(self, name: str) -> None:
        item = self._items.setdefault(name, _Item("eve"))
        item.open = True
        self._reached("asked for")
        self._later(LOOK_MS, name)

    def _resolved(self, name: str, record: r.Resolved) -> None:
        """A person's answer is on record: it was given, and the operation was not decided before."""
        item = self._items.get(name)
        result = None if record.result == r.NOTHING else msgspec.json.decode(record.result)
        if item is None or record.by != item.by or not any(_says(one, record.word, result) for one in item.said):
            self._broken(6, f"{record.by} is on record with {record.word} for {name}, and never said so")
            return
        if not item.open:
            self._broken(6, f"{name} was decided before {record.by} said {record.word}")
        if record.word == "happened" and not any(isinstance(one, HappenedAnswer) for one in item.said):
            self._compensations.stands(name)
        item.open, item.word, item.result = False, record.word, result
        self._reached(record.word)

    def happened(self, effect: Effect) -> None:
        """A service did something: not what a person has called undone, and under the same key only once."""
        item = self._items.get(effect.operation)
        if item is not None and item.word == "did_not_happen":
            self._broken(4, f"{effect.operation} happened after {item.by} had said that it did not")
        if item is not None and item.same_key and len(self._effects[effect.operation]) > 1:
            self._broken(2, f"{effect.operation} happened twice, and {item.by} had it sent again under the same key")

    def told(self, outcome: Outcome[Any]) -> None:
        """Agent code heard an outcome on a person's word: it is that word."""
        item = self._items.get(outcome.operation)
        if item is None or outcome.basis is None or outcome.basis.name != item.by:
            return
        if (item.word == "happened") != (outcome.status == "succeeded"):
            self._broken(12, f"the agent heard that {outcome.operation} {outcome.status}, and was told {item.word}")
        elif outcome.status == "succeeded" and outcome.value != item.result:
            self._broken(
                12, f"the agent heard {outcome.value!r} from {outcome.operation}, and was told {item.result!r}"
            )

    # --- people ----------------------------------------------------------------------------------------------

    def _later(self, ms: int, name: str) -> None:
        self._waiting += 1
        self._world.later(ms, functools.partial(self._look, name))

    def _look(self, name: str) -> None:
        """A reviewer looks at the service once nothing is on its way any more, and answers."""
        self._waiting -= 1
        item, world = self._items.get(name), self._world
        if item is None or not item.open or item.tries >= TRIES or world.closing:
            return
        tool = world.checker.tool_of(name)
        if world.services[tool].in_flight.get(name, 0):
            self._later(AGAIN_MS, name)
            return
        item.tries += 1
        said = self._word(name, item)
        item.said.append(said)
        self._waiting += 1
        told = functools.partial(self._told, name)
        Errand(world, f"{item.by} say {said} of {name}", functools.partial(_say, name, item.by, said), told).begin(0)

    def _word(self, name: str, item: _Item) -> Review:
        """What is so; and what is to be done about it, where the plan says."""
        tool, done = self._world.checker.tool_of(name), self._effects.get(name, [])
        fault = self._world.nemesis.of_call("review") or Fault("", 0)
        if fault.kind == "same_key" and self._world.services[tool].able.key:
            item.same_key = True
            return RetrySameKey("the same once more")
        if done and fault.kind == "unfit_compensation":
            return CompensateAnswer("it is there, and it is not wanted", len(done))
        if done and fault.kind == "compensation":
            self._compensations.ordered(name, item.by)
            return CompensateAnswer("it is there, and it is not wanted", done[-1].value)
        if done:
            return HappenedAnswer("it is there", done[-1].value)
        return DidNotHappenAnswer("retry" if fault.kind == "retry" else "give_up", "it is not there")

    def _told(self, name: str, _actor: Actor, refused: bool) -> None:
        self._waiting -= 1
        self._reached("a word refused" if refused else "a word taken down")
        if not refused and isinstance(self._items[name].said[-1], CompensateAnswer):
            self._compensations.taken_down(name)
        if refused and name in self._items:
            self._items[name].same_key = False
            self._later(AGAIN_MS, name)

    def _reached(self, what: str) -> None:
        self._world.reach.endings[f"review: {what}"] += 1


async def _say(name: str, by: str, said: Review, service: ControlService) -> None:
    seen = await load_item(service.reader, name)
    await answer(service, seen, said, by=by, shown=seen.digest)


def _says(said: Review, word: str, result: Any) -> bool:
    """Whether this is what stands on record."""
    match said:
        case HappenedAnswer() | CompensateAnswer():
            return word == "happened" and result == said.result
        case DidNotHappenAnswer(then="give_up"):
            return word == "did_not_happen"
        case RetrySameKey():
            return word == "same_key"
        case _:
            return word == "retry"
