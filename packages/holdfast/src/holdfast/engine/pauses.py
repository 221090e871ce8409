"""Tools that people have paused: ledger entries of their own, read by every process at open and while it works."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from holdfast.errors import Unreadable
from holdfast.journal.bodies import read, set_aside, written
from holdfast.journal.port import Journal, Post

PAUSES: Final = "pause/"


class ToolPause(msgspec.Struct, frozen=True, omit_defaults=True):
    """One command about a tool: pause it, or let it go on."""

    word: Literal["pause", "unpause"]
    by: str
    why: str = ""


def pause_post(tool: str, command: ToolPause) -> Post:
    """The command as a ledger entry. Raises `ArgumentError` for one that could not be read."""
    return Post(PAUSES + tool, "", written(command))


async def paused_tools(journal: Journal) -> dict[str, str]:
    """The paused tools, and why. A command that cannot be read pauses its tool, until a later one is given."""
    found: dict[str, str] = {}
    for entry in await journal.entries(PAUSES):
        tool = entry.stream.removeprefix(PAUSES)
        try:
            command = read(entry, ToolPause)
        except Unreadable as error:
            await set_aside(journal, entry, error)
            found[tool] = f"the command in ledger entry {entry.id} cannot be read: holdfast unpause --tool {tool}"
        else:
            found[tool] = (command.why or f"paused by {command.by}") if command.word == "pause" else ""
    return {tool: why for tool, why in found.items() if why}
