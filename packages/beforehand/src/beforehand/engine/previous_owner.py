"""Attempts of earlier owners of the run: whether the call is over, and on what proof."""

from __future__ import annotations

import asyncio

from beforehand.engine.calls import HUNG, CallFate, call_still_runs, fate_of
from beforehand.engine.commands import take_commands
from beforehand.engine.operation_driver import OperationDriver
from beforehand.model import records as r
from beforehand.model.operation import Attempt


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
                hung = HUNG.format(pid=log.process.worker.pid)
            continue
        fate = await _fate(driver, attempt)
        hung = fate.hung or hung
        if fate.over and await _reported(driver, attempt.number):
            continue
        if (end := fate.ends(attempt)) is not None:
            stamp = log.stamp()
            ended = r.AttemptEnded(step=driver.step, number=attempt.number, end=end, over=fate.over, **stamp)
            await driver.record(ended, ride=True)
    driver.found.hung = hung


async def _reported(driver: OperationDriver, number: int) -> bool:
    """True if the process whose call is over has reported how it ended: without this, it would be sent once more.

    Its report is in the ledger by now, and no notification of it need have come.
    """
    if (filing := driver.log.process.calls.reports.get((driver.id, number))) is not None:
        await asyncio.wait({filing})
    await take_commands(driver.active)
    return driver.operation.attempts[number - 1].over_up is not None


async def _fate(driver: OperationDriver, last: Attempt) -> CallFate:
    """The known fate of the call of an earlier owner."""
    log, engine = driver.log, driver.log.process
    owner, here = log.history.ownership.owners[last.token].worker, HUNG.format(pid=engine.worker.pid)
    if owner == engine.worker.id:
        runs = _runs_here(driver, last)
        return CallFate(not runs, r.End("lost", why="this process released the run"), here if runs else "")
    if (still := call_still_runs(engine.worker, owner)) is not None:
        return CallFate(not still, r.End("lost", why="the app that made it is closed"), here if still else "")
    return fate_of(await engine.journal.fate(owner), engine.settings.pause_bound_ms)


def _runs_here(driver: OperationDriver, attempt: Attempt) -> bool:
    call = driver.calls.get(attempt.number)
    return call is not None and not call.done()
