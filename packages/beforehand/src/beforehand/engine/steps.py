"""The steps that agent code takes in the world: writes and reads.

Each one is replayed if the record has it and performed if not. What is delivered to code is
itself in the record, so that a resumed run takes the same path as the first one.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

import msgspec

from beforehand.engine.active_run.scopes import SCOPE, Scope
from beforehand.engine.commands import take_commands
from beforehand.engine.conflicts import fields_of_call
from beforehand.engine.executor import drive, start_driver
from beforehand.engine.journaled import journaled
from beforehand.engine.messages import Messages, deliver_messages
from beforehand.engine.operation_driver import OperationDriver, driver_of, snapshot_arguments
from beforehand.engine.sealing import detach, record_before_detaching, refuse, replay_detachment, sealing
from beforehand.engine.suspension import Pause
from beforehand.engine.tool_protocol import ToolCode
from beforehand.engine.transactions import aborted, may_begin, parts_of_effect, resume_closing
from beforehand.errors import (
    BeforehandError,
    JournalError,
    MustHold,
    ParameterMismatch,
    RecordRefused,
    UnknownTool,
    Unreadable,
)
from beforehand.model import records as r
from beforehand.model.canonical.encode import Forms, digest, forms
from beforehand.model.operation import Attempt, OperationState
from beforehand.model.outcome import FINAL, RETURNED
from beforehand.model.run_history import JOINED, PENDING
from beforehand.model.transaction import around

if TYPE_CHECKING:
    from beforehand.engine.active_run.run import ActiveRun
    from beforehand.engine.tool_protocol import AgentCode
    from beforehand.model.questions import Authority
    from beforehand.model.run_history import Delivery


class CallMetadata(msgspec.Struct, frozen=True, gc=False):
    """Facts about a call besides its arguments.

    `confidence` is how sure its chooser is (0 to 1), `taint` what touched its arguments, `again` why it is sent again
    although something is pending. `covered`: the yes to a plan covers it.
    """

    confidence: float | None = None
    taint: str = ""
    again: str = ""
    covered: bool = False


NO_METADATA: Final = CallMetadata()


class ToolCall(msgspec.Struct, frozen=True):
    """One call of a tool as agent code (or a model) makes it."""

    tool: ToolCode
    arguments: Mapping[str, Any]
    step: str | None = None
    model: bool = False
    hold: bool = False  # keep it for the commit of the outermost transaction around it
    at_once: bool = False  # irreversible inside a transaction, and deliberately not held
    about: CallMetadata = NO_METADATA


class DeliveredOperation(msgspec.Struct, frozen=True, gc=False):
    """An operation as delivered to its caller, with `outcome` or `unknown`.

    The operation is the one on record now. `attempts` counts those it had if it is delivered before its outcome, and
    `parts` names the parts of its effect that come later.
    """

    operation: OperationState
    step: str
    kind: str = "outcome"
    detail: str = ""
    attempts: int = 0
    parts: tuple[str, ...] = ()

    @property
    def delivered_attempts(self) -> tuple[Attempt, ...]:
        """The attempts that are delivered to code, the same on replay: all, or the one that was accepted for later."""
        if self.kind == PENDING:
            return self.operation.attempts[max(0, self.attempts - 1) : self.attempts]
        return self.operation.attempts if self.kind == "outcome" else ()


async def write(scope: Scope, call: ToolCall) -> DeliveredOperation:
    """Perform a write, or deliver its record."""
    active, tool = scope.active, call.tool
    if active.closed:
        await refuse(scope)
    written = forms(call.arguments, tool.spec.redact)
    if tool.spec.redact:
        active.masks.redact(call.arguments, tool.spec.redact)
    step = scope.step(tool.name, call.step)
    recorded = active.history.operations.get(step)
    if recorded is not None:
        _same(active, step, recorded.as_called, tool, written)
        if active.replay.expected:
            active.replay.reach(step)
        if active.drivers.operations:
            _supply_arguments(active, step, call)
    else:
        try:
            await _write_now(scope, step, call, written)
        except RecordRefused:
            raise  # this one record does not fit; the journal is well
        except JournalError as error:
            raise active.fail(error) from error
    scope.received = True  # where its caller is cancelled meanwhile, that is on record
    return _deliver_at_once(active, step) or await _await_delivery(scope, step, tool)


async def _write_now(scope: Scope, step: str, call: ToolCall, written: Forms) -> None:
    """Perform a step that has no record yet."""
    active, tool = scope.active, call.tool
    if step in active.history.steps.answers:
        active.replay.diverge(f"{step} is recorded as a read, and is a write now")
    if active.history.boundaries.by_name:
        _hold_or_not(active, step, call)
    draft = _draft(scope, step, call, written)  # before it waits: a call that is refused has no place in the record
    if active.replay.catching_up or active.history.boundaries.by_name or scope.expired_limit() is not None:
        await may_begin(scope, step, writes=True)
    if active.log.blocking:
        await _wait_for_blockers(scope)
    driver = OperationDriver(
        active, step, tool, draft, arguments=snapshot_arguments(call.arguments, executable=written.executable)
    )
    before = SCOPE.get()
    SCOPE.set(None)  # tasks that the runtime or a handler makes meanwhile are not branches of agent code
    scope.host.working += 1
    try:
        await _perform(scope, driver)
    finally:
        scope.host.working -= 1
        # The collector closes it in whatever task or thread: that keeps its own scope.
        if not isinstance(sys.exception(), GeneratorExit):
            SCOPE.set(before)
            if scope.host.children:
                active.waiters.consider_rest()  # as in `sealing`


def _supply_arguments(active: ActiveRun, step: str, call: ToolCall) -> None:
    """Give the arguments of code that came back to an open operation to its driver; the record may lack them."""
    if step in active.drivers.operations and (driver := driver_of(active, step)).arguments is None:
        if call.tool.late:
            # Only this call brings the body. What was found without it (that the tool is gone) is found again.
            driver.tool, driver.found.gate = call.tool, None
        driver.arguments = snapshot_arguments(call.arguments, executable=driver.operation.intent.executable)
        active.waiters.wake(step)


async def _perform(scope: Scope, driver: OperationDriver) -> None:
    """Drive a new operation in the caller's own task; if the caller is cancelled, a task of its own goes on."""
    driver.scope = scope
    try:
        operation = await drive(driver)
    except asyncio.CancelledError:
        driver.scope = None
        if driver.active.sealed is None:
            await record_before_detaching(driver)
        start_driver(driver)
        detach(scope, driver.step)
        raise
    except Unreadable as error:  # the run cannot go on: agent code must not take this for an answer of the tool
        raise driver.active.fail(error) from error
    except BeforehandError:
        raise
    except Exception as error:  # of the runtime or a declaration, for the same reason
        raise driver.active.break_off(error) from error
    if driver.active.closed:
        driver.active.check()
    if operation.phase not in FINAL and operation.phase != "held":
        driver.scope = None
        start_driver(driver)  # `unknown` is delivered to its caller, but the operation is still driven


def _draft(scope: Scope, step: str, call: ToolCall, written: Forms) -> OperationState:
    """The operation as it would be recorded. Raises `UnknownTool` for a tool that recovery could not find again."""
    active = scope.active
    tool = call.tool
    if scope.authority is not None and tool.name not in scope.authority.tools:
        raise _beyond(scope.authority, tool)
    if tool.name not in active.process.tools and not tool.late:
        raise UnknownTool(
            f"{tool.name} is not among the tools of this app, so the run could not continue after a crash",
            known="nothing was sent",
            next_step=f"add it: @agent(tools=[...]) or Beforehand(..., tools=[{tool.name}])",
        )
    intent = r.Intent(
        tool=tool.name,
        contract=tool.digest,
        origin="model" if call.model else "code",
        late=tool.late,
        asks_only=tool.asks_only,
        hold=_holder_of(active, step) if call.hold else "",
        price=tool.contract.budget.call,
        **fields_of_call(tool, call.arguments, written, active.process.identity.secret),
    )
    if call.about is not NO_METADATA or active.process.policy is not None:
        intent = with_metadata(scope, intent, call.about)
    return OperationState(step, intent, "planned", tool.digest)


def _beyond(authority: Authority, tool: ToolCode) -> UnknownTool:
    return UnknownTool(
        f"{tool.name} is not a tool that {authority.agent} may use in this run",
        known="nothing was sent; a run that is handed over gains no tools by it",
        next_step=f"give it to both agents: @agent(tools=[{tool.name}, ...])",
    )


def _holder_of(active: ActiveRun, step: str) -> str:
    """The outermost transaction around `step`: its commit sends held effects."""
    return next((one.name for one in around(step, active.history.boundaries.by_name) if not one.over), "")


def _hold_or_not(active: ActiveRun, step: str, call: ToolCall) -> None:
    """An irreversible effect inside a transaction is held, or sent at once on purpose. Raises `MustHold`.

    Also in one that is over by now: where a replay comes to a refused call, its transaction has its end on record.
    """
    name = call.tool.name
    inside = next((one.name for one in around(step, active.history.boundaries.by_name) if one.name), "")
    if inside and call.tool.contract.irreversible and not (call.hold or call.at_once):
        raise MustHold(
            f"{name} cannot be undone, and was called inside the transaction {inside}",
            known="nothing was sent",
            next_step=f"await <transaction>.on_commit({name}, ...) sends it when everything else has succeeded; "
            f"{name}.options(hold=False)(...) sends it now, and it stays if the transaction is called off; "
            f"@{name}.compensate(restores=True) declares what undoes it",
        )


def _same(active: ActiveRun, step: str, recorded: r.Intent, tool: ToolCode, written: Forms) -> None:
    """A step that comes back with other arguments is never a silent replay."""
    if recorded.tool == tool.name and _same_arguments(active, recorded.arguments, recorded.digest, written):
        return
    active.replay.diverge(
        f"{step} is another call than the recorded one",
        f"- recorded: {recorded.tool} {bytes(recorded.arguments).decode()}\n"
        f"+ now:      {tool.name} {written.stored.decode()}",
        ParameterMismatch(f"the arguments of {step} differ from the recorded ones", run=active.run),
    )


def _same_arguments(active: ActiveRun, arguments: r.Raw, recorded: str, written: Forms) -> bool:
    """Equal stored forms are equal values; anything else is compared by its keyed digest.

    An exported run keeps no keyed digest: there the stored forms decide alone.
    """
    if arguments == r.Raw(written.stored) and (written.executable or not recorded):
        return True
    return digest(active.process.identity.secret, written.identity) == recorded


def left_by_host(scope: Scope, tool: ToolCode, arguments: Mapping[str, Any]) -> str | None:
    """The step of the same call that the host made before under this name, and cancelled while it was under way."""
    base, _, number = scope.path[:-1].rpartition("#")
    active = scope.active
    for earlier in range(1, int(number) if base else 1):
        step = f"{base}/{tool.name}#1" if earlier == 1 else f"{base}#{earlier}/{tool.name}#1"
        recorded = active.history.operations.get(step)
        if recorded is None or step not in active.history.delivered.left:
            continue
        called = recorded.as_called
        if _same_arguments(active, called.arguments, called.digest, forms(arguments, tool.spec.redact)):
            return step
    return None


async def _wait_for_blockers(scope: Scope) -> None:
    """Let a new write wait while another one is unknown, or in flight after its caller was cancelled.

    If a message has to be delivered first nothing will be sent, and there is nothing to wait for.
    """
    active = scope.active
    while (blocker := active.log.blocker()) is not None and not scope.has_message():
        await active.waiters.wait(scope, active.waiters.watchers.setdefault(blocker, []), Pause("operation", blocker))


def drive_open_operations(active: ActiveRun) -> None:
    """Settle every open operation from its records, whether or not code comes back to it."""
    for operation in active.history.open_operations():
        if operation.phase != "held":  # the end of its transaction settles that
            start_driver(driver_of(active, operation.step))
    resume_closing(active)


def _deliver_at_once(active: ActiveRun, step: str) -> DeliveredOperation | None:
    """Fast path: deliver a recorded outcome whose turn it is without waiting; None if that is not possible."""
    history = active.history
    delivery = history.delivered.by_step.get(step)
    if delivery is None or delivery.kind != "outcome" or delivery.index != active.replay.order.at:
        return None
    if history.boundaries.by_name or step in active.drivers.tasks or delivery.index in history.delivered.apart:
        return None
    return _deliver(active, step, active.replay.take(step))


@sealing
async def _await_delivery(scope: Scope, step: str, tool: ToolCode) -> DeliveredOperation:
    """Wait for the delivery of `step`, in its turn."""
    active = scope.active
    try:
        while True:
            gone = active.history.boundaries.called_off(step)
            if step in active.history.delivered.by_step and _is_deliverable(active, step, called_off=gone is not None):
                break
            if gone is not None:
                raise await aborted(scope, gone)
            operation = active.history.operations.get(step)
            if operation is not None and operation.phase == "unknown" and tool.contract.on_unknown == "raise":
                await _deliver_unknown(active, step)
                break
            watchers = active.waiters.watchers.setdefault(step, [])
            await active.waiters.wait(scope, watchers, Pause("operation", step))
        delivery = await active.replay.take_turn(scope, step)
    except asyncio.CancelledError:
        detach(scope, step)
        raise
    if delivery.kind == "left":
        await replay_detachment(scope, step)
    return _deliver(active, step, delivery)


def _deliver(active: ActiveRun, step: str, delivery: Delivery) -> DeliveredOperation:
    """Return what was delivered, and drop the step."""
    operation = active.history.operations[step]
    parts = part_names(active, step) if active.history.partial else ()
    active.replay.forget(step)
    return DeliveredOperation(operation, step, delivery.kind, delivery.detail, delivery.attempts, parts)


def part_names(active: ActiveRun, step: str) -> tuple[str, ...]:
    """The tool's names for the parts of its effect whose end came, or comes, later than its outcome."""
    history = active.history
    return tuple(one.intent.item for one in parts_of_effect(history, step, history.operations[step].links.reused))


def _is_deliverable(active: ActiveRun, step: str, *, called_off: bool) -> bool:
    """True if the delivery can be made now. While the step is driven, only one that does not wait for its end can."""
    history = active.history
    early = step in history.delivered.promised or history.delivered.by_step[step].kind in {PENDING, "left"}
    return step not in active.drivers.tasks or early or called_off


async def _deliver_unknown(active: ActiveRun, step: str) -> None:
    if step not in active.history.delivered.told_unknown:
        await active.log.append(r.Delivered(step=step, told="unknown", **active.log.stamp()))


# --- reads ---------------------------------------------------------------------------------------------


async def read(scope: Scope, call: ToolCall) -> r.ReadRecorded:
    """Perform a read, or answer from the record. One record, which rides."""
    active, tool = scope.active, call.tool
    if active.closed:
        await refuse(scope)
    written = forms(call.arguments, tool.spec.redact)
    if tool.spec.redact:
        active.masks.redact(call.arguments, tool.spec.redact)
    step = scope.step(tool.name, call.step)
    recorded = active.history.steps.answers.get(step)
    if recorded is None:
        if step in active.history.operations:
            active.replay.diverge(f"{step} is recorded as a write, and is a read now")
        recorded = await _read_now(scope, step, call, written)
    if (await active.replay.take_turn(scope, step)).kind == "left":  # `take_answer` without its call: this is hot
        await replay_detachment(scope, step)
    if not isinstance(recorded, r.ReadRecorded):
        _other_read(active, step, tool, written)
    if recorded.tool != tool.name or not _same_arguments(active, recorded.arguments, recorded.digest, written):
        _other_read(active, step, tool, written)
    active.replay.forget(step)
    return recorded


@sealing
async def _read_now(scope: Scope, step: str, call: ToolCall, written: Forms) -> r.ReadRecorded:
    active, tool = scope.active, call.tool
    draft = _draft(scope, step, call, written)
    if active.replay.receiving or active.history.boundaries.by_name or scope.expired_limit() is not None:
        await may_begin(scope, step)
    driver = OperationDriver(
        active,
        step,
        tool,
        draft,
        journaled=False,
        arguments=snapshot_arguments(call.arguments, executable=written.executable),
    )
    driver.scope = scope
    try:
        operation = await drive(driver)
    except BeforehandError:
        raise
    except Exception as error:  # as in `_perform`
        raise active.break_off(error) from error
    if active.closed:
        active.check()
    record = r.ReadRecorded(
        step=step,
        tool=tool.name,
        arguments=draft.intent.arguments,
        digest=draft.intent.digest,
        status="succeeded" if operation.phase == "succeeded" else "failed",
        reason=operation.reason,
        code=operation.settlement.code,
        result=operation.settlement.result,
        attempts=len(operation.attempts),
        refused=operation.phase == "failed" and operation.settlement.basis == RETURNED,
        lost=operation.settlement.lost,
        facts=facts_of(operation.attempts),
        **active.log.stamp(),
    )
    active.log.buffer(record)
    return record


def facts_of(attempts: tuple[Attempt, ...]) -> tuple[r.Reported, ...]:
    """The facts that these calls reported besides their results, in order."""
    return tuple(fact for attempt in attempts if attempt.end is not None for fact in attempt.end.facts)


def _other_read(active: ActiveRun, step: str, tool: ToolCode, written: Forms) -> NoReturn:
    recorded = active.history.steps.answers.get(step)
    was = f"{recorded.tool} {bytes(recorded.arguments).decode()}" if isinstance(recorded, r.ReadRecorded) else "no read"
    active.replay.diverge(
        f"{step} is another read than the recorded one",
        f"- recorded: {was}\n+ now:      {tool.name} {written.stored.decode()}",
    )


T = TypeVar("T", int, float, str, dict[str, Any])


@sealing
async def value(scope: Scope, what: str, fresh: Callable[[], T | Awaitable[T]], step: str | None = None) -> T:
    """The result of `fresh` from the first time this step was taken. It may wait, and must have no outside effect."""
    return await value_at(scope, scope.step(what, step), what, fresh)


async def value_at(scope: Scope, name: str, what: str, fresh: Callable[[], T | Awaitable[T]]) -> T:
    """As `value`, for the step of that name."""
    log = scope.active.log

    async def record(_: object) -> None:
        made = fresh()
        stored = r.Raw(msgspec.json.encode(await made if isinstance(made, Awaitable) else made))
        log.buffer(r.ValueRecorded(step=name, what=what, value=stored, **log.stamp()))

    def same(recorded: r.ValueRecorded) -> str:
        return "" if recorded.what == what else f"is recorded as another value than {what}"

    answer: T = msgspec.json.decode((await journaled(scope, name, r.ValueRecorded, record, same)).value)
    return answer


async def join_branches(scope: Scope) -> None:
    """Note under a time limit that branches were joined: replay has to know whether it ended the code before that."""
    if scope.limited() and not scope.active.closed:
        await value(scope, JOINED, lambda: 0)


async def version(scope: Scope, change: str, newest: int) -> int:
    """0 where the record already goes on past this point without a marker: the old code passed here."""
    active = scope.active
    name = scope.next_step(f"version:{change}")
    if name not in active.history.steps.answers and active.replay.replaying():
        scope.counts[f"{scope.path}version:{change}"] = scope.counts.get(f"{scope.path}version:{change}", 0) + 1
        return 0
    return await value(scope, f"version:{change}", lambda: newest)


# --- handoff to another agent --------------------------------------------------------------------------------------
# A step holds all steps which that agent takes. The run, its operations, its waits and its deadline stay as they are.
# The other agent has at most the authority of the code that hands over.


class HandoffInput(msgspec.Struct, frozen=True):
    """The input of the other agent, as it is stored, with its keyed digest, and the reason for the handoff."""

    stored: bytes
    digest: str
    why: str


@sealing
async def hand_over(scope: Scope, agent: AgentCode, given: HandoffInput, authority: Authority) -> Scope:
    """The part of this branch in which that agent goes on. A replay hands the same over to the same agent."""
    log, step = scope.active.log, scope.step(f"hand_off:{agent.name}")

    async def record(_: object) -> None:
        handed = r.HandedOff(
            step=step, agent=agent.name, why=given.why, given=r.Raw(given.stored), digest=given.digest,
            version=agent.version, **log.stamp(),
        )  # fmt: skip
        log.buffer(handed)

    def same(handed: r.HandedOff) -> str:
        same = (handed.agent, handed.digest) == (agent.name, given.digest)
        return "" if same else "hands over another input than when it was recorded"

    await journaled(scope, step, r.HandedOff, record, same)
    return scope.handed(step, authority)


# --- messages ----------------------------------------------------------------------------------------------------


@sealing
async def read_messages(scope: Scope) -> Messages:
    """The messages that this branch has not received yet. The read is journaled even if there are none."""
    active, step = scope.active, scope.step("messages")

    async def record(_: object) -> None:
        await take_commands(active)
        messages = active.history.messages
        entries = () if messages is None else tuple(one for one in messages.received if one > scope.host.last_received)
        active.log.buffer(r.MessageHeard(step=step, messages=entries, **active.log.stamp()))

    await journaled(scope, step, r.MessageHeard, record)
    return deliver_messages(scope, step)


def with_metadata(scope: Scope, intent: r.Intent, about: CallMetadata) -> r.Intent:
    """The intent with this metadata. The default confidence is that of the preceding decision in the branch."""
    sure = scope.host.sure if about.confidence is None else about.confidence
    return msgspec.structs.replace(intent, confidence=sure, taint=about.taint, again=about.again, covered=about.covered)
