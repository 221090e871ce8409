"""The executor: performs one move after another until an operation is settled.

First attempts, retries and recovery after a crash all run this one loop. `decide` says what to do; the
methods here do it, record what came of it, and ask again. Nothing else touches the world. The file is long because
every move that sends or settles is performed here.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final, TypeAlias

import msgspec

from holdfast.engine.approvals import ask, find_permit, park, permit_use_post
from holdfast.engine.claims import (
    find_other_effect,
    may_meet_other_effect,
    reused_post,
    settling_posts,
    taking_posts,
    undone_posts,
)
from holdfast.engine.crash_isolation import chances_of
from holdfast.engine.deferred import collect_answers, defer, partial_items, record_with_parts
from holdfast.engine.exceptions.call_end import describe, end_of_error, end_of_value
from holdfast.engine.invoke import CallResult, invoke
from holdfast.engine.late_reports import by_disputes, by_report, opening_posts
from holdfast.engine.messages import between_attempts, delivery_at_cancelled, may_have_arrived, may_still_begin
from holdfast.engine.operation_driver import OperationDriver
from holdfast.engine.previous_owner import account_for_previous_owners
from holdfast.engine.rulings import judge, sent_posts
from holdfast.engine.verification import observe, verify
from holdfast.engine.waiting import hold, wait
from holdfast.errors import ArgumentError, Deferred, HoldfastError, JournalError, LeaseLost, LedgerTaken, RecordRefused
from holdfast.journal.port import Post
from holdfast.model import records as r
from holdfast.model.decision import moves as m
from holdfast.model.decision.evidence import send_by_ms
from holdfast.model.decision.situation import Now
from holdfast.model.operation import OperationState
from holdfast.model.outcome import FINAL, INTERRUPTED
from holdfast.model.transitions import apply

OtherMove: TypeAlias = m.Observe | m.Verify | m.Wait | m.Judge | m.Gate | m.Hold | m.Reuse | m.Settle | m.Park | m.Done
_FOLDED: Final = {"succeeded", "failed"}  # outcomes that are recorded together with the end of their attempt
_ANSWERED: Final = {"returned", "rejected", "key_in_progress"}  # the system works, whatever it said


async def drive(flight: OperationDriver) -> OperationState:
    """Perform moves until the operation has a final outcome, or its instance stops driving."""
    instance = flight.instance
    if flight.scope is None and instance.checking:
        await asyncio.wait(instance.checking)  # what its caller left behind may be on its way to the journal
        instance.settled(flight.step)  # a commit that waits for it is notified that it is held now
    if flight.started is not None:
        await _resume_attempt(flight, flight.started)
    operation = flight.operation
    if flight.journaled and may_meet_other_effect(flight, operation):
        await find_other_effect(flight)
        operation = flight.operation
    while operation.phase not in FINAL:
        closing = instance.draining or (flight.journaled and instance.sealed is not None)
        stops = closing and instance.history.cancelled is None
        if stops or (flight.scope is not None and _caller_is_answered(flight, operation)):
            break
        if operation.attempts:
            await account_for_previous_owners(flight)
            await collect_answers(flight)
            operation = flight.operation
        now = instance.now()
        move = flight.next_move(operation, now)
        if closing and not isinstance(move, m.Settle):
            break  # a cancelled run settles what it can from what it knows, and does nothing more
        if isinstance(move, m.Attempt):
            await _attempt(flight, operation, now)
        else:
            await _perform(flight, move)
        if flight.step not in instance.history.operations and flight.forgotten:
            break  # it has its outcome, and so has its transaction
        operation = flight.operation
    return operation


def _caller_is_answered(flight: OperationDriver, operation: OperationState) -> bool:
    """Whether the caller, whose own task drives this, hears something before there is an outcome.

    It gets a promise of a held effect; a model hears that it is pending; whoever asked to hears that nobody knows.
    """
    match operation.phase:
        case "held":
            return True
        case "awaiting":
            return flight.step in flight.instance.history.told_unknown
        case "unknown":
            return flight.contract().on_unknown == "raise"
        case _:
            return False


async def _resume_attempt(flight: OperationDriver, started: r.AttemptStarted) -> None:
    """Another task left this attempt in mid-flight: see that it is durable, and wait for its call (or make it)."""
    try:
        await flight.instance.settle_writes()
    except JournalError:
        # The run is lost to us, and its call is ours: what it answers is left for whoever has the run now.
        if (call := flight.calls.get(started.number)) is not None:
            flight.instance.engine.watch_late(flight, started.number, call)
        elif flight.current is None or flight.current.attempt != started.number:
            flight.instance.never_sent.add((flight.step, started.number))  # no call was begun, and none ever will be
        raise
    if len(flight.operation.attempts) < started.number:
        flight.started = flight.answer = None  # it was refused by the ledger: nothing was sent
        return
    if flight.operation.attempts[started.number - 1].end is None:
        await _call(flight, started)
    flight.started = flight.answer = None


async def _perform(flight: OperationDriver, move: OtherMove) -> None:
    match move:
        case m.Settle():
            await settle(flight, move)
        case m.Wait():
            await wait(flight, move)
        case m.Verify():
            await verify(flight)
        case m.Observe():
            await observe(flight, kept=move.kept)
        case m.Reuse():
            await _reuse(flight, move)
        case m.Park():
            await park(flight, move)
        case m.Hold():
            await hold(flight)
        case m.Judge():
            await judge(flight)
        case _:
            assert isinstance(move, m.Gate), "a final outcome ends the loop"
            if not await find_permit(flight):
                await ask(flight, move)


# --- attempts ----------------------------------------------------------------------------------------


async def _attempt(flight: OperationDriver, operation: OperationState, now: Now) -> None:
    """Make one attempt; one that processes died of goes beside fewer others, and on its last chance alone."""
    engine, run = flight.instance.engine, flight.instance.run
    chances = chances_of(operation, engine.settings.deaths_allowed) if operation.attempts else 0
    waits = chances > 0 or engine.company.reserved
    if waits:
        await engine.company.admit(run, chances=chances)
        operation, now = flight.operation, flight.instance.now()
    else:
        engine.company.join(run)
    try:
        # Where it had to wait, much may have changed: then the decision is made again.
        if not waits or type(flight.next_move(operation, now)) is m.Attempt:
            await _attempt_now(flight, operation, now)
    finally:
        engine.company.leave(run, chances=chances)


async def _attempt_now(flight: OperationDriver, operation: OperationState, now: Now) -> None:
    """Record the intent and the attempt, durably; call the tool; classify and record its end."""
    engine, history = flight.instance.engine, flight.instance.history
    decided = history.records
    if (flight.arguments is None or operation.edits) and (misfit := _misfit(flight)):
        await park(flight, m.Park("arguments", why=misfit))
        return
    if operation.attempts:
        await engine.breakers.retried(operation.intent.tool)
        now = flight.instance.now()
    if flight.journaled and not engine.lease_is_fresh(now.up):
        await engine.renew_lease(flight.instance)
        now = flight.instance.now()
    allowed = None
    if flight.permit is not None and (allowed := await permit_use_post(flight, flight.permit)) is None:
        flight.permit = None  # it does not cover this any more: a person is asked
        return
    recorded = flight.recorded
    started = _started(flight, operation, now, first=not recorded)
    engine.environment.crash.reached("before_intent")
    news = history.records != decided  # such as an order, while the ledger was asked
    unsure = flight.journaled and (news or may_have_arrived(flight.instance))
    if unsure and not await may_still_begin(flight, operation, now):
        return
    flight.started = started
    try:
        posts = taking_posts(flight) if operation.intent.meets_others else ()
        if operation.judgement.facts is not None:
            posts = (*posts, *sent_posts(flight, now.wall))
        await flight.note(started, posts=posts if allowed is None else (*posts, allowed))
        flight.permit = None
    except LedgerTaken:
        flight.started = None
        await find_other_effect(flight)
        return
    except RecordRefused:
        flight.started = None
        flight.instance.withdraw(flight.step, operation if recorded else None)
        raise
    engine.environment.crash.reached("after_intent")
    await _call(flight, started)
    flight.started = flight.answer = None


async def _call(flight: OperationDriver, started: r.AttemptStarted) -> None:
    """Call the tool and file the end of the call.

    The answer is kept until its end is filed: where the task is cancelled in between, the task that goes on files that
    answer, and does not call again.
    """
    if flight.answer is None:
        flight.answer = await invoke(flight, started)
    await _file_end(flight, started.number, flight.answer)


def _misfit(flight: OperationDriver) -> str:
    """Why what is on record cannot be given to the tool as it is now; empty where it can."""
    try:
        flight.decoded()
    except ArgumentError as error:
        return f"its recorded arguments no longer fit the tool: {error.message}"
    try:
        flight.given()
    except Exception as error:  # noqa: BLE001 - its arguments are decoded above: here it is the result, whatever reads it
        return f"the result of {flight.operation.intent.serves} no longer fits its tool: {describe(error)}"
    return ""


def _started(flight: OperationDriver, operation: OperationState, now: Now, *, first: bool) -> r.AttemptStarted:
    send_by = 0
    if (operation.attempts or flight.key_age_ms) and flight.contract().key is not None:
        send_by = send_by_ms(operation, flight.situation(operation), now)
    intent = operation.intent if flight.taking is None else flight.intent
    if first and flight.observed is not r.NOTHING:
        intent = msgspec.structs.replace(intent, observed=flight.observed)
    return r.AttemptStarted(
        step=flight.step,
        number=len(operation.attempts) + 1,
        token=flight.instance.lease.token,
        send_by=send_by,
        intent=intent if first or flight.taking is not None else None,
        observed=r.NOTHING if first else flight.observed,
        approval=operation.approval.digest if flight.permit is None else flight.asks,
        standing="" if flight.permit is None else flight.permit.standing.id,
        at=now.wall,
        up=now.up,
    )


async def _file_end(flight: OperationDriver, number: int, answer: CallResult) -> None:
    """File the end of a call. Where it settles the operation, both are one record."""
    instance, tool, now = flight.instance, flight.tool, flight.instance.now()
    assert tool is not None, flight.step
    flight.reading = "unread"
    if isinstance(answer.error, Deferred) and flight.journaled:
        await defer(flight, number, answer.error, answer)
        return
    end = (
        end_of_value(tool.codec, answer.value)
        if answer.error is None
        else end_of_error(flight.contract(), answer.error, answer.sends, tool.classifier)
    )
    if answer.cost:
        end = msgspec.structs.replace(end, cost=answer.cost)
    if not answer.key_read and end.kind not in {"rejected", "not_sent"}:  # those sent nothing that a key would dedupe
        end = msgspec.structs.replace(end, key_read=False)
        instance.engine.report_unread_key(tool.name)
    end = flight.masked(end if answer.said is None else answer.said.added_to(end))
    ended = r.AttemptEnded(step=flight.step, number=number, end=end, over=answer.over, at=now.wall, up=now.up)
    operation = apply(flight.operation, ended, instance.history.boot)
    move = flight.next_move(operation, now)
    instance.engine.environment.crash.reached("before_outcome")
    try:
        if type(move) is m.Settle and move.status in _FOLDED and answer.over:
            await _record_outcome(flight, move, operation, now, end)
        else:
            # A return that does not settle a natural write yet is not asked for again: it is durable at once.
            waits = end.kind == "rejected" or (end.kind == "returned" and flight.contract().natural is not None)
            await flight.note(ended, ride=not waits)
    except LeaseLost:
        # Fenced out, and yet we know how it ended: the present owner finds it in the ledger.
        report = r.LateReport(step=flight.step, number=number, end=end, at=now.wall, up=now.up)
        await instance.engine.file_late(instance.run, report)
        raise
    instance.engine.environment.crash.reached("after_outcome")
    breakers = instance.engine.breakers
    if end.kind not in _ANSWERED:
        await breakers.failed(tool.name)
    elif breakers.troubled:
        await breakers.succeeded(tool.name)


# --- outcomes ------------------------------------------------------------------------------------------


async def settle(flight: OperationDriver, move: m.Settle) -> None:
    """Record the outcome that was decided."""
    await _record_outcome(flight, move, flight.operation, flight.instance.now(), None)


async def _record_outcome(
    flight: OperationDriver, move: m.Settle, operation: OperationState, now: Now, end: r.End | None
) -> None:
    """Record the outcome, with the end of the last attempt where it comes with it."""
    proof = _proof(move, operation, end)
    result, lost, why = _result(move, operation, proof)
    record = r.OperationSettled(
        step=flight.step,
        status=move.status,
        basis=move.basis,
        rule=move.rule if move.rule != "returned" else "",
        reason=move.reason or why,
        code=move.code,
        result=result,
        lost=lost,
        unverified=move.unverified,
        number=len(operation.attempts) if end is not None else 0,
        end=msgspec.structs.replace(end, result=r.NOTHING) if end is not None else None,
        at=now.wall,
        up=now.up,
    )
    if move.met is not None:
        record = msgspec.structs.replace(record, met=move.met)
    if move.status == "unknown":
        record = msgspec.structs.replace(record, until=flight.instance.engine.settings.answer_by(now.wall))
    posts: tuple[Post, ...] = ()
    if operation.meets_others:
        outcome = msgspec.structs.replace(operation.settlement, basis=move.basis, result=result)
        settled = msgspec.structs.replace(operation, phase=move.status, settlement=outcome)
        posts = settling_posts(flight, settled)
    if operation.intent.compensates and move.status == "succeeded":
        forward = flight.served()
        posts = (*posts, *undone_posts(forward.id, forward.operation))
    first = () if operation.attempts or flight.recorded or not flight.journaled else (flight.planned(),)
    heard = delivery_at_cancelled(flight) if move.code == INTERRUPTED else ()
    news = by_disputes(operation, record) if operation.links.disputes else ()
    if news:
        posts = (*posts, *opening_posts(flight.instance.history, (record, *news)))
    if move.status == "succeeded" and (items := partial_items(flight, operation, proof)):
        await record_with_parts(flight, (*first, record, *news), posts, items)
    else:
        await flight.note(*first, *heard, record, *news, ride=_rides(flight, move, operation, end), posts=posts)
    flight.instance.settled(flight.step)


def _rides(flight: OperationDriver, move: m.Settle, operation: OperationState, end: r.End | None) -> bool:
    """Whether losing this record costs no more than asking the system again."""
    contract = flight.contract(operation)
    if move.code == INTERRUPTED and move.status == "cancelled":
        # The message calls it off again. But how its calls ended only we may know, and what is told is let go of.
        return not operation.attempts
    if move.status != "succeeded" or not contract.rides:
        return False
    return contract.verifies or not (operation.key_unread or (end is not None and not end.key_read))


def _proof(move: m.Settle, operation: OperationState, end: r.End | None) -> r.End | None:
    """How the call ended whose result is the result; that may be the end which is recorded with the outcome."""
    if move.status != "succeeded" or not move.attempt:
        return None
    return operation.attempts[move.attempt - 1].end or end


def _result(move: m.Settle, operation: OperationState, proof: r.End | None) -> tuple[r.Raw, bool, str]:
    """The stored result of a success, whether it was lost, and why."""
    if proof is not None:
        return proof.result, proof.lost, proof.why if proof.lost else ""
    return (
        (operation.verification.found or r.NOTHING, operation.settlement.lost, "")
        if move.status == "succeeded"
        else (r.NOTHING, False, "")
    )


async def _reuse(flight: OperationDriver, move: m.Reuse) -> None:
    """Answer with an outcome that stands already."""
    holder = flight.holder
    assert holder is not None, flight.step
    record = r.OutcomeReused(
        step=flight.step,
        source=move.source,
        why=move.rule,
        result=holder.note.result,
        intent=None if flight.recorded else flight.operation.intent,
        age_ms=max(0, flight.instance.engine.environment.clock.wall_ms() - holder.since_ms),
        **flight.instance.stamp(),
    )
    await flight.note(record, posts=(reused_post(move.source, flight.id),))
    flight.instance.settled(flight.step)


# --- what a call says after it was given up ------------------------------------------------------------


async def file_late_end(flight: OperationDriver, number: int, call: asyncio.Future[Any]) -> None:
    """A call ended after its attempt had been given up: what it says is evidence."""
    tool, instance = flight.tool, flight.instance
    assert tool is not None, flight.step
    error = asyncio.CancelledError() if call.cancelled() else call.exception()
    sends = flight.current.sends if flight.current is not None else 0
    end = (
        end_of_error(flight.contract(), error, sends, tool.classifier)
        if error
        else end_of_value(tool.codec, call.result())
    )
    if flight.current is not None and flight.current.said is not None:
        end = flight.current.said.added_to(end)
    report = r.LateReport(step=flight.step, number=number, end=flight.masked(end), **instance.stamp())
    try:
        # As an order: the operation does not change between the judgement and the commit, which is one, so that no
        # crash leaves a report about a final outcome without its review.
        async with instance.taking_orders, between_attempts(instance):
            news = by_report(flight.operation, report, instance.stamp())
            await instance.append(report, *news, posts=opening_posts(instance.history, news))
    except HoldfastError:
        await instance.engine.file_late(instance.run, report)
        return
    instance.wake(flight.step)
    instance.consider_rest()
