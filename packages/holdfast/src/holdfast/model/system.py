"""The system's own agents: their runs send notices. They cause no further notices and no questions to people."""

from __future__ import annotations

from typing import Final

PREFIX: Final = "holdfast:"
PLANTED: Final = f"{PREFIX}planted:"
"""How the agent of a planted run is called; the name of the agent that it is shown under follows."""


def is_system(agent: str) -> bool:
    """True if a run of this agent belongs to the system itself."""
    return agent.startswith(PREFIX)


def is_planted(agent: str) -> bool:
    """True if a run of this agent was planted."""
    return agent.startswith(PLANTED)


def shown_agent(agent: str) -> str:
    """The agent as people are shown it."""
    return agent.removeprefix(PLANTED)
