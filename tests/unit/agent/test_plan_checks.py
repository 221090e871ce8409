"""Faults of a plan, each in the words in which a person or a model reads it."""

from __future__ import annotations

from typing import Any

import pytest

from beforehand import tool
from beforehand.agent.tool import Tool
from beforehand.model.plan import Call, Plan, PlanStep
from beforehand.planning.checks import MOST_FALLBACKS, MOST_STEPS, Given, faults_of


@tool
def send(to: str) -> str:
    return to


TOOLS: dict[str, Tool[Any, Any]] = {"send": send}
LETTER = Call("send", {"to": "ann"})


def faults(*steps: PlanStep, name: str = "plan", tools: dict[str, Tool[Any, Any]] | None = None, **given) -> list[str]:
    plan = Plan(goal="a letter is sent", name=name, steps=steps, together=False)
    known = Given(TOOLS if tools is None else tools, **given)
    return [str(fault) for fault in faults_of(plan, known)]


def a_step(name: str = "a", call: Call = LETTER, **more) -> PlanStep:
    return PlanStep(id=name, primary=call, **more)


def test_a_plan_without_fault_has_none():
    assert faults(a_step(), a_step("b", after=("a",))) == []


def test_a_plan_has_steps_and_not_too_many():
    assert faults() == ["a plan needs at least one step"]
    many = [a_step(f"s{number}") for number in range(MOST_STEPS + 1)]
    assert faults(*many) == [f"{MOST_STEPS + 1} steps, and {MOST_STEPS} are allowed"]
    assert faults(*many[:MOST_STEPS]) == []


def test_a_plan_and_its_steps_are_named_by_what_can_be_a_part_of_a_name():
    assert faults(a_step(), name="a/b") == ["'a/b' cannot name a plan: use printable characters without / ~ and #"]
    said = "it cannot name a step: use printable characters without / ~ # and ."
    assert faults(a_step("a#1")) == [f"step a#1: {said}"]
    assert faults(a_step("a.b")) == [f"step a.b: {said}"]
    assert faults(a_step(), a_step()) == ["step a: there are 2 steps of this id"]


def test_a_step_is_held_only_where_there_is_a_commit():
    held = a_step(hold=True)
    assert faults(held) == ["step a: it is held, and there is no transaction whose commit it could wait for"]
    assert faults(held, inside=True) == []


def test_facts_are_missed_only_where_there_is_a_run_to_ask():
    leaning = a_step(relies_on=("airport",))
    assert faults(leaning) == []
    assert faults(leaning, facts={"airport": "LGA"}) == []
    assert faults(leaning, facts={"hotel": "Ritz"}) == ["step a: there is no fact 'airport'; known are: hotel"]


def test_a_step_has_not_too_many_fallbacks():
    crowded = a_step(fallbacks=(LETTER,) * (MOST_FALLBACKS + 1))
    assert faults(crowded) == [f"step a: it has {MOST_FALLBACKS + 1} fallbacks, and {MOST_FALLBACKS} are allowed"]
    assert faults(a_step(fallbacks=(LETTER,) * MOST_FALLBACKS)) == []


def test_a_result_is_taken_from_a_step_that_there_is():
    assert faults(a_step(call=Call("send", {"to": {"$result": "b"}}))) == [
        "step a: there is no step 'b' to take a result from"
    ]


@pytest.mark.parametrize("tools", [TOOLS, {}], ids=["send", "none"])
def test_a_tool_that_is_not_there_is_named_once_and_says_nothing_about_results(tools: dict[str, Tool[Any, Any]]):
    first = a_step(call=Call("gone"))
    second = a_step("b", Call("send", {"to": {"$result": "a"}}))
    there = ", ".join(tools) or "none"
    wanted = ["step a: there is no tool 'gone'; the tools are: " + there]
    if not tools:
        wanted.append("step b: there is no tool 'send'; the tools are: none")
    assert faults(first, second, tools=tools) == wanted
