"""Seeds: what each of them does is decided by its number alone, and no invariant breaks."""

import gc
import logging
import weakref

import pytest

from simulator.campaign import swept
from simulator.failure import repeat
from simulator.generator.budgets import BUDGETED
from simulator.generator.plans import draw
from simulator.generator.queues import QUEUED
from simulator.world import Journal, World, simulate
from tests.simulation.seeds import two_hundred


def journal_of(seed: int) -> Journal:
    """Every sixteenth seed writes real files, and two of those of queues and schedules, whose rules are statements."""
    on_disk = {1, 5} if QUEUED <= seed < BUDGETED else {1}
    return "sqlite" if seed % 16 in on_disk else "memory"


def broken(seeds: list[int]) -> list[str]:
    """The seeds that break an invariant, as the command that tells the story of each."""
    reports = ((seed, journal_of(seed), simulate(draw(seed), journal=journal_of(seed))) for seed in seeds)
    return [f"{repeat(seed, journal)}: {told.violations[0]}" for seed, journal, told in reports if told.violations]


@pytest.mark.parametrize("number", range(25))
def test_no_invariant_breaks(number: int):
    """200 seeds, in parts that take about as long as each other: each has a seed of nearly every kind of plan."""
    assert swept(broken, two_hundred()[number::25]) == []


def test_uses_of_a_permission_are_counted_in_any_order_after_a_restore():
    """The records of a restored journal are read run by run, and not in the order in which they were written."""
    report = simulate(draw(2858))
    assert not report.violations, report.violations[0]


@pytest.mark.parametrize("seed", [397, 442, 664, 4808])
def test_a_call_whose_owner_changed_is_sent_once_and_no_late_owner_counts(seed: int):
    """397: code begins in a process that has lost its run. 442, 664: a task is cancelled while it notes a thing.

    4808: a process that has lost its run reports an attempt which it could not record.
    """
    report = simulate(draw(seed))
    assert not report.violations, report.violations[0]


@pytest.mark.parametrize("seed", [4, 7])
def test_the_same_seed_does_the_same_to_the_last_byte(seed: int):
    first, second = (simulate(draw(seed), story=True) for _ in range(2))
    assert first.log == second.log
    assert first.digest == second.digest


def test_the_same_seed_does_the_same_on_real_files_to_the_last_byte():
    first, second = (simulate(draw(5), story=True, journal="sqlite") for _ in range(2))
    assert first.log == second.log
    assert first.digest == second.digest


@pytest.mark.parametrize("seed", [21074, 31577])
def test_what_is_let_go_with_its_transaction_is_not_driven_any_more(seed: int):
    """An amends and a confirmation are settled while their drivers wait, and with that the transaction is over."""
    report = simulate(draw(seed))
    assert not report.violations, report.violations[0]


def test_a_healthy_run_that_waits_is_not_set_aside_with_the_one_that_kills_its_processes():
    """It waited each time until the process died, and nothing on record said so."""
    report = simulate(draw(4080), journal="sqlite")
    assert not report.violations, report.violations[0]


def test_a_late_report_after_a_restore_does_not_say_that_nothing_happened():
    """A person was asked about an attempt without an end. Its report said that it was not sent, and an earlier one had
    landed, which the restored journal did not know.
    """
    report = simulate(draw(18596))
    assert not report.violations, report.violations[0]


@pytest.mark.parametrize("seed", [5119872, 6119854])
def test_kept_seeds_break_nothing_on_real_files(seed: int):
    """5119872: a process loses the journal while it applies an order to a stopped run, and gives the run back.

    Another process had relied on it to see a second order. 6119854: a record is stored as a payload of its own.
    """
    report = simulate(draw(seed), journal="sqlite")
    assert not report.violations, report.violations[0]


@pytest.mark.parametrize("seed", [0, 2])
def test_nothing_of_a_run_is_left_in_memory(seed: int, monkeypatch: pytest.MonkeyPatch):
    """Processes are given up here while they record a failed call. Its error holds frames that hold the simulated world."""
    monkeypatch.setattr(logging.getLogger("beforehand"), "disabled", True)  # pytest keeps the errors that are logged
    world = World(draw(seed))
    world.simulate()
    reference = weakref.ref(world)
    del world
    gc.collect()
    assert reference() is None
