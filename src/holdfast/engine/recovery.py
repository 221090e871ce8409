"""Abandoned runs: found on open and while running, and driven by whoever knows their agent."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from holdfast.engine.engine import LOG, Engine
from holdfast.engine.runner import Conclusion
from holdfast.errors import HoldfastError
from holdfast.model.system import is_system

AT_ONCE: Final = 20
NOTICES_AT_ONCE: Final = 5


class Recovery:
    """Looks for runs without a living owner, and for suspended ones that are due.

    `drive` drives one run to its next end, and `errands` is done before each look. Runs whose agent this app does not
    know are left to others; one that could not be driven is not tried again before `again_ms` have passed.
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
        self._driving: set[str] = set()
        self._notices: set[str] = set()
        self._not_before: dict[str, int] = {}

    async def keep_looking(self) -> None:
        """Look again and again, until cancelled."""
        pause = self._engine.settings.recover_every_ms / 1000
        while True:
            await self._engine.house.round("abandoned runs could not be looked for", self.look)
            await self._engine.seams.clock.sleep(pause)

    async def look(self) -> list[asyncio.Task[None]]:
        """Start to drive what waits for somebody; the tasks that were started."""
        if self._errands is not None:
            await self._engine.house.round("errands could not be done", self._errands)
        now = self._engine.journal.now().ms
        started: list[asyncio.Task[None]] = []
        for row in await self._engine.journal.runs(wakeable=True, limit=10 * AT_ONCE):
            busy = row.run in self._driving or row.run in self._engine.instances
            if busy or row.agent not in self._engine.agents or self._not_before.get(row.run, 0) > now:
                continue
            if len(self._driving) >= AT_ONCE:
                break
            if is_system(row.agent) and len(self._notices & self._driving) >= NOTICES_AT_ONCE:
                continue  # a slow receiver must not keep runs waiting
            if is_system(row.agent):
                self._notices.add(row.run)
            self._driving.add(row.run)
            started.append(self._engine.background(self._one(row.run), f"holdfast-recover-{row.run}"))
        return started

    async def _one(self, run: str) -> None:
        try:
            conclusion = await self._drive(run)
            LOG.info("run %s was recovered: %s %s", run, conclusion.status, conclusion.reason)
        except HoldfastError as error:
            LOG.warning("run %s could not be recovered: %s", run, error)
        except Exception as error:  # noqa: BLE001 - nobody awaits this task: what it raised would be lost
            LOG.error("run %s could not be recovered", run, exc_info=error)
        finally:
            self._driving.discard(run)
            self._notices.discard(run)
            self._not_before[run] = self._engine.journal.now().ms + self._engine.settings.recover_every_ms
