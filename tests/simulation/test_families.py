"""Child runs in the simulator: families hold together over crashes and cancellations, and planted bugs are found."""

from collections.abc import Iterable

import pytest

from simulator.agents.families import FAMILY
from simulator.generator.families import BUDGETED_TREES, FAMILIES
from simulator.generator.plans import draw
from simulator.mutations.families import FAMILY_BUGS
from simulator.mutations.planting import hunt
from simulator.plan import Plan, Step
from simulator.world import simulate


@pytest.mark.parametrize("first", range(0, 60, 15))
def test_no_invariant_breaks(first: int):
    for seed in range(FAMILIES + first, FAMILIES + first + 15):
        report = simulate(draw(seed))
        assert not report.violations, f"make sim SEED={seed}: {report.violations[0]}"


@pytest.mark.parametrize("seed", range(FAMILIES, FAMILIES + 4))
def test_no_invariant_breaks_on_real_files(seed: int):
    report = simulate(draw(seed), journal="sqlite")
    assert not report.violations, f"make sim SEED={seed} JOURNAL=sqlite: {report.violations[0]}"


def test_plans_draw_all_that_families_do():
    plans = [draw(seed) for seed in range(FAMILIES, FAMILIES + 40)]
    steps = _families(plans)
    children = [child for step in steps for child in step.children]
    assert {(child.joined, child.outlives) for child in children} == {
        (a, b) for a in (True, False) for b in (True, False)
    }
    assert any(step.kind == FAMILY for child in children for step in child.steps), "a child of a child"
    assert any(step.group for step in steps), "beside other steps"
    assert {order.word for plan in plans for order in plan.orders} == {"cancel", "pause", "unpause", "raise"}
    assert any("~" in order.run for plan in plans for order in plan.orders), "a command to a child"


def test_simulations_reach_what_the_invariant_is_about():
    reached = set()
    for seed in range(FAMILIES, FAMILIES + 25):
        reached |= {name for name in simulate(draw(seed)).reach.endings if name.startswith("family: ")}
    assert reached == {
        "family: started", "family: a child of a child", "family: joined: completed", "family: joined: cancelled",
        "family: called off with its parent", "family: left and cancelled", "family: left and ended",
        "family: its time was over",
    }  # fmt: skip


def test_trees_have_budgets():
    seeds = range(FAMILIES + BUDGETED_TREES, FAMILIES + 200, 5)
    assert any(child.budget for step in _families(draw(seed) for seed in seeds) for child in step.children)
    reached = set()
    for seed in seeds:
        report = simulate(draw(seed))
        assert not report.violations, f"make sim SEED={seed}: {report.violations[0]}"
        reached |= {name for name in report.reach.endings if name.startswith("budget: ")}
    assert reached == {
        "budget: a tree", "budget: a call under a limit", "budget: a call under a shared limit",
        "budget: a call under none", "budget: an effect under a limit", "budget: an effect under a shared limit",
        "budget: a lost call", "budget: raised", "budget: stopped",
    }  # fmt: skip


def _families(plans: Iterable[Plan]) -> list[Step]:
    return [step for plan in plans for script in plan.scripts for step in script.steps if step.kind == FAMILY]


def test_the_same_seed_does_the_same_to_the_last_byte():
    first, second = (simulate(draw(FAMILIES), story=True) for _ in range(2))
    assert first.log == second.log
    assert first.digest == second.digest


@pytest.mark.parametrize("mutant", FAMILY_BUGS, ids=lambda mutant: mutant.name)
def test_a_planted_bug_is_found(mutant):
    first = {"time of its own": 70, "in flight at the first child": 90}.get(mutant.name, 0)
    assert hunt(mutant, first + 40, first=first).invariant, f"none of the seeds from {first} on finds {mutant.name!r}"
