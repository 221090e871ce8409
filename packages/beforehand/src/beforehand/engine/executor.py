"""The executor: performs one move after another until an operation is settled.

First attempts, retries and recovery after a crash all run this one loop. `decide` says what to do; the
functions here do it, record the result, and ask again. `recovery.py` reads back the operations of stopped runs by
the same moves, and sends nothing.
"""

from __future__ import annotations

import asyncio
from typing import Final, TypeAlias

import msgspec

from beforehand.engine.approvals import ask, find_permission, judge, park, permission_use_post, sent_posts
from beforehand.engine.call_limits import limited_call
from beforehand.engine.conflicts import (
    find_other_effect,
    may_conflict,
    outcome_posts,
    reused_post,
    taking_posts,
    undone_posts,
)
from beforehand.engine.crash_isolation import chances_of
from beforehand.engine.deferred import collect_answers, defer, partial_items, record_with_parts
from beforehand.engine.environment import Stamp
from beforehand.engine.exceptions.call_end import describe, end_of_error, end_of_value
from beforehand.engine.invoke import invoke
from beforehand.engine.late_reports import file_late, late_report, watch_late
from beforehand.engine.messages import delivery_at_cancelled, may_still_begin
from beforehand.engine.operation_driver import (
    CallResult,
    OperationDriver,
    decoded,
    intent_of,
    leading_arguments,
    masked,
    planned,
    recorded,
    served,
)
from beforehand.engine.previous_owner import account_for_previous_owners
from beforehand.engine.shared_budgets import SharedCharge, charge_for, is_current, may_be_shared, note_refusal
from beforehand.engine.situation import inputs_of, next_move, situation_of
from beforehand.engine.verification import by_disputes, observe, opening_posts, verify
from beforehand.engine.waiting import hold, wait
from beforehand.errors import (
    ArgumentError,
    BudgetSpent,
    Deferred,
    JournalError,
    LeaseLost,
    LedgerTaken,
    LimitsChanged,
    RecordRefused,
    SendingPaused,
)
from beforehand.journal.port import Post
from beforehand.model import records as r
from beforehand.model.contract import Contract
from beforehand.model.decision import moves as m
from beforehand.model.decision.evidence import attempt_timeout_ms
from beforehand.model.decision.situation import Now
from beforehand.model.operation import OperationState
from beforehand.model.outcome import FINAL, INTERRUPTED, WITHHELD
from beforehand.model.transitions import apply

OtherMove: TypeAlias = (
    m.Observe | m.Verify | m.Wait | m.Judge | m.RequestApproval | m.Hold | m.Reuse | m.Settle | m.Park | m.Done
)
_FOLDED: Final = {"succeeded", "failed"}  # outcomes that are recorded together with the end of their attempt
_ANSWERED: Final = {"returned", "rejected", "key_in_progress"}  # the system works, whatever its answer


def start_driver(driver: OperationDriver) -> None:
    """Drive an operation in a task of its own: after a crash, after its caller was cancelled, or for a transaction."""
    active = driver.active

    async def work() -> None:
        try:
            await drive(driver)
        finally:
            active.drivers.operations.pop(driver.step, None)

    active.drivers.operations[driver.step] = driver
    active.drivers.start(driver.step, work)


async def drive(driver: OperationDriver) -> OperationState:
    """Perform moves until the operation has a final outcome, or its instance stops driving."""
    active = driver.active
    if driver.scope is None:
        await _take_from_caller(driver)
    operation = driver.operation
    if driver.decided_on is not None and driver.forgotten:
        return operation  # its attempt is settled, and its transaction over: driven as new, it would be settled again
    if driver.journaled and may_conflict(active.history, active.process.pending_index, operation):
        await find_other_effect(driver)
        operation = driver.operation
    while operation.phase not in FINAL:
        closing = active.draining or (driver.journaled and active.sealed is not None)
        stops = closing and active.history.lifecycle.cancelled is None
        if stops or (driver.scope is not None and _caller_is_answered(driver, operation)):
            break
        if operation.attempts:
            await account_for_previous_owners(driver)
            await collect_answers(driver)
            operation = driver.operation
        now = active.log.now()
        move = next_move(driver, operation, now)
        if isinstance(move, m.Done) or (closing and not isinstance(move, m.Settle)):
            break  # a cancelled run settles what it can from what it knows, and does nothing more
        if isinstance(move, m.Send):
            await _attempt(driver, operation, now)
        else:
            await _perform(driver, move)
        if driver.step not in active.history.operations and driver.forgotten:
            break  # the operation and its transaction both have an outcome
        operation = driver.operation
    return operation


def _caller_is_answered(driver: OperationDriver, operation: OperationState) -> bool:
    """True if the caller, whose own task drives this, is answered before there is an outcome.

    It receives a promise of a held effect; a model receives `pending`; with `on_unknown="raise"` it receives `unknown`.
    """
    match operation.phase:
        case "held":
            return True
        case "awaiting":
            return driver.step in driver.active.history.delivered.told_unknown
        case "unknown":
            return driver.contract().on_unknown == "raise"
        case _:
            return False


async def _take_from_caller(driver: OperationDriver) -> None:
    """Wait for the records of a cancelled caller, and resume the attempt that it left in flight."""
    active = driver.active
    if checks := active.log.checks(driver.step):
        await asyncio.wait(checks)  # they may be on their way to the journal
        active.waiters.settled(driver.step)  # a commit that waits for it is notified that it is held now
    if driver.started is not None:
        await _resume_attempt(driver, driver.started)


async def _resume_attempt(driver: OperationDriver, started: r.AttemptStarted) -> None:
    """Resume an attempt that another task left in flight: make it durable, and wait for its call (or make it)."""
    try:
        await driver.active.log.flush()
    except JournalError:
        # We lost the run, but the call is ours: its answer is reported to the present owner of the run.
        if started.number in driver.calls:
            watch_late(driver, started.number)
        elif driver.current is None or driver.current.attempt != started.number:
            driver.active.log.never_sent[driver.step, started.number] = None  # no call was begun, and none ever will be
        raise
    if len(driver.operation.attempts) < started.number:
        driver.started = driver.answer = None  # it was refused by the ledger: nothing was sent
        return
    if driver.operation.attempts[started.number - 1].end is None:
        begun = driver.answer is not None or started.number in driver.calls
        limited = not begun and driver.operation.intent.tool in driver.active.process.queues.limited_tools
        try:
            if limited and not await _has_permit(driver):  # the caller's was released with the caller
                await withhold(driver, started.number, "a limit of its calls is reached")
            else:
                await _call(driver, started)
        finally:
            _release_permit(driver, started.number)
    driver.started = driver.answer = None


async def _perform(driver: OperationDriver, move: OtherMove) -> None:
    match move:
        case m.Settle():
            await settle(driver, move)
        case m.Wait():
            await wait(driver, move)
        case m.Verify():
            await verify(driver)
        case m.Observe():
            await observe(driver, kept=move.kept)
        case m.Reuse():
            await _reuse(driver, move)
        case m.Park():
            await park(driver, move)
        case m.Hold():
            await hold(driver)
        case m.Judge():
            await judge(driver)
        case _:
            assert isinstance(move, m.RequestApproval), "a final outcome ends the loop"
            if not await find_permission(driver):
                await ask(driver, move)


# --- attempts ----------------------------------------------------------------------------------------


async def _attempt(driver: OperationDriver, operation: OperationState, now: Now) -> None:
    """Make one attempt. A suspect of crashes runs beside fewer others, and alone on its last chance."""
    engine, run = driver.active.process, driver.active.run
    chances = chances_of(operation, engine.settings.deaths_allowed) if operation.attempts else 0
    waits = chances > 0 or engine.isolation.alone
    if waits:
        chances = await engine.isolation.wait_to_enter(run, chances=chances)
        operation, now = driver.operation, driver.active.log.now()
    else:
        engine.isolation.enter(run)
    try:
        # Much may have changed during a wait: then the decision is made again.
        if not waits or type(next_move(driver, operation, now)) is m.Send:
            if operation.intent.tool in engine.queues.limited_tools:
                await _attempt_with_permit(driver)
            else:
                await _attempt_now(driver, operation, now)
    finally:
        engine.isolation.exit(run, chances=chances)


async def _attempt_with_permit(driver: OperationDriver) -> None:
    """Make one attempt that is under limits. Without a permit nothing is recorded, and `decide` is asked again."""
    number = len(driver.operation.attempts) + 1
    try:
        if await _has_permit(driver) and type(next_move(driver, driver.operation, driver.active.log.now())) is m.Send:
            await _attempt_now(driver, driver.operation, driver.active.log.now())
    finally:
        _release_permit(driver, number)


async def _has_permit(driver: OperationDriver) -> bool:
    """Take a permit for the next call."""
    call = limited_call(driver.active.history, driver.operation.intent.tool)
    driver.found.permit = await driver.active.process.limits.take(call, driver.id)
    return driver.found.permit is not None


def _release_permit(driver: OperationDriver, number: int) -> None:
    """Release the permit, where there is one, when the call of this attempt ends, or if none was begun."""
    permit, driver.found.permit = driver.found.permit, None
    if permit is not None:
        driver.active.process.limits.release(permit, driver.calls.get(number))


async def _attempt_now(driver: OperationDriver, operation: OperationState, now: Now) -> None:
    """Record the intent and the attempt, durably; call the tool; classify and record its end."""
    engine, history = driver.active.process, driver.active.history
    decided = history.records
    if (driver.arguments is None or operation.edits) and (misfit := _misfit(driver)):
        driver.found.misfit, driver.found.misfit_of = misfit, operation.intent.arguments
        return  # `decide` is asked again with this finding
    if operation.attempts:
        await engine.breakers.retried(operation.intent.tool)
        now = driver.active.log.now()
    if driver.journaled and not engine.lease_is_fresh(now.latest):
        await engine.beat()
        if driver.active.sealed is not None:  # taken over meanwhile; an evicted run still finishes what it has begun
            raise driver.active.sealed
        now = driver.active.log.now()
    allowed = None
    if (
        driver.found.permission is not None
        and (allowed := await permission_use_post(driver, driver.found.permission)) is None
    ):
        driver.found.permission = None  # it no longer covers this: a person is asked
        return
    charge = await charge_for(driver, operation) if may_be_shared(driver.active) else None
    if driver.found.spent is not None:
        return  # `decide` is asked again with this finding
    started = _started(driver, operation, now)
    if charge is not None:
        started = msgspec.structs.replace(started, shared=charge.shared)
    engine.environment.crash.reached("before_intent")
    news = history.records != decided  # such as a command, while the ledger was read
    unsure = driver.journaled and (news or driver.log.may_have_news())
    if unsure and not await may_still_begin(driver, operation, now):
        return
    driver.started, driver.decided_on = started, operation
    begin = _begin if charge is None else _begin_in_turn
    if not await begin(driver, operation, allowed, charge):
        return
    engine.environment.crash.reached("after_intent")
    await _call(driver, started)
    driver.started = driver.answer = None


async def _begin_in_turn(
    driver: OperationDriver, operation: OperationState, allowed: Post | None, charge: SharedCharge | None
) -> bool:
    """Record an attempt that a shared budget may refuse: in its turn, and only if `decide` still sends it then.

    Two branches that were decided at once would both take the last effect of the run's own budget.
    """
    async with driver.log.reserving_turn:
        sends = type(next_move(driver, operation, driver.log.now())) is m.Send
        if not sends or not is_current(driver, charge):
            driver.started = None
            return False
        return await _begin(driver, operation, allowed, charge)


async def _begin(
    driver: OperationDriver, operation: OperationState, allowed: Post | None, charge: SharedCharge | None
) -> bool:
    """Record the attempt, durably. False if the ledger, a shared budget or a pause refuses it: nothing was recorded."""
    started, known = driver.started, recorded(driver)
    assert started is not None, driver.step
    posts = taking_posts(driver) if operation.intent.can_conflict else ()
    if operation.judgement.facts is not None:
        posts = (*posts, *sent_posts(driver, started.at))
    posts = posts if allowed is None else (*posts, allowed)
    try:
        await driver.record(started, posts=posts, limits=None if charge is None else charge.limits)
    except LedgerTaken:
        driver.started = None
        await find_other_effect(driver)
        return False
    except (BudgetSpent, LimitsChanged) as refusal:
        driver.started = None
        await note_refusal(driver, charge, refusal)
        return False
    except (RecordRefused, SendingPaused) as refused:
        driver.started = None
        driver.log.withdraw(driver.step, operation if known else None)
        if isinstance(refused, RecordRefused) or not driver.log.journal_log.usable:
            raise
        await driver.active.process.read_pauses()  # `decide` is asked again under the one that it did not know
        return False
    return True


async def _call(driver: OperationDriver, started: r.AttemptStarted) -> None:
    """Call the tool, unless `decide` would not send it any more, and file the end of the call.

    The answer is kept until its end is filed: where the task is cancelled in between, the task that goes on files that
    answer, and does not call again.
    """
    if driver.answer is None and started.number not in driver.calls:
        why = held_back(driver)
        driver.found.permission = None  # the attempt has used it; until here it answered the question of the gate
        if why:
            await withhold(driver, started.number, why)
            return
    if driver.answer is None:
        driver.answer = await invoke(driver, started)
    await file_end(driver, started.number, driver.answer)


def held_back(driver: OperationDriver) -> str:
    """Why the attempt that is on record is not sent after all; empty if it is. No await separates this from the call.

    While the record became durable, a cancel, a message, a pause, a deadline or the end of the lease may have come. So
    `decide` is asked once more about the operation as it was before this attempt.
    """
    active, before = driver.active, driver.decided_on
    if not driver.journaled:
        return ""  # the state of a read is kept in memory: nothing can have come
    if active.draining or active.sealed is not None:
        return "the run is being released"
    now = active.log.now()
    if not active.process.lease_is_fresh(now.latest):
        return "the lease ran out meanwhile"
    assert before is not None, driver.step
    if before.attempts and driver.operation.attempts[: len(before.attempts)] != before.attempts:
        return "an earlier call of it was answered meanwhile"
    move = next_move(driver, before, now)
    return "" if type(move) is m.Send else move.rule


async def withhold(driver: OperationDriver, number: int, why: str) -> None:
    """End an attempt that was recorded and is not sent. It counts as no attempt of the budget, nor as a failure."""
    now = driver.active.log.now()
    driver.found.reading = "unread"
    end = r.End("not_sent", f"it was held back right before the call: {why}", WITHHELD, retry_after_ms=0)
    try:
        await driver.record(r.AttemptEnded(step=driver.step, number=number, end=end, at=now.wall, up=now.up))
    except LeaseLost:
        await report_late(driver, number, end, now)
        raise


def _misfit(driver: OperationDriver) -> str:
    """Why the recorded arguments cannot be given to the tool as it is now; empty if they can."""
    try:
        decoded(driver)
    except ArgumentError as error:
        return f"its recorded arguments no longer fit the tool: {error.message}"
    try:
        leading_arguments(driver)
    except Exception as error:  # noqa: BLE001 - its arguments are decoded above: here it is the result, whatever reads it
        return f"the result of {driver.operation.intent.serves} no longer fits its tool: {describe(error)}"
    return ""


def _started(driver: OperationDriver, operation: OperationState, now: Now) -> r.AttemptStarted:
    first, timeout_ms = not recorded(driver), 0  # the contract's
    if (operation.attempts or driver.found.ledger.key_age_ms) and driver.contract().key is not None:
        timeout_ms = attempt_timeout_ms(operation, situation_of(operation, inputs_of(driver, operation)), now)
    intent = operation.intent if driver.found.ledger.taking is None else intent_of(driver)
    if first and driver.found.observed is not r.NOTHING:
        intent = msgspec.structs.replace(intent, observed=driver.found.observed)
    return r.AttemptStarted(
        step=driver.step,
        number=len(operation.attempts) + 1,
        token=driver.active.lease.token,
        send_by=timeout_ms,
        intent=intent if first or driver.found.ledger.taking is not None else None,
        observed=r.NOTHING if first else driver.found.observed,
        approval=operation.approval.approved_digest
        if driver.found.permission is None
        else driver.asks(driver.operation),
        standing="" if driver.found.permission is None else driver.found.permission.permission.id,
        at=now.wall,
        up=now.up,
    )


async def file_end(driver: OperationDriver, number: int, answer: CallResult) -> None:
    """File the end of a call. If it settles the operation, both are one record."""
    active, tool, now = driver.active, driver.tool, driver.active.log.now()
    assert tool is not None, driver.step
    driver.found.reading = "unread"
    if isinstance(answer.error, Deferred) and driver.journaled:
        await defer(driver, number, answer.error, answer)
        return
    end = (
        end_of_value(tool.codec, answer.value)
        if answer.error is None
        else end_of_error(driver.contract(), answer.error, answer.sends, tool.classifier)
    )
    if answer.cost is not None:
        end = msgspec.structs.replace(end, cost=answer.cost)
    if not answer.key_read and end.kind not in {"rejected", "not_sent"}:  # those sent nothing that a key would dedupe
        end = msgspec.structs.replace(end, key_read=False)
        active.process.report_unread_key(tool.name)
    end = end if answer.reported is None else answer.reported.added_to(end)
    end = masked(driver, end) if driver.log.masks else end
    ended = r.AttemptEnded(step=driver.step, number=number, end=end, over=answer.over, at=now.wall, up=now.up)
    operation = apply(driver.operation, ended, active.history.ownership.boot)
    move = next_move(driver, operation, now)
    active.process.environment.crash.reached("before_outcome")
    try:
        if type(move) is m.Settle and move.status in _FOLDED and answer.over:
            await _record_outcome(driver, move, operation, now, end)
        else:
            # A return that does not settle a natural write yet cannot be obtained again: it is durable at once.
            waits = end.kind == "rejected" or (end.kind == "returned" and driver.contract().natural is not None)
            await driver.record(ended, ride=not waits)
    except LeaseLost:
        await report_late(driver, number, end, now)
        raise
    active.process.environment.crash.reached("after_outcome")
    if end.retry_after_ms and tool.name in active.process.queues.limited_tools:
        await active.process.limits.slow(limited_call(active.history, tool.name), end.retry_after_ms)
    breakers = active.process.breakers
    if end.kind in _ANSWERED:
        if breakers.troubled:
            await breakers.succeeded(tool.name)
    elif not tool.gone():  # else its caller ended it, and not the service
        await breakers.failed(tool.name)


async def report_late(driver: OperationDriver, number: int, end: r.End, now: Now) -> None:
    """Report the end of a call whose lease was lost: the present owner of the run finds it in the ledger."""
    report = late_report(driver.operation, number, end, Stamp(at=now.wall, up=now.up))
    await file_late(driver.active.process, driver.active.run, report)


# --- outcomes ------------------------------------------------------------------------------------------


async def settle(driver: OperationDriver, move: m.Settle) -> None:
    """Record the outcome that was decided."""
    await _record_outcome(driver, move, driver.operation, driver.active.log.now(), None)


async def _record_outcome(
    driver: OperationDriver, move: m.Settle, operation: OperationState, now: Now, end: r.End | None
) -> None:
    """Record the outcome, together with the end of the last attempt if that is not on record yet."""
    proof = operation.attempts[move.attempt - 1].end or end if move.status == "succeeded" and move.attempt else None
    result, lost, why = _result(move, operation, proof)
    record = r.OperationSettled(
        step=driver.step,
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
    if move.pending_effect is not None:
        record = msgspec.structs.replace(record, met=move.pending_effect)
    if move.status == "unknown":
        record = msgspec.structs.replace(record, until=driver.active.process.settings.answer_by(now.wall))
    posts: tuple[Post, ...] = ()
    if operation.can_conflict:
        outcome = msgspec.structs.replace(operation.settlement, basis=move.basis, result=result)
        settled = msgspec.structs.replace(operation, phase=move.status, settlement=outcome)
        posts = outcome_posts(driver.id, settled) if driver.journaled else ()
    if operation.intent.compensates and move.status == "succeeded":
        forward = served(driver)
        posts = (*posts, *undone_posts(forward.id, forward.operation))
        driver.active.waiters.wake(forward.step)  # unknown, it has waited for this
    first = () if operation.attempts or recorded(driver) or not driver.journaled else (planned(driver),)
    entries = delivery_at_cancelled(driver) if move.code == INTERRUPTED else ()
    news = by_disputes(operation, record) if operation.links.disputes else ()
    if news:
        posts = (*posts, *opening_posts(driver.active.history, (record, *news)))
    contract = driver.contract(operation)
    if move.status == "succeeded" and (items := partial_items(contract, operation, proof)):
        for part in await record_with_parts(driver, (*first, record, *news), posts, items):
            start_driver(driver.of(part))
    else:
        await driver.record(*first, *entries, record, *news, ride=_rides(contract, move, operation), posts=posts)
    if driver.active.process.limits.known:
        driver.active.process.limits.leave(driver.id)  # a cancelled run settles what waits
    driver.active.waiters.settled(driver.step)


def _rides(contract: Contract, move: m.Settle, operation: OperationState) -> bool:
    """True if losing this record costs no more than asking the system again."""
    if move.code == INTERRUPTED and move.status == "cancelled":
        # The message cancels it again. But only we may know how its calls ended, and a delivered operation is dropped.
        return not operation.attempts
    if move.status != "succeeded" or not contract.rides:
        return False
    return contract.verifies or not operation.key_unread


def _result(move: m.Settle, operation: OperationState, proof: r.End | None) -> tuple[r.Raw, bool, str]:
    """The stored result of a success, whether it was lost, and why. `proof` is the end of the call that gave it."""
    if proof is not None:
        return proof.result, proof.lost, proof.why if proof.lost else ""
    return (
        (operation.verification.found or r.NOTHING, operation.settlement.lost, "")
        if move.status == "succeeded"
        else (r.NOTHING, False, "")
    )


async def _reuse(driver: OperationDriver, move: m.Reuse) -> None:
    """Answer with an existing outcome."""
    holder = driver.found.ledger.holder
    assert holder is not None, driver.step
    record = r.OutcomeReused(
        step=driver.step,
        source=move.source,
        why=move.rule,
        result=holder.note.result,
        intent=None if recorded(driver) else driver.operation.intent,
        age_ms=max(0, driver.active.process.wall_ms() - holder.since_ms),
        by=holder.note.by,
        **driver.active.log.stamp(),
    )
    await driver.record(record, posts=(reused_post(move.source, driver.id),))
    driver.active.waiters.settled(driver.step)
