"""Child runs in the simulator: families hold together over crashes and cancellations, and planted bugs are found."""

from collections.abc import Iterable

import pytest

from simulator.agents.families import FAMILY
from simulator.failure import repeat
from simulator.generator.families import BUDGETED_TREES, FAMILIES
from simulator.generator.plans import draw
from simulator.plan import Plan, Step
from simulator.world import simulate


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


@pytest.mark.deep
def test_simulations_reach_what_the_invariant_is_about():
    reached = set()
    for seed in range(FAMILIES, FAMILIES + 25):
        reached |= {name for name in simulate(draw(seed)).reach.endings if name.startswith("family: ")}
    assert reached == {
        "family: started", "family: a child of a child", "family: joined: completed", "family: joined: cancelled",
        "family: called off with its parent", "family: left and cancelled", "family: left and ended",
        "family: its time was over",
    }  # fmt: skip


@pytest.mark.deep
def test_trees_have_budgets():
    seeds = range(FAMILIES + BUDGETED_TREES, FAMILIES + 200, 5)
    assert any(child.budget for step in _families(draw(seed) for seed in seeds) for child in step.children)
    reached = set()
    for seed in seeds:
        report = simulate(draw(seed))
        assert not report.violations, f"{repeat(seed)}: {report.violations[0]}"
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
