"""The thread behind a journal: commits that should not stop the loop, riding writes, and housekeeping.

It sleeps until something is handed to it. While something rides it looks every tick whether that has
waited for two ticks, so a ride is durable within `2 * TICK_S` even if the event loop is blocked, and
no wake-up is spent on each ride.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol

from holdfast.journal.sqlite.batch import Item
from holdfast.journal.sqlite.committer import Committer

TICK_S = 0.0025
_IDLE_TICKS = 200
_ANCHOR_MS = 1000
_COUNT_MS = 5000
_COUNT_SHARE = 1000  # rows are counted for at most a thousandth of the time, however many there are


class Behind(Protocol):
    """What a group commit needs from behind: see `Background`."""

    def start(self) -> None: ...
    def stop(self) -> None: ...
    def commit_soon(self) -> None: ...
    def watch_rides(self) -> None: ...
    def keep_house(self) -> None: ...


MakeBehind = Callable[[Committer, Callable[[list[Item]], None]], Behind]


class Background:
    """The thread. `deliver` is called on it with each settled batch."""

    def __init__(self, committer: Committer, deliver: Callable[[list[Item]], None]) -> None:
        self._committer = committer
        self._store = committer.store
        self._deliver = deliver
        self._signal = threading.Lock()  # released to wake the thread: cheaper than a condition
        self._signal.acquire()
        self._wanted = False
        self._ticking = False
        self._asleep = False
        self._stopping = False
        self._thread = threading.Thread(target=self._live, name="holdfast-journal", daemon=True)
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
        """Something rides: look at the queue every tick from now on."""
        if not self._ticking:
            self._ticking = True
            self._wake()

    def keep_house(self) -> None:
        """Something was committed elsewhere: the anchor is due within a second, the log perhaps now."""
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
        self._asleep = True  # said before looking, so that a commit after the look wakes us
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
            store.follow()
            with self._committer.mutex:
                store.save_anchor()
            self._anchor_due_ms = now + _ANCHOR_MS
            if now >= self._count_due_ms:
                store.count_rows()
                spent = store.here.uptime_ms() - now
                self._count_due_ms = now + max(_COUNT_MS, _COUNT_SHARE * spent)
