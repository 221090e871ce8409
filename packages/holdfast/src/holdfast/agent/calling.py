"""Calls of a tool by agent code: a step of the present run, and what its caller is given."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from holdfast.agent.hearing import heard, heard_reading, interruption_of
from holdfast.agent.outcomes import R, outcome_from, read_outcome
from holdfast.engine.scopes import SCOPE, Scope
from holdfast.engine.steps import NO_METADATA, CallMetadata, DeliveredOperation, ToolCall, read, write
from holdfast.errors import OutsideRun, UsageError
from holdfast.model.outcome import INTERRUPTED, STOPPED, Basis, Outcome

if TYPE_CHECKING:
    from holdfast.agent.tool import Tool


async def result_of(tool: Tool[Any, R], arguments: dict[str, Any], step: str | None, *, at_once: bool = False) -> R:
    scope = SCOPE.get()
    if scope is not None and tool.contract.effect == "write" and not tool.serves:
        told = await write(scope, ToolCall(tool, arguments, step, at_once=at_once, about=tool.about))
        operation = told.operation
        heard(scope, told)
        if told.how == "outcome" and operation.phase == "succeeded" and not operation.lost:
            try:
                return tool.codec.decode(operation.result)  # type: ignore[return-value]  # decoded by R's own annotation
            except ValueError:
                pass  # a stored result that no longer fits is reported below
        outcome = _told(tool, arguments, told, scope)
    else:
        outcome = await outcome_of(tool, arguments, step, at_once=at_once)
    if outcome.status == "succeeded" and not outcome.code:
        return outcome.value  # type: ignore[return-value]  # a success carries R, which may be None
    raise outcome.error()


def said(confidence: float | None, taint: str, again: str | None = None) -> CallMetadata:
    """What a caller says about a call. Raises `UsageError` for a confidence that is no share, or an empty reason."""
    if again is not None and not again.strip():
        raise UsageError("again= says why the call is sent again", next_step='name the reason: again="the lead asked"')
    if confidence is not None and not 0 <= confidence <= 1:
        raise UsageError(f"confidence={confidence:g}", next_step="give a share: 0 is a guess, 1 is certain")
    return (
        NO_METADATA if confidence is None and not taint and not again else CallMetadata(confidence, taint, again or "")
    )


async def outcome_of(
    tool: Tool[Any, R],
    arguments: dict[str, Any],
    step: str | None,
    *,
    model: bool = False,
    at_once: bool = False,
    about: CallMetadata | None = None,
) -> Outcome[R]:
    """Perform a call as a step of the present run."""
    scope = SCOPE.get()
    if tool.serves:
        raise UsageError(
            f"{tool.name} takes the operation that it makes amends for, so the runtime calls it",
            known="nothing was sent",
            next_step="let its transaction be called off, or: holdfast undo RUN",
        )
    if scope is None:
        raise OutsideRun(
            f"{tool.name} was called outside a run, so its effect could not be recorded; nothing was sent",
            next_step="call it from an @agent function run by Holdfast, "
            f"or {tool.name}.__wrapped__(...) to bypass the runtime",
        )
    call = ToolCall(tool, arguments, step, model, at_once=at_once, about=about or tool.about)
    if tool.contract.effect == "read":
        record = await read(scope, call)
        heard_reading(scope, record)
        return read_outcome(tool, arguments, record, scope.instance.run)
    told = await write(scope, call)
    heard(scope, told)
    return _told(tool, arguments, told, scope)


def _told(tool: Tool[Any, R], arguments: dict[str, Any], told: DeliveredOperation, scope: Scope) -> Outcome[R]:
    """The outcome as its caller is given it; where a message called it off, with what was said."""
    instance = scope.instance
    outcome = outcome_from(tool, arguments, told, instance.run, instance.engine.identity.namespace)
    said = interruption_of(scope, told)
    if said is None:
        return outcome
    basis, code = Basis("person", said.by, said.said), STOPPED if said.stop else INTERRUPTED
    return replace(outcome, basis=basis, code=code, reason=said.message, facts=said.facts)
