"""By which parameters things were ever named about which something is pending, for each tool of a journal.

A call of a tool that is not among them, and declares nothing, looks for nothing in the ledger.
"""

from __future__ import annotations

import msgspec

from holdfast.journal.bodies import readable, written
from holdfast.journal.port import Journal, Post
from holdfast.model.ids import parts_of
from holdfast.model.pending import WAYS, ways_stream


class Way(msgspec.Struct, frozen=True):
    """The parameters that named a thing."""

    names: tuple[str, ...]


class Ways:
    """The ways that are known here. They are only ever added. A process looks for new ones every `poll_ms`."""

    def __init__(self) -> None:
        self._known: dict[str, list[tuple[str, ...]]] = {}
        self._seen = 0

    def __contains__(self, tool: str) -> bool:
        """Whether anything of this tool was ever pending."""
        return tool in self._known

    def of(self, tool: str) -> tuple[tuple[str, ...], ...]:
        """The ways of one tool."""
        return tuple(self._known.get(tool, ()))

    async def refresh(self, journal: Journal) -> None:
        """Read the ways that other processes have added.

        All of them are read, since they are few and have an index; the ledger beyond a given entry may be long.
        """
        new = [entry for entry in await journal.entries(WAYS) if entry.id > self._seen]
        for entry, way in await readable(journal, new, Way):
            self._take(parts_of(entry.stream)[1], way.names)
        self._seen = max([self._seen, *(entry.id for entry in new)])

    async def add(self, journal: Journal, tool: str, names: tuple[str, ...]) -> None:
        """Add a way, durable on return."""
        if names not in self._known.get(tool, ()):
            body = written(Way(names))
            await journal.post(Post(ways_stream(tool), body.decode(), body))
            self._take(tool, names)

    def _take(self, tool: str, names: tuple[str, ...]) -> None:
        ways = self._known.setdefault(tool, [])
        if names not in ways:
            ways.append(names)
