"""The schema of plans keeps to the rules of strict structured output, and what keeps to it is a plan."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from enum import Enum
from typing import Any, Literal

import msgspec
import pydantic
import pytest
from jsonschema import Draft202012Validator

from beforehand import Key, Run, Secret, agent, current_operation, tool
from beforehand.errors import UsageError
from beforehand.plans import Call, Plan, PlanRefused, PlanStep, plan_schema
from beforehand.testing.world import World

# What strict structured output takes; everything else refuses the whole schema.
KEYWORDS = {
    "type", "properties", "required", "additionalProperties", "items", "enum", "const", "anyOf", "$ref", "$defs",
    "description", "pattern", "format", "multipleOf", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum",
    "minItems", "maxItems",
}  # fmt: skip


NO_TOKEN = Secret("none")


class Class(Enum):
    ECONOMY = "economy"
    FIRST = "first"


@dataclass
class Passenger:
    name: str
    luggage: int = 0


class Wish(pydantic.BaseModel):
    seat: Literal["window", "aisle"] = "aisle"
    beside: "Wish | None" = None


@tool(effect="read")
async def search(city: str, on: date, limit: int = 10) -> list[str]:
    return [f"{city} {on:%d}"][:limit]


@tool(idempotency=Key.forever())
async def book(
    flight: str, passengers: list[Passenger], wish: Wish | None = None, travel: Class = Class.ECONOMY,
    notes: dict[str, str] | None = None, pair: tuple[int, str] = (1, "x"), extra: Any = None,
    token: Secret = NO_TOKEN,
) -> dict[str, str]:  # fmt: skip
    """Books; says what it was given."""
    _ = current_operation().key
    return {"flight": flight, "who": passengers[0].name, "travel": travel.value, "notes": str(notes), "pair": str(pair)}


@dataclass
class step:  # noqa: N801 - named so on purpose
    """A type named like one of the schema's own."""

    seconds: int


@tool(idempotency=Key.forever())
async def wait(call: step) -> int:
    _ = current_operation().key
    return call.seconds


TOOLS = [search, book, wait]


def parts(schema: Any, where: str = "$") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every schema inside a schema, and where it is."""
    yield where, schema
    for name in ("properties", "$defs"):
        for key, inside in schema.get(name, {}).items():
            yield from parts(inside, f"{where}.{name}.{key}")
    for number, inside in enumerate(schema.get("anyOf", [])):
        yield from parts(inside, f"{where}.anyOf.{number}")
    if "items" in schema:
        yield from parts(schema["items"], f"{where}.items")


def test_every_part_keeps_to_the_strict_rules():
    schema = plan_schema(TOOLS)
    Draft202012Validator.check_schema(schema)
    assert schema["type"] == "object", "the root is an object, and no choice"
    found = dict(parts(schema))
    assert len(found) > 60
    for where, part in found.items():
        assert part.keys() <= KEYWORDS, where
        assert {"type", "anyOf", "$ref"} & part.keys(), f"{where}: nothing says what it is"
        if "$ref" in part:
            assert part.keys() == {"$ref"}, f"{where}: nothing may stand beside a reference"
            assert f"$.$defs.{part['$ref'].removeprefix('#/$defs/')}" in found, where
        if part.get("type") == "object":
            assert part["additionalProperties"] is False, where
            assert part["required"] == list(part["properties"]), where
    depth = max(where.count(".properties.") for where in found)
    assert depth <= 5
    assert sum(len(part.get("properties", ())) for part in found.values()) <= 5000


def test_without_tools_there_is_nothing_to_plan_with():
    with pytest.raises(UsageError, match="at least one tool"):
        plan_schema([])


def test_what_may_be_left_out_is_nullable_and_a_secret_is_not_offered():
    calls = {one["properties"]["tool"]["const"]: one for one in plan_schema(TOOLS)["$defs"]["call"]["anyOf"]}
    booked = calls["book"]["properties"]["arguments"]["properties"]
    assert "token" not in booked
    nullable = [name for name, schema in booked.items() if {"type": "null"} in schema["anyOf"]]
    assert nullable == ["wish", "travel", "notes", "pair", "extra"]


def filled(schema: Any, root: Any) -> Any:
    """The least value that fits a schema: what a model that thinks little would answer."""
    match schema:
        case {"$ref": str() as name}:
            return filled(root["$defs"][name.removeprefix("#/$defs/")], root)
        case {"anyOf": [*choices]}:
            return filled(choices[0], root)
        case {"const": value} | {"enum": [value, *_]}:
            return value
        case {"type": "object"}:
            return {name: filled(part, root) for name, part in schema["properties"].items()}
        case _:
            kinds = {"array": [], "string": "", "integer": 1, "number": 1.5, "boolean": True, "null": None}
            return kinds[schema["type"]]


def test_the_least_answer_that_fits_is_read_as_a_plan():
    schema = plan_schema(TOOLS)
    least = filled(schema, schema) | {"steps": [filled(schema["$defs"]["step"], schema)]}
    Draft202012Validator(schema).validate(least)
    plan = msgspec.convert(least, Plan)
    assert plan.steps[0].primary.tool == "search"


ANSWER = {
    "goal": "fly", "name": "fly", "together": False,
    "steps": [
        {
            "id": "find", "primary": {"tool": "search", "arguments": {"city": "Lisbon", "on": "2026-11-21", "limit": None}, "within": ""},
            "fallbacks": [], "after": [], "when": "", "abort_if": [], "ask_if": "", "timeout_s": None, "attempts": None,
            "hold": False, "relies_on": [],
        },
        {
            "id": "seat",
            "primary": {
                "tool": "book",
                "arguments": {
                    "flight": {"$result": "find.0"}, "passengers": [{"name": "Ann", "luggage": 1}], "wish": None,
                    "travel": None, "notes": '{"meal": "vegan"}', "pair": '[2, "y"]', "extra": None,
                },
                "within": "flight in ['TP1', 'TP2']",
            },
            "fallbacks": [], "after": ["find"], "when": "size(results.find) > 0", "abort_if": [], "ask_if": "",
            "timeout_s": 20, "attempts": 2, "hold": False, "relies_on": [],
        },
    ],
}  # fmt: skip


def test_a_plan_that_keeps_to_it_is_performed(world: World):
    validator = Draft202012Validator(plan_schema(TOOLS))
    validator.validate(ANSWER)
    plan = msgspec.convert(ANSWER, Plan)
    assert msgspec.json.decode(msgspec.json.encode(plan), type=Plan) == plan

    @agent(run_id="s-{given}", tools=TOOLS)
    async def flyer(run: Run, given: str) -> Any:
        return (await run.execute(plan)).results["seat"]

    ran = world.run(flyer, "x")
    assert ran.error is None
    assert ran.result == {
        "flight": "Lisbon 21", "who": "Ann", "travel": "economy", "notes": "{'meal': 'vegan'}", "pair": "(2, 'y')"
    }  # fmt: skip
    world.explore(flyer, "x")


@pytest.mark.parametrize(
    "change",
    [
        {"tool": "fly"},
        {"arguments": {"city": "x", "on": "2026-11-21"}},
        {"arguments": {"city": 7, "on": "2026-11-21", "limit": None}},
        {"arguments": {"city": "x", "on": "2026-11-21", "limit": None, "more": 1}},
        {"arguments": {"city": {"$result": "a", "b": 1}, "on": "2026-11-21", "limit": None}},
    ],
)
def test_what_does_not_keep_to_it_is_no_answer(change: dict[str, Any]):
    validator = Draft202012Validator(plan_schema(TOOLS))
    broken = msgspec.to_builtins(ANSWER)
    broken["steps"][0]["primary"] |= change
    assert not validator.is_valid(broken)


@pytest.mark.parametrize(("notes", "problem"), [("{meal", "notes"), ('{"a": 1, "a": 2}', "notes"), ("5", "notes")])
def test_text_that_says_no_such_value_is_a_fault(world: World, notes: str, problem: str):
    call = Call("book", {"flight": "x", "passengers": [{"name": "Ann"}], "notes": notes})

    @agent(run_id="t-{given}", tools=TOOLS)
    async def flyer(run: Run, given: str) -> None:
        await run.execute(Plan(goal="g", steps=(PlanStep(id="a", primary=call),), together=False))

    ran = world.run(flyer, "x")
    assert isinstance(ran.error, PlanRefused)
    assert problem in ran.error.faults[0]
