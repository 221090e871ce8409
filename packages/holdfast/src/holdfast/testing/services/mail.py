"""A mail service without keys, whose sent folder lags behind."""

from __future__ import annotations

import asyncio
from datetime import timedelta


class MailServer:
    """Mails. `lag` is the time until a sent one appears in the sent folder."""

    def __init__(self, lag: timedelta = timedelta(0)) -> None:
        self._lag_s = lag.total_seconds()
        self._sent: list[tuple[float, str, str, str]] = []

    async def send(self, to: str, subject: str, *, message_id: str = "") -> None:
        """Send a mail; sending twice delivers two mails."""
        await asyncio.sleep(0)
        self._sent.append((asyncio.get_running_loop().time(), to, subject, message_id))

    async def in_sent_folder(self, message_id: str) -> bool:
        """True if the sent folder shows a mail with this Message-ID."""
        await asyncio.sleep(0)
        seen_s = asyncio.get_running_loop().time() - self._lag_s
        return any(at <= seen_s and one == message_id for at, _, _, one in self._sent)

    def effects(self) -> list[str]:
        """Every mail that was sent."""
        return [f"mail to {to}: {subject}" for _, to, subject, _ in self._sent]

    def reset(self) -> None:
        """Forget all mails."""
        self._sent.clear()
