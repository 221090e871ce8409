"""What the planted bugs put in the place of the functions that ask people and count their words."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from holdfast.errors import UsageError
from holdfast.model import records as r
from holdfast.model.decision.evidence import Case


def unbound(_original: Any) -> Any:
    """An approval names nothing: it is one and the same for whatever is asked."""

    def digest(*_parts: object) -> str:
        return "approved"

    return digest


def whatever_was_asked(original: Any) -> Any:
    """What was approved is not compared with what would be sent now."""

    def is_approved(case: Any) -> bool:
        situation = replace(case.situation, asks=case.operation.approval)
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
    return Case(replace(case.operation, approved_until=0), case.situation, case.now)


def one_name_is_two(steps: Any) -> Any:
    """Whoever says yes is counted twice."""
    approved = steps[r.ApprovalGranted]

    def twice(operation: Any, record: Any, boot: str) -> Any:
        return approved(approved(operation, record, boot), record, boot)

    return {**steps, r.ApprovalGranted: twice}


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
