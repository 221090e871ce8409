"""Attempts of earlier owners of the run: whether the call is over, and on what proof."""

from __future__ import annotations

from typing import Final

import msgspec

from holdfast.engine.calls import call_still_runs
from holdfast.engine.operation_driver import OperationDriver
from holdfast.model import records as r
from holdfast.model.operation import Attempt

_HUNG: Final = (
    "process {pid} on this machine still lives and has not reported how its call ended:"
    " end that process (kill -9 {pid}), or wait for its report"
)
_BEATS: Final = (
    "process {pid}, which cannot be observed from here (another container, for example), renews its lease and has not"
    " reported how its call ended: end that process, or wait for its report"
)


class _CallFate(msgspec.Struct, frozen=True):
    """The fate of a call: if it is over, its end unless a better one is known, and the process that may run it."""

    over: bool
    end: r.End
    hung: str = ""  # the process in words; empty: no process is seen to live


async def account_for_previous_owners(driver: OperationDriver) -> None:
    """Find out if the processes still live whose attempts have no end on record.

    A call is over when its process is proven dead, or when a process that cannot be observed has been
    silent for longer than the declared bound. Until then absence is never believed. A process that is seen
    to live may hang for ever, so it is named to the person who is finally asked.
    """
    log, hung = driver.log, ""
    if not driver.journaled:
        return
    for attempt in driver.operation.attempts:
        if attempt.over_up is not None:
            continue
        if attempt.token == log.journal_log.lease.token:
            if _runs_here(driver, attempt):
                hung = _HUNG.format(pid=log.process.worker.pid)
            continue
        fate = await _fate(driver, attempt)
        hung = fate.hung or hung
        if fate.over or attempt.end is None:
            end = fate.end
            if attempt.end is not None and not (end.died and attempt.end.kind == "lost"):
                end = attempt.end
            stamp = log.stamp()
            ended = r.AttemptEnded(step=driver.step, number=attempt.number, end=end, over=fate.over, **stamp)
            await driver.record(ended, ride=True)
    driver.found.hung = hung


async def _fate(driver: OperationDriver, last: Attempt) -> _CallFate:
    """The known fate of the call of an earlier owner."""
    log, engine = driver.log, driver.log.process
    owner, here = log.history.ownership.owners[last.token].worker, _HUNG.format(pid=engine.worker.pid)
    if owner == engine.worker.id:
        runs = _runs_here(driver, last)
        return _CallFate(not runs, r.End("lost", why="this process released the run"), here if runs else "")
    if (still := call_still_runs(engine.worker, owner)) is not None:
        return _CallFate(not still, r.End("lost", why="the app that made it is closed"), here if still else "")
    state = await engine.journal.fate(owner)
    if state.fate == "dead":
        return _CallFate(over=True, end=r.End("lost", why="its process died", died=True))
    over = state.fate == "unknown" and state.silent_ms > engine.settings.pause_bound_ms
    # One that renews its lease may go on for ever: no silence ends the wait, so a person is asked.
    says = _HUNG if state.fate == "alive" else _BEATS
    return _CallFate(
        over, r.End("lost", why="its owner lost the lease"), says.format(pid=state.pid) if state.seen_to_live else ""
    )


def _runs_here(driver: OperationDriver, attempt: Attempt) -> bool:
    call = driver.calls.get(attempt.number)
    return call is not None and not call.done()
