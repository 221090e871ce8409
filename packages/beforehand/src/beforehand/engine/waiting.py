"""Waits: for drawn pauses that survive a restart, for calls, for claims, and for people."""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec

from beforehand.engine.approvals import permission_use_post
from beforehand.engine.breaker import paused_with
from beforehand.engine.call_limits import limited_call
from beforehand.engine.conflicts import CLAIM_OF, find_other_effect, sibling, taking_posts
from beforehand.engine.deferred import what_is_awaited
from beforehand.engine.operation_driver import OperationDriver, intent_of, plan, planned, recorded
from beforehand.engine.shared_budgets import await_room, charge_for, note_refusal
from beforehand.engine.suspension import Pause, limit_pause
from beforehand.engine.verification import observe
from beforehand.errors import BudgetSpent, LedgerTaken, LimitsChanged
from beforehand.model import records as r
from beforehand.model.decision import moves as m
from beforehand.model.operation import OTHERWISE, OperationState
from beforehand.model.run_history import PROMISE, RunHistory
from beforehand.model.waits import has_to_name, needs_result
from beforehand.model.wording import question_of, shows_whole

_LOOK_AGAIN_MS: Final = 1_000  # how often to check if another process still lives, or an answer is there


async def wait(driver: OperationDriver, move: m.Wait) -> None:
    """Pause as `decide` says, or until something changes; preconditions read before are old afterwards."""
    log = driver.log
    if not move.drawn and (move.why in {"retry", "verify"} or (move.why == "breaker" and driver.operation.attempts)):
        await schedule(driver, move)
        return
    driver.found.reading = "unread"
    if move.why == "call":
        live = {call for call in driver.calls.values() if not call.done()}
        await asyncio.wait(live, timeout=log.process.settings.slice_ms / 1000)
        return
    if move.why == "limit":
        await _await_permit(driver, move.high_ms)
        return
    if move.why == "claim":
        await _await_holder(driver)
        return
    if move.why == "budget" and driver.found.refusal is not None:
        await await_room(driver, driver.found.refusal)
        return
    ms = None if move.until_woken else move.high_ms
    due = None if ms is None else log.process.wall_ms() + ms
    if (move.why == "verify" and driver.operation.phase == "unknown") or move.why == "person":
        operation, approval = driver.operation, driver.operation.approval
        kind = "approval" if operation.wants_approval else "person"
        ends = operation.wants_approval and approval.on_expiry != "hold"
        if due is None and operation.wait is not None:
            due = operation.wait.until
        due = (approval.answer_by if ends else 0) or due
        asks = f"{driver.id}: {question_of(operation, move.rule)}"
        queue = approval.queue if operation.wants_approval else ""
        pause = Pause(
            kind, driver.step, due, asks, operation.may_have_been_sent, approval.asked_at, queue, operation.intent.tool,
            approval.answer_by, approval.on_expiry, _shown(log.history, operation),
            result=needs_result(log.history, operation),
        )  # fmt: skip
    elif move.why == "answer":
        pause = Pause(move.why, driver.step, due, what_is_awaited(driver), shown=driver.operation.deferral.key)
    else:
        tool = driver.operation.intent.tool if move.why == "paused" and not log.history.lifecycle.paused else ""
        tool = tool and paused_with(log.process.pauses, tool)
        pause = Pause(
            move.why, driver.step, due, f"{driver.id}: {move.rule}", tool=tool, since=_held_since(driver, move)
        )
    slice_ms = _LOOK_AGAIN_MS if move.why in {"end", "answer"} else log.process.settings.slice_ms
    seconds = min(slice_ms, ms if ms is not None else slice_ms) / 1000
    await driver.rest(pause, seconds)


def _held_since(driver: OperationDriver, move: m.Wait) -> int:
    """The moment since which this process holds a caller over an outage of the service; 0 if there is none."""
    operation = driver.operation
    again = move.why in {"retry", "breaker"} and operation.attempts and not operation.in_progress
    if not again or not driver.contract().safe_again:
        return 0
    driver.found.held_since = driver.found.held_since or driver.log.process.wall_ms()
    return driver.found.held_since


def _shown(history: RunHistory, operation: OperationState) -> str:
    """The digest that a command in the list carries: empty if the list does not show all that it approves."""
    if not operation.wants_approval:
        return has_to_name(history, operation)
    is_named = operation.approval.asked_digest != OTHERWISE
    intent, asks = operation.intent, question_of(operation)
    shown = is_named and shows_whole(asks, intent.tool, bytes(intent.arguments))
    return operation.approval.asked_digest if shown else ""


async def schedule(driver: OperationDriver, move: m.Wait) -> None:
    """Draw the pause and record it, so that a restart keeps the schedule."""
    log = driver.log
    ms = int(log.process.environment.rng.uniform(move.low_ms, move.high_ms))
    stamp = log.stamp()
    record = r.WaitScheduled(
        step=driver.step, ms=ms, until=stamp["at"] + ms, why=move.why, rule=move.rule, shut=move.shut, **stamp
    )
    await driver.record(*plan(driver, move.why), record, ride=True)


async def _await_permit(driver: OperationDriver, ms: int) -> None:
    """Wait until a limit permits the call. The plan of the operation is recorded, so that commands show what waits."""
    process, tool = driver.log.process, driver.operation.intent.tool
    limit = process.limits.wait(limited_call(driver.log.history, tool), driver.id)
    if limit is None:
        return  # meanwhile it may ask
    await driver.record(*plan(driver, f"the limit of {limit.name}"), ride=True)
    process.limits.waits(limit.name, driver.id, ms, driver.wake)
    await driver.rest(limit_pause(limit, driver.step, process.wall_ms(), driver.id, tool), ms / 1000)


async def _await_holder(driver: OperationDriver) -> None:
    """Wait for the operation that holds the business key, and in the end for a person.

    The end of one of another run wakes no task here: this run looks again, and is not suspended. For one of this run it
    is, unless that has ended since the look or is held: both go on in the same process.
    """
    log, effect = driver.log, driver.found.ledger.other
    assert effect is not None, driver.id
    if not recorded(driver):
        await driver.record(planned(driver, CLAIM_OF + effect.source))
    process, other = log.process, sibling(log.history, effect.source)
    wakes = other is not None and not other.final and other.phase != "held"
    due = None if wakes else process.wall_ms() + process.settings.poll_ms
    pause = Pause("claim", driver.step, due, f"{driver.id} waits for {effect.source}")
    await driver.rest(pause, process.settings.poll_ms / 1000, None if other is None else other.step)
    await find_other_effect(driver)


async def hold(driver: OperationDriver) -> None:
    """Keep the effect for the commit of its transaction; take its business key now, and give code a promise."""
    log, step, transaction = driver.log, driver.step, driver.operation.intent.hold
    stamp, tool = log.stamp(), driver.tool
    assert tool is not None, step
    if driver.contract().observes and driver.found.reading == "unread":
        await observe(driver)  # the commit compares with this reading
    known: tuple[r.Record, ...] = ()
    if not recorded(driver):
        known = (*log.contract_record(tool), planned(driver, "its transaction"))
    intent = msgspec.structs.replace(intent_of(driver), observed=driver.found.observed)
    posts, approval, standing = taking_posts(driver), "", ""
    if driver.found.permission is not None:
        if (allowed := await permission_use_post(driver, driver.found.permission)) is None:
            driver.found.permission = None  # it no longer covers this: a person is asked
            return
        posts, approval = (*posts, allowed), driver.asks(driver.operation)
        standing = driver.found.permission.permission.id
    charge = await charge_for(driver, driver.operation)
    if driver.found.spent is not None:
        return  # `decide` is asked again with this finding
    held = r.OperationHeld(
        step=step, transaction=transaction, intent=intent, approval=approval, standing=standing,
        shared=() if charge is None else charge.shared, **stamp,
    )  # fmt: skip
    promise = r.Delivered(step=step, told=PROMISE, detail=transaction, **stamp)
    try:
        await log.append(*known, held, promise, posts=posts, limits=None if charge is None else charge.limits)
    except LedgerTaken:
        await find_other_effect(driver)
        return
    except (BudgetSpent, LimitsChanged) as refusal:
        await note_refusal(driver, charge, refusal)
        return
    driver.found.ledger = msgspec.structs.replace(driver.found.ledger, taking=None)
    driver.found.permission = None
    driver.settled()  # code that waits for it, while another task drives, gets the promise
