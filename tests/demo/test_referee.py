"""Each requested effect is counted exactly once."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beforehand.demo.contest import count, fate, misreported, refunded_twice
from beforehand.demo.scenario import SERVICES

REPORTS = st.sampled_from([None, "done", "failed", "waiting"])
SPOTS = st.tuples(st.sampled_from(SERVICES), st.integers(1, 6))


@given(st.dictionaries(SPOTS, st.integers(0, 4)), st.dictionaries(SPOTS, REPORTS))
def test_requested_is_the_sum_of_the_fates(effects, report):
    counts = count(range(1, 7), Counter(effects), report)
    assert counts.requested == 24
    assert counts.requested == (counts.once + counts.twice + counts.never + counts.waiting + counts.refused)
    assert counts.misreported <= counts.requested - counts.waiting


@pytest.mark.parametrize(
    ("times", "reported", "counted_as", "differs"),
    [
        (1, "done", "once", False),
        (1, "failed", "once", True),
        (1, None, "once", True),
        (1, "waiting", "waiting", False),
        (0, "done", "never", True),
        (0, "failed", "refused", False),
        (0, None, "never", False),
        (0, "waiting", "waiting", False),
        (2, "done", "twice", False),
        (2, "failed", "twice", True),
        (3, "waiting", "twice", False),
    ],
)
def test_fate_and_report(times, reported, counted_as, differs):
    assert fate(times, reported) == counted_as
    assert misreported(times, reported) is differs


def test_nothing_that_was_not_asked_for_is_counted():
    assert count([1], Counter({("mail", 2): 5}), {("mail", 2): "done"}).requested == 4


def test_money_counts_as_refunded_twice_beyond_the_first_refund():
    effects = Counter({("payments", 1): 1, ("payments", 2): 2, ("payments", 3): 3, ("mail", 1): 5})
    assert refunded_twice({1: 100, 2: 20, 3: 5, 4: 7}, effects) == 20 + 2 * 5
