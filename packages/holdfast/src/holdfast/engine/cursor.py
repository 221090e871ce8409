"""How far the processes of a journal have looked through one ledger stream, together.

The mark is a losable note: losing it means to look again at what was looked at before, which changes nothing.
"""

from __future__ import annotations

from typing import Final

from holdfast.journal.port import Entry, Journal


class Cursor:
    """The place of one process in a stream. It moves the shared mark only past what it has dealt with."""

    def __init__(self, journal: Journal, stream: str) -> None:
        self._journal = journal
        self._stream = stream
        self._hint: Final = f"cursor/{stream}"
        self._passed = 0
        self._shared: bytes | None = None
        self._known = False

    async def news(self) -> list[Entry]:
        """What came since anybody dealt with this stream."""
        if not self._known:
            await self._read_mark()
        if not await self._journal.entries(self._stream, self._passed):
            return []
        await self._read_mark()  # another process may have dealt with it
        return await self._journal.entries(self._stream, self._passed)

    async def passed(self, entry: int) -> None:
        """Everything up to this entry is dealt with."""
        if entry <= self._passed:
            return
        self._passed, body = entry, str(entry).encode()
        if await self._journal.put_hint(self._hint, body, self._shared):
            self._shared = body
        else:
            await self._read_mark()

    async def _read_mark(self) -> None:
        self._shared = await self._journal.hint(self._hint)
        self._known = True
        if self._shared is not None:
            self._passed = max(self._passed, int(self._shared))
