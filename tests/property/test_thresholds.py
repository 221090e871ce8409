"""What is true of every threshold, whatever people find: bounds, hysteresis, replay; and that it follows a drift."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from beforehand.model.thresholds import Threshold
from beforehand_console.reviews.calibration import Judgement, ThresholdFinding, judged
from beforehand_console.reviews.statistics import share

SURE = Threshold("sure", start=0.8, least=0.6, most=0.95, step=0.02, width=0.08, goal=0.04, slack=0.1, enough=30)

values = st.floats(0.5, 1.0)
findings = st.builds(ThresholdFinding, values, st.booleans(), st.sampled_from([1.0, 5.0, 7.5]))
many = st.builds(
    lambda value, wrong, of: [ThresholdFinding(value, number < wrong) for number in range(of)],
    values, st.integers(0, 200), st.integers(0, 400),
)  # fmt: skip
batches = st.lists(st.one_of(many, st.lists(findings, max_size=40)), max_size=25)
catches = st.one_of(
    st.none(), st.builds(lambda of, part: share(int(of * part), of), st.integers(0, 60), st.floats(0, 1))
)


def moved(batches: list[list[ThresholdFinding]], at: float = SURE.start) -> list[Judgement]:
    """The moves of a threshold that is judged after each batch; a move begins the count anew."""
    moves, since = [], []
    for batch in batches:
        since += batch
        found = judged(SURE, at, since)
        if found.moves:
            at, since = found.to, []
            moves.append(found)
    return moves


@given(batches)
def test_it_never_leaves_its_bounds_and_goes_step_by_step(batches: list[list[ThresholdFinding]]):
    for move in moved(batches):
        assert SURE.least <= move.to <= SURE.most
        assert 0 < abs(move.to - move.at) <= SURE.step + 1e-9


@given(batches)
def test_a_replay_gives_the_same_moves(batches: list[list[ThresholdFinding]]):
    assert moved(batches) == moved([list(batch) for batch in batches])


@given(st.lists(findings, max_size=300), catches)
def test_the_order_of_what_was_found_does_not_matter(found: list[ThresholdFinding], catch: object):
    one, other = judged(SURE, 0.8, found, catch), judged(SURE, 0.8, reversed(found), catch)
    assert (one.direction, one.to) == (other.direction, other.to)


@given(st.lists(findings, max_size=300), catches)
def test_it_moves_only_on_what_is_proven(found: list[ThresholdFinding], catch: object):
    """Hysteresis: while what was found may still be within the slack around the goal, nothing moves."""
    judgement = judged(SURE, 0.8, found, catch)
    if judgement.direction == "loosen":
        assert judgement.before.high < SURE.goal * (1 - SURE.slack)
    if judgement.direction == "tighten":
        assert judgement.beyond.rate is None or judgement.beyond.rate > SURE.goal * (1 + SURE.slack)


@given(st.integers(0, 3), st.integers(30, 400))
def test_what_is_found_at_the_goal_never_moves_it(off: int, of: int):
    """No oscillation: with rates inside the slack on both sides it stands still for ever."""
    wrong = round(SURE.goal * of)
    if abs(wrong / of - SURE.goal) > SURE.goal * SURE.slack:
        return
    both = [ThresholdFinding(value, number < wrong) for value in (0.78, 0.82) for number in range(of)]
    assert moved([both] * (off + 1)) == []


def year(rng: Random, rates: list[float], at: float = SURE.start) -> list[float]:
    """Weeks of 60 asked and 30 sampled cases near the threshold; each week has its own rate of errors *at 0.8*.

    Errors fall to a third over 0.1 of confidence, so that the threshold has a place to go to.
    """
    stood, since = [at], []
    for rate in rates:
        for side, count in ((-1, 60), (1, 30)):
            for _ in range(count):
                value = at + side * rng.random() * SURE.width
                since.append(ThresholdFinding(value, rng.random() < rate * 3 ** ((0.8 - value) / 0.1), 1.0))
        found = judged(SURE, at, since[-90 * 12 :])
        if found.moves:
            at, since = found.to, []
        stood.append(at)
    return stood


def test_a_drift_is_followed_and_then_it_rests():
    """Errors triple in week 26: where they are 4 % moves up by 0.1, and the threshold goes after it."""
    for seed in range(5):
        stood = year(Random(seed), [0.04] * 26 + [0.12] * 52)
        assert max(stood[:26]) - min(stood[:26]) <= 0.06, "before the drift it stays about where it stands right"
        assert 0.84 <= stood[-1] <= 0.94, stood
        assert max(stood[-20:]) - min(stood[-20:]) <= 0.04, "and rests there"


def test_it_comes_back_when_things_get_better():
    for seed in range(5):
        stood = year(Random(seed), [0.012] * 80)
        assert stood[-1] <= 0.76, stood
