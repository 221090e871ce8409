"""Where a new operation meets the effects of others: reading and writing claims and repeats."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from holdfast.engine.elsewhere import (
    Holder,
    begun,
    claim_stream,
    first_use_ms,
    last_holder,
    last_write,
    next_claim,
    repeat_stream,
    said,
    settled_posts,
    taken,
)
from holdfast.engine.flight import Flight
from holdfast.engine.forks import done_by_an_ancestor
from holdfast.engine.pendings import look_for_pending, taking_post
from holdfast.journal.port import Post
from holdfast.model.decision.situation import Elsewhere
from holdfast.model.operation import OperationState
from holdfast.policies import milliseconds

CLAIM_OF: Final = "the claim of "
"""What an operation waits for, in its record, before the name of the operation that holds its business key."""


def may_meet(flight: Flight, operation: OperationState) -> bool:
    """Whether a new operation may meet the effect of another one: then the ledger is read before it is sent."""
    instance, intent = flight.instance, operation.intent
    return intent.meets_others or bool(instance.history.forked_from) or intent.tool in instance.engine.pending_ways


async def look_elsewhere(flight: Flight) -> None:
    """Look for effects of others before the first attempt.

    What is pending about the same thing, who holds the business key, who said the same words, what a fork would repeat.
    """
    if flight.operation.attempts:
        return
    flight.holder = flight.elsewhere = None
    if flight.waiting_since is None:
        flight.waiting_since = flight.instance.now().up
    if (pending := await look_for_pending(flight)) is not None:
        waited_out = _waited_ms(flight) >= flight.instance.engine.settings.claim_wait_ms
        flight.elsewhere = replace(pending, waited_out=waited_out)
        return
    if flight.operation.intent.claim:
        await _look_at_claim(flight)
    if flight.elsewhere is None and flight.operation.intent.words:
        await _look_at_words(flight)
    if flight.elsewhere is None and flight.instance.history.forked_from:
        flight.elsewhere = await done_by_an_ancestor(flight)


async def _look_at_claim(flight: Flight) -> None:
    intent = flight.operation.intent
    entries = await flight.instance.engine.journal.entries(claim_stream(intent.tool, intent.claim))
    holder = last_holder(entries)
    flight.holder = holder
    if holder is not None and holder.stands and holder.note.operation != flight.id:
        mismatch = holder.note.digest != intent.digest
        flight.elsewhere = replace(_standing(flight, "claim", holder), mismatch=mismatch)
        return
    if holder is not None and holder.stands:
        flight.taking = None
        return  # it is ours: taken when the effect was held, and taking it again would be refused for ever
    flight.taking = next_claim(holder)
    first = first_use_ms(entries, flight.taking[1])
    flight.key_age_ms = 0 if first is None else max(0, flight.instance.engine.seams.clock.wall_ms() - first)


async def _look_at_words(flight: Flight) -> None:
    """Calls in agent code are deliberate; only what a model chose meets the repeat guard."""
    intent, tool = flight.operation.intent, flight.tool
    once = tool.contract.once if tool is not None else None
    if once is None or intent.origin != "model" or once.then == "allow":
        return
    engine = flight.instance.engine
    entries = await engine.journal.entries(repeat_stream(intent.tool, intent.words))
    within = milliseconds(once.within) if once.within is not None else None
    flight.after = begun(entries)
    holder = last_write(entries, flight.id, within, engine.seams.clock.wall_ms())
    if holder is None or not holder.stands:
        return
    if holder.note.digest != intent.digest and not once.reworded:
        return
    flight.holder = holder
    flight.elsewhere = replace(_standing(flight, "guard", holder), then=once.then)


def _standing(flight: Flight, by: str, holder: Holder) -> Elsewhere:
    return Elsewhere(
        "claim" if by == "claim" else "guard",
        "succeeded" if holder.note.state == "succeeded" else "pending",
        holder.note.operation,
        waited_out=_waited_ms(flight) >= flight.instance.engine.settings.claim_wait_ms,
        deferred=_is_deferred(flight, holder.note.operation),
    )


def _is_deferred(flight: Flight, operation: str) -> bool:
    """Whether another operation of this run waits for an answer that comes later."""
    run, _, step = operation.partition("/")
    other = flight.instance.history.operations.get(step) if run == flight.instance.run else None
    return other is not None and other.phase == "awaiting"


def _waited_ms(flight: Flight) -> int:
    """How long this operation has waited for another one, whichever processes did the waiting."""
    operation, now = flight.operation, flight.instance.now()
    if operation.waits_for.startswith(CLAIM_OF):
        return now.up - (operation.planned_up if operation.planned_boot == now.boot else flight.instance.claimed_up)
    return now.up - (now.up if flight.waiting_since is None else flight.waiting_since)


def taking_posts(flight: Flight) -> tuple[Post, ...]:
    """The ledger entries that go with the first attempt."""
    intent = flight.intent
    if flight.operation.attempts or not flight.journaled:
        return ()
    posts: list[Post] = []
    if intent.claim and flight.taking is not None:
        stream = claim_stream(intent.tool, intent.claim)
        posts.append(taken(stream, flight.id, intent.digest, intent.generation, intent.outside))
    if intent.words:
        posts.append(said(repeat_stream(intent.tool, intent.words), flight.id, intent.digest, flight.after))
    return (*posts, *taking_post(flight))


def settling_posts(flight: Flight, settled: OperationState) -> tuple[Post, ...]:
    """The ledger entries that go with a final outcome of this flight."""
    return settled_posts(flight.id, settled) if flight.journaled else ()
