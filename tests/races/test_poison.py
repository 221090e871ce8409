"""What kills its worker every time is set aside after a few deaths, and everything else goes on."""

import pytest

from beforehand.engine.settings import Settings

INPUTS = ["a", "poison", "b"]


def live(case, agent, most):
    """Start workers over the same inputs until one comes to an end by itself; gives how many died, and its answer."""
    for deaths in range(most + 1):
        ended = case.work(agent=agent, inputs=INPUTS)
        if not ended.killed:
            assert ended.status == 0, ended.log
            return deaths, ended.answer
    raise AssertionError(f"{most} workers were killed and nothing was set aside")


def assert_others_went_on(answer):
    assert answer["a"][0] == "completed"
    assert answer["b"][0] == "completed"


def test_a_poison_operation_is_quarantined(case):
    allowed = Settings().deaths_allowed
    deaths, answer = live(case, "may_be_poisoned", 2 * allowed)
    assert deaths == allowed
    assert answer["poison"][0] == "suspended"
    assert_others_went_on(answer)
    operation = case.stored().history("poison").operations["deadly#1"]
    assert operation.phase == "unknown"
    assert len(operation.attempts) == allowed
    assert sum(request["name"] == "poison" for request in case.world()["requests"]) == allowed


def test_what_died_beside_a_poison_operation_comes_through(case):
    """All three die together until they are on their last chance; then each attempts alone."""
    allowed = Settings().deaths_allowed
    crowd = {"agent": "may_be_poisoned", "inputs": ["a", "crowd", "b"], "concurrency": 3}
    case.ask("rule", of="keyed", rule={"hold": "before"})
    for _ in range(allowed - 1):
        assert case.work(**crowd).killed
    case.ask("release", of="keyed")
    lives = [case.work(**crowd) for _ in range(2)]
    assert [ended.killed for ended in lives] == [True, False], lives
    assert lives[1].answer["crowd"][0] == "suspended"
    assert_others_went_on(lives[1].answer)
    assert case.stored().history("crowd").operations["deadly#1"].deaths == allowed
    assert all(case.stored().history(run).operations["charge#1"].deaths == allowed - 1 for run in "ab")


def test_a_poison_run_is_quarantined(case):
    allowed = Settings().claims_allowed
    deaths, answer = live(case, "dies_before_any_step", 2 * allowed)
    assert deaths in {allowed, allowed + 1}  # the first one may die before anything of it is durable
    assert answer["poison"][0] == "stopped"
    assert_others_went_on(answer)
    assert case.stored().history("poison").lifecycle.stopped.reason == "quarantined"


def test_asking_for_a_suspended_run_again_and_again_is_no_poison(case):
    case.ask("rule", of="plain", rule={"hold": "after"})
    worker = case.start(agent="stocks", input="sku")
    case.ask("await", of="plain", count=1)
    case.signal(worker, "SIGKILL")
    assert case.wait(worker).killed
    answers = [
        case.work(agent="stocks", input="sku").answer.get("status") for _ in range(Settings().claims_allowed + 3)
    ]
    assert set(answers) == {"suspended"}


@pytest.mark.parametrize("agent", ["may_be_poisoned", "dies_before_any_step"])
def test_what_was_set_aside_stays_so(case, agent):
    live(case, agent, 12)
    requests = len(case.world()["requests"])
    again = case.work(agent=agent, inputs=INPUTS)
    assert again.status == 0, "a quarantined run killed its worker again"
    assert_others_went_on(again.answer)
    assert len(case.world()["requests"]) == requests


def crowd_around(poison):
    """Fifty inputs, the poison ones spread among them."""
    healthy = [f"n{number}" for number in range(50 - len(poison))]
    inputs = list(healthy)
    for place, one in zip((30, 10), poison, strict=False):
        inputs.insert(place, one)
    return healthy, inputs


def deaths_held_against(history):
    """How many processes died in the first step of a run: while they drove it, or while they made its attempt."""
    claims = max(owner.number for owner in history.ownership.owners.values()) - 1
    return max([claims, *(operation.deaths for operation in history.operations.values())])


@pytest.mark.parametrize("at_once", [1, 8, 50])
@pytest.mark.parametrize("poison", [["poison"], ["poison", "poison-2"]], ids=["one", "two"])
@pytest.mark.parametrize("agent", ["dies_before_any_step", "may_be_poisoned"])
def test_poison_among_fifty_is_set_aside_and_no_other(case, agent, poison, at_once):
    """A supervisor starts the program again after each death, and while a run is due: on its last chance it is not held.

    The deaths open the circuit breaker of the tool, and a run that waits for it is due in half a second.
    """
    healthy, inputs = crowd_around(poison)
    allowed, deaths = Settings().deaths_allowed, 0
    for _ in range(30):
        ended = case.work(agent=agent, inputs=inputs, concurrency=at_once)
        deaths += ended.killed
        if not ended.killed and all(dict(ended.answer)[run][0] == "completed" for run in healthy):
            break
    assert ended.status == 0, ended.log
    assert allowed <= deaths <= (allowed + 1) * len(poison), "it took too many processes"
    answer = dict(ended.answer)
    aside = {answer.pop(run)[0] for run in poison}
    assert aside == {"stopped" if agent == "dies_before_any_step" else "suspended"}
    assert {run: status for run, (status, _) in answer.items()} == dict.fromkeys(healthy, "completed")
    charged = [request for request in case.world()["requests"] if request["kind"] == "keyed"]
    assert len({request["key"] for request in charged}) == len(healthy), "one effect for each healthy run"
    assert {request["name"] for request in charged} == set(healthy)
    stored = case.stored()
    held = [deaths_held_against(stored.history(run)) for run in healthy]
    assert sum(held) <= 60 + 40 * len(poison), "suspicion was not narrowed"
    assert max(held) < allowed
