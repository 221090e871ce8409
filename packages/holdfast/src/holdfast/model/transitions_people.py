"""What people say about an operation, and what they are asked, as transitions."""

from __future__ import annotations

from msgspec.structs import replace

from holdfast.model import records as r
from holdfast.model.operation import OperationState
from holdfast.model.outcome import DECLINED, Basis


def ruled(operation: OperationState, record: r.Ruled, _boot: str) -> OperationState:
    """A policy judged it. What a person is being asked, or has said, is another matter."""
    return replace(operation, ruling=record.ruling, policy=record.policy, judged_by=record.facts)


def approved(operation: OperationState, record: r.ApprovalGranted, _boot: str) -> OperationState:
    """The approval stands once enough people gave it; it ends as soon as the first of their words does."""
    approvers = (*operation.approvers, record.by)
    ends = [one for one in (operation.approved_until, record.until) if one]
    so_far = replace(operation, approvers=approvers, approved_until=min(ends, default=0))
    if len(approvers) < operation.asks_people:
        return so_far
    return replace(so_far, phase="ready", approval=record.approval, asked=False, reason="", waits_for="")


def declined(operation: OperationState, record: r.ApprovalRefused, _boot: str) -> OperationState:
    """A no: nothing was sent, and nothing will be."""
    return replace(
        operation, phase="failed", basis=Basis("person", record.by, record.reason), rule="a person said no",
        reason=record.reason or f"{record.by} said no", code=record.code or DECLINED, settled_at=record.at, wait=None,
        waits_for="",
    )  # fmt: skip


def edited(operation: OperationState, record: r.ArgumentsEdited, _boot: str) -> OperationState:
    """Record other arguments as a proposal: nothing is sent before another person approves them.

    A policy judges them anew, too; where there is none any more, what it said of the first ones stands.
    """
    assert record.intent is not None, "what will be sent is put in where it is recorded"
    return replace(
        operation, phase="ready", called=operation.as_called, intent=record.intent,
        editors=(*operation.editors, record.by), asks="", approvers=(), approval="", approved_until=0, one_more="",
        asked=False, reason="", wait=None, waits_for="", policy="",
    )  # fmt: skip


def stood_in(operation: OperationState, record: r.ResultGiven, _boot: str) -> OperationState:
    """A person's answer in the place of the tool: it counts as a success of which nothing was sent."""
    return replace(
        operation, phase="succeeded", basis=Basis("person", record.by, record.note), stood_in=True,
        rule="a person answered as the tool would have", result=record.result, settled_at=record.at, reason="",
        wait=None, waits_for="",
    )  # fmt: skip


def parked(operation: OperationState, record: r.OperationParked, _boot: str) -> OperationState:
    """Nobody knows, or a person has to approve: a person is asked."""
    return replace(
        operation,
        phase="unknown" if record.forgotten or operation.may_have_landed else "gated",
        forgotten=record.forgotten or operation.forgotten,
        asks=record.asks,
        changed=operation.changed or operation.edits or operation.asks not in {"", record.asks},
        asks_people=record.people,
        asks_until=record.until,
        asked_at=record.at,
        asks_queue=record.queue,
        require=record.require,
        on_expiry=record.on_expiry,
        approvers=(),
        approved_until=0,
        approval="" if record.asks else operation.approval,
        asked=True,
        one_more="",
        reason=record.why,
        rule=record.rule,
        waits_for="a person",
        wait=None,
    )


def resolved(operation: OperationState, record: r.Resolved, _boot: str) -> OperationState:
    """A person says what happened, or orders one more attempt."""
    basis = Basis("person", record.by, record.evidence)
    if record.orders:
        return replace(
            operation, phase="ready", one_more=record.orders, basis=None, conflict="", reason="", code="", settled_at=0,
            wait=None, waits_for="",
        )  # fmt: skip
    happened = record.word == "happened"
    return replace(
        operation,
        phase="succeeded" if happened else "failed",
        basis=basis,
        rule="a person settled it",
        reason="" if happened else f"{record.by} says that it did not happen",
        result=record.result,
        settled_at=record.at,
        overtaken=operation.compensated_by if happened else operation.overtaken,
        wait=None,
        waits_for="",
    )


def contradicted(operation: OperationState, record: r.Contradicted, _boot: str) -> OperationState:
    """News against a final outcome: the outcome stays, and what amended it counts for nothing any more."""
    contradicted = (*operation.contradicted, record.evidence)
    return replace(operation, contradicted=contradicted, contradicted_at=record.at, overtaken=operation.compensated_by)
