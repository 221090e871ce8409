"""Drawn trees of runs whose processes die at drawn moments: what holds for all of them, and planted bugs that break it.

Each seed is a story: which children and grandchildren there are, who asks a person, when processes die, and whether the
run at the top is cancelled. Journal calls take time, so that a death falls between two commits.
"""

import asyncio
import contextlib
import random
from collections.abc import Callable
from typing import Any

import pytest

from beforehand import Run
from beforehand.engine import children, commands, run_driver
from beforehand.errors import BeforehandError, LeaseLost
from beforehand.model import records as r
from beforehand.testing.clock import run_virtual
from tests.unit.engine.family import Family
from tests.unit.engine.lab import Lab

RUN = "trip-ann"
STORIES = 12
PATIENCE_MS = 60_000
"""How long after its cancellation a run may still have children that send: as long as another process takes to look."""


class Tale:
    """One story, drawn from a seed. `broken` is the first thing that does not hold."""

    def __init__(self, seed: int) -> None:
        self.lab = Lab()
        self.lab.lag_s = 0.01
        self.chance = random.Random(seed)
        self.things = [f"t{number}" for number in range(self.chance.randint(1, 3))]
        self.asking = {thing for thing in self.things if self.chance.random() < 0.4}
        self.deeper = {thing for thing in self.things if self.chance.random() < 0.4}
        self.cancels = self.chance.random() < 0.5
        self.effects: list[tuple[int, str]] = []
        self.family = Family(self.lab, code=self._top, child=self._child)
        self.broken = ""

    async def _top(self, run: Run, name: str, booking: Any) -> str:
        some = [await run.start(booking, thing) for thing in self.things]
        return " ".join(await run.gather(*(run.join(one) for one in some)))

    async def _child(self, run: Run, what: str, book: Any) -> str:
        if what in self.asking:
            await run.ask("May I?")
        if what in self.deeper:
            await run.join(await run.start(self.family.child, f"{what}-below"))
        done = str(await book(what))
        self.effects.append((self.lab.clock.wall_ms(), what))
        return done

    async def tell(self) -> None:
        """Live through it: processes die, and a last one lives on and has its questions answered."""
        app = await self._begin()
        for number in range(self.chance.randint(1, 4)):
            await asyncio.sleep(self.chance.choice((0.01, 0.1, 1, 10)) * self.chance.random())
            if self.cancels and number == 0:
                app.engine.background(app.service.cancel(RUN, by="bea"), "cancel")
                await asyncio.sleep(0.1 * self.chance.random())
            await self.lab.bury(app, self.lab.processes[-1])
            app = await self._begin()
        if self.cancels:
            with contextlib.suppress(LeaseLost):  # the command is stored; its owner applies it
                await app.service.cancel(RUN, by="bea")
        for _ in range(6):
            await self.lab.pass_time(minutes=2)
            await self._answer(app)
        await self._judge(app)
        await app.aclose()

    async def _begin(self) -> Any:
        app = self.lab.make(*self.family.agents, recover=True)
        await app.open()
        app.start(self.family.parent, "ann")
        await asyncio.sleep(0)
        return app

    async def _answer(self, app: Any) -> None:
        for row in await app.service.runs(status="suspended"):
            if b'"question"' in row.waits:
                try:
                    await app.service.answer(f"{row.run}/ask#1", "yes", by="bea")
                except BeforehandError:
                    continue

    async def _judge(self, app: Any) -> None:
        rows = {row.run: row for row in await app.service.runs()}
        top = rows[RUN]
        expected = "stopped" if self.cancels and top.reason.startswith("cancelled") else "completed"
        if top.status != expected:
            self.broken = f"{RUN} is {top.status}: {top.reason}"
        left = [run for run, row in rows.items() if row.status not in {"completed", "stopped"}]
        if left:
            self.broken = f"not ended: {left}"
        if len(set(self.lab.sent)) != len(self.lab.sent):
            self.broken = f"repeated: {self.lab.sent}"
        known = {f"{RUN}"} | {one for run in rows for one in self._started(run)}
        if rows.keys() - known:
            self.broken = f"not on record of their parents: {rows.keys() - known}"
        if expected == "stopped":
            (since, *_) = [one.at for one in self.lab.of(RUN, r.CommandApplied) if one.command == "cancel"]
            late = [what for at, what in self.effects if at > since + PATIENCE_MS]
            if late:
                self.broken = f"sent after the cancellation: {late}"

    def _started(self, run: str) -> list[str]:
        return [record.run for record in self.lab.of(run, r.ChildStarted)]


async def _told(seed: int) -> str:
    tale = Tale(seed)
    await tale.tell()
    return tale.broken


def first_broken(stories: int, seed: int) -> str:
    """What does not hold in the first story in which something does not; empty if all hold."""
    for number in range(stories):
        if broken := run_virtual(_told(seed + number)):
            return f"seed {seed + number}: {broken}"
    return ""


@pytest.mark.slow
def test_whatever_dies_when_a_tree_ends_as_it_should(seed: int):
    assert first_broken(STORIES, seed) == ""


def _by_chance(original: Callable[[str, str], str]) -> Callable[[str, str], str]:
    names = iter(range(10**6))
    return lambda parent, step: f"{original(parent, step)}.{next(names)}"


def _cancel_alone(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(commands, "posts_of_command", lambda *_: ())
    patch.setattr(run_driver, "cancel_posts", lambda *_: ())


PLANTED: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "the command that cancels a run is not passed on to its children": _cancel_alone,
    "a child does not tell its parent that it has ended": lambda patch: patch.setattr(
        run_driver, "end_posts", lambda *_: ()
    ),
    "a child that was not stored before a crash is never stored": lambda patch: patch.setattr(
        children, "_stored", _only_new(children._stored)
    ),
    "the name of a child does not follow from its step": lambda patch: patch.setattr(
        children, "child_id", _by_chance(children.child_id)
    ),
}


def _only_new(original: Any) -> Any:
    async def stored(active: Any, agent: Any, given: Any, terms: Any, record: Any) -> None:
        if active.lease.token == 1:  # the first process alone
            await original(active, agent, given, terms, record)

    return stored


@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_bug_is_found(bug: str, seed: int, monkeypatch: pytest.MonkeyPatch):
    PLANTED[bug](monkeypatch)
    assert first_broken(STORIES, seed)
