"""The fast path: the first attempt of an ordinary write, in one straight function.

It takes the steps of `executor.drive` for the case that nothing has to be awaited before the attempt: ask `decide`,
record the attempt durably, ask again, call the tool. It asks `decide` where the executor asks it and leaves the same
records in the same order. Whatever is unusual goes on in `drive`, from the state that the operation has by then.
`Settings.fast_path` switches it off; the simulator compares the two.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from beforehand.engine.conflicts import may_conflict
from beforehand.engine.exceptions.call_end import end_of_value
from beforehand.engine.executor import file_end, held_back, report_late, withhold
from beforehand.engine.invoke import give_up, start_call, take_answer
from beforehand.engine.shared_budgets import may_be_shared
from beforehand.engine.situation import next_move
from beforehand.errors import LeaseLost, RecordRefused
from beforehand.model import records as r
from beforehand.model.decision import moves as m
from beforehand.model.transitions import apply

if TYPE_CHECKING:
    import asyncio

    from beforehand.engine.driven_operation import DrivenOperation
    from beforehand.engine.invoke import CallResult
    from beforehand.engine.tool_protocol import ToolCode
    from beforehand.model.decision.situation import Now
    from beforehand.model.operation import OperationState

_RETURNED: Final = r.End("returned")
"""The end of the call in the record of its outcome, which holds the result."""


async def attempt_at_once(driver: DrivenOperation, draft: OperationState, tool: ToolCode) -> None:
    """Make the first attempt of a write that is not on record yet, if `decide` sends it and nothing is in the way.

    Otherwise this returns without a trace. A caller that is cancelled here leaves the attempt to the task that goes on
    (`start_driver`), and an attempt that the journal refuses leaves the history as it was.
    """
    active, log, step = driver.active, driver.log, driver.step
    process, now = active.process, log.now()
    if _awaits_something(driver, draft, now) or type(next_move(driver, draft, now)) is not m.Send:
        return
    crash = process.environment.crash
    started = driver.started = r.AttemptStarted(
        step=step, token=active.lease.token, intent=draft.intent, at=now.wall, up=now.up
    )
    driver.decided_on = draft
    process.isolation.enter(active.run)
    try:
        crash.reached("before_intent")
        try:
            await log.append(*log.contract_record(tool), started)
        except RecordRefused:
            driver.started = None
            log.withdraw(step, None)
            raise
        crash.reached("after_intent")
        if why := held_back(driver):
            await withhold(driver, 1, why)
            driver.started = None
            return
        crash.reached("before_send")
        timeout_ms = tool.contract.timeout_ms
        over: asyncio.Future[None] = active.ending.get_loop().create_future()
        call = driver.calls[1] = start_call(driver, started, timeout_ms, over)
        await process.calls.timeouts.wait(over, timeout_ms / 1000)
        crash.reached("after_send")
        driver.answer = take_answer(driver, 1, call) if call.done() else await give_up(driver, started, call)
        del call, over  # the task with its context: the collector would visit them during the commit that follows
        if not await _record_return(driver, tool, driver.answer):
            await file_end(driver, 1, driver.answer)
    finally:
        process.isolation.exit(active.run)
    driver.started = driver.answer = None


async def _record_return(driver: DrivenOperation, tool: ToolCode, answer: CallResult) -> bool:
    """Record the outcome of a call that returned and has nothing more to say; false, with no trace, for any other.

    The end of the call and the outcome are one record. It rides where losing it costs a question to the system.
    """
    active, log, contract = driver.active, driver.log, tool.contract
    if answer.error is not None or answer.reported is not None or answer.cost is not None or not answer.key_read:
        return False
    if log.masks or contract.pending is not None:
        return False
    now, end = log.now(), end_of_value(tool.codec, answer.value)
    ended = r.AttemptEnded(step=driver.step, number=1, end=end, at=now.wall, up=now.up)
    move = next_move(driver, apply(driver.operation, ended, log.history.ownership.boot), now)
    if end.lost or type(move) is not m.Settle or move.status != "succeeded" or not move.attempt:
        return False
    if move.reason or move.code or move.pending_effect is not None:  # only the record of `file_end` holds these
        return False
    crash = active.process.environment.crash
    crash.reached("before_outcome")
    outcome = r.OperationSettled(
        step=driver.step,
        basis=move.basis,
        rule=move.rule if move.rule != "returned" else "",
        result=end.result,
        unverified=move.unverified,
        number=1,
        end=_RETURNED,
        at=now.wall,
        up=now.up,
    )
    if contract.rides:
        log.buffer(outcome)
    else:
        try:
            await log.append(outcome)
        except LeaseLost:
            await report_late(driver, 1, end, now)
            raise
    active.waiters.settled(driver.step)
    crash.reached("after_outcome")
    if active.process.breakers.troubled:
        await active.process.breakers.succeeded(tool.name)
    return True


def _awaits_something(driver: DrivenOperation, draft: OperationState, now: Now) -> bool:
    """True if the executor awaits something before this attempt: ledger, suspect, permit, budget, lease, or news."""
    active, process = driver.active, driver.active.process
    return (
        active.draining
        or active.sealed is not None
        or bool(process.isolation.alone)
        or not process.lease_is_fresh(now.up)
        or driver.log.may_have_news()
        or draft.intent.tool in process.queues.limited_tools
        or may_conflict(driver, draft)
        or may_be_shared(active)
    )
