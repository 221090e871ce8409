"""How a planted case ends: with the first word about it, in one commit. At no moment could it be sent."""

from __future__ import annotations

import msgspec

from holdfast.engine.active_run.run import Stamp
from holdfast.engine.commands import Command, command_stream, refused_unread
from holdfast.engine.engine import Engine
from holdfast.engine.loading import load
from holdfast.errors import Unreadable
from holdfast.journal.bodies import read, set_aside
from holdfast.journal.codec import encode
from holdfast.journal.log import RunLog
from holdfast.journal.port import RunChange, RunRow
from holdfast.model import records as r
from holdfast.model.run_history import RunHistory
from holdfast.model.seeded_cases import Ended, ending, told


async def end_planted(engine: Engine, row: RunRow, history: RunHistory, log: RunLog) -> None:
    """Record every order that came, and end the run with the first one that is about its operation."""
    stamp = Stamp(at=engine.environment.clock.wall_ms(), up=engine.journal.now().ms)
    bodies: list[bytes] = []
    for entry in await engine.journal.entries(command_stream(row.run), history.entry_seen):
        try:
            command = read(entry, Command)
        except Unreadable as error:
            await set_aside(engine.journal, entry, error)
            bodies.append(encode(refused_unread(entry, error, stamp)))
            continue
        applied = r.CommandApplied(command=command.word, by=command.by, entry=entry.id, note=command.note, **stamp)
        found: list[r.Record] = [applied]
        if command.record is not None and history.completed is None:
            found += ending(history, command.record, command.by, **stamp)
        for record in found:
            history.add(record)
            bodies.append(encode(record))
    change = RunChange("completed", release=True)
    if history.completed is None:
        change = RunChange(row.status, row.reason, None, row.waits, release=True)
    await log.append(bodies, change)


async def note_on(engine: Engine, run: str) -> str:
    """What a planted case says to the person who answered it; empty while nobody has."""
    history = await load(engine, run)
    if history.completed is None:
        return ""
    return told(msgspec.json.decode(history.completed.result, type=Ended))
