"""Mutation testing of the decisions: every small change to their rules must make a unit test fail.

    python scripts/mutation.py [--jobs N] [--only TEXT] [--list]

Each mutant runs the unit tests of the domain in a process of its own, forked from one that has collected
them already, with one module changed in place. What survives has to be explained in
scripts/mutation_survivors.toml; exits with status 1 when something is not.
"""

import argparse
import ast
import contextlib
import fnmatch
import importlib
import io
import os
import signal
import sys
import time
import tomllib
import types
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final, cast

import pytest
from mutants import Replacing, mutants

ROOT: Final = Path(__file__).resolve().parent.parent
MODEL: Final = ROOT / "packages" / "beforehand" / "src" / "beforehand" / "model"
OPERATIONS: Final = ("test_decide_*.py", "test_evidence.py", "test_transitions*.py")
BOUNDARIES: Final = ("test_transactions.py", "test_closing_*.py", "test_backlog.py")
TARGETS: Final = {
    **dict.fromkeys(
        (
            "decision.decide",
            "decision.send_rules",
            "decision.verify_rules",
            "decision.evidence",
            "operation",
            "transitions",
        ),
        OPERATIONS,
    ),
    **dict.fromkeys(("saga", "transaction"), BOUNDARIES),
}
"""The modules that are changed, and the tests that have to notice it."""
LEFT_OUT: Final = {
    f"saga.py:{name}" for name in ("__contains__", "__init__", "put", "front", "_newest", "_turn", "_file", "_end")
}
"""The indexes of the backlog: most of their clauses save time only. tests/unit/model/test_backlog.py holds the rest."""
EXPLAINED: Final = ROOT / "scripts" / "mutation_survivors.toml"
TIME_LIMIT_S: Final = 20


class Suite:
    """The tests, collected by pytest once and called directly: they need no fixtures."""

    def __init__(self) -> None:
        self.tests: dict[str, list[Callable[[], object]]] = {}

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Keep each test with the parameters it is called with."""
        for item in session.items:
            assert isinstance(item, pytest.Function), item
            test = partial(item.obj, **(item.callspec.params if hasattr(item, "callspec") else {}))
            self.tests.setdefault(item.path.name, []).append(test)

    def passes(self, target: str) -> bool:
        """Whether every test of this module passes; stops at the first that does not."""
        for test in self.of(target):
            try:
                test()
            except BaseException:  # noqa: BLE001  # a mutant that breaks a test in any way was noticed
                return False
        return True

    def of(self, target: str) -> list[Callable[[], object]]:
        """The tests that have to notice a change of this module."""
        names = [name for pattern in TARGETS[target] for name in fnmatch.filter(self.tests, pattern)]
        return [test for name in names for test in self.tests[name]]


def main() -> int:
    """Try every mutant; say how many were killed, and name what survived."""
    options = _options()
    chosen = [(target, index, name) for target, index, name in _all() if options.only in name]
    if options.list:
        print("\n".join(name for _, _, name in chosen))
        return 0
    suite = Suite()
    quiet = ["-qq", "--collect-only", "--no-summary", "-p", "no:cacheprovider"]
    os.chdir(ROOT)
    with contextlib.redirect_stdout(io.StringIO()):
        collected = pytest.main([*quiet, *_tests()], plugins=[suite])
    targets = sorted({target for target, _, _ in chosen})
    if collected or not all(suite.of(target) and suite.passes(target) for target in targets):
        print("the tests fail without any mutant; nothing was tried", file=sys.stderr)
        return 2
    survived = _survivors(suite, chosen, options.jobs)
    explained = tomllib.loads(EXPLAINED.read_text(encoding="utf-8")) if EXPLAINED.is_file() else {}
    unexplained = [name for name in survived if name not in explained]
    for name in unexplained:
        print(f"SURVIVED {name}")
    stale = sorted(set(explained) - set(survived)) if not options.only else []
    for name in stale:
        print(f"EXPLAINED BUT KILLED OR GONE {name}")
    known = len(survived) - len(unexplained)
    print(f"{len(chosen) - len(survived)} killed, {len(survived)} survived ({known} explained)")
    return 1 if unexplained or stale else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 2, help="how many mutants run at a time")
    parser.add_argument("--only", default="", help="only mutants whose name holds this text")
    parser.add_argument("--list", action="store_true", help="name the mutants and stop")
    return parser.parse_args()


def _tests() -> list[str]:
    folder = ROOT / "tests" / "unit" / "model"
    patterns = dict.fromkeys(pattern for patterns in TARGETS.values() for pattern in patterns)
    return [str(path.relative_to(ROOT)) for pattern in patterns for path in sorted(folder.glob(pattern))]


def _all() -> list[tuple[str, int, str]]:
    return [
        (target, index, mutant.name)
        for target in TARGETS
        for index, mutant in enumerate(mutants(_path(target))[1])
        if ":".join(mutant.name.split(":")[:2]) not in LEFT_OUT
    ]


def _path(target: str) -> Path:
    return MODEL.joinpath(*target.split(".")).with_suffix(".py")


def _survivors(suite: Suite, chosen: list[tuple[str, int, str]], jobs: int) -> list[str]:
    """Run them all, `jobs` at a time, and name those that no test noticed."""
    began = time.monotonic()
    waiting, running, survived = list(reversed(chosen)), dict[int, str](), list[str]()
    while waiting or running:
        while waiting and len(running) < jobs:
            target, index, name = waiting.pop()
            running[_fork(suite, target, index)] = name
        child, status = os.wait()
        name = running.pop(child)
        if os.waitstatus_to_exitcode(status) == 0:
            survived.append(name)
        done = len(chosen) - len(waiting) - len(running)
        if done % 250 == 0:
            spent = time.monotonic() - began
            print(f"{done} of {len(chosen)} in {spent:.0f} s, {len(survived)} survived", file=sys.stderr, flush=True)
    return sorted(survived)


def _fork(suite: Suite, target: str, index: int) -> int:
    """A process that runs the tests against one mutant; its exit status is zero if they pass."""
    child = os.fork()
    if child:
        return child
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(TIME_LIMIT_S)
    try:
        tree, changes = mutants(_path(target))
        changed = ast.fix_missing_locations(Replacing(changes[index]).visit(tree))
        assert isinstance(changed, ast.Module)
        install(importlib.import_module(f"beforehand.model.{target}"), changed)
        os._exit(0 if suite.passes(target) else 1)
    except BaseException:  # noqa: BLE001  # a module that cannot even be loaded was noticed
        os._exit(1)


def install(module: types.ModuleType, changed: ast.Module) -> None:
    """Let a loaded module behave as its changed text does, for everybody who holds a part of it already.

    Functions and methods keep their identity and get other code; tables are filled anew in place.
    """
    fresh: dict[str, object] = {"__name__": module.__name__}
    exec(compile(changed, f"<mutant of {module.__name__}>", "exec"), fresh)  # noqa: S102  # that is the point
    real = vars(module)
    for name, new in list(fresh.items()):
        old = real.get(name)
        if isinstance(new, types.FunctionType) and isinstance(old, types.FunctionType):
            _take_code(old, new, module.__name__)
        elif isinstance(new, type) and isinstance(old, type) and new.__module__ == module.__name__:
            for method, body in vars(new).items():
                _take_method(vars(old).get(method), body, module.__name__)
    for name in _assigned(changed):
        _give(real[name], _held(fresh[name], real, fresh))


def _give(old: object, new: object) -> None:
    """Let every module of the domain that holds the old value hold the new one; a table is filled anew."""
    if isinstance(old, dict) and isinstance(new, dict):
        table = cast("dict[object, object]", old)
        table.clear()
        table.update(cast("dict[object, object]", new))
        return
    for module in [module for name, module in sys.modules.items() if name.startswith("beforehand.model.")]:
        for name in [name for name, value in vars(module).items() if value is old]:
            setattr(module, name, new)


def _assigned(tree: ast.Module) -> list[str]:
    """The names that the module gives values to."""
    targets: list[ast.expr] = [node.target for node in tree.body if isinstance(node, ast.AnnAssign)]
    targets += [target for node in tree.body if isinstance(node, ast.Assign) for target in node.targets]
    return [target.id for target in targets if isinstance(target, ast.Name)]


def _take_method(old: object, new: object, module: str) -> None:
    if isinstance(new, property) and isinstance(old, property):
        old, new = old.fget, new.fget
    if isinstance(old, types.FunctionType) and isinstance(new, types.FunctionType):
        _take_code(old, new, module)


def _take_code(old: types.FunctionType, new: types.FunctionType, module: str) -> None:
    if new.__module__ == module:
        old.__code__, old.__defaults__, old.__kwdefaults__ = new.__code__, new.__defaults__, new.__kwdefaults__


def _held(value: object, real: dict[str, object], fresh: dict[str, object]) -> object:
    """The value with every function of the changed module replaced by the one that everybody holds."""
    if isinstance(value, types.FunctionType):
        return real[value.__name__] if fresh.get(value.__name__) is value else value
    if isinstance(value, dict):
        return {key: _held(item, real, fresh) for key, item in cast("dict[object, object]", value).items()}
    if type(value) is tuple:
        return tuple(_held(item, real, fresh) for item in cast("tuple[object, ...]", value))
    return value


if __name__ == "__main__":
    sys.exit(main())
