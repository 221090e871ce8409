"""Agents and apps: load the agent that `file.py:name` or `module:name` names, find the agents of a run, open an app."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import os
import signal
import sys
import traceback
from collections.abc import AsyncGenerator, Callable, Generator, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, TypeGuard

import click

from beforehand.agent.agent import Agent, gather_agents, gather_tools
from beforehand.agent.tool import Tool
from beforehand.app import Beforehand as Beforehand  # noqa: PLC0414 - handed on: this module alone may import it
from beforehand.cli.common import CommandCall
from beforehand.cli.config import existing_journal, journal_address, policy_source, project_file, project_targets
from beforehand.cli.undriven import worker_of
from beforehand.control.code_location import loading, noted_code, noted_programs
from beforehand.engine.settings import Settings
from beforehand.errors import BeforehandError, JournalDistrusted, NameClash, UnknownRun, UsageError
from beforehand.inspect.reader import JournalReader
from beforehand.model.system import is_system

if TYPE_CHECKING:
    from beforehand.extensions import Reachable
    from beforehand.telemetry.following import Follower


AnyAgent = Agent[Any, Any]
_HINT: Final = "TARGET is file.py:name or module:name, as in desk.py:refund_desk"


def load_agent(target: str, directory: str = "") -> AnyAgent:
    """The agent that a target names; `directory` is where modules are looked for first.

    Raises `UsageError` saying what is wrong with it.
    """
    if directory and directory not in sys.path:
        sys.path.insert(0, directory)
    place, name = _split(target)
    module = _module(place)
    agents = _agents(module)
    if not name and len(agents) == 1:
        return next(iter(agents.values()))
    known = ", ".join(agents) or "none"
    if not name:
        raise UsageError(
            f"{target} has {len(agents)} agents", known=f"agents in it: {known}", next_step=f"say which: {target}:name"
        )
    found: object = module
    for part in name.split("."):
        found = getattr(found, part, None)
    if found is None:
        raise UsageError(f"{place} has no {name!r}", known=f"agents in it: {known}", next_step=_HINT)
    if not _is_agent(found):
        raise UsageError(
            f"{target} is not an agent but a {type(found).__name__}",
            next_step=f"declare it with @agent(...): async def {name}(run: Run, given: ...) -> ...",
        )
    return found


def load_agents(targets: Iterable[str]) -> list[AnyAgent]:
    """The agents of several targets; a file alone names all agents in it. One that is named twice is loaded once."""
    return list(load_targets(targets).values())


def load_targets(targets: Iterable[str]) -> dict[str, AnyAgent]:
    """As `load_agents`, each by the target that names it alone."""
    loaded: dict[str, AnyAgent] = {}
    for target in targets:
        place, name = _split(target)
        found = {} if name else _agents(_module(place))
        if len(found) > 1:
            loaded |= {f"{target}:{key}": agent for key, agent in found.items()}
        else:
            loaded[target] = load_agent(target)
    return loaded


def load_function(target: str) -> Callable[..., Any]:
    """A function of yours, named as an agent is. Raises `UsageError` saying what is wrong with it."""
    place, name = _split(target)
    found: object = _module(place)
    for part in name.split("."):
        found = getattr(found, part, None)
    if not name or not callable(found):
        raise UsageError(f"{target} is not a function", next_step="name one as in checks.py:end_state")
    return found


def with_children(agent: AnyAgent) -> list[AnyAgent]:
    """The agent, and those of which it may start child runs: all that its module and the project name.

    What is not about this agent does not keep it from running: where the project's code cannot be loaded, or names
    clash, the others are left out, and a child that is missing is named when it is started.
    """
    own = [*filter(_is_agent, getattr(agent.__wrapped__, "__globals__", {}).values()), agent]
    for others in (project_targets(), ()):
        with suppress(UsageError):
            found = list({one.name: one for one in (*load_agents(others), *own)}.values())
            gather_tools(gather_agents(found).values(), ())
            return found
    return [agent]


def _split(target: str) -> tuple[str, str]:
    place, _, name = target.rpartition(":")
    if not place and target.endswith(".py"):
        return target, ""
    if not place or not (name or place.endswith(".py")):
        raise UsageError(f"{target!r} names no agent", next_step=_HINT)
    return place, name


def _module(place: str) -> ModuleType:
    try:
        with ThreadPoolExecutor(1) as thread:  # a program may call `asyncio.run`, and commands have a loop already
            return thread.submit(lambda: _from_file(Path(place)) if place.endswith(".py") else _by_name(place)).result()
    except BeforehandError:
        raise
    except SystemExit as end:
        raise UsageError(
            f"{place} ends the process when it is loaded: sys.exit({end.code!r})",
            known=_where(end, place),
            next_step="end it under: if __name__ == '__main__':",
        ) from end
    except Exception as error:
        shows = f"python {place}" if place.endswith(".py") else f"python -c 'import {place}'"
        raise UsageError(
            f"{place} could not be loaded: {type(error).__name__}: {error}",
            known=_where(error, place),
            next_step=f"correct it and try again; {shows} shows the whole traceback",
        ) from error


def _from_file(path: Path) -> ModuleType:
    """Load a file under the name by which others would import it, so that both get the same module."""
    if not path.is_file():
        raise UsageError(f"the file {path} does not exist", next_step=_HINT)
    path = path.resolve()
    directory = str(path.parent)
    if directory not in sys.path:
        sys.path.insert(0, directory)
    other = f"beforehand_target_{abs(hash(str(path)))}"  # where another module has that name
    for name in (path.stem, other):
        if (known := sys.modules.get(name)) is not None and getattr(known, "__file__", None) == str(path):
            return known
    name = path.stem if path.stem not in sys.modules and path.stem.isidentifier() else other
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path} is not a Python file", next_step=_HINT)
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
            f"the module {error.name} does not exist", known=f"looked in {here} and on sys.path", next_step=_HINT
        ) from error


def _is_agent(value: object) -> TypeGuard[AnyAgent]:
    return isinstance(value, Agent)


def _agents(module: ModuleType) -> dict[str, AnyAgent]:
    return {name: value for name, value in vars(module).items() if _is_agent(value)}


def _where(error: BaseException, place: str) -> str:
    """The last line of the user's own code that the error went through."""
    if isinstance(error, SyntaxError):
        return f"line {error.lineno} of {error.filename}"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "importlib" not in frame.filename]
    own = [frame for frame in frames if Path(frame.filename).name == Path(place).name] or frames
    return f"line {own[-1].lineno} of {own[-1].filename}" if own else ""


AnyTool = Tool[Any, Any]
_LISTED: Final = 200
MANY_RUNS_GC: Final = 50_000
"""The garbage collector's threshold in a command that may have many live runs, and whose process is its own.

Each visit of the collector costs what all live runs are.
"""


@asynccontextmanager
async def app_of(
    call: CommandCall,
    agents: Iterable[AnyAgent],
    *,
    create: bool = False,
    settings: Settings | None = None,
    reach: Reachable | None = None,
    telemetry: Iterable[Follower] = (),
) -> AsyncGenerator[Beforehand]:
    """An open app over the journal of this call, under the policy that is named or set.

    Raises `JournalDistrusted` before anything is driven, and `UsageError` for an invalid policy.
    """
    address = journal_address(call.journal) if create else existing_journal(call.journal)
    async with Beforehand(
        address, agents=agents, policy=policy_source(call.policy), settings=settings, recover=False, reach=reach,
        queues=project_file("queues"), telemetry=telemetry, prices=project_file("prices"),
    ) as app:  # fmt: skip
        if app.engine.identity.trust == "distrustful":  # its runs would only wait
            raise JournalDistrusted(
                "this journal looks copied, rolled back or restored, so nothing is sent",
                known=app.engine.identity.reason,
                next_step="find out which file is the newest; then: beforehand doctor --trust NAME",
            )
        yield app


async def agents_for(call: CommandCall, reader: JournalReader, run: str, targets: tuple[str, ...]) -> list[AnyAgent]:
    """The code of a run's agent: as named, else of pyproject.toml, else where it was found the last time.

    Named code is used for a run of another program, too: the program may have moved. The project's agent is taken
    for one only where the code of the run's program is no longer where it was. A journal that is not trusted does not
    say which code to load. Raises `UsageError`.
    """
    row = await reader.row(run)
    wanted, program = row.agent, row.program
    agents = load_agents(targets or project_targets())
    named = [agent for agent in agents if agent.name == wanted]
    if is_system(wanted) or any(targets or agent.program == program for agent in named):
        return agents
    if targets:
        known = ", ".join(agent.name for agent in agents)
        raise UsageError(
            f"run {run} belongs to the agent {wanted!r}",
            known=f"the targets named here: {known}",
            next_step=f'name its code; if it was renamed, declare @agent(name="{wanted}")',
        )
    found = await noted_code(reader.journal, wanted, program)
    if found is None or not found.exists or reader.identity.trust == "distrustful":
        if named:
            call.screen.note((f"Using the project's {wanted}: the code of the program {program} was not found.", "dim"))
            return agents
        raise UsageError(
            f"where is the code of the agent {wanted!r} of run {run}? It belongs to the program {program}",
            known=f"last found as {found.target}" if found is not None else "",
            next_step="name it with --agent file.py:name, or list it under [tool.beforehand] agents in pyproject.toml",
        )
    call.screen.note((f"Using {found.target}, where {wanted} was found the last time.", "dim"))
    code = load_agent(found.target, found.directory)
    return [code] if named else [*agents, code]


async def noted_agents(call: CommandCall, program: str = "") -> list[AnyAgent]:
    """The agents of all runs, or of those of one program, where their code was noted when an app opened the journal.

    Code that was moved away since is left out. Raises `UsageError` where two programs cannot share a worker, for their
    agents or tools have the same names.
    """
    if not journal_address(call.journal).exists():
        return []
    async with call.reader() as reader:
        if reader.identity.trust == "distrustful":
            return []
        names = {agent for agent, _ in await reader.journal.counts() if not is_system(agent)}
        places = [one for name in sorted(names) for one in await noted_programs(reader.journal, name)]
    there = [one for one in places if one.exists and program in ("", one.program)]
    agents = [load_agent(one.target, one.directory) for one in there]
    try:
        gather_tools(gather_agents(agents).values(), ())
    except NameClash as error:
        programs = dict.fromkeys(one.program for one in there)
        if len(programs) < 2:
            raise
        raise UsageError(
            f"one worker cannot drive all programs of this journal: {error.message}",
            known=f"programs: {', '.join(programs)}",
            next_step="start a worker for each: " + "; ".join(map(worker_of, programs)),
        ) from error
    return agents


async def tools_at_hand(call: CommandCall, run: str) -> dict[str, AnyTool]:
    """The tools of a run's agent where its code can be found, and none where it cannot."""
    async with call.reader() as reader:
        try:
            return gather_tools(await agents_for(call, reader, run, ()), ())
        except UnknownRun:
            raise
        except UsageError:
            return {}


async def all_tools_at_hand(call: CommandCall) -> dict[str, AnyTool]:
    """The tools of the project's agents, and of those whose runs are listed first, where their code can be found."""
    found: dict[str, AnyTool] = {}
    async with call.reader() as reader:
        first = {(row.agent, row.program): row.run for row in await reader.journal.runs(limit=_LISTED)}
        for run in first.values():
            with suppress(UsageError):
                found = {**gather_tools(await agents_for(call, reader, run, ()), ()), **found}
    return found


class StopSignal(asyncio.Event):
    """The order to end. `interrupted` is true where a person gave it, by SIGINT."""

    interrupted = False


@contextmanager
def ending_by_signal() -> Generator[StopSignal]:
    """An event that SIGINT and SIGTERM set, so that a worker ends between two moves. A second one is not waited for."""
    loop, stop = asyncio.get_running_loop(), StopSignal()
    numbers = (signal.SIGINT, signal.SIGTERM)

    def end(number: signal.Signals) -> None:
        stop.interrupted = number == signal.SIGINT
        stop.set()
        for other in numbers:
            loop.remove_signal_handler(other)

    for number in numbers:
        loop.add_signal_handler(number, end, number)
    try:
        yield stop
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


def reach_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """`--reach PATH`: who is notified when a person is asked."""
    return click.option(
        "--reach", metavar="PATH", help="Notification settings: a reach.yaml. Default: the one in pyproject.toml."
    )(function)


def reach_of(option: str | None) -> Path | None:
    """The file of receivers of notices: as named, else of pyproject.toml; None where there are none."""
    return Path(option) if option else project_file("reach")
