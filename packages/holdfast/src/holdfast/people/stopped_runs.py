"""A stopped run as an item: why it stopped, its last steps, and a person's decision about it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, TypeAlias

import msgspec

from holdfast.control.messages import checked_by
from holdfast.control.service import ControlService
from holdfast.engine.commands import Applied
from holdfast.errors import UsageError
from holdfast.inspect.timeline import timeline
from holdfast.journal.entry_codec import read, written
from holdfast.journal.port import Post
from holdfast.model import records as r
from holdfast.model.commands import Command, command_stream
from holdfast.people.loaded_item import LoadedItem

LAST: Final = 6
"""How many of the last steps are shown."""
_WHY: Final = {
    "diverged": "its code went another way than its record, and nothing was sent since",
    "error": "its code raised an exception, and nothing was sent since",
    "quarantined": "its processes died again and again, and no worker takes it any more",
}
_FIRST: Final = {
    "diverged": "resume, once its code goes the recorded way again: what it did holds, and is not done twice",
    "error": "resume, once its code is mended or the cause is gone: what it did holds, and is not done twice",
    "quarantined": "resume, once you know what ended its processes: what it did holds, and is not done twice",
}
Way: TypeAlias = Literal["reopen", "take_over", "cancel"]


def why_stopped(stopped: r.RunStoppedRecord) -> str:
    """The meaning of such a stop."""
    return _WHY[stopped.reason]


def recommended_for(stopped: r.RunStoppedRecord) -> str:
    """The recommended answer, with its reason."""
    return _FIRST[stopped.reason]


def difference_of(stopped: r.RunStoppedRecord) -> str:
    """The recorded step, and what the code did instead; empty where it did not diverge."""
    return stopped.detail if stopped.reason == "diverged" else ""


def frames_of(stopped: r.RunStoppedRecord) -> tuple[str, ...]:
    """The lines of agent code that the exception came through, the innermost last."""
    return tuple(map(str, stopped.frames))


def last_steps(run: str, records: Sequence[r.Record]) -> tuple[str, ...]:
    """The last steps of the run, a line for each."""
    steps = [one for one in timeline(run, records).entries if one.kind not in {"run", "value"}]
    return tuple(f"{one.step or one.name}: {one.status} {one.text}".rstrip() for one in steps[-LAST:])


async def decide_stopped_run(service: ControlService, now: LoadedItem, way: Way, *, by: str, why: str) -> Applied:
    """Decide about a stopped run. The first decision is final; a later one is recorded and raises `UsageError`."""
    run, history = now.run, await service.history(now.run)
    if not now.open or history.lifecycle.stopped != now.subject:
        raise UsageError(f"{run} was answered before", next_step=f"holdfast show {run}")
    word, key = Command(way, checked_by(by), why, via=service.via), f"halted/{history.entry_seen}"
    entry = await service.sink.post(Post(command_stream(run), key, written(word)))
    first = word if entry.fresh else read(entry, Command)
    if not entry.fresh:
        late = msgspec.structs.replace(word, after=first.by)
        await service.sink.post(Post(command_stream(run), "", written(late)))
    applied = await service.sink.apply(run, "")  # also if the process that was first died before that
    if entry.fresh:
        return applied
    raise UsageError(f"{run} was answered by {first.by} before", next_step=f"holdfast show {run}")
