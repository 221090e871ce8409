"""Waiting until the process that drives a run has applied a command: it takes effect only then."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from beforehand.engine.active_run.log import load
from beforehand.engine.commands import Applied
from beforehand.engine.engine import Engine
from beforehand.inspect.reader import troubles_of
from beforehand.journal.record_codec import decode_all
from beforehand.model.commands import command_stream

LOOKS: Final = 40
BETWEEN_S: Final = 0.05
TAKEN: Final = "its process has taken it"
NOT_TAKEN: Final = "its process has not taken it yet: until it does, a write may begin"


async def wait_until_applied(engine: Engine, applied: Applied) -> Applied:
    """The result of a command that another process applies, once it is recorded; waits up to two seconds.

    A running process reads commands every `poll_ms`. One that is stopped or busy applies them later.
    """
    if not applied.elsewhere:
        return applied
    journal = engine.journal
    orders = await journal.entries(command_stream(applied.run))
    history = await load(engine, applied.run)
    for _ in range(LOOKS):
        if orders and history.entry_seen >= orders[-1].id:
            return replace(applied, at_once=True, note=TAKEN)
        if history.lifecycle.completed is not None:
            return replace(applied, note="the run ended before it was taken")
        await engine.environment.clock.sleep(BETWEEN_S)
        for record in decode_all(row.body for row in await journal.read(applied.run, history.records)):
            history.add(record)
    return replace(applied, note=await _why_not(engine, applied))


async def _why_not(engine: Engine, applied: Applied) -> str:
    """The reason why the owner has not applied it, as far as it is visible from here."""
    owner = applied.owner
    if owner is None:
        return NOT_TAKEN
    troubles = [one for one in await troubles_of(engine.journal, owner.id) if one.task.endswith(f"run {applied.run}")]
    for one in troubles:
        return f"process {owner.pid}, which drives the run, cannot take it ({one.error}): restart that process"
    return NOT_TAKEN
