"""Approvals: a person's yes or no to exactly one operation, bound to everything that the person was shown."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from beforehand.engine.approvals import AnswerContext, verdict_of
from beforehand.engine.commands import NO_EVIDENCE
from beforehand.engine.engine import Engine
from beforehand.errors import SignInNeeded, UsageError
from beforehand.model import records as r
from beforehand.model.commands import Command
from beforehand.model.names import is_among, shows_something
from beforehand.model.operation import OTHERWISE, OperationState
from beforehand.model.run_history import RunHistory
from beforehand.model.shell import to_type
from beforehand.policies import milliseconds

LASTS: Final = timedelta(days=1)
"""How long an approval holds where its giver says nothing else: nothing may have been sent by then."""


def asked_about(history: RunHistory, step: str) -> OperationState:
    """The operation that a person is, or was, asked to approve. Raises `UsageError` where there is none."""
    operation, name = history.operations.get(step), f"{history.run}/{step}"
    if operation is None:
        known = ", ".join(step for step, one in history.operations.items() if one.phase == "gated") or "none"
        raise UsageError(f"run {history.run} asks for no approval of {step}", known=f"it asks about: {known}")
    if not operation.approval.asked_digest:
        raise asks_nothing(name, operation)
    if operation.wants_approval and operation.approval.asked_digest == OTHERWISE:
        raise UsageError(
            f"what {name} relies on has changed since it was asked about", known="the new question is not recorded yet",
            next_step=to_type("resume", history.run),
        )  # fmt: skip
    return operation


def checked_proof(name: str, operation: OperationState, via: str, proven_ms: int, now_ms: int) -> None:
    """Refuse the approval of a person who is not signed in as the question requires. Raises `SignInNeeded`."""
    if lacks := operation.approval.lacks_proof(via, proven_ms, now_ms):
        raise SignInNeeded(
            f"{name} is not answered: {lacks}",
            known="nothing was recorded, and it still waits",
            next_step="sign in with your password on the page, and answer it there: beforehand serve",
        )


def checked_in_time(history: RunHistory, operation: OperationState, now_ms: int) -> None:
    """Refuse an approval after the deadline, also if the run has not noticed yet. Raises `UsageError`."""
    if operation.wants_approval and operation.approval.expired(now_ms):
        raise UsageError(
            f"the time to answer {history.run}/{operation.step} is over",
            known="nothing was sent; the run decides what happens next",
            next_step=to_type("resume", history.run),
        )


def asks_nothing(name: str, operation: OperationState) -> UsageError:
    """The error for an answer to a question that is decided, or was never asked."""
    state = f"was answered, and is {operation.phase}" if operation.approval.asked_digest else f"is {operation.phase}"
    known = decided_text(operation)
    return UsageError(f"{name} {state}: it waits for no approval", known=known, next_step=to_type("why", name))


def decided_text(operation: OperationState) -> str:
    """Who approved an operation that people were asked about, or else who or what decided it."""
    if operation.approval.approvers:
        return f"{', '.join(operation.approval.approvers)} approved it"
    basis = operation.settlement.basis
    return f"{basis.name} decided it" if basis is not None and basis.by == "person" else operation.reason


def checked_other(history: RunHistory, operation: OperationState, by: str) -> None:
    """Refuse the approval of a proposer, who started the run or edited the arguments. Raises `UsageError`."""
    if not is_among(by, history.proposers(operation)):
        return
    name = f"{history.run}/{operation.step}"
    if is_among(by, operation.editing.editors):
        raise UsageError(
            f"{by} edited {name}, and a person cannot approve an edit of their own",
            known=f"it was edited by {', '.join(operation.editing.editors)}; nothing was sent",
            next_step="another person has to approve it; if there is none, decline it and say what is wanted: "
            + to_type("answer", name, "no", "--why", "TEXT", "--by", by),
        )
    raise UsageError(
        f"{by} asked for run {history.run}, or told it something, or called it off, and so cannot approve what it does",
        next_step="another person has to answer it",
    )


def checked_statement(
    history: RunHistory, operation: OperationState, by: str, evidence: str, proof: tuple[str, int, int]
) -> None:
    """Refuse to hear what happened from a person whose yes would not have counted, or without evidence.

    `proof` is how the name is known, when a password was given, and the wall clock now. Raises `UsageError`.
    """
    operation = history.operations.get(operation.intent.completes, operation)  # a part was approved with the whole
    if operation.needed_yes:
        checked_other(history, operation, by)
        checked_proof(f"{history.run}/{operation.step}", operation, *proof)
        if not shows_something(evidence):
            raise UsageError(
                f"{history.run}/{operation.step}: {NO_EVIDENCE}", next_step="say what you looked at: --evidence TEXT"
            )


def held_until(engine: Engine, lasts: timedelta) -> int:
    """The wall clock at which an approval ends. Raises `UsageError` if it ended before it could be used.

    It ends early by the error of the clocks.
    """
    ms, clock_error_ms = milliseconds(lasts), engine.settings.clock_error_ms
    if ms <= clock_error_ms:
        raise UsageError(
            f"the approval lifetime {lasts} is shorter than the allowed clock error",
            known=f"clocks may differ by {clock_error_ms / 1000:g} s, and it ends that much earlier",
            next_step="give it some time, such as an hour",
        )
    return engine.wall_ms() + ms


def checked_verdict(operation: OperationState, command: Command, codes: AnswerContext) -> None:
    """Refuse a second yes of one person, and an edit or a result that is wrong. Raises `UsageError`.

    Where the tool's code is not here, edits and results are judged where it is.
    """
    answer = command.record
    if isinstance(answer, r.ApprovalGranted) and is_among(answer.by, operation.approval.approvers):
        more = "another person has to say yes, too" if operation.phase == "gated" else "it waits for no further yes"
        raise UsageError(f"{answer.by} approved it already", next_step=more)
    judged = operation.intent.tool in codes.tools or operation.intent.late
    if judged and isinstance(answer, (r.ArgumentsEdited, r.ResultGiven)):
        verdict_of(operation, answer, codes)
