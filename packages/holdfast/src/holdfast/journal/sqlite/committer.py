"""The one place where a process commits: a queue in order, and a mutex around the file.

Used from the event loop, which never waits for the mutex, and from the background thread, which does.
Whoever has the mutex takes everything that is queued, so order is that of queueing whoever commits.
"""

from __future__ import annotations

import threading
from collections import deque

from holdfast.journal.sqlite.batch import Item
from holdfast.journal.sqlite.pace import Pace
from holdfast.journal.sqlite.store import Store


class Committer:
    """Takes batches from the queue and settles them."""

    def __init__(self, store: Store, pace: Pace) -> None:
        self.store = store
        self.pace = pace
        self.mutex = threading.Lock()
        self.queue: deque[Item] = deque()
        self.taken = 0
        """How many batches were taken: a ride that is still queued after two looks has waited long enough."""

    def commit_at_once(self) -> list[Item] | None:
        """Commit the queue on this thread; None if that would mean to wait for somebody else."""
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

    def commit_patiently(self) -> list[Item]:
        """Commit the queue, waiting for others as long as need be."""
        with self.mutex:
            items = self._take()
            if items:
                started = self.pace.start()
                self.store.settle(items, patient=True)
                if started is not None:
                    self.pace.end(started, on_loop=False)
            return items

    def _take(self) -> list[Item]:
        """Everything queued, for another thread: one by one, as the loop may be adding at this moment."""
        self.taken += 1
        items: list[Item] = []
        queue = self.queue
        while queue:
            items.append(queue.popleft())
        return items
