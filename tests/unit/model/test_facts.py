"""Facts: what leans on a fact goes with it, and asking or inferring is a matter of expected cost."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beforehand.errors import UsageError
from beforehand.model.facts import Correction, Fact, Guess, Known, Stakes, weigh, without
from beforehand.model.plan import Call, Plan, PlanStep


def known(*facts: Fact) -> Known:
    world = Known()
    for fact in facts:
        world.learn(fact)
    return world


def fact(name: str, value: object = 1, *leans_on: str) -> Fact:
    return Fact(name, value, "test", 0, inferred_from=leans_on)


def test_a_correction_takes_all_that_was_inferred_from_it_and_splits_the_steps_that_relied_on_it():
    world = known(fact("city"), fact("airport", 1, "city"), fact("fares", 1, "airport"), fact("name"))
    world.rely("search", ["airport"])
    world.rely("book", ["fares"])
    world.rely("greet", ["name"])
    world.executed.add("search")
    assert world.learn(fact("city", 2)) == Correction("city", ("airport", "fares"), ("book",), ("search",))
    assert set(world.facts) == {"city", "name"}
    assert world.learn(fact("city", 3)) == Correction("city"), "what was told once is not told again"


def test_the_same_value_again_corrects_nothing():
    world = known(fact("city"), fact("airport", 1, "city"))
    world.rely("book", ["airport"])
    assert world.learn(fact("city")) is None
    assert "airport" in world.facts


def test_facts_inferred_in_a_circle_are_found_once():
    assert known(fact("a", 1, "b"), fact("b", 1, "a")).inferred_from("a") == ("b",)


def test_nothing_relies_on_what_is_missing():
    with pytest.raises(UsageError, match="book relies on what is not known: fares"):
        known(fact("city")).rely("book", ["city", "fares"])


@given(st.floats(0, 1), st.floats(0, 100), st.floats(0, 100))
def test_the_cheaper_is_chosen_and_at_equal_cost_a_person_is_asked(sure: float, asking: float, error: float):
    weighed = weigh("x", Guess(1, sure, "test"), Stakes(asking, error))
    assert (weighed.chosen == "infer") == ((1 - sure) * error < asking)


def test_without_a_guess_one_asks_and_a_confidence_is_a_chance():
    assert weigh("x", None, Stakes()).chosen == "ask"
    with pytest.raises(UsageError, match="from 0 to 1"):
        weigh("x", Guess(1, 7.0, "test"), Stakes())


def test_dropped_steps_take_those_that_wait_for_them():
    steps = (
        PlanStep(id="a", primary=Call("t")), PlanStep(id="b", primary=Call("t"), after=("a",)),
        PlanStep(id="c", primary=Call("t"), after=("b",)), PlanStep(id="d", primary=Call("t")),
    )  # fmt: skip
    assert [step.id for step in without(Plan(goal="g", steps=steps), ["a"]).steps] == ["d"]


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 2), st.sets(st.integers(0, 5))), max_size=30))
def test_nothing_is_left_that_was_inferred_from_what_a_correction_took(learned: list[tuple[int, int, set[int]]]):
    world = Known()
    for name, value, leans_on in learned:
        correction = world.learn(fact(str(name), value, *map(str, leans_on - {name})))
        if correction is not None:
            gone = {correction.fact, *correction.invalidated}
            left = [one for one in world.facts.values() if one.name != correction.fact]
            assert not [one for one in left if gone & set(one.inferred_from)]
