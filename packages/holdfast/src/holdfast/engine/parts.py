"""Partial success: an effect that is done, and parts of it whose end comes later.

Each part is an operation of its own that serves the whole, begun in the commit that settles the whole: its attempt
is the one that was made, and from its first moment it awaits its answer as a deferred outcome does. It is never sent.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from holdfast.engine.awaiting import Owner, awaited_stream
from holdfast.engine.ends import clean
from holdfast.engine.flight import Flight, flight_of
from holdfast.engine.instance import Instance
from holdfast.engine.pendings import part_note, pending_post, pending_thing
from holdfast.errors import LedgerTaken
from holdfast.journal.bodies import written
from holdfast.journal.port import Post
from holdfast.model import records as r
from holdfast.model.ids import operation_id
from holdfast.model.operation import OperationState
from holdfast.policies import milliseconds


def items_of(flight: Flight, operation: OperationState, proof: r.End | None) -> tuple[r.PendingItem, ...]:
    """The parts that a success leaves for later: what the call that proves it said, and what a reading is missing.

    What only a reading names is looked for as long as a reading goes on. A part has no parts of its own.
    """
    if operation.intent.completes:
        return ()
    said, contract = proof.pending if proof is not None else (), flight.contract()
    declared = contract.pending
    if declared is not None and declared.item and all(item.name != declared.item for item in said):
        said = (*said, r.PendingItem(declared.item, "", milliseconds(declared.within)))
    if not operation.missing:
        return said
    known = {item.name for item in said}
    named = [clean(name) for name in operation.missing]
    return (
        *said,
        *(
            r.PendingItem(name, "", contract.verify_deadline_ms, contract.verify_every_ms)
            for name in dict.fromkeys(named)
            if name not in known
        ),
    )


async def note_with_items(
    flight: Flight, records: tuple[r.OperationRecord, ...], posts: tuple[Post, ...], items: tuple[r.PendingItem, ...]
) -> None:
    """Record the outcome and every part in one commit, and drive the parts from then on.

    A key that another operation waits for already is not taken: that part is left to its deadline.
    """
    free = _with_keys(flight, items)
    things = {item.about: await pending_thing(flight, item.about) for item in free}
    while True:
        begun, keys = _begin(flight, free, things)
        try:
            await flight.note(*records, *begun, posts=(*posts, *keys))
        except LedgerTaken as taken:
            if taken.stream not in {awaited_stream(item.key) for item in free}:
                raise
            free = [
                msgspec.structs.replace(item, key="") if awaited_stream(item.key) == taken.stream else item
                for item in free
            ]
        else:
            break
    _drive(flight.instance, [record.step for record in begun if isinstance(record, r.OperationDeferred)])


def _with_keys(flight: Flight, items: tuple[r.PendingItem, ...]) -> list[r.PendingItem]:
    """The items with a key each; of two that name the same one, the first has it."""
    seen: set[str] = set()
    named: list[r.PendingItem] = []
    for item in items:
        own = f"{flight.key}.{item.name}"
        key = item.key if item.key and item.key not in seen else own
        seen.add(key)
        named.append(msgspec.structs.replace(item, key=key))
    return named


def _begin(
    flight: Flight, items: list[r.PendingItem], things: Mapping[tuple[str, ...], str]
) -> tuple[list[r.OperationRecord], list[Post]]:
    """What makes each part an operation that awaits its answer, and the ledger entries under which that comes."""
    whole, instance = flight.operation.intent, flight.instance
    records: list[r.OperationRecord] = []
    posts: list[Post] = []
    for place, item in enumerate(items, 1):
        step, stamp = f"{flight.step}/part#{place}", instance.stamp()
        intent = msgspec.structs.replace(
            whole, claim="", generation=0, outside=0, words="", observed=r.NOTHING, expected=r.NOTHING, hold="",
            compensates="", confirms="", thing="", again="", completes=flight.step, item=item.name,
            title="",
        )  # fmt: skip
        until = stamp["at"] + item.within_ms
        records.append(r.AttemptStarted(step=step, token=instance.lease.token, intent=intent, **stamp))
        records.append(
            r.OperationDeferred(
                step=step, number=1, until=until, evidence=item.name, key=item.key, every_ms=item.every_ms,
                thing=things[item.about], **stamp,
            )
        )  # fmt: skip
        posts.extend(pending_post(whole.tool, things[item.about], part_note(flight, step, item.name, until), 1))
        if item.key:
            owner = Owner(operation_id(instance.run, step), 1, intent.tool)
            posts.append(Post(awaited_stream(item.key), "owner", written(owner)))
    return records, posts


def _drive(instance: Instance, steps: list[str]) -> None:
    """Look after each part in a task of its own."""
    from holdfast.engine.closing import start_flight  # noqa: PLC0415 - it stands on the executor, which needs this

    for step in steps:
        start_flight(instance, flight_of(instance, step))
