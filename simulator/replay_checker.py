"""Replay, as agent code lives it: what it was told before a write of its own left, it is told again.

As the checker, it reads the world, and what agent code heard; it never asks the product.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Final

from holdfast.testing.world.loop import Actor

PLACE: Final[ContextVar[tuple[str, int]]] = ContextVar("holdfast_simulated_place")
"""The run and the place in its script where agent code is; nothing where the runtime itself is at work."""


class Replays:
    """What the code of every run was told, place by place."""

    def __init__(self, broken: Callable[[int, str], None]) -> None:
        self._broken = broken
        self._told: dict[tuple[str, int], list[str]] = {}
        self._firm: dict[tuple[str, int], tuple[int, list[str]]] = {}
        """What is on record, and how many executions of an agent had begun by then."""
        self._executions = 0

    def restored(self) -> None:
        """The records say less than they did."""
        self._told.clear()
        self._firm.clear()

    def begin(self) -> int:
        """An agent begins anew: the number of this execution."""
        self._executions += 1
        return self._executions

    def told(self, actor: Actor, execution: int, place: tuple[str, int], news: list[str], *, owned: bool) -> None:
        """Agent code has done what stands at one place of its script. A late process may be given what is not recorded.

        So may a process that another one has taken the run from (not `owned`), also where its code begins only then.
        """
        if not actor.alive or not owned:
            return
        since, before = self._firm.get(place, (execution, news))
        if since < execution and before != news:
            self._broken(14, f"run {place[0]} was told {news} at {place[1]}, and {before} before something else left")
        self._told[place] = news

    def sent(self) -> None:
        """A write of agent code is about to leave: what was told before it is on record."""
        run, number = PLACE.get(("", 0))
        for place in range(number):
            news = self._told.get((run, place))
            if news is not None:
                self._firm.setdefault((run, place), (self._executions, news))
