"""Submitted runs in the simulator: limits, order and submissions hold over crashes, and planted bugs are found."""

import pytest

from simulator.generator.plans import draw
from simulator.generator.queues import LIMITED, QUEUED
from simulator.world import Journal, simulate
from tests.draws import daily

FOUND: dict[tuple[int, Journal], str] = {
    (16, "memory"): "a run is about what the limits in force say, not those that its process has read",
    (LIMITED - QUEUED + 11, "memory"): "the task that releases a permit is not a branch of the run, and ends after it",
    (31, "memory"): "runs that have begun under one key do not wait for each other once fewer may",
    (164, "memory"): "a process that looks for work waits for no slot of a run that it was to drive",
    (17, "sqlite"): "a process whose lease is over does not take twice what it takes",
    (31, "sqlite"): "runs that wait for a key may begin once more of them may",
    (88, "sqlite"): "a run that was paused and continued before its process read either goes on",
    (133, "memory"): "a slot that a run gets while an earlier drive of it ends is used, and not held for ever",
    (9_177_599 - QUEUED, "sqlite"): "a run that was reopened waits for its key behind those that were ready before it",
    (3_099_285 - QUEUED, "memory"): "a key is no younger than the clock that cannot be set tells, over any reboot",
    (8_112_397 - QUEUED, "memory"): "a limit that is declared during a call does not know it",
    (7_051_379 - QUEUED, "memory"): "an app that closes keeps the permits of runs that are still driven",
}


@pytest.mark.parametrize("found", daily(FOUND, len(FOUND) // 2))
def test_what_a_seed_found_stays_mended(found: tuple[int, Journal]):
    seed, journal = found
    report = simulate(draw(QUEUED + seed), journal=journal)
    assert not report.violations, f"{FOUND[seed, journal]}: {report.violations[0]}"


def test_plans_draw_all_that_queues_offer():
    plans = [draw(seed) for seed in range(QUEUED, QUEUED + 60)]
    limits = [queue for plan in plans for one in plan.declarations for queue in one.limits.queues.values()]
    submissions = [one for plan in plans for one in plan.submissions]
    assert {bool(one.key) for one in limits} == {one.per_tenant is None for one in limits} == {True, False}
    assert min(one.capacity for one in limits) == 1
    assert {one.per_key for one in limits} == {1, 2}
    assert {len(set(one.workers)) for one in submissions} == {1, 2}
    assert len({one.priority for one in submissions}) > 5
    assert {order.word for plan in plans for order in plan.orders} == {"cancel", "pause", "unpause"}
    assert any(len(plan.declarations) > 2 for plan in plans)
    narrow = [
        tool for seed in range(LIMITED, LIMITED + 30) for tool in draw(seed).declarations[0].limits.tools.values()
    ]
    assert {one.at_once for one in narrow} == {1, 2, 3}
    assert {bool(one.rate) for one in narrow} == {True, False}
    limited = [draw(seed).declarations[0].limits for seed in range(LIMITED, LIMITED + 30)]
    assert {bool(one.services) for one in limited} == {True, False}
    assert any(own.tools for one in limited for own in one.tenants.values())
    assert any(own.services for one in limited for own in one.tenants.values())


@pytest.mark.deep
def test_simulations_reach_what_the_invariants_are_about():
    reached = set()
    for seed in [*range(QUEUED, QUEUED + 8), *range(LIMITED, LIMITED + 4)]:
        reached |= set(simulate(draw(seed)).reach.endings)
    assert {
        "queue: submitted", "queue: submitted again", "queue: refused, because the queue is full",
        "queue: refused, because its input differs", "queue: a slot", "queue: a slot of a process that is gone",
        "queue: limits declared", "queue: begun", "queue: a call under a limit of a tool",
        "queue: a call under a limit of a service", "queue: a call under a limit of a tool for a tenant",
    } <= reached  # fmt: skip


@pytest.mark.parametrize("journal", ["memory", "sqlite"])
def test_the_same_seed_does_the_same_to_the_last_byte(journal: Journal):
    first, second = (simulate(draw(QUEUED + 2), story=True, journal=journal) for _ in range(2))
    assert first.log == second.log
    assert first.digest == second.digest
