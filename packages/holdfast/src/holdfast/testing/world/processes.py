"""A run in real processes, over a real SQLite file, each killed by SIGKILL at its given boundary.

Each process is forked from the test's own, so that it has the test's agent, tools and stubs, and the memory that the
test had before the run: an agent's data in memory is lost with its process. The test's process is the witness. It
keeps the fakes and what the world counted: at a boundary the process sends them over, is killed, and the next one
begins with them.
"""

from __future__ import annotations

import os
import pickle
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from holdfast.errors import UsageError
from holdfast.journal.port import Journal, Row, RunRow
from holdfast.testing.world.files import Files
from holdfast.testing.world.files_disk import SqliteDisk
from holdfast.testing.world.forking import Line, last_word
from holdfast.testing.world.loop import Actor
from holdfast.testing.world.outside import Outside
from holdfast.testing.world.service import unpacked
from holdfast.testing.world.stage import RESTART_S, Before, Stage, StageEnded, Task, ignore


class Word(msgspec.Struct, frozen=True):
    """The last message of a process: it waits at a boundary for its death, or has reached the end."""

    kind: Literal["boundary", "end"]
    ended: StageEnded
    outside: Any
    dead: Sequence[str] = ()
    now_s: float = 0.0


def in_processes(task: Task, outside: Outside, kills: Sequence[int]) -> StageEnded:
    """Perform the task in one process after another, each killed at its boundary, until it ends or waits."""
    if not hasattr(os, "fork"):
        raise UsageError("--holdfast-sigkill needs a system that forks processes", next_step="explore without it")
    before = Before()
    with tempfile.TemporaryDirectory(prefix="holdfast-explore-", dir=_in_memory()) as folder:
        while True:
            life = _Life(task, outside, Path(folder), kills, before)
            word: Word = unpacked(last_word(life.live))
            outside.take(word.outside)
            if word.kind == "end":
                return word.ended
            before = Before(word.ended.boundaries, word.now_s + RESTART_S, before.lives + 1, word.dead)


class _Life(msgspec.Struct, frozen=True):
    """The task of one process."""

    task: Task
    outside: Outside
    folder: Path
    kills: Sequence[int]
    before: Before

    def live(self, line: Line) -> bytes:
        """Live until the end; return the last message. If it has to die, it waits for SIGKILL and never returns."""

        def stand_still(stage: Stage, workers: Sequence[str]) -> None:
            word = Word("boundary", stage.ended, self.outside.give(), workers, stage.loop.time())
            line.wait_for_death(_packed(word))

        stage = Stage(
            self.task, self.outside, self.kills, lambda stage: _OnDisk(stage, self.folder, stand_still), self.before
        )
        return _packed(Word("end", stage.perform(), self.outside.give()))


class _OnDisk:
    """A journal in a SQLite file, opened as the product does. A process that has to die waits until it is killed."""

    def __init__(self, stage: Stage, folder: Path, stand_still: Callable[[Stage, Sequence[str]], None]) -> None:
        self._stage = stage
        self._files = Files(stage, folder, 1, ignore)
        self._files.dead.update(stage.before.dead)
        self._stand_still = stand_still
        self._disk: SqliteDisk | None = None

    async def open(self) -> None:
        """See `Home.open`."""
        await self._files.open()

    def disk(self, actor: Actor) -> Journal:
        """See `Home.disk`."""
        self._disk = SqliteDisk(self._files, actor, contained=False)
        return self._disk

    def kill(self, actor: Actor) -> None:
        """See `Home.kill`. Never returns."""
        del actor
        workers = self._disk.workers if self._disk is not None else []
        self._stand_still(self._stage, [*self._files.dead, *workers])

    async def runs(self, run: str) -> list[RunRow]:
        """See `Home.runs`."""
        return [row for row in await self._files.runs(limit=1_000_000) if row.run == run]

    async def read(self, run: str) -> list[Row]:
        """See `Home.read`."""
        return await self._files.read(run, limit=1_000_000)


def _in_memory() -> str | None:
    """A file system in memory, if there is one: SIGKILL takes nothing that was written, synced or not."""
    shared = "/dev/shm"  # noqa: S108 - the code makes its own directory in it
    return shared if os.access(shared, os.W_OK | os.X_OK) else None


def _packed(word: Word) -> bytes:
    """Pack the message for the witness. A result that cannot leave its process is compared by its text."""
    word.ended.error = None  # `reason` and `stopped` report it
    try:
        return pickle.dumps(word)
    except Exception:  # noqa: BLE001 - pickle passes on any exception of the objects
        word.ended.result = repr(word.ended.result)
        return pickle.dumps(word)
