"""A run in real processes, over a real SQLite file, each killed by SIGKILL at its given boundary.

Each process is forked from the test's own, so that it has the test's agent, tools and stubs, and the memory that the
test had before the run: an agent's data in memory is lost with its process. The test's process is the witness. It
keeps the fakes and what the world counted: at a boundary the process sends them over, is killed, and the next one
begins with them.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import select
import signal
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, Literal, NoReturn

import msgspec

from beforehand.errors import BeforehandError, UsageError
from beforehand.journal.port import Journal, Row, RunRow
from beforehand.testing.loop import Actor
from beforehand.testing.world.files import Files, SqliteDisk
from beforehand.testing.world.outside import Outside, unpacked
from beforehand.testing.world.stage import RESTART_S, Before, Stage, StageEnded, Task, ignore


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
        raise UsageError("--beforehand-sigkill needs a system that forks processes", next_step="explore without it")
    before = Before()
    with tempfile.TemporaryDirectory(prefix="beforehand-explore-", dir=_in_memory()) as folder:
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
        await self._files.open()

    def disk(self, actor: Actor) -> Journal:
        self._disk = SqliteDisk(self._files, actor, contained=False)
        return self._disk

    def kill(self, actor: Actor) -> None:
        """See `Home.kill`. Never returns."""
        del actor
        workers = self._disk.workers if self._disk is not None else []
        self._stand_still(self._stage, [*self._files.dead, *workers])

    async def runs(self, run: str) -> list[RunRow]:
        return [row for row in await self._files.runs(limit=1_000_000) if row.run == run]

    async def read(self, run: str) -> list[Row]:
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


# --- a forked process that sends one last message and is killed by SIGKILL -------------------------------------------


PATIENCE_S: Final = 120.0
"""The maximum time of a process, in real seconds, before it counts as hung."""

_BOUNDARY, _END, _MISUSE, _FAILURE = b"B", b"E", b"M", b"F"


class Line:
    """The connection of the forked process to the one that forked it."""

    def __init__(self, outgoing: int, leash: int) -> None:
        self._saying = outgoing
        self._leash = leash

    def say(self, kind: bytes, word: bytes) -> None:
        """Send the last message."""
        with os.fdopen(self._saying, "wb") as pipe:
            pipe.write(kind + word)

    def wait_for_death(self, word: bytes) -> NoReturn:
        """Send the last message, and wait until SIGKILL comes."""
        self.say(_BOUNDARY, word)
        os.read(self._leash, 1)  # returns only if the other process is gone, and then this one is not needed
        os._exit(1)


def last_word(live: Callable[[Line], bytes]) -> bytes:
    """Fork a process that runs `live`; return its last message. One that waits for its death, or hangs, is killed.

    Raises `UsageError` if the process reported one, `AssertionError` if it died by itself or failed.
    """
    incoming, outgoing = os.pipe()
    leash, held = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", DeprecationWarning
        )  # threads of the test are not in the child, which needs none
        child = os.fork()
    if child == 0:
        os.close(incoming)
        os.close(held)
        _be_born(live, Line(outgoing, leash))
    os.close(outgoing)
    os.close(leash)
    try:
        received = _receive(incoming)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        os.close(incoming)
        os.close(held)
    return _understood(received, status)


def _be_born(live: Callable[[Line], bytes], line: Line) -> NoReturn:
    """Run the child from fork to natural end; it never returns into the test."""
    try:
        line.say(_END, live(line))
    except BeforehandError as error:
        line.say(_MISUSE, str(error).encode())
    except BaseException:  # noqa: BLE001 - any exception is reported to the test
        with contextlib.suppress(OSError, ValueError):
            line.say(_FAILURE, traceback.format_exc().encode())
    finally:
        os._exit(0)


def _receive(incoming: int) -> bytes:
    received, deadline = bytearray(), time.monotonic() + PATIENCE_S
    while True:
        ready, _, _ = select.select([incoming], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            raise AssertionError(f"a process of the run says nothing for {PATIENCE_S:g} s: does its code block?")
        part = os.read(incoming, 1 << 20)
        if not part:
            return bytes(received)
        received += part


def _understood(received: bytes, status: int) -> bytes:
    kind, word = received[:1], received[1:]
    if kind == _MISUSE:
        raise UsageError(word.decode())
    if kind == _FAILURE:
        raise AssertionError(f"a process of the run failed by itself:\n{word.decode()}")
    if not kind:
        raise AssertionError(f"a process of the run died by itself: {os.waitstatus_to_exitcode(status)}")
    if kind == _BOUNDARY:
        assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL, f"it was not killed: {status}"
    return word
