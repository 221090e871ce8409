"""Time, chance, threads and the end of a process are reached through environment, so that tests can hold them."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from beforehand.inspect.source_code import aliases
from tests.tidy.tree import CONSOLE, PACKAGE, parsed, python_files, shown

CLOCK = {
    "time.time", "time.time_ns", "time.monotonic", "time.monotonic_ns", "time.perf_counter", "time.perf_counter_ns",
    "time.sleep", "datetime.datetime.now", "datetime.datetime.utcnow", "datetime.datetime.today",
    "datetime.date.today", "asyncio.sleep",
}  # fmt: skip
CHANCE = {"random", "secrets", "os.urandom", "uuid.uuid1", "uuid.uuid4", "uuid.uuid6", "uuid.uuid7"}
STOPWATCH = {"time.perf_counter", "time.perf_counter_ns"}
THREADS = {
    "threading.Thread",
    "threading.Timer",
    "asyncio.to_thread",
    "concurrent.futures.ThreadPoolExecutor",
}
DEATH = {"os._exit", "os.kill", "os.killpg", "os.abort", "signal.raise_signal"}
BANNED = CLOCK | CHANCE | THREADS | DEATH


class Home(NamedTuple):
    """A place that may reach the world directly: under which path, to what, and why."""

    path: str
    allowed: set[str]
    reason: str


HOMES = (
    Home("engine/environment.py", BANNED, "the environment themselves"),
    Home("journal/host.py", BANNED, "who this process is, and whether another one still lives"),
    Home("journal/sqlite/", THREADS, "the writer and the riding commit: a blocked loop must not delay them"),
    Home("journal/sqlite/", STOPWATCH, "times commits to choose the cheapest path to the disk; decides no outcome"),
    Home("journal/sqlite/opening.py", {"os.urandom"}, "mints the namespace and the secret of a new journal"),
    Home("journal/memory.py", {"os.urandom"}, "mints those of a journal at the address memory:"),
    Home("sync.py", THREADS, "the synchronous face: its loop lives in a thread of its own"),
    Home("cli/apps.py", THREADS, "loads programs that call asyncio.run where they are loaded"),
    Home("cli/dev.py", {"os._exit"}, "ends while a program never finishes loading: its thread cannot be stopped"),
    Home(
        "hosts/pydantic_ai.py", THREADS, "names the executor of a world, whose loop calls at once: no thread is begun"
    ),
    Home("demo/", BANNED, "plays the world: services, faults and kills"),
    Home("testing/", BANNED, "replaces the environment for tests, and kills for real"),
)


def test_the_world_is_reached_through_the_environment():
    found = [
        f"{shown(path)}:{line} uses {name}"
        for path in python_files("packages")
        for line, name in reached(parsed(path))
        if banned(name) - allowed_in(path)
    ]
    assert not found, "take it from the environment (clock, rng, threads, crash points):\n" + "\n".join(found)


def allowed_in(path: Path) -> set[str]:
    if path.is_relative_to(CONSOLE):
        return set()
    inside = path.relative_to(PACKAGE).as_posix()
    return {name for home in HOMES if inside.startswith(home.path) for name in home.allowed}


def banned(name: str) -> set[str]:
    """The bans that a dotted name falls under: itself, or the module that it is in."""
    return {ban for ban in BANNED if f"{name}.".startswith(f"{ban}.")}


def beginning(node: ast.expr) -> str:
    """The first name of a dotted one."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def reached(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Every dotted name that the module uses or imports, aliases resolved to what they stand for."""
    known = dict(aliases(tree))
    for node in ast.walk(tree):
        match node:
            case ast.Attribute() | ast.Name() if (first := beginning(node)) in known:
                rest = ast.unparse(node).partition(".")[2]
                yield node.lineno, f"{known[first]}.{rest}".rstrip(".")
            case ast.ImportFrom(module=str(module), names=names, level=0):
                yield from ((node.lineno, f"{module}.{alias.name}") for alias in names)
            case _:
                continue


@pytest.mark.parametrize(
    "source",
    [
        "import time\nstarted = time.time()",
        "import time as clock\nclock.monotonic()",
        "from time import monotonic as now\nnow()",
        "import datetime as dt\ndt.datetime.now(dt.UTC)",
        "from datetime import datetime\ndatetime.now()",
        "def f():\n    import random\n    return random.random()",
        "from uuid import uuid4",
        "import os\nleave = os._exit",
    ],
)
def test_a_way_round_a_seam_is_seen(source: str):
    assert any(banned(name) for _, name in reached(ast.parse(source)))


@pytest.mark.parametrize(
    "source", ["import uuid\nuuid.UUID(int=1)", "import time\ntime.strftime('%Y')", "import os\nos.getpid()"]
)
def test_what_is_harmless_is_not_seen(source: str):
    assert not any(banned(name) for _, name in reached(ast.parse(source)))
