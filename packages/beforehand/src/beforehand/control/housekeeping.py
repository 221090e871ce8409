"""Housekeeping beside the search for due runs: send notices, and finish interrupted deliveries."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from beforehand.agent.agent import Agent
from beforehand.control.service import ControlService
from beforehand.engine.deferred import arrived_stream
from beforehand.engine.engine import LOG
from beforehand.engine.outbox import Cursor
from beforehand.engine.tool_protocol import Input
from beforehand.errors import BeforehandError, JournalUnavailable, Unreadable
from beforehand.inspect.signed_heads import HeadPosts
from beforehand.journal.entry_codec import read, set_aside
from beforehand.journal.port import LedgerEntry
from beforehand.model.commands import DELIVERIES, AnswerNotice
from beforehand.model.webhooks import WebhookMessage

PATIENCE_MS: Final = 3_600_000  # how long a deliverer may take between saying what it brings and storing it


class HousekeepingTasks:
    """The housekeeping tasks of one app. Running them twice, or in two processes at once, changes nothing.

    The failure of one keeps neither the others nor the search for runs from being done.
    """

    def __init__(
        self,
        service: ControlService,
        sender: Agent[WebhookMessage, Any],
        reach: Callable[[], Awaitable[None]] | None = None,
        schedules: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._service = service
        self._sender = sender
        self._reach = reach  # plans notices to people
        self._schedules = schedules  # fires those that are due
        self._heads = HeadPosts(service.engine)
        self._deliveries = Cursor(service.engine.journal, DELIVERIES)
        self._finished: set[int] = set()  # past an announcement whose message has not come

    async def run(self) -> None:
        """Run the tasks that are due. Raises `JournalUnavailable`."""
        if self._schedules is not None:
            await self._done(self._schedules())
        await self._done(self._heads.post())
        await self._done(self._service.engine.outbox.hand_out(self._service.engine, self._stored))
        if self._reach is not None:
            await self._done(self._reach())
        await self._finish_deliveries()

    def _stored(self, message: WebhookMessage) -> Input:
        return self._sender.stored_input(message, self._service.engine.identity.secret)

    async def _finish_deliveries(self) -> None:
        """Wake every run for which something was stored, and whose deliverer may have died before waking it."""
        waiting = False
        for entry in await self._deliveries.news():
            if entry.id not in self._finished and not await self._finish(entry):
                waiting = True
            elif waiting:
                self._finished.add(entry.id)
            else:
                await self._deliveries.passed(entry.id)
                self._finished.discard(entry.id)

    async def _finish(self, entry: LedgerEntry) -> bool:
        """True if a delivery is finished: its run has taken it, or it was announced long ago.

        A run that is driven takes it by itself, unless it ends first: so it is looked at again.
        """
        engine = self._service.engine
        over = engine.wall_ms() - entry.at_ms > PATIENCE_MS
        try:
            announced = read(entry, AnswerNotice)
        except Unreadable as error:
            await set_aside(engine.journal, entry, error)
            return True
        if announced.run:
            return await self._done(self._service.apply_pending(announced.run)) or over
        arrived = await engine.journal.entries(arrived_stream(announced.key))
        if any(one.key == announced.id for one in arrived):
            return await self._done(self._service.bring(announced.key)) or over
        return over

    async def _done(self, errand: Awaitable[object]) -> bool:
        """True if the task is over: it reports so, or it failed."""
        try:
            return await errand is not False
        except JournalUnavailable:
            raise
        except BeforehandError as error:
            LOG.warning("a housekeeping task failed: %s", error)
            return True
