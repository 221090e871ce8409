"""The door of a run: nobody leaves it asleep while somebody brings it something.

Whoever brings an order or an event first puts it into the ledger, then finds the run driven by somebody else and
knocks. Whoever drives the run to a rest leaves in the same commit. Both write the same ledger key, one for each
lease, so one of them is second and knows it: the driver hears the knock and lets the run be driven again, or the
visitor finds that the driver has left and takes the run itself. A crash between their steps loses nothing.
"""

from __future__ import annotations

from typing import Final

from holdfast.journal.port import Journal, Post

_KNOCK: Final = b'"knock"'
_LEFT: Final = b'"left"'


async def knock(journal: Journal, run: str, token: int) -> bool:
    """Tell the owner of this lease that something came. False: it has left already."""
    return (await journal.post(_door(run, token, _KNOCK))).body == _KNOCK


def leaving(run: str, token: int) -> Post:
    """Goes with the commit that lets the run rest; `LedgerTaken` there means that somebody knocked."""
    return _door(run, token, _LEFT)


def _door(run: str, token: int, word: bytes) -> Post:
    return Post(f"door/{run}", str(token), word)
