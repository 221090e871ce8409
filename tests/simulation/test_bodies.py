"""Bodies that do several things at once in the simulator, and processes that are stopped while they hold a permit."""

import pytest

from simulator import failure
from simulator.generator.bodies import BODIES
from simulator.generator.plans import draw
from simulator.generator.queues import HELD
from simulator.plan import BODY, Step
from simulator.services.network import STOPS
from simulator.world import simulate

JOINED_BESIDE_A_LIMIT_OF_THE_BODY = 8_000_463
JOINED_BEFORE_A_LIMIT_AND_IN_IT = 8_000_639


def test_plans_draw_all_that_bodies_do_at_once():
    plans = [draw(seed) for seed in range(BODIES, BODIES + 40)]
    top = [step for plan in plans for script in plan.scripts for step in script.steps]
    steps = [one for step in top for one in step.all()]
    kinds = {"look", "pay", "transfer", "rest", "family", "trip", "limit"}
    assert kinds <= {step.kind for step in steps if step.group >= BODY}, "beside their body"
    assert {one.kind for step in _of(steps, "trip") for one in step.inside} >= {"ship", "berth", "limit"}
    assert {one.kind for step in _of(steps, "limit") for one in step.inside} >= kinds
    assert {step.fails for step in _of(steps, "limit")} == {step.fails for step in _of(steps, "trip")} == {True, False}
    assert {order.word for plan in plans for order in plan.orders} == {"cancel"}


def test_a_process_is_stopped_in_a_call_under_a_narrow_limit():
    plans = [draw(seed) for seed in range(HELD, HELD + 20)]
    assert any(queue.concurrency == 1 for plan in plans for queue in plan.declarations[0].limits.queues.values())
    for plan in plans:
        assert [fault.kind in STOPS for fault in plan.faults if fault.service == "haul"] == [True]
        limits = plan.declarations[0].limits
        assert "haul" in limits.tools or "haul" in limits.services["yard"].tools
        assert not any(worker.contained for worker in plan.workers)


@pytest.mark.parametrize("seed", [JOINED_BESIDE_A_LIMIT_OF_THE_BODY, JOINED_BEFORE_A_LIMIT_AND_IN_IT])
def test_seeds_that_once_broke_an_invariant(seed: int):
    """Beside a limit of the body, a branch joins its parts: in one drive meanwhile, in the next one before it."""
    report = simulate(draw(seed), story=True)
    assert not report.violations, failure.tell(report)


def _of(steps: list[Step], kind: str) -> list[Step]:
    return [step for step in steps if step.kind == kind]
