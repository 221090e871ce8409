"""Intervals: known values, and that they cover what they say they cover."""

import math

import pytest

from beforehand_console.reviews.statistics import Share, corrected, mean, median, share, weighted


@pytest.mark.parametrize(
    ("hits", "of", "low", "high"),
    [(0, 10, 0.0, 0.27753), (5, 10, 0.23659, 0.76341), (10, 10, 0.72247, 1.0), (1, 100, 0.00177, 0.05449)],
)
def test_known_intervals_of_wilson(hits: int, of: int, low: float, high: float):
    found = share(hits, of)
    assert (found.low, found.high) == pytest.approx((low, high), abs=5e-5)
    assert found.rate == hits / of


def test_without_cases_anything_may_be_true():
    assert share(0, 0) == Share(0, 0, None, 0.0, 1.0)
    assert str(share(0, 0)) == "no cases"
    assert str(share(1, 20)) == "5.0% (0.9% to 23.6%, n=20)"


def chance(hits: int, of: int, rate: float) -> float:
    return math.comb(of, hits) * rate**hits * (1 - rate) ** (of - hits)


@pytest.mark.parametrize("of", [20, 60, 200])
def test_the_interval_covers_what_it_says(of: int):
    """Computed exactly: over rates from 1 % to 99 % it holds the truth in about 95 % of all samples."""
    rates = [number / 100 for number in range(1, 100)]
    shares = [share(hits, of) for hits in range(of + 1)]
    covered = [
        sum(chance(hits, of, rate) for hits, one in enumerate(shares) if one.low <= rate <= one.high) for rate in rates
    ]
    assert 0.94 < sum(covered) / len(covered) < 0.965
    assert min(covered) > 0.83  # the known dips of Wilson's interval near 0 and 1, not lower


@pytest.mark.parametrize(("wrong", "caught"), [(0.05, 0.9), (0.1, 0.6), (0.3, 0.8)])
def test_a_corrected_interval_covers_the_truth(wrong: float, caught: float):
    """Exactly again: 100 cases that people looked at, and 60 planted ones that say how well they look."""
    seen = [share(hits, 100) for hits in range(101)]
    planted = [share(hits, 60) for hits in range(61)]
    covered = 0.0
    for hits, found in enumerate(seen):
        if (weight := chance(hits, 100, wrong * caught)) < 1e-7:
            continue
        for catches, catch in enumerate(planted):
            true = corrected(found, catch)
            covered += weight * chance(catches, 60, caught) * (true.low <= wrong <= true.high)
    assert covered > 0.93


def test_what_people_miss_is_put_back():
    found = corrected(share(10, 200), share(25, 50))
    assert found.rate == pytest.approx(0.1)
    assert found.low < 0.1 < found.high
    assert corrected(share(10, 200), None) == share(10, 200), "nothing was planted: people are believed"


def test_where_nothing_was_caught_only_the_lower_end_is_known():
    for catch in (share(0, 0), share(0, 30)):
        found = corrected(share(10, 200), catch)
        assert found.rate is None
        assert found.high == 1.0
        assert 0 < found.low < 1
    assert corrected(share(0, 0), share(9, 10)).rate is None


def test_a_rare_sample_counts_for_what_it_stands_for():
    """One of ten sampled cases and all of the others: the weighted rate is that of everything."""
    sampled = [(hit, 10.0) for hit in [True] * 5 + [False] * 45]
    others = [(hit, 1.0) for hit in [True] * 50 + [False] * 450]
    found = weighted([*sampled, *others])
    assert found.rate == pytest.approx(0.1)
    assert found.of < 550, "unequal weights tell less than as many equal ones"
    assert weighted([(True, 3.0)] * 7).of == pytest.approx(7)
    assert weighted([]) == share(0, 0)


def test_means_and_medians():
    assert mean([]).mean is None
    assert (mean([4.0, 6.0]).mean, mean([4.0, 6.0]).low) == (5.0, None)
    found = mean([1.0, 2.0, 3.0])
    assert (found.low, found.high) == pytest.approx((2 - 1.959964 / math.sqrt(3), 2 + 1.959964 / math.sqrt(3)))
    assert median([]) is None
    assert median([5, 1, 3]) == 3
    assert median([4, 1, 3, 2]) == 2.5
