"""Whether stated confidence is believed for what it was worth."""

from random import Random

import pytest

from beforehand_console.reviews.statistics import StatedConfidence, band_of, reliability


def drawn(truth: float, stated: float, count: int, rng: Random, weight: float = 1.0) -> list[StatedConfidence]:
    return [StatedConfidence(stated, rng.random() < truth, weight) for _ in range(count)]


def test_an_honest_confidence_fits():
    rng = Random(7)
    found = reliability([case for stated in (0.6, 0.75, 0.85, 0.97) for case in drawn(stated, stated, 2000, rng)])
    assert [one.verdict for one in found.bands] == ["fits"] * 4
    assert found.gap is not None
    assert found.by_chance is not None
    assert found.gap < 2.5 * found.by_chance, "no more than chance makes"


def test_a_boast_is_found():
    found = reliability(drawn(0.7, 0.95, 500, Random(7)))
    [band] = found.bands
    assert (band.start, band.end, band.stated) == (0.95, 0.99, pytest.approx(0.95))
    assert band.verdict == "too sure"
    assert found.gap == pytest.approx(0.25, abs=0.06)
    assert found.by_chance is not None
    assert found.gap > 10 * found.by_chance


def test_modesty_is_found():
    [band] = reliability(drawn(0.95, 0.6, 300, Random(7))).bands
    assert band.verdict == "too modest"


def test_one_half_for_everything_scores_a_quarter():
    found = reliability([StatedConfidence(0.5, True), StatedConfidence(0.5, False), StatedConfidence(0.5, True)])
    assert found.brier.mean == pytest.approx(0.25)


def test_a_sampled_band_counts_for_what_it_stands_for():
    """Half of what is stated at 0.6 is right, everything at 0.97 is, and of that one case in ten was looked at."""
    asked = [StatedConfidence(0.6, number % 2 == 0) for number in range(100)]
    sampled = [StatedConfidence(0.97, right=True, weight=10.0) for _ in range(10)]
    found = reliability([*asked, *sampled])
    assert found.brier.mean == pytest.approx((0.26 + 0.0009) / 2)
    assert found.gap == pytest.approx((0.1 + 0.03) / 2)


def test_no_cases_say_nothing():
    found = reliability([])
    assert (found.bands, found.gap, found.brier.mean) == ((), None, None)


@pytest.mark.parametrize(
    ("confidence", "band"),
    [(None, "not stated"), (0.0, "0 to 0.5"), (0.9, "0.9 to 0.95"), (1.0, "0.99 to 1"), (-1, "below 0")],
)
def test_bands_have_names(confidence: float | None, band: str):
    assert band_of(confidence) == band
