"""What the planted bugs put in the place of the functions that judge operations by a policy."""

from __future__ import annotations

from itertools import count
from typing import Any

from msgspec.structs import replace

from holdfast.model.moves import Settle


def refused_in_vain(original: Any) -> Any:
    """What a policy refuses is sent all the same."""

    def ruled(case: Any) -> Any:
        move = original(case)
        return None if isinstance(move, Settle) else move

    return ruled


def one_is_enough(original: Any) -> Any:
    """How many people a policy wants to be asked is not looked at."""

    def terms(*args: Any, **named: Any) -> Any:
        return replace(original(*args, **named), people=1)

    return terms


def overruled(original: Any) -> Any:
    """What a policy lets leave is not asked about, whatever the tool itself says."""

    def gated(self: Any, contract: Any) -> bool:
        ruling = self.operation.ruling
        return bool(original(self, contract)) and (ruling is None or ruling.asks)

    return gated


def drawn_anew(_original: Any) -> Any:
    """Samples are drawn by luck: another time it is another one."""
    luck = count()

    def chance(_secret: bytes, _operation: str, _what: str) -> float:
        return next(luck) * 0.37 % 1

    return chance


def asked_in_vain(original: Any) -> Any:
    """What a policy asks about is not asked, unless the tool does."""

    def gate(case: Any) -> Any:
        return original(case) if case.situation.gate == "wanted" else None

    return gate
