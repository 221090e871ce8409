"""Calls of a tool by agent code: each is a step of the present run, and its caller receives an outcome."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec.structs import replace

from beforehand.engine import steps
from beforehand.engine.active_run.scopes import SCOPE, Scope
from beforehand.engine.messages import deliver_messages, interrupted_by
from beforehand.engine.steps import NO_METADATA, CallMetadata, DeliveredOperation, ToolCall, facts_of, read, write
from beforehand.engine.suspension import Pause
from beforehand.engine.transactions import parts_of_effect
from beforehand.errors import ArgumentError, Interrupted, OutsideRun, UsageError
from beforehand.model import records as r
from beforehand.model.facts import Fact
from beforehand.model.ids import operation_id, split_operation_id
from beforehand.model.messages import was_interrupted
from beforehand.model.operation import OperationState, key_of
from beforehand.model.outcome import INTERRUPTED, LOST, RETURNED, STOPPED, Basis, Outcome, Receipt, Status
from beforehand.model.run_history import PENDING

if TYPE_CHECKING:
    from beforehand.agent.tool import Tool


R = TypeVar("R")


async def result_of(tool: Tool[Any, R], arguments: dict[str, Any], step: str | None, *, at_once: bool = False) -> R:
    scope = SCOPE.get()
    if scope is not None and tool.contract.effect == "write" and not tool.serves:
        delivered = await write(scope, ToolCall(tool, arguments, step, at_once=at_once, about=tool.about))
        operation = delivered.operation
        learn_from(scope, delivered)
        if delivered.kind == "outcome" and operation.phase == "succeeded" and not operation.settlement.lost:
            try:
                return tool.codec.decode(operation.settlement.result)  # type: ignore[return-value]  # decoded by R's own annotation
            except ValueError:
                pass  # a stored result that no longer fits is reported below
        outcome = _delivered_outcome(tool, arguments, delivered, scope)
    else:
        outcome = await outcome_of(tool, arguments, step, at_once=at_once)
    if outcome.status == "succeeded" and not outcome.code:
        return outcome.value  # type: ignore[return-value]  # a success carries R, which may be None
    raise outcome.error()


def metadata_of(confidence: float | None, taint: str, again: str | None = None) -> CallMetadata:
    """The caller's metadata of a call. Raises `UsageError` for a confidence outside 0 to 1, or an empty reason."""
    if again is not None and not again.strip():
        raise UsageError("again= is empty", next_step='say why the call is sent again: again="the lead asked"')
    if confidence is not None and not 0 <= confidence <= 1:
        raise UsageError(f"confidence={confidence:g} is not from 0 to 1", next_step="0 is a guess, 1 is certain")
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
            f"{tool.name} takes the operation that it compensates, so only the runtime calls it",
            known="nothing was sent",
            next_step="abort its transaction, or: beforehand undo RUN",
        )
    if scope is None:
        raise OutsideRun(
            f"{tool.name} was called outside a run, so its effect could not be recorded; nothing was sent",
            next_step="call it from an @agent function run by Beforehand, "
            f"or {tool.name}.__wrapped__(...) to bypass the runtime",
        )
    call = ToolCall(tool, arguments, step, model, at_once=at_once, about=about or tool.about)
    if tool.contract.effect == "read" and not tool.asks_only:
        record = await read(scope, call)
        if record.facts:
            _learn_reported(scope, record.tool, record.step, record.at, record.facts)
        return read_outcome(tool, arguments, record, scope.active.run)
    delivered = await write(scope, call)
    learn_from(scope, delivered)
    return _delivered_outcome(tool, arguments, delivered, scope)


def _delivered_outcome(
    tool: Tool[Any, R], arguments: dict[str, Any], delivered: DeliveredOperation, scope: Scope
) -> Outcome[R]:
    """The outcome that the caller receives; if a message called the operation off, it carries the message."""
    active = scope.active
    outcome = outcome_from(tool, arguments, delivered, active.run, active.process.identity.namespace)
    message = interruption_of(scope, delivered)
    if message is None:
        return outcome
    basis, code = Basis("person", message.sender, message.text), STOPPED if message.stop else INTERRUPTED
    return replace(outcome, basis=basis, code=code, reason=message.message, facts=message.facts)


# --- outcomes ---------------------------------------------------------------------------------------------------------


def outcome_from(
    tool: Tool[Any, R], arguments: dict[str, Any], delivered: DeliveredOperation, run: str, namespace: str
) -> Outcome[R]:
    """The delivered outcome: the recorded one, a reused one, or that it is unknown."""
    if delivered.operation.edits:
        outcome = _outcome(tool, _sent(tool, delivered.operation), delivered, run, namespace)
        outcome = replace(outcome, edited_by=delivered.operation.editing.editors[-1])
    else:
        outcome = _outcome(tool, arguments, delivered, run, namespace)
    facts = facts_of(delivered.delivered_attempts)
    if not facts:
        return outcome
    return replace(outcome, facts=r.values_of(facts))


def _sent(tool: Tool[Any, Any], operation: OperationState) -> dict[str, Any]:
    """The arguments that were sent, if a reviewer edited the call."""
    stored = bytes(operation.intent.arguments)
    try:
        return tool.spec.restore(stored)
    except ArgumentError:  # the tool has changed since: use the recorded values
        return msgspec.json.decode(stored, type=dict[str, Any])


def _outcome(
    tool: Tool[Any, R], arguments: dict[str, Any], delivered: DeliveredOperation, run: str, namespace: str
) -> Outcome[R]:
    operation, settlement = delivered.operation, delivered.operation.settlement
    name = f"{run}/{delivered.step}"
    if delivered.kind == PENDING:
        return Outcome("pending", name, tool.name, reason=delivered.detail, arguments=arguments)
    if (pending := settlement.pending_effect) is not None:
        return Outcome(
            "pending", name, tool.name, settlement.basis, operation.reason, settlement.code, pending.source,
            arguments=arguments, pending=pending.items,
        )  # fmt: skip
    if delivered.kind == "unknown":
        return Outcome("unknown", name, tool.name, reason=operation.reason, arguments=arguments)
    if operation.links.reused:
        text = f"{operation.links.reused} did it already"
        reused: Outcome[R] = Outcome(
            "succeeded", name, tool.name, settlement.basis, text, reused=operation.links.reused, arguments=arguments,
            pending=delivered.parts,
        )  # fmt: skip
        return _with_value(
            tool, reused, operation.settlement.result, operation.reason if operation.settlement.lost else ""
        )
    status = operation.status
    if status != "succeeded":
        return Outcome(
            status,
            name,
            tool.name,
            operation.settlement.basis,
            operation.reason,
            operation.settlement.code,
            arguments=arguments,
        )
    assert operation.settlement.basis is not None, operation
    receipt = Receipt(
        name,
        tool.name,
        key_of(namespace, run, delivered.step, operation.intent),
        operation.settlement.basis,
        operation.settlement.at,
    )
    done: Outcome[R] = Outcome(
        "succeeded", name, tool.name, operation.settlement.basis, arguments=arguments, receipt=receipt
    )
    if delivered.parts:
        done = replace(done, pending=delivered.parts)
    return _with_value(tool, done, operation.settlement.result, operation.reason if operation.settlement.lost else "")


def read_outcome(tool: Tool[Any, R], arguments: dict[str, Any], record: r.ReadRecorded, run: str) -> Outcome[R]:
    """The outcome of a read."""
    name, basis = f"{run}/{record.step}", RETURNED if record.refused else None
    facts = r.values_of(record.facts) if record.facts else {}
    if record.status == "failed":
        return Outcome("failed", name, tool.name, basis, record.reason, record.code, arguments=arguments, facts=facts)
    answered: Outcome[R] = Outcome("succeeded", name, tool.name, arguments=arguments, facts=facts)
    return _with_value(tool, answered, record.result, record.reason if record.lost else "")


def _with_value(tool: Tool[Any, R], outcome: Outcome[R], stored: r.Raw, lost: str) -> Outcome[R]:
    """The outcome with the decoded result, or marked as lost where the result cannot make the trip."""
    if lost:
        return replace(outcome, code=LOST, reason=lost)
    try:
        value = tool.codec.decode(stored)
    except ValueError as error:
        return replace(outcome, code=LOST, reason=str(error))
    return replace(outcome, value=value)


# --- facts that tools report ------------------------------------------------------------------------------------------


def learn_from(scope: Scope, delivered: DeliveredOperation) -> None:
    """Learn the facts that these calls reported, as far as delivered to code. A fact dates from the start of its call.

    If a message called off the call, that message is delivered.
    """
    operation = delivered.operation
    if scope.active.history.messages is not None and was_interrupted(operation):
        deliver_messages(scope, delivered.step)
    for attempt in delivered.delivered_attempts:
        if attempt.end is not None and attempt.end.facts:
            _learn_reported(scope, operation.intent.tool, operation.step, attempt.at, attempt.end.facts)


def interruption_of(scope: Scope, delivered: DeliveredOperation) -> Interrupted | None:
    """The message that its caller receives in place of an outcome, if a message called the operation off."""
    messages = scope.active.history.messages
    if messages is None or not was_interrupted(delivered.operation):
        return None
    return interrupted_by(scope.active.run, messages.delivered_at(delivered.step))


def learn_from_commit(scope: Scope, transaction: str) -> None:
    """Learn the facts reported by the effects held for this commit, in the order in which they were requested."""
    history = scope.active.history
    if not history.delivered.promised:
        return
    for operation in list(history.operations.values()):
        if operation.intent.hold == transaction:
            learn_from(scope, DeliveredOperation(operation, operation.step))


def _learn_reported(scope: Scope, tool: str, step: str, at_ms: int, facts: Iterable[r.Reported]) -> None:
    name = operation_id(scope.active.run, step)
    for fact in facts:
        value = msgspec.json.decode(fact.value)
        scope.active.facts.learn(Fact(fact.name, value, tool, at_ms, operation=name), by=step)


# --- parts of a partial success ---------------------------------------------------------------------------------------


class Part(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a part ended, as recorded when it was delivered to code."""

    step: str
    status: Status
    basis: Basis | None = None
    reason: str = ""
    code: str = ""
    result: Any = None


async def outcome_of_left(scope: Scope, tool: Tool[Any, R], step: str, arguments: dict[str, Any]) -> Outcome[R]:
    """Wait for the outcome of an earlier call whose caller was cancelled, and return it."""
    active = scope.active

    async def fresh() -> dict[str, Any]:
        while not (operation := active.history.operations[step]).final or step in active.drivers.tasks:
            watchers = active.waiters.watchers.setdefault(step, [])
            await active.waiters.wait(scope, watchers, Pause("operation", step))
        plain: dict[str, Any] = msgspec.to_builtins(_ended_part(operation))
        return plain

    part = msgspec.convert(await steps.value(scope, "outcome", fresh), Part)
    name = operation_id(active.run, step)
    outcome: Outcome[R] = Outcome(part.status, name, tool.name, part.basis, part.reason, part.code, arguments=arguments)
    return (
        outcome
        if part.status != "succeeded"
        else _with_value(tool, outcome, r.Raw(msgspec.json.encode(part.result)), "")
    )


async def ended_parts(scope: Scope, outcome: Outcome[Any]) -> dict[str, Outcome[Any]]:
    """Wait until all parts of a partial success have ended, and return how each one did."""
    run, step = split_operation_id(outcome.operation)
    if not outcome.pending:
        return {}
    active = scope.active

    def parts() -> tuple[OperationState, ...]:
        return parts_of_effect(active.history, step, outcome.reused)

    async def fresh() -> dict[str, Any]:
        while (still := next((part for part in parts() if not part.final), None)) is not None:
            await active.waiters.wait(
                scope, active.waiters.watchers.setdefault(still.step, []), Pause("operation", still.step)
            )
        plain: dict[str, Any] = msgspec.to_builtins({part.intent.item: _ended_part(part) for part in parts()})
        return plain

    ended = msgspec.convert(await steps.value(scope, "parts", fresh), dict[str, Part])
    return {
        name: Outcome(
            part.status, operation_id(run, part.step), outcome.tool, part.basis, part.reason, part.code,
            value=part.result,
        )
        for name, part in ended.items()
    }  # fmt: skip


def _ended_part(part: OperationState) -> Part:
    status = "succeeded" if part.links.reused else part.status  # in a fork it refers to that of its parent
    return Part(
        part.step,
        status,
        part.settlement.basis,
        part.reason,
        part.settlement.code,
        msgspec.json.decode(part.settlement.result),
    )
