"""Memory that outlives a run: facts about a user, lessons from failures, and conversations. Never what was done.

What a run did is its own records, and a `Receipt` is the only proof of it. These are of other types and in other
streams of the ledger, so that "the invoice was sent" cannot come from a memory. A compacted conversation is shown as
a summary and the messages since; effects are read from the records of the runs each time, so compaction cannot lose
them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from beforehand.model.ids import stream

Kind = Literal["fact", "preference", "constraint"]


class Remembered(msgspec.Struct, frozen=True, omit_defaults=True):
    """One entry about a user. `source` is its origin, and `run` the run that learned it.

    `at_ms` and `until_ms` are wall clocks; after `until_ms` the entry is no longer recalled. `gone`: it was forgotten.
    """

    name: str
    value: Any
    kind: Kind = "fact"
    source: str = ""
    run: str = ""
    at_ms: int = 0
    until_ms: int | None = None
    gone: bool = False


class Heeded(msgspec.Struct, frozen=True, omit_defaults=True):
    """One entry about a lesson: that it was learned, or whether it held when it was tried."""

    text: str
    run: str
    held: bool | None = None


class Lesson(msgspec.Struct, frozen=True):
    """A heuristic from an earlier failure, the run that learned it, and how often it was right or wrong."""

    text: str
    run: str
    held: int = 0
    failed: int = 0


def memory_stream(user: str) -> str:
    """The ledger stream of what is known about a user."""
    return stream("memory", user)


def lessons_stream(topic: str) -> str:
    """The ledger stream of the lessons on a topic."""
    return stream("lessons", topic)


def known(entries: Iterable[Remembered], now_ms: int) -> dict[str, Remembered]:
    """Present knowledge: the newest entry on each name, if it is neither forgotten nor too old."""
    newest = {entry.name: entry for entry in entries}
    return {
        name: entry
        for name, entry in newest.items()
        if not entry.gone and (entry.until_ms is None or now_ms < entry.until_ms)
    }


def lessons(entries: Iterable[Heeded]) -> list[Lesson]:
    """Every lesson, the one that held most often first."""
    found: dict[str, Lesson] = {}
    for entry in entries:
        lesson = found.get(entry.text) or Lesson(entry.text, entry.run)
        held, failed = lesson.held + (entry.held is True), lesson.failed + (entry.held is False)
        found[entry.text] = msgspec.structs.replace(lesson, held=held, failed=failed)
    return sorted(found.values(), key=lambda one: (one.failed - one.held, one.text))


# --- conversations --------------------------------------------------------------------------------------------------


class Spoken(msgspec.Struct, frozen=True, omit_defaults=True):
    """One entry, and who made it: a message in plain JSON, or a summary of all messages up to the entry `covers`."""

    run: str
    step: str
    message: Any = None
    summary: str = ""
    covers: int = 0


class ConversationView(NamedTuple):
    """A conversation as it is shown: a summary of what came before, and the messages by their entries."""

    summary: str
    messages: Sequence[tuple[int, Any]]
    covers: int
    runs: tuple[str, ...]


def conversation_stream(name: str) -> str:
    """The ledger stream of a conversation."""
    return stream("conversation", name)


def view_of(entries: Mapping[int, Spoken], through: int) -> ConversationView:
    """The view of these entries, up to the one `through`: the summary that covers most, and what it does not."""
    delivered = [(number, entries[number]) for number in sorted(entries) if number <= through]
    summary, covers = "", 0
    for _, entry in delivered:
        if entry.summary and entry.covers >= covers:
            summary, covers = entry.summary, entry.covers
    messages = [(number, entry.message) for number, entry in delivered if not entry.summary and number > covers]
    return ConversationView(summary, messages, covers, tuple(dict.fromkeys(entry.run for _, entry in delivered)))
