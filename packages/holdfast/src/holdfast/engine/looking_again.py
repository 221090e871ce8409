"""Stopped runs: an effect that nobody knows about is read back on a slow schedule, and nothing is ever sent.

A run that was called off, or that stopped with an error, may leave an effect in the balance. Whoever works through
runs claims such a run now and then, reads the world back once, records what was read and when to look next, and
gives it back. The pauses grow with the time since the run stopped, and the looking ends after `watch_stopped_ms`.
"""

from __future__ import annotations

import msgspec

from holdfast.engine.commands import take_commands
from holdfast.engine.door import leaving
from holdfast.engine.engine import Engine
from holdfast.engine.executor import settle
from holdfast.engine.flight import Flight
from holdfast.engine.halting import stopped_change
from holdfast.engine.instance import Instance
from holdfast.engine.leases import unchanged
from holdfast.engine.loading import load
from holdfast.engine.owners import account_for_owners
from holdfast.engine.parking import park
from holdfast.engine.readings import verify
from holdfast.engine.waiting import schedule
from holdfast.errors import JournalError, LedgerTaken, RunBusy
from holdfast.journal.log import RunLog, genesis
from holdfast.journal.port import Claimed, RunChange
from holdfast.model import records as r
from holdfast.model.decision import moves as m
from holdfast.model.operation import OperationState

_MOVES = 6
"""More moves than one look can need: an end that is settled after its reading, and the pause before the next."""


class Looked(msgspec.Struct, frozen=True):
    """What one look at a stopped run brought: the operations that it settled, and when to look next."""

    run: str
    settled: tuple[str, ...] = ()
    due_ms: int | None = None


async def look_again(engine: Engine, run: str) -> Looked:
    """Read back what a stopped run left in doubt, once. Raises `RunBusy` while another process holds the run."""
    claimed = await engine.leases.claim(run)
    if not isinstance(claimed, Claimed):
        raise RunBusy(f"run {run} is not free", run=run)
    try:
        return await _look(engine, claimed)
    except JournalError:
        engine.leases.give_back(claimed.row)
        raise
    finally:
        engine.leases.let_go(run)


def due_to_look(instance: Instance) -> int | None:
    """When a run that stops now wants to be looked at; None where reading back can settle nothing."""
    now = instance.engine.seams.clock.wall_ms()
    return min((_next_reading(one, now) for one in _readable(instance)), default=None)


async def _look(engine: Engine, claimed: Claimed) -> Looked:
    run, row = claimed.lease.run, claimed.row
    history = await load(engine, run)
    log = RunLog(engine.journal, claimed.lease, claimed.last, genesis(engine.identity.namespace, run))
    instance = Instance(engine, history, log)
    if history.status != "stopped":
        await log.append((), unchanged(row, engine.seams.clock.wall_ms()))
        return Looked(run)
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


async def _give_back(instance: Instance, before: set[str]) -> Looked:
    """Let go of the run, with the time of the next look. What somebody brought meanwhile is taken first.

    Where that was their word to go on, whoever drives the run next does the rest.
    """
    run, history = instance.run, instance.history
    await take_commands(instance)
    due, stopped = _next_look(instance), history.stopped
    agent = "" if history.started is None else history.started.agent
    change = RunChange("running", release=True) if stopped is None else stopped_change(stopped, agent, due)
    try:
        await instance.append(change=change, posts=(leaving(run, instance.lease.token),))
    except LedgerTaken:  # somebody brought something meanwhile: whoever is next looks at it at once
        due = instance.now().wall
        await instance.append(change=msgspec.structs.replace(change, due_ms=due))
    instance.seal("it was looked at")
    still = {operation.step for operation in history.open_operations()}
    return Looked(run, tuple(sorted(before - still)), due)


async def _read_back(instance: Instance, operation: OperationState) -> None:
    """Make the moves that are due now. What cannot be settled by reading is left as it is."""
    flight = _flight(instance, operation)
    if flight is None:
        return
    await account_for_owners(flight)
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


def _flight(instance: Instance, operation: OperationState) -> Flight | None:
    """The operation, where something of it may have landed and its tool, or time, can settle that."""
    tool = instance.engine.tools.get(operation.intent.tool)
    if tool is None or not operation.may_have_landed:
        return None
    if "verify" not in tool.handlers and not _returned(operation):
        return None
    return Flight(instance, operation.step, tool, None)


def _returned(operation: OperationState) -> bool:
    """Whether an attempt returned: what is still open then waits for another attempt, and time settles it."""
    return any(attempt.standing(operation.absent_through) == "returned" for attempt in operation.attempts)


def _readable(instance: Instance) -> list[Flight]:
    found = (_flight(instance, one) for one in instance.history.open_operations())
    return [flight for flight in found if flight is not None]


def _next_reading(flight: Flight, otherwise: int) -> int:
    """When the pause before its next reading ends, or an earlier attempt of what returned can land no more."""
    wait, now = flight.operation.wait, flight.instance.now()
    if wait is not None and wait.why == "verify":
        return wait.until
    move = flight.next_move(flight.operation, now)
    return now.wall + move.high_ms if type(move) is m.Wait and move.why == "end" and move.high_ms else otherwise


def _next_look(instance: Instance) -> int | None:
    """When to look next, on the wall clock; None where there is nothing to look at, or it was long enough."""
    stopped, settings, now = instance.history.stopped, instance.engine.settings, instance.now().wall
    if stopped is None or now - stopped.at >= settings.watch_stopped_ms:
        return None
    later = now + settings.slow_verify_ms  # where no reading is planned: a call may still run, say
    due = min((_next_reading(one, later) for one in _readable(instance)), default=None)
    return None if due is None else max(now + 1, due)
