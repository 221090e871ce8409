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
