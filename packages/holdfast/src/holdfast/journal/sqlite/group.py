"""Group commit: what one pass of the event loop writes becomes durable together.

Appends queue up; when the pass ends, the whole queue is committed, on the loop while the disk is
fast and nobody is in the way, otherwise by the background thread. Each write hears its own answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar, cast

from holdfast.errors import HoldfastError, JournalUnavailable
from holdfast.journal.port import Lease, Write
from holdfast.journal.sqlite.background import Background, Behind, MakeBehind
from holdfast.journal.sqlite.batch import Item, item_of
from holdfast.journal.sqlite.committer import Committer
from holdfast.journal.sqlite.driver import Database

T = TypeVar("T")

_ALONE_AFTER = 8
_LONGEST_MONOLOGUE = 16


class GroupCommit:
    """The asynchronous face of a committer. Belongs to the event loop on which it was made."""

    def __init__(self, committer: Committer, behind: MakeBehind | None = None) -> None:
        self._committer = committer
        self._queue = committer.queue
        self._loop = asyncio.get_running_loop()
        self._background: Behind = (behind or Background)(committer, self._deliver_from_thread)
        self._pass_is_due = False
        self._unheard = 0  # writes whose answer nobody waits for any more, or ever did, and has not come
        self._refused: dict[tuple[int, int], HoldfastError] = {}
        self._stopped = False
        self._speaker = 0  # the run that appended last
        self._said = 0  # how often in a row
        self._background.start()

    def append(self, write: Write) -> asyncio.Future[object] | None:
        """Commit a write. Durable when the future is done, or on return where there is none to wait for."""
        if self._refused:
            self._raise_refusal(write.lease)
        if self._stopped:
            raise _closed()
        item = item_of(write)
        if self._is_alone(write.lease):
            return self._commit_alone(item)
        return self._commit(item)

    def left(self, write: Write, waiting: asyncio.Future[object]) -> None:
        """Whoever waited for an append was cancelled: the run's next call hears what comes of it."""
        if waiting.cancelled():
            self._unheard += 1
        elif isinstance(error := waiting.exception(), HoldfastError):
            self._refused.setdefault((write.lease.row, write.lease.token), error)

    def ride(self, write: Write) -> None:
        """Let a write go with the next commit, or within a few milliseconds."""
        if self._stopped:
            raise _closed()
        self._unheard += 1
        self._queue.append(item_of(write))
        self._background.watch_rides()

    async def flush(self, lease: Lease) -> None:
        """Return when everything that was written is durable: what rode, and what a cancelled caller appended."""
        if self._unheard:
            await self._commit(Item())
        self._raise_refusal(lease)

    async def run(self, work: Callable[[Database], T]) -> T:
        """Do `work` in the next commit and return its result once that is durable."""
        return cast("T", await self._commit(Item(work=work)))

    async def settle_queue(self) -> None:
        """Return when everything queued so far is settled."""
        await self._commit(Item())

    async def stop(self) -> None:
        """Commit what is queued and end the thread."""
        if not self._stopped:
            self._stopped = True
            await self._loop.run_in_executor(None, self._background.stop)

    def _is_alone(self, lease: Lease) -> bool:
        """Whether one run has the journal to itself: nobody else has appended for a while.

        Then waiting for the end of the pass would gather nothing, and cost a tenth of a step. After
        `_LONGEST_MONOLOGUE` appends the pass is ended all the same, or other tasks might never come in.
        """
        if self._speaker != lease.row:
            self._speaker, self._said = lease.row, 0
        self._said += 1
        if self._said < _ALONE_AFTER or self._said % _LONGEST_MONOLOGUE == 0 or self._pass_is_due:
            return False
        return self._committer.pace.on_loop()

    def _commit_alone(self, item: Item) -> asyncio.Future[object] | None:
        """Commit on the spot, with all that rides; where others are in the way, leave it to the thread."""
        self._queue.append(item)
        items = self._committer.commit_at_once()
        if not items or items[-1] is not item:
            # The thread has it or will have it, and delivers on this loop, so after this line.
            item.future = self._loop.create_future()
            self._background.commit_soon()
            return item.future
        if len(items) > 1:
            self._deliver(items[:-1])
        self._background.keep_house()
        if item.error is not None:
            raise self._first_error(item, item.error)
        return None

    def _commit(self, item: Item) -> asyncio.Future[object]:
        if self._stopped:
            raise _closed()
        item.future = future = self._loop.create_future()
        self._queue.append(item)
        if not self._pass_is_due:
            self._pass_is_due = True
            self._loop.call_soon(self._end_pass)
        return future

    def _end_pass(self) -> None:
        self._pass_is_due = False
        if not self._queue:
            return  # the thread has taken it all
        items = self._committer.commit_at_once() if self._committer.pace.on_loop() else None
        if items is None:
            self._background.commit_soon()
            return
        self._deliver(items)
        self._background.keep_house()

    def _deliver_from_thread(self, items: list[Item]) -> None:
        try:
            self._loop.call_soon_threadsafe(self._deliver, items)
        except RuntimeError:  # the loop has ended; nobody is left who could hear
            return

    def _deliver(self, items: list[Item]) -> None:
        for item in items:
            future, error = item.future, item.error
            if future is None or future.done():
                self._nobody_waits(item)
            elif error is None:
                future.set_result(item.result)
            else:
                future.set_exception(self._first_error(item, error))

    def _nobody_waits(self, item: Item) -> None:
        """It rode, or whoever waited was cancelled."""
        if item.write is None:
            return
        self._unheard -= 1
        if item.error is not None:
            self._refused.setdefault((item.write.lease.row, item.write.lease.token), item.error)

    def _first_error(self, item: Item, error: HoldfastError) -> HoldfastError:
        """A write that follows a refused ride hears why that one was refused."""
        if item.write is None:
            return error
        return self._refused.pop((item.write.lease.row, item.write.lease.token), error)

    def _raise_refusal(self, lease: Lease) -> None:
        error = self._refused.pop((lease.row, lease.token), None)
        if error is not None:
            raise error


def _closed() -> JournalUnavailable:
    return JournalUnavailable("the journal is closed", next_step="open it first")
