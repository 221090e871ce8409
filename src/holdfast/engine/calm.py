"""Calm: while nothing stands in the way of a run, the situation of all operations of one tool is the same."""

from __future__ import annotations

from holdfast.engine.instance import Instance
from holdfast.engine.tooling import ToolCode
from holdfast.model.moves import Move
from holdfast.model.situation import Situation


class Calm:
    """That situation, and the move that follows from it for an operation of which nothing is recorded yet."""

    __slots__ = ("first", "situation")

    def __init__(self, situation: Situation) -> None:
        self.situation = situation
        self.first: Move | None = None


def calm_of(instance: Instance, tool: ToolCode) -> Calm | None:
    """What holds for operations of this tool if nothing stands in the way of this run, else None."""
    engine, history = instance.engine, instance.history
    if history.cancelled is not None or history.paused is not None or history.messages is not None:
        return None
    if engine.pauses or engine.breakers.troubled:
        return None
    return instance.calm.get(tool.digest) or _first_calm(instance, tool)


def _first_calm(instance: Instance, tool: ToolCode) -> Calm | None:
    """As `calm_of`, with what cannot change while this instance lives."""
    engine, settings = instance.engine, instance.engine.settings
    trusted = engine.identity.trust == "trusted"
    if engine.judge is not None:
        return None  # a policy judges each operation by itself
    if not trusted or engine.deadline_of(instance.history) is not None or instance.history.status == "stopped":
        return None
    situation = Situation(
        contract=tool.contract,
        claimed_up=instance.claimed_up,
        deaths_allowed=settings.deaths_allowed,
        clock_error_ms=settings.clock_error_ms,
        slow_verify_ms=settings.slow_verify_ms,
        hung_owner_ms=settings.hung_owner_ms,
    )
    calm = instance.calm[tool.digest] = Calm(situation)
    return calm
