"""Prevents lost wake-ups: a suspending owner and an arriving command race for one ledger key.

A sender first puts its command or event into the ledger. If another process drives the run, the sender then writes
the key of that owner's lease. An owner that suspends the run writes the same key in the commit that suspends it. The
second of the two learns that it lost: the owner finds the sender's entry and leaves the run due at once, or the
sender finds that the run is suspended and claims it. A crash between these steps loses nothing, because the command
is in the ledger.

A running owner is not interrupted by this: its process finds new commands at its next poll (`Engine.look`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from holdfast.journal.port import Journal, Post
from holdfast.model.commands import COMMANDS

_NOTIFIED: Final = b'"knock"'
_RELEASED: Final = b'"left"'


async def notify_owner(journal: Journal, run: str, token: int) -> bool:
    """Keep the owner of this lease from suspending the run unseen. False: it has released the run already."""
    return (await journal.post(_owner_post(run, token, _NOTIFIED))).body == _NOTIFIED


def release_post(run: str, token: int) -> Post:
    """Part of the commit that suspends the run; `LedgerTaken` there means that a sender was first."""
    return _owner_post(run, token, _RELEASED)


def _owner_post(run: str, token: int, body: bytes) -> Post:
    return Post(f"door/{run}", str(token), body)


class CommandWatch:
    """Finds the runs of this process that have new commands: one read for all of them, however many there are.

    A run reads its own commands when it is claimed. From then on this watch finds them. `concerns` says whether this
    process holds the lease of a run, or has asked for it.
    """

    def __init__(self, journal: Journal, concerns: Callable[[str], bool]) -> None:
        self.pending: set[str] = set()
        """The runs with commands that were found and not taken yet."""
        self.seen = 0
        """The last ledger entry that was looked at."""
        self._journal = journal
        self._concerns = concerns

    async def begin(self) -> None:
        """Look no further back than to this moment: runs that are claimed from here on read what came before."""
        self.seen = await self._journal.last_entry()

    async def look(self) -> None:
        """Note the runs with commands that came since the last call."""
        # First the end, then the entries up to it: one that comes in between is found now or by the next call.
        last = await self._journal.last_entry()
        if last > self.seen:
            for entry in await self._journal.entries(COMMANDS, self.seen):
                # A run whose claim is under way counts: it may have read its commands before this one came.
                if self._concerns(run := entry.stream.removeprefix(COMMANDS)):
                    self.pending.add(run)
            self.seen = last
        self.pending = {run for run in self.pending if self._concerns(run)}
