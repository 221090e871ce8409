"""Transactions for agent code: entering a boundary, leaving it, and beginning steps inside.

A boundary is called off on a recorded reason only. The delivery at its end is in the record: on replay the
body is only replayed, and where its records end, code receives the same as before.
"""

from __future__ import annotations

from holdfast.engine.active_run.run import ActiveRun
from holdfast.engine.active_run.scopes import Scope
from holdfast.engine.exceptions.call_end import describe
from holdfast.engine.messages import interruption_before_commit
from holdfast.engine.saga import Members, call_off, start_closing
from holdfast.engine.sealing import refuse, sealing
from holdfast.engine.suspension import Pause
from holdfast.errors import TransactionAborted
from holdfast.model import records as r
from holdfast.model.records.transaction import Pivot
from holdfast.model.run_history import exit_of
from holdfast.model.saga import Finish, close
from holdfast.model.transaction import TransactionState, around


@sealing
async def enter(scope: Scope, name: str, pivot: Pivot) -> Scope:
    """Enter a boundary: the part of this branch in which steps belong together."""
    active = scope.active
    if active.closed:
        await refuse(scope)
    section = scope.boundary(name)
    transaction = boundary_of(section)
    if transaction not in active.history.boundaries.by_name:
        await may_begin(scope, section.path)
        active.log.buffer(r.TransactionOpened(transaction=transaction, pivot=pivot, **active.log.stamp()))
    return section


def boundary_of(section: Scope) -> str:
    """The name of the boundary that this part of a branch is."""
    return section.path[:-1]


@sealing
async def leave(section: Scope, error: BaseException | None) -> None:
    """Leave a boundary: commit it, or call it off because of `error`. Raises `TransactionAborted`."""
    active, name = section.active, boundary_of(section)
    if active.closed:
        await refuse(section)
    history = active.history
    gone = history.boundaries.called_off(section.path)
    if gone is not None and gone.name != name and exit_of(name) not in history.boundaries.exits:
        raise await aborted(section, gone) from error
    state = history.boundaries.by_name[name]
    if error is None and history.messages is not None:
        error = await interruption_before_commit(section, name, sends=state.phase == "open" and _sends(section, name))
    if state.phase == "open":
        await _close(section, name, error)
    elif error is not None and not state.backward:
        active.replay.diverge(f"the transaction {name} was committed, and its body raised {describe(error)}")
    await _told(section, name)
    state = history.boundaries.exits[exit_of(name)]
    if state.backward:
        raise _error(active, state) from error


def _sends(section: Scope, name: str) -> bool:
    """True if the commit of this boundary sends anything: a held effect, or a confirmation."""
    active = section.active
    if any(one.name != name and not one.over for one in around(name, active.history.boundaries.by_name)):
        return False  # the outer one sends it
    state = active.history.boundaries.by_name[name]
    return not isinstance(close(state, Members(active, name).now()), Finish)


async def _close(section: Scope, name: str, error: BaseException | None) -> None:
    active = section.active
    if error is not None:
        call_off(active, name, error.reason if isinstance(error, TransactionAborted) else describe(error))
        start_closing(active, name)
        return
    if active.replay.catching_up:
        await active.replay.may_write(section)
    outer = [one for one in around(name, active.history.boundaries.by_name) if not one.over]
    if outer:  # everything inside belongs to the outer boundary too: that confirms, and sends held effects
        active.log.buffer(r.TransactionCommitted(transaction=name, **active.log.stamp()))
        return
    state = active.history.boundaries.by_name[name]
    if isinstance(close(state, Members(active, name).now()), Finish):
        await active.log.append(r.TransactionCommitted(transaction=name, **active.log.stamp()))
        return
    active.process.environment.crash.reached("before_closing")
    active.log.buffer(r.TransactionCommitting(transaction=name, **active.log.stamp()))  # sends wait for it
    start_closing(active, name)


async def _told(section: Scope, name: str) -> None:
    """Wait for the boundary's end, and take it in its turn."""
    active, key = section.active, exit_of(name)
    await _ended(section, name)
    if key in active.history.delivered.by_step:
        await active.replay.take_turn(section, key)
    active.replay.left.add(name)
    boundaries = active.history.boundaries.by_name
    if boundaries[name].over and all(one.over for one in around(name, boundaries)):
        active.history.forget_within(name, keep=active.replay.late)


async def _ended(scope: Scope, name: str) -> None:
    active, key = scope.active, exit_of(name)
    while key not in active.history.boundaries.exits:
        await active.waiters.wait(scope, active.waiters.watchers.setdefault(key, []), Pause("operation", key))


async def aborted(scope: Scope, transaction: TransactionState) -> TransactionAborted:
    """The error that code inside a called-off boundary receives, in its turn."""
    active, key = scope.active, exit_of(transaction.name)
    await _ended(scope, transaction.name)
    await active.replay.reach_turn(scope, key)
    return _error(active, active.history.boundaries.exits[key])


def _error(active: ActiveRun, state: TransactionState) -> TransactionAborted:
    return TransactionAborted(
        f"the transaction {active.run}/{state.name} was called off: {state.reason}",
        run=active.run,
        reason=state.reason,
        undone=state.undone,
        still_standing=state.still_standing,
        transaction=state.name,
    )


async def may_begin(scope: Scope, step: str) -> None:
    """Return if something new may begin at `step`; a boundary that is being closed is only replayed.

    Raises `TransactionAborted` in one that was called off, and `ReplayDiverged` in one that was committed.
    """
    active = scope.active
    for boundary in around(step, active.history.boundaries.by_name):
        if boundary.backward:
            raise await aborted(scope, boundary)
        if boundary.phase != "open":
            active.replay.diverge(f"{step} begins in the transaction {boundary.name}, which was committed")
