"""The outbox: notices for webhook endpoints, durable in the commit that makes them true.

From there each one becomes a run of its own for each endpoint, begun suspended and due at once: the worker that
picks up due runs sends it. So notices are retried, scheduled, leased and recorded like every other effect.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from beforehand.journal.cells import read_hint
from beforehand.journal.entry_codec import readable, written
from beforehand.journal.port import HintRequest, Journal, LedgerEntry, Post, RunChange
from beforehand.journal.record_codec import encode
from beforehand.journal.run_log import beginning
from beforehand.model import records as r
from beforehand.model.run_history import RunHistory
from beforehand.model.system import is_system
from beforehand.model.waits import HUNG, PEOPLE
from beforehand.model.webhooks import (
    AGENT,
    ENDPOINTS,
    OUTBOX,
    Endpoint,
    Kind,
    Note,
    Notice,
    Waiting,
    WebhookMessage,
    delivery_run,
    endpoints,
    worded,
)

if TYPE_CHECKING:
    from beforehand.engine.process import Process
    from beforehand.engine.suspension import Pause
    from beforehand.engine.tool_protocol import Input


_TAKEN: Final = "webhook/"
MINUTE_MS: Final = 60_000


class Outbox:
    """The endpoints known to this process, and the way of notices into the ledger and out of it."""

    def __init__(self, journal: Journal, wall_ms: Callable[[], int]) -> None:
        self._journal = journal
        self._wall_ms = wall_ms
        self._cursor = Cursor(journal, OUTBOX)
        self.endpoints: dict[str, Endpoint] = {}

    async def refresh(self) -> None:
        """Read the endpoints."""
        entries = await self._journal.entries(ENDPOINTS)
        notes = await readable(self._journal, entries, Note)
        self.endpoints = endpoints((entry.id, note) for entry, note in notes)

    def wants(self, kind: Kind) -> bool:
        """True if an endpoint is sent notices of that kind."""
        return any(one.open and kind in one.kinds for one in self.endpoints.values())

    def posts(
        self, history: RunHistory, kind: Kind, reason: str = "", waits: tuple[Pause, ...] = ()
    ) -> tuple[Post, ...]:
        """The ledger entry for the commit that makes a notice true; empty if no endpoint wants it."""
        started = history.lifecycle.started
        if not (self.endpoints and self.wants(kind)) or started is None or is_system(started.agent):
            return ()
        asked = tuple(_waiting(history, pause) for pause in waits if pause.kind in PEOPLE)
        if kind == "run.waits_for_person" and not asked:
            return ()
        now = self._wall_ms()
        turn = 0 if kind == "run.completed" else history.records
        notice = Notice(kind, history.run, started.agent, now, reason[:500], asked, turn)
        return (Post(OUTBOX, "", written(notice)),)

    async def hand_out(self, process: Process, stored: Callable[[WebhookMessage], Input]) -> None:
        """Begin a run for every notice and endpoint that has none yet."""
        if not (entries := await self._cursor.news()):
            return
        await self.refresh()
        for entry, notice in await readable(self._journal, entries, Notice):
            for one in self.endpoints.values():
                if one.open and notice.kind in one.kinds and one.since < entry.id:
                    message = WebhookMessage(one.name, worded(notice))
                    await begin_asleep(process, delivery_run(one.name, notice), stored(message))
            await self._cursor.passed(entry.id)
        await self._cursor.passed(entries[-1].id)  # past one that was set aside, too

    async def taken(self, name: str) -> None:
        """Remember that this endpoint accepted a notice; a losable note, written once a minute at most."""
        now = self._wall_ms()
        before = await read_hint(self._journal, _TAKEN + name)
        if before is None or now - int(before) > MINUTE_MS:
            await self._journal.commit(HintRequest(_TAKEN + name, str(now).encode(), before))

    async def silent(self, name: str, since: int) -> bool:
        """True if the endpoint accepted nothing since that moment of the wall clock, as far as is known."""
        last = await read_hint(self._journal, _TAKEN + name)
        return last is None or int(last) < since


def _waiting(history: RunHistory, pause: Pause) -> Waiting:
    operation = history.operations.get(pause.step)
    times = 0 if operation is None else len(operation.attempts)
    due = None if pause.kind == HUNG else pause.due
    return Waiting(pause.kind, pause.step, pause.asks[:500], due, times, pause.at, pause.shown, pause.result)


async def begin_asleep(process: Process, run: str, given: Input, agent: str = AGENT) -> bool:
    """Begin a run of an agent of the system without driving it: it is due at once. False: it was begun before."""
    now = process.journal.clock()
    wall, up = now.wall_ms, now.latest_ms
    records: tuple[r.Record, ...] = (
        r.RunStarted(agent=agent, input=r.Raw(given.stored), digest=given.digest, version="", at=wall, up=up),
        process.claim(now),
        r.RunSuspendedRecord(reason="to be sent", at=wall, up=up),
    )
    change = RunChange("suspended", "to be sent", wall, release=True)
    new = beginning(process.identity.namespace, run, agent, map(encode, records), change)
    return await process.leases.store(run, new)


class Cursor:
    """The place of one process in a stream. It moves the shared mark only past entries that it has handled."""

    def __init__(self, journal: Journal, stream: str) -> None:
        self._journal = journal
        self._stream = stream
        self._hint: Final = f"cursor/{stream}"
        self._passed = 0
        self._shared: bytes | None = None
        self._known = False

    async def news(self) -> list[LedgerEntry]:
        """The entries that no process has handled yet."""
        if not self._known:
            await self._read_mark()
        if not await self._journal.entries(self._stream, self._passed):
            return []
        await self._read_mark()  # another process may have handled it
        return await self._journal.entries(self._stream, self._passed)

    async def passed(self, entry: int) -> None:
        """Note that everything up to this entry is handled."""
        if entry <= self._passed:
            return
        self._passed, body = entry, str(entry).encode()
        if await self._journal.commit(HintRequest(self._hint, body, self._shared)):
            self._shared = body
        else:
            await self._read_mark()

    async def _read_mark(self) -> None:
        self._shared = await read_hint(self._journal, self._hint)
        self._known = True
        if self._shared is not None:
            self._passed = max(self._passed, int(self._shared))
