"""Limits on sign-in tries, counted in the journal, so that a restart or a second process does not reset them.

The generic cell rate algorithm: one number, the moment at which the allowance is whole again. It is kept in a bounded
number of hints: trying a million names does not fill the file. The guard counts the requests of an account by the same
rule, in memory: that costs no commit for each, and its accounts are few.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Final

import msgspec

from beforehand.errors import SignInRefused
from beforehand.journal.cells import read_hint
from beforehand.journal.port import HintRequest, Identity, Journal
from beforehand.webhooks.access_log import network

BUCKETS: Final = 65_536
_TRIES: Final = 100


class Rate(msgspec.Struct, frozen=True):
    """`burst` tries at once, then one more every `every_ms`."""

    burst: int
    every_ms: int


PER_NAME: Final = Rate(burst=5, every_ms=60_000)
PER_ADDRESS: Final = Rate(burst=20, every_ms=6_000)  # an office has one address
PER_ACCOUNT: Final = Rate(burst=300, every_ms=200)
"""The requests of one account that change something, apart for tokens and for browsers; a person makes fewer."""


def taken(rate: Rate, whole_ms: int, now_ms: int) -> tuple[int, int]:
    """Take one try: returns when the allowance is whole again, and how many milliseconds to wait (0: it may be made).

    A moment further ahead than possible is not believed: the clock was set back since.
    """
    whole = max(now_ms, min(whole_ms, now_ms + rate.burst * rate.every_ms))
    wait = whole + rate.every_ms - now_ms - rate.burst * rate.every_ms
    return (whole, wait) if wait > 0 else (whole + rate.every_ms, 0)


class SignInLimits:
    """The tries of all visitors, by name and by address. A try is counted before it is checked."""

    def __init__(self, journal: Journal, identity: Identity) -> None:
        self._journal: Final = journal
        self._key: Final = identity.secret

    async def take(self, name: str, address: str, now_ms: int) -> None:
        """Count one try. Raises `SignInRefused` with the time to wait.

        The name need not belong to an account; it is empty where only a provider knows it yet.
        """
        for hint, rate in self._counted(name, address):
            wait_ms = await self._move(hint, rate, now_ms)
            if wait_ms:
                raise SignInRefused("too many tries", retry_after=wait_ms / 1000, next_step="wait, and then try again")

    async def give_back(self, name: str, address: str, now_ms: int) -> None:
        """Give back a try that was right: it does not count."""
        for hint, rate in self._counted(name, address):
            await self._move(hint, rate, now_ms, back=True)

    def _counted(self, name: str, address: str) -> list[tuple[str, Rate]]:
        by_address = (self._hint("address", network(address)), PER_ADDRESS)
        return [by_address, (self._hint("name", name), PER_NAME)] if name else [by_address]

    def _hint(self, kind: str, who: str) -> str:
        """The name of a counter. Keyed, so that no visitor can choose a name that shares another one's counter."""
        digest = hmac.digest(self._key, f"sign-in\0{kind}\0{who}".encode(errors="replace"), hashlib.sha256)
        return f"sign-in/{kind}/{int.from_bytes(digest[:4]) % BUCKETS:04x}"

    async def _move(self, hint: str, rate: Rate, now_ms: int, *, back: bool = False) -> int:
        """Take one try, or give it back; returns how many milliseconds to wait."""
        for _ in range(_TRIES):
            previous = await read_hint(self._journal, hint)
            whole_ms = int(previous) if previous is not None else 0
            moved, wait_ms = (whole_ms - rate.every_ms, 0) if back else taken(rate, whole_ms, now_ms)
            if wait_ms or await self._journal.commit(HintRequest(hint, str(moved).encode(), previous)):
                return wait_ms
        return rate.every_ms  # so many others are at it that this is no time for another one
