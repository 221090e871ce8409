"""How a run is submitted to a queue: the options, their checks, and the place of the run in the queue."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Protocol

import msgspec

from beforehand.errors import UsageError
from beforehand.journal.port import QueuePlace
from beforehand.model.ids import NAME_LIMIT, can_name
from beforehand.policies import RunBudget
from beforehand.queues.limits import DEFAULT, HIGHEST, LOWEST, Declaration


class NamesFromInput(Protocol):
    """An agent, as far as a place in a queue needs it."""

    @property
    def name(self) -> str:
        """The name of the agent."""
        ...

    def named(self, template: str, given: Any, what: str, otherwise: str) -> str:
        """A template filled with the fields of this input."""
        ...


class Submission(msgspec.Struct, frozen=True):
    """How a run is submitted. It does not begin before `at`."""

    queue: str = DEFAULT
    priority: int = 0
    at: datetime | None = None
    tenant: str = ""
    budget: RunBudget | None = None


def check_place(priority: int, tenant: str) -> None:
    """Raise `UsageError` for a priority or a tenant that no declaration makes right."""
    if not LOWEST <= priority <= HIGHEST:
        raise UsageError(
            f"priority={priority} is not from {LOWEST} to {HIGHEST}",
            next_step="choose one of these; higher goes first",
        )
    if tenant and not can_name(tenant):
        raise UsageError(
            f"{tenant[:NAME_LIMIT]!r} cannot name a tenant",
            next_step=f"use 1 to {NAME_LIMIT} printable characters without / ~ and #",
        )


def place_in(newest: Declaration, agent: NamesFromInput, given: Any, how: Submission) -> QueuePlace:
    """The place of a run on this input in its queue, under these limits.

    Raises `UsageError` for a queue or tenant that is not declared, and where the key of the queue names what the input
    does not have.
    """
    newest.limits.check_names(how.queue, how.tenant)
    queue = newest.limits.queue(how.queue)
    about = agent.named(queue.key, given, f"the key of queue {how.queue}", "use another queue") if queue.key else ""
    draining = newest.mode(how.queue).draining is not None
    return QueuePlace(how.queue, how.tenant, about, how.priority, queue.capacity, newest.entry, draining=draining)
