"""The runtime's own runs and notes: agents that send notices, planted cases, and the health of its processes.

A run of the runtime causes no further notices and no questions to people.
"""

from __future__ import annotations

from typing import Final

import msgspec

PREFIX: Final = "beforehand:"
PLANTED: Final = f"{PREFIX}planted:"
"""Prefix of the agent of a planted case: a question that only shows whether reviewers read. The agent that it is shown
under follows. No code drives such a run, and no command to it is applied, so that nothing of it is ever sent."""
HEALTH: Final = "health/"
"""Name prefix of the note in which a process publishes the failures of its house-keeping."""


def is_system(agent: str) -> bool:
    """True if a run of this agent belongs to the system itself."""
    return agent.startswith(PREFIX)


def is_planted(agent: str) -> bool:
    """True if a run of this agent was planted."""
    return agent.startswith(PLANTED)


def shown_agent(agent: str) -> str:
    """The agent as people are shown it."""
    return agent.removeprefix(PLANTED)


class Trouble(msgspec.Struct, frozen=True):
    """A house-keeping task that fails: what it does, why it fails, and since which wall clock."""

    task: str
    error: str
    since_ms: int


def troubles_in(note: bytes) -> list[Trouble]:
    """The failures in such a note; none if it cannot be read."""
    try:
        return msgspec.json.decode(note, type=list[Trouble])
    except (msgspec.MsgspecError, ValueError):
        return []
