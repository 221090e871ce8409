"""The state of a run at one of its steps."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from holdfast.errors import UsageError
from holdfast.interfaces.looking import Told
from holdfast.interfaces.timeline import Entry, timeline
from holdfast.model import records as r
from holdfast.model.run import RunHistory


class StateAt(msgspec.Struct, frozen=True):
    """A run as it stood after record `record`. `focus` is the step in full, `entries` what was known by then."""

    run: str
    agent: str
    at: int
    record: int
    of: int
    status: str
    step: str
    focus: Entry | None
    entries: list[Entry]
    open: list[str]
    not_yet: list[str]


def state_at(run: str, told: Sequence[Told], where: str) -> StateAt:
    """The state when the step `where` had been told its outcome, or after the record of that number.

    A step that never got an outcome is shown as of its last record. Raises `UsageError`.
    """
    named = any(step_of(record) == where for _, record in told)
    last = int(where) if where.isdecimal() and not named else _moment_of(run, told, where)
    if not 1 <= last <= len(told):
        raise UsageError(f"run {run} has no record {last}", known=f"it has {len(told)} records, from 1")
    records = [record for _, record in told]
    history = RunHistory(run)
    for record in records[:last]:
        history.add(record)
    story = timeline(run, records[:last])
    step = step_of(records[last - 1])
    later = [entry.step for entry in timeline(run, records).entries if entry.kind != "run"]
    known = {entry.step for entry in story.entries}
    return StateAt(
        run,
        story.agent,
        records[last - 1].at,
        last,
        len(records),
        history.status,
        step,
        next((entry for entry in reversed(story.entries) if entry.step == step and entry.kind != "run"), None),
        story.entries,
        [operation.step for operation in history.open_operations()],
        [name for name in later if name not in known],
    )


def step_of(record: r.Record) -> str:
    """The step that a record is about; empty for records of the run itself."""
    return str(getattr(record, "step", ""))


def _moment_of(run: str, told: Sequence[Told], step: str) -> int:
    """The number of the record that told the step its outcome."""
    history, last = RunHistory(run), 0
    for row, record in told:
        history.add(record)
        if step_of(record) == step:
            last = row.seq
            if step in history.deliveries:
                return last
    if last:
        return last
    names = dict.fromkeys(name for _, record in told if (name := step_of(record)))
    raise UsageError(
        f"run {run} has no step {step}",
        known=f"its steps: {', '.join(names) or 'none'}",
        next_step=f"holdfast show {run}",
    )
