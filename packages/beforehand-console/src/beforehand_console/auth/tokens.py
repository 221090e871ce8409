"""API tokens: 256 random bits, shown once; the journal keeps their digest, their limits and their end."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import Final, Literal

import msgspec

from beforehand.engine.environment import Rng
from beforehand.errors import Unreadable, UsageError
from beforehand.journal.entry_codec import entries_below, read, written
from beforehand.journal.port import Journal, JournalReads, LedgerEntry, Post
from beforehand.model.shell import to_type
from beforehand_console.auth.accounts import Account, Accounts
from beforehand_console.auth.authorize import Grant, Principal

STREAM: Final = "tokens/"
SHOWN: Final = 12
_SECRET: Final = re.compile(r"bh_[0-9a-f]{64}")  # the prefix lets scanners for leaked secrets find it


class TokenNote(msgspec.Struct, frozen=True, omit_defaults=True):
    """One change to a token. `add` carries its account, its limits, its end (wall clock), and its purpose."""

    word: Literal["add", "revoke"]
    by: str
    account: str = ""
    limits: tuple[Grant, ...] = ()
    ends_ms: int = 0
    note: str = ""
    tenants: tuple[str, ...] = ()


class Token(msgspec.Struct, frozen=True):
    """A token as it is listed. `id` is the beginning of its digest: it names the token and does not open anything."""

    id: str
    account: str
    limits: tuple[Grant, ...]
    ends_ms: int
    note: str
    by: str
    revoked: bool = False
    tenants: tuple[str, ...] = ()


async def every_token(journal: JournalReads, account: str = "") -> list[Token]:
    """All tokens of a journal, or those of one account; revoked and ended ones included."""
    tokens = [_listed(digest, entries) for digest, entries in (await entries_below(journal, STREAM)).items()]
    return [token for token in tokens if account in ("", token.account)]


class Tokens:
    """The tokens of one journal."""

    def __init__(self, journal: Journal, accounts: Accounts) -> None:
        self._journal: Final = journal
        self._accounts: Final = accounts

    async def add(self, note: TokenNote, rng: Rng) -> tuple[str, Token]:
        """Make a token of an account: returns the secret, which cannot be shown again, and its listing.

        It may at most do what the account may at the moment of use, less if it has `limits`. Raises `UsageError`.
        """
        account = await self._accounts.known(note.account)
        if account.disabled:
            raise UsageError(f"{account.name} is disabled", next_step=to_type("accounts", "enable", account.name))
        secret = f"bh_{rng.token()}{rng.token()}"
        digest = _digest(secret)
        entry = await self._journal.commit(Post(STREAM + digest, "add", written(note)))
        assert entry.fresh, "256 random bits came twice"
        return secret, _listed(digest, [entry])

    async def revoke(self, id_: str, *, by: str) -> Token:
        """Revoke a token. Raises `UsageError` if no token, or more than one, begins with `id_`."""
        streams = {entry.stream for entry in await self._journal.entries(STREAM)}
        found = [stream for stream in streams if id_ and stream.startswith(STREAM + id_)]
        if len(found) != 1:
            raise UsageError(
                f"{id_!r} names {len(found) if id_ else 'no'} tokens, not one",
                next_step="beforehand accounts token list",
            )
        await self._journal.commit(Post(found[0], "revoke", written(TokenNote("revoke", by))))
        return _listed(found[0].removeprefix(STREAM), await self._journal.entries(found[0]))

    async def principal(self, secret: str, now_ms: int) -> Principal | None:
        """The principal of this token; None if it is unknown, ended or revoked, or its account is disabled."""
        if not _SECRET.fullmatch(secret):
            return None
        digest = _digest(secret)
        entries = await self._journal.entries(STREAM + digest)
        if not entries:
            return None
        token = _listed(digest, entries)
        account: Account | None = await self._accounts.find(token.account)
        if token.revoked or token.ends_ms <= now_ms or account is None or account.disabled:
            return None
        found = account.principal("token", limits=token.limits, session=token.id)
        return msgspec.structs.replace(found, tenants=token.tenants)


def _digest(secret: str) -> str:
    """A plain digest is enough: 2**256 secrets cannot be tried. The prefix keeps it apart from other digests."""
    return hashlib.sha256(b"beforehand api token\0" + secret.encode()).hexdigest()


def _note_of(entry: LedgerEntry) -> TokenNote:
    """Read an entry. One that cannot be read may have revoked the token, so it does."""
    try:
        return read(entry, TokenNote)
    except Unreadable:
        return TokenNote("revoke", "")


def _listed(digest: str, entries: Sequence[LedgerEntry]) -> Token:
    notes = [_note_of(entry) for entry in entries]
    first = notes[0]
    revoked = any(note.word == "revoke" for note in notes)
    return Token(
        digest[:SHOWN], first.account, first.limits, first.ends_ms, first.note, first.by, revoked, first.tenants
    )  # fmt: skip
