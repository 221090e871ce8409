"""Group commit: the writes of one pass of the event loop become durable together.

Appends queue up; when the pass ends, the whole queue is committed, on the loop while the disk is fast and no other
process holds the file, otherwise by the background thread. Each write receives its own result.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Protocol, TypeVar, cast

from beforehand.errors import BeforehandError, JournalUnavailable
from beforehand.journal.host import Held, queued_ns
from beforehand.journal.port import CommitRequest, Lease, Write
from beforehand.journal.sqlite.batch import CommitItem, item_of
from beforehand.journal.sqlite.driver import Database
from beforehand.journal.sqlite.journal_file import JournalFile
from beforehand.journal.sqlite.opening import CommitsOn

T = TypeVar("T")

_ALONE_AFTER = 8
_YIELD_EVERY = 16


class GroupCommit:
    """The asynchronous interface of a committer. Belongs to the event loop on which it was made."""

    def __init__(self, committer: Committer, behind: MakeBackground | None = None, held: Held | None = None) -> None:
        self._committer = committer
        self._queue = committer.queue
        self._loop = asyncio.get_running_loop()
        self._future = self._loop.create_future if held is None else partial(_held_future, self._loop, held)
        self._background: BackgroundWriter = (behind or CommitThread)(committer, self._deliver_from_thread)
        self._pass_is_due = False
        self._rides = 0  # that are not finished
        self._left: set[asyncio.Future[object]] = set()  # unfinished appends whose callers were cancelled
        self._ended_first: set[asyncio.Future[object]] = set()  # those that ended before their caller could say so
        self._refused: dict[tuple[int, int], BeforehandError] = {}
        self._stopped = False
        self._last = (0, 0)  # the run that appended last, and its task
        self._in_a_row = 0  # how often in a row
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
        """The caller that waited for an append was cancelled: the run's next call raises its error, if any."""
        if waiting in self._ended_first:
            self._ended_first.discard(waiting)
        elif waiting.cancelled():
            self._left.add(waiting)
        elif isinstance(error := waiting.exception(), BeforehandError):
            self._refused.setdefault((write.lease.row, write.lease.token), error)

    def ride(self, write: Write) -> None:
        """Let a write go with the next commit, or within a few milliseconds."""
        if self._stopped:
            raise _closed()
        self._rides += 1
        self._queue.append(item_of(write))
        self._background.watch_rides()

    async def flush(self, lease: Lease) -> None:
        """Return when everything that was written is durable: what rode, and what a cancelled caller appended."""
        if self._rides or self._left:
            await self._commit(CommitItem())
        self._raise_refusal(lease)

    async def decide(self, request: CommitRequest[T]) -> T:
        """Decide a request in the next commit and return its answer once what it changes is durable."""
        return cast("T", await self._commit(CommitItem(request=request)))

    async def run(self, work: Callable[[Database], T]) -> T:
        """Do `work` in the next commit and return its result once that is durable."""
        return cast("T", await self._commit(CommitItem(work=work)))

    async def settle_queue(self) -> None:
        """Return when everything queued so far is settled."""
        await self._commit(CommitItem())

    async def stop(self) -> None:
        """Commit what is queued and end the thread."""
        if not self._stopped:
            self._stopped = True
            await self._loop.run_in_executor(None, self._background.stop)

    def _is_alone(self, lease: Lease) -> bool:
        """True if one branch of one run has the journal to itself: no other has appended for a while.

        Waiting for the end of the pass would then gather no more writes, and cost a tenth of a step. Branches that
        write side by side are gathered: a commit for each would cost twice the processor time of a call. After
        `_YIELD_EVERY` appends the pass is ended all the same, or other tasks might never come in.
        """
        if self._pass_is_due:
            self._in_a_row = 0
            return False
        here = lease.row, id(asyncio.current_task())
        if self._last != here:
            self._last, self._in_a_row = here, 0
        self._in_a_row += 1
        if self._in_a_row < _ALONE_AFTER or self._in_a_row % _YIELD_EVERY == 0:
            return False
        return self._committer.pace.on_loop()

    def _commit_alone(self, item: CommitItem) -> asyncio.Future[object] | None:
        """Commit on the spot, with all that rides; where other processes hold the file, leave it to the thread."""
        self._queue.append(item)
        items = self._committer.commit_at_once()
        if not items or items[-1] is not item:
            # The thread has it or will have it, and delivers on this loop, so after this line.
            item.future = self._future()
            self._background.commit_soon()
            return item.future
        if len(items) > 1:
            self._deliver(items[:-1])
        self._background.keep_house()
        if item.error is not None:
            raise self._first_error(item, item.error)
        return None

    def _commit(self, item: CommitItem) -> asyncio.Future[object]:
        if self._stopped:
            raise _closed()
        item.future = future = self._future()
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

    def _deliver_from_thread(self, items: list[CommitItem]) -> None:
        try:
            self._loop.call_soon_threadsafe(self._deliver, items)
        except RuntimeError:  # the loop has ended; no caller is left to notify
            return

    def _deliver(self, items: list[CommitItem]) -> None:
        for item in items:
            future, error = item.future, item.error
            if future is None or future.done():
                self._keep_refusal(item)
            elif error is None:
                future.set_result(item.result)
            else:
                future.set_exception(self._first_error(item, error))

    def _keep_refusal(self, item: CommitItem) -> None:
        """Keep the refusal of an item that no caller waits for: it rode, or its caller was cancelled."""
        if item.write is None:
            return
        if item.future is None:
            self._rides -= 1
        elif item.future in self._left:
            self._left.discard(item.future)
        else:
            self._ended_first.add(item.future)
        if item.error is not None:
            self._refused.setdefault((item.write.lease.row, item.write.lease.token), item.error)

    def _first_error(self, item: CommitItem, error: BeforehandError) -> BeforehandError:
        """A write that follows a refused ride fails with the reason of that refusal."""
        if item.write is None:
            return error
        return self._refused.pop((item.write.lease.row, item.write.lease.token), error)

    def _raise_refusal(self, lease: Lease) -> None:
        error = self._refused.pop((lease.row, lease.token), None)
        if error is not None:
            raise error


def _held_future(loop: asyncio.AbstractEventLoop, held: Held) -> asyncio.Future[object]:
    """A future during which a virtual clock stands still."""
    future: asyncio.Future[object] = loop.create_future()
    holding = contextlib.ExitStack()
    holding.enter_context(held())
    future.add_done_callback(lambda _: holding.close())
    return future


def _closed() -> JournalUnavailable:
    return JournalUnavailable("the journal is closed", next_step="open it first")


class Committer:
    """The one place where a process commits: a queue in order, and a mutex around the file.

    It is used from the event loop, which never waits for the mutex, and from the background thread, which does. The
    holder of the mutex takes everything that is queued, so writes commit in queueing order.
    """

    def __init__(self, store: JournalFile, pace: CommitPace) -> None:
        self.store = store
        self.pace = pace
        self.mutex = threading.Lock()
        self.queue: deque[CommitItem] = deque()
        self.taken = 0
        """Number of batches taken: a ride that is still queued after two looks has waited long enough."""

    def commit_at_once(self) -> list[CommitItem] | None:
        """Commit the queue on this thread; None if another thread or process would have to be waited for."""
        if not self.mutex.acquire(blocking=False):
            return None
        try:
            items = list(self.queue)  # only this thread adds to it
            self.queue.clear()
            self.taken += 1
            started = self.pace.start()
            if items and not self.store.settle(items, patient=False):
                self.queue.extendleft(reversed(items))
                return None
            if started is not None:
                self.pace.end(started, on_loop=True)
            return items
        finally:
            self.mutex.release()

    def commit_patiently(self) -> list[CommitItem]:
        """Commit the queue, waiting for other processes as long as necessary."""
        with self.mutex:
            items = self._take()
            if items:
                started = self.pace.start()
                self.store.settle(items, patient=True)
                if started is not None:
                    self.pace.end(started, on_loop=False)
            return items

    def _take(self) -> list[CommitItem]:
        """Everything queued, for another thread: one by one, as the loop may be adding at this moment."""
        self.taken += 1
        items: list[CommitItem] = []
        queue = self.queue
        while queue:
            items.append(queue.popleft())
        return items


# --- the background thread -----------------------------------------------------------------------------------------
# The thread behind a journal: commits that should not stop the loop, riding writes, and housekeeping. It sleeps until
# something is handed to it. While something rides it looks every tick whether that has waited for two ticks, so a ride
# is durable within `2 * TICK_S` even if the event loop is blocked, and no wake-up is spent on each ride.


TICK_S = 0.0025
_IDLE_TICKS = 200
_ANCHOR_MS = 1000
_COUNT_MS = 5000
_COUNT_SHARE = 1000  # rows are counted for at most a thousandth of the time, however many there are


class BackgroundWriter(Protocol):
    """The background services of a group commit: see `CommitThread`."""

    def start(self) -> None: ...
    def stop(self) -> None: ...
    def commit_soon(self) -> None: ...
    def watch_rides(self) -> None: ...
    def keep_house(self) -> None: ...


MakeBackground = Callable[[Committer, Callable[[list[CommitItem]], None]], BackgroundWriter]


class CommitThread:
    """The thread. `deliver` is called on it with each settled batch."""

    def __init__(self, committer: Committer, deliver: Callable[[list[CommitItem]], None]) -> None:
        self._committer = committer
        self._store = committer.store
        self._deliver = deliver
        self._signal = threading.Lock()  # released to wake the thread: cheaper than a condition
        self._signal.acquire()
        self._wanted = False
        self._ticking = False
        self._asleep = False
        self._stopping = False
        self._thread = threading.Thread(target=self._live, name="beforehand-journal", daemon=True)
        self._seen = -1
        self._idle_ticks = 0
        self._anchor_due_ms = 0
        self._count_due_ms = 0

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Commit what is queued, then end. Blocks until then."""
        self._stopping = True
        self._wake()
        self._thread.join()

    def commit_soon(self) -> None:
        """Let the thread commit the queue now."""
        self._wanted = True
        self._wake()

    def watch_rides(self) -> None:
        """Watch rides: look at the queue every tick from now on."""
        if not self._ticking:
            self._ticking = True
            self._wake()

    def keep_house(self) -> None:
        """Schedule housekeeping after a commit: the anchor is due within a second, the log perhaps now."""
        if self._asleep or self._store.wants_checkpoint:
            self._wake()

    def _wake(self) -> None:
        try:
            self._signal.release()
        except RuntimeError:  # it is awake already
            return

    def _live(self) -> None:
        while True:
            self._sleep()
            if self._wanted or self._stopping:
                self._wanted = False
                self._commit()
            elif self._ticking:
                self._tick()
            self._clean_up()
            if self._stopping and not self._committer.queue:
                return

    def _sleep(self) -> None:
        if self._ticking:
            self._signal.acquire(timeout=TICK_S)
            return
        self._asleep = True  # set before looking, so that a commit after the look wakes us
        if self._store.anchor_is_old:
            self._asleep = False
            self._signal.acquire(timeout=_ANCHOR_MS / 1000)
            return
        self._signal.acquire()
        self._asleep = False

    def _tick(self) -> None:
        committer = self._committer
        if committer.queue:
            self._idle_ticks = 0
            if committer.taken == self._seen:
                self._commit()
        else:
            self._idle_ticks += 1
            if self._idle_ticks > _IDLE_TICKS:
                self._idle_ticks = 0
                self._ticking = bool(committer.queue)  # a ride may have come in just now
        self._seen = committer.taken

    def _commit(self) -> None:
        items = self._committer.commit_patiently()
        if items:
            self._deliver(items)

    def _clean_up(self) -> None:
        store, now = self._store, self._store.here.uptime_ms()
        if store.wants_checkpoint:
            with self._committer.mutex:
                store.checkpoint()
        if store.anchor_is_old and now >= self._anchor_due_ms:
            if self._anchor_due_ms:  # it has written for a second: a short command does without
                store.grow_log()
            store.follow()
            with self._committer.mutex:
                store.save_anchor()
            self._anchor_due_ms = now + _ANCHOR_MS
            if now >= self._count_due_ms:
                store.count_rows()
                spent = store.here.uptime_ms() - now
                self._count_due_ms = now + max(_COUNT_MS, _COUNT_SHARE * spent)


# --- on the loop, or on the thread ---------------------------------------------------------------------------------
# The place of a commit: on the event loop, or on the background thread. On the loop there is no hop between threads,
# which is a fifth faster at one run at a time and much faster when agent code keeps the loop busy; but a slow disk
# would stop everything else on the loop. So the time that commits keep their thread waiting for the disk is averaged,
# and the loop is used while that is short. The wait for a processor does not count: on a busy machine the thread would
# wait as long, and twice. Only speed depends on these clocks, never a decision about an effect.


_SHORT_NS = 500_000
_WEIGHT = 0.2
_FIRST_PROBE = 32
_RAREST_PROBE = 1024


class CommitPace:
    """Measures commits and chooses the way; `way` forces one."""

    def __init__(self, way: CommitsOn = "auto") -> None:
        self.way = way
        self.blocked_ns = 0.0
        self._passes = 0
        self._commits = 0
        self._probe_after = _FIRST_PROBE

    def on_loop(self) -> bool:
        """True if the next commit may block the loop. Asked once per batch."""
        if self.way != "auto":
            return self.way == "loop"
        if self.blocked_ns < _SHORT_NS:
            return True
        self._passes += 1
        if self._passes < self._probe_after:
            return False
        # The thread's own figures are spoilt by a busy loop, so now and then the loop is tried again.
        self._passes = 0
        self._probe_after = min(2 * self._probe_after, _RAREST_PROBE)
        self._commits = 0
        return True

    def start(self) -> tuple[int, int, int] | None:
        """Begin to measure a commit on the calling thread, unless it is not worth its while.

        Reading the clocks takes a tenth of a commit: one commit in sixteen will do.
        """
        self._commits += 1
        if self._commits & 15 != 1 or self.way != "auto":
            return None
        return time.perf_counter_ns(), time.thread_time_ns(), queued_ns()

    def end(self, started: tuple[int, int, int], *, on_loop: bool) -> None:
        """Take a finished commit into the average."""
        wall, cpu, queued = started
        blocked = (time.perf_counter_ns() - wall) - (time.thread_time_ns() - cpu) - (queued_ns() - queued)
        if on_loop or blocked < self.blocked_ns:
            self.blocked_ns += _WEIGHT * (blocked - self.blocked_ns)
            if self.blocked_ns < _SHORT_NS:
                self._probe_after = _FIRST_PROBE
