"""Schedules in the simulator: each moment fires as declared, once, over crashes and clocks, and planted bugs are found."""

from datetime import UTC, datetime

import pytest

from beforehand.queues.firing_times import MissedRule, Schedule
from beforehand.queues.firing_times import due as due_in_product
from simulator.checkers.calendar import due
from simulator.generator.plans import draw
from simulator.generator.schedules import EXPRESSIONS, NIGHTS, SCHEDULED
from simulator.world import Journal, simulate

HOUR = 3_600_000


@pytest.mark.parametrize("night", NIGHTS, ids=lambda night: f"{night[0]} {night[1]}")
@pytest.mark.parametrize("missed", ["skip", "once", "all"])
def test_the_calendar_of_the_checker_and_the_product_agree(night: tuple[str, str], missed: MissedRule):
    zone, change = night
    begin = round(datetime.fromisoformat(change).replace(tzinfo=UTC).timestamp() * 1000) - 3 * HOUR
    for expression in EXPRESSIONS:
        for zone_of in (zone, "UTC"):
            schedule = Schedule("desk", cron=expression, zone=zone_of, missed=missed, grace_ms=HOUR)
            for now in (begin + HOUR, begin + 3 * HOUR, begin + 7 * HOUR + 1):
                assert due(schedule, begin, now)[:100] == due_in_product(schedule, begin, now), expression


def test_plans_draw_all_that_schedules_offer():
    plans = [draw(seed) for seed in range(SCHEDULED, SCHEDULED + 60)]
    schedules = [one for plan in plans for timetable in plan.timetables for one in timetable.schedules.values()]
    assert {one.missed for one in schedules} == {"skip", "once", "all"}
    assert {(bool(one.cron), bool(one.every_ms), bool(one.at)) for one in schedules} == {
        (True, False, False), (False, True, False), (False, False, True),
    }  # fmt: skip
    assert {zone for zone, _ in NIGHTS} <= {one.zone for one in schedules}
    assert {order.word for plan in plans for order in plan.schedule_orders} == {"pause", "resume"}
    assert {len(plan.timetables) for plan in plans} == {2, 3, 4}
    assert any(fault.kind == "clock_jump" and abs(fault.ms) > HOUR for plan in plans for fault in plan.faults)


@pytest.mark.deep
def test_simulations_reach_what_the_invariant_is_about():
    reached = set()
    for seed in range(SCHEDULED, SCHEDULED + 12):
        reached |= {name for name in simulate(draw(seed)).reach.endings if name.startswith("schedule: ")}
    assert reached == {
        "schedule: declare", "schedule: pause", "schedule: resume", "schedule: fired on time",
        "schedule: fired (once)", "schedule: fired (all)",
    }  # fmt: skip


@pytest.mark.parametrize("journal", ["memory", "sqlite"])
def test_the_same_seed_does_the_same_to_the_last_byte(journal: Journal):
    first, second = (simulate(draw(SCHEDULED + 2), story=True, journal=journal) for _ in range(2))
    assert first.log == second.log
    assert first.digest == second.digest
