"""How a threshold moves, case by case; `property/test_thresholds.py` has what is true of all of them."""

import pytest

from beforehand.model.thresholds import Threshold
from beforehand_console.reviews.calibration import ThresholdFinding, asks, judged
from beforehand_console.reviews.statistics import share

SURE = Threshold("sure", start=0.8, least=0.6, most=0.95, step=0.02, width=0.05, goal=0.04, slack=0.1, enough=30)
LARGE = Threshold("large", start=500, least=100, most=2000, step=50, width=100, goal=0.04, safe="below")


def findings(value: float, wrong: int, of: int, weight: float = 1.0) -> list[ThresholdFinding]:
    return [ThresholdFinding(value, number < wrong, weight) for number in range(of)]


def test_errors_beyond_it_tighten():
    found = judged(SURE, 0.8, findings(0.82, 20, 100, weight=7.0))
    assert (found.direction, found.to) == ("tighten", 0.82)
    assert "went by itself" in found.why
    assert found.beyond.rate == pytest.approx(0.2)


def test_few_errors_before_it_loosen():
    found = judged(SURE, 0.8, findings(0.78, 1, 400))
    assert (found.direction, found.to) == ("loosen", 0.78)
    assert "asked about" in found.why


def test_for_an_amount_the_safe_side_is_below():
    assert judged(LARGE, 500, findings(450, 20, 100)).to == 450, "smaller amounts are asked about"
    assert judged(LARGE, 500, findings(550, 0, 400)).to == 550
    assert asks(LARGE, 501, 500)
    assert not asks(LARGE, 500, 500)


def test_beginning_to_ask_goes_before_ceasing_to():
    both = findings(0.82, 20, 100) + findings(0.78, 0, 400)
    assert judged(SURE, 0.8, both).direction == "tighten"


@pytest.mark.parametrize(
    "cases",
    [
        [],
        findings(0.82, 29, 29),  # too few, whatever they say
        findings(0.82, 4, 100),  # at the goal
        findings(0.78, 3, 100),  # below the goal, but 100 cases do not prove it
        findings(0.95, 50, 100),  # far from the threshold
        findings(0.5, 0, 400),
    ],
)
def test_in_doubt_it_stays(cases: list[ThresholdFinding]):
    found = judged(SURE, 0.8, cases)
    assert (found.direction, found.to, found.moves) == ("stay", 0.8, False)
    assert found.why


def test_a_bound_is_a_bound():
    found = judged(SURE, 0.95, findings(0.96, 50, 100))
    assert (found.direction, found.to, found.moves) == ("tighten", 0.95, False)
    assert found.why.endswith("it is at its bound")
    assert judged(SURE, 0.94, findings(0.96, 50, 100)).to == 0.95, "the last step is as short as it has to be"


def test_what_tired_people_approved_proves_nothing():
    approved = findings(0.78, 0, 400)
    blind = judged(SURE, 0.8, approved, catch=share(5, 12))
    assert blind.direction == "stay"
    assert "planted" in blind.why
    assert judged(SURE, 0.8, approved, catch=share(0, 0)).direction == "stay", (
        "none of what was planted was answered yet"
    )
    assert judged(SURE, 0.8, approved, catch=share(38, 40)).direction == "loosen"


def test_people_who_miss_half_report_half():
    seen = findings(0.82, 8, 150)  # 5.3 %: more than the goal, not proven
    assert judged(SURE, 0.8, seen).direction == "stay"
    assert judged(SURE, 0.8, seen, catch=share(50, 100)).direction == "tighten"


@pytest.mark.parametrize(
    "fields",
    [
        {"start": 0.5}, {"step": 0}, {"width": -1}, {"enough": 0}, {"goal": 0}, {"goal": 1.0}, {"slack": 1.0},
    ],
)  # fmt: skip
def test_a_threshold_that_makes_no_sense_is_refused(fields: dict[str, float]):
    good = {"start": 0.8, "least": 0.6, "most": 0.95, "step": 0.02, "width": 0.05}
    with pytest.raises(ValueError, match="sure:"):
        Threshold("sure", **{**good, **fields})
