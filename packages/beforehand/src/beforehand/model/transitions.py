"""The one table of legal transitions, and `apply`: the operation after one more record.

`TRANSITIONS` is the state machine: for each kind of record, the phases it may meet and the phases it may
lead to. `apply` refuses everything else with `IllegalTransition`, so an impossible history can
neither be written nor read. The state diagram in the documentation is drawn from this table.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from beforehand.model import records as r
from beforehand.model.errors import BeforehandError
from beforehand.model.operation import (
    OTHERWISE,
    Approval,
    Attempt,
    Charged,
    Deferral,
    Editing,
    Links,
    OperationState,
    PolicyJudgement,
    ScheduledWait,
    Settlement,
)
from beforehand.model.outcome import DECLINED, WITHHELD, Basis, Phase, Status

NEW: Final = "new"
WAITING: Final[tuple[Phase, ...]] = ("planned", "ready", "gated", "held", "verifying", "awaiting")
OPEN: Final[tuple[Phase, ...]] = (*WAITING, "running")
ENDED: Final[tuple[Phase, ...]] = ("succeeded", "failed", "cancelled")
BEGUN: Final[tuple[Phase, ...]] = ("ready", "gated", "held", "verifying", "awaiting", "running")  # with an attempt
SAME: Final = "same"
KEPT: Final[frozenset[Phase]] = frozenset({"running", "gated", "held", "unknown"})  # a reading does not move these
PROVES: Final[dict[r.EndKind, int]] = {"not_sent": 1, "rejected": 2, "returned": 3}  # anything else proves nothing


_NOT_ASKED: Final = Approval()


class IllegalTransition(BeforehandError):
    """A record does not fit the state it meets: a programming error, or a journal that was edited."""

    def __init__(self, phase: str, record: r.OperationRecord) -> None:
        super().__init__(f"{r.kind_of(record)} does not apply to an operation that is {phase}: {record.step}")
        self.phase = phase
        self.record = record


TRANSITIONS: Final[dict[type[r.OperationRecord], tuple[tuple[str, ...], tuple[str, ...]]]] = {
    r.OperationPlanned: ((NEW,), ("planned",)),
    r.Ruled: (("planned", "ready", "gated", "verifying"), (SAME,)),
    r.AttemptStarted: ((NEW, "planned", "ready", "verifying"), ("running",)),
    r.AttemptEnded: ((*BEGUN, "unknown"), (SAME, "ready", "verifying")),
    r.LateReport: ((*BEGUN, "unknown", *ENDED), (SAME, "ready", "verifying")),
    r.Verified: ((*OPEN, "unknown"), (SAME, "verifying")),
    r.Reobserved: (WAITING, (SAME, "gated")),
    r.WaitScheduled: ((*WAITING, "unknown"), (SAME, "ready")),
    r.ApprovalGranted: (("gated",), (SAME, "ready", "succeeded")),
    r.ApprovalRefused: (("gated",), ("failed", "unknown")),
    r.ArgumentsEdited: (("gated",), ("ready",)),
    r.ResultGiven: (("gated",), ("succeeded",)),
    r.OperationHeld: (("planned", "ready", "verifying"), ("held",)),
    r.HoldReleased: (("held",), ("ready",)),
    r.OperationDeferred: (("running",), ("awaiting",)),
    r.OperationParked: (OPEN, ("gated", "unknown")),
    r.OperationSettled: ((*OPEN, "unknown"), ("succeeded", "failed", "cancelled", "unknown")),
    r.Resolved: (("unknown", "gated"), ("succeeded", "failed", "ready")),
    r.Contradicted: ((*ENDED, "unknown"), (SAME,)),  # unknown, and compensated without asking
    r.OutcomeReused: ((NEW, "planned", "ready", "gated", "held", "verifying"), ("cancelled",)),
    r.CompensationLinked: (("succeeded", "failed", "unknown"), (SAME,)),
}


def apply(operation: OperationState | None, record: r.OperationRecord, boot: str = "") -> OperationState:
    """The operation after `record`, which was written on `boot`. Pure: no clock, no I/O, no mutation.

    Raises `IllegalTransition` where the table does not allow it.
    """
    before = operation.phase if operation is not None else NEW
    come_from, lead_to = TRANSITIONS[type(record)]
    if before not in come_from:
        raise IllegalTransition(before, record)
    after = _APPLY[type(record)](operation, record, boot)
    assert after.phase in lead_to or (after.phase == before and SAME in lead_to), (record, after)
    return after


def is_only_start(record: r.AttemptStarted) -> bool:
    """True if it begins an operation that code called, without an approval: `ended_at_once` knows how that goes on."""
    intent = record.intent
    if intent is None or record.number != 1 or record.approval or record.standing or record.shared:
        return False
    return not (intent.compensates or intent.confirms or intent.completes)


def ended_at_once(started: r.AttemptStarted, record: r.OperationSettled, boot: str) -> OperationState | None:
    """The operation after the only two records that it has: as `apply` of both makes it, without the state between.

    None where they are not a first attempt (`is_only_start`) and its success or failure: these go through the table.
    """
    intent, end = started.intent, record.end
    if end is None or intent is None or record.number != 1 or record.status not in {"succeeded", "failed"}:
        return None
    attempt = Attempt(
        1, started.token, boot, started.up, started.at, started.send_by, intent.contract, end, boot, record.up
    )
    settlement = Settlement(
        record.basis,
        record.code,
        record.result,
        record.lost,
        record.unverified,
        record.missing,
        record.at,
        pending_effect=record.met,
    )
    return OperationState(
        started.step, intent, record.status, intent.contract, (attempt,), record.rule, record.reason, settlement,
        observed=intent.observed,
    )  # fmt: skip


class _Over(Struct, frozen=True, gc=False):
    """When a call was over; a deferred one is over when its answer is due, which is known by the wall clock too.

    `up` is None where the call may still run, and was `given_up` at that moment.
    """

    boot: str = ""
    up: int | None = None
    at: int = 0
    given_up: int = 0


def _planned(_: None, record: r.OperationPlanned, boot: str) -> OperationState:
    intent = record.intent
    return OperationState(
        record.step, intent, "planned", intent.contract, observed=intent.observed, waits_for=record.waits_for,
        planned_boot=boot, planned_up=record.up,
    )  # fmt: skip


def _started(operation: OperationState | None, record: r.AttemptStarted, boot: str) -> OperationState:
    intent = operation.intent if operation is not None and operation.attempts else record.intent
    if intent is None and operation is not None:
        intent = operation.intent
    number = len(operation.attempts) + 1 if operation is not None else 1
    if intent is None or record.number != number or (operation is not None and _has_open(operation.attempts)):
        raise IllegalTransition(operation.phase if operation else NEW, record)
    contract = record.intent.contract if record.intent is not None else intent.contract
    attempt = Attempt(record.number, record.token, boot, record.up, record.at, record.send_by, contract)
    if operation is None:
        return OperationState(
            record.step,
            intent,
            "running",
            contract,
            (attempt,),
            observed=intent.observed,
            approval=_approval_of(record) if record.approval or record.standing else _NOT_ASKED,
            shared=record.shared,
        )
    return replace(
        operation,
        intent=intent,
        phase="running",
        contract=contract,
        attempts=(*operation.attempts, attempt),
        observed=operation.observed if record.observed == r.NOTHING else record.observed,
        approval=operation.approval.used(record.approval, record.standing),
        verification=operation.verification.after_attempt(),
        pauses=operation.pauses_until(boot, record.up, record.at),
        wait=None,
        waits_for="",
        shared=record.shared or operation.shared,
    )


def _approval_of(record: r.AttemptStarted) -> Approval:
    return Approval(approved_digest=record.approval, permission=record.standing)


def _ended(operation: OperationState, record: r.AttemptEnded, boot: str) -> OperationState:
    over = _Over(boot, record.up) if record.over else _Over(boot, given_up=record.up)
    if record.end.code == WITHHELD:
        operation = replace(operation, approval=operation.approval.unused())
    return _after_end(operation, record, boot, _with_end(operation, record, record.end, over))


def _late(operation: OperationState, record: r.LateReport, boot: str) -> OperationState:
    if _disputes(operation, record):
        return _linked_to(operation, disputes=(*operation.links.disputes, record))
    attempts = _with_end(operation, record, record.end, _Over(boot, record.up), late=True)
    return _after_end(operation, record, boot, attempts)


def _disputes(operation: OperationState, report: r.LateReport) -> bool:
    """True if the deferred answer on record says the opposite: the first one counts.

    Without an outcome the later one is kept as evidence against it. After an outcome it is evidence at once.
    """
    if operation.final or not operation.deferral.key or not 1 <= report.number <= len(operation.attempts):
        return False
    known, answers = operation.attempts[report.number - 1].end, {"returned", "rejected"}
    return known is not None and not known.unfit and {known.kind, report.end.kind} == answers


def _after_end(
    operation: OperationState, record: r.AttemptEnded | r.LateReport, boot: str, attempts: tuple[Attempt, ...]
) -> OperationState:
    """The phase after an end was filed: an open call that ended, or the deferred answer that came."""
    last = attempts[-1].standing(operation.verification.absent_through)
    if operation.phase == "running" and not _has_open(attempts):
        return replace(operation, attempts=attempts, phase="verifying" if last == "ambiguous" else "ready")
    if operation.phase == "awaiting" and last != "ambiguous":
        pauses = operation.pauses_until(boot, record.up, record.at)
        return replace(operation, attempts=attempts, phase="ready", wait=None, pauses=pauses, waits_for="")
    return replace(operation, attempts=attempts)


def _verified(operation: OperationState, record: r.Verified, boot: str) -> OperationState:
    absent = record.verdict == "did_not_happen"
    if record.through > len(operation.attempts) or (record.through and not (absent and record.believable)):
        raise IllegalTransition(operation.phase, record)
    before = operation.verification
    first = before.checked_since == 0
    nothing = absent and record.believable and not operation.unproven
    happened = record.verdict == "happened"
    seen = replace(
        before,
        checks=before.checks + 1,
        checked_since=before.checked_since + 1,
        checked_boot=boot if first else before.checked_boot,
        checked_up=record.up if first else before.checked_up,
        believable_checks=before.believable_checks + record.believable,
        absent_through=max(before.absent_through, record.through),
        conflict=(record.evidence or "conflict") if record.verdict == "conflict" else "",
        absent_last=absent,
        found=record.result if happened else before.found,
        verified_absent_first=before.verified_absent_first or (absent and not operation.attempts),
        believed_absent_first=before.believed_absent_first or nothing,
        forgotten=before.forgotten and not nothing,
    )
    pauses = operation.pauses_until(boot, record.up, record.at)
    after = replace(operation, verification=seen, pauses=pauses, wait=None)
    if happened:
        after = _settled_with(after, lost=record.lost, missing=record.missing)
    kept = operation.phase in KEPT or (operation.phase == "awaiting" and _unanswered(after))
    return after if kept else replace(after, phase="verifying")


def _reobserved(operation: OperationState, record: r.Reobserved, _boot: str) -> OperationState:
    """A change voids an approval given for the earlier state, while nothing can have landed.

    No new question is asked yet: an answer to the earlier question is void, a no included.
    """
    if operation.approval.approved_digest and record.reading == "changed" and not operation.may_have_landed:
        reason = "its preconditions changed after it was approved"
        approval = replace(operation.approval, approved_digest="", asked_digest=OTHERWISE)
        return replace(
            operation, phase="gated", observed=record.observed, approval=approval, reason=reason, waits_for="a person"
        )
    if record.reading == "same" and operation.observed == r.NOTHING:
        return replace(operation, observed=record.observed)
    return operation


def _scheduled(operation: OperationState, record: r.WaitScheduled, boot: str) -> OperationState:
    phase = "ready" if operation.phase == "planned" else operation.phase
    charged: Charged = "in_progress" if operation.in_progress else "attempts"
    if record.shut or not operation.attempts:
        charged = ""  # nothing could be attempted meanwhile, or no attempt was made yet
    wait = ScheduledWait(boot, record.up, record.ms, record.until, record.why, record.rule, charged)
    pauses = operation.pauses_until(boot, record.up, record.at)
    return replace(operation, phase=phase, wait=wait, pauses=pauses, waits_for=record.why)


def _held(operation: OperationState, record: r.OperationHeld, _boot: str) -> OperationState:
    intent = record.intent or operation.intent
    observed = intent.observed if intent.observed != r.NOTHING else operation.observed
    waits_for = f"the commit of {record.transaction}"
    approval = operation.approval
    if record.approval or record.standing:
        digest, permission = record.approval or approval.approved_digest, record.standing or approval.permission
        approval = replace(approval, approved_digest=digest, permission=permission)
    return replace(
        operation, intent=intent, observed=observed, phase="held", waits_for=waits_for, approval=approval,
        shared=record.shared,
    )  # fmt: skip


def _released(operation: OperationState, _record: r.HoldReleased, _boot: str) -> OperationState:
    return replace(operation, phase="ready", released=True, waits_for="")


def _deferred(operation: OperationState, record: r.OperationDeferred, boot: str) -> OperationState:
    why = f"accepted, answer later: {record.evidence}"
    end = r.End("ambiguous", why=why, key_read=record.key_read, cost=record.cost, facts=record.facts)
    ms = max(0, record.until - record.at)
    wait = ScheduledWait(boot, record.up, ms, record.until, "answer", "the answer comes later", "attempts")
    attempts = _with_end(operation, record, end, _Over(boot, record.up + ms, record.until))
    return replace(
        operation, attempts=attempts, phase="awaiting", wait=wait, waits_for="its answer",
        deferral=Deferral(record.key, record.every_ms, record.thing),
    )  # fmt: skip


def _settled(operation: OperationState, record: r.OperationSettled, boot: str) -> OperationState:
    attempts = operation.attempts
    if record.end is not None:
        attempts = _with_end(operation, record, record.end, _Over(boot, record.up))
    if not _may_settle(operation, attempts, record.status):
        raise IllegalTransition(operation.phase, record)
    before, approval = operation.settlement, operation.approval
    settlement = Settlement(
        record.basis,
        record.code,
        record.result,
        record.lost,
        record.unverified,
        record.missing or before.missing,
        record.at,
        before.stood_in,
        before.pending_effect if record.met is None else record.met,
    )
    unknown = record.status == "unknown"
    if unknown:
        approval = replace(
            approval, extra_attempt="", person_asked=True, asked_at=record.at, answer_by=record.until, on_expiry="hold"
        )
    elif approval.extra_attempt:
        approval = replace(approval, extra_attempt="")
    after = replace(
        operation,
        attempts=attempts,
        phase=record.status,
        rule=record.rule,
        reason=record.reason,
        settlement=settlement,
        approval=approval,
        wait=None,
        waits_for="a person" if unknown else "",
    )
    links = operation.links
    if record.status == "succeeded" and record.met is None and links.overtaken != links.compensated_by:
        return _linked_to(after, overtaken=links.compensated_by)
    return after


def _may_settle(operation: OperationState, attempts: tuple[Attempt, ...], status: Status) -> bool:
    """An operation never sent is cancelled, one that may have landed is unknown; from unknown neither is reached."""
    if status in {"succeeded", "failed"}:
        return True
    if operation.phase == "unknown":
        return False
    if status == "cancelled":
        return not operation.verification.forgotten and all(attempt.unsent for attempt in attempts)
    return replace(operation, attempts=attempts).may_have_landed


def _reused(operation: OperationState | None, record: r.OutcomeReused, _boot: str) -> OperationState:
    basis = Basis("rule", "reused", record.source)
    if operation is not None:  # a waiter that was planned: it never sent anything, and never will
        if operation.attempts:
            raise IllegalTransition(operation.phase, record)
        before = operation.settlement
        return replace(
            operation, phase="cancelled", reason=record.why, wait=None, waits_for="",
            links=replace(operation.links, reused=record.source),
            settlement=replace(before, basis=basis, result=record.result, at=record.at),
        )  # fmt: skip
    if record.intent is None:
        raise IllegalTransition(NEW, record)
    return OperationState(
        record.step, record.intent, "cancelled", record.intent.contract, reason=record.why,
        settlement=Settlement(basis, result=record.result, at=record.at), links=Links(reused=record.source),
    )  # fmt: skip


def _linked(operation: OperationState, record: r.CompensationLinked, _boot: str) -> OperationState:
    return _linked_to(operation, compensated_by=record.by)


def _has_open(attempts: tuple[Attempt, ...]) -> bool:
    """True if a call has no end on record: only the last one can be open, for no other begins before it ends."""
    return bool(attempts) and attempts[-1].end is None


def _unanswered(operation: OperationState) -> bool:
    """True if the attempt whose answer comes later is still ambiguous."""
    return operation.attempts[-1].standing(operation.verification.absent_through) == "ambiguous"


def _with_end(
    operation: OperationState,
    record: r.AttemptEnded | r.LateReport | r.OperationDeferred | r.OperationSettled,
    end: r.End,
    over: _Over,
    *,
    late: bool = False,
) -> tuple[Attempt, ...]:
    """The attempts with `end` under its own. A second end must be a late report, or say when a known end was over.

    What is proven stays proven: only an end that proves more takes the place of an earlier one.
    """
    number, attempts = record.number, operation.attempts
    if not 1 <= number <= len(attempts):
        raise IllegalTransition(operation.phase, record)
    attempt = attempts[number - 1]
    known = attempt.end
    if attempt.over_up is not None and not late:
        raise IllegalTransition(operation.phase, record)
    if known is not None or late:
        facts = () if known is None else known.facts  # what code may receive stays as it was
        if known is not None and _proof(known) > _proof(end):
            end = known
        if end.facts != facts:
            end = replace(end, facts=facts)
    ended = replace(
        attempt, end=end, over_boot=over.boot, over_up=over.up, over_at=over.at, given_up=over.given_up, late=late
    )
    return (ended,) if len(attempts) == 1 else (*attempts[: number - 1], ended, *attempts[number:])


def _proof(end: r.End) -> int:
    return 0 if end.unfit else PROVES.get(end.kind, 0)


# --- questions to people about an operation, and their answers ------------------------------------------------------


def _ruled(operation: OperationState, record: r.Ruled, _boot: str) -> OperationState:
    """The policy judged it. A question that people were asked, and their answers, stay as they are."""
    return replace(operation, judgement=PolicyJudgement(record.ruling, record.facts, record.policy))


def _approved(operation: OperationState, record: r.ApprovalGranted, _boot: str) -> OperationState:
    """The approval counts once enough people gave it; it ends as soon as the first of their answers does."""
    before = operation.approval
    approvers = (*before.approvers, record.by)
    ends = [one for one in (before.approved_until, record.until) if one]
    approval = replace(before, approvers=approvers, approved_until=min(ends, default=0))
    if len(approvers) < approval.people_needed:
        return replace(operation, approval=approval)
    approval = replace(approval, approved_digest=record.approval, person_asked=operation.may_have_landed)
    if operation.intent.asks_only:
        basis = Basis("person", ", ".join(approvers), record.note)
        until = r.Raw(str(approval.approved_until).encode())
        settlement = replace(operation.settlement, basis=basis, result=until, at=record.at, stood_in=True)
        return replace(
            operation, phase="succeeded", approval=approval, rule="a person said yes", reason="", waits_for="",
            settlement=settlement,
        )  # fmt: skip
    return replace(operation, phase="ready", approval=approval, reason="", waits_for="")


def _declined(operation: OperationState, record: r.ApprovalRefused, _boot: str) -> OperationState:
    """A no: nothing was sent, and nothing will be. A no to sending it again leaves open what happened before."""
    if operation.may_have_landed:
        approval = replace(
            operation.approval, extra_attempt="", asked_digest="", person_asked=True, answer_by=0, on_expiry="hold"
        )
        why = f"{record.by} said no to sending it again" + (f": {record.reason}" if record.reason else "")
        return replace(operation, phase="unknown", reason=why, wait=None, waits_for="a person", approval=approval)
    basis, code = Basis("person", record.by, record.reason), record.code or DECLINED
    return replace(
        operation, phase="failed", rule="a person said no", reason=record.reason or f"{record.by} said no", wait=None,
        waits_for="", settlement=replace(operation.settlement, basis=basis, code=code, at=record.at),
    )  # fmt: skip


def _edited(operation: OperationState, record: r.ArgumentsEdited, _boot: str) -> OperationState:
    """Record other arguments as a proposal: nothing is sent before another person approves them.

    A policy judges them anew, too; where there is none any more, its ruling on the first ones counts.
    """
    assert record.intent is not None, "what will be sent is put in where it is recorded"
    approval = replace(
        operation.approval, asked_digest="", approvers=(), approved_digest="", approved_until=0, extra_attempt="",
        person_asked=False,
    )  # fmt: skip
    return replace(
        operation, phase="ready", intent=record.intent, reason="", wait=None, waits_for="", approval=approval,
        editing=Editing(operation.as_called, (*operation.editing.editors, record.by)),
        judgement=replace(operation.judgement, policy=""),
    )  # fmt: skip


def _stood_in(operation: OperationState, record: r.ResultGiven, _boot: str) -> OperationState:
    """A person's answer in place of the tool: it counts as a success without a send."""
    basis = Basis("person", record.by, record.note)
    return replace(
        operation, phase="succeeded", rule="a person answered as the tool would have", reason="", wait=None,
        waits_for="",
        settlement=replace(operation.settlement, basis=basis, result=record.result, at=record.at, stood_in=True),
    )  # fmt: skip


def _parked(operation: OperationState, record: r.OperationParked, _boot: str) -> OperationState:
    """Ask a person: no rule can tell what happened, or the operation has to be approved."""
    before = operation.approval
    approval = Approval(
        person_asked=True, asked_at=record.at, asked_digest=record.asks, people_needed=record.people,
        answer_by=record.until, queue=record.queue, on_expiry=record.on_expiry,
        require=record.require if record.asks else before.require,  # who says what happened needs it, too
        extra_attempt=before.extra_attempt if record.asks else "",
        question_changed=before.question_changed or operation.edits or before.asked_digest not in {"", record.asks},
        approved_digest="" if record.asks else before.approved_digest, permission=before.permission,
        orders=before.orders,
    )  # fmt: skip
    doubtful = record.forgotten or (operation.may_have_landed and not approval.extra_attempt)
    verification = operation.verification
    if record.forgotten and not verification.forgotten:
        verification = replace(verification, forgotten=True)
    return replace(
        operation, phase="unknown" if doubtful else "gated", approval=approval,
        verification=verification, rule=record.rule, reason=record.why, waits_for="a person", wait=None,
    )  # fmt: skip


def _resolved(operation: OperationState, record: r.Resolved, _boot: str) -> OperationState:
    """A person says what happened, or requests one more attempt."""
    before, links = operation.settlement, operation.links
    if record.orders:
        approval, reason = replace(operation.approval, extra_attempt=record.orders, question_changed=True), ""
        if operation.needed_yes:  # the yes was for what has been sent: a further send takes another one
            said = "that it did not happen" if record.orders == "retry" else "to send it under the same key"
            reason = f"{record.by} says {said} ({record.evidence})"
            approval = replace(
                approval, approved_digest="", approved_until=0, permission="", approvers=(), asked_digest="",
                orders=approval.orders + 1,
            )  # fmt: skip
        return replace(
            operation, phase="ready", reason=reason, wait=None, waits_for="", approval=approval,
            verification=replace(operation.verification, conflict=""),
            settlement=replace(before, basis=None, code="", at=0),
        )  # fmt: skip
    happened = record.word == "happened"
    basis = Basis("person", record.by, record.evidence)
    return replace(
        operation, phase="succeeded" if happened else "failed", rule="a person settled it",
        reason="" if happened else f"{record.by} says that it did not happen", wait=None, waits_for="",
        settlement=replace(before, basis=basis, result=record.result, at=record.at),
        links=replace(links, overtaken=links.compensated_by) if happened else links,
    )  # fmt: skip


def _contradicted(operation: OperationState, record: r.Contradicted, _boot: str) -> OperationState:
    """Evidence against a final outcome: the outcome stays, and a compensation begun before no longer counts."""
    links = operation.links
    return _linked_to(
        operation, contradicted=(*links.contradicted, record.evidence), contradicted_at=record.at,
        doubt="asked", overtaken=links.compensated_by,
    )  # fmt: skip


def _linked_to(operation: OperationState, **changes: Any) -> OperationState:
    return replace(operation, links=replace(operation.links, **changes))


def _settled_with(operation: OperationState, **changes: Any) -> OperationState:
    return replace(operation, settlement=replace(operation.settlement, **changes))


_APPLY: Final[dict[type[r.OperationRecord], Callable[..., OperationState]]] = {
    r.OperationPlanned: _planned,
    r.Ruled: _ruled,
    r.AttemptStarted: _started,
    r.AttemptEnded: _ended,
    r.LateReport: _late,
    r.Verified: _verified,
    r.Reobserved: _reobserved,
    r.WaitScheduled: _scheduled,
    r.ApprovalGranted: _approved,
    r.ApprovalRefused: _declined,
    r.ArgumentsEdited: _edited,
    r.ResultGiven: _stood_in,
    r.OperationHeld: _held,
    r.HoldReleased: _released,
    r.OperationDeferred: _deferred,
    r.OperationParked: _parked,
    r.OperationSettled: _settled,
    r.Resolved: _resolved,
    r.Contradicted: _contradicted,
    r.OutcomeReused: _reused,
    r.CompensationLinked: _linked,
}
