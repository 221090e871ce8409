"""Old copies of the journal that seeds put in its place, while everything goes on."""

import pytest
from msgspec.structs import replace

from simulator import failure
from simulator.failure import repeat
from simulator.generator.plans import draw
from simulator.plan import Fault, Plan, Script, Step, WorkerPlan
from simulator.world import Report, simulate
from tests.draws import spread

pytestmark = pytest.mark.deeper

WORKERS = (WorkerPlan("A", scripts=(0,)), WorkerPlan("B", restart_ms=5_000))


def checked(told: Plan) -> Report:
    report = simulate(told, story=True)
    assert not report.violations, failure.tell(report)
    return report


@pytest.mark.parametrize(
    "kinds", [("pay", "mail", "ship"), pytest.param(("ticket", "switch", "rent"), marks=pytest.mark.deep)], ids=" ".join
)
def test_a_copy_of_any_age_sends_nothing_twice(kinds: tuple[str, ...]):
    told = Plan(5, (Script("run", tuple(Step(kind, kind) for kind in kinds)),), WORKERS)
    points = checked(told).points
    for copied in spread(range(1, points, 4)):
        for restored in range(copied + 1, min(copied + 30, points), 5):
            faults = (Fault("backup", copied), Fault("restore", restored, ms=60_000))
            checked(replace(told, faults=faults))


def test_seeds_draw_restores():
    restored = [seed for seed in range(60) if any(fault.kind == "restore" for fault in draw(seed).faults)]
    assert restored
    for seed in restored:
        assert not simulate(draw(seed)).violations, repeat(seed)


def test_a_refusal_that_comes_after_a_restore_is_never_all_there_is_to_know():
    """Another attempt may have been forgotten, so a person is asked about what cannot be read back."""
    told = Plan(5, (Script("run", (Step("permit", "it"),)),), WORKERS, (Fault("declined", 1, "permit case"),))
    endings: set[str] = set()
    for copied in spread(range(1, (points := checked(told).points))):
        for restored in range(copied + 1, min(copied + 30, points), 3):
            faults = (Fault("backup", copied), Fault("restore", restored, ms=123))
            endings |= set(checked(replace(told, faults=(*told.faults, *faults))).reach.endings)
    assert "answer to permit unknown" in endings
