"""Real processes, really killed: at every named place, after every occurrence of it, twice in the same place.

What must hold is in `checks` and `lives`; this file says where the run dies. `BEFOREHAND_CRASH` names one plan to repeat.
"""

import random

import pytest

from beforehand.engine.environment import POINTS
from tests.crash.lives import Plan, plans_from_environment, survive
from tests.crash.points import ALL, COMMIT, REQUEST
from tests.crash.stage import Case
from tests.draws import ends, pick

VERIFY = ("before_verify", "after_verify")  # reached only by a worker that takes over
DIRECT = tuple(point for point in (*POINTS, *REQUEST, *COMMIT) if point not in VERIFY)
SENT, UNSENT = ("after_request:mail", 2), ("before_request:mail", 2)  # the last letter: it landed, or never left
LEFT_PLAIN = ("after_request:plain", 1)
KILLS = 200
CHUNKS = (0, *(pytest.param(number, marks=pytest.mark.deep) for number in range(1, 100)))


@pytest.fixture(scope="session")
def counted(tmp_path_factory, witness, zygote):
    """How often an undisturbed run reaches each point."""
    case = Case("undisturbed", tmp_path_factory.mktemp("undisturbed") / "case", witness, zygote)
    ended = case.work()
    assert ended.answer.get("status") == "completed", (ended.answer, ended.log)
    counts = ended.answer["points"]
    case.drop()
    return counts


def once(counted, point):
    """A death at each occurrence."""
    return [Plan(((point, number),)) for number in range(1, counted[point] + 1)]


def twice(counted, point):
    """At the first, the last and three between; the worker that takes over dies in the same place again."""
    last = counted[point]
    numbers = sorted({1, (last + 3) // 4, (last + 1) // 2, last - last // 4, last})
    return [Plan(((point, number), (point, 1))) for number in numbers]


def recovering(point):
    """In the hands of the worker that takes over: as it reads back what landed, and what never left."""
    deaths = [((point, 1),), ((point, 2),), ((point, 1), (point, 1))]
    return [Plan((SENT, (point, 1)))] + [Plan((UNSENT, *more)) for more in deaths]


def resolving():
    """While a person's word is written down and acted on."""
    places = [("before_post", 1), ("after_post", 1), ("before_commit", 1), ("after_commit", 1), ("before_commit", 2)]
    left = [Plan((LEFT_PLAIN, ("before_end", 9), place)) for place in places]
    unsent = [Plan((("before_request:plain", 1), ("before_end", 9), place)) for place in (*places, ("before_send", 1))]
    return left + unsent


def live_through(new_case, plans):
    kills = 0
    for number, plan in enumerate(plans):
        case = new_case(f"{number}")
        kills += survive(case, plan).kills
        case.drop()
    return kills


@pytest.mark.deeper
@pytest.mark.parametrize("point", DIRECT)
def test_killed_at_each_occurrence(new_case, counted, point):
    """At the first occurrence and the last; at those between in `make deep`."""
    plans = list(pick(once(counted, point), ends(once(counted, point))))
    assert plans, f"{point} is never reached"
    assert live_through(new_case, plans) == len(plans)


@pytest.mark.deeper
@pytest.mark.parametrize("point", DIRECT)
def test_killed_twice_in_the_same_place(new_case, counted, point):
    plans = list(pick(twice(counted, point), twice(counted, point)[:1]))
    kills = live_through(new_case, plans)
    # What stood before the first death may be on record, so that the second life does not come there again.
    assert len(plans) < kills <= 2 * len(plans) or point == "after_end"


@pytest.mark.parametrize("point", VERIFY)
def test_killed_while_reading_back(new_case, point):
    plans = recovering(point)
    assert live_through(new_case, plans) == sum(len(plan.deaths) for plan in plans)


def test_killed_while_a_person_answers(new_case):
    plans = resolving()
    assert live_through(new_case, plans) == sum(len(plan.deaths) - 1 for plan in plans)


def test_a_run_killed_at_its_end_is_replayed_without_a_request(new_case):
    case = new_case("end")
    assert case.work(kill=["before_end", 1]).killed
    requests = case.world()["requests"]
    ended = case.work()
    assert ended.answer.get("status") == "completed", ended
    assert ended.answer["points"].get("before_send", 0) == 0
    assert case.world()["requests"] == requests


def test_an_effect_that_lands_after_its_process_died_is_not_repeated(new_case):
    case = new_case("late")
    case.ask("rule", of="mail", rule={"lands_after_ms": 40})
    plan = Plan((("after_request:mail", 1), ("after_request:mail", 1)))
    survive(case, plan)


def test_the_matrix_makes_enough_kills_and_its_few_come_by_every_point(counted):
    """Counted as the tests above hold it: every planned death, but of a second one in the same place only the first."""
    single = [plan for point in DIRECT for plan in once(counted, point)]
    double = [plan for point in DIRECT for plan in twice(counted, point)]
    found = [plan for point in VERIFY for plan in recovering(point)]
    assert len(single) + len(double) + sum(len(plan.deaths) for plan in found) >= KILLS
    few = [plan for point in DIRECT for plan in ends(once(counted, point))]
    assert {place for plan in [*few, *found, *resolving()] for place, _ in plan.deaths} >= set(ALL)


def test_one_plan(new_case):
    plan = plans_from_environment("after_request:9,before_verify:1,after_outcome:1@7")
    survive(new_case("one"), plan)


@pytest.mark.parametrize("chunk", CHUNKS)
def test_killed_at_random(new_case, counted, seed, chunk):
    chance = random.Random(f"{seed}/{chunk}")
    kills, number = 0, 0
    while kills < 8:
        case = new_case(f"{number}")
        kills += survive(case, drawn(chance, counted)).kills
        case.drop()
        number += 1


def drawn(chance, counted):
    """One to three deaths anywhere, with small delays."""
    deaths = []
    for life in range(chance.choice((1, 2, 2, 3))):
        point = chance.choice(DIRECT if life == 0 else (*DIRECT, *VERIFY))
        most = counted.get(point, 2) if life == 0 else 3
        deaths.append((point, chance.randint(1, most)))
    return Plan(tuple(deaths), chance.randint(1, 10**6))
