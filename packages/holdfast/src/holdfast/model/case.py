"""One decision in the making, and the shape of a rule."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from holdfast.model.moves import Move
from holdfast.model.operation import OperationState
from holdfast.model.outcome import Basis
from holdfast.model.situation import Now, Situation
from holdfast.model.weigh import Weight

EVIDENCE: Final = Basis("evidence", "read back")
RULE: Final = Basis("rule")


class Case:
    """The operation, the situation, the moment, and what the attempts prove."""

    __slots__ = ("contract", "now", "operation", "situation", "weight")

    def __init__(self, operation: OperationState, situation: Situation, now: Now) -> None:
        self.operation = operation
        self.situation = situation
        self.contract = situation.contract
        self.now = now
        self.weight = Weight(operation, situation, now)

    @property
    def forgotten(self) -> bool:
        """Whether a restored journal may have forgotten an attempt, and nobody has said or seen that there was none."""
        operation, situation = self.operation, self.situation
        if operation.believed_absent_first:
            return False
        restored = situation.began_doubtful or situation.distrusted != ""
        return operation.forgotten or (restored and self.contract.effect == "write")

    @property
    def can_verify(self) -> bool:
        """Whether there is a verifier to ask."""
        return self.contract.verifies and self.situation.tool == "present"


Rule: TypeAlias = Callable[[Case], Move | None]
