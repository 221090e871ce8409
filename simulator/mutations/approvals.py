"""Planted bugs in approvals, edits, answers that people give instead of a call, and standing permissions."""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import replace

from beforehand.errors import UsageError
from beforehand.model import records as r
from beforehand.model.decision.evidence import Case
from simulator.mutations.mutation import Mutant, always


def unbound(_original: Any) -> Any:
    """An approval names nothing: it is one and the same for whatever is asked."""

    def digest(*_parts: object) -> str:
        return "approved"

    return digest


def whatever_was_asked(original: Any) -> Any:
    """What was approved is not compared with what would be sent now."""

    def is_approved(case: Any) -> bool:
        situation = replace(case.situation, asks=case.operation.approval.approved_digest)
        return bool(original(Case(case.operation, situation, case.now)))

    return is_approved


def for_ever(original: Any) -> Any:
    """When an approval ends is not looked at."""

    def is_approved(case: Any) -> bool:
        return bool(original(_endless(case)))

    return is_approved


def once_begun_for_ever(original: Any) -> Any:
    """An approval that was asked for again after an attempt never ends."""

    def is_approved(case: Any) -> bool:
        return bool(original(_endless(case) if case.operation.attempts else case))

    return is_approved


def _endless(case: Any) -> Case:
    endless = replace(case.operation.approval, approved_until=0)
    return Case(replace(case.operation, approval=endless), case.situation, case.now)


def one_name_is_two(steps: Any) -> Any:
    """A person who approves is counted twice."""
    approved = steps[r.ApprovalGranted]

    def twice(operation: Any, record: Any, boot: str) -> Any:
        return approved(approved(operation, record, boot), record, boot)

    return {**steps, r.ApprovalGranted: twice}


def needed_none(_original: Any) -> Any:
    """It is forgotten that a person had to allow it."""
    return property(lambda _self: False)


def no_means_yes(original: Any) -> Any:
    """A person's no is taken down as a yes."""

    def verdict(operation: Any, record: Any, codes: Any) -> Any:
        if isinstance(record, r.ApprovalRefused):
            return r.ApprovalGranted(step=record.step, approval=record.approval, by=record.by)
        return original(operation, record, codes)

    return verdict


def no_is_lost(original: Any) -> Any:
    """A no does not get through to the run."""

    def verdict(operation: Any, record: Any, codes: Any) -> Any:
        if isinstance(record, r.ApprovalRefused):
            raise UsageError("not now")
        return original(operation, record, codes)

    return verdict


def not_in_the_record(original: Any) -> Any:
    """The record of an attempt does not carry the approval that it uses."""

    def started(*args: Any, **named: Any) -> Any:
        return replace(original(*args, **named), approval="")

    return started


# --- edits, answers and standing permissions --------------------------------------------------------------------------


def as_it_was_called(original: Any) -> Any:
    """A person's changes are taken down, and what code called with is sent."""

    def edited_intent(operation: Any, changes: Any, tool: Any, secret: bytes) -> Any:
        original(operation, changes, tool, secret)
        return operation.intent

    return edited_intent


def edits_need_no_yes(original: Any) -> Any:
    """What a person changed is sent on the word of that person."""

    def is_approved(case: Any) -> bool:
        return bool(case.operation.edits or original(case))

    return is_approved


def answered_and_sent(steps: Any) -> Any:
    """A person's answer in the place of the tool is taken for a yes."""

    def stood_in(operation: Any, record: Any, _boot: str) -> Any:
        approval = replace(
            operation.approval, approved_digest=record.approval, approvers=(record.by,), person_asked=False
        )
        return replace(operation, phase="ready", approval=approval)

    return {**steps, r.ResultGiven: stood_in}


def any_call_fits(original: Any) -> Any:
    """What a permission is for is not looked at."""

    def fitting(flight: Any, standing: Any) -> Any:
        return original(flight, replace(standing, where="true"))

    return fitting


def not_counted(original: Any) -> Any:
    """Uses are written down where they are not looked for."""

    def use_post(permission: str, spent: Any, use: Any) -> Any:
        post = original(permission, spent, use)
        return replace(post, stream=f"{post.stream}/elsewhere", key="")

    return use_post


def counted_side_by_side(original: Any) -> Any:
    """A use takes no number, so that two may see the same sum."""

    def use_post(permission: str, spent: Any, use: Any) -> Any:
        return replace(original(permission, spent, use), key="")

    return use_post


def boundless(original: Any) -> Any:
    """How much is spent is not looked at."""

    def why_not(permission: Any, spent: Any, cost: float, now_ms: int) -> Any:
        return original(replace(permission, total=0, times=0), spent, cost, now_ms)

    return why_not


def endless(original: Any) -> Any:
    """When a permission ends is not looked at."""

    def why_not(permission: Any, spent: Any, cost: float, now_ms: int) -> Any:
        return original(replace(permission, until_ms=now_ms + 1), spent, cost, now_ms)

    return why_not


def irrevocable(original: Any) -> Any:
    """A revocation is ignored."""

    def why_not(permission: Any, spent: Any, cost: float, now_ms: int) -> Any:
        return original(permission, replace(spent, revoked_by=""), cost, now_ms)

    return why_not


# --- the list ---------------------------------------------------------------------------------------------------------


APPROVALS: Final = (
    # What they approve.
    Mutant(
        "gate not asked",
        "gates are not evaluated",
        "beforehand.engine.situation:_gate_wanted",
        always(False),
    ),
    Mutant(
        "approval unbound", "a yes to one call approves every call", "beforehand.model.ids:approval_digest", unbound
    ),
    Mutant(
        "approval not compared",
        "what was approved is not compared with what would be sent",
        "beforehand.model.decision.send_rules:_approved",
        whatever_was_asked,
    ),
    Mutant(
        "approval for ever",
        "the end of an approval is ignored",
        "beforehand.model.decision.send_rules:_approved",
        for_ever,
    ),
    Mutant(
        "approval for ever once begun",
        "a yes that was asked for again after an attempt never ends",
        "beforehand.model.decision.send_rules:_approved",
        once_begun_for_ever,
    ),
    Mutant(
        "one approver counts twice",
        "a person who says yes counts twice",
        "beforehand.model.transitions:_APPLY",
        one_name_is_two,
    ),
    Mutant("a no means yes", "a decline lets it be sent", "beforehand.engine.approvals:verdict_of", no_means_yes),
    Mutant("a no is lost", "a decline is recorded and lost", "beforehand.engine.approvals:verdict_of", no_is_lost),
    Mutant(
        "approval not consumed",
        "the record of an attempt does not carry the yes",
        "beforehand.engine.executor:_started",
        not_in_the_record,
    ),
    Mutant(
        "one yes for any number of sends",
        "what a person orders to send again is sent under the yes that it had",
        "beforehand.model.operation:OperationState.needed_yes",
        needed_none,
        test="tests/unit/engine/test_sent_again.py",
    ),
    Mutant(
        "too late is in time",
        "a yes after the time counts",
        "beforehand.model.operation:Approval.expired",
        always(False),
    ),
    # What they would rather send, and what they answer themselves.
    Mutant(
        "an edit is not sent",
        "changes are recorded, and the call is sent without them",
        "beforehand.engine.approvals:edited_intent",
        as_it_was_called,
    ),
    Mutant(
        "edited and unasked",
        "what was changed is sent without a yes to it",
        "beforehand.model.decision.send_rules:_approved",
        edits_need_no_yes,
    ),
    Mutant(
        "an editor approves",
        "who edited the arguments approves them",
        "beforehand.model.run_history:RunHistory.proposers",
        always(()),
    ),
    Mutant(
        "answered and sent",
        "a person's answer is taken for a yes",
        "beforehand.model.transitions:_APPLY",
        answered_and_sent,
    ),
    # What they allow in advance.
    Mutant(
        "any call fits",
        "the scope of a permission is ignored",
        "beforehand.engine.approvals:_fitting",
        any_call_fits,
        test="tests/unit/engine/test_standing.py",
    ),
    Mutant(
        "uses not counted",
        "a permission is used as often as one likes",
        "beforehand.engine.approvals:use_post",
        not_counted,
    ),
    Mutant(
        "counted side by side",
        "two uses of a permission see the same sum",
        "beforehand.engine.approvals:use_post",
        counted_side_by_side,
    ),
    Mutant(
        "bounds ignored",
        "more is spent than a permission allows",
        "beforehand.engine.approvals:why_not",
        boundless,
    ),
    Mutant(
        "permission for ever",
        "the end of a permission is ignored",
        "beforehand.engine.approvals:why_not",
        endless,
    ),
    Mutant(
        "revocation ignored",
        "a revoked permission still approves calls",
        "beforehand.engine.approvals:why_not",
        irrevocable,
    ),
)
