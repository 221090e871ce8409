"""Forked runs: what the run that one was forked from did itself is asked about before it is done again."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

from holdfast.journal.record_codec import decode_all
from holdfast.model import records as r
from holdfast.model.decision.situation import Elsewhere
from holdfast.model.ids import operation_id
from holdfast.model.operation import OperationState
from holdfast.model.run_history import RunHistory

if TYPE_CHECKING:
    from holdfast.engine.active_run.run import ActiveRun
    from holdfast.engine.operation_driver import OperationDriver
    from holdfast.journal.port import Journal

INHERITED: Final = "inherited by a fork"
"""Why an outcome was reused, in the record with which a fork begins."""
_PAGE: Final = 1000


class ForkedRun:
    """A run as far as it has been read; one that another was forked from may go on meanwhile."""

    def __init__(self, run: str) -> None:
        self.history = RunHistory(run)
        self.inherited: set[str] = set()
        self._read = 0

    async def read_on(self, journal: Journal) -> RunHistory:
        """Take what was recorded since the last look."""
        while rows := await journal.read(self.history.run, self._read, _PAGE):
            for record in decode_all(row.body for row in rows):
                self.history.add(record)
                if isinstance(record, r.OutcomeReused) and record.why == INHERITED:
                    self.inherited.add(record.source)
            self._read = rows[-1].seq
        return self.history


_FORKED_RUNS: WeakKeyDictionary[ActiveRun, dict[str, ForkedRun]] = WeakKeyDictionary()


async def find_ancestor_write(flight: OperationDriver) -> Elsewhere | None:
    """The write of an ancestor that this one would repeat: the same call, or another one of that tool at this step.

    What the run has inherited is no repeat, and neither is what is proven never to have landed.
    """
    instance = flight.instance
    known = _FORKED_RUNS.setdefault(instance, {})
    if instance.run not in known:  # as it began: what its code was told meanwhile is not kept in its history
        known[instance.run] = ForkedRun(instance.run)
        await known[instance.run].read_on(instance.engine.journal)
    async for history in _ancestors(instance, known):
        for other in history.operations.values():
            source = operation_id(history.run, other.step)
            if source not in known[instance.run].inherited and _repeats(flight, other):
                return Elsewhere("fork", "succeeded", source, "ask")
    return None


def _repeats(flight: OperationDriver, other: OperationState) -> bool:
    intent, theirs = flight.operation.intent, other.intent
    if theirs.tool != intent.tool or theirs.completes:
        return False
    same = theirs.digest == intent.digest or other.step == flight.step
    return same and (other.phase == "succeeded" or (not other.final and other.may_have_landed))


async def _ancestors(instance: ActiveRun, known: dict[str, ForkedRun]) -> AsyncIterator[RunHistory]:
    """The run that this one was forked from, the one that was forked from, and so on, each as it stands now."""
    run, seen = instance.history.forked_from, {instance.run}
    while run and run not in seen:
        seen.add(run)
        history = await known.setdefault(run, ForkedRun(run)).read_on(instance.engine.journal)
        yield history
        run = history.forked_from
