"""A calendar whose callers choose the number of an entry: a second entry of the same number is refused."""

from __future__ import annotations

import asyncio


class NumberTaken(Exception):
    """An entry of that number exists."""


class Calendar:
    """Entries by number."""

    def __init__(self) -> None:
        self._entries: dict[str, str] = {}
        self._effects: list[str] = []

    async def book(self, number: str, title: str) -> None:
        """Make an entry. Raises `NumberTaken` if there is one of that number."""
        await asyncio.sleep(0)
        if number in self._entries:
            raise NumberTaken(number)
        self._entries[number] = title
        self._effects.append(f"booked {title}")

    async def find(self, number: str) -> str | None:
        """The title of an entry."""
        await asyncio.sleep(0)
        return self._entries.get(number)

    async def cancel(self, number: str) -> None:
        """Remove an entry; do nothing if it does not exist."""
        await asyncio.sleep(0)
        title = self._entries.pop(number, None)
        if title is not None:
            self._effects.append(f"cancelled {title}")

    def effects(self) -> list[str]:
        """Every entry that was made or removed."""
        return list(self._effects)

    def reset(self) -> None:
        """Forget all entries."""
        self._entries.clear()
        self._effects.clear()
