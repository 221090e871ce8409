"""With the fast path of the product and without it, every seed does the same; what differs is noticed and shown."""

import functools
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from simulator import differential
from simulator.campaign import swept
from simulator.differential import compare, plan_of
from simulator.generator.plans import RANGES
from simulator.mutations.fast_path import FAST_PATH
from simulator.mutations.mutation import Mutant
from tests.simulation.seeds import two_hundred


@pytest.mark.parametrize("number", range(25))
def test_both_sides_do_the_same(number: int):
    figures = swept(differential.batch, two_hundred()[number::25])
    assert not figures.different, differential.tell(figures.different[0])
    assert figures.taken > 8, "hardly anything took the fast path"


@pytest.mark.parametrize("first", [first for first in RANGES.values() if first], ids="{:,}".format)
def test_an_odd_seed_drives_one_run_whatever_its_plan_has(first: int):
    for seed in range(first + 1, first + 11, 2):
        plan = plan_of(seed)
        assert {one.script for one in plan.submissions} <= set(range(len(plan.scripts)))
        assert {order.run.partition("~")[0] for order in plan.orders} <= {one.id for one in plan.scripts}


def once(change: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The same function, but its third result is changed."""

    def twist(original: Any) -> Any:
        calls = 0

        @functools.wraps(original)
        def changed(*args: Any, **named: Any) -> Any:
            nonlocal calls
            calls += 1
            result = original(*args, **named)
            return change(result) if calls == 3 else result

        return changed

    return twist


RECORD = Mutant(
    "another record", "one call is recorded with another cost", "beforehand.engine.operation_driver:masked",
    once(lambda end: replace(end, cost=1.0)),
)  # fmt: skip
REQUEST = Mutant(
    "another request", "one request has another key", "beforehand.engine.invoke:key_of", once(lambda key: f"{key}!")
)


@pytest.mark.parametrize("side", ["fast", "slow"])
@pytest.mark.parametrize(("mutant", "part"), [(RECORD, "records of run-"), (REQUEST, "requests")])
def test_one_difference_on_one_side_is_noticed(mutant: Mutant, part: str, side: differential.Side):
    found = compare(plan_of(4), mutant, side)
    assert any(one.part.startswith(part) for one in found.differences)
    assert not compare(plan_of(4), mutant, "both").differences


def test_a_difference_is_shown_with_both_stories_and_the_command_that_repeats_it():
    text = differential.tell(compare(plan_of(4), RECORD, "fast", story=True))
    assert '"cost":1' in text
    assert "with the fast path:" in text
    assert "without it:" in text
    assert text.endswith("repeat: make deep ONLY=differential SEED=4")


HIDDEN = {"fast: news not awaited": 82, "fast: not decided again": 934}
"""Seeds of the bugs in the fast path that few seeds show."""


@pytest.mark.parametrize("mutant", FAST_PATH, ids=lambda mutant: mutant.name)
def test_a_bug_in_the_fast_path_is_found_by_comparison(mutant: Mutant):
    seeds = [HIDDEN[mutant.name]] if mutant.name in HIDDEN else range(6)
    assert differential.find(mutant, seeds), f"{mutant.name} changes nothing in {seeds}"


@pytest.mark.parametrize("mutant", FAST_PATH, ids=lambda mutant: mutant.name)
def test_nothing_of_a_bug_in_the_fast_path_is_left_without_it(mutant: Mutant):
    assert not compare(plan_of(3), mutant, "slow").differs
