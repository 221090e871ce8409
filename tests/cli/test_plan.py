"""`plan`: a plan is looked at before it runs, and nothing is written."""

import json
from pathlib import Path

import pytest

from tests.cli.lab import Lab

PLANNED = f"{Path(__file__).resolve().parents[2] / 'examples' / 'planned.py'}:planned_trip"
FLIGHT = {"id": "flight", "primary": {"tool": "book_flight", "arguments": {"origin": "SFO", "city": "Lisbon"}}}


@pytest.fixture
def world(beforehand: Lab, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TRIP_WORLD", str(beforehand.directory / "world"))
    return beforehand.directory / "world"


def written(lab: Lab, *steps: object) -> str:
    place = lab.directory / "plan.json"
    place.write_text(json.dumps({"goal": "go", "name": "trip", "steps": steps}))
    return str(place)


@pytest.mark.parametrize("word", ["show", "dry-run"])
def test_a_plan_is_described_with_what_its_tools_promise(beforehand: Lab, world: Path, word: str):
    said = beforehand("plan", word, written(beforehand, FLIGHT), PLANNED)
    assert said.status == 0
    assert 'book_flight {"origin":"SFO","city":"Lisbon"}' in said.out
    assert "undone by cancel_flight" in said.out
    assert not world.exists()


def test_every_fault_is_listed(beforehand: Lab, world: Path):
    mail = {"id": "mail", "primary": {"tool": "send_itinerary", "arguments": {"to": "a", "text": 5}}}
    said = beforehand(
        "plan", "check", written(beforehand, FLIGHT, mail, {**FLIGHT, "after": ["hotel"]}), PLANNED, "--json"
    )
    assert said.status == 2
    assert {fault["step"] for fault in said.json["faults"]} == {"flight", "mail"}
    assert len(said.json["faults"]) == 4


def test_it_says_which_conditions_call_the_plan_off_before_a_step_and_which_after_it(beforehand: Lab, world: Path):
    steps = {**FLIGHT, "abort_if": ["results.flight.price > 9", "input.nights < 1"]}
    said = beforehand("plan", "dry-run", written(beforehand, steps), PLANNED)
    assert "aborts the plan before it sends anything if input.nights < 1" in said.out
    assert "aborts the plan after this step if results.flight.price > 9" in said.out
    shown = beforehand("plan", "check", written(beforehand, steps), PLANNED, "--json").json
    (one,) = shown["steps"]
    assert (one["abort_if"], one["abort_after"]) == (["input.nights < 1"], ["results.flight.price > 9"])
