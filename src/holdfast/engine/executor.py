"""The executor: performs one move after another until an operation is settled.

First attempts, retries and recovery after a crash all run this one loop. `decide` says what to do; the
methods here do it, record what came of it, and ask again. Nothing else touches the world.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import msgspec

from holdfast.engine.calls import Answer, call_tool
from holdfast.engine.ends import describe, end_of_error, end_of_value
from holdfast.engine.flight import Flight
from holdfast.engine.instance import Pause
from holdfast.engine.meetings import look_elsewhere, settling_posts, taking_posts
from holdfast.engine.tooling import within
from holdfast.errors import HoldfastError, LeaseLost, LedgerTaken
from holdfast.model import moves as m
from holdfast.model import records as r
from holdfast.model.decide import decide
from holdfast.journal.port import Post
from holdfast.model.operation import OperationState
from holdfast.model.outcome import CannotTell, Conflict, DidNotHappen, Happened, VerdictKind
from holdfast.model.situation import Now
from holdfast.model.transitions import apply
from holdfast.model.weigh import key_left_ms, until_believable_ms

_RESTING: Final = {"person", "paused", "trust", "claim", "verify", "retry", "breaker"}
_FOLDED: Final = {"succeeded", "failed"}  # outcomes that are recorded together with the end of their attempt
_ANSWERED: Final = {"returned", "rejected"}
_VERDICTS: Final[dict[type, VerdictKind]] = {
    Happened: "happened",
    DidNotHappen: "did_not_happen",
    CannotTell: "cannot_tell",
    Conflict: "conflict",
}


async def drive(flight: Flight) -> OperationState:
    """Perform moves until the operation has a final outcome, or its instance stops driving."""
    instance = flight.instance
    if flight.started is not None:
        await _go_on(flight, flight.started)
    while not (operation := flight.operation).final:
        if instance.draining or (flight.journaled and instance.sealed is not None):
            break
        if flight.scope is not None and _tells_unknown(flight):
            break
        if operation.attempts:
            await _account_for_owner(flight)
            operation = flight.operation
        now = instance.now()
        move = decide(operation, flight.situation(), now)
        if type(move) is m.Attempt:
            await _attempt(flight, operation, now)
        else:
            await _perform(flight, move)
    return operation


def _tells_unknown(flight: Flight) -> bool:
    """Whether the caller is to be told now that nobody knows."""
    return flight.operation.phase == "unknown" and flight.contract().on_unknown == "raise"


async def _go_on(flight: Flight, started: r.AttemptStarted) -> None:
    """Another task left this attempt in mid-flight: see that it is durable, and wait for its call (or make it)."""
    await flight.instance.settle_writes()
    if len(flight.operation.attempts) < started.number:
        flight.started = None  # it was refused by the ledger: nothing was sent
        return
    if flight.operation.attempts[started.number - 1].end is None:
        await _ended(flight, started.number, await call_tool(flight, started))
    flight.started = None


async def _account_for_owner(flight: Flight) -> None:
    """An attempt of an earlier owner has no end on record: find out whether its process still lives.

    Its call is over when that process is proven dead, or when a process that cannot be observed has been
    silent for longer than the declared bound. Until then absence is never believed.
    """
    instance, attempts = flight.instance, flight.operation.attempts
    last = attempts[-1]
    if not flight.journaled or last.over_up is not None:
        return
    if last.token == instance.lease.token:
        return
    owner = instance.history.owners[last.token].worker
    state = await instance.engine.journal.fate(owner)
    bound = instance.engine.settings.pause_bound_ms
    over = state.fate == "dead" or (state.fate == "unknown" and state.silent_ms > bound)
    if last.end is not None and not over:
        return
    why = "its process died" if state.fate == "dead" else "its owner lost the lease"
    end = last.end or r.End("lost", why=why)
    await flight.note(
        r.AttemptEnded(step=flight.step, number=last.number, end=end, over=over, **instance.stamp()), ride=True
    )


async def _perform(flight: Flight, move: m.Move) -> None:
    match move:
        case m.Settle():
            await _settle(flight, move)
        case m.Wait():
            await _wait(flight, move)
        case m.Verify():
            await _verify(flight)
        case m.Observe():
            await _observe(flight)
        case m.Reuse():
            await _reuse(flight, move)
        case m.Park():
            await _park(flight, move.why, move.rule)
        case m.Gate() | m.Hold() | m.Compensate() | m.Done():
            await _park(flight, f"{type(move).__name__.lower()}: {move.rule}", move.rule)


# --- attempts ----------------------------------------------------------------------------------------


async def _attempt(flight: Flight, operation: OperationState, now: Now) -> None:
    """Record the intent and the attempt, durably; call the tool; classify and record its end."""
    engine = flight.instance.engine
    if operation.attempts:
        await engine.breakers.retried(operation.intent.tool)
        now = flight.instance.now()
    if flight.journaled and not engine.lease_is_fresh(now.up):
        await engine.renew_lease(flight.instance)
        now = flight.instance.now()
    started = _started(flight, operation, now)
    engine.seams.crash.reached("before_intent")
    flight.started = started
    try:
        await flight.note(started, posts=taking_posts(flight))
    except LedgerTaken:
        flight.started = None
        await look_elsewhere(flight)
        return
    engine.seams.crash.reached("after_intent")
    await _ended(flight, started.number, await call_tool(flight, started))
    flight.started = None


def _started(flight: Flight, operation: OperationState, now: Now) -> r.AttemptStarted:
    contract, first = flight.contract(), not flight.recorded
    send_by = contract.timeout_ms
    if contract.key is not None and (operation.attempts or flight.key_age_ms):
        send_by = max(1, min(send_by, key_left_ms(operation, flight.situation(), now)))
    intent = flight.intent
    if first and flight.observed is not r.NOTHING:
        intent = msgspec.structs.replace(intent, observed=flight.observed)
    return r.AttemptStarted(
        step=flight.step,
        number=len(operation.attempts) + 1,
        token=flight.instance.lease.token,
        send_by=send_by,
        intent=intent if first or flight.taking is not None else None,
        observed=r.NOTHING if first else flight.observed,
        approval=operation.approval,
        at=now.wall,
        up=now.up,
    )


async def _ended(flight: Flight, number: int, answer: Answer) -> None:
    """File the end of a call. Where it settles the operation, both are one record."""
    instance, tool, now = flight.instance, flight.tool, flight.instance.now()
    assert tool is not None, flight.step
    flight.reading = "unread"
    end = (
        end_of_value(tool.codec, answer.value)
        if answer.error is None
        else end_of_error(flight.contract(), answer.error, answer.sends)
    )
    if not answer.key_read:
        end = msgspec.structs.replace(end, key_read=False)
        instance.engine.report_unread_key(tool.name)
    ended = r.AttemptEnded(step=flight.step, number=number, end=end, over=answer.over, at=now.wall, up=now.up)
    trial = apply(flight.operation, ended, instance.history.boot)
    move = decide(trial, flight.situation(), now)
    instance.engine.seams.crash.reached("before_outcome")
    try:
        if type(move) is m.Settle and move.status in _FOLDED and answer.over:
            await _record_outcome(flight, move, trial, now, end)
        else:
            await flight.note(ended, ride=end.kind != "rejected")
    except LeaseLost:
        # Fenced out, and yet we know how it ended: the present owner finds it in the ledger.
        report = r.LateReport(step=flight.step, number=number, end=end, at=now.wall, up=now.up)
        await instance.engine.file_late(instance.run, report)
        raise
    instance.engine.seams.crash.reached("after_outcome")
    if end.kind in _ANSWERED:
        await instance.engine.breakers.succeeded(tool.name)
    else:
        await instance.engine.breakers.failed(tool.name)


# --- outcomes ------------------------------------------------------------------------------------------


async def _settle(flight: Flight, move: m.Settle) -> None:
    await _record_outcome(flight, move, flight.operation, flight.instance.now(), None)


async def _record_outcome(
    flight: Flight, move: m.Settle, operation: OperationState, now: Now, end: r.End | None
) -> None:
    """Record the outcome, with the end of the last attempt where it comes with it."""
    result, lost, why = _result(move, operation)
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
    posts: tuple[Post, ...] = ()
    if operation.intent.claim or operation.intent.words:
        settled = msgspec.structs.replace(operation, phase=move.status, basis=move.basis, result=result)
        posts = settling_posts(flight, settled)
    first = () if flight.recorded or not flight.journaled else (_planned(flight),)
    await flight.note(*first, record, ride=_rides(flight, move, operation), posts=posts)
    flight.instance.settled(flight.step)


def _rides(flight: Flight, move: m.Settle, operation: OperationState) -> bool:
    """Whether losing this record costs no more than asking the system again."""
    contract = flight.contract()
    if move.status != "succeeded" or not contract.rides:
        return False
    return contract.verifies or not operation.key_unread


def _result(move: m.Settle, operation: OperationState) -> tuple[r.Raw, bool, str]:
    """The stored result of a success, whether it was lost, and why."""
    if move.status != "succeeded":
        return r.NOTHING, False, ""
    if move.attempt:
        end = operation.attempts[move.attempt - 1].end
        assert end is not None, operation
        return end.result, end.lost, end.why if end.lost else ""
    return operation.found or r.NOTHING, operation.lost, ""


def _planned(flight: Flight, waits_for: str = "") -> r.OperationPlanned:
    return r.OperationPlanned(
        step=flight.step, intent=flight.operation.intent, waits_for=waits_for, **flight.instance.stamp()
    )


async def _park(flight: Flight, why: str, rule: str) -> None:
    record = r.OperationParked(step=flight.step, why=why, rule=rule, **flight.instance.stamp())
    records = (record,) if flight.recorded or not flight.journaled else (_planned(flight, why), record)
    await flight.note(*records)
    flight.instance.settled(flight.step)


async def _reuse(flight: Flight, move: m.Reuse) -> None:
    """Answer with an outcome that stands already."""
    holder = flight.holder
    assert holder is not None, flight.step
    record = r.OutcomeReused(
        step=flight.step,
        source=move.source,
        why=move.rule,
        result=holder.note.result,
        intent=None if flight.recorded else flight.operation.intent,
        age_ms=max(0, flight.instance.engine.seams.clock.wall_ms() - holder.since_ms),
        **flight.instance.stamp(),
    )
    await flight.note(record)
    flight.instance.settled(flight.step)


# --- reading the world -----------------------------------------------------------------------------------


async def _verify(flight: Flight) -> None:
    """Read the world back and record the verdict. An error of the verifier is no verdict."""
    instance, tool = flight.instance, flight.tool
    assert tool is not None, flight.step
    before = flight.operation
    believable = until_believable_ms(before, flight.situation(), instance.now()) == 0
    instance.engine.seams.crash.reached("before_verify")
    verdict = await _ask(flight, "verify")
    instance.engine.seams.crash.reached("after_verify")
    kind = _VERDICTS.get(type(verdict))
    if kind is None:
        kind, verdict = "cannot_tell", CannotTell(f"verify answered {type(verdict).__name__}, which is no verdict")
    stored, lost = r.NOTHING, False
    if isinstance(verdict, Happened):
        end = end_of_value(tool.codec, verdict.result)
        stored, lost = end.result, end.lost
    absent = kind == "did_not_happen" and believable
    record = r.Verified(
        step=flight.step,
        verdict=kind,
        believable=believable,
        through=len(before.attempts) if absent else 0,
        evidence=verdict.evidence[:2000],
        result=stored,
        lost=lost,
        missing=verdict.missing if isinstance(verdict, Happened) else (),
        **instance.stamp(),
    )
    records = (record,) if flight.recorded or not flight.journaled else (_planned(flight, "verification"), record)
    await flight.note(*records, ride=kind in {"cannot_tell", "did_not_happen"})


async def _ask(flight: Flight, handler: str) -> Any:
    tool = flight.tool
    assert tool is not None, flight.step
    try:
        return await within(tool.handlers[handler], flight.decoded(), (flight.view(),), flight.instance.engine.seams)
    except Exception as error:  # noqa: BLE001  # a verifier's own error is no evidence
        return CannotTell(describe(error))


async def _observe(flight: Flight) -> None:
    """Read the preconditions: the first reading is kept, later ones are compared with it."""
    tool = flight.tool
    assert tool is not None, flight.step
    seams = flight.instance.engine.seams
    try:
        value = await within(tool.handlers["observe"], flight.decoded(), (flight.view(),), seams)
        observed = r.Raw(msgspec.json.encode(value, order="deterministic"))
    except Exception as error:  # noqa: BLE001  # preconditions that cannot be read are unreadable, whatever the cause
        flight.reading = "unreadable"
        await _reobserved(flight, r.Raw(msgspec.json.encode(describe(error))))
        return
    known = flight.operation.observed
    flight.observed = observed
    flight.reading = "same" if known in (r.NOTHING, observed) else "changed"
    if flight.reading == "changed":
        await _reobserved(flight, observed)


async def _reobserved(flight: Flight, observed: r.Raw) -> None:
    assert flight.reading in {"changed", "unreadable"}, flight.reading
    if not flight.recorded:
        return
    voided = bool(flight.operation.approval) and flight.reading == "changed"
    reading = "changed" if flight.reading == "changed" else "unreadable"
    await flight.note(
        r.Reobserved(step=flight.step, reading=reading, observed=observed, **flight.instance.stamp()), ride=True
    )
    if voided:
        flight.reading = "same"


# --- waiting ------------------------------------------------------------------------------------------------


async def _wait(flight: Flight, move: m.Wait) -> None:
    instance = flight.instance
    if move.why in {"retry", "verify"} and not move.drawn:
        await _schedule(flight, move)
        return
    if move.why == "call":
        live = {call for call in flight.calls.values() if not call.done()}
        await asyncio.wait(live, timeout=instance.engine.settings.slice_ms / 1000)
        return
    if move.why == "claim":
        await _await_holder(flight)
        return
    ms = None if move.until_woken else move.high_ms
    due = None if ms is None else instance.engine.seams.clock.wall_ms() + ms
    if (move.why == "verify" and flight.operation.phase == "unknown") or move.why == "person":
        due = flight.operation.wait.until if flight.operation.wait else None
        asks = f"{flight.id}: {flight.operation.reason or move.rule}"
        pause = Pause("person", flight.step, due, asks)
    else:
        pause = Pause(move.why, flight.step, due, f"{flight.id}: {move.rule}")
    seconds = min(instance.engine.settings.slice_ms, ms if ms is not None else 2**31) / 1000
    if flight.journaled:
        await instance.rest(flight.step, pause, seconds, flight.scope)
    else:
        await instance.engine.seams.clock.sleep(seconds)


async def _schedule(flight: Flight, move: m.Wait) -> None:
    """Draw the pause and record it, so that a restart keeps the schedule."""
    instance = flight.instance
    ms = int(instance.engine.seams.rng.uniform(move.low_ms, move.high_ms))
    stamp = instance.stamp()
    record = r.WaitScheduled(step=flight.step, ms=ms, until=stamp["at"] + ms, why=move.why, rule=move.rule, **stamp)
    records = (record,) if flight.recorded or not flight.journaled else (_planned(flight, move.why), record)
    await flight.note(*records, ride=True)


async def _await_holder(flight: Flight) -> None:
    """Another operation holds the business key: wait for it, and in the end for a person."""
    instance = flight.instance
    if not flight.recorded:
        await flight.note(_planned(flight, f"the claim of {flight.elsewhere.source if flight.elsewhere else '?'}"))
    poll = instance.engine.settings.poll_ms
    due = instance.engine.seams.clock.wall_ms() + poll
    await instance.rest(
        flight.step, Pause("claim", flight.step, due, f"{flight.id} waits for a claim"), poll / 1000, flight.scope
    )
    await look_elsewhere(flight)


async def late(flight: Flight, number: int, call: asyncio.Future[Any]) -> None:
    """A call ended after its attempt had been given up: what it says is evidence."""
    tool, instance = flight.tool, flight.instance
    if tool is None or call.cancelled():
        return
    error = call.exception()
    end = end_of_error(flight.contract(), error) if error else end_of_value(tool.codec, call.result())
    report = r.LateReport(step=flight.step, number=number, end=end, **instance.stamp())
    try:
        await instance.append(report)
    except (HoldfastError, AssertionError):
        await instance.engine.file_late(instance.run, report)
        return
    operation = flight.operation
    contradicts = (end.kind == "returned") != (operation.phase == "succeeded")
    if operation.final and contradicts and end.kind in {"returned", "rejected"}:
        evidence = f"attempt {number} reported late: {end.kind} {end.why}".strip()
        await instance.append(r.Contradicted(step=flight.step, evidence=evidence, **instance.stamp()))
    instance.wake(flight.step)
