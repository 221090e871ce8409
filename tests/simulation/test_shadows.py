"""Shadow calls in the simulator: budgets cover them over crashes, their answers are never used, and bugs are found."""

import pytest

from simulator.agents.budgets import QUERY
from simulator.agents.models import COMPARED, MODEL_FAULTS, ROUTES, SHADOW
from simulator.generator.models import ROUTED, SHADOWED
from simulator.generator.plans import draw
from simulator.mutations.models import SHADOW_BUGS
from simulator.mutations.planting import hunt
from simulator.world import simulate


@pytest.mark.parametrize("first", range(0, 60, 15))
def test_no_invariant_breaks(first: int):
    for seed in range(SHADOWED + first, SHADOWED + first + 15):
        report = simulate(draw(seed))
        assert not report.violations, f"make sim SEED={seed}: {report.violations[0]}"


@pytest.mark.parametrize("seed", range(SHADOWED, SHADOWED + 4))
def test_no_invariant_breaks_on_real_files(seed: int):
    report = simulate(draw(seed), journal="sqlite")
    assert not report.violations, f"make sim SEED={seed} JOURNAL=sqlite: {report.violations[0]}"


def test_plans_draw_every_route_with_a_shadow_and_every_fault_of_it():
    plans = [draw(seed) for seed in range(SHADOWED, SHADOWED + 60)]
    routes = {step.route for plan in plans for script in plan.scripts for step in script.steps if step.kind == QUERY}
    assert {route for route in routes if route.endswith(COMPARED)} == {f"{name}{COMPARED}" for name in ROUTES}
    faults = {one.kind for plan in plans for one in plan.faults if one.service == f"model {SHADOW}"}
    assert faults == set(MODEL_FAULTS)
    assert {any(one.budget for one in plan.submissions) for plan in plans} == {True, False}
    before = [step for script in draw(ROUTED).scripts for step in script.steps]
    assert not any(step.route.endswith(COMPARED) for step in before), "the seeds before tell what they told"


def test_simulations_reach_what_the_invariants_are_about():
    reached, records = set(), set()
    for seed in range(SHADOWED, SHADOWED + 40):
        found = simulate(draw(seed)).reach
        reached |= {name for name in found.endings if "shadow" in name}
        records |= set(found.records)
    assert reached == {
        "model: a shadow is asked", "model: a shadow is skipped", "model: a shadow answers or fails",
        "model: a shadow call is given back before it is made",
    }  # fmt: skip
    assert "ShadowStarted" in records


@pytest.mark.parametrize("mutant", SHADOW_BUGS, ids=lambda mutant: mutant.name)
def test_a_planted_bug_is_found(mutant):
    assert hunt(mutant, 70).invariant, f"none of the first 70 seeds finds {mutant.name!r}"
