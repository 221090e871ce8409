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

    def back(boundary: Any, members: Any) -> Any:
        return original(boundary, [replace(member, begun=0, ended=0) for member in members])

    return back


def nothing_amendable(original: Any) -> Any:
    """No operation seems to have a compensation."""

    def now(*args: Any) -> Any:
        return [replace(one, contract=replace(one.contract, compensates=False)) for one in original(*args)]

    return now
