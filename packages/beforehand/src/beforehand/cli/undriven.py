"""Runs that no process drives and that could go on: why each waits, and the command that lets it go on."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from beforehand.inspect.reader import JournalReader
from beforehand.journal.port import AgentKey, RunRow
from beforehand.model.shell import to_type

READY: Final = "ready to continue, waits for a worker"
ABANDONED: Final = "its process ended, waits for a worker"
WORKER: Final = "beforehand worker"


def worker_of(program: str) -> str:
    """The command that drives the runs of one program."""
    return to_type("worker", "--program", program)


class Undriven(msgspec.Struct, frozen=True):
    """The reason why a run waits for a worker, and the command that drives it. `moved`: its code was not found."""

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
        self._workers: dict[AgentKey, Undriven] = {}

    async def is_abandoned(self, row: RunRow) -> bool:
        """True if the process that drove the run is gone: proven dead, or silent for longer than its lease."""
        if row.owner is None:
            return row.status == "running"
        if row.owner not in self._gone:
            self._gone[row.owner] = (await self._reader.journal.fate(row.owner)).gone
        return self._gone[row.owner]

    async def find(self, row: RunRow) -> Undriven | None:
        """The needs of a run that no process drives; None if it is driven, waits for something else, or has ended."""
        if row.status == "queued":
            return await self.find_queued(row.agent, row.program)
        if row.status not in {"running", "suspended"}:
            return None
        abandoned = await self.is_abandoned(row)
        if not abandoned and (row.owner is not None or row.due_ms is None or row.due_ms > self._now_ms):
            return None
        code = await self._worker_for(row.agent, row.program)
        command = code.command or to_type("resume", row.run, "--agent", "FILE.py:NAME")
        return Undriven((ABANDONED if abandoned else READY) + code.why, command, code.moved)

    async def find_queued(self, agent: str, program: str) -> Undriven | None:
        """The needs of an agent's runs in queues whose code was not found; None if a worker can start them."""
        code = await self._worker_for(agent, program)
        command = code.command or _declared(f'program="{program}"')
        return Undriven(f"cannot start: {code.why.partition('; ')[2]}", command, moved=True) if code.moved else None

    async def lost(self, agents: Iterable[AgentKey]) -> dict[AgentKey, Undriven]:
        """The needs of those of these agents with runs in queues whose code was not found."""
        found = {key: await self.find_queued(*key) for key in sorted(set(agents))}
        return {key: one for key, one in found.items() if one is not None}

    async def _worker_for(self, agent: str, program: str) -> Undriven:
        """The worker that is meant, where that is ambiguous, and the command; none where the code's file has moved."""
        if (agent, program) not in self._workers:
            self._workers[agent, program] = await self._look_up(agent, program)
        return self._workers[agent, program]

    async def _look_up(self, agent: str, program: str) -> Undriven:
        from beforehand.control.code_location import noted_programs  # noqa: PLC0415 - most lists need no agent's code

        noted = await noted_programs(self._reader.journal, agent)
        ours = next((one for one in noted if one.program == program), None)
        if ours is not None and not ours.exists:
            renamed = _declared(f'name="{agent}"') if ours.file.exists() else ""
            return Undriven(f" of {program}; its code is no longer at {ours.target}", renamed, moved=True)
        if ours is not None and any(one.exists for one in noted if one is not ours):
            return Undriven(f" of {program}", worker_of(program))
        return Undriven("", WORKER)


def _declared(former: str) -> str:
    """The step that lets code that was renamed or moved drive its former runs."""
    return f"declare it with @agent({former}); {WORKER} FILE.py:NAME"
