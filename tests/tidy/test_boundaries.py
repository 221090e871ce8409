"""Planning, knowledge, the loop and patterns are written over the interface of agent code, not over the engine."""

from collections.abc import Iterable
from pathlib import Path

import pytest

from beforehand.agent.run_context import RunContext
from tests.tidy.tree import PACKAGE, imports, shown

ROOMS = {
    "planning": ("planning",),
    "knowledge": ("knowledge", "planning"),
    "loop": ("loop", "knowledge", "planning"),
    "patterns": ("patterns",),
}
"""The packages behind the boundary, each with those among them that it may import."""

DOMAIN = ("errors", "model", "policies")
"""Pure values, which every package may use."""

DOORS = {
    "beforehand.agent.run_context.RunContext": "steps, tools, branches, facts, records and ledger entries of a run",
    "beforehand.agent.run.Run": "the production loop is agent code",
    "beforehand.agent.run.Decide": "what `run.decide` is with settings: the loop asks every model with the same",
    "beforehand.agent.tool.Tool": "a plan names tools, and its schema is made of their parameters",
    "beforehand.agent.conditions": "conditions of plans, in CEL",
    "beforehand.agent.model_decisions.class_of": "the class of an error, as the record of the decision has it",
    "beforehand.agent.model_decisions.seconds_until_retry": "how long the client of another library says to wait",
    "beforehand.agent.decision_call.DecisionCall": "the decision for which a route asks a model",
    "beforehand.engine.breaker": "the pure rules of a circuit breaker: those of models are those of tools",
    "beforehand.engine.environment.SystemClock": "the time for a model that is asked outside a run",
    "beforehand.engine.exceptions.http.seconds_asked": "how long a provider asks to wait",
    "beforehand.engine.current_operation.current_operation": "the operation that a handler serves",
    "beforehand.installation.needing": "the client of models names what it lacks",
}
"""The other imports that these packages may have: a module with all its names, or one name of a module."""


def files(room: str) -> list[Path]:
    return sorted((PACKAGE / room).rglob("*.py"))


def other_imports(path: Path, rooms: Iterable[str]) -> list[tuple[int, str]]:
    """The imports of the project's own modules from outside the domain and these rooms: line, dotted name."""
    free = tuple(f"beforehand.{part}." for part in (*DOMAIN, *rooms))
    return [
        (line, name)
        for line, name in imports(path)
        if name.startswith("beforehand.") and not f"{name}.".startswith(free)
    ]


def door_of(name: str) -> str | None:
    return next((door for door in DOORS if f"{name}.".startswith(f"{door}.")), None)


def test_planning_and_knowledge_import_only_what_is_listed():
    found = [
        f"{shown(path)}:{line} imports {name}"
        for room, rooms in ROOMS.items()
        for path in files(room)
        for line, name in other_imports(path, rooms)
        if door_of(name) is None
    ]
    assert not found, "give `RunContext` a method, or move the code into the engine:\n" + "\n".join(found)


def test_every_listed_import_is_used():
    used = {
        door_of(name) for room, rooms in ROOMS.items() for path in files(room) for _, name in other_imports(path, rooms)
    }
    assert set(DOORS) <= used, f"remove from the list: {set(DOORS) - used}"


def test_every_method_of_the_run_context_is_used_behind_the_boundary():
    code = "".join(path.read_text(encoding="utf-8") for room in ROOMS for path in files(room))
    names = [name for name in vars(RunContext) if not name.startswith("_")]
    unused = [name for name in names if f".{name}" not in code]
    assert len(names) > 10
    assert not unused, f"delete them: {unused}"


def test_an_import_of_the_engine_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("tests.tidy.tree.PACKAGE", tmp_path / "beforehand")
    source = tmp_path / "beforehand" / "knowledge" / "facts.py"
    source.parent.mkdir(parents=True)
    source.write_text(
        "from typing import TYPE_CHECKING\n"
        "from beforehand.model.facts import Fact\n"
        "from beforehand.agent.run_context import RunContext\n"
        "if TYPE_CHECKING:\n    from beforehand.engine.active_run.run import ActiveRun\n"
        "def late():\n    from beforehand.journal.port import Post\n"
    )
    found = other_imports(source, ("knowledge",))
    assert [name for _, name in found if door_of(name) is None] == [
        "beforehand.engine.active_run.run.ActiveRun",
        "beforehand.journal.port.Post",
    ]
