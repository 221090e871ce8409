"""The meaning of an effect: the same effect in other words is neither a duplicate nor a loss."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from holdfast.agent.tool import Tool
from holdfast.testing.faults import Effect

AnyTool = Tool[Any, Any]


Same = Callable[[Effect], object]
"""The part of an effect that has to stay the same; effects that are equal in it are the same effect."""


class Seen(msgspec.Struct, frozen=True):
    """An effect in its compared form. `source` is the tool or fake, `words` its description, `means` its meaning."""

    source: str
    words: str
    means: str


def seen(effects: Sequence[Effect], tools: Mapping[str, AnyTool], same: Same | None) -> list[Seen]:
    """These effects, with the meaning of each: as the caller says, or as its tool's contract does."""
    return [Seen(one.tool, str(one), _meaning(one, tools.get(one.tool), same)) for one in effects]


def identity_of(tool: AnyTool) -> str:
    """The clause of the contract that says which calls are one effect; empty if all arguments count."""
    if tool.claims:
        return "claim"
    return "once" if tool.contract.once is not None else ""


def _meaning(effect: Effect, tool: AnyTool | None, same: Same | None) -> str:
    if same is not None:
        return repr(same(effect))
    if effect.line or tool is None or not identity_of(tool):
        return str(effect)
    if tool.claims:
        return f"{tool.name} {tool.business_key(effect.arguments)}"
    names = tool.contract.once.parameters if tool.contract.once is not None else ()
    return f"{tool.name} {[effect.arguments.get(name) for name in names]!r}"
