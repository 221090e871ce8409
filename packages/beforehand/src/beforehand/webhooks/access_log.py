"""The access log: every decision about a permission, allowed and refused, in the ledger below `access/`."""

from __future__ import annotations

import ipaddress
from typing import Final, Literal

import msgspec

from beforehand.journal.entry_codec import readable, written
from beforehand.journal.port import Journal, JournalReads, Post

STREAM: Final = "access/"
ANONYMOUS: Final = "-"
HOUR_MS: Final = 3_600_000
_REMEMBERED: Final = 4096

Via = Literal["typed", "password", "token", "proxy", "oidc"]
"""The proof of a person's name. `typed` proves nothing: it is a name on the command line of a reader of the file."""


class Access(msgspec.Struct, frozen=True, omit_defaults=True):
    """One decision. `who` is an account, or empty: an unknown name may be a password in the wrong field."""

    deed: str
    allowed: bool
    who: str = ""
    via: Via | None = None
    about: str = ""
    why: str = ""
    address: str = ""
    session: str = ""


class Noted(msgspec.Struct, frozen=True):
    """A decision as it is listed, with the wall clock at which it was recorded."""

    at_ms: int
    access: Access


class AccessLog:
    """The access log of one journal.

    Uses of a permission are recorded one by one. Frequent events are recorded once an hour: reading for each session,
    refusals for each account and permission, or address and reason. So no one who is refused can fill the disk.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal: Final = journal
        # The entries that exist already, so that no write is needed to find out.
        self._noted: dict[tuple[str, str], None] = {}

    async def note(self, access: Access) -> None:
        """Record it; durable on return."""
        await self._journal.commit(Post(_stream(access), "", written(access)))

    async def note_hourly(self, access: Access, now_ms: int) -> None:
        """Record it, unless an equal entry exists already for this hour."""
        why, who = access.why, access.session or network(access.address)
        if access.who and not access.allowed:  # the texts vary with what was asked for, and sessions are many
            why, who = "", ""
        like = (access.deed, str(access.allowed), why, who, str(now_ms // HOUR_MS))
        place = (_stream(access), "/".join(like))
        if place in self._noted:
            return
        await self._journal.commit(Post(*place, written(access)))
        while len(self._noted) >= _REMEMBERED:
            self._noted.pop(next(iter(self._noted)))
        self._noted[place] = None

    async def read(self, name: str = "") -> list[Noted]:
        """The decisions, in order; of one account (`-`: without an account) or of all."""
        return await recorded_access(self._journal, name)


async def recorded_access(journal: JournalReads, name: str = "") -> list[Noted]:
    """The decisions in a journal: see `AccessLog.read`."""
    entries = await journal.entries(STREAM + name)
    return [Noted(entry.at_ms, one) for entry, one in await readable(journal, entries, Access)]


def _stream(access: Access) -> str:
    return STREAM + (access.who or ANONYMOUS)


def network(address: str) -> str:
    """The unit that counts as one address: of IPv6 the network, because each household has 2**64 of them."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return "elsewhere"
    if isinstance(found, ipaddress.IPv6Address):
        if found.ipv4_mapped is not None:
            return str(found.ipv4_mapped)
        return str(ipaddress.ip_network((found.packed, 64), strict=False))
    return str(found)
