"""Destinations for commands: the ledger and then the run, or a list that is committed as a whole later."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol, TypeAlias

from beforehand.engine.commands import Applied, apply_commands
from beforehand.engine.engine import Engine
from beforehand.extensions import extension, has_extension
from beforehand.journal.port import LedgerEntry, Post, Posts
from beforehand.model.system import is_planted

_PARTS: Final = "beforehand.command_parts"
_PLANTED: Final = "answer.planted"


EndPlanted: TypeAlias = Callable[[Engine, str], Awaitable[Applied]]
"""Ends the run of a planted case with the first answer about it, which is in the ledger."""


class CommandSink(Protocol):
    """Destination for commands: the ledger, then the run."""

    async def post(self, post: Post, /) -> LedgerEntry:
        """Post a command to the ledger."""
        ...

    async def post_all(self, posts: Sequence[Post], /) -> None:
        """Post all these commands, or none of them. Raises `LedgerTaken` where another process was faster with one."""
        ...

    async def apply(self, run: str, answered: str, /) -> Applied:
        """Apply pending commands to the run; `answered` is a step whose question is closed."""
        ...


class DirectSink:
    """Posts each command to the ledger at once and applies it to its run."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def post(self, post: Post) -> LedgerEntry:
        """Durable on return."""
        return await self._engine.journal.commit(post)

    async def post_all(self, posts: Sequence[Post]) -> None:
        """In one commit, durable on return."""
        await self._engine.journal.commit(Posts(tuple(posts)))

    async def apply(self, run: str, answered: str) -> Applied:
        """Applied here, or by the process that drives the run. The distribution that planted a case ends it."""
        applied = await apply_commands(self._engine, self._engine.active_runs, run, answered)
        if is_planted(applied.lacks) and has_extension(_PARTS, _PLANTED):
            end: EndPlanted = extension(_PARTS, _PLANTED, "the answer to a planted case")
            return await end(self._engine, run)
        return applied


class CollectingSink:
    """Collects the commands, each judged as if given alone, and applies none of them yet."""

    def __init__(self, now_ms: int) -> None:
        self._now_ms = now_ms
        self.posts: list[Post] = []
        self.runs: dict[str, str] = {}

    async def post(self, post: Post) -> LedgerEntry:
        """Not in the ledger yet."""
        self.posts.append(post)
        return LedgerEntry(0, post.stream, post.key, post.body, self._now_ms)

    async def post_all(self, posts: Sequence[Post]) -> None:
        """Kept with the others."""
        self.posts.extend(posts)

    async def apply(self, run: str, answered: str) -> Applied:
        """Only noted."""
        self.runs[run] = answered or self.runs.get(run, "")
        return Applied(run, at_once=False)
