"""Abandoned runs and those that are due: found on open and while running, and driven as places become free."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from holdfast.engine.engine import LOG, Engine
from holdfast.errors import HoldfastError
from holdfast.model.system import is_system

if TYPE_CHECKING:
    from holdfast.engine.run_driver import Conclusion

AT_ONCE: Final = 20
"""Runs that are at work at once. One that waits, for a retry for example, holds no place."""
NOTICES_AT_ONCE: Final = 5
"""The same for the runs that send notices: they have places of their own, so neither kind starves the other."""
HELD: Final = 500
"""Runs of either kind that this process holds at once, those that wait included."""
_TASK: Final = "abandoned runs could not be looked for"
_LOOK_AGAIN_S: Final = 0.05  # while all places are taken: a run that begins to wait frees one without a notice


class Recovery:
    """Looks for runs without a living owner, and for suspended ones that are due, and drives those due first.

    `drive` drives one run to its next end, and `errands` is done every `recover_every_ms`. Runs of an agent that this
    app does not know, or of another program's agent of the same name, are not read. One that could not
    be driven is tried again after `recover_every_ms`.
    """

    def __init__(
        self,
        engine: Engine,
        drive: Callable[[str], Awaitable[Conclusion]],
        errands: Callable[[], Awaitable[object]] | None = None,
    ) -> None:
        self._engine = engine
        self._drive = drive
        self._errands = errands
        self._runs = _Places(AT_ONCE)
        self._notices = _Places(NOTICES_AT_ONCE)
        self._not_before: dict[str, int] = {}
        self._freed = asyncio.Event()
        self._more = False  # whether there may be more that is due, and waits for a place

    async def keep_looking(self) -> None:
        """Look again and again, until cancelled."""
        pause = self._engine.settings.recover_every_ms
        while True:
            begun = self._engine.journal.now().ms
            await self._engine.house.round(_TASK, self.look)
            while self._more and self._engine.journal.now().ms - begun < pause:
                await self._place_free()
                await self._engine.house.round(_TASK, self._fill)
            left = pause - (self._engine.journal.now().ms - begun)
            await self._engine.environment.clock.sleep(max(0, left) / 1000)

    async def look(self) -> list[asyncio.Task[None]]:
        """Do the errands and start to drive what is due, as far as there are places; the tasks that were started."""
        if self._errands is not None:
            await self._engine.house.round("errands could not be done", self._errands)
        return await self._fill()

    async def _fill(self) -> list[asyncio.Task[None]]:
        engine, now = self._engine, self._engine.journal.now().ms
        self._not_before = {run: until for run, until in self._not_before.items() if until > now}
        started: list[asyncio.Task[None]] = []
        self._freed.clear()
        self._more = False
        for places in (self._runs, self._notices):
            agents = [
                (name, agent.program)
                for name, agent in engine.agents.items()
                if is_system(name) == (places is self._notices)
            ]
            room = places.room(engine)
            skip = {*self._runs.driving, *self._notices.driving, *engine.instances, *self._not_before}
            rows = await engine.journal.due(agents, room, skip) if agents and room > 0 else []
            self._more = self._more or room <= 0 or len(rows) == room
            for row in rows:
                places.driving.add(row.run)
                started.append(engine.background(self._one(row.run, places), f"holdfast-recover-{row.run}"))
        return started

    async def _place_free(self) -> None:
        """Return when a run has ended, and after a moment in any case."""
        waits = [asyncio.ensure_future(self._freed.wait())]
        waits.append(asyncio.ensure_future(self._engine.environment.clock.sleep(_LOOK_AGAIN_S)))  # type: ignore[arg-type]  # one gives a bool
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in waits:
                one.cancel()

    async def _one(self, run: str, places: _Places) -> None:
        engine, again = self._engine, False
        try:
            conclusion = await self._drive(run)
            LOG.info("run %s was recovered: %s %s", run, conclusion.status, conclusion.reason)
            again = conclusion.due is not None and conclusion.due <= engine.environment.clock.wall_ms()
        except HoldfastError as error:
            again = True
            LOG.warning("run %s could not be recovered: %s", run, error)
        except Exception as error:  # noqa: BLE001 - this task is not awaited: what it raised would be lost
            again = True
            LOG.error("run %s could not be recovered", run, exc_info=error)
        finally:
            places.driving.discard(run)
            self._freed.set()
            if again:  # not in a tight loop
                self._not_before[run] = engine.journal.now().ms + engine.settings.recover_every_ms


class _Places:
    """The runs of one kind that are driven, and how many more may be."""

    def __init__(self, at_once: int) -> None:
        self._at_once = at_once
        self.driving: set[str] = set()

    def room(self, engine: Engine) -> int:
        working = sum(1 for run in self.driving if engine.works_on(run))
        return min(self._at_once - working, HELD - len(self.driving))
