"""Transactions: entering and leaving a boundary in agent code, and closing it from the records.

A boundary is called off on a recorded reason only. The delivery at its end is in the record: on replay the
body is only replayed, and where its records end, code receives the same as before.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Generator
from functools import partial
from typing import Final, Self

import msgspec

from beforehand.engine.active_run.log import load
from beforehand.engine.active_run.run import ActiveRun
from beforehand.engine.active_run.scopes import Scope
from beforehand.engine.exceptions.call_end import describe
from beforehand.engine.executor import start_driver
from beforehand.engine.messages import interruption_before_commit
from beforehand.engine.operation_driver import OperationDriver, driver_of
from beforehand.engine.sealing import replay_timeout, sealing, take_answer
from beforehand.engine.suspension import Pause
from beforehand.engine.tool_protocol import ToolCode
from beforehand.engine.verification import observe
from beforehand.errors import TransactionAborted
from beforehand.model import records as r
from beforehand.model.decision.situation import Reading
from beforehand.model.operation import OperationState
from beforehand.model.records.transaction import Pivot
from beforehand.model.run_history import RunHistory, Span, closing_boundaries, exit_of, members_of, reopened
from beforehand.model.saga import (
    CONFIRM,
    UNDO,
    AwaitOperations,
    Backlog,
    Closing,
    ConfirmReservations,
    Finish,
    Member,
    ParkTransaction,
    Release,
    Reread,
    StartCompensations,
    TurnBack,
    close,
    serving,
    standing,
)
from beforehand.model.transaction import TransactionState, around, encloses
from beforehand.model.waits import transaction_digest


@sealing
async def enter(scope: Scope, name: str, pivot: Pivot) -> Scope:
    """Enter a boundary: the part of this branch in which steps belong together."""
    active, section = scope.active, scope.boundary(name)
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
    history = active.history
    gone = history.boundaries.called_off(section.path)
    over = exit_of(name) in history.boundaries.exits or exit_of(name) in history.delivered.left
    if gone is not None and gone.name != name and not over:
        raise await aborted(section, gone) from error
    if error is None:
        await _inner_ended(section, name)
    state = history.boundaries.by_name[name]
    if error is None and history.messages is not None:
        error = await interruption_before_commit(section, name, sends=state.phase == "open" and _sends(section, name))
    if state.phase == "open":
        with _leaving(active, name):
            await _close(section, name, error)
    elif error is not None and not state.backward:
        active.replay.diverge(f"the transaction {name} was committed, and its body raised {describe(error)}")
    await _await_end(section, name)
    state = history.boundaries.exits[exit_of(name)]
    if state.backward:
        raise _error(active, state) from error


async def _inner_ended(section: Scope, name: str) -> None:
    """Wait for inner boundaries that were left before they ended: what they undo is neither confirmed nor sent."""
    with _leaving(section.active, name):
        for inner in list(section.active.history.boundaries.by_name.values()):
            if inner.backward and not inner.over and encloses(name, inner.name):
                await _ended(section, inner.name)


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
        await active.replay.catch_up(section, exit_of(name))
        if active.history.boundaries.by_name[name].phase != "open":
            return  # a person called it off meanwhile
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


@contextlib.contextmanager
def _leaving(active: ActiveRun, name: str) -> Generator[None]:
    """Around a wait for a boundary. A caller that is cancelled in it leaves, and an open boundary is called off.

    That is on record: the end of the boundary then has no place among the deliveries, where later ones would wait for
    it, and a replay cancels the caller there again.
    """
    try:
        yield
    except asyncio.CancelledError as cancelled:
        if not active.closed:
            if active.history.boundaries.by_name[name].phase == "open":
                call_off(active, name, describe(cancelled))
                start_closing(active, name)
            active.caller_left(exit_of(name))
            active.replay.forgo(exit_of(name))
        raise


async def _await_end(section: Scope, name: str) -> None:
    """Wait for the boundary's end, and take it in its turn. A caller that left is cancelled again."""
    active, key = section.active, exit_of(name)
    if key not in active.history.delivered.left:
        with _leaving(active, name):
            await _ended(section, name)
    if key in active.history.delivered.by_step:
        await take_answer(section, key)
    active.replay.left[name] = None
    boundaries = active.history.boundaries.by_name
    if boundaries[name].over and all(one.over for one in around(name, boundaries)):
        active.history.forget_within(name, keep=active.replay.kept)


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


async def may_begin(scope: Scope, step: str, *, writes: bool = False) -> None:
    """Return once a step may begin, or be answered, that has no answer on record: what is on record comes before it.

    Otherwise a branch that was cancelled would go further on replay than it did before, with answers that the world
    gives now. A step in the body of a time limit that is over waits to be cancelled. Raises `TransactionAborted` in a
    boundary that was called off, and `ReplayDiverged` in one that was committed: that is only replayed.
    """
    active = scope.active
    if (limit := scope.expired_limit()) is not None:
        await replay_timeout(scope, step, limit)
    for boundary in around(step, active.history.boundaries.by_name):
        if boundary.backward:
            raise await aborted(scope, boundary)
        if boundary.phase != "open" and not active.replay.receiving:  # until then it may be cancelled again
            active.replay.diverge(f"{step} begins in the transaction {boundary.name}, which was committed")
    replay = active.replay
    if replay.receiving or (writes and replay.catching_up):
        await (replay.catch_up(scope, step) if writes else replay.receive_all(scope, step))
        await may_begin(scope, step, writes=writes)  # a limit may be over by now, or a boundary called off


# --- closing a transaction -----------------------------------------------------------------------------------------
# This performs what `model.saga.close` decides, from the records alone. Once a boundary is being committed or called
# off, the agent's code is no longer needed: live and after a crash the same task finishes it. It settles, compensates,
# confirms and releases; each of these is an operation of its own, driven like any other.


_AGAIN: Final = "//"  # not a valid step name


def start_closing(active: ActiveRun, transaction: str) -> None:
    """Finish this boundary in a task of its own, unless one does already."""
    key = exit_of(transaction)
    if key in active.drivers.tasks:
        return

    async def work() -> None:
        try:
            await _finish(active, transaction)
        finally:
            active.drivers.closing.pop(key, None)

    active.drivers.closing[key] = None
    active.drivers.start(key, work)


def resume_closing(active: ActiveRun) -> None:
    """Resume, after a crash, every boundary that began to close, or that has to be closed again."""
    for boundary in closing_boundaries(active.history):
        start_closing(active, boundary.name)
    if active.history.boundaries.raised:
        resume_reopened(active)


def resume_reopened(active: ActiveRun) -> None:
    """Close called-off transactions again in which a final outcome was contradicted."""
    if _AGAIN in active.drivers.tasks or not reopened(active.history):
        return

    active.drivers.start(_AGAIN, partial(_reopen, active))


async def _reopen(active: ActiveRun) -> None:
    whole = await load(active.process, active.run, whole=True)
    for boundary in reopened(active.history):
        if active.sealed is not None:
            return  # the run may have ended meanwhile: nothing is recorded after its end
        name, history, stamp = boundary.name, active.history, active.log.stamp()
        history.recall(whole, partial(encloses, name))
        late = tuple(step for step in sorted(history.boundaries.raised) if encloses(name, step))
        why = f"after it was called off, news came about {', '.join(late)}"
        parked = r.TransactionParked(
            transaction=name, why=why, stuck=late, undone=boundary.undone, still_standing=boundary.still_standing,
            until=active.process.settings.answer_by(stamp["at"]), **stamp,
        )  # fmt: skip
        _note(active, parked)
        start_closing(active, name)


def call_off(active: ActiveRun, transaction: str, reason: str, by: str = "") -> None:
    """Record that this boundary is called off: from here on it is finished from its records.

    It rides, as the plans of the compensations do: the first compensating attempt waits for all of them, in order.
    """
    members = members_of(active.history, transaction)
    aborting = r.TransactionAborting(
        transaction=transaction,
        reason=reason,
        by=by,
        participants=tuple(operation.step for operation in members),
        **active.log.stamp(),
    )
    _note(active, aborting)
    active.waiters.wake()


def _note(active: ActiveRun, *records: r.Record) -> None:
    """Record with the next durable commit."""
    active.process.environment.crash.reached("before_closing")
    active.log.buffer(*records)


async def _record(active: ActiveRun, *records: r.Record) -> None:
    """Record durably."""
    crash = active.process.environment.crash
    crash.reached("before_closing")
    await active.log.append(*records)
    crash.reached("after_closing")


async def _finish(active: ActiveRun, transaction: str) -> None:
    """Decide, perform, record; until the boundary is over or this instance stops driving."""
    with Members(active, transaction) as members:
        while not active.draining and active.sealed is None:
            boundary = active.history.boundaries.by_name[transaction]
            if boundary.over:
                return
            await _perform(active, boundary, close(boundary, members.now()), members)


async def _perform(active: ActiveRun, boundary: TransactionState, move: Closing, members: Members) -> None:
    match move:
        case AwaitOperations():
            _drive_held(active, boundary, members.now())
            await _rest(active, boundary, Pause("operation", exit_of(boundary.name)))
        case StartCompensations(steps):
            _start_companions(active, boundary, steps, UNDO)
        case ConfirmReservations(steps):
            _start_companions(active, boundary, steps, CONFIRM)
        case Reread(steps):
            for step in steps:
                members.reading[step] = await _reread(active, step)
        case Release(step):
            _note(active, r.HoldReleased(step=step, **active.log.stamp()))
            active.waiters.wake(step)  # detached, it has a driver: a second one could send it again
        case TurnBack(reason):
            call_off(active, boundary.name, reason)
        case ParkTransaction():
            await _park(active, boundary, move, members)
        case Finish():
            await _end(active, boundary, move)


def _drive_held(active: ActiveRun, boundary: TransactionState, members: list[Member]) -> None:
    """Drive held operations, which have no driver: cancel them on the way back, and finish those already sent."""
    for member in members:
        operation = member.operation
        idle = member.step not in active.drivers.tasks and not operation.final
        if idle and member.held and (boundary.backward or operation.released):
            start_driver(driver_of(active, member.step))


async def _rest(active: ActiveRun, boundary: TransactionState, pause: Pause) -> None:
    slice_ms = active.process.settings.slice_ms
    await active.waiters.rest(exit_of(boundary.name), pause, slice_ms / 1000, None)


def _start_companions(active: ActiveRun, boundary: TransactionState, steps: tuple[str, ...], kind: str) -> None:
    """Plan the operations that make amends for these steps (or confirm them), and drive them."""
    history = active.history
    records: list[r.Record] = []
    begun: list[str] = []
    for step in steps:
        forward = history.operations[step]
        code = companion_tool(driver_of(active, step), kind)
        assert code is not None, step
        name = serving(step, kind, boundary.tries if kind == UNDO else 1)
        intent = msgspec.structs.replace(
            forward.intent, tool=code.name, contract=code.digest, origin="code", claim="", generation=0, outside=0,
            words="", observed=r.NOTHING, expected=r.NOTHING, hold="",
            title=code.spec.title_of(bytes(forward.intent.arguments)),
            compensates=step if kind == UNDO else "", confirms=step if kind == CONFIRM else "", late=False,
            price=code.contract.budget.call,
        )  # fmt: skip
        records.extend(active.log.contract_record(code))
        records.append(r.OperationPlanned(step=name, intent=intent, waits_for="its turn", **active.log.stamp()))
        if kind == UNDO:
            records.append(r.CompensationLinked(step=step, by=name, **active.log.stamp()))
        begun.append(name)
    _note(active, *records)
    for name in begun:
        start_driver(driver_of(active, name))


async def _reread(active: ActiveRun, step: str) -> Reading:
    """Read again the preconditions of a held effect, before anything irreversible is sent."""
    driver = driver_of(active, step)
    await observe(driver)
    return driver.found.reading


async def _park(active: ActiveRun, boundary: TransactionState, move: ParkTransaction, members: Members) -> None:
    """Show a person the exact partial outcome, once, and wait for a word or for evidence."""
    if (boundary.why, boundary.stuck) != (move.why, move.stuck):
        (undone, still), stamp = standing(members.every()), active.log.stamp()
        parked = r.TransactionParked(
            transaction=boundary.name, why=move.why, stuck=move.stuck, undone=undone, still_standing=still,
            until=active.process.settings.answer_by(stamp["at"]), **stamp,
        )  # fmt: skip
        await _record(active, parked)
        return
    what = "partly committed" if not boundary.backward else "partly undone"
    asks = f"{active.run}/{boundary.name} is {what}: {move.why}"
    pause = Pause(
        "person", exit_of(boundary.name), None, asks, at=boundary.parked_at, until=boundary.asks_until, then="hold",
        shown=transaction_digest(boundary) if boundary.question_changed else "",
    )  # fmt: skip
    await _rest(active, boundary, pause)


async def _end(active: ActiveRun, boundary: TransactionState, move: Finish) -> None:
    name, stamp = boundary.name, active.log.stamp()
    if boundary.backward:
        await _record(
            active,
            r.TransactionAbortedRecord(
                transaction=name, undone=move.undone, still_standing=move.still_standing, **stamp
            ),
        )
    else:
        await _record(active, r.TransactionCommitted(transaction=name, **stamp))


class Members:
    """The members of a boundary that is being closed; `reading` holds the repeated readings of preconditions.

    On the way back nothing joins it and nothing lapses: after every step only changed members are read.
    """

    def __init__(self, active: ActiveRun, transaction: str) -> None:
        self.reading: Final[dict[str, Reading]] = {}
        self._active = active
        self._transaction = transaction
        self._backlog: Backlog | None = None
        self._news: Final[set[str]] = set()

    def __enter__(self) -> Self:
        """Subscribe to the changes that are recorded from here on."""
        self._active.log.changes[self._transaction] = self._news
        return self

    def __exit__(self, *_: object) -> None:
        """Unsubscribe."""
        del self._active.log.changes[self._transaction]

    def every(self) -> list[Member]:
        """Every member in its present state, in order of start."""
        history = self._active.history
        return [self._member(operation) for operation in members_of(history, self._transaction)]

    def now(self) -> list[Member]:
        """The members for the next decision, in order of start; all of them on the way forward, and at the end."""
        boundary = self._active.history.boundaries.by_name[self._transaction]
        if not boundary.backward:
            return self.every()
        if self._backlog is None or not self._caught_up(self._backlog):
            self._backlog = Backlog(boundary, self.every())
        self._news.clear()
        return self._backlog.front() or self.every()

    def _caught_up(self, backlog: Backlog) -> bool:
        """Update the backlog with the changes since the last call; return True if all of them are about members.

        A person's decision about the boundary itself is not about a member: the backlog is made again.
        """
        operations = self._active.history.operations
        for step in self._news:
            about = operations.get(step)
            while about is not None and about.intent.serves:
                about = operations.get(about.intent.serves)
            if about is None or (about.step not in backlog and encloses(self._transaction, about.step)):
                return False
            if about.step in backlog:
                backlog.put(self._member(about))
        return True

    def _member(self, operation: OperationState) -> Member:
        active, step, operations = self._active, operation.step, self._active.history.operations
        compensation = operations.get(operation.links.compensated_by) if operation.links.compensated_by else None
        confirmation = operations.get(serving(step, CONFIRM))
        driver = driver_of(active, step)
        contract, span = driver.contract(), active.history.boundaries.spans.get(step, Span(0))
        return Member(
            operation,
            contract,
            begun=span.begun,
            ended=span.ended,
            compensation=compensation,
            confirmation=confirmation,
            compensable=companion_tool(driver, UNDO) is not None,
            confirmable=companion_tool(driver, CONFIRM) is not None,
            reading=self.reading.get(step, "unread"),
            lapsed=_lapsed(active, operation, contract.lapses_ms),
            parts=parts_of(active.history, step),
            stray=step in active.history.boundaries.raised,
        )


def companion_tool(driver: OperationDriver, kind: str) -> ToolCode | None:
    """The tool that compensates an operation, or confirms it: the recorded one, else its replacement."""
    tools, declared = driver.active.process.tools, driver.tool.contract if driver.tool is not None else None
    for contract in (driver.contract(), declared):
        name = "" if contract is None else contract.amends if kind == UNDO else contract.confirms
        if name in tools:
            return tools[name]
    return None


def parts_of(history: RunHistory, step: str) -> tuple[OperationState, ...]:
    """The parts of an effect whose end came, or comes, later than that of the whole."""
    if step not in history.partial:
        return ()
    return tuple(operation for operation in history.operations.values() if operation.intent.completes == step)


def parts_of_effect(history: RunHistory, step: str, reused: str) -> tuple[OperationState, ...]:
    """The parts of an effect, or of the effect of this run whose outcome it `reused`."""
    return parts_of(history, step) or parts_of(history, reused.removeprefix(f"{history.run}/"))


def _lapsed(active: ActiveRun, operation: OperationState, lapses_ms: int | None) -> bool:
    """True if a reservation's own time is over: it ends early by the error of the clocks."""
    if lapses_ms is None:
        return False
    settings = active.process.settings
    age = active.process.wall_ms() - operation.settlement.at
    return age < -settings.clock_error_ms or age >= lapses_ms - min(settings.clock_error_ms, lapses_ms // 10)
