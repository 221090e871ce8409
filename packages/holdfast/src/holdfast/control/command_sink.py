"""Destinations for commands: the ledger and then the run, or a list that is committed as a whole later."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from holdfast.engine.commands import Applied, apply_commands
from holdfast.engine.engine import Engine
from holdfast.journal.port import LedgerEntry, Post


class CommandSink(Protocol):
    """Where words go: into the ledger and to their run."""

    async def post(self, post: Post, /) -> LedgerEntry:
        """Put a word into the ledger."""
        ...

    async def post_all(self, posts: Sequence[Post], /) -> None:
        """Put all these words there, or none of them. Raises `LedgerTaken` where somebody was faster with one."""
        ...

    async def apply(self, run: str, answered: str, /) -> Applied:
        """Let the run have what waits for it; `answered` is a step of which nobody is asked any more."""
        ...


class DirectSink:
    """Each word is in the ledger when it is said, and its run has it."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def post(self, post: Post) -> LedgerEntry:
        """Durable on return."""
        return await self._engine.journal.post(post)

    async def post_all(self, posts: Sequence[Post]) -> None:
        """In one commit, durable on return."""
        await self._engine.journal.post_all(tuple(posts))

    async def apply(self, run: str, answered: str) -> Applied:
        """Applied here, or by whoever drives the run."""
        return await apply_commands(self._engine, self._engine.active_runs, run, answered)


class CollectingSink:
    """Keeps the words, each judged as if it were said alone, and lets no run have them yet."""

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
