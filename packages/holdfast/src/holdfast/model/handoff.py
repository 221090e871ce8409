"""Handing a run over: what a person is given with it, and what another agent may do in it. Pure."""

from __future__ import annotations

from typing import Final, Protocol

import msgspec

from holdfast.errors import UsageError

ANYBODY: Final = "person"
"""To hand over to this name is to hand over to whoever looks; any other name is a queue."""
DEEPEST: Final = 8
"""How many agents deep one run may be handed over."""
TAKE_OVER: Final = "take_over"
"""The order by which a person goes on in the place of the agent: the run ends."""

HALTED: Final = frozenset({"diverged", "error", "quarantined"})
"""Why a run stopped without an end or an order: a person says how it goes on."""


class Ended(Protocol):
    """An order that ends a run."""

    @property
    def command(self) -> str:
        """Which one."""
        ...

    @property
    def by(self) -> str:
        """Whose it is."""
        ...

    @property
    def note(self) -> str:
        """Why."""
        ...


def why_ended(order: Ended) -> str:
    """Why a run ended by order, in words."""
    if order.command == TAKE_OVER:
        return f"{order.by} took it over" + (f": {order.note}" if order.note else "")
    return order.note or f"cancelled by {order.by}"


def after_stop(run: str, reason: str) -> tuple[str, str]:
    """What is known of a run that stopped for this reason, and how it goes on; empty where it does not."""
    if reason == "undone":
        return "what could be undone is undone; it does not go on", ""
    if reason == "handed_over":
        return "its outcomes stand; it does not go on", ""
    if reason == "cancelled":
        return "its outcomes stand; nothing more is sent", f"only if it is to go on after all: holdfast resume {run}"
    return "its outcomes stand; it can go on under the same id", f"after a fix: holdfast resume {run}"


class Authority(msgspec.Struct, frozen=True):
    """What code may do that a run was handed over to: the tools it may call, and how deep it stands."""

    agent: str
    tools: frozenset[str]
    depth: int


def within(held: Authority | None, agent: str, tools: frozenset[str], run: str) -> Authority:
    """The authority of `agent`, which wants these tools: no more than whoever hands over has. Raises `UsageError`."""
    depth = 1 if held is None else held.depth + 1
    if depth > DEEPEST:
        raise UsageError(
            f"run {run} was handed over {DEEPEST} times, each time from inside the last",
            next_step="let agents return what they found, instead of handing over further",
        )
    return Authority(agent, tools if held is None else tools & held.tools, depth)
