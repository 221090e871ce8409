"""Seeds: what each of them does is decided by its number alone, and no invariant breaks."""

import pytest

from simulator.generator.plans import draw
from simulator.world import simulate


@pytest.mark.parametrize("first", range(0, 80, 10))
def test_no_invariant_breaks(first: int):
    for seed in range(first, first + 10):
        report = simulate(draw(seed))
        assert not report.violations, f"make sim SEED={seed}: {report.violations[0]}"


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


@pytest.mark.parametrize("first", range(0, 24, 8))
def test_no_invariant_breaks_on_real_files(first: int):
    for seed in range(first, first + 8):
        report = simulate(draw(seed), journal="sqlite")
        assert not report.violations, f"make sim SEED={seed} JOURNAL=sqlite: {report.violations[0]}"


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
