"""Accounts, kept in the ledger: each change is an entry of its own, nothing is overwritten, the last entry counts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, Literal

import msgspec

from beforehand.errors import Unreadable, UsageError
from beforehand.journal.entry_codec import entries_below, read, written
from beforehand.journal.port import Journal, JournalReads, LedgerEntry, Post
from beforehand.model.shell import to_type
from beforehand.webhooks.access_log import Via
from beforehand_console.auth.authorize import Grant, Principal

STREAM: Final = "accounts/"
# Small ASCII letters only: two names that look alike are one name.
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9._@+-]{0,63}")


class AccountNote(msgspec.Struct, frozen=True, omit_defaults=True):
    """One change to an account. `add` and `role` carry grants, `password` a hash, `subject` the OpenID subject.

    `out` ends all sessions that began before it.
    """

    word: Literal["add", "role", "password", "subject", "disable", "enable", "out"]
    by: str
    grants: tuple[Grant, ...] = ()
    hash: str = ""
    subject: str = ""
    why: str = ""


class Account(msgspec.Struct, frozen=True):
    """An account, after all of its changes.

    `hash` is empty if there is no password. `since` is the ledger entry that last ended all sessions: a person who was
    disabled, or has another password, is signed out everywhere.
    """

    name: str
    grants: tuple[Grant, ...]
    since: int
    hash: str = ""
    subject: str = ""
    disabled: bool = False

    def principal(
        self, via: Via, *, limits: tuple[Grant, ...] = (), proven_ms: int = 0, session: str = ""
    ) -> Principal:
        """The principal of this account for one request. A disabled account may do nothing."""
        return Principal(self.name, () if self.disabled else self.grants, via, limits, proven_ms, session)


async def every_account(journal: JournalReads) -> list[Account]:
    """The accounts of a journal, by name."""
    accounts = (folded(name, entries) for name, entries in sorted((await entries_below(journal, STREAM)).items()))
    return [account for account in accounts if account is not None]


class Accounts:
    """The accounts of one journal. A process that can write its file can add the first one, and any other."""

    def __init__(self, journal: Journal) -> None:
        self.journal: Final = journal

    async def find(self, name: str) -> Account | None:
        """The account of that name, disabled ones included."""
        if not _NAME.fullmatch(name):
            return None
        return folded(name, await self.journal.entries(STREAM + name))

    async def known(self, name: str) -> Account:
        """The account of that name. Raises `UsageError`."""
        found = await self.find(name)
        if found is None:
            raise UsageError(f"account {name!r} does not exist", next_step="beforehand accounts list")
        return found

    async def by_subject(self, subject: str) -> Account | None:
        """The one account with this subject at a provider; None if there is none, or more than one."""
        accounts = [account for account in await every_account(self.journal) if subject and account.subject == subject]
        return accounts[0] if len(accounts) == 1 else None

    async def add(self, name: str, grants: Sequence[Grant], *, by: str, subject: str = "") -> Account:
        """Add an account, without a password yet. A name is never given twice. Raises `UsageError`."""
        if not _NAME.fullmatch(name):
            raise UsageError(
                f"{name!r} cannot name an account", next_step="use small letters, digits and . _ @ + -, up to 64"
            )
        note = AccountNote("add", by, _checked(grants), subject=subject)
        if not (await self.journal.commit(Post(STREAM + name, "add", written(note)))).fresh:
            raise UsageError(f"account {name} exists already", next_step=to_type("accounts", "role", name, "ROLE"))
        return await self.known(name)

    async def change(self, name: str, note: AccountNote) -> Account:
        """Note a change, and return the account as it is then. Raises `UsageError` where there is no such account."""
        await self.known(name)
        if note.word == "role":
            _checked(note.grants)
        await self.journal.commit(Post(STREAM + name, "", written(note)))
        return await self.known(name)


def folded(name: str, entries: Sequence[LedgerEntry]) -> Account | None:
    """The account that its entries describe; None if none was added."""
    account: Account | None = None
    for entry in entries:
        try:
            note = read(entry, AccountNote)
        except Unreadable:  # it may have disabled the account: closed, until a later entry opens it
            note = AccountNote("disable", "")
        if account is not None:
            account = _after(account, note, entry.id)
        elif note.word == "add":
            account = Account(name, note.grants, entry.id, subject=note.subject)
    return account


def _after(account: Account, note: AccountNote, number: int) -> Account:
    replace = msgspec.structs.replace
    match note.word:
        case "role":
            return replace(account, grants=note.grants)
        case "password":
            return replace(account, hash=note.hash, since=number)
        case "subject":
            return replace(account, subject=note.subject, since=number)
        case "disable":
            return replace(account, disabled=True, since=number)
        case "enable":
            return replace(account, disabled=False, since=number)
        case _:
            return replace(account, since=number)


def _checked(grants: Sequence[Grant]) -> tuple[Grant, ...]:
    for grant in grants:
        if grant.role == "admin" and (grant.tools or grant.queues):
            raise UsageError(
                "an admin cannot be limited to tools or queues: admins can give themselves any role",
                next_step="give the role operator, narrowed; or admin without tools and queues",
            )
    if not grants:
        raise UsageError("an account needs a role", next_step="name it: --role viewer | answerer | operator | admin")
    return tuple(grants)
