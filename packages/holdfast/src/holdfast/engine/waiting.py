"""Waiting: drawn pauses that survive a restart, calls, claims, and people."""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec

from holdfast.engine.approvals import permit_use_post
from holdfast.engine.claims import CLAIM_OF, find_other_effect, taking_posts
from holdfast.engine.deferred import how_to_answer
from holdfast.engine.operation_driver import OperationDriver
from holdfast.engine.suspension import Pause
from holdfast.engine.verification import observe
from holdfast.errors import LedgerTaken
from holdfast.model import records as r
from holdfast.model.decision import moves as m
from holdfast.model.operation import OTHERWISE, OperationState
from holdfast.model.run_history import PROMISE
from holdfast.model.waits import is_whole, question_of

_LOOK_AGAIN_MS: Final = 1_000  # how often to ask whether another process still lives, or an answer is there


async def wait(flight: OperationDriver, move: m.Wait) -> None:
    """Pause as `decide` says, or until something changes; preconditions read before are old afterwards."""
    instance = flight.instance
    if not move.drawn and (move.why in {"retry", "verify"} or (move.why == "breaker" and flight.operation.attempts)):
        await schedule(flight, move)
        return
    flight.reading = "unread"
    if move.why == "call":
        live = {call for call in flight.calls.values() if not call.done()}
        await asyncio.wait(live, timeout=instance.engine.settings.slice_ms / 1000)
        return
    if move.why == "claim":
        await _await_holder(flight)
        return
    ms = None if move.until_woken else move.high_ms
    due = None if ms is None else instance.engine.environment.clock.wall_ms() + ms
    if (move.why == "verify" and flight.operation.phase == "unknown") or move.why == "person":
        operation = flight.operation
        kind = "approval" if operation.wants_approval else "person"
        ends = operation.wants_approval and operation.approval.on_expiry != "hold"
        if due is None and operation.wait is not None:
            due = operation.wait.until
        due = (operation.approval.until if ends else 0) or due
        asks = f"{flight.id}: {question_of(operation, move.rule)}"
        queue = operation.approval.queue if operation.wants_approval else ""
        pause = Pause(
            kind,
            flight.step,
            due,
            asks,
            operation.may_have_been_sent,
            operation.approval.asked_at,
            queue,
            operation.intent.tool,
            operation.approval.until,
            operation.approval.on_expiry,
            _shown(operation),
        )
    elif move.why == "answer":
        pause = Pause(move.why, flight.step, due, how_to_answer(flight))
    else:
        tool = flight.operation.intent.tool if move.why == "paused" and not instance.history.paused else ""
        pause = Pause(move.why, flight.step, due, f"{flight.id}: {move.rule}", tool=tool)
    slice_ms = _LOOK_AGAIN_MS if move.why in {"end", "answer"} else instance.engine.settings.slice_ms
    seconds = min(slice_ms, ms if ms is not None else slice_ms) / 1000
    await instance.rest(flight.step, pause, seconds, flight.scope)


def _shown(operation: OperationState) -> str:
    """The digest that a command in the list may carry: none where the list does not show all that it approves."""
    is_named = operation.wants_approval and operation.approval.asks != OTHERWISE
    return operation.approval.asks if is_named and is_whole(bytes(operation.intent.arguments)) else ""


async def schedule(flight: OperationDriver, move: m.Wait) -> None:
    """Draw the pause and record it, so that a restart keeps the schedule."""
    instance = flight.instance
    ms = int(instance.engine.environment.rng.uniform(move.low_ms, move.high_ms))
    stamp = instance.stamp()
    record = r.WaitScheduled(
        step=flight.step, ms=ms, until=stamp["at"] + ms, why=move.why, rule=move.rule, shut=move.shut, **stamp
    )
    records = (record,) if flight.recorded or not flight.journaled else (flight.planned(move.why), record)
    await flight.note(*records, ride=True)


async def _await_holder(flight: OperationDriver) -> None:
    """Another operation holds the business key: wait for it, and in the end for a person."""
    instance = flight.instance
    if not flight.recorded:
        await flight.note(flight.planned(CLAIM_OF + (flight.elsewhere.source if flight.elsewhere else "?")))
    poll = instance.engine.settings.poll_ms
    due = instance.engine.environment.clock.wall_ms() + poll
    await instance.rest(
        flight.step, Pause("claim", flight.step, due, f"{flight.id} waits for a claim"), poll / 1000, flight.scope
    )
    await find_other_effect(flight)


# Holding: an irreversible effect is kept for the commit of its transaction, and code gets a promise of it.


async def hold(flight: OperationDriver) -> None:
    """Keep the effect for the commit of its transaction; its business key is taken now, and code gets a promise."""
    instance, step, transaction = flight.instance, flight.step, flight.operation.intent.hold
    stamp, tool = instance.stamp(), flight.tool
    assert tool is not None, step
    if flight.contract().observes and flight.reading == "unread":
        await observe(flight)  # what it relies on now is what the commit compares with
    known: tuple[r.Record, ...] = ()
    if not flight.recorded:
        known = (*instance.contract_record(tool), flight.planned("its transaction"))
    intent = msgspec.structs.replace(flight.intent, observed=flight.observed)
    posts, approval, standing = taking_posts(flight), "", ""
    if flight.permit is not None:
        if (allowed := await permit_use_post(flight, flight.permit)) is None:
            flight.permit = None  # it does not cover this any more: a person is asked
            return
        posts, approval, standing = (*posts, allowed), flight.asks, flight.permit.standing.id
    held = r.OperationHeld(
        step=step, transaction=transaction, intent=intent, approval=approval, standing=standing, **stamp
    )
    promise = r.Delivered(step=step, told=PROMISE, detail=transaction, **stamp)
    try:
        await instance.append(*known, held, promise, posts=posts)
    except LedgerTaken:
        await find_other_effect(flight)
        return
    flight.taking = flight.permit = None
    instance.settled(step)  # where code waits for it, and another task drives: the promise is there
