"""What the tests of accounts share: a clock that they set, a hasher that counts, and a house with people in it."""

import asyncio
import random
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from argon2 import PasswordHasher
from argon2.exceptions import VerifyMismatchError

from beforehand.engine.engine import Engine
from beforehand.engine.environment import DaemonThreads, Environment, NoCrash
from beforehand.engine.settings import Settings
from beforehand.journal import host
from beforehand.journal.memory import MemoryJournal
from beforehand.journal.port import Trust
from beforehand.testing.clock import EPOCH_MS
from beforehand_console.auth.accounts import AccountNote, Accounts
from beforehand_console.auth.authenticator import Authenticator
from beforehand_console.auth.authorize import Grant
from beforehand_console.auth.passwords import Passwords
from beforehand_console.auth.tokens import TokenNote, Tokens

DAY_MS = 86_400_000


@dataclass
class Now:
    """A clock of both kinds that stands until it is moved."""

    ms: int = EPOCH_MS

    def wall_ms(self) -> int:
        return self.ms

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def pass_by(self, *, seconds: float = 0, days: float = 0) -> None:
        self.ms += int(seconds * 1000 + days * DAY_MS)


@dataclass
class Drawn:
    """Identifiers that are drawn from a seed: the same in each run of a test, never the same twice in one."""

    source: random.Random = field(default_factory=lambda: random.Random(1))

    def uniform(self, low: float, high: float) -> float:
        return self.source.uniform(low, high)

    def token(self) -> str:
        return f"{self.source.getrandbits(128):032x}"


class Counting:
    """Real argon2id with small parameters, how often it did the work of a comparison, and on how much at most.

    What is no hash is turned away by the library before any work is done, and does not count.
    """

    def __init__(self) -> None:
        self._real = PasswordHasher(time_cost=1, memory_cost=64, parallelism=1)
        self.compared = self.longest = 0

    def hash(self, password: str) -> str:
        return self._real.hash(password)

    def verify(self, hash: str, password: str) -> bool:  # noqa: A002 - the library's own name
        try:
            right = self._real.verify(hash, password)
        except VerifyMismatchError:
            right = False
        self.compared += 1
        self.longest = max(self.longest, len(password))
        if not right:
            raise VerifyMismatchError
        return right


class House:
    """A journal, its accounts and their keys."""

    def __init__(self, *, trust: Trust = "trusted") -> None:
        self.now, self.rng, self.hasher = Now(), Drawn(), Counting()
        self.journal = MemoryJournal(self.now.wall_ms, trust=trust)
        self.accounts = Accounts(self.journal)
        self.tokens = Tokens(self.journal, self.accounts)
        self.passwords = Passwords(self.hasher)

    async def person(self, name: str, *grants: Grant, password: str = "") -> None:
        await self.accounts.add(name, grants or [Grant("admin")], by="root")
        if password:
            await self.set_password(name, password)

    async def set_password(self, name: str, password: str) -> None:
        hashed = self.passwords.hashed(password, name)
        await self.accounts.change(name, AccountNote("password", "root", hash=hashed))

    async def token(self, name: str, *limits: Grant) -> str:
        note = TokenNote("add", "root", name, limits, self.now.ms + DAY_MS)
        return (await self.tokens.add(note, self.rng))[0]

    @asynccontextmanager
    async def authenticator(self) -> AsyncGenerator[Authenticator]:
        """The way in, over an engine of its own: as another process would have it."""
        environment = Environment(self.now, self.rng, DaemonThreads(), NoCrash())
        engine = Engine(self.journal, environment, Settings(), {}, {}, host.this_process)
        await engine.open()
        try:
            yield Authenticator(engine, self.passwords)
        finally:
            await engine.close()

    async def everything(self) -> str:
        """All that the ledger holds, and all hints."""
        entries = [
            entry
            for stream in ("accounts/", "tokens/", "sessions/", "access/")
            for entry in await self.journal.entries(stream)
        ]
        return repr(entries) + repr(self.journal.__dict__)


async def opened() -> House:
    house = House()
    await house.journal.open()
    return house
