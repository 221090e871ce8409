"""Waiting for the parts of a partial success: how each of them ended, journaled like any other value."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.engine import steps
from holdfast.engine.saga import parts_met
from holdfast.engine.scopes import Scope
from holdfast.engine.suspension import Pause
from holdfast.model.ids import operation_id, split_operation_id
from holdfast.model.operation import OperationState
from holdfast.model.outcome import Basis, Outcome, Status


class Part(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a part ended, as it is recorded that code was told."""

    step: str
    status: Status
    basis: Basis | None = None
    reason: str = ""
    code: str = ""
    result: Any = None


async def ended_parts(scope: Scope, outcome: Outcome[Any]) -> dict[str, Outcome[Any]]:
    """How the parts of a partial success ended, once all of them have."""
    run, step = split_operation_id(outcome.operation)
    if not outcome.pending:
        return {}
    instance = scope.instance

    def parts() -> tuple[OperationState, ...]:
        return parts_met(instance.history, step, outcome.reused)

    async def fresh() -> dict[str, Any]:
        while (still := next((part for part in parts() if not part.final), None)) is not None:
            await instance.wait(scope, instance.watchers.setdefault(still.step, []), Pause("operation", still.step))
        plain: dict[str, Any] = msgspec.to_builtins({part.intent.item: _told(part) for part in parts()})
        return plain

    ended = msgspec.convert(await steps.value(scope, "parts", fresh), dict[str, Part])
    return {
        name: Outcome(
            part.status, operation_id(run, part.step), outcome.tool, part.basis, part.reason, part.code,
            value=part.result,
        )
        for name, part in ended.items()
    }  # fmt: skip


def _told(part: OperationState) -> Part:
    status = "succeeded" if part.reused else part.status  # in a fork it refers to that of its parent
    return Part(part.step, status, part.basis, part.reason, part.code, msgspec.json.decode(part.result))
