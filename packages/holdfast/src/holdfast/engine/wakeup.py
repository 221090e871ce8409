"""Prevents lost wake-ups: a suspending owner and an arriving command race for one ledger key.

A sender first puts its command or event into the ledger. If another process drives the run, the sender then writes
the key of that owner's lease. An owner that suspends the run writes the same key in the commit that suspends it. The
second of the two learns that it lost: the owner finds the sender's entry and leaves the run due at once, or the
sender finds that the run is suspended and claims it. A crash between these steps loses nothing, because the command
is in the ledger.

A running owner is not interrupted by this: it reads new commands at its next poll (`Engine.look`).
"""

from __future__ import annotations

from typing import Final

from holdfast.journal.port import Journal, Post

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
