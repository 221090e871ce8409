"""The simulator finds planted bugs: ten of them, drawn by date, here; all of them in `make deep ONLY=mutants`."""

import contextlib
import functools
import inspect
import random
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import pytest

from simulator.generator.budgets import BUDGETED
from simulator.generator.families import FAMILIES
from simulator.generator.hosts import HOSTED
from simulator.generator.models import ROUTED
from simulator.generator.plans import draw
from simulator.generator.queues import LIMITED, QUEUED
from simulator.generator.schedules import SCHEDULED
from simulator.mutations.catalogue import MUTANTS
from simulator.mutations.mutation import Mutant, planted
from simulator.mutations.planting import hunt, kept_seeds
from simulator.world import Journal, simulate
from tests.draws import DATE


def test_there_are_at_least_thirty_and_each_has_its_own_name():
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 30


def test_each_has_a_kept_seed():
    assert kept_seeds().keys() == {mutant.name for mutant in MUTANTS}


@pytest.mark.drawn
@pytest.mark.parametrize("number", range(10))
def test_a_planted_bug_of_the_day_is_found(number: int):
    mutant = random.Random(DATE).sample(MUTANTS, 10)[number]
    kept = kept_seeds()[mutant.name]
    if hunt(mutant, range(kept, kept + 1)).verdict != "found":
        find = hunt(mutant, range(300))
        assert find.verdict == "found", f"{mutant.name} is not found at its seed {kept}, nor in {find.tried} others"


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_what_is_planted_is_taken_out_again(mutant: Mutant):
    module, _, path = mutant.place.partition(":")

    def present() -> object:
        found: object = import_module(module)
        for name in path.split("."):
            found = inspect.getattr_static(found, name)
        return found

    before = present()
    with planted(mutant):
        assert present() is not before
    assert present() is before


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_no_part_of_the_product_keeps_what_a_planted_bug_replaces(mutant: Mutant):
    module, _, path = mutant.place.partition(":")
    if "." in path:
        return  # a method is looked up in its class, which is one object
    original: object = vars(import_module(module))[path]
    with planted(mutant):
        kept = [
            f"{name}.{held}"
            for name, loaded in sorted(sys.modules.items())
            if name.startswith("beforehand.")
            for held, value in sorted(vars(loaded).items())
            if held != "__builtins__" and any(one is original for one in _inside(value))
        ]
    assert not kept, f"{mutant.place} is also reached as {kept}"


def _inside(value: Any) -> Iterator[object]:
    """A value of a module, and what a table among them holds."""
    yield value
    kind = value.__class__
    if kind in {tuple, list, frozenset, set}:
        yield from value
    elif kind is dict:
        yield from value.values()


# One needs an answer that comes while another run holds the key of the same thing: few seeds draw that.
SEEDS: tuple[tuple[int, Journal], ...] = (
    *((seed, "sqlite") for seed in range(QUEUED, QUEUED + 12)),
    *((seed, "sqlite") for seed in range(LIMITED, LIMITED + 8)),
    *((seed, "sqlite") for seed in range(SCHEDULED, SCHEDULED + 4)),
    *((seed, "memory") for seed in range(BUDGETED, BUDGETED + 6)),
    (FAMILIES + 99, "memory"),  # a call in flight when a tree begins
    *((seed, "memory") for seed in range(ROUTED, ROUTED + 8)),
    *((seed, "memory") for seed in (278, *range(HOSTED, HOSTED + 4), *range(500))),
)


@pytest.mark.deep
def test_the_product_calls_what_each_planted_bug_replaces():
    """A bug that is planted where nothing looks would be missed by every seed, and prove nothing."""
    uncalled = {mutant.place for mutant in MUTANTS}
    with contextlib.ExitStack() as plants:
        for place in sorted(uncalled):
            plants.enter_context(planted(Mutant("counted", "", place, _noting(uncalled, place))))
        for seed, journal in SEEDS:
            simulate(draw(seed), journal=journal)
            if not uncalled:
                break
    assert not uncalled, f"the product never uses {sorted(uncalled)}"


def _noting(uncalled: set[str], place: str) -> Callable[[Any], Any]:
    """The same code, which takes its place off the list when it is called."""

    def noting(original: Any) -> Any:
        kind = original.__class__
        if isinstance(original, property):
            return property(noting(original.fget))
        if isinstance(original, staticmethod):
            return staticmethod(noting(original.__func__))
        if kind is tuple:
            return tuple(map(row, original))
        if kind is dict:
            return {key: row(value) for key, value in original.items()}

        @functools.wraps(original)
        def noted(*args: Any, **named: Any) -> Any:
            uncalled.discard(place)
            return original(*args, **named)

        return noted

    def row(value: Any) -> Any:
        """A rule of a table; what stands beside the rules there stays as it is."""
        return noting(value) if inspect.isroutine(value) else value

    return noting
