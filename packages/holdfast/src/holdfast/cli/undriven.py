"""Runs that no process drives and that could go on: why each waits, and the command that lets it go on."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from typing import Final

import msgspec

from holdfast.inspect.reader import JournalReader
from holdfast.journal.port import AgentKey, RunRow

READY: Final = "ready to continue, waits for a worker"
ABANDONED: Final = "its process ended, waits for a worker"
WORKER: Final = "holdfast worker"


def worker_of(program: str) -> str:
    """The command that drives the runs of one program."""
    return f"{WORKER} --program {shlex.quote(program)}"


class Undriven(msgspec.Struct, frozen=True):
    """The reason why a run waits for a worker, and the command that drives it. `moved`: its code was moved away."""

    why: str
    command: str
    moved: bool = False


def commands_for(runs: Iterable[tuple[str, str, Undriven | None]]) -> list[str]:
    """The commands that let these runs (agent, program, and what each needs) go on, one for each program."""
    found = {(one.command if not one.moved else (agent, program)): one.command for agent, program, one in runs if one}
    return list(found.values())


class UndrivenFinder:
    """Finds out which runs wait for a worker, at one moment of the wall clock. Each program is looked up once."""

    def __init__(self, reader: JournalReader, now_ms: int) -> None:
        self._reader = reader
        self._now_ms = now_ms
        self._gone: dict[str, bool] = {}
        self._workers: dict[AgentKey, tuple[str, str]] = {}

    async def is_abandoned(self, row: RunRow) -> bool:
        """True if the process that drove the run is gone: proven dead, or silent for longer than its lease."""
        if row.owner is None:
            return row.status == "running"
        if row.owner not in self._gone:
            self._gone[row.owner] = (await self._reader.journal.fate(row.owner)).gone
        return self._gone[row.owner]

    async def find(self, row: RunRow) -> Undriven | None:
        """The needs of a run that no process drives; None if it is driven, waits for something else, or has ended."""
        if row.status not in {"running", "suspended"}:
            return None
        abandoned = await self.is_abandoned(row)
        if not abandoned and (row.owner is not None or row.due_ms is None or row.due_ms > self._now_ms):
            return None
        key = row.agent, row.program
        if key not in self._workers:
            self._workers[key] = await self._worker_for(*key)
        whose, worker = self._workers[key]
        moved = f"holdfast resume {row.run} --agent FILE.py:NAME"
        return Undriven((ABANDONED if abandoned else READY) + whose, worker or moved, moved=not worker)

    async def _worker_for(self, agent: str, program: str) -> tuple[str, str]:
        """The worker that is meant, where that is ambiguous, and the command; no command where the code has moved."""
        from holdfast.control.code_location import noted_programs  # noqa: PLC0415 - most lists need no agent's code

        noted = await noted_programs(self._reader.journal, agent)
        ours = next((one for one in noted if one.program == program), None)
        if ours is not None and not ours.exists:
            return f" of {program}; its code is no longer {ours.target}", ""
        if ours is not None and any(one.exists for one in noted if one is not ours):
            return f" of {program}", worker_of(program)
        return "", WORKER
