"""Submitted runs in the simulator: limits, order and submissions hold over crashes, and planted bugs are found."""

import pytest

from simulator.generator.plans import draw
from simulator.generator.queues import LIMITED, QUEUED
from simulator.mutations.mutation import Mutant
from simulator.mutations.planting import hunt
from simulator.mutations.queues import QUEUE_BUGS
from simulator.world import Journal, simulate


@pytest.mark.parametrize("first", range(0, 40, 8))
def test_no_invariant_breaks(first: int):
    for seed in range(QUEUED + first, QUEUED + first + 8):
        report = simulate(draw(seed))
        assert not report.violations, f"make sim SEED={seed}: {report.violations[0]}"


@pytest.mark.parametrize("first", range(0, 24, 6))
def test_no_invariant_breaks_on_real_files(first: int):
    for seed in range(QUEUED + first, QUEUED + first + 6):
        report = simulate(draw(seed), journal="sqlite")
        assert not report.violations, f"make sim SEED={seed} JOURNAL=sqlite: {report.violations[0]}"


@pytest.mark.parametrize("first", range(0, 16, 8))
@pytest.mark.parametrize("journal", ["memory", "sqlite"])
def test_no_invariant_breaks_where_tools_have_limits(first: int, journal: Journal):
    for seed in range(LIMITED + first, LIMITED + first + 8):
        report = simulate(draw(seed), journal=journal)
        assert not report.violations, f"make sim SEED={seed} JOURNAL={journal}: {report.violations[0]}"


FOUND: dict[tuple[int, Journal], str] = {
    (16, "memory"): "a run is about what the limits in force say, not those that its process has read",
    (LIMITED - QUEUED + 11, "memory"): "the task that releases a permit is not a branch of the run, and ends after it",
    (31, "memory"): "runs that have begun under one key do not wait for each other once fewer may",
    (164, "memory"): "a process that looks for work waits for no slot of a run that it was to drive",
    (17, "sqlite"): "a process whose lease is over does not take twice what it takes",
    (31, "sqlite"): "runs that wait for a key may begin once more of them may",
    (88, "sqlite"): "a run that was paused and continued before its process read either goes on",
    (133, "memory"): "a slot that a run gets while an earlier drive of it ends is used, and not held for ever",
}


@pytest.mark.parametrize(("seed", "journal"), FOUND)
def test_what_a_seed_found_stays_mended(seed: int, journal: Journal):
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


BY_SEED = {
    "limits counted outside": 6, "old limits hold": 20, "key released at suspension": 0, "ageing ignored": 2,
    "tenants do not share": 110, "slots of the dead kept": 0, "runs of the dead forgotten": 0, "a mark left behind": 0,
    "capacity compared outside": 0, "driven without a slot": 0, "another input accepted": 0,
    "permits of one process": 0, "permits released early": 0, "permits of the dead kept": 16,
    "a service for each tool": 25, "a share instead of the whole": 68, "one limit is enough": 43,
}  # fmt: skip


@pytest.mark.parametrize("mutant", QUEUE_BUGS, ids=lambda mutant: mutant.name)
def test_a_planted_bug_is_found_from_its_seed_on(mutant: Mutant):
    seed = BY_SEED[mutant.name]  # where it is usually found at once
    assert hunt(mutant, seed + 40, first=seed).invariant, f"no seed from {seed} on finds {mutant.name!r} any more"
