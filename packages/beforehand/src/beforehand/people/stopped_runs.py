"""A stopped run as an item: why it stopped, its last steps, and a person's decision about it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, TypeAlias

from beforehand.control.command_sink import record_answer
from beforehand.control.service import ControlService
from beforehand.engine.commands import Applied, command_post
from beforehand.errors import UsageError
from beforehand.inspect.timeline import timeline
from beforehand.journal.entry_codec import written
from beforehand.model import records as r
from beforehand.model.commands import Command
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
    given = service.stamped(Command(way, by, why))
    post = command_post(run, written(given), f"halted/{history.entry_seen}")
    recorded = await record_answer(service.sink, run, given, (post,))
    if recorded.first is None:
        return recorded.applied
    raise UsageError(f"{run} was answered by {recorded.first.by} before", next_step=to_type("show", run))
