"""The simulator finds planted bugs; `make mutants` plants them all."""

import inspect
from importlib import import_module

import pytest

from simulator.mutant import Mutant, planted
from simulator.mutants import MUTANTS
from simulator.planting import hunt

QUICK = (
    "effect before intent", "key per attempt", "plain writes retried", "a refusal ends it", "broken chain",
    "answers mixed up", "an answer counted each time", "failed by time alone",
    "fallback on unknown", "steps do not wait", "gaps count as attempts", "busy costs an attempt",
    "an outage is an answer", "contradictions unheard", "strangers take places",
)  # fmt: skip


def test_there_are_at_least_thirty_and_each_has_its_own_name():
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 30


@pytest.mark.parametrize("name", QUICK)
def test_a_planted_bug_is_found(name: str):
    mutant = next(mutant for mutant in MUTANTS if mutant.name == name)
    find = hunt(mutant, 60)
    assert find.invariant, f"{name} was not found in {find.seeds} seeds"


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_what_is_planted_is_taken_out_again(mutant: Mutant):
    module, _, path = mutant.place.partition(":")

    def present() -> object:
        found: object = import_module(f"holdfast.{module}")
        for name in path.split("."):
            found = inspect.getattr_static(found, name)
        return found

    before = present()
    with planted(mutant):
        assert present() is not before
    assert present() is before


BY_SEED = {
    "nobody asks about a stopped owner": 42, "asked and forgotten": 42, "poison is driven for ever": 33,
    "open call counted as over": 42,
    "neighbours are charged": 204, "failed untried": 52, "pending never released": 166, "pending asked for again": 8,
}  # fmt: skip


@pytest.mark.parametrize(("name", "seed"), BY_SEED.items())
def test_a_planted_bug_that_takes_long_to_find_is_found_at_its_seed(name: str, seed: int):
    mutant = next(mutant for mutant in MUTANTS if mutant.name == name)
    assert hunt(mutant, seed + 1, first=seed).invariant, f"seed {seed} does not find {name!r} any more"
