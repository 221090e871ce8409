"""Amends ordered in a review: what happened is on record, its transaction is called off, and amends are made once.

As the checker, it reads the world, what people said, and the durable records; it never asks the product.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from holdfast.model import records as r
from holdfast.model.ids import operation_id
from simulator.services import Effect

if TYPE_CHECKING:
    from simulator.world import World

WORDS: Final = 6
SAGA: Final = 11


class Amends:
    """Every order to make amends of one simulation."""

    def __init__(self, world: World, broken: Callable[[int, str], None], effects: Mapping[str, list[Effect]]) -> None:
        self._world = world
        self._broken = broken
        self._effects = effects
        self._ordered: dict[str, str] = {}
        """Who wants amends for an operation, in words that fit."""
        self._taken: set[str] = set()

    def restored(self) -> None:
        """What was said is forgotten, and people look anew."""
        self._ordered.clear()
        self._taken.clear()

    def ordered(self, name: str, by: str) -> None:
        """Somebody is about to say that amends are to be made for what happened there."""
        self._ordered[name] = by

    def taken_down(self, name: str) -> None:
        """That word is in the ledger."""
        if name in self._ordered:
            self._taken.add(name)
            self._reached("ordered")

    def heard(self, run: str, record: r.Record) -> None:
        """A record became durable: a transaction is called off in somebody's name only where that was said."""
        if not isinstance(record, r.TransactionAborting) or not record.by:
            return
        within = f"{operation_id(run, record.transaction)}/"
        if not any(by == record.by and name.startswith(within) for name, by in self._ordered.items()):
            self._broken(WORDS, f"{record.by} is on record as having called {within} off, and never said so")
        self._reached("called off")

    def stands(self, name: str) -> None:
        """That it happened is on record on that word alone: then its transaction is called off already."""
        trip = self._world.checker.trips.around(name)
        if trip is None or not trip.backward:
            self._broken(WORDS, f"{self._ordered[name]} ordered amends for {name}, and only half of it is on record")

    # --- at the end of time ------------------------------------------------------------------------------------

    def at_the_end(self) -> None:
        """What was taken down was done: the outcome is what is so, and where all is undone, amends were made once."""
        for name in self._taken:
            known, trip = self._world.checker.operations[name], self._world.checker.trips.around(name)
            assert trip is not None, name
            if not trip.backward:
                self._broken(SAGA, f"amends were ordered for {name}, and {trip.name} is {trip.phase}")
            if known.state():
                self._broken(WORDS, f"amends were ordered for {name}, and it is {known.state()}")
            self._made_once(name)

    def _made_once(self, name: str) -> None:
        trips = self._world.checker.trips
        trip = trips.around(name)
        assert trip is not None, name
        made = trips.amends_of(name)
        once = len(made) == 1 or (made and self._world.services[made[0].service].able.natural)
        if trip.phase == "aborted" and trips.amendable(name) and not once:
            self._broken(SAGA, f"amends were ordered for {name}, and were made {len(made)} times")
        self._reached("made" if made else "not to be made")

    def _reached(self, what: str) -> None:
        self._world.reach.endings[f"amends: {what}"] += 1
