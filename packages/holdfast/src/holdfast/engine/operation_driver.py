"""One operation on its way: what the executor holds in memory beside the records, and what decisions are made from."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from copy import deepcopy
from typing import TYPE_CHECKING, Any, Final

import msgspec

from holdfast.engine.messages import has_undelivered_message, undelivered_facts
from holdfast.errors import ArgumentError
from holdfast.model import records as r
from holdfast.model.contract import Contract, stricter
from holdfast.model.decision.decide import decide
from holdfast.model.decision.situation import Elsewhere, Now, Reading, Situation, Stop
from holdfast.model.ids import approval_digest, claim_identity, idempotency_key, operation_id
from holdfast.model.saga import CONFIRM, serving
from holdfast.model.system import is_system
from holdfast.model.transaction import around, encloses
from holdfast.model.transitions import apply
from holdfast.model.view import Operation

if TYPE_CHECKING:
    from holdfast.engine.active_run.run import ActiveRun
    from holdfast.engine.approvals import StandingPermit
    from holdfast.engine.claims import ClaimHolder
    from holdfast.engine.current_operation import CurrentOperation
    from holdfast.engine.invoke import CallResult
    from holdfast.engine.scopes import Scope
    from holdfast.engine.tool_protocol import ToolCode
    from holdfast.journal.port import Post
    from holdfast.model.decision.moves import Move
    from holdfast.model.operation import OperationState

_NONE: Final[frozenset[int]] = frozenset()
_FIXED: Final = frozenset({str, int, bool, float, bytes, type(None)})


def snapshot_arguments(arguments: Mapping[str, Any], *, executable: bool) -> dict[str, Any]:
    """The arguments of a call as they are now. What the record cannot give back is copied: code may change it later."""
    plain = executable or _FIXED.issuperset(map(type, arguments.values()))
    return dict(arguments) if plain else deepcopy(dict(arguments))


class OperationDriver(msgspec.Struct, eq=False):
    """An operation being driven by this process.

    `tool` is None where the app does not have it any more, `draft` the operation as it was when nothing about it was
    recorded yet. Reads are not journaled step by step: their state lives here until they end.
    """

    instance: ActiveRun
    step: str
    tool: ToolCode | None
    draft: OperationState | None
    journaled: bool = True
    arguments: dict[str, Any] | None = None
    state: OperationState | None = None
    calls: dict[int, asyncio.Future[Any]] = {}
    scope: Scope | None = None  # the branch whose task drives it; None: a task of its own does
    started: r.AttemptStarted | None = None  # the attempt that is under way
    answer: CallResult | None = None  # what came of its call, until that is filed
    current: CurrentOperation | None = None
    hung: str = ""  # the process whose call was given up and may still run, in words; empty: no process is known
    reading: Reading = "unread"
    observed: r.Raw = r.NOTHING
    elsewhere: Elsewhere | None = None
    holder: ClaimHolder | None = None
    taking: tuple[int, int] | None = None
    after: int | None = None  # how many writes with the same words were known when a model chose this one
    things_taken: int | None = None  # how many attempts about the same thing were known when it was looked at
    gate: bool | None = None  # whether the contract asks for a person; None: not looked at yet
    judged: r.Raw = r.NOTHING  # the arguments for which it was looked at
    permit: StandingPermit | None = None  # what a person allowed beforehand, and covers this
    key_age_ms: int = 0
    waiting_since: int | None = None  # when it first looked for effects of others

    def __post_init__(self) -> None:
        """Take up what is known: the draft, and calls that outlived an earlier flight of the same operation."""
        self.state = self.draft
        if (late := self.instance.engine.late_calls(self.instance.run, self.step)) is not None:
            self.calls = late

    @property
    def id(self) -> str:
        """The operation's full name."""
        return operation_id(self.instance.run, self.step)

    @property
    def operation(self) -> OperationState:
        """The operation as it stands now."""
        operation = self.instance.history.operations.get(self.step, self.state) if self.journaled else self.state
        assert operation is not None, self.step
        return operation

    @property
    def recorded(self) -> bool:
        """Whether the journal knows this operation already."""
        return self.journaled and self.step in self.instance.history.operations

    @property
    def forgotten(self) -> bool:
        """Whether the operation was settled meanwhile, and the history let go of it with its transaction."""
        history = self.instance.history
        if not self.journaled or self.step in history.operations:
            return False
        return self.state is None or any(one.over for one in around(self.step, history.transactions))

    @property
    def intent(self) -> r.Intent:
        """The intent, with the generation of the business key that this process is about to take."""
        intent = self.operation.intent
        if self.taking is None or self.operation.attempts:
            return intent
        return msgspec.structs.replace(intent, generation=self.taking[0], outside=self.taking[1])

    @property
    def key(self) -> str:
        """The idempotency key of this operation."""
        return key_of(self.instance.engine.identity.namespace, self.instance.run, self.step, self.intent)

    def contract(self, operation: OperationState | None = None) -> Contract:
        """The clauses that hold for the next attempt: the stricter of what was stored and what is declared now."""
        tool, operation = self.tool, operation or self.operation
        if tool is not None and tool.digest == operation.contract:
            return tool.contract
        record = self.instance.history.contracts.get(operation.contract)
        stored = msgspec.json.decode(record.clauses, type=Contract) if record is not None else None
        if tool is None:
            gone = stored or Contract(operation.intent.tool)
            return msgspec.structs.replace(gone, verifies=False, observes=False)
        return tool.contract if stored is None else stricter(stored, tool.contract)

    def next_move(self, operation: OperationState, now: Now) -> Move:
        """What `decide` says about the operation as it stands now. There is no other way to a move."""
        return decide(operation, self.situation(operation), now)

    def situation(self, operation: OperationState) -> Situation:
        """Everything that `decide` has to know beside the operation."""
        instance, contract = self.instance, self.contract(operation)
        engine = instance.engine
        settings = engine.settings
        return Situation(
            contract=contract,
            claimed_up=instance.claimed_up,
            tool="gone" if self.tool is None else "present",
            distrusted=engine.identity.reason if engine.identity.trust == "distrustful" else "",
            began_doubtful=engine.identity.trust == "doubtful",
            stop=self._stop(operation),
            gate="wanted" if self._gated(contract) and self.permit is None else "",
            policy=self._policy(operation),
            permitted=self.permit is not None,
            asks=self.asks,
            hold="" if operation.released else operation.intent.hold,
            paused=engine.pauses.get(operation.intent.tool, "") or self._rests(),
            breaker_ms=engine.breakers.wait_ms(operation.intent.tool, retry=bool(operation.attempts)),
            elsewhere=self.elsewhere,
            at_hand=self.arguments is not None,
            live=frozenset(n for n, call in self.calls.items() if not call.done()) if self.calls else _NONE,
            reading=self.reading,
            key_age_ms=self.key_age_ms,
            deaths_allowed=settings.deaths_allowed,
            clock_error_ms=settings.clock_error_ms,
            slow_verify_ms=_slow_verify_ms(instance),
            hung=self.hung,
            hung_owner_ms=settings.hung_owner_ms,
        )

    def _rests(self) -> str:
        """What the run rests for; after a crash, also a message that may have corrected what is under way."""
        if self.instance.history.paused is not None:
            return "the run"
        return "a message" if self.instance.catching_up and undelivered_facts(self.instance) else ""

    def _gated(self, contract: Contract) -> bool:
        """Whether the contract asks for a person. What cannot be judged is asked about."""
        gate, tool = contract.gate, self.tool
        if gate is None:
            self.gate = False
        elif self.gate is None or self.judged is not self.operation.intent.arguments:
            self.judged = self.operation.intent.arguments
            try:
                self.gate = tool is None or tool.gated(gate.when, self.decoded())
            except (ArgumentError, ValueError):
                self.gate = True
        return self.gate

    def _policy(self, operation: OperationState) -> str:
        """The version of the policy that has a say in this; what was begun or is held was judged before."""
        judge = self.instance.engine.judge
        if judge is None or not self.journaled or operation.attempts or operation.released or operation.intent.serves:
            return ""
        started = self.instance.history.started
        return "" if started is None or is_system(started.agent) else judge.version

    @property
    def asks(self) -> str:
        """The digest of exactly what a person would be asked to approve now."""
        operation = self.operation
        ruled = operation.judgement.ruling is not None and operation.judgement.ruling.asks
        wanted = self.gate or self.elsewhere or operation.approval.asks or operation.edits or ruled
        return self.asks_of(operation.intent) if wanted else ""

    def asks_of(self, intent: r.Intent) -> str:
        """The same for these arguments, where everything else is as it is now."""
        operation, instance = self.operation, self.instance
        contract = self.tool.digest if self.tool is not None else operation.contract
        words = (intent.tool.encode(), contract.encode(), intent.digest.encode())
        values = bytes(intent.arguments), bytes(operation.observed)
        policy = (operation.judgement.policy.encode(),) if operation.judgement.policy else ()
        return approval_digest(instance.engine.identity.namespace, self.id, *words, *values, *policy)

    def _stop(self, operation: OperationState) -> Stop:
        """What ends the sending of this operation, if anything does.

        Nothing that ends a run ends what makes amends in it, or what a commit has begun to send.
        """
        history, intent = self.instance.history, operation.intent
        if history.status == "stopped":
            return "stopped" if history.cancelled is None else "cancel"
        if intent.confirms and not operation.attempts and history.called_off(self.step) is not None:
            return "aborting"  # what is being released is not confirmed any more
        if intent.serves or operation.released:
            return ""
        if history.transactions:
            if history.called_off(self.step) is not None:
                return "aborting"
            if intent.hold and any(one.phase != "open" for one in around(self.step, history.transactions)):
                return ""
        return stop_of(self.instance) or self._told(operation) or self._dropped()

    def _dropped(self) -> Stop:
        """Whether this belongs to a step of a plan that rested on what was corrected."""
        return "corrected" if any(encloses(one, self.step) for one in self.instance.history.given_up) else ""

    def _told(self, operation: OperationState) -> Stop:
        """Whether a message stands in the way of a new write: nobody who began or waits for this one has heard it."""
        messages = self.instance.history.messages
        if messages is None or not self.journaled or operation.may_have_landed:
            return ""
        if self.step in messages.called_off:
            return "told"
        new = not operation.attempts and self.scope is not None
        return "told" if new and self.scope is not None and has_undelivered_message(self.scope) else ""

    def masked(self, end: r.End) -> r.End:
        """The end of a call without the secrets that the call was given. A result that no longer fits is lost."""
        masks, tool = self.instance.masks, self.tool
        if not masks or tool is None:
            return end
        masked = masks.end(end, self.arguments, tool.redact)
        if masked.result == end.result or not tool.codec.misfit(bytes(masked.result)):
            return masked
        why = "the result repeats a secret, and what remains without it does not fit the tool's annotation"
        return msgspec.structs.replace(masked, result=r.NOTHING, lost=True, why=why)

    def masked_value(self, value: r.Raw) -> r.Raw:
        """A JSON value without the secrets that the call was given: the same each time, so that readings compare."""
        masks, tool = self.instance.masks, self.tool
        return masks.own(value, self.arguments, tool.redact) if masks and tool is not None else value

    async def note(
        self, *records: r.OperationRecord | r.MessageHeard, ride: bool = False, posts: tuple[Post, ...] = ()
    ) -> None:
        """Record what happened to this operation. A read keeps it in memory."""
        if not self.journaled:
            for record in records:
                assert not isinstance(record, r.MessageHeard), "a read is not called off by a message"
                self.state = apply(self.state, record, self.instance.history.boot)
            return
        instance = self.instance
        stored: tuple[r.Record, ...] = records
        if self.tool is not None and self.step not in instance.history.operations:
            stored = (*instance.contract_record(self.tool), *records)
        if ride and not posts:
            instance.ride(*stored)
        else:
            await instance.append(*stored, posts=posts)

    def limit_ms(self, started: r.AttemptStarted) -> int:
        """How long after its start an attempt may send."""
        return started.send_by or self.contract().timeout_ms

    def planned(self, waits_for: str = "") -> r.OperationPlanned:
        """The record that makes this operation exist before anything is attempted."""
        return r.OperationPlanned(
            step=self.step, intent=self.operation.intent, waits_for=waits_for, **self.instance.stamp()
        )

    def decoded(self) -> dict[str, Any]:
        """The arguments for one call of the tool or a handler: exactly those that are on record.

        Values that could be changed (by agent code meanwhile, or by an earlier attempt) are read back from
        the record each time. What the record cannot give back is taken as the caller gave it.
        """
        operation = self.operation
        given, intent = None if operation.edits else self.arguments, operation.intent
        tool = self.served().tool if intent.serves else self.tool
        if tool is None:
            raise ArgumentError(f"the tool {intent.tool} or the one it serves is not here any more")
        if given is not None and _FIXED.issuperset(map(type, given.values())):
            return given
        if given is not None and not intent.executable:
            return deepcopy(given)  # a tool may change what it is given, and another attempt sends the same
        try:
            return tool.restore(bytes(intent.arguments))
        except ArgumentError:
            if given is None:
                raise
            return given

    def served(self) -> OperationDriver:
        """The operation that this one makes amends for, or confirms."""
        return driver_of(self.instance, self.operation.intent.serves)

    def given(self) -> tuple[Operation[Any], ...]:
        """What the call is given before its arguments: the operation that it serves, if it serves one."""
        return (self.served().view_of_outcome(),) if self.operation.intent.serves else ()

    def view_of_outcome(self) -> Operation[Any]:
        """The operation with its decoded result, where it has one."""
        operation, tool = self.operation, self.tool
        known = operation.phase == "succeeded" and not operation.settlement.lost and tool is not None
        return self.view(tool.codec.decode(operation.settlement.result) if known and tool is not None else None)

    def _confirmed(self) -> bool:
        done = self.instance.history.operations.get(serving(self.step, CONFIRM))
        return done is not None and done.phase == "succeeded"

    def view(self, value: Any = None) -> Operation[Any]:
        """The operation as handlers see it."""
        operation = self.operation
        intent = operation.intent
        return Operation(
            id=self.id,
            run=self.instance.run,
            step=self.step,
            tool=intent.tool,
            key=self.key,
            status=operation.status,
            arguments=self.decoded(),
            attempts=len(operation.attempts),
            started_ms=operation.attempts[0].at if operation.attempts else 0,
            observed=msgspec.json.decode(operation.observed),
            expected=msgspec.json.decode(intent.expected),
            value=value,
            serves=self.served().view_of_outcome() if intent.serves else None,
            confirmed=self._confirmed(),
        )


def driver_of(instance: ActiveRun, step: str) -> OperationDriver:
    """A recorded operation as this process drives it, or would."""
    if (flight := instance.flights.get(step)) is not None:
        return flight
    tool = instance.engine.tools.get(instance.history.operations[step].intent.tool)
    return OperationDriver(instance, step, tool, None)


def stop_of(instance: ActiveRun) -> Stop:
    """What ends the sending of the whole run, if anything does."""
    if instance.history.cancelled is not None:
        return "cancel"
    deadline = instance.engine.deadline_of(instance.history)
    return "deadline" if deadline is not None and instance.engine.environment.clock.wall_ms() >= deadline else ""


def _slow_verify_ms(instance: ActiveRun) -> int:
    """How far apart readings are once a person was asked; ever further once the run has stopped."""
    slow, stopped = instance.engine.settings.slow_verify_ms, instance.history.stopped
    return slow if stopped is None else max(slow, instance.engine.environment.clock.wall_ms() - stopped.at)


def key_of(namespace: str, run: str, step: str, intent: r.Intent) -> str:
    """The idempotency key of an operation: from its business key where it has one, else from its own name."""
    if intent.claim:
        return idempotency_key(namespace, claim_identity(intent.tool, intent.claim, intent.outside))
    return idempotency_key(namespace, operation_id(run, step))
