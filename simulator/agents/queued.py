"""The agents whose runs are submitted to queues: each performs a script, as the agents do that are started."""

from __future__ import annotations

from typing import Final

import msgspec

from beforehand.agent.agent import Agent, agent
from beforehand.agent.run import Run
from simulator.agents.scripted import perform
from simulator.agents.tools import standard_tools
from simulator.plan import Script, Submission


class Job(msgspec.Struct, frozen=True):
    """The input of a submitted run: its script, and what it is about."""

    script: Script
    about: str


QUEUED_AGENTS: Final = ("desk", "clerk")


def queued_agents(*, newer: bool) -> tuple[Agent[Job, list[str]], ...]:
    """The agents of one version of the code."""
    return tuple(_AGENTS[name, newer] for name in QUEUED_AGENTS)


def agent_named(name: str, *, newer: bool) -> Agent[Job, list[str]]:
    """One agent of one version of the code."""
    return _AGENTS[name, newer]


def job_of(script: Script, submission: Submission) -> Job:
    """The input with which that script is submitted."""
    return Job(script, submission.about)


def _make(name: str, *, newer: bool) -> Agent[Job, list[str]]:
    tools = standard_tools(newer=newer)

    @agent(run_id="{job.script.id}", tools=tools.values(), version="2" if newer else "1", name=name)
    async def queued(run: Run, job: Job) -> list[str]:
        return await perform(run, tools, job.script)

    return queued


_AGENTS: Final = {(name, newer): _make(name, newer=newer) for name in QUEUED_AGENTS for newer in (False, True)}
