"""A shop around `order.py`: its desk, the server that takes the bank's webhooks, and a calendar that can be turned."""

from __future__ import annotations

import asyncio
import base64
import os
import secrets
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta

import uvicorn

from beforehand import Beforehand, RunSuspended
from beforehand.engine.environment import DaemonThreads, Environment, NoCrash, SystemClock, SystemRng
from beforehand.journal.memory import MemoryJournal
from beforehand.webhooks.incoming import Hooks, WebhookSender
from examples.bank import Bank, open_bank
from examples.order import Order, order_desk


class Calendar(SystemClock):
    """The machine's clock, turned forward."""

    def __init__(self) -> None:
        self._turned_ms = 0

    def turn(self, duration: timedelta) -> None:
        """So much time passes now."""
        self._turned_ms += int(duration.total_seconds() * 1000)

    def wall_ms(self) -> int:
        """Milliseconds since 1970, as the calendar says."""
        return super().wall_ms() + self._turned_ms


class Shop:
    """The desk of one shop, its calendar and its bank."""

    def __init__(self, app: Beforehand, calendar: Calendar, bank: Bank) -> None:
        self.app = app
        self.calendar = calendar
        self.bank = bank

    async def go_on(self, order: Order) -> str:
        """What the desk says about an order: its result, or what it waits for."""
        try:
            return await self.app.run(order_desk, order)
        except RunSuspended as waits:
            return waits.message


@asynccontextmanager
async def open_shop() -> AsyncGenerator[Shop]:
    """A shop with a bank beside it, over real sockets on loopback."""
    secret, calendar = "whsec_" + base64.b64encode(secrets.token_bytes(24)).decode(), Calendar()
    environment = Environment(calendar, SystemRng(), DaemonThreads(), NoCrash())
    journal = MemoryJournal(calendar.wall_ms, calendar.wall_ms)
    with open_bank(secret) as bank:
        os.environ["BANK"] = bank.url
        async with Beforehand(journal, agents=[order_desk], environment=environment, recover=False) as app:
            with socket.create_server(("127.0.0.1", 0)) as line:
                bank.hooks = f"http://127.0.0.1:{line.getsockname()[1]}/"
                config = uvicorn.Config(
                    Hooks(app.service, [WebhookSender("bank", secret, tools=("refund",))]),
                    log_level="error",
                    lifespan="off",
                )
                server = uvicorn.Server(config)
                serving = asyncio.create_task(server.serve(sockets=[line]))
                try:
                    yield Shop(app, calendar, bank)
                finally:
                    server.should_exit = True
                    await serving


async def _told() -> list[str]:
    lines: list[str] = []
    async with open_shop() as shop:
        late, never = Order("17", 4200), Order("18", 900)
        await shop.go_on(late)
        shop.calendar.turn(timedelta(hours=20))
        await asyncio.to_thread(shop.bank.confirm, 2)
        lines.append(await shop.go_on(late))
        await shop.go_on(never)
        shop.calendar.turn(timedelta(days=2))
        shop.bank.blind = True
        lines.append(await shop.go_on(never))
        await shop.app.service.resolve("order-18/refund#1", "happened", by="bea", result="R-by-hand")
        lines.append(await shop.go_on(never))
    return lines


def tell() -> list[str]:
    """A refund that is confirmed twice, one that never is, and what a person then says."""
    return asyncio.run(_told())
