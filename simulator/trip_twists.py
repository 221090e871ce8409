"""What the planted bugs put in the place of the functions that close transactions."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace


def settles_nothing_first(original: Any) -> Any:
    """What is on its way, or unknown, is taken for a success."""

    def back(boundary: Any, members: Any) -> Any:
        sure = [
            replace(member, operation=replace(member.operation, phase="succeeded"))
            if member.operation.attempts and member.operation.phase not in {"failed", "cancelled"}
            else member
            for member in members
        ]
        return original(boundary, [member for member in sure if member.operation.phase != "held"])

    return back


def any_order(original: Any) -> Any:
    """Nothing is known about what started after what."""

    def member(*args: Any) -> Any:
        return replace(original(*args), begun=0, ended=0)

    return member


def nothing_amendable(original: Any) -> Any:
    """No operation seems to have a compensation."""

    def member(*args: Any) -> Any:
        found = original(*args)
        return replace(found, contract=replace(found.contract, compensates=False))

    return member


def refusal_at_once(original: Any) -> Any:
    """One refused confirmation calls everything off, whatever the others do."""

    def confirm(boundary: Any, members: Any, **named: Any) -> Any:
        refused = [one for one in members if one.confirmation is not None and one.confirmation.phase == "failed"]
        return original(boundary, refused or members, **named)

    return confirm


def unknown_is_refused(original: Any) -> Any:
    """An unknown outcome is taken for a refusal on the way forward."""

    def forward(boundary: Any, members: Any) -> Any:
        sure = [
            replace(member, operation=replace(member.operation, phase="failed", reason="unknown"))
            if member.held and member.operation.phase == "unknown"
            else member
            for member in members
        ]
        return original(boundary, sure)

    return forward
