"""What a process knows about its calls when the journal fails it, left for whoever drives the run next."""

from __future__ import annotations

import msgspec

from holdfast.engine.engine import LOG
from holdfast.engine.instance import Instance
from holdfast.engine.loading import load
from holdfast.errors import JournalError
from holdfast.model import records as r
from holdfast.model.operation import OperationState


async def file_what_is_known(instance: Instance) -> None:
    """How our calls ended, where the journal did not take it any more, is left for whoever drives the run next."""
    try:
        await _file_ends(instance)
    except JournalError as error:
        LOG.warning("run %s: how its last calls ended could not be recorded yet: %s", instance.run, error)
        instance.engine.insist(lambda: _file_ends(instance))


async def _file_ends(instance: Instance) -> None:
    durable = (await load(instance.engine, instance.run)).operations
    for step, operation in instance.history.operations.items():
        stored = durable[step].attempts if step in durable else ()
        for known, ours in zip(stored, operation.attempts, strict=False):
            missing = known.end is None or known.end.kind == "lost"
            if not missing or ours.token != instance.lease.token or known.token != ours.token:
                continue
            at = instance.engine.seams.clock.wall_ms()
            if (step, ours.number) in instance.never_sent:
                end, up = r.End("not_sent", "its process lost the run before the call"), instance.now().up
            elif ours.end is not None and ours.over_up is not None:
                end, up = _with_result(ours.end, operation), ours.over_up
            else:
                continue
            report = r.LateReport(step=step, number=ours.number, end=end, at=at, up=up)
            await instance.engine.file_late(instance.run, report)


def _with_result(end: r.End, operation: OperationState) -> r.End:
    """The end of a call as it would stand alone: an outcome that came with it keeps the result for both."""
    if end.kind != "returned" or end.result is not r.NOTHING:
        return end
    return msgspec.structs.replace(end, result=operation.result, lost=operation.lost)
