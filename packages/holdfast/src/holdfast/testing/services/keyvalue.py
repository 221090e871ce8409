"""A key-value store: writing the same value again changes nothing."""

from __future__ import annotations

import asyncio


class KeyValue:
    """Values by name. A write counts as an effect only where it changes something."""

    def __init__(self) -> None:
        self._values: dict[str, str] = {}
        self._effects: list[str] = []

    async def put(self, name: str, value: str) -> None:
        """Store a value."""
        await asyncio.sleep(0)
        if self._values.get(name) != value:
            self._values[name] = value
            self._effects.append(f"{name}={value}")

    async def get(self, name: str) -> str | None:
        """The value, or None."""
        await asyncio.sleep(0)
        return self._values.get(name)

    def effects(self) -> list[str]:
        """Every change."""
        return list(self._effects)

    def reset(self) -> None:
        """Forget all values."""
        self._values.clear()
        self._effects.clear()
