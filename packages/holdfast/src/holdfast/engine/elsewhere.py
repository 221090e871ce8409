"""Effects of other operations that a new one may meet: business keys, and repeats by a model.

Both are ledger streams, so they outlive the runs that wrote them. A business key is a claim: its
generation is taken by compare-and-set in the same commit as the attempt it allows. `outside` numbers
the outside key: it moves on only where the former effect is proven not to stand, so that a released
claim is retried under the key that the system already knows.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from holdfast.engine.pendings import releasing_posts
from holdfast.journal.bodies import read, written
from holdfast.journal.port import Entry, Post
from holdfast.model.ids import stream
from holdfast.model.operation import OperationState
from holdfast.model.records import NOTHING, Raw

State = Literal["taken", "succeeded", "released", "ended"]


class Note(msgspec.Struct, frozen=True, omit_defaults=True):
    """One ledger entry about an effect: which operation, with which arguments, in which state."""

    operation: str
    digest: str
    state: State
    generation: int = 0
    outside: int = 0
    result: Raw = NOTHING


class Holder(msgspec.Struct, frozen=True):
    """Who holds a business key or was last to say the same words. `since_ms` is the wall clock of its first note."""

    note: Note
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


def last_holder(entries: Iterable[Entry]) -> Holder | None:
    """The newest generation of a claim, in its newest state."""
    newest: Holder | None = None
    for entry in entries:
        note = read(entry, Note)
        if newest is None or note.generation >= newest.note.generation:
            began = entry.at_ms if newest is None or note.generation > newest.note.generation else newest.since_ms
            newest = Holder(note, began)
    return newest


def last_write(entries: Iterable[Entry], but: str, within_ms: int | None, now_ms: int) -> Holder | None:
    """The newest write with the same words, `but` for one operation, that is not older than `within_ms`."""
    newest: Holder | None = None
    for entry in entries:
        note = read(entry, Note)
        if note.operation == but:
            continue
        same = newest is not None and newest.note.operation == note.operation
        newest = Holder(note, newest.since_ms if newest is not None and same else entry.at_ms)
    if newest is not None and within_ms is not None and now_ms - newest.since_ms > within_ms:
        return None
    return newest


def first_use_ms(entries: Iterable[Entry], outside: int) -> int | None:
    """The wall clock at which an outside key was first used."""
    uses = [entry.at_ms for entry in entries if read(entry, Note).outside == outside]
    return min(uses, default=None)


def next_claim(holder: Holder | None) -> tuple[int, int]:
    """The generation to take, and the outside key's number: a new one only after a proven end."""
    if holder is None:
        return 1, 1
    note = holder.note
    return note.generation + 1, note.outside + (0 if note.state == "released" else 1)


def taken(stream: str, operation: str, digest: str, generation: int, outside: int) -> Post:
    """The claim itself: the first to post it holds the key."""
    note = Note(operation, digest, "taken", generation, outside)
    return Post(stream, f"{generation}/taken", written(note))


def ended(stream: str, operation: str, state: OperationState) -> Post:
    """What became of a claimed effect."""
    intent = state.intent
    by_person = state.basis is not None and state.basis.by == "person"
    released = state.phase == "cancelled" or (state.phase == "failed" and by_person)
    word: State = "succeeded" if state.phase == "succeeded" else "released" if released else "ended"
    result = state.result if word == "succeeded" else NOTHING
    note = Note(operation, intent.digest, word, intent.generation, intent.outside, result)
    return Post(stream, f"{intent.generation}/{word}", written(note))


def settled_posts(operation: str, settled: OperationState) -> tuple[Post, ...]:
    """The ledger entries that go with a final outcome of an operation that was attempted."""
    intent = settled.intent
    if not settled.final or not (settled.attempts or intent.generation):
        return ()
    posts = list(releasing_posts(operation, settled))
    if intent.claim:
        posts.append(ended(claim_stream(intent.tool, intent.claim), operation, settled))
    if intent.words:
        posts.append(said_and_done(repeat_stream(intent.tool, intent.words), operation, settled))
    return tuple(posts)


def undone_posts(operation: str, forward: OperationState) -> tuple[Post, ...]:
    """The ledger entries that go with amends for an operation: its effect stands no more."""
    intent, posts = forward.intent, list[Post]()
    if intent.claim:
        note = Note(operation, intent.digest, "ended", intent.generation, intent.outside)
        posts.append(Post(claim_stream(intent.tool, intent.claim), f"{intent.generation}/undone", written(note)))
    if intent.words:
        note = Note(operation, intent.digest, "ended")
        posts.append(Post(repeat_stream(intent.tool, intent.words), f"{operation}/undone", written(note)))
    return tuple(posts)


def begun(entries: Iterable[Entry]) -> int:
    """How many writes with the same words were begun."""
    return sum(read(entry, Note).state == "taken" for entry in entries)


def said(stream: str, operation: str, digest: str, after: int | None) -> Post:
    """A write with these words was begun; of several that know of the same `after` earlier ones, one is first."""
    key = f"{operation}/taken" if after is None else f"after {after}"
    return Post(stream, key, written(Note(operation, digest, "taken")))


def said_and_done(stream: str, operation: str, state: OperationState) -> Post:
    """What became of a write with these words."""
    word: State = "succeeded" if state.phase == "succeeded" else "ended"
    note = Note(operation, state.intent.digest, word, result=state.result if word == "succeeded" else NOTHING)
    return Post(stream, f"{operation}/{word}", written(note))
