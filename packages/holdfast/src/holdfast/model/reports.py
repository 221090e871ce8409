"""Outcomes in words: as an error for agent code, as text for a model."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.errors import (
    Declined,
    Interrupted,
    OperationCancelled,
    OperationFailed,
    OutcomePending,
    OutcomeUnknown,
    ParameterMismatch,
    PreconditionsChanged,
    Rejected,
    ResultLost,
)
from holdfast.model.outcome import ASKED_BACK, INTERRUPTED, MISMATCH, PENDING, REFUSALS, STOPPED, Basis, Outcome

LOST = "result lost"


def error_of(outcome: Outcome[Any]) -> Exception:
    """The error that a plain `await` raises for an outcome without a result."""
    name = f"{outcome.tool} ({outcome.operation})"
    if outcome.code == LOST:
        return ResultLost(
            f"{name} succeeded, but {outcome.reason}",
            known="the effect is done and counted",
            next_step="give the tool a return annotation that its result fits",
        )
    if outcome.status == "unknown":
        return OutcomeUnknown(
            f"{name}: {outcome.reason or 'nobody can tell whether it happened'}",
            outcome=outcome,
            known="intent and attempt are recorded, the outcome is not",
            next_step=f"holdfast resolve {outcome.operation} --happened | --did-not-happen",
        )
    if (told := told_by(outcome)) is not None:
        run, stop = outcome.operation.partition("/")[0], outcome.code == STOPPED
        return Interrupted(told.note, run=run, by=told.name, facts=outcome.facts, stop=stop)
    if outcome.code == PENDING:
        return OutcomePending(
            f"{name} was not sent: {outcome.reason}", outcome=outcome, known="nothing was sent for this call",
            next_step=f"holdfast why {outcome.reused}; to send it on purpose: {outcome.tool}.options(again=REASON)",
        )  # fmt: skip
    if outcome.status == "cancelled":
        return OperationCancelled(f"{name} was called off: {outcome.reason}", outcome=outcome)
    if outcome.code == MISMATCH:
        return ParameterMismatch(
            f"{outcome.operation}: {outcome.reason}", run=outcome.operation.partition("/")[0],
            known="nothing was sent for this call", next_step=f"holdfast why {outcome.operation}",
        )  # fmt: skip
    if outcome.code == "stale":
        return PreconditionsChanged(f"{name} was not sent: {outcome.reason}", outcome=outcome)
    if outcome.code in REFUSALS and outcome.basis is not None and outcome.basis.by in {"person", "rule"}:
        return Declined(outcome.reason, code=outcome.code, outcome=outcome)
    if outcome.basis is not None and outcome.basis.by == "returned":
        return Rejected(outcome.reason or "refused", code=outcome.code, outcome=outcome)
    return OperationFailed(
        f"{name} failed: {outcome.reason}", outcome=outcome, next_step=f"holdfast why {outcome.operation}"
    )


def text_of(outcome: Outcome[Any]) -> str:
    """One text for a model: what is true now, what is still to come, and whether something was done again."""
    lines = [_said(outcome)]
    if outcome.edited_by:
        lines.append(f"A person changed the call before it was sent. These were sent: {_shown(outcome.arguments)}.")
    if outcome.pending and outcome.code != PENDING:
        lines.append(f"Not finished yet: {', '.join(outcome.pending)}. Do not repeat them: what becomes of them comes.")
    lines.extend(f"{name} is now {_shown(value)}." for name, value in outcome.facts.items())
    return "\n".join(lines)


def told_by(outcome: Outcome[Any]) -> Basis | None:
    """Who said what, where a message came for the run and called this off."""
    told = outcome.code in {INTERRUPTED, STOPPED} and outcome.basis is not None and outcome.basis.by == "person"
    return outcome.basis if told else None


def _said(outcome: Outcome[Any]) -> str:
    if (told := told_by(outcome)) is not None:
        do = "Do not call tools that change anything any more" if outcome.code == STOPPED else "Decide again"
        return f"Not sent: {told.name or 'somebody'} says: {told.note}. {do}."
    reason = outcome.reason.removesuffix(".")  # a sentence of ours goes on behind it
    match outcome.status:
        case "succeeded":
            shown = _shown(outcome.value)
            if outcome.reused:
                return f"Already done, not done again ({outcome.reason}). Result: {shown}"
            return shown
        case "failed":
            if outcome.code == ASKED_BACK:
                return (
                    f"Not sent yet: a person asks: {outcome.reason}\nNothing was changed. Answer, and propose it anew."
                )
            code = f" [{outcome.code}]" if outcome.code else ""
            return f"Failed{code}: {reason}. Nothing was changed."
        case "cancelled":
            return f"Called off before anything was sent: {reason}."
        case "unknown":
            return f"It is not known whether this happened: {reason}. Do not repeat it; a person was asked."
        case _ if outcome.code == PENDING:
            run, other = outcome.operation.partition("/")[0], outcome.reused.partition("/")[0]
            where = "by itself" if run == other else f"to run {other}, and not here"
            return f"Not sent: {reason}. Do not repeat it: what becomes of it comes {where}."
        case _:
            said = f" ({outcome.reason})" if outcome.reason else ""
            return f"Accepted{said}, and not finished yet. Do not repeat it: the answer comes by itself."


def _shown(value: object) -> str:
    if isinstance(value, str):
        return value
    return msgspec.json.encode(value, enc_hook=str).decode()
