"""From `file.py:name` or `module:name` to the agent it names. Its tools come with it."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import traceback
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any, Final, TypeGuard

from holdfast.agent.agent import Agent
from holdfast.errors import HoldfastError, UsageError
from holdfast.interfaces.code_location import loading

AnyAgent = Agent[Any, Any]
_HINT: Final = "TARGET is file.py:name or module:name, as in desk.py:refund_desk"


def load_agent(target: str, directory: str = "") -> AnyAgent:
    """The agent that a target names; `directory` is where modules are looked for first.

    Raises `UsageError` saying what is wrong with it.
    """
    if directory and directory not in sys.path:
        sys.path.insert(0, directory)
    place, name = _split(target)
    module = _module(place, target)
    if not name:
        return _only_agent(module, target)
    found: object = module
    for part in name.split("."):
        found = getattr(found, part, None)
    if found is None:
        known = ", ".join(_agents(module)) or "none"
        raise UsageError(f"{place} has no {name!r}", known=f"agents in it: {known}", next_step=_HINT)
    if not _is_agent(found):
        raise UsageError(
            f"{target} is no agent but a {type(found).__name__}",
            next_step=f"declare it with @agent(...): async def {name}(run: Run, given: ...) -> ...",
        )
    return found


def load_agents(targets: Iterable[str]) -> list[AnyAgent]:
    """The agents of several targets; one that is named twice is loaded once."""
    return [load_agent(target) for target in dict.fromkeys(targets)]


def load_function(target: str) -> Callable[..., Any]:
    """A function of yours, named as an agent is. Raises `UsageError` saying what is wrong with it."""
    place, name = _split(target)
    found: object = _module(place, target)
    for part in name.split("."):
        found = getattr(found, part, None)
    if not name or not callable(found):
        raise UsageError(f"{target} is no function", next_step="name one as in checks.py:end_state")
    return found


def _split(target: str) -> tuple[str, str]:
    place, _, name = target.rpartition(":")
    if not place and target.endswith(".py"):
        return target, ""
    if not place or not (name or place.endswith(".py")):
        raise UsageError(f"{target!r} names no agent", next_step=_HINT)
    return place, name


def _module(place: str, target: str) -> ModuleType:
    try:
        return _outside_a_loop(lambda: _from_file(Path(place)) if place.endswith(".py") else _by_name(place))
    except HoldfastError:
        raise
    except Exception as error:
        raise UsageError(
            f"{place} could not be loaded: {type(error).__name__}: {error}",
            known=_where(error, place),
            next_step=f"correct it and try again; python -c 'import ...' of {target} shows the whole traceback",
        ) from error


def _outside_a_loop(load: Callable[[], ModuleType]) -> ModuleType:
    """Load a module in a thread: a program may call `asyncio.run` to open its app, and commands have a loop already."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(load).result()


def _from_file(path: Path) -> ModuleType:
    """Load a file under the name by which others would import it, so that both get the same module."""
    if not path.is_file():
        raise UsageError(f"there is no file {path}", next_step=_HINT)
    path = path.resolve()
    directory = str(path.parent)
    if directory not in sys.path:
        sys.path.insert(0, directory)
    known = sys.modules.get(path.stem)
    if known is not None and getattr(known, "__file__", None) == str(path):
        return known
    name = path.stem if known is None and path.stem.isidentifier() else f"holdfast_target_{abs(hash(str(path)))}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path} is no Python file", next_step=_HINT)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        with loading():
            spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(name, None)
        raise
    return module


def _by_name(name: str) -> ModuleType:
    here = os.getcwd()  # noqa: PTH109 - sys.path holds texts
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise
        raise UsageError(
            f"there is no module {error.name}", known=f"looked in {here} and on sys.path", next_step=_HINT
        ) from error


def _is_agent(value: object) -> TypeGuard[AnyAgent]:
    return isinstance(value, Agent)


def _agents(module: ModuleType) -> dict[str, AnyAgent]:
    return {name: value for name, value in vars(module).items() if _is_agent(value)}


def _only_agent(module: ModuleType, target: str) -> AnyAgent:
    found = _agents(module)
    if len(found) == 1:
        return next(iter(found.values()))
    known = ", ".join(found) or "none"
    raise UsageError(
        f"{target} has {len(found)} agents", known=f"agents in it: {known}", next_step=f"say which: {target}:name"
    )


def _where(error: BaseException, place: str) -> str:
    """The last line of the user's own code that the error went through."""
    if isinstance(error, SyntaxError):
        return f"line {error.lineno} of {error.filename}"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "importlib" not in frame.filename]
    own = [frame for frame in frames if Path(frame.filename).name == Path(place).name] or frames
    return f"line {own[-1].lineno} of {own[-1].filename}" if own else ""
