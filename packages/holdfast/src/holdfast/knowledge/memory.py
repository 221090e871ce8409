"""Memory: what this run did (from its records), what is known about a user, and what earlier runs learned.

Three layers, three types, one database. What is recalled is journaled, so that a replay decides on the same; what is
learned is a ledger entry with its own name, so that a crash in between does not write it twice.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import msgspec

from holdfast.engine import steps
from holdfast.engine.active_run.log import load
from holdfast.engine.active_run.scopes import Scope
from holdfast.errors import UsageError
from holdfast.journal.entry_codec import values_in, written
from holdfast.journal.port import Post
from holdfast.model.memory import Heeded, Kind, Lesson, Remembered, known, lessons, lessons_stream, memory_stream
from holdfast.model.receipts import digest
from holdfast.policies import milliseconds


async def receipts_digest(scope: Scope) -> str:
    """The effects that are done and those that are pending, as they were when this step was first taken."""
    instance = scope.active

    async def fresh() -> str:
        await instance.log.flush()
        return digest(await load(instance.process, instance.run))

    return await steps.value(scope, "digest", fresh)


class UserMemory:
    """The stored knowledge about one user, across runs: facts, preferences and constraints, each with its source."""

    def __init__(self, scope: Callable[[], Scope], user: str) -> None:
        self._scope = scope
        self.user = user

    async def recall(self) -> dict[str, Remembered]:
        """The current knowledge, by name, without entries that have expired or were forgotten."""
        scope = self._scope()
        engine = scope.active.process

        async def fresh() -> dict[str, Any]:
            told = await values_in(engine.journal, memory_stream(self.user), Remembered)
            return msgspec.to_builtins(known(told, engine.environment.clock.wall_ms()))  # type: ignore[no-any-return]  # a dict gives a dict

        recalled = await steps.value(scope, "recall", fresh)
        return msgspec.convert(recalled, dict[str, Remembered])

    async def learn(
        self, name: str, value: Any, *, kind: Kind = "fact", source: str, expires: timedelta | None = None
    ) -> None:
        """Store this about the user. `source` says who or what stated it; `value` is plain JSON."""
        if not name or not source:
            raise UsageError("a memory has a name and a source", next_step="say who or what said it: source='the user'")
        now = self._scope().active.process.environment.clock.wall_ms()
        until = None if expires is None else now + milliseconds(expires)
        await self._keep(Remembered(name, value, kind, source, self._scope().active.run, now, until))

    async def forget(self, name: str, *, source: str) -> None:
        """Stop recalling it. The ledger keeps the entry, and who asked to forget it."""
        now = self._scope().active.process.environment.clock.wall_ms()
        await self._keep(Remembered(name, None, source=source, run=self._scope().active.run, at_ms=now, gone=True))

    async def _keep(self, entry: Remembered) -> None:
        await _keep(self._scope(), memory_stream(self.user), entry)


class Lessons:
    """The lessons of earlier runs on one topic: heuristics, with how often they held. They are advice, never proof."""

    def __init__(self, scope: Callable[[], Scope], topic: str) -> None:
        self._scope = scope
        self.topic = topic

    async def recall(self) -> list[Lesson]:
        """Every lesson on this topic, the one that held most often first."""
        scope = self._scope()

        async def fresh() -> dict[str, Any]:
            heeded = await values_in(scope.active.process.journal, lessons_stream(self.topic), Heeded)
            return {"lessons": msgspec.to_builtins(lessons(heeded))}

        recalled = await steps.value(scope, "lessons", fresh)
        return msgspec.convert(recalled["lessons"], list[Lesson])

    async def learn(self, text: str) -> None:
        """Keep a heuristic that this run has learned."""
        await _keep(self._scope(), lessons_stream(self.topic), Heeded(text, self._scope().active.run))

    async def held(self, text: str, *, yes: bool) -> None:
        """Record whether a lesson held when this run applied it."""
        await _keep(self._scope(), lessons_stream(self.topic), Heeded(text, self._scope().active.run, yes))


async def _keep(scope: Scope, stream: str, entry: Remembered | Heeded) -> None:
    """Post it once: under the name of this step, so that a process that resumes after a crash posts the same entry."""
    instance, step = scope.active, f"{scope.path}remember"
    number = scope.counts.get(step, 0) + 1

    async def fresh() -> str:
        post = Post(stream, f"{instance.run}/{step}#{number}", written(entry))
        await instance.process.journal.post(post)
        return stream

    await steps.value(scope, "remember", fresh)
