"""One operation that this process drives, with its tool, what was found out about it, and the ways to record and wait.

First come the facts that no record holds: plain data, found again after a crash. The functions at the end show the
operation as its tool and its handlers see it.
"""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from beforehand.errors import ArgumentError
from beforehand.model import records as r
from beforehand.model.contract import Contract, contract_digest, stricter
from beforehand.model.ids import approval_digest, operation_id
from beforehand.model.operation import key_of
from beforehand.model.saga import CONFIRM, serving
from beforehand.model.transaction import around
from beforehand.model.transitions import apply
from beforehand.model.view import Operation

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Mapping

    from beforehand.engine.active_run.log import RunRecorder, SharedLimits
    from beforehand.engine.active_run.run import ActiveRun
    from beforehand.engine.active_run.scopes import Scope
    from beforehand.engine.current_operation import CallReport, CurrentOperation
    from beforehand.engine.suspension import BudgetRefusal, Pause
    from beforehand.engine.tool_protocol import ToolCode
    from beforehand.journal.port import Permit, Post
    from beforehand.model.decision.moves import Move
    from beforehand.model.decision.situation import OtherEffect, Reading, Situation, SpentBudget
    from beforehand.model.operation import OperationState
    from beforehand.model.standing_permission import StandingPermission

PLAIN_TYPES: Final = frozenset({str, int, bool, float, bytes, type(None)})

ClaimState = Literal["taken", "succeeded", "released", "ended"]


class CallResult(msgspec.Struct, frozen=True):
    """The result of a call. `over` is false if the call still runs after it was given up."""

    value: Any = None
    error: BaseException | None = None
    over: bool = True
    key_read: bool = True
    sends: int = 0  # how often the tool reported that it was about to send
    cost: float | None = None
    reported: CallReport | None = None


class ClaimNote(msgspec.Struct, frozen=True, omit_defaults=True):
    """One ledger entry about an effect: which operation, with which arguments, in which state.

    `by` is the person who said that it happened, and so gave its result.
    """

    operation: str
    digest: str
    state: ClaimState
    generation: int = 0
    outside: int = 0
    result: r.Raw = r.NOTHING
    by: str = ""


class ClaimHolder(msgspec.Struct, frozen=True):
    """Holder of a business key, or last write with the same parameters. `since_ms`: wall clock of its first note."""

    note: ClaimNote
    since_ms: int

    @property
    def stands(self) -> bool:
        """True if its effect exists, or may: an operation whose outcome is unknown keeps its key."""
        return self.note.state in {"taken", "succeeded"}


class CoveringPermission(msgspec.Struct, frozen=True):
    """A standing permission that covers an operation, as this process last read it. `cost` is the cost of one use."""

    permission: StandingPermission
    cost: float
    arguments: msgspec.Raw


class Decided(msgspec.Struct, frozen=True, gc=False):
    """A question and the answer of `decide`."""

    operation: OperationState
    situation: Situation
    move: Move


class LedgerFindings(msgspec.Struct, frozen=True, gc=False):
    """The entries about other operations with the same effect as a new one, as `conflicts.py` reads them."""

    other: OtherEffect | None = None  # the effect of another operation that this one conflicts with
    holder: ClaimHolder | None = None
    taking: tuple[int, int] | None = None  # the generation of the business key that is about to be taken
    after: int | None = None  # how many writes with the same `once` parameters were known when a model chose this one
    things_taken: int | None = None  # how many attempts about the same thing were known when it was checked
    key_age_ms: int = 0
    waiting_since: int | None = None  # when it first looked for effects of others


class Findings(msgspec.Struct):
    """Unrecorded facts about an operation that this process found out."""

    reading: Reading = "unread"  # how the preconditions compare with those that were read first
    observed: r.Raw = r.NOTHING
    ledger: LedgerFindings = LedgerFindings()
    gate: bool | None = None  # True if the contract requires an approval; None: not evaluated yet
    judged: r.Raw = r.NOTHING  # the arguments for which it was evaluated
    misfit: str = ""  # why the recorded arguments cannot be given to the tool as it is now
    misfit_of: r.Raw = r.NOTHING  # the arguments that were tried
    permission: CoveringPermission | None = None  # the standing permission that covers this operation
    permit: Permit | None = None  # the permit of its attempt, where the tool has a limit
    decided: Decided | None = None  # the last question, if its answer needed no clock
    refusal: BudgetRefusal | None = None  # the limit of a shared budget that has refused it, until it is asked again
    spent: SpentBudget | None = None  # the same for `decide`; also a price in another currency than a budget
    held_since: int = 0  # the wall clock at which failing attempts began to hold a caller in this process
    hung: str = ""  # the process whose call was given up and may still run, in words; empty: no process is known


def snapshot_arguments(arguments: Mapping[str, Any], *, executable: bool) -> dict[str, Any]:
    """The present arguments of a call. Values that the record cannot give back are copied: code may change them."""
    plain = executable or PLAIN_TYPES.issuperset(map(type, arguments.values()))
    return dict(arguments) if plain else deepcopy(dict(arguments))


class OperationDriver(msgspec.Struct, eq=False):
    """One operation that this process drives: the one parameter of every performer (`wait`, `verify`, `park`, ...).

    `draft` is the operation as it was when nothing about it was recorded yet. Reads are not journaled step by step:
    their state lives here until they end.
    """

    active: ActiveRun
    step: str
    tool: ToolCode | None
    draft: OperationState | None
    journaled: bool = True
    arguments: dict[str, Any] | None = None
    state: OperationState | None = None
    calls: dict[int, asyncio.Future[Any]] = {}
    found: Findings = msgspec.field(default_factory=Findings)
    scope: Scope | None = None  # the branch whose task drives it; None: a task of its own does
    started: r.AttemptStarted | None = None  # the attempt that is under way
    decided_on: OperationState | None = None  # the operation without that attempt, as it was when the send was decided
    answer: CallResult | None = None  # the result of its call, until that is filed
    current: CurrentOperation | None = None
    log: RunRecorder = None  # type: ignore[assignment]  # set from the run that is given

    def __post_init__(self) -> None:
        """Take over known state: the draft, and calls that outlived an earlier drive of the same operation."""
        self.log = self.active.log
        self.state = self.draft
        calls = self.active.process.calls
        if calls.any_late and (late := calls.late(self.id)) is not None:
            self.calls = late

    @property
    def id(self) -> str:
        """The operation's full name."""
        return operation_id(self.active.run, self.step)

    @property
    def operation(self) -> OperationState:
        """The operation as it is now."""
        operation = self.active.history.operations.get(self.step, self.state) if self.journaled else self.state
        assert operation is not None, self.step
        return operation

    @property
    def forgotten(self) -> bool:
        """True if the operation has been settled, and the history has dropped it with its transaction."""
        history = self.active.history
        if not self.journaled or self.step in history.operations:
            return False
        return self.state is None or any(one.over for one in around(self.step, history.boundaries.by_name))

    def contract(self, operation: OperationState | None = None) -> Contract:
        """The clauses that hold for the next attempt: the stricter of what was stored and what is declared now."""
        tool, operation = self.tool, operation or self.operation
        if tool is not None and tool.digest == operation.contract:
            return tool.contract
        record = self.active.history.contracts.get(operation.contract)
        stored = msgspec.json.decode(record.clauses, type=Contract) if record is not None else None
        if tool is None:
            gone = stored or Contract(operation.intent.tool)
            verifies = gone.verifies and operation.intent.late  # the code of a host brings its verifier
            return msgspec.structs.replace(gone, verifies=verifies, observes=False)
        return tool.contract if stored is None else stricter(stored, tool.contract)

    def asks(self, operation: OperationState) -> str:
        """The digest of exactly what a person would be asked to approve now; empty if no approval is needed."""
        found, tool = self.found, self.tool
        if not (
            found.gate
            or found.ledger.other
            or operation.approval.asked_digest
            or operation.approval.orders
            or operation.editing.called
            or operation.judgement.ruling
        ):
            return ""  # and most operations need none
        contract = operation.contract
        if tool is not None and tool.digest != contract:
            # The clauses of this code, with the gate that holds: one call's own is in the record, and not in the tool.
            contract = contract_digest(msgspec.structs.replace(tool.contract, gate=self.contract(operation).gate))
        conflicts = bool(found.gate or found.ledger.other)
        namespace = self.active.process.identity.namespace
        return approval_asked(namespace, self.id, operation, contract, conflicts=conflicts)

    def gated(self, condition: str) -> bool:
        """True if this condition of its gate requires an approval. One that cannot be judged requires it."""
        try:
            return self.tool is None or self.tool.gated(condition, decoded(self))
        except (ArgumentError, ValueError):
            return True

    async def record(
        self, *records: r.OperationRecord | r.MessageHeard, ride: bool = False, posts: tuple[Post, ...] = (),
        limits: SharedLimits | None = None,
    ) -> None:  # fmt: skip
        """Record what happened to this operation; with `limits` as `RunRecorder.append`. A read keeps it in memory."""
        if not self.journaled:
            for record in records:
                assert not isinstance(record, r.MessageHeard), "a read is not called off by a message"
                self.state = apply(self.state, record, self.active.history.ownership.boot)
            return
        log = self.log
        stored: tuple[r.Record, ...] = records
        if self.tool is not None and self.step not in log.history.operations:
            stored = (*log.contract_record(self.tool), *records)
        if ride and not posts:
            log.buffer(*stored)
        else:
            await log.append(*stored, posts=posts, limits=limits)

    async def rest(self, pause: Pause, seconds: float, other: str | None = None) -> None:
        """Wait for news of this operation or the `other`, or for the time; the run may be suspended meanwhile."""
        await self.active.waiters.rest(self.step, pause, seconds, self.scope, other)

    def wake(self) -> None:
        """Let it evaluate its situation again, if it rests."""
        self.active.waiters.wake(self.step)

    def settled(self) -> None:
        """Wake the waiters of this operation: something about it is final."""
        self.active.waiters.settled(self.step)

    def of(self, step: str) -> OperationDriver:
        """Another recorded operation of the same run."""
        return driver_of(self.active, step)

    def timeout_ms(self, started: r.AttemptStarted) -> int:
        """How long after its start an attempt may send."""
        return started.send_by or self.contract().timeout_ms


def tool_of(intent: r.Intent, tools: Mapping[str, ToolCode]) -> ToolCode | None:
    """The tool of a recorded call; None if it is gone, or only the code of a host has it.

    An app may have a tool of its own under the name of a host's function: it would perform another effect.
    """
    return None if intent.late else tools.get(intent.tool)


def driver_of(active: ActiveRun, step: str) -> OperationDriver:
    """A recorded operation as this process drives it, or would."""
    if (driver := active.drivers.operations.get(step)) is not None:
        assert isinstance(driver, OperationDriver), step
        return driver
    tool = tool_of(active.history.operations[step].intent, active.process.tools)
    return OperationDriver(active, step, tool, None)


# --- its name, and what is recorded about it -------------------------------------------------------------------------


def recorded(driver: OperationDriver) -> bool:
    """True if the journal has this operation already."""
    return driver.journaled and driver.step in driver.log.history.operations


def plan(driver: OperationDriver, waits_for: str = "") -> tuple[r.OperationPlanned, ...]:
    """The record that makes a new operation exist before anything is attempted; empty where one does already."""
    if not driver.journaled or driver.step in driver.log.history.operations:
        return ()
    return (planned(driver, waits_for),)


def planned(driver: OperationDriver, waits_for: str = "") -> r.OperationPlanned:
    """The record that makes this operation exist before anything is attempted."""
    return r.OperationPlanned(
        step=driver.step, intent=driver.operation.intent, waits_for=waits_for, **driver.log.stamp()
    )


def intent_of(driver: OperationDriver) -> r.Intent:
    """The intent, with the generation of the business key that this process is about to take."""
    operation, taking = driver.operation, driver.found.ledger.taking
    if taking is None or operation.attempts:
        return operation.intent
    return msgspec.structs.replace(operation.intent, generation=taking[0], outside=taking[1])


def operation_key(driver: OperationDriver) -> str:
    """The idempotency key of this operation."""
    log = driver.log
    return key_of(log.process.identity.namespace, log.run, driver.step, intent_of(driver))


def approval_asked(namespace: str, name: str, operation: OperationState, contract: str, *, conflicts: bool) -> str:
    """The digest of exactly what a person would be asked to approve; empty if no approval is needed.

    `contract` is the digest of the clauses that hold now. `conflicts`: its gate, or an effect of another operation,
    requires an approval.
    """
    ruled = operation.judgement.ruling is not None and operation.judgement.ruling.asks
    orders = operation.approval.orders
    if not (conflicts or operation.approval.asked_digest or operation.edits or ruled or orders):
        return ""
    intent = operation.intent
    words = (intent.tool.encode(), contract.encode(), intent.digest.encode())
    values = bytes(intent.arguments), bytes(operation.observed)
    policy = (operation.judgement.policy.encode(),) if operation.judgement.policy else ()
    again = (str(orders).encode(),) if orders else ()  # so that no yes answers a later question
    return approval_digest(namespace, name, *words, *values, *policy, *again)


# --- as its tool and its handlers see it -----------------------------------------------------------------------------


def decoded(driver: OperationDriver) -> dict[str, Any]:
    """The arguments for one call of the tool or a handler: exactly those that are on record.

    Values that could be changed (by agent code meanwhile, or by an earlier attempt) are read back from
    the record each time. What the record cannot give back is taken as the caller gave it.
    """
    operation = driver.operation
    given, intent = None if operation.edits else driver.arguments, operation.intent
    forward = served(driver) if intent.serves else driver
    tool = forward.tool
    if tool is None and forward.operation.intent.late:
        return msgspec.json.decode(intent.arguments, type=dict[str, Any])  # only the code of a host has the tool
    if tool is None:
        raise ArgumentError(f"the tool {intent.tool} or the one that it serves is no longer in this app")
    if given is not None and PLAIN_TYPES.issuperset(map(type, given.values())):
        return given
    if given is not None and not intent.executable:
        return deepcopy(given)  # a tool may change what it is given, and another attempt sends the same
    try:
        return tool.spec.restore(bytes(intent.arguments))
    except ArgumentError:
        if given is None:
            raise
        return given


def served(driver: OperationDriver) -> OperationDriver:
    """The operation that this one compensates or confirms."""
    return driver.of(driver.operation.intent.serves)


def leading_arguments(driver: OperationDriver) -> tuple[Operation[Any], ...]:
    """The positional arguments of the call: the operation that it serves, if it serves one."""
    return (view_of_outcome(served(driver)),) if driver.operation.intent.serves else ()


def view_of_outcome(driver: OperationDriver) -> Operation[Any]:
    """The operation with its decoded result, where it has one."""
    operation, tool = driver.operation, driver.tool
    if operation.phase != "succeeded" or operation.settlement.lost or (tool is None and not operation.intent.late):
        return view(driver)
    result = operation.settlement.result
    return view(driver, msgspec.json.decode(result) if tool is None else tool.codec.decode(result))


def view(driver: OperationDriver, value: Any = None) -> Operation[Any]:
    """The operation as handlers see it."""
    operation = driver.operation
    intent = operation.intent
    confirmation = driver.log.history.operations.get(serving(driver.step, CONFIRM))
    return Operation(
        id=driver.id,
        run=driver.log.run,
        step=driver.step,
        tool=intent.tool,
        key=operation_key(driver),
        status=operation.status,
        arguments=decoded(driver),
        attempts=len(operation.attempts),
        started_ms=operation.attempts[0].at if operation.attempts else 0,
        observed=msgspec.json.decode(operation.observed),
        expected=msgspec.json.decode(intent.expected),
        value=value,
        serves=view_of_outcome(served(driver)) if intent.serves else None,
        confirmed=confirmation is not None and confirmation.phase == "succeeded",
    )


def masked(driver: OperationDriver, end: r.End) -> r.End:
    """The end of a call without the secrets that the call was given. A result that no longer fits is lost."""
    masks, tool = driver.log.masks, driver.tool
    if not masks or tool is None:
        return end
    kept = masks.end(end, driver.arguments, tool.spec.redact)
    if kept.result == end.result or not tool.codec.misfit(bytes(kept.result)):
        return kept
    why = "the result repeats a secret, and what remains without it does not fit the tool's annotation"
    return msgspec.structs.replace(kept, result=r.NOTHING, lost=True, why=why)


def masked_value(driver: OperationDriver, value: r.Raw) -> r.Raw:
    """A JSON value without the secrets that the call was given: the same each time, so that readings compare."""
    masks, tool = driver.log.masks, driver.tool
    return masks.own(value, driver.arguments, tool.spec.redact) if masks and tool is not None else value
