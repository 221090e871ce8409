"""Attempts of earlier owners: whether their calls still run, and how they ended as far as anybody can know."""

from __future__ import annotations

from holdfast.engine.flight import Flight
from holdfast.engine.left_behind import still_runs
from holdfast.model import records as r
from holdfast.model.operation import Attempt


async def account_for_owners(flight: Flight) -> None:
    """Attempts of earlier owners may have no end on record: find out whether their processes still live.

    A call is over when its process is proven dead, or when a process that cannot be observed has been
    silent for longer than the declared bound. Until then absence is never believed.
    """
    instance = flight.instance
    if not flight.journaled:
        return
    for attempt in flight.operation.attempts:
        if attempt.over_up is not None or attempt.token == instance.lease.token:
            continue
        over, end = await _fate(flight, attempt)
        if over or attempt.end is None:
            if attempt.end is not None and not (end.died and attempt.end.kind == "lost"):
                end = attempt.end
            ended = r.AttemptEnded(step=flight.step, number=attempt.number, end=end, over=over, **instance.stamp())
            await flight.note(ended, ride=True)


async def _fate(flight: Flight, last: Attempt) -> tuple[bool, r.End]:
    """Whether the call of an earlier owner is known to be over, and its end where nothing else is known."""
    instance, engine = flight.instance, flight.instance.engine
    owner = instance.history.owners[last.token].worker
    if owner == engine.worker.id:
        call = flight.calls.get(last.number)
        return call is None or call.done(), r.End("lost", why="this process let go of the run")
    if (runs := still_runs(engine.worker, owner)) is not None:
        return not runs, r.End("lost", why="the app that made it is closed")
    state = await engine.journal.fate(owner)
    over = state.fate == "dead" or (state.fate == "unknown" and state.silent_ms > engine.settings.pause_bound_ms)
    if state.fate == "dead":
        return over, r.End("lost", why="its process died", died=True)
    return over, r.End("lost", why="its owner lost the lease")
