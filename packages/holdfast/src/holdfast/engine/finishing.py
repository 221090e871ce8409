"""Ending what a run has begun without its code: its tasks, and its transactions."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Any, Final

from holdfast.engine.closing import call_off, start_closing
from holdfast.engine.instance import Instance
from holdfast.engine.loading import load
from holdfast.engine.refusing import abandon
from holdfast.engine.rest import Ending
from holdfast.errors import ClaimUnproven, TransactionAborted
from holdfast.model.receipts import receipts_in, unproven
from holdfast.model.run_history import RunHistory, open_boundaries
from holdfast.model.transaction import WHOLE_RUN, encloses

LOG: Final = logging.getLogger("holdfast")


def undoing(history: RunHistory) -> bool:
    """Whether the whole run is being undone."""
    whole = history.transactions.get(WHOLE_RUN)
    return whole is not None and history.status != "undone"


async def call_off_everything(instance: Instance, why: str) -> Ending | None:
    """The run was cancelled: call off its open transactions and finish every begun one, without agent code.

    How the run has to rest, if that takes long; None when it is done.
    """
    instance.evict(why)
    await unwind(instance)
    for boundary in open_boundaries(instance.history):
        if boundary.phase == "open":
            call_off(instance, boundary.name, f"the run was cancelled: {why}")
    return await close_boundaries(instance)


async def close_boundaries(instance: Instance) -> Ending | None:
    """Finish every boundary from the records, without agent code; how the run has to rest, if that takes long."""
    for boundary in open_boundaries(instance.history):
        start_closing(instance, boundary.name)
    instance.wake()
    while instance.closing:
        if instance.ending.done():
            if instance.ending.result().kind != "cancelled":
                return instance.ending.result()
            instance.evict("it was cancelled")  # an order that changes nothing about what is being finished
        instance.consider_rest()
        waits: set[asyncio.Future[Any]] = {*(instance.drivers[key] for key in instance.closing), instance.ending}
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    return _unclosed(instance)


def _unclosed(instance: Instance) -> Ending | None:
    """How the run ends where the task of a boundary ended and the boundary did not.

    Otherwise the run would be recorded as undone or cancelled while effects stand that nothing compensates any more.
    """
    if instance.ending.done() and instance.ending.result().kind != "cancelled":
        return instance.ending.result()
    unclosed = open_boundaries(instance.history)
    return Ending("failed", f"the transaction {unclosed[0].name} could not be closed") if unclosed else None


async def unwind(instance: Instance) -> None:
    """End the tasks of agent code; whatever their cleanup tries is refused. One that does not end is abandoned."""
    tasks = instance.root.tasks()
    for branch in tasks:
        branch.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=instance.engine.settings.grace_ms / 1000)
    look_at(tasks)
    for branch in tasks:
        if not branch.done():
            abandon(instance, branch)


def look_at(tasks: Iterable[asyncio.Task[object]]) -> None:
    """Fetch what ended these tasks: nobody else will, and asyncio would report it as forgotten."""
    for task in tasks:
        if task.done() and not task.cancelled():
            task.exception()


def tell_unheard(instance: Instance) -> None:
    """Say of a run that has ended which messages its code was never told; they stay on record."""
    messages = instance.history.messages
    for message in () if messages is None else messages.unheard:
        LOG.warning("run %s ended, and its code has not heard what %s said: %s", instance.run, message.by, message.text)


def called_off_by(error: BaseException) -> tuple[str, ...]:
    """The transactions whose calling off is what stopped the run: after a fix they begin anew."""
    names: list[str] = []
    seen: set[int] = set()
    at: BaseException | None = error
    while at is not None and id(at) not in seen:
        seen.add(id(at))
        if isinstance(at, TransactionAborted) and at.transaction:
            names.append(at.transaction)
        at = at.__cause__ or at.__context__
    return tuple(name for name in names if not any(encloses(other, name) for other in names if other != name))


async def unproven_claims(instance: Instance, requires: tuple[str, ...], result: object) -> ClaimUnproven | None:
    """What the run claims to have done and its records do not prove; they are read again, as memory let go of them."""
    if not requires and next(receipts_in(result), None) is None:
        return None
    await instance.settle_writes()
    missing = unproven(await load(instance.engine, instance.run), requires, result)
    if not missing:
        return None
    text = f"run {instance.run} claims what is not proven: {'; '.join(missing)}"
    return ClaimUnproven(text, run=instance.run, missing=tuple(missing))
