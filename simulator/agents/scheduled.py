"""The agent whose runs schedules submit: it performs a few short steps, about things of its own."""

from __future__ import annotations

from typing import Final

import msgspec

from beforehand.agent.agent import Agent, agent
from beforehand.agent.run import Run
from simulator.agents.scripted import perform
from simulator.agents.tools import standard_tools
from simulator.plan import Script, Step


class Round(msgspec.Struct, frozen=True):
    """The input that a schedule declares: the kinds of its steps, and what its runs are about."""

    about: str
    kinds: tuple[str, ...] = ()


SCHEDULED: Final = "rounds"


def scheduled_agent(*, newer: bool) -> Agent[Round, list[str]]:
    """The agent of one version of the code."""
    return _AGENTS[newer]


def _make(*, newer: bool) -> Agent[Round, list[str]]:
    tools = standard_tools(newer=newer)

    @agent(tools=tools.values(), version="2" if newer else "1", name=SCHEDULED)
    async def rounds(run: Run, job: Round) -> list[str]:
        steps = (Step(kind, f"{run.id}-{number}") for number, kind in enumerate(job.kinds))
        return await perform(run, tools, Script(run.id, tuple(steps)))

    return rounds


_AGENTS: Final = {newer: _make(newer=newer) for newer in (False, True)}
