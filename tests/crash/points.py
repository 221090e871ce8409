"""Where a worker may die: named points, counted; at the planned ones the process kills itself with SIGKILL."""

import itertools
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterable
from operator import itemgetter

from beforehand.engine.environment import POINTS
from beforehand.journal.port import ClaimRequest, Post, Posts, TakeRequest, Write
from beforehand.journal.sqlite.journal import SqliteJournal
from tests.draws import of_the_day

REQUEST = ("before_request", "after_request", "after_reply")  # around the bytes that a tool sends and receives
COMMIT = ("before_commit", "after_commit")  # around every append that something waits for
LEDGER = ("before_post", "after_post")  # around entries from outside: a person's word
ALL = (*POINTS, *REQUEST, *COMMIT, *LEDGER)


def one_of_each(places: Iterable[tuple[str, int]]) -> list[tuple[str, int]]:
    """One occurrence of each point, drawn by the date."""
    return [of_the_day(occurrences) for _, occurrences in itertools.groupby(sorted(places), key=itemgetter(0))]


def struck(status: int, point: str, number: int) -> bool:
    """True if the process died there. How often it commits depends on the disk: the last occurrence may not come again.

    `status` is how it ended, negative for a signal.
    """
    assert status == -signal.SIGKILL or (status == 0 and number > 1), f"{point} was not reached a {number}. time"
    return status != 0


class Points:
    """Counts every point that is reached, and ends the process at the planned occurrence of one of them."""

    def __init__(self, kill=None, delays=None):
        self.reached_so_far = Counter()
        self._kill = tuple(kill) if kill else None
        self._chance = random.Random(delays) if delays is not None else None

    def reached(self, point):
        self.reached_so_far[point] += 1
        if self._chance is not None and self._chance.random() < 0.2:
            time.sleep(self._chance.uniform(0, 0.004))  # real processes: other moments meet in every run
        if self._kill == (point, self.reached_so_far[point]):
            os.kill(os.getpid(), signal.SIGKILL)


_POINTS = {ClaimRequest: "lease", TakeRequest: "take", Write: "commit", Posts: "post_all", Post: "post"}


class WatchedJournal(SqliteJournal):
    """The real journal with points around what it commits."""

    def __init__(self, path, points):
        super().__init__(path)
        self._points = points

    async def commit(self, request):
        point = _POINTS.get(type(request))
        if point is None:
            return await super().commit(request)
        self._points.reached(f"before_{point}")
        answer = await super().commit(request)
        self._points.reached(f"after_{point}")
        return answer
