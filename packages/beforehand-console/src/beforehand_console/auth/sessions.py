"""Sessions of browsers: an id of 256 random bits in a cookie, everything else here. Each of them can be ended here."""

from __future__ import annotations

import hashlib
import re
from typing import Final, Literal

import msgspec

from beforehand.engine.environment import Rng
from beforehand.journal.entry_codec import readable, written
from beforehand.journal.port import Identity, Journal, Post
from beforehand.webhooks.access_log import Via
from beforehand_console.auth.accounts import Account, Accounts
from beforehand_console.auth.authorize import Principal

STREAM: Final = "sessions/"
LASTS_MS: Final = 12 * 3_600_000
"""A working day: a person who leaves a browser open signs in again the next morning."""
SHOWN: Final = 12
_SECRET: Final = re.compile(r"[0-9a-f]{64}")


class SessionNote(msgspec.Struct, frozen=True, omit_defaults=True):
    """One change to a session: its account, the way in and the end (wall clock); or that it ended.

    `since` is that of the account as it was when they proved who they are.
    """

    word: Literal["begin", "end"]
    account: str
    since: int = 0
    via: Via = "password"
    ends_ms: int = 0
    proven_ms: int = 0


class Sessions:
    """The sessions of one journal.

    Their names are digests over its incarnation, too: in a restored journal no session is open, including
    those that were ended after the backup was made.
    """

    def __init__(self, journal: Journal, identity: Identity, accounts: Accounts) -> None:
        self._journal: Final = journal
        self._salt: Final = f"beforehand session\0{identity.incarnation}\0".encode()
        self._accounts: Final = accounts

    async def begin(self, account: Account, via: Via, now_ms: int, rng: Rng) -> str:
        """Begin a session, and return the secret that opens it. A value that a browser brings is never made one."""
        secret = rng.token() + rng.token()
        proven_ms = now_ms if via == "password" else 0
        note = SessionNote("begin", account.name, account.since, via, now_ms + LASTS_MS, proven_ms)
        entry = await self._journal.commit(Post(self._stream(secret), "begin", written(note)))
        assert entry.fresh, "256 random bits came twice"
        return secret

    async def end(self, secret: str) -> None:
        """End a session. One that was never begun is not noted."""
        found = await self._note(secret)
        if found is not None:
            note = SessionNote("end", found.account)
            await self._journal.commit(Post(self._stream(secret), "end", written(note)))

    async def principal(self, secret: str, now_ms: int) -> Principal | None:
        """The principal of this session; None if it is unknown or over, or its account was disabled or changed since.

        Since they proved who they are, that is, not since the session began: in between a password may be changed.
        """
        note = await self._note(secret)
        if note is None:
            return None
        account = await self._accounts.find(note.account)
        if note.ends_ms <= now_ms or account is None or account.disabled or account.since != note.since:
            return None
        return account.principal(note.via, proven_ms=note.proven_ms, session=self._digest(secret)[:SHOWN])

    async def _note(self, secret: str) -> SessionNote | None:
        """The note with which an open session began."""
        if not _SECRET.fullmatch(secret):
            return None
        entries = await self._journal.entries(self._stream(secret))
        notes = await readable(self._journal, entries, SessionNote)
        return notes[0][1] if len(notes) == len(entries) == 1 else None

    def _stream(self, secret: str) -> str:
        return STREAM + self._digest(secret)

    def _digest(self, secret: str) -> str:
        return hashlib.sha256(self._salt + secret.encode()).hexdigest()
