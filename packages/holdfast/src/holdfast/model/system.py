"""The system's own agents: their runs send notices. What they do is no news, and no question to a person."""

from __future__ import annotations

from typing import Final

PREFIX: Final = "holdfast:"
PLANTED: Final = f"{PREFIX}planted:"
"""How the agent of a planted run is called; the name of the agent that it is shown under follows."""


def is_system(agent: str) -> bool:
    """Whether a run of this agent belongs to the system itself."""
    return agent.startswith(PREFIX)


def is_planted(agent: str) -> bool:
    """Whether a run of this agent was planted."""
    return agent.startswith(PLANTED)


def shown_agent(agent: str) -> str:
    """The agent as people are shown it."""
    return agent.removeprefix(PLANTED)
