"""Undoing: what of a run can be restored or only compensated, what remains, and who may undo it."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from beforehand.errors import RunError, UnknownRun, UsageError
from beforehand.inspect.render_records import stored
from beforehand.model.contract import Contract
from beforehand.model.ids import operation_id
from beforehand.model.operation import OperationState
from beforehand.model.run_history import RunHistory, compensated, members_of, standing_inside
from beforehand.model.shell import lines, to_type
from beforehand.model.transaction import WHOLE_RUN, TransactionState
from beforehand.model.waits import sent_again_by, statements_on, stored_contract

if TYPE_CHECKING:
    from beforehand.inspect.reader import JournalReader

Can = Literal["restore", "amend", "stands", "unknown"]
AfterUndo = Literal["undone", "stands", "asked", "waits"]
ENDED: Final = ("completed", "stopped")


class Undoable(msgspec.Struct, frozen=True):
    """One effect of a run, and how undoing the run affects it.

    `restore`: `by` restores the world. `amend`: `by` compensates and restores nothing. `stands`: nothing undoes it.
    `unknown`: it is not known whether it happened, so that has to be found out first.
    """

    operation: str
    tool: str
    arguments: str
    can: Can
    by: str = ""


class Preview(msgspec.Struct, frozen=True):
    """The effects of undoing a run and the runs below it, each in the order of execution.

    `cancels` names the runs below it that are under way: they are cancelled first.
    """

    run: str
    status: str
    effects: list[Undoable]
    cancels: list[str] = []


def preview(history: RunHistory, transaction: str = WHOLE_RUN) -> Preview:
    """The effect of undoing on every effect of this run, or of one transaction in it. Nothing is sent."""
    effects = [
        _undoable(history, operation, stored_contract(history, operation))
        for operation in reversed(members_of(history, transaction))
        if compensated(history, operation.step) != "undone" and _may_be_there(operation)
    ]
    if transaction == WHOLE_RUN:
        effects += [_undoable(history, operation, Contract(operation.intent.tool)) for operation in _left(history)]
    return Preview(history.run, history.lifecycle.status, effects)


def _may_be_there(operation: OperationState) -> bool:
    """True if there is an effect, or one may be there: what was accepted may land at any moment."""
    return operation.landed or operation.phase == "unknown" or (not operation.final and operation.may_have_landed)


def _left(history: RunHistory) -> list[OperationState]:
    """The effects that stand since a transaction of the run was aborted: nothing undoes them any more."""
    members = {operation.step for operation in members_of(history, WHOLE_RUN)}
    left = [history.operations[step] for step in standing_inside(history) if step in history.operations]
    return [operation for operation in left if operation.step not in members]


async def tree_of(reader: JournalReader, run: str) -> list[RunHistory]:
    """The run and the stored runs below it, each after the run that started it. Raises `UnknownRun`."""
    tree = [await reader.history(run)]
    for history in tree:  # it grows
        for child in () if history.children is None else history.children.by_name:
            with suppress(UnknownRun):  # its parent ended before it was stored
                tree.append(await reader.history(child))
    return tree


def tree_preview(tree: list[RunHistory]) -> Preview:
    """The effect of undoing a run on the effects of all runs of its tree."""
    top, *below = tree
    effects = [effect for history in tree for effect in preview(history).effects]
    under_way = [one.run for one in below if one.lifecycle.status not in {*ENDED, "undone"}]
    return Preview(top.run, top.lifecycle.status, effects, under_way)


def _undoable(history: RunHistory, operation: OperationState, contract: Contract) -> Undoable:
    can: Can = "stands"
    doubt = compensated(history, operation.step)
    harmless = operation.phase == "unknown" and contract.absent_safe
    if doubt == "asked" or not (operation.final or harmless):
        can = "unknown"
    elif contract.compensates and not doubt:
        can = "restore" if contract.restores else "amend"
    name, tool = operation_id(history.run, operation.step), operation.intent.tool
    return Undoable(name, tool, stored(operation.intent.arguments, 120), can, contract.amends)


class EffectAfterUndo(msgspec.Struct, frozen=True):
    """One effect of a run that was undone, or is being undone.

    `undone`: the operation `by` compensated it. `stands`: nothing compensates it, or a person said that nothing did.
    `asked`: a person is asked about it, or about its compensation. `waits`: its compensation is still to come.
    """

    operation: str
    tool: str
    state: AfterUndo
    by: str = ""


class Undone(msgspec.Struct, frozen=True):
    """The result of undoing a run: the steps that were undone, and those that were not.

    `effects` says the same of each effect of the run and of the runs `below` it, and which of them a person is asked
    about. If the undo is not finished, `waits` says what it waits for, and a second call continues it.
    """

    run: str
    phase: str
    undone: tuple[str, ...]
    still_standing: tuple[str, ...]
    waits: str = ""
    effects: tuple[EffectAfterUndo, ...] = ()
    below: tuple[str, ...] = ()


def effects_after(history: RunHistory) -> list[EffectAfterUndo]:
    """The effects of a run after its undo was ordered, the last one first."""
    inside = [
        _after(history, operation, state)
        for operation in reversed(members_of(history, WHOLE_RUN))
        if (state := _after_undo(history, operation))
    ]
    return [*inside, *(_after(history, one, compensated(history, one.step) or "stands") for one in _left(history))]


def _after(history: RunHistory, operation: OperationState, state: AfterUndo) -> EffectAfterUndo:
    done = operation_id(history.run, operation.links.compensated_by) if state == "undone" else ""
    return EffectAfterUndo(operation_id(history.run, operation.step), operation.intent.tool, state, done)


def _after_undo(history: RunHistory, operation: OperationState) -> AfterUndo | None:
    """The state of an operation after the undo was ordered; None where there was no effect, and can be none."""
    by, whole = history.operations.get(operation.links.compensated_by), history.boundaries.by_name.get(WHOLE_RUN)
    if amended := compensated(history, operation.step):
        return amended
    if history.undo_state not in {"ordered", "begun"}:
        return "stands" if _may_be_there(operation) else None
    if (by or operation).phase in {"unknown", "gated"} or (whole is not None and operation.step in whole.stuck):
        return "asked"
    if operation.final and not operation.landed:
        return None
    return "waits" if stored_contract(history, operation).compensates or not operation.final else "stands"


def checked_finished(history: RunHistory) -> bool:
    """True if undoing this run is still to be ordered. Raises `UsageError` for a run that is under way."""
    run = history.run
    if history.undo_state:
        return False
    if history.lifecycle.status not in ENDED:
        raise UsageError(
            f"run {run} is {history.lifecycle.status}: only a run that has ended can be undone",
            next_step=f"cancel what is under way, and abort its open transactions: {to_type('cancel', run)}",
        )
    return True


def checked_undoable(tree: list[RunHistory]) -> None:
    """Refuse to undo a tree of runs of which nothing can be undone: they keep their status. Raises `RunError`."""
    whole = tree_preview(tree)
    run, found = whole.run, whole.effects
    if not whole.cancels and all(one.can == "stands" for one in found):
        standing = ", ".join(one.operation for one in found)
        raise RunError(
            f"nothing of run {run} can be undone",
            run=run,
            known=f"stays: {standing}" if found else "it has no effects",
            next_step=to_type("show", run),
        )


def checked_parked(history: RunHistory, transaction: str) -> TransactionState:
    """The parked transaction of that name. Raises `UsageError` saying which there are."""
    found = _named(history, transaction)
    if found.phase != "parked":
        raise UsageError(
            f"{history.run}/{transaction} is {found.phase}: only a parked transaction waits for a person",
            next_step=to_type("show", history.run),
        )
    return found


def checked_retry(history: RunHistory, parked: TransactionState) -> None:
    """Refuse to retry where all that is stuck is unknown, and nothing may send it again. Raises `UsageError`."""
    stuck = [history.operations[step] for step in parked.stuck if step in history.operations]
    waits = [one for one in stuck if one.phase == "unknown" and not one.links.compensated_by]
    if parked.backward and len(waits) == len(parked.stuck) and not sent_again_by(history, parked.stuck):
        raise UsageError(
            f"nothing of {history.run}/{parked.name} can be retried: a person has to say what happened",
            known=f"not known to have happened, and not sent again: {', '.join(one.step for one in waits)}",
            next_step=lines(*(line for one in waits for line in statements_on(history, one))),
        )


def checked_open(history: RunHistory, transaction: str) -> None:
    """Refuse to call off a transaction that has committed, or is called off. Raises `UsageError`."""
    found = _named(history, transaction)
    if found.phase not in {"open", "committing", "parked"} or found.backward:
        raise UsageError(
            f"{history.run}/{transaction} is {found.phase}",
            next_step=f"once the run has ended: {to_type('undo', history.run)}",
        )


def _named(history: RunHistory, transaction: str) -> TransactionState:
    found = history.boundaries.by_name.get(transaction)
    if found is None:
        known = ", ".join(history.boundaries.by_name) or "none"
        lacks = f"has no transaction {transaction}" if transaction else "is not being undone"
        raise UsageError(f"run {history.run} {lacks}", known=f"its transactions: {known}")
    return found
