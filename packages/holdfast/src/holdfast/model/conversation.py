"""What was said, as a stream of its own: apart from what a run did, from what is known about a user, and from lessons.

A conversation may be compacted: then it is shown as a summary and what was said since. What was done is not in it, and
so cannot be lost from it: that is read from the records of the runs, each time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from holdfast.model.ids import stream


class Spoken(msgspec.Struct, frozen=True, omit_defaults=True):
    """One entry, and who made it: a message in plain JSON, or a summary of all messages up to the entry `covers`."""

    run: str
    step: str
    message: Any = None
    summary: str = ""
    covers: int = 0


class Told(NamedTuple):
    """A conversation as it is shown: a summary of what came before, and the messages by their entries."""

    summary: str
    messages: Sequence[tuple[int, Any]]
    covers: int
    runs: tuple[str, ...]


def conversation_stream(name: str) -> str:
    """The ledger stream of a conversation."""
    return stream("conversation", name)


def told(entries: Mapping[int, Spoken], through: int) -> Told:
    """What is shown of these entries, up to the one `through`: the summary that covers most, and what it does not."""
    heard = [(number, entries[number]) for number in sorted(entries) if number <= through]
    summary, covers = "", 0
    for _, entry in heard:
        if entry.summary and entry.covers >= covers:
            summary, covers = entry.summary, entry.covers
    messages = [(number, entry.message) for number, entry in heard if not entry.summary and number > covers]
    return Told(summary, messages, covers, tuple(dict.fromkeys(entry.run for _, entry in heard)))
