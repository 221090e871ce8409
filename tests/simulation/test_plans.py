"""Plans under kills: a fallback after proof only, each effect once, and the same choices when it comes back."""

from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from simulator import failure
from simulator.plan import Act, Fault, Plan, Script, Step, WorkerPlan
from simulator.world import Report, simulate
from tests.draws import spread

pytestmark = pytest.mark.deeper

WORKERS = (WorkerPlan("A", scripts=(0,)), WorkerPlan("B", restart_ms=5_000))
ROOM = Act(("room", "gift"))


def of(*acts: Act, together: bool = True, faults: tuple[Fault, ...] = ()) -> Plan:
    return Plan(5, (Script("run", (Step("plan", "p", acts=acts, together=together),)),), WORKERS, faults)


def checked(told: Plan) -> Report:
    report = simulate(told, story=True)
    assert not report.violations, failure.tell(report)
    return report


def killed_everywhere(told: Plan) -> Iterator[Report]:
    for at in spread(range(1, checked(told).points + 1)):
        yield checked(replace(told, faults=(*told.faults, Fault("kill", at))))


def chosen(report: Report) -> set[str]:
    return {name.removeprefix("plan: ") for name in report.reach.endings if name.startswith("plan: ")}


def test_a_fallback_follows_a_refusal_and_what_waits_for_it_follows_that():
    held = Act(("post",), after=1)
    told = of(ROOM, Act(("seat",), after=0, refers=True), held, faults=(Fault("rejected", 1, "room"),))
    for report in killed_everywhere(told):
        assert chosen(report) == {"primary", "fallback 1"}
        assert report.reach.records["TransactionCommitted"] == 1


def test_a_lost_reply_is_no_reason_for_a_fallback():
    told = of(Act(("dare", "mail")), Act(("pay",)), together=False, faults=(Fault("reply_lost", 1, "dare"),))
    for report in killed_everywhere(told):
        assert "fallback 1" not in chosen(report)
        assert not any(name.startswith("mail") for name in report.reach.endings)


def test_a_condition_that_calls_a_plan_off_ends_in_amends():
    """The second gift is the one that calls it off."""
    told = of(Act(("gift",)), Act(("gift",), after=0, aborts=True), Act(("room",), after=1))
    for report in killed_everywhere(told):
        assert report.reach.records["TransactionAborted"] == 1
        assert not any(name.startswith("room") for name in report.reach.endings)


def test_what_is_not_needed_is_skipped_every_time_it_comes_back():
    """The first order ends in a 1, and the one after it does not."""
    acts = (Act(("order",)), Act(("order",), after=0), Act(("pay",), after=1, perhaps=True))
    for report in killed_everywhere(of(*acts, together=False)):
        assert chosen(report) == {"primary", "skipped"}
        assert not any(name.startswith("pay") for name in report.reach.endings)


def test_without_a_fallback_left_the_plan_is_called_off():
    faults = (Fault("rejected", 1, "room"), Fault("rejected", 1, "gift"))
    told = of(ROOM, Act(("seat",)), faults=faults)
    assert "failed" in chosen(checked(told))
    for report in killed_everywhere(told):
        assert ("failed" in chosen(report)) == (report.reach.records["TransactionAborted"] == 1)
