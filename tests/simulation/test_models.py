"""Models with limits, and routes, in the simulator: limits hold at the services, and planted bugs are found."""

import pytest

from simulator.agents.budgets import QUERY
from simulator.agents.models import MODEL_FAULTS, MODELS, ROUTES
from simulator.generator.models import ROUTED
from simulator.generator.plans import draw
from simulator.world import simulate


def test_plans_draw_all_limits_routes_and_faults():
    plans = [draw(seed) for seed in range(ROUTED, ROUTED + 60)]
    steps = [step for plan in plans for script in plan.scripts for step in script.steps if step.kind == QUERY]
    assert {step.route for step in steps} == {"", *ROUTES}
    limits = [one for plan in plans for one in plan.declarations[0].limits.models.values()]
    assert all(any(getattr(one, field) for one in limits) for field in ("at_once", "rate", "tokens"))
    assert any(share.models for plan in plans for share in plan.declarations[0].limits.tenants.values())
    faults = {(one.kind, one.service) for plan in plans for one in plan.faults if one.service.startswith("model ")}
    assert faults == {(kind, f"model {model}") for kind in MODEL_FAULTS for model in MODELS}
    assert {any(one.budget for one in plan.submissions) for plan in plans} == {True, False}


@pytest.mark.deep
def test_simulations_reach_what_the_invariants_are_about():
    reached = set()
    for seed in range(ROUTED, ROUTED + 40):
        reached |= {name for name in simulate(draw(seed)).reach.endings if name.startswith("model: ")}
    assert reached == {
        "model: a call under the limit of a model", "model: a call under the limit of a tenant",
        "model: a service asked not to be called", "model: a share asks big first", "model: a share asks small first",
        "model: another model after one was unavailable", "model: another model after one was rate_limited",
        "model: a model whose breaker is open is not asked", "model: big answers", "model: small answers",
    }  # fmt: skip
