"""The simulated year, lived quickly: what must be so whatever the numbers are, and what the page rests on."""

import msgspec
import pytest

from holdfast_console.reviews.calibration import ThresholdFinding, judged
from studies.year.__main__ import main
from studies.year.comparing import ALL, CALIBRATED, FIXED, NONE, SAMPLING, Compared, compare, over_years
from studies.year.living import Lived, live
from studies.year.people import Reviewer
from studies.year.strategies import STRATEGIES, Desk, break_even
from studies.year.world import Case, Year, days

QUICK = Year(days=120, drift_day=60, arrivals=120)
BY_NAME = {one.name: one for one in STRATEGIES}


@pytest.fixture(scope="module")
def quick() -> Compared:
    return compare(QUICK, range(3))


def test_a_seed_gives_the_same_year():
    cases = days(QUICK, 5)
    assert cases == days(QUICK, 5)
    assert cases != days(QUICK, 6)
    strategy = BY_NAME["calibrated, planted"]
    assert live(QUICK, strategy, 5, cases) == live(QUICK, strategy, 5, days(QUICK, 5))


def test_all_strategies_see_the_same_cases(quick: Compared):
    for years in zip(*quick.lived.values(), strict=True):
        assert len({(one.cases, one.wrong) for one in years}) == 1


def test_the_world_is_as_stated():
    year = Year(days=200, drift=1.0)
    cases = [case for day in days(year, 1) for case in day]
    assert len(cases) == pytest.approx(200 * year.arrivals, rel=0.03)
    assert sum(case.wrong for case in cases) / len(cases) == pytest.approx(year.errors, rel=0.12)
    sure = [case.wrong for case in cases if case.confidence > 0.93]
    unsure = [case.wrong for case in cases if case.confidence < 0.7]
    assert sum(unsure) / len(unsure) > 4 * sum(sure) / len(sure), "confidence knows something"
    blind = [case for day in days(Year(days=200, drift=1.0, signal=0.0), 1) for case in day]
    rates = [
        sum(group) / len(group)
        for group in ([c.wrong for c in blind if c.confidence > 0.86], [c.wrong for c in blind if c.confidence < 0.86])
    ]
    assert rates[0] == pytest.approx(rates[1], rel=0.3), "and nothing where its signal is 0"


def test_attention_falls_with_the_queue_the_habit_and_the_day():
    year = Year()
    fresh = Reviewer(year)
    assert fresh.attention(0) == 1.0
    assert fresh.attention(80) == pytest.approx(year.floor + (1 - year.floor) / 2), (
        "two hours of reading for each of two"
    )
    fresh.streak = year.streak
    assert fresh.attention(0) == pytest.approx(year.floor + (1 - year.floor) / 2)
    fresh.streak, fresh.worked = 0, year.hours * 60
    assert fresh.attention(0) == pytest.approx(year.floor + (1 - year.floor) * (1 - year.tiring))
    fresh.streak = 1e9
    assert fresh.attention(10**9) == pytest.approx(year.floor)


def test_a_tired_look_is_quick_and_misses():
    year, reviewer = Year(), Reviewer(Year())
    wrong = Case(0.0, 0.8, 50.0, True, luck_catch=0.5, luck_false=0.5, luck_sample=0.5, luck_plant=0.5)
    assert reviewer.look(wrong, attention=1.0) == ("no", year.reading)
    assert reviewer.streak == 0
    word, minutes = reviewer.look(wrong, attention=0.3)
    assert word == "yes"
    assert minutes < year.reading / 2
    assert reviewer.streak == 1
    assert reviewer.worked == pytest.approx(year.reading + minutes)


def test_never_asking_costs_its_errors_and_nothing_else(quick: Compared):
    for one in quick.lived[NONE]:
        assert one.passed == one.wrong
        assert one.looks == 0
        assert one.costs.total == one.costs.errors


def test_always_asking_looks_at_everything(quick: Compared):
    for one in quick.lived[ALL]:
        assert one.looks + one.expired == pytest.approx(one.cases, abs=60)  # what waits on the last evening
        assert one.passed < 0.5 * one.wrong


def test_a_threshold_is_cheaper_than_either_extreme(quick: Compared):
    for extreme in (ALL, NONE):
        gap = quick.dearer(FIXED, extreme)
        assert gap.high is not None
        assert gap.high < 0


def test_people_who_see_everything_catch_less_of_what_they_see(quick: Compared):
    def attention(name: str) -> float:
        weeks = [week for one in quick.lived[name] for week in one.weeks]
        return sum(week.attention for week in weeks) / sum(week.looks for week in weeks)

    assert attention(SAMPLING) > attention(ALL) + 0.05


def test_sampling_loses_where_the_threshold_stands_right(quick: Compared):
    """What it buys is evidence; that has a price, and the page says so."""
    assert (quick.dearer(SAMPLING, FIXED).mean or 0) > 0


def test_calibration_pays_where_the_threshold_stands_wrong():
    year = msgspec.structs.replace(QUICK, days=200, start=0.96, drift=1.0)
    wrong = compare(year, range(3), [BY_NAME[FIXED], BY_NAME[CALIBRATED]])
    gap = wrong.dearer(CALIBRATED, FIXED)
    assert gap.high is not None
    assert gap.high < 0
    for one in wrong.lived[CALIBRATED]:
        assert one.weeks[-1].threshold < 0.96
    for one in wrong.lived[FIXED]:
        assert {week.threshold for week in one.weeks} == {0.96}


def test_a_queue_that_nobody_can_work_off_expires():
    flooded = compare(Year(days=8, arrivals=5000), [1], [BY_NAME[ALL]])
    [one] = flooded.lived[ALL]
    assert one.expired > 1000
    assert one.looks < one.cases / 2


def test_planted_cases_are_counted_and_never_reach_the_world(quick: Compared):
    for one in quick.lived["calibrated, planted"]:
        assert one.planted > 50
        assert 0.5 * one.planted < one.planted_caught <= one.planted
        assert one.passed <= one.wrong


def test_the_desk_learns_nothing_from_what_it_always_asks_about():
    desk = Desk(QUICK, BY_NAME[CALIBRATED])
    large = Case(0.0, 0.99, 900.0, True, 0.5, 0.5, 0.5, 0.5)
    assert desk.route(large) == "asked"
    desk.learn(large, "asked", wrong=True)
    assert desk.findings == []


def test_the_goal_is_where_a_look_costs_what_it_saves():
    assert 0.03 < break_even(Year()) < 0.036
    assert break_even(Year(reading=6)) == pytest.approx(2 * break_even(Year()))


def test_it_is_the_rule_of_the_product_that_moves_the_threshold():
    desk = Desk(QUICK, BY_NAME[CALIBRATED])
    case = Case(100.0, desk.at + 0.01, 50.0, True, 0.5, 0.5, 0.0, 0.5)
    assert desk.route(case) == "sampled"
    for _ in range(60):
        desk.learn(case, "sampled", wrong=True)
    expected = judged(desk.threshold, desk.at, [ThresholdFinding(case.confidence, True, 1 / QUICK.rate)] * 60)
    desk.calibrate(480.0)
    assert desk.moves == [expected]
    assert desk.at == expected.to > QUICK.start
    assert desk.findings == []


def test_few_years_have_the_wide_intervals_of_student():
    assert over_years([1.0]).low is None
    found = over_years([1.0, 2.0, 3.0])
    assert found.low == pytest.approx(2 - 4.303 / 3**0.5)


def test_a_lived_year_can_be_kept(quick: Compared):
    [one, *_] = quick.lived[CALIBRATED]
    assert msgspec.json.decode(msgspec.json.encode(one), type=Lived) == one


def test_it_lives_a_year_with_your_own_numbers(capsys: pytest.CaptureFixture[str]):
    assert main(["days=10", "arrivals=30", "--seeds", "2"]) == 0
    told = capsys.readouterr().out.splitlines()
    assert [line[:22].strip() for line in told[1:-1]] == list(BY_NAME)
    assert told[-1].startswith("* the cheapest")


@pytest.mark.parametrize("argument", ["arivals=3", "arrivals=many", "arrivals"])
def test_a_number_that_is_none_is_refused(argument: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as ended:
        main([argument])
    assert ended.value.code == 2
    assert "arrivals" in capsys.readouterr().err
