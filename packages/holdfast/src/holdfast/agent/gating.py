"""Gates: conditions over a call's arguments under which a person has to approve it first."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any, cast

import msgspec

from holdfast.agent.conditions import ConditionError, checked, holds
from holdfast.agent.signatures import Shape
from holdfast.errors import ContractError
from holdfast.model.contract import Contract
from holdfast.policies import Gate


def checked_gate(contract: Contract, gate: Gate, shape: Shape, redact: frozenset[str]) -> None:
    """Refuse a gate that cannot be judged. Raises `ContractError` naming the fix."""
    where = f"tool {contract.tool}: gate={gate.when!r}"
    if contract.effect == "read":
        raise ContractError(f"{where}: a read changes nothing, so nobody is asked", next_step='drop effect="read"')
    known = sorted(set(shape.types) - redact)
    try:
        checked(gate.when, known)
    except ConditionError as error:
        raise ContractError(
            f"{where}: {error}", known=f"it may use the parameters that are stored: {', '.join(known) or 'none'}",
            next_step='write it in CEL, such as gate="cents > 50000"; gate="true" asks always',
        ) from error  # fmt: skip


def gated(gate: str, arguments: Mapping[str, Any]) -> bool:
    """Whether these arguments need a person's approval. Raises `ConditionError` where that has no answer."""
    plain = msgspec.to_builtins(dict(arguments), builtin_types=(Decimal,), str_keys=True, enc_hook=_dumped)
    return holds(gate, _numbers(plain))


def _dumped(value: object) -> object:
    """A pydantic model as plain values; anything else has none, and a person is asked."""
    dump = getattr(value, "model_dump", None)
    if dump is None:
        raise ConditionError(f"{type(value).__name__} cannot be judged by a condition")
    return dump(mode="json")


def _numbers(value: Any) -> Any:
    """Decimals as numbers: conditions know no others."""
    match value:
        case Decimal():
            return float(value)
        case dict():
            return {name: _numbers(one) for name, one in cast("dict[str, object]", value).items()}
        case list() | tuple():
            return [_numbers(one) for one in cast("list[object]", value)]
        case _:
            return value
