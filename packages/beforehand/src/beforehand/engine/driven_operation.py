"""One operation that this process drives: the executor's in-memory state besides the records."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import msgspec

from beforehand.engine.active_run.log import RunRecorder, SharedLimits
from beforehand.engine.active_run.run import ActiveRun
from beforehand.engine.active_run.scopes import Scope
from beforehand.engine.commands import take_commands
from beforehand.engine.current_operation import CurrentOperation
from beforehand.engine.operation_driver import PLAIN_TYPES, Findings, approval_asked, decoded
from beforehand.engine.situation import situation_of
from beforehand.engine.suspension import Pause
from beforehand.engine.tool_protocol import ToolCode, tool_of
from beforehand.errors import ArgumentError
from beforehand.journal.port import Post
from beforehand.model import records as r
from beforehand.model.contract import Contract, contract_digest, stricter
from beforehand.model.decision.situation import Situation
from beforehand.model.ids import operation_id
from beforehand.model.operation import OperationState
from beforehand.model.transaction import around
from beforehand.model.transitions import apply

if TYPE_CHECKING:
    from beforehand.engine.invoke import CallResult


def snapshot_arguments(arguments: Mapping[str, Any], *, executable: bool) -> dict[str, Any]:
    """The present arguments of a call. Values that the record cannot give back are copied: code may change them."""
    plain = executable or PLAIN_TYPES.issuperset(map(type, arguments.values()))
    return dict(arguments) if plain else deepcopy(dict(arguments))


class DrivenOperation(msgspec.Struct, eq=False):
    """The `OperationDriver` of the product.

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
        """True if the operation was settled meanwhile, and the history dropped it with its transaction."""
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

    def situation(self, operation: OperationState) -> Situation:
        """Everything that `decide` reads besides the operation."""
        return situation_of(self, operation)

    def asks(self, operation: OperationState) -> str:
        """The digest of exactly what a person would be asked to approve now; empty if no approval is needed."""
        found, tool = self.found, self.tool
        if not (
            found.gate
            or found.other
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
        conflicts = bool(found.gate or found.other)
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

    async def rest(self, pause: Pause, seconds: float) -> None:
        """Wait until the operation is woken or the time has passed; the run may be suspended meanwhile."""
        await self.active.waiters.rest(self.step, pause, seconds, self.scope)

    def wake(self) -> None:
        """Let it evaluate its situation again, if it rests."""
        self.active.waiters.wake(self.step)

    def settled(self) -> None:
        """Wake the waiters of this operation: something about it is final."""
        self.active.waiters.settled(self.step)

    async def apply_commands(self) -> None:
        """Apply the commands that came for the run."""
        await take_commands(self.active)

    def of(self, step: str) -> DrivenOperation:
        """Another recorded operation of the same run."""
        return driver_of(self.active, step)

    def timeout_ms(self, started: r.AttemptStarted) -> int:
        """How long after its start an attempt may send."""
        return started.send_by or self.contract().timeout_ms


def driver_of(active: ActiveRun, step: str) -> DrivenOperation:
    """A recorded operation as this process drives it, or would."""
    if (driver := active.drivers.operations.get(step)) is not None:
        assert isinstance(driver, DrivenOperation), step
        return driver
    tool = tool_of(active.history.operations[step].intent, active.process.tools)
    return DrivenOperation(active, step, tool, None)
