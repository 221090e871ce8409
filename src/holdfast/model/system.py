"""The system's own agents: their runs send notices. What they do is no news, and no question to a person."""

from __future__ import annotations

from typing import Final

PREFIX: Final = "holdfast:"


def is_system(agent: str) -> bool:
    """Whether a run of this agent belongs to the system itself."""
    return agent.startswith(PREFIX)
