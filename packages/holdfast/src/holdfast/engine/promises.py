"""Holding: an irreversible effect is kept for the commit of its transaction, and code gets a promise of it."""

from __future__ import annotations

import msgspec

from holdfast.engine.flight import Flight
from holdfast.engine.meetings import look_elsewhere, taking_posts
from holdfast.engine.readings import observe
from holdfast.engine.standing import counted
from holdfast.errors import LedgerTaken
from holdfast.model import records as r
from holdfast.model.run_history import PROMISE


async def hold(flight: Flight) -> None:
    """Keep the effect for the commit of its transaction; its business key is taken now, and code gets a promise."""
    instance, step, transaction = flight.instance, flight.step, flight.operation.intent.hold
    stamp, tool = instance.stamp(), flight.tool
    assert tool is not None, step
    if flight.contract().observes and flight.reading == "unread":
        await observe(flight)  # what it relies on now is what the commit compares with
    known: tuple[r.Record, ...] = ()
    if not flight.recorded:
        known = (*instance.contract_record(tool), flight.planned("its transaction"))
    intent = msgspec.structs.replace(flight.intent, observed=flight.observed)
    posts, approval, standing = taking_posts(flight), "", ""
    if flight.permit is not None:
        if (allowed := await counted(flight, flight.permit)) is None:
            flight.permit = None  # it does not cover this any more: a person is asked
            return
        posts, approval, standing = (*posts, allowed), flight.asks, flight.permit.standing.id
    held = r.OperationHeld(
        step=step, transaction=transaction, intent=intent, approval=approval, standing=standing, **stamp
    )
    promise = r.Delivered(step=step, told=PROMISE, detail=transaction, **stamp)
    try:
        await instance.append(*known, held, promise, posts=posts)
    except LedgerTaken:
        await look_elsewhere(flight)
        return
    flight.taking = flight.permit = None
    instance.settled(step)  # where code waits for it, and another task drives: the promise is there
