"""A model that follows a script, and rephrases its answer when it is asked again."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Generic, TypeVar

T = TypeVar("T")


class ScriptedModel(Generic[T]):
    """Answers by turn: each has its phrasings, the first for the first time asked; the last one is repeated.

    Pass it to `world.use`, so that each run begins the script anew. It has no effects.
    """

    def __init__(self, *turns: Sequence[T]) -> None:
        if not all(turns):
            raise ValueError("a turn without any phrasing: give each at least one answer")
        self._turns = turns
        self.asked: list[int] = []

    async def answer(self, turn: int) -> T:
        """The answer of a turn, counted from 0. Raises `IndexError` after the last one."""
        await asyncio.sleep(0)
        phrasings = self._turns[turn]
        before = self.asked.count(turn)
        self.asked.append(turn)
        return phrasings[min(before, len(phrasings) - 1)]

    def effects(self) -> list[str]:
        """Always empty: asking a model changes nothing."""
        return []

    def reset(self) -> None:
        """Begin the script anew."""
        self.asked.clear()
