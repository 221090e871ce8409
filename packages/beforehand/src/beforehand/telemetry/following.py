"""Followers of the runs that a process drives: what became durable is handed to them, and nothing waits for them.

The journal of the app is wrapped. A record counts once its commit has returned, or once a later commit of its run has.
Some time after that, records are turned into spans and given to the followers in a thread of their own, so that a slow
exporter holds back neither the journal nor the event loop. A backlog is bounded: records beyond it are dropped.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, ParamSpec, Protocol, TypeVar, cast

import msgspec

from beforehand.engine.environment import Environment
from beforehand.engine.tool_protocol import Tracing
from beforehand.errors import BudgetSpent, JournalError, LedgerTaken, LimitsChanged, RecordRefused, UsageError
from beforehand.inspect.text import short
from beforehand.journal.port import (
    Busy,
    ClaimRequest,
    CommitRequest,
    Identity,
    Journal,
    Lease,
    LeaseGranted,
    Row,
    TakeRequest,
    Write,
)
from beforehand.journal.record_codec import decode_all
from beforehand.telemetry.spans import RunSpans, SpanValue

LOG: Final = logging.getLogger("beforehand")
DELAY_S: Final = 0.1
"""The time from a commit until its records are given on, with all that came meanwhile."""
BACKLOG: Final = 20_000
"""The number of records that may wait. Beyond it the newest are dropped."""
CLOSE_S: Final = 5.0
"""How long a process that ends waits for its followers."""
_PAGE: Final = 1000
P = ParamSpec("P")
T = TypeVar("T")


class Drive(NamedTuple):
    """The work of one process on a run under one lease."""

    run: str
    token: int


class Follower(Protocol):
    """Receives the spans of the runs that this process drives. Its methods are called in any thread, one at a time."""

    @property
    def contents(self) -> bool:
        """True if spans hold arguments and results."""
        ...

    @property
    def tracing(self) -> Tracing | None:
        """Its part in the engine, if it has one."""
        ...

    def begin(self, environment: Environment) -> None:
        """An app is made that it follows. Raises `UsageError` where that is not possible."""
        ...

    def opened(self, namespace: str) -> None:
        """The journal is open. Its namespace is part of what makes a run's name unique."""
        ...

    def forget(self, drive: Drive) -> None:
        """Nothing more of this drive comes, and how it ended is not known: its claim was refused, for example."""
        ...

    def ended(self, drive: Drive, spans: Sequence[SpanValue], /) -> None:
        """These spans have ended."""
        ...

    def released(self, drive: Drive, at_ms: int, ending: tuple[str, str], /) -> None:
        """The run was given back, with this status and class of error; after it nothing of this drive comes."""
        ...

    def claimed_after(self, seconds: float) -> None:
        """A run was claimed that had been due, or ready for a slot, for so long. Called in the event loop, too."""
        ...

    def committed(self, seconds: float, records: int) -> None:
        """An append of so many records has become durable. Called in the event loop: it does next to nothing."""
        ...


class _Noted(msgspec.Struct):
    """Durable rows of one drive. `over` is the moment and the class of error with which it ended, if it has."""

    rows: list[Row]
    over: tuple[int, str] | None = None


class FollowedJournal:
    """A journal whose records are also given to followers. Everything else goes straight to the journal."""

    def __init__(self, journal: Journal, environment: Environment, follower: Follower) -> None:
        self._journal: Final = journal
        self._environment: Final = environment
        self._follower: Final = follower
        self._riding: dict[Drive, list[Row]] = {}
        self._created: set[Drive] = set()  # runs that this process has created, and drives since
        self._queue: dict[Drive, _Noted] = {}
        self._waiting = 0
        self._dropped = 0
        self._giving: asyncio.Task[None] | None = None
        self._spans: Final[dict[Drive, RunSpans]] = {}
        self._failed = False
        self.clock: Final = journal.clock

    def __getattr__(self, name: str) -> Any:
        return getattr(self._journal, name)

    # --- what is followed ----------------------------------------------------------------------------------------

    async def open(self) -> Identity:
        """As `Journal.open`."""
        identity = await self._journal.open()
        self._follower.opened(identity.namespace)
        return identity

    async def close(self) -> None:
        """Give on what is left, for no longer than `CLOSE_S`, and close the journal."""
        if (giving := self._giving) is not None:
            await asyncio.wait({giving}, timeout=CLOSE_S)
            giving.cancel()
        await self._journal.close()

    async def commit(self, request: CommitRequest[T]) -> T:
        """As `Journal.commit`."""
        if isinstance(request, Write):
            return cast("T", await self._append(request))
        if isinstance(request, ClaimRequest):
            return cast("T", await self._claim(request))
        answer = await self._journal.commit(request)
        if isinstance(request, TakeRequest):
            for granted in cast("list[LeaseGranted]", answer):
                self._claimed(granted.ready_ms)
        return answer

    async def _claim(self, request: ClaimRequest) -> LeaseGranted | Busy | None:
        found: LeaseGranted | Busy | None = None
        new = request.new
        try:
            found = await self._journal.commit(request)
        finally:
            drive = Drive(request.run, 1)
            if isinstance(found, LeaseGranted) and found.fresh:
                if new is not None and new.change is None:
                    self._created.add(drive)
                    self._note(drive, new.rows)
            elif new is not None and drive not in self._created:
                self._call(self._follower.forget, drive)
        if isinstance(found, LeaseGranted) and new is None and found.row.status == "suspended":
            self._claimed(found.row.due_ms)
        return found

    def _claimed(self, due_ms: int | None) -> None:
        late_ms = self.clock().wall_ms - due_ms if due_ms is not None else -1
        if late_ms >= 0:  # before its time, a run is claimed for a command
            self._call(self._follower.claimed_after, late_ms / 1000)

    async def _append(self, write: Write) -> None:
        drive, loop = Drive(write.lease.run, write.lease.token), asyncio.get_running_loop()
        began, rode = loop.time(), self._riding.pop(drive, [])  # now: what rides from here on is not in this commit
        try:
            await self._journal.commit(write)
        except (BudgetSpent, LedgerTaken, LimitsChanged, RecordRefused):
            self._riding[drive] = [*rode, *self._riding.get(drive, ())]
            raise
        except JournalError as error:
            self._lost(drive, error)
            raise
        except asyncio.CancelledError:  # it may become durable, and then is before the run's next append
            self._riding[drive] = [*rode, *write.rows, *self._riding.get(drive, ())]
            raise
        self._call(self._follower.committed, loop.time() - began, len(write.rows))
        over = (self._environment.clock.wall_ms(), "") if write.change is not None and write.change.release else None
        if rode or write.rows or over is not None:
            self._note(drive, (*rode, *write.rows), over)

    def ride(self, write: Write) -> None:
        """As `Journal.ride`. What rides is durable once a later append of its run is."""
        self._journal.ride(write)
        riding = self._riding.setdefault(Drive(write.lease.run, write.lease.token), [])
        riding.extend(write.rows)
        if len(riding) > _PAGE:
            riding.clear()  # they are read back from the journal then

    async def flush(self, lease: Lease) -> None:
        """As `Journal.flush`."""
        drive = Drive(lease.run, lease.token)
        rode = self._riding.pop(drive, [])
        try:
            await self._journal.flush(lease)
        except JournalError as error:
            self._lost(drive, error)
            raise
        except asyncio.CancelledError:
            self._riding[drive] = [*rode, *self._riding.get(drive, ())]
            raise
        if rode:
            self._note(drive, rode)

    def _lost(self, drive: Drive, error: JournalError) -> None:
        self._riding.pop(drive, None)
        self._note(drive, (), (self._environment.clock.wall_ms(), type(error).__name__))

    # --- giving on -------------------------------------------------------------------------------------------------

    def _note(self, drive: Drive, rows: Sequence[Row], over: tuple[int, str] | None = None) -> None:
        if over is not None:
            self._created.discard(drive)
        if self._waiting + len(rows) > BACKLOG:
            if not self._dropped:
                LOG.warning("telemetry falls behind: some records are left out. Runs are not affected")
            self._dropped += len(rows)
            rows = ()
        noted = self._queue.get(drive)
        if noted is None and len(self._queue) < BACKLOG and (rows or over is not None):  # else all of it was left out
            noted = self._queue[drive] = _Noted([])
        if noted is not None:
            noted.rows += rows
            noted.over = noted.over or over
            self._waiting += len(rows)
        elif over is not None:
            self._call(self._follower.forget, drive)
        if self._giving is None:
            # In a context of its own: a commit may come from agent code, and this is no branch of it.
            self._giving = asyncio.get_running_loop().create_task(
                self._give_on(), name="beforehand-telemetry", context=contextvars.Context()
            )
            self._giving.add_done_callback(self._given)

    def _given(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._warn(error)

    async def _give_on(self) -> None:
        """Give on what waits, a batch at a time, each after a while."""
        try:
            while self._queue:
                await self._environment.clock.sleep(DELAY_S)
                batch, self._queue = self._queue, {}
                count = sum(len(noted.rows) for noted in batch.values())
                for drive, noted in batch.items():
                    noted.rows = await self._unread(drive, noted.rows)
                await self._environment.threads.call(partial(self._give, batch))
                self._waiting -= count
                self._dropped = self._dropped if self._waiting else 0
        finally:
            self._giving = None  # with the last look at the queue: what is noted from here on begins another

    async def _unread(self, drive: Drive, noted: Sequence[Row]) -> list[Row]:
        """The rows up to the newest of these that were not given yet, in order.

        Rows of earlier owners, and those that were dropped, are read from the journal.
        """
        if not noted:
            return []
        spans = self._spans.setdefault(drive, RunSpans(drive.run, contents=self._follower.contents))
        found = {row.seq: row for row in noted if row.seq > spans.seq}
        after, spans.seq = spans.seq, max(found, default=spans.seq)
        if len(found) < spans.seq - after:
            found |= await self._read(drive.run, after, spans.seq)
        return [found[seq] for seq in sorted(found)]

    async def _read(self, run: str, after: int, until: int) -> dict[int, Row]:
        found: dict[int, Row] = {}
        try:
            while after < until and (rows := await self._journal.read(run, after, min(_PAGE, until - after))):
                found |= {row.seq: row for row in rows}
                after = rows[-1].seq
        except JournalError as error:
            self._warn(error)
        return found

    def _give(self, batch: Mapping[Drive, _Noted]) -> None:
        """Give one batch to the follower. Called in a thread of its own."""
        for drive, noted in batch.items():
            self._call(self._give_one, drive, noted)

    def _call(self, work: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> None:
        """Call the follower. Whatever it raises is logged once."""
        try:
            work(*args, **kwargs)
        except Exception as error:  # noqa: BLE001 - an exporter may raise anything, and no run fails for it
            self._warn(error)

    def _give_one(self, drive: Drive, noted: _Noted) -> None:
        spans = self._spans.get(drive)
        if spans is None:  # it is over, and nothing of it was given, or its end was
            self._follower.forget(drive)
            return
        ended: list[SpanValue] = []
        for row, record in zip(noted.rows, decode_all(row.body for row in noted.rows), strict=True):
            by_record = spans.add(record)
            if row.token == drive.token:  # those of an earlier owner were given by its own process
                ended += by_record
        if ended:
            self._call(self._follower.ended, drive, ended)  # what it raises does not keep the drive from its end
        if noted.over is not None:
            at, error = noted.over
            self._spans.pop(drive, None)
            self._follower.released(drive, at, ("lost", error) if error else spans.ending)

    def _warn(self, error: BaseException) -> None:
        if not self._failed:
            self._failed = True
            LOG.warning("telemetry failed (logged once): %s: %s. Runs are not affected", type(error).__name__, error)


def followed(
    journal: Journal, environment: Environment, followers: Follower | Iterable[Follower]
) -> tuple[Journal, Tracing | None]:
    """The journal with its followers, and the part that one of them has in the engine.

    Raises `UsageError` where a follower cannot follow.
    """
    tracing: Tracing | None = None
    for follower in followers if isinstance(followers, Iterable) else (followers,):
        if isinstance(follower, type) or not hasattr(follower, "begin"):  # users may not check types
            raise UsageError(
                f"telemetry={short(repr(follower), 80)} cannot follow an app",
                next_step="give OpenTelemetry() or Prometheus() of beforehand.telemetry, or both in a list",
            )
        if tracing is not None and follower.tracing is not None:  # spans are begun once
            raise UsageError("two of telemetry= trace the runs", next_step="give one, which may have several exporters")
        follower.begin(environment)
        # It has every method of a journal: those that it does not define are the journal's own.
        journal = cast("Journal", FollowedJournal(journal, environment, follower))
        tracing = tracing or follower.tracing
    return journal, tracing
