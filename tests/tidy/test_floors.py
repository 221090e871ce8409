"""Imports go downwards only; the domain is pure; only the wiring may see everything."""

import re
import sys
from collections.abc import Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tests.tidy.tree import CONSOLE, PACKAGE, imports, module_name, python_files, shown

FLOORS = {
    "errors": 0,
    "model": 0,
    "policies": 0,
    "queues": 0,
    "former_name": 0,
    "installation": 0,
    "journal": 1,
    "engine": 2,
    "agent": 3,
    "planning": 3,
    "knowledge": 3,
    "loop": 3,
    "observation": 3,
    "plans": 3,
    "memory": 3,
    "patterns": 3,
    "conversation": 3,
    "inspect": 4,
    "control": 4,
    "people": 4,
    "webhooks": 4,
    "telemetry": 4,
    "extensions": 4,
    "cli": 5,
    "hosts": 5,
}
# These wire floors together or are handed to users: they may import anything, and no floor imports them.
ABOVE_ALL = {"", "__main__", "app", "demo", "sync", "testing"}

# Doors from a floor to what stands above all, each with its reason. Keep this short.
DOORS: dict[tuple[str, str], str] = {
    ("beforehand.cli.apps", "beforehand.app"): "the command line runs agents as a user's program would",
    ("beforehand.cli.demo", "beforehand.demo"): "the demo is a command",
    ("beforehand.cli.trial", "beforehand.testing"): "trials are a command",
    ("beforehand.cli.policy", "beforehand.testing"): "a dry run over the recorded past is a command",
    (
        "beforehand.hosts.starlette",
        "beforehand.app",
    ): "a web server runs the agents of an app, as a user's program would",
}

LARGEST_CIRCLE = 4  # modules that import each other; lower it with a circle

# The rooms of the console: each imports only those before it.
CONSOLE_ROOMS = ("reviews", "links", "notify", "auth", "web", "cli")
AT_THE_TOP = {"beforehand_console", "beforehand_console.ledger_kinds"}

# Modules of the domain that are not pure, each with its reason. Keep this short.
IMPURE = {
    "beforehand.installation": "an error anywhere may say what to install, and the metadata that knows it is a file"
}

# What the domain may use beside itself: no clock, chance, threads, files or sockets can be reached from these.
PURE = {
    "__future__", "abc", "ast", "base64", "binascii", "bisect", "builtins", "collections", "confusable_homoglyphs", "contextvars", "copy", "cronsim",
    "dataclasses", "datetime", "decimal", "difflib", "enum", "fractions", "functools", "hashlib", "heapq", "hmac",
    "inspect", "ipaddress", "itertools", "json", "keyword", "math", "msgspec", "numbers", "operator", "pathlib",
    "re", "reprlib", "rfc8785", "statistics", "string", "struct", "textwrap", "types", "typing", "unicodedata",
    "uuid", "weakref", "zoneinfo",
}  # fmt: skip

SOURCES = python_files("packages/beforehand")


def own_part(module: str) -> str:
    """The part of the package a dotted name belongs to: `journal` for beforehand.journal.port, "" for the top."""
    first = module.split(".")[1]
    is_part = (PACKAGE / first).is_dir() or (PACKAGE / f"{first}.py").is_file()
    return first if is_part else ""


def part_of(path: Path) -> str:
    return own_part(f"{module_name(path)}.")


def own_imports(path: Path) -> list[tuple[int, str, str]]:
    """The project's own modules that a file imports: line, dotted name, part."""
    ours = [(line, name) for line, name in imports(path) if f"{name}.".startswith("beforehand.")]
    return [(line, name, own_part(f"{name}.")) for line, name in ours]


def test_every_part_has_a_floor():
    homeless = {part_of(path) for path in SOURCES} - set(FLOORS) - ABOVE_ALL
    assert not homeless, f"give them a floor in this test: {homeless}"


def test_imports_go_downwards():
    upwards = [
        f"{shown(path)}:{line} (floor {FLOORS[part_of(path)]}) imports {name}"
        for path, line, name, target in upward_imports()
        if (module_name(path), f"beforehand.{target}") not in DOORS
    ]
    assert not upwards, "imports go downwards only; move the code or pass the value in:\n" + "\n".join(upwards)


def upward_imports() -> list[tuple[Path, int, str, str]]:
    """The imports from a floor to one above it, or to what stands above all: file, line, name, part."""
    return [
        (path, line, name, target)
        for path in SOURCES
        if part_of(path) in FLOORS
        for line, name, target in own_imports(path)
        if not may_import(part_of(path), target)
    ]


def may_import(part: str, target: str) -> bool:
    return target in FLOORS and FLOORS[target] <= FLOORS[part]


def test_the_runtime_imports_nothing_of_the_console():
    found = [
        f"{shown(path)}:{line} imports {name}"
        for path in SOURCES
        for line, name in imports(path)
        if name.split(".")[0] == CONSOLE.name
    ]
    assert not found, "the console is found by entry points (extensions.py):\n" + "\n".join(found)


def test_the_rooms_of_the_console_import_only_those_before_them():
    upwards = [
        f"{shown(path)}:{line} imports {name}"
        for path in python_files("packages/beforehand-console")
        for line, name in imports(path)
        if name.startswith("beforehand_console.")
        and module_name(path) not in AT_THE_TOP
        and CONSOLE_ROOMS.index(name.split(".")[1]) > CONSOLE_ROOMS.index(module_name(path).split(".")[1])
    ]
    assert not upwards, "\n".join(upwards)


def test_the_domain_is_pure():
    impure = [
        f"{shown(path)}:{line} imports {name}"
        for path in SOURCES
        if FLOORS.get(part_of(path)) == 0 and module_name(path) not in IMPURE
        for line, name in imports(path)
        if name.split(".")[0] not in PURE | {"beforehand"}
    ]
    assert not impure, "floor 0 has no clock, chance, I/O or async; leave it to the engine:\n" + "\n".join(impure)


def test_no_module_of_the_domain_imports_itself_on_some_way():
    """Imports for typing and inside functions count. `beforehand.errors` lists the errors for users: the domain is below it."""
    domain = {module_name(path): path for path in SOURCES if FLOORS.get(part_of(path)) == 0}
    inside = {
        module: {home for _, name, _ in own_imports(path) for home in (name, name.rpartition(".")[0]) if home in domain}
        for module, path in domain.items()
    }
    inside = {module: needs - {module, "beforehand.model"} for module, needs in inside.items()}
    assert not [name for name, needs in inside.items() if "beforehand.errors" in needs], (
        "import beforehand.model.errors"
    )
    try:
        tuple(TopologicalSorter(inside).static_order())
    except CycleError as error:
        pytest.fail(f"a cycle of imports: {' -> '.join(error.args[1])}")


def test_few_modules_import_each_other_in_a_circle():
    """Modules in one circle are only understood together. Imports for typing and inside functions count."""
    modules = {module_name(path): path for path in SOURCES}
    edges = {
        module: {name if name in modules else name.rpartition(".")[0] for _, name, _ in own_imports(path)}
        for module, path in modules.items()
    }
    reached = {module: reached_from(module, edges) for module in modules}
    largest = max(({other for other in reached[module] if module in reached[other]} for module in modules), key=len)
    assert len(largest) <= LARGEST_CIRCLE, f"take one of them out of the circle: {sorted(largest)}"


def reached_from(module: str, edges: Mapping[str, set[str]]) -> set[str]:
    reached: set[str] = set()
    ahead = [module]
    while ahead:
        found = edges.get(ahead.pop(), set()) - reached
        reached |= found
        ahead.extend(found)
    return reached & set(edges)


def test_every_module_of_a_circle_is_reached():
    edges = {"a": {"b"}, "b": {"c", "x"}, "c": {"a"}, "d": {"a"}}
    assert reached_from("a", edges) == {"a", "b", "c"}


def test_every_door_is_used():
    used = {(module_name(path), f"beforehand.{target}") for path, _, _, target in upward_imports()}
    assert set(DOORS) <= used, f"close the doors that are not used: {set(DOORS) - used}"


def test_the_names_that_are_called_pure_exist():
    assert {"confusable_homoglyphs", "cronsim", "msgspec", "rfc8785"} | set(sys.stdlib_module_names) >= PURE


def test_an_import_is_found_wherever_it_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("tests.tidy.tree.PACKAGE", tmp_path / "beforehand")
    source = tmp_path / "beforehand" / "model" / "late.py"
    source.parent.mkdir(parents=True)
    source.write_text(
        "import json\n"
        "from typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n    from ..engine import environment\n"
        "def late():\n    from beforehand.journal.port import Journal\n    import_module('beforehand.app')\n"
    )
    found = [name for _, name in imports(source)]
    assert found == [
        "json",
        "typing.TYPE_CHECKING",
        "beforehand.engine.environment",
        "beforehand.journal.port.Journal",
        "beforehand.app",
    ]


def test_the_map_of_the_engine_names_every_file():
    """A file that the map does not name is one that a reader cannot find."""
    engine = PACKAGE / "engine"
    files = {path.stem for path in engine.rglob("*.py") if path.name != "__init__.py"} - {"run"}
    the_map = (engine / "__init__.py").read_text(encoding="utf-8")
    named = {name for path in re.findall(r"`([a-z_/]+)(?:\.py)?`", the_map) for name in path.strip("/").split("/")[-1:]}
    assert not files - named, "name them in the map, engine/__init__.py"
    for path in re.findall(r"`([a-z_/]+\.py)`", the_map):
        assert (engine / path).is_file() or (PACKAGE / path).is_file(), f"the map names {path}, which is not there"
