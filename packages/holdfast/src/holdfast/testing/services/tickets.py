"""A ticket system without idempotency keys. Its search finds any text, a marker in the body for example."""

from __future__ import annotations

import asyncio
from datetime import timedelta


class Tickets:
    """Tickets. `lag` is the time until the search finds a new one."""

    def __init__(self, lag: timedelta = timedelta(0)) -> None:
        self._lag_s = lag.total_seconds()
        self._tickets: list[tuple[float, str, str]] = []

    async def create(self, title: str, body: str = "") -> str:
        """Create a ticket, and return its number."""
        await asyncio.sleep(0)
        self._tickets.append((asyncio.get_running_loop().time(), title, body))
        return f"T-{len(self._tickets)}"

    async def search(self, text: str) -> list[str]:
        """The numbers of the visible tickets that contain `text`."""
        await asyncio.sleep(0)
        seen_s = asyncio.get_running_loop().time() - self._lag_s
        found = enumerate(self._tickets, 1)
        return [f"T-{number}" for number, (at, *held) in found if at <= seen_s and any(text in one for one in held)]

    def effects(self) -> list[str]:
        """Every ticket that was created, by its title."""
        return [f"ticket {title}" for _, title, _ in self._tickets]

    def reset(self) -> None:
        """Forget all tickets."""
        self._tickets.clear()
