"""Which runs this process holds, and how a lease comes back that the journal did not let go of.

A journal that fails may have done what it was asked: a claim that raised can still be ours, and a lease that
we gave back may still be there. Nobody else takes either while this process lives, so it has to look.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from holdfast.errors import JournalError, LeaseLost
from holdfast.journal.port import Busy, Journal, Lease, LeaseGranted, NewRun, Post, RunChange, RunRow, Write

if TYPE_CHECKING:
    from holdfast.engine.engine import Engine


LOG: Final = logging.getLogger("holdfast")


class Leases:
    """The leases of one process."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._held: set[str] = set()
        self._asking: dict[str, int] = {}  # claims whose answer is under way: they may be ours in a moment

    async def claim(self, run: str, new: NewRun | None = None) -> LeaseGranted | Busy | None:
        """As `Journal.claim`; a lease that is ours although nothing here holds it is given back first."""
        journal, worker = self._engine.journal, self._engine.worker.id
        self._asking[run] = self._asking.get(run, 0) + 1
        try:
            found = await journal.claim(run, worker, new)
            forgotten = self._asking[run] == 1 and run not in self._held
            if isinstance(found, Busy) and found.row.owner == worker and forgotten:
                await journal.append(self._giving_back(found.row))
                found = await journal.claim(run, worker, new)
            if isinstance(found, LeaseGranted):
                self._held.add(run)
            return found
        finally:
            self._asking[run] -= 1
            if not self._asking[run]:
                del self._asking[run]

    def let_go(self, run: str) -> None:
        """Nothing here drives this run any more."""
        self._held.discard(run)

    def give_back(self, row: RunRow) -> None:
        """The journal failed while we held this run: give its lease back as soon as it can be done."""
        self._engine.background(self._give_back(row), f"holdfast-release-{row.run}")

    async def _give_back(self, row: RunRow) -> None:
        write = self._giving_back(row)
        while not self._engine.closing:
            try:
                await self._engine.journal.append(write)
            except LeaseLost:
                return
            except JournalError as error:
                LOG.warning("the lease of run %s could not be given back: %s", row.run, error)
                await self._engine.environment.clock.sleep(self._engine.settings.poll_ms / 1000)
            else:
                return

    def _giving_back(self, row: RunRow) -> Write:
        """The lease is free, and the listing stays as it was."""
        change = unchanged_listing(row, self._engine.environment.clock.wall_ms())
        return Write(Lease(row.run, row.row, row.token, self._engine.worker.id), (), change)


def unchanged_listing(row: RunRow, now_ms: int) -> RunChange:
    """The listing of a run that was held for nothing. One that waits is due: somebody may have knocked meanwhile."""
    due = now_ms if row.status == "suspended" else row.due_ms
    return RunChange(row.status, row.reason, due, row.waits, release=True)


# The door of a run: nobody leaves it asleep while somebody brings it something.
#
# Whoever brings an order or an event first puts it into the ledger, then finds the run driven by somebody else and
# knocks. Whoever drives the run to a rest leaves in the same commit. Both write the same ledger key, one for each
# lease, so one of them is second and knows it: the driver hears the knock and lets the run be driven again, or the
# visitor finds that the driver has left and takes the run itself. A crash between their steps loses nothing.


_KNOCK: Final = b'"knock"'
_RELEASED: Final = b'"left"'


async def notify_owner(journal: Journal, run: str, token: int) -> bool:
    """Tell the owner of this lease that something came. False: it has left already."""
    return (await journal.post(_owner_post(run, token, _KNOCK))).body == _KNOCK


def release_post(run: str, token: int) -> Post:
    """Goes with the commit that lets the run rest; `LedgerTaken` there means that somebody knocked."""
    return _owner_post(run, token, _RELEASED)


def _owner_post(run: str, token: int, word: bytes) -> Post:
    return Post(f"door/{run}", str(token), word)
