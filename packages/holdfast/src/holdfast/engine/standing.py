"""Standing permissions in use: looked for where a person would be asked, and counted where they let something leave.

The count is a ledger entry under the next number, in the commit of the record that uses it (the first attempt, or the
hold). Whoever comes second finds the number taken and looks again; a revocation takes a number as well. So no two
processes overspend one, and nothing leaves on one after it was revoked.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

import msgspec

from holdfast.errors import ArgumentError
from holdfast.journal.bodies import read, values_in, written
from holdfast.journal.port import Journal, Post
from holdfast.model.names import same_person
from holdfast.model.policy import terms
from holdfast.model.preapproval import GIVEN, Spent, Standing, Use, spent_by, uses_stream, why_not

if TYPE_CHECKING:
    from holdfast.engine.flight import Flight


class Permit(msgspec.Struct, frozen=True):
    """A standing permission that covers an operation, as this process saw it last. `cost` is what one use takes."""

    standing: Standing
    cost: float
    arguments: msgspec.Raw


async def given(journal: Journal) -> list[Standing]:
    """Every permission that was ever given, the oldest first."""
    return await values_in(journal, GIVEN, Standing)


async def spent_of(journal: Journal, permission: str) -> Spent:
    """How one permission stands."""
    entries = await journal.entries(uses_stream(permission))
    return spent_by([read(entry, Use) for entry in entries])


def use_post(permission: str, spent: Spent, use: Use) -> Post:
    """The entry that takes the next number."""
    return Post(uses_stream(permission), str(spent.number + 1), written(use))


async def permitted(flight: Flight) -> bool:
    """Whether somebody allowed this beforehand; then the flight has a permit, and nobody is asked."""
    flight.permit = None
    operation = flight.operation
    if not flight.journaled or not _one_may_allow(flight):
        return False
    if flight.elsewhere is not None or operation.phase == "gated" or operation.edits or not operation.intent.executable:
        return False
    for standing in await given(flight.instance.engine.journal):
        if (permit := _fitting(flight, standing)) is not None and await counted(flight, permit) is not None:
            flight.permit = permit
            return True
    return False


def _one_may_allow(flight: Flight) -> bool:
    """Whether one person's yes is all that is asked for, and nobody looks at it as a sample or in doubt."""
    gate, ruling = flight.contract().gate if flight.gate else None, flight.operation.ruling
    if ruling is not None and ruling.asks and not ruling.may_be_allowed:
        return False
    on = terms(gate, ruling)
    if on.require is not None:
        return False  # who gave the permission may have signed in long ago, or not at all
    return on.people == 1 and (gate is not None or (ruling is not None and ruling.asks))


async def counted(flight: Flight, permit: Permit) -> Post | None:
    """The entry that uses a permit now; None where it does not cover this any more."""
    engine = flight.instance.engine
    spent = await spent_of(engine.journal, permit.standing.id)
    now_ms = engine.seams.clock.wall_ms() + engine.settings.clock_error_ms
    if permit.arguments != flight.operation.intent.arguments or why_not(permit.standing, spent, permit.cost, now_ms):
        return None
    return use_post(permit.standing.id, spent, Use(flight.id, permit.cost, spent.sum + permit.cost))


def _fitting(flight: Flight, standing: Standing) -> Permit | None:
    """The permit where the tool and the condition fit. What cannot be judged does not fit."""
    tool, intent = flight.tool, flight.operation.intent
    if tool is None or standing.tool != intent.tool or same_person(_proposed_by(flight), standing.by):
        return None
    try:
        arguments = flight.decoded()
        if not tool.gated(standing.where, arguments):
            return None
    except (ArgumentError, ValueError):
        return None
    cost = _number(arguments.get(standing.amount)) if standing.amount else 0.0
    return None if cost is None else Permit(standing, cost, intent.arguments)


def _proposed_by(flight: Flight) -> str:
    started = flight.instance.history.started
    return "" if started is None else started.by


def _number(value: object) -> float | None:
    """An amount; None for what is none."""
    return float(value) if isinstance(value, (int, float, Decimal)) and not isinstance(value, bool) else None
