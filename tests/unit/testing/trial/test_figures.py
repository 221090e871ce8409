"""The figures of a trial against brute force."""

from fractions import Fraction
from itertools import combinations, product
from math import comb

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beforehand.testing.trial.figures import Repeat, alike, by_input, curve, grouped, pass_hat

REPEATS = st.lists(st.booleans(), min_size=1, max_size=9)


@given(REPEATS, st.data())
def test_pass_hat_is_the_share_of_choices_that_all_pass(repeats: list[bool], data: st.DataObject):
    k = data.draw(st.integers(1, len(repeats)))
    choices = list(combinations(repeats, k))
    expected = Fraction(sum(all(choice) for choice in choices), len(choices))
    assert pass_hat(len(repeats), sum(repeats), k) == pytest.approx(float(expected), abs=1e-12)


@given(st.integers(1, 7), st.fractions(0, 1, max_denominator=20), st.data())
def test_pass_hat_is_unbiased(repeats: int, chance: Fraction, data: st.DataObject):
    """Over all outcomes of `repeats` throws, weighed by how likely they are, its mean is chance^k."""
    k = data.draw(st.integers(1, repeats))
    mean = Fraction(0)
    for outcome in product((0, 1), repeat=repeats):
        passed = sum(outcome)
        weight = chance**passed * (1 - chance) ** (repeats - passed)
        mean += weight * Fraction(comb(passed, k), comb(repeats, k))
        assert pass_hat(repeats, passed, k) == pytest.approx(comb(passed, k) / comb(repeats, k))
    assert mean == chance**k


@given(st.lists(st.integers(0, 8), min_size=1, max_size=6))
def test_the_curve_never_rises_and_begins_with_the_share_that_passed(passed: list[int]):
    points = curve([(8, c) for c in passed])
    assert len(points) == 8
    assert points == sorted(points, reverse=True)
    assert points[0] == pytest.approx(sum(passed) / (8 * len(passed)))
    assert points[-1] == pytest.approx(passed.count(8) / len(passed))


@pytest.mark.parametrize(("repeats", "passed", "k"), [(4, 2, 5), (4, 2, 0), (4, 5, 1), (4, -1, 1)])
def test_what_was_not_repeated_often_enough_has_no_estimate(repeats: int, passed: int, k: int):
    with pytest.raises(ValueError, match="do not fit"):
        pass_hat(repeats, passed, k)


def test_nothing_tried_gives_no_curve():
    assert curve([]) == []


def failure(line: int, seed: int, reason: str) -> Repeat:
    return Repeat(line, f"ticket-{line}", seed, "faults", False, "stopped", reason)


def test_failures_that_differ_in_names_and_numbers_are_one():
    groups = grouped([
        failure(1, 7, "suspended: ticket-1/refund#1: no answer for 60001 ms"),
        failure(2, 8, "suspended: ticket-2/refund#1: no answer for 60955 ms"),
        failure(2, 9, "stopped: boom"),
        Repeat(3, "r", 1, "faults", True, "completed"),
    ])  # fmt: skip
    assert [(group.count, group.lines, group.line, group.seed) for group in groups] == [
        (2, [1, 2], 1, 7),
        (1, [2], 2, 9),
    ]
    assert groups[0].reason == "suspended: refund#1: no answer for … ms"
    assert alike("a/b#1 b/c#2") == "b#1 c#2"
    assert alike("run order-1: order-1x waits", "order-1") == "run the run: order-1x waits"


def test_inputs_keep_their_order_and_their_arms():
    runs = [
        Repeat(5, "r", 1, "plain", True, "completed"),
        Repeat(5, "r", 1, "faults", False, "stopped", "x"),
        Repeat(2, "r", 1, "plain", True, ""),
    ]
    shown = by_input(runs, {5: "five", 2: "two", 9: "never run"})
    assert [(one.line, one.passed, one.repeats) for one in shown] == [
        (5, {"plain": 1, "faults": 0}, 1),
        (2, {"plain": 1}, 1),
    ]
