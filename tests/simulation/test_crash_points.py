"""A kill at every point that any process comes by, one at a time, and for a small scenario every pair of them."""

import pytest
from msgspec.structs import replace

from simulator.plan import Fault, Plan, Script, Step, WorkerPlan
from simulator.world import simulate
from tests.draws import spread

pytestmark = pytest.mark.deeper

OTHERS = ("power", "shutdown", "disk_broken")
TWO = (WorkerPlan("A", scripts=(0,)), WorkerPlan("B", restart_ms=5_000))


def of(*kinds: str) -> Plan:
    return Plan(1, (Script("run", tuple(Step(kind, f"thing {kind}") for kind in kinds)),), TWO)


def points_of(plan: Plan) -> int:
    report = simulate(plan)
    assert not report.violations, report.violations
    return report.points


@pytest.mark.parametrize(
    "kinds",
    [
        ("charge", "mail", "ship"),
        ("pay", "order", "look"),
        ("ticket", "switch", "note"),
        ("book", "transfer"),
        ("rent", "visa"),
        ("permit", "nag"),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("kind", ["kill", *(pytest.param(kind, marks=pytest.mark.deep) for kind in OTHERS)])
def test_a_fault_at_every_point(kind: str, kinds: tuple[str, ...]):
    plan = of(*kinds)
    for at in spread(range(1, points_of(plan) + 1)):
        report = simulate(replace(plan, faults=(Fault(kind, at),)))
        assert not report.violations, f"{kind} at point {at}: {report.violations[0]}"


PAIRS = (("charge",), *(pytest.param((kind,), marks=pytest.mark.deep) for kind in ("mail", "ship", "order", "rent")))


@pytest.mark.parametrize("kinds", PAIRS, ids=" ".join)
def test_two_kills_at_every_pair_of_points(kinds: tuple[str, ...]):
    plan = of(*kinds)
    for first in spread(range(1, points_of(plan) + 1)):
        once = replace(plan, faults=(Fault("kill", first),))
        for second in range(first + 1, points_of(once) + 1):
            report = simulate(replace(plan, faults=(Fault("kill", first), Fault("kill", second))))
            assert not report.violations, f"kills at {first} and {second}: {report.violations[0]}"
