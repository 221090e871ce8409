"""What the planted bugs put in the place of the functions that edits, answers and standing permissions go through."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from holdfast.model import records as r


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
        return replace(operation, phase="ready", approval=record.approval, approvers=(record.by,), asked=False)

    return {**steps, r.ResultGiven: stood_in}


def any_call_fits(original: Any) -> Any:
    """What a permission is for is not looked at."""

    def fitting(flight: Any, standing: Any) -> Any:
        return original(flight, replace(standing, where="true"))

    return fitting


def not_counted(original: Any) -> Any:
    """Uses are written down where nobody looks for them."""

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
    """That somebody took it back is not looked at."""

    def why_not(permission: Any, spent: Any, cost: float, now_ms: int) -> Any:
        return original(permission, replace(spent, revoked_by=""), cost, now_ms)

    return why_not
