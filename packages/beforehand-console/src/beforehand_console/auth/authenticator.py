"""Authentication and authorization, decided and recorded. Every interface with a network asks here."""

from __future__ import annotations

import asyncio
import hashlib
from typing import Final

import msgspec

from beforehand.engine.engine import Engine
from beforehand.errors import NotAllowed, SignInRefused
from beforehand.webhooks.access_log import Access, AccessLog
from beforehand_console.auth.accounts import Account, Accounts, every_account
from beforehand_console.auth.authorize import Permission, PermissionScope, Principal, check_answerer, may_somewhere
from beforehand_console.auth.passwords import Passwords
from beforehand_console.auth.rate_limits import SignInLimits
from beforehand_console.auth.sessions import Sessions
from beforehand_console.auth.tokens import Tokens

AT_ONCE: Final = 2
"""How many passwords are compared at the same time: each comparison takes 64 MiB."""
WAITING: Final = 32
"""How many wait for that. More are refused at once: they are not people."""
NAMELESS: Final = "-"
"""The name under which tries without a name are counted; no account has it."""
WRONG: Final = "the name or the password is wrong"


class NewSession(msgspec.Struct, frozen=True):
    """A session that has just begun: the secret for the browser's cookie, and its principal."""

    secret: str
    principal: Principal


class Authenticator:
    """Authenticates people and programs, over one open engine."""

    def __init__(self, engine: Engine, passwords: Passwords | None = None) -> None:
        journal, identity = engine.journal, engine.identity
        self.accounts: Final = Accounts(journal)
        self.tokens: Final = Tokens(journal, self.accounts)
        self.sessions: Final = Sessions(journal, identity, self.accounts)
        self.log: Final = AccessLog(journal)
        self._limits: Final = SignInLimits(journal, identity)
        self._passwords: Final = passwords or Passwords()
        self._engine: Final = engine
        self._comparing: Final = asyncio.Semaphore(AT_ONCE)
        self._waiting = 0
        self._admitted: Final[dict[str, Principal]] = {}

    @property
    def closed(self) -> str:
        """Why every request is refused, if so: a journal set back in time may know accounts that were closed since."""
        identity = self._engine.identity
        return identity.reason or "the journal is distrusted" if identity.trust == "distrustful" else ""

    @property
    def now_ms(self) -> int:
        """The wall clock."""
        return self._engine.wall_ms()

    # --- coming in -------------------------------------------------------------------------------------------

    async def sign_in(self, name: str, password: str, address: str, *, old: str = "") -> NewSession:
        """Begin a session for this name and password. Raises `SignInRefused`, in the same words whatever was wrong.

        Each try costs one comparison, also for names without an account. `old` is the session that the browser had; it
        ends.
        """
        now_ms = self.now_ms
        await self.count(name or NAMELESS, address)
        account = await self.accounts.find(name)
        if not await self._fits(account, password) or account is None or account.disabled:
            who = account.name if account is not None else ""
            await self.log.note(Access("sign in", allowed=False, who=who, why="not accepted", address=address))
            raise SignInRefused(WRONG, next_step="try again, or ask an admin for a new password")
        await self._limits.give_back(name or NAMELESS, address, now_ms)
        if old:
            await self.sessions.end(old)
        secret = await self.sessions.begin(account, "password", now_ms, self._engine.environment.rng)
        return await self._begun(secret, address)

    async def count(self, name: str, address: str) -> None:
        """Count one try to sign in. Raises `SignInRefused` after too many."""
        try:
            await self._limits.take(name, address, self.now_ms)
        except SignInRefused:
            refused = Access("sign in", allowed=False, why="too many tries", address=address)
            await self.log.note_hourly(refused, self.now_ms)
            raise

    async def vouch(self, subject: str, address: str, *, old: str = "") -> NewSession:
        """Begin a session for the account of a `subject` that a provider vouches for. Raises `SignInRefused`."""
        account = await self.accounts.by_subject(subject)
        if account is None or account.disabled:
            who, why = (account.name, "closed") if account is not None else ("", f"no account is {subject}")
            await self.log.note(Access("sign in", allowed=False, who=who, via="oidc", why=why, address=address))
            raise SignInRefused(
                "no account here is linked to this sign-in",
                next_step="ask an admin, who finds this sign-in in the audit log",
            )
        if old:
            await self.sessions.end(old)
        secret = await self.sessions.begin(account, "oidc", self.now_ms, self._engine.environment.rng)
        return await self._begun(secret, address)

    async def sign_out(self, secret: str, principal: Principal) -> None:
        """End this session, here and not only in the browser."""
        self._admitted.pop(hashlib.sha256(secret.encode()).hexdigest(), None)
        await self.sessions.end(secret)
        await self.log.note(_access(principal, "sign out", ""))

    async def admit(self, principal: Principal, address: str) -> str:
        """Let a person in without an account: returns the secret for the browser's cookie.

        It is valid while this process lives and no account is enabled: from then on people sign in.
        Only for a person who could write the journal's file as well, such as the reader of this process's terminal.
        """
        secret = self._engine.environment.rng.token() + self._engine.environment.rng.token()
        session = hashlib.sha256(secret.encode()).hexdigest()
        self._admitted[session] = msgspec.structs.replace(principal, session=session[:12])
        await self.log.note(msgspec.structs.replace(_access(principal, "sign in", ""), address=address))
        return secret

    async def by_session(self, secret: str) -> Principal | None:
        """The principal of the session that this secret opens."""
        admitted = self._admitted.get(hashlib.sha256(secret.encode()).hexdigest())
        if admitted is not None:
            if await self.has_accounts():
                self._admitted.clear()
                return None
            return admitted
        return await self.sessions.principal(secret, self.now_ms)

    async def has_accounts(self) -> bool:
        """True if any account is enabled. Checked each time: another process may add the first one."""
        return any(not account.disabled for account in await every_account(self.accounts.journal))

    async def by_token(self, secret: str) -> Principal | None:
        """The principal of this token."""
        return await self.tokens.principal(secret, self.now_ms)

    async def by_name(self, name: str) -> Principal | None:
        """The principal of the account that a trusted proxy names. A proxy vouches for people, and gives no roles."""
        account = await self.accounts.find(name)
        return None if account is None or account.disabled else account.principal("proxy")

    # --- what they may ---------------------------------------------------------------------------------------

    async def require(
        self, principal: Principal, permission: Permission, about: PermissionScope, *, proposers: tuple[str, ...] = ()
    ) -> None:
        """Decide and record whether it is permitted; durable before anything is done. Raises `NotAllowed`.

        The `proposers` of the item are refused.
        """
        try:
            check_answerer(principal, about, proposers, permission)
        except NotAllowed as no:
            await self.note_refused(principal, permission, about.item, no.known)
            raise
        if permission == "look":
            await self.log.note_hourly(_access(principal, permission, ""), self.now_ms)
        else:
            await self.log.note(_access(principal, permission, about.item))

    async def require_somewhere(self, principal: Principal, permission: Permission) -> None:
        """Decide and record whether it is permitted anywhere: for a list, from which each line is judged."""
        if not may_somewhere(principal, permission):
            await self.note_refused(principal, permission, "", "nowhere")
            raise NotAllowed(f"{principal.name} lacks the permission {permission!r}", next_step="ask an admin for it")
        await self.log.note_hourly(_access(principal, permission, ""), self.now_ms)

    # --- inside ----------------------------------------------------------------------------------------------

    async def _fits(self, account: Account | None, password: str) -> bool:
        kept = account.hash if account is not None else ""
        if self._waiting >= WAITING:
            raise SignInRefused("too many people sign in at this moment", retry_after=1, next_step="try again")
        self._waiting += 1
        try:
            async with self._comparing:
                return await self._engine.environment.threads.call(lambda: self._passwords.fits(kept, password))
        finally:
            self._waiting -= 1

    async def _begun(self, secret: str, address: str) -> NewSession:
        principal = await self.by_session(secret)
        if principal is None:  # disabled, or another password, between the comparison and now
            raise SignInRefused(WRONG, next_step="try again, or ask an admin for a new password")
        access = _access(principal, "sign in", "")
        await self.log.note(msgspec.structs.replace(access, address=address))
        return NewSession(secret, principal)

    async def note_refused(self, principal: Principal, permission: Permission, item: str, why: str) -> None:
        """Record an access that was refused: the first of an hour for the account and the permission."""
        refused = msgspec.structs.replace(_access(principal, permission, item), allowed=False, why=why)
        await self.log.note_hourly(refused, self.now_ms)


def _access(principal: Principal, permission: str, about: str) -> Access:
    who, via, session = principal.name, principal.via, principal.session
    return Access(permission, allowed=True, who=who, via=via, about=about, session=session)
