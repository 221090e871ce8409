"""A payment service that honours idempotency keys for a documented time."""

from __future__ import annotations

import asyncio
from datetime import timedelta


class Payments:
    """Charges. A charge under a known key answers as the first one did, within `ttl` of virtual time."""

    def __init__(self, ttl: timedelta = timedelta(hours=24), lag: timedelta = timedelta(0)) -> None:
        self._ttl_s = ttl.total_seconds()
        self._lag_s = lag.total_seconds()
        self._known: dict[str, tuple[float, str, int, str]] = {}
        self._effects: list[str] = []

    async def charge(self, account: str, cents: int, *, key: str | None = None) -> str:
        """Charge, and return the charge's number. Raises `ValueError` on a known key with other parameters."""
        await asyncio.sleep(self._lag_s)
        now = asyncio.get_running_loop().time()
        known = self._known.get(key) if key is not None else None
        if known is not None and now < known[0] + self._ttl_s:
            if known[1:3] != (account, cents):
                raise ValueError("this key was used with other parameters")
            return known[3]
        self._effects.append(f"charge {account} {cents}")
        number = f"ch-{len(self._effects)}"
        if key is not None:
            self._known[key] = (now, account, cents, number)
        return number

    def effects(self) -> list[str]:
        """Every charge that was made."""
        return list(self._effects)

    def reset(self) -> None:
        """Forget all charges and keys."""
        self._known.clear()
        self._effects.clear()
