"""Memory: what this run did (from its records), what is known about a user, and what earlier runs learned.

Three layers, three types, one database. What is recalled is journaled, so that a replay decides on the same; what is
learned is a ledger entry with its own name, so that a crash in between does not write it twice.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import msgspec

from beforehand.agent.run_context import RunContext
from beforehand.errors import UsageError
from beforehand.model.memory import Heeded, Kind, Lesson, Remembered, known, lessons, lessons_stream, memory_stream
from beforehand.policies import milliseconds


async def receipts_digest(context: RunContext) -> str:
    """The effects that are done and those that are pending, as they were when this step was first taken."""
    return await context.value("digest", context.receipts)


class UserMemory:
    """The stored knowledge about one user, across runs: facts, preferences and constraints, each with its source."""

    def __init__(self, context: Callable[[], RunContext], user: str) -> None:
        self._context = context
        self.user = user

    async def recall(self) -> dict[str, Remembered]:
        """The current entries, by name, without those that have expired or were forgotten."""
        context = self._context()

        async def fresh() -> dict[str, Any]:
            entries = [entry for _, entry in await context.entries(memory_stream(self.user), Remembered)]
            return msgspec.to_builtins(known(entries, context.now_ms()))  # type: ignore[no-any-return]  # a dict gives a dict

        recalled = await context.value("recall", fresh)
        return msgspec.convert(recalled, dict[str, Remembered])

    async def learn(
        self, name: str, value: Any, *, kind: Kind = "fact", source: str, expires: timedelta | None = None
    ) -> None:
        """Store an entry about the user. `source` is its origin, a person or a tool; `value` is plain JSON."""
        if not name or not source:
            raise UsageError(
                "a memory needs a name and a source", next_step="name who or what said it: source='the user'"
            )
        context = self._context()
        now = context.now_ms()
        until = None if expires is None else now + milliseconds(expires)
        await _keep(context, memory_stream(self.user), Remembered(name, value, kind, source, context.run, now, until))

    async def forget(self, name: str, *, source: str) -> None:
        """Stop recalling an entry. The ledger keeps the entry and the source of the request."""
        context = self._context()
        entry = Remembered(name, None, source=source, run=context.run, at_ms=context.now_ms(), gone=True)
        await _keep(context, memory_stream(self.user), entry)


class Lessons:
    """The lessons of earlier runs on one topic: heuristics, and how often they were right. They are only advice."""

    def __init__(self, context: Callable[[], RunContext], topic: str) -> None:
        self._context = context
        self.topic = topic

    async def recall(self) -> list[Lesson]:
        """Every lesson on this topic, beginning with the one that was right most often."""
        context = self._context()

        async def fresh() -> dict[str, Any]:
            heeded = [entry for _, entry in await context.entries(lessons_stream(self.topic), Heeded)]
            return {"lessons": msgspec.to_builtins(lessons(heeded))}

        recalled = await context.value("lessons", fresh)
        return msgspec.convert(recalled["lessons"], list[Lesson])

    async def learn(self, text: str) -> None:
        """Store a heuristic that this run has learned."""
        context = self._context()
        await _keep(context, lessons_stream(self.topic), Heeded(text, context.run))

    async def held(self, text: str, *, yes: bool) -> None:
        """Record if a lesson was right when this run applied it."""
        context = self._context()
        await _keep(context, lessons_stream(self.topic), Heeded(text, context.run, yes))


async def _keep(context: RunContext, stream: str, entry: Remembered | Heeded) -> None:
    """Post it once: under the name of this step, so that a process that resumes after a crash posts the same entry."""
    key = f"{context.run}/{context.next_step('remember')}"

    async def fresh() -> str:
        await context.post(stream, key, entry)
        return stream

    await context.value("remember", fresh)
