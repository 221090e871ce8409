"""The web face in this process: the real app behind the real guard, over a journal in memory, in virtual time."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import httpx2
import pytest

from beforehand import Beforehand, Key, Run, agent, tool
from beforehand.engine.environment import SystemRng
from beforehand.errors import Declined, RunSuspended
from beforehand.people import Policy
from beforehand.policies import Gate
from beforehand_console.auth.authenticator import Authenticator
from beforehand_console.auth.authorize import Grant, Principal
from beforehand_console.auth.guard import Guard
from beforehand_console.auth.passwords import Passwords
from beforehand_console.auth.site import cookie_name, loopback
from beforehand_console.auth.tokens import TokenNote
from beforehand_console.web.app import web
from tests.unit.console.auth.keeping import Counting
from tests.unit.engine.lab import Lab

ORIGIN = "http://127.0.0.1"
HOSTILE = "p\u0430ypal \u202egpj.exe <script>alert(1)</script>\x1b[31m"


@dataclass
class Stand:
    """One server with people at it."""

    app: Beforehand
    guard: Guard
    authenticator: Authenticator
    lab: Lab

    async def client(self, name: str, *grants: Grant) -> httpx2.AsyncClient:
        """A browser that came in from the terminal, until there are accounts; an admin where nothing else is said."""
        principal = Principal(name, grants or (Grant("admin"),))
        cookie = f"{cookie_name(ORIGIN)}={await self.authenticator.admit(principal, '127.0.0.1')}"
        return self.stranger(cookie=cookie)

    async def signed_in(self, name: str) -> httpx2.AsyncClient:
        """A browser in the session of an account."""
        account = await self.authenticator.accounts.known(name)
        secret = await self.authenticator.sessions.begin(account, "password", self.authenticator.now_ms, SystemRng())
        return self.stranger(cookie=f"{cookie_name(ORIGIN)}={secret}")

    async def proven(self, name: str) -> httpx2.AsyncClient:
        """A program of an account, known by a token."""
        note = TokenNote("add", "root", name, ends_ms=self.authenticator.now_ms + 86_400_000)
        secret, _ = await self.authenticator.tokens.add(note, SystemRng())
        return self.stranger(authorization=f"Bearer {secret}")

    def stranger(self, **headers: str) -> httpx2.AsyncClient:
        """A browser on a page of ours, without a signed-in user."""
        transport = httpx2.ASGITransport(self.guard, raise_app_exceptions=False)
        return httpx2.AsyncClient(
            transport=transport, base_url=ORIGIN, headers={"origin": ORIGIN, **headers}, trust_env=False
        )


@asynccontextmanager
async def standing(
    lab: Lab,
    *,
    begun: tuple[str, ...] = ("ann",),
    agents: Sequence[Any] = (),
    policy: Policy | None = None,
    **settings: int,
) -> AsyncGenerator[Stand]:
    """A desk at which every kind of item waits, or what these `agents` ask, for each customer in `begun`."""
    agents = agents or desk_of(lab)
    async with lab.app(*agents, policy=policy, **settings) as app:
        authenticator = Authenticator(app.engine, Passwords(Counting()))
        for name in begun:
            for one in agents:
                with pytest.raises(RunSuspended):
                    await app.run(one, name)
        yield Stand(app, web(app.service, authenticator, loopback(80)), authenticator, lab)


def desk_of(lab: Lab) -> list[Any]:
    @tool(gate=Gate("cents > 5000", within=timedelta(hours=3)), idempotency=Key.forever())
    async def refund(cents: int, note: str = "") -> str:
        lab.sent.append(f"refund {cents}")
        return f"paid {cents}"

    @tool(gate="true")
    async def send_mail(to: str, body: str) -> None:
        lab.sent.append(f"mail {to}")

    @tool
    async def restock(sku: str) -> str:
        raise TimeoutError("no answer")

    @agent(run_id="refund-{name}", tools=[refund])
    async def refunds(run: Run, name: str) -> str:
        try:
            return await refund(9000, note="broken\non arrival")
        except Declined as no:
            return await refund(6000) if no.code == "asked_back" else f"{no.code}: {no.message}"

    @agent(run_id="mail-{name}", tools=[send_mail])
    async def mails(run: Run, name: str) -> None:
        await send_mail(f"{name}@example.com", HOSTILE)

    @agent(run_id="trip-{name}")
    async def trips(run: Run, name: str) -> str:
        return await run.ask("Which city?", choices=("Paris", "Rome"), timeout=timedelta(days=1))

    @agent(run_id="stock-{name}", tools=[restock])
    async def stocks(run: Run, name: str) -> str:
        return await restock("mug")

    return [refunds, mails, trips, stocks]
