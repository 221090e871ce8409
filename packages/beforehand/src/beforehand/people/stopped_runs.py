"""A stopped run as an item: why it stopped, its last steps, and a person's decision about it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, TypeAlias

import msgspec

from beforehand.control.service import ControlService
from beforehand.engine.commands import Applied
from beforehand.errors import UsageError
from beforehand.inspect.timeline import timeline
from beforehand.journal.entry_codec import read, written
from beforehand.journal.port import Post
from beforehand.model import records as r
from beforehand.model.commands import Command, command_stream
from beforehand.model.shell import to_type
from beforehand.people.loaded_item import LoadedItem

LAST: Final = 6
"""How many of the last steps are shown."""
Way: TypeAlias = Literal["reopen", "take_over", "cancel"]
WAYS: Final[dict[str, Way]] = {"resume": "reopen", "take_over": "take_over", "abandon": "cancel"}
"""The command that each answer about a stopped run gives."""


def last_steps(run: str, records: Sequence[r.Record]) -> tuple[str, ...]:
    """The last steps of the run, a line for each."""
    steps = [one for one in timeline(run, records).entries if one.kind not in {"run", "value"}]
    return tuple(f"{one.step or one.name}: {one.status} {one.text}".rstrip() for one in steps[-LAST:])


async def decide_stopped_run(service: ControlService, now: LoadedItem, way: Way, *, by: str, why: str) -> Applied:
    """Decide about a stopped run. The first decision is final; a later one is recorded and raises `UsageError`."""
    run, history = now.run, await service.history(now.run)
    if not now.open or history.lifecycle.stopped != now.subject:
        raise UsageError(f"{run} was answered before", next_step=to_type("show", run))
    word, key = Command(way, by, why, via=service.via), f"halted/{history.entry_seen}"
    entry = await service.sink.post(Post(command_stream(run), key, written(word)))
    first = word if entry.fresh else read(entry, Command)
    if not entry.fresh:
        late = msgspec.structs.replace(word, after=first.by)
        await service.sink.post(Post(command_stream(run), "", written(late)))
    applied = await service.sink.apply(run, "")  # also if the process that was first died before that
    if entry.fresh:
        return applied
    raise UsageError(f"{run} was answered by {first.by} before", next_step=to_type("show", run))
