"""Late reports: how a call ended whose attempt was given up, or whose run was lost, as evidence for the run's owner."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import Any, Final

import msgspec

from beforehand.engine.active_run.log import load
from beforehand.engine.active_run.run import ActiveRun
from beforehand.engine.commands import command_post
from beforehand.engine.environment import Stamp
from beforehand.engine.exceptions.call_end import end_of_error, end_of_value
from beforehand.engine.operation_driver import OperationDriver, masked
from beforehand.engine.process import Process
from beforehand.engine.verification import by_report, opening_posts
from beforehand.errors import BeforehandError, JournalError, JournalUnavailable, LedgerTaken
from beforehand.journal.entry_codec import written
from beforehand.journal.port import Post, Posts
from beforehand.model import records as r
from beforehand.model.commands import DELIVERIES, AnswerNotice, Command
from beforehand.model.operation import OperationState

LOG: Final = logging.getLogger("beforehand")


def watch_late(driver: OperationDriver, number: int) -> None:
    """File the answer of a call after its attempt was given up."""
    process, call = driver.active.process, driver.calls[number]
    if not driver.journaled:
        return  # a read has no record that its answer could be added to

    def report() -> asyncio.Task[None] | None:
        if process.closing:
            LOG.info("%s: attempt %d ended while the app closes; its next owner verifies it", driver.id, number)
            return None
        return process.background(_file_late_end(driver, number, call), "beforehand-late")

    if process.calls.watch(driver.id, driver.calls, number, report):
        driver.active.replay.kept[driver.step] = None


async def _file_late_end(driver: OperationDriver, number: int, call: asyncio.Future[Any]) -> None:
    """File as evidence the end of a call whose attempt had been given up."""
    tool, active = driver.tool, driver.active
    assert tool is not None, driver.step
    error = asyncio.CancelledError() if call.cancelled() else call.exception()
    sends = driver.current.sends if driver.current is not None else 0
    end = (
        end_of_error(driver.contract(), error, sends, tool.classifier)
        if error
        else end_of_value(tool.codec, call.result())
    )
    if driver.current is not None and driver.current.reported is not None:
        end = driver.current.reported.added_to(end)
    report = late_report(driver.operation, number, masked(driver, end), active.log.stamp())
    try:
        # As a command: the operation does not change between the judgement and the commit, which is one, so that no
        # crash leaves a report about a final outcome without its review.
        async with active.log.command_lock, active.log.between_attempts():
            news = by_report(driver.operation, report, active.log.stamp())
            await active.log.append(report, *news, posts=opening_posts(active.history, news))
    except BeforehandError:
        await file_late(active.process, active.run, report)
        return
    active.waiters.wake(driver.step)
    active.waiters.consider_rest()


def late_report(operation: OperationState, number: int, end: r.End, stamp: Stamp) -> r.LateReport:
    """The report about this attempt of the operation, as this process knows it.

    Its lease may be lost, and what it knows need not be on record: another owner may have made an attempt of this
    number. The token tells the two apart.
    """
    token = operation.attempts[number - 1].token
    return r.LateReport(step=operation.step, number=number, end=end, token=token, **stamp)


async def file_late(process: Process, run: str, report: r.LateReport) -> None:
    """File a former owner's report about an attempt in the ledger, for the present owner.

    While this process lives no other one knows that its call is over, so a report that the journal does not take now
    is offered again until it does.
    """
    body = written(Command(record=report))
    key = f"late/{report.step}/{report.number}/{report.token}/{report.up}"
    news = Post(DELIVERIES, f"{run}/{key}", written(AnswerNotice("", key, run)))

    async def file() -> None:
        with suppress(LedgerTaken):  # it was filed, and the answer to that was lost
            # In one commit: of a run that has ended, only announced reports are read.
            await process.journal.commit(Posts((command_post(run, body, key), news)))

    try:
        await file()
    except JournalUnavailable as error:
        LOG.warning("run %s: the end of a call could not be recorded yet: %s", run, error)
        process.insist(file)


async def file_known_ends(active: ActiveRun) -> None:
    """File the ends of our calls that the journal no longer accepted, for the next owner of the run."""
    try:
        await _file_ends(active)
    except JournalError as error:
        LOG.warning("run %s: the ends of its last calls could not be recorded yet: %s", active.run, error)
        active.process.insist(lambda: _file_ends(active))


async def _file_ends(active: ActiveRun) -> None:
    durable = (await load(active.process, active.run)).operations
    for step, operation in active.history.operations.items():
        stored = durable[step].attempts if step in durable else ()
        for known, ours in zip(stored, operation.attempts, strict=False):
            missing = known.end is None or known.end.kind == "lost"
            if not missing or ours.token != active.lease.token or known.token != ours.token:
                continue
            at = active.process.wall_ms()
            if (step, ours.number) in active.log.never_sent:
                end, up = r.End("not_sent", "its process lost the run before the call"), active.log.now().up
            elif ours.end is not None and ours.over_up is not None:
                end, up = _with_result(ours.end, operation), ours.over_up
            else:
                continue
            await file_late(active.process, active.run, late_report(operation, ours.number, end, Stamp(at=at, up=up)))


def _with_result(end: r.End, operation: OperationState) -> r.End:
    """The end of a call with its own result: an outcome that was recorded with it holds the result for both."""
    if end.kind != "returned" or end.result is not r.NOTHING:
        return end
    return msgspec.structs.replace(end, result=operation.settlement.result, lost=operation.settlement.lost)
