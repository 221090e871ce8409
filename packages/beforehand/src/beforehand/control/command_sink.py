"""Recording what people say: in the ledger and then in the run, or in a list that is committed as a whole later."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol, TypeAlias

import msgspec

from beforehand.engine.commands import Applied, apply_commands
from beforehand.engine.engine import Engine
from beforehand.errors import LedgerTaken, UsageError
from beforehand.extensions import extension, has_extension
from beforehand.journal.entry_codec import read, written
from beforehand.journal.port import LedgerEntry, Post, Posts
from beforehand.model.commands import Command
from beforehand.model.questions import Answered
from beforehand.model.shell import to_type
from beforehand.model.system import is_planted

_PARTS: Final = "beforehand.command_parts"
_PLANTED: Final = "answer.planted"


EndPlanted: TypeAlias = Callable[[Engine, str], Awaitable[Applied]]
"""Ends the run of a planted case with the first answer about it, which is in the ledger."""


class CommandSink(Protocol):
    """Destination for commands: the ledger, then the run."""

    async def post(self, *posts: Post) -> LedgerEntry:
        """Post these to the ledger, all or none. Returns the first, or the earlier entry that has the key of one."""
        ...

    async def apply(self, run: str, answered: str, /) -> Applied:
        """Apply pending commands to the run; `answered` is a step whose question is closed."""
        ...


class DirectSink:
    """Posts each command to the ledger at once and applies it to its run."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def post(self, *posts: Post) -> LedgerEntry:
        """In one commit, durable on return."""
        if len(posts) == 1:
            return await self._engine.journal.commit(posts[0])
        try:
            return (await self._engine.journal.commit(Posts(posts)))[0]
        except LedgerTaken as taken:
            return LedgerEntry(0, taken.stream, taken.key, taken.body, 0, fresh=False)

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

    async def post(self, *posts: Post) -> LedgerEntry:
        """Not in the ledger yet."""
        self.posts.extend(posts)
        return LedgerEntry(0, posts[0].stream, posts[0].key, posts[0].body, self._now_ms)

    async def apply(self, run: str, answered: str) -> Applied:
        """Only noted."""
        self.runs[run] = answered or self.runs.get(run, "")
        return Applied(run, at_once=False)


async def record_answer(
    sink: CommandSink, item: str, given: Command | Answered, posts: Sequence[Post], answered: str = ""
) -> tuple[Applied, LedgerEntry]:
    """Record the answer to an item, which the first of `posts` holds under the key of its question, and apply it.

    The first answer is final. One that comes second is recorded beside it, changes nothing, and raises `UsageError`.
    """
    entry = await sink.post(*posts)
    first = given if entry.fresh else read(entry, type(given))
    if not entry.fresh:
        late = msgspec.structs.replace(given, after=first.by) if isinstance(given, Command) else given
        await sink.post(Post(posts[0].stream, "", written(late)))
    # A second answer applies the first one, too: its process may have died before the run had it.
    applied = await sink.apply(item.partition("/")[0], answered)
    if entry.fresh:
        return applied, entry
    raise UsageError(
        f"{item} was already answered by {first.by or 'its deadline'}",
        known=f"the first answer counts: {_says(first)}",
        next_step=to_type("why" if "#" in item else "show", item),
    )


def _says(answer: Command | Answered) -> str:
    if isinstance(answer, Answered):
        return "they took it over" if answer.over else str(answer.value)
    return getattr(answer.record, "word", answer.word).replace("_", " ") + (f": {answer.note}" if answer.note else "")
