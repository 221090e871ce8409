"""Apps that drive runs: opening one, finding the code of a run's agent, and ending in good order."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncGenerator, Callable, Generator, Iterable
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from holdfast.agent.agent import Agent
from holdfast.agent.registry import gather_agents, gather_tools
from holdfast.agent.tool import Tool
from holdfast.app import Holdfast
from holdfast.engine.settings import Settings
from holdfast.errors import JournalDistrusted, NameClash, UnknownRun, UsageError
from holdfast.interfaces.cli.common import Call
from holdfast.interfaces.cli.place import existing_journal, journal_path, policy_path, project_reach, project_targets
from holdfast.interfaces.cli.targets import load_agent, load_agents
from holdfast.interfaces.cli.undriven import worker_of
from holdfast.interfaces.code_location import CodeLocation, noted_code, noted_programs
from holdfast.interfaces.looking import Looking
from holdfast.model.system import is_system

if TYPE_CHECKING:
    from holdfast.interfaces.reaching.reach import Reach

__all__ = [
    "AnyAgent",
    "Holdfast",
    "agents_for",
    "all_tools_at_hand",
    "app_of",
    "ending_by_signal",
    "noted_agents",
    "tools_at_hand",
]

AnyAgent = Agent[Any, Any]
AnyTool = Tool[Any, Any]
_LISTED: Final = 200


@asynccontextmanager
async def app_of(
    call: Call,
    agents: Iterable[AnyAgent],
    *,
    create: bool = False,
    private_webhooks: bool = False,
    reach: Reach | Path | None = None,
) -> AsyncGenerator[Holdfast]:
    """An open app over the journal of this call, under the policy that is named or set.

    Raises `JournalDistrusted` before anything is driven, and `UsageError` for a policy that cannot be meant.
    """
    path = journal_path(call.journal) if create else existing_journal(call.journal)
    settings = Settings(private_webhooks=private_webhooks)
    rules = policy_path(call.policy)
    async with Holdfast(path, agents=agents, policy=rules, settings=settings, recover=False, reach=reach) as app:
        _check_trust(app)
        yield app


def _check_trust(app: Holdfast) -> None:
    """Runs of a distrusted journal would only wait, so they are not even begun. Raises `JournalDistrusted`."""
    identity = app.engine.identity
    if identity.trust == "distrustful":
        raise JournalDistrusted(
            "this journal looks copied, rolled back or restored, so nothing is sent",
            known=identity.reason,
            next_step="find out which file is the newest; then: holdfast doctor --trust NAME [--newest]",
        )


async def agents_for(call: Call, looking: Looking, run: str, targets: tuple[str, ...]) -> list[AnyAgent]:
    """The code of a run's agent: as named, else of pyproject.toml, else where it was found the last time.

    What is named is taken for a run of another program, too: the program may have moved. The project's agent is taken
    for one only where the code of the run's program is no longer where it was. A journal that is not trusted does not
    say which code to load. Raises `UsageError`.
    """
    row = await looking.row(run)
    wanted, program = row.agent, row.program
    agents = load_agents(targets or project_targets())
    named = [agent for agent in agents if agent.name == wanted]
    if is_system(wanted) or any(targets or agent.program == program for agent in named):
        return agents
    if targets:
        known = ", ".join(agent.name for agent in agents)
        raise UsageError(f"run {run} belongs to the agent {wanted!r}", known=f"the targets named here: {known}")
    found = await noted_code(looking.journal, wanted, program)
    if found is None or not found.exists or looking.identity.trust == "distrustful":
        if named:
            call.screen.note((f"Using the project's {wanted}: the code of the program {program} was not found.", "dim"))
            return agents
        raise UsageError(
            f"where is the code of the agent {wanted!r} of run {run}? It belongs to the program {program}",
            known=f"last found as {found.target}" if found is not None else "",
            next_step="name it with --agent file.py:name, or list it under [tool.holdfast] agents in pyproject.toml",
        )
    call.screen.note((f"Using {found.target}, where {wanted} was found the last time.", "dim"))
    code = load_agent(found.target, found.directory)
    return [code] if named else [*agents, code]


async def noted_agents(call: Call, program: str = "") -> list[AnyAgent]:
    """The agents of all runs, or of those of one program, where their code was noted when an app opened the journal.

    Code that was moved away since is left out. Raises `UsageError` where two programs cannot share a worker, for their
    agents or tools have the same names.
    """
    if not journal_path(call.journal).exists():
        return []
    async with call.looking() as looking:
        if looking.identity.trust == "distrustful":
            return []
        names = {agent for agent, _ in await looking.journal.counts() if not is_system(agent)}
        places = [one for name in sorted(names) for one in await noted_programs(looking.journal, name)]
    there = [one for one in places if one.exists and program in ("", one.program)]
    agents = [load_agent(one.target, one.directory) for one in there]
    _check_one_worker(agents, there)
    return agents


def _check_one_worker(agents: list[AnyAgent], places: list[CodeLocation]) -> None:
    try:
        gather_tools(gather_agents(agents).values(), ())
    except NameClash as error:
        programs = dict.fromkeys(one.program for one in places)
        if len(programs) < 2:
            raise
        raise UsageError(
            f"one worker cannot drive all programs of this journal: {error.message}",
            known=f"programs: {', '.join(programs)}",
            next_step="start a worker for each: " + "; ".join(map(worker_of, programs)),
        ) from error


async def tools_at_hand(call: Call, run: str) -> dict[str, AnyTool]:
    """The tools of a run's agent where its code can be found, and none where it cannot."""
    async with call.looking() as looking:
        try:
            return gather_tools(await agents_for(call, looking, run, ()), ())
        except UnknownRun:
            raise
        except UsageError:
            return {}


async def all_tools_at_hand(call: Call) -> dict[str, AnyTool]:
    """The tools of the project's agents, and of those whose runs are listed first, where their code can be found."""
    found: dict[str, AnyTool] = {}
    async with call.looking() as looking:
        first = {(row.agent, row.program): row.run for row in await looking.runs(limit=_LISTED)}
        for run in first.values():
            with suppress(UsageError):
                found = {**gather_tools(await agents_for(call, looking, run, ()), ()), **found}
    return found


@contextmanager
def ending_by_signal() -> Generator[asyncio.Event]:
    """An event that SIGINT and SIGTERM set, so that a worker ends between two moves. A second one is not waited for."""
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    numbers = (signal.SIGINT, signal.SIGTERM)

    def end() -> None:
        stop.set()
        for other in numbers:
            loop.remove_signal_handler(other)

    for number in numbers:
        loop.add_signal_handler(number, end)
    try:
        yield stop
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


def reach_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """`--reach PATH`: who is told when a person is asked."""
    return click.option(
        "--reach",
        metavar="PATH",
        help="Who is told when a person is asked: a reach.yaml. Default: as pyproject.toml says.",
    )(function)


def reach_of(option: str | None) -> Path | None:
    """The file that says who is told: as named, else of pyproject.toml; None where nobody is."""
    return Path(option) if option else project_reach()
