"""The figures about people, from words that are made up here: groups, weights, and what people miss."""

from typing import Any

import msgspec
import pytest

from beforehand.model.shadow import Traits
from beforehand_console.reviews.events import Review, UnreviewedCall, amount_band, last_reviews, weights
from beforehand_console.reviews.metrics import review_metrics

HOUR = 3_600_000


def look(number: int, said: Any = "approved", **fields: Any) -> Review:
    traits = Traits(
        **{"tool": "refund", **{name: fields.pop(name) for name in Traits.__struct_fields__ if name in fields}}
    )
    asked = fields.pop("asked_ms", number * HOUR)
    return msgspec.structs.replace(
        Review(f"run-{number}/refund#1", "approval", said, "bea", asked, asked + 60_000, 100, traits), **fields
    )


def test_words_against_the_agent_are_counted_by_group():
    found = review_metrics(
        [
            look(1, tool="refund", amount=50.0, confidence=0.97),
            look(2, "declined", tool="refund", amount=5000.0, confidence=0.6),
            look(3, "edited", tool="mail", by="carl", answered_ms=3 * HOUR + 180_000),
            look(4, "expired", tool="mail", by=""),
            look(5, "settled", kind="review"),
        ],
        [],
    )
    assert (found.looks, found.expired) == (3, 1)
    assert (found.overrides.hits, found.overrides.of) == (2, 3)
    assert [(one.name, one.overrides.hits, one.overrides.of) for one in found.by_tool] == [
        ("refund", 1, 2),
        ("mail", 1, 1),
    ]
    assert {one.name for one in found.by_amount} == {"10 to 100", "1000 to 10000", "not stated"}
    assert {one.name for one in found.by_confidence} == {"0.95 to 0.99", "0.5 to 0.7", "not stated"}
    assert [(one.name, one.median_ms) for one in found.by_reviewer] == [("bea", 60_000), ("carl", 180_000)]


def test_of_two_people_the_last_word_decides_and_both_are_counted_as_reviewers():
    words = [look(1), look(1, "declined", by="carl", answered_ms=2 * HOUR)]
    found = review_metrics(words, [])
    assert [one.said for one in last_reviews(reversed(words))] == ["declined"]
    assert (found.overrides.hits, found.overrides.of) == (1, 1)
    assert {one.name: one.overrides.hits for one in found.by_reviewer} == {"bea": 0, "carl": 1}


def test_what_was_said_before_is_left_out():
    assert review_metrics([look(1), look(5)], [UnreviewedCall("x", 2, Traits("refund"))], since_ms=4 * HOUR).looks == 1


def passed(count: int, stratum: str = "border", **fields: Any) -> list[UnreviewedCall]:
    return [
        UnreviewedCall(f"left-{number}/refund#1", HOUR, Traits("refund", stratum=stratum), **fields)
        for number in range(count)
    ]


def test_a_sample_stands_for_its_stratum():
    """20 of 100 borderline cases were asked about and 4 were wrong; 50 others were always asked about, 25 wrong."""
    sampled = [look(n, "declined" if n < 4 else "approved", sampled=True, stratum="border") for n in range(20)]
    asked = [look(100 + n, "declined" if n < 25 else "approved") for n in range(50)]
    found = review_metrics([*sampled, *asked], passed(80))
    assert set(weights(sampled, passed(80)).values()) == {5.0}
    assert found.overrides.rate == pytest.approx(29 / 70), "of what people saw"
    assert found.wrong.rate == pytest.approx((20 + 25) / 150), "of everything"
    assert found.wrong.of < 70, "and no more certain than what was seen"
    assert found.unseen == 0
    assert review_metrics([*sampled, *asked], [*passed(80), *passed(5, "sure")]).unseen == 5, "nothing stands for these"


def test_shadow_reviews_and_samples_of_one_stratum_are_one_sample():
    sampled = [look(n, sampled=True, stratum="border") for n in range(10)]
    shadows = [look(50 + n, "wrong", kind="shadow", stratum="border") for n in range(10)]
    assert set(weights([*sampled, *shadows], passed(90)).values()) == {5.0}


def test_what_was_undone_stands_for_itself():
    shadows = [look(n, "right", kind="shadow", stratum="border") for n in range(10)]
    left = passed(90) + [
        UnreviewedCall(f"gone-{n}/refund#1", HOUR, Traits("refund", confidence=0.99, stratum="border"), undone=True)
        for n in range(10)
    ]
    found = review_metrics(shadows, left)
    assert found.wrong.rate == pytest.approx(0.1)
    assert found.undone == 10
    [band] = found.confidence.bands
    assert (band.right.rate, band.verdict) == (0.0, "too sure")


def test_what_people_miss_is_put_back_where_cases_are_planted():
    words = [look(n, "declined" if n < 10 else "approved") for n in range(100)]
    planted = [look(200 + n, "declined" if n < 20 else "approved", kind="planted") for n in range(40)]
    found = review_metrics([*words, *planted], [])
    assert found.looks == 100, "planted cases are not the agent's"
    assert found.caught.rate == 0.5
    assert found.wrong.rate == pytest.approx(0.2)
    assert review_metrics(words, []).wrong.rate == pytest.approx(0.1)


def test_confidence_is_held_against_what_people_found():
    words = [look(n, "declined" if n < 30 else "approved", confidence=0.95) for n in range(100)]
    [band] = review_metrics(words, []).confidence.bands
    assert (band.stated, band.right.rate, band.verdict) == (pytest.approx(0.95), 0.7, "too sure")


def test_no_looks_are_no_figures():
    found = review_metrics([], [])
    assert (found.looks, found.overrides.rate, found.wrong.rate, found.by_tool) == (0, None, None, ())


@pytest.mark.parametrize(
    ("amount", "band"),
    [(None, "not stated"), (0.0, "below 1"), (1, "1 to 10"), (999.99, "100 to 1000"), (1000, "1000 to 10000")],
)
def test_amounts_have_bands(amount: float | None, band: str):
    assert amount_band(amount) == band
