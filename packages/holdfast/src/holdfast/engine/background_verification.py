"""Stopped runs: an effect that nobody knows about is read back on a slow schedule, and nothing is ever sent.

A run that was called off, or that stopped with an error, may leave an effect in the balance. Whoever works through
runs claims such a run now and then, reads the world back once, records what was read and when to look next, and
gives it back. The pauses grow with the time since the run stopped, and the looking ends after `watch_stopped_ms`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from holdfast.engine.active_run.run import ActiveRun
from holdfast.engine.approvals import park
from holdfast.engine.commands import take_commands
from holdfast.engine.executor import settle
from holdfast.engine.leases import release_post, unchanged_listing
from holdfast.engine.loading import load
from holdfast.engine.operation_driver import OperationDriver
from holdfast.engine.previous_owner import account_for_previous_owners
from holdfast.engine.suspension import stopped_change
from holdfast.engine.verification import verify
from holdfast.engine.waiting import schedule
from holdfast.errors import JournalError, LedgerTaken, RunBusy
from holdfast.journal.port import LeaseGranted, RunChange
from holdfast.journal.run_log import RunLog, genesis
from holdfast.model import records as r
from holdfast.model.decision import moves as m

if TYPE_CHECKING:
    from holdfast.engine.engine import Engine
    from holdfast.model.operation import OperationState

_MOVES = 6
"""More moves than one look can need: an end that is settled after its reading, and the pause before the next."""


class StoppedRunVerified(msgspec.Struct, frozen=True):
    """What one look at a stopped run brought: the operations that it settled, and when to look next."""

    run: str
    settled: tuple[str, ...] = ()
    due_ms: int | None = None


async def verify_stopped_run(engine: Engine, run: str) -> StoppedRunVerified:
    """Read back what a stopped run left in doubt, once. Raises `RunBusy` while another process holds the run."""
    claimed = await engine.leases.claim(run)
    if not isinstance(claimed, LeaseGranted):
        raise RunBusy(f"run {run} is not free", run=run)
    try:
        return await _verify_once(engine, claimed)
    except JournalError:
        engine.leases.give_back(claimed.row)
        raise
    finally:
        engine.leases.let_go(run)


def first_reading_due(instance: ActiveRun) -> int | None:
    """When a run that stops now wants to be looked at; None where reading back can settle nothing."""
    now = instance.engine.environment.clock.wall_ms()
    return min((_next_reading(one, now) for one in _readable(instance)), default=None)


async def _verify_once(engine: Engine, claimed: LeaseGranted) -> StoppedRunVerified:
    run, row = claimed.lease.run, claimed.row
    history = await load(engine, run)
    log = RunLog(engine.journal, claimed.lease, claimed.last, genesis(engine.identity.namespace, run))
    instance = ActiveRun(engine, history, log)
    if history.status != "stopped":
        await log.append((), unchanged_listing(row, engine.environment.clock.wall_ms()))
        return StoppedRunVerified(run)
    instance.evict("it has stopped")
    token, boot = claimed.lease.token, engine.journal.now().boot
    number = history.claims_without_progress + 1
    instance.ride(r.Claimed(worker=engine.worker.id, token=token, boot=boot, number=number, **instance.stamp()))
    await take_commands(instance)
    before = {operation.step for operation in history.open_operations()}
    if history.status == "stopped":
        for operation in history.open_operations():
            await _read_back(instance, operation)
    return await _give_back(instance, before)


async def _give_back(instance: ActiveRun, before: set[str]) -> StoppedRunVerified:
    """Let go of the run, with the time of the next look. What somebody brought meanwhile is taken first.

    Where that was their word to go on, whoever drives the run next does the rest.
    """
    run, history = instance.run, instance.history
    await take_commands(instance)
    due, stopped = _next_due(instance), history.stopped
    agent = "" if history.started is None else history.started.agent
    change = RunChange("running", release=True) if stopped is None else stopped_change(stopped, agent, due)
    try:
        await instance.append(change=change, posts=(release_post(run, instance.lease.token),))
    except LedgerTaken:  # somebody brought something meanwhile: whoever is next looks at it at once
        due = instance.now().wall
        await instance.append(change=msgspec.structs.replace(change, due_ms=due))
    instance.seal("it was looked at")
    still = {operation.step for operation in history.open_operations()}
    return StoppedRunVerified(run, tuple(sorted(before - still)), due)


async def _read_back(instance: ActiveRun, operation: OperationState) -> None:
    """Make the moves that are due now. What cannot be settled by reading is left as it is."""
    flight = _driver(instance, operation)
    if flight is None:
        return
    await account_for_previous_owners(flight)
    for _ in range(_MOVES):
        move = flight.next_move(flight.operation, instance.now())
        match move:
            case m.Verify():
                await verify(flight)
            case m.Settle():
                await settle(flight, move)
                if flight.operation.final:
                    return
            case m.Park():
                await park(flight, move)
            case m.Wait() if move.why == "verify" and not move.drawn:
                await schedule(flight, move)
                return
            case _:
                return


def _driver(instance: ActiveRun, operation: OperationState) -> OperationDriver | None:
    """The operation, where something of it may have landed and its tool, or time, can settle that."""
    tool = instance.engine.tools.get(operation.intent.tool)
    if tool is None or not operation.may_have_landed:
        return None
    if "verify" not in tool.handlers and not _returned(operation):
        return None
    return OperationDriver(instance, operation.step, tool, None)


def _returned(operation: OperationState) -> bool:
    """Whether an attempt returned: what is still open then waits for another attempt, and time settles it."""
    return any(attempt.standing(operation.verification.absent_through) == "returned" for attempt in operation.attempts)


def _readable(instance: ActiveRun) -> list[OperationDriver]:
    found = (_driver(instance, one) for one in instance.history.open_operations())
    return [flight for flight in found if flight is not None]


def _next_reading(flight: OperationDriver, otherwise: int) -> int:
    """When the pause before its next reading ends, or an earlier attempt of what returned can land no more."""
    wait, now = flight.operation.wait, flight.instance.now()
    if wait is not None and wait.why == "verify":
        return wait.until
    move = flight.next_move(flight.operation, now)
    return now.wall + move.high_ms if type(move) is m.Wait and move.why == "end" and move.high_ms else otherwise


def _next_due(instance: ActiveRun) -> int | None:
    """When to look next, on the wall clock; None where there is nothing to look at, or it was long enough."""
    stopped, settings, now = instance.history.stopped, instance.engine.settings, instance.now().wall
    if stopped is None or now - stopped.at >= settings.watch_stopped_ms:
        return None
    later = now + settings.slow_verify_ms  # where no reading is planned: a call may still run, say
    due = min((_next_reading(one, later) for one in _readable(instance)), default=None)
    return None if due is None else max(now + 1, due)
