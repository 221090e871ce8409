"""Where a new operation meets the effects of others: reading and writing claims and repeats."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, Literal

import msgspec
from msgspec.structs import replace

from holdfast.engine.forks import find_ancestor_write
from holdfast.engine.pending import find_pending, releasing_posts, taking_post
from holdfast.journal.entry_codec import read, written
from holdfast.journal.port import LedgerEntry, Post
from holdfast.model.decision.situation import Elsewhere
from holdfast.model.ids import stream
from holdfast.model.records import NOTHING, Raw
from holdfast.policies import milliseconds

if TYPE_CHECKING:
    from holdfast.engine.operation_driver import OperationDriver
    from holdfast.model.operation import OperationState

CLAIM_OF: Final = "the claim of "
"""What an operation waits for, in its record, before the name of the operation that holds its business key."""


def may_meet_other_effect(flight: OperationDriver, operation: OperationState) -> bool:
    """Whether a new operation may meet the effect of another one: then the ledger is read before it is sent."""
    instance, intent = flight.instance, operation.intent
    return intent.meets_others or bool(instance.history.forked_from) or intent.tool in instance.engine.pending_ways


async def find_other_effect(flight: OperationDriver) -> None:
    """Look for effects of others before the first attempt.

    What is pending about the same thing, who holds the business key, who said the same words, what a fork would repeat.
    """
    if flight.operation.attempts:
        return
    flight.holder = flight.elsewhere = None
    if flight.waiting_since is None:
        flight.waiting_since = flight.instance.now().up
    if (pending := await find_pending(flight)) is not None:
        waited_out = _waited_ms(flight) >= flight.instance.engine.settings.claim_wait_ms
        flight.elsewhere = replace(pending, waited_out=waited_out)
        return
    if flight.operation.intent.claim:
        await _find_claim(flight)
    if flight.elsewhere is None and flight.operation.intent.words:
        await _find_repeat(flight)
    if flight.elsewhere is None and flight.instance.history.forked_from:
        flight.elsewhere = await find_ancestor_write(flight)


async def _find_claim(flight: OperationDriver) -> None:
    intent = flight.operation.intent
    entries = await flight.instance.engine.journal.entries(claim_stream(intent.tool, intent.claim))
    holder = last_holder(entries)
    flight.holder = holder
    if holder is not None and holder.stands and holder.note.operation != flight.id:
        mismatch = holder.note.digest != intent.digest
        flight.elsewhere = replace(_met(flight, "claim", holder), mismatch=mismatch)
        return
    if holder is not None and holder.stands:
        flight.taking = None
        return  # it is ours: taken when the effect was held, and taking it again would be refused for ever
    flight.taking = next_claim(holder)
    first = first_use_ms(entries, flight.taking[1])
    flight.key_age_ms = 0 if first is None else max(0, flight.instance.engine.environment.clock.wall_ms() - first)


async def _find_repeat(flight: OperationDriver) -> None:
    """Calls in agent code are deliberate; only what a model chose meets the repeat guard."""
    intent, tool = flight.operation.intent, flight.tool
    once = tool.contract.once if tool is not None else None
    if once is None or intent.origin != "model" or once.then == "allow":
        return
    engine = flight.instance.engine
    entries = await engine.journal.entries(repeat_stream(intent.tool, intent.words))
    within = milliseconds(once.within) if once.within is not None else None
    flight.after = writes_begun(entries)
    holder = last_write(entries, flight.id, within, engine.environment.clock.wall_ms())
    if holder is None or not holder.stands:
        return
    if holder.note.digest != intent.digest and not once.reworded:
        return
    flight.holder = holder
    flight.elsewhere = replace(_met(flight, "guard", holder), then=once.then)


def _met(flight: OperationDriver, by: str, holder: ClaimHolder) -> Elsewhere:
    return Elsewhere(
        "claim" if by == "claim" else "guard",
        "succeeded" if holder.note.state == "succeeded" else "pending",
        holder.note.operation,
        waited_out=_waited_ms(flight) >= flight.instance.engine.settings.claim_wait_ms,
        deferred=_is_deferred(flight, holder.note.operation),
    )


def _is_deferred(flight: OperationDriver, operation: str) -> bool:
    """Whether another operation of this run waits for an answer that comes later."""
    run, _, step = operation.partition("/")
    other = flight.instance.history.operations.get(step) if run == flight.instance.run else None
    return other is not None and other.phase == "awaiting"


def _waited_ms(flight: OperationDriver) -> int:
    """How long this operation has waited for another one, whichever processes did the waiting."""
    operation, now = flight.operation, flight.instance.now()
    if operation.waits_for.startswith(CLAIM_OF):
        return now.up - (operation.planned_up if operation.planned_boot == now.boot else flight.instance.claimed_up)
    return now.up - (now.up if flight.waiting_since is None else flight.waiting_since)


def taking_posts(flight: OperationDriver) -> tuple[Post, ...]:
    """The ledger entries that go with the first attempt."""
    intent = flight.intent
    if flight.operation.attempts or not flight.journaled:
        return ()
    posts: list[Post] = []
    if intent.claim and flight.taking is not None:
        stream = claim_stream(intent.tool, intent.claim)
        posts.append(claim_post(stream, flight.id, intent.digest, intent.generation, intent.outside))
    if intent.words:
        posts.append(repeat_post(repeat_stream(intent.tool, intent.words), flight.id, intent.digest, flight.after))
    return (*posts, *taking_post(flight))


def settling_posts(flight: OperationDriver, settled: OperationState) -> tuple[Post, ...]:
    """The ledger entries that go with a final outcome of this flight."""
    return outcome_posts(flight.id, settled) if flight.journaled else ()


# Effects of other operations that a new one may meet: business keys, and repeats by a model.
#
# Both are ledger streams, so they outlive the runs that wrote them. A business key is a claim: its
# generation is taken by compare-and-set in the same commit as the attempt it allows. `outside` numbers
# the outside key: it moves on only where the former effect is proven not to stand, so that a released
# claim is retried under the key that the system already knows.


ClaimState = Literal["taken", "succeeded", "released", "ended"]


class ClaimNote(msgspec.Struct, frozen=True, omit_defaults=True):
    """One ledger entry about an effect: which operation, with which arguments, in which state."""

    operation: str
    digest: str
    state: ClaimState
    generation: int = 0
    outside: int = 0
    result: Raw = NOTHING


class ClaimHolder(msgspec.Struct, frozen=True):
    """Who holds a business key or was last to say the same words. `since_ms` is the wall clock of its first note."""

    note: ClaimNote
    since_ms: int

    @property
    def stands(self) -> bool:
        """Whether its effect stands, or may still come to stand."""
        return self.note.state in {"taken", "succeeded"}


def claim_stream(tool: str, business_key: str) -> str:
    """The ledger stream of one business key."""
    return stream("claim", tool, business_key)


def repeat_stream(tool: str, words: str) -> str:
    """The ledger stream of all writes of a tool with the same `once` parameters, by their digest."""
    return stream("once", tool, words)


def reuse_stream(operation: str) -> str:
    """The ledger stream of the operations that reused the outcome of this one."""
    return stream("reused", operation)


def reused_post(source: str, operation: str) -> Post:
    """The ledger entry that says that `operation` reused the outcome of `source`: it relies on it."""
    return Post(reuse_stream(source), operation, operation.encode())


def last_holder(entries: Iterable[LedgerEntry]) -> ClaimHolder | None:
    """The newest generation of a claim, in its newest state."""
    newest: ClaimHolder | None = None
    for entry in entries:
        note = read(entry, ClaimNote)
        if newest is None or note.generation >= newest.note.generation:
            began = entry.at_ms if newest is None or note.generation > newest.note.generation else newest.since_ms
            newest = ClaimHolder(note, began)
    return newest


def last_write(entries: Iterable[LedgerEntry], but: str, within_ms: int | None, now_ms: int) -> ClaimHolder | None:
    """The newest write with the same words, `but` for one operation, that is not older than `within_ms`."""
    newest: ClaimHolder | None = None
    for entry in entries:
        note = read(entry, ClaimNote)
        if note.operation == but:
            continue
        same = newest is not None and newest.note.operation == note.operation
        newest = ClaimHolder(note, newest.since_ms if newest is not None and same else entry.at_ms)
    if newest is not None and within_ms is not None and now_ms - newest.since_ms > within_ms:
        return None
    return newest


def first_use_ms(entries: Iterable[LedgerEntry], outside: int) -> int | None:
    """The wall clock at which an outside key was first used."""
    uses = [entry.at_ms for entry in entries if read(entry, ClaimNote).outside == outside]
    return min(uses, default=None)


def next_claim(holder: ClaimHolder | None) -> tuple[int, int]:
    """The generation to take, and the outside key's number: a new one only after a proven end."""
    if holder is None:
        return 1, 1
    note = holder.note
    return note.generation + 1, note.outside + (0 if note.state == "released" else 1)


def claim_post(stream: str, operation: str, digest: str, generation: int, outside: int) -> Post:
    """The claim itself: the first to post it holds the key."""
    note = ClaimNote(operation, digest, "taken", generation, outside)
    return Post(stream, f"{generation}/taken", written(note))


def claim_ended_post(stream: str, operation: str, state: OperationState) -> Post:
    """What became of a claimed effect."""
    intent = state.intent
    by_person = state.settlement.basis is not None and state.settlement.basis.by == "person"
    released = state.phase == "cancelled" or (state.phase == "failed" and by_person)
    word: ClaimState = "succeeded" if state.phase == "succeeded" else "released" if released else "ended"
    result = state.settlement.result if word == "succeeded" else NOTHING
    note = ClaimNote(operation, intent.digest, word, intent.generation, intent.outside, result)
    return Post(stream, f"{intent.generation}/{word}", written(note))


def outcome_posts(operation: str, settled: OperationState) -> tuple[Post, ...]:
    """The ledger entries that go with a final outcome of an operation that was attempted."""
    intent = settled.intent
    if not settled.final or not (settled.attempts or intent.generation):
        return ()
    posts = list(releasing_posts(operation, settled))
    if intent.claim:
        posts.append(claim_ended_post(claim_stream(intent.tool, intent.claim), operation, settled))
    if intent.words:
        posts.append(repeat_ended_post(repeat_stream(intent.tool, intent.words), operation, settled))
    return tuple(posts)


def undone_posts(operation: str, forward: OperationState) -> tuple[Post, ...]:
    """The ledger entries that go with amends for an operation: its effect stands no more."""
    intent, posts = forward.intent, list[Post]()
    if intent.claim:
        note = ClaimNote(operation, intent.digest, "ended", intent.generation, intent.outside)
        posts.append(Post(claim_stream(intent.tool, intent.claim), f"{intent.generation}/undone", written(note)))
    if intent.words:
        note = ClaimNote(operation, intent.digest, "ended")
        posts.append(Post(repeat_stream(intent.tool, intent.words), f"{operation}/undone", written(note)))
    return tuple(posts)


def writes_begun(entries: Iterable[LedgerEntry]) -> int:
    """How many writes with the same words were begun."""
    return sum(read(entry, ClaimNote).state == "taken" for entry in entries)


def repeat_post(stream: str, operation: str, digest: str, after: int | None) -> Post:
    """A write with these words was begun; of several that know of the same `after` earlier ones, one is first."""
    key = f"{operation}/taken" if after is None else f"after {after}"
    return Post(stream, key, written(ClaimNote(operation, digest, "taken")))


def repeat_ended_post(stream: str, operation: str, state: OperationState) -> Post:
    """What became of a write with these words."""
    word: ClaimState = "succeeded" if state.phase == "succeeded" else "ended"
    note = ClaimNote(
        operation, state.intent.digest, word, result=state.settlement.result if word == "succeeded" else NOTHING
    )
    return Post(stream, f"{operation}/{word}", written(note))
