"""The interface between the performers of moves and the operation that is driven.

`OperationDriver` is the one parameter of every performer (`wait`, `verify`, `observe`, `park`, `hold`, `judge`, ...):
the operation with its tool, what this process found out about it, and the ways to record, to wait and to wake others.
The functions below show the operation as its tool and its handlers see it.
"""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from beforehand.errors import ArgumentError
from beforehand.model import records as r
from beforehand.model.ids import approval_digest
from beforehand.model.operation import key_of
from beforehand.model.saga import CONFIRM, serving
from beforehand.model.view import Operation

if TYPE_CHECKING:
    import asyncio

    from beforehand.engine.active_run.log import RunRecorder, SharedLimits
    from beforehand.engine.approvals import CoveringPermission
    from beforehand.engine.conflicts import ClaimHolder
    from beforehand.engine.suspension import BudgetRefusal, Pause
    from beforehand.engine.tool_protocol import ToolCode
    from beforehand.journal.port import Permit, Post
    from beforehand.model.contract import Contract
    from beforehand.model.decision.moves import Move
    from beforehand.model.decision.situation import OtherEffect, Reading, Situation, SpentBudget
    from beforehand.model.operation import OperationState

PLAIN_TYPES: Final = frozenset({str, int, bool, float, bytes, type(None)})


class Decided(msgspec.Struct, frozen=True, gc=False):
    """A question and the answer of `decide`."""

    operation: OperationState
    situation: Situation
    move: Move


class Findings(msgspec.Struct):
    """Unrecorded facts about an operation that this process found out; after a crash they are found out again."""

    reading: Reading = "unread"  # how the preconditions compare with those that were read first
    observed: r.Raw = r.NOTHING
    other: OtherEffect | None = None  # the effect of another operation that this one conflicts with
    holder: ClaimHolder | None = None
    taking: tuple[int, int] | None = None  # the generation of the business key that is about to be taken
    after: int | None = None  # how many writes with the same `once` parameters were known when a model chose this one
    things_taken: int | None = None  # how many attempts about the same thing were known when it was checked
    gate: bool | None = None  # True if the contract requires an approval; None: not evaluated yet
    judged: r.Raw = r.NOTHING  # the arguments for which it was evaluated
    misfit: str = ""  # why the recorded arguments cannot be given to the tool as it is now
    misfit_of: r.Raw = r.NOTHING  # the arguments that were tried
    permission: CoveringPermission | None = None  # the standing permission that covers this operation
    key_age_ms: int = 0
    waiting_since: int | None = None  # when it first looked for effects of others
    permit: Permit | None = None  # the permit of its attempt, where the tool has a limit
    decided: Decided | None = None  # the last question, if its answer needed no clock
    refusal: BudgetRefusal | None = None  # the limit of a shared budget that has refused it, until it is asked again
    spent: SpentBudget | None = None  # the same for `decide`; also a price in another currency than a budget
    held_since: int = 0  # the wall clock at which failing attempts began to hold a caller in this process
    hung: str = ""  # the process whose call was given up and may still run, in words; empty: no process is known


class OperationDriver(Protocol):
    """An operation being driven, as the performers of moves see it."""

    step: str
    tool: ToolCode | None  # None if the app no longer has it
    arguments: dict[str, Any] | None  # as the caller gave them; None where only the record has them
    journaled: bool  # False for a read: its state is kept in memory until it ends
    state: OperationState | None  # the operation while it is kept in memory only
    calls: dict[int, asyncio.Future[Any]]
    found: Findings
    log: RunRecorder

    @property
    def id(self) -> str:
        """The operation's full name."""
        ...

    @property
    def operation(self) -> OperationState:
        """The operation as it is now."""
        ...

    def contract(self, operation: OperationState | None = None) -> Contract:
        """The clauses that hold for the next attempt."""
        ...

    def situation(self, operation: OperationState) -> Situation:
        """Everything that `decide` reads besides the operation."""
        ...

    def asks(self, operation: OperationState) -> str:
        """The digest of exactly what a person would be asked to approve now; empty if no approval is needed."""
        ...

    async def record(
        self, *records: r.OperationRecord | r.MessageHeard, ride: bool = False, posts: tuple[Post, ...] = (),
        limits: SharedLimits | None = None,
    ) -> None:  # fmt: skip
        """Record what happened to this operation; `ride`: with the next commit."""
        ...

    async def rest(self, pause: Pause, seconds: float) -> None:
        """Wait until the operation is woken or the time has passed; the run may be suspended meanwhile."""
        ...

    def wake(self) -> None:
        """Let it evaluate its situation again, if it rests."""
        ...

    def settled(self) -> None:
        """Wake the waiters of this operation: something about it is final."""
        ...

    async def apply_commands(self) -> None:
        """Apply the commands that came for the run."""
        ...

    def of(self, step: str) -> OperationDriver:
        """Another recorded operation of the same run."""
        ...


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
    operation, taking = driver.operation, driver.found.taking
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
        return tool.restore(bytes(intent.arguments))
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
    kept = masks.end(end, driver.arguments, tool.redact)
    if kept.result == end.result or not tool.codec.misfit(bytes(kept.result)):
        return kept
    why = "the result repeats a secret, and what remains without it does not fit the tool's annotation"
    return msgspec.structs.replace(kept, result=r.NOTHING, lost=True, why=why)


def masked_value(driver: OperationDriver, value: r.Raw) -> r.Raw:
    """A JSON value without the secrets that the call was given: the same each time, so that readings compare."""
    masks, tool = driver.log.masks, driver.tool
    return masks.own(value, driver.arguments, tool.redact) if masks and tool is not None else value
